// SPDX-License-Identifier: MIT OR Apache-2.0
//! What configuration and kernel want of a port.

use std::collections::BTreeMap;

use freeway_api::{PathChoice, SteerPath, SteerRule};
use freeway_cmm::{Policy, Selection, Steering};
use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::{Family, Link, Prefix};

use crate::config::Config;
use crate::kinds::{self};

/// The greatest ifindex that a flow's key has room for, beside its protocol and family (`fw_key4.port_proto`).
const IFINDEX_MAX: u32 = (1 << 23) - 1;

/// What keeps a port from the fast path for good, until something about it changes.
pub(super) fn unfit(link: &Link, links: &BTreeMap<u32, Link>, config: &Config) -> Option<String> {
    let options = config.port.get(&link.name).cloned().unwrap_or_default();
    if options.path == PathChoice::Kernel {
        return Some("the configuration leaves it to the kernel".into());
    }
    if link.ifindex > IFINDEX_MAX {
        let number = link.ifindex;
        return Some(format!(
            "its number, {number}, is above {IFINDEX_MAX}, which is the greatest in a flow's key; make it anew in another network namespace"
        ));
    }
    kinds::unsupported_among(link, links.values())
}

pub(super) fn wants_tc(link: &Link, config: &Config) -> Option<String> {
    let path = config.port.get(&link.name).map(|options| options.path);
    (path == Some(PathChoice::Tc)).then(|| "the configuration wants tc".into())
}

/// Why XDP is not to have a port's frames, nor those of what it is a piece of.
pub(super) fn wants_elsewhere(link: &Link, config: &Config) -> Option<String> {
    let path = config.port.get(&link.name).map(|options| options.path);
    matches!(path, Some(PathChoice::Tc | PathChoice::Kernel))
        .then(|| "the configuration wants another path than XDP".into())
}

/// What keeps XDP from a port that tc may forward for.
pub(super) fn without_xdp(link: &Link, config: &Config) -> Option<String> {
    let wire_true = config.port.get(&link.name).is_some_and(|p| p.wire_true);
    wants_tc(link, config).or_else(|| kinds::without_xdp(link, wire_true))
}

/// Ports that a name in the policy means: a VRF's are all that belong to it.
pub(super) fn named(name: &str, links: &BTreeMap<u32, Link>) -> Vec<u32> {
    let link = links.values().find(|link| link.name == name);
    let Some(link) = link else { return Vec::new() };
    let vrf = link.is_vrf().then_some(link.ifindex);
    let is_meant = |of: &&Link| of.ifindex == link.ifindex || (vrf.is_some() && of.vrf() == vrf);
    let meant = links.values().filter(is_meant);
    meant.map(|link| link.ifindex).collect()
}

/// The configuration's policy in the manager's terms.
pub(super) fn policy(config: &Config, mirror: &Mirror) -> Policy {
    let links = mirror.links();
    let networks = |list: &[freeway_api::Prefix]| {
        list.iter()
            .map(|p| Prefix {
                addr: p.addr,
                len: p.len,
            })
            .collect()
    };
    let ranges = |list: &[freeway_api::PortRange]| list.iter().map(|r| (r.first, r.last)).collect();
    let selection = |s: &freeway_api::Selection| Selection {
        proto: s.proto.map(|p| p.0),
        src: networks(&s.src),
        dst: networks(&s.dst),
        sport: ranges(&s.sport),
        dport: ranges(&s.dport),
        ifindex: (!s.port.is_empty())
            .then(|| s.port.iter().flat_map(|name| named(name, links)).collect()),
    };
    let steering = |rule: &SteerRule| {
        Some(Steering {
            flows: selection(&rule.flows()),
            engine: rule.path? == SteerPath::Engine,
        })
    };
    Policy {
        tcp: config.policy.tcp,
        udp: config.policy.udp,
        icmp: config.policy.icmp,
        esp: config.policy.tunnels,
        gre: config.policy.tunnels,
        multicast: config.policy.multicast,
        exclude: config.policy.exclude.iter().map(selection).collect(),
        steer: config.policy.steer.iter().filter_map(steering).collect(),
    }
}

pub(super) fn forwards(link: &Link, mirror: &Mirror) -> bool {
    let on = |family, index| {
        let conf = mirror.netconf().get(&(family, index));
        conf.and_then(|c| c.forwarding)
    };
    let index = link.ifindex.cast_signed();
    [Family::Ipv4, Family::Ipv6].into_iter().any(|family| {
        on(family, index)
            .or_else(|| on(family, -1))
            .unwrap_or(false)
    })
}

#[cfg(test)]
mod tests {
    use freeway_kernel::model::{LinkDetail, PortDetail};

    use super::*;
    use crate::kinds::tests::link;

    #[test]
    fn the_configuration_decides() {
        let config = |text| Config::parse(text, "x").unwrap();
        let kernel = config("[port.p0]\npath = \"kernel\"\n");
        let none = BTreeMap::new();
        let reason = unfit(&link(None), &none, &kernel).unwrap();
        assert!(reason.contains("configuration"), "{reason}");
        assert_eq!(unfit(&link(None), &none, &Config::default()), None);
        let veth = link(Some("veth"));
        let wire = config("[port.p0]\nwire_true = true\n");
        assert_eq!(without_xdp(&veth, &wire), None);
        assert!(without_xdp(&veth, &config("[port.p1]\nwire_true = true\n")).is_some());
        let tc = config("[port.p0]\nwire_true = true\npath = \"tc\"\n");
        assert!(without_xdp(&veth, &tc).unwrap().contains("configuration"));
    }

    #[test]
    fn a_vrf_means_its_ports() {
        let port = |ifindex, name: &str, vrf: Option<u32>| Link {
            ifindex,
            name: name.into(),
            master: vrf,
            port: vrf.map_or_else(PortDetail::default, |_| PortDetail::Vrf),
            ..link(None)
        };
        let mut blue = port(4, "blue", None);
        blue.detail = LinkDetail::Vrf { table: 10 };
        let links = [
            port(2, "lan0", Some(4)),
            port(3, "wan0", None),
            blue,
            port(5, "lan1", Some(4)),
        ];
        let links = links.into_iter().map(|link| (link.ifindex, link)).collect();
        assert_eq!(named("blue", &links), [2, 4, 5]);
        assert_eq!(named("lan0", &links), [2]);
        assert!(named("lan9", &links).is_empty());
    }
}
