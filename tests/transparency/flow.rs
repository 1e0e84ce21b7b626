// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conversations of a case, and the way of their frames.

use std::net::SocketAddr;

use freeway_lab::twins::{host_mac, router_mac};

use crate::setup::{
    FORWARD_PORT, HAIRPIN_PORT, INBOUND_PORT, Pace, Setup, Uplinks, beyond, lan, server, uplink,
};
use freeway_testkit::random::Random;

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const GRE: u8 = 47;
pub const ESP: u8 = 50;
pub const ICMP6: u8 = 58;

/// Of every eight flows.
const PROTOS: [u8; 8] = [UDP, TCP, UDP, TCP, ESP, TCP, ICMP, GRE];

/// Echoes and GRE have one number for both directions.
fn has_one_number(proto: u8) -> bool {
    [ICMP, ICMP6, GRE].contains(&proto)
}

/// A conversation. Direction `false` is that of its first packet.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Of what has no ports: an echo's identifier, what GRE carries, and the halves of an SPI are in their place.
    pub proto: u8,
    /// The router's port where it is opened.
    pub enter: usize,
    pub from_mac: [u8; 6],
    pub src: SocketAddr,
    pub dst: SocketAddr,
    /// The other side answers.
    pub answered: bool,
    /// Answers come in here, not where requests leave.
    pub back_enter: Option<usize>,
    /// Its first frames have wrong checksums.
    pub soiled: bool,
    /// Segments that open, close and break connections are among its own.
    pub odd: bool,
    /// TTL, DSCP and flow label change all the time.
    pub wanders: bool,
    pub ttl: [u8; 2],
    pub dscp: [u8; 2],
    pub label: [u32; 2],
}

/// Addresses and ports as a frame has them.
pub type Tuple = (SocketAddr, SocketAddr);

/// How the frames of one direction come in, and what becomes of their addresses.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub enter: usize,
    pub from_mac: [u8; 6],
    pub to_mac: [u8; 6],
    pub tuple: Tuple,
    /// As far as it is known.
    pub leaves_as: Tuple,
}

impl Flow {
    /// The way of the opener's frames.
    pub fn way(&self, leaves_as: Option<Tuple>) -> Way {
        let tuple = (self.src, self.dst);
        Way {
            enter: self.enter,
            from_mac: self.from_mac,
            to_mac: router_mac(self.enter),
            tuple,
            leaves_as: leaves_as.unwrap_or(tuple),
        }
    }

    /// The way of the answers to what left so at a port, to this MAC address.
    pub fn way_back(&self, left_at: usize, next_hop: [u8; 6], left_as: Tuple) -> Way {
        let (enter, from_mac) = match self.back_enter {
            Some(port) if port != left_at => (port, host_mac(port)),
            _ => (left_at, next_hop),
        };
        Way {
            enter,
            from_mac,
            to_mac: router_mac(enter),
            tuple: (left_as.1, left_as.0),
            leaves_as: (self.dst, self.src),
        }
    }

    pub fn v6(&self) -> bool {
        self.src.is_ipv6()
    }
}

/// Flows of a case.
const FLOWS: u16 = 24;

/// What a setup's flows are; no other case near has their ports, unless it is the twin of this seed.
pub fn random(setup: &Setup, port: u16, rng: &mut Random) -> Vec<Flow> {
    let v6 = setup.v6;
    let mut kinds = vec![Kind::Out; 5];
    for (on, kind) in [
        (setup.forwards, Kind::Forwarded),
        (setup.hairpin, Kind::Hairpin),
        (setup.one_armed, Kind::OneArmed),
        (setup.inbound, Kind::Inbound),
    ] {
        if on {
            kinds.extend([kind, kind]);
        }
    }
    let mut flow = |i: u16| {
        let mut proto = PROTOS[usize::from(i) % PROTOS.len()];
        let host = (i % 4) as u8;
        let client = SocketAddr::new(lan(v6, 10 + host), port + i);
        let far = SocketAddr::new(server(v6, 1 + host), port + i);
        let at = |address, port| SocketAddr::new(address, port);
        let outside = uplink(v6, 1, 1);
        let kind = rng.of(&kinds);
        let (enter, src, mut dst) = match kind {
            Kind::Out => (0, client, at(server(v6, 1 + host), 30000 + i % 8)),
            Kind::OneArmed => (0, client, at(beyond(v6, 1 + host), 30000 + i % 8)),
            Kind::Hairpin => (0, client, at(outside, HAIRPIN_PORT + i)),
            Kind::Forwarded => (1, far, at(outside, FORWARD_PORT + i)),
            Kind::Inbound => (1, far, at(lan(v6, 30 + host), INBOUND_PORT + i)),
        };
        // only these let others than TCP and UDP through
        if ![UDP, TCP].contains(&proto) && !matches!(kind, Kind::Out | Kind::OneArmed) {
            proto = UDP;
        }
        // hosts share a connection for each, which ends with a packet that a masquerade sees leave elsewhere
        let shared = [ESP, GRE].contains(&proto) && usize::from(i) >= PROTOS.len();
        if shared && setup.uplinks != Uplinks::One {
            proto = UDP;
        }
        if proto == ICMP && v6 {
            proto = ICMP6;
        }
        if has_one_number(proto) {
            dst.set_port(src.port());
        }
        let asymmetric = |dst: &SocketAddr| {
            setup.uplinks == Uplinks::Asymmetric && dst.ip() == server(v6, 1 + host)
        };
        let mut both = |values: &[u8]| [rng.of(values), rng.of(values)];
        let ttl = both(&[64, 128, 57, 255, 2]);
        let dscp = both(&[0, 0, 10, 46, 63]);
        Flow {
            proto,
            enter,
            from_mac: host_mac(enter),
            src,
            dst,
            answered: proto == TCP || !rng.permille(100),
            back_enter: asymmetric(&dst).then_some(2),
            soiled: proto == UDP && rng.permille(150),
            odd: proto == TCP && setup.pace != Pace::Burst && rng.permille(150),
            wanders: rng.permille(40),
            ttl,
            dscp,
            label: [0; 2].map(|_| rng.draw() as u32 & rng.of(&[0, 0xf_ffff])),
        }
    };
    (0..FLOWS).map(&mut flow).collect()
}

#[derive(Clone, Copy)]
enum Kind {
    Out,
    OneArmed,
    Hairpin,
    Forwarded,
    Inbound,
}
