// SPDX-License-Identifier: MIT OR Apache-2.0
//! When accounts begin and end.

use std::time::Instant;

use freeway_export::{Book, Hosts};
use freeway_kernel::conntrack::ConnectionFilter;

use super::super::Engine;
use super::collector::Collector;
use super::lister::Lister;
use super::session::now_ms;
use super::{Accounting, Open, counted, direction, key_of, link_octets, times_of};
use crate::DaemonError;
use crate::config::{self, Config};

/// Times that the kernel's events are read before what is told counts.
const ROUNDS: u32 = 256;

/// How to have the kernel count.
const COUNT: &str = "sysctl -w net.netfilter.nf_conntrack_acct=1";
/// How to have it tell of ends.
const TELL: &str = "sysctl -w net.netfilter.nf_conntrack_events=1";

impl Engine {
    /// Goes by the configuration: begins or ends to tell of connections, or tells others.
    pub(in crate::engine) fn follow_exports(&mut self) -> Result<(), DaemonError> {
        let config: &Config = &self.config;
        if config.export.is_empty() && config.accounting.hosts.is_empty() {
            self.accounting = Accounting::default();
            return Ok(());
        }
        let (times, exports) = (config.accounting.clone(), config.export.clone());
        match &mut self.accounting.open {
            Some(open) => {
                open.book.set_times(times_of(&times));
                let prefixes = &times.hosts;
                open.hosts
                    .retain(|address| prefixes.iter().any(|prefix| prefix.contains(address)));
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
        let (conntrack, datapath) = (&mut self.conntrack, &self.datapath);
        let (heart, mut count) = (&mut self.heart, 0u32);
        let known = conntrack.for_each(&ConnectionFilter::default(), &mut |connection| {
            book.known(&connection, now_ms);
            count += 1;
            // very many take longer than a deadline
            if count.is_multiple_of(1 << 16)
                && let Ok(now_tick) = datapath.clock.now_tick()
            {
                heart.renew(datapath, now_tick);
            }
        });
        if let Err(error) = known {
            tracing::warn!("connections that are there already may be told of whole: {error}");
        }
        let now_tick = self.now_tick()?;
        self.heart.renew(&self.datapath, now_tick);
        self.accounting.open = Some(Open {
            book,
            collectors: Vec::new(),
            lister: Lister::start()?,
            times,
            hosts: Hosts::default(),
            listed: Instant::now(),
            sweeping: false,
        });
        // of what ended before or meanwhile there are events, too
        self.hear(ROUNDS)?;
        if let Some(open) = &mut self.accounting.open {
            open.book.settled();
        }
        for notice in self.accounting_notices() {
            tracing::warn!("{notice}");
        }
        Ok(())
    }

    /// What keeps accounts from being whole.
    pub(in crate::engine) fn accounting_notices(&self) -> Vec<String> {
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

    pub(in crate::engine) fn kernel_counts(&self) -> bool {
        self.polled.sysctls.conntrack_acct.is_some_and(|on| on != 0)
    }

    /// All that is not told yet is told now.
    pub(in crate::engine) fn settle_accounts(&mut self) {
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
        accounting.tell();
    }

    /// The daemon ends, and has settled its accounts.
    pub(in crate::engine) fn close_accounts(&mut self) {
        let (accounting, datapath) = (&mut self.accounting, &self.datapath);
        let Some(open) = &mut accounting.open else {
            return;
        };
        open.book
            .finish(|index| counted(datapath, index), &mut accounting.records);
        accounting.tell();
        if let Some(open) = &mut self.accounting.open {
            open.collectors.iter_mut().for_each(Collector::close);
            open.collectors.iter_mut().for_each(Collector::join);
        }
    }
}
