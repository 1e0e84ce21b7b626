// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ruleset commit under 100,000 flows: all are fast again soon, and no frame is lost.
//!
//! The generator sends all of them at half the kernel's capacity; after the commit all of it is the kernel's,
//! until each flow was confirmed. `FREEWAY_LONG=1`: ten commits instead of two. `FREEWAY_JSON=FILE`: appends a row.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::{
    Filter, Generator, Lab, Load, MeasureSpec, Options, Proto, Sink, SinkSpec, Until, measure,
};
use freeway_testkit::invalidation::netlink::{Netlink, rule_drop_sports, rules_flush};
use freeway_testkit::invalidation::site::{append_json, quantile};
use freeway_testkit::{Router, large, machine, until};
use serde_json::json;

const FLOWS: u32 = 100_000;
const AGAIN: Duration = Duration::from_secs(60);
/// As many of them have to be fast: some may leave the table by themselves meanwhile.
const SHARE: f64 = 0.99;

fn active(router: &Router) -> u64 {
    router.status()["flows"]["active"].as_u64().unwrap()
}

fn lab() -> Lab {
    let options = Options {
        filter: Some(Filter::Tracked),
        extra_nft: "table inet victim {\n\
             \tchain forward {\n\
             \t\ttype filter hook forward priority -10; policy accept;\n\
             \t}\n}\n"
            .into(),
        conntrack_max: Some(2 * FLOWS),
        ..Options::default()
    };
    freeway_testkit::build_with("routed", options)
}

#[test]
fn a_commit_under_many_flows() {
    let Some(_machine) = machine() else { return };
    let lab = lab();
    lab.prime(Proto::Udp, FLOWS, Some(0)).unwrap();
    let spec = MeasureSpec {
        flows: FLOWS,
        frame_bytes: 128,
        ..MeasureSpec::default()
    };
    let kernel = measure(&lab, &spec).unwrap();
    let pps = freeway_testkit::paced((1e9 / kernel.ns_per_frame / 2.0) as u64);
    let sink = Sink::attach(lab.server_port(), SinkSpec::default()).unwrap();
    let config = format!("[flows]\nmax = {}\nudp_idle_s = 600\n", FLOWS + FLOWS / 8);
    let router = Router::start_with(&lab, &config);
    let wanted = (f64::from(FLOWS) * SHARE) as u64;
    until("a full table", Duration::from_secs(120), || {
        large::learn(&lab, FLOWS);
        (active(&router) >= wanted).then_some(())
    });

    let arrived_before = sink.counts().unwrap().frames;
    let spec = lab.flows(Proto::Udp, FLOWS, 128);
    let generator = Arc::new(Generator::new(lab.client_port(), &spec).unwrap());
    let load = Load::paced(Until::Stopped, pps).on_cpu(0);
    let running = generator.start(load).unwrap();
    let mut netlink = Netlink::netfilter(lab.router());
    let mut again_ms = Vec::new();
    for _ in 0..if freeway_testkit::long() { 10 } else { 2 } {
        until("all fast", AGAIN, || {
            (active(&router) >= wanted).then_some(())
        });
        let epoch = router.status()["epoch"].clone();
        netlink.nft(rule_drop_sports("victim", "forward", 1));
        let began = Instant::now();
        until("they wait", Duration::from_secs(2), || {
            (router.status()["epoch"] != epoch).then_some(())
        });
        until("all fast again", AGAIN, || {
            (active(&router) >= wanted).then_some(())
        });
        again_ms.push(began.elapsed().as_secs_f64() * 1e3);
        netlink.nft(rules_flush("victim", "forward"));
    }
    running.stop().unwrap();
    thread::sleep(Duration::from_millis(100));
    let sent = generator.frames().unwrap();
    let arrived = sink.counts().unwrap().frames - arrived_before;
    let (p50, worst) = (quantile(&again_ms, 0.5), quantile(&again_ms, 1.0));
    println!(
        "{FLOWS} flows at {pps} frames a second: fast again after p50 {p50:.0} worst {worst:.0} ms, \
         {} of {sent} frames lost",
        sent - arrived.min(sent)
    );
    append_json(&json!({
        "again": { "flows": FLOWS, "pps": pps, "commits": again_ms.len(), "p50_ms": p50, "worst_ms": worst,
                   "sent": sent, "lost": sent - arrived.min(sent) }
    }));
    let dropped = freeway_testkit::dropped(&lab);
    assert!(
        arrived <= sent && sent - arrived <= dropped,
        "{dropped} dropped by ports"
    );
    router.stop();
}
