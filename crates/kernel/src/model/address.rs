// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address families, MAC addresses and prefixes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The IP version of a route, rule, connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// AF_INET.
    Ipv4,
    /// AF_INET6.
    Ipv6,
}

impl Family {
    /// The family of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Family::Ipv4,
            IpAddr::V6(_) => Family::Ipv6,
        }
    }

    /// AF_INET or AF_INET6.
    pub fn number(self) -> u8 {
        match self {
            Family::Ipv4 => libc::AF_INET as u8,
            Family::Ipv6 => libc::AF_INET6 as u8,
        }
    }

    /// The family with an AF_ number; `None` for others than IPv4 and IPv6.
    pub fn from_number(number: u8) -> Option<Self> {
        match i32::from(number) {
            libc::AF_INET => Some(Family::Ipv4),
            libc::AF_INET6 => Some(Family::Ipv6),
            _ => None,
        }
    }
}

/// A MAC address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String")]
#[serde(try_from = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// True for group addresses, broadcast included.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut mac = [0u8; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            *byte = parts
                .next()
                .and_then(|part| u8::from_str_radix(part, 16).ok())
                .ok_or_else(|| format!("{text} is no MAC address"))?;
        }
        if parts.next().is_some() {
            return Err(format!("{text} is no MAC address"));
        }
        Ok(Mac(mac))
    }
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Prefix {
    /// The network address, as the kernel gives it.
    pub addr: IpAddr,
    /// The prefix length in bits.
    pub len: u8,
}

impl Prefix {
    /// The prefix that holds every address of a family.
    pub fn all(family: Family) -> Self {
        let addr = match family {
            Family::Ipv4 => IpAddr::from([0u8; 4]),
            Family::Ipv6 => IpAddr::from([0u8; 16]),
        };
        Prefix { addr, len: 0 }
    }

    /// Its first and last address.
    pub fn range(&self) -> (IpAddr, IpAddr) {
        match self.addr {
            IpAddr::V4(net) => {
                let rest = u32::MAX.checked_shr(self.len.into()).unwrap_or(0);
                let (first, last) = (net.to_bits() & !rest, net.to_bits() | rest);
                (Ipv4Addr::from(first).into(), Ipv4Addr::from(last).into())
            }
            IpAddr::V6(net) => {
                let rest = u128::MAX.checked_shr(self.len.into()).unwrap_or(0);
                let (first, last) = (net.to_bits() & !rest, net.to_bits() | rest);
                (Ipv6Addr::from(first).into(), Ipv6Addr::from(last).into())
            }
        }
    }

    /// True if the prefix holds the address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.addr, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32u32.saturating_sub(u32::from(self.len));
                net.to_bits().checked_shr(shift) == ip.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128u32.saturating_sub(u32::from(self.len));
                net.to_bits().checked_shr(shift) == ip.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}
