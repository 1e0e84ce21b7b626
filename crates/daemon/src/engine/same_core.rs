// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[engine] same_core`: both directions of a translated connection on one core (`dataplane/precedent.h`).
//!
//! Which addresses connections are translated to is seen, not computed: each new flow says it of its connection.

mod see;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use freeway_abi::{
    FW_ORIGIN_ADDRESSES, FW_PORT_TABLES, addr_of, fw_candidate, fw_config, fw_tuple,
};
use freeway_datapath::{DatapathError, Precedents, bucket};
use freeway_kernel::probe::{Outcome, has_function};

use crate::DaemonError;

/// What the kernel needs, all from 6.1 on; the last is of its NAT.
const FUNCTIONS: [&str; 5] = [
    "bpf_skb_ct_alloc",
    "bpf_ct_set_timeout",
    "bpf_ct_change_timeout",
    "bpf_ct_insert_entry",
    "bpf_ct_set_nat_info",
];
/// Devices that one may be below another.
const DEPTH_MAX: usize = 4;

/// The kernel has what is needed, or an error says what it lacks.
pub(super) fn check_kernel() -> Result<(), DaemonError> {
    for function in FUNCTIONS {
        if let Outcome::Missing(why) = has_function(function) {
            return Err(DaemonError::Unavailable(format!(
                "engine.same_core: the kernel has no {function} ({why}); it is in kernels from 6.1 with \
                 CONFIG_NF_CONNTRACK and CONFIG_NF_NAT; remove the key, or change the kernel"
            )));
        }
    }
    Ok(())
}

/// What is known of translated connections.
pub(super) struct Translations {
    precedents: Precedents,
    origins: BTreeMap<u32, Vec<IpAddr>>,
    tables: Tables,
    together: u64,
    apart: u64,
}

/// Who has which of the tables of ports.
#[derive(Debug, Default)]
struct Tables([Option<IpAddr>; FW_PORT_TABLES as usize]);

impl Tables {
    fn of(&self, address: IpAddr) -> Option<u32> {
        let at = self.0.iter().position(|of| *of == Some(address))?;
        Some(at as u32)
    }

    /// A place for an address: its own, or one of an address that is not `used`; `None` if there is none.
    fn place(&mut self, address: IpAddr, used: impl Fn(IpAddr) -> bool) -> Option<u32> {
        let free = |of: &Option<IpAddr>| of.is_none_or(|of| !used(of));
        let at = self.of(address);
        let at = at.or_else(|| Some(self.0.iter().position(free)? as u32))?;
        self.0[at as usize] = Some(address);
        Some(at)
    }
}

/// A connection whose source was translated: as it came in, and as it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Translated {
    client: SocketAddr,
    server: SocketAddr,
    answered: SocketAddr,
    answering: SocketAddr,
}

impl Translated {
    /// Of a candidate in the direction of its connection; each connection has one other.
    fn of(candidate: &fw_candidate) -> Option<Self> {
        let conn = &candidate.conn;
        let proto = i32::from((candidate.key.port_proto & 0xff) as u8);
        if conn.present == 0
            || conn.dir != 0
            || !matches!(proto, libc::IPPROTO_TCP | libc::IPPROTO_UDP)
        {
            return None;
        }
        let source = |tuple: &fw_tuple| {
            let address = addr_of(candidate.family, &tuple.saddr_be)?;
            Some(SocketAddr::new(address, u16::from_be(tuple.sport_be)))
        };
        let destination = |tuple: &fw_tuple| {
            let address = addr_of(candidate.family, &tuple.daddr_be)?;
            Some(SocketAddr::new(address, u16::from_be(tuple.dport_be)))
        };
        let of = Self {
            client: source(&conn.orig)?,
            server: destination(&conn.orig)?,
            answered: destination(&conn.reply)?,
            answering: source(&conn.reply)?,
        };
        (of.client.ip() != of.answered.ip()).then_some(of)
    }

    /// Both directions are in one bucket.
    fn is_together(&self, config: &fw_config) -> bool {
        bucket(config, self.client, self.server) == bucket(config, self.answering, self.answered)
    }
}

impl Translations {
    pub(super) fn new(precedents: Precedents) -> Self {
        Self {
            precedents,
            origins: BTreeMap::new(),
            tables: Tables::default(),
            together: 0,
            apart: 0,
        }
    }

    /// Connections that come in at a port may be translated to that address from now on.
    fn learn(&mut self, port: u32, address: IpAddr) -> Result<(), DatapathError> {
        let known = self.origins.get(&port).map_or(&[][..], Vec::as_slice);
        if known.contains(&address) || known.len() >= FW_ORIGIN_ADDRESSES as usize {
            return Ok(());
        }
        let new = self.tables.of(address).is_none();
        let used = |of| self.origins.values().flatten().any(|other| *other == of);
        let Some(table) = self.tables.place(address, used) else {
            return Ok(());
        };
        if new {
            self.precedents.set_table(table, address)?;
        }
        let addresses = self.origins.entry(port).or_default();
        addresses.push(address);
        self.write(port)
    }

    fn write(&self, port: u32) -> Result<(), DatapathError> {
        let addresses = self.origins.get(&port).into_iter().flatten();
        let placed = addresses.filter_map(|address| Some((*address, self.tables.of(*address)?)));
        let placed: Vec<_> = placed.collect();
        match placed.is_empty() {
            true => self.precedents.clear_origin(port),
            false => self.precedents.set_origin(port, &placed),
        }
    }

    /// An address is no longer the router's, or a port has gone.
    fn forget(&mut self, keep: impl Fn(u32, IpAddr) -> bool) -> Result<(), DatapathError> {
        let mut changed = Vec::new();
        for (port, addresses) in &mut self.origins {
            let before = addresses.len();
            addresses.retain(|address| keep(*port, *address));
            if addresses.len() != before {
                changed.push(*port);
            }
        }
        for port in changed {
            self.write(port)?;
        }
        self.origins.retain(|_, addresses| !addresses.is_empty());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use freeway_abi::FW_AF_INET;

    use super::*;

    #[test]
    fn tables_are_given_to_those_who_use_them() {
        let address = |n: u8| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n));
        let mut tables = Tables::default();
        for n in 0..FW_PORT_TABLES as u8 {
            assert_eq!(tables.place(address(n), |_| true), Some(n.into()));
        }
        assert_eq!(tables.place(address(99), |_| true), None);
        assert_eq!(tables.place(address(3), |_| true), Some(3));
        assert_eq!(tables.place(address(99), |of| of != address(5)), Some(5));
        assert_eq!(tables.of(address(5)), None);
        assert_eq!(tables.of(address(99)), Some(5));
    }

    #[test]
    fn what_is_not_translated_is_not_looked_at() {
        let tuple = |src: u32, sport: u16, dst: u32, dport: u16| fw_tuple {
            saddr_be: [src.to_be(), 0, 0, 0],
            daddr_be: [dst.to_be(), 0, 0, 0],
            sport_be: sport.to_be(),
            dport_be: dport.to_be(),
        };
        let mut candidate = fw_candidate {
            family: FW_AF_INET as u8,
            ..fw_candidate::default()
        };
        candidate.key.port_proto = 17;
        candidate.conn.present = 1;
        candidate.conn.orig = tuple(0x0a00_0001, 4000, 0xc633_6402, 53);
        candidate.conn.reply = tuple(0xc633_6402, 53, 0xc633_6401, 40000);
        let translated = Translated::of(&candidate).unwrap();
        assert_eq!(translated.answered.to_string(), "198.51.100.1:40000");
        let none = |change: fn(&mut fw_candidate)| {
            let mut other = candidate;
            change(&mut other);
            assert_eq!(Translated::of(&other), None);
        };
        none(|c| c.conn.reply.daddr_be = c.conn.orig.saddr_be);
        none(|c| c.conn.dir = 1);
        none(|c| c.conn.present = 0);
        none(|c| c.key.port_proto = 1);
        none(|c| c.family = 0);
    }
}
