// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounts of connections: what the kernel and the fast path counted, told to collectors.

mod collector;
mod counters;
mod follow;
mod lister;
mod session;

use std::time::{Duration, Instant};

use freeway_abi::{fw_flow, fw_nexthop};
use freeway_api::{HostCounts, HostsOfPrefix, IpPackets};
use freeway_cmm::ConnKey;
use freeway_datapath::Datapath;
use freeway_export::{Book, Counts, Direction, FastCounts, Hosts, Key, Record, Times};
use freeway_kernel::model::Connection;

use self::collector::Collector;
use self::lister::Lister;
pub(super) use self::lister::Page;
use self::session::now_ms;
use crate::DaemonError;
use crate::config;

/// Accounts that are looked at in one piece of a walk.
const PIECE: usize = 8192;
/// The accounts, as long as there is somebody to be told.
#[derive(Default)]
pub(super) struct Accounting {
    open: Option<Open>,
    /// What is to be told.
    records: Vec<Record>,
}

struct Open {
    book: Book,
    collectors: Vec<Collector>,
    lister: Lister,
    times: config::Accounting,
    hosts: Hosts,
    /// When the last listing began.
    listed: Instant,
    sweeping: bool,
}

impl Accounting {
    /// A flow of a connection is in the table.
    pub(super) fn entered(
        &mut self,
        index: u32,
        flow: &fw_flow,
        (conn, reply): (ConnKey, bool),
        datapath: &Datapath,
    ) {
        let Some(open) = &mut self.open else { return };
        let nexthop = datapath.nexthops.get(flow.nexthop);
        let link_octets = link_octets(&nexthop);
        let port_in = (flow.key.port_proto & !freeway_abi::FW_KEY_IP6) >> 8;
        let ports = [port_in, nexthop.port];
        let (key, direction) = (key_of(&conn), direction(reply));
        open.book
            .entered(index, key, direction, link_octets, ports, now_ms());
    }

    /// The place of a flow is about to be another's.
    pub(super) fn released(&mut self, index: u32, datapath: &Datapath) {
        if let Some(open) = &mut self.open {
            let counted = counted(datapath, index);
            open.book.released(index, counted, &mut self.records);
        }
    }

    /// The kernel has forgotten a connection.
    pub(super) fn destroyed(&mut self, connection: &Connection) {
        if let Some(open) = &mut self.open {
            open.book.destroyed(connection, now_ms(), &mut self.records);
        }
    }

    /// The next part of a listing; never without one.
    pub(super) async fn page(&mut self) -> Page {
        match &mut self.open {
            Some(open) => open.lister.page().await,
            None => std::future::pending().await,
        }
    }

    /// Passes on what is to be told.
    pub(super) fn tell(&mut self) {
        let Some(open) = &mut self.open else { return };
        let prefixes = &open.times.hosts;
        let wanted = |address| prefixes.iter().any(|prefix| prefix.contains(address));
        for record in self.records.drain(..) {
            if !prefixes.is_empty() {
                open.hosts.add(&record, wanted);
            }
            for collector in &open.collectors {
                collector.offer(&record);
            }
        }
    }

    /// True if a walk over the accounts is under way.
    pub(super) fn sweeping(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.sweeping)
    }

    /// A piece of it.
    pub(super) fn sweep(&mut self) {
        if let Some(open) = &mut self.open {
            open.sweeping = open.book.sweep(PIECE, &mut self.records);
        }
    }

    /// Begins to list when it is time for that.
    pub(super) fn list_if_due(&mut self) {
        let Some(open) = &mut self.open else { return };
        let times = &open.times;
        let period = Duration::from_secs(times.active_s.min(times.idle_s).into());
        if open.lister.is_listing() || open.sweeping || open.listed.elapsed() < period {
            return;
        }
        open.listed = Instant::now();
        open.book.begin_round(false);
        open.lister.ask();
    }

    /// Takes a part of a listing.
    pub(super) fn listed(&mut self, page: Page, datapath: &Datapath) {
        let Some(open) = &mut self.open else { return };
        match page {
            Page::Connections(connections) => {
                let read = |index| counted(datapath, index);
                for connection in &connections {
                    open.book
                        .seen(connection, read, now_ms(), &mut self.records);
                }
            }
            Page::End => {
                open.book.end_round();
                open.sweeping = true;
            }
            Page::Failed => open.book.give_up_round(),
        }
    }

    pub(super) fn status(&self, kernel_counts: bool) -> Option<freeway_api::Accounting> {
        let open = self.open.as_ref()?;
        let totals = open.book.totals();
        Some(freeway_api::Accounting {
            connections: open.book.len() as u64,
            kernel_counts,
            records: totals.records,
            uncounted: totals.uncounted,
            missed: totals.missed,
            collectors: open.collectors.iter().map(Collector::status).collect(),
        })
    }

    /// What hosts sent and received, the busiest first.
    pub(super) fn hosts(&self, kernel_counts: bool) -> freeway_api::Hosts {
        let Some(open) = &self.open else {
            return freeway_api::Hosts::default();
        };
        let now_ms = now_ms();
        let mut hosts: Vec<_> = open
            .hosts
            .iter()
            .map(|(address, host)| HostCounts {
                address,
                sent: shown(host.sent),
                received: shown(host.received),
                told_s_ago: now_ms.saturating_sub(host.last_ms) as f64 / 1000.0,
            })
            .collect();
        let both = |host: &HostCounts| host.sent.ip_bytes + host.received.ip_bytes;
        hosts.sort_unstable_by_key(|host| (std::cmp::Reverse(both(host)), host.address));
        let times = &open.times;
        let of = |prefix: &freeway_api::Prefix| {
            let mut sum = HostsOfPrefix {
                prefix: *prefix,
                hosts: 0,
                sent: IpPackets::default(),
                received: IpPackets::default(),
            };
            for host in hosts.iter().filter(|host| prefix.contains(host.address)) {
                sum.hosts += 1;
                add(&mut sum.sent, host.sent);
                add(&mut sum.received, host.received);
            }
            sum
        };
        let others = open.hosts.others();
        freeway_api::Hosts {
            prefixes: times.hosts.iter().map(of).collect(),
            others_sent: shown(others.sent),
            others_received: shown(others.received),
            hosts,
            kernel_counts,
            age_max_s: times.active_s,
        }
    }

    /// Collectors that are configured no longer end, new ones begin. What ends sends what waits.
    fn set_collectors(&mut self, wanted: &[config::Export]) -> Result<(), DaemonError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let mut before = std::mem::take(&mut open.collectors);
        for export in wanted {
            let kept = before.iter().position(|old| old.config == *export);
            open.collectors.push(match kept {
                Some(at) => before.swap_remove(at),
                None => Collector::start(export.clone())?,
            });
        }
        // their threads end by themselves
        Ok(())
    }
}

fn shown(counts: Counts) -> IpPackets {
    IpPackets {
        packets: counts.packets,
        ip_bytes: counts.octets,
    }
}

fn add(sum: &mut IpPackets, more: IpPackets) {
    sum.packets += more.packets;
    sum.ip_bytes += more.ip_bytes;
}

fn times_of(times: &config::Accounting) -> Times {
    Times {
        active_ms: u64::from(times.active_s) * 1000,
        idle_ms: u64::from(times.idle_s) * 1000,
    }
}

fn key_of(conn: &ConnKey) -> Key {
    Key {
        orig: conn.orig,
        zone: conn.zone,
    }
}

fn direction(reply: bool) -> Direction {
    if reply {
        Direction::Reply
    } else {
        Direction::Original
    }
}

/// What a frame has beside its packet: the flow's counter has frames as they leave.
fn link_octets(nexthop: &fw_nexthop) -> u16 {
    nexthop.l2_len + nexthop.outer_len
}

fn counted(datapath: &Datapath, index: u32) -> FastCounts {
    let state = datapath.flows.state(index);
    FastCounts {
        packets: state.packets,
        frame_octets: state.bytes,
    }
}
