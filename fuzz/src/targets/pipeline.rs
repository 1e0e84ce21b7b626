// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole of it without a kernel: frames, what a router makes of them, what the data plane learns, the manager's
//! operations, changes of all sorts. Twice: by the straight way of a hit, and step by step.

use std::cell::RefCell;
use std::net::IpAddr;
use std::ops::Range;

use freeway_abi::{
    FW_R_COUNT, FW_R_FAST, FW_ST_ACTIVE, FW_ST_PREPARING, FW_ST_SUSPENDED, fw_state, fw_tag,
};
use freeway_cmm::{
    Around, ConnKey, Fitness, FlowKey, Framing, Manager, Op, Policy, Port, RuleScope, Session,
    StateView, Tag,
};
use freeway_datapath::DataplaneEvent;
use freeway_datapath::user::Pipeline;
use freeway_kernel::model::{Event, Mac, Neigh, Source, Tuple};

use super::forwarded;
use super::input::Input;
use crate::support::frame::Frame;
use crate::support::router::{NOW, Router, connection, manager};

const HZ: u32 = 250;
const FLOWS: u32 = 32;
const STEPS: usize = 64;
/// Frames with this tag, or of this session, at that port are port 1's.
const TRUNK: u32 = 9;
const SESSION: Session = Session {
    id: 0x4567,
    remote: [2, 0, 0, 0, 0, 9],
    own: [2, 0, 0, 0, 0, 1],
};
const TAG: Tag = Tag {
    protocol: 0x8100,
    vlan: 0x123,
};

/// A direction of a conversation, and what the kernel does to it now.
struct Way {
    first: Frame,
    router: Router,
}

struct World {
    /// By the straight way, and step by step.
    pair: [Pipeline; 2],
    manager: Manager,
    now: u32,
    ways: Vec<Way>,
    asked: Vec<ConnKey>,
}

thread_local! {
    // allocating the tables would take most of the time
    static PAIR: RefCell<Option<([Pipeline; 2], u32, u32)>> = const { RefCell::new(None) };
}

/// Steps until the input ends.
pub fn run(bytes: &[u8]) {
    PAIR.with_borrow_mut(|kept| {
        let (pair, now, epoch) = kept.take().unwrap_or_else(|| (pair(), NOW, 0));
        let mut input = Input(bytes);
        let mut world = World::new(pair, now, epoch + 1, &mut input);
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            world.step(&mut input);
        }
        *kept = Some(world.end());
    });
}

fn pair() -> [Pipeline; 2] {
    #[allow(clippy::expect_used)]
    let new = || Pipeline::new(FLOWS, 16).expect("memory");
    let mut pair = [new(), new()];
    pair[1].set_straight(false);
    let tagged = Framing {
        tags: [TAG, Tag::default()],
        session: None,
    };
    let dialled = Framing {
        session: Some(SESSION),
        ..Framing::default()
    };
    for pipeline in &mut pair {
        for framing in [tagged, dialled] {
            assert!(
                pipeline.set_framing(&framing.record(TRUNK), &framing.framed(1)),
                "room"
            );
        }
    }
    pair
}

/// A frame as one of a session, with that length.
fn in_session(bytes: &[u8], macs: [[u8; 6]; 2], len: u16) -> Vec<u8> {
    let (link, packet) = bytes.split_at(bytes.len().min(14));
    let proto: u16 = if link.ends_with(&[0x86, 0xdd]) {
        0x57
    } else {
        0x21
    };
    let header = [0x8864, 0x1100, SESSION.id, len.wrapping_add(2), proto].map(u16::to_be_bytes);
    [macs.as_flattened(), header.as_flattened(), packet].concat()
}

fn packet_len(bytes: &[u8]) -> u16 {
    bytes.len().saturating_sub(14) as u16
}

/// A frame with tags.
fn tagged(bytes: &[u8], tags: &[fw_tag]) -> Vec<u8> {
    let (macs, rest) = bytes.split_at(bytes.len().min(12));
    let tags = tags.iter().filter(|tag| tag.tpid_be != 0);
    let tags = tags.flat_map(|tag| [tag.tpid_be.to_ne_bytes(), tag.tci_be.to_ne_bytes()]);
    [macs, &tags.flatten().collect::<Vec<u8>>(), rest].concat()
}

/// What leaves at port 2 is tagged and of a session, or not.
fn framing(bytes: &[u8]) -> Framing {
    let first = bytes.first().copied().unwrap_or(0);
    let tags = match first & 3 {
        1 | 3 => [TAG, Tag::default()],
        2 => [TAG, TAG],
        _ => Default::default(),
    };
    Framing {
        tags,
        session: (first & 4 != 0).then_some(SESSION),
    }
}

impl World {
    fn new(pair: [Pipeline; 2], now: u32, epoch: u32, input: &mut Input<'_>) -> Self {
        let framing = framing(input.0);
        let ways = (0..4).map(|n| way(n, input)).collect();
        let mut world = Self {
            pair,
            manager: manager(),
            now,
            ways,
            asked: Vec::new(),
        };
        // another epoch each time: what an earlier input taught counts for nothing
        let mut ops = Vec::new();
        let port = Port {
            ifindex: 2,
            slot: 2,
            mtu: 9000,
            mac: None,
            device: 2,
            framing,
            by_station: false,
            engine: freeway_cmm::Served::No,
            classes: None,
            vrf: 0,
            xdp: Fitness::FULL,
            tc: Fitness::default(),
        };
        world.manager.set_port(port, now, &mut ops);
        while world.manager.epoch() < epoch {
            world.manager.new_epoch(&mut ops);
        }
        let epoch = world.manager.epoch();
        for pipeline in &mut world.pair {
            pipeline.set_now(now);
            let control = pipeline.control();
            (control.on, control.epoch) = (FW_ST_ACTIVE, epoch);
            (control.watch, control.learn, control.udp_one_way) = (0, 1, 0);
            control.deadline_tick = now.wrapping_add(1 << 20);
        }
        world
    }

    /// Empty tables, and a later time.
    fn end(mut self) -> ([Pipeline; 2], u32, u32) {
        let indices: Vec<u32> = self.manager.flows().map(|(index, _)| index).collect();
        for pipeline in &mut self.pair {
            for index in &indices {
                pipeline.remove(*index);
                pipeline.forget(*index);
            }
            while pipeline.event().is_some() {}
        }
        let epoch = self.manager.epoch();
        // the manager counts up to it at the next start
        let epoch = if epoch > 4096 { 0 } else { epoch };
        (self.pair, self.now.wrapping_add(100 * HZ), epoch)
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 16 {
            0..=5 => self.packet(input),
            6 => {
                let len = usize::from(input.u16() % 1600);
                let frame = input.bytes(len).to_vec();
                let port = 1 + u32::from(input.flag());
                self.frame(&frame, port);
            }
            7 => {
                self.now = self
                    .now
                    .wrapping_add(input.pick(&[1, 2, HZ / 4, HZ, 10 * HZ, 60 * HZ]));
                for pipeline in &mut self.pair {
                    pipeline.set_now(self.now);
                }
            }
            8 => self.tick(),
            9 => {
                let ok = input.u8() & 7 != 0;
                if let Some(conn) = self.asked.pop() {
                    self.manage(|manager, now, ops| manager.prepared(&conn, ok, now, ops));
                }
            }
            10 => {
                let n = usize::from(input.u8()) % self.ways.len();
                self.ways[n] = way(n, input);
            }
            11 => self.control(input),
            12 => self.conn(input),
            13 => self.event(input),
            14 => self.rules(input),
            _ => {
                let index = input.u32() % (FLOWS + 1);
                if self.manager.flow(index).is_some() {
                    self.manage(|manager, now, ops| manager.insert_failed(index, now, ops));
                }
            }
        }
    }

    /// A packet of a conversation, perhaps odd: fast, or by the kernel.
    fn packet(&mut self, input: &mut Input<'_>) {
        let n = usize::from(input.u8()) % self.ways.len();
        let mut frame = self.ways[n].first.clone();
        let odd = input.u8();
        let tcp = frame.proto == 6;
        if odd & 1 != 0 {
            frame.payload = usize::from(input.u16() % 1480);
        }
        if odd & 2 != 0 {
            (frame.id, frame.flow_label) = (input.u16(), input.u32() & 0xf_ffff);
            (frame.seq, frame.ack) = (input.u32(), input.u32());
            frame.tos ^= input.u8() & 3;
        }
        if odd & 4 != 0 {
            frame.tcp_flags = input.u8();
            frame.doff = 5 + input.u8() % 11;
        }
        if odd & 8 != 0 {
            frame.padding = usize::from(input.u8() % 64);
        }
        if odd & 16 != 0 {
            match input.u8() % 8 {
                0 => frame.ttl = input.u8().max(1),
                1 => frame.tos = input.u8(),
                2 => frame.frag = input.u16(),
                3 => frame.ip_check = Some(input.u16()),
                4 => frame.l4_check = Some(input.u16()),
                5 => frame.ip_len = Some(input.u16()),
                6 => frame.src_mac = "02:00:00:00:00:07".into(),
                _ => frame.l4_check = (!tcp).then_some(0),
            }
        }
        let mut bytes = frame.bytes();
        if odd & 32 != 0 {
            patch(&mut bytes, input);
        }
        if self.frame(&bytes, 1) || odd & 64 != 0 {
            return;
        }
        // the kernel's turn
        frame.ttl = frame.ttl.max(1);
        let left = self.ways[n].router.route(&frame);
        let conn = connection(
            &self.ways[n].first,
            &self.ways[n].router.route(&self.ways[n].first),
        );
        if odd & 128 == 0 {
            for pipeline in &mut self.pair {
                pipeline.set_conn(&conn);
            }
        }
        let mut left = left.bytes();
        let gso = if odd & 32 != 0 {
            patch(&mut left, input);
            input.pick(&[0, 0, 0, 1, 1400, 3000])
        } else {
            0
        };
        let [token, other] = self.each(|p| p.ingress(&mut exactly(&bytes), 1, gso));
        assert_eq!(token, other, "tokens");
        let [learned, other] = self.each(|p| p.egress(&mut exactly(&left), 2, gso, token));
        assert_eq!(learned, other, "what was learned");
        assert!(learned < FW_R_COUNT);
        self.events();
    }

    /// True if it was forwarded.
    fn frame(&mut self, bytes: &[u8], port: u32) -> bool {
        let index = self.index_of(bytes, port);
        let before = index.and_then(|index| {
            let pipeline = &mut self.pair[0];
            let flow = *pipeline.flow(index)?;
            let nexthop = *pipeline.nexthop(flow.nexthop)?;
            Some((flow, nexthop, *pipeline.control()))
        });
        // some as a trunk has them
        let (sent, at) = match bytes.len() {
            len if port == 1 && len > 12 && len % 3 == 0 => (tagged(bytes, &[TAG.record()]), TRUNK),
            // its packet has no link layer's header then
            len if port == 1 && len > 14 && bytes[..12] == [0; 12] => {
                let macs = [SESSION.own, SESSION.remote];
                (in_session(bytes, macs, packet_len(bytes)), TRUNK)
            }
            _ => (bytes.to_vec(), port),
        };
        let [(fast, left), other] = self.each(|pipeline| {
            let mut frame = exactly(&sent);
            let verdict = pipeline.forward(&mut frame, at);
            assert!(verdict.reason < FW_R_COUNT);
            (verdict, frame)
        });
        assert_eq!(
            (&fast, &left),
            (&other.0, &other.1),
            "the straight way and step by step"
        );
        if fast.reason == FW_R_FAST {
            #[allow(clippy::expect_used)]
            let (flow, nexthop, control) = before.expect("a flow that the manager knows");
            forwarded::permitted(bytes, &flow, &nexthop, &control, self.now);
            let len = usize::from(nexthop.tags_len);
            let mut plain = [&left[..12], &left[12 + len..]].concat();
            assert_eq!(left, tagged(&plain, &nexthop.tag), "tags");
            if nexthop.session != 0 {
                let packet = &plain[22..];
                let link = SESSION.link(if plain[21] == 0x57 { 6 } else { 4 });
                let inner = [&link[..14], packet].concat();
                let macs = [SESSION.remote, SESSION.own];
                assert_eq!(
                    plain,
                    in_session(&inner, macs, packet_len(&inner)),
                    "session"
                );
                plain = inner;
            }
            forwarded::rewritten(bytes, &flow, &nexthop, &plain);
            assert_eq!(fast.port_out, Some(nexthop.port));
        } else {
            assert_eq!(left, sent, "the kernel's frame was touched");
        }
        if let Some(index) = index {
            let [state, other] = self.each(|p| p.flow(index).map(|flow| flow.state));
            assert_eq!(state, other, "states");
        }
        self.events();
        fast.reason == FW_R_FAST
    }

    fn each<T>(&mut self, mut call: impl FnMut(&mut Pipeline) -> T) -> [T; 2] {
        let [straight, stepwise] = &mut self.pair;
        [call(straight), call(stepwise)]
    }

    /// The flow that the manager has for a frame.
    fn index_of(&self, frame: &[u8], port: u32) -> Option<u32> {
        let ip = frame.get(14..)?;
        let v6 = frame[12..14] == [0x86, 0xdd];
        let (at, len, l4, proto) = if v6 {
            (8, 16, 40, *ip.get(6)?)
        } else {
            (12, 4, 20, *ip.get(9)?)
        };
        let address = |at: usize| -> Option<IpAddr> {
            let octets = ip.get(at..at + len)?;
            match v6 {
                true => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
                false => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
            }
        };
        let number = |at: usize| Some(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?]));
        let tuple = Tuple {
            src: address(at)?,
            dst: address(at + len)?,
            proto,
            sport: number(l4)?,
            dport: number(l4 + 2)?,
        };
        self.manager
            .find(&FlowKey { tuple, port })
            .map(|(index, _)| index)
    }

    /// What the data planes tell: both the same.
    fn events(&mut self) {
        let [event, other] = self.each(Pipeline::event);
        assert_eq!(format!("{event:?}"), format!("{other:?}"), "events");
        match event {
            Some(DataplaneEvent::Candidate(c)) => {
                self.manage(|manager, now, ops| manager.candidate(&c, Around::PLAIN, now, ops));
            }
            Some(DataplaneEvent::Suspended(event)) => self.manage(|manager, now, ops| {
                manager.suspended(event.state, event.reason, now, ops);
            }),
            // bridged frames and prefix paths are not the pipeline's
            Some(
                DataplaneEvent::Watch(_)
                | DataplaneEvent::Dropped(_)
                | DataplaneEvent::Crossed(_)
                | DataplaneEvent::Strayed(_),
            )
            | None => {}
        }
    }

    /// Lets the manager do something, and carries out what it wants.
    fn manage(&mut self, call: impl FnOnce(&mut Manager, u32, &mut Vec<Op>)) {
        let mut ops = Vec::new();
        call(&mut self.manager, self.now, &mut ops);
        for op in ops {
            self.carry_out(&op);
        }
    }

    fn carry_out(&mut self, op: &Op) {
        if let Op::Prepare { conn, .. } = op {
            self.asked.push(*conn);
        }
        for pipeline in &mut self.pair {
            match op {
                Op::SetNexthop { index, nexthop } => {
                    if let Some(to) = pipeline.nexthop(*index) {
                        *to = **nexthop;
                    }
                }
                // no multicast is routed
                Op::SetOlist { .. } => {}
                Op::InvalidateNexthop { index } => {
                    if let Some(to) = pipeline.nexthop(*index) {
                        to.valid = 0;
                    }
                }
                Op::InsertFlow {
                    index, flow, kept, ..
                } => {
                    if let Some(to) = pipeline.kept(*index) {
                        *to = *kept;
                    }
                    #[allow(clippy::expect_used)]
                    let to = pipeline.flow(*index).expect("an index of the table");
                    *to = **flow;
                    assert!(
                        pipeline.insert(*index),
                        "buckets of a small table are not full"
                    );
                    pipeline.forget(*index);
                }
                Op::RemoveFlow { index } => {
                    if let Some(flow) = pipeline.flow(*index) {
                        flow.state.status = FW_ST_SUSPENDED;
                    }
                    pipeline.remove(*index);
                    pipeline.forget(*index);
                }
                Op::Activate { index } => change(pipeline, *index, |state| {
                    if state.status == FW_ST_PREPARING {
                        state.status = FW_ST_ACTIVE;
                    }
                }),
                Op::SetPeer { index, peer } => pipeline.set_peer(*index, *peer),
                Op::Unconfirm { index } => change(pipeline, *index, |state| state.epoch = 0),
                // there are none: closing segments are judged by flows alone
                Op::ForgetEnds { .. } => {}
                Op::SetEpoch { epoch } => pipeline.control().epoch = *epoch,
                Op::ForgetOffer { flow } => {
                    // index 0 is no flow's
                    if let Some(room) = pipeline.flow(0) {
                        *room = **flow;
                    }
                    pipeline.forget(0);
                }
                // the library releases what it removes
                Op::ReleaseFlow { .. } | Op::Prepare { .. } | Op::SetTimeout { .. } => {}
            }
        }
    }

    fn tick(&mut self) {
        let indices = 1..self.manager.index_end();
        let marked: Vec<Vec<bool>> = self
            .each(|p| indices.clone().map(|index| p.take_seen(index)).collect())
            .into();
        assert_eq!(marked[0], marked[1], "marks");
        let states = indices
            .clone()
            .map(|index| self.pair[0].flow(index).map(|f| f.state));
        let view = View {
            states: states.map(Option::unwrap_or_default).collect(),
            seen: indices
                .zip(&marked[0])
                .filter(|(_, seen)| **seen)
                .map(|(i, _)| i)
                .collect(),
        };
        self.manage(|manager, now, ops| manager.tick(now, &view, ops));
        while self.manager.has_work() {
            self.manage(|manager, now, ops| manager.work(now, &view, ops));
        }
    }

    fn control(&mut self, input: &mut Input<'_>) {
        let (what, value) = (input.u8() % 6, input.flag());
        let now = self.now;
        for pipeline in &mut self.pair {
            let control = pipeline.control();
            match what {
                0 => control.on = if value { FW_ST_ACTIVE } else { 0 },
                1 => control.deadline_tick = now.wrapping_add(if value { 1 << 20 } else { 0 }),
                2 => control.learn = value.into(),
                3 => control.watch = value.into(),
                4 => control.udp_one_way = value.into(),
                _ => control.reval_budget = if value { 1000 } else { 0 },
            }
        }
        if what == 5 && value {
            self.manage(|manager, _, ops| manager.new_epoch(ops));
        }
    }

    fn conn(&mut self, input: &mut Input<'_>) {
        let way = &self.ways[usize::from(input.u8()) % self.ways.len()];
        let mut conn = connection(&way.first, &way.router.route(&way.first));
        match input.u8() % 8 {
            0 => conn.present = 0,
            1 => conn.status = input.u32(),
            2 => conn.mark = input.u32(),
            3 => conn.tcp_state = input.u8(),
            4 => conn.helper = 1,
            5 => conn.timeout_ticks = input.u32(),
            6 => conn.dir = 1,
            _ => {}
        }
        for pipeline in &mut self.pair {
            pipeline.set_conn(&conn);
        }
    }

    fn event(&mut self, input: &mut Input<'_>) {
        let way = &self.ways[usize::from(input.u8()) % self.ways.len()];
        let ip = way.first.dst;
        let event = match input.u8() % 4 {
            0 => Event::NeighChanged(Neigh {
                ifindex: 2,
                ip,
                lladdr: input.flag().then_some(Mac([2, 0, 0, 0, 0, 4])),
                state: input.pick(&[2, 4, 0x20, 0x80]),
            }),
            1 => Event::RoutesUnknown,
            2 => Event::Overrun {
                source: Source::Route,
            },
            _ => Event::XfrmChanged,
        };
        self.manage(|manager, now, ops| manager.kernel_event(&event, now, ops));
    }

    fn rules(&mut self, input: &mut Input<'_>) {
        let scopes = match input.u8() % 4 {
            0 => vec![RuleScope::everything()],
            1 => vec![RuleScope {
                ipv4: true,
                protos: vec![6],
                ..RuleScope::default()
            }],
            _ => Vec::new(),
        };
        match input.u8() % 4 {
            0 => self.manage(|manager, now, ops| manager.set_ruleset(scopes, Vec::new(), now, ops)),
            1 => {
                let udp = input.flag();
                let policy = Policy {
                    udp,
                    ..Policy::default()
                };
                self.manage(|manager, now, ops| manager.set_policy(policy, now, ops));
            }
            2 => {
                let ifindex = 1 + u32::from(input.flag());
                let output = input.flag();
                let port = Port {
                    ifindex,
                    slot: ifindex,
                    mtu: 9000,
                    mac: None,
                    device: ifindex,
                    framing: Framing::default(),
                    by_station: false,
                    engine: freeway_cmm::Served::No,
                    classes: None,
                    vrf: 0,
                    xdp: Fitness {
                        input: true,
                        output,
                    },
                    tc: Fitness::default(),
                };
                self.manage(|manager, now, ops| manager.set_port(port, now, ops));
            }
            _ => self.manage(|manager, now, ops| manager.flush(now, ops)),
        }
    }
}

fn change(pipeline: &mut Pipeline, index: u32, change: impl FnOnce(&mut fw_state)) {
    if let Some(flow) = pipeline.flow(index) {
        change(&mut flow.state);
    }
}

/// A copy that is exactly as long as it is, so that a sanitizer sees each byte too many.
fn exactly(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec().into_boxed_slice().into_vec()
}

fn patch(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    for _ in 0..input.u8() % 4 {
        let at = usize::from(input.u16()) % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = input.u8();
        }
    }
    let len = usize::from(input.u8()) * 8;
    if len != 0 {
        bytes.truncate(len);
    }
}

fn way(n: usize, input: &mut Input<'_>) -> Way {
    let v6 = n & 1 != 0;
    let (src, dst): (IpAddr, IpAddr) = if v6 {
        (
            [0x2001, 0xdb8, 1, 0, 0, 0, 0, 2].into(),
            [0x2001, 0xdb8, 2, 0, 0, 0, 0, 2].into(),
        )
    } else {
        ([192, 0, 2, 2].into(), [198, 51, 100, 2].into())
    };
    let first = Frame {
        src,
        dst,
        proto: if n & 2 != 0 { 6 } else { 17 },
        ttl: input.u8().max(2),
        tos: input.u8(),
        payload: usize::from(input.u16() % 1400),
        ..Frame::default()
    };
    let nat = input.u8();
    let other: IpAddr = if v6 {
        [0x2001, 0xdb8, 3, 0, 0, 0, 0, input.u16()].into()
    } else {
        [203, 0, 113, input.u8()].into()
    };
    let router = Router {
        to: (
            if nat & 1 != 0 { other } else { first.src },
            if nat & 2 != 0 {
                input.u16()
            } else {
                first.sport
            },
            if nat & 4 != 0 { other } else { first.dst },
            if nat & 8 != 0 {
                input.u16()
            } else {
                first.dport
            },
        ),
        tos: (nat & 16 != 0).then(|| input.u8() & 63),
    };
    Way { first, router }
}

struct View {
    /// From index 1.
    states: Vec<fw_state>,
    seen: Vec<u32>,
}

impl StateView for View {
    fn state(&self, index: u32) -> fw_state {
        let at = (index as usize).wrapping_sub(1);
        self.states.get(at).copied().unwrap_or_default()
    }

    fn take_seen(&self, indices: Range<u32>, _most: usize, seen: &mut Vec<u32>) -> u32 {
        seen.extend(self.seen.iter().filter(|index| indices.contains(index)));
        indices.end
    }
}
