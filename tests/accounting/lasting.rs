// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that go on, whose flows leave and are learned anew, while collectors come.

use std::fs;

use freeway_testkit::*;

use crate::collectors::{Collector, Nfcapd};
use crate::relay::Relay;
use crate::traffic::{Sums, Traffic};
use crate::{PATIENCE, accounting, collector, compare, lab, number, wait_told};

const CONNECTIONS: u16 = 20;

/// What is said of counters that are off.
fn warns(router: &Router) -> bool {
    let status = router.json(&["status"]);
    let notices = status["notices"].as_array().unwrap();
    let command = "sysctl -w net.netfilter.nf_conntrack_acct=1";
    notices
        .iter()
        .any(|notice| notice.as_str().unwrap().contains(command))
}

/// What the server sent and received is what is counted of it.
fn check_hosts(router: &Router, sent: &Sums) {
    for (version, address) in [(4, "198.51.100.2"), (6, "2001:db8:2::2")] {
        let mut wanted = [0; 4];
        for (_, sum) in sent.iter().filter(|(key, _)| key.0 == version) {
            let pairs = wanted.iter_mut().zip(sum);
            pairs.for_each(|(all, one)| *all += one);
        }
        until("hosts are counted", PATIENCE, || {
            let shown = router.json(&["hosts"]);
            let mut hosts = shown["hosts"].as_array().unwrap().iter();
            let host = hosts.find(|host| host["address"] == address)?;
            let counts = |way: &str| {
                let of = |what: &str| number(&host[way][what]);
                [of("packets"), of("ip_bytes")]
            };
            let told = [counts("received"), counts("sent")].concat();
            (told == wanted).then_some(())
        });
    }
}

#[test]
fn what_is_told_in_parts_is_the_whole() {
    let Some(_machine) = machine() else { return };
    let lab = lab();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let host = lab.client();
    let counts = |on: &str| {
        let path = "net/netfilter/nf_conntrack_acct";
        lab.router().sysctl(path, on).unwrap();
    };
    let file = at("freeway.toml");
    let ports = "[daemon]\ninterfaces = [\"lan0\", \"wan0\"]\n";
    let config = |exports: &str| {
        let own = lab.config_toml("");
        let times = "[accounting]\nactive_s = 1\nidle_s = 2\nhosts = [\"198.51.100.0/24\", \"2001:db8:2::/64\"]\n";
        fs::write(&file, format!("{own}\n{ports}{times}{exports}")).unwrap();
    };
    let collectors: Vec<Box<dyn Collector + '_>> = vec![
        Box::new(Nfcapd::start(host, 4001, &at("a"))),
        Box::new(Nfcapd::start(host, 4002, &at("b"))),
    ];
    let first = "[[export]]\ncollector = \"192.0.2.2:4001\"\n";
    let second = "[[export]]\ncollector = \"192.0.2.2:5002\"\ntransport = \"tcp\"\n";
    config(first);
    counts("0");
    let router = Router::start_by(lab.router(), &file, |status| {
        let there = status["ports"].as_array().unwrap();
        there.len() == 2 && there.iter().all(|port| port["state"] == "fast")
    });
    assert!(warns(&router));
    counts("1");
    until("the counters are noticed", PATIENCE, || {
        (!warns(&router)).then_some(())
    });
    config(&format!("{first}{second}"));
    let reloaded = router.json(&["reload"]);
    assert_eq!(reloaded["changes"][0]["key"], "export", "{reloaded:#}");
    assert_eq!(reloaded["changes"].as_array().unwrap().len(), 1);

    for collector in &collectors {
        collector.wait();
    }
    let mut traffic = Traffic::new(&lab);
    traffic.udp(CONNECTIONS, 0..4);
    traffic.go_on(&router, CONNECTIONS, 10);
    // nobody was there: what is told waits
    let relay = Relay::start(host, 5002, 4002);
    for _ in 0..2 {
        router.json(&["flush"]);
        let before = number(&accounting(&router)["records"]);
        traffic.go_on(&router, CONNECTIONS, 10);
        until("connections that go on are told of", PATIENCE, || {
            let now = number(&accounting(&router)["records"]);
            (now >= before + 2 * u64::from(CONNECTIONS)).then_some(())
        });
    }
    let sent = traffic.sums();
    check_hosts(&router, &sent);
    // the last part is told when the daemon ends
    wait_told(&router, 2 * sent.len() as u64, &[4001, 5002]);
    let told = accounting(&router);
    for port in [4001, 5002] {
        let one = collector(&told, port);
        assert_eq!(number(&one["dropped"]), 0, "{one:#}");
        assert_eq!(one["state"], "ready", "{one:#}");
    }
    router.stop();
    drop(relay);
    for collector in &collectors {
        collector.end();
    }
    for collector in collectors {
        compare("in parts", &sent, &collector.sums());
    }
}
