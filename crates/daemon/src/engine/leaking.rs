// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes that lead to VRFs' own interfaces.

use std::collections::{BTreeMap, BTreeSet};

use freeway_cmm::Leaks;
use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::{Hop, Link, LinkDetail, Nexthop, Route};
use freeway_kernel::reachability::Ways;

/// RTN_UNICAST.
pub(super) const UNICAST: u8 = 1;

/// From then on programs see a packet's own connection.
pub(super) const SHOWN: (u32, u32) = (6, 2);

/// Tables of every router: by the VRF (l3mdev), default, main, local.
pub(super) const USUAL: [u32; 4] = [0, 253, 254, 255];

/// More routes to VRFs' own interfaces than this are not told apart.
pub(super) const LEAKS_MAX: usize = 1024;

/// The ways that packets take through the hooks here.
pub(super) fn ways(mirror: &Mirror) -> Ways {
    match mirror.links().values().any(Link::is_vrf) {
        true => Ways::Vrf,
        false => Ways::Plain,
    }
}

/// Where routes to VRFs' own interfaces lead.
pub(super) fn leaks(mirror: &Mirror) -> Leaks {
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
pub(super) fn lead_back(mirror: &Mirror) -> bool {
    let links = mirror.links();
    let table = |link: &Link| match link.detail {
        LinkDetail::Vrf { table } => Some((table, link.ifindex)),
        _ => None,
    };
    let mut tables = BTreeMap::new();
    tables.extend(links.values().filter_map(table));
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
pub(super) fn leads_to_vrf(route: &Route, mirror: &Mirror, is_vrf: impl Fn(u32) -> bool) -> bool {
    let hop = |hop: &Hop| hop.oif.is_some_and(&is_vrf);
    let object = |id: u32| mirror.nexthops().get(&id);
    let single = |nh: Option<&Nexthop>| nh.is_none_or(|nh| nh.oif.is_some_and(&is_vrf));
    let any = |id: u32| {
        let members = object(id).into_iter().flat_map(|nh| &nh.group);
        single(object(id)) || members.map(|(id, _)| object(*id)).any(single)
    };
    route.kind == UNICAST && (route.hops.iter().any(hop) || route.nexthop_id.is_some_and(any))
}
