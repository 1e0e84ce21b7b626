// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wiring of data path, connection manager and kernel mirror.
//!
//! One task does everything that changes something, by turns. Each turn is short and begins with the events of the
//! kernel that wait; then it takes one of: the data plane's events, what the polling thread found, a question, a piece
//! of a long walk over the flows. The manager's operations are carried out before the turn ends.

mod accounting;
mod bonds;
mod bridges;
pub(crate) mod capture;
mod census;
mod configured;
mod cores;
mod dataplane;
mod drops;
mod exec;
mod explain;
mod flows;
mod handover;
mod heart;
mod kernel;
mod latency;
mod leaking;
mod limits;
mod lost;
mod membership;
mod pace;
mod poll;
mod ports;
mod qdiscs;
mod rates;
mod redirects;
mod reload;
mod rings;
mod routes;
mod ruleset;
mod same_core;
mod sample;
mod scrub;
mod service;
mod sessions;
mod sniff;
mod standing;
mod status;
mod steer;
mod verdict;
mod view;
mod vrf;
mod wait;
mod words;

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use freeway_abi::fw_path_count;
use freeway_cmm::{Bridges, Manager, Op, Settings};
use freeway_datapath::{Datapath, LoadOptions};
use freeway_kernel::conntrack::Conntrack;
use freeway_kernel::mirror::{Mirror, MirrorConfig};
use freeway_kernel::probe::{Outcome, ProbeResult, probe_all};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use self::accounting::{Accounting, Page};
use self::capture::Capture;
use self::census::Census;
use self::cores::Cores;
use self::explain::Explanations;
pub use self::handover::Legacy;
use self::heart::{HEARTBEAT, Heart};
use self::latency::Recorder;
use self::limits::Limits;
use self::lost::Lost;
use self::pace::Pace;
use self::poll::{Polled, Poller};
use self::ports::Ports;
use self::routes::{Loaded as LoadedRoutes, Routes};
use self::ruleset::Ruleset;
use self::same_core::Translations;
use self::scrub::{Loaded, Scrub};
use self::service::Service;
use self::sessions::Sessions;
use self::sniff::Sniff;
use self::standing::Standings;
use self::wait::Readable;
use super::error::failure;
use super::{DaemonError, Request};
use crate::config::Config;
use crate::door::Notice;
use crate::succession::Succession;
use crate::supervisor::Supervisor;

/// What sends no event is looked at so often.
const POLL: Duration = Duration::from_secs(1);
/// Revalidations that each CPU lets through in a second, at most.
const REVALIDATIONS_PER_S: u32 = 40_000;
/// Connections that each CPU looks up in a second for its hits, at most.
const CHECKS_PER_S: u32 = 50_000;
/// Candidates that each CPU offers in a second, at most.
const CANDIDATES_PER_S: u32 = 250_000;
/// TCP frames that each CPU keeps out of GRO in a second, at most.
const SAMPLES_PER_S: u32 = 4_000;

/// So long the start attaches programs; a router of few ports has them all when it first answers.
const ATTACH_START: Duration = Duration::from_secs(2);

/// What a turn is about.
enum Turn {
    End,
    Heartbeat,
    Kernel,
    Dataplane,
    Poll,
    Polled(Box<Polled>),
    Cores(Box<Notice>),
    Question(Option<Request>),
    Explained,
    Loaded(Box<Loaded>),
    Routes(LoadedRoutes),
    Listed(Page),
    Walk,
}

/// How an engine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every program is detached.
    Stopped,
    /// They are another daemon's.
    HandedOver,
}

/// Runs until `shutdown` completes, it has handed over, or something fails.
pub async fn run(
    mut engine: Engine,
    mut requests: mpsc::Receiver<Request>,
    shutdown: impl Future<Output = ()>,
) -> Result<End, DaemonError> {
    let kernel = Readable::new(&engine.mirror.fds())?;
    let dataplane = Readable::new(&[engine.datapath.events_fd()])?;
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut poll = tokio::time::interval(POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut more_events = false;
    // the data plane wakes once a tick, and the timer is no finer than a millisecond
    let linger = engine.datapath.clock.tick() + Duration::from_millis(1);
    let mut look_again: Option<tokio::time::Instant> = None;
    tokio::pin!(shutdown);
    loop {
        let walking = engine.walking();
        let late = look_again.unwrap_or_else(tokio::time::Instant::now);
        // Those that are ready take turns at random; one that is not waited for gives the runtime a look around.
        let turn = tokio::select! {
            () = &mut shutdown => Turn::End,
            _ = heartbeat.tick() => Turn::Heartbeat,
            ready = kernel.wait() => { ready?; Turn::Kernel }
            ready = dataplane.wait(), if !more_events => {
                ready?;
                look_again = Some(tokio::time::Instant::now() + linger);
                Turn::Dataplane
            }
            () = tokio::time::sleep_until(late), if look_again.is_some() && !more_events => {
                look_again = None;
                Turn::Dataplane
            }
            () = tokio::task::yield_now(), if more_events => Turn::Dataplane,
            _ = poll.tick() => Turn::Poll,
            notice = engine.cores.notice() => Turn::Cores(Box::new(notice)),
            polled = engine.poller.answer() => Turn::Polled(Box::new(polled?)),
            loaded = engine.scrub.loaded() => Turn::Loaded(Box::new(loaded)),
            loaded = engine.routes.loaded() => Turn::Routes(loaded),
            page = engine.accounting.page() => Turn::Listed(page),
            request = requests.recv() => Turn::Question(request),
            () = engine.explanations.due() => Turn::Explained,
            () = tokio::task::yield_now(), if walking => Turn::Walk,
        };
        let looked = engine.drain(&kernel, Instant::now())?;
        match turn {
            Turn::End | Turn::Question(None) => break,
            Turn::Heartbeat => {
                engine.heartbeat()?;
                // ticks are late where a virtual CPU waits for a real one
                more_events = engine.dataplane_events()?;
            }
            Turn::Kernel => {}
            Turn::Dataplane => more_events = engine.dataplane_events()?,
            Turn::Poll => {
                engine.ask_poller();
                engine.look_at_limits();
                engine.look_at_scrub()?;
                engine.look_at_routes()?;
                engine.accounting.list_if_due();
                engine.look_at_service();
            }
            Turn::Polled(polled) => engine.polled(*polled)?,
            Turn::Cores(notice) => engine.cores_noticed(*notice)?,
            Turn::Question(Some(request)) => {
                engine.answer(request)?;
                if let Some(successor) = engine.succession.take() {
                    engine.step_back(successor);
                    return Ok(End::HandedOver);
                }
            }
            Turn::Explained => engine.finish_explanation(),
            Turn::Loaded(loaded) => engine.scrub_loaded(*loaded)?,
            Turn::Routes(loaded) => engine.routes_loaded(loaded),
            Turn::Listed(page) => engine.accounting.listed(page, &engine.datapath),
            Turn::Walk => engine.walk()?,
        }
        engine.drain(&kernel, looked)?;
        engine.accounting.tell();
        if engine.manager.is_gathering() || engine.bridges.is_gathering() {
            look_again.get_or_insert_with(|| tokio::time::Instant::now() + linger);
        }
        // turns come at random, and under load one may take long
        if engine.heart.is_late() {
            engine.heartbeat()?;
        }
        engine.turned();
    }
    engine.leave_service();
    engine.stop();
    Ok(End::Stopped)
}

/// All that changes something.
pub struct Engine {
    config: Config,
    datapath: Datapath,
    manager: Manager,
    bridges: Bridges,
    mirror: Mirror,
    conntrack: Conntrack,
    ports: Ports,
    ruleset: Ruleset,
    explanations: Explanations,
    invalidation: Recorder,
    counts: Counts,
    on: bool,
    heart: Heart,
    succession: Succession,
    /// Events of connections that were lost.
    lost: Lost,
    capture: Capture,
    census: Census,
    sniff: Sniff,
    pace: Pace,
    limits: Limits,
    scrub: Scrub,
    routes: Routes,
    accounting: Accounting,
    sessions: Sessions,
    service: Service,
    standings: Standings,
    polled: Polled,
    poller: Poller,
    cores: Cores,
    /// With `engine.same_core`.
    translations: Option<Translations>,
    probes: Vec<ProbeResult>,
}

/// Counters of the daemon itself.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    candidates: u64,
    changed: u64,
    suspended: u64,
    watched: u64,
    netlink_events: u64,
    overruns: u64,
    resyncs: u64,
    reloads: freeway_api::Reloads,
    /// What took bridged paths that are gone.
    bridged: fw_path_count,
}

impl Engine {
    /// Loads the programs, and reads all of the kernel. Nothing is attached.
    pub fn load(config: Config, supervisor: Supervisor) -> Result<Self, DaemonError> {
        load_modules(&["nf_conntrack", "nf_conntrack_netlink"]);
        if config.engine.same_core {
            load_modules(&["nf_nat"]);
            same_core::check_kernel()?;
        }
        if let Err(error) = freeway_datapath::raise_descriptor_limit() {
            tracing::debug!("raising the limit of descriptors: {error}");
        }
        let probes = probe_all();
        let missing = |p: &&ProbeResult| p.required && matches!(p.outcome, Outcome::Missing(_));
        if let Some(probe) = probes.iter().find(missing) {
            return Err(DaemonError::Failure(probe.to_string()));
        }
        let mirror = Mirror::open_with(MirrorConfig {
            receive_buffer_bytes: config.daemon.rcvbuf_bytes as usize,
            ..MirrorConfig::default()
        })
        .map_err(failure)?;
        let conntrack = Conntrack::open().map_err(failure)?;
        // preparations change nothing that the manager would have to hear of
        mirror
            .ignore(conntrack.port().map_err(failure)?)
            .map_err(failure)?;
        let options = LoadOptions {
            flows: config.flows.max,
            conntrack: freeway_kernel::sysctl::has_conntrack(),
            limits: config
                .punts
                .limits
                .iter()
                .map(|(limited, rate)| (limited.0, rate.0))
                .collect(),
            sockets: config.engine.has_sockets(),
            routes: !config.policy.without_routes(),
            precedents: config.engine.same_core,
            ..LoadOptions::default()
        };
        let datapath = Datapath::load(&options).map_err(failure)?;
        let translations = match options.precedents {
            true => Some(Translations::new(datapath.precedents().map_err(failure)?)),
            false => None,
        };
        let manager = Manager::new(Settings {
            flows_max: config.flows.max,
            nexthops_max: options.nexthops,
            hz: datapath.clock.hz(),
            idle_tcp_s: config.flows.tcp_idle_s,
            idle_udp_s: config.flows.udp_idle_s,
            ..Settings::default()
        });
        let mut engine = Self {
            ports: Ports::default(),
            ruleset: Ruleset::default(),
            explanations: Explanations::default(),
            invalidation: Recorder::default(),
            counts: Counts::default(),
            on: true,
            heart: Heart::new(),
            succession: Succession::default(),
            lost: Lost::default(),
            capture: Capture::default(),
            census: Census::default(),
            sniff: Sniff::default(),
            pace: Pace::default(),
            limits: Limits::default(),
            scrub: Scrub::start()?,
            routes: Routes::default(),
            accounting: Accounting::default(),
            sessions: Sessions::default(),
            service: Service::new(supervisor),
            standings: Standings::default(),
            polled: Polled::default(),
            poller: Poller::start()?,
            cores: Cores::default(),
            translations,
            probes,
            config,
            bridges: Bridges::new(datapath.clock.hz()),
            datapath,
            manager,
            mirror,
            conntrack,
        };
        engine
            .check_kinds()
            .map_err(|fault| DaemonError::Config(fault.to_string()))?;
        let per_tick = |per_s: u32| (per_s / engine.datapath.clock.hz()).max(1);
        let control = &engine.datapath.control;
        control.set_reval_budget(per_tick(REVALIDATIONS_PER_S));
        control.set_check_budget(per_tick(CHECKS_PER_S));
        control.set_offer_budget(per_tick(CANDIDATES_PER_S));
        control.set_sample_budget(per_tick(SAMPLES_PER_S));
        control.set_epoch(engine.manager.epoch());
        engine.poll_now();
        engine.look_at_sessions();
        engine.set_tcp_timeouts();
        engine.read_neighbours();
        let links = engine.mirror.links().values();
        links.for_each(|link| engine.standings.note(link));
        let now_tick = engine.now_tick()?;
        engine.read_stations(now_tick);
        for route in engine.mirror.mroutes().values() {
            engine.manager.learn_mroute(route);
        }
        engine.update_policy()?;
        engine.read_ruleset()?;
        engine.update_leaks()?;
        Ok(engine)
    }

    /// Opens the engine's socket beside the control socket; `bound`: it is there, and was another daemon's.
    pub fn receive_engines(
        &mut self,
        control: &Path,
        bound: Option<OwnedFd>,
    ) -> Result<(), DaemonError> {
        self.cores.open(control, bound)
    }

    /// Everything to the kernel; attachments die with their owners.
    fn stop(&mut self) {
        self.datapath.control.set_on(false);
        self.datapath.control.set_learn(0);
        self.settle_accounts();
        self.close_accounts();
        self.ports.detach_all();
    }

    fn now_tick(&self) -> Result<u32, DaemonError> {
        self.datapath.clock.now_tick().map_err(failure)
    }

    /// True if a walk over the flows is under way, or events were left for the next turn.
    fn walking(&self) -> bool {
        self.ports.waiting()
            || self.pace.waits()
            || self.census.running()
            || self.sniff.running()
            || self.accounting.sweeping()
            || self.manager.has_work()
            || self.mirror.has_more()
            || self.routes.has_work()
    }

    /// A piece of each walk.
    fn walk(&mut self) -> Result<(), DaemonError> {
        if self.ports.waiting() {
            self.attach_waiting()?;
        }
        if self.pace.take_waiting() {
            self.update_limits()?;
            self.update_scrub()?;
        }
        if self.sniff.running() {
            self.sniff_piece()?;
        }
        if self.census.running() {
            self.census_piece();
        }
        self.carry_routes();
        if self.accounting.sweeping() {
            self.accounting.sweep();
        }
        if self.manager.has_work() {
            let mut ops = Vec::new();
            let now_tick = self.now_tick()?;
            self.manager
                .work(now_tick, &view::View(&self.datapath), &mut ops);
            self.execute(ops)?;
        }
        Ok(())
    }

    fn switch(&mut self, on: bool) -> Result<(), DaemonError> {
        self.on = on;
        self.datapath.control.set_on(on);
        self.datapath.control.set_learn(on.into());
        if !on {
            // Connections end unseen while it is off.
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<u64, DaemonError> {
        let count = self.manager.flow_count() as u64;
        let now_tick = self.now_tick()?;
        let mut ops: Vec<Op> = Vec::new();
        let mut bridge_ops = Vec::new();
        self.bridges.flush(&mut bridge_ops);
        self.bridge(bridge_ops, now_tick, &mut ops);
        self.manager.flush(now_tick, &mut ops);
        // within an epoch a flow is offered once a second: without a new one they would all wait for it
        self.manager.new_epoch(&mut ops);
        self.execute(ops)?;
        Ok(count)
    }

    /// Names of interfaces become indices, so this follows the links.
    fn update_policy(&mut self) -> Result<(), DaemonError> {
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        let mut policy = configured::policy(&self.config, &self.mirror);
        // multipath routes may choose by the packets within
        policy.gre &= !self.polled.sysctls.hash_beyond_addresses();
        self.manager.set_policy(policy, now_tick, &mut ops);
        self.tell_mirrors();
        self.execute(ops)
    }

    fn read_neighbours(&mut self) {
        for neigh in self.mirror.neighs().values().filter(|n| n.is_valid()) {
            if let Some(mac) = neigh.lladdr {
                self.manager.learn_neighbour(neigh.ifindex, neigh.ip, mac);
            }
        }
    }
}

/// Conntrack's kfuncs live in its module, which must be there before the programs.
fn load_modules(modules: &[&str]) {
    for module in modules {
        let quiet = std::process::Stdio::null;
        let status = std::process::Command::new("modprobe")
            .args(["-q", *module])
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet())
            .status();
        tracing::debug!(module, ?status, "modprobe");
    }
}
