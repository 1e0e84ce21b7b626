// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host that answers: UDP comes back as it is, a TCP SYN as SYN-ACK.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::attach::{Attached, admit_fragments, attach_xdp, counters, set_device};
use crate::error::{Context, LabError};
use crate::frame::FAR_ISN;
use crate::port::Port;
use crate::pppoe::HEADER_BYTES;
use crate::skel::reflector::ReflectorSkelBuilder;

/// A reflector on a port; dropping it detaches it. The port's peer needs GRO or an XDP program.
#[derive(Debug)]
pub struct Reflector {
    counters: MapHandle,
    _attached: Attached,
}

impl Reflector {
    /// Puts a reflector on a port.
    pub fn attach(port: &Port) -> Result<Self, LabError> {
        Self::attach_behind(0, port)
    }

    /// The same, of frames in a PPPoE session; others are left to the host's stack.
    pub fn attach_in_session(port: &Port) -> Result<Self, LabError> {
        Self::attach_behind(HEADER_BYTES, port)
    }

    fn attach_behind(header_bytes: u32, port: &Port) -> Result<Self, LabError> {
        let mut storage = MaybeUninit::uninit();
        let mut open = ReflectorSkelBuilder::default()
            .open(&mut storage)
            .context("open the reflector")?;
        admit_fragments(open.open_object_mut(), port)?;
        let rodata = open.maps.rodata_data.as_deref_mut();
        let rodata = rodata.ok_or_else(|| LabError::Invalid("the reflector has no data".into()))?;
        rodata.far_isn = FAR_ISN;
        rodata.header_len = header_bytes;
        let skel = open.load().context("load the reflector")?;
        let counters = MapHandle::try_from(&skel.maps.counters).context("open its counters")?;
        let out = MapHandle::try_from(&skel.maps.out).context("open the reflector's port map")?;
        set_device(&out, port)?;
        let attached = attach_xdp(skel.progs.reflector.as_fd(), port)?;
        Ok(Self {
            counters,
            _attached: attached,
        })
    }

    /// Frames sent back.
    pub fn reflected(&self) -> Result<u64, LabError> {
        Ok(counters(&self.counters)?.first().copied().unwrap_or(0))
    }

    /// TCP segments dropped.
    pub fn absorbed(&self) -> Result<u64, LabError> {
        Ok(counters(&self.counters)?.get(1).copied().unwrap_or(0))
    }
}
