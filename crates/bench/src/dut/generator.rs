// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench generator`: the device is between this host and another, where `freeway bench sink` counts.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use freeway_console::{Stop, show};
use freeway_lab::Metered;

use super::control::{Lines, Received, printable};
use super::message::{Answer, Hello, Request, Sent, Target, VERSION};
use super::port::HostPort;
use super::receiver::{Arrived, Receiver};
use super::sender::Sender;
use super::table::table;
use super::trials::Trials;
use super::{Dut, ReceiverEnd, endpoint, require_root};
use crate::cli::GeneratorArgs;

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// The sink waits for what is on its way, and a driver may take its time for a program.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// Measures and prints.
pub fn generator(args: &GeneratorArgs) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.load.json, &result, |terminal| table(&result, terminal))
}

fn measured(args: &GeneratorArgs) -> Result<Dut, Stop> {
    require_root()?;
    let port = HostPort::find(&args.port)?;
    port.check(args.load.force)?;
    let mut sink = Remote::connect(args.sink)?;
    let to = endpoint(args.to);
    sink.meter(Target {
        address: to.ip(),
        port: to.port(),
        frame_bytes: args.load.longest(),
    })?;
    let sender = Sender::new(&port, args.to, &args.load)?;
    let end = ReceiverEnd {
        port: sink.port.clone(),
        address: args.to,
        sink: Some(args.sink),
    };
    Trials::new(&sender, &mut sink, &args.load).run(end)
}

/// A sink on another host.
#[derive(Debug)]
struct Remote {
    at: SocketAddr,
    lines: Lines,
    /// Its port's name.
    port: String,
}

impl Remote {
    fn connect(at: SocketAddr) -> Result<Self, Stop> {
        let stream = TcpStream::connect_timeout(&at, CONNECT_PATIENCE).map_err(|error| {
            Stop::failure(format!(
                "cannot reach the sink at {at}: {error}: does `freeway bench sink --listen {at}` run there? Without --listen it takes connections of its own host only"
            ))
        })?;
        // a small line must not wait for others
        let _ = stream.set_nodelay(true);
        let mut remote = Self {
            at,
            lines: Lines::new(stream),
            port: String::new(),
        };
        match remote.answer()? {
            Answer::Hello(hello) if hello.version == VERSION => {
                remote.port = printable(&hello.port.unwrap_or_default());
            }
            Answer::Hello(hello) => {
                return Err(Stop::failure(format!(
                    "the sink at {at} speaks version {} of the control protocol, this generator version {VERSION}: run the same Freeway on both hosts",
                    hello.version
                )));
            }
            other => return Err(remote.unexpected(&other)),
        }
        let hello = Hello {
            version: VERSION,
            port: None,
        };
        match remote.ask(&Request::Hello(hello))? {
            Answer::Ready => Ok(remote),
            other => Err(remote.unexpected(&other)),
        }
    }

    fn meter(&mut self, target: Target) -> Result<(), Stop> {
        self.expect_ready(&Request::Meter(target))
    }

    fn expect_ready(&mut self, request: &Request) -> Result<(), Stop> {
        match self.ask(request)? {
            Answer::Ready => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Stop> {
        let at = self.at;
        let lost = |error| Stop::failure(format!("cannot write to the sink at {at}: {error}"));
        self.lines.send(request).map_err(lost)?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Answer, Stop> {
        let at = self.at;
        let line = match self.lines.receive(Instant::now() + ANSWER_PATIENCE) {
            Ok(Received::Line(line)) => line,
            Ok(Received::End) => {
                return Err(Stop::failure(format!(
                    "the sink at {at} has closed the connection: see what it said there"
                )));
            }
            Err(why) => return Err(Stop::failure(format!("the sink at {at}: {why}"))),
        };
        match serde_json::from_str(&line) {
            Ok(Answer::Error(failure)) => {
                let why = printable(&failure.message);
                Err(Stop::failure(format!("the sink at {at}: {why}")))
            }
            Ok(answer) => Ok(answer),
            Err(error) => Err(Stop::failure(format!(
                "what answers at {at} is no sink of this version: {}: run the same Freeway on both hosts",
                printable(&error.to_string())
            ))),
        }
    }

    fn unexpected(&self, answer: &Answer) -> Stop {
        Stop::failure(format!(
            "the sink at {} answered out of turn ({}): run the same Freeway on both hosts",
            self.at,
            answer.name()
        ))
    }
}

impl Receiver for Remote {
    fn clear(&mut self) -> Result<(), Stop> {
        self.expect_ready(&Request::Clear)
    }

    fn counted(&mut self, sent: u64) -> Result<Arrived, Stop> {
        match self.ask(&Request::Read(Sent { frames: sent }))? {
            Answer::Counted(counted) => Ok(Arrived {
                metered: Metered {
                    frames: counted.frames,
                    ..Metered::default()
                },
                late: counted.late,
            }),
            other => Err(self.unexpected(&other)),
        }
    }

    fn shares_clock(&self) -> bool {
        false
    }
}
