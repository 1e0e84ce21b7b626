// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine on cores of its own, as the daemon sees it: a process that comes and goes. It is told where the table is, and
//! the flows of its ports are its as long as it is there.

mod dispatch;
mod framings;
mod heard;
mod mirrors;
mod numbers;
mod schedules;
mod shapers;
mod shared;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use freeway_abi::{fw_framed, fw_framing};
use freeway_api::engine::{Answer, EngineStatus, RouteTables};
use freeway_api::handover;
use freeway_api::schedule::ClassCounts;
use freeway_cmm::Served;
use freeway_datapath::RouteTable;

use self::framings::{Told, record};
use self::schedules::Wanted;

use crate::DaemonError;
use crate::door::{Door, Notice};

/// Whoever may be there.
#[derive(Default)]
pub(super) struct Cores {
    /// None: it is not open yet.
    door: Option<Door>,
    there: Option<There>,
}

/// An engine that has the table.
struct There {
    status: EngineStatus,
    /// Its TAPs.
    ports: Vec<u32>,
    /// Ports of the kernel's at which XDP has its sockets, and the number of the first one of each.
    shared: Vec<(u32, u32)>,
    /// When it last said something.
    heard: Instant,
    /// That was too long ago: XDP hands nothing over.
    silent: bool,
    socket: OwnedFd,
    framings: Told,
    schedules: schedules::Told,
    mirrors: mirrors::Told,
    routes: ToldRoutes,
    /// Of its schedulers, by port.
    classes: BTreeMap<u32, Vec<ClassCounts>>,
}

/// The number of the tables by which it is to forward without flows, and of those by which it surely does.
#[derive(Debug, Default)]
struct ToldRoutes {
    told: Option<u64>,
    held: Option<u64>,
    /// Why it cannot.
    refused: Option<String>,
}

/// An engine that goes on says so each second.
const SILENCE_MAX: Duration = Duration::from_secs(3);

impl There {
    /// Tells it something; why it could not be told.
    fn tell(&self, answer: &Answer) -> io::Result<()> {
        self.give(answer, &[])
    }

    /// Tells it where something is.
    fn give(&self, answer: &Answer, fds: &[RawFd]) -> io::Result<()> {
        let sent = handover::send(self.socket.as_fd(), answer, fds);
        sent.inspect_err(|error| {
            tracing::warn!("the engine (process {}): {error}", self.status.pid);
        })
    }

    /// Ports at which XDP hands frames over.
    fn shares(&self) -> impl Iterator<Item = u32> {
        let shared = self.shared.iter().filter(|_| !self.silent);
        shared.map(|(port, _)| *port)
    }
}

impl Cores {
    /// Opens the engine's socket beside the control socket; `bound`: it is there, and was another daemon's.
    pub fn open(&mut self, control: &Path, bound: Option<OwnedFd>) -> Result<(), DaemonError> {
        let path = freeway_api::engine::socket_beside(control);
        self.door = Some(match bound {
            Some(listener) => Door::of(&path, listener)?,
            None => Door::open(&path)?,
        });
        Ok(())
    }

    /// The socket.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.door.as_ref().map(Door::listener)
    }

    /// Leaves its name to another daemon.
    pub fn leave(&mut self) {
        if let Some(door) = &mut self.door {
            door.leave();
        }
    }

    /// Completes when an engine comes, says something, or has gone.
    pub async fn notice(&mut self) -> Notice {
        match &mut self.door {
            Some(door) => door.notice().await,
            None => std::future::pending().await,
        }
    }

    /// What the engine does at a port; `by_xdp`: XDP sees the frames that come in, at the port itself.
    pub fn served(&self, ifindex: u32, by_xdp: bool) -> Served {
        let there = self.there.as_ref();
        match there {
            _ if self.serve(ifindex) => Served::Whole,
            Some(there) if by_xdp && there.shares().any(|port| port == ifindex) => Served::Chosen,
            _ => Served::No,
        }
    }

    /// True of a TAP of the engine's, at whose device it forwards.
    pub fn serve(&self, ifindex: u32) -> bool {
        let there = self.there.as_ref();
        there.is_some_and(|there| there.ports.contains(&ifindex))
    }

    /// True if the engine takes that off and puts it on.
    pub fn frames(&self, framing: &fw_framing, framed: &fw_framed) -> bool {
        let there = self.there.as_ref();
        there.is_some_and(|there| there.framings.holds(&record(framing, framed)))
    }

    /// Gives the engine the tables of that number, unless it was; none: takes them away. Whether it may go by them they say
    /// themselves.
    pub fn tell_routes(&mut self, tables: Option<(u64, &RouteTable)>) {
        let number = tables.map(|(number, _)| number);
        let Some(there) = self.there.as_mut().filter(|it| it.routes.told != number) else {
            return;
        };
        there.routes.held = None;
        there.routes.refused = None;
        let given = match tables {
            None => there.give(&Answer::Routes(None), &[]),
            Some((number, data)) => {
                let fds = match data.handover() {
                    Ok(fds) => fds.map(|fd| fd.as_raw_fd()),
                    Err(error) => return tracing::warn!("{error}"),
                };
                let sizes = data.sizes();
                let tables = RouteTables {
                    number,
                    hop_mask: sizes.hop_mask,
                    count_mask: sizes.count_mask,
                    cpus: sizes.cpus,
                };
                there.give(&Answer::Routes(Some(tables)), &fds)
            }
        };
        // it is told again later, or has gone
        if given.is_ok() {
            there.routes.told = number;
        }
    }

    /// Why the engine has no prefix paths, in words.
    pub fn refused_routes(&self) -> Option<String> {
        let refused = self.there.as_ref()?.routes.refused.as_ref()?;
        Some(format!(
            "the engine has no prefix paths, tc forwards in its place: {refused}"
        ))
    }

    /// The engine surely goes by the tables of that number.
    pub fn goes_by_routes(&self, number: u64) -> bool {
        let there = self.there.as_ref();
        there.is_some_and(|there| there.routes.held == Some(number))
    }

    /// The scheduler by which the engine surely goes at a port.
    pub fn schedule(&self, ifindex: u32) -> Option<&Wanted> {
        self.there.as_ref()?.schedules.held(ifindex)
    }
}
