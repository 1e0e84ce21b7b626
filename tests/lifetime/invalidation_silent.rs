// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes in the kernel that send no event: how long the fast path may go on as before. The lab is that of
//! `invalidation.rs`; groups of flows each meet a change of their own.
//!
//! `FREEWAY_LONG=1`: ten trials of each instead of one. `FREEWAY_JSON=FILE`: appends one JSON object a row.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use freeway_lab::clock::monotonic_ns;
use freeway_lab::{FlowSpec, Generator, Load, Options, Proto, Running, Until};
use freeway_testkit::Moment;
use freeway_testkit::invalidation::netlink::{Acked, attach_link, constant_program, timed};
use freeway_testkit::invalidation::site::{
    BYSTANDER_PORT, FLOWS, Row, Rows, Site, again, source_ports,
};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// What is read once a second is followed within another one and a half.
const POLLED_MS: f64 = 2_500.0;
/// Revalidation at 10 s, for at most a quarter of it put off until an idle gap, then three misses in a second.
const REVALIDATED_MS: f64 = 14_000.0;
/// No frame of a group for so long: there will be none.
const QUIET_NS: u64 = 1_500_000_000;

/// First ports of the groups, and the first of the sink's rules that watch them.
const LEGACY: u16 = 0x6000;
const IPSET: u16 = 0x6020;
const TIMEOUT: u16 = 0x6040;
const FIRST_RULE: usize = 4;

fn trials() -> usize {
    if freeway_testkit::long() { 10 } else { 1 }
}

struct Group {
    port: u16,
    rule: usize,
    running: Running,
}

impl Group {
    fn start(site: &Site, index: usize, port: u16) -> Group {
        let spec = FlowSpec {
            near_port: port,
            ..site.lab.flows(Proto::Udp, FLOWS, 128)
        };
        let generator = Arc::new(Generator::new(site.lab.client_port(), &spec).unwrap());
        let load = Load::paced(Until::Stopped, site.pps / 3).on_cpu(0);
        let running = generator.start(load).unwrap();
        let rule = FIRST_RULE + index;
        site.sink.set_rule(rule, source_ports(port, FLOWS)).unwrap();
        Group {
            port,
            rule,
            running,
        }
    }

    fn last_ns(&self, site: &Site) -> u64 {
        site.sink.mark(self.rule).unwrap().last_seen_ns
    }
}

/// Ports of a group, as tools write them.
fn ports(first: u16, between: char) -> String {
    format!("{first}{between}{}", first + FLOWS as u16 - 1)
}

/// Waits until no group has frames any more.
#[track_caller]
fn wait_quiet(site: &Site, groups: &[&Group]) {
    let end = Moment::now() + Duration::from_millis(REVALIDATED_MS as u64 + 6_000);
    let quiet = |group: &&&Group| monotonic_ns().saturating_sub(group.last_ns(site)) >= QUIET_NS;
    while !groups.iter().all(|group| quiet(&group)) {
        assert!(Moment::now() < end, "frames still come");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn changes_without_events() {
    let Some(_machine) = freeway_testkit::machine() else {
        return;
    };
    let rules = format!(
        "table inet silent {{\n\
         \tset allowed {{\n\t\ttype inet_service; flags interval,timeout;\n\t}}\n\
         \tchain forward {{\n\
         \t\ttype filter hook forward priority -10; policy accept;\n\
         \t\tudp sport {} udp sport != @allowed drop\n\
         \t}}\n}}\n",
        ports(TIMEOUT, '-')
    );
    let options = Options {
        extra_nft: rules,
        ..Options::default()
    };
    let site = Site::build("routed", options);
    let router = site.lab.router();
    // All IP sets of a name are of one namespace.
    router
        .tool("ipset create blocked bitmap:port range 0-65535")
        .unwrap();
    let rule = "-p udp -m set --match-set blocked src -j DROP";
    router
        .tool(&format!("iptables-nft -A FORWARD {rule}"))
        .unwrap();
    let element = |words: &str| {
        let line = format!(
            "add element inet silent allowed {{ {} {words} }}\n",
            ports(TIMEOUT, '-')
        );
        router.tool_with_input("nft -f -", &line).unwrap()
    };
    element("");

    let mut rows = Rows::default();
    let mut legacy = Row::bounded("iptables-legacy rule", POLLED_MS);
    let mut ipset = Row::bounded("ipset entry", REVALIDATED_MS);
    let mut timeout = Row::bounded("set element timeout", REVALIDATED_MS);
    let groups = [LEGACY, IPSET, TIMEOUT];
    let groups: Vec<Group> = (0..)
        .zip(groups)
        .map(|(i, port)| Group::start(&site, i, port))
        .collect();
    let watch = site.start_bystanders();
    for _ in 0..trials() {
        for group in &groups {
            site.wait_fast(group.port, FLOWS);
        }
        site.wait_fast(BYSTANDER_PORT, FLOWS);
        let expires_ns = {
            router.tool("nft flush set inet silent allowed").unwrap();
            let added = timed(|| element("timeout 2s"));
            added.acked_ns + 2_000_000_000
        };
        site.wait_fast(TIMEOUT, FLOWS);
        let entry = |verb: &str| {
            router
                .tool(&format!("ipset {verb} blocked {}", ports(IPSET, '-')))
                .unwrap()
        };
        let of_ipset = timed(|| entry("add"));
        let of_timeout = Acked {
            before_ns: expires_ns,
            acked_ns: expires_ns,
        };
        // The ones that are noticed late are worth nothing if they were never fast after the change.
        thread::sleep(Duration::from_millis(2_100));
        wait_quiet(&site, &[&groups[1], &groups[2]]);
        ipset.add(of_ipset, groups[1].last_ns(&site));
        timeout.add(of_timeout, groups[2].last_ns(&site));
        entry("del");
        element("");
        // For itself: the epoch that follows it would shorten the others.
        site.wait_fast(LEGACY, FLOWS);
        let drop = |verb: &str| {
            let line = format!(
                "iptables-legacy {verb} FORWARD -p udp --sport {} -j DROP",
                ports(LEGACY, ':')
            );
            router.tool(&line).unwrap()
        };
        let added = timed(|| drop("-A"));
        thread::sleep(Duration::from_millis(50));
        wait_quiet(&site, &[&groups[0]]);
        legacy.add(added, groups[0].last_ns(&site));
        drop("-D");
    }
    // Of all three together.
    timeout.bystanders = Some(site.stop_bystanders(watch));
    for row in [&legacy, &ipset, &timeout] {
        rows.take(row, false);
    }
    rows.take(&again(|| foreign_program(&site, &groups[0])), false);
    rows.take(&again(|| packet_socket(&site, &groups[0])), false);
    rows.take(&again(|| sysctl(&site)), false);
    for group in groups {
        group.running.stop().unwrap();
    }
    site.daemon.stop();
    rows.judge();
}

/// A program on the port's tcx hook that drops all; one for XDP is refused while Freeway's is there.
fn foreign_program(site: &Site, group: &Group) -> Row {
    let (router, lan) = (site.lab.router(), site.lab.lan_port().ifindex);
    let mut row = Row::bounded("foreign tcx program", POLLED_MS);
    // BPF_PROG_TYPE_XDP, XDP_DROP; BPF_PROG_TYPE_SCHED_CLS, TC_ACT_SHOT
    let (xdp, tcx) = (constant_program(6, 1), constant_program(3, 2));
    let refused = router.enter(|| attach_link(&xdp, lan, 37)).unwrap();
    let error = refused.expect_err("a second XDP program");
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY), "{error}");
    for _ in 0..trials() {
        site.wait_fast(group.port, FLOWS);
        let mut link = None;
        let attached = timed(|| {
            link = Some(
                router
                    .enter(|| attach_link(&tcx, lan, 46))
                    .unwrap()
                    .unwrap(),
            )
        });
        thread::sleep(Duration::from_millis(50));
        wait_quiet(site, &[group]);
        row.add(attached, group.last_ns(site));
        drop(link);
    }
    row
}

/// A packet socket that takes everything: from when on it misses nothing.
fn packet_socket(site: &Site, group: &Group) -> Row {
    let mut row = Row::bounded("packet socket", POLLED_MS);
    for _ in 0..trials() {
        site.wait_fast(group.port, FLOWS);
        let open = || {
            let kind = (AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC);
            let fd = socket(kind.0, kind.1, kind.2, None).unwrap();
            // sockaddr_ll: ETH_P_ALL, every interface
            let address = libc::sockaddr_ll {
                sll_family: libc::AF_PACKET as u16,
                sll_protocol: 3u16.to_be(),
                // SAFETY: all zeros are a sockaddr_ll.
                ..unsafe { std::mem::zeroed() }
            };
            // SAFETY: the address outlives the call.
            let bound = unsafe {
                libc::bind(
                    fd.as_raw_fd(),
                    (&raw const address).cast(),
                    size_of_val(&address) as u32,
                )
            };
            assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
            fd
        };
        let mut sniffer = None;
        let opened = timed(|| sniffer = Some(site.lab.router().enter(open).unwrap()));
        freeway_testkit::until("no flows in XDP", Duration::from_secs(5), || {
            let flows = site.flows(group.port, FLOWS);
            flows.iter().all(|flow| flow["path"] == "tc").then_some(())
        });
        row.add(opened, monotonic_ns());
        drop(sniffer);
    }
    row
}

/// A value under /proc/sys that bears on forwarding: every flow is confirmed anew.
fn sysctl(site: &Site) -> Row {
    let mut row = Row::bounded("other sysctl", POLLED_MS);
    for trial in 0..trials() {
        let epoch = || site.daemon.status()["epoch"].as_u64().unwrap();
        let before = epoch();
        let value = ["1", "0"][trial % 2];
        let router = site.lab.router();
        let written = timed(|| {
            router
                .sysctl("net/ipv4/ip_forward_use_pmtu", value)
                .unwrap()
        });
        freeway_testkit::until("another epoch", Duration::from_secs(5), || {
            (epoch() > before).then_some(())
        });
        row.add(written, monotonic_ns());
        thread::sleep(Duration::from_millis(200));
    }
    row
}
