// SPDX-License-Identifier: MIT OR Apache-2.0
//! VRFs: which flows go from one to another, and of these, which may not be what they look like.
//!
//! A frame shows where it came in and where it left. If it changes its VRF by a route that names a port, that is all
//! that happened to it. A route to a VRF's own interface sends it through that, where more may look at it: its qdisc,
//! packet sockets, and the rules for what the router itself sends (`vrf_xmit()` in drivers/net/vrf.c).

use std::net::IpAddr;

use crate::conns::Vrfs;
use crate::leaks::Leaks;
use crate::manager::Manager;
use crate::op::Op;

impl Manager {
    /// Routes to VRFs' own interfaces have come or gone; flows that may go by one leave.
    pub fn set_leaks(&mut self, leaks: Leaks, now_tick: u32, ops: &mut Vec<Op>) {
        if self.leaks != leaks {
            self.leaks = leaks;
            self.begin_sweep(false, now_tick, ops);
        }
    }

    /// Destinations of routes to VRFs' own interfaces.
    #[must_use]
    pub fn leaks(&self) -> &Leaks {
        &self.leaks
    }

    fn vrf(&self, port: u32) -> u32 {
        self.ports.get(&port).map_or(0, |port| port.vrf)
    }

    /// Those of two ports.
    pub(crate) fn vrfs(&self, port_in: u32, port_out: u32) -> Vrfs {
        let mut vrfs = [port_in, port_out].map(|port| self.vrf(port));
        vrfs.sort_unstable();
        vrfs
    }

    /// True if a packet to an address, between these ports, may pass a VRF's own interface.
    pub(crate) fn may_leak(&self, port_in: u32, port_out: u32, to: IpAddr) -> bool {
        let [one, other] = self.vrfs(port_in, port_out);
        let back = matches!(self.leaks, Leaks::ThereAndBack(_));
        (one != other || back) && self.leaks.contain(to)
    }
}
