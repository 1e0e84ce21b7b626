// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wire between a host and the router: a second pair of ports in the host's namespace, and programs that hand frames from
//! one pair to the other. A veth gives its peer the sender's skb, which XDP must copy, while a network card has every frame
//! in a page of its own; what a wire hands over is such a page.

use crate::error::LabError;
use crate::netns::Netns;
use crate::port::{Port, wire_port};
use crate::reference::{Reference, ReferenceGuard};

/// Opposite of the host's `eth0`.
const NEAR: &str = "wire0";
/// Opposite of the router's port.
pub(crate) const FAR: &str = "wire1";

/// Creates the host's pair; `eth0` are its arguments for `ip link`.
pub(crate) fn create(netns: &Netns, eth0: &str, mtu: u32) -> Result<(), LabError> {
    let line = format!("ip link add {NEAR} mtu {mtu} type veth peer name {eth0}");
    netns.tool(&line).map(drop)
}

/// Both ports and the programs at them, which go before their ports.
#[derive(Debug)]
pub(crate) struct Wire {
    _guards: [ReferenceGuard; 2],
    ports: [Port; 2],
}

impl Wire {
    /// Attaches the programs; the ports exist.
    pub(crate) fn connect(netns: &Netns) -> Result<Self, LabError> {
        let ports = [wire_port(netns, NEAR)?, wire_port(netns, FAR)?];
        let [near, far] = &ports;
        Ok(Self {
            _guards: [
                Reference::XdpRedirect.attach_at(near, far)?,
                Reference::XdpWire.attach_at(far, near)?,
            ],
            ports,
        })
    }

    pub(crate) fn ports(&self) -> &[Port; 2] {
        &self.ports
    }
}
