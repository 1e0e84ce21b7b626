// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network-namespace topologies and traffic for the demo, the tests and the bench.
//!
//! A [`Lab`] is a client, a router and a server, joined by veth pairs that behave like wires: no super-packets, no
//! unfinished checksums, no tags beside the frame. [`Generator`] sends at line rate, [`Sink`] counts and looks,
//! [`measure()`] tells what a frame costs, [`Injector`] and [`Capture`] handle single frames of any content.
//!
//! Whatever a lab creates is gone when it is dropped. [`cleanup_on_signal`] sees to Ctrl-C and SIGTERM, and the next
//! [`Lab::build`] removes what a killed run has left.
//!
//! ```no_run
//! use std::time::Duration;
//! use freeway_lab::{Generator, Lab, Load, Options, Proto, Sink, SinkSpec, Topology, Until};
//!
//! # fn main() -> Result<(), freeway_lab::LabError> {
//! freeway_lab::cleanup_on_signal()?;
//! let lab = Lab::build(Topology::parse("nat")?, Options::default())?;
//! lab.prime(Proto::Udp, 1000, Some(0))?;
//! let sink = Sink::attach(lab.server_port(), SinkSpec::thorough(1000))?;
//! let generator = Generator::new(lab.client_port(), &lab.flows(Proto::Udp, 1000, 64))?;
//! let sent = generator.run(&Load::paced(Until::Elapsed(Duration::from_secs(1)), 300_000))?;
//! println!("{} of {} frames arrived", sink.counts()?.frames, sent.frames);
//! # Ok(())
//! # }
//! ```

pub mod abreast;
mod attach;
mod beside;
pub mod capture;
pub mod clock;
mod command;
pub mod error;
pub mod fanout;
pub mod frame;
pub mod generator;
pub mod idle_loop;
pub mod lab;
mod limit;
pub mod loopback;
mod lpm;
pub mod measure;
pub mod meter;
pub mod mix;
pub mod mroute;
pub mod napi;
pub mod netns;
mod options;
mod owner;
pub mod pair;
mod parked;
mod placement;
pub mod player;
mod port;
pub mod pppoe;
pub mod prime;
pub mod program;
pub mod rate;
pub mod reference;
pub mod reflector;
pub mod routes;
pub mod ruleset;
mod sendmmsg;
pub mod shell;
pub mod signal;
pub mod sink;
mod skel;
mod space;
pub mod stream;
pub mod sweep;
pub mod tally;
pub mod tape;
mod task_clock;
pub mod topology;
pub mod twins;
mod wire;
pub mod xmit;

pub use abreast::{Abreast, AbreastTurn, AbreastTurns, OneAndAll, Together};
pub use capture::{Capture, Injected, Injector};
pub use error::LabError;
pub use fanout::Fanout;
pub use frame::{Direction, Directions, FLOWS_MAX, FlowSpec, Proto};
pub use generator::{Generator, Load, Running, Sent, Until};
pub use idle_loop::IdleLoop;
pub use lab::Lab;
pub use loopback::Loopback;
pub use measure::{
    MeasureSpec, Sample, SinkCost, Turn, Turns, measure, measure_reference, measure_sink,
};
pub use meter::{Meter, Metered};
pub use mix::Mix;
pub use mroute::Mroute;
pub use napi::NapiThreads;
pub use netns::Netns;
pub use options::{Options, PortForward};
pub use pair::Pair;
pub use player::{Played, Player, Tempo};
pub use port::Port;
pub use prime::Primed;
pub use program::{Counting, Program, RunTime};
pub use rate::SlowPort;
pub use reference::{Reference, ReferenceGuard};
pub use reflector::Reflector;
pub use signal::cleanup_on_signal;
pub use sink::{Captured, FlowCounts, Mark, Rule, Sink, SinkCounts, SinkSpec};
pub use stream::{Offer, Offered, Stream, Way};
pub use tally::{Tallied, Tally};
pub use tape::Tape;
pub use topology::{Family, Filter, TOPOLOGIES, Topology};
pub use twins::Twins;
pub use xmit::Xmit;
