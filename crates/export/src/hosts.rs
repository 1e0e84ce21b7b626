// SPDX-License-Identifier: MIT OR Apache-2.0
//! What hosts sent and received: sums of what records tell, by address.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::record::{Counts, Record};

/// Hosts that are told apart at most.
const HOSTS_MAX: usize = 65_536;
/// So many make room at a time, those that were heard of least lately.
const YIELD: usize = HOSTS_MAX / 16;

/// A host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// What it sent.
    pub sent: Counts,
    /// What it received.
    pub received: Counts,
    /// When the last record of it was written, milliseconds since 1970.
    pub last_ms: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Hosts {
    by_address: HashMap<IpAddr, Host>,
    /// Those that made room, together.
    others: Host,
}

impl Hosts {
    /// Both ends of a connection, as they are themselves, if they are wanted.
    pub fn add(&mut self, record: &Record, wanted: impl Fn(IpAddr) -> bool) {
        let [there, back] = record.counts;
        let ends = [
            (record.orig.src, there, back),
            (record.reply.src, back, there),
        ];
        for (address, sent, received) in ends {
            if !wanted(address) {
                continue;
            }
            if self.by_address.len() >= HOSTS_MAX && !self.by_address.contains_key(&address) {
                self.make_room();
            }
            let host = self.by_address.entry(address).or_default();
            host.sent.add(sent);
            host.received.add(received);
            host.last_ms = record.end_ms;
        }
    }

    /// Those of which nothing has been heard for longest are counted together.
    fn make_room(&mut self) {
        let mut heard: Vec<_> = self
            .iter()
            .map(|(address, host)| (host.last_ms, address))
            .collect();
        if heard.len() > YIELD {
            heard.select_nth_unstable(YIELD);
            heard.truncate(YIELD);
        }
        for (_, address) in heard {
            let Some(host) = self.by_address.remove(&address) else {
                continue;
            };
            self.others.sent.add(host.sent);
            self.others.received.add(host.received);
            self.others.last_ms = self.others.last_ms.max(host.last_ms);
        }
    }

    /// Others are forgotten.
    pub fn retain(&mut self, wanted: impl Fn(IpAddr) -> bool) {
        self.by_address.retain(|address, _| wanted(*address));
    }

    /// Each, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, Host)> {
        self.by_address
            .iter()
            .map(|(address, host)| (*address, *host))
    }

    /// Those that made room, together.
    #[must_use]
    pub fn others(&self) -> Host {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use freeway_kernel::model::Tuple;

    use super::*;
    use crate::EndReason;

    #[test]
    fn both_ends_are_what_they_are_themselves() {
        let tuple = |src: [u8; 4], dst: [u8; 4]| Tuple {
            src: src.into(),
            dst: dst.into(),
            proto: 17,
            sport: 1,
            dport: 2,
        };
        let counts = |packets| Counts {
            packets,
            octets: packets * 100,
        };
        // the router's own address is neither's
        let record = Record {
            orig: tuple([192, 0, 2, 2], [198, 51, 100, 1]),
            reply: tuple([10, 0, 0, 8], [198, 51, 100, 1]),
            id: 1,
            ports: [0; 2],
            counts: [counts(1), counts(2)],
            start_ms: 5,
            end_ms: 9,
            reason: EndReason::End,
        };
        let mut hosts = Hosts::default();
        hosts.add(&record, |_| true);
        hosts.add(&record, |address| address == IpAddr::from([10, 0, 0, 8]));
        let mut all: Vec<_> = hosts.iter().collect();
        all.sort_by_key(|(address, _)| *address);
        let host = |sent, received| Host {
            sent: counts(sent),
            received: counts(received),
            last_ms: 9,
        };
        assert_eq!(
            all,
            [
                ([10, 0, 0, 8].into(), host(4, 2)),
                ([192, 0, 2, 2].into(), host(1, 2))
            ]
        );
        hosts.retain(|_| false);
        assert_eq!(hosts.iter().count(), 0);
    }

    #[test]
    fn who_was_heard_of_least_lately_makes_room() {
        let mut hosts = Hosts::default();
        let all = HOSTS_MAX as u32 + 1;
        for number in 0..all {
            let tuple = |src: u32, dst: u32| Tuple {
                src: std::net::Ipv4Addr::from_bits(src).into(),
                dst: std::net::Ipv4Addr::from_bits(dst).into(),
                proto: 17,
                sport: 1,
                dport: 2,
            };
            let counts = Counts {
                packets: 1,
                octets: 100,
            };
            let record = Record {
                orig: tuple(number, 0xffff_ffff),
                reply: tuple(0xffff_ffff, number),
                id: number,
                ports: [0; 2],
                counts: [counts, Counts::default()],
                start_ms: 0,
                end_ms: number.into(),
                reason: EndReason::End,
            };
            let wanted = |address| address != IpAddr::from([255; 4]);
            hosts.add(&record, wanted);
        }
        let kept: Vec<_> = hosts.iter().collect();
        assert_eq!(kept.len(), HOSTS_MAX - YIELD + 1);
        let sent: u64 = kept.iter().map(|(_, host)| host.sent.packets).sum();
        assert_eq!(sent + hosts.others().sent.packets, all.into());
        assert_eq!(hosts.others().last_ms, YIELD as u64 - 1);
        let first = kept.iter().map(|(_, host)| host.last_ms).min();
        assert_eq!(first, Some(YIELD as u64));
    }
}
