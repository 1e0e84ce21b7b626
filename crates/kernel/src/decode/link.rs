// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWLINK (`rtnl_fill_ifinfo`, and `br_fill_ifinfo` for AF_BRIDGE).

use crate::model::{Link, LinkDetail, PortDetail, XdpMode, XdpProg};
use crate::nla::{Attr, Attrs, attrs_after, u8_at, u16_at, u32_at};

/// Length of struct ifinfomsg.
pub const HEADER: usize = 16;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_QDISC: u16 = 6;
const IFLA_TXQLEN: u16 = 13;
const IFLA_MASTER: u16 = 10;
const IFLA_PROTINFO: u16 = 12;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_GROUP: u16 = 27;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_CARRIER: u16 = 33;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_CARRIER_UP_COUNT: u16 = 47;

/// The family and interface of a link message.
pub fn subject(payload: &[u8]) -> Option<(u8, u32)> {
    Some((u8_at(payload, 0)?, u32_at(payload, 4)?))
}

/// A link, from a message of family AF_UNSPEC.
pub fn link(payload: &[u8]) -> Option<Link> {
    let flags = u32_at(payload, 8)?;
    let mut link = Link {
        hw_type: u16_at(payload, 2)?,
        ifindex: u32_at(payload, 4)?,
        flags,
        up: flags & libc::IFF_UP as u32 != 0,
        running: flags & libc::IFF_RUNNING as u32 != 0,
        ..Link::default()
    };
    for attr in attrs_after(payload, HEADER) {
        match attr.kind {
            IFLA_ADDRESS => link.mac = attr.mac(),
            IFLA_IFNAME => link.name = attr.text(),
            IFLA_MTU => link.mtu = attr.u32()?,
            IFLA_LINK => link.link = attr.u32().filter(|&lower| lower != 0),
            IFLA_LINK_NETNSID => link.link_netnsid = attr.u32().map(|id| id as i32),
            IFLA_TXQLEN => link.tx_queue_len = attr.u32().unwrap_or(0),
            IFLA_QDISC => link.qdisc = Some(attr.text()),
            IFLA_MASTER => link.master = attr.u32().filter(|&master| master != 0),
            IFLA_OPERSTATE => link.oper_state = attr.u8()?,
            IFLA_GROUP => link.group = attr.u32()?,
            IFLA_PROMISCUITY => link.promiscuity = attr.u32()?,
            IFLA_NUM_TX_QUEUES => link.tx_queues = attr.u32()?,
            IFLA_NUM_RX_QUEUES => link.rx_queues = attr.u32()?,
            IFLA_CARRIER => link.carrier = attr.u8()? != 0,
            IFLA_CARRIER_UP_COUNT => link.carrier_ups = attr.u32()?,
            IFLA_XDP => link.xdp = xdp(attr.nested()),
            IFLA_LINKINFO => info(attr.nested(), &mut link),
            _ => {}
        }
    }
    Some(link)
}

/// The bridge port state in a message of family AF_BRIDGE.
pub fn bridge_port(payload: &[u8]) -> Option<PortDetail> {
    let attr = attrs_after(payload, HEADER).find(IFLA_PROTINFO)?;
    brport(attr.nested())
}

fn xdp(attrs: Attrs<'_>) -> Vec<XdpProg> {
    const IFLA_XDP_ATTACHED: u16 = 2;
    const IFLA_XDP_PROG_ID: u16 = 4;
    const IFLA_XDP_DRV_PROG_ID: u16 = 5;
    const IFLA_XDP_SKB_PROG_ID: u16 = 6;
    const IFLA_XDP_HW_PROG_ID: u16 = 7;
    let mut programs = Vec::new();
    let (mut attached, mut only_id) = (0, 0);
    for attr in attrs {
        let id = attr.u32().unwrap_or(0);
        match attr.kind {
            IFLA_XDP_ATTACHED => attached = attr.u8().unwrap_or(0),
            IFLA_XDP_PROG_ID => only_id = id,
            IFLA_XDP_DRV_PROG_ID => programs.push(XdpProg {
                id,
                mode: XdpMode::Native,
            }),
            IFLA_XDP_SKB_PROG_ID => programs.push(XdpProg {
                id,
                mode: XdpMode::Generic,
            }),
            IFLA_XDP_HW_PROG_ID => programs.push(XdpProg {
                id,
                mode: XdpMode::Offload,
            }),
            _ => {}
        }
    }
    if programs.is_empty() {
        let mode = match attached {
            0 => None,
            2 => Some(XdpMode::Generic),
            3 => Some(XdpMode::Offload),
            _ => Some(XdpMode::Native),
        };
        programs.extend(mode.map(|mode| XdpProg { id: only_id, mode }));
    }
    programs.sort();
    programs
}

fn info(attrs: Attrs<'_>, link: &mut Link) {
    const IFLA_INFO_KIND: u16 = 1;
    const IFLA_INFO_DATA: u16 = 2;
    const IFLA_INFO_SLAVE_KIND: u16 = 4;
    const IFLA_INFO_SLAVE_DATA: u16 = 5;
    let text = |attr: Attr<'_>| attr.text();
    link.kind = attrs.clone().find(IFLA_INFO_KIND).map(text);
    if let (Some(kind), Some(data)) = (&link.kind, attrs.clone().find(IFLA_INFO_DATA)) {
        link.detail = detail(kind, data.nested());
    }
    let slave_kind = attrs.clone().find(IFLA_INFO_SLAVE_KIND).map(text);
    let data = attrs.find(IFLA_INFO_SLAVE_DATA);
    link.port = match (slave_kind.as_deref(), data) {
        (Some("bridge"), Some(data)) => brport(data.nested()).unwrap_or_default(),
        (Some("bond"), Some(data)) => bond_port(data.nested()),
        // of which there is nothing to tell
        (Some("vrf"), _) => PortDetail::Vrf,
        _ => PortDetail::None,
    };
}

const VLAN_FLAG_REORDER_HDR: u32 = 1;

fn detail(kind: &str, attrs: Attrs<'_>) -> LinkDetail {
    let u8_of = |kind| attrs.clone().find(kind).and_then(|attr| attr.u8());
    let u16_of = |kind| attrs.clone().find(kind).and_then(|attr| attr.u16());
    let u32_of = |kind| attrs.clone().find(kind).and_then(|attr| attr.u32());
    match kind {
        "vlan" => LinkDetail::Vlan {
            id: u16_of(1).unwrap_or(0),
            protocol: attrs
                .clone()
                .find(5)
                .and_then(|attr| attr.be16())
                .unwrap_or(0x8100),
            // struct ifla_vlan_flags
            reorder_header: u32_of(2).unwrap_or(0) & VLAN_FLAG_REORDER_HDR != 0,
            egress_map: attrs.clone().find(3).is_some(),
            ingress_map: attrs.clone().find(4).is_some(),
        },
        "bridge" => LinkDetail::Bridge {
            stp_state: u32_of(5).unwrap_or(0),
            vlan_filtering: u8_of(7).unwrap_or(0) != 0,
            // IFLA_BR_MULTI_BOOLOPT, BR_BOOLOPT_MST_ENABLE.
            mst: u32_of(46).unwrap_or(0) & (1 << 2) != 0,
            // IFLA_BR_MCAST_SNOOPING, and BR_BOOLOPT_MCAST_VLAN_SNOOPING
            snooping: u8_of(23).unwrap_or(0) != 0,
            vlan_snooping: u32_of(46).unwrap_or(0) & (1 << 1) != 0,
            // IFLA_BR_MCAST_ROUTER, MDB_RTR_TYPE_PERM
            mcast_router: u8_of(22) == Some(2),
            nf_call: [36, 37].iter().any(|kind| u8_of(*kind).unwrap_or(0) != 0),
            settings: settings(attrs.clone(), &BRIDGE_SETTINGS),
        },
        "bond" => LinkDetail::Bond {
            mode: u8_of(1).unwrap_or(0),
            active_slave: u32_of(2),
            // IFLA_BOND_XMIT_HASH_POLICY, IFLA_BOND_ARP_INTERVAL
            xmit_policy: u8_of(14).unwrap_or(0),
            probes: u32_of(7).unwrap_or(0) != 0,
        },
        "vxlan" => LinkDetail::Tunnel {
            external: u8_of(25).unwrap_or(0) != 0,
        },
        // IFLA_GENEVE_COLLECT_METADATA is a flag
        "geneve" => LinkDetail::Tunnel {
            external: attrs.clone().find(6).is_some(),
        },
        "vrf" => LinkDetail::Vrf {
            table: u32_of(1).unwrap_or(0),
        },
        _ => LinkDetail::None,
    }
}

/// IFLA_BR_: AGEING_TIME, VLAN_FILTERING, VLAN_PROTOCOL, GROUP_FWD_MASK, GROUP_ADDR, MCAST_ROUTER, MCAST_SNOOPING,
/// MCAST_QUERIER, VLAN_DEFAULT_PVID, MCAST_IGMP_VERSION, MCAST_MLD_VERSION, MULTI_BOOLOPT.
const BRIDGE_SETTINGS: [u16; 12] = [4, 7, 8, 9, 20, 22, 23, 25, 39, 43, 44, 46];
/// IFLA_BRPORT_, but for what is counted, timed or found out.
const BRPORT_SETTINGS: [u16; 22] = [
    1, 4, 5, 6, 7, 8, 9, 10, 12, 25, 27, 28, 29, 30, 31, 32, 33, 34, 39, 40, 43, 44,
];

/// FNV-1a of these attributes.
fn settings(attrs: Attrs<'_>, kinds: &[u16]) -> u64 {
    let chosen = attrs.filter(|attr| kinds.contains(&attr.kind));
    let octets = chosen.flat_map(|attr| {
        let kind = attr.kind.to_ne_bytes();
        kind.into_iter().chain(attr.payload.iter().copied())
    });
    octets.fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn brport(attrs: Attrs<'_>) -> Option<PortDetail> {
    let flag = |kind| attrs.clone().find(kind).and_then(|attr| attr.u8());
    Some(PortDetail::Bridge {
        state: flag(1)?,
        hairpin: flag(4).unwrap_or(0) != 0,
        isolated: flag(33).unwrap_or(0) != 0,
        // IFLA_BRPORT_: PROXYARP, PROXYARP_WIFI, VLAN_TUNNEL, NEIGH_SUPPRESS, NEIGH_VLAN_SUPPRESS
        watches: [10, 12, 29, 32, 43]
            .iter()
            .any(|kind| flag(*kind).unwrap_or(0) != 0),
        settings: settings(attrs.clone(), &BRPORT_SETTINGS),
    })
}

fn bond_port(attrs: Attrs<'_>) -> PortDetail {
    let byte = |kind| {
        attrs
            .clone()
            .find(kind)
            .and_then(|attr| attr.u8())
            .unwrap_or(0)
    };
    PortDetail::Bond {
        state: byte(1),
        mii_status: byte(2),
        // IFLA_BOND_SLAVE_QUEUE_ID
        queue: attrs
            .clone()
            .find(5)
            .and_then(|attr| attr.u16())
            .unwrap_or(0),
    }
}
