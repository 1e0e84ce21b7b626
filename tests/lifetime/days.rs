// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two days of a home router, as fast as it gets through its connections: 48 hours are as many parts of them. Meanwhile its
//! address is leased again, or its PPPoE session dialled again, and changes, a station walks between two access points,
//! the firewall is loaded again, addresses are banned, the configuration is read again, and another daemon takes over.
//!
//! ```text
//!   household   eth0 ---- lan0 \
//!     a phone,                   br0  router  wan0 ---- eth0   provider: DHCP or PPPoE, and servers
//!     walking   eth1 ---- lan1 /
//! ```
//!
//! `FREEWAY_CONNECTIONS` says how many; in the long form it is a million. In a virtual machine, which has PPPoE, it is
//! 5,000: emulated, they take as long.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod home;
mod household;
mod uplink;

use std::time::Duration;

use freeway_kernel::model::TcpState;
use freeway_lab::Netns;
use freeway_testkit::*;
use nix::sys::signal::Signal;
use serde_json::Value;

use home::Home;
use household::{Household, Stream};

const HOURS: u64 = 48;
const PATIENCE: Duration = Duration::from_secs(60);
/// What conntrack gives a connection that closes, at most.
const ENDED_MAX_S: u32 = 120;
/// What the daemon's memory may differ by, once it has seen an ordinary evening.
const GROWTH_MAX_KIB: u64 = 8 << 10;

/// Resident memory of the daemon's process that is its own: the maps' pages are bounded by their sizes.
fn resident_kib(router: &Router) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", router.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

/// RST segments that a host has sent.
fn resets(netns: &Netns) -> u64 {
    let text = netns.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let text = text.unwrap().unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "OutRsts").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// No flow without its connection, and no connection that has ended and stays.
fn nothing_stale(home: &Home, router: &Router) {
    for connection in connections(&home.lab, 6) {
        let ended = (connection.tcp.as_ref()).is_some_and(|tcp| tcp.state > TcpState::Established);
        let left_s = connection.timeout_s.unwrap();
        assert!(!ended || left_s <= ENDED_MAX_S, "{connection:?}");
    }
    let stale = || -> Vec<Value> {
        let there = connections(&home.lab, 6);
        let mut flows = router.flows("proto tcp");
        flows.retain(|flow| {
            let ports = [&flow["sport"], &flow["dport"]].map(|port| port.as_u64().unwrap() as u16);
            !there.iter().any(|connection| {
                let tuples = [&connection.orig, &connection.reply];
                tuples.iter().any(|of| [of.sport, of.dport] == ports)
            })
        });
        flows
    };
    let mut flows = Vec::new();
    until(
        "flows of connections that are gone have left",
        PATIENCE,
        || {
            flows = stale();
            flows.is_empty().then_some(())
        },
    );
}

#[test]
fn two_days_leave_nothing_behind() {
    let Some(_machine) = machine() else { return };
    let asked = std::env::var("FREEWAY_CONNECTIONS").ok();
    let connections = match asked {
        Some(number) => number.parse().unwrap(),
        None if long() && std::env::var_os("IN_VM").is_some() => 5_000,
        None if long() => 1_000_000,
        None => {
            eprintln!("skipped: two days take minutes; FREEWAY_LONG=1 has them");
            return;
        }
    };
    adopt_orphans();
    let mut home = Home::build();
    let mut router = home.start_daemon();
    let household = Household::begin(&home.lab);
    let mut stream = Stream::open(&home.lab, home::GUARDED);
    let mut memory = Vec::new();
    for hour in 0..HOURS {
        let number = connections * (hour + 1) / HOURS;
        household.allow(number);
        // a lease is asked for again in half of its time
        home.renew();
        if hour % 2 == 1 {
            home.roam();
        }
        if hour % 3 == 0 {
            home.load_rules(None);
        }
        if hour % 4 == 2 {
            home.ban();
            home.check_banned(true);
        }
        if hour % 4 == 3 {
            home.unban();
            home.check_banned(false);
        }
        if hour % 6 == 1 {
            home.reload(&router, hour);
        }
        if hour % 8 == 5 && home.dials() {
            household.forgive(true);
            home.redial();
            stream = Stream::open(&home.lab, home::GUARDED);
            stream.is_fast(&router);
        }
        match hour {
            12 => drop(router.upgrade()),
            20 => {
                // whatever is fast: from here on nothing passes
                stream.passes(true);
                home.load_rules(Some(home::GUARDED));
                stream.passes(false);
                home.load_rules(None);
                stream.passes(true);
            }
            24 => {
                household.forgive(true);
                home.move_house();
                stream = Stream::open(&home.lab, home::GUARDED);
                stream.is_fast(&router);
            }
            _ => {}
        }
        if hour > 18 {
            memory.push(resident_kib(&router));
        }
        household.wait(number);
        if let Some(failures) = household.failures() {
            let resets = [home.lab.client(), home.lab.router(), home.lab.server()].map(resets);
            router.signal(Signal::SIGTERM);
            router.wait();
            panic!(
                "{failures:#?}\nRSTs sent by client, router and server: {resets:?}\n{}",
                router.log()
            );
        }
        household.forgive(false);
        eprintln!("hour {hour}: {number} connections");
    }
    drop(stream);
    let done = household.end();
    let status = router.status();
    let stats = router.stats();
    eprintln!(
        "{done} connections; {} flows were fast, {} packets; memory in KiB by the hour: {memory:?}",
        status["learn"]["learned"],
        stats.fast(),
    );
    assert!(stats.fast() > 0);
    router.wait_in_step();
    nothing_stale(&home, &router);
    // an evening's worth of what an allocator keeps
    let (first, last) = (memory[0], *memory.last().unwrap());
    assert!(
        last <= first + GROWTH_MAX_KIB,
        "the daemon's memory grows: {memory:?} KiB"
    );
    router.stop();
    let links = home.lab.router().tool("ip -d link").unwrap();
    assert!(!links.contains("xdp"), "{links}");
}
