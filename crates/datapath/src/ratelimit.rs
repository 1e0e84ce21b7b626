// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of what sources may send, ahead of everything else that XDP does at a port (`dataplane/ratelimit.h`).
//!
//! The buckets are global data that the objects of all ports share. Programs write them; here they are only read.

mod native;
mod rate;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use freeway_abi::{
    FW_RATELIMIT_OWNER_IP6, FW_RATELIMIT_OWNER_SHIFT, FW_RATELIMIT_SHIFT, FW_RATELIMIT_WAYS,
    FW_RATELIMITS, Pod, fw_ratelimit, fw_ratelimit_bucket, fw_ratelimit_config, fw_ratelimit_count,
    fw_ratelimit_here, fw_ratelimit_rule,
};
use libbpf_rs::{MapHandle, Object};

use crate::DatapathError;
use crate::ahead::{Ahead, lead_to};
use crate::load::{MapByName, MapMemory, get, handles, load, memory, possible_cpus, random};
use crate::packed::{Packed, packed};
use crate::shared::Shared;

pub use self::native::NativeLimiter;
pub use self::rate::{PACKETS_PER_S_MAX, SourceRate};

static RATELIMIT: Packed = packed!("ratelimit");

const NAME: &str = "ratelimit";
const NEXT: &str = "fw_ratelimit_next";
const RULES: &str = ".data.ratelimit";
const BUCKETS: &str = ".data.buckets";
/// What each port has of its own.
const HERE: &str = ".data.here";
const COUNTS: &str = ".data.counts";
/// 131,072 buckets, 4 MiB. Only sources that sent within the time in which a bucket fills need one.
const LINES: u32 = 1 << 15;

/// At one port.
struct Here {
    here: Shared<fw_ratelimit_here>,
    counts: Shared<fw_ratelimit_count>,
    next: MapHandle,
}

/// A source of which packets were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offender {
    /// Which limit: its place.
    pub number: u32,
    /// Its prefix's address.
    pub addr: IpAddr,
    /// Packets that were dropped since it has its bucket. It wraps.
    pub dropped: u32,
}

/// The program of a port, to be put ahead of others.
pub struct Front {
    prog: OwnedFd,
    next: MapHandle,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Front")
    }
}

impl Front {
    /// The program.
    #[must_use]
    pub fn prog(&self) -> BorrowedFd<'_> {
        self.prog.as_fd()
    }

    /// What is behind it from now on.
    pub fn lead_to(&self, behind: BorrowedFd<'_>) -> Result<(), DatapathError> {
        lead_to(&self.next, NEXT, behind)
    }
}

/// The limits, and the programs that apply them.
pub struct RateLimiter {
    maps: MapByName,
    _first: Object,
    config: fw_ratelimit_config,
    rules: Shared<fw_ratelimit>,
    buckets: Shared<fw_ratelimit_bucket>,
    hz: u32,
    /// How many limits were made: what tells their owners apart.
    made: u32,
    ahead: Ahead<Here>,
}

fn load_ratelimit(config: &fw_ratelimit_config, maps: &MapByName) -> Result<Object, DatapathError> {
    load(NAME, RATELIMIT, |name, map| {
        match name {
            ".rodata.ratelimit" => return map.set_initial_value(config.as_bytes()),
            BUCKETS => {
                let buckets = LINES * FW_RATELIMIT_WAYS;
                map.set_value_size(buckets * size_of::<fw_ratelimit_bucket>() as u32)?;
            }
            COUNTS => {
                let counts = config.count_mask + 1;
                map.set_value_size(counts * size_of::<fw_ratelimit_count>() as u32)?;
            }
            _ => {}
        }
        match maps
            .get(name)
            .filter(|_| ![HERE, COUNTS, NEXT].contains(&name))
        {
            Some(shared) => map.reuse_fd(shared.as_fd()),
            None => Ok(()),
        }
    })
}

impl RateLimiter {
    /// Without a limit.
    pub(crate) fn load(control: &MapByName, hz: u32) -> Result<Self, DatapathError> {
        let config = fw_ratelimit_config {
            hash_key: std::array::from_fn(|_| random() | 1),
            shift: u64::BITS - LINES.ilog2(),
            count_mask: possible_cpus().next_power_of_two() * FW_RATELIMITS - 1,
        };
        let first = load_ratelimit(&config, control)?;
        let maps = handles(&first)?;
        Ok(Self {
            rules: Shared::map(get(&maps, RULES)?, RULES, 1)?,
            buckets: Shared::map(get(&maps, BUCKETS)?, BUCKETS, LINES * FW_RATELIMIT_WAYS)?,
            maps,
            _first: first,
            config,
            hz,
            made: 0,
            ahead: Ahead::new(NAME, "freeway_limit"),
        })
    }

    /// A limit in a place that no port asks; no source has sent anything yet.
    pub fn set(&mut self, number: u32, rate: &SourceRate) {
        self.made += 1;
        let owner = self.made << FW_RATELIMIT_OWNER_SHIFT;
        let rule = rate.rule(self.hz, owner);
        let mut all = self.rules.read(0);
        if let Some(place) = all.rule.get_mut(number as usize) {
            *place = rule;
        }
        self.rules.write(0, all);
    }

    /// A port asks these limits from now on. Its program is made when it is first asked for.
    pub fn at(&mut self, ifindex: u32, here: fw_ratelimit_here) -> Result<(), DatapathError> {
        let (_, own) = self.ahead.at(ifindex, || {
            let object = load_ratelimit(&self.config, &self.maps)?;
            let maps = handles(&object)?;
            let next = MapHandle::try_from(get(&maps, NEXT)?);
            let own = Here {
                here: Shared::map(get(&maps, HERE)?, HERE, 1)?,
                counts: Shared::map(get(&maps, COUNTS)?, COUNTS, self.config.count_mask + 1)?,
                next: next.map_err(|source| DatapathError::Map { map: NEXT, source })?,
            };
            Ok((object, own))
        })?;
        own.here.write(0, here);
        Ok(())
    }

    /// The program of such a port.
    pub fn front(&self, ifindex: u32) -> Result<Front, DatapathError> {
        let missing = DatapathError::Missing {
            object: NAME,
            name: "a port",
        };
        let (prog, own) = self.ahead.get(ifindex).ok_or(missing)?;
        let prog = prog.try_clone();
        let next = MapHandle::try_from(&own.next);
        Ok(Front {
            prog: prog.map_err(|error| DatapathError::Object {
                object: NAME,
                what: "duplicating a descriptor",
                source: error.into(),
            })?,
            next: next.map_err(|source| DatapathError::Map { map: NEXT, source })?,
        })
    }

    /// The program is no longer at the port.
    pub fn leave(&mut self, ifindex: u32) {
        self.ahead.leave(ifindex);
    }

    /// True of a port that has a program.
    #[must_use]
    pub fn has(&self, ifindex: u32) -> bool {
        self.ahead.get(ifindex).is_some()
    }

    /// Ports that have a program.
    pub fn ports(&self) -> impl Iterator<Item = u32> + '_ {
        self.ahead.ports()
    }

    /// Of its maps, but for counters of single ports.
    #[must_use]
    pub fn memory(&self) -> MapMemory {
        memory(&self.maps)
    }

    /// Ids of its programs.
    #[must_use]
    pub fn prog_ids(&self) -> Vec<u32> {
        self.ahead.prog_ids()
    }

    /// Of the limit in a place, at a port that has a program.
    #[must_use]
    pub fn count(&self, ifindex: u32, number: u32) -> fw_ratelimit_count {
        let mut sum = fw_ratelimit_count::default();
        let Some(here) = self.ahead.own(ifindex) else {
            return sum;
        };
        for at in (number..=self.config.count_mask).step_by(FW_RATELIMITS as usize) {
            let of_cpu = here.counts.read(at);
            sum.dropped += of_cpu.dropped;
            sum.bytes += of_cpu.bytes;
            sum.forgotten += of_cpu.forgotten;
        }
        sum
    }

    /// A place's counters begin anew, at all ports.
    pub fn clear_counts(&mut self, number: u32) {
        for (_, here) in self.ahead.owns_mut() {
            for at in (number..=self.config.count_mask).step_by(FW_RATELIMITS as usize) {
                here.counts.write(at, fw_ratelimit_count::default());
            }
        }
    }

    /// Sources of which packets were dropped, and that have a bucket. It reads them all.
    pub fn offenders(&self) -> impl Iterator<Item = Offender> + '_ {
        let rules = self.rules.read(0).rule;
        let all = (0..LINES * FW_RATELIMIT_WAYS).map(|at| self.buckets.read(at));
        all.filter(|bucket| bucket.dropped > 0)
            .filter_map(move |bucket| {
                let owner = bucket.owner & !FW_RATELIMIT_OWNER_IP6;
                let of = |rule: &fw_ratelimit_rule| rule.owner != 0 && rule.owner == owner;
                Some(Offender {
                    number: rules.iter().position(of)? as u32,
                    addr: rate::address(&bucket),
                    dropped: bucket.dropped,
                })
            })
    }

    /// As if so many ticks had passed: for tests.
    #[doc(hidden)]
    pub fn pass(&self, ticks: u32) {
        for at in 0..LINES * FW_RATELIMIT_WAYS {
            let mut bucket = self.buckets.read(at);
            let passed = u64::from(ticks) << FW_RATELIMIT_SHIFT;
            bucket.full_at = bucket.full_at.saturating_sub(passed);
            self.buckets.write(at, bucket);
        }
    }
}
