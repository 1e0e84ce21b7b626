// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network interfaces.

use serde::Serialize;

use super::Mac;

/// A network interface (RTM_NEWLINK, `rtnl_fill_ifinfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Interface index.
    pub ifindex: u32,
    /// Interface name.
    pub name: String,
    /// The driver kind of a virtual link (veth, bridge, vlan, bond, vrf, ppp, macsec...), `None` for hardware.
    pub kind: Option<String>,
    /// ARPHRD_ number: 1 is Ethernet, 512 PPP, 772 loopback.
    pub hw_type: u16,
    /// The MAC address, if it has one of 6 bytes.
    pub mac: Option<Mac>,
    /// MTU in bytes, without the L2 header.
    pub mtu: u32,
    /// Packets that its default queues hold.
    pub tx_queue_len: u32,
    /// Raw IFF_ flags.
    pub flags: u32,
    /// IFF_UP: the administrator wants it up.
    pub up: bool,
    /// IFF_RUNNING: operational.
    pub running: bool,
    /// IFLA_CARRIER: the wire is connected.
    pub carrier: bool,
    /// How often it was connected since the interface was made (IFLA_CARRIER_UP_COUNT).
    pub carrier_ups: u32,
    /// RFC 2863 operational state (IF_OPER_): 6 is up, 2 down, 0 unknown.
    pub oper_state: u8,
    /// The bridge, bond, VRF... that it belongs to.
    pub master: Option<u32>,
    /// The lower device (of a VLAN, macvlan) or the peer (of a veth in the same namespace).
    pub link: Option<u32>,
    /// Set when `link` counts in another network namespace.
    pub link_netnsid: Option<i32>,
    /// References that put the link into promiscuous mode (bridges do, tcpdump does).
    pub promiscuity: u32,
    /// Name of the root qdisc.
    pub qdisc: Option<String>,
    /// Attached XDP programs.
    pub xdp: Vec<XdpProg>,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// Interface group.
    pub group: u32,
    /// What is particular to the kind.
    pub detail: LinkDetail,
    /// What is particular to being a port of the master.
    pub port: PortDetail,
}

impl Link {
    /// How packets are framed there.
    pub fn framing(&self) -> Framing {
        match self.hw_type {
            ARPHRD_ETHER => Framing::Ethernet,
            ARPHRD_NONE | ARPHRD_RAWIP | ARPHRD_PPP => Framing::Bare,
            _ => Framing::Other,
        }
    }

    /// A PPP device.
    pub fn is_ppp(&self) -> bool {
        self.kind.as_deref() == Some("ppp")
    }

    /// Another device carries its packets, framed.
    pub fn is_carried(&self) -> bool {
        self.is_vlan() || self.is_ppp()
    }

    /// A bridge of the kernel's.
    pub fn is_bridge(&self) -> bool {
        self.kind.as_deref() == Some("bridge")
    }

    /// A bond of the kernel's.
    pub fn is_bond(&self) -> bool {
        matches!(self.detail, LinkDetail::Bond { .. })
    }

    /// The VRF whose port it is.
    pub fn vrf(&self) -> Option<u32> {
        self.master.filter(|_| self.port == PortDetail::Vrf)
    }

    /// A VRF itself.
    pub fn is_vrf(&self) -> bool {
        matches!(self.detail, LinkDetail::Vrf { .. })
    }

    /// A VLAN of the device below.
    pub fn is_vlan(&self) -> bool {
        matches!(self.detail, LinkDetail::Vlan { .. })
    }
}

/// Hardware types (linux/if_arp.h).
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_PPP: u16 = 512;
const ARPHRD_RAWIP: u16 = 519;
const ARPHRD_NONE: u16 = 0xfffe;

/// What is ahead of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// An Ethernet header.
    Ethernet,
    /// Nothing that others see: tun, WireGuard, PPP, many modems.
    Bare,
    /// Something else.
    Other,
}

/// An XDP program on a link (IFLA_XDP).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct XdpProg {
    /// Program id, 0 when the kernel does not tell.
    pub id: u32,
    /// How it is attached.
    pub mode: XdpMode,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In the stack, after the skb is made.
    Generic,
    /// In the device.
    Offload,
}

/// What is particular to a kind of link (IFLA_INFO_DATA).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkDetail {
    /// Nothing that matters here.
    #[default]
    None,
    /// A VLAN.
    Vlan {
        /// VLAN identifier.
        id: u16,
        /// Tag protocol, 0x8100 or 0x88a8.
        protocol: u16,
        /// Frames have their tags taken off before others see them (VLAN_FLAG_REORDER_HDR).
        reorder_header: bool,
        /// The tag of a frame gives it a priority (ingress-qos-map).
        ingress_map: bool,
        /// A packet's priority gives its frame's tag one (egress-qos-map).
        egress_map: bool,
    },
    /// A bridge.
    Bridge {
        /// vlan_filtering is on.
        vlan_filtering: bool,
        /// Spanning tree: 0 off, 1 kernel, 2 user space.
        stp_state: u32,
        /// Multiple spanning trees (BR_BOOLOPT_MST_ENABLE).
        mst: bool,
        /// It knows who listens to groups (mcast_snooping).
        snooping: bool,
        /// It knows so for each VLAN by itself (mcast_vlan_snooping).
        vlan_snooping: bool,
        /// It is a multicast router itself, which all groups go to (mcast_router 2).
        mcast_router: bool,
        /// Packets are handed to the IP hooks of netfilter (nf_call_iptables, nf_call_ip6tables).
        nf_call: bool,
        /// Differs if any setting that frames go by does.
        settings: u64,
    },
    /// A bond.
    Bond {
        /// BOND_MODE_: 0 balance-rr, 1 active-backup, 2 balance-xor, 3 broadcast, 4 802.3ad, 5 balance-tlb, 6 balance-alb.
        mode: u8,
        /// The active slave of active-backup.
        active_slave: Option<u32>,
        /// BOND_XMIT_POLICY_, by which balance-xor and 802.3ad choose: 0 layer2, 1 layer3+4, 2 layer2+3, 3 encap2+3, 4 encap3+4,
        /// 5 vlan+srcmac.
        xmit_policy: u8,
        /// Links are watched by ARP or neighbour discovery (arp_interval).
        probes: bool,
    },
    /// A tunnel device (vxlan, geneve).
    Tunnel {
        /// Routes and filters choose each packet's tunnel (IFLA_VXLAN_COLLECT_METADATA).
        external: bool,
    },
    /// A VRF.
    Vrf {
        /// Its routing table.
        table: u32,
    },
}

/// What is particular to a port of a master (IFLA_INFO_SLAVE_DATA).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PortDetail {
    /// No port, or nothing that matters here.
    #[default]
    None,
    /// A bridge port.
    Bridge {
        /// BR_STATE_: 0 disabled, 1 listening, 2 learning, 3 forwarding, 4 blocking.
        state: u8,
        /// Hairpin mode.
        hairpin: bool,
        /// Isolated from other isolated ports.
        isolated: bool,
        /// The bridge answers for stations behind it (proxy_arp, neigh_suppress), or maps VLANs to tunnels.
        watches: bool,
        /// Differs if any of its settings does.
        settings: u64,
    },
    /// A port of a VRF.
    Vrf,
    /// A bond slave.
    Bond {
        /// 0 active, 1 backup.
        state: u8,
        /// 0 up, 1 fail, 2 down, 3 back.
        mii_status: u8,
        /// The transmit queue that is its, whatever the mode says (queue_id); 0: none.
        queue: u16,
    },
}
