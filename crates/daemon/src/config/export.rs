// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[accounting]` and `[[export]]`: who is told of connections, and when.

use std::net::SocketAddr;

use freeway_api::Prefix;
use serde::{Deserialize, Serialize};

use super::within::within;

/// Headers of IPv6 and UDP, or of TCP with time stamps: what a message has less room than a packet.
const HEADERS: u32 = 72;

/// `[accounting]`: when connections are told of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accounting {
    /// A connection that goes on is told of so often, seconds.
    #[serde(deserialize_with = "within::<_, 1, 86400>")]
    pub active_s: u32,
    /// One of which nothing passed for so long is told of, seconds.
    #[serde(deserialize_with = "within::<_, 1, 86400>")]
    pub idle_s: u32,
    /// Networks whose hosts are counted, each by its address.
    pub hosts: Vec<Prefix>,
}

impl Default for Accounting {
    fn default() -> Self {
        Accounting {
            active_s: 60,
            idle_s: 60,
            hosts: Vec::new(),
        }
    }
}

/// `[[export]]`: a collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// Its address and port.
    pub collector: SocketAddr,
    /// What it reads.
    #[serde(default)]
    pub format: Format,
    /// How it is reached.
    #[serde(default)]
    pub transport: Transport,
    /// One record for both directions (RFC 5103); IPFIX alone.
    #[serde(default = "yes")]
    pub biflow: bool,
    /// Observation domain, or the source's number.
    #[serde(default)]
    pub domain: u32,
    /// Over UDP, templates are sent again after so many seconds,
    #[serde(default = "template_s", deserialize_with = "within::<_, 1, 86400>")]
    pub template_s: u32,
    /// and after so many messages.
    #[serde(
        default = "template_messages",
        deserialize_with = "within::<_, 1, { u32::MAX }>"
    )]
    pub template_messages: u32,
    /// Octets of the longest packet that is sent.
    #[serde(default = "mtu", deserialize_with = "within::<_, 576, 65535>")]
    pub mtu: u32,
    /// Records that wait at most.
    #[serde(default = "queue", deserialize_with = "within::<_, 64, 1048576>")]
    pub queue: u32,
}

/// What a collector reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// RFC 7011.
    #[default]
    Ipfix,
    /// RFC 3954.
    Netflow9,
}

/// How a collector is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Nothing tells what was lost.
    #[default]
    Udp,
    /// In a connection, which is made again.
    Tcp,
}

impl Format {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Format::Ipfix => "ipfix",
            Format::Netflow9 => "netflow9",
        }
    }
}

impl Transport {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        }
    }
}

fn yes() -> bool {
    true
}

fn template_s() -> u32 {
    60
}

fn template_messages() -> u32 {
    100
}

fn mtu() -> u32 {
    1500
}

fn queue() -> u32 {
    65_536
}

impl Export {
    /// Octets of a message.
    pub fn room(&self) -> usize {
        (self.mtu - HEADERS) as usize
    }

    /// What types cannot express: the key, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.collector.port() == 0 {
            return Err(("collector", "a collector has a port that is not 0".into()));
        }
        if (self.format, self.transport) == (Format::Netflow9, Transport::Tcp) {
            let message = "NetFlow v9 goes over UDP alone; over TCP use format = \"ipfix\"";
            return Err(("transport", message.into()));
        }
        Ok(())
    }
}
