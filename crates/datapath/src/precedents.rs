// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which translated ports connections are given, so that both of their directions are in one bucket
//! (`dataplane/precedent.h`, `dataplane/bucket.h`).

use std::net::{Ipv4Addr, SocketAddrV4};

use freeway_abi::{FW_ORIGIN_ADDRESSES, Pod, fw_config, fw_origin, fw_port_table, fw_precedents};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::DatapathError;
use crate::copies::remove;
use crate::load::{MapByName, PORT_TABLES, get};

const ORIGINS: &str = "fw_origins";
const PRECEDENTS: &str = "fw_precedents_of";

unsafe extern "C" {
    fn fw_user_bucket4(
        saddr_be: u32,
        sport_be: u16,
        daddr_be: u32,
        dport_be: u16,
        key: *const u64,
    ) -> u32;
    fn fw_user_port_table(addr_be: u32, key: *const u64, table: *mut fw_port_table);
}

/// As a dispatcher with that key has it: the same of both directions of a connection that is not translated.
#[must_use]
pub fn bucket4(config: &fw_config, one: SocketAddrV4, other: SocketAddrV4) -> u32 {
    // SAFETY: reads the key.
    unsafe {
        fw_user_bucket4(
            be(*one.ip()),
            one.port().to_be(),
            be(*other.ip()),
            other.port().to_be(),
            config.hash_key.as_ptr(),
        )
    }
}

/// What became of precedents, summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrecedentCounts {
    /// Made, for a connection that the kernel may translate or not.
    pub made: u64,
    /// Not made: the ports of that bucket which were tried are others'.
    pub taken: u64,
    /// conntrack did not take it: it is full, or has the same one.
    pub refused: u64,
}

/// The ports at which connections are translated, and their addresses.
pub struct Precedents {
    origins: MapHandle,
    tables: MapHandle,
    counts: MapHandle,
    config: fw_config,
}

impl std::fmt::Debug for Precedents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Precedents")
    }
}

impl Precedents {
    pub(crate) fn new(maps: &MapByName, config: &fw_config) -> Result<Self, DatapathError> {
        let clone = |name| {
            let map = get(maps, name)?;
            MapHandle::try_from(map).map_err(|source| DatapathError::Map { map: name, source })
        };
        Ok(Self {
            origins: clone(ORIGINS)?,
            tables: clone(PORT_TABLES)?,
            counts: clone(PRECEDENTS)?,
            config: *config,
        })
    }

    /// Writes the ports of an address into a table.
    pub fn set_table(&self, table: u32, address: Ipv4Addr) -> Result<(), DatapathError> {
        let mut ports = fw_port_table::default();
        // SAFETY: reads the key, writes the table.
        unsafe {
            fw_user_port_table(be(address), self.config.hash_key.as_ptr(), &raw mut ports);
        }
        let error = |source| DatapathError::Map {
            map: PORT_TABLES,
            source,
        };
        self.tables
            .update(&table.to_ne_bytes(), ports.as_bytes(), MapFlags::ANY)
            .map_err(error)
    }

    /// Connections that come in at a port are translated to these addresses, of which each has its table.
    pub fn set_origin(
        &self,
        ifindex: u32,
        addresses: &[(Ipv4Addr, u32)],
    ) -> Result<(), DatapathError> {
        let mut origin = fw_origin {
            count: addresses.len().min(FW_ORIGIN_ADDRESSES as usize) as u32,
            ..fw_origin::default()
        };
        let places = origin.addr_be.iter_mut().zip(&mut origin.table);
        for ((addr_be, table), (address, of_address)) in places.zip(addresses) {
            *addr_be = be(*address);
            *table = *of_address;
        }
        let error = |source| DatapathError::Map {
            map: ORIGINS,
            source,
        };
        self.origins
            .update(&ifindex.to_ne_bytes(), origin.as_bytes(), MapFlags::ANY)
            .map_err(error)
    }

    /// Connections that come in there are left alone.
    pub fn clear_origin(&self, ifindex: u32) -> Result<(), DatapathError> {
        remove(&self.origins, &ifindex.to_ne_bytes()).map_err(|source| DatapathError::Map {
            map: ORIGINS,
            source,
        })
    }

    /// What became of them.
    pub fn counts(&self) -> Result<PrecedentCounts, DatapathError> {
        let error = |source| DatapathError::Map {
            map: PRECEDENTS,
            source,
        };
        let cpus = self
            .counts
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let cpus = cpus.map_err(error)?.unwrap_or_default();
        let counts = cpus.iter().filter_map(|of| fw_precedents::from_bytes(of));
        Ok(
            counts.fold(PrecedentCounts::default(), |sum, of| PrecedentCounts {
                made: sum.made + of.made,
                taken: sum.taken + of.taken,
                refused: sum.refused + of.refused,
            }),
        )
    }
}

fn be(address: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(address.octets())
}

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_abi::{
        FW_HASH_KEYS, FW_PRECEDENT_BUCKETS, FW_PRECEDENT_PORT_MIN, FW_PRECEDENT_PORTS,
    };

    fn config() -> fw_config {
        let mut config = fw_config::default();
        for (place, key) in (1..).zip(&mut config.hash_key) {
            *key = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(place) | 1;
        }
        assert_eq!(config.hash_key.len(), FW_HASH_KEYS as usize);
        config
    }

    /// A port of the bucket of any client has the answer in the bucket of what it answers, whatever the server.
    #[test]
    fn answers_to_a_port_of_the_table_are_in_the_bucket() {
        let config = config();
        let translated = Ipv4Addr::new(198, 51, 100, 1);
        let mut table = fw_port_table::default();
        // SAFETY: reads the key, writes the table.
        unsafe { fw_user_port_table(be(translated), config.hash_key.as_ptr(), &raw mut table) };
        let ports: std::collections::BTreeSet<u16> = table
            .port_be
            .iter()
            .map(|port| u16::from_be(*port))
            .collect();
        assert_eq!(ports.len(), FW_PRECEDENT_PORTS as usize);
        assert!(
            ports
                .iter()
                .all(|port| u32::from(*port) >= FW_PRECEDENT_PORT_MIN)
        );
        for bucket in 0..FW_PRECEDENT_BUCKETS as usize {
            let (first, end) = (table.first[bucket], table.first[bucket + 1]);
            // 64 on average; none may be without
            assert!(
                (16..=160).contains(&(end - first)),
                "{bucket}: {first} to {end}"
            );
        }
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let of_nobody = bucket4(&config, nobody, nobody);
        assert_eq!(
            of_nobody, 0,
            "so the bucket with nobody is what an end is worth"
        );
        for n in 0..5000_u32 {
            let client =
                SocketAddrV4::new(Ipv4Addr::from(0x0a00_0000 + n * 7), (1024 + n * 11) as u16);
            let server = SocketAddrV4::new(Ipv4Addr::from(0xc633_0000 + n * 3), (n % 900) as u16);
            let end = bucket4(&config, client, nobody) as usize;
            for at in [table.first[end], table.first[end + 1] - 1] {
                let port = u16::from_be(table.port_be[at as usize]);
                let answered = SocketAddrV4::new(translated, port);
                let there = bucket4(&config, client, server);
                assert_eq!(bucket4(&config, server, client), there);
                assert_eq!(bucket4(&config, server, answered), there, "{client} {port}");
            }
        }
    }
}
