// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the learning vectors of tests/vectors/learn.toml natively: a frame comes in, a frame leaves,
//! and what is learned from the pair is compared with what the two frames say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::IpAddr;

use freeway_abi::{
    FW_EV_CANDIDATE, FW_EV_CHANGED, FW_KEY_IP6, FW_OFFER_SETS, FW_R_COUNT, FW_R_LEARN_OFFERED,
    FW_SOURCE_OFFERS, REASONS, fw_candidate, fw_conn,
};
use freeway_datapath::DataplaneEvent;
use serde::Deserialize;
use support::frame::{Frame, octets};
use support::router::{inverse, tracked, tuple};
use support::state::{Change, Flow, delta, l4_summed};
use support::target::{Native, Target};
use toml::Table;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    /// A flow that is in the table.
    flow: Option<Table>,
    frame: Table,
    /// How the frame that leaves differs from the one that came in.
    out: Table,
    #[serde(default)]
    gso_in: u32,
    #[serde(default)]
    gso_out: u32,
    #[serde(default = "port_out")]
    port_out: u32,
    conn: Option<Conn>,
    #[serde(default)]
    control: Control,
    /// What each frame that leaves teaches. Empty: the frame that came in gets no token.
    steps: Vec<String>,
    /// Frames that leave for each that comes in.
    #[serde(default = "one")]
    copies: usize,
    /// Ticks between coming in and leaving, and between two steps.
    #[serde(default)]
    queued: u32,
    #[serde(default)]
    pause: u32,
    /// `candidate` or `changed`, after the last step.
    event: Option<String>,
    /// Of the flow.
    state: Option<Change>,
}

fn one() -> usize {
    1
}

fn port_out() -> u32 {
    2
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Control {
    epoch: u32,
    /// The epoch when the frame leaves.
    epoch_out: u32,
    offer_budget: u32,
    udp_one_way: u32,
    tracks4: u32,
    tracks6: u32,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            epoch: 1,
            epoch_out: 1,
            offer_budget: 1000,
            udp_one_way: 0,
            tracks4: 0,
            tracks6: 0,
        }
    }
}

/// The connection; its tuples are those of the two frames unless said otherwise.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Conn {
    status: u32,
    mark: u32,
    dir: u8,
    tcp_state: u8,
    helper: u8,
    seqadj: u8,
    /// Of another connection.
    foreign: bool,
    /// There is none.
    absent: bool,
}

impl Default for Conn {
    fn default() -> Self {
        // SEEN_REPLY, ASSURED, CONFIRMED; established
        Self {
            status: 0xe,
            mark: 0,
            dir: 0,
            tcp_state: 3,
            helper: 0,
            seqadj: 0,
            foreign: false,
            absent: false,
        }
    }
}

impl Conn {
    fn record(&self, came: &Frame, left: &Frame) -> fw_conn {
        let proto = came.proto;
        let (mut mine, other) = (tracked(tuple(came), proto), inverse(tuple(left), proto));
        if self.foreign {
            mine.dport_be ^= 1;
        }
        let (orig, reply) = if self.dir == 0 {
            (mine, other)
        } else {
            (other, mine)
        };
        fw_conn {
            orig,
            reply,
            status: self.status,
            mark: self.mark,
            timeout_ticks: 10_000,
            present: (!self.absent).into(),
            dir: self.dir,
            tcp_state: self.tcp_state,
            helper: self.helper,
            seqadj: self.seqadj,
            ..Default::default()
        }
    }
}

fn header(frame: &Frame) -> [u8; 14] {
    frame.bytes()[..14].try_into().unwrap()
}

/// The candidate that a pair of frames makes, deltas summed up from all the bytes that differ.
fn wanted(came: &Frame, left: &Frame, conn: &fw_conn) -> fw_candidate {
    let addresses = |f: &Frame| [octets(f.src), octets(f.dst)].concat();
    let ports = |f: &Frame| [f.sport.to_be_bytes(), f.dport.to_be_bytes()].concat();
    let (t, out) = (tuple(came), tuple(left));
    let family = if came.src.is_ipv4() { 4 } else { 6 };
    let mut c = fw_candidate {
        saddr_be: out.saddr_be,
        daddr_be: out.daddr_be,
        sport_be: out.sport_be,
        dport_be: out.dport_be,
        l2_in_len: 14,
        l2_out_len: 14,
        len_l3: came.len_l3() as u16,
        l4_delta: delta(
            &l4_summed(came.proto, addresses(came), ports(came)),
            &l4_summed(came.proto, addresses(left), ports(left)),
        ),
        l3_delta: delta(
            &[addresses(came), vec![came.ttl, came.proto, 0x45, came.tos]].concat(),
            &[addresses(left), vec![left.ttl, left.proto, 0x45, left.tos]].concat(),
        ),
        family,
        tos_in: came.tos,
        tos_out: left.tos,
        ttl_in: came.ttl,
        ttl_out: left.ttl,
        nat: u8::from(t != out),
        conn: *conn,
        ..Default::default()
    };
    c.key.saddr_be = t.saddr_be;
    c.key.daddr_be = t.daddr_be;
    c.key.sport_be = t.sport_be;
    c.key.dport_be = t.dport_be;
    c.key.port_proto = 1 << 8 | u32::from(came.proto) | if family == 6 { FW_KEY_IP6 } else { 0 };
    c.l2_in[..14].copy_from_slice(&header(came));
    c.l2_out[..14].copy_from_slice(&header(left));
    c
}

fn name(reason: u32) -> &'static str {
    REASONS[reason as usize].name
}

fn run(vector: &Vector, common: &Table) {
    let context = &vector.name;
    let named = |kind: &str, table: &Table| support::over(common, kind, table);
    let came_table = named("frame", &vector.frame);
    let mut left_table = came_table.clone();
    left_table.extend(vector.out.clone());
    let came: Frame = came_table.try_into().unwrap();
    let left: Frame = left_table.try_into().unwrap();
    let mut target = Native::new(true);
    let mut now = target.now();
    let hz = target.hz();
    target.0.control().deadline_tick = now.wrapping_add(1 << 20);
    let conn = vector
        .conn
        .as_ref()
        .map_or_else(fw_conn::default, |c| c.record(&came, &left));
    target.conn(&conn);
    let before = vector.flow.as_ref().map(|table| {
        let flow: Flow = named("flow", table).try_into().unwrap();
        let state = flow.state(now, hz);
        target.nexthop(1, flow.nexthop(0));
        target.insert(1, &flow.record(1, false, state));
        target.state(1)
    });
    let counts = target.counts();
    let mut expected = vec![0u64; FW_R_COUNT as usize];
    let mut first_tick = None;
    let mut event = None;
    let rounds = vector.steps.chunks(vector.copies.max(1));
    if vector.steps.is_empty() {
        assert_eq!(
            target.0.ingress(&mut came.bytes(), 1, vector.gso_in),
            0,
            "{context}: a token"
        );
    }
    for round in rounds {
        target.0.control().epoch = vector.control.epoch;
        target.0.control().offer_budget = vector.control.offer_budget;
        target.0.control().udp_one_way = vector.control.udp_one_way;
        target.0.control().tracks4 = vector.control.tracks4;
        target.0.control().tracks6 = vector.control.tracks6;
        let mut bytes = came.bytes();
        let token = target.0.ingress(&mut bytes, 1, vector.gso_in);
        // a flow that was offered is silent for a second
        assert_eq!(
            token == 0,
            round == ["learn_offered"],
            "{context}: token {token}"
        );
        assert_eq!(
            bytes,
            came.bytes(),
            "{context}: tc ingress wrote to the frame"
        );
        now = now.wrapping_add(vector.queued);
        target.0.set_now(now);
        target.0.control().epoch = vector.control.epoch_out;
        if token == 0 {
            expected[FW_R_LEARN_OFFERED as usize] += 1;
            event = target.0.event();
        }
        for step in round.iter().filter(|_| token != 0) {
            let mut bytes = left.bytes();
            let reason = target
                .0
                .egress(&mut bytes, vector.port_out, vector.gso_out, token);
            assert_eq!(name(reason), step, "{context}, steps {:?}", vector.steps);
            assert_eq!(
                bytes,
                left.bytes(),
                "{context}: tc egress wrote to the frame"
            );
            expected[reason as usize] += 1;
            if step == "learn_once" {
                first_tick = Some(now);
            }
            event = target.0.event();
        }
        now = now.wrapping_add(vector.pause);
        target.0.set_now(now);
    }
    let counted: Vec<u64> = target
        .counts()
        .iter()
        .zip(&counts)
        .map(|(a, b)| a - b)
        .collect();
    assert_eq!(counted, expected, "{context}: counters");
    match (&vector.event, event) {
        (None, None) => {}
        (Some(kind), Some(DataplaneEvent::Candidate(c))) => {
            let kind_number = match kind.as_str() {
                "candidate" => FW_EV_CANDIDATE,
                "changed" => FW_EV_CHANGED,
                _ => panic!("no event: {kind}"),
            };
            assert_eq!(c.ev.kind, kind_number, "{context}");
            assert_eq!(
                c.ev.state,
                u32::from(kind == "changed"),
                "{context}: flow concerned"
            );
            assert_eq!(c.port_out, vector.port_out, "{context}");
            assert_eq!(c.epoch, vector.control.epoch, "{context}");
            assert_eq!(
                Some(c.first_tick),
                first_tick,
                "{context}: first of the two"
            );
            let rest = wanted(&came, &left, &conn);
            let have = fw_candidate {
                ev: Default::default(),
                port_out: 0,
                epoch: 0,
                token: 0,
                first_tick: 0,
                ..*c
            };
            assert_eq!(have, rest, "{context}");
        }
        (wanted, have) => panic!("{context}: event {have:?}, expected {wanted:?}"),
    }
    if let Some(before) = before {
        let change = vector.state.clone().unwrap_or_default();
        let last = now.wrapping_sub(vector.pause);
        assert_eq!(
            target.state(1),
            change.apply(before, last, hz),
            "{context}: the flow's state"
        );
    }
}

/// A frame and what a router makes of it.
fn pair(base: &str) -> (Frame, Frame) {
    let common = support::read("common.toml");
    let text = format!("base = \"{base}\"");
    let came: Table = support::over(&common, "frame", &text.parse().unwrap());
    let mut left = came.clone();
    left.extend(
        "dst_mac = \"02:00:00:00:00:04\"\nsrc_mac = \"02:00:00:00:00:03\"\nttl = 63"
            .parse::<Table>()
            .unwrap(),
    );
    (came.try_into().unwrap(), left.try_into().unwrap())
}

/// Sends the pair through the kernel's way; what was learned.
fn observe(target: &mut Native, (came, left): &(Frame, Frame)) -> &'static str {
    let token = target.0.ingress(&mut came.bytes(), 1, 0);
    if token == 0 {
        return "learn_offered";
    }
    name(target.0.egress(&mut left.bytes(), 2, 0, token))
}

fn ready(pair: &(Frame, Frame)) -> Native {
    let mut target = Native::new(true);
    target.0.control().deadline_tick = target.now().wrapping_add(1 << 20);
    target.conn(&Conn::default().record(&pair.0, &pair.1));
    target
}

/// Enters the flow of a pair as number 1.
fn enter(target: &mut Native, base: &str) {
    let named = base.replace("udp", "routed").replace("tcp", "routed_tcp");
    // As what is observed has.
    let table = format!("base = \"{named}\"\nconn = true").parse().unwrap();
    let table = support::over(&support::read("common.toml"), "flow", &table);
    let flow: Flow = table.try_into().unwrap();
    let state = flow.state(target.now(), target.hz());
    target.nexthop(1, flow.nexthop(0));
    target.insert(1, &flow.record(1, false, state));
}

#[test]
fn a_tuple_whose_flow_left_is_learned_anew_at_once() {
    for base in ["udp4", "udp6", "tcp4", "tcp6"] {
        let pair = pair(base);
        let mut target = ready(&pair);
        assert_eq!(observe(&mut target, &pair), "learn_once");
        assert_eq!(observe(&mut target, &pair), "learned");
        assert_eq!(observe(&mut target, &pair), "learn_offered", "{base}");
        enter(&mut target, base);
        target.0.remove(1);
        target.0.forget(1);
        assert_eq!(observe(&mut target, &pair), "learn_once", "{base}");
        assert_eq!(observe(&mut target, &pair), "learned", "{base}");
    }
}

#[test]
fn observations_that_differ_are_no_pattern() {
    type Change = fn(&mut Frame, &mut Frame);
    let changes: [(&str, Change); 7] = [
        ("next hop", |_, left| {
            left.dst_mac = "02:00:00:00:00:08".into()
        }),
        ("own MAC", |_, left| {
            left.src_mac = "02:00:00:00:00:08".into()
        }),
        ("TTL that leaves", |_, left| left.ttl = 60),
        ("DSCP that leaves", |_, left| left.tos = 0x28),
        ("station", |came, _| {
            came.src_mac = "02:00:00:00:00:08".into()
        }),
        ("TTL", |came, _| came.ttl = 61),
        ("DSCP", |came, left| (came.tos, left.tos) = (0x28, 0)),
    ];
    for base in ["udp4", "udp6", "tcp4", "tcp6"] {
        for (what, change) in changes {
            let pair = pair(base);
            let mut other = pair.clone();
            change(&mut other.0, &mut other.1);
            let mut target = ready(&pair);
            assert_eq!(observe(&mut target, &pair), "learn_once");
            assert_eq!(observe(&mut target, &other), "learn_once", "{base}: {what}");
            assert_eq!(observe(&mut target, &other), "learned", "{base}: {what}");
        }
    }
}

#[test]
fn a_candidate_that_found_no_room_is_offered_with_the_next_packet() {
    for base in ["udp4", "udp6", "tcp4", "tcp6"] {
        let pair = pair(base);
        let mut target = ready(&pair);
        assert_eq!(observe(&mut target, &pair), "learn_once");
        target.0.set_full(true);
        for _ in 0..3 {
            assert_eq!(observe(&mut target, &pair), "learn_ring", "{base}");
        }
        target.0.set_full(false);
        assert_eq!(observe(&mut target, &pair), "learned", "{base}");
        assert_eq!(observe(&mut target, &pair), "learn_offered", "{base}");
    }
}

/// The same pair from a host of that number, of a flow of its own.
fn of_host(pair: &(Frame, Frame), host: u16, flow: u32) -> (Frame, Frame) {
    let mut pair = pair.clone();
    let octets = host.to_be_bytes();
    for frame in [&mut pair.0, &mut pair.1] {
        frame.src = match frame.src {
            IpAddr::V4(_) => [10, 0, octets[0], octets[1]].into(),
            // whatever a host of IPv6 chooses below its prefix
            IpAddr::V6(_) => {
                let low = flow as u16;
                [0x2001, 0xdb8, 1, host, 1, 2, 3, low].into()
            }
        };
        (frame.sport, frame.dport) = (flow as u16, 1024 + (flow >> 16) as u16);
    }
    pair
}

#[test]
fn a_source_of_many_offers_leaves_half_of_the_room_to_others() {
    type Press = fn(&mut Native);
    let presses: [Press; 2] = [
        |target| target.0.set_crowded(true),
        |target| target.0.control().offer_budget = 2 * FW_SOURCE_OFFERS,
    ];
    for (base, press) in ["udp4", "udp6"].into_iter().zip(presses) {
        let pair = pair(base);
        let mut target = ready(&pair);
        target.0.control().offer_budget = u32::MAX;
        let host_shows = |target: &mut Native, host, flow| {
            let pair = of_host(&pair, host, flow);
            target.conn(&Conn::default().record(&pair.0, &pair.1));
            assert_eq!(observe(target, &pair), "learn_once", "{base} {host} {flow}");
            observe(target, &pair)
        };
        for flow in 0..FW_SOURCE_OFFERS {
            assert_eq!(host_shows(&mut target, 1, flow), "learned", "{base} {flow}");
        }
        assert_eq!(host_shows(&mut target, 1, 50_000), "learned", "no need");
        press(&mut target);
        assert_eq!(host_shows(&mut target, 1, 50_001), "learn_source", "{base}");
        for flow in 0..100 {
            assert_eq!(host_shows(&mut target, 2, flow), "learned", "{base} {flow}");
        }
        let later = target.now().wrapping_add(target.hz());
        target.0.set_now(later);
        assert_eq!(
            host_shows(&mut target, 1, 50_002),
            "learned",
            "a new second"
        );
    }
}

#[test]
fn a_source_of_many_flows_leaves_half_of_the_places_to_others() {
    let pair = pair("udp4");
    let mut target = ready(&pair);
    let mut shown = |host, flow| {
        let pair = of_host(&pair, host, flow);
        target.conn(&Conn::default().record(&pair.0, &pair.1));
        observe(&mut target, &pair)
    };
    let mut refused = 0;
    for flow in 0..3 * FW_OFFER_SETS {
        match shown(1, flow) {
            "learn_source" => refused += 1,
            reason => assert_eq!(reason, "learn_once", "{flow}"),
        }
    }
    assert!(refused > FW_OFFER_SETS / 2, "{refused}");
    for flow in 0..1000 {
        assert_eq!(shown(2, flow), "learn_once", "{flow}");
        assert_eq!(shown(2, flow), "learned", "{flow}");
    }
}

#[test]
fn confirmed_tcp_flows_are_marked() {
    for (base, marked) in [("udp4", false), ("tcp4", true), ("tcp6", true)] {
        let pair = pair(base);
        let mut target = ready(&pair);
        enter(&mut target, base);
        assert!(!target.0.take_seen(1), "{base}");
        assert_eq!(observe(&mut target, &pair), "confirmed", "{base}");
        assert_eq!(target.0.take_seen(1), marked, "{base}");
        assert!(!target.0.take_seen(1), "{base}: taken");
    }
}

#[test]
fn pairs_of_frames_teach() {
    let common = support::read("common.toml");
    let table = support::read("learn.toml");
    let vectors = table["learn"].as_array().unwrap();
    for value in vectors {
        let vector: Vector = value
            .clone()
            .try_into()
            .unwrap_or_else(|error| panic!("{error}: {value}"));
        run(&vector, &common);
    }
    println!("{} learning vectors passed", vectors.len());
    assert!(vectors.len() > 50);
}
