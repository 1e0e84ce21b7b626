// SPDX-License-Identifier: MIT OR Apache-2.0
//! One daemon after another, with no port left alone in between.
//!
//! The daemon that runs starts its successor, the installed program, and goes on. The successor loads its programs, and
//! attaches none. When it is ready, the older one gives all to the kernel, and hands over the descriptors of its links and
//! sockets; the successor's programs take the places of those that are there. Only when it says that it forwards does the older
//! one end. Whatever fails before leaves that one where it was.
//!
//! They talk over a pair of sockets that nobody else can reach. No map goes along, so their binary interfaces may differ. If they
//! do not, flows do, in a file: the successor enters them into its own table, as if its data plane had offered them.

pub mod flows;
pub mod predecessor;
pub mod successor;
pub mod words;

use freeway_api::TakenOver;

use self::successor::Successor;

/// Daemons before this one, and after it.
#[derive(Default)]
pub struct Succession {
    before: Option<TakenOver>,
    after: Option<Successor>,
}

impl Succession {
    /// All was another daemon's until now.
    pub fn begin(&mut self, from: TakenOver) {
        self.before = Some(from);
    }

    /// So many flows were fast at once.
    pub fn adopted(&mut self, flows: u64) {
        if let Some(before) = &mut self.before {
            before.flows = flows;
        }
    }

    /// What was taken over, and from whom.
    pub fn from(&self) -> Option<&TakenOver> {
        self.before.as_ref()
    }

    /// A successor has all that was ours.
    pub fn end(&mut self, successor: Successor) {
        self.after = Some(successor);
    }

    /// Whom all was left to.
    pub fn take(&mut self) -> Option<Successor> {
        self.after.take()
    }
}
