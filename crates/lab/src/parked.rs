// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that nobody runs, kept.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use crate::attach::{Attached, attach_xdp};
use crate::error::LabError;
use crate::netns::Netns;
use crate::port::Port;

/// A program attached to a port that stays down, in a namespace of its own: a killed process leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Parked {
    _attached: Attached,
    _netns: File,
}

impl Parked {
    pub(crate) fn new(program: &OwnedFd) -> Result<Self, LabError> {
        let (attached, netns) = Netns::unshared(|netns| {
            netns.tool("ip link add park0 type veth peer name park1")?;
            let port = Port {
                netns: netns.clone(),
                ifindex: netns.ifindex("park0")?,
                name: "park0".into(),
                mac: [0; 6],
            };
            attach_xdp(program.as_fd(), &port)
        })?;
        Ok(Self {
            _attached: attached,
            _netns: netns,
        })
    }
}
