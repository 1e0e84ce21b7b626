// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of VRFs. Their packets come in and leave at the ports themselves; the VRF's own interface is the input that
//! rules see from the second PREROUTING on, and packet sockets there are given what comes in (`vrf_ip_rcv()` in
//! drivers/net/vrf.c). Its qdisc and programs see what the router itself sends, and what a route leads there.

use std::collections::{BTreeMap, BTreeSet};

use freeway_cmm::Leaks;
use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::{Event, Hop, Link, LinkDetail, Nexthop, Route};
use freeway_kernel::probe::kernel_version;
use freeway_kernel::reachability::Ways;

use super::Engine;
use crate::DaemonError;

/// RTN_UNICAST.
const UNICAST: u8 = 1;
/// From then on programs see a packet's own connection.
const SHOWN: (u32, u32) = (6, 2);
/// Tables of every router: by the VRF (l3mdev), default, main, local.
const USUAL: [u32; 4] = [0, 253, 254, 255];
/// More routes to VRFs' own interfaces than this are not told apart.
const LEAKS_MAX: usize = 1024;

/// The ways that packets take through the hooks here.
pub(super) fn ways(mirror: &Mirror) -> Ways {
    match mirror.links().values().any(Link::is_vrf) {
        true => Ways::Vrf,
        false => Ways::Plain,
    }
}

/// Where routes to VRFs' own interfaces lead.
fn leaks(mirror: &Mirror) -> Leaks {
    let vrfs = mirror.links().values().filter(|link| link.is_vrf());
    let vrfs: BTreeSet<u32> = vrfs.map(|link| link.ifindex).collect();
    if vrfs.is_empty() {
        return Leaks::default();
    }
    let Some(routes) = mirror.routes() else {
        return Leaks::Unknown;
    };
    let found = routes
        .iter()
        .filter(|route| leads_to_vrf(route, mirror, |index| vrfs.contains(&index)));
    let mut to = BTreeSet::new();
    for route in found {
        to.insert(route.dst);
        if to.len() > LEAKS_MAX {
            return Leaks::Unknown;
        }
    }
    match lead_back(mirror) {
        true => Leaks::ThereAndBack(to),
        false => Leaks::To(to),
    }
}

/// True if from a VRF's table routes, or rules from any, may lead to ports that are not the VRF's.
fn lead_back(mirror: &Mirror) -> bool {
    let links = mirror.links();
    let table = |link: &Link| match link.detail {
        LinkDetail::Vrf { table } => Some((table, link.ifindex)),
        _ => None,
    };
    let tables: BTreeMap<u32, u32> = links.values().filter_map(table).collect();
    let usual = |table: u32| USUAL.contains(&table) || tables.contains_key(&table);
    let others = |route: &Route| {
        let Some(vrf) = tables.get(&route.table).filter(|_| route.kind == UNICAST) else {
            return false;
        };
        let own = |index: u32| {
            let link = links.get(&index);
            index == *vrf || link.is_some_and(|link| link.vrf() == Some(*vrf))
        };
        route.nexthop_id.is_some() || !route.hops.iter().all(|hop| hop.oif.is_some_and(own))
    };
    mirror.rules().iter().any(|rule| !usual(rule.table))
        || mirror
            .routes()
            .is_none_or(|routes| routes.iter().any(others))
}

/// True if a route may lead to a VRF's own interface. Those by a nexthop object need not name interfaces
/// (nexthop_compat_mode).
fn leads_to_vrf(route: &Route, mirror: &Mirror, is_vrf: impl Fn(u32) -> bool) -> bool {
    let hop = |hop: &Hop| hop.oif.is_some_and(&is_vrf);
    let object = |id: u32| mirror.nexthops().get(&id);
    let single = |nh: Option<&Nexthop>| nh.is_none_or(|nh| nh.oif.is_some_and(&is_vrf));
    let any = |id: u32| {
        let members = object(id).into_iter().flat_map(|nh| &nh.group);
        single(object(id)) || members.map(|(id, _)| object(*id)).any(single)
    };
    route.kind == UNICAST && (route.hops.iter().any(hop) || route.nexthop_id.is_some_and(any))
}

impl Engine {
    /// True of an event after which routes to VRFs' own interfaces may be others.
    pub(super) fn may_change_leaks(&self, event: &Event) -> bool {
        let links = self.mirror.links();
        let is_vrf = |index: u32| links.get(&index).is_some_and(Link::is_vrf);
        match event {
            Event::RouteChanged(route) | Event::RouteGone(route) => {
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
