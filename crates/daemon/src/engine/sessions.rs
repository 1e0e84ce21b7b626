// SPDX-License-Identifier: MIT OR Apache-2.0
//! PPPoE sessions: which PPP device each is, and whether XDP may frame for it. The kernel tells neither; its own frames
//! show both (dataplane/session.h).

mod look;

use freeway_abi::{FW_SESSION, FW_SESSIONS_MAX, fw_session};
use freeway_cmm::Session;
use freeway_kernel::model::Link;
use freeway_kernel::pppoe;

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
