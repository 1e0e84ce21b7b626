// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever happens to a connection, what was told of it is what passed.

use std::collections::HashMap;

use freeway_kernel::model::{Connection, CtCounters, CtStatus, Family, Tuple};
use proptest::prelude::*;

use crate::{Book, Counts, Direction, EndReason, FastCounts, Key, Record, Times};

const LINK: u64 = 14;
const TIMES: Times = Times {
    active_ms: 5000,
    idle_ms: 2000,
};

fn tuple(port: u16) -> Tuple {
    Tuple {
        src: [192, 0, 2, 2].into(),
        dst: [198, 51, 100, 2].into(),
        proto: 17,
        sport: port,
        dport: 53,
    }
}

fn key(port: u16) -> Key {
    Key {
        orig: tuple(port),
        zone: 0,
    }
}

/// A connection as the kernel has it.
#[derive(Clone, Debug, Default)]
struct Kernel {
    id: u32,
    counts: [Counts; 2],
}

fn connection(port: u16, kernel: &Kernel) -> Connection {
    let counters = kernel.counts.map(|counts| CtCounters {
        packets: counts.packets,
        bytes: counts.octets,
    });
    Connection {
        id: kernel.id,
        family: Family::Ipv4,
        proto: 17,
        orig: tuple(port),
        reply: tuple(port).inverse(),
        status: CtStatus(0),
        timeout_s: None,
        mark: 0,
        zone: 0,
        zone_orig: None,
        zone_reply: None,
        tcp: None,
        helper: None,
        synproxy: false,
        seq_adjust: false,
        labels: false,
        counters_orig: Some(counters[0]),
        counters_reply: Some(counters[1]),
        start_ns: None,
        stop_ns: None,
    }
}

fn told(records: &[Record]) -> HashMap<u16, [Counts; 2]> {
    let mut sums: HashMap<u16, [Counts; 2]> = HashMap::new();
    for record in records {
        let sum = sums.entry(record.orig.sport).or_default();
        for (sum, counts) in sum.iter_mut().zip(record.counts) {
            sum.add(counts);
        }
    }
    sums
}

/// A router: connections, the flows of some, and the places of those that left.
#[derive(Debug, Default)]
struct World {
    kernel: HashMap<u16, Kernel>,
    /// By index: port, direction, what it counted; whether it left.
    flows: HashMap<u32, (u16, usize, FastCounts, bool)>,
    passed: HashMap<u16, [Counts; 2]>,
    next_index: u32,
    next_id: u32,
    now_ms: u64,
    records: Vec<Record>,
}

#[derive(Clone, Debug)]
enum Step {
    /// A packet of a connection and direction, so long; fast if it has a flow.
    Packet(u16, bool, u16),
    Learn(u16, bool),
    Leave(u16),
    Release,
    Destroy(u16),
    /// The end is not told.
    Vanish(u16),
    Look,
    Wait(u64),
}

impl World {
    fn read(&self) -> impl Fn(u32) -> FastCounts + use<'_> {
        |index| self.flows[&index].2
    }

    fn step(&mut self, book: &mut Book, step: &Step) {
        match step {
            Step::Packet(port, back, length) => {
                let dir = usize::from(*back);
                let length = u64::from(*length);
                let mut flows = self.flows.values_mut();
                let fast = flows.find(|(of, way, _, left)| of == port && *way == dir && !left);
                let sum = &mut self.passed.entry(*port).or_default()[dir];
                sum.add(Counts {
                    packets: 1,
                    octets: length,
                });
                if let Some((_, _, counts, _)) = fast {
                    counts.packets += 1;
                    counts.frame_octets += length + LINK;
                    return;
                }
                let fresh = self.next_id + 1;
                let kernel = self.kernel.entry(*port).or_insert_with(|| Kernel {
                    id: fresh,
                    ..Kernel::default()
                });
                self.next_id = self.next_id.max(kernel.id);
                kernel.counts[dir].add(Counts {
                    packets: 1,
                    octets: length,
                });
            }
            Step::Learn(port, back) => {
                let there = |(of, way, _, left): &(u16, usize, FastCounts, bool)| {
                    of == port && *way == usize::from(*back) && !left
                };
                if !self.kernel.contains_key(port) || self.flows.values().any(there) {
                    return;
                }
                let index = self.next_index;
                self.next_index += 1;
                let way = if *back {
                    Direction::Reply
                } else {
                    Direction::Original
                };
                let flow = (*port, usize::from(*back), FastCounts::default(), false);
                self.flows.insert(index, flow);
                book.entered(index, key(*port), way, LINK as u16, [1, 2], self.now_ms);
            }
            Step::Leave(port) => {
                for (of, _, _, left) in self.flows.values_mut() {
                    *left |= of == port;
                }
            }
            Step::Release => {
                let gone: Vec<u32> = self.flows.iter().filter(|f| f.1.3).map(|f| *f.0).collect();
                for index in gone {
                    let (.., counts, _) = self.flows.remove(&index).unwrap();
                    book.released(index, counts, &mut self.records);
                }
            }
            Step::Destroy(port) => {
                if let Some(kernel) = self.kernel.remove(port) {
                    let gone = connection(*port, &kernel);
                    book.destroyed(&gone, self.now_ms, &mut self.records);
                }
                self.step(book, &Step::Leave(*port));
            }
            Step::Vanish(port) => {
                // what the kernel counted since the last look nobody can know
                self.step(book, &Step::Look);
                book.begin_round(true);
                self.list(book);
                self.kernel.remove(port);
                self.step(book, &Step::Leave(*port));
                self.step(book, &Step::Release);
            }
            Step::Look => {
                book.begin_round(false);
                self.list(book);
            }
            Step::Wait(ms) => self.now_ms += ms,
        }
    }

    fn list(&mut self, book: &mut Book) {
        let mut records = std::mem::take(&mut self.records);
        for (port, kernel) in &self.kernel {
            let found = connection(*port, kernel);
            book.seen(&found, self.read(), self.now_ms, &mut records);
        }
        book.end_round();
        while book.sweep(1, &mut records) {}
        self.records = records;
    }

    fn end(&mut self, book: &mut Book) {
        for port in self.kernel.keys().copied().collect::<Vec<_>>() {
            self.step(book, &Step::Destroy(port));
        }
        self.step(book, &Step::Release);
        // those whose end nobody told
        for _ in 0..3 {
            self.step(book, &Step::Look);
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let port = 1..5u16;
    prop_oneof![
        12 => (port.clone(), any::<bool>(), 20..1500u16).prop_map(|(p, b, l)| Step::Packet(p, b, l)),
        4 => (port.clone(), any::<bool>()).prop_map(|(p, b)| Step::Learn(p, b)),
        2 => port.clone().prop_map(Step::Leave),
        3 => Just(Step::Release),
        1 => port.clone().prop_map(Step::Destroy),
        1 => port.prop_map(Step::Vanish),
        2 => Just(Step::Look),
        2 => (0..4000u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_told_is_what_passed(steps in prop::collection::vec(step(), 0..200)) {
        let (mut world, mut book) = (World::default(), Book::new(TIMES));
        book.settled();
        for step in &steps {
            world.step(&mut book, step);
        }
        world.end(&mut book);
        let mut passed = world.passed.clone();
        passed.retain(|_, counts| !counts.iter().all(|c| c.is_zero()));
        prop_assert_eq!(told(&world.records), passed);
        prop_assert!(book.is_empty(), "{} left", book.len());
        prop_assert_eq!(book.totals().records, world.records.len() as u64);
    }
}

#[test]
fn what_was_there_before_is_not_told() {
    let mut book = Book::new(TIMES);
    let counts = |packets| Counts {
        packets,
        octets: packets * 100,
    };
    let mut kernel = Kernel {
        id: 9,
        counts: [counts(10), counts(20)],
    };
    book.known(&connection(1, &kernel), 1000);
    book.entered(3, key(1), Direction::Original, 14, [1, 2], 1000);
    let fast = |packets| FastCounts {
        packets,
        frame_octets: packets * 114,
    };
    book.disregard(3, fast(50));
    let mut records = Vec::new();
    book.released(3, fast(57), &mut records);
    kernel.counts[1] = counts(21);
    book.destroyed(&connection(2, &kernel), 2000, &mut records);
    assert!(records.is_empty(), "it was there before, too");
    book.settled();
    book.destroyed(&connection(1, &kernel), 2000, &mut records);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].counts, [counts(7), counts(1)]);
    assert_eq!(records[0].ports, [1, 2]);
    assert!(book.is_empty());
}

#[test]
fn a_listing_that_is_behind_tells_nothing_twice() {
    let mut book = Book::new(TIMES);
    book.settled();
    let one = Counts {
        packets: 1,
        octets: 60,
    };
    let kernel = Kernel {
        id: 9,
        counts: [one, one],
    };
    let stale = connection(1, &kernel);
    let mut records = Vec::new();
    book.begin_round(true);
    book.destroyed(&stale, 10, &mut records);
    book.seen(&stale, |_| FastCounts::default(), 20, &mut records);
    book.end_round();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].reason, EndReason::Idle);
    assert!(book.is_empty());
}

#[test]
fn connections_that_nobody_counts_are_counted() {
    let mut book = Book::new(TIMES);
    let mut gone = connection(1, &Kernel::default());
    (gone.counters_orig, gone.counters_reply) = (None, None);
    let mut records = Vec::new();
    book.destroyed(&gone, 10, &mut records);
    assert!(records.is_empty() && book.is_empty());
    assert_eq!(book.totals().uncounted, 1);
}
