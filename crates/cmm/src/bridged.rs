// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bridged frames: whose they are, where they go, and what is asked of the data plane.

use freeway_abi::{fw_nexthop, fw_path, fw_stations, fw_tag};

use crate::ends::Mac;
use crate::port::Fitness;
use crate::stations::StationExit;

/// Ethernet's header and the tag that a frame may have beyond the MTU (`xdp_ok_fwd_dev()`, `is_skb_forwardable()`).
pub(crate) const LINK_LEN: u32 = 14 + 4;

/// The VLAN in a tag.
pub(crate) const VLAN_MASK: u16 = 0xfff;

/// Seconds between two frames of a path that the kernel is given: by them it knows that the station lives.
pub(crate) const REVALIDATE_S: u32 = 1;

/// A port of a bridge with XDP; the daemon decides and tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePort {
    /// Interface index.
    pub ifindex: u32,
    /// The bridge's.
    pub bridge: u32,
    /// Slot in the device map.
    pub slot: u32,
    /// MTU in bytes, without the L2 header.
    pub mtu: u32,
    /// XDP may forward what comes in, and send.
    pub fit: Fitness,
}

/// A bridge that takes part with what is routed, or a VLAN of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedPort {
    /// Interface index.
    pub ifindex: u32,
    /// The bridge's.
    pub bridge: u32,
    /// MTU in bytes, without the L2 header.
    pub mtu: u32,
    /// What XDP may do with its frames, at the bridge's ports.
    pub fit: Fitness,
}

/// Stations of a bridge: the second one sends to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stations {
    /// The bridge's port at which the frames come in; of what the router sends, the bridge or a VLAN of it.
    pub port: u32,
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// The tag of the frames, in network byte order: protocol, then priority and VLAN; 0: none.
    pub tag_be: [u16; 2],
}

impl Stations {
    pub(crate) fn of(record: &fw_stations) -> Self {
        let mut macs = [[0; 6]; 2];
        macs[0].copy_from_slice(&record.macs[..6]);
        macs[1].copy_from_slice(&record.macs[6..]);
        Self {
            port: record.port,
            dst: macs[0],
            src: macs[1],
            tag_be: [record.tag.tpid_be, record.tag.tci_be],
        }
    }

    /// As the data plane has them.
    #[must_use]
    pub fn record(&self) -> fw_stations {
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&self.dst);
        macs[6..].copy_from_slice(&self.src);
        fw_stations {
            port: self.port,
            macs,
            tag: fw_tag {
                tpid_be: self.tag_be[0],
                tci_be: self.tag_be[1],
            },
        }
    }
}

/// What is to be done in the data plane.
#[derive(Clone, Debug, PartialEq)]
pub enum BridgeOp {
    /// Let frames take a path.
    SetPath {
        /// Whose.
        stations: Stations,
        /// The path, whose counters begin anew.
        path: Box<fw_path>,
    },
    /// Let frames to a group be copied; `path.port` is to be the next hop of their list.
    SetCopies {
        /// Whose.
        stations: Stations,
        /// Ethertype of the frames.
        ethertype: u16,
        /// The path, whose counters begin anew.
        path: Box<fw_path>,
        /// Where copies leave, in order.
        legs: Vec<BridgedLeg>,
    },
    /// Their frames are the kernel's.
    RemovePath {
        /// Whose.
        stations: Stations,
        /// Where the data plane counted them.
        count: u32,
    },
    /// Frames to an address are the router's own, or no longer.
    SetOwn {
        /// The address.
        mac: [u8; 6],
        /// Whether they are.
        own: bool,
    },
    /// A bridge, or a VLAN of it, sends through XDP to stations, or no longer.
    SetRouted {
        /// Its interface index.
        port: u32,
        /// Whether it does.
        routed: bool,
    },
    /// What a station sends to the router comes in through XDP, or no longer.
    Entry {
        /// The bridge, or the VLAN of it.
        port: u32,
        /// The station's address.
        mac: [u8; 6],
        /// Whether it does.
        known: bool,
    },
    /// How XDP sends to a station, or that it does not.
    Exit {
        /// The bridge, or the VLAN of it.
        port: u32,
        /// The station's address.
        mac: [u8; 6],
        /// Where it is.
        exit: Option<StationExit>,
    },
    /// What is offered may be offered again at once: the set of its offer.
    ForgetOffer {
        /// Its number.
        set: u32,
    },
}

/// Why a path is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BridgeRefusal {
    /// A port is not of the bridge, or XDP does not serve it.
    Port,
    /// The forwarding database has a station elsewhere, or not at all.
    Station,
    /// There are too many paths.
    TableFull,
    /// The bridge does not know who listens, or nothing shows what it hands up.
    Snooping,
    /// The router itself is given what is sent to the group.
    Host,
    /// The copies are not those that the bridge's multicast database names.
    Group,
    /// Frames to another group, or from another source, have the same addresses.
    Taken,
}

impl BridgeRefusal {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Port,
        Self::Station,
        Self::TableFull,
        Self::Snooping,
        Self::Host,
        Self::Group,
        Self::Taken,
    ];

    /// For machines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Station => "station",
            Self::TableFull => "table_full",
            Self::Snooping => "snooping",
            Self::Host => "host",
            Self::Group => "group",
            Self::Taken => "taken",
        }
    }

    /// For people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Port => "a port is not of the bridge, or XDP does not serve it",
            Self::Station => "the bridge has a station elsewhere, or not at all",
            Self::TableFull => "there are too many paths",
            Self::Snooping => {
                "to a group, and the bridge does not snoop, does so by VLAN, or its own interface is not looked at"
            }
            Self::Host => {
                "to a group of which the router itself, or the bridge as a router, is given the frames"
            }
            Self::Group => {
                "to a group, and the copies are not at the ports that the bridge's multicast database names"
            }
            Self::Taken => {
                "to a group, and those to another one, or from another source, have the same addresses"
            }
        }
    }
}

/// From where to where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From one station to another.
    Across,
    /// To the router.
    Up,
    /// From the router.
    Down,
    /// From a station to those of a group.
    Copies,
}

/// A path that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgedPath {
    pub(crate) way: Way,
    /// The bridge.
    pub bridge: u32,
    /// Whose frames.
    pub stations: Stations,
    /// Where they leave; 0: to a group.
    pub port_out: u32,
    /// With which tag, as in [`Stations`].
    pub tag_out_be: [u16; 2],
    /// Where the data plane counts them.
    pub count: u32,
}

/// The VLAN that some tag names.
pub(crate) fn vlan_of(tags_be: &[[u16; 2]]) -> Option<u16> {
    tags_be.iter().find_map(|[_, tci_be]| {
        let vlan = u16::from_be(*tci_be) & VLAN_MASK;
        (vlan != 0).then_some(vlan)
    })
}

/// Where a copy leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BridgedLeg {
    /// The bridge's port.
    pub port: u32,
    /// Its slot in the device map.
    pub slot: u32,
    /// The tag that the copy has there, as in [`Stations`].
    pub tag_be: [u16; 2],
}

/// Where the data plane is to find a list.
#[derive(Clone, Debug)]
pub struct BridgedList {
    /// Index of the next hop that names it.
    pub index: u32,
    /// Its number.
    pub number: u32,
    /// One for each port.
    pub legs: Vec<fw_nexthop>,
    /// What to write at the index, once the list is.
    pub nexthop: fw_nexthop,
}
