// SPDX-License-Identifier: MIT OR Apache-2.0
//! What docs/limits.md says: where Freeway differs from the kernel alone, and by how much.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, MAC_WAN, sum16};
use freeway_lab::{Capture, Injector, Options};
use freeway_testkit::*;
use serde_json::Value;

/// IPS_TCP_FLAG_BE_LIBERAL of a direction (IP_CT_TCP_FLAG_BE_LIBERAL).
const BE_LIBERAL: u8 = 0x08;

/// Sends datagrams one after the other, each of which must arrive.
fn send(ends: &(UdpSocket, UdpSocket), datagrams: usize) {
    let mut room = [0; 64];
    for n in 0..datagrams {
        ends.0.send_to(&n.to_be_bytes(), SERVER).unwrap();
        assert_eq!(ends.1.recv(&mut room).unwrap(), 8, "datagram {n}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Packets of the client's flow that were fast.
fn fast(router: &Router) -> u64 {
    let flows = router.flows("proto udp dport 5000");
    flows
        .first()
        .map_or(0, |flow| flow["packets"].as_u64().unwrap())
}

/// The first number after a word.
fn after(text: &str, word: &str) -> u64 {
    let rest = text
        .split_once(word)
        .unwrap_or_else(|| panic!("no {word} in {text}"))
        .1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn counters_of_the_kernel_have_what_it_saw_and_freeways_the_rest() {
    let Some(_machine) = machine() else { return };
    let nft = "table inet counted {\n chain c {\n type filter hook forward priority 10\n \
               udp dport 5000 counter\n }\n}\n";
    let lab = build_with(
        "nat",
        Options {
            extra_nft: nft.into(),
            ..Options::default()
        },
    );
    lab.router()
        .sysctl("net/netfilter/nf_conntrack_acct", "1")
        .unwrap();
    // harmless to Freeway, and it counts
    lab.router()
        .tool("tc qdisc replace dev wan0 root pfifo limit 1000")
        .unwrap();
    let router = Router::start(&lab);
    let ends = udp_ends(&lab);
    const SENT: usize = 2000;
    send(&ends, SENT);
    let sent = SENT as u64;
    let stats = router.stats();
    // XDP's, but for what the daemon has moved to tc meanwhile, which goes through the qdisc
    let (fast, tc) = (stats.fast(), stats.reason("owner"));
    let counter = lab.router().tool("nft list chain inet counted c").unwrap();
    let conntrack = lab
        .router()
        .tool("conntrack -L -p udp --orig-port-dst 5000")
        .unwrap();
    let qdisc = lab.router().tool("tc -s qdisc show dev wan0").unwrap();
    let slow = after(&counter, "packets ");
    println!("{sent} datagrams: {fast} fast, {slow} by the kernel\n{conntrack}{qdisc}");
    if tc > 0 {
        println!("{tc} in tc: {}", router.status()["ports"]);
    }
    assert_eq!(fast + slow, sent, "{stats}");
    assert!(slow < sent / 4, "{stats}");
    assert_eq!(after(&conntrack, "packets="), slow);
    let sent_text = qdisc.split_once(" bytes ").unwrap().1;
    let queued: u64 = sent_text.split(' ').next().unwrap().parse().unwrap();
    // ARP and the like pass it, too
    let expected = slow + tc..slow + tc + 10;
    assert!(expected.contains(&queued), "{queued}: {qdisc}");
    router.stop();
}

/// The client's datagram with a checksum that is wrong by one.
fn wrong() -> Vec<u8> {
    // as long as what the flow has shown
    let payload = b"bad sum!";
    let len = 8 + payload.len() as u16;
    let mut ip = vec![0x45, 0];
    ip.extend((20 + len).to_be_bytes());
    ip.extend([0x12, 0x34, 0x40, 0, 64, 17, 0, 0]);
    ip.extend([192, 0, 2, 2, 198, 51, 100, 2]);
    let check = !sum16(&ip);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    let mut udp = Vec::new();
    for word in [40000, 5000, len, 0] {
        udp.extend(word.to_be_bytes());
    }
    udp.extend(payload);
    let pseudo = [&ip[12..20], &[0, 17], &len.to_be_bytes(), &udp].concat();
    let check = (!sum16(&pseudo)).wrapping_add(1);
    udp[6..8].copy_from_slice(&check.to_be_bytes());
    [&MAC_LAN[..], &MAC_CLIENT, &[8, 0], &ip, &udp].concat()
}

#[test]
fn a_wrong_l4_checksum_stays_wrong() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let router = Router::start(&lab);
    let ends = udp_ends(&lab);
    let injector = Injector::open(lab.client_port()).unwrap();
    let mut capture = Capture::open(lab.server_port()).unwrap();
    let mut arrived = || {
        for _ in 0..10 {
            injector.send(&wrong()).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        let ours = |bytes: &[u8]| bytes[6..12] == MAC_WAN && bytes.ends_with(b"bad sum!");
        let frames = capture.drain(Duration::from_millis(300), ours).unwrap();
        frames
            .into_iter()
            .map(|frame| frame.bytes)
            .collect::<Vec<_>>()
    };
    until("the flow is fast", PATIENCE, || {
        let before = fast(&router);
        send(&ends, 100);
        (fast(&router) > before + 50).then_some(())
    });
    // now and then a packet revalidates the flow: conntrack takes it for invalid
    let frames = until("8 of 10 arrive", PATIENCE, || {
        Some(arrived()).filter(|frames| frames.len() >= 8)
    });
    for frame in frames {
        assert_eq!(frame[26..30], [198, 51, 100, 1], "translated");
        let segment = &frame[34..];
        let len = (segment.len() as u16).to_be_bytes();
        let sum = sum16(&[&frame[26..34], &[0, 17], &len, segment].concat());
        assert_eq!(sum, 1, "wrong by one, as it came");
    }
    router.json(&["off"]);
    assert_eq!(arrived(), Vec::<Vec<u8>>::new(), "the kernel drops it");
    router.stop();
}

#[test]
fn window_tracking_stays_liberal() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let flags = || {
        let tcp = connection_from(&lab, 6, 40001).unwrap().tcp.unwrap();
        [tcp.flags_orig, tcp.flags_reply].map(|flags| flags & BE_LIBERAL != 0)
    };
    let to = address("198.51.100.2:5001");
    let listener = listen(lab.server(), to);
    let router = Router::start(&lab);
    let mut ends = pair((lab.client(), address("192.0.2.2:40001")), to, &listener);
    assert_eq!(flags(), [false, false]);
    router.wait_fast_while("proto tcp", 2, 1, || exchange_blocks(&mut ends, 8));
    assert_eq!(flags(), [true, true]);
    router.json(&["off"]);
    exchange_blocks(&mut ends, 8);
    assert_eq!(flags(), [true, true], "the kernel offers no way back");
    router.stop();
    assert_eq!(flags(), [true, true]);
}

/// Sends until fast packets come or stay away for 100 datagrams; how long that took.
fn until_fast(router: &Router, ends: &(UdpSocket, UdpSocket), wanted: bool) -> Duration {
    let start = Moment::now();
    loop {
        let before = router.stats().fast();
        send(ends, 100);
        let more = router.stats().fast() - before;
        if (more >= 90) == wanted && (wanted || more == 0) {
            return start.elapsed();
        }
        let stats = router.stats();
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{more} fast\n{stats}"
        );
    }
}

/// A packet in the clear must not follow one that came out of a tunnel; only the kernel can tell them apart.
#[test]
fn what_an_ipsec_policy_admits_is_the_kernels() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let router = Router::start(&lab);
    let ends = udp_ends(&lab);
    until_fast(&router, &ends, true);
    // optional, so that packets in the clear pass
    let policy = |net: &str| {
        format!(
            "ip xfrm policy add src {net} dst 198.51.100.0/24 dir fwd tmpl proto esp mode tunnel level use"
        )
    };
    lab.router().tool(&policy("192.0.2.128/25")).unwrap();
    until_fast(&router, &ends, true);
    lab.router().tool(&policy("192.0.2.0/25")).unwrap();
    until_fast(&router, &ends, false);
    let status = router.status().to_string();
    assert!(status.contains("ipsec forward: policy"), "{status}");
    assert!(status.contains("from 192.0.2.0/25"), "{status}");
    lab.router().tool("ip xfrm policy flush").unwrap();
    until_fast(&router, &ends, true);
    router.stop();
}

/// Sends a flow in and out of the same port; how many redirects the client got.
fn redirects(freeway: bool) -> (u64, Option<Value>) {
    let lab = build("routed");
    let client = lab.client();
    for line in [
        "ip address add 203.0.113.2/32 dev eth0",
        "ip route add default via 192.0.2.1 dev eth0 table 100",
        "ip rule add pref 10 lookup local",
        "ip rule add pref 5 iif lo from 192.0.2.2 to 203.0.113.2 lookup 100",
        "ip rule del pref 0",
    ] {
        client.tool(line).unwrap();
    }
    for (name, value) in [
        ("accept_local", "1"),
        ("accept_redirects", "0"),
        ("secure_redirects", "0"),
    ] {
        client
            .sysctl(&format!("net/ipv4/conf/eth0/{name}"), value)
            .unwrap();
    }
    client
        .sysctl("net/ipv4/conf/all/accept_redirects", "0")
        .unwrap();
    lab.router()
        .tool("ip route add 203.0.113.0/24 via 192.0.2.2 dev lan0")
        .unwrap();
    let router = freeway.then(|| Router::start(&lab));
    let near = udp(client, address("192.0.2.2:20000"));
    let far = udp(client, address("203.0.113.2:7000"));
    far.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut room = [0; 64];
    for n in 0..100u32 {
        near.send_to(&n.to_be_bytes(), "203.0.113.2:7000").unwrap();
        assert_eq!(far.recv(&mut room).unwrap(), 4, "datagram {n}");
        thread::sleep(Duration::from_millis(30));
    }
    let snmp = client.tool("nstat -asz IcmpInRedirects").unwrap();
    let count = snmp
        .split_whitespace()
        .skip_while(|word| *word != "IcmpInRedirects")
        .nth(1);
    let stats = router.as_ref().map(|router| router.stats().0);
    if let Some(router) = router {
        assert!(router.stats().fast() > 50, "{}", router.stats());
        router.stop();
    }
    (count.unwrap().parse().unwrap(), stats)
}

#[test]
fn redirects_are_sent_for_what_the_kernel_sees() {
    let Some(_machine) = machine() else { return };
    let (kernel, _) = redirects(false);
    let (freeway, _) = redirects(true);
    println!("{kernel} redirects by the kernel alone, {freeway} with Freeway");
    assert!(
        freeway >= 1 && freeway < kernel,
        "{freeway}, kernel {kernel}"
    );
}

/// The top of the checkout.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file that the page names: below the top, below tests, or in one of its folders.
fn file(name: &str) -> PathBuf {
    if let Some(name) = name.strip_prefix("cmm/") {
        return top().join("crates/cmm/src/tests").join(name);
    }
    if let Some(name) = name.strip_prefix("daemon/") {
        return top().join("crates/daemon/src").join(name);
    }
    let tests = top().join("tests");
    let folders = fs::read_dir(&tests).unwrap();
    let folders = folders.map(|folder| folder.unwrap().path());
    [top(), tests.clone()]
        .into_iter()
        .chain(folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn the_tests_that_the_page_names_exist() {
    let page = fs::read_to_string(top().join("docs/limits.md")).unwrap();
    // of tables that have tests, these are the last column
    let (mut named, mut of_tests) = (0, false);
    let mut lines = page.lines().peekable();
    while let Some(row) = lines.next() {
        let head = lines.peek().is_some_and(|next| next.starts_with("| ---"));
        if head || !row.starts_with("| ") {
            of_tests = head && row.ends_with(" test |");
            continue;
        }
        if !of_tests || row.starts_with("| ---") {
            continue;
        }
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        assert!(tests.contains('`'), "no test: {row}");
        let mut text = String::new();
        for (n, part) in tests.split('`').enumerate() {
            if n % 2 == 0 {
                // words of vectors between the names
                for words in part.split('"').skip(1).step_by(2) {
                    assert!(text.contains(words), "{words}: {row}");
                    named += 1;
                }
            } else if part.ends_with(".rs") || part.ends_with(".toml") {
                text = fs::read_to_string(file(part)).unwrap();
                named += 1;
            } else if part.contains('_') && !part.contains(' ') {
                let name = part.trim_end_matches("...");
                assert!(text.contains(name), "{name}: {row}");
                named += 1;
            }
        }
    }
    assert!(named > 60, "{named} names were found");
}
