// SPDX-License-Identifier: MIT OR Apache-2.0
//! All workers, which go by one table.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use freeway_abi::{Pod, fw_framed, fw_framing};
use freeway_api::engine::{EngineConfig, EngineCounts, Idle, PathCost, WatchedFast, WorkerCounts};
use freeway_api::schedule::{ClassCounts, Schedule as Described};

use crate::exits::Exits;
use crate::ffi::{
    FWE_PATH_KERNEL, FWE_PATH_MIRROR, FWE_PATH_OTHER, FWE_PATH_PLAIN, FWE_PATH_ROUTE,
    FWE_PATH_SCHEDULE, fw_engine_framings, fwe_clock, fwe_config, fwe_exits_exception,
    fwe_exits_source, fwe_framings_free, fwe_framings_new, fwe_memory, fwe_port, fwe_stats,
    fwe_tsc_hz,
};
use crate::lanes::{Lanes, sourcing};
use crate::memory::Memory;
use crate::mirror::Mirror;
use crate::pools::Pools;
use crate::port::Port;
use crate::routes::Routes;
use crate::schedule::Schedule;
use crate::schedulers::Schedulers;
use crate::sockets::Sockets;
use crate::wakers::Wakers;
use crate::worker::{BUCKETS, Worker};

/// A core that sleeps without traffic looks after itself so often, whoever wakes it.
const SLEEP_US_MAX: u32 = 10_000;
/// How often it is looked whether a turn has ended.
const LOOK: Duration = Duration::from_micros(100);

/// How long a core may sleep, microseconds.
pub(crate) fn sleep_us_max(idle: Idle) -> u32 {
    match idle {
        Idle::Poll => 0,
        Idle::Sleep => SLEEP_US_MAX,
    }
}

/// A table that workers use: C's view, and what keeps it mapped.
struct Used {
    view: Box<fwe_memory>,
    _memory: Memory,
}

impl Used {
    fn new(memory: Memory) -> Self {
        let view = fwe_memory {
            flows: memory.flows(),
            nexthops: memory.nexthops(),
            control: memory.control(),
            config: memory.config(),
            watch: memory.watch(),
            nexthops_max: memory.config().nexthop_mask,
            pad: 0,
        };
        Self {
            view: Box::new(view),
            _memory: memory,
        }
    }
}

/// What a clock is allocated for, and freed.
struct Clock(NonNull<fwe_clock>);

impl Drop for Clock {
    fn drop(&mut self) {
        // SAFETY: allocated so, and no worker is left.
        unsafe { drop(Box::from_raw(self.0.as_ptr())) };
    }
}

/// Tags and sessions; null: none.
struct Framings(*mut fw_engine_framings);

impl Drop for Framings {
    fn drop(&mut self) {
        // SAFETY: made by fwe_framings_new(), or null; no longer used.
        unsafe { fwe_framings_free(self.0) };
    }
}

/// All workers. Fields are dropped in order: nobody uses what goes later.
pub(crate) struct Workers {
    workers: Vec<Worker>,
    framings: Framings,
    routes: Option<Routes>,
    schedulers: Schedulers,
    mirror: Option<Mirror>,
    table: Used,
    clock: Clock,
    cpus: Vec<u32>,
    /// Cycles of each at the last report, with frames and asleep, and when that was.
    reported: (Instant, Vec<(u64, u64)>),
    /// Turns of each when it was last looked whether there are more.
    looked: Vec<u64>,
}

impl Workers {
    /// Starts a worker on each lcore from the second one on.
    pub fn start(
        ports: &[Port],
        exits: &Exits,
        lanes: &Lanes,
        pools: &Pools,
        wakers: &Wakers,
        nothing: Memory,
        engine: &EngineConfig,
    ) -> Result<Self, String> {
        let cpus = engine.workers();
        // it stands until there is a table
        let clock = Clock(NonNull::from(Box::leak(Box::new(fwe_clock {
            origin_ns: 0,
            hz: 0,
            pad: 0,
        }))));
        let table = Used::new(nothing);
        let mut workers = Vec::new();
        for number in 0..cpus.len() {
            let ports = worker_ports(ports, lanes, number, cpus.len());
            let config = fwe_config {
                memory: fwe_memory { ..*table.view },
                clock: clock.0.as_ptr(),
                ports: ports.as_ptr(),
                ports_count: ports.len() as u32,
                burst: 0,
                numa: pools.home().cast_signed(),
                exception: Some(fwe_exits_exception),
                source: Some(fwe_exits_source),
                extra: None,
                number: number as u32,
                sleep_us_max: sleep_us_max(engine.idle),
                waker: wakers.of_worker(number),
                context: exits.as_ptr().cast(),
            };
            workers.push(Worker::start(&config, pools, number as u32 + 1)?);
        }
        Ok(Self {
            reported: (Instant::now(), vec![(0, 0); workers.len()]),
            looked: vec![0; workers.len()],
            workers,
            framings: Framings(std::ptr::null_mut()),
            routes: None,
            schedulers: Schedulers::none(),
            mirror: None,
            table,
            clock,
            cpus,
        })
    }

    /// True if each has made turns since it was last asked.
    pub fn go_on(&mut self) -> bool {
        let turns: Vec<_> = self.workers.iter().map(Worker::turns).collect();
        let before = std::mem::replace(&mut self.looked, turns);
        before.iter().zip(&self.looked).all(|(a, b)| a != b)
    }

    /// Another table; returns when the one before is no longer used.
    pub fn set_table(&mut self, memory: Memory) {
        self.set_clock(&memory);
        self.replace_table(memory);
    }

    /// No table, which needs no time: the one before may be looked at once more by its own.
    pub fn forget_table(&mut self) -> std::io::Result<()> {
        self.replace_table(Memory::none()?);
        Ok(())
    }

    fn replace_table(&mut self, memory: Memory) {
        // those of the daemon before
        self.set_routes(None);
        self.replace_framings(std::ptr::null_mut());
        self.set_schedules(Vec::new(), 0, |_, _| Ok(()));
        let table = Used::new(memory);
        for worker in &self.workers {
            worker.set_memory(&table.view);
        }
        self.wait();
        self.table = table;
    }

    /// Until nothing is used any more that was replaced.
    pub fn wait(&self) {
        let from: Vec<_> = self.workers.iter().map(Worker::turns).collect();
        for (worker, from) in self.workers.iter().zip(from) {
            while worker.turns() < from + 2 {
                worker.wake();
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Other framings; returns when those before are no longer used.
    pub fn set_framings(&mut self, framings: &[(Vec<u8>, Vec<u8>)]) -> Result<(), String> {
        let records = framings.iter().map(|(framing, framed)| {
            let (framing, framed) = (
                fw_framing::from_bytes(framing),
                fw_framed::from_bytes(framed),
            );
            framing.zip(framed)
        });
        let records: Option<Vec<_>> = records.collect();
        let records = records.ok_or("the daemon's framings are none")?;
        let (keys, framed): (Vec<fw_framing>, Vec<fw_framed>) = records.into_iter().unzip();
        // SAFETY: so many of each.
        let new = unsafe { fwe_framings_new(keys.as_ptr(), framed.as_ptr(), keys.len() as u32) };
        if new.is_null() {
            return Err(format!("no memory for {} framings", keys.len()));
        }
        self.replace_framings(new);
        Ok(())
    }

    fn replace_framings(&mut self, new: *mut fw_engine_framings) {
        for worker in &self.workers {
            worker.set_framings(new);
        }
        self.wait();
        self.framings = Framings(new);
    }

    /// Other tables of prefix paths; returns when those before are no longer used.
    pub fn set_routes(&mut self, routes: Option<Routes>) {
        for worker in &self.workers {
            worker.set_routes(routes.as_ref().map(Routes::view));
        }
        self.wait();
        self.routes = routes;
    }

    /// Other schedulers, of the outputs in their order; returns when those before are no longer used, with the outputs that
    /// have none for a reason. What waits goes on in the new one of its output, or is dropped where there is none. In each
    /// `room` frames may wait; `prepare` is called for each that is new, ahead of its use.
    pub fn set_schedules(
        &mut self,
        mut wanted: Vec<Option<Described>>,
        room: u32,
        prepare: impl FnMut(usize, &Schedule) -> Result<(), String>,
    ) -> Vec<(usize, String)> {
        let mut refused = Vec::new();
        // a scheduler is one thread's
        let [worker] = self.workers.as_slice() else {
            let count = self.workers.len();
            for (number, wanted) in wanted.iter_mut().enumerate() {
                if wanted.take().is_some() {
                    let why = format!("a scheduler is of one worker, and there are {count}");
                    refused.push((number, why));
                }
            }
            return refused;
        };
        let (retired, wrong) = self.schedulers.set(wanted, room, prepare);
        refused.extend(wrong);
        worker.set_schedules(self.schedulers.given());
        self.wait();
        drop(retired);
        refused
    }

    /// What is copied for who looks on; returns when what was copied before is not any more.
    pub fn set_mirror(&mut self, mirror: Mirror) {
        for worker in &self.workers {
            worker.set_mirror(mirror.given());
        }
        self.wait();
        self.mirror = Some(mirror);
    }

    /// What has become of the frames of each scheduler's classes.
    pub fn class_counts(&self) -> impl Iterator<Item = Vec<ClassCounts>> {
        self.schedulers.counts()
    }

    fn set_clock(&mut self, memory: &Memory) {
        let (clock_ns, tick) = memory.clock();
        let hz = memory.config().hz;
        let elapsed_ns = i128::from(tick) * 1_000_000_000 / i128::from(hz);
        let origin_ns = i64::try_from(i128::from(clock_ns) - elapsed_ns).unwrap_or(0);
        let clock = self.clock.0.as_ptr();
        // SAFETY: it lives as long as the workers, which read it at any time: the table before forwards nothing by a time
        // that is not its own, for its deadline is past, or the clock is the same.
        unsafe {
            AtomicI64::from_ptr(&raw mut (*clock).origin_ns).store(origin_ns, Ordering::Release);
            AtomicU32::from_ptr(&raw mut (*clock).hz).store(hz, Ordering::Release);
        }
    }

    /// Packets of the watched tuple that were forwarded since the last call. Of others the kernel's side tells.
    pub fn watched(&mut self) -> Vec<WatchedFast> {
        let mut fast: BTreeMap<(Vec<u8>, u32), u64> = BTreeMap::new();
        for worker in &mut self.workers {
            worker.watched(|tuple, port| *fast.entry((tuple, port)).or_default() += 1);
        }
        let fast = fast
            .into_iter()
            .map(|((tuple, port), packets)| WatchedFast {
                tuple,
                port,
                packets,
            });
        fast.collect()
    }

    /// What each has done.
    pub fn stats(&self) -> Vec<fwe_stats> {
        self.workers.iter().map(Worker::stats).collect()
    }

    /// What buckets were charged with at each, in 16ths of a cycle.
    pub fn loads(&self) -> Vec<[u64; BUCKETS]> {
        self.workers.iter().map(Worker::load).collect()
    }

    /// What was done; busy since the last call.
    pub fn counts(&mut self) -> EngineCounts {
        let all = self.stats();
        // SAFETY: DPDK has been started.
        let tsc_hz = unsafe { fwe_tsc_hz() } as f64;
        let cycles = all.iter().map(|stats| (stats.cycles, stats.slept.cycles));
        let cycles = cycles.collect();
        let (since, before) = std::mem::replace(&mut self.reported, (Instant::now(), cycles));
        let elapsed = (since.elapsed().as_secs_f64() * tsc_hz).max(1.0);
        let each = all.iter().zip(&before).zip(&self.cpus);
        let workers: Vec<_> = each
            .map(|((stats, (busy, asleep)), cpu)| WorkerCounts {
                cpu: *cpu,
                busy_permille: permille(stats.cycles.wrapping_sub(*busy), elapsed),
                asleep_permille: permille(stats.slept.cycles.wrapping_sub(*asleep), elapsed),
                wakeups: stats.slept.times,
                packets: stats.packets,
                burst_percent: mean(stats.packets * 100, stats.bursts),
                cycles: mean(stats.cycles, stats.packets),
                buckets: 0,
            })
            .collect();
        let sum = |figure: fn(&fwe_stats) -> u64| all.iter().map(figure).sum::<u64>();
        let busy: u32 = workers.iter().map(|worker| worker.busy_permille).sum();
        let asleep: u32 = workers.iter().map(|worker| worker.asleep_permille).sum();
        EngineCounts {
            forwarded: sum(|stats| stats.sent),
            routed: sum(|stats| stats.routed),
            exceptions: sum(|stats| stats.exceptions),
            tx_dropped: sum(|stats| stats.tx_dropped),
            copied: sum(|stats| stats.copied),
            not_copied: sum(|stats| stats.not_copied),
            mirrored: sum(|stats| stats.mirrored),
            not_mirrored: sum(|stats| stats.not_mirrored),
            mirrors: self.mirror.as_ref().map_or(0, Mirror::rules),
            busy_permille: busy / workers.len().max(1) as u32,
            asleep_permille: asleep / workers.len().max(1) as u32,
            wakeups: sum(|stats| stats.slept.times),
            burst_percent: mean(sum(|stats| stats.packets) * 100, sum(|stats| stats.bursts)),
            cycles: mean(sum(|stats| stats.cycles), sum(|stats| stats.packets)),
            model: model(&all),
            workers,
            ..EngineCounts::default()
        }
    }
}

/// The ports as a worker has them.
fn worker_ports(ports: &[Port], lanes: &Lanes, number: usize, workers: usize) -> Vec<fwe_port> {
    let each = ports.iter().enumerate().map(|(at, port)| fwe_port {
        sockets: port.sockets().map_or(std::ptr::null_mut(), Sockets::as_ptr),
        lane: lanes.of(at, number),
        id: port.number(),
        rx_queue: port.rx_queue(number),
        tx_queue: port.tx_queue(number),
        number: 0,
        ifindex: port.ifindex,
        sourced_elsewhere: u32::from(sourcing(at, workers) != number),
        wakes: port.wakes().into(),
    });
    each.collect()
}

/// A share in thousandths.
pub(crate) fn permille(cycles: u64, elapsed: f64) -> u32 {
    (cycles as f64 / elapsed * 1000.0).clamp(0.0, 1000.0) as u32
}

pub(crate) fn mean(of: u64, by: u64) -> u32 {
    u32::try_from(of / by.max(1)).unwrap_or(u32::MAX)
}

/// Of those workers that have measured most.
fn model(all: &[fwe_stats]) -> Vec<PathCost> {
    let paths = [
        (FWE_PATH_PLAIN, "plain"),
        (FWE_PATH_ROUTE, "routed"),
        (FWE_PATH_OTHER, "step_by_step"),
        (FWE_PATH_KERNEL, "kernel"),
        (FWE_PATH_MIRROR, "mirror"),
        (FWE_PATH_SCHEDULE, "schedule"),
    ];
    let cost = |path: u32| {
        let mut costs: Vec<u32> = all
            .iter()
            .filter_map(|stats| stats.model.get(path as usize).copied())
            .collect();
        costs.sort_unstable();
        costs.get(costs.len() / 2).copied().unwrap_or(0) / 16
    };
    let costs = paths.into_iter().map(|(path, name)| PathCost {
        path: name.into(),
        cycles: cost(path),
    });
    costs.collect()
}
