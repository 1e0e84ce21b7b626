// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon sees of translations.

use freeway_abi::fw_candidate;
use freeway_api::engine::{SameCore, SameCorePort};
use freeway_cmm::FlowKey;
use freeway_kernel::model::Event;

use super::super::Engine;
use super::{DEPTH_MAX, Translated};

impl Engine {
    /// Learns of a new flow what its connection's source became.
    pub(in crate::engine) fn see_translation(&mut self, candidate: &fw_candidate) {
        let Some(translated) = Translated::of(candidate) else {
            return;
        };
        let port = FlowKey::of(candidate).map(|key| key.port);
        let Some(port) = port.filter(|port| self.is_of_engine(*port)) else {
            return;
        };
        let Some(translations) = &mut self.translations else {
            return;
        };
        match translated.is_together(self.datapath.config()) {
            true => translations.together += 1,
            false => translations.apart += 1,
        }
        if let Err(error) = translations.learn(port, translated.answered.ip()) {
            tracing::warn!("engine.same_core: {error}");
        }
    }

    /// What the kernel no longer has is forgotten.
    pub(in crate::engine) fn hear_of_translations(&mut self, event: &Event) {
        let Some(translations) = &mut self.translations else {
            return;
        };
        let forgotten = match event {
            Event::LinkGone { ifindex } => translations.forget(|port, _| port != *ifindex),
            Event::AddrGone(gone) => translations.forget(|_, address| gone.local != address),
            _ => Ok(()),
        };
        if let Err(error) = forgotten {
            tracing::warn!("engine.same_core: {error}");
        }
    }

    /// True of a port that the configuration gives to the engine, and of what is above one.
    fn is_of_engine(&self, ifindex: u32) -> bool {
        let below = |ifindex: &u32| self.mirror.links().get(ifindex)?.link;
        std::iter::successors(Some(ifindex), below)
            .take(DEPTH_MAX)
            .filter_map(|ifindex| self.mirror.links().get(&ifindex))
            .any(|link| self.config.engine.port.contains_key(&link.name))
    }

    /// For `freeway status`.
    pub(in crate::engine) fn same_core_status(&self) -> Option<SameCore> {
        let translations = self.translations.as_ref()?;
        let counts = translations.precedents.counts().unwrap_or_default();
        let ports = translations.origins.iter();
        Some(SameCore {
            ports: ports
                .map(|(port, addresses)| SameCorePort {
                    name: self.port_name(*port),
                    addresses: addresses.iter().map(ToString::to_string).collect(),
                })
                .collect(),
            together: translations.together,
            apart: translations.apart,
            precedents: counts.made,
            ports_taken: counts.taken,
            refused: counts.refused,
        })
    }
}
