// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a selection: protocol, prefix, port range. They read and print as text.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An IP protocol: `tcp`, `udp`, `icmp`, `icmpv6`, `esp`, `gre` or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Proto(pub u8);

impl Proto {
    /// ICMP.
    pub const ICMP: Proto = Proto(1);
    /// TCP.
    pub const TCP: Proto = Proto(6);
    /// UDP.
    pub const UDP: Proto = Proto(17);
    /// GRE.
    pub const GRE: Proto = Proto(47);
    /// ESP.
    pub const ESP: Proto = Proto(50);
    /// ICMPv6.
    pub const ICMP6: Proto = Proto(58);

    const NAMES: [(Proto, &str); 6] = [
        (Self::TCP, "tcp"),
        (Self::UDP, "udp"),
        (Self::ICMP, "icmp"),
        (Self::ICMP6, "icmpv6"),
        (Self::ESP, "esp"),
        (Self::GRE, "gre"),
    ];

    /// The names that there are, for a message.
    pub fn names() -> String {
        Self::NAMES.map(|(_, name)| name).join(", ")
    }

    /// True of a name as it is printed.
    pub fn is_name(text: &str) -> bool {
        Self::NAMES.iter().any(|(_, name)| *name == text)
    }

    /// True if flows of it are told by something else than ports.
    pub fn has_id(self) -> bool {
        Self::NAMES.iter().any(|(proto, _)| *proto == self)
            && ![Self::TCP, Self::UDP].contains(&self)
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::NAMES.iter().find(|(proto, _)| proto == self);
        match known {
            Some((_, name)) => f.pad(name),
            None => f.pad(&self.0.to_string()),
        }
    }
}

impl FromStr for Proto {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let known = Self::NAMES.iter().find(|(_, name)| *name == lower);
        if let Some((proto, _)) = known {
            return Ok(*proto);
        }
        text.parse().map(Proto).map_err(|_| {
            let names = Self::names();
            format!("`{text}` is no protocol: write {names} or a number from 0 to 255")
        })
    }
}

/// An address or a network: `192.0.2.1`, `2001:db8::/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Prefix {
    /// The network address; host bits are zero.
    pub addr: IpAddr,
    /// Prefix length in bits.
    pub len: u8,
}

impl Prefix {
    /// True if the address is in the network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.addr, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                (net.to_bits() ^ ip.to_bits()) & mask4(self.len) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                (net.to_bits() ^ ip.to_bits()) & mask6(self.len) == 0
            }
            _ => false,
        }
    }
}

fn mask4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

fn mask6(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let full = if self.addr.is_ipv4() { 32 } else { 128 };
        if self.len == full {
            self.addr.fmt(f)
        } else {
            write!(f, "{}/{}", self.addr, self.len)
        }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no address or network: write 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32"
            )
        };
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| wrong())?;
        let full = if addr.is_ipv4() { 32 } else { 128 };
        let len = len.unwrap_or(full);
        if len > full {
            return Err(format!(
                "`{text}`: a prefix of this family has at most {full} bits"
            ));
        }
        let addr = match addr {
            IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & mask4(len)).into()),
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & mask6(len)).into()),
        };
        Ok(Prefix { addr, len })
    }
}

/// One port, or several in a row: `80`, `8000-8080`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "PortText")]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl PortRange {
    /// True if the port is in the range.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no port: write a number from 0 to 65535, or two with a dash between"
            )
        };
        let (first, last) = text.split_once(['-', ':']).unwrap_or((text, text));
        let first = first.parse().map_err(|_| wrong())?;
        let last = last.parse().map_err(|_| wrong())?;
        if first > last {
            return Err(format!("`{text}`: the first port is greater than the last"));
        }
        Ok(PortRange { first, last })
    }
}

/// A port range as written in JSON or TOML: a number or a string.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a port: a number from 0 to 65535, or a string such as \"8000-8080\""
)]
enum PortText {
    Number(u16),
    Text(String),
}

impl TryFrom<PortText> for PortRange {
    type Error = String;

    fn try_from(text: PortText) -> Result<Self, String> {
        match text {
            PortText::Number(port) => Ok(PortRange {
                first: port,
                last: port,
            }),
            PortText::Text(text) => text.parse(),
        }
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    )*};
}
as_text!(Proto, Prefix, PortRange);

macro_rules! from_text {
    ($($name:ident),*) => {$(
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )*};
}
from_text!(Proto, Prefix);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let net: Prefix = "192.0.2.77/24".parse().unwrap();
        assert_eq!(net.to_string(), "192.0.2.0/24");
        assert!(net.contains("192.0.2.9".parse().unwrap()));
        assert!(!net.contains("192.0.3.9".parse().unwrap()));
        assert!(!net.contains("2001:db8::1".parse().unwrap()));
        let all: Prefix = "::/0".parse().unwrap();
        assert!(all.contains("2001:db8::1".parse().unwrap()));
        let host: Prefix = "2001:db8::1".parse().unwrap();
        assert_eq!(host.to_string(), "2001:db8::1");
        assert!(!host.contains("2001:db8::2".parse().unwrap()));
        for bad in [
            "",
            "192.0.2.0/33",
            "192.0.2/24",
            "x",
            "::/129",
            "192.0.2.0/-1",
        ] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ports() {
        assert!("8000-8080".parse::<PortRange>().unwrap().contains(8000));
        assert!(!"80".parse::<PortRange>().unwrap().contains(81));
        for bad in ["", "80-", "90-80", "65536", "http"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn protocols() {
        assert_eq!("TCP".parse(), Ok(Proto::TCP));
        assert_eq!("47".parse(), Ok(Proto::GRE));
        assert_eq!("ESP".parse(), Ok(Proto::ESP));
        assert_eq!("132".parse(), Ok(Proto(132)));
        assert_eq!(Proto(132).to_string(), "132");
        assert_eq!(Proto(58).to_string(), "icmpv6");
        assert!(Proto::ESP.has_id() && !Proto::UDP.has_id() && !Proto(132).has_id());
        assert_eq!(Proto::UDP.to_string(), "udp");
        assert!("sctpx".parse::<Proto>().is_err());
    }

    #[test]
    fn text_survives_json() {
        let json =
            serde_json::to_string(&("10.0.0.0/8".parse::<Prefix>().unwrap(), Proto::TCP)).unwrap();
        assert_eq!(json, r#"["10.0.0.0/8","tcp"]"#);
        assert!(serde_json::from_str::<(Prefix, Proto)>(&json).is_ok());
        let range: PortRange = serde_json::from_str("\"1-2\"").unwrap();
        assert!(range.contains(2));
        assert!(serde_json::from_str::<PortRange>("70000").is_err());
    }
}
