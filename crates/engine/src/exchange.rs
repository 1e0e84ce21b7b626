// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exchange with the daemon: who one is, where the table is, what was done.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use freeway_api::engine::{
    Answer, DispatchChange, Framings, Hello, Mirrors, RouteTables, Said, Schedules, Table,
};
use freeway_api::handover;
use nix::sys::socket::sockopt::{ReceiveTimeout, SendTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket};
use nix::sys::time::TimeVal;

/// The daemon answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// One that takes nothing for so long is told nothing: links, signals and workers are looked at meanwhile.
const TOLD_PATIENCE: Duration = Duration::from_millis(50);

/// A daemon that has given its table.
pub struct Daemon {
    socket: OwnedFd,
}

/// What came of a knock.
pub enum Knock {
    /// The table, and the descriptors of flows, next hops, control and watch.
    Table(Daemon, Table, [OwnedFd; 4]),
    /// No daemon is there.
    Nobody,
    /// It refuses; why.
    Refused(String),
    /// A port cannot be what it is to be; why.
    Unfit(String),
}

/// What a daemon says that has given its table.
pub enum Heard {
    /// Nothing new.
    Nothing,
    /// Other framings.
    Framings(Framings),
    /// Frames of a port are to come to workers otherwise.
    Dispatch(DispatchChange),
    /// Other schedules.
    Schedules(Schedules),
    /// Other rules by which frames are copied.
    Mirrors(Mirrors),
    /// Other tables of prefix paths and their descriptors, or none.
    Routes(Option<RouteTables>, Vec<OwnedFd>),
    /// It has gone, or says what nobody understands.
    Gone,
}

/// Knocks at a daemon's; `sockets`: descriptors of those that are named.
pub fn knock(path: &Path, hello: Hello, sockets: &[RawFd]) -> io::Result<Knock> {
    let socket = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // ahead of all: one that stands still has a queue that is full
    setsockopt(&socket, ReceiveTimeout, &time_of(PATIENCE))?;
    setsockopt(&socket, SendTimeout, &time_of(PATIENCE))?;
    match connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
        Err(nix::Error::ENOENT | nix::Error::ECONNREFUSED) => return Ok(Knock::Nobody),
        result => result?,
    }
    handover::send(socket.as_fd(), &Said::Hello(hello), sockets)?;
    let answer = handover::receive(socket.as_fd())?;
    setsockopt(&socket, SendTimeout, &time_of(TOLD_PATIENCE))?;
    Ok(match answer {
        None => Knock::Nobody,
        Some((Answer::Refused(why), _)) => Knock::Refused(why),
        Some((Answer::Unfit(why), _)) => Knock::Unfit(why),
        Some((
            Answer::Framings(_)
            | Answer::Dispatch(_)
            | Answer::Schedules(_)
            | Answer::Mirrors(_)
            | Answer::Routes(_),
            _,
        )) => Knock::Refused("it says something else ahead of its table".into()),
        Some((Answer::Table(table), fds)) => match <[OwnedFd; 4]>::try_from(fds) {
            Ok(fds) => Knock::Table(Daemon { socket }, table, fds),
            Err(fds) => Knock::Refused(format!("it sent {} descriptors, not 4", fds.len())),
        },
    })
}

fn time_of(patience: Duration) -> TimeVal {
    TimeVal::new(
        patience.as_secs() as nix::libc::time_t,
        patience.subsec_micros() as nix::libc::suseconds_t,
    )
}

impl Daemon {
    /// Tells it something; an error says that it has gone.
    pub fn tell(&self, said: &Said) -> io::Result<()> {
        handover::send(self.socket.as_fd(), said, &[])
    }

    /// What it says meanwhile.
    #[must_use]
    pub fn heard(&self) -> Heard {
        let mut room = [0; 1];
        let flags = nix::sys::socket::MsgFlags::MSG_PEEK | nix::sys::socket::MsgFlags::MSG_DONTWAIT;
        match nix::sys::socket::recv(self.socket.as_raw_fd(), &mut room, flags) {
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Heard::Nothing,
            Ok(1..) => match handover::receive(self.socket.as_fd()) {
                Ok(Some((Answer::Framings(framings), _))) => Heard::Framings(framings),
                Ok(Some((Answer::Dispatch(change), _))) => Heard::Dispatch(change),
                Ok(Some((Answer::Schedules(schedules), _))) => Heard::Schedules(schedules),
                Ok(Some((Answer::Mirrors(mirrors), _))) => Heard::Mirrors(mirrors),
                Ok(Some((Answer::Routes(tables), fds))) => Heard::Routes(tables, fds),
                Err(error) => {
                    eprintln!("freeway-engine: the daemon says what cannot be read: {error}");
                    Heard::Gone
                }
                _ => Heard::Gone,
            },
            _ => Heard::Gone,
        }
    }
}

impl AsFd for Daemon {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
