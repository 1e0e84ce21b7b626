// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates for `freeway top`: what flows, ports and reasons counted between two walks over the flows.

use std::cmp::Reverse;

use freeway_abi::{FW_R_FAST, REASONS};
use freeway_api::{FlowCounts, Rate, ReasonRate, Top, TopFlow, TopPath, TopPort, TopQuery};

use super::super::Engine;
use super::super::census::Sums;
use super::super::words::stage;
use super::*;

impl Engine {
    pub(in crate::engine) fn top(&self, query: TopQuery, sums: &Sums) -> Top {
        let idle = Interval::default();
        let interval = self
            .census
            .rates
            .as_ref()
            .map_or(&idle, |rates| &rates.last);
        let seconds = interval.length.as_secs_f64();
        let per_s = |number: u64| match seconds {
            0.0 => 0.0,
            seconds => number as f64 / seconds,
        };
        let rate = |(packets, bytes): Count| Rate {
            packets_per_s: per_s(packets),
            bits_per_s: per_s(8 * bytes),
        };
        let now_tick = self.now_tick().unwrap_or(0);
        let mut flows: Vec<_> = interval.flows.iter().map(|Reverse(flow)| *flow).collect();
        flows.sort_unstable_by_key(|(bytes, index, _)| (Reverse(*bytes), *index));
        let room = usize::try_from(query.flows).unwrap_or(FLOWS_MAX);
        // one that has left meanwhile has no entry to show
        let living = flows
            .into_iter()
            .take(room)
            .filter_map(|(bytes, index, packets)| {
                Some(TopFlow {
                    flow: self.flow(index, &self.manager.flow(index)?, now_tick),
                    rate: rate((packets, bytes)),
                })
            });
        let ports = self.ports.by_index.iter().filter(|(_, port)| port.is_fit());
        let reasons = REASONS.iter().enumerate().filter_map(|(number, reason)| {
            let packets = *interval.reasons.get(number)?;
            (packets > 0 && number != FW_R_FAST as usize).then(|| ReasonRate {
                name: reason.name.into(),
                stage: stage(reason.stage).into(),
                words: reason.words.into(),
                packets_per_s: per_s(packets),
            })
        });
        Top {
            interval_s: seconds,
            on: self.on,
            table: FlowCounts {
                capacity: self.config.flows.max.into(),
                ..sums.flows
            },
            fast: rate(interval.fast),
            paths: FlowPath::ALL
                .into_iter()
                .zip(interval.paths)
                .filter(|(_, (packets, _))| *packets > 0)
                .map(|(path, count)| TopPath {
                    path,
                    rate: rate(count),
                })
                .collect(),
            ports: ports
                .map(|(ifindex, _)| {
                    let [received, sent] = interval.ports.get(ifindex).copied().unwrap_or_default();
                    TopPort {
                        name: self.port_name(*ifindex),
                        received: rate(received),
                        sent: rate(sent),
                    }
                })
                .collect(),
            flows: living.collect(),
            reasons: reasons.collect(),
            engine: self.cores_status(),
        }
    }
}
