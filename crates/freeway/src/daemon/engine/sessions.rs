// SPDX-License-Identifier: MIT OR Apache-2.0
//! PPPoE sessions: which PPP device each is, and whether XDP may frame for it. The kernel tells neither; its own frames
//! show both (dataplane/session.h).

use freeway_abi::{FW_SESSION, FW_SESSION_PLAIN, FW_SESSIONS_MAX, fw_session};
use freeway_cmm::Session;
use freeway_kernel::model::Link;
use freeway_kernel::pppoe;

use super::Engine;

/// A session that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    said: pppoe::Session,
    session: Session,
    /// The device through which it goes.
    device: u32,
    /// The PPP device, once it is known and nothing but plain packets leaves.
    port: Option<u32>,
}

impl Known {
    fn key(&self) -> u32 {
        FW_SESSION | u32::from(self.session.id)
    }

    fn record(&self) -> fw_session {
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&self.session.remote);
        macs[6..].copy_from_slice(&self.session.own);
        fw_session {
            device: self.device,
            macs,
            ..fw_session::default()
        }
    }
}

/// Those of the namespace.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    known: Vec<Known>,
}

impl Sessions {
    /// The session that a PPP device is, and the device through which it goes.
    pub(super) fn of(&self, link: &Link) -> Option<(u32, Session)> {
        let mut known = self.known.iter();
        let known = known.find(|known| known.port == Some(link.ifindex))?;
        Some((known.device, known.session))
    }
}

impl Engine {
    /// Goes by the list of sessions and what their frames have shown. True if that differs from before.
    pub(super) fn look_at_sessions(&mut self) -> bool {
        if self.sessions.known.is_empty() && self.polled.sessions.is_empty() {
            return false;
        }
        let before = std::mem::take(&mut self.sessions.known);
        let mut now = self.sessions_listed();
        for gone in before.iter().filter(|old| {
            let same = |new: &Known| {
                (&new.said, new.device, new.session) == (&old.said, old.device, old.session)
            };
            !now.iter().any(same)
        }) {
            // one of the same number may follow, which is looked at anew
            let _ = self.datapath.forget_session(gone.key());
        }
        for known in &mut now {
            let shown = self.datapath.session(known.key());
            let lives = shown.port == 0 || self.mirror.links().contains_key(&shown.port);
            if shown.device == 0 || !lives {
                if let Err(error) = self.datapath.watch_session(known.key(), &known.record()) {
                    tracing::warn!("a PPPoE session stays in tc: {error}");
                }
            } else if shown.shown == FW_SESSION_PLAIN && shown.port != 0 {
                known.port = Some(shown.port);
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
                port: None,
            })
        });
        listed.take(FW_SESSIONS_MAX as usize).collect()
    }
}
