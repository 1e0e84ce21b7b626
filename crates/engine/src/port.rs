// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device of DPDK's, and its face in the kernel.

use std::ffi::CString;
use std::io;
use std::ptr::NonNull;

use freeway_api::engine::{EnginePort, mac_of};

use crate::config::device;
use crate::ffi::{
    fwe_pool_available, fwe_pool_free, fwe_pool_new, fwe_port_find, fwe_port_has_link,
    fwe_port_mac, fwe_port_mtu, fwe_port_start, fwe_port_stop, rte_mempool,
};
use crate::tap::Tap;

/// The memory of all frames.
#[derive(Debug)]
pub struct Pool {
    pool: NonNull<rte_mempool>,
    frames: u32,
}

// SAFETY: the pool may be used by any thread.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// For frames of at most so many octets.
    pub fn new(frames: u32, room: u16) -> Result<Self, String> {
        // SAFETY: DPDK has been started.
        let pool = unsafe { fwe_pool_new(frames, room) };
        let pool = NonNull::new(pool).ok_or_else(|| {
            format!("no memory for {frames} frames of {room} octets: raise memory_mib in [engine]")
        })?;
        Ok(Self { pool, frames })
    }

    pub(crate) fn as_ptr(&self) -> *mut rte_mempool {
        self.pool.as_ptr()
    }

    /// Frames that are free, and all that there are.
    #[must_use]
    pub fn level(&self) -> (u32, u32) {
        // SAFETY: it lives.
        (unsafe { fwe_pool_available(self.as_ptr()) }, self.frames)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: it lives, and no port has frames of it any more.
        unsafe { fwe_pool_free(self.as_ptr()) };
    }
}

/// A device that has been started.
#[derive(Debug)]
struct Device(u16);

impl Device {
    fn start(name: &str, config: &EnginePort, pool: &Pool) -> Result<Self, String> {
        let device = device(config);
        let found = CString::new(device).map_err(|_| format!("{device:?} is no device"))?;
        // SAFETY: a string; DPDK has been started.
        let number = u16::try_from(unsafe { fwe_port_find(found.as_ptr()) }).map_err(|_| {
            format!("engine.port.{name}: DPDK has no device {device}: see its messages above")
        })?;
        let mac = config.mac.as_deref().and_then(mac_of);
        let mtu = config.mtu.unwrap_or(0) as u16;
        let own = mac.as_ref().map_or(std::ptr::null(), |mac| mac.as_ptr());
        // SAFETY: six octets or none; the pool lives as long as the port.
        match unsafe { fwe_port_start(number, own, mtu, pool.as_ptr()) } {
            0 => Ok(Self(number)),
            rc => {
                let why = io::Error::from_raw_os_error(-rc);
                Err(format!("engine.port.{name}: cannot start {device}: {why}"))
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

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: started, and no worker uses it any more.
        unsafe { fwe_port_stop(self.0) };
    }
}

/// One port of the engine.
#[derive(Debug)]
pub struct Port {
    device: Device,
    /// Its face in the kernel.
    pub tap: Tap,
    /// Of that.
    pub ifindex: u32,
}

impl Port {
    /// Starts the device and makes its TAP, which goes again unless it is kept.
    pub fn start(name: &str, config: &EnginePort, pool: &Pool) -> Result<Self, String> {
        let started = Device::start(name, config, pool)?;
        let (mac, mtu) = started
            .look()
            .ok_or_else(|| format!("{} does not say its MAC address and MTU", device(config)))?;
        let mac = config.mac.as_deref().and_then(mac_of).unwrap_or(mac);
        // its address at once: with another one the kernel forgets the neighbours that were told to it meanwhile
        let tap = Tap::open(name)?;
        tap.resemble(mac, config.mtu.unwrap_or(mtu))?;
        Ok(Self {
            device: started,
            ifindex: tap.ifindex()?,
            tap,
        })
    }

    /// DPDK's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.device.0
    }

    /// The TAP says that there is a link if the device has one.
    pub fn follow_link(&mut self) -> Result<(), String> {
        // SAFETY: takes a number.
        let up = unsafe { fwe_port_has_link(self.number()) } != 0;
        self.tap.set_carrier(up)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _ = self.tap.set_carrier(false);
    }
}
