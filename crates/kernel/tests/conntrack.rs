// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection tracking with real traffic over the loopback of a namespace.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use common::{in_namespace, nft};
use freeway_kernel::conntrack::{ConnectionFilter, Conntrack, TcpPrepare};
use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::*;
use freeway_testkit::Moment;

/// A rule that asks for the connection hooks connection tracking in.
fn track() {
    nft(
        "table inet t { chain output { type filter hook output priority 0; ct state invalid drop; } }",
    );
}

struct Tcp {
    client: TcpStream,
    server: TcpStream,
    orig: Tuple,
}

fn tcp(address: &str) -> Tcp {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let orig = tuple(
        6,
        client.local_addr().unwrap(),
        server.local_addr().unwrap(),
    );
    let mut tcp = Tcp {
        client,
        server,
        orig,
    };
    tcp.exchange();
    tcp
}

impl Tcp {
    fn exchange(&mut self) {
        let mut answer = [0; 4];
        self.client.write_all(b"ping").unwrap();
        self.server.read_exact(&mut answer).unwrap();
        self.server.write_all(b"pong").unwrap();
        self.client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"pong");
    }
}

fn tuple(proto: u8, from: SocketAddr, to: SocketAddr) -> Tuple {
    Tuple {
        src: from.ip(),
        dst: to.ip(),
        proto,
        sport: from.port(),
        dport: to.port(),
    }
}

fn udp() -> (UdpSocket, UdpSocket, Tuple) {
    let (a, b) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    a.send(b"ping").unwrap();
    b.recv(&mut [0; 4]).unwrap();
    b.send(b"pong").unwrap();
    let tuple = tuple(17, a.local_addr().unwrap(), b.local_addr().unwrap());
    (a, b, tuple)
}

#[test]
fn preparation_sets_and_clears_flags() {
    in_namespace(|| {
        track();
        let mut conntrack = Conntrack::open().unwrap();
        let connections = [tcp("127.0.0.1"), tcp("::1"), tcp("127.0.0.2")];
        let before = conntrack.get(&connections[0].orig, 0).unwrap().unwrap();
        let info = before.tcp.unwrap();
        assert_eq!(info.state, TcpState::Established);
        assert_eq!(info.flags_orig & TCP_FLAG_BE_LIBERAL, 0);
        assert_ne!(info.flags_orig & TCP_FLAG_MAXACK_SET, 0);
        let mut batch: Vec<TcpPrepare> = connections
            .iter()
            .map(|tcp| TcpPrepare {
                orig: tcp.orig,
                zone: 0,
                timeout_s: None,
            })
            .collect();
        batch[1].timeout_s = Some(7777);
        let unknown = Tuple {
            sport: 1,
            ..connections[0].orig
        };
        batch.insert(
            1,
            TcpPrepare {
                orig: unknown,
                zone: 0,
                timeout_s: None,
            },
        );
        let results = conntrack.prepare_tcp(&batch);
        assert!(
            results[0].is_ok() && results[2].is_ok() && results[3].is_ok(),
            "{results:?}"
        );
        assert_eq!(
            results[1].as_ref().unwrap_err().raw_os_error(),
            Some(libc::ENOENT)
        );
        for tcp in &connections {
            let after = conntrack.get(&tcp.orig, 0).unwrap().unwrap();
            let info = after.tcp.unwrap();
            let bits = TCP_FLAG_BE_LIBERAL | TCP_FLAG_MAXACK_SET | TCP_FLAG_DATA_UNACKNOWLEDGED;
            assert_eq!(info.flags_orig & bits, TCP_FLAG_BE_LIBERAL, "{after:?}");
            assert_eq!(info.flags_reply & bits, TCP_FLAG_BE_LIBERAL, "{after:?}");
            assert_eq!(info.state, TcpState::Established);
        }
        let after = conntrack.get(&connections[0].orig, 0).unwrap().unwrap();
        assert_eq!(
            (after.id, after.status, after.mark),
            (before.id, before.status, before.mark)
        );
        let timed = conntrack.get(&connections[1].orig, 0).unwrap().unwrap();
        assert!(
            timed.timeout_s.is_some_and(|s| (7770..=7777).contains(&s)),
            "{timed:?}"
        );
        for mut tcp in connections {
            tcp.exchange();
        }
    });
}

#[test]
fn large_batches_are_answered_in_order() {
    in_namespace(|| {
        track();
        let known = tcp("127.0.0.1");
        let mut conntrack = Conntrack::open().unwrap();
        let batch: Vec<TcpPrepare> = (0..3000u16)
            .map(|n| TcpPrepare {
                orig: if n % 7 == 0 {
                    known.orig
                } else {
                    Tuple {
                        sport: n,
                        ..known.orig
                    }
                },
                zone: 0,
                timeout_s: None,
            })
            .collect();
        let results = conntrack.prepare_tcp(&batch);
        assert_eq!(results.len(), batch.len());
        for (n, result) in results.iter().enumerate() {
            match result {
                Ok(()) => assert_eq!(n % 7, 0),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
                    assert_ne!(n % 7, 0);
                }
            }
        }
        assert!(conntrack.prepare_tcp(&[]).is_empty());
        assert!(conntrack.get(&known.orig, 0).unwrap().is_some());
    });
}

#[test]
fn own_changes_are_not_heard_of() {
    in_namespace(|| {
        track();
        let mut mirror = Mirror::open().unwrap();
        let (mut own, mut other) = (Conntrack::open().unwrap(), Conntrack::open().unwrap());
        mirror.ignore(own.port().unwrap()).unwrap();
        let known = tcp("127.0.0.1");
        let prepare = [TcpPrepare {
            orig: known.orig,
            zone: 0,
            timeout_s: None,
        }];
        // The kernel tells of a change before it answers; what the connection itself did has been told by then.
        let told = |mirror: &mut Mirror| {
            let mut events = Vec::new();
            std::thread::sleep(Duration::from_millis(100));
            mirror.read(&mut events).unwrap();
            events
                .iter()
                .filter(|e| matches!(e, Event::ConnectionUpdated(c) if c.orig == known.orig))
                .count()
        };
        told(&mut mirror);
        own.prepare_tcp(&prepare).remove(0).unwrap();
        assert_eq!(told(&mut mirror), 0, "one's own");
        other.prepare_tcp(&prepare).remove(0).unwrap();
        assert_eq!(told(&mut mirror), 1, "another's");
    });
}

#[test]
fn lookup_by_either_tuple() {
    in_namespace(|| {
        track();
        std::fs::write("/proc/sys/net/netfilter/nf_conntrack_acct", "1").unwrap();
        std::fs::write("/proc/sys/net/netfilter/nf_conntrack_timestamp", "1").unwrap();
        let (_a, _b, orig) = udp();
        let mut conntrack = Conntrack::open().unwrap();
        let found = conntrack.get(&orig, 0).unwrap().unwrap();
        assert_eq!((found.orig, found.reply), (orig, orig.inverse()));
        assert_eq!(
            conntrack.get(&orig.inverse(), 0).unwrap().unwrap().id,
            found.id
        );
        assert!(found.status.has(CtStatus::CONFIRMED | CtStatus::SEEN_REPLY));
        assert_eq!(
            (found.proto, found.family, found.zone),
            (17, Family::Ipv4, 0)
        );
        assert!(found.tcp.is_none() && found.helper.is_none() && !found.labels);
        assert_eq!(
            found.counters_orig,
            Some(CtCounters {
                packets: 1,
                bytes: 32
            })
        );
        assert_eq!(
            found.counters_reply,
            Some(CtCounters {
                packets: 1,
                bytes: 32
            })
        );
        assert!(found.start_ns.is_some_and(|start| start > 0));
        assert_eq!(conntrack.get(&Tuple { sport: 1, ..orig }, 0).unwrap(), None);
        assert_eq!(conntrack.get(&orig, 9).unwrap(), None, "in another zone");
    });
}

#[test]
fn timeouts_are_set() {
    in_namespace(|| {
        track();
        let (_a, _b, orig) = udp();
        let mut conntrack = Conntrack::open().unwrap();
        conntrack.set_timeout(&orig, 0, 500).unwrap();
        let timeout = conntrack.get(&orig, 0).unwrap().unwrap().timeout_s;
        assert!(
            timeout.is_some_and(|s| (495..=500).contains(&s)),
            "{timeout:?}"
        );
        let gone = conntrack
            .set_timeout(&Tuple { sport: 1, ..orig }, 0, 5)
            .unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
    });
}

#[test]
fn dumps_are_filtered() {
    in_namespace(|| {
        track();
        let (_a, _b, orig) = udp();
        let (four, six) = (tcp("127.0.0.1"), tcp("::1"));
        let mut conntrack = Conntrack::open().unwrap();
        let count = |conntrack: &mut Conntrack, filter: ConnectionFilter| {
            conntrack.dump(&filter).unwrap().len()
        };
        let all = ConnectionFilter::default();
        assert_eq!(count(&mut conntrack, all.clone()), 3);
        assert_eq!(
            count(
                &mut conntrack,
                ConnectionFilter {
                    proto: Some(6),
                    ..all.clone()
                }
            ),
            2
        );
        let v6 = ConnectionFilter {
            family: Some(Family::Ipv6),
            ..all.clone()
        };
        assert_eq!(conntrack.dump(&v6).unwrap()[0].orig, six.orig);
        let other: IpAddr = [192, 0, 2, 1].into();
        assert_eq!(
            count(
                &mut conntrack,
                ConnectionFilter {
                    addr: Some(other),
                    ..all
                }
            ),
            0
        );
        drop((four, orig));
    });
}

#[test]
fn zones_and_helpers_are_told() {
    in_namespace(|| {
        let loaded = std::panic::catch_unwind(|| {
            nft(r#"table inet t {
                ct helper f { type "ftp" protocol tcp; l3proto inet; }
                chain raw { type filter hook output priority raw; udp dport 5353 ct zone set 7
                }
                chain output { type filter hook output priority 0; tcp dport 2121 ct helper set "f"
                    udp dport 5353 ct mark set 0x55
                }
            }"#);
        });
        if loaded.is_err() {
            eprintln!("skipped: no FTP helper in this kernel");
            return;
        }
        let mut conntrack = Conntrack::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:2121").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let orig = tuple(
            6,
            client.local_addr().unwrap(),
            listener.local_addr().unwrap(),
        );
        let found = conntrack.get(&orig, 0).unwrap().unwrap();
        assert_eq!(found.helper.as_deref(), Some("ftp"));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", "127.0.0.1:5353").unwrap();
        let orig = tuple(
            17,
            socket.local_addr().unwrap(),
            "127.0.0.1:5353".parse().unwrap(),
        );
        let found = conntrack.get(&orig, 7).unwrap().unwrap();
        assert_eq!((found.zone, found.mark), (7, 0x55));
        conntrack.set_timeout(&orig, 7, 99).unwrap();
    });
}

#[test]
fn ends_and_changes_are_events() {
    in_namespace(|| {
        track();
        let mut mirror = Mirror::open().unwrap();
        let mut conntrack = Conntrack::open().unwrap();
        let mut connection = tcp("127.0.0.1");
        let orig = connection.orig;
        let mut events = Vec::new();
        let wait =
            |events: &mut Vec<Event>, mirror: &mut Mirror, wanted: &dyn Fn(&Event) -> bool| {
                let start = Moment::now();
                while !events.iter().any(wanted) {
                    mirror.read(events).unwrap();
                    assert!(start.elapsed() < Duration::from_secs(20), "{events:#?}");
                    std::thread::sleep(Duration::from_millis(2));
                }
            };
        wait(
            &mut events,
            &mut mirror,
            &|event| matches!(event, Event::ConnectionUpdated(c) if c.orig == orig && c.status.has(CtStatus::ASSURED)),
        );
        events.clear();
        let id = conntrack.get(&orig, 0).unwrap().unwrap().id;
        common::run("nft add rule inet t output tcp dport != 1 ct mark set 9");
        connection.exchange();
        wait(
            &mut events,
            &mut mirror,
            &|e| matches!(e, Event::ConnectionUpdated(c) if c.mark == 9 && c.id == id),
        );
        common::run(&format!(
            "conntrack -D -p tcp --orig-port-src {}",
            orig.sport
        ));
        wait(
            &mut events,
            &mut mirror,
            &|e| matches!(e, Event::ConnectionDestroyed(c) if c.orig == orig && c.id == id),
        );
    });
}
