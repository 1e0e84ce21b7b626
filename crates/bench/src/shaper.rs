// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench shaper`: a shaped port with and without Freeway.
//!
//! Two classes of TCP, one chosen by mark and one by DSCP, offered more than they may have, and datagrams of the first
//! class that ask for their round-trip time. Three routers take turns, each in a lab of its own: the kernel, the kernel
//! again, and Freeway. How far two kernels differ says what a difference means.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use freeway_console::{Page, Stop, Terminal, Tone, progress, show};
use freeway_lab::{Lab, Netns, Options, SlowPort, Topology};
use freeway_rig::iperf::{Client, Server, Spec};
use freeway_rig::{Forwarded, Machine, RouterDaemon};
use serde::{Deserialize, Serialize};

use super::discipline::{self, MARK};
use crate::cli::ShaperArgs;
use crate::median::median;
use crate::parallel::at_once;

const SCENARIO: &str = "nat";
/// Ports of the streams of the class by mark, and of the one by DSCP.
const MARKED: u16 = 5201;
const BY_DSCP: u16 = 5202;
const STREAMS: u32 = 4;
/// Until the streams fill their queues and are fast.
const WARMUP_S: u32 = 3;
/// The datagrams that ask: their port, length, distance in time, and patience.
const PROBE_PORT: u16 = 7000;
const PROBE_BYTES: usize = 100;
const PROBE_EVERY: Duration = Duration::from_millis(20);
const PROBE_PATIENCE: Duration = Duration::from_secs(2);
/// What rates and latencies may differ by if two kernels differ by less.
const RATE_TOLERANCE: f64 = 0.02;
const LATENCY_TOLERANCE: f64 = 0.10;

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shaper {
    /// The lab's topology.
    pub scenario: String,
    /// What held the port to its rate.
    pub discipline: String,
    /// The rate of the port, megabits a second.
    pub rate_mbit: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of each sample.
    pub seconds: u32,
    /// The kernel.
    pub kernel: Figures,
    /// A second router without Freeway.
    pub kernel_again: Figures,
    /// Freeway.
    pub freeway: Figures,
    /// The largest difference of a class's rate, over the kernel's, or of both classes' if they have no shares of their
    /// own: of the second kernel, and of Freeway.
    pub rate_difference_kernel: f64,
    /// Freeway's.
    pub rate_difference: f64,
    /// The same of the median round-trip time.
    pub latency_difference_kernel: f64,
    /// Freeway's.
    pub latency_difference: f64,
    /// Freeway's differences are within the larger of the tolerance (2 % for rates, 10 % for latency) and the kernels'.
    pub equal: bool,
    /// The figures of each run.
    pub samples: Samples,
    /// What was measured on.
    pub machine: Machine,
}

/// The figures of each run, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// The kernel's.
    pub kernel: Vec<Figures>,
    /// The second kernel's.
    pub kernel_again: Vec<Figures>,
    /// Freeway's.
    pub freeway: Vec<Figures>,
}

/// Medians over the runs, or a run's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// TCP payload of the class by mark, megabits a second.
    pub marked_mbit: f64,
    /// TCP payload of the class by DSCP, megabits a second.
    pub dscp_mbit: f64,
    /// Of both.
    pub both_mbit: f64,
    /// The median round-trip time of the datagrams, milliseconds.
    pub latency_p50_ms: f64,
    /// Of 100 datagrams the fifth slowest.
    pub latency_p95_ms: f64,
    /// Share of the datagrams that were not answered.
    pub unanswered: f64,
    /// Freeway's share of the packets that its programs saw.
    pub fast_share: f64,
}

/// Measures and prints.
pub fn shaper(args: &ShaperArgs) -> Result<(), Stop> {
    let shaper = measured(args)?;
    show(args.json, &shaper, |terminal| table(&shaper, terminal))
}

/// Measures.
pub fn measured(args: &ShaperArgs) -> Result<Shaper, Stop> {
    let topology = Topology::parse(SCENARIO)?;
    freeway_rig::prepare()?;
    run(args, topology)
}

fn run(args: &ShaperArgs, topology: &'static Topology) -> Result<Shaper, Stop> {
    let [kernel, kernel_again, freeway] = at_once([(); 3], |()| Site::lab(topology))?;
    let sites = [
        Site::build("kernel", kernel, false, args)?,
        Site::build("kernel", kernel_again, false, args)?,
        Site::build("Freeway", freeway, true, args)?,
    ];
    let mut samples = [const { Vec::new() }; 3];
    for _ in 0..args.runs {
        for (site, samples) in sites.iter().zip(&mut samples) {
            samples.push(site.sample(args)?);
        }
    }
    for site in sites {
        site.daemon.map(RouterDaemon::stop).transpose()?;
    }
    let [kernel, kernel_again, freeway] = samples.each_ref().map(|s| medians(s));
    let [of_kernel, of_kernel_again, of_freeway] = samples;
    let by_class = discipline::has_shares(args.discipline);
    let rates = |other: &Figures| {
        let of = |rate: fn(&Figures) -> f64| difference(rate(other), rate(&kernel));
        match by_class {
            true => of(|f| f.marked_mbit).max(of(|f| f.dscp_mbit)),
            false => of(|f| f.both_mbit),
        }
    };
    let latency = |other: &Figures| difference(other.latency_p50_ms, kernel.latency_p50_ms);
    let (rate_difference_kernel, rate_difference) = (rates(&kernel_again), rates(&freeway));
    let (latency_difference_kernel, latency_difference) =
        (latency(&kernel_again), latency(&freeway));
    Ok(Shaper {
        scenario: topology.name.into(),
        discipline: discipline::name(args.discipline),
        rate_mbit: args.rate,
        runs: args.runs,
        seconds: args.seconds,
        equal: rate_difference <= rate_difference_kernel.max(RATE_TOLERANCE)
            && latency_difference <= latency_difference_kernel.max(LATENCY_TOLERANCE),
        rate_difference_kernel,
        rate_difference,
        latency_difference_kernel,
        latency_difference,
        kernel,
        kernel_again,
        freeway,
        samples: Samples {
            kernel: of_kernel,
            kernel_again: of_kernel_again,
            freeway: of_freeway,
        },
        machine: Machine::this(),
    })
}

fn difference(value: f64, of: f64) -> f64 {
    (value / of - 1.0).abs()
}

fn medians(samples: &[Figures]) -> Figures {
    let over = |figure: fn(&Figures) -> f64| median(samples.iter().map(figure).collect());
    Figures {
        marked_mbit: over(|f| f.marked_mbit),
        dscp_mbit: over(|f| f.dscp_mbit),
        both_mbit: over(|f| f.both_mbit),
        latency_p50_ms: over(|f| f.latency_p50_ms),
        latency_p95_ms: over(|f| f.latency_p95_ms),
        unanswered: over(|f| f.unanswered),
        fast_share: over(|f| f.fast_share),
    }
}

/// A router and its hosts. Fields are dropped in order.
struct Site {
    name: &'static str,
    _servers: [Server; 2],
    daemon: Option<RouterDaemon>,
    _slow: Option<SlowPort>,
    lab: Lab,
}

impl Site {
    fn lab(topology: &'static Topology) -> Result<Lab, Stop> {
        let options = Options {
            extra_nft: format!(
                "table inet classes {{\n\
                 \tchain forward {{\n\
                 \t\ttype filter hook forward priority filter + 10; policy accept;\n\
                 \t\ttcp dport {MARKED} meta mark set {MARK}\n\
                 \t\tudp dport {PROBE_PORT} meta mark set {MARK}\n\
                 \t}}\n}}\n"
            ),
            ..freeway_rig::options(0)
        };
        Ok(Lab::build(topology, options)?)
    }

    fn build(name: &'static str, lab: Lab, freeway: bool, args: &ShaperArgs) -> Result<Site, Stop> {
        let slow = discipline::install(args.discipline, &lab, args.rate)?;
        let daemon = freeway.then(|| RouterDaemon::start(&lab, "")).transpose()?;
        let server = |port| {
            let spec = Spec {
                port,
                ..Spec::default()
            };
            Server::start(&lab, &spec)
        };
        Ok(Site {
            name,
            _servers: [server(MARKED)?, server(BY_DSCP)?],
            daemon,
            _slow: slow,
            lab,
        })
    }

    fn forwarded(&self) -> Result<Forwarded, Stop> {
        Forwarded::now(&self.lab, self.daemon.as_ref())
    }

    fn sample(&self, args: &ShaperArgs) -> Result<Figures, Stop> {
        let client = |port, tos, writes| {
            let spec = Spec {
                port,
                tos,
                writes,
                streams: STREAMS,
                seconds: WARMUP_S + args.seconds,
                omit_seconds: WARMUP_S,
                ..Spec::default()
            };
            Client::start(&self.lab, &spec)
        };
        let writes = discipline::writes(args.discipline, args.rate / STREAMS);
        let marked = client(MARKED, 0, writes)?;
        let by_dscp = client(BY_DSCP, discipline::tos(args.discipline), None)?;
        thread::sleep(Duration::from_secs(WARMUP_S.into()));
        let before = self.forwarded()?;
        let probe = Duration::from_secs(args.seconds.into());
        let mut latencies_ms = probe_latency(&self.lab, probe)?;
        let forwarded = self.forwarded()?.since(&before);
        let asked = latencies_ms.len();
        latencies_ms.retain(|ms| ms.is_finite());
        let marked_mbit = marked.received_bit_s()? / 1e6;
        let dscp_mbit = by_dscp.received_bit_s()? / 1e6;
        let figures = Figures {
            marked_mbit,
            dscp_mbit,
            both_mbit: marked_mbit + dscp_mbit,
            unanswered: 1.0 - latencies_ms.len() as f64 / asked.max(1) as f64,
            latency_p50_ms: quantile(&mut latencies_ms, 0.5),
            latency_p95_ms: quantile(&mut latencies_ms, 0.95),
            fast_share: forwarded.fast_share(),
        };
        progress(&format!(
            "{:<7} {:.1} and {:.1} Mb/s, {:.2} ms, {:.0} % fast",
            self.name,
            figures.marked_mbit,
            figures.dscp_mbit,
            figures.latency_p50_ms,
            figures.fast_share * 100.0
        ));
        Ok(figures)
    }
}

fn socket(netns: &Netns, address: SocketAddr) -> Result<UdpSocket, Stop> {
    netns
        .enter(|| UdpSocket::bind(address))?
        .map_err(|error| Stop::failure(format!("cannot open a socket at {address}: {error}")))
}

/// Answers every datagram with itself until told to end.
fn echo(socket: UdpSocket, end: Arc<AtomicBool>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut datagram = [0; PROBE_BYTES];
        while !end.load(Ordering::Relaxed) {
            if let Ok((len, from)) = socket.recv_from(&mut datagram) {
                // what is lost is seen by who asks
                let _ = socket.send_to(&datagram[..len], from);
            }
        }
    })
}

/// Round-trip times in milliseconds; infinite if there was no answer.
fn probe_latency(lab: &Lab, duration: Duration) -> Result<Vec<f64>, Stop> {
    let plan = lab.topology().family.plan();
    let server = SocketAddr::new(plan.server, PROBE_PORT);
    let failed = |error: std::io::Error| Stop::failure(format!("cannot ask {server}: {error}"));
    let answering = socket(lab.server(), server)?;
    answering
        .set_read_timeout(Some(Duration::from_millis(100)))
        .map_err(failed)?;
    let end = Arc::new(AtomicBool::new(false));
    let echo = echo(answering, Arc::clone(&end));
    let asked = ask(lab, plan.client, server, duration);
    end.store(true, Ordering::Relaxed);
    let _ = echo.join();
    asked.map_err(failed)
}

fn ask(
    lab: &Lab,
    client: IpAddr,
    server: SocketAddr,
    duration: Duration,
) -> std::io::Result<Vec<f64>> {
    let asking = socket(lab.client(), SocketAddr::new(client, 0))
        .map_err(|stop| std::io::Error::other(stop.to_string()))?;
    asking.connect(server)?;
    asking.set_read_timeout(Some(PROBE_PATIENCE))?;
    let (began, mut latencies_ms) = (Instant::now(), Vec::new());
    let mut datagram = [0; PROBE_BYTES];
    while began.elapsed() < duration {
        let number = latencies_ms.len() as u64;
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        let sent = Instant::now();
        asking.send(&datagram)?;
        let mut answer = [0; PROBE_BYTES];
        latencies_ms.push(loop {
            match asking.recv(&mut answer) {
                // an older one's answer came late
                Ok(_) if answer[..8] != datagram[..8] => {}
                Ok(_) => break sent.elapsed().as_secs_f64() * 1e3,
                Err(_) => break f64::INFINITY,
            }
        });
        thread::sleep(PROBE_EVERY.saturating_sub(sent.elapsed()));
    }
    Ok(latencies_ms)
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * share) as usize;
    let last = values.len().saturating_sub(1);
    values.get(index.min(last)).copied().unwrap_or(f64::NAN)
}

fn table(shaper: &Shaper, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words(
        "",
        &format!(
            "{} at {} Mb/s, TCP in a class by mark and one by DSCP; medians of {} runs, {} s each",
            shaper.discipline, shaper.rate_mbit, shaper.runs, shaper.seconds
        ),
    );
    page.words("", &shaper.machine.to_string());
    page.gap();
    let heads = [
        "",
        "by mark, Mb/s",
        "by DSCP, Mb/s",
        "latency, ms",
        "p95, ms",
    ]
    .map(|head| page.tone(Tone::Head, head))
    .to_vec();
    let row = |name: &str, f: &Figures| {
        vec![
            name.into(),
            format!("{:.1}", f.marked_mbit),
            format!("{:.1}", f.dscp_mbit),
            format!("{:.2}", f.latency_p50_ms),
            format!("{:.2}", f.latency_p95_ms),
        ]
    };
    page.table(
        2,
        &[1, 2, 3, 4],
        &[
            heads,
            row("kernel", &shaper.kernel),
            row("kernel again", &shaper.kernel_again),
            row("Freeway", &shaper.freeway),
        ],
    );
    page.gap();
    let tone = if shaper.equal { Tone::Good } else { Tone::Warn };
    let summary = format!(
        "Freeway differs by {:.1} % in rates and {:.1} % in latency; two kernels by {:.1} and {:.1} %.",
        shaper.rate_difference * 100.0,
        shaper.latency_difference * 100.0,
        shaper.rate_difference_kernel * 100.0,
        shaper.latency_difference_kernel * 100.0
    );
    page.words("", &page.tone(tone, &summary));
    page.words(
        "",
        &format!(
            "{:.1} % of the packets were Freeway's.",
            shaper.freeway.fast_share * 100.0
        ),
    );
    page.finish()
}
