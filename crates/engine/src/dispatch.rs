// SPDX-License-Identifier: MIT OR Apache-2.0
//! How frames of each port come to workers, and the controller that moves buckets of flows between them.

use std::time::Instant;

use freeway_api::engine::{
    DispatchChange, DispatchMode, EngineConfig, EngineCounts, IoCounts, PortDispatch,
};

use crate::controller::{Controller, Owner, Seen, in_turn};
use crate::ffi::fwe_tsc_hz;
use crate::io::{Io, Key};
use crate::lanes::{Lanes, reading};
use crate::port::Port;
use crate::wakers::Wakers;
use crate::workers::{Workers, mean, permille, sleep_us_max};

/// A port as it is dispatched.
struct Place {
    name: String,
    ifindex: u32,
    /// The I/O core that reads it, and its number there; none without I/O cores.
    io: Option<(usize, u32)>,
    mode: DispatchMode,
    modes: Vec<DispatchMode>,
}

/// Of all ports.
pub(crate) struct Dispatch {
    ios: Vec<Io>,
    places: Vec<Place>,
    key: Key,
    controller: Controller,
    workers: usize,
    /// Cycles of each I/O core at the last report, with frames and asleep.
    reported: (Instant, Vec<(u64, u64)>),
    looked: Vec<u64>,
}

impl Dispatch {
    /// Starts the I/O cores on lcores behind those of the workers; ports are as the configuration says.
    pub fn start(
        config: &EngineConfig,
        ports: &[Port],
        lanes: &Lanes,
        workers: &Workers,
        wakers: &Wakers,
        key: Key,
    ) -> Result<Self, String> {
        let cpus = config.workers();
        let count = config.io_cores.len();
        let mut ios = Vec::new();
        let numbers = |io: usize| (io..ports.len()).step_by(count.max(1));
        for (at, cpu) in config.io_cores.iter().enumerate().take(ports.len()) {
            let lcore = (cpus.len() + 1 + at) as u32;
            let own: Vec<_> = numbers(at).collect();
            let sleep = (sleep_us_max(config.idle), wakers.of_io(at));
            ios.push(Io::start(
                ports,
                &own,
                lanes,
                cpus.len(),
                sleep,
                (lcore, *cpu),
            )?);
        }
        let places = ports.iter().enumerate().map(|(number, port)| Place {
            name: port.name().into(),
            ifindex: port.ifindex,
            io: (count > 0).then(|| (reading(number, count), (number / count) as u32)),
            mode: DispatchMode::Rss,
            modes: port.modes(cpus.len(), count > 0),
        });
        let mut crowd = cpus.clone();
        crowd.sort_unstable();
        crowd.dedup();
        let mut all = Self {
            reported: (Instant::now(), vec![(0, 0); ios.len()]),
            looked: vec![0; ios.len()],
            ios,
            places: places.collect(),
            key,
            controller: Controller::new(cpus.len(), crowd.len() < cpus.len()),
            workers: cpus.len(),
        };
        for (number, (name, port)) in config.port.iter().enumerate() {
            let mode = config.mode(port);
            if all
                .places
                .get(number)
                .is_some_and(|place| place.io.is_some())
            {
                // it is paused, and no worker polls it
                all.begin(number, mode, lanes, workers);
            }
            if let Some(place) = all.places.get(number)
                && !place.modes.contains(&place.mode)
            {
                return Err(format!(
                    "engine.port.{name}: {}",
                    too_few(config, ports, number)
                ));
            }
        }
        Ok(all)
    }

    /// True if each I/O core has made turns since it was last asked.
    pub fn goes_on(&mut self) -> bool {
        let turns: Vec<_> = self.ios.iter().map(Io::turns).collect();
        let before = std::mem::replace(&mut self.looked, turns);
        before.iter().zip(&self.looked).all(|(a, b)| a != b)
    }

    fn io(&self, number: usize) -> Option<(&Io, u32)> {
        let (io, port) = self.places.get(number)?.io?;
        Some((self.ios.get(io)?, port))
    }

    /// Nobody reads the port: from now on somebody does.
    fn begin(&mut self, number: usize, mode: DispatchMode, lanes: &Lanes, workers: &Workers) {
        if let Some(place) = self.places.get_mut(number) {
            place.mode = mode;
        }
        let Some((io, port)) = self.io(number) else {
            return;
        };
        match mode {
            DispatchMode::Rss => lanes.set_polled(number, true),
            DispatchMode::Dispatch | DispatchMode::Balanced => {
                lanes.set_polled(number, false);
                workers.wait();
                io.assign(port, &self.wanted(mode));
                io.resume(port, &self.key);
            }
        }
    }

    fn wanted(&self, mode: DispatchMode) -> Owner {
        match mode {
            DispatchMode::Balanced => *self.controller.owner(),
            DispatchMode::Rss | DispatchMode::Dispatch => in_turn(self.workers),
        }
    }

    /// Frames of a port come to workers otherwise from now on, and none overtakes another.
    pub fn change(
        &mut self,
        change: DispatchChange,
        lanes: &Lanes,
        workers: &Workers,
    ) -> Result<(), String> {
        let number = self.places.iter().position(|p| p.ifindex == change.port);
        let number = number.ok_or("the port is none of the engine's")?;
        let place = self.places.get(number).ok_or("no such port")?;
        let (name, before, mode) = (place.name.clone(), place.mode, change.mode);
        if !place.modes.contains(&mode) {
            return Err(format!("{name} cannot be {}", mode.name()));
        }
        if mode == before {
            return Ok(());
        }
        let Some((io, port)) = self.io(number) else {
            return Err(format!("{name} has no I/O core"));
        };
        if mode == DispatchMode::Rss {
            if !io.pause(port) {
                io.resume(port, &self.key);
                return Err(format!(
                    "{name} stays {}: a worker stands still",
                    before.name()
                ));
            }
            self.begin(number, mode, lanes, workers);
        } else if before == DispatchMode::Rss {
            self.begin(number, mode, lanes, workers);
        } else {
            io.assign(port, &self.wanted(mode));
            if let Some(place) = self.places.get_mut(number) {
                place.mode = mode;
            }
        }
        self.controller.pause(true);
        eprintln!(
            "freeway-engine: {name} is {}, and was {}",
            mode.name(),
            before.name()
        );
        Ok(())
    }

    /// Another secret, with another table: a bucket's frames that came before have left.
    pub fn set_key(&mut self, key: Key) {
        if self.key == key {
            return;
        }
        self.key = key;
        let read = |place: &&Place| place.mode != DispatchMode::Rss;
        for place in self.places.iter().filter(read) {
            let Some((io, port)) = place
                .io
                .and_then(|(io, port)| Some((self.ios.get(io)?, port)))
            else {
                continue;
            };
            if !io.pause(port) {
                eprintln!("freeway-engine: {}: a worker stands still", place.name);
            }
            io.resume(port, &self.key);
        }
        // what was known is of other buckets
        self.controller.pause(false);
    }

    /// Looks, once it is time, whether buckets are to move.
    pub fn balance(&mut self, workers: &Workers) {
        if !self.is_balanced() {
            self.controller.pause(true);
            return;
        }
        if !self.controller.is_due() {
            return;
        }
        // moves that were called off are begun again ahead of new ones
        let settled = self.settle();
        let seen = Seen::now(&workers.stats(), workers.loads());
        if let Some(line) = self.controller.look(seen, settled) {
            eprintln!("freeway-engine: {line}");
            for (io, port) in self.balanced() {
                io.assign(port, self.controller.owner());
            }
        }
    }

    fn is_balanced(&self) -> bool {
        let mut all = self.places.iter();
        all.any(|place| place.mode == DispatchMode::Balanced)
    }

    fn balanced(&self) -> impl Iterator<Item = (&Io, u32)> {
        let places = self.places.iter();
        let places = places.filter(|place| place.mode == DispatchMode::Balanced);
        places.filter_map(|place| {
            let (io, port) = place.io?;
            Some((self.ios.get(io)?, port))
        })
    }

    /// True if each bucket is where it was moved to.
    fn settle(&self) -> bool {
        let mut settled = true;
        for (io, port) in self.balanced() {
            if io.owners(port) != *self.controller.owner() {
                io.assign(port, self.controller.owner());
                settled = false;
            }
        }
        settled
    }

    /// Adds what was done.
    pub fn count(&mut self, counts: &mut EngineCounts) {
        // SAFETY: DPDK has been started.
        let tsc_hz = unsafe { fwe_tsc_hz() } as f64;
        let all: Vec<_> = self.ios.iter().map(Io::stats).collect();
        let cycles = all.iter().map(|stats| (stats.cycles, stats.slept.cycles));
        let cycles = cycles.collect();
        let (since, before) = std::mem::replace(&mut self.reported, (Instant::now(), cycles));
        let elapsed = (since.elapsed().as_secs_f64() * tsc_hz).max(1.0);
        for ((stats, (busy, asleep)), io) in all.iter().zip(before).zip(&self.ios) {
            counts.tx_dropped += stats.tx_dropped;
            counts.dispatch_dropped += stats.dropped;
            counts.moves += stats.moves;
            counts.moves_called_off += stats.called_off;
            counts.parked += stats.parked;
            counts.io.push(IoCounts {
                cpu: io.cpu,
                busy_permille: permille(stats.cycles.wrapping_sub(busy), elapsed),
                asleep_permille: permille(stats.slept.cycles.wrapping_sub(asleep), elapsed),
                wakeups: stats.slept.times,
                packets: stats.packets,
                transmitted: stats.transmitted,
                receive_cycles: mean(stats.receive_cycles, stats.packets),
                hash_cycles: mean(stats.hash_cycles, stats.packets),
                ring_cycles: mean(stats.ring_cycles, stats.packets),
            });
        }
        let places = self.places.iter().map(|place| PortDispatch {
            port: place.name.clone(),
            ifindex: place.ifindex,
            mode: place.mode,
            modes: place.modes.clone(),
        });
        counts.dispatch = places.collect();
        counts.decisions = self.controller.told().cloned().collect();
        if self.is_balanced() {
            for (number, worker) in counts.workers.iter_mut().enumerate() {
                worker.buckets = self.controller.buckets(number);
            }
        }
    }
}

/// Why a port cannot be what it is to be.
fn too_few(config: &EngineConfig, ports: &[Port], number: usize) -> String {
    let workers = config.workers().len();
    let (rx, tx) = ports.get(number).map_or((0, 0), Port::queues);
    let instead = if config.io_cores.is_empty() {
        "engine.io_cores and dispatch = \"dispatch\" take one"
    } else {
        "dispatch = \"dispatch\" takes one"
    };
    format!(
        "its device has {rx} queues to receive and {tx} to send by, and rss takes one each for {workers} workers; {instead}"
    )
}
