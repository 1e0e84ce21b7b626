// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of what the engine says.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use freeway_api::engine::{
    Answer, EngineClass, EngineStatus, FRAMINGS_MAX, Scheduled, Schedules, Table,
};
use freeway_api::handover;
use freeway_api::schedule::ClassCounts;
use freeway_kernel::model::Link;
use nix::sys::socket::{Shutdown, shutdown};

use super::super::Engine;
use super::framings::{Record, Told, record};
use super::mirrors;
use super::schedules::{self, Wanted};
use super::shapers::{CONFIGURED, Hung, configured};
use super::{There, ToldRoutes};
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
                    schedules: schedules::Told::default(),
                    mirrors: mirrors::Told::default(),
                    routes: ToldRoutes::default(),
                    classes: BTreeMap::new(),
                });
                self.tell_mirrors();
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
            Notice::Scheduled(scheduled) => {
                if let Some(there) = &mut self.cores.there {
                    there.schedules.taken(scheduled);
                }
            }
            Notice::Classes(classes) => {
                if let (Some(there), Some(first)) = (&mut self.cores.there, classes.first()) {
                    there.classes.insert(first.port, classes);
                }
                return Ok(());
            }
            Notice::Mirrored(mirrored) => {
                if let Some(there) = &mut self.cores.there {
                    there.mirrors.taken(mirrored);
                }
                self.tell_mirrors();
                return Ok(());
            }
            Notice::Routed(routed) => {
                let there = self.cores.there.as_mut();
                // of others nothing is to be known any more
                if let Some(there) = there.filter(|it| it.routes.told == Some(routed.number)) {
                    there.routes.held = Some(routed.number).filter(|_| routed.refused.is_none());
                    there.routes.refused = routed.refused;
                }
                if let Some(words) = self.cores.refused_routes() {
                    tracing::warn!("{words}");
                }
                return Ok(());
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
            // one that has gone is heard of
            let _ = there.tell(&Answer::Framings(framings));
        }
    }

    /// Looks which schedulers the engine's outputs are to have: from now on no flow goes by another one.
    pub(in crate::engine) fn want_schedules(&mut self) {
        let links = self.mirror.links();
        let ports = links.values().filter(|link| self.cores.serve(link.ifindex));
        let scheduled = ports.filter_map(|link| {
            let wanted = self.scheduler(link)?.ok()?;
            Some((link.ifindex, wanted))
        });
        let mut wanted: BTreeMap<u32, Wanted> = BTreeMap::new();
        wanted.extend(scheduled);
        if let Some(there) = &mut self.cores.there {
            there.classes.retain(|port, _| wanted.contains_key(port));
            there.schedules.want(wanted);
        }
    }

    /// Tells the engine of them. Flows that went by others have left the table.
    pub(in crate::engine) fn tell_schedules(&mut self) {
        let Some(there) = &mut self.cores.there else {
            return;
        };
        if let Some(schedules) = there.schedules.next() {
            let (number, ports) = (schedules.number, ports_of(&schedules));
            if let Err(error) = there.tell(&Answer::Schedules(schedules)) {
                // with others it is told again
                let why = format!("it cannot be told: {error}");
                let refused = ports.into_iter().map(|port| (port, why.clone()));
                there.schedules.taken(Scheduled {
                    number,
                    refused: refused.collect(),
                });
            }
        }
    }

    /// Tells the engine by which rules it is to copy frames, if they are others than it was told.
    pub(in crate::engine) fn tell_mirrors(&mut self) {
        let rules = self.config.policy.steer.iter();
        let mirrors = rules.filter(|rule| rule.mirror.is_some());
        let wanted = mirrors.cloned().collect();
        let Some(there) = &mut self.cores.there else {
            return;
        };
        if let Some(mirrors) = there.mirrors.next(wanted)
            && there.tell(&Answer::Mirrors(mirrors)).is_err()
        {
            there.mirrors.failed();
        }
    }

    /// Rules by which nothing is copied.
    pub(in crate::engine) fn mirror_notices(&self) -> impl Iterator<Item = String> {
        let there = self.cores.there.iter();
        let refused = there.flat_map(|there| there.mirrors.refused());
        refused.map(|why| {
            format!(
                "the engine copies nothing by {why}: systemctl restart freeway-engine has it go by its configuration"
            )
        })
    }

    /// The scheduler that an output of the engine's is to have, or why it cannot; none: it is to have none.
    fn scheduler(&self, link: &Link) -> Option<Result<Wanted, String>> {
        let shaper = self.shaper(link);
        let config = self.config.engine.port.get(&link.name);
        if let Some(config) = config.and_then(|port| port.schedule.as_ref()) {
            let refused = shaper.map(|qdisc| {
                format!(
                    "[engine.port.{}.schedule] and a qdisc {} are one too many",
                    link.name, qdisc.kind
                )
            });
            return Some(refused.map_or_else(|| Ok(configured(link.ifindex, config)), Err));
        }
        shaper?;
        let hung = Hung {
            link,
            qdiscs: self.qdiscs(link.ifindex).collect(),
            classes: {
                let of_port = (link.ifindex, 0)..=(link.ifindex, u32::MAX);
                let classes = self.mirror.classes().range(of_port);
                classes.map(|(_, class)| class).collect()
            },
            filters: {
                let filters = self.mirror.filters().get(&link.ifindex);
                let filters = filters.into_iter().flatten();
                filters.filter(|filter| !filter.is_hooked()).collect()
            },
        };
        Some(hung.scheduler())
    }

    /// Whether what leaves at a port of the engine's goes by a scheduler of its own; an error is why not.
    pub(in crate::engine) fn schedules(&self, link: &Link) -> Result<(), String> {
        let wanted = match self.scheduler(link) {
            None => return Ok(()),
            Some(wanted) => wanted?,
        };
        let there = self.cores.there.as_ref();
        let there = there.ok_or("there is no engine")?;
        if there.schedules.held(link.ifindex) == Some(&wanted) {
            return Ok(());
        }
        let refused = there.schedules.refused(link.ifindex);
        Err(refused.map_or_else(
            || "the engine has yet to say that it goes by it".to_owned(),
            |why| format!("the engine refuses it: {why}"),
        ))
    }

    /// The class of a next hop at a port of the engine's, in words.
    pub(in crate::engine) fn class_words(&self, port_out: u32, nexthop: u32) -> Option<String> {
        let leaf = self.manager.nexthop_leaf(nexthop)?;
        let base = self.base_of(port_out);
        let wanted = self.cores.schedule(base)?;
        let class = wanted.schedule.classes.get(usize::from(leaf) - 1)?;
        let (name, kind) = (&class.name, &wanted.kind);
        let kind = match kind.as_str() {
            CONFIGURED => "the schedule",
            kind => kind,
        };
        Some(format!(
            "class {name} of {kind} on {}, in the engine",
            self.port_name(base)
        ))
    }

    /// The TAP at which what a port sends leaves: itself, or the one below a VLAN or session.
    pub(in crate::engine) fn base_of(&self, ifindex: u32) -> u32 {
        let port = self.ports.by_index.get(&ifindex);
        let carried = port.and_then(|port| port.carried.as_ref());
        carried.map_or(ifindex, |carried| carried.base)
    }

    fn classes_status(&self, there: &There) -> Vec<EngineClass> {
        let of_port = |(port, classes): (&u32, &Vec<ClassCounts>)| {
            let name = self.port_name(*port);
            let held = there.schedules.held(*port);
            let kind = held.map_or_else(String::new, |held| held.kind.clone());
            let one = move |class: &ClassCounts| EngineClass {
                port: name.clone(),
                kind: kind.clone(),
                class: class.name.clone(),
                packets: class.packets,
                bytes: class.bytes,
                dropped: class.dropped,
                waiting: class.waiting,
                waiting_bytes: class.waiting_bytes,
                delay_mean_ns: class.delay_ns.checked_div(class.packets).unwrap_or(0),
                delay_p99_below_ns: class.delay_below_ns(0.99).unwrap_or(0),
            };
            classes.iter().map(one).collect::<Vec<_>>()
        };
        there.classes.iter().flat_map(of_port).collect()
    }

    /// The engine for `freeway status`.
    pub(in crate::engine) fn cores_status(&self) -> Option<EngineStatus> {
        let there = self.cores.there.as_ref()?;
        let ports = there.ports.iter().copied().chain(there.shares());
        let ports = ports.map(|port| self.port_name(port));
        Some(EngineStatus {
            ports: ports.collect(),
            flows: self.manager.engine_flow_count() as u64,
            classes: self.classes_status(there),
            ..there.status.clone()
        })
    }

    fn table(&self) -> Result<Table, DaemonError> {
        let config = self.datapath.config();
        // a tick may have begun any time before it is read: the engine's clock is late, never ahead, and by one tick at most
        let (clock_tick, clock_ns) = loop {
            let tick = self.now_tick()?;
            let now_ns = monotonic_ns();
            if self.now_tick()? == tick {
                break (tick, now_ns);
            }
        };
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

fn ports_of(schedules: &Schedules) -> Vec<u32> {
    let all = schedules.schedules.iter();
    all.map(|schedule| schedule.port).collect()
}

fn monotonic_ns() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let now = nix::time::clock_gettime(clock).map_or(std::time::Duration::ZERO, Into::into);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
