// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWNETCONF (`inet_netconf_fill_devconf`, `inet6_netconf_fill_devconf`).

use crate::model::{Family, Netconf};
use crate::nla::{attrs_after, u8_at};

/// Forwarding switches of an interface. A notification carries only the switch that changed.
pub fn netconf(payload: &[u8]) -> Option<Netconf> {
    let mut netconf = Netconf {
        family: Family::from_number(u8_at(payload, 0)?)?,
        ifindex: 0,
        forwarding: None,
        rp_filter: None,
        mc_forwarding: None,
        proxy_neigh: None,
        ignore_linkdown: None,
    };
    for attr in attrs_after(payload, 1) {
        let switch = attr.u32().map(|value| value != 0);
        match attr.kind {
            1 => netconf.ifindex = attr.u32()? as i32,
            2 => netconf.forwarding = switch,
            3 => netconf.rp_filter = attr.u32(),
            4 => netconf.mc_forwarding = switch,
            5 => netconf.proxy_neigh = switch,
            6 => netconf.ignore_linkdown = switch,
            _ => {}
        }
    }
    (netconf.ifindex != 0).then_some(netconf)
}

/// Takes over the switches that a notification carries.
pub fn merge(into: &mut Netconf, news: &Netconf) {
    into.forwarding = news.forwarding.or(into.forwarding);
    into.rp_filter = news.rp_filter.or(into.rp_filter);
    into.mc_forwarding = news.mc_forwarding.or(into.mc_forwarding);
    into.proxy_neigh = news.proxy_neigh.or(into.proxy_neigh);
    into.ignore_linkdown = news.ignore_linkdown.or(into.ignore_linkdown);
}
