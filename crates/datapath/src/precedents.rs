// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which translated ports connections are given, so that both of their directions are in one bucket
//! (`dataplane/precedent.h`, `dataplane/bucket.h`).

use std::net::{IpAddr, SocketAddr};

use freeway_abi::{
    FW_AF_INET, FW_AF_INET6, FW_ORIGIN_ADDRESSES, Pod, fw_config, fw_origin, fw_port_table,
    fw_precedents, fw_source_end, fw_translated, words_of,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::DatapathError;
use crate::copies::remove;
use crate::load::{MapByName, PORT_TABLES, get};

const ORIGINS: &str = "fw_origins";
const PRECEDENTS: &str = "fw_precedents_of";

unsafe extern "C" {
    fn fw_user_bucket(
        one: *const fw_source_end,
        other: *const fw_source_end,
        key: *const u64,
    ) -> u32;
    fn fw_user_port_table(to: *const fw_translated, key: *const u64, table: *mut fw_port_table);
}

/// As a dispatcher with that key has it: the same of both directions of a connection that is not translated.
#[must_use]
pub fn bucket(config: &fw_config, one: SocketAddr, other: SocketAddr) -> u32 {
    let [one, other] = [one, other].map(end);
    // SAFETY: reads both, and the key.
    unsafe { fw_user_bucket(&raw const one, &raw const other, config.hash_key.as_ptr()) }
}

fn end(of: SocketAddr) -> fw_source_end {
    fw_source_end {
        addr_be: words_of(of.ip()),
        port_be: of.port().to_be(),
        family: family(of.ip()) as u8,
        ..fw_source_end::default()
    }
}

fn family(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => FW_AF_INET,
        IpAddr::V6(_) => FW_AF_INET6,
    }
}

fn translated(address: IpAddr, table: u32) -> fw_translated {
    fw_translated {
        addr_be: words_of(address),
        table,
        family: family(address),
    }
}

fn ports_of(config: &fw_config, address: IpAddr) -> fw_port_table {
    let mut ports = fw_port_table::default();
    let to = translated(address, 0);
    // SAFETY: reads the address and the key, writes the table.
    unsafe { fw_user_port_table(&raw const to, config.hash_key.as_ptr(), &raw mut ports) };
    ports
}

/// What became of precedents, summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrecedentCounts {
    /// Made, for a connection that the kernel may translate or not.
    pub made: u64,
    /// Not made: the ports of that bucket which were tried are others'.
    pub taken: u64,
    /// Not made: conntrack is full.
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
    pub fn set_table(&self, table: u32, address: IpAddr) -> Result<(), DatapathError> {
        let ports = ports_of(&self.config, address);
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
        addresses: &[(IpAddr, u32)],
    ) -> Result<(), DatapathError> {
        let mut origin = fw_origin {
            count: addresses.len().min(FW_ORIGIN_ADDRESSES as usize) as u32,
            ..fw_origin::default()
        };
        for (to, (address, table)) in origin.to.iter_mut().zip(addresses) {
            *to = translated(*address, *table);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use freeway_abi::{FW_PRECEDENT_BUCKETS, FW_PRECEDENT_PORT_MIN, FW_PRECEDENT_PORTS};

    use super::*;

    fn config() -> fw_config {
        let mut config = fw_config::default();
        for (place, key) in (1..).zip(&mut config.hash_key) {
            *key = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(place) | 1;
        }
        config
    }

    /// A port of the bucket of any client has the answer in the bucket of what it answers, whatever the server.
    #[test]
    fn answers_to_a_port_of_the_table_are_in_the_bucket() {
        let v4 = |n: u32| IpAddr::V4(Ipv4Addr::from(n));
        let v6 = |n: u32| {
            IpAddr::V6(Ipv6Addr::from(
                0x2001_0db8 << 96 | u128::from(n) << 33 | u128::from(n),
            ))
        };
        check(v4(0xc633_6401), v4);
        check(v6(0xc633_6401), v6);
    }

    /// Hosts of a network with ports in a row are what there is most of, and a key is what chance makes it.
    #[test]
    fn ends_in_a_row_are_in_many_buckets_with_any_key() {
        let v4 = |n: u32| IpAddr::V4(Ipv4Addr::from(0xc000_0202 + n));
        let v6 = |n: u32| IpAddr::V6(Ipv6Addr::from((0x2001_0db8 << 96) + 2 + u128::from(n)));
        let nowhere = |address: IpAddr| SocketAddr::new(address, 0);
        let mut fullest = [0; 2];
        for seed in 1..500_u64 {
            let mut config = fw_config::default();
            let mut state = seed;
            for key in &mut config.hash_key {
                // splitmix64
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                *key = (mixed ^ mixed >> 31) | 1;
            }
            let addresses: [&dyn Fn(u32) -> IpAddr; 2] = [&v4, &v6];
            for (host, fullest) in addresses.iter().zip(&mut fullest) {
                for step in [1, 2, 3, 256] {
                    let mut ends = [0; FW_PRECEDENT_BUCKETS as usize];
                    for n in 0..1024_u32 {
                        let port = 2048 + n / 32 * step;
                        let source = SocketAddr::new(host(n % 32), port as u16);
                        ends[bucket(&config, source, nowhere(host(99))) as usize] += 1;
                    }
                    *fullest = ends.into_iter().fold(*fullest, u32::max);
                }
            }
        }
        // two on average
        assert!(fullest.iter().all(|count| *count <= 16), "{fullest:?}");
    }

    fn check(address: IpAddr, host: impl Fn(u32) -> IpAddr) {
        let config = config();
        let table = ports_of(&config, address);
        let ports = table.port_be.iter().map(|port| u16::from_be(*port));
        let ports: BTreeSet<u16> = ports.collect();
        assert_eq!(ports.len(), FW_PRECEDENT_PORTS as usize);
        let lowest = ports.first().copied().unwrap_or_default();
        assert_eq!(u32::from(lowest), FW_PRECEDENT_PORT_MIN);
        for bucket in 0..FW_PRECEDENT_BUCKETS as usize {
            let (first, end) = (table.first[bucket], table.first[bucket + 1]);
            // 64 on average; none may be without
            assert!(
                (16..=160).contains(&(end - first)),
                "{bucket}: {first} to {end}"
            );
        }
        for n in 0..20_u32 {
            let client = SocketAddr::new(host(0x0a00_0000 + n * 7), (1024 + n * 11) as u16);
            let server = SocketAddr::new(host(0xc633_0000 + n * 3), (n % 900) as u16);
            let there = bucket(&config, client, server);
            assert_eq!(bucket(&config, server, client), there);
            let of_client = ports.iter().filter(|port| {
                let answered = SocketAddr::new(address, **port);
                bucket(&config, server, answered) == there
            });
            let found = of_client.count();
            assert!((16..=160).contains(&found), "{client}: {found}");
        }
    }

    /// Those of a bucket are together.
    #[test]
    fn a_bucket_has_the_ports_that_are_worth_it() {
        let config = config();
        let address = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
        let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        assert_eq!(
            bucket(&config, nobody, nobody),
            0,
            "so an end's bucket with it is what it is worth"
        );
        let table = ports_of(&config, address);
        for (number, ends) in table.first.windows(2).enumerate() {
            for port_be in &table.port_be[ends[0].into()..ends[1].into()] {
                let end = SocketAddr::new(address, u16::from_be(*port_be));
                assert_eq!(bucket(&config, end, nobody) as usize, number);
            }
        }
    }
}
