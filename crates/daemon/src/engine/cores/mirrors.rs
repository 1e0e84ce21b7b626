// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine copies for who looks on: the rules of `[[policy.steer]]` that name a mirror.

use freeway_api::SteerRule;
use freeway_api::engine::{Mirrored, Mirrors};

use super::numbers::Numbers;

/// What an engine was told. One message at a time is under way.
#[derive(Debug, Default)]
pub(super) struct Told {
    numbers: Numbers,
    /// None: what another daemon has told it.
    told: Option<Vec<SteerRule>>,
    /// By these it does not copy: the rule and why.
    refused: Vec<String>,
}

impl Told {
    /// What is to be said now for it to go by these.
    pub(super) fn next(&mut self, wanted: Vec<SteerRule>) -> Option<Mirrors> {
        if self.numbers.is_under_way() || self.told.as_ref() == Some(&wanted) {
            return None;
        }
        self.told = Some(wanted.clone());
        Some(Mirrors {
            number: self.numbers.next(),
            rules: wanted,
        })
    }

    /// What it made of those of that number.
    pub(super) fn taken(&mut self, mirrored: Mirrored) {
        if self.numbers.taken(mirrored.number) {
            self.refused = mirrored.refused;
        }
    }

    /// By which rules it does not copy, and why.
    pub(super) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// It could not be told, and knows as much as before.
    pub(super) fn failed(&mut self) {
        self.numbers.failed();
        self.told = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_at_a_time_is_under_way() {
        let rules = |ports: &[&str]| {
            let rule = |port: &&str| SteerRule {
                mirror: Some((*port).into()),
                ..SteerRule::default()
            };
            ports.iter().map(rule).collect::<Vec<_>>()
        };
        let taken = |number, refused: &[&str]| Mirrored {
            number,
            refused: refused.iter().map(|why| (*why).into()).collect(),
        };
        let mut told = Told::default();
        // none, too: it may have another daemon's
        assert_eq!(told.next(rules(&[])).unwrap().number, 1);
        assert_eq!(told.next(rules(&["a"])), None);
        told.taken(taken(1, &[]));
        assert_eq!(told.next(rules(&[])), None);
        assert_eq!(told.next(rules(&["a"])).unwrap().rules.len(), 1);
        told.taken(taken(1, &["an older one"]));
        assert_eq!(told.next(rules(&["b"])), None);
        told.taken(taken(2, &["a"]));
        assert_eq!(told.refused, ["a"]);
        assert_eq!(told.next(rules(&["a"])), None);
        assert_eq!(told.next(rules(&["b"])).unwrap().number, 3);
        told.failed();
        assert_eq!(told.next(rules(&["b"])).unwrap().number, 4);
    }
}
