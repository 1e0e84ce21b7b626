// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[scrub.limit]]` with real packets: what a source sends too much is dropped in XDP and named, nobody else's is, and
//! what has begun goes on.
//!
//!   client, many sources --- lan0 router wan0 --- server, what arrives is counted
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, sum16};
use freeway_lab::{Capture, Injector, Lab};
use freeway_testkit::*;
use serde_json::{Value, json};

/// A loaded machine may take its time.
const PATIENCE: Duration = Duration::from_secs(30);
const UDP: u8 = 17;
const TCP: u8 = 6;
const FLOOD: usize = 300;
/// So low that a test's time adds little.
const BURST: usize = 20;

fn limit(proto: &str, port: &str) -> String {
    format!(
        "[[scrub.limit]]\nport = [\"{port}\"]\nproto = \"{proto}\"\npackets_per_s = 1\nburst = {BURST}\n"
    )
}

fn l4(proto: u8) -> Vec<u8> {
    let mut l4 = vec![0u8; 26];
    l4[0..2].copy_from_slice(&40000u16.to_be_bytes());
    l4[2..4].copy_from_slice(&7000u16.to_be_bytes());
    match proto {
        // a SYN
        TCP => l4[12..14].copy_from_slice(&[0x50, 0x02]),
        _ => {
            l4[4..6].copy_from_slice(&26u16.to_be_bytes());
            // of IPv6 there must be one, and routers do not look
            l4[6..8].copy_from_slice(&[0x12, 0x34]);
        }
    }
    l4
}

fn from4(last: u8, proto: u8) -> Vec<u8> {
    let l4 = l4(proto);
    let mut ip = vec![0x45, 0];
    for word in [20 + l4.len() as u16, 7, 0] {
        ip.extend(word.to_be_bytes());
    }
    ip.extend([64, proto, 0, 0, 192, 0, 2, last, 198, 51, 100, 2]);
    let sum = !sum16(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&MAC_LAN[..], &MAC_CLIENT, &[8, 0], &ip, &l4].concat()
}

/// Sends each of the frames so often, by turns; how many of each arrived, by the source's last octet.
fn arrived(lab: &Lab, frames: &[Vec<u8>], times: usize) -> Vec<usize> {
    let mut capture = Capture::open(lab.server_port()).unwrap();
    let injector = Injector::open(lab.client_port()).unwrap();
    let sent: Vec<_> = std::iter::repeat_n(frames, times)
        .flatten()
        .cloned()
        .collect();
    injector.send_all(&sent, Duration::ZERO).unwrap();
    let is_one = |frame: &[u8]| frame.len() > 40 && frame[36..38] == 7000u16.to_be_bytes();
    let there = capture.drain(Duration::from_millis(150), is_one).unwrap();
    assert_eq!(capture.dropped().unwrap(), 0);
    let count = |of: &Vec<u8>| {
        let same = there
            .iter()
            .filter(|frame| frame.bytes[23] == of[23] && frame.bytes[26..30] == of[26..30]);
        same.count()
    };
    frames.iter().map(count).collect()
}

fn dropped(router: &Router) -> u64 {
    let drops = router.json(&["drops"]);
    drops["limits"][0]["dropped"]["packets"].as_u64().unwrap()
}

/// Each limit is in force at one port; a program is loaded later where the last ones took long.
fn in_force(router: &Router, limits: usize) {
    until("limits are in force", PATIENCE, || {
        let all = router.json(&["drops"])["limits"].clone();
        let all = all.as_array().unwrap();
        let there = |limit: &&Value| limit["ports"].as_array().map(Vec::len) == Some(1);
        (all.len() == limits && all.iter().filter(there).count() == limits).then_some(())
    });
}

#[test]
fn a_source_is_held_to_its_limit_and_named() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let router = Router::start_with(&lab, &limit("udp", "lan0"));
    in_force(&router, 1);
    let listener = listen(lab.server(), "198.51.100.2:5001".parse().unwrap());
    let from = "192.0.2.2:40001".parse().unwrap();
    let to = "198.51.100.2:5001".parse().unwrap();
    let mut ends = pair((lab.client(), from), to, &listener);
    router.wait_fast_while("proto tcp", 2, 1, || exchange_blocks(&mut ends, 8));

    // one sends too much; one no more than it may; and TCP of the first is none of the limit's
    let frames = [from4(66, UDP), from4(66, TCP)];
    let there = arrived(&lab, &frames, FLOOD);
    println!("{there:?} of {FLOOD} each");
    assert!((BURST..FLOOD / 2).contains(&there[0]), "{there:?}");
    assert_eq!(there[1], FLOOD);
    assert_eq!(arrived(&lab, &[from4(67, UDP)], BURST), [BURST]);
    router.wait_fast_while("proto tcp dport 5001", 1, 1, || {
        exchange_blocks(&mut ends, 8)
    });

    let drops = until("the source is named", PATIENCE, || {
        let drops = router.json(&["drops"]);
        (drops["sources"][0]["dropped"] == FLOOD - there[0]).then_some(drops)
    });
    let packets = FLOOD - there[0];
    let bytes = packets * frames[0].len();
    let shown = &drops["limits"][0];
    assert_eq!(
        shown["dropped"],
        json!({"packets": packets, "bytes": bytes})
    );
    assert_eq!(
        [&shown["number"], &shown["proto"], &shown["burst"]],
        [&json!(1), &json!("udp"), &json!(BURST)]
    );
    assert_eq!(shown["ports"][0]["port"], "lan0");
    assert_eq!(shown["ports"][0]["dropped"]["packets"], packets);
    let source = &drops["sources"][0];
    assert_eq!(source["source"], "192.0.2.66");
    assert_eq!(source["limit"], 1);
    assert_eq!(drops["sources"].as_array().unwrap().len(), 1);
    let stats = router.stats();
    assert_eq!(stats.reason("rate_limited"), packets as u64);
    assert_eq!(stats.0["scrub_limits"][0]["dropped"]["packets"], packets);
    let status = router.status();
    assert_eq!(status["scrub_limits"][0]["dropped"]["packets"], packets);
    for (command, words) in [
        ("drops", "192.0.2.66"),
        ("stats", "limit 1"),
        ("status", "udp 1/s"),
    ] {
        let text = String::from_utf8(router.run(&[command]).stdout).unwrap();
        assert!(text.contains(words), "{command}: {text}");
    }
    router.stop();
}

#[test]
fn explain_tells_who_is_over() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let router = Router::start_with(&lab, &limit("syn", "lan0"));
    let explain = |last: u8| {
        let src = format!("192.0.2.{last}:40000");
        let answer = router.json(&["explain", "tcp", &src, "198.51.100.2:7000", "--watch", "0"]);
        answer["summary"].as_str().unwrap().to_owned()
    };
    // a flood that goes on
    let words = until("it is said", PATIENCE, || {
        arrived(&lab, &[from4(66, TCP)], FLOOD);
        let words = explain(66);
        words.contains("scrub.limit").then_some(words)
    });
    let said =
        "Dropped in XDP in part: 192.0.2.66 is over [[scrub.limit]] number 1 (SYNs: 1 a second)";
    assert!(words.starts_with(said), "{words}");
    assert!(!explain(67).contains("scrub.limit"));
    router.stop();
}

#[test]
fn limits_change_while_the_daemon_runs() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |extra: &str| {
        let text = format!("{}{extra}", lab.config_toml(""));
        std::fs::write(file.path(), text).unwrap();
    };
    write("");
    let router = Router::start_by(lab.router(), file.path(), |status| fast_ports(status) == 2);
    let flood = |proto| arrived(&lab, &[from4(66, proto)], FLOOD)[0];
    let reload = |extra: &str| {
        write(extra);
        let reloaded = router.json(&["reload"]);
        let changes = reloaded["changes"].as_array().unwrap().clone();
        assert!(changes.iter().all(|change| change["key"] == "scrub.limit"));
        changes.len()
    };
    let hold = |given: usize| {
        let stats = router.stats();
        assert!(
            (BURST..FLOOD / 2).contains(&given),
            "{given} of {FLOOD}\n{stats}"
        );
    };
    assert_eq!(flood(UDP), FLOOD);
    assert_eq!(router.json(&["drops"])["limits"], json!([]));
    let udp = limit("udp", "lan0");
    assert_eq!(reload(&udp), 1);
    in_force(&router, 1);
    hold(flood(UDP));
    let before = dropped(&router);
    assert!(before > 0);
    // what stays the same goes on, whatever is beside it
    assert_eq!(reload(&format!("{}{udp}", limit("syn", "wan0"))), 1);
    in_force(&router, 2);
    let limits = router.json(&["drops"])["limits"].clone();
    assert_eq!(limits[0]["dropped"]["packets"], 0);
    assert_eq!(limits[1]["dropped"]["packets"], before);
    assert!(flood(UDP) < BURST, "its burst is gone");
    assert_eq!(flood(TCP), FLOOD, "it comes in elsewhere");
    // another one begins anew
    assert_eq!(reload(&limit("any", "lan0")), 1);
    in_force(&router, 1);
    hold(flood(UDP));
    assert!(flood(TCP) < BURST);
    let names_nothing = udp.replace("lan0", "lan9");
    write(&names_nothing);
    let output = router.run(&["reload"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{error}");
    assert!(error.contains("key `scrub.limit.port`: lan9"), "{error}");
    assert!(flood(UDP) < BURST, "nothing was changed");
    // a port without XDP is named
    let ports = lab.config_toml("path = \"tc\"");
    let elsewhere = format!("{ports}{udp}");
    std::fs::write(file.path(), elsewhere).unwrap();
    router.json(&["reload"]);
    let drops = router.json(&["drops"]);
    assert_eq!(drops["limits"][0]["ports"], json!([]));
    let kept = &drops["limits"][0]["ports_kept"][0];
    assert_eq!(kept["port"], "lan0");
    let why = kept["reason"].as_str().unwrap();
    assert!(why.contains("the configuration wants tc"), "{why}");
    let notices = router.status()["notices"].clone();
    let has = |notice: &Value| notice.as_str().unwrap().contains("is not in force at lan0");
    assert!(notices.as_array().unwrap().iter().any(has), "{notices}");
    assert_eq!(flood(UDP), FLOOD);
    write(&udp);
    router.json(&["reload"]);
    in_force(&router, 1);
    hold(flood(UDP));
    write("");
    router.json(&["reload"]);
    assert_eq!(flood(UDP), FLOOD);
    let stats = router.stats();
    assert!(
        stats.reason("rate_limited") > before,
        "what was dropped stays counted"
    );
    assert_eq!(stats.0["scrub_limits"], json!([]));
    router.stop();
}

#[test]
fn limits_come_before_drop_sets_and_without_a_daemon_nothing_is_dropped() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let table = "table inet f {
        set banned { type ipv4_addr; elements = { 192.0.2.66, 192.0.2.68, 192.0.2.70, 192.0.2.72, 192.0.2.74 }; }
        chain raw { type filter hook prerouting priority raw; ip saddr @banned drop; }
    }";
    lab.router().tool_with_input("nft -f -", table).unwrap();
    let router = Router::start_with(&lab, &limit("udp", "lan0"));
    in_force(&router, 1);
    until("the set", PATIENCE, || {
        let drops = router.json(&["drops"]);
        (drops["active"] == true && drops["rules"][0]["elements"] == 5).then_some(())
    });
    let counted = || {
        let drops = router.json(&["drops"]);
        let packets = |of: &Value| of["dropped"]["packets"].as_u64().unwrap();
        (packets(&drops), packets(&drops["limits"][0]))
    };
    // while a rule is judged the kernel has what is within the limit, and that comes in no time: then others send
    let whole = [66, 68, 70, 72, 74].into_iter().any(|banned| {
        let before = counted();
        let there = arrived(&lab, &[from4(banned, UDP), from4(banned + 1, UDP)], FLOOD);
        assert_eq!(there[0], 0);
        assert!((BURST..FLOOD / 2).contains(&there[1]), "{there:?}");
        let after = counted();
        let (by_set, by_limit) = (after.0 - before.0, after.1 - before.1);
        println!("{by_set} dropped by the set, {by_limit} over the limit");
        // of the banned one the kernel may have been given some
        let all = 2 * FLOOD as u64 - there[1] as u64;
        assert!(by_set + by_limit <= all);
        by_set > 0 && by_set + by_limit >= all - 3
    });
    assert!(whole);
    lab.router().tool("nft delete table inet f").unwrap();
    until("no set", PATIENCE, || {
        (router.json(&["drops"])["rules"] == json!([])).then_some(())
    });
    assert!(arrived(&lab, &[from4(67, UDP)], FLOOD)[0] < BURST);
    router.stop();
    assert_eq!(arrived(&lab, &[from4(67, UDP)], FLOOD), [FLOOD]);
}
