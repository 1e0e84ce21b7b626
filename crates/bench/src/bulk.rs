// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench bulk`: TCP in frames of a wire, and how many bytes a second of the router's CPU forwards.
//!
//! The router's ports are polled by threads on a CPU that the hosts do not use; what these threads take is the router's
//! cost, GRO and segmentation included, and nothing of the hosts'. Wires hand frames over as a card's driver does, and
//! finish checksums. The routers, each in a lab of its own, take turns.

use std::thread;
use std::time::Duration;

use freeway_api::PathChoice;
use freeway_console::{Page, Stop, Terminal, Tone, progress, show};
use freeway_lab::{Counting, Lab, NapiThreads, Options, RunTime, Topology};
use freeway_rig::iperf::{Client, Server, Spec, Writes};
use freeway_rig::{Forwarded, Machine, RouterDaemon, Streamed, options, pin};
use serde::{Deserialize, Serialize};

use super::program::input_program;
use crate::cli::BulkArgs;
use crate::median::{median, ratio};
use crate::parallel::at_once;

const SCENARIO: &str = "nat";
/// Until the streams have their speed and are fast.
const WARMUP_S: u32 = 2;
/// The same with `--brief`.
const WARMUP_BRIEF_S: u32 = 1;
/// The program is counted for so long.
const COUNTED_S: u32 = 2;
/// Streams that are counted until one has data.
const COUNTED_MAX: u32 = 4;
/// What the sender writes where the program is counted: for a merged frame, and for one that a wire could carry.
const MERGED_BYTES: u32 = 60_000;
const SINGLE_BYTES: u32 = 1_400;
/// Few enough that the hosts keep up, so that there is a frame for each.
const WRITES_PER_S: u32 = 4_000;
/// Between the end of a sample and that of its streams, so that nothing ends within the sample.
const MARGIN_S: u32 = 1;

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bulk {
    /// The lab's topology.
    pub scenario: String,
    /// L3 bytes of a full frame.
    pub mtu: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of each sample.
    pub seconds: u32,
    /// For each number of streams.
    pub streams: Vec<Streams>,
    /// Freeway's tc program, with one stream; none with `--brief`, and where the kernel does not tell which program it is.
    pub tc_program: Option<ProgramTime>,
    /// What was measured on.
    pub machine: Machine,
}

/// The routers with a number of streams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Streams {
    /// Parallel TCP streams.
    pub streams: u32,
    /// The kernel alone.
    pub kernel: Figures,
    /// Freeway, which chooses the path.
    pub auto: Figures,
    /// Freeway, in tc.
    pub tc: Figures,
    /// Bytes for each second of CPU, Freeway's over the kernel's of the same run; the median.
    pub auto_ratio: f64,
    /// The same in tc.
    pub tc_ratio: f64,
}

/// A router's medians, and its samples in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Frame bytes forwarded for each second of the router's CPU, in gigabytes.
    pub gbyte_per_cpu_s: f64,
    /// What the server's port received, gigabits a second.
    pub gbit_s: f64,
    /// Share of the CPU that the router had.
    pub router_cpu: f64,
    /// Freeway's share of the packets that its programs saw.
    pub fast_share: f64,
    /// gbyte_per_cpu_s of each run.
    pub samples: Vec<f64>,
}

/// Mean times of tc's program for a frame, medians of the runs, as the kernel counts them (kernel.bpf_stats_enabled); what
/// counting adds is part of them. The sender's TCP makes as many frames of either kind, and veths hand them over as they
/// are: so the program finds the CPU's caches alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramTime {
    /// Of frames that a wire could carry.
    pub single_ns: f64,
    /// Of merged ones.
    pub merged_ns: f64,
    /// Mean length of the merged ones.
    pub merged_bytes: f64,
    /// merged_ns over single_ns of the same run; the median.
    pub merged_ratio: f64,
}

/// Runs of tc's program in a stream: for its data, and for acknowledgements, which are never merged.
#[derive(Clone, Copy, Debug)]
struct Counted {
    runs: RunTime,
    acks: u64,
    data_bytes: u64,
}

impl Counted {
    fn data(&self) -> u64 {
        self.runs.count.saturating_sub(self.acks)
    }

    fn mean_bytes(&self) -> f64 {
        self.data_bytes as f64 / self.data() as f64
    }

    /// For a frame of data, if one that is not merged takes so long.
    fn data_ns(&self, single_ns: f64) -> f64 {
        (self.runs.ns as f64 - self.acks as f64 * single_ns) / self.data() as f64
    }
}

impl Figures {
    fn of(samples: &[Streamed]) -> Self {
        let over = |figure: &dyn Fn(&Streamed) -> f64| median(samples.iter().map(figure).collect());
        Self {
            gbyte_per_cpu_s: over(&Streamed::gbyte_per_cpu_s),
            gbit_s: over(&Streamed::gbit_s),
            router_cpu: over(&|s| s.cpu.as_secs_f64() / s.elapsed.as_secs_f64()),
            fast_share: over(&|s| s.forwarded.fast_share()),
            samples: samples.iter().map(Streamed::gbyte_per_cpu_s).collect(),
        }
    }
}

/// Measures and prints.
pub fn bulk(args: &BulkArgs) -> Result<(), Stop> {
    let bulk = measured(args)?;
    show(args.json, &bulk, |terminal| table(&bulk, terminal))
}

/// Measures.
pub fn measured(args: &BulkArgs) -> Result<Bulk, Stop> {
    let topology = Topology::parse(SCENARIO)?;
    freeway_rig::prepare()?;
    run(args, topology)
}

/// A router and its hosts. Fields are dropped in order.
struct Site {
    name: &'static str,
    _server: Server,
    daemon: Option<RouterDaemon>,
    threads: NapiThreads,
    lab: Lab,
}

impl Site {
    fn lab(topology: &'static Topology, wires: bool) -> Result<Lab, Stop> {
        let options = Options {
            wires,
            ..options(0)
        };
        Ok(Lab::build(topology, options)?)
    }

    fn start(
        name: &'static str,
        lab: Lab,
        path: Option<PathChoice>,
        args: &BulkArgs,
    ) -> Result<Site, Stop> {
        let threads = lab.poll_by_threads(args.cpu, args.host_cpu)?;
        let daemon = path.map(|path| {
            let daemon = RouterDaemon::start_on(&lab, path, "")?;
            daemon.require_fast_ports()?;
            pin(daemon.status()?.pid, args.host_cpu)?;
            Ok::<_, Stop>(daemon)
        });
        let spec = Spec {
            cpu: Some(args.host_cpu),
            ..Spec::default()
        };
        Ok(Site {
            name,
            _server: Server::start(&lab, &spec)?,
            daemon: daemon.transpose()?,
            threads,
            lab,
        })
    }

    fn forwarded(&self) -> Result<Forwarded, Stop> {
        Forwarded::now(&self.lab, self.daemon.as_ref())
    }

    /// Streams that have their speed, for so long and a margin.
    fn streams(
        &self,
        streams: u32,
        seconds: u32,
        writes: Option<Writes>,
        args: &BulkArgs,
    ) -> Result<Client, Stop> {
        let warmup_s = if args.brief { WARMUP_BRIEF_S } else { WARMUP_S };
        let spec = Spec {
            streams,
            seconds: warmup_s + seconds + MARGIN_S,
            cpu: Some(args.host_cpu),
            writes,
            ..Spec::default()
        };
        let client = Client::start(&self.lab, &spec)?;
        thread::sleep(Duration::from_secs(warmup_s.into()));
        Ok(client)
    }

    /// The program at the input counted, with frames for so many bytes each, of which there are some. On a busy machine a
    /// stream may not have begun when it is counted.
    fn counted(&self, bytes: u32, args: &BulkArgs) -> Result<Option<Counted>, Stop> {
        for _ in 0..COUNTED_MAX {
            match self.counted_once(bytes, args)? {
                Some(counted) if counted.data() == 0 => {}
                counted => return Ok(counted),
            }
        }
        Err(Stop::failure(format!(
            "no frame of data came in {COUNTED_MAX} streams of {COUNTED_S} s"
        )))
    }

    fn counted_once(&self, bytes: u32, args: &BulkArgs) -> Result<Option<Counted>, Stop> {
        let Some(program) = input_program(self.lab.lan_port())? else {
            return Ok(None);
        };
        let writes = Writes {
            bytes,
            per_s: WRITES_PER_S,
        };
        let client = self.streams(1, COUNTED_S, Some(writes), args)?;
        let _counting = Counting::begin()?;
        let (runs, forwarded) = (program.run_time()?, self.forwarded()?);
        thread::sleep(Duration::from_secs(COUNTED_S.into()));
        let (runs, forwarded) = (
            program.run_time()?.since(runs),
            self.forwarded()?.since(&forwarded),
        );
        client.received_bit_s()?;
        Ok(Some(Counted {
            runs,
            acks: forwarded.client_packets,
            data_bytes: forwarded.server_bytes,
        }))
    }

    fn sample(&self, streams: u32, args: &BulkArgs) -> Result<Streamed, Stop> {
        let client = self.streams(streams, args.seconds, None, args)?;
        let time = Duration::from_secs(args.seconds.into());
        let sample = Streamed::watch(&self.lab, &self.threads, self.daemon.as_ref(), time)?;
        client.received_bit_s()?;
        progress(&format!(
            "{:<7} {streams:>2} streams: {:.2} GB for each second of the router's CPU, {:.2} Gb/s, {:.0} % fast",
            self.name,
            sample.gbyte_per_cpu_s(),
            sample.gbit_s(),
            sample.forwarded.fast_share() * 100.0
        ));
        Ok(sample)
    }
}

fn run(args: &BulkArgs, topology: &'static Topology) -> Result<Bulk, Stop> {
    let [kernel, auto, tc] = at_once([(); 3], |()| Site::lab(topology, true))?;
    let sites = [
        Site::start("kernel", kernel, None, args)?,
        Site::start("Freeway", auto, Some(PathChoice::Auto), args)?,
        Site::start("tc", tc, Some(PathChoice::Tc), args)?,
    ];
    let mut streams = Vec::new();
    for number in &args.streams {
        let mut samples = [const { Vec::new() }; 3];
        for _ in 0..args.runs {
            for (site, samples) in sites.iter().zip(&mut samples) {
                samples.push(site.sample(*number, args)?);
            }
        }
        let [kernel, auto, tc] = samples.each_ref().map(|s| Figures::of(s));
        streams.push(Streams {
            streams: *number,
            auto_ratio: ratio(&auto.samples, &kernel.samples),
            tc_ratio: ratio(&tc.samples, &kernel.samples),
            kernel,
            auto,
            tc,
        });
    }
    for site in sites {
        site.daemon.map(RouterDaemon::stop).transpose()?;
    }
    let tc_program = match args.brief {
        true => None,
        false => program_time(topology, args)?,
    };
    Ok(Bulk {
        scenario: topology.name.into(),
        mtu: options(0).mtu,
        runs: args.runs,
        seconds: args.seconds,
        streams,
        tc_program,
        machine: Machine::this(),
    })
}

/// What tc's program takes for frames that are merged, and that are not.
fn program_time(topology: &'static Topology, args: &BulkArgs) -> Result<Option<ProgramTime>, Stop> {
    let site = Site::start(
        "veths",
        Site::lab(topology, false)?,
        Some(PathChoice::Tc),
        args,
    )?;
    let (mut single_ns, mut merged_ns, mut merged_bytes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.runs {
        let (Some(single), Some(merged)) = (
            site.counted(SINGLE_BYTES, args)?,
            site.counted(MERGED_BYTES, args)?,
        ) else {
            return Ok(None);
        };
        let (frame, ns) = (single.mean_bytes(), single.runs.mean_ns());
        let (data_ns, bytes) = (merged.data_ns(ns), merged.mean_bytes());
        progress(&format!(
            "tc's program: {ns:.0} ns a frame of {frame:.0} bytes, {data_ns:.0} ns a merged one of {bytes:.0}"
        ));
        single_ns.push(ns);
        merged_ns.push(data_ns);
        merged_bytes.push(bytes);
    }
    site.daemon.map(RouterDaemon::stop).transpose()?;
    Ok(Some(ProgramTime {
        merged_ratio: ratio(&merged_ns, &single_ns),
        single_ns: median(single_ns),
        merged_ns: median(merged_ns),
        merged_bytes: median(merged_bytes),
    }))
}

fn table(bulk: &Bulk, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words(
        "",
        &format!(
            "Scenario {}: TCP in frames of {} bytes, GB for each second of the router's CPU; medians of {} runs, {} s each",
            bulk.scenario, bulk.mtu, bulk.runs, bulk.seconds
        ),
    );
    page.words("", &bulk.machine.to_string());
    page.gap();
    let heads = ["streams", "kernel", "Freeway", "ratio", "in tc", "ratio"]
        .map(|head| page.tone(Tone::Head, head))
        .to_vec();
    let mut rows = vec![heads];
    for s in &bulk.streams {
        rows.push(vec![
            s.streams.to_string(),
            format!("{:.2}", s.kernel.gbyte_per_cpu_s),
            format!("{:.2}", s.auto.gbyte_per_cpu_s),
            format!("{:.1}", s.auto_ratio),
            format!("{:.2}", s.tc.gbyte_per_cpu_s),
            format!("{:.1}", s.tc_ratio),
        ]);
    }
    page.table(2, &[0, 1, 2, 3, 4, 5], &rows);
    if let Some(program) = &bulk.tc_program {
        page.gap();
        let words = format!(
            "tc's program takes {:.0} ns for a frame, and {:.1} times that for a merged one of {:.0} bytes.",
            program.single_ns, program.merged_ratio, program.merged_bytes
        );
        page.words("", &words);
    }
    page.finish()
}
