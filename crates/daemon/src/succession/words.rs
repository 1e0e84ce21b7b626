// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a daemon and its successor say to each other. They may be of different versions: what is unknown is passed over.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Of what is said. Another number means something else than what is here.
pub const PROTOCOL: u32 = 1;

/// What the daemon that hands over says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// First, at once.
    Hello(Hello),
    /// Descriptors of links at ports; more follow.
    Links,
    /// What flows are fast, for the same binary interface, in a file that comes along. Only to who says that it adopts them.
    Flows,
    /// Everything else, with descriptors: control socket, engine's socket, locks, metrics.
    Estate(Estate),
    /// It is no longer the service's process.
    Farewell,
}

/// Who hands over, and what the successor has to have in common with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    pub pid: u32,
    /// Digest of the binary interface.
    pub abi: u64,
    /// The control socket.
    pub socket: PathBuf,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

/// What goes on as it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Estate {
    /// The operator has not switched the fast path off.
    pub on: bool,
    /// Ports whose clsact qdisc is Freeway's.
    pub clsact: Vec<u32>,
    /// How many of the descriptors are locks.
    pub locks: usize,
    /// The last one is the metrics' listener.
    pub metrics: bool,
    /// Digest of what the kernel tells only when it is asked, as the daemon knew it.
    #[serde(default)]
    pub asked: u64,
}

/// What the successor says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Its programs are loaded.
    Ready {
        /// Its version.
        version: String,
        /// Digest of its binary interface.
        abi: u64,
        /// It takes flows of the same binary interface.
        #[serde(default)]
        adopts: bool,
    },
    /// It forwards.
    Done,
    /// It cannot, and ends.
    Failed {
        message: String,
        /// The configuration is to blame.
        config: bool,
    },
}
