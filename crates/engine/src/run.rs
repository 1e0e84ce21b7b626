// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway-engine run`: start, exchange with the daemon, end.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use freeway_api::engine::{EngineConfig, EngineCounts, Hello, Said, socket_beside};
use freeway_api::netns;
use freeway_console::{Exit, Stop};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::config;
use crate::eal::{self, Eal};
use crate::exchange::{Daemon, Heard, Knock, knock};
use crate::exits::Exits;
use crate::memory::Memory;
use crate::placement::{self, Placement};
use crate::pools::Pools;
use crate::port::Port;
use crate::sockets::Sockets;
use crate::topology;
use crate::vhost::{self, Wait};
use crate::worker::Worker;

/// How often links, daemon and signals are looked at.
const TURN: Duration = Duration::from_millis(100);
/// How often the daemon is told what was done.
const REPORT: Duration = Duration::from_secs(1);
/// Octets of a frame beside the MTU: Ethernet, two tags.
const L2_ROOM: u32 = 22;

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
    check_cpu(&config, &cpus, &path.display().to_string())?;
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
        running.keep()?;
        running.serve(&socket_beside(&control), &signals)
    });
    drop(eal);
    result.map_err(|what| Stop::new(Exit::Unavailable, what))
}

/// All that forwards. Fields are dropped in order: nobody uses what goes later.
struct Running {
    worker: Worker,
    exits: Exits,
    ports: Vec<Port>,
    pools: Pools,
    daemon: Option<Daemon>,
    /// Why the daemon refused.
    refused: Option<String>,
}

impl Running {
    fn start(config: &EngineConfig, placement: Placement) -> Result<Self, String> {
        let mtu = config.port.values().filter_map(|port| port.mtu).max();
        let room = mtu.unwrap_or(1500).max(2048 - L2_ROOM) + L2_ROOM;
        let pools = Pools::new(placement, room as u16)?;
        let mut ports = Vec::new();
        for (number, (name, port)) in config.port.iter().enumerate() {
            ports.push(Port::start(name, port, pools.of_port(number)?)?);
        }
        let exits = Exits::start(&ports, pools.of_worker()?)?;
        let nothing = Memory::none().map_err(|error| error.to_string())?;
        let worker = Worker::start(&ports, &exits, &pools, nothing, config.idle)?;
        Ok(Self {
            worker,
            exits,
            ports,
            pools,
            daemon: None,
            refused: None,
        })
    }

    /// From here on the TAPs stay.
    fn keep(&mut self) -> Result<(), String> {
        for port in &mut self.ports {
            if let Some(tap) = port.tap() {
                tap.keep()?;
            }
            port.follow_link()?;
            eprintln!("freeway-engine: {} is up", port.name());
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
            let watched = self.worker.watched();
            if !watched.is_empty() {
                self.tell(&Said::Watched(watched));
            }
            // silence says that the worker stands still
            if reported.elapsed() >= REPORT && self.worker.goes_on() {
                reported = Instant::now();
                let counts = self.counts();
                self.tell(&Said::Counts(counts));
            }
        }
    }

    fn tell(&self, said: &Said) {
        if let Some(daemon) = &self.daemon {
            // one that has gone is found out in the next turn
            let _ = daemon.tell(said);
        }
    }

    /// A daemon that comes gives its table; one that has gone leaves it, and its deadline passes.
    fn look_for_daemon(&mut self, socket: &std::path::Path) -> Result<(), String> {
        match self.daemon.as_ref().map(Daemon::heard) {
            Some(Heard::Nothing) => return Ok(()),
            Some(Heard::Framings(framings)) => match self.worker.set_framings(&framings.framings) {
                Ok(()) => {
                    self.tell(&Said::Framed(framings.number));
                    return Ok(());
                }
                Err(error) => eprintln!("freeway-engine: {error}"),
            },
            Some(Heard::Gone) | None => {}
        }
        if self.daemon.take().is_some() {
            eprintln!("freeway-engine: the daemon has gone: the kernel forwards");
        }
        let sockets = self.ports.iter().filter_map(|port| {
            let sockets = port.sockets()?;
            Some(sockets.named(port.ifindex))
        });
        let (sockets, fds): (Vec<_>, Vec<_>) = sockets.flatten().unzip();
        let taps = self.ports.iter().filter(|port| port.tap().is_some());
        let hello = Hello {
            abi: freeway_abi::DIGEST,
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
                    self.worker.set_table(memory);
                    self.daemon = Some(daemon);
                    eprintln!("freeway-engine: the daemon has given its table");
                    None
                }
                Err(error) => Some(format!("its table cannot be mapped: {error}")),
            },
        };
        if refused.is_some() && refused != self.refused {
            let why = refused.as_deref().unwrap_or_default();
            eprintln!("freeway-engine: the daemon refuses: {why}");
        }
        self.refused = refused;
        Ok(())
    }

    fn counts(&mut self) -> EngineCounts {
        let exits = self.exits.counts();
        let (pool_free, pool_size) = self.pools.level();
        let mut counts = self.worker.counts();
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
    let listeners = vhost::listeners(config);
    for listener in &listeners {
        listener.clear()?;
    }
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

fn check_cpu(config: &EngineConfig, cpus: &[usize], file: &str) -> Result<(), Stop> {
    if cpus.contains(&(config.core as usize)) {
        return Ok(());
    }
    let all: Vec<_> = cpus.iter().map(usize::to_string).collect();
    let what = format!(
        "{file}: engine.core = {}: there is no such CPU; there are: {}",
        config.core,
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
         echo {wanted} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages, or huge_pages = false",
        config.memory_mib
    );
    Err(Stop::new(Exit::Unavailable, what))
}
