// SPDX-License-Identifier: MIT OR Apache-2.0
//! A full table: who gets a place in it, and at whose cost.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use freeway_abi::{FW_ST_ACTIVE, fw_candidate, fw_state, words_of};
use freeway_kernel::model::Tuple;

use super::{HZ, LAN, Seen, WAN, around, port};
use crate::key::FlowKey;
use crate::record::Record;
use crate::{Manager, Op, Settings, StateView};

const UDP: u8 = 17;

/// A flow of a host of the LAN, by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Of {
    host: u8,
    number: u32,
}

impl Of {
    fn address(self) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, self.host).into()
    }

    fn server(self) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 | self.number >> 12).into()
    }

    fn sport(self) -> u16 {
        1024 + (self.number & 0xfff) as u16
    }

    fn candidate(self, first_tick: u32, now: u32) -> fw_candidate {
        let mut c = Seen {
            tracked: false,
            ..Seen::new(UDP, 0)
        }
        .candidate(1, now);
        c.key.saddr_be = words_of(self.address());
        c.key.daddr_be = words_of(self.server());
        c.key.sport_be = self.sport().to_be();
        c.key.dport_be = 53u16.to_be();
        c.saddr_be = words_of(self.address());
        c.daddr_be = words_of(self.server());
        (c.sport_be, c.dport_be) = (self.sport().to_be(), 53u16.to_be());
        c.nat = 0;
        c.first_tick = first_tick;
        c.ev.tick = now;
        c
    }
}

/// States by index, as the data plane keeps them.
#[derive(Default)]
struct Shown(Vec<fw_state>);

impl StateView for Shown {
    fn state(&self, index: u32) -> fw_state {
        self.0.get(index as usize).copied().unwrap_or_default()
    }

    fn take_seen(&self, indices: Range<u32>, _most: usize, _seen: &mut Vec<u32>) -> u32 {
        indices.end
    }
}

/// The manager, flows by who they are, and the filter of offers: an observation, an offer if a second one follows within
/// a second, then silence for one.
struct Full {
    manager: Manager,
    now: u32,
    states: Shown,
    flows: HashMap<Of, u32>,
    whose: HashMap<u32, Of>,
    observed: HashMap<Of, (u32, Option<u32>)>,
    ops: Vec<Op>,
    hits: u64,
}

impl Full {
    fn new(flows_max: u32) -> Self {
        let settings = Settings {
            hz: HZ,
            flows_max,
            ..Settings::default()
        };
        let mut manager = Manager::new(settings);
        let mut ops = Vec::new();
        for ifindex in [LAN, WAN] {
            manager.set_port(port(ifindex), 0, &mut ops);
        }
        manager.set_ruleset(Vec::new(), Vec::new(), 0, &mut ops);
        Self {
            manager,
            now: 10 * HZ,
            states: Shown::default(),
            flows: HashMap::new(),
            whose: HashMap::new(),
            observed: HashMap::new(),
            ops: Vec::new(),
            hits: 0,
        }
    }

    fn apply(&mut self, of: Option<Of>) {
        for op in std::mem::take(&mut self.ops) {
            match op {
                Op::InsertFlow { index, flow, .. } => {
                    let of = of.expect("a candidate");
                    if self.states.0.len() <= index as usize {
                        self.states
                            .0
                            .resize_with(index as usize + 1, fw_state::default);
                    }
                    self.states.0[index as usize] = fw_state {
                        status: FW_ST_ACTIVE,
                        ..flow.state
                    };
                    self.flows.insert(of, index);
                    self.whose.insert(index, of);
                }
                Op::RemoveFlow { index } => {
                    let of = self.whose.remove(&index).expect("a flow");
                    self.flows.remove(&of);
                }
                _ => {}
            }
        }
    }

    fn packet(&mut self, of: Of) {
        if let Some(index) = self.flows.get(&of) {
            let state = &mut self.states.0[*index as usize];
            state.packets += 1;
            state.used_tick = self.now;
            self.hits += 1;
            return;
        }
        let seen = self.observed.entry(of).or_insert((0, None));
        match *seen {
            (_, Some(offered)) if self.now - offered < HZ => {}
            (first, None) if first != 0 && self.now - first < HZ => {
                seen.1 = Some(self.now);
                let c = of.candidate(first, self.now);
                self.manager
                    .candidate(&c, around(1), self.now, &mut self.ops);
                self.apply(Some(of));
            }
            _ => *seen = (self.now, None),
        }
    }

    fn tick(&mut self) {
        self.manager.tick(self.now, &self.states, &mut self.ops);
        self.apply(None);
        while self.manager.has_work() {
            self.manager.work(self.now, &self.states, &mut self.ops);
            self.apply(None);
        }
    }

    fn run(&mut self, seconds: u32, mut packets: impl FnMut(&mut Self)) {
        for tick in 0..seconds * HZ {
            self.now += 1;
            packets(self);
            if tick % (HZ / 4) == 0 {
                self.tick();
            }
        }
    }

    fn of_host(&self, host: u8) -> usize {
        self.flows.keys().filter(|of| of.host == host).count()
    }
}

/// Each of so many flows of a host has a packet in so many ticks.
fn each(full: &mut Full, host: u8, flows: u32, every: u32) {
    let at = full.now % every;
    for number in (0..flows).filter(|number| number % every == at) {
        full.packet(Of { host, number });
    }
}

#[test]
fn a_host_of_few_flows_has_its_share_at_once() {
    let mut full = Full::new(4096);
    full.run(30, |full| each(full, 1, 6000, 100));
    assert_eq!(full.of_host(1), 4096);
    let displaced = full.manager.stats().displaced;
    full.run(1, |full| {
        each(full, 1, 6000, 100);
        each(full, 2, 10, 50);
    });
    assert_eq!(full.of_host(2), 10, "within a second");
    assert!(full.manager.stats().displaced >= displaced + 10);
    // they go on more slowly than the other host's, and stay
    full.run(30, |full| {
        each(full, 1, 6000, 100);
        each(full, 2, 10, 200);
        assert_eq!(full.of_host(2), 10);
    });
    let holders = full.manager.greatest_holders(1);
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].address, Of { host: 1, number: 0 }.address());
    assert_eq!(full.manager.holder_count(), 2);
}

#[test]
fn shares_even_out_and_no_further() {
    let mut full = Full::new(2048);
    full.run(20, |full| each(full, 1, 3000, 100));
    full.run(60, |full| {
        each(full, 1, 3000, 100);
        each(full, 2, 3000, 100);
    });
    let (one, two) = (full.of_host(1), full.of_host(2));
    assert_eq!(one + two, 2048);
    assert!(two * 2 + 64 >= one && one * 2 + 64 >= two, "{one} {two}");
    let displaced = full.manager.stats().displaced;
    full.run(20, |full| {
        each(full, 1, 3000, 100);
        each(full, 2, 3000, 100);
    });
    let more = full.manager.stats().displaced - displaced;
    assert!(more < 2048 / 20, "{more} went to and fro among equals");
}

#[test]
fn a_hotter_flow_takes_the_place_of_a_colder_one() {
    let mut full = Full::new(1024);
    full.run(20, |full| each(full, 1, 1024, 200));
    assert_eq!(full.of_host(1), 1024);
    let hot = |full: &mut Full| {
        each(full, 1, 1024, 200);
        for number in 5000..5010 {
            if full.now % 20 == number % 20 {
                full.packet(Of { host: 1, number });
            }
        }
    };
    full.run(3, hot);
    let there = |full: &Full| {
        (5000..5010)
            .filter(|number| {
                full.flows.contains_key(&Of {
                    host: 1,
                    number: *number,
                })
            })
            .count()
    };
    assert_eq!(there(&full), 10);
    full.run(20, hot);
    assert_eq!(there(&full), 10, "they stay");
}

#[test]
fn flows_alike_stay() {
    let mut full = Full::new(1024);
    full.run(10, |full| each(full, 1, 1024, 100));
    full.run(30, |full| each(full, 1, 2048, 100));
    assert_eq!(full.of_host(1), 1024);
    let displaced = full.manager.stats().displaced;
    assert!(displaced < 1024 / 10, "{displaced}");
}

/// Sizes of flows by Zipf's law: the packets that are hits, against those of a table that has the greatest flows from
/// the start. `FREEWAY_LONG=1`: a million flows and 65,535 places, in minutes.
#[test]
fn flows_of_all_sizes_hit_nearly_as_often_as_they_can() {
    const EXPONENT: f64 = 1.1;
    let (flows, places, per_s) = match std::env::var_os("FREEWAY_LONG") {
        Some(_) => (1_000_000, 65_535, 1_000_000),
        None => (31_250, 2048, 31_250),
    };
    let mut sums = Vec::with_capacity(flows);
    let mut sum = 0.0;
    for rank in 1..=flows {
        sum += (rank as f64).powf(-EXPONENT);
        sums.push(sum);
    }
    let mut dice = 1u64;
    let mut draw = || {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (dice >> 11) as f64 / (1u64 << 53) as f64 * sum;
        sums.partition_point(|sum| *sum < at).min(flows - 1) as u32
    };
    let mut full = Full::new(places as u32);
    let mut second = |full: &mut Full| {
        for _ in 0..per_s / HZ as usize {
            // ranks have nothing to do with addresses
            let number = draw().wrapping_mul(0x9e37_79b1);
            full.packet(Of { host: 1, number });
        }
    };
    full.run(90, &mut second);
    let before = full.hits;
    full.run(20, &mut second);
    let share = (full.hits - before) as f64 / (20 * (per_s / HZ as usize * HZ as usize)) as f64;
    let oracle = sums[places - 1] / sum;
    println!(
        "{flows} flows, {places} places: {share:.3} of the packets hit, {oracle:.3} at best: {:.3}; {} displaced",
        share / oracle,
        full.manager.stats().displaced
    );
    assert!(share >= 0.85 * oracle, "{share:.3} of {oracle:.3}");
}

#[test]
fn a_prefix_of_ipv6_is_one_holder() {
    let holder = |src: &str, dst: &str| {
        let tuple = Tuple {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            proto: UDP,
            sport: 1,
            dport: 2,
        };
        let key = FlowKey { tuple, port: LAN };
        Record::new(&key, &tuple).unwrap().holder().to_string()
    };
    // an address is new for each connection, if a host likes
    assert_eq!(holder("2001:db8:1:2::9", "2001:db8::1"), "2001:db8:1:2::");
    assert_eq!(
        holder("2001:db8:1:2:ffff::1", "2001:db8::1"),
        "2001:db8:1:2::"
    );
    assert_eq!(holder("2001:db8:1:3::9", "2001:db8::1"), "2001:db8:1:3::");
    assert_eq!(holder("192.0.2.9", "192.0.2.1"), "192.0.2.9");
}
