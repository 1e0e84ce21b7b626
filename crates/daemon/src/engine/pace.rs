// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs ahead of the fast path are loaded one in a turn: the verifier may take a second with each, and while it does
//! nobody sees what the kernel tells. Several in one turn could outlast the data plane's deadline.

/// Why something is not in force yet.
pub(super) const WAITS: &str = "its program is about to be loaded";

/// Of a turn.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// One was loaded in this turn.
    loaded: bool,
    /// A port waits for its own.
    waits: bool,
}

impl Pace {
    /// Another turn begins.
    pub(super) fn begin_turn(&mut self) {
        self.loaded = false;
    }

    /// True if a port's program may be loaded now; if not, the port waits. `idle`: no flow could suffer.
    pub(super) fn may_load(&mut self, idle: bool) -> bool {
        let may = idle || !self.loaded;
        self.loaded |= may;
        self.waits |= !may;
        may
    }

    /// What all ports share is loaded at once.
    pub(super) fn loads(&mut self) {
        self.loaded = true;
    }

    /// True while a port waits.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// True once if a port waits: it is to ask again.
    pub(super) fn take_waiting(&mut self) -> bool {
        std::mem::take(&mut self.waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_turn() {
        let mut pace = Pace::default();
        assert!(pace.may_load(false));
        assert!(!pace.waits());
        assert!(!pace.may_load(false));
        assert!(pace.may_load(true), "nothing is fast");
        assert!(pace.take_waiting() && !pace.waits());
        pace.begin_turn();
        pace.loads();
        assert!(!pace.may_load(false));
        pace.begin_turn();
        assert!(pace.may_load(false));
        assert!(pace.waits(), "until somebody asks for those that wait");
    }
}
