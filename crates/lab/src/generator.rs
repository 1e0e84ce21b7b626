// SPDX-License-Identifier: MIT OR Apache-2.0
//! The generator: XDP live frames, redirected out of a host's port, or of two ports by turns.

use std::mem::{MaybeUninit, offset_of};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, panic};

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use serde::Serialize;

use crate::attach::{element, load_only, program, run_live, set_device_at};
use crate::clock::{go_ahead, pin, thread_cpu_ns};
use crate::error::{Context, LabError};
use crate::frame::{Direction, FlowSpec, low32};
use crate::netns::Netns;
use crate::parked::Parked;
use crate::port::Port;
use crate::skel::generator::{GeneratorSkelBuilder, types};
use crate::stream::Way;
use crate::topology::Family;

/// Frames that the kernel hands over at once; the receiving veth polls 64 at a time.
const BATCH: u32 = 64;
/// How long one system call should take, so that stopping is prompt.
const SLICE: Duration = Duration::from_millis(10);
/// As in the program.
const WAYS: usize = 2;
/// How often a limited generator catches up.
const TICK: Duration = Duration::from_micros(200);
/// How long page pools are waited for.
const POOLS_WAIT: Duration = Duration::from_secs(60);

/// When the generator stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After that many frames.
    Frames(u64),
    /// After that time.
    Elapsed(Duration),
    /// When told, see [`Running::stop`].
    Stopped,
}

/// How hard and how long the generator works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// When it stops.
    pub until: Until,
    /// At most so many frames a second; without it, as many as the CPU can.
    pub pps: Option<u64>,
    /// The CPU it runs on, and with it the router's receive path.
    pub cpu: Option<usize>,
    /// Ahead of all else there, as a sender on another machine is not held up by the router's work.
    pub ahead: bool,
}

impl Load {
    /// As fast as possible.
    pub fn full(until: Until) -> Self {
        Self {
            until,
            pps: None,
            cpu: None,
            ahead: false,
        }
    }

    /// At a rate, in frames a second.
    pub fn paced(until: Until, pps: u64) -> Self {
        Self {
            until,
            pps: Some(pps),
            cpu: None,
            ahead: false,
        }
    }

    /// With the highest priority of a thread.
    pub fn ahead(self) -> Self {
        Self {
            ahead: true,
            ..self
        }
    }

    /// On one CPU.
    pub fn on_cpu(self, cpu: usize) -> Self {
        Self {
            cpu: Some(cpu),
            ..self
        }
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Nanoseconds from the first to the last, the receive path on the same CPU included.
    pub elapsed_ns: u64,
    /// Nanoseconds that the generator's thread had the CPU. If that is much less at full load, something else ran there.
    pub cpu_ns: u64,
}

impl Sent {
    /// Nanoseconds for each frame.
    pub fn ns_per_frame(&self) -> f64 {
        self.elapsed_ns as f64 / self.frames.max(1) as f64
    }
}

/// A loaded generator for one set of flows, or for two by turns. Rounds continue from one run to the next.
#[derive(Debug)]
pub struct Generator {
    netns: Netns,
    spec: FlowSpec,
    wire_bytes: u32,
    program: OwnedFd,
    state: MapHandle,
    template: Vec<u8>,
    /// Dispatching to a program that is attached nowhere costs an RCU grace period for each test run.
    _parked: Parked,
}

impl Generator {
    /// Loads a generator that sends out of `port`.
    pub fn new(port: &Port, spec: &FlowSpec) -> Result<Self, LabError> {
        Self::by_turns(&[Way { port, flows: *spec }])
    }

    /// Loads a generator for one way or for two, whose frames leave by turns, one by one. Those of two are of the same
    /// protocol, family and payload.
    pub fn by_turns(ways: &[Way<'_>]) -> Result<Self, LabError> {
        Self::load(ways, true)
    }

    /// Loads a generator that works in the first port's namespace but drops what it makes: its own cost alone.
    pub(crate) fn mute(ways: &[Way<'_>]) -> Result<Self, LabError> {
        Self::load(ways, false)
    }

    fn load(ways: &[Way<'_>], sends: bool) -> Result<Self, LabError> {
        let Some(Way { port, flows: spec }) = ways.first().filter(|_| ways.len() <= WAYS) else {
            let message = "a generator has one way or two";
            return Err(LabError::Invalid(message.into()));
        };
        let templates = ways.iter().map(|way| {
            let flows = way.flows;
            let kind = |flows: &FlowSpec| (flows.proto, flows.family(), flows.payload_len());
            if ways.len() > 1 && (kind(&flows) != kind(spec) || flows.beyond.is_some()) {
                let message = "frames that leave by turns are of one protocol, family and size, and to no hosts beyond";
                return Err(LabError::Invalid(message.into()));
            }
            flows.check()?;
            Ok(flows.template())
        });
        let templates: Vec<_> = templates.collect::<Result<_, LabError>>()?;
        let len = templates.iter().map(|(template, ..)| template.len()).max();
        let len = len.unwrap_or(0);
        let headroom = ways.iter().map(|way| way.flows.headroom).max();
        let headroom = headroom.unwrap_or(0);
        let mut storage = MaybeUninit::uninit();
        let mut open = GeneratorSkelBuilder::default()
            .open(&mut storage)
            .context("open the generator")?;
        let rodata = open.maps.rodata_data.as_deref_mut();
        let rodata = rodata.ok_or_else(|| LabError::Invalid("the generator has no data".into()))?;
        let configs = rodata.configs.iter_mut().zip(ways);
        for ((place, way), (template, ip_sum, l4_sum)) in configs.zip(&templates) {
            *place = config(&way.flows, template, *ip_sum, *l4_sum);
            // payloads are at one place
            place.headroom = headroom + (len - template.len()) as u8;
        }
        if let Some(beyond) = spec.beyond {
            let hosts = beyond.addresses();
            rodata.configs[0].hosts = hosts.len() as u32;
            let bss = open.maps.bss_data.as_deref_mut();
            let bss = bss.ok_or_else(|| LabError::Invalid("the generator has no state".into()))?;
            for (host, address) in bss.far_hosts.iter_mut().zip(hosts) {
                *host = address.into();
            }
        }
        let does = if ways.len() > 1 {
            "alternate"
        } else {
            "generate"
        };
        let family = match spec.family() {
            Family::Ipv4 => 4,
            Family::Ipv6 => 6,
        };
        let wanted = format!("{does}_{}{family}", spec.proto.name());
        load_only(open.open_object_mut(), &wanted);
        let skel = open.load().context("load the generator")?;
        let program = program(skel.object(), &wanted)?;
        let out = MapHandle::try_from(&skel.maps.out).context("open the generator's port map")?;
        let state = MapHandle::try_from(&skel.maps.bss).context("open the generator's state")?;
        if sends {
            for (index, way) in (0..).zip(ways) {
                set_device_at(&out, index, way.port)?;
            }
        }
        let parked = Parked::new(&program)?;
        let longest = templates.into_iter().map(|(template, ..)| template);
        let longest = longest.max_by_key(Vec::len).unwrap_or_default();
        let wire_bytes = ways.iter().map(|way| way.flows.wire_bytes()).max();
        Ok(Self {
            netns: port.netns.clone(),
            spec: *spec,
            wire_bytes: wire_bytes.unwrap_or(0),
            program,
            state,
            template: [vec![0; headroom.into()], longest].concat(),
            _parked: parked,
        })
    }

    /// What it sends, by the first way.
    pub fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    /// Octets of its longest frame, FCS counted.
    pub fn wire_bytes(&self) -> u32 {
        self.wire_bytes
    }

    /// Frames sent since it was loaded, by all ways.
    pub fn frames(&self) -> Result<u64, LabError> {
        let value = element(&self.state)?;
        let of_way = |way: usize| {
            let at = offset_of!(types::bss, states)
                + way * size_of::<types::generator_state>()
                + offset_of!(types::generator_state, frames);
            let mut frames = [0; 8];
            frames.copy_from_slice(&value[at..at + 8]);
            u64::from_ne_bytes(frames)
        };
        Ok((0..WAYS).map(of_way).sum())
    }

    /// Runs in a thread of its own and waits for it.
    pub fn run(&self, load: &Load) -> Result<Sent, LabError> {
        if load.until == Until::Stopped {
            return Err(LabError::Invalid(
                "nobody could stop this load: start it instead".into(),
            ));
        }
        self.drive(load, &AtomicBool::new(false))
    }

    /// Runs in the background until it is done, stopped or dropped.
    pub fn start(self: &Arc<Self>, load: Load) -> Result<Running, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (generator, told) = (Arc::clone(self), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("lab-generator".into())
            .spawn(move || generator.drive(&load, &told))
            .context("start the generator's thread")?;
        Ok(Running {
            stop,
            thread: Some(thread),
        })
    }

    fn drive(&self, load: &Load, stop: &AtomicBool) -> Result<Sent, LabError> {
        self.netns.enter(|| {
            if let Some(cpu) = load.cpu {
                pin(cpu)?;
            }
            if load.ahead {
                go_ahead()?;
            }
            let before = self.frames()?;
            let cpu_before_ns = thread_cpu_ns();
            let start = Instant::now();
            match load.pps {
                None => self.drive_full(load.until, start, stop)?,
                Some(pps) => self.drive_paced(load.until, pps, start, stop)?,
            }
            let elapsed_ns = start.elapsed().as_nanos() as u64;
            let cpu_ns = thread_cpu_ns().saturating_sub(cpu_before_ns);
            Ok(Sent {
                frames: self.frames()? - before,
                elapsed_ns,
                cpu_ns,
            })
        })?
    }

    fn drive_full(&self, until: Until, start: Instant, stop: &AtomicBool) -> Result<(), LabError> {
        let mut slice: u64 = 16 * u64::from(BATCH);
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            let repeat = match until {
                Until::Frames(frames) if sent >= frames => break,
                Until::Frames(frames) => slice.min(frames - sent),
                Until::Elapsed(time) if start.elapsed() >= time => break,
                Until::Elapsed(_) | Until::Stopped => slice,
            };
            let begin = Instant::now();
            sent += self.emit(repeat as u32)?;
            let took = begin.elapsed();
            if took < SLICE / 2 {
                slice = (slice * 2).min(1 << 20);
            } else if took > SLICE * 2 {
                slice = (slice / 2).max(u64::from(BATCH));
            }
        }
        Ok(())
    }

    /// Sends what is due at each tick. After a delay it does not catch up by more than 10 ms worth of frames at
    /// once, so that the receive queues, 256 frames deep, see no flood.
    fn drive_paced(
        &self,
        until: Until,
        pps: u64,
        start: Instant,
        stop: &AtomicBool,
    ) -> Result<(), LabError> {
        let burst = (pps / 100).max(1);
        let mut sent = 0;
        let mut tick: u32 = 0;
        while !stop.load(Ordering::Relaxed) {
            let elapsed = start.elapsed();
            let mut due = (elapsed.as_nanos() * u128::from(pps) / 1_000_000_000) as u64;
            let mut last = false;
            match until {
                Until::Frames(frames) => {
                    due = due.min(frames);
                    last = sent >= frames;
                }
                Until::Elapsed(time) => last = elapsed >= time,
                Until::Stopped => {}
            }
            if last {
                break;
            }
            if due > sent {
                sent += self.emit((due - sent).min(burst) as u32)?;
            }
            tick = tick.wrapping_add(1);
            let next = TICK * tick;
            let now = start.elapsed();
            if next > now {
                thread::sleep(next - now);
            } else {
                tick = (now.as_nanos() / TICK.as_nanos()) as u32;
            }
        }
        Ok(())
    }

    /// One test run of `repeat` frames; returns how many there were if a signal cut it short.
    fn emit(&self, repeat: u32) -> Result<u64, LabError> {
        let before = self.frames()?;
        let begin = Instant::now();
        loop {
            match run_live(&self.program, &self.template, repeat, BATCH) {
                Ok(()) => return Ok(u64::from(repeat)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    return Ok(self.frames()? - before);
                }
                Err(error) if is_pools(&error) && begin.elapsed() < POOLS_WAIT => {
                    thread::sleep(TICK);
                }
                Err(error) => return Err(error).context("run the generator"),
            }
        }
    }
}

/// Each live run has a page pool, of which the machine has 65,534 (`MEM_ID_MAX`). They are given back behind RCU, late
/// on a busy machine. Nothing was sent.
fn is_pools(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSPC)
}

fn config(spec: &FlowSpec, template: &[u8], ip_sum: u16, l4_sum: u16) -> types::generator_config {
    let mut words = [0u64; 11];
    for (word, bytes) in words.iter_mut().zip(template.chunks(8)) {
        let mut memory = [0; 8];
        memory[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(memory);
    }
    types::generator_config {
        words,
        flows: spec.flows,
        first: spec.first,
        near_addr: low32(spec.near),
        ip_sum: ip_sum.into(),
        l4_sum: l4_sum.into(),
        tcp_seq: spec.tcp_seq(),
        tcp_step: spec.tcp_step(),
        near_port: spec.near_port,
        far_port: spec.far_port,
        reverse: (spec.direction == Direction::Reply).into(),
        near_fixed: spec.near_fixed.into(),
        near_each: spec.near_each.into(),
        has_round: spec.has_round().into(),
        has_flow: spec.has_flow().into(),
        tag_len: spec.tag_len() as u8,
        headroom: spec.headroom,
        ..Default::default()
    }
}

/// A generator at work in the background. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Sent, LabError>>>,
}

impl Running {
    /// Stops it and says what it sent.
    pub fn stop(self) -> Result<Sent, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        self.wait()
    }

    /// Waits until it is done.
    pub fn wait(mut self) -> Result<Sent, LabError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(cause)) => panic::resume_unwind(cause),
            None => Ok(Sent::default()),
        }
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Whoever wants the result calls `stop`.
            let _ = thread.join();
        }
    }
}
