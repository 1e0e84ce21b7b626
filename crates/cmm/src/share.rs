// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who has how much of the table, and which flow makes room where it is full.
//!
//! Nothing of this is on a packet's way: how hot a flow is, is what its counter gained from one look of the scan to the
//! next, and a victim is the coldest of a few that are picked at random.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::record::Record;
use crate::table::Table;

/// Flows that are picked to find a victim among them.
const PICKS: usize = 8;
/// A newcomer has to be so many times as hot as the flow that leaves for it: one interval between two packets is a
/// guess, and an exchange costs the kernel packets of both.
const HOTTER: f32 = 2.0;

/// A holder of flows, as `status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The address that opened the connections; without conntrack the flows' source. Of IPv6 the first one of a /64.
    pub address: IpAddr,
    /// Its flows in the table, each direction counted.
    pub flows: u32,
}

/// How hot a flow is.
#[derive(Clone, Copy, Debug)]
struct Heat {
    /// Its counter's lower half at the last look.
    packets: u32,
    tick: u32,
    /// Between the last two looks; negative: there was one at most.
    packets_per_s: f32,
}

impl Heat {
    const UNKNOWN: f32 = -1.0;

    fn known(&self) -> Option<f32> {
        (self.packets_per_s >= 0.0).then_some(self.packets_per_s)
    }
}

/// Who wants room in a full table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer {
    pub holder: IpAddr,
    pub packets_per_s: f32,
}

#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// By flow index.
    heats: Vec<Heat>,
    holders: HashMap<IpAddr, u32>,
    /// State of the generator of picks.
    dice: u64,
}

impl Shares {
    pub fn enter(&mut self, index: u32, record: &Record, now_tick: u32) {
        let at = index as usize;
        let heat = Heat {
            packets: 0,
            tick: now_tick,
            packets_per_s: Heat::UNKNOWN,
        };
        if self.heats.len() <= at {
            self.heats.resize(at + 1, heat);
        }
        self.heats[at] = heat;
        *self.holders.entry(record.holder()).or_default() += 1;
    }

    pub fn leave(&mut self, record: &Record) {
        let holder = record.holder();
        if let Some(flows) = self.holders.get_mut(&holder) {
            *flows -= 1;
            if *flows == 0 {
                self.holders.remove(&holder);
            }
        }
    }

    /// The scan has come by a flow that has forwarded so many packets since it was entered.
    pub fn look(&mut self, index: u32, packets: u64, now_tick: u32, hz: u32) {
        let Some(heat) = self.heats.get_mut(index as usize) else {
            return;
        };
        let ticks = now_tick.wrapping_sub(heat.tick);
        if ticks < hz {
            return;
        }
        let gained = (packets as u32).wrapping_sub(heat.packets);
        *heat = Heat {
            packets: packets as u32,
            tick: now_tick,
            packets_per_s: gained as f32 * hz as f32 / ticks as f32,
        };
    }

    pub fn holders(&self) -> usize {
        self.holders.len()
    }

    /// Those with the most flows, the greatest first.
    pub fn greatest(&self, most: usize) -> Vec<Holder> {
        let mut all: Vec<Holder> = self
            .holders
            .iter()
            .map(|(address, flows)| Holder {
                address: *address,
                flows: *flows,
            })
            .collect();
        let order = |holder: &Holder| (std::cmp::Reverse(holder.flows), holder.address);
        if all.len() > most {
            all.select_nth_unstable_by_key(most, order);
            all.truncate(most);
        }
        all.sort_unstable_by_key(order);
        all
    }

    /// The flow that makes room, or `None`: the table is as it should be.
    ///
    /// A holder of less than half of what another has, and more than an equal share is, takes one of that one's, the
    /// coldest. Otherwise a flow leaves for one that is hotter, but not the flow of a lesser holder within its share.
    pub fn victim(&mut self, table: &Table, newcomer: Newcomer, flows_max: u32) -> Option<u32> {
        let own = self.flows_of(&newcomer.holder);
        let holders = self.holders.len() + usize::from(own == 0);
        let equal = flows_max / u32::try_from(holders).unwrap_or(u32::MAX);
        let (mut shared, mut colder) = (None, None);
        for _ in 0..PICKS {
            let index = self.pick(table.end());
            let Some(record) = table.get(index).filter(|record| !record.is_group()) else {
                continue;
            };
            let theirs = self.flows_of(&record.holder());
            let heat = self.heats.get(index as usize).and_then(Heat::known);
            if theirs > equal && theirs / 2 > own {
                keep_coldest(&mut shared, index, heat.unwrap_or(f32::MAX));
            }
            if (theirs >= own || theirs > equal)
                && let Some(heat) = heat
                && newcomer.packets_per_s > heat * HOTTER
            {
                keep_coldest(&mut colder, index, heat);
            }
        }
        shared.or(colder).map(|(index, _)| index)
    }

    fn flows_of(&self, holder: &IpAddr) -> u32 {
        self.holders.get(holder).copied().unwrap_or(0)
    }

    /// An index, free ones among them (splitmix64).
    fn pick(&mut self, end: u32) -> u32 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z >> 32) * u64::from(end)) >> 32) as u32
    }
}

fn keep_coldest(coldest: &mut Option<(u32, f32)>, index: u32, heat: f32) {
    if coldest.is_none_or(|(_, known)| heat < known) {
        *coldest = Some((index, heat));
    }
}
