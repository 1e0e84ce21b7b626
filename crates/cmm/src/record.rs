// SPDX-License-Identifier: MIT OR Apache-2.0
//! A flow as compact as a million of them demand, and the chains it is in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use freeway_kernel::model::Tuple;

use crate::flow::Flow;
use crate::key::{ConnKey, FlowKey};
use crate::port::Path;

/// Source and destination as the packets come in, then as they leave.
#[derive(Clone, Debug)]
enum Addrs {
    V4([Ipv4Addr; 4]),
    /// Boxed, so that IPv4 does not pay for it.
    V6(Box<[Ipv6Addr; 4]>),
}

/// Neighbours in a chain of flows; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub prev: u32,
    pub next: u32,
}

/// What flows are chained by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    /// Source address as it comes in.
    Src,
    /// Destination address as it comes in.
    Dst,
    /// Destination address that leaves.
    Out,
    /// Next hop.
    Nexthop,
    /// Ingress port.
    PortIn,
}

pub(crate) const CHAINS: usize = 5;

/// One direction.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    addrs: Addrs,
    /// Ports in the order of the addresses, host byte order.
    l4_ports: [u16; 4],
    pub port_in: u32,
    pub port_out: u32,
    pub nexthop: u32,
    /// Index of the connection, or 0.
    pub conn: u32,
    pub created_tick: u32,
    pub first_tick: u32,
    /// Mebibytes of the flow when its connection was last prepared; wraps.
    pub prepared_mib: u32,
    pub links: [Link; CHAINS],
    pub proto: u8,
    pub ttl_in: u8,
    pub dscp_in: u8,
    flags: u8,
}

/// It is the reply direction of its connection.
const REPLY: u8 = 1;
/// `Activate` was issued.
const ACTIVE: u8 = 2;
/// tc forwards it.
const TC: u8 = 4;
/// XDP cannot, whatever the ports are fit for.
const BOUND: u8 = 8;
/// A packet socket takes its frames, which does not bind it for longer.
const SNIFFED: u8 = 16;
/// The engine forwards it.
const ENGINE: u8 = 32;

impl Record {
    /// `None` if the families differ.
    pub fn new(key: &FlowKey, out: &Tuple) -> Option<Self> {
        let addrs = match (key.tuple.src, key.tuple.dst, out.src, out.dst) {
            (IpAddr::V4(a), IpAddr::V4(b), IpAddr::V4(c), IpAddr::V4(d)) => Addrs::V4([a, b, c, d]),
            (IpAddr::V6(a), IpAddr::V6(b), IpAddr::V6(c), IpAddr::V6(d)) => {
                Addrs::V6(Box::new([a, b, c, d]))
            }
            _ => return None,
        };
        Some(Self {
            addrs,
            l4_ports: [key.tuple.sport, key.tuple.dport, out.sport, out.dport],
            port_in: key.port,
            port_out: 0,
            nexthop: 0,
            conn: 0,
            created_tick: 0,
            first_tick: 0,
            prepared_mib: 0,
            links: [Link::default(); CHAINS],
            proto: key.tuple.proto,
            ttl_in: 0,
            dscp_in: 0,
            flags: 0,
        })
    }

    pub fn is_reply(&self) -> bool {
        self.flags & REPLY != 0
    }

    pub fn set_reply(&mut self) {
        self.flags |= REPLY;
    }

    pub fn is_active(&self) -> bool {
        self.flags & ACTIVE != 0
    }

    pub fn set_active(&mut self) {
        self.flags |= ACTIVE;
    }

    pub fn path(&self) -> Path {
        match (self.flags & TC != 0, self.flags & ENGINE != 0) {
            (true, _) => Path::Tc,
            (false, true) => Path::Engine,
            (false, false) => Path::Xdp,
        }
    }

    pub fn set_path(&mut self, path: Path, bound: bool) {
        self.flags |= match path {
            Path::Xdp => 0,
            Path::Tc => TC,
            Path::Engine => ENGINE,
        };
        if bound {
            self.flags |= BOUND;
        }
    }

    pub fn is_bound(&self) -> bool {
        self.flags & BOUND != 0
    }

    pub fn is_sniffed(&self) -> bool {
        self.flags & SNIFFED != 0
    }

    pub fn set_sniffed(&mut self, sniffed: bool) {
        self.flags = self.flags & !SNIFFED | if sniffed { SNIFFED } else { 0 };
    }

    /// Its packets are copied to the ports of a list.
    pub fn is_group(&self) -> bool {
        self.addr(1).is_multicast()
    }

    fn addr(&self, i: usize) -> IpAddr {
        match &self.addrs {
            Addrs::V4(addrs) => addrs[i].into(),
            Addrs::V6(addrs) => addrs[i].into(),
        }
    }

    /// The address that a chain of addresses goes by.
    pub fn chain_addr(&self, chain: Chain) -> IpAddr {
        match chain {
            Chain::Src => self.addr(0),
            Chain::Dst => self.addr(1),
            _ => self.addr(3),
        }
    }

    pub fn key(&self) -> FlowKey {
        FlowKey {
            tuple: Tuple {
                src: self.addr(0),
                dst: self.addr(1),
                proto: self.proto,
                sport: self.l4_ports[0],
                dport: self.l4_ports[1],
            },
            port: self.port_in,
        }
    }

    /// The tuple that leaves.
    pub fn out(&self) -> Tuple {
        Tuple {
            src: self.addr(2),
            dst: self.addr(3),
            proto: self.proto,
            sport: self.l4_ports[2],
            dport: self.l4_ports[3],
        }
    }

    /// The original tuple of its connection: what comes in, or the inverse of what leaves as a reply. Where conntrack
    /// has only addresses, each SPI, and each kind of GRE, has a connection here of its own.
    pub fn orig(&self) -> Tuple {
        if self.is_reply() {
            self.out().inverse()
        } else {
            self.key().tuple
        }
    }

    /// Whose share of the table it takes: the address that opened the connection; of IPv6 the first one of its /64, for a
    /// host has as many there as it likes (RFC 8981).
    pub fn holder(&self) -> IpAddr {
        match self.orig().src {
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
            }
            address => address,
        }
    }

    /// Its connection. Other zones than 0 are not learned.
    pub fn conn_key(&self) -> Option<ConnKey> {
        (self.conn != 0).then(|| ConnKey {
            orig: self.orig().tracked(),
            zone: 0,
        })
    }

    /// As the manager shows it.
    pub fn flow(&self) -> Flow {
        Flow {
            key: self.key(),
            out: self.out(),
            port_out: self.port_out,
            nexthop: self.nexthop,
            conn: self.conn_key(),
            reply: self.is_reply(),
            created_tick: self.created_tick,
            first_tick: self.first_tick,
            ttl_in: self.ttl_in,
            dscp_in: self.dscp_in,
            active: self.is_active(),
            path: self.path(),
            bound: self.is_bound(),
            sniffed: self.is_sniffed(),
        }
    }
}

/// What a million flows cost is decided here.
const _: () = assert!(size_of::<Option<Record>>() <= 104);
