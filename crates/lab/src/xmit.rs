// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a port's driver takes of a stream's frames. A stream counts what it redirects; a ring that is full drops afterwards.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};

use crate::attach::{counters, program, returned};
use crate::error::{Context, LabError};
use crate::port::Port;
use crate::skel::xmit::XmitSkelBuilder;

/// Counts what a port takes of live frames; dropping it ends that.
#[derive(Debug)]
pub struct Xmit {
    taken: MapHandle,
    // Both are needed for as long as it counts.
    _link: OwnedFd,
    _program: OwnedFd,
}

impl Xmit {
    /// Begins to count.
    pub fn watch(port: &Port) -> Result<Self, LabError> {
        let mut storage = MaybeUninit::uninit();
        let mut open = XmitSkelBuilder::default()
            .open(&mut storage)
            .context("open the counter of sent frames")?;
        let rodata = open.maps.rodata_data.as_deref_mut();
        let none = || LabError::Invalid("the counter of sent frames has no data".into());
        let rodata = rodata.ok_or_else(none)?;
        rodata.config.ifindex = port.ifindex;
        rodata.config.netns_inode = port.netns.inode()? as u32;
        let skel = open.load().context("load the counter of sent frames")?;
        let program = program(skel.object(), "xmit")?;
        // SAFETY: the descriptor is open, and a program of this type has its tracepoint's name in itself.
        let link = unsafe { libbpf_sys::bpf_raw_tracepoint_open(ptr::null(), program.as_raw_fd()) };
        Ok(Self {
            taken: MapHandle::try_from(&skel.maps.taken).context("open the sent frames' counts")?,
            _link: returned(link).context("watch the tracepoint xdp:xdp_devmap_xmit")?,
            _program: program,
        })
    }

    /// Frames that the driver has taken.
    pub fn taken(&self) -> Result<u64, LabError> {
        Ok(counters(&self.taken)?.first().copied().unwrap_or(0))
    }
}
