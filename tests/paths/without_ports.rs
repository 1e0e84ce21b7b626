// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has no ports and is fast all the same: echoes, and the ESP and GRE of tunnels that end elsewhere.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, MAC_SERVER, MAC_WAN, sum16};
use freeway_lab::{Capture, Injector, Lab, Options};
use freeway_testkit::*;

const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// A poll and what comes after it.
const POLLED: Duration = Duration::from_secs(3);

/// What `ping` says in the end.
fn ping(lab: &Lab, arguments: &str) -> String {
    let mut command = Command::new("ping");
    command.args(["-q", "-n"]).args(arguments.split(' '));
    let output = lab.client().place(&mut command).unwrap().output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Both directions are fast, in the words of `flows` and `explain` too; an element of the flows.
fn pings_are_fast(lab: &Lab, router: &Router, proto: &str, (from, to): (&str, &str)) {
    let said = ping(lab, &format!("-c 400 -i 0.005 {to}"));
    assert!(said.contains("400 received"), "{said}");
    let flows = router.flows(&format!("proto {proto}"));
    assert_eq!(flows.len(), 2, "{flows:#?}");
    let fast: u64 = flows.iter().map(|f| f["packets"].as_u64().unwrap()).sum();
    assert!(fast > 600, "{fast} of 800: {flows:#?}");
    let opening = flows.iter().find(|flow| flow["src"] == from).unwrap();
    let id = opening["sport"].to_string();
    let explained = router.json(&["explain", proto, from, to, &id, "--watch", "0"]);
    assert_eq!(explained["verdict"], "fast", "{explained:#}");
    assert!(explained["reply_flow"].is_object(), "{explained:#}");
    let listed = router.run(&["flows", "proto", proto]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for words in ["echo request id", "echo reply id"] {
        assert!(listed.contains(words), "{listed}");
    }
}

#[test]
fn echoes_through_nat_are_fast() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let router = Router::start(&lab);
    pings_are_fast(&lab, &router, "icmp", ("192.0.2.2", "198.51.100.2"));
    // a rule against them holds for the next one
    let mut pinging = Command::new("ping");
    pinging.args(["-n", "-i", "0.005", "-c", "2000", "198.51.100.2"]);
    let mut pinging = lab
        .client()
        .spawn(pinging.stdout(Stdio::null()).stderr(Stdio::null()))
        .unwrap();
    router.wait_fast("proto icmp", 2, 100);
    let line = "nft insert rule inet filter forward meta l4proto icmp drop";
    lab.router().tool(line).unwrap();
    thread::sleep(Duration::from_millis(500));
    let before = router.stats().fast();
    thread::sleep(Duration::from_millis(500));
    assert_eq!(router.stats().fast(), before, "fast past a rule against it");
    pinging.kill().unwrap();
    pinging.wait().unwrap();
    router.stop();
}

#[test]
fn echoes_of_ipv6_are_fast_with_and_without_nat() {
    let Some(_machine) = machine() else { return };
    let ends = ("2001:db8:1::2", "2001:db8:2::2");
    let masquerade = "table ip6 nat {\n chain postrouting {\n\
                      type nat hook postrouting priority srcnat;\n\
                      oifname \"wan0\" masquerade\n }\n}\n";
    for extra_nft in ["", masquerade] {
        let lab = build_with(
            "routed6",
            Options {
                extra_nft: extra_nft.into(),
                ..Options::default()
            },
        );
        let router = Router::start(&lab);
        pings_are_fast(&lab, &router, "icmpv6", ends);
        router.stop();
    }
}

#[test]
fn what_the_policy_excludes_is_the_kernels() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let router = Router::start_with(&lab, "[policy]\nicmp = false\n");
    let said = ping(&lab, "-c 100 -i 0.005 198.51.100.2");
    assert!(said.contains("100 received"), "{said}");
    assert_eq!(router.stats().fast(), 0);
    router.stop();
}

/// A packet of a tunnel, by its protocol, its first octets and a number.
#[derive(Clone, Copy, Debug)]
struct Tunnel {
    proto: u8,
    id: u32,
}

const TUNNELS: [Tunnel; 3] = [
    Tunnel {
        proto: 50,
        id: 0xc0de_0001,
    },
    Tunnel {
        proto: 50,
        id: 0xc0de_0002,
    },
    // a key, Ethernet within
    Tunnel {
        proto: 47,
        id: 0x2000_6558,
    },
];

impl Tunnel {
    fn frame(self, macs: [[u8; 6]; 2], ends: [Ipv4Addr; 2], ttl: u8, number: u32) -> Vec<u8> {
        let mut l4 = self.id.to_be_bytes().to_vec();
        l4.extend(number.to_be_bytes());
        l4.extend((0..200).map(|i| i as u8 ^ number as u8));
        let mut ip = vec![0x45, 0];
        ip.extend((20 + l4.len() as u16).to_be_bytes());
        ip.extend((number as u16).to_be_bytes());
        ip.extend([0x40, 0, ttl, self.proto, 0, 0]);
        ip.extend(ends.map(|end| end.octets()).as_flattened());
        let check = !sum16(&ip);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        [macs.as_flattened(), &[8, 0], &ip, &l4].concat()
    }
}

/// Both hosts' ends.
struct Ends {
    send: [Injector; 2],
    receive: [Capture; 2],
}

impl Ends {
    fn open(lab: &Lab) -> Self {
        let ports = [lab.client_port(), lab.server_port()];
        Self {
            send: ports.map(|port| Injector::open(port).unwrap()),
            receive: ports.map(|port| Capture::open(port).unwrap()),
        }
    }

    /// A packet of each tunnel each way: what leaves is what the kernel would send.
    fn round(&mut self, number: u32) {
        for tunnel in TUNNELS {
            let there = tunnel.frame([MAC_LAN, MAC_CLIENT], [CLIENT, SERVER], 64, number);
            let left = tunnel.frame([MAC_SERVER, MAC_WAN], [ROUTER, SERVER], 63, number);
            self.pass(0, &there, &left);
            // another SPI the other way
            let tunnel = Tunnel {
                id: tunnel.id ^ if tunnel.proto == 50 { 0x10_0000 } else { 0 },
                ..tunnel
            };
            let back = tunnel.frame([MAC_WAN, MAC_SERVER], [SERVER, ROUTER], 60, number);
            let left = tunnel.frame([MAC_CLIENT, MAC_LAN], [SERVER, CLIENT], 59, number);
            self.pass(1, &back, &left);
        }
    }

    fn pass(&mut self, from: usize, frame: &[u8], left: &[u8]) {
        self.send[from].send(frame).unwrap();
        let of_tunnel = |frame: &[u8]| frame.len() > 34 && [47, 50].contains(&frame[23]);
        let seen = self.receive[1 - from]
            .collect(1, Duration::from_secs(2), of_tunnel)
            .unwrap();
        let [seen] = seen.as_slice() else {
            panic!("lost: {frame:02x?}")
        };
        assert_eq!(seen.bytes, left);
    }
}

fn are_fast(router: &Router) -> bool {
    let active = |filter| {
        let flows = router.flows(filter);
        flows
            .iter()
            .filter(|flow| flow["state"] == "active")
            .count()
    };
    active("proto esp") == 4 && active("proto gre") == 2
}

#[test]
fn tunnels_that_pass_are_fast() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let mut ends = Ends::open(&lab);
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    // these connections began before anybody listened, and tell nobody when they end
    ends.round(next());
    // none leaves for being idle, however long a busy machine takes
    let router = Router::start_with(&lab, "[flows]\nudp_idle_s = 3600\n");
    until("all are fast", Duration::from_secs(10), || {
        ends.round(next());
        are_fast(&router).then_some(())
    });
    let before = router.stats().fast();
    for _ in 0..50 {
        ends.round(next());
    }
    let fast = router.stats().fast() - before;
    assert!(fast >= 280, "{fast} of 300\n{}", router.stats());
    assert!(are_fast(&router), "{:#?}", router.flows(""));
    let explained = router.json(&[
        "explain",
        "esp",
        "192.0.2.2",
        "198.51.100.2",
        "0xc0de0001",
        "--watch",
        "0",
    ]);
    assert_eq!(explained["verdict"], "fast", "{explained:#}");
    lab.router().tool("conntrack -F").unwrap();
    until("flows leave with their connections", POLLED, || {
        router.flows("").is_empty().then_some(())
    });
    // connections that do tell
    until("all are fast again", Duration::from_secs(10), || {
        ends.round(next());
        are_fast(&router).then_some(())
    });
    // multipath routes would choose by what is within
    let policy = "net/ipv4/fib_multipath_hash_policy";
    lab.router().sysctl(policy, "1").unwrap();
    until("GRE leaves", POLLED, || {
        router.flows("proto gre").is_empty().then_some(())
    });
    for _ in 0..20 {
        ends.round(next());
    }
    assert!(router.flows("proto gre").is_empty());
    assert_eq!(router.flows("proto esp").len(), 4);
    router.stop();
}
