// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ports are judged by.

use freeway_kernel::model::Family;

/// What the kernel does not tell of an IPv6 device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device6 {
    /// `net.ipv6.conf.DEVICE.mtu`, which routers' advertisements may have lowered.
    pub mtu: u32,
    /// `disable_ipv6` is not set.
    pub enabled: bool,
}

/// Why no port has prefix paths of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    pub ipv4: Option<String>,
    pub ipv6: Option<String>,
}

impl Reasons {
    pub fn of(&self, family: Family) -> &Option<String> {
        match family {
            Family::Ipv4 => &self.ipv4,
            Family::Ipv6 => &self.ipv6,
        }
    }

    /// None has any, and why; of both IPv4's.
    pub fn of_both(&self) -> Option<&String> {
        self.ipv4.as_ref().filter(|_| self.ipv6.is_some())
    }
}
