// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for a mirror's events.
#![allow(clippy::panic)]

use std::time::Duration;

use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::Event;
use freeway_testkit::Moment;

/// How long an event may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Reads until an event satisfies the predicate; all events up to then.
pub fn read_until(mirror: &mut Mirror, what: &str, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    let start = Moment::now();
    while start.elapsed() < PATIENCE {
        mirror.read(&mut events).unwrap();
        if events.iter().any(&wanted) {
            return events;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("no event: {what}; there were {events:#?}");
}

/// Waits until no more events come, and until those that came told of all that the kernel has. It tells of some of it
/// later than it does it: of carriers within a second (`linkwatch`), of what IPv6 does then, too.
pub fn assert_in_step(mirror: &mut Mirror) {
    let start = Moment::now();
    loop {
        read_all(mirror);
        let untold = mirror.behind().unwrap();
        if untold.is_empty() {
            break;
        }
        let late = start.elapsed() < PATIENCE;
        assert!(late, "events did not tell of: {untold:#?}");
    }
    loop {
        let found = mirror.resync().unwrap();
        if found.is_empty() {
            break;
        }
        let settles = start.elapsed() < PATIENCE;
        assert!(settles, "in step, and resync finds: {found:#?}");
    }
}

/// Reads until nothing has come for a while.
fn read_all(mirror: &mut Mirror) {
    let mut quiet_reads = 0;
    while quiet_reads < 3 {
        let mut events = Vec::new();
        mirror.read(&mut events).unwrap();
        quiet_reads = if events.is_empty() {
            quiet_reads + 1
        } else {
            0
        };
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Addresses that come up by themselves would disturb.
pub fn quiet() {
    for file in ["all", "default"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{file}/addr_gen_mode"), "1").unwrap();
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{file}/accept_dad"), "0").unwrap();
    }
}

/// The index of a link.
pub fn index(mirror: &Mirror, name: &str) -> u32 {
    mirror.link_by_name(name).unwrap().ifindex
}
