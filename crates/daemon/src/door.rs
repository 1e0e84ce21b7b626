// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket at which the engine knocks. Threads of their own wait there: an engine that says nothing, or nonsense, takes no
//! time of the daemon's.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use freeway_abi::DIGEST;
use freeway_api::engine::{
    Answer, EngineCounts, Hello, MESSAGES, Mirrored, Routed, Said, Scheduled, WatchedFast,
};
use freeway_api::handover;
use freeway_api::schedule::ClassCounts;
use nix::sys::socket::sockopt::{PeerCredentials, ReceiveTimeout, SendTimeout};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, getsockopt, listen,
    setsockopt, socket,
};
use nix::sys::stat::{Mode, fchmod};
use nix::sys::time::TimeVal;
use nix::unistd::geteuid;
use tokio::sync::mpsc;

use crate::DaemonError;

/// An engine introduces itself, and takes what it is sent, at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Notices that may wait; more than one engine's are never there.
const QUEUE: usize = 4;

/// What is heard there.
pub enum Notice {
    /// An engine; the socket is for the answer, the others are those of AF_XDP that it names.
    Came(Hello, OwnedFd, Vec<OwnedFd>),
    /// What it has done.
    Counts(EngineCounts),
    /// Packets of the watched tuple that it has forwarded.
    Watched(Vec<WatchedFast>),
    /// It goes by the framings of that number.
    Framed(u64),
    /// What it made of schedules.
    Scheduled(Scheduled),
    /// What has become of the frames of a port's classes.
    Classes(Vec<ClassCounts>),
    /// What it made of mirrors.
    Mirrored(Mirrored),
    /// What it made of tables of prefix paths.
    Routed(Routed),
    /// It has gone.
    Gone,
}

/// The open socket. Dropping it removes the name.
pub struct Door {
    /// None: it is another process's.
    path: Option<PathBuf>,
    listener: Arc<OwnedFd>,
    notices: mpsc::Receiver<Notice>,
}

impl Door {
    /// Binds the socket, and receives who comes there.
    pub fn open(path: &Path) -> Result<Self, DaemonError> {
        let failed = |error: io::Error| {
            DaemonError::Failure(format!(
                "cannot bind the engine's socket {}: {error}",
                path.display()
            ))
        };
        Self::of(path, bind_at(path).map_err(failed)?)
    }

    /// Receives who comes at a socket that is bound.
    pub fn of(path: &Path, listener: OwnedFd) -> Result<Self, DaemonError> {
        let failed =
            |error: io::Error| DaemonError::Failure(format!("cannot wait for the engine: {error}"));
        let listener = Arc::new(listener);
        let (sender, notices) = mpsc::channel(QUEUE);
        let guests = Guests {
            there: Arc::default(),
            refused: Arc::default(),
            notices: sender,
        };
        let there = Arc::clone(&listener);
        let work = move || guests.receive_all(&there);
        let thread = thread::Builder::new().name("freeway-door".into());
        thread.spawn(work).map_err(failed)?;
        Ok(Self {
            path: Some(path.to_path_buf()),
            listener,
            notices,
        })
    }

    /// The socket.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Leaves the name to another process.
    pub fn leave(&mut self) {
        self.path = None;
    }

    /// Completes when something is heard.
    pub async fn notice(&mut self) -> Notice {
        match self.notices.recv().await {
            Some(notice) => notice,
            // the thread has ended: nobody comes any more
            None => std::future::pending().await,
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Root's alone. The daemon's lock says that nobody else serves this name: what lies there is stale.
fn bind_at(path: &Path) -> io::Result<OwnedFd> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let fd = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&fd, Backlog::new(4)?)?;
    Ok(fd)
}

/// Who is there: one engine at most.
#[derive(Clone)]
struct Guests {
    /// Its process.
    there: Arc<Mutex<Option<u32>>>,
    /// Why one was refused last, who comes again and again.
    refused: Arc<Mutex<Option<String>>>,
    notices: mpsc::Sender<Notice>,
}

impl Guests {
    fn receive_all(&self, listener: &OwnedFd) {
        while !self.notices.is_closed() {
            let Ok(fd) = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) else {
                // such as too many descriptors
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            // SAFETY: the kernel has just made it.
            let guest = unsafe { OwnedFd::from_raw_fd(fd) };
            let guests = self.clone();
            let thread = thread::Builder::new().name("freeway-guest".into());
            let spawned = thread.spawn(move || {
                if let Err(error) = guests.receive(&guest) {
                    guests.tell_refusal(&error);
                    let _ = handover::send(guest.as_fd(), &Answer::Refused(error), &[]);
                }
            });
            if let Err(error) = spawned {
                tracing::warn!("an engine cannot be received: {error}");
            }
        }
    }

    /// Once.
    fn tell_refusal(&self, why: &str) {
        let mut told = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if told.as_deref() != Some(why) {
            tracing::warn!("an engine is refused: {why}");
            *told = Some(why.to_owned());
        }
    }

    /// From its first word to its end.
    fn receive(&self, guest: &OwnedFd) -> Result<(), String> {
        let peer = getsockopt(guest, PeerCredentials).map_err(|e| e.to_string())?;
        if peer.uid() != 0 && peer.uid() != geteuid().as_raw() {
            return Err(format!("it is of user {}, not of root", peer.uid()));
        }
        let patience = TimeVal::new(PATIENCE.as_secs() as nix::libc::time_t, 0);
        setsockopt(guest, ReceiveTimeout, &patience).map_err(|e| e.to_string())?;
        setsockopt(guest, SendTimeout, &patience).map_err(|e| e.to_string())?;
        let (hello, sockets) = match handover::receive(guest.as_fd()) {
            Ok(Some((Said::Hello(hello), sockets))) => (hello, sockets),
            Ok(Some(_)) => return Err("it does not introduce itself".into()),
            Ok(None) => return Ok(()),
            Err(error) => return Err(format!("it does not introduce itself: {error}")),
        };
        if hello.abi != DIGEST || hello.messages != MESSAGES {
            return Err(format!(
                "its version {} has another binary interface than this daemon's {}: install both of one version",
                hello.version,
                env!("CARGO_PKG_VERSION")
            ));
        }
        if sockets.len() != hello.sockets.len() {
            return Err(format!(
                "it names {} sockets and sends {}",
                hello.sockets.len(),
                sockets.len()
            ));
        }
        self.claim(hello.pid)?;
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let result = self.listen_to(guest, hello, sockets);
        let _ = self.notices.blocking_send(Notice::Gone);
        *self.there.lock().unwrap_or_else(PoisonError::into_inner) = None;
        result
    }

    fn claim(&self, pid: u32) -> Result<(), String> {
        let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        match *there {
            Some(other) => Err(format!("there is one already (process {other})")),
            None => {
                *there = Some(pid);
                Ok(())
            }
        }
    }

    fn listen_to(
        &self,
        guest: &OwnedFd,
        hello: Hello,
        sockets: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let answer = guest.try_clone().map_err(|e| e.to_string())?;
        let notice = Notice::Came(hello, answer, sockets);
        let told = self.notices.blocking_send(notice);
        // the daemon ends
        if told.is_err() {
            return Ok(());
        }
        let forever = TimeVal::new(0, 0);
        setsockopt(guest, ReceiveTimeout, &forever).map_err(|e| e.to_string())?;
        loop {
            let notice = match handover::receive(guest.as_fd()) {
                Ok(Some((Said::Counts(counts), _))) => Notice::Counts(counts),
                Ok(Some((Said::Watched(packets), _))) => Notice::Watched(packets),
                Ok(Some((Said::Framed(number), _))) => Notice::Framed(number),
                Ok(Some((Said::Scheduled(scheduled), _))) => Notice::Scheduled(scheduled),
                Ok(Some((Said::Classes(classes), _))) => Notice::Classes(classes),
                Ok(Some((Said::Mirrored(mirrored), _))) => Notice::Mirrored(mirrored),
                Ok(Some((Said::Routed(routed), _))) => Notice::Routed(routed),
                Ok(Some((Said::Hello(_), _))) => return Err("it introduces itself twice".into()),
                Ok(None) => return Ok(()),
                Err(error) => return Err(format!("it cannot be understood: {error}")),
            };
            if self.notices.blocking_send(notice).is_err() {
                return Ok(());
            }
        }
    }
}
