// SPDX-License-Identifier: MIT OR Apache-2.0
//! iperf3 between the hosts of a lab: TCP as applications have it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use freeway_console::{Exit, Stop};
use freeway_lab::Lab;

/// How long a server may take to listen.
const SERVER_START: Duration = Duration::from_secs(5);

/// What flows, from the lab's client to its server.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The server's port.
    pub port: u16,
    /// Parallel streams.
    pub streams: u32,
    /// How long they flow,
    pub seconds: u32,
    /// and how much of that, at the beginning, does not count.
    pub omit_seconds: u32,
    /// Type of service of their packets, ECN bits included.
    pub tos: u8,
    /// The CPU of either end.
    pub cpu: Option<usize>,
    /// As fast as they can, or so.
    pub writes: Option<Writes>,
}

/// What the sender hands to TCP, each at once in a frame if the path lets it.
#[derive(Clone, Copy, Debug)]
pub struct Writes {
    /// Of each.
    pub bytes: u32,
    /// Of each stream.
    pub per_s: u32,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            port: 5201,
            streams: 1,
            seconds: 10,
            omit_seconds: 0,
            tos: 0,
            cpu: None,
            writes: None,
        }
    }
}

fn command(arguments: &[String], cpu: Option<usize>) -> Command {
    let mut command = Command::new("iperf3");
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C is for the lab, which ends this process together with its namespace.
        .process_group(0);
    if let Some(cpu) = cpu {
        command.args(["-A", &cpu.to_string()]);
    }
    command
}

fn not_started(error: &io::Error) -> Stop {
    match error.kind() {
        io::ErrorKind::NotFound => Stop::new(
            Exit::Unavailable,
            "iperf3 is not installed: apt-get install iperf3",
        ),
        _ => Stop::failure(format!("cannot start iperf3 in the lab: {error}")),
    }
}

/// A process that ends when it is dropped.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// iperf3's server; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    _process: Process,
}

impl Server {
    /// Starts one on the lab's server and waits until it listens. Port and CPU are taken from `spec`.
    pub fn start(lab: &Lab, spec: &Spec) -> Result<Server, Stop> {
        let arguments = ["-s".into(), "-p".into(), spec.port.to_string()];
        let mut command = command(&arguments, spec.cpu);
        command.stdout(Stdio::null());
        let child = lab.server().place(&mut command)?.spawn();
        let process = Process(child.map_err(|error| not_started(&error))?);
        let patience = Instant::now() + SERVER_START;
        while !lab.server().enter(|| listens(spec.port))? {
            if Instant::now() > patience {
                return Err(Stop::failure("iperf3's server does not listen in the lab"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Server { _process: process })
    }
}

/// True if something listens on a TCP port of the calling thread's namespace.
fn listens(port: u16) -> bool {
    const LISTEN: &str = "0A";
    let wanted = format!(":{port:04X}");
    let text = ["tcp", "tcp6"].map(|file| {
        std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
    });
    text.iter().flat_map(|text| text.lines()).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&wanted)) && fields.nth(1) == Some(LISTEN)
    })
}

/// iperf3's client; dropping it ends it.
#[derive(Debug)]
pub struct Client {
    process: Process,
}

impl Client {
    /// Starts one on the lab's client.
    pub fn start(lab: &Lab, spec: &Spec) -> Result<Client, Stop> {
        let address = lab.topology().family.plan().server;
        let measured = spec.seconds.saturating_sub(spec.omit_seconds);
        let arguments = [
            ("-c", address.to_string()),
            ("-p", spec.port.to_string()),
            ("-P", spec.streams.to_string()),
            ("-t", measured.to_string()),
            ("-O", spec.omit_seconds.to_string()),
            ("-S", spec.tos.to_string()),
        ];
        let paced = spec.writes.map(|writes| {
            [
                ("-l", writes.bytes.to_string()),
                (
                    "-b",
                    (u64::from(writes.bytes) * 8 * u64::from(writes.per_s)).to_string(),
                ),
                ("--pacing-timer", (1_000_000 / writes.per_s).to_string()),
            ]
        });
        let arguments: Vec<String> = arguments
            .into_iter()
            .chain(paced.into_iter().flatten())
            .flat_map(|(option, value)| [option.into(), value])
            .chain(spec.writes.map(|_| "-N".into()))
            .chain(["-J".into()])
            .collect();
        let mut command = command(&arguments, spec.cpu);
        command.stdout(Stdio::piped());
        let child = lab.client().place(&mut command)?.spawn();
        Ok(Client {
            process: Process(child.map_err(|error| not_started(&error))?),
        })
    }

    /// Waits for its end: bits a second of all streams, as the receiver saw them.
    pub fn received_bit_s(mut self) -> Result<f64, Stop> {
        let output = self.process.0.stdout.take();
        let text = output.map(io::read_to_string).transpose();
        let text = text
            .map_err(|error| Stop::failure(format!("cannot read iperf3's report: {error}")))?
            .unwrap_or_default();
        let json: serde_json::Value = serde_json::from_str(&text)
            .map_err(|error| Stop::failure(format!("iperf3's report does not parse: {error}")))?;
        if let Some(error) = json["error"].as_str() {
            return Err(Stop::failure(format!("iperf3: {error}")));
        }
        json.pointer("/end/sum_received/bits_per_second")
            .and_then(serde_json::Value::as_f64)
            .filter(|rate| *rate > 0.0)
            .ok_or_else(|| Stop::failure("iperf3 received nothing"))
    }
}
