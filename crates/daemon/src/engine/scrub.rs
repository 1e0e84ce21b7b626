// SPDX-License-Identifier: MIT OR Apache-2.0
//! What XDP drops ahead of the kernel: rules of the firewall that drop by sets, and the sets' elements.
//!
//! An address is in the data plane's table while the kernel's set has it. Nothing is dropped between a change of the
//! ruleset and its judgement, nor after events were lost until the sets were read again.

mod answer;
mod follow;
mod loader;
mod place;
mod rules;
mod sets;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use freeway_abi::fw_scrub_count;
use freeway_datapath::{MapMemory, Scrubber};
use freeway_kernel::nft;
use freeway_kernel::reachability::SetName;
use freeway_kernel::scrub::{DropRule, KeptRule};

use self::loader::Loader;
use self::sets::Mirrored;

/// A rule in the data plane: one for each protocol that the kernel's rule names.
#[derive(Clone, Debug)]
struct Number {
    rule: DropRule,
    /// 0: any.
    proto: u8,
    ports: BTreeSet<u32>,
}

/// What was counted when it was last looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    packets: u64,
    per_s: u64,
}

/// What is known of the scrubber's business.
pub(super) struct Scrub {
    /// None: there is nothing to drop.
    scrubber: Option<Scrubber>,
    /// As it was last read, if some rule drops by a set.
    ruleset: Option<Arc<nft::Ruleset>>,
    /// Rules and sets are known as they are; else nothing may be dropped.
    judged: bool,
    /// By number; `None`: free.
    numbers: Vec<Option<Number>>,
    kept: Vec<KeptRule>,
    /// Ports at which nothing can be dropped.
    ports_kept: BTreeMap<String, String>,
    sets: BTreeMap<SetName, Mirrored>,
    /// Classes by the sets' slots, as bits.
    classes: HashMap<u64, u32>,
    loader: Loader,
    /// An address found no place.
    crowded: bool,
    /// Of rules and ports that are gone.
    gone: fw_scrub_count,
    /// Rules that the kernel's counter contradicts.
    doubted: BTreeSet<DropRule>,
    /// What each rule's counter said, and what the kernel was given until then.
    seen: BTreeMap<DropRule, (u64, u64, u32)>,
    rates: BTreeMap<Of, Rate>,
    looked: Instant,
    /// When what timed out was forgotten.
    forgot: Instant,
}

/// Whose rate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    All,
    Rule(Box<DropRule>),
    Port(u32),
}

impl Scrub {
    pub(super) fn start() -> Result<Self, crate::DaemonError> {
        Ok(Self {
            scrubber: None,
            ruleset: None,
            judged: false,
            numbers: vec![None; freeway_abi::FW_SCRUB_RULES as usize],
            kept: Vec::new(),
            ports_kept: BTreeMap::new(),
            sets: BTreeMap::new(),
            classes: HashMap::new(),
            loader: Loader::start()?,
            crowded: false,
            gone: fw_scrub_count::default(),
            doubted: BTreeSet::new(),
            seen: BTreeMap::new(),
            rates: BTreeMap::new(),
            looked: Instant::now(),
            forgot: Instant::now(),
        })
    }

    /// The rules changed: everything is the kernel's until they were judged.
    pub(super) fn doubt_rules(&mut self) {
        self.judged = false;
        self.invalidate();
    }

    /// Everything is the kernel's, for now.
    fn invalidate(&self) {
        if let Some(scrubber) = &self.scrubber {
            scrubber.set_valid(false);
        }
    }

    /// Ids of its programs.
    pub(super) fn prog_ids(&self) -> Vec<u32> {
        self.scrubber
            .as_ref()
            .map_or_else(Vec::new, Scrubber::prog_ids)
    }

    /// Of its tables.
    pub(super) fn memory(&self) -> MapMemory {
        let scrubber = self.scrubber.as_ref();
        scrubber.map_or_else(MapMemory::new, Scrubber::memory)
    }

    /// A piece of a set that is being read; never without one.
    pub(super) async fn loaded(&mut self) -> loader::Loaded {
        self.loader.next().await
    }

    /// Numbers of a rule.
    fn numbers_of<'a>(&'a self, rule: &'a DropRule) -> impl Iterator<Item = u32> + 'a {
        let all = (0u32..).zip(&self.numbers);
        all.filter_map(move |(number, taken)| {
            let taken = taken.as_ref()?;
            (taken.rule == *rule).then_some(number)
        })
    }
}

pub(super) use loader::Loaded;
