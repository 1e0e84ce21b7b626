// SPDX-License-Identifier: MIT OR Apache-2.0
//! As many routes as the Internet has.

use std::time::Duration;

use freeway_kernel::model::Event;
use freeway_prefix::Prefix4;

use super::kernel::{Kernel, link};
use crate::{Routing, Told, Way};

/// What this thread had of a CPU.
fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// 100,000, or with FREEWAY_LONG 1,000,000.
#[test]
fn many_routes() {
    let count: u32 = match std::env::var_os("FREEWAY_LONG") {
        Some(_) => 1_000_000,
        None => 100_000,
    };
    let route = |number: u32| {
        // an odd factor: each number has its own place
        let place = number.wrapping_mul(2_654_435_761) >> 8;
        let prefix = Prefix4::new(place << 8, 24 - (number % 3) as u8).unwrap();
        let oif = 1 + number % 2;
        let gateway = 0x0a00_0001 + number % 500;
        Told {
            table: 254,
            prefix,
            only: 0,
            priority: number,
            way: Way::Via {
                oif,
                gateway,
                mtu: 0,
            },
            prefsrc: 0,
            nexthop_id: 0,
            added_local: false,
            rest: 0,
        }
    };
    let mut kernel = Kernel::new();
    let mut routing = Routing::new();
    routing.set_ports(&kernel.ports);
    for at in 0..500 {
        for oif in [1, 2] {
            let event = kernel.set_neighbour(oif, 0x0a00_0001 + at, 2, 1);
            routing.event(&event);
        }
    }
    routing.event(&Event::LinkChanged(link(1)));
    routing.event(&Event::LinkChanged(link(2)));
    let begin = used();
    let mut took = Vec::new();
    routing.begin_load();
    routing.load((0..count).map(route));
    took.push(("read", used() - begin));
    routing.end_load(true);
    took.push(("known", used() - begin));
    let changes = routing.changes();
    took.push(("told", used() - begin));
    assert_eq!(changes.hops.len(), 500);
    let counts = routing.counts();
    assert_eq!(counts.routes, count as usize);
    // 0/8, 127/8 and multicast are not among them
    assert!(counts.prefixes > count as usize / 2, "{counts:?}");
    routing.begin_load();
    routing.load((0..count).map(route));
    routing.end_load(true);
    took.push(("known again", used() - begin));
    assert!(routing.changes().is_empty());
    let mut down = link(1);
    down.up = false;
    routing.event(&Event::LinkChanged(down));
    took.push(("half of it doubted", used() - begin));
    let changes = routing.changes();
    took.push(("told", used() - begin));
    assert_eq!(changes.hops.len(), 250);
    assert!(changes.hops.iter().all(|(_, hop)| hop.is_none()));
    assert!(routing.wants_load() && routing.ready());
    println!("{took:?}");
}
