// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making connections ASSURED before they are measured.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::LabError;
use crate::frame::{FlowSpec, NEAR_PORT, Proto, TCP_ACK, TCP_SYN};
use crate::generator::{Generator, Load, Until};
use crate::lab::Lab;
use crate::reflector::Reflector;
use crate::sink::{Sink, SinkSpec};

/// A UDP connection is assured by a packet at an age of two seconds (nf_conntrack_udp_packet).
const UDP_STREAM_AGE: Duration = Duration::from_millis(2200);
/// Slow enough for the kernel's way of new connections on one CPU, so that nothing is lost.
const PRIME_PPS: u64 = 150_000;

/// What it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Primed {
    /// Connections, each of which has seen frames both ways.
    pub flows: u32,
    /// Frames that came back.
    pub replies: u64,
    /// How long it took, nanoseconds.
    pub elapsed_ns: u64,
}

impl Lab {
    /// Opens the connections of the first `flows` flows. UDP: a round there and back, 2.2 s, and another one. TCP: a
    /// handshake by frames. Both hosts' ports must be free of sinks; `cpu` is the generator's.
    pub fn prime(&self, proto: Proto, flows: u32, cpu: Option<usize>) -> Result<Primed, LabError> {
        self.open(self.flows(proto, flows, 64), cpu)
    }

    /// Opens a TCP connection beside those of all flows: whoever watches the WAN sees a packet come in, and a segment leave that
    /// Van Jacobson's compression would have made smaller. Both hosts' ports must be free of sinks.
    pub fn greet(&self) -> Result<(), LabError> {
        let beside = FlowSpec {
            near_port: NEAR_PORT - 1,
            ..self.flows(Proto::Tcp, 1, 64)
        };
        self.open(beside, None).map(drop)
    }

    fn open(&self, flows: FlowSpec, cpu: Option<usize>) -> Result<Primed, LabError> {
        let start = Instant::now();
        let reflector = match self.options().pppoe {
            None => Reflector::attach(self.server_port())?,
            Some(_) => Reflector::attach_in_session(self.server_port())?,
        };
        let answers = SinkSpec {
            tagged: self.options().vlan.is_some(),
            ..SinkSpec::default()
        };
        let sink = Sink::attach(self.client_port(), answers)?;
        let spec = FlowSpec {
            bare: flows.proto == Proto::Tcp,
            ..flows
        };
        let flows = spec.flows;
        let load = Load {
            cpu,
            ..Load::paced(Until::Frames(flows.into()), PRIME_PPS)
        };
        let round = |spec: FlowSpec| Generator::new(self.client_port(), &spec)?.run(&load);
        match spec.proto {
            Proto::Udp => {
                round(spec)?;
                let opened = Instant::now();
                expect("replies", u64::from(flows), || Ok(sink.counts()?.frames))?;
                thread::sleep(UDP_STREAM_AGE.saturating_sub(opened.elapsed()));
                round(spec)?;
                expect("replies", 2 * u64::from(flows), || {
                    Ok(sink.counts()?.frames)
                })?;
            }
            Proto::Tcp => {
                round(FlowSpec {
                    tcp_flags: TCP_SYN,
                    ..spec
                })?;
                expect("SYN-ACKs", flows.into(), || Ok(sink.counts()?.frames))?;
                round(FlowSpec {
                    tcp_flags: TCP_ACK,
                    ..spec
                })?;
                expect("ACKs at the server", flows.into(), || reflector.absorbed())?;
            }
        }
        let replies = sink.counts()?.frames;
        Ok(Primed {
            flows,
            replies,
            elapsed_ns: start.elapsed().as_nanos() as u64,
        })
    }
}

/// Waits until `seen` reaches `wanted`, for up to a second.
fn expect(
    what: &str,
    wanted: u64,
    seen: impl Fn() -> Result<u64, LabError>,
) -> Result<(), LabError> {
    let patience = Instant::now() + Duration::from_secs(1);
    loop {
        let count = seen()?;
        if count >= wanted {
            return Ok(());
        }
        if Instant::now() > patience {
            return Err(LabError::Incomplete(format!(
                "{count} of {wanted} {what} arrived"
            )));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
