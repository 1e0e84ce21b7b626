// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon that this one succeeds.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use freeway_abi::DIGEST;
use freeway_api::{TakenOver, handover};
use freeway_console::{Exit, Stop};
use nix::sys::socket::sockopt::{ReceiveTimeout, SockType as TypeOf};
use nix::sys::socket::{SockType, getsockopt, setsockopt};
use nix::sys::time::TimeVal;
use nix::unistd::dup2_stdin;

use super::words::{Answer, Estate, Hello, PROTOCOL, Said};

/// It answers at once, but for a long turn of its engine's.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long it may take to step back; the data plane's deadline does not wait longer.
const FAREWELL: Duration = Duration::from_secs(1);

/// The other end.
pub struct Predecessor {
    socket: OwnedFd,
    hello: Hello,
}

/// What it hands over.
pub struct Inheritance {
    /// At ports.
    pub links: Vec<OwnedFd>,
    /// Its flows.
    pub flows: Option<OwnedFd>,
    pub estate: Estate,
    /// The control socket.
    pub control: OwnedFd,
    /// The engine's.
    pub door: OwnedFd,
    pub locks: Vec<OwnedFd>,
    pub metrics: Option<TcpListener>,
}

impl Predecessor {
    /// Who has started this process, at standard input.
    pub fn meet() -> Result<Self, Stop> {
        let alone = |_| {
            Stop::new(
                Exit::Usage,
                "--take-over is what a daemon starts its successor with: use `freeway upgrade`",
            )
        };
        let stdin = io::stdin();
        match getsockopt(&stdin, TypeOf) {
            Ok(SockType::SeqPacket) => {}
            _ => return Err(alone(())),
        }
        let socket = stdin.as_fd().try_clone_to_owned();
        let socket = socket.map_err(|error| failed(&error))?;
        // so that the socket has no other owner
        let nothing = File::open("/dev/null").map_err(|error| failed(&error))?;
        dup2_stdin(nothing).map_err(|error| failed(&error.into()))?;
        wait_at_most(&socket, PATIENCE)?;
        match handover::receive(socket.as_fd()) {
            Ok(Some((Said::Hello(hello), _))) if hello.protocol == PROTOCOL => {
                Ok(Self { socket, hello })
            }
            Ok(Some((Said::Hello(hello), _))) => Err(Stop::failure(format!(
                "version {} hands over in another way than version {} takes over: a restart is needed",
                hello.version,
                env!("CARGO_PKG_VERSION")
            ))),
            Ok(_) => Err(gone()),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Whether this one may serve where that one does.
    pub fn check_socket(&self, socket: &Path) -> Result<(), Stop> {
        match socket == self.hello.socket {
            true => Ok(()),
            false => Err(Stop::new(
                Exit::Config,
                format!(
                    "daemon.socket is {} now, and was {}: a restart is needed",
                    socket.display(),
                    self.hello.socket.display()
                ),
            )),
        }
    }

    /// Where it serves metrics.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.hello.metrics
    }

    /// Says that all is loaded, and waits for what it hands over.
    pub fn inherit(&self) -> Result<Inheritance, Stop> {
        let ready = Answer::Ready {
            version: env!("CARGO_PKG_VERSION").into(),
            abi: DIGEST,
            adopts: true,
        };
        handover::send(self.socket.as_fd(), &ready, &[]).map_err(|_| gone())?;
        let (mut links, mut flows) = (Vec::new(), None);
        loop {
            match handover::receive(self.socket.as_fd()).map_err(|error| failed(&error))? {
                Some((Said::Links, more)) => links.extend(more),
                Some((Said::Flows, file)) => flows = file.into_iter().next(),
                Some((Said::Estate(estate), fds)) => {
                    let sorted = sort(links, flows, estate, fds);
                    return sorted
                        .ok_or_else(|| Stop::failure("what is handed over is not complete"));
                }
                Some(_) => {}
                None => return Err(gone()),
            }
        }
    }

    /// Says that this one forwards, and waits until the other has stepped back. One that has gone has left all here.
    pub fn relieve(&self) {
        let told = handover::send(self.socket.as_fd(), &Answer::Done, &[]);
        let heard = told.and_then(|()| {
            wait_at_most(&self.socket, FAREWELL).map_err(|stop| io::Error::other(stop.message))?;
            handover::receive::<Said>(self.socket.as_fd())
        });
        match heard {
            Ok(Some(_)) => {}
            Ok(None) => tracing::warn!("the daemon before has ended without a word"),
            Err(error) => tracing::warn!("the daemon before does not step back: {error}"),
        }
    }

    /// Says why this one ends.
    pub fn disappoint(&self, stop: &Stop) {
        let failed = Answer::Failed {
            message: stop.to_string(),
            config: stop.exit == Exit::Config,
        };
        // nobody is there if the other has gone
        let _ = handover::send(self.socket.as_fd(), &failed, &[]);
    }

    /// As `status` shows it.
    pub fn told(&self) -> TakenOver {
        TakenOver {
            version: self.hello.version.clone(),
            pid: self.hello.pid,
            same_abi: self.hello.abi == DIGEST,
            flows: 0,
        }
    }
}

fn sort(
    links: Vec<OwnedFd>,
    flows: Option<OwnedFd>,
    estate: Estate,
    fds: Vec<OwnedFd>,
) -> Option<Inheritance> {
    let mut fds = fds.into_iter();
    let (control, door) = (fds.next()?, fds.next()?);
    let locks: Vec<_> = fds.by_ref().take(estate.locks).collect();
    let metrics = fds.next().filter(|_| estate.metrics);
    (locks.len() == estate.locks && metrics.is_some() == estate.metrics).then(|| Inheritance {
        links,
        flows,
        estate,
        control,
        door,
        locks,
        metrics: metrics.map(TcpListener::from),
    })
}

fn wait_at_most(socket: &OwnedFd, patience: Duration) -> Result<(), Stop> {
    let patience = TimeVal::new(patience.as_secs() as nix::libc::time_t, 0);
    setsockopt(socket, ReceiveTimeout, &patience).map_err(|error| failed(&error.into()))
}

fn failed(error: &io::Error) -> Stop {
    Stop::failure(format!("cannot hear the daemon that hands over: {error}"))
}

fn gone() -> Stop {
    Stop::failure("the daemon that was to hand over has ended")
}
