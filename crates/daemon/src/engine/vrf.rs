// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of VRFs. Their packets come in and leave at the ports themselves; the VRF's own interface is the input that
//! rules see from the second PREROUTING on, and packet sockets there are given what comes in (`vrf_ip_rcv()` in
//! drivers/net/vrf.c). Its qdisc and programs see what the router itself sends, and what a route leads there.

use freeway_cmm::Leaks;
use freeway_kernel::model::{Event, Link, LinkDetail, Route};
use freeway_kernel::probe::kernel_version;

use super::Engine;
use super::leaking::{SHOWN, leads_to_vrf, leaks};
use crate::DaemonError;

impl Engine {
    /// True of an event after which routes to VRFs' own interfaces may be others.
    pub(super) fn may_change_leaks(&self, event: &Event) -> bool {
        let links = self.mirror.links();
        let is_vrf = |index: u32| links.get(&index).is_some_and(Link::is_vrf);
        match event {
            Event::RouteChanged(route, _) | Event::RouteGone(route) => {
                let leaks = self.manager.leaks();
                let none = *leaks == Leaks::default();
                leads_to_vrf(route, &self.mirror, is_vrf)
                    || leaks.name(&route.dst)
                    || (!none && self.is_of_vrf(route))
            }
            Event::LinkChanged(link) => link.is_vrf(),
            Event::LinkGone { .. }
            | Event::NexthopChanged { .. }
            | Event::RuleChanged(_)
            | Event::RoutesUnknown => true,
            _ => false,
        }
    }

    /// True of a route in a VRF's table.
    fn is_of_vrf(&self, route: &Route) -> bool {
        let mut links = self.mirror.links().values();
        links.any(|link| matches!(link.detail, LinkDetail::Vrf { table } if table == route.table))
    }

    pub(super) fn update_leaks(&mut self) -> Result<(), DaemonError> {
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        self.manager
            .set_leaks(leaks(&self.mirror), now_tick, &mut ops);
        self.execute(ops)
    }

    /// Why the kernel must have what comes in at a port of a VRF.
    pub(super) fn kept_for_vrf(&self, link: &Link) -> Option<String> {
        let vrf = link.vrf()?;
        if self.ruleset.zones && kernel_version().is_none_or(|version| version < SHOWN) {
            let why =
                "rules put connections into zones, of which programs see nothing before Linux 6.2";
            return Some(why.into());
        }
        let mut sniffers = self.polled.sniffers.iter();
        let sniffer = sniffers.find(|socket| socket.ifindex == Some(vrf))?;
        let name = self.mirror.links().get(&vrf).map(|vrf| &vrf.name);
        Some(format!(
            "a packet socket at its VRF {} (inode {}) is given its packets, and only the kernel does that",
            name.map_or("", String::as_str),
            sniffer.inode
        ))
    }
}
