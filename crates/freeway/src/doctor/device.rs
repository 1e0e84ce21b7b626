// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a driver says of itself: ethtool's ioctls, which follow the caller's network namespace as /sys does not.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
/// ETH_FLAG_RXVLAN
const FLAG_RXVLAN: u32 = 1 << 8;
/// ETH_FLAG_LRO
const FLAG_LRO: u32 = 1 << 15;

/// What a driver says; `None` where it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The driver's name.
    pub driver: Option<String>,
    /// Generic receive offload.
    pub gro: Option<bool>,
    /// Large receive offload.
    pub lro: Option<bool>,
    /// TCP segmentation offload.
    pub tso: Option<bool>,
    /// Generic segmentation offload.
    pub gso: Option<bool>,
    /// The hardware strips VLAN tags, so that XDP does not see them.
    pub rx_vlan: Option<bool>,
}

#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

impl Device {
    /// Asks the driver of an interface.
    pub fn ask(name: &str) -> io::Result<Device> {
        let socket = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        let flags = value(&socket, name, ETHTOOL_GFLAGS);
        let switch = |cmd| value(&socket, name, cmd).map(|value| value != 0);
        Ok(Device {
            driver: driver(&socket, name),
            gro: switch(ETHTOOL_GGRO),
            lro: flags.map(|flags| flags & FLAG_LRO != 0),
            tso: switch(ETHTOOL_GTSO),
            gso: switch(ETHTOOL_GGSO),
            rx_vlan: flags.map(|flags| flags & FLAG_RXVLAN != 0),
        })
    }
}

fn value(socket: &OwnedFd, name: &str, cmd: u32) -> Option<u32> {
    let mut value = Value { cmd, data: 0 };
    // SAFETY: these commands write one `ethtool_value`.
    unsafe { ask(socket, name, (&raw mut value).cast()) }.then_some(value.data)
}

fn driver(socket: &OwnedFd, name: &str) -> Option<String> {
    let mut info = DriverInfo {
        cmd: ETHTOOL_GDRVINFO,
        driver: [0; 32],
        rest: [0; 160],
    };
    // SAFETY: the command writes one `ethtool_drvinfo`, 196 bytes.
    if !unsafe { ask(socket, name, (&raw mut info).cast()) } {
        return None;
    }
    CStr::from_bytes_until_nul(&info.driver)
        .ok()?
        .to_str()
        .ok()
        .map(str::to_owned)
}

/// # Safety
/// `data` points to what the command in it reads and writes.
unsafe fn ask(socket: &OwnedFd, name: &str, data: *mut libc::c_char) -> bool {
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return false;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = data;
    // SAFETY: the caller vouches for `data`; the request outlives the call.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_the_kernels() {
        assert_eq!(size_of::<Value>(), 8);
        assert_eq!(size_of::<DriverInfo>(), 196);
    }

    #[test]
    fn loopback_and_nothing() {
        assert_eq!(Device::ask("lo").unwrap().lro, Some(false));
        assert_eq!(Device::ask("no-such-port").unwrap(), Device::default());
        assert_eq!(
            Device::ask("a-name-that-is-too-long-for-linux").unwrap(),
            Device::default()
        );
    }
}
