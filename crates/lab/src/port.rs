// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port of a lab.

use crate::error::LabError;
use crate::netns::Netns;

/// A wire carries no 64 KB packets, no unfinished checksums and no tags outside the frame. GRO stays on
/// everywhere: it is what gives a veth the NAPI that redirects into it need.
pub(crate) const OFFLOADS_OF_A_WIRE: &str = "tx off tso off gso off txvlan off gro on";

/// A network port of the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Where it is.
    pub netns: Netns,
    /// Its name there.
    pub name: String,
    /// Its index there.
    pub ifindex: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
}

/// Switches a port on that behaves as the end of a wire; programs alone send there.
pub(crate) fn wire_port(netns: &Netns, name: &str) -> Result<Port, LabError> {
    netns.tool(&format!("ethtool -K {name} {OFFLOADS_OF_A_WIRE}"))?;
    netns.tool(&format!("ip link set {name} up"))?;
    Ok(Port {
        netns: netns.clone(),
        ifindex: netns.ifindex(name)?,
        name: name.into(),
        mac: [0; 6],
    })
}
