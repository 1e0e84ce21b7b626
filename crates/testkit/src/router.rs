// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon in a lab's router.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::Duration;

use freeway_lab::{Lab, Netns};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use crate::log::Log;
use crate::until::LEAST;
use crate::{Moment, POLL, Stats, freeway, until};

/// Loading programs takes a second or two where the machine is busy, attaching to hundreds of ports many.
const START: Duration = Duration::from_secs(120);
/// How long a daemon may take to end.
const END: Duration = Duration::from_secs(10);

/// How often one is asked again that did not answer.
const LATE_ANSWERS: usize = 3;

/// A Freeway daemon in a lab's router; dropping it ends it.
#[derive(Debug)]
pub struct Router {
    pub child: Child,
    pub netns: Netns,
    log: Log,
    files: [PathBuf; 3],
    /// The daemon that has taken over, which is nobody's child but this process's.
    successor: Option<Successor>,
}

#[derive(Debug)]
struct Successor {
    pid: Pid,
    ended: Option<ExitStatus>,
}

impl Router {
    /// Starts a daemon for both ports and waits until they are fast.
    pub fn start(lab: &Lab) -> Router {
        Self::start_with(lab, "")
    }

    /// As [`Router::start`], with `extra` appended to the configuration.
    pub fn start_with(lab: &Lab, extra: &str) -> Router {
        Self::start_as(lab, extra, freeway(), &["lan0", "wan0"])
    }

    /// As [`Router::start_with`], with a program that ends up being `freeway`, and for these ports.
    pub fn start_as(lab: &Lab, extra: &str, program: Command, ports: &[&str]) -> Router {
        Self::start_in(lab.router(), &lab.config_with("", extra), program, ports)
    }

    /// Starts a daemon in a namespace and waits until its ports are fast.
    pub fn start_in(netns: &Netns, config_toml: &str, program: Command, ports: &[&str]) -> Router {
        Self::start_until(netns, config_toml, program, ports, |status| {
            let there = status["ports"].as_array().unwrap();
            there.len() == ports.len() && there.iter().all(|port| port["state"] == "fast")
        })
    }

    /// Starts a daemon in a namespace and waits until its status is as wanted.
    pub fn start_until(
        netns: &Netns,
        config_toml: &str,
        mut program: Command,
        ports: &[&str],
        ready: impl Fn(&Value) -> bool,
    ) -> Router {
        program
            .args(["run", "--config", "/dev/stdin", "--log", "warn"])
            .args(ports.iter().flat_map(|port| ["-i", port]));
        Self::spawn(netns, config_toml, program, ready)
    }

    /// Starts a daemon by a file, which it can read again, and with nothing else.
    pub fn start_by(netns: &Netns, file: &Path, ready: impl Fn(&Value) -> bool) -> Router {
        let mut program = freeway();
        program.args(["run", "--config"]).arg(file);
        Self::spawn(netns, "", program, ready)
    }

    /// Starts a daemon by a program with all its arguments.
    pub fn start_program(
        netns: &Netns,
        program: Command,
        ready: impl Fn(&Value) -> bool,
    ) -> Router {
        Self::spawn(netns, "", program, ready)
    }

    fn spawn(
        netns: &Netns,
        input: &str,
        mut program: Command,
        ready: impl Fn(&Value) -> bool,
    ) -> Router {
        program
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = netns.spawn(&mut program).unwrap();
        let log = Log::of(&mut child);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        let mut router = Router {
            child,
            netns: netns.clone(),
            log,
            successor: None,
            files: files_in(netns),
        };
        let end = Moment::now() + START;
        loop {
            let output = router.run(&["status", "--json"]);
            let status: Option<Value> = serde_json::from_slice(&output.stdout).ok();
            if status.as_ref().is_some_and(&ready) {
                return router;
            }
            let ended = router.child.try_wait().unwrap();
            if ended.is_some() || Moment::now() > end {
                let _ = router.child.kill();
                let log = router.log();
                panic!("the daemon is not ready: {ended:?} {status:?}\n{log}");
            }
            thread::sleep(POLL);
        }
    }

    /// Runs `freeway` in the router.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = freeway();
        self.netns
            .place(command.args(arguments))
            .unwrap()
            .output()
            .unwrap()
    }

    /// Runs `freeway ... --json` in the router. A daemon that does not answer because others have the CPU is asked again.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let arguments = &[arguments, &["--json"]].concat()[..];
        let mut output = self.run(arguments);
        for _ in 0..LATE_ANSWERS {
            if !String::from_utf8_lossy(&output.stderr).contains("has not answered for") {
                break;
            }
            println!("{arguments:?}: the daemon is late");
            output = self.run(arguments);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn status(&self) -> Value {
        self.json(&["status"])
    }

    pub fn stats(&self) -> Stats {
        Stats(self.json(&["stats"]))
    }

    /// The flow table, filtered by words such as `proto tcp`.
    pub fn flows(&self, filter: &str) -> Vec<Value> {
        let words: Vec<&str> = ["flows"]
            .into_iter()
            .chain(filter.split_whitespace())
            .collect();
        self.json(&words)["flows"].as_array().unwrap().clone()
    }

    /// Waits until `wanted` flows that the filter lets through are active and have forwarded `packets` each.
    #[track_caller]
    pub fn wait_fast(&self, filter: &str, wanted: usize, packets: u64) -> Vec<Value> {
        self.wait_fast_while(filter, wanted, packets, || {})
    }

    /// The same, with traffic ahead of each look.
    #[track_caller]
    pub fn wait_fast_while(
        &self,
        filter: &str,
        wanted: usize,
        packets: u64,
        mut traffic: impl FnMut(),
    ) -> Vec<Value> {
        let end = Moment::now() + LEAST;
        loop {
            traffic();
            let flows = self.flows(filter);
            let fast = |flow: &&Value| {
                flow["state"] == "active" && flow["packets"].as_u64().unwrap() >= packets
            };
            if flows.iter().filter(fast).count() >= wanted {
                return flows;
            }
            if Moment::now() > end {
                let stats = self.stats();
                panic!("{filter}: {wanted} fast flows wanted, there are {flows:#?}\n{stats}");
            }
            thread::sleep(POLL);
        }
    }

    /// The daemon knows all of the kernel: reading it again changes nothing.
    #[track_caller]
    pub fn wait_in_step(&self) {
        let mut changes = Vec::new();
        let end = Moment::now() + LEAST;
        while changes.last() != Some(&0) {
            assert!(
                Moment::now() < end,
                "each time it changes more: {changes:?}"
            );
            changes.push(self.json(&["resync"])["changes"].as_u64().unwrap());
        }
    }

    /// Has the installed program take over, and the daemon before end; what was said of it.
    #[track_caller]
    pub fn upgrade(&mut self) -> Value {
        adopt_orphans();
        // a successor may be late where nothing has CPU; then the daemon goes on, and is asked once more
        let first = self.run(&["upgrade", "--json"]);
        let said = String::from_utf8_lossy(&first.stderr);
        let upgraded = match said.contains("has not taken over within") {
            true => {
                println!("{}", said.trim_end());
                assert!(self.try_wait().is_none(), "{said}");
                self.json(&["upgrade"])
            }
            false => {
                assert!(first.status.success(), "{said}");
                serde_json::from_slice(&first.stdout).unwrap()
            }
        };
        let status = self.wait();
        assert!(status.success(), "the daemon before: {status}");
        self.adopt(upgraded["to"]["pid"].as_u64().unwrap());
        upgraded
    }

    /// Another process is the daemon, since the one before has ended. Its parent has, too: see [`adopt_orphans`].
    pub fn adopt(&mut self, pid: u64) {
        self.successor = Some(Successor {
            pid: Pid::from_raw(i32::try_from(pid).unwrap()),
            ended: None,
        });
    }

    /// The daemon's process.
    pub fn pid(&self) -> Pid {
        match &self.successor {
            Some(successor) => successor.pid,
            None => Pid::from_raw(self.child.id().cast_signed()),
        }
    }

    fn try_wait(&mut self) -> Option<ExitStatus> {
        let Some(Successor { pid, ended }) = &mut self.successor else {
            return self.child.try_wait().unwrap();
        };
        if ended.is_none() {
            *ended = match waitpid(*pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(_, code)) => Some(ExitStatus::from_raw(code << 8)),
                Ok(WaitStatus::Signaled(_, signal, _)) => Some(ExitStatus::from_raw(signal as i32)),
                // its parent has not ended yet
                Ok(_) | Err(Errno::ECHILD) => None,
                Err(error) => panic!("{error}"),
            };
        }
        *ended
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Ends the daemon as an administrator would; it has to end well and say nothing bad.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        let log = self.log();
        assert!(status.success(), "{status}\n{log}");
        assert!(!log.contains("panicked"), "{log}");
    }

    /// Waits for the end of the daemon.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        until("the daemon's end", END, || self.try_wait())
    }

    /// The log of a daemon that has ended.
    pub fn log(&mut self) -> String {
        self.log.take()
    }

    /// The control socket, the lock of its namespace, and the engine's socket.
    pub fn files(&self) -> [PathBuf; 3] {
        self.files.clone()
    }

    /// What one that was killed has left, unless another one is there.
    fn tidy(&self) {
        let [_, lock, _] = &self.files;
        let held = File::open(lock).map(|lock| Flock::lock(lock, FlockArg::LockExclusiveNonblock));
        if let Ok(Ok(_held)) = held {
            for file in &self.files {
                let _ = std::fs::remove_file(file);
            }
        }
    }
}

fn files_in(netns: &Netns) -> [PathBuf; 3] {
    let inode = std::fs::metadata(netns.path()).unwrap().ino();
    ["sock", "lock", "sock.engine"]
        .map(|end| PathBuf::from(format!("/run/freeway/netns-{inode}.{end}")))
}

impl Drop for Router {
    fn drop(&mut self) {
        // a lab that went before it has ended what ran there
        if self.try_wait().is_some() {
            return self.tidy();
        }
        // Not waited for yet, so the number is still its own. A stopped process gets its signal once it goes on.
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
        let end = Moment::now() + END;
        while Moment::now() < end {
            if self.try_wait().is_some() {
                return;
            }
            thread::sleep(POLL);
        }
        self.signal(Signal::SIGKILL);
        let _ = waitpid(self.pid(), None);
        self.tidy();
    }
}

/// How many ports are fast, by the daemon's status.
pub fn fast_ports(status: &Value) -> usize {
    let ports = status["ports"].as_array().unwrap();
    ports.iter().filter(|port| port["state"] == "fast").count()
}

/// Processes whose parents end are this one's children, to be waited for.
pub fn adopt_orphans() {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
}
