// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random events and loads.

use std::collections::BTreeMap;

use freeway_kernel::model::{Event, Source};
use freeway_prefix::{NextHop, Trie};
use proptest::prelude::*;
use proptest::sample::select;

use super::kernel::{How, Kernel, LINKS, Verdict, bits, route, way};
use crate::{Hop, Routing, Told, Why};

const ADDRESSES: [u32; 8] = [
    0x0a00_0001,
    0x0a00_0002,
    0x0a00_0102,
    0x0a01_0002,
    0x0a01_0203,
    0x7f00_0105,
    0xe000_0105,
    0xc000_0201,
];
const LENGTHS: [u8; 8] = [0, 8, 15, 16, 24, 30, 31, 32];

#[derive(Clone, Debug)]
struct New {
    address: u32,
    length: u8,
    table: u32,
    kind: u8,
    tos: u8,
    priority: u32,
    protocol: u8,
    mtu: Option<u32>,
    ways: Vec<(u32, u32)>,
    special: bool,
    source: bool,
    nexthop: Option<u32>,
    how: How,
}

#[derive(Clone, Debug)]
enum Step {
    Route(New),
    Delete(usize),
    Neighbour(u32, u32, u16, u8),
    NeighbourGone(u32, u32),
    Up(u32, bool),
    Carrier(u32, bool),
    Flicker(u32),
    Master(u32, Option<u32>),
    Address(u32, u32),
    AddressGone(usize),
    NexthopGone(u32),
    Port(u32, bool),
    Overrun(bool),
    Begin,
    /// Up to this address.
    Read(u32),
    End(bool),
    Withdraw(u32),
    Sync,
}

fn address() -> impl Strategy<Value = u32> {
    select(&ADDRESSES[..])
}

fn port() -> impl Strategy<Value = u32> {
    select(&LINKS[..])
}

fn new() -> impl Strategy<Value = New> {
    let table = prop_oneof![8 => Just(254), 2 => Just(255), 1 => Just(253), 1 => Just(7)];
    let kind = prop_oneof![12 => Just(1u8), 1 => Just(6u8), 1 => Just(9u8)];
    let tos = prop_oneof![12 => Just(0u8), 1 => Just(4u8)];
    let gateway = prop_oneof![1 => Just(0), 2 => address()];
    let ways = prop_oneof![
        8 => prop::collection::vec((port(), gateway.clone()), 1),
        1 => prop::collection::vec((port(), gateway), 2)
    ];
    let how = prop_oneof![
        6 => Just(How::Add), 1 => Just(How::Append), 1 => Just(How::Prepend), 4 => Just(How::Replace)
    ];
    let rare = || prop::bool::weighted(0.1);
    let mtu = prop::option::weighted(0.2, select(vec![1300u32, 1400, 9000]));
    let first = (address(), select(&LENGTHS[..]), table, kind, tos, 0..3u32);
    let nexthop = prop::option::weighted(0.15, 5..7u32);
    let second = (3..5u8, mtu, ways, rare(), rare(), nexthop, how);
    (first, second).prop_map(|(first, second)| {
        let (address, length, table, kind, tos, priority) = first;
        let (protocol, mtu, ways, special, source, nexthop, how) = second;
        New {
            address,
            length,
            table,
            kind: if table == 255 { 2 } else { kind },
            tos,
            priority,
            protocol,
            mtu,
            ways,
            special,
            source,
            nexthop,
            how,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let yes = prop::bool::ANY;
    let state = select(vec![0x02u16, 0x04, 0x80, 0x01, 0x20]);
    let read = address().prop_map(Step::Read);
    let master = prop::option::of(8..10u32);
    prop_oneof![
        30 => new().prop_map(Step::Route),
        8 => any::<usize>().prop_map(Step::Delete),
        12 => (port(), address(), state, 0..3u8).prop_map(|(a, b, c, d)| Step::Neighbour(a, b, c, d)),
        3 => (port(), address()).prop_map(|(a, b)| Step::NeighbourGone(a, b)),
        3 => (port(), yes).prop_map(|(a, b)| Step::Up(a, b)),
        2 => (port(), yes).prop_map(|(a, b)| Step::Carrier(a, b)),
        1 => port().prop_map(Step::Flicker),
        1 => (port(), master).prop_map(|(a, b)| Step::Master(a, b)),
        3 => (port(), address()).prop_map(|(a, b)| Step::Address(a, b)),
        2 => any::<usize>().prop_map(Step::AddressGone),
        1 => (5..7u32).prop_map(Step::NexthopGone),
        1 => (port(), yes).prop_map(|(a, b)| Step::Port(a, b)),
        1 => yes.prop_map(Step::Overrun),
        6 => Just(Step::Begin),
        6 => read,
        5 => prop::bool::weighted(0.8).prop_map(Step::End),
        2 => address().prop_map(Step::Withdraw),
        6 => Just(Step::Sync),
    ]
}

/// A kernel, what is known of it, and the data plane.
struct World {
    kernel: Kernel,
    routing: Routing<u32>,
    trie: Trie,
    hops: BTreeMap<NextHop, Hop<u32>>,
    /// What has not been heard yet. Routes have a socket of their own, which is read last.
    queue: Vec<Event>,
    /// Up to where routes were read.
    cursor: Option<u64>,
}

impl World {
    fn new() -> Self {
        let kernel = Kernel::new();
        let mut routing = Routing::new();
        routing.set_ports(&kernel.ports);
        for event in kernel.all() {
            routing.event(&event);
        }
        Self {
            kernel,
            routing,
            trie: Trie::default(),
            hops: BTreeMap::new(),
            queue: Vec::new(),
            cursor: None,
        }
    }

    fn hear(&mut self) {
        let of_route = |event: &Event| {
            let overrun = matches!(event, Event::Overrun { .. } | Event::RoutesUnknown);
            overrun || matches!(event, Event::RouteChanged(..) | Event::RouteGone(_))
        };
        // stable
        self.queue.sort_by_key(of_route);
        for event in self.queue.drain(..) {
            self.routing.event(&event);
        }
        self.sync();
    }

    fn begin(&mut self) {
        self.hear();
        self.routing.begin_load();
        self.cursor = Some(0);
    }

    fn read(&mut self, end: u64) {
        let Some(begin) = self.cursor else { return };
        let within = |address: u64| address >= begin && address < end;
        let routes = self.kernel.routes.iter();
        let routes = routes.filter(|route| within(u64::from(bits(route.dst.addr))));
        self.routing.load(routes.filter_map(Told::of));
        self.cursor = Some(begin.max(end));
    }

    fn end(&mut self, whole: bool) {
        self.read(1 << 32);
        if self.cursor.take().is_some() {
            self.routing.end_load(whole);
        }
    }

    fn load(&mut self) {
        self.begin();
        self.end(true);
    }

    fn go(&mut self, step: Step) {
        let hear = matches!(step, Step::Withdraw(_) | Step::Sync);
        if hear {
            self.hear();
        }
        let kernel = &mut self.kernel;
        let event = match step {
            Step::Route(new) => {
                let mut made = route(new.address, new.length);
                made.table = new.table;
                made.kind = new.kind;
                (made.tos, made.priority) = (new.tos, new.priority);
                made.protocol = new.protocol;
                if made.kind == 1 {
                    made.mtu = new.mtu;
                    made.special = new.special;
                    let ways = new.ways.iter();
                    made.hops = ways.map(|(oif, gateway)| way(*oif, *gateway)).collect();
                    made.nexthop_id = new.nexthop;
                    made.prefsrc = kernel.addrs.first().map(|addr| addr.local);
                    made.prefsrc = made.prefsrc.filter(|_| new.source);
                }
                kernel.add(made, new.how)
            }
            Step::Delete(at) if !kernel.routes.is_empty() => {
                let at = at % kernel.routes.len();
                Some(kernel.delete(at))
            }
            Step::Neighbour(port, address, state, last) => {
                Some(kernel.set_neighbour(port, address, state, last))
            }
            Step::NeighbourGone(port, address) => kernel.delete_neighbour(port, address),
            Step::Up(port, up) => Some(kernel.set_link(port, |link| link.up = up)),
            Step::Carrier(port, carrier) => Some(kernel.set_link(port, |link| {
                link.carrier_ups += u32::from(carrier && !link.carrier);
                (link.carrier, link.running) = (carrier, carrier);
            })),
            Step::Flicker(port) => Some(kernel.set_link(port, |link| link.carrier_ups += 1)),
            Step::Master(port, master) => Some(kernel.set_link(port, |link| link.master = master)),
            Step::Address(port, address) => Some(kernel.add_address(port, address)),
            Step::AddressGone(at) if !kernel.addrs.is_empty() => {
                let at = at % kernel.addrs.len();
                Some(kernel.delete_address(at))
            }
            Step::NexthopGone(id) => Some(kernel.delete_nexthop(id)),
            Step::Port(port, there) => {
                kernel.ports.remove(&port);
                if there {
                    let exit = Kernel::new().ports[&port];
                    kernel.ports.insert(port, exit);
                }
                self.routing.set_ports(&kernel.ports);
                None
            }
            Step::Overrun(unknown) => Some(if unknown {
                Event::RoutesUnknown
            } else {
                let source = Source::Route;
                Event::Overrun { source }
            }),
            Step::Begin => {
                self.begin();
                None
            }
            Step::Read(to) => {
                self.read(u64::from(to));
                None
            }
            Step::End(whole) => {
                self.end(whole);
                None
            }
            Step::Withdraw(address) => {
                let withdrawn = self.routing.withdraw(address);
                let answer = self.routing.lookup(address);
                if let Some(prefix) = withdrawn {
                    let answer = answer.unwrap();
                    assert_eq!((answer.prefix, answer.leaf), (prefix, 0));
                    assert_eq!(answer.why, Some(Why::Withdrawn));
                    assert!(self.routing.wants_load());
                } else {
                    assert!(answer.is_none_or(|answer| answer.leaf < 2));
                }
                None
            }
            Step::Sync | Step::Delete(_) | Step::AddressGone(_) => None,
        };
        self.queue.extend(event);
    }

    /// Brings what changed into the data plane.
    fn sync(&mut self) {
        let changes = self.routing.changes();
        for (number, hop) in changes.hops {
            let before = self.hops.remove(&number);
            if let Some(hop) = hop {
                // what prefixes have is not another's
                if let Some(before) = before {
                    assert_eq!((hop.oif, hop.gateway), (before.oif, before.gateway));
                }
                self.hops.insert(number, hop);
            }
        }
        for (prefix, leaf) in changes.prefixes {
            self.trie.set(prefix, leaf);
        }
        assert!(self.routing.changes().is_empty());
    }

    fn boundaries(&self) -> Vec<u32> {
        let mut all = ADDRESSES.to_vec();
        for route in &self.kernel.routes {
            let (first, last) = route.dst.range();
            let (first, last) = (bits(first), bits(last));
            all.extend([first.wrapping_sub(1), first, last, last.wrapping_add(1)]);
        }
        for neigh in self.kernel.neighs.values() {
            let address = bits(neigh.ip);
            all.extend([address - 1, address + 1]);
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    fn check(&mut self) {
        self.hear();
        for address in self.boundaries() {
            self.check_address(address);
        }
    }

    fn check_address(&self, address: u32) {
        let answer = self.routing.lookup(address);
        let leaf = answer.as_ref().map_or(0, |answer| answer.leaf);
        let hop = answer.as_ref().and_then(|answer| answer.hop);
        assert_eq!(self.trie.lookup(address), leaf, "{address:x}");
        assert_eq!(self.hops.get(&leaf).copied(), hop, "{address:x} {leaf}");
        if !self.routing.ready() {
            return;
        }
        // whatever the TOS, whether both tables are one or not
        let ways = [(0, true), (0, false), (4, true), (4, false)];
        let verdicts = ways.map(|(tos, one)| self.kernel.verdict(address, tos, one));
        for verdict in verdicts {
            if let Some(hop) = hop {
                assert_eq!(verdict, Verdict::To(hop), "{address:x} {answer:?}");
            }
            if leaf >= 1 {
                assert_ne!(verdict, Verdict::Other, "{address:x} {answer:?}");
            }
        }
        if self.routing.wants_load() || self.routing.counts().withdrawn > 0 {
            return;
        }
        let why = answer.as_ref().and_then(|answer| answer.why);
        let excused = [Why::Some, Why::Equals].map(Some).contains(&why);
        if let Verdict::To(_) = verdicts[1]
            && !excused
            && self.is_plain(address)
        {
            assert_eq!(
                hop.map(Verdict::To),
                Some(verdicts[1]),
                "{address:x} {answer:?}"
            );
        }
    }

    /// No route around it goes on in the next table, or has rivals or a TOS.
    fn is_plain(&self, address: u32) -> bool {
        let around = self.kernel.routes.iter();
        let around = around.filter(|route| route.dst.contains(super::kernel::ip(address)));
        let around: Vec<_> = around.collect();
        let throws = around.iter().any(|route| route.kind == 9);
        let tos = around.iter().any(|route| route.tos != 0);
        let rivals = around.iter().enumerate().any(|(at, a)| {
            let mut rest = around[at + 1..].iter();
            rest.any(|b| (a.table, a.dst, a.priority) == (b.table, b.dst, b.priority))
        });
        !throws && !tos && !rivals
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn it_says_what_the_kernel_does(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for (at, step) in steps.into_iter().enumerate() {
            world.go(step);
            if at % 5 == 0 {
                world.check();
            }
        }
        world.check();
        world.end(true);
        world.hear();
        for _ in 0..3 {
            world.load();
        }
        assert!(!world.routing.wants_load() && world.routing.ready());
        assert_eq!(world.routing.counts().withdrawn, 0);
        assert_eq!(
            world.routing.counts().routes,
            world.kernel.routes.iter().filter(|route| (253..=255).contains(&route.table)).count()
        );
        world.check();
    }

    /// Once all is known, nothing but links, addresses and nexthop objects that go makes for another load, and networks from which
    /// the kernel takes no packets.
    #[test]
    fn loads_are_rare(steps in prop::collection::vec(new(), 1..60), at in prop::collection::vec(address(), 3)) {
        let mut world = World::new();
        world.load();
        for (number, mut new) in steps.into_iter().enumerate() {
            if matches!(new.how, How::Append | How::Prepend) {
                new.how = How::Replace;
            }
            if new.table == 255 {
                new.length = 32;
            } else if new.kind == 2 {
                new.kind = 6;
            }
            match number % 7 {
                2 => world.begin(),
                3 | 4 => world.read(u64::from(at[number % 3])),
                6 => {
                    world.hear();
                    world.end(true);
                    assert!(!world.routing.wants_load());
                }
                _ => {}
            }
            world.go(Step::Route(new));
            if number % 3 == 0 {
                world.go(Step::Delete(number));
            }
            assert!(!world.routing.wants_load());
            world.check();
        }
    }
}
