// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon that is to succeed this one.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use freeway_abi::DIGEST;
use freeway_api::handover::{self, FDS_MAX};
use freeway_api::{Failure, Process, Upgraded};
use nix::sys::socket::sockopt::{ReceiveTimeout, SendTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair};
use nix::sys::time::TimeVal;

use super::words::{Answer, Estate, Hello, Said};

/// The command line's word for a successor.
pub const TAKE_OVER: &str = "--take-over";
/// So long it may take to put its programs in the places of ours. All is the kernel's meanwhile.
const TAKING: Duration = Duration::from_secs(10);
/// How long it may take to end once it has said that it cannot.
const ENDING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// What is to be done about a failure.
const UNCHANGED: &str = "the daemon that runs goes on as before";

/// A process of the installed program, ended when it is dropped before it has everything.
#[derive(Debug)]
pub struct Successor {
    child: Child,
    socket: OwnedFd,
    program: PathBuf,
    version: String,
    same_abi: bool,
    adopts: bool,
    /// It does the work.
    relieves: bool,
}

/// A successor that is ready, and the descriptors that are handed over beside links: control socket, locks, metrics.
#[derive(Debug)]
pub struct Handover {
    pub successor: Successor,
    pub control: OwnedFd,
    pub locks: Vec<OwnedFd>,
    pub metrics: Option<OwnedFd>,
}

impl Successor {
    /// Starts `program` as this one was started, and waits until it has loaded its programs.
    pub fn raise(program: &Path, hello: &Hello, patience: Duration) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let program = program.display();
            Failure::unavailable(format!("cannot start {program}: {error}"), UNCHANGED)
        };
        let kind = SockType::SeqPacket;
        let pair = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC);
        let (socket, other) = pair.map_err(|error| failed(error.into()))?;
        let arguments = std::env::args_os().skip(1);
        let child = Command::new(program)
            .args(arguments.filter(|argument| argument != OsStr::new(TAKE_OVER)))
            .arg(TAKE_OVER)
            .stdin(other)
            // the service manager's watchdog is the service's, not one process's
            .env_remove("WATCHDOG_PID")
            .spawn()
            .map_err(failed)?;
        let mut successor = Self {
            child,
            socket,
            program: program.to_path_buf(),
            version: String::new(),
            same_abi: false,
            adopts: false,
            relieves: false,
        };
        successor.say(&Said::Hello(hello.clone()), &[])?;
        match successor.hear(patience, "has not loaded its programs")? {
            Answer::Ready {
                version,
                abi,
                adopts,
            } => {
                successor.version = version;
                successor.same_abi = abi == DIGEST;
                successor.adopts = successor.same_abi && adopts;
                Ok(successor)
            }
            _ => Err(successor.nonsense()),
        }
    }

    /// It takes flows as this process has them.
    pub fn adopts(&self) -> bool {
        self.adopts
    }

    /// Hands over, and waits until it forwards.
    pub fn hand(
        &mut self,
        links: &[RawFd],
        flows: Option<RawFd>,
        estate: Estate,
        rest: &[RawFd],
    ) -> Result<(), Failure> {
        if let Some(flows) = flows {
            self.say(&Said::Flows, &[flows])?;
        }
        for some in links.chunks(FDS_MAX) {
            self.say(&Said::Links, some)?;
        }
        self.say(&Said::Estate(estate), rest)?;
        match self.hear(TAKING, "has not taken over")? {
            Answer::Done => {
                self.relieves = true;
                Ok(())
            }
            _ => Err(self.nonsense()),
        }
    }

    /// Tells it that nothing of this process is in its way.
    pub fn leave(&mut self) {
        // it goes on without, too
        let _ = self.say(&Said::Farewell, &[]);
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What became of it. `in_kernel`: how long nobody forwarded but the kernel.
    pub fn told(&self, in_kernel: Duration) -> Upgraded {
        Upgraded {
            from: Process {
                version: env!("CARGO_PKG_VERSION").into(),
                pid: std::process::id(),
            },
            to: Process {
                version: self.version.clone(),
                pid: self.pid(),
            },
            same_abi: self.same_abi,
            in_kernel_ms: in_kernel.as_secs_f64() * 1e3,
        }
    }

    fn say(&mut self, words: &Said, fds: &[RawFd]) -> Result<(), Failure> {
        let limit = time_val(TAKING);
        let said = setsockopt(&self.socket, SendTimeout, &limit).map_err(io::Error::from);
        let said = said.and_then(|()| handover::send(self.socket.as_fd(), words, fds));
        said.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.closed(),
            _ => self.failure(format!("does not listen: {error}")),
        })
    }

    /// What it says next; that it cannot is a failure. It is ended if it says nothing.
    fn hear(&mut self, patience: Duration, missing: &str) -> Result<Answer, Failure> {
        let limit = time_val(patience);
        let heard = setsockopt(&self.socket, ReceiveTimeout, &limit).map_err(io::Error::from);
        let heard = heard.and_then(|()| receive(self.socket.as_fd()));
        match heard {
            Ok(Some(Answer::Failed { message, config })) => {
                self.wait();
                let message = format!("the new daemon cannot take over: {message}");
                Err(match config {
                    true => Failure::config(message, UNCHANGED),
                    false => Failure::unavailable(message, UNCHANGED),
                })
            }
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(self.closed()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(self.failure(format!("{missing} within {} s", patience.as_secs())))
            }
            Err(error) => Err(self.failure(format!("cannot be understood: {error}"))),
        }
    }

    /// Its end of the socket is closed.
    fn closed(&mut self) -> Failure {
        match self.wait() {
            Some(status) => self.failure(format!("ended ({status}); its log may say why")),
            None => self.failure("has closed its socket".into()),
        }
    }

    fn failure(&self, what: String) -> Failure {
        Failure::unavailable(format!("{} {what}", self.program.display()), UNCHANGED)
    }

    fn nonsense(&self) -> Failure {
        self.failure("says what it should not".into())
    }

    /// How it ended, if it does soon.
    fn wait(&mut self) -> Option<ExitStatus> {
        let end = Instant::now() + ENDING;
        while Instant::now() < end {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(LOOK),
                ended => return ended.ok().flatten(),
            }
        }
        None
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.relieves {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Answer>> {
    Ok(handover::receive(socket)?.map(|(answer, _)| answer))
}

fn time_val(time: Duration) -> TimeVal {
    TimeVal::new(time.as_secs() as nix::libc::time_t, 0)
}
