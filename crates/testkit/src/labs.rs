// SPDX-License-Identifier: MIT OR Apache-2.0
//! Labs, and the ends of a flow through them.

use std::net::{SocketAddr, UdpSocket};

use freeway_lab::{Lab, Options, Topology};

use crate::udp;

pub fn build(name: &str) -> Lab {
    build_with(name, Options::default())
}

pub fn build_with(name: &str, options: Options) -> Lab {
    Lab::build(Topology::parse(name).unwrap(), options).unwrap()
}

/// The client's end of a UDP flow through a lab of IPv4, and the server's.
pub const CLIENT: &str = "192.0.2.2:40000";
pub const SERVER: &str = "198.51.100.2:5000";

/// An address and a port as they are written.
#[track_caller]
pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Sockets at [`CLIENT`] and [`SERVER`].
pub fn udp_ends(lab: &Lab) -> (UdpSocket, UdpSocket) {
    (
        udp(lab.client(), address(CLIENT)),
        udp(lab.server(), address(SERVER)),
    )
}
