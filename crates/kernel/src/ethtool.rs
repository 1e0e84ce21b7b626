// SPDX-License-Identifier: MIT OR Apache-2.0
//! Driver and offload features of a device (SIOCETHTOOL, `dev_ethtool`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::{Error, Result};
use crate::nla::{text, u32_at};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// More features than any kernel has.
const FEATURE_LIMIT: u32 = 1024;

/// A socket for ethtool requests, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
}

/// Who drives a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Driver {
    /// Name of the driver: veth, ixgbe, virtio_net...
    pub name: String,
    /// Its bus address, empty for virtual devices.
    pub bus: String,
}

impl Ethtool {
    /// Opens the socket.
    pub fn open() -> Result<Ethtool> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(Error::system(
                "open an ethtool socket",
                io::Error::last_os_error(),
            ));
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        Ok(Ethtool {
            socket: unsafe { OwnedFd::from_raw_fd(fd) },
        })
    }

    /// The driver of a device.
    pub fn driver(&self, interface: &str) -> Result<Driver> {
        // struct ethtool_drvinfo: cmd, driver, version, fw_version, bus_info (32 each)...
        let mut info = [0u8; 256];
        put(&mut info, 0, ETHTOOL_GDRVINFO);
        self.call(interface, "tell the driver of", &mut info)?;
        let part = |from: usize| text(info.get(from..from + 32).unwrap_or_default());
        Ok(Driver {
            name: part(4),
            bus: part(100),
        })
    }

    /// Which features are on, by the kernel's names: rx-vlan-hw-parse, rx-gro, tx-tcp-segmentation...
    pub fn features(&self, interface: &str) -> Result<BTreeMap<String, bool>> {
        // struct ethtool_sset_info: cmd, reserved, mask (64 bits), one count.
        let mut info = [0u8; 24];
        put(&mut info, 0, ETHTOOL_GSSET_INFO);
        put(&mut info, 8, low_word(1 << ETH_SS_FEATURES).0);
        put(&mut info, 12, low_word(1 << ETH_SS_FEATURES).1);
        self.call(interface, "count the features of", &mut info)?;
        let count = u32_at(&info, 16).unwrap_or(0).min(FEATURE_LIMIT);
        // struct ethtool_gstrings: cmd, set, length, names.
        let mut names = vec![0u8; 12 + count as usize * ETH_GSTRING_LEN];
        put(&mut names, 0, ETHTOOL_GSTRINGS);
        put(&mut names, 4, ETH_SS_FEATURES);
        put(&mut names, 8, count);
        self.call(interface, "name the features of", &mut names)?;
        // struct ethtool_gfeatures: cmd, size, blocks of available, requested, active, never changed.
        let blocks = count.div_ceil(32);
        let mut states = vec![0u8; 8 + blocks as usize * 16];
        put(&mut states, 0, ETHTOOL_GFEATURES);
        put(&mut states, 4, blocks);
        self.call(interface, "tell the features of", &mut states)?;
        let names = names
            .get(12..)
            .unwrap_or_default()
            .chunks_exact(ETH_GSTRING_LEN)
            .map(text);
        let active = |bit: usize| {
            u32_at(&states, 8 + bit / 32 * 16 + 8).is_some_and(|word| word >> (bit % 32) & 1 != 0)
        };
        let named = names.enumerate().filter(|(_, name)| !name.is_empty());
        let mut features = BTreeMap::new();
        features.extend(named.map(|(bit, name)| (name, active(bit))));
        Ok(features)
    }

    fn call(&self, interface: &str, what: &str, data: &mut [u8]) -> Result<()> {
        let fail = |error| Error::system(format!("{what} {interface}"), error);
        // struct ifreq: a name of 16 bytes, then a union whose pointer is used here.
        // SAFETY: all zeros is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = interface.as_bytes();
        if name.len() >= request.ifr_name.len() {
            return Err(fail(io::Error::from_raw_os_error(libc::ENODEV)));
        }
        for (slot, &byte) in request.ifr_name.iter_mut().zip(name) {
            *slot = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
        // SAFETY: `request` and the data it points to outlive the call, and the data is as long as the command
        // and the counts in it say.
        let done = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) };
        if done < 0 {
            Err(fail(io::Error::last_os_error()))
        } else {
            Ok(())
        }
    }
}

fn put(bytes: &mut [u8], offset: usize, value: u32) {
    if let Some(slot) = bytes.get_mut(offset..offset + 4) {
        slot.copy_from_slice(&value.to_ne_bytes());
    }
}

/// The two 32-bit words of a 64-bit number as they lie in memory.
fn low_word(value: u64) -> (u32, u32) {
    let bytes = value.to_ne_bytes();
    (
        u32_at(&bytes, 0).unwrap_or(0),
        u32_at(&bytes, 4).unwrap_or(0),
    )
}
