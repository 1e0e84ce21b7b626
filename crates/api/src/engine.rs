// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[engine]` of the configuration, and what the daemon and the engine say to each other: one message a packet of a
//! `SOCK_SEQPACKET` socket beside the control socket, as JSON; the table's descriptors come along with [`Answer::Table`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::SteerRule;
use crate::schedule::{ClassCounts, Schedule, ScheduleConfig};

/// Longest message, bytes.
pub const MESSAGE_MAX: usize = 1 << 16;

/// Another one whenever messages change: builds that do not understand each other say so.
pub const MESSAGES: u32 = 2;

/// Most framings at the engine's ports (`FWE_FRAMINGS_MAX`).
pub const FRAMINGS_MAX: usize = 400;

/// The engine's socket, for a control socket.
#[must_use]
pub fn socket_beside(control: &Path) -> PathBuf {
    let mut name: OsString = control.into();
    name.push(".engine");
    name.into()
}

/// `[engine]`: forwarding on cores of its own. The daemon checks it, `freeway-engine` goes by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// The CPU whose core forwards, where there is one worker.
    pub core: Option<u32>,
    /// The CPUs of the workers, one each.
    pub cores: Vec<u32>,
    /// The CPUs of I/O cores, which read ports and hand frames to workers.
    pub io_cores: Vec<u32>,
    /// How frames come to workers.
    pub dispatch: DispatchMode,
    /// Who sends; none: the workers where the device has a queue for each, else the I/O core.
    pub transmit: Option<Transmit>,
    /// What a worker does without traffic.
    pub idle: Idle,
    /// Memory from huge pages; `false`: from pages of 4 KiB, which costs speed.
    pub huge_pages: bool,
    /// Memory for frames, MiB.
    pub memory_mib: u32,
    /// Both directions of a translated connection are given to one core.
    pub same_core: bool,
    /// `[engine.port.NAME]`: its ports, by the name that the kernel has for them.
    pub port: BTreeMap<String, EnginePort>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            core: None,
            cores: Vec::new(),
            io_cores: Vec::new(),
            dispatch: DispatchMode::Rss,
            transmit: None,
            idle: Idle::Poll,
            huge_pages: true,
            memory_mib: 256,
            same_core: false,
            port: BTreeMap::new(),
        }
    }
}

/// What a worker does without traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idle {
    /// It looks for frames all the time: the least delay, and a core that is always busy.
    #[default]
    Poll,
    /// It sleeps until frames come, or where a device cannot wake it, naps.
    Sleep,
}

/// How frames of a port come to workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum DispatchMode {
    /// Each worker reads a queue of the device, which spreads flows over them.
    #[default]
    Rss,
    /// An I/O core reads, and hands each bucket of flows to its worker.
    Dispatch,
    /// The same, and buckets move from workers that are full to those that are not.
    Balanced,
}

impl DispatchMode {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DispatchMode::Rss => "rss",
            DispatchMode::Dispatch => "dispatch",
            DispatchMode::Balanced => "balanced",
        }
    }
}

/// Who sends frames by a port that an I/O core reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transmit {
    /// Each worker, by a queue of its own.
    Worker,
    /// The I/O core.
    Io,
}

/// Most workers (`FWE_WORKERS_MAX`).
pub const WORKERS_MAX: usize = 16;

/// `[engine.port.NAME]`: one port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnginePort {
    /// A device on the PCI bus that a driver of DPDK's has, such as `0000:01:00.0`.
    pub pci: Option<String>,
    /// A virtual device as DPDK writes it, such as `net_af_packet0,iface=eth0`.
    pub vdev: Option<String>,
    /// The port itself, which stays the kernel's: XDP hands the engine's flows over by AF_XDP sockets.
    pub af_xdp: bool,
    /// MAC address, where the device is not to keep its own.
    pub mac: Option<String>,
    /// MTU in bytes, without the L2 header.
    pub mtu: Option<u32>,
    /// How its frames come to workers, where it is not as `[engine]` says.
    pub dispatch: Option<DispatchMode>,
    /// Rates and classes of what leaves there.
    pub schedule: Option<ScheduleConfig>,
    /// Inputs on other NUMA nodes whose frames are copied to this port's node before they leave here; others are handed over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copy_from: Vec<String>,
}

impl EngineConfig {
    /// True if XDP may have to hand frames to the engine.
    #[must_use]
    pub fn has_sockets(&self) -> bool {
        self.port.values().any(|port| port.af_xdp)
    }

    /// Whether a port is the engine's own, or shared with XDP; `None`: it is none of the engine's.
    #[must_use]
    pub fn owns(&self, port: &str) -> Option<bool> {
        self.port.get(port).map(|port| !port.af_xdp)
    }

    /// The CPUs of the workers.
    #[must_use]
    pub fn workers(&self) -> Vec<u32> {
        match self.core {
            Some(core) => vec![core],
            None if self.cores.is_empty() => vec![1],
            None => self.cores.clone(),
        }
    }

    /// How a port's frames come to workers.
    #[must_use]
    pub fn mode(&self, port: &EnginePort) -> DispatchMode {
        port.dispatch.unwrap_or(self.dispatch)
    }

    fn check_cores(&self) -> Result<(), String> {
        if self.core.is_some() && !self.cores.is_empty() {
            return Err("engine: core is the short form of cores; remove one of both".into());
        }
        if self.cores.len() > WORKERS_MAX {
            return Err(format!("engine.cores: at most {WORKERS_MAX} workers"));
        }
        let mut cpus: Vec<_> = self.workers();
        cpus.extend(&self.io_cores);
        cpus.sort_unstable();
        let shared = cpus.windows(2).find(|pair| pair.first() == pair.last());
        if let Some([cpu, ..]) = shared
            && self.idle == Idle::Poll
        {
            return Err(format!(
                "engine.cores, io_cores: CPU {cpu} is named twice; with idle = \"poll\" each core needs one of its own"
            ));
        }
        if self.transmit.is_some() && self.io_cores.is_empty() {
            return Err(
                "engine.transmit: there are no io_cores, so each worker sends; remove it".into(),
            );
        }
        Ok(())
    }

    fn check_mode(&self, name: &str, port: &EnginePort) -> Result<(), String> {
        let mode = self.mode(port);
        if mode != DispatchMode::Rss && self.io_cores.is_empty() {
            return Err(format!(
                "engine.port.{name}: dispatch = \"{}\" takes an I/O core; name one in engine.io_cores",
                mode.name()
            ));
        }
        if mode == DispatchMode::Rss && port.af_xdp && self.workers().len() > 1 {
            return Err(format!(
                "engine.port.{name}: the sockets of a port with af_xdp are of one core; with several workers it takes \
                 engine.io_cores and dispatch = \"dispatch\" or \"balanced\""
            ));
        }
        Ok(())
    }

    /// What types cannot express; an error names the key.
    pub fn check(&self) -> Result<(), String> {
        self.check_cores()?;
        if self.same_core && self.port.is_empty() {
            return Err(
                "engine.same_core: the engine has no port; add an [engine.port.NAME], or remove the key"
                    .into(),
            );
        }
        for (name, port) in &self.port {
            let table = format!("engine.port.{name}");
            if name.is_empty() || name.len() > 15 || name.contains(['/', ' ', ':']) {
                return Err(format!(
                    "{table}: a network interface has 1 to 15 characters, none of them / : or a space"
                ));
            }
            let devices = [port.pci.is_some(), port.vdev.is_some(), port.af_xdp];
            match devices.iter().filter(|named| **named).count() {
                1 => {}
                0 => {
                    return Err(format!(
                        "{table}: it names no device; give it pci, vdev or af_xdp = true"
                    ));
                }
                _ => return Err(format!("{table}: pci, vdev and af_xdp exclude each other")),
            }
            if port.af_xdp && (port.mac.is_some() || port.mtu.is_some()) {
                return Err(format!(
                    "{table}: with af_xdp the port keeps the MAC address and MTU that the kernel has for it; remove mac and mtu"
                ));
            }
            if let Some(schedule) = &port.schedule {
                if port.af_xdp {
                    return Err(format!(
                        "{table}: with af_xdp what leaves does not all pass the engine; remove schedule, and shape with tc"
                    ));
                }
                schedule.check(&format!("{table}.schedule"))?;
            }
            if port.af_xdp && !port.copy_from.is_empty() {
                return Err(format!(
                    "{table}: with af_xdp each frame is copied to the port's own memory; remove copy_from"
                ));
            }
            if let Some(input) = port
                .copy_from
                .iter()
                .find(|name| !self.port.contains_key(*name))
            {
                return Err(format!(
                    "{table}: copy_from names {input}, which is no port of the engine"
                ));
            }
            if port.mtu.is_some_and(|mtu| !(68..=9000).contains(&mtu)) {
                return Err(format!("{table}: mtu must be 68 to 9000"));
            }
            if let Some(mac) = &port.mac
                && mac_of(mac).is_none_or(|mac| mac[0] & 1 != 0 || mac == [0; 6])
            {
                return Err(format!(
                    "{table}: mac {mac} is no address of one station, such as 02:00:00:00:00:01"
                ));
            }
            self.check_mode(name, port)?;
        }
        Ok(())
    }
}

/// A MAC address as people write it.
#[must_use]
pub fn mac_of(text: &str) -> Option<[u8; 6]> {
    let mut parts = text.split(':');
    let mut mac = [0; 6];
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// What the engine says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Said {
    /// First: who it is.
    Hello(Hello),
    /// Every second: what it has done since it started.
    Counts(EngineCounts),
    /// Packets of the watched tuple that it has forwarded since it said so last.
    Watched(Vec<WatchedFast>),
    /// It goes by the framings of that number, and no longer by those before.
    Framed(u64),
    /// It goes by the schedules of that number, and no longer by those before.
    Scheduled(Scheduled),
    /// Every second, of each port with a scheduler: what has become of its classes' frames.
    Classes(Vec<ClassCounts>),
    /// It copies by the rules of that number, and no longer by those before.
    Mirrored(Mirrored),
    /// It goes by the tables of that number, or cannot.
    Routed(Routed),
}

/// What the engine made of tables of prefix paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routed {
    /// Of which ones.
    pub number: u64,
    /// Why it cannot go by them, in words.
    pub refused: Option<String>,
}

/// Packets of a tuple that is watched, at a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchedFast {
    /// `struct fw_tuple`, as they came in.
    pub tuple: Vec<u8>,
    /// Interface index.
    pub port: u32,
    /// How many.
    pub packets: u64,
}

/// The engine as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// `freeway_abi::DIGEST` of its build.
    pub abi: u64,
    /// [`MESSAGES`] of its build.
    #[serde(default)]
    pub messages: u32,
    /// Its version.
    pub version: String,
    /// Its DPDK's.
    pub dpdk: String,
    /// Its process.
    pub pid: u32,
    /// Interface indices of its TAPs: all of such a port's frames are its.
    pub ports: Vec<u32>,
    /// Its AF_XDP sockets, whose descriptors come along in this order.
    pub sockets: Vec<Socket>,
}

/// An AF_XDP socket at a queue of a port that stays the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Socket {
    /// Interface index.
    pub port: u32,
    /// Number of the queue.
    pub queue: u32,
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The table is yours, too: the descriptors of flows, next hops, control and watch come along, in this order.
    Table(Table),
    /// No; why, in words.
    Refused(String),
    /// A port of its configuration cannot be what it is to be; why, in words.
    Unfit(String),
    /// Later: these are the framings at your ports, in the place of those before.
    Framings(Framings),
    /// Later: frames of a port are to come to workers otherwise.
    Dispatch(DispatchChange),
    /// Later: these are the schedulers of your outputs, in the place of those before.
    Schedules(Schedules),
    /// Later: these rules copy frames, in the place of those before.
    Mirrors(Mirrors),
    /// Later: packets without a flow leave by these tables, in the place of those before; none: they are the kernel's. The
    /// descriptors of prefixes of IPv4 and of IPv6, what is the same at all ports, next hops, what is known at your ports, and
    /// counters come along, in this order.
    Routes(Option<RouteTables>),
}

/// What is to be known of the tables of prefix paths to read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteTables {
    /// What they are to be called.
    pub number: u64,
    /// Next hops - 1.
    pub hop_mask: u32,
    /// Counters - 1: `FW_LEAVES` of each CPU, then of each worker, if there are so many.
    pub count_mask: u32,
    /// So many CPUs.
    pub cpus: u32,
}

/// `freeway engine dispatch PORT MODE`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DispatchQuery {
    /// The port's name.
    pub port: String,
    /// How its frames are to come to workers.
    pub mode: DispatchMode,
}

/// `freeway engine dispatch`: how frames of each of the engine's ports come to workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatching {
    /// By port.
    pub ports: Vec<PortDispatch>,
}

/// How frames of a port are to come to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DispatchChange {
    /// Interface index.
    pub port: u32,
    /// From now on.
    pub mode: DispatchMode,
}

/// Schedulers of the engine's outputs; no two are of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedules {
    /// What it is to be called.
    pub number: u64,
    /// All of them.
    pub schedules: Vec<Schedule>,
}

/// What the engine made of schedules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    /// Of which ones.
    pub number: u64,
    /// Ports, by interface index, whose schedule it cannot go by; why, in words.
    pub refused: Vec<(u32, String)>,
}

/// Rules by which the engine copies frames for who looks on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mirrors {
    /// What they are to be called.
    pub number: u64,
    /// Each with a mirror, in their order.
    pub rules: Vec<SteerRule>,
}

/// What the engine made of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mirrored {
    /// Of which ones.
    pub number: u64,
    /// By these nothing is copied: the rule and why, in words.
    pub refused: Vec<String>,
}

/// The VLANs and PPPoE sessions at the engine's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Framings {
    /// What it is to be called.
    pub number: u64,
    /// `struct fw_framing` and `struct fw_framed` of each; at most [`FRAMINGS_MAX`].
    pub framings: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What is to be known of the table to read it: of `struct fw_config`, and of the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Flows - 1.
    pub flow_mask: u32,
    /// Next hops - 1.
    pub nexthop_mask: u32,
    /// What is left of a hash is a flow's home.
    pub hash_shift: u32,
    /// The secret of the hash.
    pub hash_key: Vec<u64>,
    /// Ticks a second.
    pub hz: u32,
    /// Ticks between two checks of a connection.
    pub ct_check_ticks: u32,
    /// CLOCK_MONOTONIC, nanoseconds,
    pub clock_ns: u64,
    /// at which this tick had just begun.
    pub clock_tick: u32,
}

/// What the engine has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineCounts {
    /// Frames that it forwarded.
    pub forwarded: u64,
    /// Of these, packets without a flow that left by their destination.
    pub routed: u64,
    /// Frames that it gave to the kernel.
    pub exceptions: u64,
    /// Frames for the kernel that found no room.
    pub exceptions_dropped: u64,
    /// The kernel's frames that it sent.
    pub from_kernel: u64,
    /// Frames that a port did not take.
    pub tx_dropped: u64,
    /// Frames that XDP handed over and that found no room.
    pub sockets_dropped: u64,
    /// Frames that it copied to another node's memory.
    pub copied: u64,
    /// Frames that were to be copied and were handed over, for that memory was short.
    pub not_copied: u64,
    /// Rules by which it copies frames for who looks on.
    pub mirrors: u32,
    /// Copies that it gave to their port.
    pub mirrored: u64,
    /// Copies that found no memory, or no room at their port.
    pub not_mirrored: u64,
    /// Share of the last second that the workers spent with frames, in thousandths: their mean.
    pub busy_permille: u32,
    /// Share that they slept, likewise.
    pub asleep_permille: u32,
    /// How often they woke.
    pub wakeups: u64,
    /// Frames of a mean burst, in hundredths.
    pub burst_percent: u32,
    /// Cycles of a frame.
    pub cycles: u32,
    /// Buffers that are free.
    pub pool_free: u32,
    /// Of so many.
    pub pool_size: u32,
    /// Each worker, in the order of the configuration.
    pub workers: Vec<WorkerCounts>,
    /// Each I/O core, likewise.
    pub io: Vec<IoCounts>,
    /// How frames of each port come to workers, and how they could.
    pub dispatch: Vec<PortDispatch>,
    /// Frames that an I/O core could not hand over: a worker's ring was full.
    pub dispatch_dropped: u64,
    /// Buckets of flows that moved from one worker to another.
    pub moves: u64,
    /// Moves that were called off: the old worker took too long, or too much came meanwhile.
    pub moves_called_off: u64,
    /// Frames that waited for a move's end.
    pub parked: u64,
    /// What a frame costs a worker, by its path: medians over the workers.
    pub model: Vec<PathCost>,
    /// The last decisions of the controller, the newest last.
    pub decisions: Vec<String>,
}

/// What a worker has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerCounts {
    /// Its CPU.
    pub cpu: u32,
    /// Share of the last second that it spent with frames, in thousandths.
    pub busy_permille: u32,
    /// Share that it slept, likewise.
    pub asleep_permille: u32,
    /// How often it woke.
    pub wakeups: u64,
    /// Frames that it took.
    pub packets: u64,
    /// Frames of a mean burst, in hundredths.
    pub burst_percent: u32,
    /// Cycles of a frame.
    pub cycles: u32,
    /// Buckets that are its, at ports that are balanced.
    pub buckets: u32,
}

/// What an I/O core has done since it started; cycles are of a frame that it read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoCounts {
    /// Its CPU.
    pub cpu: u32,
    /// Share of the last second that it spent with frames, in thousandths.
    pub busy_permille: u32,
    /// Share that it slept, likewise.
    pub asleep_permille: u32,
    /// How often it woke.
    pub wakeups: u64,
    /// Frames that it read.
    pub packets: u64,
    /// Frames that it sent for workers.
    pub transmitted: u64,
    /// Taking bursts out of devices.
    pub receive_cycles: u32,
    /// Finding their buckets.
    pub hash_cycles: u32,
    /// Putting them into the rings to workers.
    pub ring_cycles: u32,
}

/// How frames of a port come to workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortDispatch {
    /// Its name.
    pub port: String,
    /// Interface index.
    pub ifindex: u32,
    /// Now.
    pub mode: DispatchMode,
    /// What it could be changed to.
    pub modes: Vec<DispatchMode>,
}

/// What a frame of a path costs a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCost {
    /// `plain`, `routed`, `step_by_step` or `kernel`; beside one of these `mirror`, for a copy, and `schedule`, for a scheduler's queue.
    pub path: String,
    /// Cycles.
    pub cycles: u32,
}

/// `freeway status`: the engine that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// Its version.
    pub version: String,
    /// Its DPDK's.
    pub dpdk: String,
    /// Its process.
    pub pid: u32,
    /// Its ports.
    pub ports: Vec<String>,
    /// Flows that it forwards.
    pub flows: u64,
    /// What it has done.
    pub counts: EngineCounts,
    /// What its schedulers have done, by port and class.
    #[serde(default)]
    pub classes: Vec<EngineClass>,
}

/// `freeway status`: a class of a scheduler of the engine's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineClass {
    /// The port's name.
    pub port: String,
    /// What its figures are from: `htb`, `tbf`, `prio`, `configuration`.
    pub kind: String,
    /// Its name: tc's, such as `1:20`, or that of the configuration.
    pub class: String,
    /// Frames that left.
    pub packets: u64,
    /// Their octets.
    pub bytes: u64,
    /// Frames that found no room.
    pub dropped: u64,
    /// Frames that wait.
    pub waiting: u64,
    /// Their octets.
    pub waiting_bytes: u64,
    /// Mean of what those that left have waited, nanoseconds.
    pub delay_mean_ns: u64,
    /// 99 % of them have waited less, nanoseconds: a power of two times 1,024.
    pub delay_p99_below_ns: u64,
}

/// `freeway status`: translated connections of the engine's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameCore {
    /// Where they come in.
    pub ports: Vec<SameCorePort>,
    /// Those with both directions in one bucket, as they were learned.
    pub together: u64,
    /// Those with the answers in another one.
    pub apart: u64,
    /// First packets that were preceded by a port for their source.
    pub precedents: u64,
    /// Those that were not, since the ports that were tried are others'.
    pub ports_taken: u64,
    /// Those for which a full conntrack took none.
    pub refused: u64,
}

/// A port at which translated connections come in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameCorePort {
    /// Its name.
    pub name: String,
    /// Addresses that they are translated to.
    pub addresses: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_they_were_written() {
        let hello = Said::Hello(Hello {
            abi: u64::MAX,
            messages: MESSAGES,
            version: "1".into(),
            dpdk: "2".into(),
            pid: 3,
            ports: vec![4, 5],
            sockets: vec![Socket { port: 6, queue: 1 }],
        });
        let text = serde_json::to_string(&hello).unwrap();
        assert_eq!(serde_json::from_str::<Said>(&text).unwrap(), hello);
        let table = Answer::Table(Table {
            hash_key: vec![u64::MAX, 1],
            ..Table::default()
        });
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), table);
    }

    #[test]
    fn cores_and_modes_fit_each_other() {
        let check = |keys: &str, port: &str| {
            let text = format!(r#"{{{keys}"port": {{"lan0": {port}}}}}"#);
            let config: EngineConfig = serde_json::from_str(&text).unwrap();
            config.check().map(|()| config.workers())
        };
        let with = |keys: &str| check(keys, r#"{"vdev": "net_null0"}"#);
        assert_eq!(with(""), Ok(vec![1]));
        assert_eq!(with(r#""core": 3, "#), Ok(vec![3]));
        assert_eq!(with(r#""cores": [1, 2], "#), Ok(vec![1, 2]));
        let two = r#""cores": [1, 2], "io_cores": [0], "#;
        let balanced = format!(r#"{two}"dispatch": "balanced", "transmit": "io", "#);
        assert_eq!(with(&balanced), Ok(vec![1, 2]));
        let crowded = r#""cores": [0, 0], "io_cores": [0], "idle": "sleep", "#;
        assert_eq!(with(crowded), Ok(vec![0, 0]));
        let many = format!(r#""cores": {:?}, "#, [1; WORKERS_MAX + 1]);
        for (keys, words) in [
            (r#""core": 1, "cores": [1], "#, "remove one of both"),
            (r#""cores": [1], "io_cores": [1], "#, "CPU 1 is named twice"),
            (r#""cores": [2, 2], "#, "CPU 2 is named twice"),
            (r#""io_cores": [1], "#, "CPU 1 is named twice"),
            (r#""dispatch": "dispatch", "#, "name one in engine.io_cores"),
            (r#""transmit": "io", "#, "no io_cores"),
            (&many, "at most 16"),
        ] {
            let error = with(keys).unwrap_err();
            assert!(error.contains(words), "{keys}: {error}");
        }
        let shared = r#"{"af_xdp": true}"#;
        let error = check(r#""cores": [1, 2], "#, shared).unwrap_err();
        assert!(error.contains("\"balanced\""), "{error}");
        let own = r#"{"af_xdp": true, "dispatch": "dispatch"}"#;
        assert_eq!(check(two, own), Ok(vec![1, 2]));
    }

    #[test]
    fn same_core_wants_a_port() {
        let mut config = EngineConfig {
            same_core: true,
            ..EngineConfig::default()
        };
        let error = config.check().unwrap_err();
        assert!(error.contains("add an [engine.port.NAME]"), "{error}");
        let port = EnginePort {
            af_xdp: true,
            ..EnginePort::default()
        };
        config.port.insert("lan0".into(), port);
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn a_port_names_one_device() {
        let check = |name: &str, port: EnginePort| {
            let port = BTreeMap::from([(name.to_owned(), port)]);
            let config = EngineConfig {
                port,
                ..EngineConfig::default()
            };
            config.check()
        };
        let vdev = || EnginePort {
            vdev: Some("net_null0".into()),
            ..EnginePort::default()
        };
        assert_eq!(check("lan0", vdev()), Ok(()));
        let wrong = |result: Result<(), String>, words: &str| {
            let error = result.unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        wrong(check("lan0", EnginePort::default()), "pci, vdev or af_xdp");
        let mut socket = EnginePort {
            af_xdp: true,
            ..EnginePort::default()
        };
        assert_eq!(check("lan0", socket.clone()), Ok(()));
        socket.mtu = Some(1400);
        wrong(check("lan0", socket.clone()), "remove mac and mtu");
        socket.vdev = Some("net_null0".into());
        wrong(check("lan0", socket), "exclude each other");
        wrong(check("a/b", vdev()), "1 to 15 characters");
        let mut both = vdev();
        both.pci = Some("0000:01:00.0".into());
        wrong(check("lan0", both), "exclude");
        let mut port = vdev();
        port.mtu = Some(9001);
        wrong(check("lan0", port.clone()), "68 to 9000");
        port.mtu = None;
        for mac in ["01:00:00:00:00:01", "2:0:0:0:0:1", "02:00:00:00:00", ""] {
            port.mac = Some(mac.into());
            wrong(check("lan0", port.clone()), "one station");
        }
    }
}
