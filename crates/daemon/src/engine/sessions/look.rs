// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions are looked for.

use freeway_abi::{FW_SESSION_PLAIN, FW_SESSIONS_MAX};
use freeway_cmm::Session;

use super::super::Engine;
use super::*;

impl Engine {
    /// Goes by the list of sessions and what their frames have shown. True if that differs from before.
    pub(in crate::engine) fn look_at_sessions(&mut self) -> bool {
        if self.sessions.known.is_empty() && self.polled.sessions.is_empty() {
            return false;
        }
        let before = std::mem::take(&mut self.sessions.known);
        let mut now = self.sessions_listed();
        let is = |old: &Known, new: &Known| {
            (&new.said, new.device, new.session) == (&old.said, old.device, old.session)
        };
        for gone in before
            .iter()
            .filter(|old| !now.iter().any(|new| is(old, new)))
        {
            // one of the same number may follow, which is looked at anew
            let _ = self.datapath.forget_session(gone.key());
        }
        let mut taken: Vec<u32> = before.iter().map(|old| old.place).collect();
        for known in &mut now {
            if let Some(old) = before.iter().find(|old| is(old, known)) {
                known.place = old.place;
                let shown = self.datapath.session(known.place);
                let lives = shown.port == 0 || self.mirror.links().contains_key(&shown.port);
                if lives {
                    known.port = shown.port;
                    known.plain = shown.shown == FW_SESSION_PLAIN;
                    continue;
                }
            }
            known.place = self.sessions.take_place(&taken);
            taken.push(known.place);
            let (key, record) = (known.key(), known.record());
            if let Err(error) = self.datapath.watch_session(key, known.place, &record) {
                tracing::warn!("a PPPoE session stays in tc: {error}");
            }
        }
        let differs = before != now;
        self.sessions.known = now;
        differs
    }

    /// Those whose number is one session's alone.
    fn sessions_listed(&self) -> Vec<Known> {
        let all = &self.polled.sessions;
        let listed = all.iter().filter_map(|said| {
            let mut devices = self.mirror.links().values();
            let device = devices.find(|link| link.name == said.device)?;
            let session = Session {
                id: said.id,
                remote: said.remote.0,
                own: device.mac?.0,
            };
            let alone = all.iter().filter(|other| other.id == said.id).count() == 1;
            alone.then(|| Known {
                said: said.clone(),
                session,
                device: device.ifindex,
                place: 0,
                port: 0,
                plain: false,
            })
        });
        // half of the places rest
        listed.take(FW_SESSIONS_MAX as usize / 2).collect()
    }
}
