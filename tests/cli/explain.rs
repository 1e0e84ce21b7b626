// SPDX-License-Identifier: MIT OR Apache-2.0
//! `explain` in ten situations, each with real packets.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |            |---------| lan0           wan0 |---------|            |
//!  +------------+         +---------------------+         +------------+
//!   192.0.2.2/24      192.0.2.1/24      198.51.100.1/24   198.51.100.2/24
//!                       postrouting: masquerade on wan0
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use freeway_lab::{Filter, Lab, Options};
use freeway_testkit::*;
use serde_json::Value;

const CLIENT: &str = "192.0.2.2";
const SERVER: &str = "198.51.100.2";
const ROUTER: &str = "192.0.2.1";

/// Rules beside the topology's own.
const HELPER: &str = "\
table ip situation {
	ct helper ftp { type \"ftp\" protocol tcp; l3proto ip; }
	chain helpers {
		type filter hook prerouting priority filter;
		tcp dport 2121 ct helper set \"ftp\"
	}
}
";
const DROP: &str = "\
table ip situation {
	chain drops {
		type filter hook forward priority filter - 1;
		udp dport 6006 drop
	}
}
";
const NOTRACK: &str = "\
table ip situation {
	chain raw {
		type filter hook prerouting priority raw;
		udp dport 7007 notrack
	}
}
";

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

struct Situation {
    lab: Lab,
    router: Router,
}

impl Situation {
    fn new(rules: &str, config: &str) -> Situation {
        let options = Options {
            extra_nft: rules.into(),
            ..Options::default()
        };
        Situation::with(options, config)
    }

    fn with(options: Options, config: &str) -> Situation {
        let lab = build_with("nat", options);
        let router = Router::start_with(&lab, config);
        Situation { lab, router }
    }

    /// Asks while `send` is called again and again, until the sentence has the words or patience ends.
    #[track_caller]
    fn explain(
        &self,
        proto: &str,
        from: u16,
        to: SocketAddr,
        words: &str,
        mut send: impl FnMut() + Send,
    ) -> Explained {
        let done = AtomicBool::new(false);
        let src = at(CLIENT, from).to_string();
        let question = ["explain", proto, &src, &to.to_string()];
        let explained = thread::scope(|scope| {
            let _over = Ends(&done);
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    send();
                    thread::sleep(Duration::from_millis(10));
                }
            });
            let end = Moment::now() + Duration::from_secs(30);
            let mut json = self.router.json(&question);
            while Moment::now() < end && !json["summary"].as_str().unwrap().contains(words) {
                json = self.router.json(&question);
            }
            let text = String::from_utf8(self.router.run(&question).stdout).unwrap();
            Explained { json, text }
        });
        let Explained { json, text } = &explained;
        let summary = json["summary"].as_str().unwrap();
        assert!(summary.contains(words), "{words}: {json:#}");
        eprintln!("{summary}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "{words}: {text}");
        explained
    }

    /// A UDP conversation of which one side only is heard, or both.
    fn udp(&self, from: u16, to: u16) -> (UdpSocket, UdpSocket) {
        let client = udp(self.lab.client(), at(CLIENT, from));
        let server = udp(self.lab.server(), at(SERVER, to));
        client.connect(at(SERVER, to)).unwrap();
        server
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        (client, server)
    }

    fn tcp(&self, from: u16, to: u16) -> (TcpStream, TcpStream) {
        let listener = listen(self.lab.server(), at(SERVER, to));
        pair(
            (self.lab.client(), at(CLIENT, from)),
            at(SERVER, to),
            &listener,
        )
    }
}

fn send(client: &UdpSocket) {
    client.send(b"there").unwrap();
}

/// There and back.
fn exchange(client: &UdpSocket, server: &UdpSocket) {
    let mut room = [0; 64];
    client.send(b"there").unwrap();
    if let Ok((_, from)) = server.recv_from(&mut room) {
        server.send_to(b"back", from).unwrap();
    }
}

/// The answer, as JSON and as text.
struct Explained {
    json: Value,
    text: String,
}

impl Explained {
    #[track_caller]
    fn verdict(&self, verdict: &str) {
        let Explained { json, text } = self;
        assert_eq!(json["verdict"], verdict, "{json:#}");
        let word = if verdict == "fast" {
            "Fast: "
        } else {
            "Not fast: "
        };
        assert!(text.contains(word), "{text}");
    }

    #[track_caller]
    fn note(&self, words: &str) {
        let notes = self.json["notes"].as_array().unwrap();
        let found = notes
            .iter()
            .any(|note| note.as_str().unwrap().contains(words));
        assert!(found, "{words}: {notes:?}");
    }
}

#[test]
fn learning_and_fast() {
    let Some(_machine) = machine() else { return };
    let s = Situation::new("", "[policy]\nudp_one_way = false\n");
    let (client, server) = s.udp(40001, 5001);
    let to = at(SERVER, 5001);
    // nobody answers: it stays so
    let words = "It is being learned: no answer seen yet, or UDP connection not assured.";
    let learning = s.explain("udp", 40001, to, words, || send(&client));
    learning.verdict("kernel");
    let words = "Its packets are forwarded in XDP.";
    let fast = s.explain("udp", 40001, to, words, || exchange(&client, &server));
    fast.verdict("fast");
    assert_eq!(fast.json["flow"]["state"], "active");
    // the same by the tuple as it leaves, without a packet
    let flow = &fast.json["flow"];
    let leaves = |ip: &str, port: &str| format!("{}:{}", flow[ip].as_str().unwrap(), flow[port]);
    let (src, dst) = (leaves("to_src", "to_sport"), leaves("to_dst", "to_dport"));
    let other = s
        .router
        .json(&["explain", "--watch", "0", "udp", &src, &dst]);
    assert_eq!(other["flow"]["sport"], 40001, "{other:#}");
    assert_eq!(other["verdict"], "fast");
    let notes = other["notes"].to_string();
    assert!(
        !notes.contains("this router"),
        "NAT's address is no end of it: {notes}"
    );
    s.router.stop();
}

#[test]
fn fragment() {
    let Some(_machine) = machine() else { return };
    let s = Situation::new("", "");
    let (client, server) = s.udp(40002, 5002);
    // they carry no ports, so none can be told to be this flow's
    let words = "that show none: fragment, always the kernel's.";
    let fragment = s.explain("udp", 40002, at(SERVER, 5002), words, || {
        client.send(&[7; 3000]).unwrap();
        let _ = server.recv(&mut [0; 4000]);
    });
    assert_eq!(fragment.json["verdict"], "unknown");
    s.router.stop();
}

#[test]
fn helper() {
    let Some(_machine) = machine() else { return };
    let s = Situation::new(HELPER, "");
    let (mut client, _server) = s.tcp(40003, 2121);
    let words = "The connection has a helper (ALG).";
    let helper = s.explain("tcp", 40003, at(SERVER, 2121), words, || {
        client.write_all(b"NOOP\r\n").unwrap();
    });
    helper.verdict("kernel");
    helper.note("conntrack helper ftp must see each packet");
    s.router.stop();
}

#[test]
fn local_and_dropped() {
    let Some(_machine) = machine() else { return };
    let s = Situation::new(DROP, "");
    let client = udp(s.lab.client(), at(CLIENT, 40004));
    let to = at(ROUTER, 5004);
    let _router = udp(s.lab.router(), to);
    let words = "One end is this router: local traffic is always the kernel's.";
    let local = s.explain("udp", 40004, to, words, || {
        client.send_to(b"to you", to).unwrap();
    });
    local.verdict("kernel");

    let (client, _server) = s.udp(40005, 6006);
    // either of two chains may have
    let words = "Dropped by the firewall (NETFILTER_DROP); chains that may: ";
    let dropped = s.explain("udp", 40005, at(SERVER, 6006), words, || send(&client));
    dropped.verdict("kernel");
    dropped.note("conntrack has no entry for it");
    let reason = &dropped.json["reasons"][0];
    assert_eq!(reason["stage"], "kernel", "{reason:#}");
    for chain in ["table inet", "table ip situation, chain drops"] {
        assert!(
            reason["words"].as_str().unwrap().contains(chain),
            "{reason:#}"
        );
    }
    s.router.stop();
}

#[test]
fn no_conntrack() {
    let Some(_machine) = machine() else { return };
    let options = Options {
        extra_nft: NOTRACK.into(),
        // a stateful one drops what is not tracked
        filter: Some(Filter::None),
        ..Options::default()
    };
    let s = Situation::with(options, "");
    let (client, _server) = s.udp(40006, 7007);
    let words = "Its packets are forwarded in XDP.";
    let untracked = s.explain("udp", 40006, at(SERVER, 7007), words, || send(&client));
    untracked.verdict("fast");
    untracked.note("conntrack does not track it");
    assert_eq!(untracked.json["connection"], Value::Null);
    s.router.stop();
}

#[test]
fn closing() {
    let Some(_machine) = machine() else { return };
    let s = Situation::new("", "");
    let (mut client, server) = s.tcp(40007, 5007);
    client.write_all(b"before").unwrap();
    // the server's end is closed, the client's is still used
    server.shutdown(std::net::Shutdown::Write).unwrap();
    let words = "The connection is closing (";
    let closing = s.explain("tcp", 40007, at(SERVER, 5007), words, || {
        client.write_all(b"after").unwrap();
    });
    closing.verdict("kernel");
    s.router.stop();
}

#[test]
fn off_and_full() {
    let Some(_machine) = machine() else { return };
    let s = Situation::new("", "[flows]\nmax = 4\n");
    let mut others = Vec::new();
    for port in 41001..41003 {
        let (client, server) = s.udp(port, port);
        let words = "Its packets are forwarded in XDP.";
        s.explain("udp", port, at(SERVER, port), words, || {
            exchange(&client, &server)
        });
        others.push((client, server));
    }
    let (client, server) = s.udp(41009, 41009);
    let to = at(SERVER, 41009);
    let both = || {
        exchange(&client, &server);
        others
            .iter()
            .for_each(|(client, server)| exchange(client, server));
    };
    let full = s.explain("udp", 41009, to, "The flow table is full.", both);
    full.verdict("kernel");
    s.router.json(&["off"]);
    let words = "The fast path is switched off.";
    let off = s.explain("udp", 41009, to, words, || exchange(&client, &server));
    off.verdict("kernel");
    s.router.stop();
}
