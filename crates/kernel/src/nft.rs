// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nftables ruleset, read over nfnetlink.

mod decode;
mod drops;
pub(crate) mod events;
mod expression;
mod legacy;
mod read;
mod tracking;
mod xtables;

use std::collections::BTreeMap;

pub use drops::{DropChain, DropPlace};
pub use expression::*;
pub use legacy::{LegacyTable, legacy_tables};
pub(crate) use read::generation;
pub use read::{read_elements, rule_counter};
pub(crate) use {decode::fuzz, xtables::fuzz as fuzz_legacy};

/// NFPROTO_INET.
pub const NFPROTO_INET: u8 = 1;
/// NFPROTO_IPV4.
pub const NFPROTO_IPV4: u8 = 2;
/// NFPROTO_ARP.
pub const NFPROTO_ARP: u8 = 3;
/// NFPROTO_NETDEV.
pub const NFPROTO_NETDEV: u8 = 5;
/// NFPROTO_BRIDGE.
pub const NFPROTO_BRIDGE: u8 = 7;
/// NFPROTO_IPV6.
pub const NFPROTO_IPV6: u8 = 10;

/// The word that nft uses for a family.
pub fn family_name(family: u8) -> &'static str {
    match family {
        NFPROTO_INET => "inet",
        NFPROTO_IPV4 => "ip",
        NFPROTO_ARP => "arp",
        NFPROTO_NETDEV => "netdev",
        NFPROTO_BRIDGE => "bridge",
        NFPROTO_IPV6 => "ip6",
        _ => "unknown",
    }
}

/// A whole ruleset at one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Generation it was read at.
    pub generation: u32,
    /// Tables, by family and name.
    pub tables: BTreeMap<(u8, String), Table>,
    /// Tables of the legacy iptables that exist beside it.
    pub legacy: Vec<LegacyTable>,
}

impl Ruleset {
    /// The first chain that sees frames of a device as such, in words: of a bridge, or of the device itself.
    pub fn frame_chains(&self) -> Vec<FrameChain> {
        let mut chains = Vec::new();
        for ((family, name), table) in self.tables.iter().filter(|(_, table)| !table.dormant) {
            for (chain, content) in &table.chains {
                let Some(hook) = &content.hook else { continue };
                let of_frames = matches!(*family, NFPROTO_NETDEV | NFPROTO_BRIDGE)
                    || (*family == NFPROTO_INET && hook.number == INET_INGRESS);
                if of_frames {
                    chains.push(FrameChain {
                        words: format!("chain {chain} of table {} {name}", family_name(*family)),
                        devices: hook.devices.clone(),
                    });
                }
            }
        }
        chains
    }
}

/// NF_INET_INGRESS.
const INET_INGRESS: u32 = 5;

/// A chain that sees frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameChain {
    /// What it is called.
    pub words: String,
    /// Whose frames; none: those of all bridges.
    pub devices: Vec<String>,
}

impl FrameChain {
    /// True if it sees a device's frames; names may end in an asterisk.
    pub fn sees(&self, device: &str) -> bool {
        let named = |name: &String| match name.strip_suffix('*') {
            Some(prefix) => device.starts_with(prefix),
            None => name == device,
        };
        self.devices.is_empty() || self.devices.iter().any(named)
    }
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// NFT_TABLE_F_DORMANT: its chains are not hooked.
    pub dormant: bool,
    /// No other table has or had it; 0 of the legacy iptables.
    pub handle: u64,
    /// Chains by name.
    pub chains: BTreeMap<String, Chain>,
    /// Sets and maps by name.
    pub sets: BTreeMap<String, Set>,
    /// Stateful objects and their type (NFT_OBJECT_), by name.
    pub objects: Vec<(String, u32)>,
    /// Flowtables and the devices they are hooked to.
    pub flowtables: BTreeMap<String, Vec<String>>,
}

impl Table {
    /// Sets that a rule has packets change are not told as such if they are older than the rule (`nft_dynset_init()`).
    fn mark_changed_sets(&mut self) {
        let rules = self.chains.values().flat_map(|chain| &chain.rules);
        for expression in rules.flat_map(|rule| &rule.expressions) {
            if let Expression::Dynset { set } = expression
                && let Some(set) = self.sets.get_mut(set)
            {
                set.flags |= SET_EVAL;
            }
        }
    }
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The hook, for base chains.
    pub hook: Option<Hook>,
    /// Rules in order.
    pub rules: Vec<Rule>,
}

/// Where and how a base chain is hooked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hook {
    /// filter, nat or route.
    pub kind: String,
    /// NF_INET_, NF_NETDEV_ or NF_BR_ number.
    pub number: u32,
    /// Lower runs first.
    pub priority: i32,
    /// Policy is drop.
    pub drops: bool,
    /// Devices of ingress and egress hooks; a trailing `*` stands for any ending.
    pub devices: Vec<String>,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Handle.
    pub handle: u64,
    /// Expressions in order.
    pub expressions: Vec<Expression>,
}

/// A set or map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// NFT_SET_ flags.
    pub flags: u32,
    /// No other set of its table has or had it.
    pub handle: u64,
    /// Key length in bytes.
    pub key_len: u32,
    /// NFT_DATA_VERDICT, or the type of a map's values.
    pub data_type: u32,
    /// Type of a map's objects (NFT_OBJECT_).
    pub object_type: u32,
    /// Names of expressions that each element carries (counter, limit...).
    pub expressions: Vec<String>,
    /// Elements of verdict maps and of anonymous sets; `None` if they were not read.
    pub elements: Option<Vec<Element>>,
}

/// NFT_SET_ANONYMOUS.
pub const SET_ANONYMOUS: u32 = 0x1;
/// NFT_SET_MAP.
pub const SET_MAP: u32 = 0x8;
/// NFT_SET_OBJECT.
pub const SET_OBJECT: u32 = 0x40;
/// NFT_SET_INTERVAL.
pub const SET_INTERVAL: u32 = 0x4;
/// NFT_SET_EVAL: packets change it.
pub const SET_EVAL: u32 = 0x20;
/// NFT_SET_CONCAT.
pub const SET_CONCAT: u32 = 0x80;

/// An element of a set or map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Key bytes.
    pub key: Vec<u8>,
    /// End of a range with its own key.
    pub key_end: Option<Vec<u8>>,
    /// NFT_SET_ELEM_INTERVAL_END: ends the range that the element before began, exclusively.
    pub interval_end: bool,
    /// NFT_SET_ELEM_CATCHALL: for keys that no other element matches.
    pub catch_all: bool,
    /// Milliseconds until it times out; `None`: never.
    pub expires_ms: Option<u64>,
    /// Verdict of a verdict map.
    pub verdict: Option<Verdict>,
    /// Names of expressions of this element.
    pub expressions: Vec<String>,
}

/// Elements that left a set and then came to it, in one commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetChanges {
    /// They came.
    pub added: Vec<Element>,
    /// They left.
    pub removed: Vec<Element>,
    /// There were more, which are in events of their own.
    pub truncated: bool,
}

/// Changed elements of one event.
const CHANGES_MAX: usize = 4096;

impl SetChanges {
    /// Takes in the elements of a notification.
    fn extend(&mut self, added: bool, payload: &[u8]) {
        let list = if added {
            &mut self.added
        } else {
            &mut self.removed
        };
        list.extend(decode::elements(payload));
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    fn is_full(&self) -> bool {
        self.added.len() + self.removed.len() >= CHANGES_MAX
    }

    /// What there is so far; what follows in the same commit is truncated if this was.
    fn take(&mut self) -> SetChanges {
        let rest = SetChanges {
            truncated: self.truncated,
            ..SetChanges::default()
        };
        std::mem::replace(self, rest)
    }
}
