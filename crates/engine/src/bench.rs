// SPDX-License-Identifier: MIT OR Apache-2.0
//! One worker between rings, which a generator on another core fills.

use std::ffi::{CStr, c_char};
use std::ptr::{self, NonNull};

use freeway_abi::{FW_R_FAST, fw_config, fw_control, fw_flow, fw_nexthop};
use freeway_api::measured::{Dispatched, Flooded};
use freeway_lookup::{Memory, Pages};
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::bench_routes::BenchRoutes;
use crate::distance::line_ns;
use crate::eal::Eal;
use crate::ffi;
use crate::reserve::{HUGE_PAGE, Reserve};
use crate::tap::Tap;

/// Frames on their way at once, as many as a card's ring holds.
pub(crate) const IN_FLIGHT: u32 = 512;
/// Huge pages that DPDK takes for pool and rings.
pub(crate) const DPDK_PAGES: usize = 32;
/// Of a run, a slice.
const SLICE_S: f64 = 0.001;
/// Frames that are compared with what is expected: one of so many.
const CHECK_EACH: u32 = 61;
/// Latencies that are kept of a run.
const LATENCIES: usize = 1 << 21;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of flows, one after the other.
    pub flows: Vec<u32>,
    /// IPv6 instead of IPv4.
    pub v6: bool,
    /// Flows come in random order, else in turn.
    pub random: bool,
    /// Frames that the worker takes at once.
    pub burst: u32,
    /// So many prefixes, by which frames leave that have no flow: flows are destinations then. 0: frames have flows.
    pub routes: u32,
    /// What the flow table lies on, or that of prefixes.
    pub pages: Pages,
    /// Runs for each number of flows.
    pub runs: u32,
    /// Seconds of a sample.
    pub seconds: f64,
    /// Without latencies.
    pub rates_only: bool,
    /// Headers come from memory, not from the generator's cache.
    pub cold: bool,
    /// CPU of generator and sink.
    pub generator_cpu: u32,
    /// CPU of the worker.
    pub worker_cpu: u32,
    /// An I/O core's figures, too.
    pub dispatch: bool,
    /// Those beside a flood of misses, too.
    pub flood: bool,
}

/// What one worker did in a run at full rate: medians of slices in which, and ahead of which, neither core was taken away.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// Million frames a second that arrived.
    pub mpps: f64,
    /// Of the TSC, for a frame, in turns that had frames.
    pub cycles: f64,
    /// Mean size of a burst.
    pub burst: f64,
    /// The share of the time in which the worker had frames.
    pub busy: f64,
    /// The share of the slices that were left out, for somebody else had a core.
    pub disturbed: f64,
    /// Frames compared with what is expected; all were right.
    pub checked: u64,
}

/// One-way latency at a load.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Share of the rate that was found, or 0 for single frames.
    pub load: f64,
    /// Frames a second that arrived.
    pub pps: f64,
    /// Mean, microseconds.
    pub mean_us: f64,
    /// Percentiles, microseconds.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// Frames measured, in slices that nobody disturbed.
    pub frames: u64,
    /// As of a rate.
    pub disturbed: f64,
}

/// A run for a number of flows.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// What a cache line takes between the two CPUs, ahead of the run; none if they are one.
    pub line_ns: Option<f64>,
    /// A MAC swap between the same rings.
    pub macswap: Rate,
    /// The engine's worker.
    pub engine: Rate,
    /// An I/O core ahead of it, with headers in the generator's cache, and with headers in memory; none unless it is
    /// asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<[Dispatched; 2]>,
    /// By rising load.
    pub latency: Vec<Latency>,
    /// Beside a flood of misses; none unless it is asked for, or if the machine was away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flood: Option<Flooded>,
}

/// All runs for a number of flows.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Flows.
    pub flows: u32,
    /// Places of the table.
    pub places: u32,
    /// Runs.
    pub runs: Vec<Run>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Frame size, FCS counted.
    pub wire_bytes: u32,
    /// `huge` or `small`: what the flow table was on.
    pub pages: &'static str,
    /// Of the TSC.
    pub tsc_hz: u64,
    /// By number of flows.
    pub counts: Vec<Measured>,
    /// What is to be minded.
    pub remarks: Vec<String>,
}

/// Why it cannot be.
#[derive(Debug)]
pub enum Fault {
    /// This machine lacks something.
    Unavailable(String),
    /// A frame was lost without being counted, or came out wrong.
    Wrong(String),
}

pub(crate) fn fault(words: impl Into<String>) -> Fault {
    Fault::Unavailable(words.into())
}

pub(crate) struct Table {
    _flows: Memory,
    _rest: Memory,
    pub(crate) memory: ffi::fwe_memory,
    config: Box<fw_config>,
    routes: Option<BenchRoutes>,
}

impl Table {
    pub(crate) fn new(flows: u32, pages: Pages) -> Result<Self, Fault> {
        let mut config = Box::new(fw_config::default());
        // SAFETY: writes the structure it is given.
        unsafe { ffi::fwe_bench_table(&raw mut *config, flows) };
        let short = |error| fault(format!("no memory for the flow table: {error}"));
        let places = config.flow_mask as usize + 1;
        let table = Memory::new(pages, places * size_of::<fw_flow>()).map_err(short)?;
        // next hops, then the control's words, a page apart
        let rest = Memory::new(Pages::Small, 8192).map_err(short)?;
        let nexthops = rest.at().cast::<fw_nexthop>();
        let memory = ffi::fwe_memory {
            flows: table.at().cast(),
            nexthops,
            // SAFETY: within the memory.
            control: unsafe { rest.at().add(4096) }.cast::<fw_control>(),
            config: &raw const *config,
            watch: ptr::null(),
            nexthops_max: ffi::FWE_BENCH_NEXTHOP,
            pad: 0,
        };
        Ok(Self {
            _flows: table,
            _rest: rest,
            memory,
            config,
            routes: None,
        })
    }

    /// Frames that the flows have counted, or next hops.
    pub(crate) fn counted(&self) -> u64 {
        if let Some(routes) = &self.routes {
            return routes.counted();
        }
        let places = self.config.flow_mask as usize + 1;
        // SAFETY: so many are there, and no worker runs.
        let flows = unsafe { std::slice::from_raw_parts(self.memory.flows, places) };
        flows.iter().map(|flow| flow.state.packets).sum()
    }
}

pub(crate) struct Bench {
    pub(crate) bench: NonNull<ffi::fwe_bench>,
    pub(crate) clock: ffi::fwe_clock,
    pub(crate) tsc_hz: f64,
    /// For a flood: the TAP, and how many frames a second the kernel is given by it.
    kernel: Option<(Tap, f64)>,
}

fn tick_now() -> Result<u32, Fault> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    let now = now.map_err(|error| fault(format!("no clock: {error}")))?;
    Ok((now.tv_sec() as u64 * 250) as u32)
}

/// In a network namespace of its own, which goes with it. The kernel drops what it gets there, for it is to another station.
fn tap_apart() -> Result<Tap, Fault> {
    let made = std::thread::spawn(|| {
        let apart = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET);
        apart.map_err(|error| format!("no network namespace for a TAP: {error}"))?;
        let tap = Tap::open("bench")?;
        tap.up()?;
        Ok(tap)
    });
    let made = made.join();
    let made: Result<Tap, String> = made.unwrap_or_else(|_| Err("no TAP".into()));
    made.map_err(fault)
}

/// A run's figures, and its frames' latencies in cycles.
struct Sample {
    run: ffi::fwe_bench_run,
    /// That nobody disturbed, or all if there are none such.
    slices: Vec<ffi::fwe_bench_slice>,
    disturbed: f64,
    latencies: Vec<u32>,
}

/// Slices and latencies without those in which a core was taken away, and without the first after such a one.
fn undisturbed(
    slices: &[ffi::fwe_bench_slice],
    latencies: &[u32],
) -> (Vec<ffi::fwe_bench_slice>, Vec<u32>) {
    let mut kept = (Vec::new(), Vec::new());
    for pair in slices.windows(2) {
        let [before, slice] = pair else { continue };
        if before.pauses > 0 || slice.pauses > 0 {
            continue;
        }
        kept.0.push(*slice);
        let of = before.latencies as usize..slice.latencies as usize;
        kept.1
            .extend_from_slice(latencies.get(of).unwrap_or_default());
    }
    kept
}

/// # Safety
/// `line` is null or a string that lasts.
pub(crate) unsafe fn words(line: *const c_char) -> String {
    match line.is_null() {
        true => String::new(),
        // SAFETY: as the caller says.
        false => unsafe { CStr::from_ptr(line) }
            .to_string_lossy()
            .into_owned(),
    }
}

impl Bench {
    pub(crate) fn new() -> Result<Self, Fault> {
        let mut error = ptr::null();
        // SAFETY: DPDK was started.
        let bench = unsafe { ffi::fwe_bench_new(IN_FLIGHT, &raw mut error) };
        // SAFETY: a constant string.
        let bench = NonNull::new(bench).ok_or_else(|| fault(unsafe { words(error) }))?;
        Ok(Self {
            bench,
            clock: ffi::fwe_clock {
                origin_ns: 0,
                hz: 250,
                pad: 0,
            },
            // SAFETY: DPDK was started.
            tsc_hz: unsafe { ffi::fwe_tsc_hz() } as f64,
            kernel: None,
        })
    }

    /// Floods may be asked for, once frames were filled in.
    fn prepare_flood(&mut self) -> Result<(), Fault> {
        if self.kernel.is_some() {
            return Ok(());
        }
        let tap = tap_apart()?;
        let mut taken_pps = 0.0;
        // SAFETY: it lives, no worker runs, and the TAP is open as long as the bench is used.
        match unsafe { ffi::fwe_bench_flood(self.bench.as_ptr(), tap.fd(), &raw mut taken_pps) } {
            0 if taken_pps >= 1.0 => self.kernel = Some((tap, taken_pps)),
            0 => return Err(fault("the TAP takes no frame")),
            _ => return Err(fault("no memory for a flood")),
        }
        Ok(())
    }

    pub(crate) fn fill(&self, config: &ffi::fwe_bench_config, table: &Table) -> Result<(), Fault> {
        let tick = tick_now()?;
        // SAFETY: the table is as large as its configuration says, and no worker runs.
        match unsafe { ffi::fwe_bench_fill(self.bench.as_ptr(), config, &table.memory, tick) } {
            0 => Ok(()),
            _ => Err(fault("the flow table has no room")),
        }
    }

    fn run(
        &self,
        options: &Options,
        table: &Table,
        worker: u32,
        rate_pps: u64,
        latencies: bool,
    ) -> Result<Sample, Fault> {
        self.run_so(table, rate_pps, options.seconds, latencies, |run| {
            run.worker = worker;
            run.cold = options.cold.into();
        })
    }

    fn run_so(
        &self,
        table: &Table,
        rate_pps: u64,
        seconds: f64,
        latencies: bool,
        so: impl Fn(&mut ffi::fwe_bench_run),
    ) -> Result<Sample, Fault> {
        // the first ones warm up
        let warm = 50.min((seconds / SLICE_S / 5.0) as usize + 1);
        let count = (seconds / SLICE_S).ceil() as usize + warm;
        let mut slices: Vec<ffi::fwe_bench_slice> = Vec::with_capacity(count);
        let mut room = vec![0u32; if latencies { LATENCIES } else { 0 }];
        // SAFETY: plain numbers and pointers, for which 0 is a value.
        let mut run: ffi::fwe_bench_run = unsafe { std::mem::zeroed() };
        so(&mut run);
        let routes = table.routes.as_ref();
        run.routes = routes.map_or(ptr::null(), |routes| &raw const *routes.view);
        run.check_each = CHECK_EACH;
        run.rate_pps = rate_pps;
        run.slice = (self.tsc_hz * SLICE_S) as u64;
        run.slices_max = count as u32;
        run.slices = slices.as_mut_ptr();
        if latencies {
            run.latencies = room.as_mut_ptr();
            run.latencies_max = room.len() as u32;
        }
        let mut error = ptr::null();
        let before = table.counted();
        // SAFETY: what is pointed to outlives the call, and is as large as said.
        let rc = unsafe {
            ffi::fwe_bench_run(
                self.bench.as_ptr(),
                &table.memory,
                &self.clock,
                &raw mut run,
                &raw mut error,
            )
        };
        if rc != 0 {
            // SAFETY: a constant string.
            return Err(fault(unsafe { words(error) }));
        }
        // SAFETY: so many were written.
        unsafe { slices.set_len(run.slices_count as usize) };
        room.truncate(run.latencies_count as usize);
        self.hold(&run, table.counted() - before)?;
        // a machine that was away has few, or none
        let slices = slices.split_off(warm.min(slices.len()));
        let (mut kept, mut latencies) = undisturbed(&slices, &room);
        let disturbed = 1.0 - kept.len() as f64 / slices.len().saturating_sub(1).max(1) as f64;
        if kept.is_empty() {
            (kept, latencies) = (slices, room);
        }
        Ok(Sample {
            run,
            slices: kept,
            disturbed,
            latencies,
        })
    }

    /// Every frame is accounted for, and those that were looked at came out right.
    fn hold(&self, run: &ffi::fwe_bench_run, counted: u64) -> Result<(), Fault> {
        let stats = &run.stats;
        let fast = stats.reasons[FW_R_FAST as usize] + stats.routed;
        let engine = run.worker != ffi::FWE_BENCH_MACSWAP;
        let sent = run.sent + run.flooded;
        // SAFETY: it lives, and no worker runs.
        let missing = unsafe { ffi::fwe_bench_missing(self.bench.as_ptr()) };
        let broken = if run.wrong > 0 || run.checked == 0 {
            format!("{} of {} frames are wrong", run.wrong, run.checked)
        } else if run.received + stats.tx_dropped != run.sent
            || stats.packets != sent
            || stats.exceptions != run.flooded
        {
            format!(
                "{sent} frames were sent and {} arrived, {} are counted as dropped, {} as the kernel's",
                run.received, stats.tx_dropped, stats.exceptions
            )
        } else if engine && (fast != run.sent || counted != run.sent) {
            format!(
                "of {} frames the worker counts {fast} hits, the flows {counted}",
                run.sent
            )
        } else if missing > 0 {
            format!("{missing} buffers are missing in the pool")
        } else {
            return Ok(());
        };
        Err(Fault::Wrong(broken))
    }

    fn rate(&self, sample: &Sample) -> Rate {
        let of = |figure: fn(&ffi::fwe_bench_slice) -> f64| {
            let values = sample.slices.iter().map(figure);
            median(values.filter(|value| value.is_finite()).collect())
        };
        Rate {
            mpps: of(|s| s.received as f64 / s.elapsed as f64) * self.tsc_hz / 1e6,
            cycles: of(|s| s.cycles as f64 / s.packets as f64),
            burst: of(|s| s.packets as f64 / s.bursts as f64),
            busy: of(|s| s.cycles as f64 / s.elapsed as f64).min(1.0),
            disturbed: sample.disturbed,
            checked: sample.run.checked,
        }
    }

    /// What an I/O core costs: that of both less that of a worker alone.
    fn dispatched(
        &self,
        options: &Options,
        table: &Table,
        cold: bool,
    ) -> Result<Dispatched, Fault> {
        let sample = |worker: u32, transmits: bool| {
            self.run_so(table, 0, options.seconds, false, |run| {
                run.worker = worker;
                run.cold = cold.into();
                run.transmits = transmits.into();
            })
        };
        let ns = 1e9 / self.tsc_hz;
        let of = |sample: &Sample, figure: fn(&ffi::fwe_bench_slice) -> f64| {
            let values = sample.slices.iter().map(figure);
            median(values.filter(|value| value.is_finite()).collect()) * ns
        };
        let worker = |s: &ffi::fwe_bench_slice| s.cycles as f64 / s.packets as f64;
        let single = sample(ffi::FWE_BENCH_ENGINE, false)?;
        let alone = of(&single, worker);
        let both = sample(ffi::FWE_BENCH_DISPATCH, false)?;
        let sends = sample(ffi::FWE_BENCH_DISPATCH, true)?;
        let io = |s: &ffi::fwe_bench_slice| {
            (s.io_receive + s.io_hash + s.io_ring + s.io_transmit) as f64 / s.io_packets as f64
        };
        let rate = self.rate(&both);
        Ok(Dispatched {
            alone_ns: alone,
            worker_ns: of(&both, worker),
            receive_ns: of(&both, |s| s.io_receive as f64 / s.io_packets as f64),
            hash_ns: of(&both, |s| s.io_hash as f64 / s.io_packets as f64),
            ring_ns: of(&both, |s| s.io_ring as f64 / s.io_packets as f64),
            over_ns: of(&both, worker) + of(&both, io) - alone,
            over_io_sends_ns: of(&sends, worker) + of(&sends, io) - alone,
            burst: [self.rate(&single).burst, rate.burst],
            mpps: rate.mpps,
            disturbed: rate.disturbed,
        })
    }

    fn latency(&self, load: f64, mut sample: Sample) -> Option<Latency> {
        let us = 1e6 / self.tsc_hz;
        let all = &mut sample.latencies;
        all.sort_unstable();
        let at = |share: f64| {
            let place = (all.len() as f64 * share).ceil() as usize;
            all.get(place.max(1) - 1)
                .map(|cycles| f64::from(*cycles) * us)
        };
        let sum: u64 = all.iter().map(|cycles| u64::from(*cycles)).sum();
        let received: u64 = sample.slices.iter().map(|s| s.received).sum();
        let elapsed: u64 = sample.slices.iter().map(|s| s.elapsed).sum();
        Some(Latency {
            load,
            pps: received as f64 * self.tsc_hz / elapsed as f64,
            mean_us: sum as f64 / all.len() as f64 * us,
            p50_us: at(0.5)?,
            p99_us: at(0.99)?,
            frames: all.len() as u64,
            disturbed: sample.disturbed,
        })
    }

    /// One run: the limit, the engine, and latencies at loads below the rate that was found.
    fn once(&self, options: &Options, table: &Table) -> Result<Run, Fault> {
        let line_ns = line_ns([options.generator_cpu, options.worker_cpu]);
        let full = |worker| self.run(options, table, worker, 0, false);
        let macswap = self.rate(&full(ffi::FWE_BENCH_MACSWAP)?);
        let engine = self.rate(&full(ffi::FWE_BENCH_ENGINE)?);
        let dispatch = match options.dispatch {
            true => Some([
                self.dispatched(options, table, false)?,
                self.dispatched(options, table, true)?,
            ]),
            false => None,
        };
        let mut latency = Vec::new();
        let loads = [0.0, 0.1, 0.5, 0.9];
        for load in loads.into_iter().filter(|_| !options.rates_only) {
            // no load: one frame every 20 microseconds, of which none meets another
            let pps = if load > 0.0 {
                (engine.mpps * 1e6 * load).max(1e3)
            } else {
                50e3
            };
            let sample = self.run(options, table, ffi::FWE_BENCH_ENGINE, pps as u64, true)?;
            latency.extend(self.latency(load, sample));
        }
        let flood = match &self.kernel {
            Some((_, kernel_pps)) => self.flooded(options, table, engine.mpps, *kernel_pps)?,
            None => None,
        };
        Ok(Run {
            line_ns,
            macswap,
            engine,
            dispatch,
            latency,
            flood,
        })
    }

    /// Hits at a quarter of the rate, without and with misses at twice the rate of the way to the kernel.
    fn flooded(
        &self,
        options: &Options,
        table: &Table,
        mpps: f64,
        kernel_pps: f64,
    ) -> Result<Option<Flooded>, Fault> {
        const LOAD: f64 = 0.25;
        let rate_pps = (mpps * 1e6 * LOAD).max(1e3) as u64;
        // the generator is as busy in both
        let sample = |held: bool| {
            self.run_so(table, rate_pps, options.seconds, true, |run| {
                run.flood_pps = (2.0 * kernel_pps) as u64;
                run.taken_pps = kernel_pps as u64;
                run.flood_held = held.into();
            })
        };
        let lost = |sample: &Sample| {
            let sum = |figure: fn(&ffi::fwe_bench_slice) -> u64| {
                sample.slices.iter().map(figure).sum::<u64>()
            };
            let (lost, arrived) = (sum(|s| s.lost), sum(|s| s.received));
            lost as f64 / (lost + arrived).max(1) as f64
        };
        let (alone, beside) = (sample(true)?, sample(false)?);
        let lost = [lost(&alone), lost(&beside)];
        let (flooded, refused) = (beside.run.flooded, beside.run.refused);
        let sum = |figure: fn(&ffi::fwe_bench_slice) -> u64| {
            beside.slices.iter().map(figure).sum::<u64>() as f64
        };
        let misses_pps = sum(|s| s.flooded) * self.tsc_hz / sum(|s| s.elapsed).max(1.0);
        let latencies = self.latency(LOAD, alone).zip(self.latency(LOAD, beside));
        Ok(latencies.map(|(alone, beside)| Flooded {
            kernel_pps,
            misses_pps,
            refused: refused as f64 / flooded.max(1) as f64,
            hits_pps: [alone.pps, beside.pps],
            lost,
            mean_us: [alone.mean_us, beside.mean_us],
            p99_us: [alone.p99_us, beside.p99_us],
            disturbed: alone.disturbed.max(beside.disturbed),
        }))
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Measures; `progress` is told what is under way. DPDK starts and ends within, so it is once in a process.
pub fn measure(options: &Options, progress: impl Fn(&str)) -> Result<Outcome, Fault> {
    let mut remarks = Vec::new();
    let most = options.flows.iter().max().copied().unwrap_or(1);
    let mut config = fw_config::default();
    // SAFETY: writes the structure it is given.
    unsafe { ffi::fwe_bench_table(&raw mut config, most) };
    let table_bytes = match options.routes {
        0 => (config.flow_mask as usize + 1) * size_of::<fw_flow>(),
        _ => size_of::<<u32 as freeway_prefix::Family>::Memory>() + HUGE_PAGE,
    };
    let table_pages = table_bytes.div_ceil(HUGE_PAGE);
    let reserve = match options.pages {
        Pages::Huge => Reserve::free(table_pages + DPDK_PAGES)
            .inspect_err(|advice| remarks.push(format!("the table is on pages of 4 KiB: {advice}")))
            .ok(),
        Pages::Small => None,
    };
    let pages = reserve.as_ref().map_or(Pages::Small, |_| Pages::Huge);
    let pool = reserve.is_none().then(|| Reserve::free(DPDK_PAGES));
    let small_pool = matches!(pool, Some(Err(_)));
    if small_pool {
        remarks.push("buffers are on pages of 4 KiB, too".into());
    }
    // a polling thread that gives way to others is measured with them
    // SAFETY: of this thread and those that it starts, if it may.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    let lcores = format!("(0)@{},(1)@{}", options.generator_cpu, options.worker_cpu);
    let eal = Eal::start(&arguments(&lcores, small_pool))
        .map_err(|error| fault(format!("DPDK does not start: {error}")))?;
    let mut bench = Bench::new()?;
    let mut counts = Vec::new();
    let mut wire_bytes = 0;
    for flows in &options.flows {
        let mut config = ffi::fwe_bench_config {
            flows: *flows,
            v6: options.v6.into(),
            random: options.random.into(),
            burst: options.burst,
            in_flight: IN_FLIGHT,
            lcore: 1,
            daddrs: ptr::null(),
        };
        let mut table = Table::new(if options.routes > 0 { 1 } else { *flows }, pages)?;
        if options.routes > 0 {
            let routes = BenchRoutes::new(options.routes, *flows, pages, tick_now()?);
            let routes = routes.map_err(fault)?;
            config.daddrs = routes.daddrs.as_ptr();
            table.routes = Some(routes);
            // there is no kernel to answer: nothing is to be due
            table.config.hz = i32::MAX.cast_unsigned();
        }
        bench.fill(&config, &table)?;
        if options.flood {
            bench.prepare_flood()?;
        }
        // SAFETY: reads the structure.
        wire_bytes = unsafe { ffi::fwe_bench_wire_bytes(&raw const config) };
        let mut runs = Vec::new();
        for number in 1..=options.runs {
            let run = bench.once(options, &table)?;
            progress(&format!(
                "{flows} flows, run {number}: {:.1} Mpps, {:.0} cycles a frame; MAC swap {:.1}, {:.0}; {:.0} % disturbed",
                run.engine.mpps,
                run.engine.cycles,
                run.macswap.mpps,
                run.macswap.cycles,
                run.engine.disturbed * 100.0
            ));
            runs.push(run);
        }
        counts.push(Measured {
            flows: *flows,
            places: table.config.flow_mask + 1,
            runs,
        });
    }
    drop(eal);
    Ok(Outcome {
        wire_bytes,
        pages: match pages {
            Pages::Huge => "huge",
            Pages::Small => "small",
        },
        tsc_hz: bench.tsc_hz as u64,
        counts,
        remarks,
    })
}

/// Of DPDK: these lcores, no devices, nothing left in a file system.
pub(crate) fn arguments(lcores: &str, small: bool) -> Vec<String> {
    let mut all = ["--lcores", lcores, "--no-pci", "--no-telemetry", "-m", "64"]
        .map(str::to_owned)
        .to_vec();
    all.push("--log-level=error".into());
    all.push(if small { "--no-huge" } else { "--in-memory" }.into());
    all
}
