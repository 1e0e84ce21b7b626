// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ruleset is read, and what it means is told.

use std::sync::Arc;

use freeway_cmm::{Op, RuleScope};
use freeway_kernel::model::{Family, Link};
use freeway_kernel::nft::{self, FrameChain, SetChanges};
use freeway_kernel::reachability::{Finding, IfMatch, PacketState, SetName, analyse_state};

use super::super::Engine;
use super::super::leaking::ways;
use super::*;
use crate::DaemonError;

impl Engine {
    /// Reads and judges the ruleset. One that cannot be read is not safe.
    pub(in crate::engine) fn read_ruleset(&mut self) -> Result<(), DaemonError> {
        let mut ruleset = Ruleset::default();
        for function in &self.polled.foreign_hooks {
            let words =
                format!("netfilter hook {function} is not known and may have to see every packet");
            ruleset.status.findings.push(words);
            ruleset.findings.push(None);
        }
        for finding in self.mirror.xfrm_findings() {
            ruleset.status.findings.push(finding.to_string());
            ruleset.findings.push(Some(finding));
        }
        let mut read = None;
        match nft::Ruleset::read() {
            Ok(rules) => {
                let ways = ways(&self.mirror);
                let mut analysis = analyse_state(&rules, PacketState::Established, ways);
                let new = analyse_state(&rules, PacketState::New, ways);
                let findings = analysis.findings.iter().map(Finding::to_string);
                let untracked = analyse_state(&rules, PacketState::Untracked, ways);
                let of_all =
                    |f: &&Finding| analysis.findings.contains(f) || analysis.marks.contains(f);
                let bare: Vec<Finding> = match rules.bypasses_conntrack() {
                    true => untracked.findings.iter().chain(&untracked.marks),
                    false => [].iter().chain(&[]),
                }
                .filter(|f| !of_all(f))
                .cloned()
                .collect();
                let of_bare = bare.iter().map(|f| format!("{f} (of untracked packets)"));
                let marks = analysis.marks.iter();
                let marks = marks.map(|m| format!("{m}; such flows go through tc"));
                let of_udp = |f: &Finding| f.protocols.contains(&(libc::IPPROTO_UDP as u8));
                ruleset.new_safe = !new.findings.iter().chain(&new.marks).any(of_udp);
                ruleset.frame_chains = rules.frame_chains();
                ruleset.drop_chains = rules.drop_chains();
                ruleset.marks = analysis.marks.len();
                ruleset.status.generation = rules.generation;
                ruleset.bare = bare.len();
                ruleset.zones = rules.zones();
                ruleset.tracks = [Family::Ipv4, Family::Ipv6].map(|ip| rules.tracks(ip));
                ruleset
                    .status
                    .findings
                    .extend(findings.chain(of_bare).chain(marks));
                analysis.add_uses(new);
                analysis.add_uses(untracked);
                ruleset.uses = analysis.uses;
                let sets = |((family, table), content): (&(u8, String), &nft::Table)| {
                    let name = |set: &String| (*family, table.clone(), set.clone());
                    content.sets.keys().map(name).collect::<Vec<_>>()
                };
                ruleset.sets.clear();
                ruleset.sets.extend(rules.tables.iter().flat_map(sets));
                let all = analysis
                    .findings
                    .into_iter()
                    .chain(bare)
                    .chain(analysis.marks);
                ruleset.findings.extend(all.map(Some));
                read = Some(rules);
            }
            Err(error) => {
                tracing::warn!("reading the nftables ruleset: {error}; flows stay in the kernel");
                let words = format!("the ruleset cannot be read: {error}");
                ruleset.status.findings.push(words);
                ruleset.findings.push(None);
                ruleset.tracks = [true; 2];
                ruleset.frame_chains.push(FrameChain {
                    words: "a ruleset that cannot be read".into(),
                    devices: Vec::new(),
                });
            }
        }
        ruleset.status.safe = ruleset.findings.len() == ruleset.marks;
        ruleset.scopes = self.scopes(&ruleset);
        let tracked = self.tracks();
        let before = std::mem::replace(&mut self.ruleset, ruleset);
        self.set_one_way()?;
        self.set_ruleset()?;
        if before.frame_chains != self.ruleset.frame_chains || before.zones != self.ruleset.zones {
            self.update_ports()?;
        }
        self.set_tracking(tracked)?;
        let read = read.map(Arc::new);
        let routes = !self.config.policy.without_routes();
        self.routes.set_rules(read.clone().filter(|_| routes));
        self.scrub_by(read)?;
        self.update_routes()
    }

    /// Whether UDP that nobody answers may be fast.
    pub(in crate::engine) fn set_one_way(&mut self) -> Result<(), DaemonError> {
        let one_way = self.config.policy.udp_one_way && self.ruleset.new_safe;
        self.datapath.control.set_udp_one_way(one_way.into());
        let (now_tick, mut ops) = (self.now_tick()?, Vec::new());
        self.manager.set_one_way(one_way, now_tick, &mut ops);
        self.execute(ops)
    }

    /// Conntrack sees IPv4, and IPv6: rules have it hooked, or somebody else.
    pub(in crate::engine) fn tracks(&self) -> [bool; 2] {
        let hooked = self.polled.tracks;
        std::array::from_fn(|family| self.ruleset.tracks[family] || hooked[family])
    }

    /// It sees a family.
    pub(in crate::engine) fn tracks_family(&self, family: Family) -> bool {
        let [ipv4, ipv6] = self.tracks();
        match family {
            Family::Ipv4 => ipv4,
            Family::Ipv6 => ipv6,
        }
    }

    /// What was learned without a connection is learned anew, with one, once conntrack sees it.
    pub(in crate::engine) fn set_tracking(&mut self, before: [bool; 2]) -> Result<(), DaemonError> {
        let [tracks4, tracks6] = self.tracks();
        self.datapath.control.set_tracks4(tracks4.into());
        self.datapath.control.set_tracks6(tracks6.into());
        if (!tracks4 || before[0]) && (!tracks6 || before[1]) {
            return Ok(());
        }
        let mut ops = Vec::new();
        self.manager.flush(self.now_tick()?, &mut ops);
        self.execute(ops)
    }

    /// Elements of a set changed. True if the ruleset is to be judged anew.
    pub(in crate::engine) fn set_changed(
        &mut self,
        name: &SetName,
        changes: &SetChanges,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) -> bool {
        let Some(used) = self.ruleset.uses.get(name) else {
            // Input and NAT chains ask it, which no packet of a flow meets.
            if !self.ruleset.sets.contains(name) {
                self.manager.new_epoch(ops);
            }
            return false;
        };
        match used.affected(changes) {
            Some(affected) => {
                let everywhere = used.postrouting;
                self.manager
                    .elements_changed(&affected, everywhere, now_tick, ops);
            }
            None => self.manager.new_epoch(ops),
        }
        used.verdicts
    }

    /// Links come, go and are renamed, and rules name them.
    pub(in crate::engine) fn update_ruleset(&mut self) -> Result<(), DaemonError> {
        let scopes = self.scopes(&self.ruleset);
        if self.ruleset.scopes == scopes {
            return Ok(());
        }
        self.ruleset.scopes = scopes;
        self.set_ruleset()
    }

    fn set_ruleset(&mut self) -> Result<(), DaemonError> {
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        let mut kept = self.ruleset.scopes.clone();
        let marks = kept.split_off(kept.len() - self.ruleset.marks);
        self.manager.set_ruleset(kept, marks, now_tick, &mut ops);
        self.execute(ops)
    }

    fn scopes(&self, ruleset: &Ruleset) -> Vec<RuleScope> {
        let links = self.mirror.links();
        let ports = |wanted: &[IfMatch], of_device: bool, input: bool| {
            (!wanted.is_empty()).then(|| {
                let named = |l: &Link| wanted.iter().any(|w| w.matches(l.ifindex, &l.name));
                let vrf = |l: &Link| links.get(&l.vrf()?);
                let hit = |l: &&Link| match of_device {
                    // the hooks of the device below see a VLAN's frames, too
                    true => named(l) || (l.is_carried() && self.chain(l).into_iter().any(named)),
                    // to most rules the input of what comes in at a port of a VRF is the VRF
                    false => named(l) || (input && vrf(l).is_some_and(named)),
                };
                links.values().filter(hit).map(|l| l.ifindex).collect()
            })
        };
        let scope = |f: &Finding| RuleScope {
            iif: ports(&f.iif, f.of_device, true),
            oif: ports(&f.oif, f.of_device, false),
            ipv4: f.ip.is_empty() || f.ip.contains(&Family::Ipv4),
            ipv6: f.ip.is_empty() || f.ip.contains(&Family::Ipv6),
            protos: f.protocols.clone(),
            src: f.src.clone(),
            dst: f.dst.clone(),
            sport: f.sport.clone(),
            dport: f.dport.clone(),
            connection: None,
        };
        let of = |f: &Option<Finding>| f.as_ref().map_or_else(RuleScope::everything, scope);
        let mut scopes: Vec<RuleScope> = ruleset.findings.iter().map(of).collect();
        let end = scopes.len() - ruleset.marks;
        for scope in &mut scopes[end - ruleset.bare..end] {
            scope.connection = Some(false);
        }
        scopes
    }
}
