// SPDX-License-Identifier: MIT OR Apache-2.0
//! What arrives at a host's port, whatever it is: packets are counted and dropped.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};

use crate::attach::{Attached, attach_xdp, counters, program};
use crate::error::{Context, LabError};
use crate::port::Port;
use crate::skel::tally::TallySkelBuilder;

/// What has arrived since the tally was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallied {
    /// IP packets to the host's own MAC address, or to any other that is no group's.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
}

/// A tally on a port; dropping it detaches it.
#[derive(Debug)]
pub struct Tally {
    counts: MapHandle,
    _attached: Attached,
    _program: OwnedFd,
}

impl Tally {
    /// Puts a tally on a port.
    pub fn attach(port: &Port) -> Result<Self, LabError> {
        let mut storage = MaybeUninit::uninit();
        let open = TallySkelBuilder::default()
            .open(&mut storage)
            .context("open the tally")?;
        let skel = open.load().context("load the tally")?;
        let program = program(skel.object(), "tally")?;
        Ok(Self {
            counts: MapHandle::try_from(&skel.maps.counts).context("open the tally's counts")?,
            _attached: attach_xdp(program.as_fd(), port)?,
            _program: program,
        })
    }

    /// The counts of all CPUs.
    pub fn read(&self) -> Result<Tallied, LabError> {
        let counts = counters(&self.counts)?;
        let count = |at: usize| counts.get(at).copied().unwrap_or(0);
        Ok(Tallied {
            frames: count(0),
            bytes: count(1),
        })
    }
}
