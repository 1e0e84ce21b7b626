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
mod drops;
mod exec;
mod explain;
mod flows;
mod handover;
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
use freeway_api::TakenOver;
use freeway_cmm::{Around, Bridges, ConnKey, FlowKey, Manager, Op, Settings, out_of};
use freeway_datapath::{Datapath, DataplaneEvent, LoadOptions};
use freeway_kernel::conntrack::Conntrack;
use freeway_kernel::mirror::{Mirror, MirrorConfig};
use freeway_kernel::model::{Connection, Event, Link, Source};
use freeway_kernel::probe::{Outcome, ProbeResult, probe_all};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use self::accounting::{Accounting, Page};
use self::capture::Capture;
use self::census::Census;
use self::cores::Cores;
use self::explain::Explanations;
pub use self::handover::Legacy;
use self::latency::Recorder;
use self::limits::Limits;
use self::lost::Lost;
use self::pace::Pace;
use self::poll::{Polled, Poller, Question};
use self::ports::Ports;
use self::routes::{Loaded as LoadedRoutes, Routes};
use self::ruleset::Ruleset;
use self::same_core::Translations;
use self::scrub::{Loaded, Scrub};
use self::service::Service;
use self::sessions::Sessions;
use self::sniff::Sniff;
use self::wait::Readable;
use super::error::failure;
use super::{DaemonError, Request};
use crate::config::Config;
use crate::door::Notice;
use crate::succession::successor::Successor;
use crate::supervisor::Supervisor;

/// The data plane stops so long after the daemon last said that it lives.
const DEADLINE: Duration = Duration::from_secs(2);
/// How often it says so.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// What sends no event is looked at so often.
const POLL: Duration = Duration::from_secs(1);
/// Flows whose connections are asked for in a poll; the more there are, the longer a round takes.
const ASKED_MAX: usize = 1024;
/// Data-plane events taken in one turn, so that kernel events never wait long.
const EVENTS_PER_TURN: usize = 256;
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

/// Rounds of kernel events in one turn: what came while the round before was applied,
const ROUNDS: u32 = 8;
/// unless they take long, as those of a flood of connections do: one reads all others' events.
const DRAIN: Duration = Duration::from_millis(10);

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
                if let Some(successor) = engine.take_successor() {
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
        if engine.renewed.elapsed() >= 2 * HEARTBEAT {
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
    /// What took paths that are gone.
    bridged_before: fw_path_count,
    mirror: Mirror,
    conntrack: Conntrack,
    ports: Ports,
    ruleset: Ruleset,
    explanations: Explanations,
    invalidation: Recorder,
    counts: Counts,
    on: bool,
    started: Instant,
    taken_over: Option<TakenOver>,
    /// Has all that was ours.
    successor: Option<Successor>,
    /// When the deadline was last renewed.
    renewed: Instant,
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
            conntrack: ruleset::has_conntrack_kfuncs(),
            limits: config
                .punts
                .limits
                .iter()
                .map(|(limited, rate)| (limited.0, rate.0))
                .collect(),
            sockets: config.engine.has_sockets(),
            routes: config.policy.routes,
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
        let now = Instant::now();
        let mut engine = Self {
            ports: Ports::default(),
            ruleset: Ruleset::default(),
            explanations: Explanations::default(),
            invalidation: Recorder::default(),
            counts: Counts::default(),
            on: true,
            started: now,
            taken_over: None,
            successor: None,
            renewed: now,
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
            polled: Polled::default(),
            poller: Poller::start()?,
            cores: Cores::default(),
            translations,
            probes,
            config,
            bridges: Bridges::new(datapath.clock.hz()),
            bridged_before: fw_path_count::default(),
            datapath,
            manager,
            mirror,
            conntrack,
        };
        engine
            .check_names(&engine.config)
            .map_err(|fault| DaemonError::Config(fault.to_string()))?;
        let per_tick = |per_s: u32| (per_s / engine.datapath.clock.hz()).max(1);
        let control = &engine.datapath.control;
        control.set_reval_budget(per_tick(REVALIDATIONS_PER_S));
        control.set_check_budget(per_tick(CHECKS_PER_S));
        control.set_offer_budget(per_tick(CANDIDATES_PER_S));
        control.set_sample_budget(per_tick(SAMPLES_PER_S));
        control.set_epoch(engine.manager.epoch());
        engine.polled = Polled::read(engine.question());
        engine.look_at_sessions();
        engine.set_tcp_timeouts();
        engine.read_neighbours();
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

    /// Renews the deadline. If it passed unnoticed, connections may have ended
    /// unseen: nothing that was learned before is trusted.
    fn heartbeat(&mut self) -> Result<(), DaemonError> {
        let now_tick = self.now_tick()?;
        if self.renewed.elapsed() >= DEADLINE {
            tracing::warn!(
                "the daemon was stopped for {:.1} s; all flows are learned anew",
                self.renewed.elapsed().as_secs_f64()
            );
            self.flush()?;
            self.resync()?;
            self.datapath.forget_edges(now_tick);
        }
        self.datapath.age_edges(now_tick);
        let deadline = now_tick.wrapping_add(self.datapath.clock.ticks(DEADLINE));
        self.datapath.control.set_deadline(deadline);
        self.renewed = Instant::now();
        let mut ops = Vec::new();
        if self.lost.due(self.renewed) {
            tracing::warn!("events of connections were lost: flows are confirmed anew");
            self.manager.new_epoch(&mut ops);
        }
        self.manager
            .tick(now_tick, &view::View(&self.datapath), &mut ops);
        self.age_paths(now_tick, &mut ops);
        self.move_stations(now_tick, &mut ops);
        self.execute(ops)?;
        if self.look_at_rings() | self.look_at_cores() {
            self.update_ports()?;
        }
        Ok(())
    }

    /// Takes the kernel's events that wait. `since`: they became readable then or later, for nothing but this task
    /// runs on its thread. Returns when it last found none, or at least began to look.
    fn drain(&mut self, kernel: &Readable, mut since: Instant) -> Result<Instant, DaemonError> {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            let looking = Instant::now();
            if looking - begun > DRAIN {
                break;
            }
            if !kernel.ready()? {
                return Ok(looking);
            }
            self.kernel_events(since)?;
            since = looking;
        }
        Ok(since)
    }

    /// `since`: the events became readable then or later; their time begins there.
    fn kernel_events(&mut self, since: Instant) -> Result<(), DaemonError> {
        let mut events = Vec::new();
        self.mirror.read(&mut events).map_err(failure)?;
        self.apply(&events, since)?;
        if !events.iter().all(is_of_connection) {
            self.invalidation.record(since.elapsed());
        }
        Ok(())
    }

    /// What changed in the kernel, narrowest first; the order among them does not matter.
    /// `since`: none of them is older.
    fn apply(&mut self, events: &[Event], since: Instant) -> Result<(), DaemonError> {
        self.counts.netlink_events += events.len() as u64;
        let mut overrun = false;
        let mut ports = false;
        let mut rules = false;
        let mut leaks = false;
        let mut routed = false;
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        for event in events {
            tracing::trace!(?event, "kernel");
            leaks |= self.may_change_leaks(event);
            routed |= self.may_change_routed(event);
            self.routes.heard(event);
            self.hear_of_translations(event);
            match event {
                // all packets of its ports pass it
                Event::LinkChanged(link) if link.is_vrf() => {
                    ports = true;
                    rules = true;
                    self.manager.new_epoch(&mut ops);
                }
                Event::LinkChanged(_)
                | Event::LinkGone { .. }
                | Event::QdiscChanged { .. }
                | Event::FilterChanged { .. }
                | Event::NetconfChanged { .. } => ports = true,
                Event::XfrmChanged => {
                    ports = true;
                    rules = true;
                }
                Event::RulesetChanged { .. } => rules = true,
                // PPP may have closed the family alone (npmode), of which nothing tells
                Event::AddrGone(address) if self.is_ppp(address.ifindex) => {
                    self.manager.new_epoch(&mut ops);
                }
                Event::SetElementsChanged {
                    family,
                    table,
                    set,
                    changes,
                } => {
                    let name = (*family, table.clone(), set.clone());
                    self.scrub_set_changed(&name, changes, since, now_tick);
                    rules |= self.set_changed(&name, changes, now_tick, &mut ops);
                    continue;
                }
                Event::ConnectionDestroyed(connection) => self.accounting.destroyed(connection),
                Event::Overrun {
                    source: Source::Conntrack,
                } => {
                    self.counts.overruns += 1;
                    self.lost.note();
                    continue;
                }
                Event::Overrun { source } => {
                    tracing::warn!(?source, "netlink overrun, reading everything again");
                    self.doubt_scrub()?;
                    overrun = true;
                }
                _ => {}
            }
            if self.bridge_event(event, now_tick, &mut ops) {
                self.manager.new_epoch(&mut ops);
            }
            self.manager.kernel_event(event, now_tick, &mut ops);
        }
        if rules {
            self.scrub.doubt_rules();
            self.routes.invalidate();
            // nothing is confirmed or learned under rules that were not looked at
            self.datapath.control.set_learn(0);
        }
        self.execute(ops)?;
        if leaks {
            self.update_leaks()?;
        }
        self.follow_stations()?;
        if ports {
            self.look_at_sessions();
            self.update_policy()?;
            self.update_ruleset()?;
            self.update_ports()?;
            // offloads and names may have changed with the link
            self.ask_poller();
        }
        if rules {
            self.read_ruleset()?;
            self.datapath.control.set_learn(self.on.into());
        }
        if routed {
            self.update_routes()?;
        }
        self.follow_routes();
        if overrun {
            self.counts.overruns += 1;
            self.resync()?;
        }
        Ok(())
    }

    fn is_ppp(&self, ifindex: u32) -> bool {
        let link = self.mirror.links().get(&ifindex);
        link.is_some_and(Link::is_ppp)
    }

    /// Start-up again: dumps everything and applies the difference; returns how much that was.
    fn resync(&mut self) -> Result<u64, DaemonError> {
        self.counts.resyncs += 1;
        let flows = self.manager.flow_count() as u64;
        let unconfirmed = self.manager.stats().unconfirmed;
        let mut changes = self.ports.lost_programs();
        self.doubt_scrub()?;
        // what the mirror's own reading skips is in what is read next
        self.routes.heard(&Event::Overrun {
            source: Source::Route,
        });
        let begun = Instant::now();
        let events = self.mirror.resync().map_err(failure)?;
        let events: Vec<Event> = events
            .into_iter()
            .filter(|e| !matches!(e, Event::Overrun { .. }))
            .collect();
        changes += events.iter().filter(|e| !is_of_connection(e)).count() as u64;
        self.apply(&events, begun)?;
        let mut ops = Vec::new();
        self.manager.new_epoch(&mut ops);
        self.execute(ops)?;
        self.read_ruleset()?;
        self.update_leaks()?;
        self.update_ports()?;
        self.look_at_routes()?;
        let left = flows.saturating_sub(self.manager.flow_count() as u64);
        Ok(changes + left + self.manager.stats().unconfirmed - unconfirmed)
    }

    /// True if there may be more.
    fn dataplane_events(&mut self) -> Result<bool, DaemonError> {
        let events = self.datapath.events.take(EVENTS_PER_TURN);
        let more = events.len() >= EVENTS_PER_TURN;
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        for event in events {
            match event {
                DataplaneEvent::Candidate(c) => {
                    self.counts.candidates += 1;
                    if c.ev.kind == freeway_abi::FW_EV_CHANGED {
                        self.counts.changed += 1;
                    }
                    self.see_translation(&c);
                    let around = Around {
                        copies: self.copies(&c),
                        sniffed: FlowKey::of(&c).is_some_and(|key| self.sniffed(&key, &c)),
                        local: FlowKey::of(&c)
                            .is_some_and(|key| self.received(&key, &[c.port_out])),
                    };
                    self.manager.candidate(&c, around, now_tick, &mut ops);
                }
                DataplaneEvent::Suspended(ev) => {
                    self.counts.suspended += 1;
                    self.manager
                        .suspended(ev.state, ev.reason, now_tick, &mut ops);
                }
                DataplaneEvent::Crossed(crossed) => {
                    let mut bridge_ops = Vec::new();
                    let epoch = self.manager.epoch();
                    self.bridges
                        .crossed(&crossed, epoch, now_tick, &mut bridge_ops);
                    self.bridge(bridge_ops, now_tick, &mut ops);
                }
                DataplaneEvent::Watch(seen) => {
                    self.counts.watched += 1;
                    self.explanations.seen(&seen);
                }
                DataplaneEvent::Strayed(strayed) => self.strayed(&strayed)?,
                DataplaneEvent::Dropped(dropped) => self.explanations.dropped(&dropped),
            }
        }
        if !more {
            // what waits in the ring may be copies of the same packets
            self.manager.settle_groups(now_tick, &mut ops);
            let mut bridge_ops = Vec::new();
            let epoch = self.manager.epoch();
            self.bridges.settle_groups(epoch, now_tick, &mut bridge_ops);
            self.bridge(bridge_ops, now_tick, &mut ops);
        }
        self.execute(ops)?;
        self.follow_stations()?;
        Ok(more)
    }

    fn sniffed(&self, key: &FlowKey, c: &freeway_abi::fw_candidate) -> bool {
        out_of(c).is_some_and(|out| self.is_sniffed(key, &out, c.port_out))
    }

    /// True if a socket of the router itself takes what is sent to a group. Where it leaves the kernel delivers it, too,
    /// if the group is joined there: `ip_mc_output()` and `ip6_finish_output()`.
    fn received(&self, key: &FlowKey, ports_out: &[u32]) -> bool {
        let (group, dport) = (key.tuple.dst, key.tuple.dport);
        let mut ports = ports_out.iter().chain([&key.port]);
        group.is_multicast()
            && ports.any(|port| match &self.polled.memberships {
                Some(memberships) => memberships.delivers(*port, group, dport),
                None => true,
            })
    }

    /// Flows to groups that the router itself has begun to receive leave.
    fn look_at_memberships(&mut self, ops: &mut Vec<Op>) -> Result<(), DaemonError> {
        let now_tick = self.now_tick()?;
        for index in self.manager.group_flows() {
            if let Some(flow) = self.manager.flow(index)
                && self.received(&flow.key, &self.manager.exits(&flow))
            {
                self.manager.received_here(index, now_tick, ops);
            }
        }
        Ok(())
    }

    /// Frames that left under the candidate's token, if its slot still is its own.
    fn copies(&self, c: &freeway_abi::fw_candidate) -> u32 {
        let slot = self.datapath.slots.get(c.token);
        if slot.key == c.key { slot.egress } else { 1 }
    }

    /// Has the polling thread look at what sends no event.
    fn ask_poller(&mut self) {
        if self.poller.is_free() {
            let question = self.question();
            self.poller.ask(question);
        }
    }

    fn question(&mut self) -> Question {
        Question {
            places: self.business().cloned().collect(),
            ours: self.own_programs(),
            connections: self.manager.connections_to_ask_for(ASKED_MAX),
        }
    }

    /// Connections as conntrack has them; `None`: it has none.
    fn looked_up(
        &mut self,
        connections: Vec<(ConnKey, Option<Connection>)>,
    ) -> Result<(), DaemonError> {
        if connections.is_empty() {
            return Ok(());
        }
        let (mut ops, now_tick) = (Vec::new(), self.now_tick()?);
        for (key, found) in connections {
            match found {
                Some(found) => self.manager.connection_updated(&found, now_tick, &mut ops),
                None => self.manager.connection_gone(&key, now_tick, &mut ops),
            }
        }
        self.execute(ops)
    }

    /// Applies what differs from the look before.
    fn polled(&mut self, mut polled: Polled) -> Result<(), DaemonError> {
        self.looked_up(std::mem::take(&mut polled.connections))?;
        if polled.ours != self.own_programs() {
            // programs were loaded meanwhile, and counted as somebody else's
            self.ask_poller();
            return Ok(());
        }
        let before = std::mem::replace(&mut self.polled, polled);
        if self.poller.take_again() {
            self.ask_poller();
        }
        let carried_anew = self.look_at_sessions();
        if carried_anew {
            // rules of the devices below concern it, or no longer
            self.update_ruleset()?;
        }
        if self.retry_redirects()
            || carried_anew
            || before.ports_differ(&self.polled)
            || self.new_faults()
            || self.ports.lost_programs() > 0
        {
            self.update_ports()?;
        }
        let mut ops = Vec::new();
        if before.foreign_hooks != self.polled.foreign_hooks || before.legacy != self.polled.legacy
        {
            // as for a commit of nftables
            self.datapath.control.set_learn(0);
            self.manager.new_epoch(&mut ops);
            self.execute(std::mem::take(&mut ops))?;
            self.read_ruleset()?;
            self.datapath.control.set_learn(self.on.into());
        }
        if before.sysctls != self.polled.sysctls {
            self.update_policy()?;
            self.set_tcp_timeouts();
            self.manager.new_epoch(&mut ops);
            self.execute(std::mem::take(&mut ops))?;
            self.update_ports()?;
        }
        if before.memberships != self.polled.memberships {
            self.look_at_memberships(&mut ops)?;
        }
        if before.sniffers != self.polled.sniffers {
            self.sniff.begin();
            // all that is bridged may be meant
            self.update_ports()?;
        }
        self.execute(ops)
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

    fn set_tcp_timeouts(&mut self) {
        let sysctls = &self.polled.sysctls;
        let defaults = Settings::default();
        let seconds = |value: Option<u64>, default| {
            value.map_or(default, |s| s.try_into().unwrap_or(default))
        };
        self.manager.set_tcp_timeouts(
            seconds(
                sysctls.tcp_timeout_established_s,
                defaults.tcp_established_s,
            ),
            seconds(
                sysctls.tcp_timeout_unacknowledged_s,
                defaults.tcp_unacknowledged_s,
            ),
        );
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

fn is_of_connection(event: &Event) -> bool {
    matches!(
        event,
        Event::ConnectionUpdated(_) | Event::ConnectionDestroyed(_)
    )
}
