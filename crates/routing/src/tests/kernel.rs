// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel: three lists of routes, linear search. It deletes in silence what the real one does.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use freeway_kernel::model::{
    Addr, Event, Family, Hop as RouteHop, Link, Mac, Neigh, Prefix, Route,
};

use crate::{EngineExit, Exit, Hop};

pub const LINKS: [u32; 3] = [1, 2, 34];
pub const MTU: u32 = 1500;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Anything.
    Other,
    /// Forwarded, in a way that only the kernel knows, or to a neighbour that it must resolve.
    Unicast,
    To(Hop<u32>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Add,
    Append,
    Prepend,
    Replace,
}

#[derive(Clone, Debug, Default)]
pub struct Kernel {
    pub routes: Vec<Route>,
    pub links: BTreeMap<u32, Link>,
    pub addrs: Vec<Addr>,
    pub neighs: BTreeMap<(u32, IpAddr), Neigh>,
    pub ports: BTreeMap<u32, Exit>,
}

pub fn ip(address: u32) -> IpAddr {
    Ipv4Addr::from_bits(address).into()
}

pub fn bits(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(_) => panic!("IPv6"),
    }
}

pub fn link(ifindex: u32) -> Link {
    Link {
        ifindex,
        mtu: MTU,
        up: true,
        running: true,
        carrier: true,
        carrier_ups: 1,
        ..Link::default()
    }
}

pub fn mac(ifindex: u32) -> [u8; 6] {
    [2, 0, 0, 0, 0, ifindex as u8]
}

/// A unicast route of the main table without a way out.
pub fn route(address: u32, length: u8) -> Route {
    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    Route {
        family: Family::Ipv4,
        table: 254,
        dst: Prefix {
            addr: ip(address & mask),
            len: length,
        },
        src: None,
        tos: 0,
        priority: 0,
        kind: 1,
        protocol: 3,
        scope: 0,
        prefsrc: None,
        nexthop_id: None,
        mtu: None,
        hops: Vec::new(),
        special: false,
    }
}

pub fn way(oif: u32, gateway: u32) -> RouteHop {
    RouteHop {
        oif: Some(oif),
        gateway: (gateway != 0).then(|| ip(gateway)),
        weight: 0,
        flags: 0,
    }
}

fn rivals(a: &Route, b: &Route) -> bool {
    (a.table, a.dst, a.tos, a.priority) == (b.table, b.dst, b.tos, b.priority)
}

impl Kernel {
    pub fn new() -> Self {
        let exit = |ifindex| {
            let mac = mac(ifindex);
            (
                ifindex,
                Exit {
                    mac,
                    mtu: MTU,
                    in_xdp: true,
                    in_tc: true,
                    engine: EngineExit::Routes,
                    vlan: 0,
                },
            )
        };
        Self {
            links: LINKS.map(|ifindex| (ifindex, link(ifindex))).into(),
            ports: LINKS.map(exit).into(),
            ..Self::default()
        }
    }

    /// What is there, as events.
    pub fn all(&self) -> Vec<Event> {
        let links = self.links.values().cloned().map(Event::LinkChanged);
        let addrs = self.addrs.iter().cloned().map(Event::AddrChanged);
        let neighs = self.neighs.values().cloned().map(Event::NeighChanged);
        links.chain(addrs).chain(neighs).collect()
    }

    /// `fib_table_insert()`.
    pub fn add(&mut self, route: Route, how: How) -> Option<Event> {
        let ways = route.hops.iter().filter_map(|hop| hop.oif);
        for oif in ways {
            let link = self.links.get(&oif)?;
            if !link.up || route.nexthop_id.is_some() && !link.carrier {
                return None;
            }
        }
        let source = route.prefsrc;
        if source.is_some_and(|source| !self.addrs.iter().any(|addr| addr.local == source)) {
            return None;
        }
        let first = self.routes.iter().position(|old| rivals(old, &route));
        let last = self.routes.iter().rposition(|old| rivals(old, &route));
        let exact = self.routes.contains(&route);
        if exact {
            return None;
        }
        let mut replaced = false;
        match (how, first, last) {
            (How::Add, Some(_), _) => return None,
            (How::Replace, Some(at), _) => {
                self.routes[at] = route.clone();
                replaced = true;
            }
            (How::Append, _, Some(at)) => self.routes.insert(at + 1, route.clone()),
            (How::Prepend, Some(at), _) => self.routes.insert(at, route.clone()),
            _ => self.routes.push(route.clone()),
        }
        Some(Event::RouteChanged(route, replaced))
    }

    pub fn delete(&mut self, at: usize) -> Event {
        Event::RouteGone(self.routes.remove(at))
    }

    fn silently(&mut self, gone: impl Fn(&Route) -> bool) {
        // those of the local table have no link that can go down (nh_scope)
        self.routes
            .retain(|route| route.hops.is_empty() || route.kind != 1 || !gone(route));
    }

    pub fn set_link(&mut self, ifindex: u32, change: impl FnOnce(&mut Link)) -> Event {
        let link = self.links.get_mut(&ifindex).unwrap();
        let before = link.clone();
        change(link);
        let link = link.clone();
        let moved = before.master != link.master;
        let links = self.links.clone();
        let by = |hop: &RouteHop| hop.oif == Some(ifindex);
        if moved {
            self.silently(|route| route.hops.iter().all(by));
        }
        self.silently(|route| {
            let mut hops = route.hops.iter();
            hops.all(|hop| hop.oif.is_some_and(|oif| !links[&oif].up))
        });
        let alive = link.up && (link.carrier || link.running);
        if !alive || before.carrier_ups != link.carrier_ups {
            self.silently(|route| route.nexthop_id.is_some() && route.hops.iter().all(by));
        }
        Event::LinkChanged(link)
    }

    pub fn add_address(&mut self, ifindex: u32, address: u32) -> Event {
        let addr = Addr {
            ifindex,
            local: ip(address),
            prefix_len: 24,
            peer: None,
            broadcast: None,
            flags: 0,
            scope: 0,
        };
        self.addrs.retain(|old| *old != addr);
        self.addrs.push(addr.clone());
        Event::AddrChanged(addr)
    }

    pub fn delete_address(&mut self, at: usize) -> Event {
        let addr = self.addrs.remove(at);
        if !self.addrs.iter().any(|left| left.local == addr.local) {
            self.routes
                .retain(|route| route.prefsrc != Some(addr.local));
        }
        if !self.addrs.iter().any(|left| left.ifindex == addr.ifindex) {
            let by = |hop: &RouteHop| hop.oif == Some(addr.ifindex);
            self.silently(|route| route.hops.iter().all(by));
        }
        Event::AddrGone(addr)
    }

    pub fn delete_nexthop(&mut self, id: u32) -> Event {
        self.routes.retain(|route| route.nexthop_id != Some(id));
        Event::NexthopChanged { id }
    }

    pub fn set_neighbour(&mut self, ifindex: u32, address: u32, state: u16, last: u8) -> Event {
        let neigh = Neigh {
            ifindex,
            ip: ip(address),
            lladdr: (last != 0).then_some(Mac([2, 0, 0, 0, 1, last])),
            state,
        };
        self.neighs.insert((ifindex, neigh.ip), neigh.clone());
        Event::NeighChanged(neigh)
    }

    pub fn delete_neighbour(&mut self, ifindex: u32, address: u32) -> Option<Event> {
        let neigh = self.neighs.remove(&(ifindex, ip(address)))?;
        Some(Event::NeighGone(neigh))
    }

    /// What `fib_lookup()` finds, with local and main as one table or as two; and what then becomes of a packet.
    pub fn verdict(&self, address: u32, tos: u8, one: bool) -> Verdict {
        if address >> 24 == 0 || address >> 24 == 127 || address >> 28 == 14 || address == u32::MAX
        {
            return Verdict::Other;
        }
        let steps: &[&[u32]] = if one {
            &[&[255, 254], &[253]]
        } else {
            &[&[255], &[254], &[253]]
        };
        let found = steps.iter().find_map(|tables| {
            let route = self.search(tables, address, tos)?;
            (route.kind != 9).then_some(route)
        });
        found.map_or(Verdict::Other, |route| self.send(address, route))
    }

    fn search(&self, tables: &[u32], address: u32, tos: u8) -> Option<&Route> {
        let fits = |route: &&Route| {
            tables.contains(&route.table)
                && route.dst.contains(ip(address))
                && (route.tos == 0 || route.tos == tos)
        };
        let mut found: Vec<&Route> = self.routes.iter().filter(fits).collect();
        // stable: equal ones stay in their order
        found.sort_by_key(|route| {
            let Route {
                dst, table, tos, ..
            } = route;
            (255 - dst.len, 255 - table, 255 - tos, route.priority)
        });
        found.first().copied()
    }

    fn send(&self, address: u32, route: &Route) -> Verdict {
        let hop = match route.hops.as_slice() {
            _ if route.kind != 1 => return Verdict::Other,
            [hop] if !route.special => hop,
            _ => return Verdict::Unicast,
        };
        let oif = hop.oif.unwrap();
        let gateway = hop.gateway.unwrap_or(ip(address));
        let neigh = self.neighs.get(&(oif, gateway));
        let neigh = neigh.filter(|neigh| neigh.is_valid() && neigh.lladdr.is_some());
        let (Some(neigh), Some(port), link) = (neigh, self.ports.get(&oif), &self.links[&oif])
        else {
            return Verdict::Unicast;
        };
        if !link.up || !link.carrier {
            return Verdict::Unicast;
        }
        Verdict::To(Hop {
            oif,
            gateway: bits(gateway),
            dst_mac: neigh.lladdr.unwrap().0,
            src_mac: port.mac,
            len_max: route.mtu.unwrap_or(65535).min(port.mtu) as u16,
            in_xdp: true,
            in_tc: true,
            engine: EngineExit::Routes,
            vlan: 0,
        })
    }
}
