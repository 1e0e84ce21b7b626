// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounts of connections: what the kernel and the fast path counted, told to collectors.

mod collector;
mod lister;
mod session;

use std::time::{Duration, Instant};

use freeway_abi::{fw_flow, fw_nexthop};
use freeway_cmm::ConnKey;
use freeway_datapath::Datapath;
use freeway_export::{Book, Direction, FastCounts, Key, Record, Times};
use freeway_kernel::conntrack::ConnectionFilter;
use freeway_kernel::model::Connection;

use self::collector::Collector;
use self::lister::Lister;
pub(super) use self::lister::Page;
use self::session::now_ms;
use super::Engine;
use crate::DaemonError;
use crate::config::{self, Config};

/// Accounts that are looked at in one piece of a walk.
const PIECE: usize = 8192;
/// Times that the kernel's events are read before what is told counts.
const ROUNDS: usize = 256;

/// How to have the kernel count.
const COUNT: &str = "sysctl -w net.netfilter.nf_conntrack_acct=1";
/// How to have it tell of ends.
const TELL: &str = "sysctl -w net.netfilter.nf_conntrack_events=1";

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
        let Some(open) = &self.open else { return };
        for record in self.records.drain(..) {
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

impl Engine {
    /// Goes by the configuration: begins or ends to tell of connections, or tells others.
    pub(super) fn follow_exports(&mut self) -> Result<(), DaemonError> {
        let config: &Config = &self.config;
        if config.export.is_empty() {
            self.accounting = Accounting::default();
            return Ok(());
        }
        let (times, exports) = (config.accounting.clone(), config.export.clone());
        match &mut self.accounting.open {
            Some(open) => {
                open.book.set_times(times_of(&times));
                open.times = times;
            }
            None => self.open_accounts(times)?,
        }
        self.accounting.set_collectors(&exports)
    }

    /// What is there already is not told: nobody knows who was told of it.
    fn open_accounts(&mut self, times: config::Accounting) -> Result<(), DaemonError> {
        let now_ms = now_ms();
        let mut book = Book::new(times_of(&times));
        for index in (0..self.manager.index_end()).filter(|index| self.census.is_live(*index)) {
            let Some(flow) = self.manager.flow(index) else {
                continue;
            };
            let Some(conn) = flow.conn else { continue };
            let nexthop = self.datapath.nexthops.get(flow.nexthop);
            let link_octets = link_octets(&nexthop);
            let ports = [flow.key.port, flow.port_out];
            let (key, direction) = (key_of(&conn), direction(flow.reply));
            book.entered(index, key, direction, link_octets, ports, now_ms);
            book.disregard(index, counted(&self.datapath, index));
        }
        let (conntrack, control) = (&mut self.conntrack, &self.datapath.control);
        let (clock, mut count) = (&self.datapath.clock, 0u32);
        let known = conntrack.for_each(&ConnectionFilter::default(), &mut |connection| {
            book.known(&connection, now_ms);
            count += 1;
            // very many take longer than a deadline
            if count.is_multiple_of(1 << 16)
                && let Ok(now_tick) = clock.now_tick()
            {
                control.set_deadline(now_tick.wrapping_add(clock.ticks(super::DEADLINE)));
            }
        });
        if let Err(error) = known {
            tracing::warn!("connections that are there already may be told of whole: {error}");
        }
        self.renewed = Instant::now();
        self.accounting.open = Some(Open {
            book,
            collectors: Vec::new(),
            lister: Lister::start()?,
            times,
            listed: Instant::now(),
            sweeping: false,
        });
        // of what ended before or meanwhile there are events, too
        for _ in 0..ROUNDS {
            self.kernel_events(Instant::now())?;
            if !self.mirror.has_more() {
                break;
            }
        }
        if let Some(open) = &mut self.accounting.open {
            open.book.settled();
        }
        for notice in self.accounting_notices() {
            tracing::warn!("{notice}");
        }
        Ok(())
    }

    /// What keeps accounts from being whole.
    pub(super) fn accounting_notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if self.accounting.open.is_none() {
            return notices;
        }
        if !self.kernel_counts() {
            notices.push(format!(
                "the kernel does not count the packets of connections: records have those of the fast path alone ({COUNT})"
            ));
        }
        if self.polled.sysctls.conntrack_events == Some(0) {
            notices.push(format!(
                "the kernel does not tell when connections end: most are not told of ({TELL})"
            ));
        }
        notices
    }

    pub(super) fn kernel_counts(&self) -> bool {
        self.polled.sysctls.conntrack_acct.is_some_and(|on| on != 0)
    }

    /// The daemon ends: all that is not told yet is told now.
    pub(super) fn finish_accounting(&mut self) {
        let (accounting, datapath) = (&mut self.accounting, &self.datapath);
        let Some(open) = &mut accounting.open else {
            return;
        };
        let read = |index| counted(datapath, index);
        let records = &mut accounting.records;
        open.book.begin_round(true);
        let listed = self
            .conntrack
            .for_each(&ConnectionFilter::default(), &mut |connection| {
                open.book.seen(&connection, read, now_ms(), records);
            });
        if let Err(error) = listed {
            tracing::warn!("what connections amount to is not told: {error}");
        }
        open.book.finish(read, records);
        accounting.tell();
        if let Some(open) = &mut self.accounting.open {
            open.collectors.iter_mut().for_each(Collector::close);
            open.collectors.iter_mut().for_each(Collector::join);
        }
    }
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
    nexthop.l2_len as u16 + nexthop.outer_len
}

fn counted(datapath: &Datapath, index: u32) -> FastCounts {
    let state = datapath.flows.state(index);
    FastCounts {
        packets: state.packets,
        frame_octets: state.bytes,
    }
}
