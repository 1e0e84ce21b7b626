// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviour of the manager: first case by case, then at random against a model of the data plane
//! that refuses whatever would be wrong there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bridge;
mod cases;
mod groups;
mod handed;
mod paths;
mod random;
mod scale;
mod share;
mod snoop;
mod station;
mod vrf;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use freeway_abi::{
    FW_AF_INET, FW_EV_CANDIDATE, FW_EV_CHANGED, FW_ST_ACTIVE, FW_ST_PREPARING, FW_ST_SUSPENDED,
    fw_candidate, fw_conn, fw_flow, fw_nexthop, fw_state, fw_tuple, words_of,
};
use freeway_kernel::model::Tuple;

use crate::{Around, ConnKey, Fitness, FlowKey, Manager, Op, Port, Served, Settings, StateView};

/// So many frames left, and nobody looked.
fn around(copies: u32) -> Around {
    Around {
        copies,
        ..Around::PLAIN
    }
}

const HZ: u32 = 250;
const LAN: u32 = 1;
const WAN: u32 = 2;
/// Shortly before the clock wraps.
const START: u32 = 0xffff_f000;

/// One direction of the masqueraded connection number `n`:
/// 192.0.2.2:40000+n -> 198.51.100.2:80, seen by the server as 198.51.100.1:40000+n.
#[derive(Clone, Copy, Debug)]
struct Seen {
    n: u16,
    proto: u8,
    reply: bool,
    tracked: bool,
    /// Last byte of the next hop's MAC.
    via: u8,
    changed: bool,
}

impl Seen {
    fn new(proto: u8, n: u16) -> Self {
        Self {
            n,
            proto,
            reply: false,
            tracked: true,
            via: 1,
            changed: false,
        }
    }

    fn reply(self) -> Self {
        Self {
            reply: true,
            ..self
        }
    }

    fn tuple(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16, proto: u8) -> Tuple {
        let ip = |octets: [u8; 4]| IpAddr::from(Ipv4Addr::from(octets));
        Tuple {
            src: ip(src),
            dst: ip(dst),
            proto,
            sport,
            dport,
        }
    }

    /// As the two directions come in.
    fn tuples(&self) -> [Tuple; 2] {
        let (port, proto) = (40_000 + self.n, self.proto);
        [
            Self::tuple([192, 0, 2, 2], port, [198, 51, 100, 2], 80, proto),
            Self::tuple([198, 51, 100, 2], 80, [198, 51, 100, 1], port, proto),
        ]
    }

    fn conn(&self) -> ConnKey {
        ConnKey {
            orig: self.tuples()[0],
            zone: 0,
        }
    }

    fn key(&self) -> FlowKey {
        let [tuple, inverse] = self.tuples();
        match self.reply {
            false => FlowKey { tuple, port: LAN },
            true => FlowKey {
                tuple: inverse,
                port: WAN,
            },
        }
    }

    fn candidate(&self, epoch: u32, now_tick: u32) -> fw_candidate {
        let [orig, reply] = self.tuples();
        let (came, left) = if self.reply {
            (reply, orig.inverse())
        } else {
            (orig, reply.inverse())
        };
        let record = |t: &Tuple| fw_tuple {
            saddr_be: words_of(t.src),
            daddr_be: words_of(t.dst),
            sport_be: t.sport.to_be(),
            dport_be: t.dport.to_be(),
        };
        let mut c = fw_candidate {
            saddr_be: words_of(left.src),
            daddr_be: words_of(left.dst),
            sport_be: left.sport.to_be(),
            dport_be: left.dport.to_be(),
            l2_in_len: 14,
            l2_out_len: 14,
            len_l3: 100,
            l3_delta: 1,
            l4_delta: 2,
            family: FW_AF_INET as u8,
            ttl_in: 64,
            ttl_out: 63,
            nat: 1,
            port_out: if self.reply { LAN } else { WAN },
            epoch,
            first_tick: now_tick.wrapping_sub(10),
            ..Default::default()
        };
        // after what happened in this tick
        c.ev.tick = now_tick.wrapping_add(1);
        c.ev.kind = if self.changed {
            FW_EV_CHANGED
        } else {
            FW_EV_CANDIDATE
        };
        c.key.saddr_be = words_of(came.src);
        c.key.daddr_be = words_of(came.dst);
        c.key.sport_be = came.sport.to_be();
        c.key.dport_be = came.dport.to_be();
        c.key.port_proto = self.key().port << 8 | u32::from(self.proto);
        c.l2_out[..14].copy_from_slice(&[2, 0, 0, 0, 0, self.via, 2, 0, 0, 0, 0, 9, 8, 0]);
        let port = self.key().port as u8;
        c.l2_in[..14].copy_from_slice(&[2, 0, 0, 0, 0, port, 2, 0, 0, 0, 0, 7, 8, 0]);
        if self.tracked {
            c.conn = fw_conn {
                orig: record(&orig.tracked()),
                reply: record(&reply.tracked()),
                status: 0xe,
                timeout_ticks: 1000 * HZ,
                present: 1,
                dir: self.reply.into(),
                tcp_state: 3,
                ..Default::default()
            };
        }
        c
    }
}

/// The manager, and the data plane as its operations make it.
struct World {
    manager: Manager,
    now: u32,
    epoch: u32,
    flows: BTreeMap<u32, fw_flow>,
    nexthops: BTreeMap<u32, fw_nexthop>,
    /// When indices were last in use.
    left: BTreeMap<u32, u32>,
    nexthop_left: BTreeMap<u32, u32>,
    unconfirmed: BTreeSet<u32>,
    /// Preparations that wait for an answer.
    asked: Vec<ConnKey>,
    /// Flows of which the kernel has confirmed a packet.
    seen: BTreeSet<u32>,
}

/// A view without borrowing the world.
#[derive(Default)]
struct States {
    states: BTreeMap<u32, fw_state>,
    seen: RefCell<BTreeSet<u32>>,
}

impl StateView for States {
    fn state(&self, index: u32) -> fw_state {
        self.states.get(&index).copied().unwrap_or_default()
    }

    fn take_seen(&self, indices: Range<u32>, most: usize, seen: &mut Vec<u32>) -> u32 {
        let mut marked = self.seen.borrow_mut();
        let hits: Vec<u32> = marked.range(indices.clone()).take(most).copied().collect();
        marked.retain(|index| !hits.contains(index));
        let full = hits.len() == most;
        seen.extend(&hits);
        match hits.last() {
            Some(last) if full => last + 1,
            _ => indices.end,
        }
    }
}

impl World {
    fn new(settings: Settings) -> Self {
        let mut world = Self {
            manager: Manager::new(Settings { hz: HZ, ..settings }),
            now: START,
            epoch: 1,
            flows: BTreeMap::new(),
            nexthops: BTreeMap::new(),
            left: BTreeMap::new(),
            nexthop_left: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            asked: Vec::new(),
            seen: BTreeSet::new(),
        };
        for ifindex in [LAN, WAN] {
            world.call(|m, now, ops| m.set_port(port(ifindex), now, ops));
        }
        world.call(|m, now, ops| m.set_ruleset(Vec::new(), Vec::new(), now, ops));
        world
    }

    /// Calls the manager and carries out what it wants.
    fn call(&mut self, call: impl FnOnce(&mut Manager, u32, &mut Vec<Op>)) -> Vec<Op> {
        let mut ops = Vec::new();
        call(&mut self.manager, self.now, &mut ops);
        for op in &ops {
            self.apply(op);
        }
        self.check();
        ops
    }

    fn learn(&mut self, seen: Seen) -> Vec<Op> {
        let c = seen.candidate(self.epoch, self.now);
        self.call(|m, now, ops| m.candidate(&c, around(1), now, ops))
    }

    fn tick(&mut self) -> Vec<Op> {
        let view = self.view();
        let ops = self.call(|m, now, ops| m.tick(now, &view, ops));
        self.seen = view.seen.into_inner();
        ops
    }

    /// What a tick left.
    fn work(&mut self) -> Vec<Op> {
        let view = self.view();
        let ops = self.call(|m, now, ops| m.work(now, &view, ops));
        self.seen = view.seen.into_inner();
        ops
    }

    fn view(&self) -> States {
        States {
            states: self.flows.iter().map(|(i, f)| (*i, f.state)).collect(),
            seen: RefCell::new(self.seen.clone()),
        }
    }

    fn advance(&mut self, ticks: u32) {
        self.now = self.now.wrapping_add(ticks);
    }

    fn prepared(&mut self, conn: ConnKey, ok: bool) -> Vec<Op> {
        self.asked.retain(|c| *c != conn);
        self.call(|m, now, ops| m.prepared(&conn, ok, now, ops))
    }

    fn index(&self, seen: Seen) -> u32 {
        self.manager.find(&seen.key()).expect("a flow").0
    }

    fn has(&self, seen: Seen) -> bool {
        self.manager.find(&seen.key()).is_some()
    }

    fn quiet(since: Option<&u32>, now: u32) -> bool {
        since.is_none_or(|since| now.wrapping_sub(*since) >= HZ)
    }

    /// Carries out one operation, or panics where the data plane would go wrong.
    fn apply(&mut self, op: &Op) {
        match op {
            Op::SetNexthop { index, nexthop } => {
                let index = *index;
                assert_ne!(index, 0, "index 0 says none");
                let old = self.nexthops.insert(index, **nexthop);
                if old.is_none_or(|old| fw_nexthop { valid: 1, ..old } != **nexthop) {
                    let used = self.flows.values().any(|f| f.nexthop == index);
                    assert!(!used, "next hop {index} rewritten under its flows");
                    let since = self.nexthop_left.get(&index);
                    assert!(
                        Self::quiet(since, self.now),
                        "next hop {index} out of quarantine"
                    );
                }
            }
            Op::SetOlist { index, nexthop, .. } => {
                let nexthop = nexthop.clone();
                self.apply(&Op::SetNexthop {
                    index: *index,
                    nexthop,
                });
            }
            Op::InvalidateNexthop { index } => {
                self.nexthops.get_mut(index).expect("a next hop").valid = 0;
            }
            Op::InsertFlow { index, flow, .. } => {
                let (index, flow) = (*index, **flow);
                assert_ne!(index, 0, "index 0 says none");
                assert!(
                    Self::quiet(self.left.get(&index), self.now),
                    "{index} out of quarantine"
                );
                let twin = self.flows.values().any(|f| f.key == flow.key);
                assert!(!twin, "two flows with one key");
                assert_eq!(flow.state.status, FW_ST_PREPARING);
                assert_eq!(flow.state.peer, 0);
                assert!(
                    self.nexthops.contains_key(&flow.nexthop),
                    "its next hop was not written"
                );
                assert!(
                    self.flows.insert(index, flow).is_none(),
                    "{index} is in use"
                );
            }
            Op::RemoveFlow { index } => {
                let flow = self.flows.remove(index).expect("a flow to remove");
                self.left.insert(*index, self.now);
                self.nexthop_left.insert(flow.nexthop, self.now);
                self.unconfirmed.remove(index);
            }
            Op::ReleaseFlow { index } => {
                assert!(!self.flows.contains_key(index), "{index} is in use");
                let since = self.left.get(index);
                assert!(
                    since.is_some() && Self::quiet(since, self.now),
                    "{index} out of quarantine"
                );
            }
            Op::Activate { index } => {
                let state = &mut self.flows.get_mut(index).expect("a flow to activate").state;
                if state.status == FW_ST_PREPARING {
                    state.status = FW_ST_ACTIVE;
                }
            }
            Op::SetPeer { index, peer } => {
                self.flows.get_mut(index).expect("a flow").state.peer = *peer;
            }
            Op::Unconfirm { index } => {
                assert!(self.flows.contains_key(index));
                self.unconfirmed.insert(*index);
            }
            Op::Prepare { conn, timeout_s } => {
                assert_ne!(*timeout_s, Some(0));
                self.asked.push(*conn);
            }
            Op::SetTimeout { seconds, .. } => assert!(*seconds > 0),
            Op::ForgetOffer { flow } => assert_ne!(flow.key.port_proto, 0),
            Op::ForgetEnds { .. } => {}
            Op::SetEpoch { epoch } => {
                assert_ne!(*epoch, 0);
                self.epoch = *epoch;
            }
        }
    }

    /// What holds after every call.
    fn check(&self) {
        for (index, flow) in &self.flows {
            let peer = flow.state.peer;
            if peer != 0 {
                let other = self.flows.get(&peer).expect("the peer is in the table");
                assert_eq!(other.state.peer, *index, "peers name each other");
                assert_ne!(peer, *index);
            }
        }
        assert_eq!(self.manager.flow_count(), self.flows.len());
        for (index, flow) in self.manager.flows() {
            assert_eq!(flow.key.v4(), Some(self.flows[&index].key));
            assert_eq!(self.manager.find(&flow.key).map(|(i, _)| i), Some(index));
            assert_eq!(flow.nexthop, self.flows[&index].nexthop);
            if self.manager.legs(flow.nexthop).is_some() {
                continue;
            }
            let l2 = self
                .manager
                .nexthop_l2(flow.nexthop)
                .expect("its next hop is known");
            let nexthop = &self.nexthops[&flow.nexthop];
            assert_eq!(*l2, nexthop.l2[..nexthop.l2_len as usize]);
            let port = nexthop.port;
            assert_eq!(port, flow.port_out);
            if let Some(conn) = flow.conn {
                let connection = self
                    .manager
                    .connection(&conn)
                    .expect("its connection is known");
                // of several of one name any
                if self.manager.connections_of(&conn).len() == 1 {
                    assert_eq!(connection.flows[usize::from(flow.reply)], Some(index));
                }
            }
        }
        let used: BTreeSet<u32> = self.flows.values().map(|f| f.nexthop).collect();
        assert_eq!(
            self.manager.nexthop_count(),
            used.len(),
            "a next hop leaked"
        );
        let connected = self.manager.flows().filter(|(_, f)| f.conn.is_some());
        let conns: BTreeSet<(Tuple, [u32; 2])> = connected
            .map(|(_, f)| {
                let orig = match f.reply {
                    true => f.out.inverse(),
                    false => f.key.tuple,
                };
                (orig, self.manager.vrfs(f.key.port, f.port_out))
            })
            .collect();
        assert_eq!(
            self.manager.connection_count(),
            conns.len(),
            "a connection leaked"
        );
    }

    fn suspend(&mut self, index: u32) {
        if let Some(flow) = self.flows.get_mut(&index) {
            flow.state.status = FW_ST_SUSPENDED;
        }
    }
}

fn port(ifindex: u32) -> Port {
    Port {
        ifindex,
        slot: ifindex,
        mtu: 1500,
        mac: Some([2, 0, 0, 0, 0, ifindex as u8]),
        device: ifindex,
        framing: Default::default(),
        xdp: Fitness::FULL,
        by_station: false,
        engine: Served::No,
        classes: None,
        vrf: 0,
        tc: Fitness::default(),
    }
}

/// The names of operations, in order.
fn names(ops: &[Op]) -> Vec<&'static str> {
    ops.iter()
        .map(|op| match op {
            Op::SetNexthop { .. } => "set_nexthop",
            Op::SetOlist { .. } => "set_olist",
            Op::InvalidateNexthop { .. } => "invalidate_nexthop",
            Op::InsertFlow { .. } => "insert",
            Op::RemoveFlow { .. } => "remove",
            Op::ReleaseFlow { .. } => "release",
            Op::ForgetOffer { .. } => "forget_offer",
            Op::Activate { .. } => "activate",
            Op::SetPeer { .. } => "set_peer",
            Op::Unconfirm { .. } => "unconfirm",
            Op::Prepare { .. } => "prepare",
            Op::SetTimeout { .. } => "set_timeout",
            Op::ForgetEnds { .. } => "forget_ends",
            Op::SetEpoch { .. } => "set_epoch",
        })
        .collect()
}
