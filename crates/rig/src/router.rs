// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon inside a lab's router.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use freeway_api::{
    Client, Drops, FlowFilter, PathChoice, PortPath, PortState, Stats, Status, netns,
};
use freeway_console::{Exit, Stop, program};
use freeway_lab::{Lab, Netns};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Loading and attaching programs takes a second or two, but in an emulator on a busy machine more than ten.
const START: Duration = Duration::from_secs(60);
/// Detaching them, less.
const END: Duration = Duration::from_secs(10);
/// For an answer: a flood leaves the daemon little of a busy machine.
const ANSWER: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A running daemon; dropping it ends it and waits.
#[derive(Debug)]
pub struct RouterDaemon {
    child: Child,
    log: Option<JoinHandle<String>>,
    client: Client,
}

impl RouterDaemon {
    /// Starts a daemon in the lab's router and waits until it answers. `extra` is appended to its configuration.
    pub fn start(lab: &Lab, extra: &str) -> Result<RouterDaemon, Stop> {
        Self::start_on(lab, PathChoice::Auto, extra)
    }

    /// The same, with its ports on a path.
    pub fn start_on(lab: &Lab, path: PathChoice, extra: &str) -> Result<RouterDaemon, Stop> {
        let config = lab.config_with(&format!("path = \"{}\"\n", path.name()), extra);
        Self::start_in(lab.router(), &lab.interfaces(), &config)
    }

    /// Starts a daemon in a router, with interfaces and a configuration, and waits until it answers.
    pub fn start_in(
        router: &Netns,
        interfaces: &[String],
        config: &str,
    ) -> Result<RouterDaemon, Stop> {
        let program = daemon_program().ok_or_else(|| {
            Stop::new(
                Exit::Unavailable,
                "the program freeway is neither beside this one nor in PATH",
            )
        })?;
        let failed = |error: io::Error| {
            Stop::failure(format!(
                "cannot run {} in the lab: {error}",
                program.display()
            ))
        };
        let mut command = Command::new(&program);
        // The configuration goes through a pipe and the socket is the namespace's own: there is no file to leave behind.
        command
            .args(["run", "--config", "/dev/stdin", "--log", "warn"])
            .args(interfaces.iter().flat_map(|name| ["-i", name]))
            .env_remove("FREEWAY_LOG")
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C is for the lab, which ends this process together with its namespace.
            .process_group(0);
        // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
        unsafe {
            command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGTERM).map_err(io::Error::from))
        };
        let mut child = router.spawn(&mut command)?;
        let log = child.stderr.take().map(|mut stderr| {
            thread::spawn(move || {
                let mut text = String::new();
                // What cannot be read cannot be reported.
                let _ = stderr.read_to_string(&mut text);
                text
            })
        });
        let input = child.stdin.take();
        let mut daemon = RouterDaemon {
            child,
            log,
            client: Client::new(Some(&socket_of(&router.path()).map_err(failed)?))?
                .patience(ANSWER),
        };
        if let Some(mut input) = input {
            input.write_all(config.as_bytes()).map_err(failed)?;
        }
        daemon.wait_until_ready()?;
        Ok(daemon)
    }

    fn wait_until_ready(&mut self) -> Result<(), Stop> {
        let patience = Instant::now() + START;
        loop {
            if self.client.status().is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > patience {
                let how = ended.map_or_else(
                    || "does not answer".to_owned(),
                    |status| format!("ended ({status})"),
                );
                return Err(Stop::failure(format!(
                    "Freeway in the lab's router {how}{}",
                    self.last_words()
                )));
            }
            thread::sleep(POLL);
        }
    }

    /// What the daemon says of itself.
    pub fn status(&self) -> Result<Status, Stop> {
        self.client.status()
    }

    /// Empties its table.
    pub fn flush(&self) -> Result<(), Stop> {
        self.client.flush().map(drop)
    }

    /// Its counters.
    pub fn stats(&self) -> Result<Stats, Stop> {
        self.client.stats()
    }

    /// What XDP drops.
    pub fn drops(&self) -> Result<Drops, Stop> {
        self.client.drops()
    }

    /// How many flows a filter lets through.
    pub fn count(&self, filter: &FlowFilter) -> Result<u64, Stop> {
        let total = self.client.flow_stream(filter)?.each(|_| true)?;
        Ok(total.unwrap_or(0))
    }

    /// Fails with the reason if a port is not fast once all have their programs.
    pub fn require_fast_ports(&self) -> Result<(), Stop> {
        let patience = Instant::now() + START;
        let attaching = |status: &Status| {
            let mut ports = status.ports.iter();
            ports.any(|port| port.state == PortState::Attaching)
        };
        let mut status = self.status()?;
        while attaching(&status) && Instant::now() < patience {
            thread::sleep(POLL);
            status = self.status()?;
        }
        let slow: Vec<_> = status
            .ports
            .iter()
            .filter(|port| port.state != PortState::Fast)
            .map(|port| format!("{}: {}", port.name, port.reasons.join(", ")))
            .collect();
        if slow.is_empty() && !status.ports.is_empty() {
            return Ok(());
        }
        Err(Stop::failure(format!(
            "Freeway cannot accelerate the lab's router ({})",
            slow.join("; ")
        )))
    }

    /// The path of its ports, tc if one of them is tc's, and why, once all are fast.
    pub fn path(&self) -> Result<(PortPath, Vec<String>), Stop> {
        let mut ports = self.status()?.ports;
        ports.retain(|port| port.path != PortPath::Xdp);
        let path = ports.first().map_or(PortPath::Xdp, |port| port.path);
        let why = ports.iter();
        let why = why.map(|port| format!("{}: {}", port.name, port.reasons.join(", ")));
        Ok((path, why.collect()))
    }

    /// Ends the daemon; fails if it did not end well.
    pub fn stop(mut self) -> Result<(), Stop> {
        match self.end() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Stop::failure(format!(
                "Freeway in the lab's router ended badly ({status}){}",
                self.last_words()
            ))),
            None => Err(Stop::failure("Freeway in the lab's router did not end")),
        }
    }

    fn end(&mut self) -> Option<std::process::ExitStatus> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        // Not waited for yet, so the number is still its own.
        let _ = kill(
            Pid::from_raw(self.child.id().cast_signed()),
            Signal::SIGTERM,
        );
        let patience = Instant::now() + END;
        while Instant::now() < patience {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            thread::sleep(POLL);
        }
        let _ = self.child.kill();
        self.child.wait().ok()
    }

    /// The last line of its log, once it has ended.
    fn last_words(&mut self) -> String {
        self.end();
        let text = self
            .log
            .take()
            .and_then(|log| log.join().ok())
            .unwrap_or_default();
        text.lines()
            .map(str::trim)
            .rfind(|line| !line.is_empty())
            .map_or(String::new(), |line| format!(": {line}"))
    }
}

impl Drop for RouterDaemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// The default control socket inside a namespace that is not the initial one.
fn socket_of(namespace: &Path) -> io::Result<PathBuf> {
    let inode = std::fs::metadata(namespace)?.ino();
    Ok(Path::new(netns::RUN_DIR).join(netns::socket_name(inode)))
}

/// This same program, under whatever name it was started; the bench, which is another, has it beside it.
fn daemon_program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    if own.file_name()? == "freeway-bench" {
        return program("freeway");
    }
    Some(own)
}
