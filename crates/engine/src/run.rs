// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway-engine run`: start, exchange with the daemon, end.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use freeway_api::engine::{
    EngineConfig, EngineCounts, Hello, Idle, MESSAGES, Mirrored, Mirrors, RouteTables, Routed,
    Said, Scheduled, Schedules, socket_beside,
};
use freeway_api::netns;
use freeway_console::{Exit, Stop};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::config;
use crate::dispatch::Dispatch;
use crate::eal::{self, Eal};
use crate::exchange::{Daemon, Heard, Knock, knock};
use crate::exits::Exits;
use crate::lanes::{Lanes, reading};
use crate::memory::Memory;
use crate::mirror::Mirror;
use crate::placement::{self, Placement};
use crate::pools::Pools;
use crate::port::Port;
use crate::routes::Routes;
use crate::schedule::Schedule;
use crate::sockets::Sockets;
use crate::topology;
use crate::vhost::{self, Wait};
use crate::wakers::Wakers;
use crate::workers::Workers;

/// How often links, daemon and signals are looked at.
const TURN: Duration = Duration::from_millis(100);
/// How often the daemon is told what was done.
const REPORT: Duration = Duration::from_secs(1);
/// Its schedulers' share of the daemon's flows is over by then: its deadline has passed.
const LEFT: Duration = Duration::from_secs(3);
/// Octets of a frame beside the MTU: Ethernet, two tags.
const L2_ROOM: u32 = 22;
/// What drivers reckon with beside that: two tags more, and the FCS.
const DRIVER_ROOM: u32 = 12;
/// They take so much of a buffer as is a multiple, and a frame that does not fit in comes in several.
const ROOM_STEP: u32 = 1024;
/// After a daemon's refusal, or none of its answers.
const AGAIN: Duration = Duration::from_secs(1);

/// What the command line says.
#[derive(Debug, Default)]
pub struct Options {
    /// The configuration's file.
    pub config: Option<PathBuf>,
    /// The daemon's control socket.
    pub socket: Option<PathBuf>,
}

/// Runs until a signal or a failure ends it.
pub fn run(options: &Options) -> Result<(), Stop> {
    let path = options.config.clone();
    let path = path.unwrap_or_else(|| config::DEFAULT_PATH.into());
    let (config, socket) = config::load(&path)?;
    let control = match options.socket.clone().or(socket) {
        Some(socket) => socket,
        None => netns::default_socket().map_err(|error| {
            Stop::failure(format!("cannot identify this network namespace: {error}"))
        })?,
    };
    let cpus = cpus()?;
    check_cpus(&config, &cpus, &path.display().to_string())?;
    check_huge_pages(&config)?;
    let machine = topology::machine(&config, Path::new(topology::SYS));
    let placement = placement::place(&machine)
        .map_err(|why| Stop::new(Exit::Config, format!("{}: {why}", path.display())))?;
    // before DPDK makes its threads, which inherit it
    let signals = signals().map_err(|error| Stop::failure(error.to_string()))?;
    let wait = wait_for_switches(&config, &signals)?;
    let eal = Eal::start(&config::eal_arguments(&config, &cpus, &placement)).map_err(|error| {
        let what = format!("DPDK does not start: {error}; see its messages above");
        Stop::new(Exit::Unavailable, what)
    })?;
    drop(wait);
    let result = Running::start(&config, placement).and_then(|mut running| {
        running.keep(config.idle)?;
        running.serve(&socket_beside(&control), &signals)
    });
    drop(eal);
    result.map_err(|what| Stop::new(Exit::Unavailable, what))
}

/// All that forwards. Fields are dropped in order: nobody uses what goes later.
struct Running {
    dispatch: Dispatch,
    workers: Workers,
    lanes: Lanes,
    exits: Exits,
    ports: Vec<Port>,
    pools: Pools,
    _wakers: Wakers,
    daemon: Option<Daemon>,
    /// Why the daemon refused, or did not answer, and when.
    refused: Option<(String, Instant)>,
    /// When the daemon went whose schedules are still there.
    left: Option<Instant>,
}

impl Running {
    fn start(config: &EngineConfig, placement: Placement) -> Result<Self, String> {
        let mtu = config.port.values().filter_map(|port| port.mtu).max();
        let frame = mtu.unwrap_or(1500).max(1500) + L2_ROOM + DRIVER_ROOM;
        let room = frame.next_multiple_of(ROOM_STEP);
        let pools = Pools::new(placement, room as u16)?;
        let mut ports = Vec::new();
        for (number, (name, port)) in config.port.iter().enumerate() {
            ports.push(Port::start(name, config, port, pools.of_port(number)?)?);
        }
        let cpus = config.workers();
        let io_cores = config.io_cores.len();
        let wakers = match config.idle {
            Idle::Poll => Wakers::none(),
            Idle::Sleep => Wakers::new(cpus.len(), io_cores)?,
        };
        let exits = Exits::start(&ports, cpus.len(), &wakers, pools.of_worker()?)?;
        let lanes = ports.iter().enumerate().filter(|_| io_cores > 0);
        let lanes = lanes.map(|(at, port)| (reading(at, io_cores), port.transmits_by_io()));
        let lanes = Lanes::new(lanes, cpus.len(), &wakers)?;
        let nothing = Memory::none().map_err(|error| error.to_string())?;
        let key = nothing.config().hash_key;
        let workers = Workers::start(&ports, &exits, &lanes, &pools, &wakers, nothing, config)?;
        let dispatch = Dispatch::start(config, &ports, &lanes, &workers, &wakers, key)?;
        Ok(Self {
            dispatch,
            workers,
            lanes,
            exits,
            ports,
            pools,
            _wakers: wakers,
            daemon: None,
            refused: None,
            left: None,
        })
    }

    /// From here on the TAPs stay.
    fn keep(&mut self, idle: Idle) -> Result<(), String> {
        for port in &mut self.ports {
            if let Some(tap) = port.tap() {
                tap.keep()?;
            }
            port.follow_link()?;
            let about = match (idle, port.wakes()) {
                (Idle::Poll, _) => "",
                (Idle::Sleep, true) => "; its frames wake their core",
                (Idle::Sleep, false) => "; it has no interrupts, so its core naps",
            };
            eprintln!("freeway-engine: {} is up{about}", port.name());
        }
        Ok(())
    }

    fn serve(&mut self, socket: &std::path::Path, signals: &SignalFd) -> Result<(), String> {
        let mut reported = Instant::now();
        loop {
            let timeout = PollTimeout::try_from(TURN).unwrap_or(PollTimeout::ZERO);
            let daemon = self.daemon.as_ref().map(AsFd::as_fd);
            let fds = [Some(signals.as_fd()), daemon].into_iter().flatten();
            let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            let ready = poll(&mut fds, timeout).is_ok_and(|ready| ready > 0);
            if ready && fds.first().and_then(PollFd::any) == Some(true) {
                eprintln!("freeway-engine: stopped");
                return Ok(());
            }
            if let Some(port) = self.exits.lost() {
                let name = self.ports.get(port).map_or("a TAP", Port::name);
                return Err(format!(
                    "{name} was deleted; the engine starts anew with another one"
                ));
            }
            for port in &mut self.ports {
                port.follow_link()?;
            }
            self.look_for_daemon(socket)?;
            self.dispatch.balance(&self.workers);
            let watched = self.workers.watched();
            if !watched.is_empty() {
                self.tell(&Said::Watched(watched));
            }
            // silence says that a core stands still
            if reported.elapsed() >= REPORT && self.workers.go_on() && self.dispatch.goes_on() {
                reported = Instant::now();
                self.tell_counts();
                for classes in self.workers.class_counts() {
                    self.tell(&Said::Classes(classes));
                }
            }
        }
    }

    fn tell(&self, said: &Said) {
        if let Some(daemon) = &self.daemon {
            // one that has gone is found out in the next turn
            let _ = daemon.tell(said);
        }
    }

    /// A daemon that comes gives its table. One that has gone leaves it for a moment, in which its deadline passes.
    fn look_for_daemon(&mut self, socket: &std::path::Path) -> Result<(), String> {
        match self.daemon.as_ref().map(Daemon::heard) {
            Some(Heard::Nothing) => return Ok(()),
            Some(Heard::Dispatch(change)) => {
                if let Err(why) = self.dispatch.change(change, &self.lanes, &self.workers) {
                    eprintln!("freeway-engine: {why}");
                }
                self.tell_counts();
                return Ok(());
            }
            Some(Heard::Framings(framings)) => {
                match self.workers.set_framings(&framings.framings) {
                    Ok(()) => {
                        self.tell(&Said::Framed(framings.number));
                        return Ok(());
                    }
                    Err(error) => eprintln!("freeway-engine: {error}"),
                }
            }
            Some(Heard::Schedules(schedules)) => {
                let scheduled = self.set_schedules(schedules);
                self.tell(&Said::Scheduled(scheduled));
                return Ok(());
            }
            Some(Heard::Mirrors(mirrors)) => return self.set_mirrors(mirrors),
            Some(Heard::Routes(tables, fds)) => {
                self.set_routes(tables.as_ref(), fds);
                return Ok(());
            }
            Some(Heard::Gone) | None => {}
        }
        // nobody knows any more whether it is what the kernel has; its deadline would lie ahead again when ticks have wrapped
        if self.left.is_some_and(|left| left.elapsed() > LEFT) {
            self.left = None;
            let forgotten = self.workers.forget_table();
            forgotten.map_err(|error| format!("memory: {error}"))?;
        }
        if self.daemon.take().is_some() {
            self.left = Some(Instant::now());
            // nobody hears of routes any more
            self.workers.set_routes(None);
            eprintln!("freeway-engine: the daemon has gone: the kernel forwards");
        }
        if let Some((_, at)) = &self.refused
            && at.elapsed() < AGAIN
        {
            return Ok(());
        }
        let sockets = self.ports.iter().filter_map(|port| {
            let sockets = port.sockets()?;
            Some(sockets.named(port.ifindex))
        });
        let (sockets, fds): (Vec<_>, Vec<_>) = sockets.flatten().unzip();
        let taps = self.ports.iter().filter(|port| port.tap().is_some());
        let hello = Hello {
            abi: freeway_abi::DIGEST,
            messages: MESSAGES,
            version: env!("CARGO_PKG_VERSION").into(),
            dpdk: eal::version(),
            pid: std::process::id(),
            ports: taps.map(|port| port.ifindex).collect(),
            sockets,
        };
        let refused = match knock(socket, hello, &fds) {
            Ok(Knock::Nobody) => None,
            Ok(Knock::Refused(why)) => Some(why),
            Ok(Knock::Unfit(why)) => return Err(why),
            Err(error) => Some(error.to_string()),
            Ok(Knock::Table(daemon, table, fds)) => match Memory::map(&table, &fds) {
                Ok(memory) => {
                    let key = memory.config().hash_key;
                    self.workers.set_table(memory);
                    self.dispatch.set_key(key);
                    self.left = None;
                    self.daemon = Some(daemon);
                    eprintln!("freeway-engine: the daemon has given its table");
                    None
                }
                Err(error) => Some(format!("its table cannot be mapped: {error}")),
            },
        };
        let before = self.refused.take().map(|(why, _)| why);
        if let Some(why) = &refused
            && Some(why) != before.as_ref()
        {
            eprintln!("freeway-engine: the daemon refuses: {why}");
        }
        self.refused = refused.map(|why| (why, Instant::now()));
        Ok(())
    }

    fn set_schedules(&mut self, schedules: Schedules) -> Scheduled {
        let mut wanted: Vec<_> = self.ports.iter().map(|_| None).collect();
        let mut refused = Vec::new();
        for schedule in schedules.schedules {
            let place = self
                .ports
                .iter()
                .position(|port| port.ifindex == schedule.port);
            match place.and_then(|place| wanted.get_mut(place)) {
                Some(wanted) => *wanted = Some(schedule),
                None => refused.push((schedule.port, "it is no port of the engine's".into())),
            }
        }
        // frames that come in find room as well
        let (_, frames) = self.pools.level();
        let room = frames / 2 / u32::try_from(self.ports.len()).unwrap_or(1).max(1);
        let (ports, exits) = (&mut self.ports, &self.exits);
        let sort = |number: usize, schedule: &Schedule| {
            let port = ports.get_mut(number).ok_or("it is no port")?;
            port.sort(schedule, |leaves| exits.set_leaves(number, leaves))
        };
        for (number, why) in self.workers.set_schedules(wanted, room, sort) {
            let port = self.ports.get(number).map_or(0, |port| port.ifindex);
            refused.push((port, why));
        }
        Scheduled {
            number: schedules.number,
            refused,
        }
    }

    /// Without tables what has no flow is the kernel's, and tc's.
    fn set_routes(&mut self, tables: Option<&RouteTables>, fds: Vec<OwnedFd>) {
        let Some(tables) = tables else {
            return self.workers.set_routes(None);
        };
        let count = fds.len();
        let fds = <[OwnedFd; 6]>::try_from(fds);
        let fds = fds.map_err(|_| format!("{count} descriptors came, not 6"));
        let routes = fds.and_then(|fds| {
            let routes = Routes::map(tables, &fds);
            routes.map_err(|error| format!("its tables cannot be mapped: {error}"))
        });
        let (routes, refused) = match routes {
            Ok(routes) => (Some(routes), None),
            Err(why) => (None, Some(why)),
        };
        if let Some(why) = &refused {
            eprintln!("freeway-engine: no prefix paths: {why}");
        }
        self.workers.set_routes(routes);
        self.tell(&Said::Routed(Routed {
            number: tables.number,
            refused,
        }));
    }

    fn set_mirrors(&mut self, mirrors: Mirrors) -> Result<(), String> {
        let names: Vec<_> = self.ports.iter().map(Port::name).collect();
        let (mirror, refused) = Mirror::new(&mirrors.rules, &names, self.pools.of_worker()?);
        self.workers.set_mirror(mirror);
        for why in &refused {
            eprintln!("freeway-engine: nothing is copied by {why}");
        }
        self.tell(&Said::Mirrored(Mirrored {
            number: mirrors.number,
            refused,
        }));
        self.tell_counts();
        Ok(())
    }

    fn tell_counts(&mut self) {
        let counts = self.counts();
        self.tell(&Said::Counts(counts));
    }

    fn counts(&mut self) -> EngineCounts {
        let exits = self.exits.counts();
        let (pool_free, pool_size) = self.pools.level();
        let mut counts = self.workers.counts();
        self.dispatch.count(&mut counts);
        counts.from_kernel = exits.from_kernel;
        counts.exceptions_dropped = exits.not_taken + exits.no_room;
        let sockets = self.ports.iter().filter_map(Port::sockets);
        counts.sockets_dropped = sockets.map(Sockets::lost).sum();
        counts.pool_free = pool_free;
        counts.pool_size = pool_size;
        counts
    }
}

/// SIGTERM and SIGINT as a descriptor.
fn signals() -> nix::Result<SignalFd> {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.add(Signal::SIGINT);
    ends.thread_block()?;
    SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

fn wait_for_switches(config: &EngineConfig, signals: &SignalFd) -> Result<Option<Wait>, Stop> {
    let mut listeners = vhost::listeners(config);
    for listener in &listeners {
        listener.clear()?;
    }
    listeners.retain(vhost::Listener::waits);
    if listeners.is_empty() {
        return Ok(None);
    }
    Wait::start(listeners, signals, eal::folder())
        .map(Some)
        .map_err(|error| Stop::failure(error.to_string()))
}

/// CPUs that this process may use.
fn cpus() -> Result<Vec<usize>, Stop> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0))
        .map_err(|error| Stop::failure(format!("cannot read the CPUs: {error}")))?;
    let all = 0..nix::sched::CpuSet::count();
    Ok(all
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect())
}

fn check_cpus(config: &EngineConfig, cpus: &[usize], file: &str) -> Result<(), Stop> {
    let there = |cpu: &u32| cpus.contains(&(*cpu as usize));
    let key = if config.cores.is_empty() {
        "core"
    } else {
        "cores"
    };
    let workers = config.workers().into_iter().map(|cpu| (key, cpu));
    let io = config.io_cores.iter().map(|cpu| ("io_cores", *cpu));
    let Some((key, cpu)) = workers.chain(io).find(|(_, cpu)| !there(cpu)) else {
        return Ok(());
    };
    let all: Vec<_> = cpus.iter().map(usize::to_string).collect();
    let what = format!(
        "{file}: engine.{key} = {cpu}: there is no such CPU; there are: {}",
        all.join(", ")
    );
    Err(Stop::new(Exit::Config, what))
}

/// DPDK's own words about missing pages are many.
fn check_huge_pages(config: &EngineConfig) -> Result<(), Stop> {
    if !config.huge_pages {
        return Ok(());
    }
    let file = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    let free = std::fs::read_to_string(file).unwrap_or_default();
    let free: u32 = free.trim().parse().unwrap_or(0);
    let wanted = config.memory_mib.div_ceil(2);
    if free >= wanted {
        return Ok(());
    }
    let what = format!(
        "engine.memory_mib = {} takes {wanted} huge pages of 2 MiB, and {free} are free: \
         sysctl vm.nr_hugepages={wanted}, in a file of /etc/sysctl.d for the next boot as well, or huge_pages = false",
        config.memory_mib
    );
    Err(Stop::new(Exit::Unavailable, what))
}
