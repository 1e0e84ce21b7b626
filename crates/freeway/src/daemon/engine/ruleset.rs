// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the firewall's rules allow.

use freeway_cmm::RuleScope;
use freeway_kernel::model::{Family, Link};
use freeway_kernel::nft;
use freeway_kernel::reachability::{Finding, IfMatch, PacketState, analyse_state};

use super::Engine;
use crate::api::RulesetStatus;
use crate::daemon::DaemonError;

/// The last analysis.
#[derive(Default)]
pub(super) struct Ruleset {
    pub status: RulesetStatus,
    /// Findings only for packets of new connections: one-way UDP.
    pub new_safe: bool,
}

impl Engine {
    /// Reads and judges the ruleset. One that cannot be read is not safe.
    pub(super) fn read_ruleset(&mut self) -> Result<(), DaemonError> {
        let (mut unsafe_scopes, mark_scopes) = match nft::Ruleset::read() {
            Ok(rules) => {
                let analysis = analyse_state(&rules, PacketState::Established);
                let new = analyse_state(&rules, PacketState::New);
                let marks = analysis
                    .marks
                    .iter()
                    .map(|m| format!("{}; such flows stay in the kernel", words(m)));
                self.ruleset.new_safe = new.safe && new.marks.is_empty();
                self.ruleset.status = RulesetStatus {
                    generation: rules.generation,
                    safe: analysis.safe,
                    findings: analysis.findings.iter().map(words).chain(marks).collect(),
                };
                (
                    self.scopes(&analysis.findings),
                    self.scopes(&analysis.marks),
                )
            }
            Err(error) => {
                tracing::warn!("reading the nftables ruleset: {error}; flows stay in the kernel");
                self.ruleset.new_safe = false;
                self.ruleset.status.safe = false;
                self.ruleset.status.findings = vec![format!("the ruleset cannot be read: {error}")];
                (vec![RuleScope::everything()], Vec::new())
            }
        };
        for function in &self.polled.foreign_hooks {
            self.ruleset.status.safe = false;
            let words =
                format!("netfilter hook {function} is not known and may have to see every packet");
            self.ruleset.status.findings.push(words);
            unsafe_scopes.push(RuleScope::everything());
        }
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        self.manager
            .set_ruleset(unsafe_scopes, mark_scopes, now_tick, &mut ops);
        self.execute(ops)?;
        let one_way = self.config.policy.udp_one_way && self.ruleset.new_safe;
        self.datapath.control.set_udp_one_way(one_way.into());
        Ok(())
    }

    fn scopes(&self, findings: &[Finding]) -> Vec<RuleScope> {
        let ports = |wanted: &[IfMatch]| {
            (!wanted.is_empty()).then(|| {
                let links = self.mirror.links().values();
                let hit = |l: &&Link| wanted.iter().any(|w| w.matches(l.ifindex, &l.name));
                links.filter(hit).map(|l| l.ifindex).collect()
            })
        };
        let scope = |f: &Finding| RuleScope {
            iif: ports(&f.iif),
            oif: ports(&f.oif),
            ipv4: f.ip.is_empty() || f.ip.contains(&Family::Ipv4),
            ipv6: f.ip.is_empty() || f.ip.contains(&Family::Ipv6),
            protos: f.protocols.clone(),
        };
        findings.iter().map(scope).collect()
    }
}

fn words(f: &Finding) -> String {
    let place = match f.handle {
        0 => format!("{} {} {}", f.family, f.table, f.chain),
        handle => format!(
            "{} {} {}, rule {} (handle {handle})",
            f.family,
            f.table,
            f.chain,
            f.rule_index + 1
        ),
    };
    format!("{place}: {}: {}", f.expression, f.reason)
}

/// The kfuncs are part of conntrack, which may be absent or unloaded.
pub(super) fn has_conntrack_kfuncs() -> bool {
    [
        "/proc/sys/net/netfilter/nf_conntrack_max",
        "/proc/sys/net/nf_conntrack_max",
    ]
    .iter()
    .any(|path| std::path::Path::new(path).exists())
}
