// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port: a device of DPDK's and its face in the kernel, or one of the kernel's.

use std::ffi::CString;
use std::io;

use freeway_api::engine::{DispatchMode, EngineConfig, EnginePort, Idle, Transmit, mac_of};

use crate::config::device;
use crate::ffi::{
    fwe_port_config, fwe_port_find, fwe_port_has_link, fwe_port_mac, fwe_port_mtu, fwe_port_queues,
    fwe_port_start, fwe_port_stop, fwe_port_wakes,
};
use crate::pool::Pool;
use crate::schedule::Schedule;
use crate::sockets::Sockets;
use crate::tap::Tap;

/// A device of DPDK's that has been started, by its number.
#[derive(Debug)]
struct Started(u16);

/// Queues that are used, and who sends.
#[derive(Clone, Copy, Debug)]
struct Queues {
    rx: u16,
    tx: u16,
    /// All that the device has.
    of: (u16, u16),
    /// The I/O core sends.
    by_io: bool,
    /// Frames that come in wake a core that sleeps.
    wakes: bool,
}

impl Queues {
    /// Of a device that has so many, for so many workers.
    fn choose(
        (rx, tx): (u16, u16),
        workers: u16,
        io: bool,
        transmit: Option<Transmit>,
    ) -> Result<Self, String> {
        let enough = tx >= workers;
        let by_io = match transmit {
            Some(Transmit::Worker) if !enough => {
                return Err(format!(
                    "its device has {tx} queues to send by, fewer than the {workers} workers: remove engine.transmit = \"worker\""
                ));
            }
            Some(Transmit::Worker) => false,
            Some(Transmit::Io) => true,
            None => io && !enough,
        };
        Ok(Self {
            rx: rx.min(workers),
            tx: if by_io { 1 } else { tx.min(workers) },
            of: (rx, tx),
            by_io,
            wakes: false,
        })
    }
}

impl Started {
    fn of(
        name: &str,
        engine: &EngineConfig,
        config: &EnginePort,
        pool: &Pool,
    ) -> Result<(Self, Queues), String> {
        let device = device(config);
        let found = CString::new(device).map_err(|_| format!("{device:?} is no device"))?;
        // SAFETY: a string; DPDK has been started.
        let number = u16::try_from(unsafe { fwe_port_find(found.as_ptr()) }).map_err(|_| {
            format!("engine.port.{name}: DPDK has no device {device}: see its messages above")
        })?;
        let (mut rx, mut tx) = (0, 0);
        // SAFETY: room for two numbers.
        if unsafe { fwe_port_queues(number, &raw mut rx, &raw mut tx) } != 0 {
            return Err(format!(
                "engine.port.{name}: {device} does not say its queues"
            ));
        }
        let io = !engine.io_cores.is_empty();
        let workers = engine.workers().len() as u16;
        let mut queues = Queues::choose((rx, tx), workers, io, engine.transmit)
            .map_err(|why| format!("engine.port.{name}: {why}"))?;
        let mac = config.mac.as_deref().and_then(mac_of);
        let start = fwe_port_config {
            mac: mac.as_ref().map_or(std::ptr::null(), |mac| mac.as_ptr()),
            mtu: config.mtu.unwrap_or(0) as u16,
            rx_queues: queues.rx,
            tx_queues: queues.tx,
            interrupts: u16::from(engine.idle == Idle::Sleep),
        };
        // SAFETY: six octets or none; the pool lives as long as the port.
        match unsafe { fwe_port_start(number, &raw const start, pool.as_ptr()) } {
            0 => {
                let started = Self(number);
                // SAFETY: it has been started.
                queues.wakes =
                    engine.idle == Idle::Sleep && unsafe { fwe_port_wakes(number, queues.rx) } != 0;
                Ok((started, queues))
            }
            rc => {
                let why = io::Error::from_raw_os_error(-rc);
                let lacks = match device.starts_with("net_af_xdp") && !may_have_sys_admin() {
                    true => {
                        "; libxdp, which it goes by, takes CAP_SYS_ADMIN, and `af_xdp = true` does not"
                    }
                    false => "",
                };
                Err(format!(
                    "engine.port.{name}: cannot start {device}: {why}{lacks}"
                ))
            }
        }
    }

    /// Its own MAC address and MTU.
    fn look(&self) -> Option<([u8; 6], u32)> {
        let mut mac = [0; 6];
        // SAFETY: room for six octets.
        let rc = unsafe { fwe_port_mac(self.0, mac.as_mut_ptr()) };
        // SAFETY: takes a number.
        let mtu = u32::try_from(unsafe { fwe_port_mtu(self.0) }).ok()?;
        (rc == 0).then_some((mac, mtu))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // SAFETY: started, and no worker uses it any more.
        unsafe { fwe_port_stop(self.0) };
    }
}

/// One port of the engine.
#[derive(Debug)]
pub struct Port {
    name: String,
    /// Of its device in the kernel.
    pub ifindex: u32,
    device: Device,
}

/// What is behind it.
#[derive(Debug)]
enum Device {
    /// DPDK's, and its face in the kernel.
    Dpdk(Started, Tap, Queues),
    /// The kernel's.
    Kernel(Sockets),
}

impl Port {
    /// Starts the device and makes its TAP, which goes again unless it is kept; or opens sockets at a port of the kernel's.
    pub fn start(
        name: &str,
        engine: &EngineConfig,
        config: &EnginePort,
        pool: &Pool,
    ) -> Result<Self, String> {
        if config.af_xdp {
            return Self::open(name, pool);
        }
        let (started, queues) = Started::of(name, engine, config, pool)?;
        let (mac, mtu) = started
            .look()
            .ok_or_else(|| format!("{} does not say its MAC address and MTU", device(config)))?;
        let mac = config.mac.as_deref().and_then(mac_of).unwrap_or(mac);
        // its address at once: with another one the kernel forgets the neighbours that were told to it meanwhile
        let tap = Tap::open(name)?;
        tap.resemble(mac, config.mtu.unwrap_or(mtu))?;
        Ok(Self {
            name: name.into(),
            ifindex: tap.ifindex()?,
            device: Device::Dpdk(started, tap, queues),
        })
    }

    fn open(name: &str, pool: &Pool) -> Result<Self, String> {
        let ifindex = index_of(name).ok_or_else(|| {
            format!(
                "engine.port.{name}: there is no such port; with af_xdp it is one of the kernel's"
            )
        })?;
        let sockets =
            Sockets::open(ifindex, pool).map_err(|error| format!("engine.port.{name}: {error}"))?;
        Ok(Self {
            name: name.into(),
            ifindex,
            device: Device::Kernel(sockets),
        })
    }

    /// In the kernel and in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its face in the kernel, where it has one.
    #[must_use]
    pub fn tap(&self) -> Option<&Tap> {
        match &self.device {
            Device::Dpdk(_, tap, _) => Some(tap),
            Device::Kernel(_) => None,
        }
    }

    /// Has the kernel's own frames find their leaves; `name_leaves` is told of those of the TAP's queues.
    pub fn sort(
        &mut self,
        schedule: &Schedule,
        name_leaves: impl FnOnce(&[u16]),
    ) -> Result<(), String> {
        let Device::Dpdk(_, tap, _) = &mut self.device else {
            return Err("its frames pass the engine by".into());
        };
        let (rules, other, leaves) = schedule.steering();
        if leaves.len() > tap.queues().len() {
            let name = tap.name();
            return Err(format!(
                "the TAP has been made with one queue: ip link delete {name}, and start the engine anew"
            ));
        }
        name_leaves(&leaves);
        tap.steer(&rules, other)
    }

    /// Its sockets, where it stays the kernel's.
    #[must_use]
    pub fn sockets(&self) -> Option<&Sockets> {
        match &self.device {
            Device::Dpdk(..) => None,
            Device::Kernel(sockets) => Some(sockets),
        }
    }

    /// DPDK's number of it.
    pub(crate) fn number(&self) -> u16 {
        match self.device {
            Device::Dpdk(Started(number), ..) => number,
            Device::Kernel(_) => 0,
        }
    }

    /// Queues of its device, to receive and to send by. The sockets of a port of the kernel's are one core's.
    pub(crate) fn queues(&self) -> (u16, u16) {
        match &self.device {
            Device::Dpdk(_, _, queues) => queues.of,
            Device::Kernel(_) => (1, 1),
        }
    }

    /// Those that are read.
    pub(crate) fn rx_queues(&self) -> u16 {
        match &self.device {
            Device::Dpdk(_, _, queues) => queues.rx,
            Device::Kernel(_) => 1,
        }
    }

    /// A worker's, or the last one.
    pub(crate) fn rx_queue(&self, worker: usize) -> u16 {
        (worker as u16).min(self.rx_queues().saturating_sub(1))
    }

    /// Likewise.
    pub(crate) fn tx_queue(&self, worker: usize) -> u16 {
        match &self.device {
            Device::Dpdk(_, _, queues) => (worker as u16).min(queues.tx.saturating_sub(1)),
            Device::Kernel(_) => 0,
        }
    }

    /// Frames that come in wake a core that sleeps, and it needs to look for none.
    pub(crate) fn wakes(&self) -> bool {
        match &self.device {
            Device::Dpdk(_, _, queues) => queues.wakes,
            Device::Kernel(_) => true,
        }
    }

    /// The I/O core sends by it, where there is one.
    pub(crate) fn transmits_by_io(&self) -> bool {
        match &self.device {
            Device::Dpdk(_, _, queues) => queues.by_io,
            Device::Kernel(_) => true,
        }
    }

    /// How frames can come to so many workers; `io`: there is an I/O core.
    pub(crate) fn modes(&self, workers: usize, io: bool) -> Vec<DispatchMode> {
        let (rx, tx) = self.queues();
        let each = |queues: u16| usize::from(queues) >= workers;
        let sends = each(tx) || (io && self.transmits_by_io());
        // a worker that has lanes never reads a socket
        let rss = each(rx) && sends && !(io && self.sockets().is_some());
        let dispatched = [DispatchMode::Dispatch, DispatchMode::Balanced];
        let rss = rss.then_some(DispatchMode::Rss);
        rss.into_iter()
            .chain(dispatched.into_iter().filter(|_| io))
            .collect()
    }

    /// The TAP says that there is a link if the device has one. An error says that a port of the kernel's is gone.
    pub fn follow_link(&mut self) -> Result<(), String> {
        match &mut self.device {
            Device::Dpdk(Started(number), tap, _) => {
                // SAFETY: takes a number.
                let up = unsafe { fwe_port_has_link(*number) } != 0;
                tap.set_carrier(up)
            }
            Device::Kernel(_) if index_of(&self.name) == Some(self.ifindex) => Ok(()),
            Device::Kernel(_) => Err(format!("{} is gone, or another one", self.name)),
        }
    }
}

/// `capable(CAP_SYS_ADMIN)` of what root runs: whether its bounding set has it (`PR_CAPBSET_READ`, prctl(2)).
fn may_have_sys_admin() -> bool {
    const CAP_SYS_ADMIN: libc::c_ulong = 21;
    // SAFETY: takes a number.
    unsafe { libc::prctl(libc::PR_CAPBSET_READ, CAP_SYS_ADMIN) == 1 }
}

fn index_of(name: &str) -> Option<u32> {
    nix::net::if_::if_nametoindex(name).ok()
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Device::Dpdk(_, tap, _) = &mut self.device {
            let _ = tap.set_carrier(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_as_many_as_workers_or_one() {
        let choose = |queues, workers, io, transmit| {
            let chosen = Queues::choose(queues, workers, io, transmit)?;
            Ok::<_, String>((chosen.rx, chosen.tx, chosen.by_io))
        };
        assert_eq!(choose((8, 8), 1, false, None), Ok((1, 1, false)));
        assert_eq!(choose((8, 8), 3, false, None), Ok((3, 3, false)));
        assert_eq!(choose((8, 8), 3, true, None), Ok((3, 3, false)));
        assert_eq!(choose((1, 1), 3, true, None), Ok((1, 1, true)));
        assert_eq!(
            choose((8, 8), 3, true, Some(Transmit::Io)),
            Ok((3, 1, true))
        );
        let error = choose((8, 2), 3, true, Some(Transmit::Worker)).unwrap_err();
        assert!(error.contains("fewer than the 3 workers"), "{error}");
    }
}
