// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the firewall's rules allow.

mod follow;

use std::collections::{BTreeMap, BTreeSet};

use freeway_api::RulesetStatus;
use freeway_cmm::RuleScope;
use freeway_kernel::model::Tuple;
use freeway_kernel::nft::{DropChain, FrameChain};
use freeway_kernel::reachability::{Finding, SetName, SetUse};

/// The last analysis.
#[derive(Default)]
pub(super) struct Ruleset {
    pub status: RulesetStatus,
    /// Findings only for packets of new connections: one-way UDP.
    pub new_safe: bool,
    /// Each of the status's findings; `None`: it concerns every flow.
    findings: Vec<Option<Finding>>,
    /// The last of them are so many that set marks.
    marks: usize,
    /// Those before them, so many, concern only flows without a connection.
    bare: usize,
    /// Conntrack sees IPv4, IPv6.
    tracks: [bool; 2],
    /// Connections may be in zones.
    pub zones: bool,
    /// The flows that each finding concerns.
    scopes: Vec<RuleScope>,
    /// All named sets, and how the way of a flow's packets looks into them.
    sets: BTreeSet<SetName>,
    uses: BTreeMap<SetName, SetUse>,
    /// Chains that see frames.
    frame_chains: Vec<FrameChain>,
    /// Chains that may drop packets.
    pub drop_chains: Vec<DropChain>,
}

impl Ruleset {
    /// A chain that must see a port's frames, in words.
    pub fn frame_chain(&self, port: &str) -> Option<&str> {
        let chain = self.frame_chains.iter().find(|chain| chain.sees(port));
        chain.map(|chain| chain.words.as_str())
    }

    /// The same of a device that is no port of a bridge.
    pub fn device_chain(&self, port: &str) -> Option<&str> {
        let mut of_devices = self.frame_chains.iter().filter(|c| !c.devices.is_empty());
        let chain = of_devices.find(|chain| chain.sees(port));
        chain.map(|chain| chain.words.as_str())
    }

    /// The findings that concern a flow: the tuple as it comes in and as it leaves, and its ports.
    pub fn concerning<'a>(
        &'a self,
        (tuple, out): (&'a Tuple, &'a Tuple),
        (port_in, port_out): (u32, u32),
    ) -> impl Iterator<Item = &'a String> + 'a {
        let all = self.status.findings.iter().zip(&self.scopes);
        let hit = move |scope: &RuleScope| scope.matches(tuple, out, port_in, port_out);
        all.filter(move |(_, scope)| hit(scope))
            .map(|(words, _)| words)
    }
}
