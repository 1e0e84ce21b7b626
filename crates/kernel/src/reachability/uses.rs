// SPDX-License-Identifier: MIT OR Apache-2.0
//! What named sets are asked, so that a change of an element concerns no flows but those it may match.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::elements::key_ranges;
use super::finding::{AddrRange, PortRange};
use super::packet::Packet;
use super::registers::{Field, Origin};
use super::run::{Run, Values};
use crate::model::{Family, Tuple};
use crate::nft::{Element, SET_INTERVAL, Set, SetChanges};

/// Family, table and name of a set.
pub type SetName = (u8, String, String);

/// How rules look into a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUse {
    set: Set,
    /// Parts of the key by which flows are told apart; none: a lookup by something else.
    parts: Vec<Part>,
    /// Its elements decide where packets go on in the ruleset.
    pub verdicts: bool,
    /// A source address is asked for behind its translation.
    pub postrouting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    at: usize,
    len: usize,
    port: bool,
}

/// The flows that changed elements may match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// One of a flow's addresses is in one of these.
    pub addrs: Vec<AddrRange>,
    /// One of its ports is in one of these.
    pub ports: Vec<PortRange>,
}

impl Affected {
    /// True of a flow with one of these, either end counts.
    #[must_use]
    pub fn hits(&self, tuple: &Tuple) -> bool {
        let among = |ip| {
            let mut ranges = self.addrs.iter();
            ranges.any(|(from, to)| (*from..=*to).contains(&ip))
        };
        let at = |port| {
            let mut ranges = self.ports.iter();
            ranges.any(|(from, to)| (*from..=*to).contains(&port))
        };
        among(tuple.src) || among(tuple.dst) || at(tuple.sport) || at(tuple.dport)
    }
}

impl SetUse {
    /// Both lookups count.
    pub(super) fn join(&mut self, other: SetUse) {
        self.verdicts |= other.verdicts;
        self.postrouting |= other.postrouting;
        if self.parts.is_empty() || other.parts.is_empty() {
            self.parts.clear();
        } else {
            let new = other.parts.into_iter();
            let new: Vec<Part> = new.filter(|part| !self.parts.contains(part)).collect();
            self.parts.extend(new);
        }
    }

    /// The flows that changes may match; `None`: it cannot be told.
    pub fn affected(&self, changes: &SetChanges) -> Option<Affected> {
        let lists = [&changes.added, &changes.removed];
        let plain = |element: &Element| {
            let counts = |name: &String| matches!(name.as_str(), "counter" | "last");
            !element.catch_all && element.expressions.iter().all(counts)
        };
        if changes.truncated
            || self.parts.is_empty()
            || !lists.iter().all(|list| list.iter().all(plain))
        {
            return None;
        }
        let mut affected = Affected::default();
        for list in lists {
            let ranges = key_ranges(&self.set, list);
            // nft has an end at zero where nothing begins.
            let ends = |element: &&Element| {
                element.interval_end && element.key.iter().any(|byte| *byte != 0)
            };
            // An end without its beginning.
            if self.set.flags & SET_INTERVAL != 0 && ranges.len() < list.iter().filter(ends).count()
            {
                return None;
            }
            for range in &ranges {
                for part in &self.parts {
                    affected.add(part, range)?;
                }
            }
        }
        Some(affected)
    }
}

impl Affected {
    fn add(&mut self, part: &Part, range: &Values) -> Option<()> {
        let of = |bytes: &[u8]| bytes.get(part.at..part.at + part.len).map(<[u8]>::to_vec);
        let (from, to) = (of(&range.from)?, of(&range.to)?);
        if part.port {
            let port = |bytes: Vec<u8>| bytes.try_into().ok().map(u16::from_be_bytes);
            self.ports.push((port(from)?, port(to)?));
        } else {
            self.addrs.push((addr(&from)?, addr(&to)?));
        }
        Some(())
    }
}

fn addr(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
    }
}

/// The uses found so far.
pub type Uses = BTreeMap<SetName, SetUse>;

/// Notes a lookup.
pub fn note(uses: &mut Uses, run: &Run<'_>, name: &str, set: &Set, sreg: u32, verdicts: bool) {
    let part = part(run, set, sreg);
    let key = (run.at.family, run.at.name.to_owned(), name.to_owned());
    let first = !uses.contains_key(&key);
    let known = uses.entry(key).or_insert_with(|| SetUse {
        set: Set {
            elements: None,
            ..set.clone()
        },
        parts: Vec::new(),
        verdicts: false,
        postrouting: false,
    });
    known.verdicts |= verdicts;
    known.postrouting |= run.at.postrouting;
    match part {
        Some(part) if first || !known.parts.is_empty() => {
            if !known.parts.contains(&part) {
                known.parts.push(part);
            }
        }
        _ => known.parts.clear(),
    }
}

/// The part of the key that tells most: an address, or else a port, whole.
fn part(run: &Run<'_>, set: &Set, sreg: u32) -> Option<Part> {
    let packet: Packet = run.packet;
    let parts = (0..set.key_len.div_ceil(4)).filter_map(|slot| {
        let Some(Origin::Field { field, bits }) = run.registers.origin(sreg + slot) else {
            return None;
        };
        let len = packet.field_len(field);
        let port = matches!(field, Field::SourcePort | Field::DestinationPort);
        let whole = usize::from(bits) == len * 8;
        whole.then_some(Part {
            at: slot as usize * 4,
            len,
            port,
        })
    });
    let address_size = match packet.ip {
        Family::Ipv4 => 4,
        Family::Ipv6 => 16,
    };
    parts.min_by_key(|part| (part.len != address_size, part.at))
}
