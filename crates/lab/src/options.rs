// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a lab is built with.

use std::net::IpAddr;

use serde::Serialize;

use crate::error::LabError;
use crate::frame::Proto;
use crate::routes::Beyond;
use crate::topology::{Filter, Topology};

/// The bridge that is the router's LAN,
pub(crate) const BRIDGE: &str = "br0";
/// and the PPP devices at both ends of its WAN's session.
pub(crate) const PPP: &str = "ppp0";

/// A port forward (destination NAT) on the WAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortForward {
    /// The protocol.
    pub proto: Proto,
    /// The port on the router's WAN address, host byte order.
    pub wan_port: u16,
    /// The host behind the router.
    pub to: IpAddr,
    /// Its port, host byte order.
    pub to_port: u16,
}

/// What may differ between two labs of one topology.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instead of the topology's own filter.
    pub filter: Option<Filter>,
    /// Destination NAT on the WAN.
    pub port_forwards: Vec<PortForward>,
    /// Appended to the router's ruleset, in nft's language.
    pub extra_nft: String,
    /// Permanent neighbour entries on all hosts, so that a sink may drop ARP.
    pub static_neighbours: bool,
    /// Generic receive offload on the router's ports. Without it, bare redirects need a program there.
    pub router_gro: bool,
    /// Transmit checksum offload on the router's ports. As with a network card the kernel then leaves the checksum of
    /// what GRO has merged to the device; a veth never finishes it. Switch it off where checksums are compared.
    pub router_tx_checksum: bool,
    /// Between each host and the router a pair of ports whose programs hand frames over, in the host's namespace. The
    /// router gets them as from a driver's ring, not as the skbs of the sender.
    pub wires: bool,
    /// The LAN is this 802.1Q VLAN: `lan0.ID` and the client's `eth0.ID` have the addresses, and frames on the wire between
    /// them have its tag. Not with `wires`.
    pub vlan: Option<u16>,
    /// The LAN is a bridge of the router, `br0`, which has the address; `lan0` is its only port. Not with `vlan`.
    pub bridge: bool,
    /// The WAN is a PPPoE session of this number, over `wan0` and the server's `eth0`: the PPP devices `ppp0` at both ends have
    /// the addresses. The ports' MTU is 8 bytes more, so that the session's is `mtu` (RFC 4638). The generator makes no frames
    /// of a session: there are no [`Lab::reply_flows`] to measure. Not with `wires` and `routes`.
    pub pppoe: Option<u16>,
    /// The router forwards established connections by a flow table of nftables (nf_flowtable, in software). Only with a
    /// stateful filter, whose counter of all that it sees then tells what the flow table left to it.
    pub flowtable: bool,
    /// So many routes that the router has beside its own: the first of the synthetic table, see [`crate::routes`].
    pub routes: u32,
    /// Hosts beyond the server to which the client's flows go in turn instead of to it. The router has a default route to them
    /// if it has no others.
    pub beyond: Option<Beyond>,
    /// MTU of all ports, bytes of L3.
    pub mtu: u32,
    /// Receive and transmit queues of each port, for as many CPUs that send at once. Not with `wires`.
    pub queues: u32,
    /// Raises net.netfilter.nf_conntrack_max, which all namespaces share, while the lab exists.
    pub conntrack_max: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            filter: None,
            port_forwards: Vec::new(),
            extra_nft: String::new(),
            static_neighbours: true,
            router_gro: true,
            router_tx_checksum: true,
            wires: false,
            vlan: None,
            bridge: false,
            pppoe: None,
            flowtable: false,
            routes: 0,
            beyond: None,
            mtu: 1500,
            queues: 1,
            conntrack_max: None,
        }
    }
}

impl Options {
    /// A port, or the VLAN on it.
    pub(crate) fn tagged(&self, port: &str) -> String {
        self.vlan
            .map_or_else(|| port.into(), |id| format!("{port}.{id}"))
    }

    /// A port, or the PPP device over it.
    pub(crate) fn dialled<'a>(&self, port: &'a str) -> &'a str {
        self.pppoe.map_or(port, |_| PPP)
    }

    /// The router's interface with the LAN's address.
    pub(crate) fn lan(&self) -> String {
        if self.bridge {
            BRIDGE.into()
        } else {
            self.tagged("lan0")
        }
    }

    /// The router's interface with the WAN's address.
    pub(crate) fn wan(&self) -> &'static str {
        self.dialled("wan0")
    }

    /// Says what does not go together, if anything.
    pub(crate) fn check(&self, topology: &Topology) -> Result<(), LabError> {
        let invalid = |what: &str| Err(LabError::Invalid(what.into()));
        if self.queues != 1 && self.wires {
            return invalid("several queues and wires: a wire has one");
        }
        if self.vlan.is_some() && self.wires {
            return invalid(
                "a VLAN's frames with unfinished checksums: the lab's wires do not finish them",
            );
        }
        if self.vlan.is_some() && self.bridge {
            return invalid("a LAN that is a VLAN and a bridge: the lab has one of them");
        }
        if self.pppoe.is_some() && self.wires {
            return invalid(
                "a session's frames with unfinished checksums: the lab's wires do not finish them",
            );
        }
        if self.pppoe.is_some() && self.routes > 0 {
            return invalid("routes through a PPPoE session: the lab's lead to the port");
        }
        let filter = self.filter.unwrap_or(topology.filter);
        if self.flowtable && filter != Filter::Stateful {
            let name = topology.name;
            return invalid(&format!(
                "a flow table in `{name}`: its filter is not stateful"
            ));
        }
        Ok(())
    }
}
