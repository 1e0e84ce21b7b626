// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device under test (RFC 2544) of any make: cabled between two ports of this host (`freeway bench loop`), or between this
//! host (`generator`) and another (`sink`).
//!
//! Nothing is known of the device but the frames that leave it. The search, and what a rate or a loss is, are those of
//! `bench rfc2544`.

mod cable;
mod control;
mod generator;
mod message;
mod neighbour;
mod port;
mod receiver;
mod sender;
mod sink;
mod table;
mod trials;

use std::net::{IpAddr, SocketAddr};

use freeway_console::{Exit, Stop};
use freeway_lab::frame::FAR_PORT;
use freeway_rig::Machine;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use super::rfc2544::{Latency, Method, Rate, Throughput};

pub use self::cable::cable;
pub use self::generator::generator;
pub use self::port::mac;
pub use self::sink::sink;

/// The result. Loads and rates are frames a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dut {
    /// Where frames leave.
    pub sender: SenderEnd,
    /// Where they arrive.
    pub receiver: ReceiverEnd,
    /// Flows, which differ in their source port.
    pub flows: u32,
    /// In the short form.
    pub quick: bool,
    /// How rates were searched for; none at a fixed load.
    pub search: Option<Method>,
    /// By frame size.
    pub sizes: Vec<Measured>,
    /// What was left out, or should have been otherwise.
    pub remarks: Vec<String>,
    /// The sender's machine.
    pub machine: Machine,
}

/// Where frames leave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SenderEnd {
    /// The port.
    pub port: String,
    /// Their source address.
    pub address: IpAddr,
    /// The device's address on this side, if it had to be found.
    pub gateway: Option<IpAddr>,
    /// The device's MAC address on this side.
    pub gateway_mac: String,
}

/// Where frames arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiverEnd {
    /// The port.
    pub port: String,
    /// Their destination address.
    pub address: IpAddr,
    /// The other host's control port; none if the port is of this host.
    pub sink: Option<SocketAddr>,
}

/// Frames of a size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// `64`, `imix`.
    pub name: String,
    /// `64 bytes`, `IMIX`.
    pub label: String,
    /// The mean size really sent, FCS counted.
    pub frame_bytes: f64,
    /// What the sender's port took when all was sent that could be; none at a fixed load.
    pub ceiling_pps: Option<f64>,
    /// The highest rate without loss; none at a fixed load, as the next.
    pub ndr: Option<Throughput>,
    /// The highest rate at which no more than 0.5 % are lost.
    pub pdr: Option<Throughput>,
    /// Forwarding rate at the maximum offered load (RFC 2889, 5.4.3); none if there was no time.
    pub frmol: Option<Rate>,
    /// Loss at the fixed load, or at loads from the NDR upwards.
    pub loss: Vec<Loss>,
    /// Latencies at no load and at shares of the PDR's lower bound; empty with two hosts, whose clocks differ.
    pub latency: Vec<Latency>,
    /// Trials of the search.
    pub trials: u64,
}

/// What is lost at a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Frames a second that were asked for; of the last of many, that were sent, for that is all that could be.
    pub load_pps: f64,
    /// Frames a second that were sent.
    pub offered_pps: f64,
    /// Frames a second that arrived.
    pub forwarded_pps: f64,
    /// Frames that the port's driver took.
    pub sent: u64,
    /// Frames that arrived.
    pub received: u64,
    /// Share of the frames sent that did not.
    pub loss_ratio: f64,
}

/// Where frames to an address go: all flows share the port.
fn endpoint(to: IpAddr) -> SocketAddr {
    SocketAddr::new(to, FAR_PORT)
}

fn require_root() -> Result<(), Stop> {
    if geteuid().is_root() {
        return Ok(());
    }
    let message = "sending and counting frames loads BPF programs: run it as root";
    Err(Stop::new(Exit::Privilege, message))
}

#[cfg(test)]
mod tests;
