// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of what XDP drops.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use freeway_abi::{
    FW_SCRUB_PAIR_DPORT, FW_SCRUB_PAIR_PROTO, FW_SCRUB_PAIR_SHIFT, FW_SCRUB_PAIR_SPORT,
};
use freeway_api::{
    Drops, DropsByAddress, DropsByPort, DropsByRule, DropsBySet, KeptPort, KeptRule, Packets,
};
use freeway_datapath::ScrubKey;
use freeway_kernel::model::{Family, Tuple};
use freeway_kernel::nft::family_name;
use freeway_kernel::reachability::SetName;
use freeway_kernel::scrub::{DropRule, Part, Side};

use super::super::Engine;
use super::sets::{Item, Mirrored, is_over};
use super::{Of, Scrub};

/// Addresses that are named.
const TOP: usize = 20;

fn set_words((family, table, set): &SetName) -> String {
    format!("{} {table} {set}", family_name(*family))
}

impl Scrub {
    /// Rules that are taken over, in the order of their places.
    pub(super) fn rules(&self) -> BTreeSet<DropRule> {
        let taken = self.numbers.iter().flatten();
        taken.map(|taken| taken.rule.clone()).collect()
    }

    fn dropped(&self, rule: &DropRule) -> (Packets, u64) {
        let mut all = (Packets::default(), 0);
        for number in self.numbers_of(rule) {
            let count = self.counted(number, None);
            all.0.packets += count.dropped;
            all.0.bytes += count.bytes;
            all.1 += count.passed;
        }
        all
    }

    fn dropped_at(&self, port: u32) -> Packets {
        let mut all = Packets::default();
        for number in 0..self.numbers.len() as u32 {
            let count = self.counted(number, Some(port));
            all.packets += count.dropped;
            all.bytes += count.bytes;
        }
        all
    }

    fn ports(&self) -> Vec<u32> {
        self.scrubber
            .iter()
            .flat_map(|scrubber| scrubber.ports())
            .collect()
    }

    /// Packets by whose rate is kept.
    pub(super) fn counts(&self) -> Vec<(Of, u64)> {
        let rules = self.rules().into_iter();
        let rules = rules.map(|rule| {
            let packets = self.dropped(&rule).0.packets;
            (Of::Rule(Box::new(rule)), packets)
        });
        let ports = self.ports().into_iter();
        let ports = ports.map(|port| (Of::Port(port), self.dropped_at(port).packets));
        let all = (Of::All, self.total().dropped);
        rules.chain(ports).chain([all]).collect()
    }

    fn rate(&self, of: &Of) -> u64 {
        self.rates.get(of).map_or(0, |rate| rate.per_s)
    }

    /// A prefix of a set that has an address, or the address itself, and its end.
    fn found(set: &Mirrored, addr: IpAddr, pair: u32, now_tick: u32) -> Option<u32> {
        let lives = |until: &u32| !is_over(*until, now_tick);
        let key = Item::Key(ScrubKey { addr, pair });
        if let Some(until) = set.until(&key).filter(lives) {
            return Some(until);
        }
        let nets = if pair == 0 && set.shape.intervals {
            128
        } else {
            0
        };
        (0..nets).find_map(|free: u32| {
            let (net, bits) = match addr {
                IpAddr::V4(addr) => {
                    let shifted = u32::from(addr).checked_shr(free).unwrap_or(0);
                    (
                        IpAddr::V4(shifted.checked_shl(free).unwrap_or(0).into()),
                        32,
                    )
                }
                IpAddr::V6(addr) => {
                    let shifted = u128::from(addr).checked_shr(free).unwrap_or(0);
                    (
                        IpAddr::V6(shifted.checked_shl(free).unwrap_or(0).into()),
                        128u32,
                    )
                }
            };
            let len = bits.checked_sub(free)? as u8;
            set.until(&Item::Net(net, len)).filter(lives)
        })
    }

    /// The sets that have an address, with the end of each.
    fn sets_of(&self, key: &ScrubKey, now_tick: u32) -> Vec<(&SetName, u32)> {
        let ip = match key.addr {
            IpAddr::V4(_) => Family::Ipv4,
            IpAddr::V6(_) => Family::Ipv6,
        };
        let alike = self.sets.iter().filter(|(_, set)| {
            set.shape.ip == ip && set.shape.kind() == key.pair >> FW_SCRUB_PAIR_SHIFT
        });
        let found = alike.filter_map(|(name, set)| {
            Some((name, Self::found(set, key.addr, key.pair, now_tick)?))
        });
        found.collect()
    }

    /// The rule by which a packet is dropped in XDP, and until when its set has it.
    fn dropped_by(&self, tuple: &Tuple, now_tick: u32) -> Option<(&DropRule, u32)> {
        if !self.scrubber.as_ref()?.valid() {
            return None;
        }
        self.numbers.iter().flatten().find_map(|taken| {
            let rule = &taken.rule;
            let set = self.sets.get(&rule.set)?;
            let addr = match rule.side {
                Side::Source => tuple.src,
                Side::Destination => tuple.dst,
            };
            let proto = taken.proto == 0 || taken.proto == tuple.proto;
            let mut ranges = rule.dports.iter();
            let port = rule.dports.is_empty()
                || ranges.any(|(first, last)| (*first..=*last).contains(&tuple.dport));
            let mut pair = set.shape.kind() << FW_SCRUB_PAIR_SHIFT;
            for part in &set.shape.parts {
                pair |= match part {
                    Part::Addr => 0,
                    Part::Proto => u32::from(tuple.proto) << 16,
                    Part::Dport => tuple.dport.into(),
                    Part::Sport => tuple.sport.into(),
                };
            }
            let ip = match addr {
                IpAddr::V4(_) => Family::Ipv4,
                IpAddr::V6(_) => Family::Ipv6,
            };
            if !proto || !port || rule.ip != ip || taken.ports.is_empty() {
                return None;
            }
            Some((rule, Self::found(set, addr, pair, now_tick)?))
        })
    }
}

impl Engine {
    /// Seconds until a tick; `None`: it never comes.
    fn seconds_until(&self, until_tick: u32, now_tick: u32) -> Option<u64> {
        let left = until_tick.wrapping_sub(now_tick).cast_signed().max(0);
        (until_tick != 0).then(|| (left as u64).div_ceil(self.datapath.clock.hz().into()))
    }

    /// `freeway drops`.
    pub(in crate::engine) fn drops(&self) -> Drops {
        let scrub = &self.scrub;
        let now_tick = self.now_tick().unwrap_or(0);
        let total = scrub.total();
        let scrubber = scrub.scrubber.as_ref();
        let rules = scrub.rules().into_iter().map(|rule| {
            let (dropped, confirmed) = scrub.dropped(&rule);
            let set = scrub.sets.get(&rule.set);
            let mut taken = scrub.numbers.iter().flatten();
            let ports = taken.find(|taken| taken.rule == rule);
            let ports = ports.into_iter().flat_map(|taken| &taken.ports);
            // its program may be about to be loaded
            let ports = ports.filter(|port| scrubber.is_some_and(|scrubber| scrubber.has(**port)));
            DropsByRule {
                set: set_words(&rule.set),
                rule: rule.place.to_string(),
                ip: match rule.ip {
                    Family::Ipv4 => 4,
                    Family::Ipv6 => 6,
                },
                ports: ports.map(|port| self.port_name(*port)).collect(),
                elements: set.map_or(0, Mirrored::len) as u64,
                elements_kept: set.map_or(0, |set| set.kept),
                loading: set.is_some_and(|set| set.load.is_some()),
                dropped,
                packets_per_s: scrub.rate(&Of::Rule(Box::new(rule.clone()))),
                confirmed,
                kernel_packets: rule.counts.then(|| self.kernel_count(&rule)).flatten(),
            }
        });
        let top = scrubber
            .map(|scrubber| scrubber.top(TOP))
            .unwrap_or_default();
        let top = top.into_iter().map(|(key, packets)| {
            let sets = scrub.sets_of(&key, now_tick);
            let end = sets
                .iter()
                .map(|(_, until)| *until)
                .reduce(super::sets::earlier);
            DropsByAddress {
                address: address_words(&key),
                packets,
                sets: sets.iter().map(|(name, _)| set_words(name)).collect(),
                expires_s: end.and_then(|end| self.seconds_until(end, now_tick)),
            }
        });
        let kept = scrub.kept.iter().map(|kept| KeptRule {
            set: kept.set.clone(),
            rule: kept.place.to_string(),
            reason: kept.reason.clone(),
        });
        let ports = scrub.ports().into_iter().map(|port| DropsByPort {
            port: self.port_name(port),
            dropped: scrub.dropped_at(port),
            packets_per_s: scrub.rate(&Of::Port(port)),
        });
        let ports_kept = scrub.ports_kept.iter().map(|(port, reason)| KeptPort {
            port: port.clone(),
            reason: reason.clone(),
        });
        Drops {
            enabled: self.config.policy.drops,
            active: scrubber.is_some_and(freeway_datapath::Scrubber::valid),
            dropped: Packets {
                packets: total.dropped,
                bytes: total.bytes,
            },
            packets_per_s: scrub.rate(&Of::All),
            rules: rules.collect(),
            ports: ports.collect(),
            top: top.collect(),
            kept: kept.collect(),
            ports_kept: ports_kept.collect(),
            limits: self.drops_by_limit(),
            sources: self.drops_by_source(),
        }
    }

    /// The same by set, for `freeway stats`.
    pub(in crate::engine) fn drops_by_set(&self) -> Vec<DropsBySet> {
        let mut sets: BTreeMap<String, DropsBySet> = BTreeMap::new();
        for rule in self.scrub.rules() {
            let (dropped, confirmed) = self.scrub.dropped(&rule);
            let name = set_words(&rule.set);
            let set = sets.entry(name.clone()).or_insert_with(|| DropsBySet {
                set: name,
                ..DropsBySet::default()
            });
            set.dropped.packets += dropped.packets;
            set.dropped.bytes += dropped.bytes;
            set.confirmed += confirmed;
        }
        sets.into_values().collect()
    }

    /// Packets that were dropped, and that the kernel was given to confirm it.
    pub(in crate::engine) fn scrubbed(&self) -> (u64, u64) {
        let total = self.scrub.total();
        (total.dropped, total.passed)
    }

    /// Why packets of a tuple are dropped in XDP, if they are.
    pub(in crate::engine) fn scrub_words(&self, tuple: &Tuple, now_tick: u32) -> Option<String> {
        let (rule, until_tick) = self.scrub.dropped_by(tuple, now_tick).filter(|_| self.on)?;
        let until = self.seconds_until(until_tick, now_tick);
        let until = until.map(|seconds| format!(" until {}", time_of(seconds)));
        Some(format!(
            "dropped in XDP: in set {}{}",
            set_words(&rule.set),
            until.unwrap_or_default()
        ))
    }
}

fn address_words(key: &ScrubKey) -> String {
    let kind = key.pair >> FW_SCRUB_PAIR_SHIFT;
    let mut words = key.addr.to_string();
    if kind & FW_SCRUB_PAIR_PROTO != 0 {
        words += &format!(", protocol {}", key.pair >> 16 & 0xff);
    }
    if kind & (FW_SCRUB_PAIR_DPORT | FW_SCRUB_PAIR_SPORT) != 0 {
        let which = if kind & FW_SCRUB_PAIR_DPORT != 0 {
            "to"
        } else {
            "from"
        };
        words += &format!(", {which} port {}", key.pair & 0xffff);
    }
    words
}

/// The time of day in so many seconds, and the day if it is another; as the machine's clock shows it.
fn time_of(seconds: u64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let local = |at: Duration| {
        let time = libc::time_t::try_from(at.as_secs()).unwrap_or(libc::time_t::MAX);
        // SAFETY: an all-zero structure is a value, and the call writes to it alone.
        unsafe {
            let mut parts: libc::tm = std::mem::zeroed();
            libc::localtime_r(&raw const time, &raw mut parts);
            parts
        }
    };
    let (today, then) = (local(now), local(now + Duration::from_secs(seconds)));
    let clock = format!("{:02}:{:02}", then.tm_hour, then.tm_min);
    match (today.tm_year, today.tm_yday) == (then.tm_year, then.tm_yday) {
        true => clock,
        false => format!(
            "{:04}-{:02}-{:02} {clock}",
            then.tm_year + 1900,
            then.tm_mon + 1,
            then.tm_mday
        ),
    }
}
