// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same frames through the same router, by the kernel and by Freeway: what leaves is compared byte for byte.
//!
//! ```text
//!              frames                    router, GRO off                   frames
//!   +--------+ ------>  +------------------------------------+  <------ +--------+
//!   | client |----------| lan0   1. the kernel alone    wan0 |----------| server |
//!   +--------+ <------  |        2. the same with Freeway    |  ------> +--------+
//!              captured +------------------------------------+ captured
//! ```
//!
//! Frames are random from a seed that is printed; `FREEWAY_SEED` repeats a run, `FREEWAY_LONG=1` makes it 120,000
//! frames. Compared are, for each port and tuple, all frames in their order; ICMP errors of the router without their
//! random IPv4 ID. One thing may differ and is counted apart: where conntrack looks at a packet it verifies the UDP or
//! TCP checksum (`nf_conntrack_checksum`) and calls a wrong one invalid, which the ruleset drops. The fast path does
//! not verify, forwards, and leaves the checksum as wrong as it was.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use common::Router;
use common::random::Random;
use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, MAC_SERVER, MAC_WAN, sum16};
use freeway_lab::{Capture, Injector, Lab, Netns, Options, PortForward, Proto};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const UDP: u8 = 17;
const TCP: u8 = 6;
const MTU: usize = 1500;
/// Begins a payload that has room for it; the number of the frame follows.
const TAG: [u8; 4] = *b"FWDF";
/// The least share of frames that Freeway has to forward, or the comparison says nothing.
const SHARE_MIN: f64 = 0.6;
/// Flows of each protocol; the last ones of TCP also see flags that end connections.
const FLOWS: u16 = 12;
const ODD: u16 = 2;
/// Frames between two looks at the captures.
const CHUNK: usize = 400;

/// A conversation between client and server.
#[derive(Clone, Copy)]
struct Flow {
    proto: u8,
    client: SocketAddr,
    server: SocketAddr,
    /// The client as the server sees it.
    seen: SocketAddr,
    by_server: bool,
    odd: bool,
    ttl: [u8; 2],
    dscp: [u8; 2],
}

impl Flow {
    /// Source and destination as they come in, and as they leave. `back`: the server sends.
    fn tuples(&self, back: bool) -> [(SocketAddr, SocketAddr); 2] {
        match back {
            false => [(self.client, self.server), (self.seen, self.server)],
            true => [(self.server, self.seen), (self.server, self.client)],
        }
    }

    fn v6(&self) -> bool {
        self.client.is_ipv6()
    }
}

/// How a checksum is made.
#[derive(Clone, Copy, PartialEq)]
enum Sum {
    Right,
    /// None at all (UDP).
    None,
    Wrong,
    /// The sum of what comes in gives 0x0000.
    InZero,
    /// The same, sent as 0xffff.
    InOnes,
    /// The sum of what leaves gives 0x0000.
    OutZero,
}

/// A frame to be built.
#[derive(Clone)]
struct Plan {
    flow: Flow,
    back: bool,
    number: u32,
    payload: usize,
    ttl: u8,
    tos: u8,
    id: u16,
    /// DF and the reserved bit.
    flags: u16,
    ip_sum: Sum,
    l4_sum: Sum,
    ip_options: Vec<u8>,
    extension: Option<u8>,
    label: u32,
    tcp_flags: u8,
    tcp_options: bool,
    seq: u32,
    reserved: u8,
    doff_bad: bool,
    udp_len: Option<i32>,
    total_len_bad: bool,
    pad: usize,
    mac_foreign: bool,
    mac_roams: bool,
    split: bool,
}

impl Plan {
    fn base(flow: Flow, back: bool, number: u32) -> Self {
        let i = usize::from(back);
        Self {
            flow,
            back,
            number,
            payload: 64,
            ttl: flow.ttl[i],
            tos: flow.dscp[i] << 2,
            id: number as u16,
            flags: 0x4000,
            ip_sum: Sum::Right,
            l4_sum: Sum::Right,
            ip_options: Vec::new(),
            extension: None,
            label: 0,
            tcp_flags: 0x10,
            tcp_options: false,
            seq: 1,
            reserved: 0,
            doff_bad: false,
            udp_len: None,
            total_len_bad: false,
            pad: 0,
            mac_foreign: false,
            mac_roams: false,
            split: false,
        }
    }

    fn l4_header(&self) -> usize {
        match self.flow.proto {
            UDP => 8,
            _ if self.tcp_options => 32,
            _ => 20,
        }
    }

    fn payload_max(&self) -> usize {
        let l3 = if self.flow.v6() { 40 } else { 20 };
        let extension = if self.extension.is_some() { 8 } else { 0 };
        MTU - l3 - extension - self.ip_options.len() - self.l4_header()
    }

    /// The L4 header and what follows.
    fn segment(&self, rng: &mut Random) -> Vec<u8> {
        let [(source, destination), (source_out, destination_out)] = self.flow.tuples(self.back);
        let len = self.l4_header() + self.payload;
        let mut l4 = Vec::with_capacity(len);
        l4.extend(source.port().to_be_bytes());
        l4.extend(destination.port().to_be_bytes());
        let mut covered = len;
        let check_at;
        if self.flow.proto == UDP {
            let said = (len as i32 + self.udp_len.unwrap_or(0)).max(0);
            covered = (said as usize).clamp(8, len);
            l4.extend((said as u16).to_be_bytes());
            l4.extend([0, 0]);
            check_at = 6;
        } else {
            let (own, other) = if self.back {
                (0x2000_0000u32, 0x1000_0000u32)
            } else {
                (0x1000_0000, 0x2000_0000)
            };
            let ack = if self.tcp_flags & 0x10 == 0 {
                0
            } else {
                other + 1
            };
            let mut doff = (self.l4_header() as u8 / 4) << 4;
            if self.doff_bad {
                doff = 0x40;
            }
            l4.extend((own.wrapping_add(self.seq)).to_be_bytes());
            l4.extend(ack.to_be_bytes());
            l4.extend([doff | self.reserved, self.tcp_flags, 0xff, 0xff, 0, 0]);
            let urgent: u16 = if self.tcp_flags & 0x20 == 0 { 0 } else { 7 };
            l4.extend(urgent.to_be_bytes());
            if self.tcp_options {
                l4.extend([1, 1, 8, 10]);
                l4.extend((rng.next() as u32).to_be_bytes());
                l4.extend(0u32.to_be_bytes());
            }
            check_at = 16;
        }
        let payload = l4.len();
        l4.extend((0..self.payload).map(|_| rng.next() as u8));
        if self.payload >= 8 {
            l4[payload..payload + 4].copy_from_slice(&TAG);
            l4[payload + 4..payload + 8].copy_from_slice(&self.number.to_be_bytes());
        }
        let corner = matches!(self.l4_sum, Sum::InZero | Sum::InOnes | Sum::OutZero);
        if corner && self.payload >= 10 && covered == len {
            l4[payload + 8..payload + 10].fill(0);
            let sum = if self.l4_sum == Sum::OutZero {
                let mut out = l4.clone();
                out[0..2].copy_from_slice(&source_out.port().to_be_bytes());
                out[2..4].copy_from_slice(&destination_out.port().to_be_bytes());
                pseudo_sum(source_out.ip(), destination_out.ip(), self.flow.proto, &out)
            } else {
                pseudo_sum(source.ip(), destination.ip(), self.flow.proto, &l4)
            };
            l4[payload + 8..payload + 10].copy_from_slice(&(0xffff - sum).to_be_bytes());
        }
        let sum = pseudo_sum(
            source.ip(),
            destination.ip(),
            self.flow.proto,
            &l4[..covered],
        );
        let check = match self.l4_sum {
            Sum::None if self.flow.proto == UDP => 0,
            Sum::Wrong => !sum ^ (1 << rng.below(16)),
            Sum::InOnes if !sum == 0 => 0xffff,
            _ if !sum == 0 && self.flow.proto == UDP => 0xffff,
            _ => !sum,
        };
        l4[check_at..check_at + 2].copy_from_slice(&check.to_be_bytes());
        l4
    }

    fn ethernet(&self) -> Vec<u8> {
        let (mut to, mut from) = match self.back {
            false => (MAC_LAN, MAC_CLIENT),
            true => (MAC_WAN, MAC_SERVER),
        };
        if self.mac_foreign {
            to[5] ^= 0x40;
        }
        if self.mac_roams {
            // Never the same twice, or Freeway would learn it.
            from[1..4].copy_from_slice(&self.number.to_be_bytes()[1..]);
        }
        let kind: u16 = if self.flow.v6() { 0x86dd } else { 0x0800 };
        [&to[..], &from, &kind.to_be_bytes()].concat()
    }

    fn ipv4(&self, l4: &[u8], fragment: u16) -> Vec<u8> {
        let [(source, destination), (source_out, destination_out)] = self.flow.tuples(self.back);
        let header = |source: SocketAddr, destination: SocketAddr, id: u16, ttl: u8, check: u16| {
            let len = 20 + self.ip_options.len();
            let mut total = len + l4.len();
            if self.total_len_bad {
                total += 200;
            }
            let mut ip = vec![0x40 | (len / 4) as u8, self.tos];
            ip.extend((total as u16).to_be_bytes());
            ip.extend(id.to_be_bytes());
            ip.extend((self.flags | fragment).to_be_bytes());
            ip.extend([ttl, self.flow.proto]);
            ip.extend(check.to_be_bytes());
            for address in [source.ip(), destination.ip()] {
                if let IpAddr::V4(address) = address {
                    ip.extend(address.octets());
                }
            }
            ip.extend(&self.ip_options);
            ip
        };
        let id = match self.ip_sum {
            Sum::InZero | Sum::InOnes => {
                0xffff - sum16(&header(source, destination, 0, self.ttl, 0))
            }
            Sum::OutZero => {
                let ttl = self.ttl.saturating_sub(1);
                0xffff - sum16(&header(source_out, destination_out, 0, ttl, 0))
            }
            _ => self.id,
        };
        let mut check = !sum16(&header(source, destination, id, self.ttl, 0));
        match self.ip_sum {
            Sum::Wrong => check ^= 0x0400,
            Sum::InOnes if check == 0 => check = 0xffff,
            _ => {}
        }
        header(source, destination, id, self.ttl, check)
    }

    fn ipv6(&self, l4: &[u8], fragment: Option<u16>) -> Vec<u8> {
        let (source, destination) = self.flow.tuples(self.back)[0];
        let mut extension = Vec::new();
        let mut next = self.flow.proto;
        if let Some(offset) = fragment {
            extension.extend([next, 0]);
            extension.extend(offset.to_be_bytes());
            extension.extend(self.number.to_be_bytes());
            next = 44;
        } else if let Some(kind) = self.extension {
            // PadN
            extension.extend([next, 0, 1, 4, 0, 0, 0, 0]);
            next = kind;
        }
        let mut len = l4.len() + extension.len();
        if self.total_len_bad {
            len += 200;
        }
        let mut ip = Vec::new();
        ip.extend((6u32 << 28 | u32::from(self.tos) << 20 | self.label).to_be_bytes());
        ip.extend((len as u16).to_be_bytes());
        ip.extend([next, self.ttl]);
        for address in [source.ip(), destination.ip()] {
            if let IpAddr::V6(address) = address {
                ip.extend(address.octets());
            }
        }
        ip.extend(extension);
        ip
    }

    /// The frames; two if it is fragmented.
    fn frames(&self, rng: &mut Random) -> Vec<Vec<u8>> {
        let l4 = self.segment(rng);
        let pieces: Vec<(&[u8], u16, bool)> = if self.split && l4.len() >= 32 {
            let at = (l4.len() / 2).next_multiple_of(8);
            vec![(&l4[..at], 0, true), (&l4[at..], at as u16, false)]
        } else {
            vec![(&l4, 0, false)]
        };
        let fragmented = pieces.len() > 1;
        let frame = |(piece, offset, more): (&[u8], u16, bool)| {
            let mut frame = self.ethernet();
            if self.flow.v6() {
                frame.extend(self.ipv6(piece, fragmented.then_some(offset | u16::from(more))));
            } else {
                frame.extend(self.ipv4(piece, (offset / 8) | (u16::from(more) << 13)));
            }
            frame.extend(piece);
            let least = 60.max(frame.len() + self.pad).min(14 + MTU);
            while frame.len() < least {
                frame.push(0xa5);
            }
            frame
        };
        pieces.into_iter().map(frame).collect()
    }
}

fn pseudo_sum(source: IpAddr, destination: IpAddr, proto: u8, l4: &[u8]) -> u16 {
    let mut bytes = Vec::new();
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes.extend([0, proto]);
    bytes.extend((l4.len() as u16).to_be_bytes());
    bytes.extend(l4);
    sum16(&bytes)
}

/// What a run consists of.
struct Set {
    name: &'static str,
    topology: &'static str,
    forwards: bool,
}

impl Set {
    fn flows(&self, lab: &Lab, rng: &mut Random) -> Vec<Flow> {
        let plan = lab.topology().family.plan();
        let masqueraded = lab.topology().masquerade;
        let mut flows = Vec::new();
        for proto in [UDP, TCP] {
            for i in 0..FLOWS {
                let by_server = self.forwards && i % 2 == 1;
                let client = match by_server {
                    true => SocketAddr::new(plan.client, 80),
                    false => SocketAddr::new(plan.client, 20000 + i),
                };
                let seen = match (masqueraded, by_server) {
                    (false, _) => client,
                    (true, false) => SocketAddr::new(plan.wan, client.port()),
                    (true, true) => SocketAddr::new(plan.wan, 8080),
                };
                let mut both = |values: &[u8]| [rng.of(values), rng.of(values)];
                flows.push(Flow {
                    proto,
                    client,
                    server: SocketAddr::new(plan.server, 30000 + i),
                    seen,
                    by_server,
                    odd: proto == TCP && i >= FLOWS - ODD,
                    ttl: both(&[64, 128, 57, 255, 2]),
                    dscp: both(&[0, 0, 10, 46, 63]),
                });
            }
        }
        flows
    }

    /// A frame of any kind; most are what a flow of this kind looks like.
    fn plan(&self, flow: Flow, number: u32, rng: &mut Random) -> Plan {
        let mut p = Plan::base(flow, rng.permille(500), number);
        p.tos |= rng.below(4) as u8;
        p.id = rng.next() as u16;
        p.label = if rng.permille(300) {
            rng.next() as u32 & 0xf_ffff
        } else {
            0
        };
        p.flags = rng.of(&[0x4000, 0x4000, 0, 0x8000, 0xc000]);
        p.seq = 1 + rng.below(20_000) as u32;
        p.tcp_options = rng.permille(200);
        p.tcp_flags = rng.of(&[0x10, 0x10, 0x18, 0x50, 0x90, 0xd8, 0x30]);
        if rng.permille(20) {
            p.reserved = rng.of(&[1, 2, 4, 14]);
        }
        p.payload = match rng.below(6) {
            0 => rng.below(20),
            1 => p.payload_max() - rng.below(3),
            _ => rng.below(p.payload_max() + 1),
        };
        if rng.permille(100) {
            p.pad = rng.below(100);
        }
        if rng.permille(120) {
            p.l4_sum = rng.of(&[Sum::None, Sum::InZero, Sum::InOnes, Sum::OutZero]);
        }
        if rng.permille(80) {
            p.ip_sum = rng.of(&[Sum::InZero, Sum::InOnes, Sum::OutZero]);
        }
        // What is not the fast path's, or has to fail its guard.
        if rng.permille(150) {
            match rng.below(14) {
                0 => p.ttl = 1 + rng.below(255) as u8,
                1 => p.tos = rng.next() as u8,
                2 => p.ttl = rng.of(&[0, 1]),
                3 => p.l4_sum = Sum::Wrong,
                4 => p.ip_sum = Sum::Wrong,
                5 => {
                    p.ip_options = vec![1; 4 * (1 + rng.below(10))];
                    p.extension = Some(rng.of(&[0, 60]));
                }
                6 => {
                    p.split = true;
                    p.flags &= 0x8000;
                    p.pad = 0;
                }
                7 => p.tcp_flags = rng.of(&[0x00, 0x08, 0x20, 0x28, 0xc0]),
                8 => p.mac_foreign = true,
                9 => p.mac_roams = true,
                10 => p.doff_bad = true,
                11 => p.udp_len = Some(rng.of(&[-1, -3, -2000, 40])),
                12 => p.total_len_bad = true,
                _ if flow.odd && self.topology == "nat" => {
                    p.tcp_flags = rng.of(&[0x29, 0x03, 0x06])
                }
                _ if flow.odd => p.tcp_flags = rng.of(&[0x02, 0x11, 0x04, 0x14, 0x29, 0xff]),
                _ => {}
            }
        }
        if p.l4_sum == Sum::Wrong {
            p.payload = p.payload.max(8);
        }
        p.payload = p.payload.min(p.payload_max());
        p
    }
}

/// One frame to send.
struct Sending {
    back: bool,
    bytes: Vec<u8>,
}

/// Both ends of the wire.
struct Ends {
    injectors: [Injector; 2],
    captures: [Capture; 2],
}

impl Ends {
    fn open(lab: &Lab) -> Self {
        let ports = [lab.client_port(), lab.server_port()];
        Self {
            injectors: ports.map(|port| Injector::open(port).unwrap()),
            captures: ports.map(|port| Capture::open(port).unwrap()),
        }
    }

    /// Sends, and returns what arrived at client and server, in order.
    fn pass(&mut self, sending: &[Sending]) -> [Vec<Vec<u8>>; 2] {
        let mut seen = [Vec::new(), Vec::new()];
        for chunk in sending.chunks(CHUNK) {
            for frame in chunk {
                let injector = &self.injectors[usize::from(frame.back)];
                injector.send(&frame.bytes).unwrap();
            }
            for (capture, seen) in self.captures.iter_mut().zip(&mut seen) {
                let frames = capture.drain(Duration::from_millis(10), routed).unwrap();
                seen.extend(frames.into_iter().map(|frame| frame.bytes));
            }
        }
        for capture in &mut self.captures {
            assert_eq!(capture.dropped().unwrap(), 0, "the capture lost frames");
        }
        seen
    }
}

/// IPv4 and IPv6 without neighbour discovery, group membership and the like.
fn routed(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        _ if frame[0] & 1 == 1 => false,
        Some([8, 0]) => true,
        // ICMPv6 errors are below 128
        Some([0x86, 0xdd]) => frame[20] != 58 || frame[54] < 128,
        _ => false,
    }
}

/// Port, and what tells flows apart in what leaves there: addresses, protocol and ports.
fn key(side: usize, frame: &[u8]) -> (usize, Vec<u8>) {
    let mut key = Vec::new();
    if frame[12] == 8 {
        key.extend(&frame[26..34]);
        key.push(frame[23]);
        let l4 = 14 + usize::from(frame[14] & 15) * 4;
        let fragment = u16::from_be_bytes([frame[20], frame[21]]) & 0x3fff != 0;
        if !fragment && [UDP, TCP].contains(&frame[23]) {
            key.extend(frame.get(l4..l4 + 4).unwrap_or_default());
        }
    } else {
        key.extend(&frame[22..54]);
        key.push(frame[20]);
        if [UDP, TCP].contains(&frame[20]) {
            key.extend(frame.get(54..58).unwrap_or_default());
        }
    }
    (side, key)
}

/// The number of the frame that this one was, or that an ICMP error quotes.
fn number(frame: &[u8]) -> Option<u32> {
    let at = frame.windows(4).position(|bytes| bytes == TAG)?;
    let bytes = frame.get(at + 4..at + 8)?;
    Some(u32::from_be_bytes(bytes.try_into().unwrap()))
}

/// The router chooses the ID of its own ICMP errors by a counter.
fn without_icmp_id(mut frame: Vec<u8>) -> Vec<u8> {
    if frame[12] == 8 && frame[23] == 1 {
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    frame
}

/// True if the L4 checksum of a frame without options holds.
fn sum_holds(frame: &[u8]) -> bool {
    let (l4, proto, total) = if frame[12] == 8 {
        let total = u16::from_be_bytes([frame[16], frame[17]]);
        (34, frame[23], 14 + usize::from(total))
    } else {
        let payload = u16::from_be_bytes([frame[18], frame[19]]);
        (54, frame[20], 54 + usize::from(payload))
    };
    let mut end = total;
    if proto == UDP {
        end = l4 + usize::from(u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]));
    }
    let address = |at: usize| -> IpAddr {
        if frame[12] == 8 {
            <[u8; 4]>::try_from(&frame[at..at + 4]).unwrap().into()
        } else {
            <[u8; 16]>::try_from(&frame[at..at + 16]).unwrap().into()
        }
    };
    let (source, destination) = if frame[12] == 8 { (26, 30) } else { (22, 38) };
    pseudo_sum(
        address(source),
        address(destination),
        proto,
        &frame[l4..end],
    ) == 0xffff
}

fn hex(bytes: &[u8]) -> String {
    let text: Vec<String> = bytes.iter().take(96).map(|b| format!("{b:02x}")).collect();
    text.join(" ")
}

type Groups = BTreeMap<(usize, Vec<u8>), Vec<Vec<u8>>>;

/// Splits off the frames whose wrong checksum conntrack judges.
fn groups(seen: [Vec<Vec<u8>>; 2], apart: &HashSet<u32>) -> (Groups, Vec<Vec<u8>>) {
    let mut groups = Groups::new();
    let mut wrong = Vec::new();
    for (side, frames) in seen.into_iter().enumerate() {
        for frame in frames {
            if number(&frame).is_some_and(|number| apart.contains(&number)) {
                wrong.push(frame);
            } else {
                let frame = without_icmp_id(frame);
                groups.entry(key(side, &frame)).or_default().push(frame);
            }
        }
    }
    (groups, wrong)
}

/// Differences in words, and frames that changed places.
fn compare(
    kernel: &Groups,
    freeway: &Groups,
    sent: &HashMap<u32, Vec<u8>>,
) -> (Vec<String>, usize) {
    let mut differences = Vec::new();
    let mut displaced = 0;
    let nothing = Vec::new();
    let keys: HashSet<_> = kernel.keys().chain(freeway.keys()).collect();
    for key in keys {
        let (k, f) = (
            kernel.get(key).unwrap_or(&nothing),
            freeway.get(key).unwrap_or(&nothing),
        );
        if k == f {
            continue;
        }
        let count = |frames: &[Vec<u8>]| {
            let mut counts: HashMap<Vec<u8>, i64> = HashMap::new();
            for frame in frames {
                *counts.entry(frame.clone()).or_default() += 1;
            }
            counts
        };
        let (k_counts, f_counts) = (count(k), count(f));
        if k_counts == f_counts {
            displaced += k.iter().zip(f).filter(|(k, f)| k != f).count();
            continue;
        }
        let mut tell =
            |by: &str, frames: &HashMap<Vec<u8>, i64>, others: &HashMap<Vec<u8>, i64>| {
                for (frame, count) in frames {
                    if others.get(frame) != Some(count) {
                        let origin = number(frame).and_then(|number| sent.get(&number));
                        differences.push(format!(
                            "only by {by}, {count} times: {} bytes {}\n  was sent as {} bytes {}",
                            frame.len(),
                            hex(frame),
                            origin.map_or(0, Vec::len),
                            origin.map_or(String::new(), |frame| hex(frame))
                        ));
                    }
                }
            };
        tell("the kernel", &k_counts, &f_counts);
        tell("Freeway", &f_counts, &k_counts);
    }
    (differences, displaced)
}

/// Hosts that answer nothing by themselves.
fn silence(netns: &Netns) {
    let rules = "table inet silence {\n\
                 chain input {\n type filter hook input priority 0; policy drop;\n\
                 icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n}\n}\n";
    netns.tool_with_input("nft -f -", rules).unwrap();
}

/// Opens the connections by frames of both ends.
fn open(ends: &mut Ends, flows: &[Flow], rng: &mut Random) {
    let mut send = |select: u8, back: Option<bool>, flags: u8, seq: u32| {
        for flow in flows.iter().filter(|flow| flow.proto == select) {
            let mut p = Plan::base(*flow, back.unwrap_or(false) != flow.by_server, u32::MAX);
            p.ttl = 64;
            p.tcp_flags = flags;
            p.seq = seq;
            p.payload = if flow.proto == UDP { 16 } else { 0 };
            for frame in p.frames(rng) {
                ends.injectors[usize::from(p.back)].send(&frame).unwrap();
            }
        }
    };
    send(UDP, Some(false), 0, 0);
    send(UDP, Some(true), 0, 0);
    let opened = Instant::now();
    send(TCP, Some(false), 0x02, 0);
    send(TCP, Some(true), 0x12, 0);
    send(TCP, Some(false), 0x10, 1);
    // A packet at an age of two seconds makes a UDP connection assured.
    thread::sleep(Duration::from_millis(2200).saturating_sub(opened.elapsed()));
    send(UDP, Some(false), 0, 0);
    send(UDP, Some(true), 0, 0);
    thread::sleep(Duration::from_millis(20));
}

fn run(set: &Set, frames: usize, seed: u64) -> Result<(), String> {
    let mut rng = Random(seed);
    let mut options = Options {
        router_gro: false,
        router_tx_checksum: false,
        ..Options::default()
    };
    if set.forwards {
        let forward = |proto| PortForward {
            proto,
            wan_port: 8080,
            to: [192, 0, 2, 2].into(),
            to_port: 80,
        };
        options.port_forwards = vec![forward(Proto::Udp), forward(Proto::Tcp)];
    }
    let lab = common::build_with(set.topology, options);
    silence(lab.client());
    silence(lab.server());
    // Every error that is due is sent, in both runs.
    for (name, value) in [
        ("net/ipv4/icmp_ratelimit", "0"),
        ("net/ipv4/icmp_msgs_per_sec", "1000000"),
        ("net/ipv4/icmp_msgs_burst", "1000000"),
        ("net/ipv6/icmp/ratelimit", "0"),
    ] {
        if let Err(error) = lab.router().sysctl(name, value) {
            println!("{}: {error}", set.name);
        }
    }
    let flows = set.flows(&lab, &mut rng);
    let mut ends = Ends::open(&lab);
    let tracked = set.topology == "nat";
    if tracked {
        open(&mut ends, &flows, &mut rng);
        for capture in &mut ends.captures {
            capture.drain(Duration::from_millis(20), routed).unwrap();
        }
    }

    // The longest frames first, so that the others are not longer than what was seen.
    let mut sent = HashMap::new();
    let mut apart = HashSet::new();
    let mut number = 0;
    let mut add = |p: &Plan, rng: &mut Random, to: &mut Vec<Sending>| {
        for bytes in p.frames(rng) {
            sent.insert(p.number, bytes.clone());
            to.push(Sending {
                back: p.back,
                bytes,
            });
        }
        if tracked && p.l4_sum == Sum::Wrong {
            apart.insert(p.number);
        }
    };
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        for flow in &flows {
            for back in [false, true] {
                let mut p = Plan::base(*flow, back, number);
                p.payload = p.payload_max();
                number += 1;
                add(&p, &mut rng, &mut first);
            }
        }
    }
    while first.len() + rest.len() < frames {
        let flow = rng.of(&flows);
        let p = set.plan(flow, number, &mut rng);
        number += 1;
        add(&p, &mut rng, &mut rest);
    }

    let mut pass = || {
        let [mut client, mut server] = ends.pass(&first);
        thread::sleep(Duration::from_millis(300));
        let seen = ends.pass(&rest);
        let [more_client, more_server] = seen;
        client.extend(more_client);
        server.extend(more_server);
        [client, server]
    };
    let by_kernel = pass();
    let daemon = Router::start(&lab);
    let before = daemon.stats();
    let by_freeway = pass();
    let after = daemon.stats();
    daemon.stop();

    let arrived: usize = by_kernel.iter().map(Vec::len).sum();
    let (kernel, kernel_wrong) = groups(by_kernel, &apart);
    let (freeway, freeway_wrong) = groups(by_freeway, &apart);
    let (differences, displaced) = compare(&kernel, &freeway, &sent);
    let fast = after.fast() - before.fast();
    let share = fast as f64 / (first.len() + rest.len()) as f64;
    println!(
        "row: {:10} seed {seed:#018x}  {} frames sent, {arrived} left by the kernel, {:.1} % fast, {} differ, {displaced} displaced; \
         wrong L4 checksums under conntrack: {} sent, {} left by the kernel, {} by Freeway",
        set.name,
        first.len() + rest.len(),
        100.0 * share,
        differences.len(),
        apart.len(),
        kernel_wrong.len(),
        freeway_wrong.len()
    );
    let mut faults = Vec::new();
    if !differences.is_empty() {
        let shown: Vec<_> = differences.iter().take(12).cloned().collect();
        faults.push(format!(
            "{} differences:\n{}",
            differences.len(),
            shown.join("\n")
        ));
    }
    if displaced > 0 {
        faults.push(format!(
            "{displaced} frames changed places within their flows"
        ));
    }
    if share < SHARE_MIN {
        faults.push(format!("only {:.1} % were fast: {after}", 100.0 * share));
    }
    if let Some(frame) = freeway_wrong
        .iter()
        .find(|frame| frame[23] != 1 && sum_holds(frame))
    {
        faults.push(format!("a wrong checksum became right: {}", hex(frame)));
    }
    if arrived * 10 < (first.len() + rest.len()) * 8 {
        faults.push(format!("the kernel let only {arrived} frames pass"));
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} with FREEWAY_SEED={seed:#x}:\n{}",
            set.name,
            faults.join("\n")
        )),
    }
}

fn seed() -> u64 {
    match std::env::var("FREEWAY_SEED") {
        Ok(text) => {
            let digits = text.trim_start_matches("0x");
            u64::from_str_radix(digits, 16).expect("FREEWAY_SEED is hexadecimal")
        }
        Err(_) => freeway_lab::clock::monotonic_ns() ^ u64::from(std::process::id()) << 40,
    }
}

#[test]
fn freeway_sends_what_the_kernel_sends() {
    let Some(_machine) = common::machine() else {
        return;
    };
    // One CPU, so that frames come in the order in which they were sent.
    let mut first = CpuSet::new();
    first.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(0), &first).unwrap();
    let frames = if common::long() { 30_000 } else { 1500 };
    let seed = seed();
    println!("FREEWAY_SEED={seed:#x}");
    let sets = [
        ("routed", "routed", false),
        ("nat", "nat", false),
        ("nat, forwards", "nat", true),
        ("routed6", "routed6", false),
    ];
    let faults: Vec<String> = sets
        .into_iter()
        .filter_map(|(name, topology, forwards)| {
            let set = Set {
                name,
                topology,
                forwards,
            };
            run(&set, frames, seed).err()
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
