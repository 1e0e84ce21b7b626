// SPDX-License-Identifier: MIT OR Apache-2.0
//! `explain`: why a tuple is fast or not, from what is known and from watching
//! its real packets.

mod answer;

use std::collections::VecDeque;
use std::time::Duration;

use freeway_abi::{FW_R_FAST, FW_STAGE_USER, Pod, fw_dropped, fw_tuple, fw_watch_event};
use freeway_api::engine::WatchedFast;
use freeway_api::{Explain, ExplainQuery};
use tokio::time::Instant;

use super::drops::{Drop, Drops};
use super::verdict::{Sightings, arrived};
use crate::Reply;

/// Longest watch: others wait for it.
const WATCH_MAX_MS: u32 = 60_000;
/// After so many packets the answer is clear.
const PACKETS_ENOUGH: u64 = 8;
/// Questions that may wait for the one watch there is.
const WAITING_MAX: usize = 16;

struct Question {
    query: ExplainQuery,
    reply: Reply<Explain>,
}

struct Watch {
    question: Question,
    tuple: fw_tuple,
    began: Instant,
    ends: Instant,
    seen: Sightings,
    drops: Drops,
    /// Packets by reason when it began.
    before: Vec<u64>,
}

/// The question being watched, and those that wait.
#[derive(Default)]
pub(super) struct Explanations {
    current: Option<Watch>,
    waiting: VecDeque<Question>,
}

impl Explanations {
    /// Completes when the current watch ends; never without one.
    pub(super) fn due(&self) -> impl Future<Output = ()> + use<> {
        let ends = self.current.as_ref().map(|watch| watch.ends);
        async move {
            match ends {
                Some(ends) => tokio::time::sleep_until(ends).await,
                None => std::future::pending().await,
            }
        }
    }

    /// True while the data plane is to tell of a tuple.
    pub(super) fn watching(&self) -> bool {
        self.current.is_some()
    }

    /// The current watch, if it is of this tuple: events of the one before may be late.
    fn of(&mut self, tuple: &fw_tuple) -> Option<&mut Watch> {
        self.current.as_mut().filter(|watch| watch.tuple == *tuple)
    }

    pub(super) fn dropped(&mut self, event: &fw_dropped) {
        if let Some(watch) = self.of(&event.tuple)
            && let Some(drop) = Drop::of(event)
        {
            *watch.drops.entry(drop).or_default() += 1;
        }
    }

    pub(super) fn seen(&mut self, event: &fw_watch_event) {
        self.saw(&event.tuple, (event.stage, event.ev.reason, event.port), 1);
    }

    /// The engine tells only of what it forwards: what it does not is seen in tc.
    pub(super) fn seen_by_engine(&mut self, fast: &WatchedFast) {
        if let Some(tuple) = fw_tuple::from_bytes(&fast.tuple) {
            self.saw(&tuple, (FW_STAGE_USER, FW_R_FAST, fast.port), fast.packets);
        }
    }

    fn saw(&mut self, tuple: &fw_tuple, sight: (u32, u32, u32), packets: u64) {
        let Some(watch) = self.of(tuple) else {
            return;
        };
        *watch.seen.entry(sight).or_default() += packets;
        if arrived(&watch.seen) >= PACKETS_ENOUGH {
            watch.ends = watch.ends.min(Instant::now() + Duration::from_millis(20));
        }
    }
}
