// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows that tc owns: through the qdiscs, with marks, merged or unfinished, and seen by tcpdump.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Read;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::{Lab, Options};
use freeway_testkit::*;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{UdpGroSegment, UdpGsoSegment};
use nix::unistd::Pid;
use serde_json::Value;

/// The ports are no wires: frames come merged, and with checksums to be finished by a network card.
const NO_WIRES: &str = "[port.lan0]\nroutes = false\n\n[port.wan0]\nroutes = false\n";

const PATIENCE: Duration = Duration::from_secs(30);

fn send(ends: &(UdpSocket, UdpSocket), datagrams: u64) {
    path::send(ends, address(SERVER), datagrams);
}

#[track_caller]
fn until_path(router: &Router, ends: &(UdpSocket, UdpSocket), path: &str) -> Duration {
    path::until_path(router, ends, address(SERVER), path)
}

/// The number ahead of a word in the first line that has all these words.
fn ahead(text: &str, words: &[&str], word: &str) -> u64 {
    let mut lines = text
        .lines()
        .skip_while(|line| !words.iter().all(|w| line.contains(w)));
    let all = lines.by_ref().take(2).collect::<Vec<_>>().join(" ");
    let (before, _) = all
        .split_once(word)
        .unwrap_or_else(|| panic!("no {word} in {text}"));
    before
        .split_whitespace()
        .next_back()
        .unwrap()
        .parse()
        .unwrap()
}

fn port<'a>(status: &'a Value, name: &str) -> &'a Value {
    let mut ports = status["ports"].as_array().unwrap().iter();
    ports.find(|port| port["name"] == name).unwrap()
}

#[test]
fn a_shaper_moves_what_leaves_through_it_to_tc() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let router = Router::start(&lab);
    let ends = udp_ends(&lab);
    until_path(&router, &ends, "xdp");
    lab.router()
        .tool("tc qdisc replace dev wan0 root tbf rate 1gbit burst 1mb latency 50ms")
        .unwrap();
    let moved = until_path(&router, &ends, "tc");
    let status = router.status();
    let wan = port(&status, "wan0");
    assert_eq!(wan["path"], "tc", "{wan:#}");
    assert!(wan["reasons"].to_string().contains("tbf"), "{wan:#}");
    assert_eq!(port(&status, "lan0")["path"], "xdp");
    // what comes back leaves through no shaper
    let back = router.flows("proto udp sport 5000");
    assert_eq!(back[0]["path"], "xdp", "{back:#?}");
    let queued = || {
        let shown = lab.router().tool("tc -s qdisc show dev wan0").unwrap();
        ahead(&shown, &["Sent"], "pkt")
    };
    let (before, fast) = (queued(), router.stats().fast());
    send(&ends, 200);
    let (passed, fast) = (queued() - before, router.stats().fast() - fast);
    assert!((200..220).contains(&passed), "{passed} through the shaper");
    assert!(fast >= 380, "{fast} fast\n{}", router.stats());
    let explained = router.json(&["explain", "udp", CLIENT, SERVER]);
    assert_eq!(explained["flow"]["path"], "tc", "{explained:#}");
    let notes = explained["notes"].to_string();
    assert!(notes.contains("in tc: wan0: its qdisc tbf"), "{notes}");
    lab.router().tool("tc qdisc del dev wan0 root").unwrap();
    let returned = until_path(&router, &ends, "xdp");
    println!("to tc within {moved:?}, back within {returned:?}");
    router.stop();
}

/// From when the kernel has the qdisc until the last frame that passed it by.
#[test]
fn a_shaper_has_everything_within_milliseconds() {
    let Some(_machine) = machine() else { return };
    const EVERY: Duration = Duration::from_micros(500);
    let lab = build("nat");
    let router = Router::start(&lab);
    let ends = udp_ends(&lab);
    let mut late_ms: Vec<f64> = Vec::new();
    for _ in 0..5 {
        until_path(&router, &ends, "xdp");
        let (sender, sent) = (ends.0.try_clone().unwrap(), Arc::new(AtomicU64::new(0)));
        let (end, count) = (Arc::new(AtomicBool::new(false)), Arc::clone(&sent));
        let stop = Arc::clone(&end);
        let load = thread::spawn(move || {
            let mut next = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                sender.send_to(b"under load", SERVER).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                // one that was late sends no burst: a ring might not hold it
                next = (next + EVERY).max(Instant::now());
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        let receiver = ends.1.try_clone().unwrap();
        let arrived = thread::spawn(move || {
            std::iter::from_fn(|| receiver.recv(&mut [0; 64]).ok()).count() as u64
        });
        thread::sleep(Duration::from_millis(200));
        lab.router()
            .tool("tc qdisc replace dev wan0 root tbf rate 1gbit burst 1mb latency 50ms")
            .unwrap();
        let (at, began) = (sent.load(Ordering::Relaxed), Instant::now());
        let passed = || {
            let shown = lab.router().tool("tc -s qdisc show dev wan0").unwrap();
            ahead(&shown, &["Sent"], "pkt")
        };
        thread::sleep(Duration::from_millis(300));
        until("frames through the shaper", Duration::from_secs(10), || {
            (passed() > 100).then_some(())
        });
        end.store(true, Ordering::Relaxed);
        load.join().unwrap();
        let after = sent.load(Ordering::Relaxed) - at;
        let each_ms = began.elapsed().as_secs_f64() * 1e3 / after.max(1) as f64;
        late_ms.push(after.saturating_sub(passed()) as f64 * each_ms);
        let lost = sent.load(Ordering::Relaxed) - arrived.join().unwrap();
        // but for what a ring had no room for, whose thread was late
        assert!(lost <= dropped(&lab), "{lost} are lost");
        lab.router().tool("tc qdisc del dev wan0 root").unwrap();
    }
    late_ms.sort_by(f64::total_cmp);
    println!("frames passed the new qdisc by for {late_ms:.1?} ms");
    assert!(late_ms[2] <= 10.0, "{late_ms:?} ms");
    router.stop();
}

#[test]
fn marks_and_classes_are_the_kernels() {
    let Some(_machine) = machine() else { return };
    let nft = "table inet classes {\n chain c {\n type filter hook forward priority 10\n \
               udp dport 5000 meta mark set 0x7\n }\n}\n";
    let options = Options {
        extra_nft: nft.into(),
        ..Options::default()
    };
    let lab = build_with("nat", options);
    // the program: A = skb->mark; A == 7 ? 1:10 : no match (this kernel's u32 knows no marks)
    lab.router()
        .tool_with_input(
            "tc -batch -",
            "qdisc add dev wan0 root handle 1: htb default 20\n\
             class add dev wan0 parent 1: classid 1:10 htb rate 100mbit\n\
             class add dev wan0 parent 1: classid 1:20 htb rate 100mbit\n\
             filter add dev wan0 parent 1: protocol ip prio 1 bpf bytecode \
             \"4,32 0 0 4294963220,21 0 1 7,6 0 0 65552,6 0 0 0\" classid 1:1\n",
        )
        .unwrap();
    let router = Router::start(&lab);
    let ends = udp_ends(&lab);
    until_path(&router, &ends, "tc");
    let of_class = |class: &str| {
        let shown = lab.router().tool("tc -s class show dev wan0").unwrap();
        ahead(&shown, &[&format!("htb {class}")], "pkt")
    };
    let before = ["1:10", "1:20"].map(of_class);
    let fast = router.stats().fast();
    send(&ends, 200);
    let after = ["1:10", "1:20"].map(of_class);
    let fast = router.stats().fast() - fast;
    assert!(fast >= 380, "{fast} fast\n{}", router.stats());
    assert!(
        (200..205).contains(&(after[0] - before[0])),
        "{before:?} {after:?}"
    );
    assert!(after[1] - before[1] < 10, "{before:?} {after:?}");
    // by another mark, then by a priority that names the class: the kernel decides anew, and tc follows
    let rule = |action: &str| {
        let rules = format!(
            "flush chain inet classes c\nadd rule inet classes c udp dport 5000 {action}\n"
        );
        lab.router().tool_with_input("nft -f -", &rules).unwrap();
        send(&ends, 10);
        until_path(&router, &ends, "tc");
    };
    rule("meta mark set 0x8");
    let before = ["1:10", "1:20"].map(of_class);
    send(&ends, 200);
    let after = ["1:10", "1:20"].map(of_class);
    assert_eq!(after[0] - before[0], 0, "{before:?} {after:?}");
    assert!(after[1] - before[1] >= 200, "{before:?} {after:?}");
    rule("meta priority set 1:10");
    let (before, fast) = (of_class("1:10"), router.stats().fast());
    send(&ends, 200);
    let fast = router.stats().fast() - fast;
    assert!(fast >= 380, "{fast} fast\n{}", router.stats());
    assert_eq!(of_class("1:10") - before, 200);
    router.stop();
}

/// As between containers: segments of 64 KiB, and checksums that nobody has finished.
#[test]
fn merged_and_unfinished_frames_are_forwarded_as_they_are() {
    let Some(_machine) = machine() else { return };
    // where the output port finishes the checksums and cuts the frames, the receiver verifies them
    for (topology, finished) in [
        ("nat", false),
        ("nat", true),
        ("routed6", false),
        ("routed6", true),
    ] {
        let lab = build(topology);
        let switch = if finished { "off" } else { "on" };
        for (host, name) in [(lab.client(), "eth0"), (lab.server(), "eth0")] {
            host.tool(&format!("ethtool -K {name} tx on tso on gso on"))
                .unwrap();
        }
        for name in ["lan0", "wan0"] {
            lab.router()
                .tool(&format!(
                    "ethtool -K {name} tx {switch} tso {switch} gso {switch} gro on"
                ))
                .unwrap();
        }
        let router = Router::start_in(lab.router(), NO_WIRES, freeway(), &["lan0", "wan0"]);
        let (from, to) = match topology {
            "nat" => ("192.0.2.2:40001", "198.51.100.2:5001"),
            _ => ("[2001:db8:1::2]:40001", "[2001:db8:2::2]:5001"),
        };
        let listener = listen(lab.server(), address(to));
        let mut ends = pair((lab.client(), address(from)), address(to), &listener);
        let flows = router.wait_fast_while("proto tcp", 2, 1, || exchange_blocks(&mut ends, 10));
        assert!(flows.iter().all(|flow| flow["path"] == "tc"), "{flows:#?}");
        let retransmitted = || retransmitted(lab.client()).0 + retransmitted(lab.server()).0;
        let (lost, before) = (retransmitted(), router.stats());
        exchange_blocks(&mut ends, 200);
        let after = router.stats();
        let bytes = after.fast_bytes() - before.fast_bytes();
        let frames = after.fast() - before.fast();
        let sent = 2 * 200 * BLOCK as u64;
        println!(
            "{topology}, finished {finished}: {bytes} of {sent} bytes fast in {frames} frames; sent again: {}\n{after}",
            retransmitted() - lost
        );
        // headers are counted, too
        assert!(
            bytes > sent * 8 / 10,
            "{bytes} of {sent} bytes fast\n{after}"
        );
        assert!(frames > sent / 1500, "{frames} frames");
        assert!(
            bytes < sent * 12 / 10,
            "{bytes} of {sent} bytes fast\n{after}"
        );
        router.stop();
    }
}

#[test]
fn merged_datagrams_are_forwarded_as_they_are() {
    const DATAGRAMS: usize = 8;
    const SENDS: usize = 50;
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    for (host, name) in [
        (lab.client(), "eth0"),
        (lab.router(), "lan0"),
        (lab.router(), "wan0"),
        (lab.server(), "eth0"),
    ] {
        host.tool(&format!("ethtool -K {name} tx on tso on gso on gro on"))
            .unwrap();
    }
    let router = Router::start_in(lab.router(), NO_WIRES, freeway(), &["lan0", "wan0"]);
    let ends = udp_ends(&lab);
    until_path(&router, &ends, "tc");
    let block = [7; 1000 * DATAGRAMS];
    setsockopt(&ends.0, UdpGsoSegment, &1000).unwrap();
    setsockopt(&ends.1, UdpGroSegment, &true).unwrap();
    let send_merged = |sends| {
        for _ in 0..sends {
            ends.0.send_to(&block, address(SERVER)).unwrap();
            let mut room = [0; 2 * 1000 * DATAGRAMS];
            assert_eq!(ends.1.recv(&mut room).unwrap(), block.len(), "it was cut");
        }
    };
    // the kernel is to have sent one of that length
    until("merged datagrams are fast", PATIENCE, || {
        let before = router.stats().fast();
        send_merged(1);
        (router.stats().fast() - before >= DATAGRAMS as u64).then_some(())
    });
    // one that is held up has the kernel take over
    let (frames, octets) = until("most of them are fast", PATIENCE, || {
        let before = router.stats();
        send_merged(SENDS);
        let after = router.stats();
        let frames = after.fast() - before.fast();
        println!("{frames} fast\n{after}");
        let most = (SENDS * DATAGRAMS) as u64 * 8 / 10;
        (frames > most).then_some((frames, after.fast_bytes() - before.fast_bytes()))
    });
    // as on a wire: each with its headers
    assert_eq!(octets, frames * (14 + 20 + 8 + 1000));
}

/// From when its flows have moved on, a sniffer with that filter sees all that is sent.
fn sees_every_frame(lab: &Lab, router: &Router, ends: &(UdpSocket, UdpSocket), filter: &str) {
    let mut tcpdump = lab
        .router()
        .spawn(
            Command::new("tcpdump")
                .args(["-i", "wan0", "-n", "-l", "-B", "8192", filter])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null()),
        )
        .unwrap();
    let moved = until_path(router, ends, "tc");
    let fast = router.stats().fast();
    // it was there before: from a second after its start on nothing is missed
    send(ends, 300);
    let fast = router.stats().fast() - fast;
    thread::sleep(Duration::from_millis(1500));
    kill(Pid::from_raw(tcpdump.id().cast_signed()), Signal::SIGINT).unwrap();
    let mut text = String::new();
    tcpdump
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    tcpdump.wait().unwrap();
    let seen = text.lines().count();
    println!("{filter}: to tc within {moved:?}; then {fast} fast, tcpdump saw {seen}");
    assert!(seen >= 300, "{seen} seen");
    assert!(fast > 500, "{fast} fast\n{}", router.stats());
    let back = until_path(router, ends, "xdp");
    println!("XDP again within {back:?}");
}

#[test]
fn tcpdump_sees_every_frame() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let router = Router::start(&lab);
    let ends = udp_ends(&lab);
    until_path(&router, &ends, "xdp");
    sees_every_frame(&lab, &router, &ends, "udp and dst port 5000");
    // of what the flow's addresses and ports do not tell
    sees_every_frame(
        &lab,
        &router,
        &ends,
        "udp dst port 5000 and ip[8] = 63 and greater 43",
    );
    router.stop();
}

#[test]
fn a_port_can_be_forced_to_a_path() {
    let Some(_machine) = machine() else { return };
    for (path, shaped) in [("tc", "tc"), ("xdp", "kernel")] {
        let lab = build("nat");
        let config = lab.config_toml(&format!("path = \"{path}\"\n"));
        let router = Router::start_in(lab.router(), &config, freeway(), &["lan0", "wan0"]);
        let ends = udp_ends(&lab);
        until_path(&router, &ends, path);
        lab.router()
            .tool("tc qdisc replace dev wan0 root tbf rate 1gbit burst 1mb latency 50ms")
            .unwrap();
        if shaped == "tc" {
            until_path(&router, &ends, "tc");
        } else {
            send(&ends, 100);
            let flows = router.flows("proto udp dport 5000");
            assert_eq!(flows, Vec::<Value>::new());
        }
        router.stop();
    }
}
