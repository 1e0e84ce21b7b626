// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of what the engine says.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use freeway_api::engine::{Answer, EngineStatus, FRAMINGS_MAX, Table};
use freeway_api::handover;
use nix::sys::socket::{Shutdown, shutdown};

use super::super::Engine;
use super::There;
use super::framings::{Record, Told, record};
use crate::DaemonError;
use crate::door::Notice;
use crate::error::failure;

impl Engine {
    /// What becomes of a notice.
    pub(in crate::engine) fn cores_noticed(&mut self, notice: Notice) -> Result<(), DaemonError> {
        match notice {
            Notice::Came(hello, socket, sockets) => {
                if let Some(refusal) = self.refuse_sockets(&hello.sockets) {
                    let _ = handover::send(socket.as_fd(), &refusal, &[]);
                    // it ends, or knocks again
                    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
                    return Ok(());
                }
                let table = self.table()?;
                let fds = self.datapath.handover().map_err(failure)?;
                let fds = fds.map(|fd| fd.as_raw_fd());
                if let Err(error) = handover::send(socket.as_fd(), &Answer::Table(table), &fds) {
                    tracing::warn!("the engine (process {}) has gone: {error}", hello.pid);
                    return Ok(());
                }
                let shared = self.place_sockets(&hello.sockets, sockets);
                let names: Vec<_> = hello
                    .ports
                    .iter()
                    .chain(shared.iter().map(|(port, _)| port))
                    .map(|port| self.port_name(*port))
                    .collect();
                tracing::info!(
                    "the engine is there (process {}, {}): {}",
                    hello.pid,
                    hello.dpdk,
                    names.join(", ")
                );
                self.cores.there = Some(There {
                    status: EngineStatus {
                        version: hello.version,
                        dpdk: hello.dpdk,
                        pid: hello.pid,
                        ..EngineStatus::default()
                    },
                    ports: hello.ports,
                    shared,
                    heard: Instant::now(),
                    silent: false,
                    socket,
                    framings: Told::default(),
                });
            }
            Notice::Counts(counts) => {
                if let Some(there) = &mut self.cores.there {
                    there.status.counts = counts;
                    there.heard = Instant::now();
                }
                return Ok(());
            }
            Notice::Framed(number) => {
                if let Some(there) = &mut self.cores.there {
                    there.framings.taken(number);
                }
            }
            Notice::Watched(packets) => {
                for fast in packets {
                    self.explanations.seen_by_engine(&fast);
                }
                return Ok(());
            }
            Notice::Gone => {
                if let Some(there) = self.cores.there.take() {
                    tracing::warn!("the engine (process {}) has gone", there.status.pid);
                    self.forget_sockets(&there.shared);
                }
            }
        }
        self.update_ports()
    }

    /// Tells the engine what tags and sessions the ports have come to.
    pub(in crate::engine) fn tell_framings(&mut self) {
        let ports = self.ports.by_index.iter();
        let records = ports.filter_map(|(ifindex, port)| {
            let carried = port.carried.as_ref().filter(|carried| carried.by_engine)?;
            let (framing, framed) = carried.records(*ifindex);
            Some(record(&framing, &framed))
        });
        let wanted: BTreeSet<Record> = records.take(FRAMINGS_MAX).collect();
        let Some(there) = &mut self.cores.there else {
            return;
        };
        there.framings.want(wanted);
        if let Some(framings) = there.framings.next() {
            let sent = handover::send(there.socket.as_fd(), &Answer::Framings(framings), &[]);
            if let Err(error) = sent {
                tracing::warn!("the engine (process {}): {error}", there.status.pid);
            }
        }
    }

    /// The engine for `freeway status`.
    pub(in crate::engine) fn cores_status(&self) -> Option<EngineStatus> {
        let there = self.cores.there.as_ref()?;
        let ports = there.ports.iter().copied().chain(there.shares());
        let ports = ports.map(|port| self.port_name(port));
        Some(EngineStatus {
            ports: ports.collect(),
            flows: self.manager.engine_flow_count() as u64,
            ..there.status.clone()
        })
    }

    fn table(&self) -> Result<Table, DaemonError> {
        let config = self.datapath.config();
        // a tick may have begun any time before it is read: the engine's clock is late, never ahead
        let clock_tick = self.now_tick()?;
        let clock_ns = monotonic_ns();
        Ok(Table {
            flow_mask: config.flow_mask,
            nexthop_mask: config.nexthop_mask,
            hash_shift: config.hash_shift,
            hash_key: config.hash_key.to_vec(),
            hz: config.hz,
            ct_check_ticks: config.ct_check_ticks,
            clock_ns,
            clock_tick,
        })
    }
}

fn monotonic_ns() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let now = nix::time::clock_gettime(clock).map_or(std::time::Duration::ZERO, Into::into);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
