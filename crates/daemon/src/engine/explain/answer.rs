// SPDX-License-Identifier: MIT OR Apache-2.0
//! A flow is watched, and what was seen is said.

use std::collections::BTreeSet;
use std::time::Duration;

use freeway_abi::{
    FW_AF_INET, FW_AF_INET6, FW_STAGE_TC_EGRESS, Reason, fw_tuple, fw_watch, words_of,
};
use freeway_api::{
    Connection, Endpoints, Explain, ExplainQuery, Failure, Flow as ShownFlow, Neighbour, Proto,
    Seen, Watched, Why,
};
use freeway_cmm::{ConnKey, Flow, FlowKey, Path, Refusal};
use freeway_kernel::model::{Connection as Tracked, CtStatus, Neigh, Tuple};
use tokio::time::Instant;

use super::super::Engine;
use super::super::drops::{Drops, Scene, Told};
use super::super::ports::Port;
use super::super::verdict::{Case, NAMELESS, Sightings, arrived, left, told_once};
use super::super::words::stage;
use super::*;
use crate::Reply;

impl Engine {
    pub(in crate::engine) fn explain(&mut self, query: ExplainQuery, reply: Reply<Explain>) {
        if self.explanations.waiting.len() >= WAITING_MAX {
            let busy =
                Failure::unavailable("too many explanations at once", "try again in a moment");
            return drop(reply.send(Err(busy)));
        }
        self.explanations
            .waiting
            .push_back(Question { query, reply });
        self.next_explanation();
    }

    fn next_explanation(&mut self) {
        if self.explanations.current.is_some() {
            return;
        }
        let Some(question) = self.explanations.waiting.pop_front() else {
            return;
        };
        let query = question.query;
        let tuple = fw_watch {
            saddr_be: words_of(query.src.ip()),
            daddr_be: words_of(query.dst.ip()),
            sport_be: query.src.port().to_be(),
            dport_be: query.dst.port().to_be(),
            family: if query.src.is_ipv4() {
                FW_AF_INET
            } else {
                FW_AF_INET6
            } as u8,
            proto: query.proto.0,
            pad: 0,
        };
        if let Err(error) = self.datapath.watch(Some(&tuple)) {
            tracing::warn!("watching a tuple: {error}");
        }
        let began = Instant::now();
        let ends = began + Duration::from_millis(query.watch_ms.min(WATCH_MAX_MS).into());
        self.explanations.current = Some(Watch {
            question,
            tuple: fw_tuple {
                saddr_be: tuple.saddr_be,
                daddr_be: tuple.daddr_be,
                sport_be: tuple.sport_be,
                dport_be: tuple.dport_be,
            },
            began,
            ends,
            seen: Sightings::new(),
            drops: Drops::new(),
            before: self.datapath.reasons().unwrap_or_default(),
        });
        self.set_tc_forwards();
    }

    pub(in crate::engine) fn finish_explanation(&mut self) {
        let Some(mut watch) = self.explanations.current.take() else {
            return;
        };
        self.set_tc_forwards();
        watch.seen = told_once(std::mem::take(&mut watch.seen));
        if let Err(error) = self.datapath.watch(None) {
            tracing::warn!("ending a watch: {error}");
        }
        let explain = self.explanation(&watch);
        drop(watch.question.reply.send(Ok(explain)));
        self.next_explanation();
    }

    fn explanation(&mut self, watch: &Watch) -> Explain {
        let query = watch.question.query;
        let now_tick = self.now_tick().unwrap_or(0);
        let tuple = Tuple {
            src: query.src.ip(),
            dst: query.dst.ip(),
            proto: query.proto.0,
            sport: query.src.port(),
            dport: query.dst.port(),
        };
        // the tuple as it comes in, or, inverted, the answers to the tuple as it leaves
        let mut track = |tuple| self.conntrack.get(&tuple, 0).ok().flatten();
        let connection = track(tuple).or_else(|| track(tuple.inverse()));
        let ports = self.ports.by_index.keys();
        let keys: Vec<FlowKey> = ports.map(|&port| FlowKey { tuple, port }).collect();
        let managed = keys
            .iter()
            .find_map(|key| self.manager.find(key))
            .or_else(|| self.leaving_as(&tuple, connection.as_ref()));
        let flow = managed.map(|(index, f)| self.flow(index, &f, now_tick));
        let reply_flow = managed
            .map(|(_, f)| FlowKey {
                tuple: f.out.inverse(),
                port: f.port_out,
            })
            .and_then(|key| self.manager.find(&key))
            .map(|(index, f)| self.flow(index, &f, now_tick));
        let refusal = keys.iter().find_map(|key| self.manager.refusal(key));
        let neighbour = self.neighbour(&tuple, managed.map(|(_, f)| (f.port_out, f.nexthop)));
        let local = self.is_local(&tuple, connection.as_ref());
        let drops = Scene {
            names: self.datapath.drop_reasons(),
            local,
            ipv4: tuple.src.is_ipv4(),
            chains: &self.ruleset.drop_chains,
            foreign_hooks: !self.polled.foreign_hooks.is_empty(),
            port_name: &|port| self.port_name(port),
        }
        .tell(&watch.drops);
        let watched = self.watched(watch, &drops);
        let reasons = reasons(watch, &drops, refusal);
        let scrubbed = self.scrub_words(&tuple, now_tick);
        let limited = self.limit_words(&tuple);
        let routed = match flow {
            None if !local => self.route_words(tuple.dst),
            _ => None,
        };
        let case = Case {
            on: self.on,
            state: flow.as_ref().map(|f| f.state),
            seen: &watch.seen,
            dropped: (!drops.is_empty()).then(|| drops.iter().find_map(|d| d.words.as_deref())),
            refusal,
            scrubbed: scrubbed.as_deref(),
            limited: limited.as_deref(),
            routed: routed.as_deref(),
            local,
            connection: connection.as_ref(),
            nameless: self.nameless(&watch.before),
        };
        let (verdict, summary) = (case.verdict(), case.summary());
        let mut notes = self.notes(connection.as_ref(), flow.as_ref());
        notes.extend(managed.iter().flat_map(|(_, flow)| self.why_tc(flow)));
        notes.extend(managed.and_then(|(_, flow)| self.class_words(flow.port_out, flow.nexthop)));
        notes.extend(self.firewall(&tuple, connection.as_ref(), watch));
        notes.extend(drops.iter().filter_map(Told::note));
        if limited.is_some() {
            notes.push("what is within the limit goes on; `freeway drops` counts the rest".into());
        }
        if scrubbed.is_some() {
            notes.push("packets that XDP drops so are seen by nothing behind it; `freeway drops` counts them".into());
        } else if routed.is_some() {
            notes.push(
                "packets that leave so are seen by nothing behind it; `freeway routes` counts them"
                    .into(),
            );
        } else if watched.packets == 0 && self.on && query.watch_ms > 0 {
            notes.push(format!(
                "no packet of it came in {:.1} s of watching",
                watched.seconds
            ));
            if connection.is_some() && flow.is_none() {
                notes.push(
                    "conntrack follows it: unless it is idle, it comes in at a port that takes no part \
                     (`freeway status`)"
                        .into(),
                );
            }
        }
        Explain {
            tuple: Endpoints::from(query),
            verdict,
            summary,
            reasons,
            flow,
            reply_flow,
            connection: connection.as_ref().map(connection_shown),
            neighbour,
            watched,
            notes,
        }
    }

    /// The flow that leaves as this tuple: it has a connection that answers the inverted tuple, or a flow for the
    /// answers.
    fn leaving_as(&self, tuple: &Tuple, connection: Option<&Tracked>) -> Option<(u32, Flow)> {
        let by_connection = connection.and_then(|tracked| {
            self.manager.connection(&ConnKey {
                orig: tracked.orig,
                zone: tracked.zone,
            })
        });
        let flows = by_connection.into_iter().flat_map(|c| c.flows).flatten();
        let mut flows = flows.filter_map(|index| Some((index, self.manager.flow(index)?)));
        if let Some(found) = flows.find(|(_, flow)| flow.out == *tuple) {
            return Some(found);
        }
        self.ports.by_index.keys().find_map(|port| {
            let answers = FlowKey {
                tuple: tuple.inverse(),
                port: *port,
            };
            let (_, answers) = self.manager.find(&answers)?;
            let key = FlowKey {
                tuple: answers.out.inverse(),
                port: answers.port_out,
            };
            self.manager
                .find(&key)
                .filter(|(_, flow)| flow.out == *tuple)
        })
    }

    fn watched(&self, watch: &Watch, drops: &[Told]) -> Watched {
        let mut seen: Vec<_> = watch.seen.iter().collect();
        seen.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let results = seen.into_iter().map(|(&(at, reason, port), &count)| {
            let reason = Reason::get(reason);
            Seen {
                stage: stage_name(at).into(),
                reason: reason.name.into(),
                words: reason.words.into(),
                count,
                port: self.port_name(port),
            }
        });
        Watched {
            // those dropped came, if by a port that takes no part
            packets: arrived(&watch.seen).max(drops.iter().map(|told| told.count).sum()),
            seconds: watch.began.elapsed().as_secs_f64(),
            results: results.collect(),
            dropped: drops.iter().map(Told::shown).collect(),
        }
    }

    /// The next hop's neighbour: behind the flow's port by its MAC, or the destination itself.
    fn neighbour(&self, tuple: &Tuple, flow: Option<(u32, u32)>) -> Option<Neighbour> {
        let by_flow = flow.and_then(|(port, nexthop)| {
            let mac = self.manager.nexthop_l2(nexthop)?.get(..6)?;
            let hit = |n: &&Neigh| n.ifindex == port && n.lladdr.is_some_and(|m| m.0 == mac);
            self.mirror.neighs().values().find(hit)
        });
        let direct = || self.mirror.neighs().values().find(|n| n.ip == tuple.dst);
        let neigh = by_flow.or_else(direct)?;
        Some(Neighbour {
            ip: neigh.ip,
            mac: neigh.lladdr.map(|m| m.to_string()),
            state: neigh_state(neigh.state).into(),
            port: self.port_name(neigh.ifindex),
        })
    }

    /// The most frequent of the reasons whose packets cannot be named, and how many there were.
    fn nameless(&self, before: &[u64]) -> Option<(u32, u64)> {
        let now = self.datapath.reasons().ok()?;
        let counts = NAMELESS.iter().filter_map(|reason| {
            let at = *reason as usize;
            let came = now.get(at)?.saturating_sub(*before.get(at)?);
            (came > 0).then_some((*reason, came))
        });
        counts.max_by_key(|(_, came)| *came)
    }

    /// True if one end of the conversation is this router. Behind NAT an address of the router in the tuple does not
    /// say so; the connection's ends do.
    fn is_local(&self, tuple: &Tuple, connection: Option<&Tracked>) -> bool {
        let (from, to) = connection.map_or((tuple.src, tuple.dst), |c| (c.orig.src, c.reply.src));
        let own = |ip| self.mirror.addrs().values().any(|a| a.local == ip);
        own(from) || own(to)
    }

    fn notes(&self, connection: Option<&Tracked>, flow: Option<&ShownFlow>) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(helper) = connection.and_then(|c| c.helper.as_ref()) {
            notes.push(format!(
                "conntrack helper {helper} must see each packet (ALG)"
            ));
        }
        match (connection, flow) {
            (None, Some(flow)) if !flow.connection => notes
                .push("conntrack does not track it: the flow ages by its own packets alone".into()),
            (None, None) => notes.push("conntrack has no entry for it".into()),
            _ => {}
        }
        notes
    }

    /// Why tc forwards it, if it does.
    fn why_tc(&self, flow: &Flow) -> Vec<String> {
        let mut why = Vec::new();
        if flow.path != Path::Tc {
            return why;
        }
        for (ifindex, fitness) in [
            (flow.key.port, |port: &Port| port.xdp.input),
            (flow.port_out, |port: &Port| port.xdp.output),
        ] as [(u32, fn(&Port) -> bool); 2]
        {
            let port = self.ports.by_index.get(&ifindex);
            for reason in port
                .filter(|port| !fitness(port))
                .iter()
                .flat_map(|p| &p.reasons)
            {
                why.push(format!("in tc: {}: {reason}", self.port_name(ifindex)));
            }
            let by_station = port.is_some_and(|p| p.stations_of.is_some() && fitness(p));
            if by_station && !flow.sniffed && !flow.bound {
                why.push(format!(
                    "in tc: {}: its station may be at a port of the bridge that has no XDP, or is not known yet",
                    self.port_name(ifindex)
                ));
            }
        }
        if flow.sniffed {
            why.push("in tc: a packet socket takes its packets".into());
        }
        if flow.bound {
            why.push(
                "in tc: a mark or class of its packets matters, or they are not as on a wire"
                    .into(),
            );
        }
        why
    }

    /// The rules that keep it in the kernel.
    fn firewall(
        &self,
        tuple: &Tuple,
        connection: Option<&Tracked>,
        watch: &Watch,
    ) -> BTreeSet<String> {
        // As it leaves, by its connection.
        let out = connection.map_or(*tuple, |c| match *tuple == c.reply {
            true => c.orig.inverse(),
            false => c.reply.inverse(),
        });
        let ports = self.ports.by_index.keys();
        let pairs = ports
            .clone()
            .flat_map(|port_in| ports.clone().map(move |port_out| (*port_in, *port_out)));
        // Where its packets came in and left, as far as they were seen.
        let seen = |port: u32, egress: bool| {
            let mut at = watch.seen.keys().map(|(stage, _, port)| (*stage, *port));
            let mut known = at
                .clone()
                .filter(|(s, _)| (*s == FW_STAGE_TC_EGRESS) == egress);
            known.next().is_none()
                || at.any(|(s, p)| (s == FW_STAGE_TC_EGRESS) == egress && p == port)
        };
        pairs
            .filter(|(port_in, port_out)| seen(*port_in, false) && seen(*port_out, true))
            .flat_map(|ports| self.ruleset.concerning((tuple, &out), ports))
            .map(|words| format!("firewall: {words}"))
            .collect()
    }
}

fn reasons(watch: &Watch, drops: &[Told], refusal: Option<Refusal>) -> Vec<Why> {
    let mut reasons: Vec<Why> = Vec::new();
    // what is dropped now and then is not why the others are slow
    let mut kernels: Vec<Why> = Vec::new();
    for why in drops.iter().filter_map(Told::why) {
        if !kernels.contains(&why) {
            kernels.push(why);
        }
    }
    if !left(&watch.seen) {
        reasons.append(&mut kernels);
    }
    let mut seen: Vec<_> = watch.seen.iter().collect();
    seen.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for ((_, number, _), _) in seen {
        let reason = Reason::get(*number);
        if !reasons.iter().any(|why| why.name == reason.name) {
            reasons.push(Why {
                name: reason.name.into(),
                words: reason.words.into(),
                stage: stage(reason.stage).into(),
            });
        }
    }
    if let Some(refusal) = refusal {
        reasons.push(Why {
            name: refusal.name().into(),
            words: refusal.words().into(),
            stage: "refused".into(),
        });
    }
    reasons.append(&mut kernels);
    reasons
}

fn stage_name(at: u32) -> &'static str {
    match at {
        freeway_abi::FW_STAGE_XDP => "xdp",
        freeway_abi::FW_STAGE_TC_INGRESS => "tc_ingress",
        FW_STAGE_TC_EGRESS => "tc_egress",
        _ => "engine",
    }
}

fn connection_shown(c: &Tracked) -> Connection {
    let ends = |t: &Tuple| Endpoints {
        proto: Proto(t.proto),
        src: t.src,
        sport: t.sport,
        dst: t.dst,
        dport: t.dport,
    };
    let names = [
        (CtStatus::EXPECTED, "expected"),
        (CtStatus::SEEN_REPLY, "seen_reply"),
        (CtStatus::ASSURED, "assured"),
        (CtStatus::CONFIRMED, "confirmed"),
        (CtStatus::SRC_NAT, "src_nat"),
        (CtStatus::DST_NAT, "dst_nat"),
        (CtStatus::SEQ_ADJUST, "seq_adjust"),
        (CtStatus::DYING, "dying"),
        (CtStatus::FIXED_TIMEOUT, "fixed_timeout"),
        (CtStatus::NAT_CLASH, "nat_clash"),
        (CtStatus::HELPER, "helper"),
        (CtStatus::OFFLOAD, "offload"),
    ];
    Connection {
        orig: ends(&c.orig),
        reply: ends(&c.reply),
        status: names
            .iter()
            .filter(|(bit, _)| c.status.has(*bit))
            .map(|(_, n)| (*n).into())
            .collect(),
        state: c.tcp.map(|tcp| format!("{:?}", tcp.state).to_lowercase()),
        timeout_s: c.timeout_s,
        mark: c.mark,
        helper: c.helper.clone(),
        zone: c.zone,
    }
}

fn neigh_state(state: u16) -> &'static str {
    match state {
        0x01 => "incomplete",
        0x02 => "reachable",
        0x04 => "stale",
        0x08 => "delay",
        0x10 => "probe",
        0x20 => "failed",
        0x40 => "noarp",
        0x80 => "permanent",
        _ => "none",
    }
}
