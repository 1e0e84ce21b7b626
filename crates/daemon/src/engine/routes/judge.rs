// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where nothing but the destination decides.

use std::collections::BTreeMap;

use freeway_abi::{FW_RP_LOOSE, fw_route_here};
use freeway_kernel::model::{Family, Link, Rule};
use freeway_kernel::sysctl;
use freeway_routing::Exit;

use super::super::Engine;
use super::super::ports::{Port, Within};

/// FR_ACT_TO_TBL.
const TO_TABLE: u8 = 1;

/// A rule that everybody has: `ip rule` without any of the user's.
fn is_ordinary(rule: &Rule) -> bool {
    let tables = [(0, 255), (32_766, 254), (32_767, 253)];
    tables.contains(&(rule.priority, rule.table))
        && *rule
            == Rule {
                family: Family::Ipv4,
                priority: rule.priority,
                action: TO_TABLE,
                table: rule.table,
                flags: rule.flags,
                src: None,
                dst: None,
                iif: None,
                oif: None,
                fwmark: None,
                tos: 0,
                ip_proto: None,
                sport: None,
                dport: None,
                goto: None,
                l3mdev: false,
                uid_range: None,
                suppress_prefix_len: None,
                suppress_ifgroup: None,
            }
}

impl Engine {
    /// Why no port has prefix paths.
    pub(super) fn unrouted(&self) -> Option<String> {
        let policy = &self.config.policy;
        if !policy.exclude.is_empty() {
            return Some("policy.exclude leaves some conversations to the kernel".into());
        }
        if !(policy.tcp && policy.udp && policy.icmp && policy.tunnels) {
            return Some("the policy leaves some protocols to the kernel".into());
        }
        let rules = self.mirror.rules().iter();
        let mut ipv4 = rules.filter(|rule| rule.family == Family::Ipv4);
        let extra = ipv4.clone().find(|rule| !is_ordinary(rule));
        if let Some(rule) = extra {
            return Some(format!(
                "routing rule {} may send packets of one destination different ways",
                rule.priority
            ));
        }
        if ipv4.by_ref().count() != 3 {
            return Some("one of the three ordinary routing rules is missing".into());
        }
        if let Some(chain) = &self.routes.rules {
            return Some(format!(
                "{chain} may treat packets of one destination differently"
            ));
        }
        if let Some(function) = self.polled.foreign_hooks.first() {
            return Some(format!(
                "netfilter hook {function} is not known and may have to see every packet"
            ));
        }
        if self.ruleset_tracks4() {
            return Some("connections are tracked".into());
        }
        if self.mirror.xfrm_policies() > 0 {
            return Some("there are IPsec policies".into());
        }
        if self.polled.sysctls.ip_forward_use_pmtu.unwrap_or(0) != 0 {
            return Some("net.ipv4.ip_forward_use_pmtu is on: path MTUs decide, too".into());
        }
        let mut confs = self.mirror.netconf().values();
        if confs.any(|conf| conf.family == Family::Ipv4 && conf.ignore_linkdown == Some(true)) {
            return Some(
                "ignore_routes_with_linkdown is on: carriers decide on routes, too".into(),
            );
        }
        if sysctl::number("ipv4/conf/all/accept_redirects").unwrap_or(1) != 0 {
            return Some(
                "net.ipv4.conf.all.accept_redirects is on: ICMP redirects decide, too".into(),
            );
        }
        self.routes
            .doubted
            .clone()
            .or_else(|| self.routes.failed.clone())
    }

    /// Why a port has none, or what its program is to know.
    pub(super) fn routed_here(&self, link: &Link, port: &Port) -> Result<fw_route_here, String> {
        let unfit = || port.reasons.first().cloned();
        if self.cores.serve(link.ifindex) {
            return Err("the engine on cores of its own has its frames".into());
        }
        if port.within != Within::Nothing || link.master.is_some() {
            return Err("it is a part of a bridge, bond or VRF".into());
        }
        if port.stations_of.is_some() {
            return Err("it is a bridge, or above one".into());
        }
        if !port.runs_xdp() {
            let none = "XDP does not run at the port itself";
            return Err(unfit().map_or_else(|| none.to_owned(), |why| format!("{none}: {why}")));
        }
        if !port.xdp.input {
            return Err(unfit().unwrap_or_else(|| "it is not fit for XDP".into()));
        }
        if port.is_tapped() {
            return Err("a capture looks at its frames".into());
        }
        if port.is_scrubbed() {
            return Err("what sets name is dropped there first".into());
        }
        // their frames leave ahead of the routes, and may be another network namespace's
        let above = |upper: &&Link| {
            upper.link == Some(link.ifindex) && upper.link_netnsid.is_none() && !upper.is_vlan()
        };
        if let Some(upper) = self.mirror.links().values().find(above) {
            return Err(format!("{} takes some of its frames", upper.name));
        }
        let takes = |port: Option<u32>| port.is_none_or(|port| port == link.ifindex);
        if let Some(socket) = self.polled.taker(takes) {
            return Err(super::super::poll::wanted_by(socket));
        }
        let Some(mac) = link.mac else {
            return Err("it has no MAC address".into());
        };
        let conf = |index: i32| self.mirror.netconf().get(&(Family::Ipv4, index));
        let here = conf(link.ifindex.cast_signed());
        if here.and_then(|conf| conf.forwarding) != Some(true) {
            return Err("it does not forward IPv4".into());
        }
        // the stricter of both counts: IN_DEV_RPFILTER()
        let filter =
            |conf: Option<&freeway_kernel::model::Netconf>| conf.and_then(|conf| conf.rp_filter);
        let (Some(own), Some(all)) = (filter(here), filter(conf(-1))) else {
            return Err("its rp_filter is not known".into());
        };
        let rp_filter = own.max(all);
        if rp_filter > FW_RP_LOOSE {
            return Err(format!("rp_filter {rp_filter} is not known"));
        }
        Ok(fw_route_here {
            mac: mac.0,
            rp_filter: rp_filter as u16,
            port: link.ifindex,
            pad: 0,
        })
    }

    /// Where packets may leave by prefixes.
    pub(super) fn exits(&self) -> BTreeMap<u32, Exit> {
        let exit = |link: &Link| {
            let port = self.ports.by_index.get(&link.ifindex)?;
            let itself = port.carried.is_none()
                && port.by_parts.is_none()
                && port.stations_of.is_none()
                && port.within == Within::Nothing
                && link.master.is_none()
                && !self.polled.is_watched(link.ifindex)
                && !self.cores.serve(link.ifindex);
            port.slot.filter(|_| itself && port.xdp.output)?;
            let mac = link.mac?.0;
            let mtu = link.mtu;
            Some((link.ifindex, Exit { mac, mtu }))
        };
        self.business().filter_map(exit).collect()
    }
}
