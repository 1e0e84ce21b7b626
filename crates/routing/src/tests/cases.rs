// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases by hand.

use freeway_kernel::model::{Event, Route, Source};
use freeway_prefix::Prefix4;

use super::kernel::{How, Kernel, ip, link, route, way};
use crate::{HOP_MAX, LEAF_UNICAST, Routing, Told, Way, Why};

/// A kernel and what is known of it, with 10.0.0.0/24 on link 1 and a gateway there.
fn world() -> (Kernel, Routing<u32>) {
    let mut kernel = Kernel::new();
    let mut connected = route(0x0a00_0000, 24);
    connected.hops = vec![way(1, 0)];
    kernel.add(connected, How::Add).unwrap();
    kernel.set_neighbour(1, 0x0a00_0002, 2, 2);
    let mut routing = Routing::new();
    routing.set_ports(&kernel.ports);
    for event in kernel.all() {
        routing.event(&event);
    }
    load(&kernel, &mut routing);
    (kernel, routing)
}

fn load(kernel: &Kernel, routing: &mut Routing<u32>) {
    routing.begin_load();
    routing.load(kernel.routes.iter().filter_map(Told::of));
    routing.end_load(true);
}

fn leaf(routing: &Routing<u32>, address: u32) -> (u16, Option<Why>) {
    let answer = routing.lookup(address);
    answer.map_or((0, None), |answer| (answer.leaf, answer.why))
}

fn prefix(address: u32, length: u8) -> Prefix4 {
    Prefix4::new(address, length).unwrap()
}

#[test]
fn a_route_for_some_sources_leaves_its_prefix_to_the_kernel() {
    let (mut kernel, mut routing) = world();
    let mut far = route(0xc000_0200, 24);
    far.hops = vec![way(1, 0x0a00_0002)];
    routing.event(&kernel.add(far.clone(), How::Add).unwrap());
    assert!(leaf(&routing, 0xc000_0201).0 > LEAF_UNICAST);
    far.src = Some(freeway_kernel::model::Prefix {
        addr: ip(0x0a00_0000),
        len: 24,
    });
    far.priority = 7;
    routing.event(&kernel.add(far, How::Add).unwrap());
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Some)));
}

#[test]
fn reserved_addresses_are_the_kernels_whatever_the_routes_say() {
    use std::net::Ipv6Addr;

    let mut routing = Routing::<u128>::new();
    routing.begin_load();
    routing.end_load(true);
    for address in [
        "::",
        "::1",
        "::ffff:192.0.2.1",
        "fe80::1",
        "febf::1",
        "ff02::1",
    ] {
        let address: Ipv6Addr = address.parse().unwrap();
        let answer = routing.lookup(address.to_bits()).unwrap();
        assert_eq!(answer.why, Some(Why::Reserved), "{address}");
    }
    let (_, routing) = world();
    for address in [[0, 1, 2, 3], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
        let answer = routing.lookup(u32::from_be_bytes(address)).unwrap();
        assert_eq!(answer.why, Some(Why::Reserved), "{address:?}");
    }
}

#[test]
fn a_route_is_small() {
    assert!(size_of::<Told<u32>>() <= 48);
    assert_eq!(size_of::<crate::alias::Cell>(), 16);
}

#[test]
fn a_neighbour_has_a_prefix_of_its_own() {
    let (mut kernel, mut routing) = world();
    assert_eq!(leaf(&routing, 0x0a00_0003), (1, Some(Why::OnLink)));
    let answer = routing.lookup(0x0a00_0002).unwrap();
    assert_eq!(answer.prefix, Prefix4::host(0x0a00_0002));
    let hop = answer.hop.unwrap();
    assert_eq!((hop.oif, hop.gateway, hop.len_max), (1, 0x0a00_0002, 1500));
    // at another link it is not who would get the packet
    routing.event(&kernel.set_neighbour(2, 0x0a00_0003, 2, 3));
    assert_eq!(leaf(&routing, 0x0a00_0003), (1, Some(Why::OnLink)));
    routing.event(&kernel.delete_neighbour(1, 0x0a00_0002).unwrap());
    assert_eq!(leaf(&routing, 0x0a00_0002), (1, Some(Why::OnLink)));
}

#[test]
fn a_neighbour_of_many_prefixes_is_one_change() {
    let (mut kernel, mut routing) = world();
    for number in 0..100 {
        let mut far = route(0xc000_0000 + (number << 8), 24);
        far.hops = vec![way(1, 0x0a00_0002)];
        routing.event(&kernel.add(far, How::Add).unwrap());
    }
    assert_eq!(routing.changes().hops.len(), 1);
    routing.event(&kernel.set_neighbour(1, 0x0a00_0002, 2, 9));
    let changes = routing.changes();
    assert_eq!((changes.hops.len(), changes.prefixes.len()), (1, 0));
    routing.event(&kernel.set_neighbour(1, 0x0a00_0002, 0x20, 9));
    let changes = routing.changes();
    assert_eq!(changes.hops[0].1, None);
    // the host prefix
    assert_eq!(changes.prefixes, [(Prefix4::host(0x0a00_0002), None)]);
}

#[test]
fn what_may_have_gone_is_not_the_less_specific_one() {
    let (mut kernel, mut routing) = world();
    let mut all = route(0, 0);
    all.hops = vec![way(1, 0x0a00_0002)];
    routing.event(&kernel.add(all, How::Add).unwrap());
    let mut far = route(0xc000_0200, 24);
    far.hops = vec![way(2, 0x0a00_0002)];
    routing.event(&kernel.add(far, How::Add).unwrap());
    assert!(!routing.wants_load());
    routing.event(&kernel.set_link(2, |link| link.up = false));
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Doubted)));
    assert!(routing.wants_load());
    load(&kernel, &mut routing);
    assert!(!routing.wants_load());
    assert_eq!(routing.lookup(0xc000_0201).unwrap().prefix, prefix(0, 0));
}

#[test]
fn an_event_from_before_does_not_settle_what_is_doubted() {
    let (mut kernel, mut routing) = world();
    let mut far = route(0xc000_0200, 24);
    far.hops = vec![way(2, 0x0a00_0002)];
    let early = kernel.add(far, How::Add).unwrap();
    routing.event(&early);
    routing.event(&kernel.set_link(2, |link| link.up = false));
    routing.event(&kernel.set_link(2, |link| link.up = true));
    routing.event(&early);
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Doubted)));
}

#[test]
fn what_is_read_of_a_link_that_is_down_is_read_again() {
    let (mut kernel, mut routing) = world();
    let mut far = route(0xc000_0200, 24);
    far.hops = vec![way(2, 0x0a00_0002)];
    kernel.add(far, How::Add).unwrap();
    let before = kernel.clone();
    routing.event(&kernel.set_link(2, |link| link.up = false));
    // the kernel has told, and not deleted yet
    load(&before, &mut routing);
    assert!(routing.wants_load());
    routing.event(&kernel.set_link(2, |link| link.up = true));
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Doubted)));
    load(&kernel, &mut routing);
    assert!(!routing.wants_load());
    assert_eq!(routing.lookup(0xc000_0201), None);
}

#[test]
fn a_contradiction_lasts_two_loads() {
    let (kernel, mut routing) = world();
    let host = Prefix4::host(0x0a00_0002);
    // of the one that is under way nobody knows what it saw
    routing.begin_load();
    assert_eq!(routing.withdraw(0x0a00_0002), Some(host));
    assert_eq!(routing.withdraw(0x0a00_0002), None);
    assert_eq!(leaf(&routing, 0x0a00_0002), (0, Some(Why::Withdrawn)));
    assert_eq!(routing.counts().withdrawn, 1);
    routing.load(kernel.routes.iter().filter_map(Told::of));
    routing.end_load(true);
    assert!(routing.wants_load());
    load(&kernel, &mut routing);
    assert!(!routing.wants_load());
    assert_eq!(leaf(&routing, 0x0a00_0002), (0, Some(Why::Withdrawn)));
    load(&kernel, &mut routing);
    assert!(routing.lookup(0x0a00_0002).unwrap().hop.is_some());
}

#[test]
fn more_hops_than_numbers() {
    let mut kernel = Kernel::new();
    let mut routing = Routing::new();
    routing.event(&Event::LinkChanged(link(1)));
    load(&kernel, &mut routing);
    let count = u32::from(HOP_MAX) + 100;
    for number in 0..count {
        let mut far = route(0xc000_0000 + (number << 8), 24);
        far.hops = vec![way(1, 0x0a00_0000 + number + 1)];
        routing.event(&kernel.add(far, How::Add).unwrap());
    }
    let numbers = usize::from(HOP_MAX) - 1;
    let crowded = count as usize - numbers;
    let counts = routing.counts();
    assert_eq!((counts.hops, counts.prefixes), (numbers, numbers));
    assert_eq!(counts.kept[&Why::Full], crowded);
    let last = 0xc000_0000 + ((count - 1) << 8);
    assert_eq!(leaf(&routing, last), (LEAF_UNICAST, Some(Why::Full)));
    routing.changes();
    for _ in 0..crowded {
        let gone = kernel.delete(0);
        routing.event(&gone);
    }
    // told, rested, used again
    for full in [crowded, crowded, 0] {
        routing.changes();
        let kept = routing.counts().kept;
        assert_eq!(kept.get(&Why::Full).copied().unwrap_or(0), full);
    }
    assert_eq!(routing.counts().hops, numbers);
}

#[test]
fn what_a_route_says() {
    let mut made = route(0xc000_0200, 24);
    made.hops = vec![way(3, 0x0a00_0001)];
    made.mtu = Some(1400);
    let via = |gateway, mtu| Way::Via {
        oif: 3,
        gateway,
        mtu,
    };
    let plain = Told::<u32>::of(&made).unwrap();
    assert_eq!(plain.way, via(0x0a00_0001, 1400));
    made.protocol = 9;
    let other = Told::<u32>::of(&made).unwrap();
    assert_ne!((plain.rest, plain), (other.rest, other));
    made.special = true;
    let unicast = |links| Way::Unicast { links };
    assert_eq!(Told::<u32>::of(&made).unwrap().way, unicast(1 << 3));
    made.special = false;
    made.hops[0].gateway = Some("fe80::1".parse().unwrap());
    assert_eq!(Told::<u32>::of(&made).unwrap().way, unicast(1 << 3));
    made.hops.push(way(33, 0));
    assert_eq!(
        Told::<u32>::of(&made).unwrap().way,
        unicast(1 << 3 | 1 << 1)
    );
    made.hops.clear();
    assert_eq!(Told::<u32>::of(&made).unwrap().way, unicast(u32::MAX));
    made.kind = 6;
    assert_eq!(Told::<u32>::of(&made).unwrap().way, Way::Kernel);
    made.dst.addr = "fe80::".parse().unwrap();
    assert_eq!(Told::<u32>::of(&made), None);
}

#[test]
fn own_addresses_are_told_once() {
    let (mut kernel, mut routing) = world();
    routing.event(&kernel.add_address(2, 0x0a00_0009));
    routing.event(&kernel.add_address(1, 0x0a00_0009));
    assert_eq!(routing.own_addresses(), [0x0a00_0009]);
    routing.event(&kernel.delete_address(0));
    assert_eq!(routing.own_addresses(), [0x0a00_0009]);
    assert_eq!(ip(0x0a00_0009).to_string(), "10.0.0.9");
}

/// Sources that the kernel takes no packets from stay known until all routes were read without them.
#[test]
fn local_networks_are_told() {
    let (_, mut routing) = world();
    let local = |length: u8, protocol: u8, priority: u32| {
        let mut made = route(0x0a09_0900, length);
        (made.table, made.kind, made.hops) = (255, 2, Vec::new());
        (made.protocol, made.priority) = (protocol, priority);
        made
    };
    let prefix = Prefix4::new(0x0a09_0900, 24);
    let gone = |routing: &mut Routing<u32>, routes: &[Route]| {
        assert!(routing.wants_load());
        routing.begin_load();
        routing.load(routes.iter().filter_map(Told::of));
        routing.end_load(true);
        assert!(!routing.wants_load());
    };
    // single addresses are own ones
    routing.event(&Event::RouteChanged(local(32, 4, 0), false));
    assert_eq!(routing.refused(true), None);
    assert_eq!(routing.own_addresses(), [0x0a09_0900]);

    // one of an address on the loopback matters once the kernel looks sources up
    routing.event(&Event::RouteChanged(local(24, 2, 0), false));
    assert_eq!(routing.refused(false), None);
    assert_eq!(routing.refused(true), prefix);
    routing.event(&Event::RouteGone(local(24, 2, 0)));
    assert_eq!(routing.refused(true), prefix);
    gone(&mut routing, &[]);
    assert_eq!(routing.refused(true), None);

    // one that was added has it look them up; of two by metric one is left
    for metric in [0, 5] {
        routing.event(&Event::RouteChanged(local(24, 4, metric), false));
    }
    routing.event(&Event::RouteGone(local(24, 4, 5)));
    assert_eq!(routing.refused(false), prefix);
    gone(&mut routing, &[local(24, 4, 0)]);
    assert_eq!(routing.refused(false), prefix);

    // a route that went while all were read may have been among them
    routing.begin_load();
    routing.load(Told::of(&local(24, 4, 0)));
    routing.event(&Event::RouteGone(local(24, 4, 0)));
    routing.end_load(true);
    gone(&mut routing, &[]);
    assert_eq!(routing.refused(false), None);
    assert!(routing.take_own_addresses().is_some());
    assert_eq!(routing.take_own_addresses(), None);
}

/// 192.0.2.0/24 by gateways on link 1, one after the other.
fn rivals(kernel: &mut Kernel, gateways: &[u32], how: How) -> Vec<Event> {
    let mut events = Vec::new();
    for gateway in gateways {
        let mut far = route(0xc000_0200, 24);
        far.hops = vec![way(1, *gateway)];
        events.extend(kernel.add(far, how));
    }
    events
}

#[test]
fn of_equal_routes_none_is_taken() {
    let (mut kernel, mut routing) = world();
    let first = rivals(&mut kernel, &[0x0a00_0002], How::Add);
    let second = rivals(&mut kernel, &[0x0a00_0003], How::Prepend);
    first.iter().for_each(|event| routing.event(event));
    assert!(leaf(&routing, 0xc000_0201).0 > LEAF_UNICAST);
    second.iter().for_each(|event| routing.event(event));
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Equals)));
    load(&kernel, &mut routing);
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Equals)));
    let gone = kernel.delete(1);
    routing.event(&gone);
    assert!(!routing.wants_load() && leaf(&routing, 0xc000_0201).0 > LEAF_UNICAST);
}

#[test]
fn which_of_equal_routes_was_replaced_is_not_known() {
    let (mut kernel, mut routing) = world();
    let mut events = rivals(&mut kernel, &[0x0a00_0002, 0x0a00_0003], How::Append);
    events.extend(rivals(&mut kernel, &[0x0a00_0004], How::Replace));
    events.iter().for_each(|event| routing.event(event));
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Doubted)));
    load(&kernel, &mut routing);
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Equals)));
    // while they are read at first, nothing is known of the one that was there
    let mut routing = Routing::new();
    routing.begin_load();
    events[2..].iter().for_each(|event| routing.event(event));
    routing.load(kernel.routes.iter().filter_map(Told::of));
    routing.end_load(true);
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Doubted)));
    assert!(routing.ready() && routing.wants_load());
}

#[test]
fn what_is_read_at_first_stays_beside_what_is_heard() {
    let mut kernel = Kernel::new();
    let mut routing = Routing::new();
    let mut events = rivals(&mut kernel, &[0x0a00_0002, 0x0a00_0003], How::Append);
    routing.begin_load();
    routing.event(&events.pop().unwrap());
    routing.load(kernel.routes.iter().filter_map(Told::of));
    routing.end_load(true);
    assert_eq!(routing.counts().routes, 2);
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Equals)));
}

#[test]
fn a_route_that_went_in_other_words_is_doubted() {
    let (mut kernel, mut routing) = world();
    let mut events = rivals(&mut kernel, &[0x0a00_0002], How::Add);
    events.extend(rivals(&mut Kernel::new(), &[0x0a00_0003], How::Add));
    routing.event(&events[0]);
    let Event::RouteChanged(other, _) = events[1].clone() else {
        panic!("{events:?}");
    };
    routing.event(&Event::RouteGone(other.clone()));
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Doubted)));
    load(&kernel, &mut routing);
    assert!(leaf(&routing, 0xc000_0201).0 > LEAF_UNICAST);
    // of another priority, it is none that is known
    let mut other = other;
    other.priority = 9;
    routing.event(&Event::RouteGone(other));
    assert!(!routing.wants_load() && leaf(&routing, 0xc000_0201).0 > LEAF_UNICAST);
}

#[test]
fn a_load_that_lost_events_is_none() {
    let (kernel, mut routing) = world();
    assert!(routing.ready());
    routing.begin_load();
    let source = Source::Link;
    routing.event(&Event::Overrun { source });
    routing.load(kernel.routes.iter().filter_map(Told::of));
    routing.end_load(true);
    assert!(!routing.ready() && routing.wants_load());
    routing.begin_load();
    routing.end_load(false);
    assert!(!routing.ready());
    load(&kernel, &mut routing);
    assert!(routing.ready() && !routing.wants_load());
    routing.begin_load();
    routing.end_load(false);
    assert!(routing.ready() && routing.wants_load());
    let source = Source::Conntrack;
    routing.event(&Event::Overrun { source });
    assert!(routing.ready());
}

#[test]
fn routes_go_with_their_source() {
    let (mut kernel, mut routing) = world();
    let mut far = route(0xc000_0200, 24);
    far.hops = vec![way(1, 0x0a00_0002)];
    far.prefsrc = Some(ip(0xc000_0101));
    routing.event(&kernel.add_address(2, 0xc000_0101));
    routing.event(&kernel.add_address(2, 0xc000_0102));
    routing.event(&kernel.add(far, How::Add).unwrap());
    let gone = kernel.delete_address(1);
    routing.event(&gone);
    assert!(leaf(&routing, 0xc000_0201).0 > LEAF_UNICAST);
    let gone = kernel.delete_address(0);
    routing.event(&gone);
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Doubted)));
}

#[test]
fn what_was_read_after_an_event_stays() {
    let (mut kernel, mut routing) = world();
    let first = rivals(&mut kernel, &[0x0a00_0002], How::Add);
    routing.event(&first[0]);
    routing.begin_load();
    let gone = kernel.delete(kernel.routes.len() - 1);
    routing.event(&gone);
    let second = rivals(&mut kernel, &[0x0a00_0003], How::Add);
    routing.event(&second[0]);
    routing.load(kernel.routes.iter().filter_map(Told::of));
    routing.end_load(true);
    assert!(!routing.wants_load() && leaf(&routing, 0xc000_0201).0 > LEAF_UNICAST);
}

#[test]
fn a_link_that_is_down_when_it_is_first_heard_of_has_no_routes() {
    let mut kernel = Kernel::new();
    let mut routing = Routing::new();
    rivals(&mut kernel, &[0x0a00_0002], How::Add);
    load(&kernel, &mut routing);
    assert!(leaf(&routing, 0xc000_0201).0 > LEAF_UNICAST);
    routing.event(&kernel.set_link(1, |link| link.up = false));
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Doubted)));
}

#[test]
fn an_old_event_of_a_route_that_was_not_known_is_not_believed() {
    let (mut kernel, mut routing) = world();
    let early = rivals(&mut kernel, &[0x0a00_0002], How::Add);
    let down = kernel.set_link(1, |link| link.up = false);
    let up = kernel.set_link(1, |link| link.up = true);
    // links have another socket, which is read first
    for event in [&down, &up, &early[0]] {
        routing.event(event);
    }
    assert_eq!(leaf(&routing, 0xc000_0201), (0, Some(Why::Doubted)));
    routing.changes();
    load(&kernel, &mut routing);
    let again = rivals(&mut kernel, &[0x0a00_0002], How::Add);
    routing.event(&again[0]);
    assert!(!routing.wants_load() && leaf(&routing, 0xc000_0201).0 > LEAF_UNICAST);
}
