// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers to questions.

use std::net::IpAddr;
use std::time::Instant;

use freeway_abi::{
    FW_R_FAST, FW_R_RATE_LIMITED, FW_R_ROUTED, FW_R_SCRUB_CONFIRM, FW_R_SCRUBBED, REASONS,
};
use freeway_api::{
    Events, Feature, FeatureState, FlowCounts, Flushed, Holder, Latency, Learning, Limit, Netlink,
    Port, PortPath, PortState, ReasonCount, RefusalCount, Resynced, Shares, Stats, Status,
    Switched,
};
use freeway_cmm::{Fitness, Refusal};
use freeway_kernel::model::Link;

use super::Engine;
use super::census::{Asker, Sums};
use super::ports;
use super::words::stage;
use crate::config::{Limited, PacketsPerSecond};
use crate::error::failure;
use crate::{DaemonError, Request};

/// Holders of flows that are named.
const HOLDERS_SHOWN: usize = 5;
/// Ports that a notice names.
const NAMED_MAX: usize = 10;

impl Engine {
    /// What this kernel has, and what it does not tell.
    fn features(&self) -> Vec<Feature> {
        let mut features: Vec<Feature> = self.probes.iter().map(super::poll::feature).collect();
        if !self.polled.hooks_told {
            features.push(Feature {
                name: "functions on netfilter's hooks".into(),
                state: FeatureState::Missing,
                needed_for: "finding modules that must see every packet".into(),
                minimum_kernel: "5.14".into(),
            });
        }
        features
    }

    pub(super) fn answer(&mut self, request: Request) -> Result<(), DaemonError> {
        let now_tick = self.now_tick()?;
        // A failed send means that the asker has left.
        match request {
            Request::Status(reply) => self.census(Asker::Status(reply)),
            Request::Stats(reply) => self.census(Asker::Stats(reply)),
            Request::Top(query, reply) => {
                self.census(Asker::Top(query, reply, Instant::now()));
            }
            Request::Flows(query, reply) => drop(reply.send(Ok(self.page(&query, now_tick)))),
            Request::Routes(query, reply) => drop(reply.send(Ok(self.routes(&query)))),
            Request::Drops(reply) => drop(reply.send(Ok(self.drops()))),
            Request::Hosts(reply) => {
                let hosts = self.accounting.hosts(self.kernel_counts());
                drop(reply.send(Ok(hosts)));
            }
            Request::Explain(query, reply) => self.explain(query, reply),
            Request::Capture(query, reply) => {
                // a reader that has left meanwhile ends what has begun
                if reply.send(self.capture(query)).is_err() {
                    self.end_capture();
                }
            }
            Request::CaptureEnded => self.end_capture(),
            Request::Switch(switch, reply) => {
                let was_on = self.on;
                if was_on != switch.on {
                    self.switch(switch.on)?;
                }
                drop(reply.send(Ok(Switched {
                    on: switch.on,
                    was_on,
                })));
            }
            Request::Steer(change, reply) => {
                let steering = self.steer(change)?;
                drop(reply.send(steering));
            }
            Request::Dispatch(query, reply) => {
                drop(reply.send(self.dispatch(query.as_ref())));
            }
            Request::Reload(read, reply) => {
                let reloaded = self.reload(read)?;
                drop(reply.send(reloaded));
            }
            Request::HandOver(handover, reply) => {
                let handed = self.hand_over(*handover)?;
                drop(reply.send(handed));
            }
            Request::Flush(reply) => {
                let flows = self.flush()?;
                drop(reply.send(Ok(Flushed { flows })));
            }
            Request::Resync(reply) => {
                let changes = self.resync()?;
                drop(reply.send(Ok(Resynced { changes })));
            }
        }
        Ok(())
    }

    pub(super) fn status(&self, sums: &Sums) -> Status {
        let staleness_bound_s =
            f64::from(sums.staleness_ticks) / f64::from(self.datapath.clock.hz());
        let stats = self.manager.stats();
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.heart.uptime().as_secs(),
            taken_over: self.succession.from().cloned(),
            kernel: nix::sys::utsname::uname()
                .map(|u| u.release().to_string_lossy().into_owned())
                .unwrap_or_default(),
            on: self.on,
            paused: (!self.on).then(|| "switched off by the operator".into()),
            epoch: self.manager.epoch(),
            flows: FlowCounts {
                capacity: self.config.flows.max.into(),
                ..sums.flows
            },
            shares: self.shares(),
            connections: self.manager.connection_count() as u64,
            next_hops: self.manager.nexthop_count() as u64,
            ports: self.port_status(),
            ruleset: self.ruleset.status.clone(),
            limits: self.punt_limits(),
            scrub_limits: self.scrub_limits(),
            features: self.features(),
            engine: self.cores_status(),
            same_core: self.same_core_status(),
            accounting: self.accounting.status(self.kernel_counts()),
            notices: self.notices(staleness_bound_s),
            invalidation: self.invalidation.report(),
            staleness_bound_s,
            learn: Learning {
                candidates: stats.candidates,
                learned: stats.learned,
                refused: stats.refused.values().sum(),
                learnable_to_fast_ms: distribution(&stats.learnable_to_fast),
                connections: stats.connections,
                connection_to_fast_ms: distribution(&stats.connection_to_fast),
            },
            memory_rss_bytes: rss_anon_bytes(),
            memory_maps_bytes: self.maps_bytes(),
            config_file: self.config.file.as_ref().map(|f| f.display().to_string()),
        }
    }

    /// Kernel memory of all maps; those that several programs have count once.
    fn maps_bytes(&self) -> u64 {
        let mut all = self.datapath.memory();
        all.extend(self.routes.memory());
        all.extend(self.scrub.memory());
        all.extend(self.limits.memory());
        all.values().sum()
    }

    fn shares(&self) -> Shares {
        let greatest = self.manager.greatest_holders(HOLDERS_SHOWN);
        Shares {
            holders: self.manager.holder_count() as u64,
            greatest: greatest
                .into_iter()
                .map(|holder| Holder {
                    address: match holder.address {
                        IpAddr::V4(address) => address.to_string(),
                        IpAddr::V6(prefix) => format!("{prefix}/64"),
                    },
                    flows: holder.flows.into(),
                })
                .collect(),
            displaced: self.manager.stats().displaced,
        }
    }

    fn punt_limits(&self) -> Vec<Limit> {
        let limits = self.config.punts.limits.iter();
        let limit = |(limited, rate): (&Limited, &PacketsPerSecond)| Limit {
            name: limited.reason().name.into(),
            packets_per_s: rate.0,
            dropped: self.datapath.policed(limited.0).unwrap_or(0),
        };
        limits.map(limit).collect()
    }

    /// It is a piece of a bridge or bond that XDP serves there.
    fn serves(&self, link: &Link, port: &ports::Port) -> bool {
        port.bridged.is_some_and(|(_, fit)| fit.any()) || self.serves_bond(link, port)
    }

    pub(super) fn port_state(&self, link: &Link, port: &ports::Port) -> PortState {
        match (port.up, port.is_fit() || self.serves(link, port)) {
            (false, _) => PortState::Down,
            (true, true) => PortState::Fast,
            (true, false) if self.ports.waits(link.ifindex) => PortState::Attaching,
            (true, false) => PortState::Kernel,
        }
    }

    fn port_status(&self) -> Vec<Port> {
        let ports = self.ports.by_index.iter().filter_map(|(ifindex, port)| {
            let link = self.mirror.links().get(ifindex)?;
            let mut reasons = port.reasons.clone();
            let serves = self.serves(link, port);
            let input = port.xdp.input || port.tc.input;
            let output = port.xdp.output || port.tc.output;
            if input != output && port.up {
                let half = if input {
                    "fast for what comes in only"
                } else {
                    "fast for what leaves only"
                };
                reasons.insert(0, half.into());
            }
            Some(Port {
                ifindex: *ifindex,
                name: link.name.clone(),
                state: self.port_state(link, port),
                path: match (port.xdp == Fitness::FULL, port.tc.any(), port.xdp.any()) {
                    (true, ..) | (false, false, true) if self.by_engine(*ifindex, port) => {
                        PortPath::Engine
                    }
                    (true, ..) | (false, false, true) => PortPath::Xdp,
                    (false, true, _) => PortPath::Tc,
                    (false, false, false) if serves => PortPath::Xdp,
                    (false, false, false) => PortPath::Kernel,
                },
                reasons,
                mtu: link.mtu,
                mac: link.mac.map(|m| m.to_string()),
                redirect_failures: port.redirects.lost,
                ring_drops: port.ring.drops,
                xdp_features: port.xdp_features.clone(),
                routes: port.by_routes,
                routes_reason: self.unrouted_at(*ifindex, &port.name),
            })
        });
        ports.collect()
    }

    fn notices(&self, staleness_bound_s: f64) -> Vec<String> {
        let mut notices = Vec::new();
        if self.ports.by_index.values().filter(|p| p.is_fit()).count() == 0 {
            notices.push("no port is fit for the fast path: see the reason at each port".into());
        }
        let without_room: Vec<_> = self.ports.without_room().collect();
        if !without_room.is_empty() {
            let named = without_room.iter().take(NAMED_MAX);
            let mut names: Vec<_> = named.map(|index| self.port_name(*index)).collect();
            if let Some(more @ 1..) = without_room.len().checked_sub(NAMED_MAX) {
                names.push(format!("and {more} more"));
            }
            notices.push(format!(
                "{} ports are left to the kernel, for {} take part, which is the most: {}",
                without_room.len(),
                freeway_abi::FW_PORTS_MAX,
                names.join(", ")
            ));
        }
        let there = |name: &str| self.mirror.link_by_name(name).is_some();
        notices.extend(self.config.absent_words(there));
        if let Err(fault) = self.check_kinds() {
            notices.push(fault.to_string());
        }
        if !self.ruleset.status.findings.is_empty() {
            notices.push("rules of the firewall keep flows in the kernel: see ruleset".into());
        }
        if self.capture.prog_id().is_some() {
            notices
                .push("packets are captured: ports have a program meanwhile that is slower".into());
        }
        for socket in &self.polled.sniffers {
            let place = socket
                .ifindex
                .map_or("all ports".into(), |index| self.port_name(index));
            notices.push(format!(
                "a packet socket on {place} (inode {}): flows whose packets it takes go through tc",
                socket.inode
            ));
        }
        notices.extend(self.limits.notices());
        notices.extend(self.mirror_notices());
        notices.extend(self.cores.refused_routes());
        notices.extend(self.accounting_notices());
        let bound = f64::from(2 * freeway_cmm::Settings::default().revalidate_s);
        if staleness_bound_s > bound {
            notices.push(format!(
                "revalidation lags: a change without an event may go unnoticed for {:.0} s",
                staleness_bound_s
            ));
        }
        notices
    }

    pub(super) fn stats(&self, sums: &Sums) -> Result<Stats, DaemonError> {
        let mut counts = self.datapath.reasons().map_err(failure)?;
        // counted by rule, not by reason
        let (scrubbed, confirmed) = self.scrubbed();
        counts[FW_R_SCRUBBED as usize] = scrubbed;
        counts[FW_R_SCRUB_CONFIRM as usize] = confirmed;
        counts[FW_R_RATE_LIMITED as usize] = self.limited();
        counts[FW_R_ROUTED as usize] = self.routed().packets;
        let stats = self.manager.stats();
        let reasons = REASONS
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != FW_R_FAST as usize);
        Ok(Stats {
            fast: sums.fast,
            reasons: reasons
                .map(|(i, reason)| ReasonCount {
                    name: reason.name.into(),
                    stage: stage(reason.stage).into(),
                    words: reason.words.into(),
                    packets: counts.get(i).copied().unwrap_or(0),
                })
                .filter(|r| r.name != "none" || r.packets > 0)
                .collect(),
            limits: self.punt_limits(),
            scrub_limits: self.scrub_limits(),
            bridged: self.bridged_frames(),
            drops: self.drops_by_set(),
            events: Events {
                candidates: self.counts.candidates,
                changed: self.counts.changed,
                suspended: self.counts.suspended,
                watched: self.counts.watched,
                lost: counts
                    .get(freeway_abi::FW_R_LEARN_RING as usize)
                    .copied()
                    .unwrap_or(0),
            },
            refused: Refusal::ALL
                .iter()
                .map(|r| RefusalCount {
                    name: r.name().into(),
                    words: r.words().into(),
                    count: stats.refused.get(r).copied().unwrap_or(0),
                })
                .collect(),
            netlink: Netlink {
                events: self.counts.netlink_events,
                overruns: self.counts.overruns,
                resyncs: self.counts.resyncs,
            },
            reloads: self.counts.reloads,
            accounting: self.accounting.status(self.kernel_counts()),
        })
    }
}

fn distribution(latency: &freeway_cmm::Latency) -> Latency {
    Latency {
        p50: latency.quantile_ms(0.50).into(),
        p95: latency.quantile_ms(0.95).into(),
        p99: latency.quantile_ms(0.99).into(),
        max: latency.max_ms().into(),
    }
}

/// The daemon's own memory, without what it shares with the data plane.
fn rss_anon_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
