// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `explain` says in each situation at each kind of port, from packets that came: in XDP, in tc, without a link
//! layer, at a bridge, at a VLAN. And why the kernel drops them, where it does.
//!
//! ```text
//!      sender                     router                     receiver
//!  +------------+         +---------------------+         +------------+
//!  |            |---------| in              out |---------|            |
//!  +------------+         +---------------------+         +------------+
//! ```
//! The sender is the lab's client, but behind a tunnel its server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use freeway_lab::{Filter, Lab, Netns, Options, Topology};
use freeway_testkit::tunnel::{TUN, Tunnel};
use freeway_testkit::*;
use serde_json::Value;

const CLIENT_IP: &str = "192.0.2.2";
const SERVER_IP: &str = "198.51.100.2";
const TUN_ROUTER: &str = "10.9.0.1";
const TUN_SERVER: &str = "10.9.0.2";
/// No router knows the way there.
const NOWHERE: &str = "203.0.113.9";
/// An address of the sender to which the router would send by its other port.
const ELSEWHERE: &str = "203.0.113.77";
/// How long an answer may be another one: the daemon hears of what a test changes, and learns.
const PATIENCE: Duration = Duration::from_secs(20);

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// A kind of port at which the packets come in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Xdp,
    Tc,
    Tun,
    Bridge,
    BridgeTc,
    Vlan,
}

struct Site {
    // In this order: the daemon ends before its namespace.
    router: Router,
    kind: Kind,
    lab: Lab,
    _tunnel: Option<Tunnel>,
    port_in: String,
    port_out: &'static str,
    /// Addresses of sender, receiver, and router at the side of the sender.
    from: &'static str,
    to: &'static str,
    own: &'static str,
}

impl Site {
    /// None, and why is printed, where the kernel has no such ports.
    fn new(kind: Kind) -> Option<Site> {
        let options = Options {
            filter: Some(Filter::Tracked),
            vlan: (kind == Kind::Vlan).then_some(5),
            bridge: matches!(kind, Kind::Bridge | Kind::BridgeTc),
            ..Options::default()
        };
        let lab = match Lab::build(Topology::parse("routed").unwrap(), options) {
            Ok(lab) => lab,
            Err(error) if kind == Kind::Vlan => {
                println!("skipped: no VLANs: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let tunnel = (kind == Kind::Tun).then(|| Self::tunnel(&lab));
        let mut ports = lab.interfaces();
        // a bridge's port without XDP takes no part
        ports.retain(|port| kind != Kind::BridgeTc || port != "lan0");
        let mut config = match kind {
            Kind::Tc | Kind::BridgeTc => String::new(),
            _ => lab.config_toml(""),
        };
        // nobody answers some packets: their flows are not fast
        config += "[policy]\nudp_one_way = false\n";
        let mut site_of = |port_in: String, port_out, [from, to, own]: [&'static str; 3]| {
            if !ports.contains(&port_in) {
                ports.push(port_in.clone());
            }
            let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
            let router = Router::start_in(lab.router(), &config, freeway(), &ports);
            (router, port_in, port_out, from, to, own)
        };
        let (router, port_in, port_out, from, to, own) = match kind {
            Kind::Tun => site_of(TUN.into(), "lan0", [TUN_SERVER, CLIENT_IP, TUN_ROUTER]),
            _ => site_of(
                lab.lan_interface(),
                "wan0",
                [CLIENT_IP, SERVER_IP, "192.0.2.1"],
            ),
        };
        Some(Site {
            router,
            kind,
            lab,
            _tunnel: tunnel,
            port_in,
            port_out,
            from,
            to,
            own,
        })
    }

    fn tunnel(lab: &Lab) -> Tunnel {
        let tunnel = Tunnel::open(lab);
        for (host, address) in [(lab.router(), TUN_ROUTER), (lab.server(), TUN_SERVER)] {
            let commands = format!("address add {address}/24 dev {TUN}\nlink set {TUN} up\n");
            host.tool_with_input("ip -batch -", &commands).unwrap();
        }
        for to in ["192.0.2.0/24", "203.0.113.0/24"] {
            let line = format!("ip route replace {to} dev {TUN} src {TUN_SERVER}");
            lab.server().tool(&line).unwrap();
        }
        tunnel
    }

    fn sender(&self) -> &Netns {
        match self.kind {
            Kind::Tun => self.lab.server(),
            _ => self.lab.client(),
        }
    }

    fn receiver(&self) -> &Netns {
        match self.kind {
            Kind::Tun => self.lab.client(),
            _ => self.lab.server(),
        }
    }

    fn router_runs(&self, line: &str) {
        self.lab.router().tool(line).unwrap();
    }

    /// What is said of fast packets.
    fn fast_words(&self) -> &'static str {
        match self.kind {
            Kind::Tc | Kind::Tun | Kind::BridgeTc => {
                "Its packets are forwarded in tc, through the qdisc where they leave."
            }
            Kind::Xdp | Kind::Bridge | Kind::Vlan => "Its packets are forwarded in XDP.",
        }
    }

    /// Asks while `send` is called again and again, until the sentence has the words or patience ends.
    #[track_caller]
    fn explain(
        &self,
        src: SocketAddr,
        dst: SocketAddr,
        words: &str,
        mut send: impl FnMut() + Send,
    ) -> Value {
        let done = AtomicBool::new(false);
        let (src, dst) = (src.to_string(), dst.to_string());
        let json = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    send();
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let end = Moment::now() + PATIENCE;
            loop {
                let json = self.router.json(&["explain", "udp", &src, &dst]);
                if Moment::now() >= end || json["summary"].as_str().unwrap().contains(words) {
                    done.store(true, Ordering::Relaxed);
                    return json;
                }
            }
        });
        let summary = json["summary"].as_str().unwrap();
        assert!(summary.contains(words), "{words}: {json:#}");
        println!("{}: {summary}", self.port_in);
        json
    }

    /// The answer is that of packets that came in, and none is fast.
    #[track_caller]
    fn slow(&self, dst: &str, port: u16, words: &str, send: impl FnMut() + Send) -> Value {
        let json = self.explain(at(self.from, port), at(dst, port), words, send);
        assert_eq!(json["verdict"], "kernel", "{json:#}");
        self.came(&json);
        json
    }

    #[track_caller]
    fn came(&self, json: &Value) {
        assert!(json["watched"]["packets"].as_u64().unwrap() > 0, "{json:#}");
        let wanted: &[&str] = match self.kind {
            Kind::Tc | Kind::Tun | Kind::BridgeTc => &["tc_ingress"],
            Kind::Xdp => &["xdp"],
            // what the bridge's port does not know yet is seen at the bridge; so is what shows no tag at the port
            Kind::Bridge | Kind::Vlan => &["xdp", "tc_ingress"],
        };
        let results = json["watched"]["results"].as_array().unwrap();
        let there = results
            .iter()
            .any(|seen| wanted.contains(&seen["stage"].as_str().unwrap()));
        assert!(there, "{json:#}");
        let notes = json["notes"].to_string();
        assert!(!notes.contains("no packet"), "{notes}");
    }

    /// The kernel's own reason is said, too.
    #[track_caller]
    fn kernels(&self, json: &Value, name: &str, words: &str) {
        let reasons = json["reasons"].as_array().unwrap();
        let found = reasons.iter().find(|why| why["stage"] == "kernel");
        let found = found.unwrap_or_else(|| panic!("no reason of the kernel: {json:#}"));
        assert_eq!(found["name"], name, "{json:#}");
        assert!(found["words"].as_str().unwrap().contains(words), "{json:#}");
        let dropped = &json["watched"]["dropped"][0];
        assert_eq!(dropped["reason"], name, "{json:#}");
        assert_eq!(dropped["port"], self.port_in, "{json:#}");
        assert!(dropped["count"].as_u64().unwrap() > 0, "{json:#}");
    }

    fn socket(&self, port: u16) -> UdpSocket {
        udp(self.sender(), at(self.from, port))
    }

    fn situations(&self) {
        self.none_sent();
        self.to_the_router();
        self.unreplied_and_fast();
        self.options();
        self.ttl();
        self.no_route();
        self.firewall();
        self.rp_filter();
        self.mtu();
        self.switched_off();
    }

    fn none_sent(&self) {
        let words = "Not in the flow table, and no packet of it came while watching.";
        let json = self.explain(at(self.from, 41000), at(self.to, 5000), words, || ());
        assert_eq!(json["verdict"], "unknown");
        assert_eq!(json["watched"]["packets"], 0);
    }

    fn to_the_router(&self) {
        let socket = self.socket(41001);
        let words = "One end is this router: local traffic is always the kernel's.";
        self.slow(self.own, 41001, words, || {
            let _ = socket.send_to(b"to you", at(self.own, 41001));
        });
    }

    fn unreplied_and_fast(&self) {
        let to = at(self.to, 41002);
        let (near, far) = (self.socket(41002), udp(self.receiver(), to));
        far.set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let words = "It is being learned: no answer seen yet, or UDP connection not assured.";
        let unreplied = self.slow(self.to, 41002, words, || {
            let _ = near.send_to(b"there", to);
        });
        let dropped = unreplied["watched"]["dropped"].as_array().unwrap();
        assert!(dropped.is_empty(), "{dropped:?}");
        let fast = self.explain(at(self.from, 41002), to, self.fast_words(), || {
            let _ = near.send_to(b"there", to);
            if let Ok((_, from)) = far.recv_from(&mut [0; 64]) {
                let _ = far.send_to(b"back", from);
            }
        });
        assert_eq!(fast["verdict"], "fast");
        self.came(&fast);
    }

    /// Packets of which it cannot be told that they are this flow's.
    fn options(&self) {
        let socket = self.socket(41003);
        // three times no operation, and the end of options
        set(&socket, libc::IPPROTO_IP, libc::IP_OPTIONS, &[1u8, 1, 1, 0]);
        let to = at(self.to, 41003);
        let words = "that show none: IPv4 options, always the kernel's.";
        let json = self.explain(at(self.from, 41003), to, words, || {
            let _ = socket.send_to(b"there", to);
        });
        assert_eq!(json["verdict"], "unknown");
    }

    fn ttl(&self) {
        let socket = self.socket(41004);
        socket.set_ttl(1).unwrap();
        let words = "TTL or hop limit at most 1: always the kernel's.";
        let json = self.slow(self.to, 41004, words, || {
            let _ = socket.send_to(b"there", at(self.to, 41004));
        });
        self.kernels(
            &json,
            "ip_inhdr",
            "its TTL or hop limit ends at this router",
        );
    }

    fn no_route(&self) {
        let socket = self.socket(41005);
        let words = "The kernel has no route to its destination.";
        let json = self.slow(NOWHERE, 41005, words, || {
            let _ = socket.send_to(b"there", at(NOWHERE, 41005));
        });
        self.kernels(&json, "ip_innoroutes", "no route");
    }

    fn firewall(&self) {
        let drops = |chain: &str| {
            let rules = format!(
                "table ip situation {{\n\tchain {chain} {{\n\
                 \t\ttype filter hook forward priority 0;\n\t\tudp dport 41006 drop\n\t}}\n}}\n"
            );
            let router = self.lab.router();
            router.tool_with_input("nft -f -", &rules).unwrap();
        };
        let socket = self.socket(41006);
        let send = || {
            let _ = socket.send_to(b"there", at(self.to, 41006));
        };
        drops("one");
        let words = "Dropped by nftables: table ip situation, chain one.";
        let json = self.slow(self.to, 41006, words, send);
        self.kernels(&json, "netfilter_drop", "chain one");
        // which of two it is is not said
        drops("two");
        let words = "Dropped by the firewall (NETFILTER_DROP); chains that may: nftables: table \
                     ip situation, chain one; nftables: table ip situation, chain two.";
        self.slow(self.to, 41006, words, send);
        self.router_runs("nft delete table ip situation");
    }

    fn rp_filter(&self) {
        let next = match self.kind {
            Kind::Tun => CLIENT_IP,
            _ => SERVER_IP,
        };
        let line = format!("ip address add {ELSEWHERE}/32 dev lo");
        self.sender().tool(&line).unwrap();
        let route = format!("{ELSEWHERE}/32 via {next} dev {}", self.port_out);
        self.router_runs(&format!("ip route add {route}"));
        let switch = format!("net/ipv4/conf/{}/rp_filter", self.port_in);
        self.lab.router().sysctl(&switch, "1").unwrap();
        let (from, to) = (at(ELSEWHERE, 41007), at(self.to, 41007));
        let socket = udp(self.sender(), from);
        let words = "Dropped by the reverse path filter (rp_filter): answers to its source would not leave by";
        let json = self.explain(from, to, words, || {
            let _ = socket.send_to(b"there", to);
        });
        assert_eq!(json["verdict"], "kernel", "{json:#}");
        self.came(&json);
        self.kernels(&json, "ip_rpfilter", &self.port_in);
        self.lab.router().sysctl(&switch, "0").unwrap();
        self.router_runs(&format!("ip route del {route}"));
    }

    fn mtu(&self) {
        self.router_runs(&format!("ip link set {} mtu 1300", self.port_out));
        let socket = self.socket(41008);
        // as long as it is, and not in fragments, whatever routers answer
        let probe = libc::IP_PMTUDISC_PROBE.to_ne_bytes();
        set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &probe);
        let words = "Longer than the MTU where it would leave.";
        let json = self.slow(self.to, 41008, words, || {
            let _ = socket.send_to(&[7; 1400], at(self.to, 41008));
        });
        self.kernels(&json, "pkt_too_big", "MTU");
        self.router_runs(&format!("ip link set {} mtu 1500", self.port_out));
    }

    fn switched_off(&self) {
        self.router.json(&["off"]);
        let socket = self.socket(41009);
        let words = "The fast path is switched off.";
        let mut json = Value::Null;
        // a question may have been asked a moment before the first packet
        until("packets come in", PATIENCE, || {
            json = self.explain(at(self.from, 41009), at(self.to, 41009), words, || {
                let _ = socket.send_to(b"there", at(self.to, 41009));
            });
            (json["watched"]["packets"] != 0).then_some(())
        });
        assert_eq!(json["verdict"], "kernel");
        self.came(&json);
    }
}

/// An option of a socket.
#[track_caller]
fn set(socket: &UdpSocket, level: i32, name: i32, value: &[u8]) {
    // SAFETY: the kernel reads the value, which outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
}

fn explained(kind: Kind) {
    let Some(_machine) = machine() else { return };
    let Some(site) = Site::new(kind) else { return };
    site.situations();
    site.router.stop();
}

#[test]
fn at_a_port_of_xdp() {
    explained(Kind::Xdp);
}

#[test]
fn at_a_port_of_tc() {
    explained(Kind::Tc);
}

#[test]
fn at_a_port_without_a_link_layer() {
    explained(Kind::Tun);
}

#[test]
fn at_a_bridge() {
    explained(Kind::Bridge);
}

#[test]
fn at_a_bridge_of_tc() {
    explained(Kind::BridgeTc);
}

#[test]
fn at_a_vlan() {
    explained(Kind::Vlan);
}
