// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs load in every variant, on each kernel, and at what cost to the verifier.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use freeway_abi::{
    FW_R_FRAGMENT, fw_ratelimit_here, fw_route_here, fw_scrub_here, fw_tap_filter, fw_watch,
};
use freeway_datapath::{
    Datapath, Hook, Hooked, LoadOptions, RateLimiter, RouteHook, RouteTable, Scrubber, Tap,
};
use libbpf_rs::query::ProgInfoIter;

/// The verifier gives up at a million, and start-up waits for it, most on small CPUs.
const INSTRUCTIONS_MAX: u32 = 250_000;

/// Those that only some ports need.
const LATE: [Hook; 9] = [
    Hook::Ingress,
    Hook::IngressAlone,
    Hook::RawIngress,
    Hook::RawIngressAlone,
    Hook::RawEgress,
    Hook::BridgeIngress,
    Hook::BridgeEgress,
    Hook::BridgeXdp,
    Hook::BondXdp,
];

/// What is loaded where it is asked for.
fn late_programs(datapath: &Datapath) -> (RouteTable, Scrubber, RateLimiter, Tap, Vec<u32>) {
    let mut routes = datapath.route_table(0).unwrap();
    for (hook, plain) in [
        (RouteHook::Xdp, Hook::Xdp),
        (RouteHook::Tc, Hook::IngressAlone),
    ] {
        let next = datapath.prog(plain).unwrap();
        let heres = BTreeMap::from([(0, fw_route_here::default())]);
        routes.at(hook, 1, &heres, next.as_fd()).unwrap();
    }
    let mut scrubber = datapath.scrubber([0; 2]).unwrap();
    scrubber.at(1, fw_scrub_here::default()).unwrap();
    let mut limiter = datapath.rate_limiter().unwrap();
    limiter.at(1, fw_ratelimit_here::default()).unwrap();
    let tap = datapath.tap(&fw_tap_filter::default()).unwrap();
    let mut ids = routes.prog_ids();
    ids.extend(scrubber.prog_ids());
    ids.extend(limiter.prog_ids());
    ids.extend(tap.prog_id());
    assert_eq!(ids.len(), 5);
    (routes, scrubber, limiter, tap, ids)
}

#[test]
fn programs_load() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: loading BPF programs needs root");
        return;
    }
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for (conntrack, limits, sockets) in [
        (true, true, true),
        (true, false, false),
        (false, false, true),
    ] {
        let options = LoadOptions {
            conntrack,
            limits: limits
                .then_some((FW_R_FRAGMENT, 1000))
                .into_iter()
                .collect(),
            sockets,
            routes: true,
            precedents: limits,
            ..LoadOptions::default()
        };
        let datapath = Datapath::load(&options).unwrap();
        assert_eq!(datapath.prog_ids().len(), 3, "what every port needs");
        for hook in LATE {
            datapath.prog(hook).unwrap();
        }
        let mut ids = datapath.prog_ids();
        assert_eq!(ids.len(), 12);
        // once: an emulated machine takes long for them
        let late = limits.then(|| late_programs(&datapath));
        ids.extend(late.iter().flat_map(|(_, _, _, _, ids)| ids));
        assert!(datapath.tells_drops());
        datapath.watch(Some(&fw_watch::default())).unwrap();
        datapath.watch(None).unwrap();
        let reasons = datapath.drop_reasons();
        for name in ["not_specified", "netfilter_drop", "ip_rpfilter"] {
            assert!(reasons.values().any(|known| known == name), "{reasons:?}");
        }
        for prog in ProgInfoIter::default().filter(|prog| ids.contains(&prog.id)) {
            let name = prog.name.to_string_lossy();
            println!(
                "{} {name}: {} instructions verified, conntrack {conntrack}, limits {limits}, sockets {sockets}",
                kernel.trim(),
                prog.verified_insns
            );
            assert!(prog.verified_insns < INSTRUCTIONS_MAX, "{name}");
        }
    }
}

/// The kernel's structures are as the programs read them.
#[test]
fn who_is_hooked_in_can_be_read() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: loading BPF programs needs root");
        return;
    }
    let hooked = Hooked::load().unwrap();
    let loopback = nix::net::if_::if_nametoindex("lo").unwrap();
    assert_eq!(hooked.rx_handler(loopback).unwrap(), None);
    assert!(hooked.rx_handler(0).is_err());
    assert_eq!(hooked.netdev_hooks(loopback).unwrap(), []);
    hooked.checks_sources().unwrap();
    for family in [2, 7, 10] {
        for hook in 0..5 {
            hooked.nf_hooks(family, hook).unwrap();
        }
    }
}
