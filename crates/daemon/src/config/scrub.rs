// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[scrub.limit]]`: what sources may send.

use freeway_datapath::{PACKETS_PER_S_MAX, SourceRate};
use serde::{Deserialize, Serialize};

use super::within::within;

/// Tables that there may be.
const LIMITS_MAX: usize = 16;
/// Time in which a bucket fills, at most.
const FILLS_MAX_S: u32 = 3600;
/// Of a limit without a burst: the part of a second's packets, and the least.
const BURST_PART: u32 = 10;
const BURST_MIN: u32 = 64;

/// `[scrub]`: what XDP drops ahead of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scrub {
    /// `[[scrub.limit]]`: what sources may send to the router's own MAC address.
    pub limit: Vec<SourceLimit>,
}

/// One of `[[scrub.limit]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceLimit {
    /// Where it holds; empty: at each port.
    #[serde(default)]
    pub port: Vec<String>,
    /// What is counted.
    pub proto: LimitProto,
    /// Packets a second that each source may send.
    #[serde(deserialize_with = "within::<_, 1, { PACKETS_PER_S_MAX }>")]
    pub packets_per_s: u32,
    /// Packets at once after a pause; absent: a tenth of a second's, 64 at least.
    #[serde(default)]
    pub burst: Option<u32>,
    /// Bits of an IPv4 address that make a source.
    #[serde(default = "bits4", deserialize_with = "within::<_, 1, 32>")]
    pub prefix_len4: u32,
    /// Of an IPv6 address.
    #[serde(default = "bits6", deserialize_with = "within::<_, 1, 128>")]
    pub prefix_len6: u32,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitProto {
    /// All of IPv4 and IPv6 but neighbour discovery.
    Any,
    /// TCP.
    Tcp,
    /// Of TCP the packets that begin a connection.
    Syn,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6 but neighbour discovery.
    Icmp,
}

impl LimitProto {
    /// As the configuration writes it.
    pub fn name(self) -> &'static str {
        match self {
            LimitProto::Any => "any",
            LimitProto::Tcp => "tcp",
            LimitProto::Syn => "syn",
            LimitProto::Udp => "udp",
            LimitProto::Icmp => "icmp",
        }
    }

    /// What it counts, in words.
    pub fn packets(self) -> &'static str {
        match self {
            LimitProto::Any => "packets",
            LimitProto::Tcp => "packets of TCP",
            LimitProto::Syn => "SYNs",
            LimitProto::Udp => "packets of UDP",
            LimitProto::Icmp => "packets of ICMP",
        }
    }

    /// Packets of an IP protocol may be counted.
    pub fn counts(self, proto: u8) -> bool {
        match self {
            LimitProto::Any => true,
            LimitProto::Tcp | LimitProto::Syn => proto == 6,
            LimitProto::Udp => proto == 17,
            LimitProto::Icmp => proto == 1 || proto == 58,
        }
    }
}

fn bits4() -> u32 {
    32
}

fn bits6() -> u32 {
    64
}

impl Scrub {
    /// What types cannot express: number of the table, key, and what is wrong with it.
    pub(super) fn check(&self) -> Result<(), (usize, &'static str, String)> {
        if self.limit.len() > LIMITS_MAX {
            let message = format!("there may be {LIMITS_MAX} tables [[scrub.limit]], not more");
            return Err((LIMITS_MAX, "proto", message));
        }
        for (number, limit) in self.limit.iter().enumerate() {
            let most = limit.packets_per_s.saturating_mul(FILLS_MAX_S);
            if limit
                .burst
                .is_some_and(|burst| !(1..=most).contains(&burst))
            {
                let message = format!(
                    "scrub.limit.burst is out of range; with {} packets a second it may be 1 to {most}",
                    limit.packets_per_s
                );
                return Err((number, "burst", message));
            }
        }
        Ok(())
    }
}

impl SourceLimit {
    /// Packets at once after a pause.
    pub fn burst(&self) -> u32 {
        self.burst
            .unwrap_or((self.packets_per_s / BURST_PART).max(BURST_MIN))
    }

    /// As the data plane is told.
    pub fn rate(&self) -> SourceRate {
        SourceRate {
            packets_per_s: self.packets_per_s,
            burst: self.burst(),
            prefix_len4: self.prefix_len4 as u8,
            prefix_len6: self.prefix_len6 as u8,
        }
    }

    /// The same, at whatever ports.
    pub fn counts_as(&self, other: &SourceLimit) -> bool {
        self.proto == other.proto && self.rate() == other.rate()
    }
}
