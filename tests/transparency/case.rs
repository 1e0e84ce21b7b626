// SPDX-License-Identifier: MIT OR Apache-2.0
//! A case: all of it follows from its seed.

use crate::flow::{self, Flow};
use crate::setup::{Pace, Setup};
use crate::traffic::{self, Traffic};
use freeway_testkit::random::Random;

#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub setup: Setup,
    pub flows: Vec<Flow>,
    pub traffic: Traffic,
    /// By routes where that can be.
    pub routed: bool,
}

impl Case {
    pub fn random(seed: u64, frames: usize) -> Self {
        let mut rng = Random(seed);
        let setup = Setup::random(&mut rng);
        Self::of(seed, setup, rng, frames)
    }

    /// As [`Case::random`], where little decides but the destination.
    pub fn routed(seed: u64, frames: usize) -> Self {
        let mut rng = Random(seed);
        let setup = Setup::random(&mut rng).routed(&mut rng);
        Self {
            routed: true,
            ..Self::of(seed, setup, rng, frames)
        }
    }

    fn of(seed: u64, mut setup: Setup, mut rng: Random, frames: usize) -> Self {
        if setup.rules.iter().any(|rule| rule.counts()) {
            setup.pace = Pace::Single;
            setup.brief = false;
        }
        // Of two cases that follow each other the second often has the tuples of the first.
        let port = 10_000 + (Random(seed / 2).draw() % 300) as u16 * 64;
        let flows = flow::random(&setup, port, &mut rng);
        let traffic = traffic::random(&setup, &flows, frames, &mut rng);
        Self {
            seed,
            setup,
            flows,
            traffic,
            routed: false,
        }
    }

    /// The same frames, for another setup.
    pub fn with_setup(&self, setup: Setup) -> Self {
        Self {
            setup,
            ..self.clone()
        }
    }
}
