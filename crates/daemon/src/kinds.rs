// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which kinds of links Freeway forwards for.

use freeway_kernel::model::{Framing, Link, LinkDetail, PortDetail};
use freeway_kernel::probe::redirects_to_ppp;
use freeway_kernel::sysctl::Sysctls;

/// Qdiscs that pass packets on in order and do not shape them.
pub const UNSHAPED: [&str; 8] = [
    "noqueue",
    "mq",
    "pfifo_fast",
    "pfifo",
    "bfifo",
    "fq",
    "fq_codel",
    "clsact",
];

/// Why a link is left to the kernel whatever is configured.
pub fn unsupported(link: &Link) -> Option<String> {
    if link.framing() == Framing::Other {
        return Some("neither an Ethernet interface nor one of bare IP packets".into());
    }
    match link.kind.as_deref() {
        None
        | Some(
            "veth" | "tun" | "macvlan" | "vxlan" | "geneve" | "wireguard" | "vlan" | "bridge"
            | "bond",
        ) => {}
        Some("ppp") if redirects_to_ppp() => {}
        Some("ppp") => return Some("tc cannot send to PPP before Linux 6.5 (6.1.55)".into()),
        Some("vrf") => return Some("a VRF, whose ports take part instead".into()),
        Some(kind) => return Some(format!("{kind} interfaces are left to the kernel")),
    }
    let reason = match &link.detail {
        LinkDetail::Tunnel { external: true } => {
            "routes and filters choose the tunnel of each of its packets"
        }
        LinkDetail::Vlan {
            reorder_header: false,
            ..
        } => "its frames keep their VLAN tags (reorder_hdr off)",
        LinkDetail::Vlan {
            ingress_map: true, ..
        } => "the tag of each frame gives it a priority (ingress-qos-map)",
        LinkDetail::Bridge { nf_call: true, .. } => NF_CALL,
        _ => return belongs(link).map(str::to_owned),
    };
    Some(reason.into())
}

/// The same, as it is among others.
pub fn unsupported_among<'a>(link: &Link, links: impl Iterator<Item = &'a Link>) -> Option<String> {
    unsupported(link).or_else(|| conduit(link, links))
}

/// Why a device behind which are a switch's ports (DSA) does not take part: its frames carry the switch's tags, ahead of the
/// type or behind the packet, where they look like plain ones.
fn conduit<'a>(link: &Link, mut links: impl Iterator<Item = &'a Link>) -> Option<String> {
    let port = links.find(|port| {
        port.kind.as_deref() == Some("dsa")
            && port.link == Some(link.ifindex)
            && port.link_netnsid.is_none()
    })?;
    let name = &port.name;
    Some(format!(
        "a switch is behind it, with the port {name} (DSA), and its frames carry the switch's tags"
    ))
}

const NF_CALL: &str = "bridged packets are handed to the IP hooks (br_netfilter): unless that is needed, \
     sysctl net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0";

/// Why what a bridge's port passes on is left to the kernel.
pub fn unbridged(port: &Link, bridge: &Link) -> Option<&'static str> {
    let LinkDetail::Bridge { nf_call, mst, .. } = bridge.detail else {
        return Some("its master is no bridge of the kernel's");
    };
    let PortDetail::Bridge { state, watches, .. } = port.port else {
        return Some("it is no port of a bridge");
    };
    if nf_call {
        return Some(NF_CALL);
    }
    if mst {
        return Some("its state differs by VLAN (MST)");
    }
    if bridge.promiscuity != 0 {
        return Some("the bridge itself takes all frames (promiscuous)");
    }
    if watches {
        return Some("the bridge answers for stations, or maps VLANs to tunnels, at this port");
    }
    (state != FORWARDING).then_some("spanning tree does not let it forward")
}

/// What a bond sends as XDP gives it as it sends what the kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bonded {
    /// All.
    Whatever,
    /// What has no tags: it chooses the part by a hash of the packet, which XDP's way finds behind none
    /// (`bond_xmit_hash_xdp()`), whereas the kernel's own tags are beside the frame.
    Untagged,
}

/// What XDP may send through a bond, or why nothing: `bond_xdp_check()` and what chooses the part.
pub fn bonded(bond: &Link) -> Result<Bonded, &'static str> {
    let LinkDetail::Bond {
        mode,
        xmit_policy,
        probes,
        ..
    } = bond.detail
    else {
        return Err("it is no bond of the kernel's");
    };
    if probes {
        return Err("it looks whether something comes in (arp_interval): tc forwards");
    }
    match mode {
        ACTIVE_BACKUP => Ok(Bonded::Whatever),
        BALANCE_XOR | LACP if xmit_policy <= ENCAP23 => Ok(Bonded::Untagged),
        BALANCE_XOR | LACP => {
            Err("its xmit_hash_policy goes by what XDP's frames do not have: tc forwards")
        }
        BALANCE_RR => Err("it sends packets by turns (balance-rr): tc forwards"),
        _ => Err("the kernel sends nothing of XDP's in its mode: tc forwards"),
    }
}

/// BOND_MODE_
const BALANCE_RR: u8 = 0;
const ACTIVE_BACKUP: u8 = 1;
const BALANCE_XOR: u8 = 2;
const LACP: u8 = 4;
/// BOND_XMIT_POLICY_; beyond are encap3+4, which takes the skb's own hash, and vlan+srcmac.
const ENCAP23: u8 = 3;

/// True of a bridge that knows who listens to groups, for all of its VLANs at once, and is not given them itself.
pub fn snoops(bridge: &Link) -> bool {
    matches!(
        bridge.detail,
        LinkDetail::Bridge {
            snooping: true,
            vlan_snooping: false,
            mcast_router: false,
            ..
        }
    )
}

/// BR_STATE_FORWARDING.
const FORWARDING: u8 = 3;

/// Why a bridge is left to the kernel under these sysctls.
pub fn bridge_netfilter(link: &Link, sysctls: &Sysctls) -> Option<&'static str> {
    let called = [
        sysctls.bridge_nf_call_iptables,
        sysctls.bridge_nf_call_ip6tables,
    ];
    let on = called
        .iter()
        .any(|value| value.is_some_and(|value| value != 0));
    (link.is_bridge() && on).then_some(NF_CALL)
}

/// Why XDP must not take what comes in at a device whose features these are: it takes tags off, and another VLAN's
/// frames look like its own. Returns ethtool's name of the feature to switch off.
pub fn hidden_tags(on: impl Fn(&str) -> bool) -> Option<&'static str> {
    let offloads = [
        ("rx-vlan-hw-parse", "rxvlan"),
        ("rx-vlan-stag-hw-parse", "rx-vlan-stag-hw-parse"),
    ];
    let mut hiding = offloads.iter().filter(|(feature, _)| on(feature));
    hiding.next().map(|(_, switch)| *switch)
}

/// A VLAN as it is, if that differs from what netlink told: ioctls (vconfig) change its maps and flags in silence.
pub fn changed_by_ioctl(link: &Link) -> Option<Link> {
    if !link.is_vlan() {
        return None;
    }
    let text = std::fs::read_to_string(format!("/proc/thread-self/net/vlan/{}", link.name));
    let now = Link {
        detail: vlan_of(&link.detail, &text.ok()?)?,
        ..link.clone()
    };
    (now.detail != link.detail).then_some(now)
}

/// As `vlandev_seq_show()` in net/8021q/vlanproc.c writes it.
fn vlan_of(known: &LinkDetail, text: &str) -> Option<LinkDetail> {
    let &LinkDetail::Vlan { id, protocol, .. } = known else {
        return None;
    };
    let behind = |words: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| Some(line.split_once(words)?.1))
    };
    let maps = |words: &str| {
        let pairs = behind(words).unwrap_or_default().split_whitespace();
        let mut to = pairs.filter_map(|pair| pair.split_once(':').map(|(_, to)| to));
        to.any(|to| to != "0")
    };
    Some(LinkDetail::Vlan {
        id,
        protocol,
        reorder_header: behind("REORDER_HDR: ")?.starts_with('1'),
        ingress_map: maps("INGRESS priority mappings:"),
        egress_map: maps("EGRESS priority mappings:"),
    })
}

/// Why what belongs to another link does not take part itself.
fn belongs(link: &Link) -> Option<&'static str> {
    link.master?;
    Some(match link.port {
        PortDetail::Vrf => return None,
        PortDetail::Bridge { .. } => {
            "a port of a bridge: the bridge takes part with what is routed, and the kernel bridges the rest"
        }
        PortDetail::Bond { .. } => "a part of a bond, which takes part instead",
        PortDetail::None => "a part of a device that may do anything with its frames",
    })
}

/// Why XDP does not fit a kind of link that tc may forward for.
pub fn without_xdp(link: &Link, wire_true: bool) -> Option<String> {
    if link.is_ppp() {
        return Some(
            "XDP serves a PPPoE session at the device below, if that is a port with XDP, once TCP of the kernel has \
             shown that packets are sent as they are; else tc forwards"
                .into(),
        );
    }
    if link.framing() == Framing::Bare {
        return Some("its packets have no Ethernet header: tc forwards them".into());
    }
    if let LinkDetail::Vlan {
        egress_map: true, ..
    } = link.detail
    {
        return Some(
            "its packets' priorities become its tags' (egress-qos-map): tc forwards".into(),
        );
    }
    match link.kind.as_deref() {
        None => None,
        Some("vlan") => Some(
            "XDP serves a VLAN at the device below, if that is a port with XDP; else tc forwards"
                .into(),
        ),
        Some("veth") if wire_true => None,
        Some("veth") => Some(format!(
            "veth: its peer may send merged frames and unfinished checksums, which tc forwards; \
             if it behaves as a wire, set wire_true = true in [port.{}] for XDP",
            link.name
        )),
        Some("bond") => Some(
            "XDP serves a bond at its parts, if those are ports with XDP; else tc forwards".into(),
        ),
        Some("tun") => Some(
            "tap: frames may come merged or with unfinished checksums, which tc forwards".into(),
        ),
        Some(kind) => Some(format!("{kind} has no driver for XDP: tc forwards")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An Ethernet link `p0` of a kind.
    pub fn link(kind: Option<&str>) -> Link {
        Link {
            name: "p0".into(),
            kind: kind.map(str::to_owned),
            hw_type: 1,
            ..Link::default()
        }
    }

    #[test]
    fn bonds_send_as_the_kernel_does() {
        let bond = |mode, xmit_policy, probes| Link {
            detail: LinkDetail::Bond {
                mode,
                active_slave: None,
                xmit_policy,
                probes,
            },
            ..link(Some("bond"))
        };
        assert_eq!(bonded(&bond(1, 0, false)), Ok(Bonded::Whatever));
        for mode in [2, 4] {
            for policy in 0..=3 {
                assert_eq!(bonded(&bond(mode, policy, false)), Ok(Bonded::Untagged));
            }
            for policy in [4, 5] {
                assert!(bonded(&bond(mode, policy, false)).is_err(), "{policy}");
            }
        }
        for mode in [0, 3, 5, 6] {
            assert!(bonded(&bond(mode, 0, false)).is_err(), "{mode}");
        }
        assert!(bonded(&bond(1, 0, true)).is_err());
        assert!(bonded(&link(Some("team"))).is_err());
    }

    #[test]
    fn ports_of_their_own_take_part() {
        let own = [
            "veth",
            "tun",
            "macvlan",
            "vxlan",
            "geneve",
            "wireguard",
            "vlan",
            "bridge",
            "bond",
        ]
        .map(Some);
        for kind in own.into_iter().chain([None]) {
            assert_eq!(unsupported(&link(kind)), None);
        }
        for kind in ["team", "ipvlan", "gre", "macsec", "dummy"] {
            let reason = unsupported(&link(Some(kind))).unwrap_or_default();
            assert!(reason.contains(kind), "{kind}: {reason}");
        }
        let reason = unsupported(&link(Some("vrf")));
        assert!(reason.is_some_and(|reason| reason.contains("whose ports")));
    }

    #[test]
    fn what_is_below_a_switchs_ports_does_not() {
        let port = Link {
            ifindex: 7,
            link: Some(link(None).ifindex),
            ..link(Some("dsa"))
        };
        let reason = conduit(&link(None), [&port].into_iter()).unwrap_or_default();
        assert!(reason.contains("switch"), "{reason}");
        let elsewhere = Link {
            link_netnsid: Some(0),
            ..port.clone()
        };
        let vlan = Link {
            kind: Some("vlan".into()),
            ..port
        };
        for other in [elsewhere, vlan] {
            assert_eq!(conduit(&link(None), [&other].into_iter()), None);
        }
    }

    #[test]
    fn ports_of_a_vrf_take_part() {
        for kind in [None, Some("veth"), Some("bridge"), Some("wireguard")] {
            let port = Link {
                master: Some(7),
                port: PortDetail::Vrf,
                ..link(kind)
            };
            assert_eq!(unsupported(&port), None);
            assert_eq!(port.vrf(), Some(7));
        }
    }

    #[test]
    fn what_belongs_to_another_link_does_not() {
        let bridge = PortDetail::Bridge {
            state: 3,
            hairpin: false,
            isolated: false,
            watches: false,
            settings: 0,
        };
        let bond = PortDetail::Bond {
            state: 0,
            mii_status: 0,
            queue: 0,
        };
        for (port, word) in [
            (bridge, "bridge"),
            (bond, "bond"),
            (PortDetail::None, "a device"),
        ] {
            let member = Link {
                master: Some(7),
                port,
                ..link(None)
            };
            let reason = unsupported(&member).unwrap_or_default();
            assert!(reason.contains(word), "{reason}");
        }
    }

    #[test]
    fn vlans_that_differ() {
        for (reorder_header, ingress_map) in
            [(true, false), (false, false), (true, true), (false, true)]
        {
            let vlan = Link {
                detail: LinkDetail::Vlan {
                    id: 5,
                    protocol: 0x8100,
                    reorder_header,
                    ingress_map,
                    egress_map: false,
                },
                ..link(Some("vlan"))
            };
            let plain = reorder_header && !ingress_map;
            assert_eq!(unsupported(&vlan).is_none(), plain);
        }
    }

    #[test]
    fn bridges_whose_packets_netfilter_sees() {
        let called = |v4, v6| Sysctls {
            bridge_nf_call_iptables: v4,
            bridge_nf_call_ip6tables: v6,
            ..Sysctls::default()
        };
        let bridge = link(Some("bridge"));
        for (v4, v6, takes_part) in [
            (None, None, true),
            (Some(0), Some(0), true),
            (Some(1), Some(0), false),
            (Some(0), Some(1), false),
        ] {
            let sysctls = called(v4, v6);
            assert_eq!(bridge_netfilter(&bridge, &sysctls).is_none(), takes_part);
        }
        assert_eq!(
            bridge_netfilter(&link(None), &called(Some(1), Some(1))),
            None
        );
        let own = Link {
            detail: LinkDetail::Bridge {
                snooping: true,
                vlan_snooping: false,
                mcast_router: false,
                vlan_filtering: false,
                stp_state: 0,
                mst: false,
                nf_call: true,
                settings: 0,
            },
            ..bridge
        };
        assert!(unsupported(&own).is_some_and(|reason| reason.contains("br_netfilter")));
    }

    #[test]
    fn framings() {
        let of = |hw_type| Link {
            hw_type,
            ..link(None)
        };
        for (hw_type, takes_part) in [
            (1, true),
            (0xfffe, true),
            (519, true),
            (512, true),
            (772, false),
        ] {
            assert_eq!(unsupported(&of(hw_type)).is_none(), takes_part, "{hw_type}");
        }
        assert!(without_xdp(&of(0xfffe), true).is_some());
        assert_eq!(without_xdp(&of(1), false), None);
    }

    #[test]
    fn tunnels_that_routes_choose() {
        for external in [false, true] {
            let tunnel = Link {
                detail: LinkDetail::Tunnel { external },
                ..link(Some("vxlan"))
            };
            assert_eq!(unsupported(&tunnel).is_some(), external);
        }
    }

    #[test]
    fn what_is_no_wire_is_not_for_xdp() {
        for kind in ["tun", "veth", "macvlan", "vxlan", "vlan", "bridge", "bond"] {
            assert!(without_xdp(&link(Some(kind)), false).is_some(), "{kind}");
        }
        assert_eq!(without_xdp(&link(Some("veth")), true), None);
        let reason = without_xdp(&link(Some("veth")), false).unwrap_or_default();
        assert!(reason.contains("wire_true"), "{reason}");
    }

    #[test]
    fn vlans_changed_by_ioctl() {
        let known = |reorder_header, ingress_map, egress_map| LinkDetail::Vlan {
            id: 5,
            protocol: 0x8100,
            reorder_header,
            ingress_map,
            egress_map,
        };
        let text = |reorder, ingress, egress| {
            format!(
                "vl0  VID: 5\t REORDER_HDR: {reorder}  dev->priv_flags: 1021\n         total frames received            0\n\
                 Device: wan0\nINGRESS priority mappings: 0:{ingress}  1:0  2:0  3:0  4:0  5:0  6:0 7:0\n \
                 EGRESS priority mappings: {egress}\n"
            )
        };
        let plain = known(true, false, false);
        for (reorder, ingress, egress, now) in [
            (1, 0, "", plain.clone()),
            (1, 0, "0:0 ", plain.clone()),
            (1, 0, "0:3 ", known(true, false, true)),
            (1, 2, "", known(true, true, false)),
            (0, 0, "", known(false, false, false)),
        ] {
            assert_eq!(vlan_of(&plain, &text(reorder, ingress, egress)), Some(now));
        }
        assert_eq!(vlan_of(&plain, ""), None);
        assert_eq!(changed_by_ioctl(&link(None)), None);
    }

    #[test]
    fn tags_that_the_hardware_takes_off() {
        let stag = "rx-vlan-stag-hw-parse";
        let switches = [
            ("rx-vlan-hw-parse", Some("rxvlan")),
            (stag, Some(stag)),
            ("rx-gro-list", None),
        ];
        for (on, switch) in switches {
            assert_eq!(hidden_tags(|feature| feature == on), switch);
        }
    }
}
