// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the crate tells of devices, sockets, programs, sysctls and the kernel itself.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{attempt, in_namespace, run};
use freeway_kernel::cbpf::{Instruction, Sketch};
use freeway_kernel::ethtool::Ethtool;
use freeway_kernel::probe::{Outcome, kernel_version, probe_all};
use freeway_kernel::sockets::{PacketSocket, packet_sockets};
use freeway_kernel::sysctl::Sysctls;
use freeway_kernel::{hooks, netdev, nft, progs};
use freeway_testkit::Moment;

/// Frames of a flow of IPv4 between any addresses, of which is known that they are no fragments, nor SYN, FIN and RST.
fn frame(ethertype: u16, protocol: u8, dport: u16) -> Sketch {
    let mut frame = Sketch::default();
    for _ in 0..2 {
        // of no group
        frame.put_bits(0, 1);
        frame.skip(5);
    }
    frame.put(&ethertype.to_be_bytes());
    frame.put(&[0x45]);
    frame.skip(5);
    frame.put_bits(0, 0x3f);
    frame.put(&[0]);
    frame.skip(1);
    frame.put(&[protocol]);
    frame.skip(10);
    frame.put(&[0x9c, 0x40]);
    frame.put(&dport.to_be_bytes());
    frame.skip(9);
    frame.put_bits(0x10, 0x17);
    frame
}

/// As tcpdump compiles it.
fn filter(expression: &str) -> Option<Vec<Instruction>> {
    let mut tcpdump = Command::new("tcpdump");
    let output = tcpdump.args(["-y", "EN10MB", "-ddd", expression]).output();
    let text = String::from_utf8(output.ok()?.stdout).unwrap();
    let instruction = |line: &str| {
        let mut numbers = line.split(' ').map(|number| number.parse::<u32>().unwrap());
        let mut next = || numbers.next().unwrap();
        Instruction {
            code: next() as u16,
            jt: next() as u8,
            jf: next() as u8,
            k: next(),
        }
    };
    Some(text.lines().skip(1).map(instruction).collect())
}

/// A running tcpdump, ended with the test.
struct Sniffer(Child);

impl Sniffer {
    fn start(arguments: &str) -> Option<Sniffer> {
        let words = arguments.split_whitespace();
        let child = Command::new("tcpdump")
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child.ok().map(Sniffer)
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(wanted: impl Fn(&PacketSocket) -> bool) -> PacketSocket {
    let start = Moment::now();
    loop {
        let sockets = packet_sockets().unwrap();
        if let Some(socket) = sockets.iter().find(|socket| wanted(socket)) {
            return socket.clone();
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{sockets:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn sniffers_are_told_from_daemons() {
    in_namespace(|| {
        run("ip link add v0 type veth peer name v1");
        run("ip link set v0 up");
        assert_eq!(packet_sockets().unwrap(), []);
        let Some(sniffer) = Sniffer::start("-i v0 -n") else {
            eprintln!("skipped: no tcpdump");
            return;
        };
        let all = wait_for(|socket| socket.ifindex.is_some() && socket.protocol == 3);
        let v0 = all.ifindex.unwrap();
        assert!(all.accepts(v0, &frame(0x0800, 6, 80), false));
        assert!(all.accepts(v0, &frame(0x0800, 6, 80), true));
        assert!(!all.accepts(v0 + 100, &frame(0x0800, 6, 80), false));
        drop(sniffer);
        let _filtered = Sniffer::start("-i v0 -n udp port 68").unwrap();
        let dhcp = wait_for(|socket| {
            socket
                .filter
                .as_ref()
                .is_some_and(|filter| filter.len() > 3)
        });
        assert!(dhcp.accepts(v0, &frame(0x0800, 17, 68), false));
        assert!(!dhcp.accepts(v0, &frame(0x0800, 17, 443), false));
        assert!(!dhcp.accepts(v0, &frame(0x0800, 6, 68), false));
        let _lldp = Sniffer::start("-i v0 -n ether proto 0x88cc").unwrap();
        let lldp = wait_for(|socket| {
            socket
                .filter
                .as_ref()
                .is_some_and(|f| f.iter().any(|i| i.k == 0x88cc))
        });
        assert!(!lldp.accepts(v0, &frame(0x0800, 6, 80), false));
        assert!(lldp.accepts(v0, &frame(0x88cc, 0, 0), false));
    });
}

/// What a flow's addresses and ports do not tell may be so; what they tell is.
#[test]
fn a_filter_takes_what_some_frame_of_a_flow_may_be() {
    let frame = frame(0x0800, 6, 80);
    for (expression, takes) in [
        ("tcp port 80", true),
        ("not udp", true),
        ("ether host 02:00:00:00:01:01", true),
        ("ether src 02:00:00:00:01:01 and tcp", true),
        ("greater 1000", true),
        ("less 100 and not port 22", true),
        ("tcp[13] & 8 != 0", true),
        ("ip[1] != 0", true),
        ("ip[8] < 5", true),
        ("tcp[20:4] = 0x47455420", true),
        ("tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420", true),
        ("host 192.0.2.1", true),
        ("udp", false),
        ("tcp port 81", false),
        ("arp", false),
        ("ip6", false),
        ("ether multicast", false),
        ("ether host 02:00:00:00:01:01 and arp", false),
        ("greater 1000 and udp", false),
        ("tcp[tcpflags] & (tcp-syn|tcp-fin|tcp-rst) != 0", false),
        ("ip[6:2] & 0x1fff != 0", false),
    ] {
        let Some(filter) = filter(expression) else {
            println!("skipped: no tcpdump");
            return;
        };
        let socket = PacketSocket {
            ifindex: None,
            protocol: 3,
            cooked: false,
            inode: 0,
            uid: None,
            filter: Some(filter),
        };
        assert_eq!(socket.accepts(1, &frame, false), takes, "{expression}");
    }
}

#[test]
fn protocol_bound_sockets_see_only_theirs() {
    let socket = PacketSocket {
        ifindex: None,
        protocol: 0x0800,
        cooked: false,
        inode: 0,
        uid: None,
        filter: None,
    };
    assert!(socket.accepts(1, &frame(0x0800, 6, 80), false));
    assert!(!socket.accepts(1, &frame(0x0800, 6, 80), true));
    assert!(!socket.accepts(1, &frame(0x86dd, 6, 80), false));
    assert!(!socket.accepts(1, &Sketch::default(), false));
    let nothing = PacketSocket {
        protocol: 0,
        ..socket
    };
    assert!(!nothing.accepts(1, &frame(0x0800, 6, 80), false));
}

#[test]
fn drivers_and_features() {
    in_namespace(|| {
        run("ip link add v0 type veth peer name v1");
        let ethtool = Ethtool::open().unwrap();
        assert_eq!(ethtool.driver("v0").unwrap().name, "veth");
        let features = ethtool.features("v0").unwrap();
        assert_eq!(
            features.get("tx-tcp-segmentation"),
            Some(&true),
            "{features:?}"
        );
        run("ethtool -K v0 tso off");
        assert_eq!(
            ethtool.features("v0").unwrap().get("tx-tcp-segmentation"),
            Some(&false)
        );
        assert!(features.contains_key("rx-gro"));
        let error = ethtool.driver("no-such-link0").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV));
        assert!(error.to_string().contains("no-such-link0"), "{error}");
        if let Some(features) = netdev::xdp_features().unwrap() {
            assert!(
                features.values().any(|f| f.has(netdev::XdpFeatures::BASIC)),
                "{features:?}"
            );
        }
        if let Some(tcx) = progs::tcx(1).unwrap() {
            assert_eq!(tcx, progs::Tcx::default());
        }
    });
}

#[test]
fn sysctls_are_of_the_namespace() {
    in_namespace(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        assert_eq!(Sysctls::read().ip_forward, Some(1));
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
        let sysctls = Sysctls::read();
        assert_eq!(sysctls.ip_forward, Some(0));
        assert!(sysctls.tcp_timeout_established_s.is_some_and(|s| s > 0));
    });
}

#[test]
fn legacy_tables_are_seen() {
    in_namespace(|| {
        assert_eq!(nft::legacy_tables(), []);
        if !attempt("iptables-legacy -t mangle -S").0 {
            eprintln!("skipped: no legacy iptables");
            return;
        }
        let tables = nft::legacy_tables();
        assert_eq!((tables.len(), tables[0].rules), (1, Some(0)), "{tables:?}");
        assert!(freeway_kernel::analyse(&nft::Ruleset::read().unwrap()).safe);
        if !attempt("iptables-legacy -A FORWARD -m limit --limit 1/s -j DROP").0 {
            eprintln!("skipped: no legacy iptables");
            return;
        }
        let filter = || {
            let mut tables = nft::legacy_tables();
            tables.retain(|t| t.family == "ip" && t.name == "filter");
            tables.pop().unwrap()
        };
        let before = filter();
        assert_eq!(before.rules, Some(1));
        assert_eq!(filter().digest, before.digest);
        run("iptables-legacy -R FORWARD 1 -m limit --limit 2/s -j DROP");
        assert_ne!(
            filter().digest,
            before.digest,
            "another rule, as many of them"
        );
        let analysis = freeway_kernel::analyse(&nft::Ruleset::read().unwrap());
        assert_eq!(analysis.findings[0].table, "filter (iptables-legacy)");
    });
}

#[test]
fn a_new_kernel_has_what_it_should() {
    in_namespace(|| {
        let version = kernel_version().unwrap();
        for result in probe_all() {
            let optional = result.name == "conntrack events";
            match &result.outcome {
                Outcome::Present => {}
                Outcome::Missing(_) if version < result.since || optional => {
                    assert!(result.to_string().contains("needed for"), "{result}");
                }
                _ => panic!("{result}"),
            }
        }
        let hooks = hooks::forwarding_hooks().unwrap();
        assert!(hooks.is_none_or(|hooks| hooks.iter().all(|hook| !hook.function.is_empty())));
    });
}

#[test]
fn hooks_tell_whether_connections_are_tracked() {
    in_namespace(|| {
        let tracks = || hooks::forwarding_hooks().unwrap().map(|f| hooks::track(&f));
        let Some(without) = tracks() else {
            println!("skipped: this kernel does not list its hooks");
            return;
        };
        assert_eq!(without, [false; 2]);
        common::nft("table ip t { chain c { type filter hook input priority 0; ct state new } }");
        assert_eq!(tracks(), Some([true, false]));
    });
}

#[test]
fn the_kernels_own_hooks_are_known() {
    in_namespace(|| {
        common::nft(
            "table inet t { chain out { type nat hook postrouting priority 100; masquerade }
             chain forward { type filter hook forward priority 0; ct state established accept }
             chain in { type nat hook prerouting priority -100; tcp dport 80 dnat ip to 192.0.2.1 } }",
        );
        let Some(hooks) = hooks::forwarding_hooks().unwrap() else {
            eprintln!("skipped: this kernel does not list its hooks");
            return;
        };
        assert!(hooks.iter().any(|hook| hook.nftables), "{hooks:#?}");
        let foreign: Vec<_> = hooks.iter().filter(|hook| hook.is_foreign()).collect();
        assert!(foreign.is_empty(), "{foreign:#?}");
    });
}
