// SPDX-License-Identifier: MIT OR Apache-2.0
//! What hosts sent and received: sums of what records tell, by address.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::record::{Counts, Record};

/// Hosts that are told apart at most.
const HOSTS_MAX: usize = 65_536;

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
    /// Those for which there was no room, together.
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
            let room = self.by_address.len() < HOSTS_MAX;
            let host = match self.by_address.get_mut(&address) {
                Some(host) => host,
                None if room => self.by_address.entry(address).or_default(),
                None => &mut self.others,
            };
            host.sent.add(sent);
            host.received.add(received);
            host.last_ms = record.end_ms;
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

    /// Those for which there was no room, together.
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
}
