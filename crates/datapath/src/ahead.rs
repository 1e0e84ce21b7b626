// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of XDP ahead of the fast path: an object for each port, with what is the port's own, and the fast path behind it
//! by a tail call.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, Object};

use crate::DatapathError;
use crate::load::prog_fd;

/// By ifindex. `T` is what a port has of its own.
pub(crate) struct Ahead<T> {
    object: &'static str,
    program: &'static str,
    ports: BTreeMap<u32, At<T>>,
}

struct At<T> {
    prog: OwnedFd,
    _object: Object,
    own: T,
}

/// Has programs go on to another one: the only element of their map.
pub(crate) fn lead_to(
    map: &impl MapCore,
    name: &'static str,
    next: BorrowedFd<'_>,
) -> Result<(), DatapathError> {
    let fd = next.as_raw_fd().to_ne_bytes();
    let entered = map.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY);
    entered.map_err(|source| DatapathError::Map { map: name, source })
}

impl<T> Ahead<T> {
    /// At no port yet.
    pub(crate) fn new(object: &'static str, program: &'static str) -> Self {
        Self {
            object,
            program,
            ports: BTreeMap::new(),
        }
    }

    /// The program for a port and what is the port's, which are made when they are first asked for.
    pub(crate) fn at(
        &mut self,
        ifindex: u32,
        make: impl FnOnce() -> Result<(Object, T), DatapathError>,
    ) -> Result<(&OwnedFd, &mut T), DatapathError> {
        if !self.ports.contains_key(&ifindex) {
            let (object, own) = make()?;
            let at = At {
                prog: prog_fd(&object, self.object, self.program)?,
                _object: object,
                own,
            };
            self.ports.insert(ifindex, at);
        }
        let at = self.ports.get_mut(&ifindex);
        let at = at.ok_or(DatapathError::Missing {
            object: self.object,
            name: "a port",
        })?;
        Ok((&at.prog, &mut at.own))
    }

    /// The program is no longer at the port.
    pub(crate) fn leave(&mut self, ifindex: u32) {
        self.ports.remove(&ifindex);
    }

    /// Ports that have a program.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u32> + '_ {
        self.ports.keys().copied()
    }

    /// The program of a port that has one, and what is the port's.
    pub(crate) fn get(&self, ifindex: u32) -> Option<(&OwnedFd, &T)> {
        let at = self.ports.get(&ifindex)?;
        Some((&at.prog, &at.own))
    }

    /// What is a port's.
    pub(crate) fn own(&self, ifindex: u32) -> Option<&T> {
        self.get(ifindex).map(|(_, own)| own)
    }

    /// The same of all, to be changed.
    pub(crate) fn owns_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let all = self.ports.iter_mut();
        all.map(|(ifindex, at)| (*ifindex, &mut at.own))
    }

    /// Ids of the programs.
    pub(crate) fn prog_ids(&self) -> Vec<u32> {
        let progs = self.ports.values().map(|at| at.prog.as_fd());
        progs
            .filter_map(|fd| libbpf_rs::Program::id_from_fd(fd).ok())
            .collect()
    }
}
