// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where XDP may do something ahead of the fast path: drop, or forward by prefixes.

use freeway_kernel::model::Link;

use super::super::Engine;
use super::super::poll::wanted_by;
use super::{Port, Within};

impl Engine {
    /// Why it may not, at a port.
    pub(in crate::engine) fn nothing_ahead(&self, link: &Link, port: &Port) -> Option<String> {
        if self.cores.serve(link.ifindex) {
            return Some("the engine on cores of its own has its frames".into());
        }
        if port.within != Within::Nothing || link.master.is_some() {
            return Some("it is a part of a bridge, bond or VRF".into());
        }
        if port.stations_of.is_some() {
            return Some("it is a bridge, or above one".into());
        }
        if let Some(none) = port.without_xdp() {
            return Some(none);
        }
        if !port.xdp.input {
            let unfit = port.reasons.first().cloned();
            return Some(unfit.unwrap_or_else(|| "it is not fit for XDP".into()));
        }
        // their frames leave ahead of rules and routes, and may be another network namespace's
        let above = |upper: &&Link| {
            upper.link == Some(link.ifindex)
                && upper.link_netnsid.is_none()
                && !upper.is_vlan()
                // a veth names its peer
                && upper.kind.as_deref() != Some("veth")
        };
        if let Some(upper) = self.mirror.links().values().find(above) {
            return Some(format!("{} takes some of its frames", upper.name));
        }
        // and one that is in another namespace only the kernel's own structures show
        if let Some(Ok(function)) = self.polled.takers.get(&link.ifindex) {
            return Some(format!("{function}() takes some of its frames"));
        }
        let socket = self
            .polled
            .taker(|port| port.is_none_or(|port| port == link.ifindex));
        socket.map(wanted_by)
    }
}
