// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows are counted, piece by piece.

use std::time::{Duration, Instant};

use freeway_abi::{FW_FLOW_ENGINE, FW_FLOW_OWNERS, FW_FLOW_TC, FW_KEY_IP6};
use freeway_api::FlowPath;
use freeway_datapath::Datapath;

use super::super::Engine;
use super::super::rates::{Rates, Way};
use super::*;

impl Engine {
    /// Answers from the last result if it is young enough, or after a walk.
    pub(in crate::engine) fn census(&mut self, asker: Asker) {
        // A new epoch has all flows wait: what was counted before it says nothing.
        let epoch = self.manager.epoch();
        self.census.last.take_if(|last| last.epoch != epoch);
        let sums = match &asker {
            Asker::Top(_, _, now) => {
                let last = self.census.last.as_ref();
                let serves = last.map_or(Duration::ZERO, Result::serves);
                let rates = self.census.rates.get_or_insert_with(Rates::default);
                rates.wanted(*now);
                if rates.serve(*now, serves) {
                    self.census.last.as_ref().map(|last| last.sums)
                } else {
                    None
                }
            }
            _ => self.census.fresh(),
        };
        if let Some(sums) = sums {
            return self.reply(asker, sums);
        }
        self.census.waiting.push(asker);
        if !self.census.running() {
            self.begin_census();
            // a small table's answer needs no other turn
            self.census_piece();
        }
    }

    fn begin_census(&mut self) {
        let now = Instant::now();
        let end = self.manager.index_end();
        if let Some(rates) = &mut self.census.rates {
            rates.begin(now, end, &self.datapath);
        }
        self.census.walk = Some(Walk {
            cursor: 0,
            end,
            seen: vec![0; end as usize / 64 + 1],
            retired: None,
            sums: Sums::default(),
            epoch: self.manager.epoch(),
            worked: Duration::ZERO,
        });
    }

    pub(in crate::engine) fn census_piece(&mut self) {
        let Some(mut walk) = self.census.walk.take() else {
            return;
        };
        let began = processor_time();
        let ended = self.count(&mut walk);
        walk.worked += processor_time().saturating_sub(began);
        if !ended {
            self.census.walk = Some(walk);
            return;
        }
        let now = Instant::now();
        if let Some(rates) = &mut self.census.rates {
            rates.end();
        }
        self.census.rates.take_if(|rates| !rates.in_use(now));
        let sums = walk.sums;
        self.census.last = Some(Result {
            sums,
            epoch: walk.epoch,
            finished: now,
            worked: walk.worked,
        });
        let waiting = std::mem::take(&mut self.census.waiting);
        for asker in waiting {
            if let Asker::Top(_, _, asked) = &asker {
                let rates = self.census.rates.as_ref();
                if !rates.is_some_and(|rates| rates.updated_since(*asked)) {
                    self.census.waiting.push(asker);
                    continue;
                }
            }
            self.reply(asker, sums);
        }
        if !self.census.waiting.is_empty() {
            self.begin_census();
        }
    }

    /// Counts a piece; true if it was the last.
    fn count(&mut self, walk: &mut Walk) -> bool {
        let mut left = PIECE;
        while left > 0 && walk.cursor < walk.end {
            let index = walk.cursor;
            walk.cursor += 1;
            left -= 1;
            if !self.census.is_live(index) {
                continue;
            }
            let state = self.datapath.flows.state(index);
            let (word, bit) = place(index);
            if let Some(word) = walk.seen.get_mut(word) {
                *word |= bit;
            }
            walk.sums.add(&state, self.manager.epoch());
            if let Some(rates) = &mut self.census.rates {
                rates.add(index, &state, || way_of(&self.datapath, index));
            }
        }
        if walk.cursor < walk.end {
            return false;
        }
        let retired = walk.retired.get_or_insert_with(|| {
            // What is retired from here on is in neither: the statistics and the list are of one moment.
            let stats = self.manager.stats();
            walk.sums.fast.packets += stats.retired_packets;
            walk.sums.fast.bytes += stats.retired_bytes;
            let seen = |index: u32| {
                let (word, bit) = place(index);
                walk.seen.get(word).is_some_and(|word| word & bit != 0)
            };
            let unseen = self.manager.retired_states().filter(|index| !seen(*index));
            unseen.collect::<Vec<_>>().into_iter()
        });
        for index in retired.by_ref().take(left) {
            let state = self.datapath.flows.state(index);
            walk.sums.fast.packets += state.packets;
            walk.sums.fast.bytes += state.bytes;
        }
        retired.len() == 0
    }

    fn reply(&mut self, asker: Asker, sums: Sums) {
        // A failed send means that the asker has left.
        match asker {
            Asker::Status(reply) => drop(reply.send(Ok(self.status(&sums)))),
            Asker::Stats(reply) => {
                drop(reply.send(self.stats(&sums).map_err(super::super::words::internal)));
            }
            Asker::Top(query, reply, _) => drop(reply.send(Ok(self.top(query, &sums)))),
        }
    }
}

fn way_of(datapath: &Datapath, index: u32) -> Way {
    let flow = datapath.flows.get(index);
    let port_in = (flow.key.port_proto & !FW_KEY_IP6) >> 8;
    let flags = u32::from(flow.flags);
    Way {
        path: match flags & FW_FLOW_OWNERS {
            FW_FLOW_TC => FlowPath::Tc,
            FW_FLOW_ENGINE => FlowPath::Engine,
            _ => FlowPath::Xdp,
        },
        ports: [port_in, datapath.nexthops.get(flow.nexthop).port],
    }
}
