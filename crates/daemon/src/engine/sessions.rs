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
    /// Where what is seen of it is kept.
    place: u32,
    /// The PPP device, or 0 until it is known.
    port: u32,
    /// Nothing but plain packets pass.
    plain: bool,
}

impl Known {
    fn key(&self) -> u32 {
        FW_SESSION | u32::from(self.session.id)
    }

    fn record(&self) -> fw_session {
        fw_session {
            device: self.device,
            macs: self.session.macs(),
            ..fw_session::default()
        }
    }
}

/// Those of the namespace.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    known: Vec<Known>,
    /// Taken by turns, so that no frame of the one before is still on its way.
    next_place: u32,
}

impl Sessions {
    /// The session that a PPP device is, and the device through which it goes.
    pub(super) fn of(&self, link: &Link) -> Option<(u32, Session)> {
        let mut known = self.known.iter().filter(|known| known.port == link.ifindex);
        let (one, other) = (known.next()?, known.next());
        // of several the kernel may send by any
        (one.plain && other.is_none()).then_some((one.device, one.session))
    }

    /// A place that none of these has.
    fn take_place(&mut self, taken: &[u32]) -> u32 {
        let turns = (0..FW_SESSIONS_MAX).map(|turn| (self.next_place + turn) % FW_SESSIONS_MAX);
        let place = turns.into_iter().find(|place| !taken.contains(place));
        let place = place.unwrap_or(self.next_place % FW_SESSIONS_MAX);
        self.next_place = place + 1;
        place
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

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_kernel::model::Mac;

    fn known(port: u32, plain: bool) -> Known {
        let remote = [2, 0, 0, 0, 0, 9];
        Known {
            said: pppoe::Session {
                id: 5,
                remote: Mac(remote),
                device: "wan0".into(),
            },
            session: Session {
                id: 5,
                remote,
                own: [2, 0, 0, 0, 0, 1],
            },
            device: 3,
            place: 0,
            port,
            plain,
        }
    }

    #[test]
    fn a_device_of_one_plain_session_is_that() {
        let link = Link {
            ifindex: 7,
            ..Link::default()
        };
        let of = |known: &[Known]| {
            let sessions = Sessions {
                known: known.to_vec(),
                next_place: 0,
            };
            sessions.of(&link).is_some()
        };
        assert!(of(&[known(7, true), known(8, true), known(0, true)]));
        assert!(!of(&[]));
        assert!(!of(&[known(0, true), known(8, true)]));
        assert!(!of(&[known(7, false)]));
        assert!(!of(&[known(7, true), known(7, false)]), "two channels");
    }

    #[test]
    fn places_rest_and_are_ones_own() {
        let mut sessions = Sessions::default();
        assert_eq!([sessions.take_place(&[]), sessions.take_place(&[])], [0, 1]);
        sessions.next_place = FW_SESSIONS_MAX;
        assert_eq!(sessions.take_place(&[0, 1]), 2);
    }
}
