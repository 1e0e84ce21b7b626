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
        if let Some(why) = self.nothing_ahead(link, port) {
            return Err(why);
        }
        if port.is_tapped() {
            return Err("a capture looks at its frames".into());
        }
        if port.is_scrubbed() {
            return Err("what sets name is dropped there first".into());
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
