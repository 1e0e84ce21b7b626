// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of the kernel's that XDP and the engine share: XDP hands over what is the engine's.

use std::os::fd::{AsFd, OwnedFd};

use freeway_api::engine::{Answer, Socket};

use super::super::Engine;
use super::super::configured::{unfit, without_xdp};
use super::super::membership::{is_member, is_part};
use super::{SILENCE_MAX, There};

impl Engine {
    /// Why the engine cannot have sockets at these ports.
    pub(super) fn refuse_sockets(&self, sockets: &[Socket]) -> Option<Answer> {
        if sockets.is_empty() {
            return None;
        }
        if !self.config.engine.has_sockets() {
            let why = "the daemon has read no port with af_xdp = true: both go by the same file, restart the daemon";
            return Some(Answer::Refused(why.into()));
        }
        if sockets.len() > freeway_abi::FW_SOCKETS_MAX as usize {
            let why = format!("{} queues are too many", sockets.len());
            return Some(Answer::Refused(why));
        }
        let why = ports_of(sockets).find_map(|port| {
            let Some(link) = self.mirror.links().get(&port) else {
                return Some(format!("interface {port} is gone"));
            };
            let reason = match () {
                () if !self.concerns(link) => {
                    Some("the daemon leaves it out (interfaces, -i)".into())
                }
                () if is_member(link) || is_part(link) => {
                    Some("it is part of a bridge or bond".into())
                }
                () if link.is_carried() || link.is_bond() || link.is_bridge() => {
                    Some("it is made of other ports".into())
                }
                () => unfit(link, self.mirror.links(), &self.config)
                    .or_else(|| without_xdp(link, &self.config)),
            };
            let named = |reason| {
                let name = &link.name;
                format!("engine.port.{name}: af_xdp needs XDP at {name}: {reason}")
            };
            reason.map(named)
        });
        why.map(Answer::Unfit)
    }

    /// Has XDP hand over by them; the ports at which it does, with the number of the first. The descriptors are closed, for a socket goes with its last one.
    pub(super) fn place_sockets(&self, named: &[Socket], sockets: Vec<OwnedFd>) -> Vec<(u32, u32)> {
        let mut placed = Vec::new();
        for port in ports_of(named) {
            let of_port = named.iter().zip(&sockets).zip(0..);
            let of_port = of_port.filter(|((socket, _), _)| socket.port == port);
            let (fds, numbers): (Vec<_>, Vec<u32>) = of_port
                .map(|((_, fd), number)| (fd.as_fd(), number))
                .unzip();
            let first = numbers.first().copied().unwrap_or(0);
            match self.datapath.set_sockets(port, first, &fds) {
                Ok(()) => placed.push((port, first)),
                Err(error) => tracing::warn!(
                    port = self.port_name(port),
                    reason = %error,
                    "XDP cannot hand over to the engine"
                ),
            }
        }
        placed
    }

    /// Their names.
    pub(in crate::engine) fn shared_ports(&self) -> Vec<String> {
        let there = self.cores.there.iter();
        let ports = there.flat_map(There::shares);
        ports.map(|port| self.port_name(port)).collect()
    }

    /// XDP hands over no more.
    pub(super) fn forget_sockets(&self, ports: &[(u32, u32)]) {
        for (port, _) in ports {
            if let Err(error) = self.datapath.clear_sockets(*port) {
                tracing::warn!("{error}");
            }
        }
    }

    /// An engine that stands still is given no more, one that goes on is again. True if that has changed.
    pub(in crate::engine) fn look_at_cores(&mut self) -> bool {
        let Some(there) = &mut self.cores.there else {
            return false;
        };
        let silent = !there.shared.is_empty() && there.heard.elapsed() > SILENCE_MAX;
        if std::mem::replace(&mut there.silent, silent) == silent {
            return false;
        }
        let (pid, shared) = (there.status.pid, there.shared.clone());
        if silent {
            tracing::warn!("the engine (process {pid}) stands still: XDP hands nothing over");
            self.forget_sockets(&shared);
            return true;
        }
        tracing::info!("the engine (process {pid}) goes on");
        for (port, first) in shared {
            if let Err(error) = self.datapath.set_sockets(port, first, &[]) {
                tracing::warn!("{error}");
            }
        }
        true
    }
}

/// Each port once: its queues are named one after the other, from 0 on.
fn ports_of(sockets: &[Socket]) -> impl Iterator<Item = u32> {
    let first = sockets.iter().filter(|socket| socket.queue == 0);
    first.map(|socket| socket.port)
}
