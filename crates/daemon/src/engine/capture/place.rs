// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capture's program comes to ports and goes again.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use freeway_api::{CaptureQuery, Failure};
use freeway_datapath::Hook;
use freeway_kernel::model::Link;

use super::super::Engine;
use super::super::ports::Port;
use super::{Captured, Running, filter_of};

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::internal(error.to_string())
}

impl Engine {
    /// Begins, unless another one runs.
    pub(in crate::engine) fn capture(&mut self, query: CaptureQuery) -> Result<Captured, Failure> {
        if self.capture.0.is_some() {
            return Err(Failure::unavailable(
                "another capture runs",
                "end it, or wait for its end",
            ));
        }
        let named = query.ports.iter().chain(&query.filter.port);
        for name in named {
            let link = self.mirror.link_by_name(name);
            if link.is_none_or(|link| !self.ports.by_index.contains_key(&link.ifindex)) {
                return Err(Failure::request(
                    format!("{name} is no port that takes part"),
                    "`freeway status` names them",
                ));
            }
        }
        let port = query.filter.port.as_ref().and_then(|name| {
            let ifindex = self.mirror.link_by_name(name)?.ifindex;
            let slot = self.ports.by_index.get(&ifindex)?.slot;
            Some((ifindex, slot.unwrap_or(u32::MAX)))
        });
        let filter = filter_of(&query, port, self.datapath.clock.hz())?;
        let tap = self.datapath.tap(&filter).map_err(internal)?;
        let ring = tap.ring().map_err(internal)?;
        self.capture.0 = Some(Running {
            tap,
            ports: query.ports,
        });
        // a port's prefix paths make room
        self.update_routes().map_err(internal)?;
        self.place_taps();
        let indexes = self.ports.by_index.keys();
        let mut ports = BTreeMap::new();
        ports.extend(indexes.map(|i| (*i, self.port_name(*i))));
        let mut captured = Captured {
            ring,
            ports,
            slots: self.slots(),
            kept: Vec::new(),
            taken: filter.taken,
        };
        for (ifindex, port) in &self.ports.by_index {
            let why = self.why_kept(port).filter(|_| self.is_captured(*ifindex));
            captured
                .kept
                .extend(why.map(|why| (self.port_name(*ifindex), why)));
        }
        tracing::info!("a capture has begun");
        Ok(captured)
    }

    /// Its reader has left.
    pub(in crate::engine) fn end_capture(&mut self) {
        if self.capture.0.take().is_some() {
            tracing::info!("the capture has ended");
        }
        self.place_taps();
        if let Err(error) = self.update_routes() {
            tracing::warn!("prefix paths after a capture: {error}");
        }
    }

    /// Each port's program as the capture wants it.
    pub(in crate::engine) fn place_taps(&mut self) {
        let plain = match self.datapath.prog(Hook::Xdp) {
            Ok(plain) => plain,
            Err(error) => return tracing::warn!("{error}"),
        };
        let ports: Vec<u32> = self.ports.by_index.keys().copied().collect();
        for ifindex in ports {
            let wanted = self.is_captured(ifindex);
            let Some(port) = self.ports.by_index.get_mut(&ifindex) else {
                continue;
            };
            let placed = match &self.capture.0 {
                Some(running) if wanted && !port.is_tapped() && port.untappable().is_none() => {
                    port.tap(running.tap.prog())
                }
                None if port.is_tapped() => port.restore(plain.as_fd()),
                _ => Ok(()),
            };
            if let Err(reason) = placed {
                tracing::warn!(port = port.name, reason, "a capture's program");
            }
        }
    }

    /// Why nothing is told of what comes in at a port.
    fn why_kept(&self, port: &Port) -> Option<String> {
        let Some(carried) = &port.carried else {
            let tapped = port.is_tapped();
            return port.untappable().filter(|_| !tapped).map(str::to_owned);
        };
        // frames with tags are those of the device below
        let base = self.ports.by_index.get(&carried.base);
        let tapped = base.is_some_and(Port::is_tapped);
        let words = || format!("its frames come in at {}", self.port_name(carried.base));
        (!tapped).then(words)
    }

    /// The capture is of what comes in there.
    pub(in crate::engine) fn is_captured(&self, ifindex: u32) -> bool {
        let running = self.capture.0.as_ref();
        let link = self.mirror.links().get(&ifindex);
        let of = |link: &Link| {
            running.is_some_and(|r| r.ports.is_empty() || r.ports.contains(&link.name))
        };
        link.is_some_and(of)
    }

    /// Where the slots of the device map lead: what has tags leaves at the device below.
    fn slots(&self) -> BTreeMap<u32, u32> {
        let ports = self.ports.by_index.iter();
        let slots = ports.filter_map(|(ifindex, port)| {
            let base = port
                .carried
                .as_ref()
                .map_or(*ifindex, |carried| carried.base);
            Some((port.slot?, base))
        });
        let mut all = BTreeMap::new();
        all.extend(slots);
        all
    }
}
