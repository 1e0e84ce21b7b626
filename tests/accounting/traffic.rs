// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of known size.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::thread;
use std::time::Duration;

use freeway_lab::Lab;
use freeway_testkit::wire::Side::{Far, Near};
use freeway_testkit::wire::{ACK, PSH, Side, TCP, Talk, UDP, Wire};
use freeway_testkit::*;

use crate::PATIENCE;

/// The servers' ports.
pub const UDP_PORT: u16 = 5000;
pub const TCP_PORT: u16 = 443;

/// One of so many conversations is answered in its first rounds alone.
const UNANSWERED: u16 = 10;

/// Of each connection, by IP version, protocol and the client's port: packets and octets there, packets and octets back.
pub type Sums = BTreeMap<(u8, u8, u16), [u64; 4]>;

pub struct Traffic<'a> {
    lab: &'a Lab,
    sums: Sums,
}

/// Of all sizes that one frame has room for, the longest first: what is longer than all before is the kernel's.
fn size(connection: usize, round: usize) -> usize {
    match round {
        0..4 => 1400,
        _ => (connection * 37 + round * 131) % 1400 + 1,
    }
}

impl<'a> Traffic<'a> {
    pub fn new(lab: &'a Lab) -> Self {
        Self {
            lab,
            sums: Sums::new(),
        }
    }

    pub fn sums(self) -> Sums {
        self.sums
    }

    fn count(&mut self, key: (u8, u8, u16), back: bool, octets: usize) {
        let sum = self.sums.entry(key).or_default();
        let at = if back { 2 } else { 0 };
        sum[at] += 1;
        sum[at + 1] += octets as u64;
    }

    /// So many conversations of each family, all at the same time; those of rounds before go on.
    pub fn udp(&mut self, each: u16, rounds: Range<usize>) {
        let patience = Some(Duration::from_secs(20));
        let families = [
            (4, 28, "192.0.2.2", "198.51.100.2"),
            (6, 48, "[2001:db8:1::2]", "[2001:db8:2::2]"),
        ];
        let ends = families.map(|(version, headers, client, server)| {
            let far = udp(self.lab.server(), address(&format!("{server}:{UDP_PORT}")));
            far.set_read_timeout(patience).unwrap();
            let near = (0..each).map(|n| {
                let port = 20_000 + n;
                let near = udp(self.lab.client(), address(&format!("{client}:{port}")));
                near.set_read_timeout(patience).unwrap();
                near.connect(far.local_addr().unwrap()).unwrap();
                (port, near)
            });
            (version, headers, near.collect::<Vec<_>>(), far)
        });
        for round in rounds {
            if round == 1 {
                // before that conntrack does not take an answer for a stream (`nf_conntrack_udp_packet`)
                thread::sleep(Duration::from_millis(2100));
            }
            for (version, headers, near, far) in &ends {
                for (n, (port, near)) in near.iter().enumerate() {
                    let key = (*version, UDP, *port);
                    let (there, back) = (size(n, round), size(n + 7, round));
                    let from = send(near, far, there);
                    self.count(key, false, headers + there);
                    // some have been answered enough
                    if n % usize::from(UNANSWERED) != 0 || round < 3 {
                        answer(far, near, from, back);
                        self.count(key, true, headers + back);
                    }
                }
            }
        }
    }

    /// So many conversations of each family go on until all flows of those that are answered are in the table, and then for so
    /// many rounds, which are fast.
    pub fn go_on(&mut self, router: &Router, each: u16, rounds: usize) {
        let flows = 4 * u64::from(each - each.div_ceil(UNANSWERED));
        until("flows are fast", PATIENCE, || {
            self.udp(each, 4..6);
            let active = router.json(&["status"])["flows"]["active"].as_u64();
            (active >= Some(flows)).then_some(())
        });
        let (packets, fast) = (self.packets(), router.stats().fast());
        self.udp(each, 4..4 + rounds);
        let stats = router.stats();
        let (packets, fast) = (self.packets() - packets, stats.fast() - fast);
        assert!(
            fast as f64 > packets as f64 * FAST_MIN,
            "{fast} of {packets}: {stats}"
        );
    }

    fn packets(&self) -> u64 {
        self.sums.values().map(|sum| sum[0] + sum[2]).sum()
    }

    /// So many TCP connections of IPv4 that open and close.
    pub fn tcp(&mut self, count: u16) {
        let wire = Wire::open(self.lab);
        for n in 0..count {
            let ports = (30_000 + n, TCP_PORT);
            let key = (4, TCP, ports.0);
            let mut talk = Talk::open(&wire, ports, [1000, 2000]);
            for (back, options) in [(false, 12), (true, 12), (false, 0)] {
                self.count(key, back, 40 + options);
            }
            for round in 0..12 {
                for from in [Near, Far] {
                    let payload = vec![7; size(n.into(), round)];
                    self.say(&mut talk, key, from, PSH | ACK, &payload);
                    self.say(&mut talk, key, from.other(), ACK, b"");
                }
            }
            for from in [Near, Far] {
                assert!(talk.finish(from));
                self.count(key, from == Far, 40);
                self.say(&mut talk, key, from.other(), ACK, b"");
            }
        }
    }

    fn say(&mut self, talk: &mut Talk<'_>, key: (u8, u8, u16), from: Side, flags: u8, data: &[u8]) {
        assert!(talk.say(from, flags, data), "{key:?}");
        self.count(key, from == Far, 40 + data.len());
    }
}

fn send(near: &UdpSocket, far: &UdpSocket, size: usize) -> SocketAddr {
    let mut room = [0; 2048];
    near.send(&vec![1; size]).unwrap();
    let (length, from) = far.recv_from(&mut room).unwrap();
    assert_eq!(length, size);
    from
}

fn answer(far: &UdpSocket, near: &UdpSocket, to: SocketAddr, size: usize) {
    let mut room = [0; 2048];
    far.send_to(&vec![2; size], to).unwrap();
    assert_eq!(near.recv(&mut room).unwrap(), size);
}
