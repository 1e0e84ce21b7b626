// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which kinds of links Freeway forwards for.

use freeway_kernel::model::{Framing, Link, LinkDetail};

/// Why a link is left to the kernel whatever is configured.
pub fn unsupported(link: &Link) -> Option<String> {
    if link.framing() == Framing::Other {
        return Some("neither an Ethernet interface nor one of bare IP packets".into());
    }
    if link.detail == (LinkDetail::Tunnel { external: true }) {
        return Some("routes and filters choose the tunnel of each of its packets".into());
    }
    match link.kind.as_deref() {
        None | Some("veth" | "tun" | "macvlan" | "vxlan" | "geneve" | "wireguard") => {}
        Some(kind) => return Some(format!("{kind} interfaces are left to the kernel")),
    }
    link.master
        .map(|_| "ports of a bridge, bond or VRF are left to the kernel".into())
}

/// Why XDP does not fit a kind of link that tc may forward for.
pub fn without_xdp(link: &Link, wire_true: bool) -> Option<String> {
    if link.framing() == Framing::Bare {
        return Some("its packets have no Ethernet header: tc forwards them".into());
    }
    match link.kind.as_deref() {
        None => None,
        Some("veth") if wire_true => None,
        Some("veth") => Some(format!(
            "veth: its peer may send merged frames and unfinished checksums, which tc forwards; \
             if it behaves as a wire, set wire_true = true in [port.{}] for XDP",
            link.name
        )),
        Some("tun") => Some(
            "tap: frames may come merged or with unfinished checksums, which tc forwards".into(),
        ),
        Some(kind) => Some(format!("{kind} has no driver for XDP: tc forwards")),
    }
}

#[cfg(test)]
pub mod tests {
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
    fn ports_of_their_own_take_part() {
        let own = ["veth", "tun", "macvlan", "vxlan", "geneve", "wireguard"].map(Some);
        for kind in own.into_iter().chain([None]) {
            assert_eq!(unsupported(&link(kind)), None);
        }
        for kind in [
            "vlan", "bridge", "bond", "team", "vrf", "ipvlan", "gre", "ppp", "macsec", "dummy",
        ] {
            let reason = unsupported(&link(Some(kind))).unwrap_or_default();
            assert!(reason.contains(kind), "{kind}: {reason}");
        }
        let member = Link {
            master: Some(7),
            ..link(None)
        };
        assert!(unsupported(&member).is_some_and(|reason| reason.contains("bridge")));
    }

    #[test]
    fn framings() {
        let of = |hw_type| Link {
            hw_type,
            ..link(None)
        };
        for (hw_type, takes_part) in [(1, true), (0xfffe, true), (519, true), (512, false)] {
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
        for kind in ["tun", "veth", "macvlan", "vxlan"] {
            assert!(without_xdp(&link(Some(kind)), false).is_some(), "{kind}");
        }
        assert_eq!(without_xdp(&link(Some("veth")), true), None);
        let reason = without_xdp(&link(Some("veth")), false).unwrap_or_default();
        assert!(reason.contains("wire_true"), "{reason}");
    }
}
