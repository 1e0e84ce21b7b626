// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of limits.

use std::cmp::Reverse;
use std::net::IpAddr;

use freeway_abi::fw_ratelimit_count;
use freeway_api::{
    DropsByLimit, DropsByPort, DropsBySource, KeptPort, Packets, Prefix, ScrubLimit,
};
use freeway_kernel::model::Tuple;

use super::super::Engine;
use super::{Limits, Place};
use crate::config::SourceLimit;

/// Sources that are named.
const TOP: usize = 20;

fn packets(count: fw_ratelimit_count) -> Packets {
    Packets {
        packets: count.dropped,
        bytes: count.bytes,
    }
}

/// The prefix of a limit that an address is in.
fn source(limit: &SourceLimit, addr: IpAddr) -> Prefix {
    let len = match addr {
        IpAddr::V4(_) => limit.prefix_len4,
        IpAddr::V6(_) => limit.prefix_len6,
    };
    let addr = match addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32 - len.min(32)).unwrap_or(0);
            IpAddr::V4((u32::from(addr) & mask).into())
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(128 - len.min(128)).unwrap_or(0);
            IpAddr::V6((u128::from(addr) & mask).into())
        }
    };
    Prefix {
        addr,
        len: len as u8,
    }
}

fn number(place: &Place) -> u32 {
    place.number as u32 + 1
}

impl Limits {
    /// In the order of the configuration.
    fn ordered(&self) -> Vec<(u32, &Place)> {
        let mut all: Vec<_> = self.taken().collect();
        all.sort_by_key(|(_, place)| place.number);
        all
    }

    /// Limits with a port that they name, or none at all, where they are not in force.
    pub(in crate::engine) fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        for (_, place) in self.ordered() {
            let kept: Vec<_> = self
                .kept
                .iter()
                .filter(|((number, _), _)| *number == place.number)
                .filter(|_| place.ports.is_empty() || !place.limit.port.is_empty())
                .map(|((_, port), why)| format!("{port} ({why})"))
                .collect();
            if !kept.is_empty() {
                notices.push(format!(
                    "[[scrub.limit]] number {} is not in force at {}",
                    number(place),
                    kept.join(", ")
                ));
            }
        }
        notices
    }
}

impl Engine {
    /// `[[scrub.limit]]` in `freeway drops`.
    pub(in crate::engine) fn drops_by_limit(&self) -> Vec<DropsByLimit> {
        let limits = &self.limits;
        let all = limits.ordered().into_iter().map(|(at, place)| {
            let count = limits.counted(at);
            let ports = place.ports.iter().map(|port| DropsByPort {
                port: self.port_name(*port),
                dropped: packets(limits.counted_at(at, *port)),
                packets_per_s: limits.rates.get(&(at, *port)).map_or(0, |rate| rate.1),
            });
            let kept = limits.kept.iter();
            let kept = kept.filter(|((number, _), _)| *number == place.number);
            DropsByLimit {
                number: number(place),
                proto: place.limit.proto.name().into(),
                packets_per_s: place.limit.packets_per_s,
                burst: place.limit.burst(),
                prefix_len4: place.limit.prefix_len4,
                prefix_len6: place.limit.prefix_len6,
                dropped: packets(count),
                ports: ports.collect(),
                ports_kept: kept
                    .map(|((_, port), reason)| KeptPort {
                        port: port.clone(),
                        reason: reason.clone(),
                    })
                    .collect(),
                forgotten: count.forgotten,
            }
        });
        all.collect()
    }

    /// Who sends too much.
    pub(in crate::engine) fn drops_by_source(&self) -> Vec<DropsBySource> {
        let mut all: Vec<_> = self.limits.sources.iter().collect();
        all.sort_by_key(|(_, excess)| Reverse((excess.per_s, excess.packets)));
        let named = all
            .into_iter()
            .take(TOP)
            .filter_map(|((at, addr), excess)| {
                let place = self.limits.places.get(*at as usize)?.as_ref()?;
                Some(DropsBySource {
                    source: source(&place.limit, *addr).to_string(),
                    limit: number(place),
                    dropped: excess.packets,
                    dropped_per_s: excess.per_s,
                })
            });
        named.collect()
    }

    /// The same in `stats` and `status`.
    pub(in crate::engine) fn scrub_limits(&self) -> Vec<ScrubLimit> {
        let all = self.limits.ordered().into_iter();
        let all = all.map(|(at, place)| ScrubLimit {
            number: number(place),
            proto: place.limit.proto.name().into(),
            packets_per_s: place.limit.packets_per_s,
            dropped: packets(self.limits.counted(at)),
        });
        all.collect()
    }

    /// Packets over whatever limit.
    pub(in crate::engine) fn limited(&self) -> u64 {
        self.limits.total().dropped
    }

    /// Over which limit the source of a tuple was in the last second, if it was.
    pub(in crate::engine) fn limit_words(&self, tuple: &Tuple) -> Option<String> {
        let over = self.limits.ordered().into_iter().find_map(|(at, place)| {
            let source = source(&place.limit, tuple.src);
            let excess = self.limits.sources.get(&(at, source.addr))?;
            let counts = place.limit.proto.counts(tuple.proto);
            (counts && excess.per_s > 0).then_some((place, source, excess))
        });
        let (place, source, excess) = over.filter(|_| self.on)?;
        Some(format!(
            "dropped in XDP in part: {source} is over [[scrub.limit]] number {} ({}: {} a second), by {} in the last second",
            number(place),
            place.limit.proto.packets(),
            freeway_console::count(place.limit.packets_per_s.into()),
            freeway_console::count(excess.per_s)
        ))
    }
}
