// SPDX-License-Identifier: MIT OR Apache-2.0
//! What differs between IPv4 and IPv6.

use std::net::IpAddr;

use freeway_prefix::Address;

/// An address of either family in host order.
pub trait Ip: Address + 'static {
    /// Prefixes of destinations that the kernel treats apart from its routes: first address and length.
    const RESERVED: &'static [(Self, u8)];
    /// The kernel has a table of default routes beside the main one.
    const HAS_DEFAULT: bool;

    /// `None` if it is of the other family.
    #[must_use]
    fn of(ip: IpAddr) -> Option<Self>;

    /// For those who print it.
    #[must_use]
    fn ip(self) -> IpAddr;
}

impl Ip for u32 {
    /// `ip_route_input_slow()`.
    const RESERVED: &'static [(u32, u8)] = &[
        (0, 8),
        (0x7f00_0000, 8),
        (0xe000_0000, 4),
        (0xffff_ffff, 32),
    ];
    const HAS_DEFAULT: bool = true;

    fn of(ip: IpAddr) -> Option<Self> {
        match ip {
            IpAddr::V4(ip) => Some(ip.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    fn ip(self) -> IpAddr {
        IpAddr::V4(self.into())
    }
}

impl Ip for u128 {
    /// `ip6_rcv_core()`, `ip6_forward()`: none and loopback, mapped ones, link-local ones, groups.
    const RESERVED: &'static [(u128, u8)] = &[
        (0, 127),
        (0xffff << 32, 96),
        (0xfe80 << 112, 10),
        (0xff << 120, 8),
    ];
    const HAS_DEFAULT: bool = false;

    fn of(ip: IpAddr) -> Option<Self> {
        match ip {
            IpAddr::V4(_) => None,
            IpAddr::V6(ip) => Some(ip.to_bits()),
        }
    }

    fn ip(self) -> IpAddr {
        IpAddr::V6(self.into())
    }
}
