// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port that takes frames as slowly as a wire of some rate would: the ring of whoever sends to it fills.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};

use crate::attach::{Attached, attach_xdp, program};
use crate::error::{Context, LabError};
use crate::port::Port;
use crate::skel::rate::RateSkelBuilder;

/// A port with a rate; dropping it makes it fast again.
#[derive(Debug)]
pub struct SlowPort {
    _attached: Attached,
}

impl SlowPort {
    /// Has a port take so many bits a second, frames' overhead on the wire counted. It is to be polled by a thread
    /// ([`Lab::poll_by_threads`](crate::Lab::poll_by_threads)), whose CPU this takes.
    pub fn attach(port: &Port, bit_s: u64) -> Result<Self, LabError> {
        let mut storage = MaybeUninit::uninit();
        let mut open = RateSkelBuilder::default()
            .open(&mut storage)
            .context("open the program of a slow port")?;
        let rodata = open.maps.rodata_data.as_deref_mut();
        let none = || LabError::Invalid("the program of a slow port has no data".into());
        rodata.ok_or_else(none)?.octet_ps = 8_000_000_000_000 / bit_s.max(1);
        let skel = open.load().context("load the program of a slow port")?;
        let program = program(skel.object(), "rate")?;
        Ok(Self {
            _attached: attach_xdp(std::os::fd::AsFd::as_fd(&program), port)?,
        })
    }
}
