// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several workers between rings: how even their loads are, and whether frames keep their order, by the way in which frames
//! come to them. Workers may share a CPU, so loads are the cycles that the model accounts, not time.

use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use freeway_api::engine::DispatchMode;
use freeway_api::measured::{CrewRun, CrewRuns, Heavy};
use freeway_lookup::Pages;

use crate::bench::{Bench, DPDK_PAGES, Fault, Table, arguments, fault, words};
use crate::controller::{Controller, Owner, ROUND, Seen, in_turn};
use crate::eal::Eal;
use crate::ffi;
use crate::reserve::Reserve;
use crate::worker::BUCKETS;

/// Draws of flows, which come round and round.
const DRAWS: usize = 1 << 20;
/// A step of the generator, after which it is looked whether the window is over.
const STEP: Duration = Duration::from_millis(10);
/// The controller is to have evened loads by then.
const SETTLED: Duration = Duration::from_secs(2);
/// Few flows with much traffic: so many, with this part of all frames.
const ELEPHANTS: (usize, f64) = (8, 0.6);
/// Little traffic of high complexity: so many flows, this part of all frames, cycles that each frame costs beside.
const DEEP: (usize, f64, u32) = (5, 0.02, 7500);

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// One after the other.
    pub modes: Vec<DispatchMode>,
    /// Workers.
    pub workers: u32,
    /// Flows.
    pub flows: u32,
    /// Exponent of Zipf's law; 0: all have as much.
    pub skew: f64,
    /// What a part of the flows is.
    pub heavy: Heavy,
    /// At least so many frames,
    pub frames: u64,
    /// and so many seconds.
    pub seconds: f64,
    /// CPU of generator, I/O core and sink.
    pub generator_cpu: u32,
    /// CPUs of the workers, in turn.
    pub worker_cpus: Vec<u32>,
}

/// xorshift, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Which flow each frame is of, and what frames of each flow cost beside, in 16ths of a cycle.
struct Traffic {
    order: Vec<u32>,
    extra: Vec<u32>,
}

impl Traffic {
    fn new(flows: usize, skew: f64, heavy: Heavy) -> Self {
        let mut random = Random(0x5eed);
        let (special, share, cost) = match heavy {
            Heavy::None => (0, 0.0, 0),
            Heavy::Traffic => (ELEPHANTS.0, ELEPHANTS.1, 0),
            Heavy::Depth => (DEEP.0, DEEP.1, DEEP.2),
        };
        let special = special.min(flows / 2);
        let rest = flows - special;
        // which are the busiest, nobody can tell by their addresses
        let mut rank: Vec<u32> = (0..flows as u32).collect();
        for at in (1..flows).rev() {
            rank.swap(at, random.below(at + 1));
        }
        let mut sums = Vec::with_capacity(rest);
        let mut sum = 0.0;
        for number in 1..=rest {
            sum += (number as f64).powf(-skew);
            sums.push(sum);
        }
        let order = (0..DRAWS).map(|_| {
            let number = if random.share() < share {
                rest + random.below(special)
            } else {
                let at = random.share() * sum;
                sums.partition_point(|sum| *sum < at).min(rest - 1)
            };
            rank.get(number).copied().unwrap_or(0)
        });
        let order = order.collect();
        let mut extra = vec![0; flows];
        for flow in rank.get(rest..).unwrap_or_default() {
            if let Some(extra) = extra.get_mut(*flow as usize) {
                *extra = cost * 16;
            }
        }
        Self { order, extra }
    }
}

/// Workers that run.
struct Crew<'a> {
    crew: NonNull<ffi::fwe_crew>,
    workers: u32,
    counts: ffi::fwe_crew_counts,
    _table: &'a Table,
    _traffic: &'a Traffic,
}

impl<'a> Crew<'a> {
    fn start(
        bench: &Bench,
        table: &'a Table,
        traffic: &'a Traffic,
        mode: DispatchMode,
        workers: u32,
    ) -> Result<Self, Fault> {
        let config = ffi::fwe_crew_config {
            mode: match mode {
                DispatchMode::Rss => ffi::FWE_CREW_RSS,
                DispatchMode::Dispatch | DispatchMode::Balanced => ffi::FWE_CREW_DISPATCH,
            },
            workers,
            lcore: 1,
            order_count: traffic.order.len() as u32,
            order: traffic.order.as_ptr(),
            extra: traffic.extra.as_ptr(),
        };
        let mut error = ptr::null();
        // SAFETY: table and traffic outlive it; the bench lasts.
        let crew = unsafe {
            ffi::fwe_crew_new(
                bench.bench.as_ptr(),
                &raw const table.memory,
                &raw const bench.clock,
                &raw const config,
                &raw mut error,
            )
        };
        // SAFETY: a constant string.
        let crew = NonNull::new(crew).ok_or_else(|| fault(unsafe { words(error) }))?;
        Ok(Self {
            crew,
            workers,
            // SAFETY: plain numbers, for which 0 is a value.
            counts: unsafe { std::mem::zeroed() },
            _table: table,
            _traffic: traffic,
        })
    }

    fn run(&mut self, cycles: u64) {
        // SAFETY: it lives.
        unsafe { ffi::fwe_crew_run(self.crew.as_ptr(), cycles, &raw mut self.counts) };
    }

    fn end(&mut self) {
        // SAFETY: it lives.
        unsafe { ffi::fwe_crew_end(self.crew.as_ptr(), &raw mut self.counts) };
    }

    fn stats(&self) -> Vec<ffi::fwe_stats> {
        let each = 0..self.workers;
        each.map(|number| {
            // SAFETY: there is such a worker, which writes plain numbers at any time.
            unsafe {
                ffi::fwe_worker_stats(ffi::fwe_crew_worker(self.crew.as_ptr(), number))
                    .read_volatile()
            }
        })
        .collect()
    }

    fn seen(&self) -> Seen {
        let load = |number| {
            // SAFETY: as above; so many numbers.
            unsafe {
                ffi::fwe_worker_load(ffi::fwe_crew_worker(self.crew.as_ptr(), number))
                    .cast::<[u64; BUCKETS]>()
                    .read_volatile()
            }
        };
        Seen::now(&self.stats(), (0..self.workers).map(load).collect())
    }

    fn io_stats(&self) -> ffi::fwe_io_stats {
        // SAFETY: it lives, and this is its thread.
        unsafe { ffi::fwe_io_stats(ffi::fwe_crew_io(self.crew.as_ptr())).read() }
    }

    fn assign(&self, owner: &Owner) {
        // SAFETY: so many are read.
        unsafe { ffi::fwe_io_assign(ffi::fwe_crew_io(self.crew.as_ptr()), 0, owner.as_ptr()) };
    }

    fn owners(&self) -> Owner {
        let mut owner = [0; BUCKETS];
        // SAFETY: room for so many.
        unsafe { ffi::fwe_io_owners(ffi::fwe_crew_io(self.crew.as_ptr()), 0, owner.as_mut_ptr()) };
        owner
    }

    /// Buckets are where they begin.
    fn spread(&mut self, owner: &Owner, step: u64) {
        // what a machine that is away has called off is begun again
        while self.owners() != *owner {
            self.assign(owner);
            self.run(step);
        }
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        // SAFETY: it lives; its workers end first.
        unsafe { ffi::fwe_crew_free(self.crew.as_ptr()) };
    }
}

/// The highest over the mean.
fn over_mean(loads: &[f64]) -> f64 {
    let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
    let most = loads.iter().copied().fold(0.0, f64::max);
    if mean > 0.0 { most / mean } else { 1.0 }
}

fn once(
    bench: &Bench,
    options: &Options,
    traffic: &Traffic,
    mode: DispatchMode,
) -> Result<CrewRun, Fault> {
    let table = Table::new(options.flows, Pages::Small)?;
    let config = ffi::fwe_bench_config {
        flows: options.flows,
        v6: 0,
        random: 0,
        burst: 32,
        in_flight: crate::bench::IN_FLIGHT,
        lcore: 1,
        daddrs: ptr::null(),
    };
    bench.fill(&config, &table)?;
    let workers = options.workers as usize;
    let mut crew = Crew::start(bench, &table, traffic, mode, options.workers)?;
    let step = (bench.tsc_hz * STEP.as_secs_f64()) as u64;
    if mode != DispatchMode::Rss {
        crew.spread(&in_turn(workers), step);
    }
    let begun = crew.io_stats();
    let mut controller = Controller::new(workers, true);
    let start = Instant::now();
    let mut before = crew.seen();
    let mut windows: Vec<(Duration, f64)> = Vec::new();
    while start.elapsed().as_secs_f64() < options.seconds || crew.counts.sent < options.frames {
        let window = Instant::now();
        while window.elapsed() < ROUND {
            crew.run(step);
        }
        let now = crew.seen();
        windows.push((start.elapsed(), over_mean(&now.charged_since(&before))));
        before = now;
        if mode == DispatchMode::Balanced {
            let settled = crew.owners() == *controller.owner();
            let moves = controller.look(crew.seen(), settled).is_some();
            if moves || !settled {
                crew.assign(controller.owner());
            }
        }
    }
    crew.end();
    let elapsed_s = start.elapsed().as_secs_f64();
    let io = crew.io_stats();
    let stats = crew.stats();
    let counts = &crew.counts;
    if counts.wrong > 0 || counts.checked == 0 {
        let words = format!("{} of {} frames are wrong", counts.wrong, counts.checked);
        return Err(Fault::Wrong(words));
    }
    if table.counted() != counts.sent {
        return Err(Fault::Wrong(format!(
            "of {} frames the flows count {}",
            counts.sent,
            table.counted()
        )));
    }
    let late = windows.iter().filter(|(at, _)| *at > SETTLED + ROUND);
    let late: Vec<f64> = late.map(|(_, over)| *over).collect();
    Ok(CrewRun {
        mode,
        first: windows.first().map_or(1.0, |(_, over)| *over),
        settled: (!late.is_empty()).then(|| late.iter().sum::<f64>() / late.len() as f64),
        worst: late.iter().copied().max_by(f64::total_cmp),
        windows: windows.iter().map(|(_, over)| *over).collect(),
        sent: counts.sent,
        lost: counts.sent - counts.received,
        reordered: counts.reordered,
        checked: counts.checked,
        moves: io.moves - begun.moves,
        called_off: io.called_off - begun.called_off,
        parked: io.parked - begun.parked,
        elapsed_s,
        plain_cycles: stats
            .first()
            .and_then(|stats| stats.model.first())
            .map_or(0, |cost| cost / 16),
        decisions: controller.told().cloned().collect(),
    })
}

/// Measures; `progress` is told what is under way. DPDK starts and ends within, so it is once in a process.
pub fn measure(options: &Options, progress: impl Fn(&str)) -> Result<CrewRuns, Fault> {
    let mut remarks = Vec::new();
    let pool = Reserve::free(DPDK_PAGES);
    let small = pool.is_err();
    if small {
        remarks.push("buffers are on pages of 4 KiB".into());
    }
    let eal = Eal::start(&arguments(&lcores(options), small))
        .map_err(|error| fault(format!("DPDK does not start: {error}")))?;
    let bench = Bench::new()?;
    let traffic = Traffic::new(options.flows as usize, options.skew, options.heavy);
    let mut runs = Vec::new();
    for mode in &options.modes {
        let run = once(&bench, options, &traffic, *mode)?;
        progress(&format!(
            "{mode:?}: the fullest worker has {:.2} of the mean, in the end {:.2}; {} frames, {} lost, {} overtaken",
            run.first,
            run.windows.last().unwrap_or(&run.first),
            run.sent,
            run.lost,
            run.reordered
        ));
        runs.push(run);
    }
    drop(eal);
    Ok(CrewRuns {
        workers: options.workers,
        flows: options.flows,
        window_ms: ROUND.as_millis() as u64,
        runs,
        remarks,
    })
}

/// The generator's, and one for each worker: several may be on a CPU.
fn lcores(options: &Options) -> String {
    let cpus = options.worker_cpus.iter().cycle();
    let workers = (1..=options.workers).zip(cpus);
    let workers: String = workers
        .map(|(lcore, cpu)| format!(",({lcore})@{cpu}"))
        .collect();
    format!("(0)@{}{workers}", options.generator_cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(traffic: &Traffic, flows: usize) -> Vec<f64> {
        let mut counts = vec![0.0; flows];
        for flow in &traffic.order {
            counts[*flow as usize] += 1.0 / DRAWS as f64;
        }
        counts
    }

    #[test]
    fn traffic_is_as_skewed_as_asked() {
        let flows = 10_000;
        let traffic = Traffic::new(flows, 1.2, Heavy::None);
        let mut shares = shares(&traffic, flows);
        shares.sort_by(|a, b| b.total_cmp(a));
        // of Zipf's law with exponent 1.2: the second has 2^-1.2 of the first
        let ratio = shares[1] / shares[0];
        assert!((ratio - 0.435).abs() < 0.02, "{ratio}");
        assert!((shares[0] - 0.2).abs() < 0.02, "{}", shares[0]);
        assert!(traffic.extra.iter().all(|extra| *extra == 0));
        let even = Traffic::new(100, 0.0, Heavy::None);
        let even = super::tests::shares(&even, 100);
        assert!(even.iter().all(|share| (share - 0.01).abs() < 0.002));
    }

    #[test]
    fn the_extremes_are_what_they_are_called() {
        let flows = 1000;
        let deep = Traffic::new(flows, 1.0, Heavy::Depth);
        let of = shares(&deep, flows);
        let costly: Vec<_> = (0..flows).filter(|flow| deep.extra[*flow] > 0).collect();
        assert_eq!(costly.len(), DEEP.0);
        let share: f64 = costly.iter().map(|flow| of[*flow]).sum();
        assert!((share - DEEP.1).abs() < 0.002, "{share}");
        let elephants = Traffic::new(flows, 0.0, Heavy::Traffic);
        let mut of = shares(&elephants, flows);
        of.sort_by(|a, b| b.total_cmp(a));
        let share: f64 = of[..ELEPHANTS.0].iter().sum();
        assert!((share - ELEPHANTS.1).abs() < 0.01, "{share}");
        assert!(elephants.extra.iter().all(|extra| *extra == 0));
    }
}
