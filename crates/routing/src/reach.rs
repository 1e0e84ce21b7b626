// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links, ports, addresses and neighbours: whether something can be sent, and with which MAC addresses.

use freeway_kernel::model::{Addr, Link, Mac, Neigh};
use std::collections::{BTreeMap, BTreeSet};

use crate::ip::Ip;

/// What the engine does where packets may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineExit {
    /// It is none of its ports.
    #[default]
    Elsewhere,
    /// It sends by prefixes.
    Routes,
    /// It sends flows alone.
    Flows,
}

/// A port by which packets may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its own MAC address.
    pub mac: [u8; 6],
    /// The link's MTU, or the family's there.
    pub mtu: u32,
    /// XDP may send there.
    pub in_xdp: bool,
    /// tc may.
    pub in_tc: bool,
    /// What the engine on cores of its own does there.
    pub engine: EngineExit,
    /// The 802.1Q VLAN whose tag XDP and the engine put on; 0: none.
    pub vlan: u16,
}

/// What of a link decides whether it carries packets, and whether its routes are still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    pub up: bool,
    pub carrier: bool,
    /// The kernel keeps the nexthop objects of such a link only.
    pub alive: bool,
    pub carrier_ups: u32,
    pub master: Option<u32>,
}

impl LinkState {
    fn of(link: &Link) -> Self {
        Self {
            up: link.up,
            carrier: link.carrier,
            alive: link.up && (link.carrier || link.running),
            carrier_ups: link.carrier_ups,
            master: link.master,
        }
    }
}

/// What there is around this machine.
#[derive(Clone, Debug)]
pub struct Reach<A> {
    links: BTreeMap<u32, LinkState>,
    ports: BTreeMap<u32, Exit>,
    /// By address and interface: those that packets may be sent to.
    neighbours: BTreeMap<(A, u32), Mac>,
    /// With interface and length.
    addresses: BTreeSet<(A, u32, u8)>,
}

impl<A> Default for Reach<A> {
    fn default() -> Self {
        Self {
            links: BTreeMap::new(),
            ports: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            addresses: BTreeSet::new(),
        }
    }
}

impl<A: Ip> Reach<A> {
    /// What was known of it before, and what is.
    pub fn set_link(&mut self, link: &Link) -> (Option<LinkState>, LinkState) {
        let now = LinkState::of(link);
        (self.links.insert(link.ifindex, now), now)
    }

    pub fn remove_link(&mut self, ifindex: u32) {
        self.links.remove(&ifindex);
    }

    pub fn link(&self, ifindex: u32) -> Option<&LinkState> {
        self.links.get(&ifindex)
    }

    /// Those that are not as they were.
    pub fn set_ports(&mut self, ports: &BTreeMap<u32, Exit>) -> BTreeSet<u32> {
        let both = self.ports.keys().chain(ports.keys()).copied();
        let differ = |port: &u32| self.ports.get(port) != ports.get(port);
        let changed = both.filter(differ).collect();
        self.ports.clone_from(ports);
        changed
    }

    pub fn port(&self, ifindex: u32) -> Option<&Exit> {
        self.ports.get(&ifindex)
    }

    pub fn add_address(&mut self, addr: &Addr) {
        if let Some(address) = A::of(addr.local) {
            self.addresses
                .insert((address, addr.ifindex, addr.prefix_len));
        }
    }

    /// The address, if it is one of the family, and whether the interface has none left.
    pub fn remove_address(&mut self, addr: &Addr) -> Option<(A, bool)> {
        let address = A::of(addr.local)?;
        self.addresses
            .remove(&(address, addr.ifindex, addr.prefix_len));
        let left = self.addresses.iter();
        let bare = !left.into_iter().any(|(_, at, _)| *at == addr.ifindex);
        Some((address, bare))
    }

    /// In order.
    pub fn addresses(&self) -> Vec<A> {
        let mut all: Vec<A> = self
            .addresses
            .iter()
            .map(|(address, ..)| *address)
            .collect();
        all.dedup();
        all
    }

    /// Its address, if where it is changed or whether it is there.
    pub fn set_neighbour(&mut self, neigh: &Neigh, there: bool) -> Option<A> {
        let address = A::of(neigh.ip)?;
        let key = (address, neigh.ifindex);
        let fit = |mac: &Mac| !mac.is_multicast() && *mac != Mac::default();
        let mac = neigh
            .lladdr
            .filter(|mac| there && neigh.is_valid() && fit(mac));
        let before = match mac {
            Some(mac) => self.neighbours.insert(key, mac),
            None => self.neighbours.remove(&key),
        };
        (before != mac).then_some(address)
    }

    pub fn neighbour(&self, address: A, ifindex: u32) -> Option<&Mac> {
        self.neighbours.get(&(address, ifindex))
    }

    /// The addresses of neighbours among these, in order.
    pub fn neighbours(&self, first: A, last: A) -> impl Iterator<Item = A> {
        let mut before = None;
        let all = self.neighbours.range((first, 0)..=(last, u32::MAX));
        all.filter_map(move |((address, _), _)| {
            (before.replace(*address) != Some(*address)).then_some(*address)
        })
    }
}
