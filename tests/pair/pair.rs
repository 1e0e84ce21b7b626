// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two routers with Freeway, keepalived and conntrackd: connections through NAT live on when the other one takes over, and
//! when the first one is back. Each exchanges numbered blocks all the time; none may be reset, stall or get what is wrong.
// What a test expects, it demands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod load;
mod site;
mod watch;

use std::time::{Duration, Instant};

use freeway_testkit::{long, machine};
use load::Load;
use nix::sys::signal::Signal;
use site::{Setup, Site};

/// Blocks of each connection that show that it goes on.
const ROUNDS: u64 = 20;
/// So soon the pair is as fast as before.
const BACK_MAX: Duration = Duration::from_secs(2);

/// What becomes of the first router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// It has no power any more, and starts anew.
    Power,
    /// keepalived is killed, with the virtual addresses where they are, and started again.
    Killed,
    /// All its daemons are stopped, and go on later; its kernel goes on all the time.
    Stopped,
    /// Its link to the LAN is down; it has to leave the WAN, too.
    Link,
}

impl Failure {
    fn begin(self, site: &mut Site) {
        match self {
            Failure::Power => site.cut_power(0),
            Failure::Killed => site.member(0).kill_keepalived(),
            Failure::Stopped => site.member(0).signal(Signal::SIGSTOP),
            Failure::Link => site.set_link(0, "down"),
        }
    }

    /// The router keeps its virtual address and MAC and answers for them, so switches go on sending to it.
    fn leaves_its_face(self, setup: Setup) -> bool {
        setup.vmac && matches!(self, Failure::Killed | Failure::Stopped)
    }

    fn end(self, site: &mut Site) {
        match self {
            Failure::Power => site.give_power(0),
            Failure::Killed => site.restart_keepalived(0),
            Failure::Stopped => site.member(0).signal(Signal::SIGCONT),
            Failure::Link => site.set_link(0, "up"),
        }
    }
}

/// A router takes over from the other one under load.
fn take_over(site: &mut Site, load: &Load, router: usize, change: impl FnOnce(&mut Site)) {
    let before = load.rate();
    let start = Instant::now();
    change(site);
    let back = load.wait_rate(before * 0.8, start);
    site.wait_master(router);
    load.wait_rounds(ROUNDS);
    let connections = load.rounds().len();
    let freeway = &site.member(router).freeway;
    freeway.wait_fast("proto tcp", 2 * connections, 1);
    // the other one has sent its last segment
    let sent = site.watch.segments(1 - router);
    load.wait_rounds(ROUNDS);
    assert_eq!(site.watch.segments(1 - router), sent, "{}", site.logs());
    assert_eq!(site.watch.resets(), 0);
    site.watch.check();
    println!(
        "router {router}: at speed after {:.2} s; the other's last segment was {:.1} ms after the announcement",
        back.as_secs_f64(),
        site.watch.late_ms(1 - router)
    );
    if long() {
        assert!(back <= BACK_MAX, "{back:?}");
    }
}

/// Both have the virtual address and MAC: whoever forwards, connections go on.
fn goes_on(site: &mut Site, load: &Load, failure: Failure) {
    failure.begin(site);
    site.wait_master(1);
    load.wait_rounds(2 * ROUNDS);
    failure.end(site);
    site.wait_master(0);
    site.wait_backup(1);
    load.wait_rounds(2 * ROUNDS);
    assert_eq!(site.watch.resets(), 0);
    site.watch.check();
    let connections = load.rounds().len();
    let freeway = &site.member(0).freeway;
    freeway.wait_fast("proto tcp", 2 * connections, 1);
    println!("connections go on");
}

fn fail_over_and_back(setup: Setup, failure: Failure) {
    let (connections, pause) = match long() {
        true => (200, Duration::from_millis(40)),
        false => (20, Duration::from_millis(10)),
    };
    println!("{failure:?}, {setup:?}");
    let mut site = Site::start(setup);
    let load = Load::start(&site.pair, connections, pause);
    load.wait_rounds(ROUNDS);
    let freeway = &site.member(0).freeway;
    freeway.wait_fast("proto tcp", 2 * connections, 1);
    site.wait_heard(1, connections);
    if setup.vmac {
        site.check_vmac(0);
    }
    if failure.leaves_its_face(setup) {
        goes_on(&mut site, &load, failure);
    } else {
        take_over(&mut site, &load, 1, |site| failure.begin(site));
        take_over(&mut site, &load, 0, |site| failure.end(site));
    }
    if failure != Failure::Power {
        // What the first router hears next of a connection closes it. It last heard of it when it was another's.
        failure.begin(&mut site);
        site.wait_master(1);
        load.wait_rounds(ROUNDS);
        load.hold();
        failure.end(&mut site);
        site.wait_master(0);
        site.wait_backup(1);
    }
    println!("{}", site.member(0).freeway.stats());
    load.end();
    site.end();
}

fn setup(vmac: bool) -> Setup {
    Setup {
        vmac,
        cache: true,
        advert: Duration::from_millis(if long() { 100 } else { 300 }),
    }
}

#[test]
fn connections_survive_a_router_without_power() {
    let Some(_machine) = machine() else { return };
    fail_over_and_back(setup(false), Failure::Power);
}

#[test]
fn connections_survive_a_dead_link_with_virtual_macs() {
    let Some(_machine) = machine() else { return };
    fail_over_and_back(setup(true), Failure::Link);
}

#[test]
fn connections_survive_each_failure() {
    if !long() {
        println!("skipped: FREEWAY_LONG=1 fails in more ways");
        return;
    }
    let Some(_machine) = machine() else { return };
    for vmac in [false, true] {
        for failure in [
            Failure::Power,
            Failure::Killed,
            Failure::Stopped,
            Failure::Link,
        ] {
            fail_over_and_back(setup(vmac), failure);
        }
    }
    let at_once = Setup {
        cache: false,
        ..setup(false)
    };
    fail_over_and_back(at_once, Failure::Link);
}
