// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits follow the configuration and the ports.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use freeway_abi::{
    FW_RATELIMIT_ICMP, FW_RATELIMIT_OTHER, FW_RATELIMIT_SYN, FW_RATELIMIT_TCP, FW_RATELIMIT_UDP,
    fw_ratelimit_here,
};
use freeway_datapath::Hook;
use freeway_kernel::model::Link;

use super::super::Engine;
use super::super::configured::named;
use super::super::pace::WAITS;
use super::super::ports::{Port, Within};
use super::{Limits, Place, SOURCES_MAX, sum};
use crate::DaemonError;
use crate::config::{LimitProto, SourceLimit};
use crate::error::failure;

/// What is counted in less time says little of a rate.
const LOOK: Duration = Duration::from_millis(500);

/// What the data plane tells apart of what a limit counts.
fn kinds(proto: LimitProto) -> &'static [u32] {
    match proto {
        LimitProto::Any => &[
            FW_RATELIMIT_OTHER,
            FW_RATELIMIT_TCP,
            FW_RATELIMIT_SYN,
            FW_RATELIMIT_UDP,
            FW_RATELIMIT_ICMP,
        ],
        LimitProto::Tcp => &[FW_RATELIMIT_TCP, FW_RATELIMIT_SYN],
        LimitProto::Syn => &[FW_RATELIMIT_SYN],
        LimitProto::Udp => &[FW_RATELIMIT_UDP],
        LimitProto::Icmp => &[FW_RATELIMIT_ICMP],
    }
}

/// Why sources cannot be limited at a port.
fn unlimited(link: &Link, port: &Port) -> Option<String> {
    if port.within != Within::Nothing {
        return Some("it is a part of a bridge or bond".into());
    }
    let no_mac = || link.mac.is_none().then(|| "it has no MAC address".into());
    port.without_xdp().or_else(no_mac)
}

impl Limits {
    /// Each of the limits has a place: what is the same keeps its own, with all that was counted. Returns the places that
    /// are free from now on, once no port asks them.
    fn assign(&mut self, wanted: &[SourceLimit]) -> Vec<u32> {
        let mut missing: BTreeSet<usize> = BTreeSet::new();
        missing.extend(0..wanted.len());
        let mut free: Vec<u32> = Vec::new();
        let mut gone = Vec::new();
        for (at, place) in (0u32..).zip(&mut self.places) {
            let Some(taken) = place else {
                free.push(at);
                continue;
            };
            let same = |number: &&usize| wanted[**number].counts_as(&taken.limit);
            match missing.iter().find(same).copied() {
                Some(number) => {
                    missing.remove(&number);
                    taken.limit = wanted[number].clone();
                    taken.number = number;
                }
                None => gone.push(at),
            }
        }
        for (number, at) in missing.into_iter().zip(free) {
            let limit = wanted[number].clone();
            if let Some(limiter) = &mut self.limiter {
                limiter.set(at, &limit.rate());
            }
            self.places[at as usize] = Some(Place {
                limit,
                number,
                ports: BTreeSet::new(),
                before: Default::default(),
            });
        }
        gone
    }

    /// No port asks these places any more.
    fn release(&mut self, gone: &[u32]) {
        for at in gone {
            let count = self.counted(*at);
            sum(&mut self.gone, count);
            if let Some(limiter) = &mut self.limiter {
                limiter.clear_counts(*at);
            }
            self.places[*at as usize] = None;
            self.rates.retain(|(of, _), _| of != at);
            self.sources.retain(|(of, _), _| of != at);
        }
    }

    /// A port's program is no longer there.
    fn leave(&mut self, port: u32) {
        for at in 0..self.places.len() as u32 {
            let count = self.counted_at(at, port);
            if let Some(Some(place)) = self.places.get_mut(at as usize) {
                sum(&mut place.before, count);
                place.ports.remove(&port);
            }
        }
        self.rates.retain(|(_, of), _| *of != port);
        if let Some(limiter) = &mut self.limiter {
            limiter.leave(port);
        }
    }

    /// Once a second: rates, and who sends too much.
    fn look(&mut self) {
        let Some(limiter) = &self.limiter else {
            return;
        };
        let seconds = self.looked.elapsed();
        if seconds < LOOK {
            return;
        }
        self.looked = Instant::now();
        let per_s = |packets: u64| (packets as f64 / seconds.as_secs_f64()).round() as u64;
        let mut counts = Vec::new();
        for (at, place) in self.taken() {
            counts.extend(place.ports.iter().map(|port| (at, *port)));
        }
        let mut any = false;
        for (at, port) in counts {
            let packets = limiter.count(port, at).dropped;
            let rate = self.rates.entry((at, port)).or_default();
            *rate = (packets, per_s(packets.saturating_sub(rate.0)));
            any |= rate.1 > 0;
        }
        for excess in self.sources.values_mut() {
            excess.per_s = 0;
        }
        // all buckets are read for it
        if !any {
            return;
        }
        for offender in limiter.offenders() {
            let excess = self
                .sources
                .entry((offender.number, offender.addr))
                .or_default();
            // a bucket that is new has counted from 0 on
            let more = match offender.dropped.checked_sub(excess.seen) {
                Some(more) => more,
                None => offender.dropped,
            };
            excess.seen = offender.dropped;
            excess.packets += u64::from(more);
            excess.per_s = per_s(more.into());
        }
        if self.sources.len() > SOURCES_MAX {
            let mut all: Vec<_> = std::mem::take(&mut self.sources).into_iter().collect();
            all.sort_unstable_by_key(|(_, excess)| Reverse((excess.per_s, excess.packets)));
            self.sources.extend(all.into_iter().take(SOURCES_MAX));
        }
    }
}

impl Engine {
    /// Has the data plane limit what the configuration says, where it can.
    pub(in crate::engine) fn update_limits(&mut self) -> Result<(), DaemonError> {
        let wanted = self.config.scrub.limit.clone();
        if self.limits.limiter.is_none() {
            if wanted.is_empty() {
                return Ok(());
            }
            self.limits.limiter = Some(self.datapath.rate_limiter().map_err(failure)?);
            self.pace.loads();
        }
        let before = self.limits.prog_ids();
        self.limits.kept.clear();
        let gone = self.limits.assign(&wanted);
        self.look_for_kept(&wanted);
        let ports: Vec<u32> = self.ports.by_index.keys().copied().collect();
        for port in ports {
            self.limit_at(port);
        }
        for port in self.limits.ports() {
            let there = self.ports.by_index.get(&port);
            if !there.is_some_and(Port::is_limited) {
                self.limits.leave(port);
            }
        }
        self.limits.release(&gone);
        if wanted.is_empty() {
            self.limits.limiter = None;
        }
        if before != self.limits.prog_ids() {
            // or they would count as somebody else's
            self.ask_poller();
        }
        Ok(())
    }

    /// Ports that a limit names and that take no part.
    fn look_for_kept(&mut self, wanted: &[SourceLimit]) {
        let links = self.mirror.links();
        for (number, limit) in wanted.iter().enumerate() {
            let meant = limit.port.iter().flat_map(|name| named(name, links));
            for ifindex in meant.filter(|ifindex| !self.ports.by_index.contains_key(ifindex)) {
                let name = self.port_name(ifindex);
                let why = "it takes no part: see `freeway status`".to_owned();
                self.limits.kept.insert((number, name), why);
            }
        }
    }

    /// A port's program, and what it asks.
    fn limit_at(&mut self, ifindex: u32) {
        let Some(link) = self.mirror.links().get(&ifindex) else {
            return;
        };
        let links = self.mirror.links();
        let means = |limit: &SourceLimit| {
            let mut names = limit.port.iter();
            limit.port.is_empty() || names.any(|name| named(name, links).contains(&ifindex))
        };
        let asked: Vec<(u32, usize, LimitProto)> = self
            .limits
            .taken()
            .filter(|(_, place)| {
                let wanted = self.config.scrub.limit.get(place.number);
                wanted.is_some_and(|limit| limit.counts_as(&place.limit)) && means(&place.limit)
            })
            .map(|(at, place)| (at, place.number, place.limit.proto))
            .collect();
        let mac = link.mac.map(|mac| mac.0).unwrap_or_default();
        let Some(port) = self.ports.by_index.get_mut(&ifindex) else {
            return;
        };
        let why = unlimited(link, port);
        let mut here = fw_ratelimit_here {
            mac,
            ..fw_ratelimit_here::default()
        };
        for (at, _, proto) in asked.iter().filter(|_| why.is_none()) {
            for kind in kinds(*proto) {
                here.limits[*kind as usize] |= 1 << at;
            }
        }
        let any = here.limits.iter().any(|limits| *limits != 0);
        let idle = self.manager.flow_count() == 0;
        let limiter = self.limits.limiter.as_ref();
        let waits = any
            && limiter.is_some_and(|limiter| !limiter.has(ifindex))
            && !self.pace.may_load(idle);
        let why = why.or(waits.then(|| WAITS.into()));
        let done = match (&mut self.limits.limiter, self.datapath.prog(Hook::Xdp)) {
            _ if waits => Ok(()),
            (Some(limiter), Ok(plain)) if any => {
                let front = limiter
                    .at(ifindex, here)
                    .and_then(|()| limiter.front(ifindex));
                match front {
                    Ok(_) if port.is_limited() => Ok(()),
                    Ok(front) => port.limit(front, plain.as_fd()),
                    Err(error) => Err(error.to_string()),
                }
            }
            (Some(_), Ok(plain)) if port.is_limited() => port.unlimit(plain.as_fd()),
            (_, Err(error)) => Err(error.to_string()),
            _ => Ok(()),
        };
        let why = why.or(done.as_ref().err().cloned());
        for place in self.limits.places.iter_mut().flatten() {
            place.ports.remove(&ifindex);
        }
        for (at, ..) in asked.iter().filter(|_| why.is_none()) {
            if let Some(Some(place)) = self.limits.places.get_mut(*at as usize) {
                place.ports.insert(ifindex);
            }
        }
        if let Err(error) = &done {
            tracing::warn!(port = port.name, "limits of sources: {error}");
        }
        if let Some(why) = why {
            let name = port.name.clone();
            for (_, number, _) in asked {
                self.limits.kept.insert((number, name.clone()), why.clone());
            }
        }
    }

    /// Once a second.
    pub(in crate::engine) fn look_at_limits(&mut self) {
        self.limits.look();
    }
}
