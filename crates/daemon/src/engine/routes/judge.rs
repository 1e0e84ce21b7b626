// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where nothing but the destination decides.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use freeway_abi::{
    FW_ROUTES_ENGINE, FW_ROUTES_IPV4, FW_ROUTES_IPV6, FW_RP_LOOSE, FW_RP_OFF, FW_RP_STRICT,
    fw_route_here,
};
use freeway_cmm::Served;
use freeway_datapath::RouteHook;
use freeway_kernel::model::{Family, Link, Netconf, Rule};
use freeway_kernel::reachability::Passage;
use freeway_kernel::sysctl;
use freeway_prefix::Prefix;
use freeway_routing::{EngineExit, Exit};

use super::super::Engine;
use super::super::ports::{Port, Within};
use super::grounds::{Device6, Reasons};
use super::routed::Routed;
use crate::hooked::Untold;

/// FR_ACT_TO_TBL.
const TO_TABLE: u8 = 1;
/// FIB_RULE_PERMANENT: nobody may delete it. Others, FIB_RULE_INVERT among them, are of rules that choose.
const PERMANENT: u32 = 1;

/// Priority and table of a rule that everybody has: `ip rule` without any of the user's.
fn ordinary(family: Family) -> &'static [(u32, u32)] {
    match family {
        Family::Ipv4 => &[(0, 255), (32_766, 254), (32_767, 253)],
        Family::Ipv6 => &[(0, 255), (32_766, 254)],
    }
}

const TRACKED: &str = "connections are tracked";
const ANYWAY: &str = "with policy.routes = true there are prefix paths all the same";

fn is_ordinary(rule: &Rule) -> bool {
    let plain = Rule {
        priority: rule.priority,
        action: TO_TABLE,
        table: rule.table,
        flags: rule.flags & PERMANENT,
        ..Rule::any(rule.family)
    };
    ordinary(rule.family).contains(&(rule.priority, rule.table)) && *rule == plain
}

impl Engine {
    /// Why no port has prefix paths.
    pub(super) fn unrouted(&self, family: Family) -> Option<String> {
        let policy = &self.config.policy;
        if !policy.udp_one_way {
            return Some("policy.udp_one_way leaves UDP without answers to the kernel".into());
        }
        if !policy.exclude.is_empty() {
            return Some("policy.exclude leaves some conversations to the kernel".into());
        }
        if !(policy.tcp && policy.udp && policy.icmp && policy.tunnels) {
            return Some("the policy leaves some protocols to the kernel".into());
        }
        let rules = self.mirror.rules().iter();
        let mut rules = rules.filter(|rule| rule.family == family);
        let extra = rules.clone().find(|rule| !is_ordinary(rule));
        if let Some(rule) = extra {
            return Some(format!(
                "routing rule {} may send packets of one destination different ways",
                rule.priority
            ));
        }
        if rules.by_ref().count() != ordinary(family).len() {
            return Some("one of the ordinary routing rules is missing".into());
        }
        if self.routes.rules.is_none() {
            return Some("the ruleset cannot be read".into());
        }
        if self.tracks_family(family) && !self.routes.bypasses {
            return Some(TRACKED.into());
        }
        if policy.routes.is_none() && !self.polled.hooks_told {
            return Some(format!(
                "this kernel does not tell which functions hook into forwarding; {ANYWAY}"
            ));
        }
        if policy.routes.is_none() && !self.polled.sniffers_told {
            return Some(format!(
                "this kernel does not tell which packet sockets there are; {ANYWAY}"
            ));
        }
        if let Some(function) = self.polled.foreign_hooks.first() {
            return Some(format!(
                "netfilter hook {function} is not known and may have to see every packet"
            ));
        }
        // its hooks may be among those that this kernel does not list
        if std::path::Path::new("/proc/thread-self/net/ip_vs").exists() {
            return Some("IPVS may translate packets".into());
        }
        if self.mirror.xfrm_policies() > 0 {
            return Some("there are IPsec policies".into());
        }
        let mut confs = self.mirror.netconf().values();
        if confs.any(|conf| conf.family == family && conf.ignore_linkdown == Some(true)) {
            return Some(
                "ignore_routes_with_linkdown is on: carriers decide on routes, too".into(),
            );
        }
        let of_family = match family {
            Family::Ipv4 => self.unrouted4(),
            Family::Ipv6 => self.unrouted6(),
        };
        if of_family.is_some() {
            return of_family;
        }
        self.routes
            .doubted
            .clone()
            .or_else(|| self.routes.failed.clone())
    }

    fn unrouted4(&self) -> Option<String> {
        if self.polled.sysctls.ip_forward_use_pmtu.unwrap_or(0) != 0 {
            return Some("net.ipv4.ip_forward_use_pmtu is on: path MTUs decide, too".into());
        }
        if sysctl::number("ipv4/conf/all/accept_redirects").unwrap_or(1) != 0 {
            return Some(
                "net.ipv4.conf.all.accept_redirects is on: ICMP redirects decide, too".into(),
            );
        }
        None
    }

    fn unrouted6(&self) -> Option<String> {
        if self.polled.sysctls.ipv6_forwarding != Some(1) {
            return Some("net.ipv6.conf.all.forwarding is not 1".into());
        }
        let all = self.mirror.netconf().get(&(Family::Ipv6, -1));
        if all.is_none_or(|conf| conf.proxy_neigh != Some(false)) {
            return Some("net.ipv6.conf.all.proxy_ndp is on: some addresses are proxied".into());
        }
        None
    }

    /// What a port's program is to know, if it has prefix paths, and where it is; why it has none, or not of both families.
    /// `passages`: how its packets pass the ruleset.
    pub(super) fn routed_here(
        &self,
        link: &Link,
        port: &Port,
        reasons: &Reasons,
        passages: &[Passage; 2],
    ) -> (Option<Routed>, Option<String>) {
        if let Some(reason) = reasons.of_both() {
            return (None, Some(reason.clone()));
        }
        let mut routed = match self.place_of(link, port) {
            Ok(routed) => routed,
            Err(reason) => return (None, Some(reason)),
        };
        let [passage4, passage6] = passages;
        let ipv4 = reasons.ipv4.clone().map_or(Ok(()), Err);
        let ipv4 = ipv4
            .and_then(|()| self.classes_at(routed.hook))
            .and_then(|()| self.passes_rules(Family::Ipv4, passage4))
            .and_then(|()| self.rp_filter_at(link));
        let ipv6 = reasons.ipv6.clone().map_or(Ok(()), Err);
        let ipv6 = ipv6
            .and_then(|()| self.passes_rules(Family::Ipv6, passage6))
            .and_then(|()| self.routed6_at(link));
        routed.here.rp_filter = ipv4.clone().unwrap_or(FW_RP_OFF) as u16;
        routed.here.families = bit(FW_ROUTES_IPV4, &ipv4) | bit(FW_ROUTES_IPV6, &ipv6);
        if routed.engine.is_some() {
            routed.here.families |= FW_ROUTES_ENGINE;
        }
        match (ipv4, ipv6) {
            (Ok(_), Ok(())) => (Some(routed), None),
            (Err(ipv4), Ok(())) => (Some(routed), Some(format!("IPv4: {ipv4}"))),
            (Ok(_), Err(ipv6)) => (Some(routed), Some(format!("IPv6: {ipv6}"))),
            (Err(ipv4), Err(ipv6)) => (None, Some(format!("IPv4: {ipv4}; IPv6: {ipv6}"))),
        }
    }

    /// Where a port's program may be, of no family yet; or why it can have none.
    fn place_of(&self, link: &Link, port: &Port) -> Result<Routed, String> {
        let settings = self.config.port.get(&link.name);
        if settings.is_some_and(|settings| !settings.routes) {
            return Err(format!(
                "port.{}.routes is false in the configuration",
                link.name
            ));
        }
        let hook = match port.sees_all_in_tc() {
            true => RouteHook::Tc,
            false => RouteHook::Xdp,
        };
        let itself = |nothing: Option<String>| nothing.map_or(Ok((link.ifindex, 0)), Err);
        let (at, vlan) = match (hook, &port.carried) {
            (RouteHook::Xdp, Some(carried)) => self.ahead_of_vlan(link, port, carried)?,
            (RouteHook::Xdp, None) => itself(self.nothing_ahead(link, port))?,
            (RouteHook::Tc, _) => itself(self.nothing_ahead_in_tc(link, port))?,
        };
        let untold = self.polled.takers.get(&link.ifindex) == Some(&Err(Untold));
        if untold && self.config.policy.routes.is_none() {
            return Err(format!(
                "this kernel does not tell who takes its frames ahead of IP; {ANYWAY}"
            ));
        }
        let below = self.ports.by_index.get(&at).map(|below| (at, below));
        for (ifindex, port) in [(link.ifindex, port)].into_iter().chain(below) {
            let shared = self.cores.served(ifindex, true) == Served::Chosen;
            if shared || (hook == RouteHook::Xdp && self.cores.serve(ifindex)) {
                return Err("the engine on cores of its own has some of its frames".into());
            }
            if port.is_tapped() || self.is_captured(ifindex) {
                return Err("a capture looks at its frames".into());
            }
            if port.is_scrubbed() {
                return Err("what sets name is dropped there first".into());
            }
        }
        let mac = link.mac.map(|mac| mac.0);
        let mac = mac.ok_or("it has no MAC address")?;
        Ok(Routed {
            hook,
            at,
            vlan,
            engine: self.engine_at(link, port)?,
            here: fw_route_here {
                mac,
                port: link.ifindex,
                ..fw_route_here::default()
            },
        })
    }

    /// Where the engine forwards what a port hands in ahead of tc, if it does; or why tc is to leave it to flows.
    fn engine_at(&self, link: &Link, port: &Port) -> Result<Option<(u32, u16)>, String> {
        if !port.xdp.input || !self.by_engine(link.ifindex, port) {
            return Ok(None);
        }
        let (base, vlan) = match &port.carried {
            Some(carried) => (carried.base, carried.vlan_at_engine()),
            None => (link.ifindex, Some(0)),
        };
        let vlan = vlan.ok_or(
            "the engine has its flows, whose frames have more around them than one 802.1Q tag",
        )?;
        let below = self.mirror.links().get(&base);
        let below = below.zip(self.ports.by_index.get(&base));
        let free = below.is_some_and(|(below, port_below)| {
            self.piece(below, port_below).is_none()
                && self.taken(below).is_none()
                && !self.is_captured(base)
        });
        Ok(free.then_some((base, vlan)))
    }

    /// In tc IPv4 packets have the priority that the kernel gives them by their TOS.
    fn classes_at(&self, hook: RouteHook) -> Result<(), String> {
        match hook == RouteHook::Xdp || self.polled.sysctls.ip_forward_update_priority == Some(1) {
            true => Ok(()),
            false => Err("net.ipv4.ip_forward_update_priority is not 1".into()),
        }
    }

    /// Rules and conntrack let all pass that a port hands in.
    fn passes_rules(&self, family: Family, passage: &Passage) -> Result<(), String> {
        if self.tracks_family(family) && !passage.untracked {
            return Err(TRACKED.into());
        }
        passage.obstacle.clone().map_or(Ok(()), Err)
    }

    fn conf_of(&self, family: Family, index: i32) -> Option<&Netconf> {
        self.mirror.netconf().get(&(family, index))
    }

    /// What the kernel does with sources there, if it forwards IPv4.
    fn rp_filter_at(&self, link: &Link) -> Result<u32, String> {
        let here = self.conf_of(Family::Ipv4, link.ifindex.cast_signed());
        if here.and_then(|conf| conf.forwarding) != Some(true) {
            return Err("it does not forward IPv4".into());
        }
        // the stricter of both counts: IN_DEV_RPFILTER()
        let filter = |conf: Option<&Netconf>| conf.and_then(|conf| conf.rp_filter);
        let all = self.conf_of(Family::Ipv4, -1);
        let (Some(own), Some(all)) = (filter(here), filter(all)) else {
            return Err("its rp_filter is not known".into());
        };
        match own.max(all) {
            rp_filter if rp_filter > FW_RP_LOOSE => {
                Err(format!("rp_filter {rp_filter} is not known"))
            }
            // __fib_validate_source()
            FW_RP_LOOSE if !self.has_ipv4_address(link.ifindex) => Ok(FW_RP_STRICT),
            rp_filter => Ok(rp_filter),
        }
    }

    /// As [`super::Routes::refused_sources`].
    pub(super) fn refused_sources(&self) -> Option<Prefix<u32>> {
        self.routes.refused_sources(self.polled.checks_sources)
    }

    pub(super) fn has_ipv4_address(&self, ifindex: u32) -> bool {
        let first = (ifindex, IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let mut from = self.mirror.addrs().range(first..);
        from.next()
            .is_some_and(|((at, address, _), _)| *at == ifindex && address.is_ipv4())
    }

    fn routed6_at(&self, link: &Link) -> Result<(), String> {
        let here = self.conf_of(Family::Ipv6, link.ifindex.cast_signed());
        if here.and_then(|conf| conf.forwarding) != Some(true) {
            return Err("it does not forward IPv6".into());
        }
        let device = self.routes.devices6.get(&link.ifindex);
        match device.is_some_and(|device| device.enabled) {
            true => Ok(()),
            false => Err("IPv6 is disabled there".into()),
        }
    }

    /// What is to be asked of each device, unless there is a reason against IPv6.
    pub(super) fn devices6(&self, reasons: &Reasons) -> BTreeMap<u32, Device6> {
        let device = |link: &Link| {
            let number = |name| sysctl::number(&format!("ipv6/conf/{}/{name}", link.name));
            let device = Device6 {
                mtu: u32::try_from(number("mtu")?).ok()?,
                enabled: number("disable_ipv6") == Some(0),
            };
            Some((link.ifindex, device))
        };
        let mut devices = BTreeMap::new();
        if reasons.ipv6.is_none() {
            devices.extend(self.business().filter_map(device));
        }
        devices
    }

    /// Where packets of a family may leave by prefixes; `in_tc`: some come in where tc has them leave.
    pub(super) fn exits(&self, family: Family, in_tc: bool) -> BTreeMap<u32, Exit> {
        let exit = |link: &Link| {
            let port = self.ports.by_index.get(&link.ifindex)?;
            let itself = port.within == Within::Nothing && link.master.is_none();
            let by_engine = self.by_engine(link.ifindex, port);
            let (base, vlan) = match &port.carried {
                Some(carried) if by_engine => (carried.base, carried.vlan_at_engine()),
                Some(carried) => (carried.base, carried.plain_vlan()),
                None => (link.ifindex, Some(0)),
            };
            let watched = [link.ifindex, base]
                .iter()
                .any(|port| self.polled.is_watched(*port));
            let on_wire = self.ports.by_index.get(&base);
            let in_xdp = on_wire
                .is_some_and(|base| base.within == Within::Nothing && base.without_xdp().is_none())
                && vlan.is_some()
                && port.stations_of.is_none()
                && port.xdp.output
                && !watched;
            let in_tc = in_tc && port.tc.output && self.unrouted_in_tc(link).is_none();
            let alone = vlan.is_none() || self.cores.schedule(base).is_some();
            let engine = match by_engine && port.xdp.output && !watched {
                false => EngineExit::Elsewhere,
                // tc is to see what the kernel makes of a packet
                true if alone || !in_tc => EngineExit::Flows,
                true => EngineExit::Routes,
            };
            let tagged = in_xdp || engine == EngineExit::Routes;
            port.slot.filter(|_| itself && (in_xdp || in_tc))?;
            let mac = link.mac?.0;
            let mtu = match family {
                Family::Ipv4 => link.mtu,
                Family::Ipv6 => {
                    let device = self.routes.devices6.get(&link.ifindex);
                    link.mtu.min(device.filter(|device| device.enabled)?.mtu)
                }
            };
            Some((
                link.ifindex,
                Exit {
                    mac,
                    mtu,
                    in_xdp,
                    in_tc,
                    engine,
                    vlan: vlan.filter(|_| tagged).unwrap_or(0),
                },
            ))
        };
        let mut exits = BTreeMap::new();
        exits.extend(self.business().filter_map(exit));
        exits
    }
}

fn bit<T>(bit: u32, family: &Result<T, String>) -> u32 {
    if family.is_ok() { bit } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_choose_are_not_ordinary() {
        let main = Rule {
            priority: 32_766,
            action: TO_TABLE,
            table: 254,
            ..Rule::any(Family::Ipv6)
        };
        assert!(is_ordinary(&main));
        let permanent = Rule {
            priority: 0,
            table: 255,
            flags: PERMANENT,
            ..main.clone()
        };
        assert!(is_ordinary(&permanent));
        // FIB_RULE_INVERT
        let inverted = Rule {
            flags: 2,
            ..main.clone()
        };
        assert!(!is_ordinary(&inverted));
        let of_marks = Rule {
            fwmark: Some((1, 1)),
            ..main.clone()
        };
        assert!(!is_ordinary(&of_marks));
        // there is no such table of IPv6
        let default = Rule {
            priority: 32_767,
            table: 253,
            ..main
        };
        assert!(!is_ordinary(&default));
        assert!(is_ordinary(&Rule {
            family: Family::Ipv4,
            ..default
        }));
    }
}
