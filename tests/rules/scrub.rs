// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of the firewall, dropped in XDP, with real packets: what the kernel drops is dropped, all else goes on, and what
//! changes in the kernel changes here.
//!
//!   client, many sources --- lan0 router wan0 --- server, what arrives is counted
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fail2ban;

use std::collections::BTreeMap;
use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, sum16};
use freeway_lab::{Capture, Injector, Lab};
use freeway_testkit::*;
use serde_json::Value;

const UDP: u8 = 17;
const TCP: u8 = 6;
/// A loaded machine may take its time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A packet to the server.
fn packet(src: [u8; 4], proto: u8, dport: u16) -> Vec<u8> {
    let mut l4 = vec![0u8; 26];
    l4[0..2].copy_from_slice(&40000u16.to_be_bytes());
    l4[2..4].copy_from_slice(&dport.to_be_bytes());
    match proto {
        // a SYN
        TCP => l4[12..14].copy_from_slice(&[0x50, 0x02]),
        _ => l4[4..6].copy_from_slice(&26u16.to_be_bytes()),
    }
    let mut ip = vec![0x45, 0];
    for word in [20 + l4.len() as u16, 7, 0] {
        ip.extend(word.to_be_bytes());
    }
    ip.extend([64, proto, 0, 0]);
    ip.extend(src);
    ip.extend([198, 51, 100, 2]);
    let sum = !sum16(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&MAC_LAN[..], &MAC_CLIENT, &[8, 0], &ip, &l4].concat()
}

fn udp_from(last: u8) -> Vec<u8> {
    packet([192, 0, 2, last], UDP, 7000)
}

/// Sends frames; how many arrived, by source.
fn arrived(lab: &Lab, frames: &[Vec<u8>]) -> BTreeMap<[u8; 4], usize> {
    let mut capture = Capture::open(lab.server_port()).unwrap();
    let injector = Injector::open(lab.client_port()).unwrap();
    injector.send_all(frames, Duration::ZERO).unwrap();
    let from_client = |frame: &[u8]| frame.len() > 34 && frame[26..28] == [192, 0];
    let frames = capture
        .drain(Duration::from_millis(150), from_client)
        .unwrap();
    assert_eq!(capture.dropped().unwrap(), 0);
    let mut by_source = BTreeMap::new();
    for frame in frames {
        let source = frame.bytes[26..30].try_into().unwrap();
        *by_source.entry(source).or_default() += 1;
    }
    by_source
}

fn nft(lab: &Lab, text: &str) {
    lab.router().tool_with_input("nft -f -", text).unwrap();
}

fn ruleset(rules: &str) -> String {
    format!(
        "table inet f {{
            set banned {{ type ipv4_addr; flags timeout; }}
            set white {{ type ipv4_addr; }}
            set nets {{ type ipv4_addr; flags interval; }}
            set pairs {{ type ipv4_addr . inet_service; }}
            chain raw {{ type filter hook prerouting priority raw; policy accept;
                {rules}
            }}
        }}"
    )
}

/// Waits until what is dropped is as wanted.
#[track_caller]
fn wait(router: &Router, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    until(what, PATIENCE, || {
        let drops = router.json(&["drops"]);
        wanted(&drops).then_some(drops)
    })
}

/// All rules, with so many elements together, at both ports.
fn settled(rules: usize, elements: u64) -> impl Fn(&Value) -> bool {
    move |drops| {
        let all = drops["rules"].as_array().unwrap();
        let there: u64 = all.iter().map(|r| r["elements"].as_u64().unwrap()).sum();
        drops["active"] == true
            && all.len() == rules
            && there == elements
            && all.iter().all(|r| r["loading"] == false)
            && all
                .iter()
                .all(|r| r["ports"].as_array().unwrap().len() == 2)
    }
}

fn counts(drops: &Value) -> [u64; 3] {
    let rule = &drops["rules"][0];
    [
        rule["dropped"]["packets"].as_u64().unwrap(),
        rule["confirmed"].as_u64().unwrap(),
        rule["kernel_packets"].as_u64().unwrap(),
    ]
}

#[test]
fn what_the_kernel_drops_is_dropped_and_counted_once() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    nft(&lab, &ruleset("ip saddr @banned counter drop"));
    nft(&lab, "add element inet f banned { 192.0.2.66, 192.0.2.67 }");
    let router = Router::start(&lab);
    wait(&router, "two elements", settled(1, 2));
    let frames: Vec<_> = [66, 3, 67, 66]
        .repeat(250)
        .into_iter()
        .map(udp_from)
        .collect();
    let mut before = [0; 3];
    // what comes while ports are judged anew is the kernel's, and nobody asked for it
    let drops = until(
        "none but what was asked for is the kernel's",
        PATIENCE,
        || {
            let there = arrived(&lab, &frames);
            // one is translated
            assert_eq!(there.values().sum::<usize>(), 0, "{there:?}");
            let drops = router.json(&["drops"]);
            let now = counts(&drops);
            let [dropped, confirmed, kernel] = [0, 1, 2].map(|of| now[of] - before[of]);
            println!(
                "{dropped} dropped in XDP, {confirmed} given to the kernel, which counted {kernel}"
            );
            // the kernel's and Freeway's add up
            assert_eq!(dropped + kernel, 750);
            assert!(confirmed <= kernel);
            before = now;
            (confirmed == kernel && dropped > 700).then_some(drops)
        },
    );
    let [dropped, confirmed, _] = before;
    let stats = router.stats();
    assert_eq!(stats.reason("scrubbed"), dropped);
    assert_eq!(stats.reason("scrub_confirm"), confirmed);
    assert_eq!(stats.0["drops"][0]["set"], "inet f banned");
    let port = &drops["ports"].as_array().unwrap();
    let at =
        |name: &str| port.iter().find(|p| p["port"] == name).unwrap()["dropped"]["packets"].clone();
    assert_eq!((at("lan0"), at("wan0")), (dropped.into(), 0.into()));
    let top = drops["top"].as_array().unwrap();
    assert_eq!(top[0]["address"], "192.0.2.66", "{top:?}");
    let text = String::from_utf8(router.run(&["drops"]).stdout).unwrap();
    assert!(text.contains("inet f banned"), "{text}");
    let explain = |src: &str| {
        let src = format!("{src}:40000");
        let answer = router.json(&["explain", "udp", &src, "198.51.100.2:7000", "--watch", "0"]);
        answer["summary"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        explain("192.0.2.66"),
        "Dropped in XDP: in set inet f banned."
    );
    assert!(!explain("192.0.2.3").contains("Dropped in XDP"));
    nft(&lab, "add element inet f banned { 192.0.2.68 timeout 30m }");
    wait(&router, "one more", settled(1, 3));
    let words = explain("192.0.2.68");
    assert!(
        words.starts_with("Dropped in XDP: in set inet f banned until "),
        "{words}"
    );
    router.stop();
}

#[test]
fn elements_come_and_go() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let rules = "ip saddr @banned drop\nip saddr @nets drop\nip saddr . tcp dport @pairs drop\n\
                 udp dport { 7001, 7003-7005 } ip saddr @banned drop";
    nft(&lab, &ruleset(rules));
    let router = Router::start(&lab);
    let shown = |elements| settled(4, elements);
    wait(&router, "the rules", shown(0));
    let one = |last: u8| {
        let frames = vec![udp_from(last); 20];
        arrived(&lab, &frames).values().sum::<usize>()
    };
    assert_eq!(one(66), 20);
    nft(&lab, "add element inet f banned { 192.0.2.66 }");
    // two rules ask that set
    wait(&router, "an element", shown(2));
    assert_eq!((one(66), one(67)), (0, 20));
    nft(&lab, "delete element inet f banned { 192.0.2.66 }");
    wait(&router, "no element", shown(0));
    assert_eq!(one(66), 20);
    nft(
        &lab,
        "add element inet f nets { 192.0.2.64/29, 192.0.2.80-192.0.2.81 }",
    );
    wait(&router, "intervals", shown(2));
    let sources = [63, 64, 71, 72, 79, 80, 81, 82];
    let there = sources.map(|last| one(last) / 20);
    assert_eq!(there, [1, 0, 0, 1, 1, 0, 0, 1]);
    nft(
        &lab,
        "delete element inet f nets { 192.0.2.64/29 }\nadd element inet f pairs { 192.0.2.66 . 22 }",
    );
    wait(&router, "a concatenation", shown(2));
    let syn = |dport| arrived(&lab, &vec![packet([192, 0, 2, 66], TCP, dport); 20]).len();
    assert_eq!((one(66), syn(22), syn(23)), (20, 0, 1));
    // an element's own time
    nft(
        &lab,
        "flush set inet f nets\nflush set inet f pairs\nadd element inet f banned { 192.0.2.66 timeout 2s, 192.0.2.67 timeout 1h }",
    );
    wait(&router, "times", |drops| {
        settled(4, 4)(drops) || settled(4, 2)(drops)
    });
    until("its end", PATIENCE, || (one(66) == 20).then_some(()));
    assert_eq!(one(67), 0);
    // and what XDP has it drops
    let drops = router.json(&["drops"]);
    assert!(drops["dropped"]["packets"].as_u64().unwrap() > 0);
    router.stop();
}

#[test]
fn a_ruleset_that_goes_leaves_nothing() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let load = |elements: &str| {
        let elements = match elements {
            "" => String::new(),
            some => format!("add element inet f banned {{ {some} }}\n"),
        };
        let rules = ruleset("ip saddr @banned counter drop");
        nft(&lab, &format!("flush ruleset\n{rules}\n{elements}"));
    };
    load("192.0.2.66");
    let router = Router::start(&lab);
    wait(&router, "an element", settled(1, 1));
    let one = |last: u8| {
        arrived(&lab, &vec![udp_from(last); 20])
            .values()
            .sum::<usize>()
    };
    assert_eq!(one(66), 0);
    // the same names, another set
    load("192.0.2.67");
    wait(&router, "another element", settled(1, 1));
    assert_eq!((one(66), one(67)), (20, 0));
    nft(&lab, "flush set inet f banned");
    wait(&router, "an empty set", settled(1, 0));
    assert_eq!(one(67), 20);
    // many at once, more than are told of one by one
    let many: Vec<String> = (0..10_000)
        .map(|n| format!("10.9.{}.{}", n / 250, n % 250))
        .collect();
    nft(
        &lab,
        &format!(
            "add element inet f banned {{ {}, 192.0.2.66 }}",
            many.join(", ")
        ),
    );
    wait(&router, "many elements", settled(1, 10_001));
    assert_eq!((one(66), one(67)), (0, 20));
    nft(&lab, "flush set inet f banned");
    wait(&router, "an empty set", settled(1, 0));
    assert_eq!(one(66), 20);
    // a rule that accepts before it
    nft(
        &lab,
        "add element inet f banned { 192.0.2.66, 192.0.2.67 }\nadd element inet f white { 192.0.2.66 }",
    );
    wait(&router, "two elements", settled(1, 2));
    assert_eq!((one(66), one(67)), (0, 0));
    nft(&lab, "insert rule inet f raw ip saddr @white accept");
    let drops = wait(&router, "the rule is the kernel's", |drops| {
        drops["rules"].as_array().unwrap().is_empty()
    });
    let kept = drops["kept"][0]["reason"].as_str().unwrap();
    assert!(kept.contains("may let packets pass"), "{kept}");
    assert_eq!((one(66), one(67)), (20, 0));
    nft(&lab, "flush ruleset");
    wait(&router, "no rule", |drops| {
        drops["kept"].as_array().unwrap().is_empty()
    });
    assert_eq!((one(66), one(67)), (20, 20));
    router.stop();
    // a restart finds what there is
    load("192.0.2.68");
    let router = Router::start(&lab);
    wait(&router, "an element", settled(1, 1));
    assert_eq!((one(66), one(68)), (20, 0));
    router.stop();
    assert_eq!(one(68), 0, "the kernel drops");
    let off = Router::start_with(&lab, "[policy]\ndrops = false\n");
    let drops = off.json(&["drops"]);
    assert_eq!(drops["rules"], serde_json::json!([]));
    let kept = drops["kept"][0]["reason"].as_str().unwrap();
    assert!(kept.contains("policy.drops is false"), "{kept}");
    off.stop();
}
