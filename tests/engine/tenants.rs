// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tenants by VLAN, each in a VRF, all with the same addresses, behind two ports of the engine:
//!
//! ```text
//!                     lan0.101 ── vrf1 ── wan0.101
//! client ══ lan0 ══   lan0.102 ── vrf2 ── wan0.102   ══ wan0 ══ server
//!                     ...                 ...
//! ```
//!
//! VLANs and VRFs are the kernel's, on the engine's TAPs. No frame of one tenant is ever another's. `FREEWAY_TENANTS` and
//! `FREEWAY_FRAMES` say how many there are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use freeway_lab::frame::{MAC_LAN, MAC_WAN, mac_text, sum16};
use freeway_lab::{Capture, Filter, Injector, Lab, Options};
use freeway_testkit::engine::{Device, Engine, TOLD, take_ports_of};
use freeway_testkit::*;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);
/// A device's ring holds them.
const CHUNK: usize = 64;
/// Frames of a flood for each one of the others.
const FLOOD: usize = 16;
/// Of each of the others meanwhile: one of them may be the kernel's, which confirms its flow.
const OTHERS: usize = 18;
const MAGIC: &[u8] = b"a tenant's ";
const NEAR: [u8; 4] = [10, 1, 0, 2];
const FAR: [u8; 4] = [10, 9, 0, 9];
const FAR_PORT: u16 = 5000;
/// Of the flow that all tenants have alike; those from it on are a tenant's own.
const NEAR_PORT: u16 = 4000;

/// Where a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Near,
    Far,
}

fn vlan(tenant: usize) -> u16 {
    101 + tenant as u16
}

fn own_port(tenant: usize) -> u16 {
    NEAR_PORT + 1 + tenant as u16
}

fn host_mac(tenant: usize, side: Side) -> [u8; 6] {
    let [high, low] = (tenant as u16).to_be_bytes();
    [2, 0, 0, 3 + side as u8, high, low]
}

fn router_mac(side: Side) -> [u8; 6] {
    match side {
        Side::Near => MAC_LAN,
        Side::Far => MAC_WAN,
    }
}

/// A network that one tenant alone has.
fn own_network(tenant: usize) -> [u8; 4] {
    [10, 50, tenant as u8, 9]
}

/// A datagram with tags, as one of two ends sends it, or as the router does.
fn frame(
    macs: [[u8; 6]; 2],
    tags: &[u16],
    [from, to]: [([u8; 4], u16); 2],
    ttl: u8,
    payload: &[u8],
) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    let mut l4 = [from.1, to.1, len, 0].map(u16::to_be_bytes).concat();
    l4.extend(payload);
    let mut pseudo = [&from.0[..], &to.0, &[0, 17], &len.to_be_bytes(), &l4].concat();
    pseudo.resize(pseudo.len().next_multiple_of(2), 0);
    l4[6..8].copy_from_slice(&(!sum16(&pseudo)).to_be_bytes());
    let mut ip = vec![0x45, 0];
    ip.extend((20 + len).to_be_bytes());
    ip.extend([0, 7, 0x40, 0, ttl, 17, 0, 0]);
    ip.extend([from.0, to.0].concat());
    let sum = !sum16(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let tags = tags.iter().flat_map(|tag| {
        let [high, low] = tag.to_be_bytes();
        [0x81, 0, high, low]
    });
    let mut bytes = macs.concat();
    bytes.extend(tags);
    bytes.extend([8, 0]);
    [bytes, ip, l4].concat()
}

/// A frame that is sent, and what leaves at the other side, if anything may.
struct Sent {
    from: Side,
    bytes: Vec<u8>,
    leaves: Option<Vec<u8>>,
}

/// All tenants, and what they have sent so far.
struct Tenants {
    count: usize,
    number: u64,
    senders: [Injector; 2],
    captures: [Capture; 2],
    /// Frames of tenants that arrived where they should not; none is good.
    wrong: Vec<(Side, Vec<u8>)>,
    right: u64,
}

impl Tenants {
    fn build(lab: &Lab, count: usize) -> Self {
        let router = lab.router();
        let mut batch = String::new();
        for tenant in 0..count {
            let (vlan, table) = (vlan(tenant), 1000 + tenant);
            let [near, far] = [Side::Near, Side::Far].map(|side| mac_text(host_mac(tenant, side)));
            let [.., own, _] = own_network(tenant);
            batch += &format!(
                "link add vrf{tenant} type vrf table {table}\nlink set vrf{tenant} up\n\
                 link add link lan0 name lan0.{vlan} type vlan id {vlan}\n\
                 link add link wan0 name wan0.{vlan} type vlan id {vlan}\n\
                 link set lan0.{vlan} master vrf{tenant} up\nlink set wan0.{vlan} master vrf{tenant} up\n\
                 address add 10.1.0.1/24 dev lan0.{vlan}\naddress add 10.2.0.1/24 dev wan0.{vlan}\n\
                 neighbour replace 10.1.0.2 lladdr {near} nud permanent dev lan0.{vlan}\n\
                 neighbour replace 10.2.0.2 lladdr {far} nud permanent dev wan0.{vlan}\n\
                 route add 10.9.0.0/24 vrf vrf{tenant} via 10.2.0.2\n\
                 route add 10.50.{own}.0/24 vrf vrf{tenant} via 10.2.0.2\n"
            );
        }
        router.tool_with_input("ip -batch -", &batch).unwrap();
        let ports = [lab.client_port(), lab.server_port()];
        Self {
            count,
            number: 0,
            senders: ports.map(|port| Injector::open(port).unwrap()),
            captures: ports.map(|port| Capture::open(port).unwrap()),
            wrong: Vec::new(),
            right: 0,
        }
    }

    /// A datagram of a tenant's from one side, by the port that its near end has.
    fn datagram(&mut self, tenant: usize, from: Side, near_port: u16, far: [u8; 4]) -> Sent {
        self.number += 1;
        let payload = [MAGIC, format!("{tenant}, {}", self.number).as_bytes()].concat();
        let ends = match from {
            Side::Near => [(NEAR, near_port), (far, FAR_PORT)],
            Side::Far => [(far, FAR_PORT), (NEAR, near_port)],
        };
        let to = match from {
            Side::Near => Side::Far,
            Side::Far => Side::Near,
        };
        let tags = [vlan(tenant)];
        let came = [router_mac(from), host_mac(tenant, from)];
        let left = [host_mac(tenant, to), router_mac(to)];
        Sent {
            from,
            bytes: frame(came, &tags, ends, 64, &payload),
            leaves: Some(frame(left, &tags, ends, 63, &payload)),
        }
    }

    /// Sends some, and waits until all have left that should; so no ring overflows. How many of those that should have left have.
    fn send(&mut self, all: &[Sent], patience: Duration) -> usize {
        let mut wanted: BTreeMap<(Side, Vec<u8>), u32> = BTreeMap::new();
        let mut due = [0, 0];
        for sent in all {
            if let Some(leaves) = &sent.leaves {
                let at = match sent.from {
                    Side::Near => Side::Far,
                    Side::Far => Side::Near,
                };
                *wanted.entry((at, leaves.clone())).or_default() += 1;
                due[at as usize] += 1;
            }
        }
        for sent in all {
            self.senders[sent.from as usize].send(&sent.bytes).unwrap();
        }
        let mut arrived = 0;
        for side in [Side::Far, Side::Near] {
            let capture = &mut self.captures[side as usize];
            let frames = capture
                .collect(due[side as usize], patience, is_tenants)
                .unwrap();
            for captured in frames {
                let frame = (side, captured.bytes);
                match wanted.get_mut(&frame) {
                    Some(left) if *left > 0 => {
                        *left -= 1;
                        arrived += 1;
                    }
                    _ => self.wrong.push(frame),
                }
            }
        }
        self.right += arrived as u64;
        arrived
    }

    /// Each of them leaves, and leaves right.
    #[track_caller]
    fn send_all(&mut self, all: Vec<Sent>) {
        for chunk in all.chunks(CHUNK) {
            let due = chunk.iter().filter(|sent| sent.leaves.is_some()).count();
            let arrived = self.send(chunk, PATIENCE);
            self.check();
            assert_eq!(arrived, due, "of {} frames", chunk.len());
        }
    }

    /// Nothing has arrived that should not have.
    #[track_caller]
    fn check(&mut self) {
        for side in [Side::Near, Side::Far] {
            let capture = &mut self.captures[side as usize];
            let late = capture.drain(Duration::ZERO, is_tenants).unwrap();
            self.wrong
                .extend(late.into_iter().map(|captured| (side, captured.bytes)));
        }
        let first = self.wrong.first();
        assert!(
            first.is_none(),
            "{} frames crossed, or came twice: {first:02x?}",
            self.wrong.len()
        );
    }

    /// What each tenant has that the others have as well, and what is its own.
    fn usual(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        for tenant in 0..self.count {
            all.push(self.datagram(tenant, Side::Near, NEAR_PORT, FAR));
            all.push(self.datagram(tenant, Side::Far, NEAR_PORT, FAR));
            all.push(self.datagram(tenant, Side::Near, own_port(tenant), FAR));
        }
        all
    }

    /// How one tenant tries to reach another.
    fn attempts(&mut self, tenant: usize, other: usize) -> Vec<Sent> {
        let port = own_port(other);
        // the other's flow, there and back, in a VLAN that is not its own: it stays there
        let flow = self.datagram(tenant, Side::Near, port, FAR);
        let answer = self.datagram(tenant, Side::Far, port, FAR);
        // as the other's host sends it
        let mut host = self.datagram(tenant, Side::Near, port, FAR);
        host.bytes[6..12].copy_from_slice(&host_mac(other, Side::Near));
        // to the MAC address of the other's next hop
        let mut next_hop = self.datagram(tenant, Side::Near, port, FAR);
        next_hop.bytes[..6].copy_from_slice(&host_mac(other, Side::Far));
        next_hop.leaves = None;
        // to a network that the other alone has
        let mut network = self.datagram(tenant, Side::Near, port, own_network(other));
        network.leaves = None;
        // the other's whole frame, tag and all, behind a tag
        let mut hop = self.datagram(other, Side::Near, port, FAR);
        let outer = [[0x81, 0], vlan(tenant).to_be_bytes()].concat();
        hop.bytes.splice(12..12, outer);
        hop.leaves = None;
        vec![flow, answer, host, next_hop, network, hop]
    }

    /// A frame of the first tenant's that no flow has; nobody asks where it goes.
    fn flood(number: usize) -> Sent {
        let far = [10, 9, 0, (number % 200) as u8 + 20];
        let ends = [(NEAR, 20_000 + (number / 200) as u16), (far, FAR_PORT)];
        let macs = [router_mac(Side::Near), host_mac(0, Side::Near)];
        Sent {
            from: Side::Near,
            bytes: frame(macs, &[vlan(0)], ends, 64, b"one of many"),
            leaves: None,
        }
    }
}

fn is_tenants(bytes: &[u8]) -> bool {
    // what ICMP quotes is none
    let protocol = if bytes[12..14] == [0x81, 0] { 27 } else { 23 };
    bytes.get(protocol) == Some(&17) && bytes.windows(MAGIC.len()).any(|window| window == MAGIC)
}

/// A daemon with hundreds of ports may answer late, in an emulated machine.
fn ask(router: &Router, question: &str) -> Value {
    let words: Vec<_> = question.split(' ').chain(["--json"]).collect();
    until("the daemon's answer", PATIENCE, || {
        serde_json::from_slice(&router.run(&words).stdout).ok()
    })
}

fn flows(router: &Router, filter: &str) -> Vec<Value> {
    let shown = ask(router, &format!("flows {filter}"));
    shown["flows"].as_array().unwrap().clone()
}

/// Flows of the engine's that are active.
fn engine_flows(router: &Router) -> usize {
    let flows = flows(router, "proto udp state active");
    flows.iter().filter(|flow| flow["path"] == "engine").count()
}

/// Frames that the engine has had from its ports.
fn engine_frames(router: &Router) -> u64 {
    std::thread::sleep(TOLD);
    let counts = ask(router, "status")["engine"]["counts"].clone();
    counts["forwarded"].as_u64().unwrap() + counts["exceptions"].as_u64().unwrap()
}

/// So many, unless it is asked for others.
fn asked((name, usual): (&str, u64)) -> u64 {
    std::env::var(name).map_or(usual, |number| number.parse().expect(name))
}

#[test]
fn no_frame_crosses_from_tenant_to_tenant() {
    if std::env::var_os("IN_VM").is_none() {
        println!("skipped: this kernel may have no VRFs and VLANs, and this is no virtual machine");
        return;
    }
    let Some(_machine) = machine() else { return };
    let (count, frames) = if long() { (100, 1_000_000) } else { (8, 1_000) };
    let [count, frames] = [("FREEWAY_TENANTS", count), ("FREEWAY_FRAMES", frames)].map(asked);
    let built = Moment::now();
    let options = Options {
        // conntrack would have one connection for what all tenants call the same
        filter: Some(Filter::None),
        ..Options::default()
    };
    let lab = build_with("routed", options);
    let faces = [("lan0".to_owned(), MAC_LAN), ("wan0".to_owned(), MAC_WAN)];
    let config = take_ports_of(lab.router(), 0, Device::AfXdp, &faces);
    let engine = Engine::start_in(lab.router(), &config, &faces);
    let count = count as usize;
    let mut tenants = Tenants::build(&lab, count);
    let vlans: Vec<_> = (0..count)
        .flat_map(|tenant| ["lan0", "wan0"].map(|port| format!("{port}.{}", vlan(tenant))))
        .collect();
    let mut ports = vec!["lan0", "wan0"];
    ports.extend(vlans.iter().map(String::as_str));
    let router = Engine::daemon_for(lab.router(), "", &ports, &["lan0", "wan0"]);

    println!("{:?}", built.elapsed());
    let start = Moment::now();
    let mut rounds = 0;
    while engine_flows(&router) < 3 * count {
        rounds += 1;
        let usual = tenants.usual();
        tenants.send_all(usual);
        assert!(
            start.elapsed() < PATIENCE || rounds < 10,
            "{} of {} flows are the engine's\n{}",
            engine_flows(&router),
            3 * count,
            router.stats()
        );
    }
    println!(
        "{count} tenants: all flows are the engine's after {rounds} rounds, {:?}",
        start.elapsed()
    );

    let before = (tenants.right, engine_frames(&router));
    while tenants.right - before.0 < frames {
        let usual = tenants.usual();
        tenants.send_all(usual);
    }
    // each pair, while the other's flows are in the table
    for tenant in 0..count {
        for other in (0..count).filter(|other| *other != tenant) {
            let attempts = tenants.attempts(tenant, other);
            tenants.send_all(attempts);
        }
        let usual = tenants.usual();
        tenants.send_all(usual);
    }
    assert!(engine_frames(&router) - before.1 >= frames);
    println!(
        "{} frames arrived, {} pairs tried, none crossed, {:?}",
        tenants.right - before.0,
        count * (count - 1),
        start.elapsed()
    );
    flood(&mut tenants, &router, OTHERS * (count - 1));
    tenants.check();
    router.stop();
    engine.stop();
}

/// The first tenant offers new flows, so many for each frame of the others. Of the others' frames no greater part is lost than of all,
/// by the ports; and their flows stay the engine's.
fn flood(tenants: &mut Tenants, router: &Router, frames: usize) {
    let others = |router: &Router| -> u64 {
        let flows = flows(router, &format!("proto udp sport {NEAR_PORT}"));
        let others = flows.iter().filter(|flow| flow["path"] == "engine");
        let others = others.filter(|flow| flow["port_in"] != format!("lan0.{}", vlan(0)));
        others.map(|flow| flow["packets"].as_u64().unwrap()).sum()
    };
    let (had, fast) = (engine_frames(router), others(router));
    let (mut sent, mut own, mut arrived) = (0, 0, 0);
    while own < frames {
        let mut all = Vec::new();
        for tenant in 1..tenants.count {
            for _ in 0..FLOOD {
                sent += 1;
                all.push(Tenants::flood(sent));
            }
            all.push(tenants.datagram(tenant, Side::Near, NEAR_PORT, FAR));
            own += 1;
        }
        arrived += tenants.send(&all, Duration::from_secs(2));
    }
    let all = sent + own;
    let had = (engine_frames(router) - had) as f64 / all as f64;
    let share = arrived as f64 / own as f64;
    let fast = (others(router) - fast) as f64 / arrived.max(1) as f64;
    println!(
        "flood of {sent} new flows: the engine had {:.1} % of all frames; of the others' {own} {:.1} % arrived, {:.1} % by the engine",
        had * 100.0,
        share * 100.0,
        fast * 100.0
    );
    assert!(
        share >= had - 0.1,
        "the flood costs others more than its share"
    );
    assert!(fast >= FAST_MIN, "the others' flows are the kernel's");
}
