// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedulers of the engine's outputs: what the daemon tells of one, and what has become of its classes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Most classes of a port (`FWE_CLASSES_MAX`).
pub const CLASSES_MAX: usize = 64;
/// Most leaves of a port: a queue of its TAP for each, and one for what passes them all (`FWE_TAP_QUEUES`).
pub const LEAVES_MAX: usize = 16;
/// Most classes one above the other (`FWE_CLASS_DEPTH`).
pub const DEPTH_MAX: usize = 8;
/// Never waits for a rate (`FWE_RATE_ANY`).
pub const RATE_ANY: u64 = u64::MAX;
/// Buckets of [`ClassCounts::delays`] (`FWE_DELAYS`).
pub const DELAYS: usize = 24;

/// `[engine.port.NAME.schedule]`: a scheduler without a qdisc.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleConfig {
    /// What leaves at the port, in all.
    pub rate_kbit: u64,
    /// The class of what no other one names; it may be left out where there is one class.
    pub default: Option<String>,
    /// `[engine.port.NAME.schedule.class.CLASS]`, in the order of their names.
    pub class: BTreeMap<String, ClassConfig>,
}

/// `[engine.port.NAME.schedule.class.CLASS]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassConfig {
    /// Of what is spare: 0 is first, 7 last.
    pub priority: u16,
    /// Share of what is spare, among classes of one priority.
    pub weight: u32,
    /// What it has in any case.
    pub rate_kbit: Option<u64>,
    /// What it has at most.
    pub ceiling_kbit: Option<u64>,
    /// Frames that may wait.
    pub queue: u32,
    /// DSCP of its packets, as they leave.
    pub dscp: Vec<u8>,
    /// Marks of its packets.
    pub mark: Vec<u32>,
}

impl Default for ClassConfig {
    fn default() -> Self {
        Self {
            priority: 7,
            weight: 1,
            rate_kbit: None,
            ceiling_kbit: None,
            queue: 1000,
            dscp: Vec::new(),
            mark: Vec::new(),
        }
    }
}

impl ScheduleConfig {
    /// The class of what no other one names.
    #[must_use]
    pub fn default_class(&self) -> Option<&str> {
        let only = self.class.keys().next().filter(|_| self.class.len() == 1);
        self.default.as_ref().or(only).map(String::as_str)
    }

    /// What types cannot express; an error names the key.
    pub fn check(&self, table: &str) -> Result<(), String> {
        let rates = 8..=400_000_000;
        if !rates.contains(&self.rate_kbit) {
            return Err(format!("{table}: rate_kbit must be 8 to 400000000"));
        }
        if self.class.is_empty() || self.class.len() > LEAVES_MAX {
            return Err(format!(
                "{table}: it must have 1 to {LEAVES_MAX} tables [{table}.class.NAME]"
            ));
        }
        match self.default_class() {
            Some(default) if self.class.contains_key(default) => {}
            Some(default) => return Err(format!("{table}: default = \"{default}\" is no class")),
            None => {
                return Err(format!(
                    "{table}: default must name the class of what no other one names"
                ));
            }
        }
        let (mut dscps, mut marks) = (BTreeSet::new(), BTreeSet::new());
        for (name, class) in &self.class {
            let table = format!("{table}.class.{name}");
            if class.priority > 7 {
                return Err(format!("{table}: priority must be 0 to 7"));
            }
            if !(1..=1000).contains(&class.weight) {
                return Err(format!("{table}: weight must be 1 to 1000"));
            }
            if !(1..=100_000).contains(&class.queue) {
                return Err(format!("{table}: queue must be 1 to 100000"));
            }
            for (key, rate) in [
                ("rate_kbit", class.rate_kbit),
                ("ceiling_kbit", class.ceiling_kbit),
            ] {
                if rate.is_some_and(|rate| !(8..=self.rate_kbit).contains(&rate)) {
                    return Err(format!(
                        "{table}: {key} must be 8 to the port's {}",
                        self.rate_kbit
                    ));
                }
            }
            if class.rate_kbit > Some(class.ceiling_kbit.unwrap_or(self.rate_kbit)) {
                return Err(format!("{table}: rate_kbit is more than ceiling_kbit"));
            }
            if let Some(dscp) = class.dscp.iter().find(|dscp| **dscp > 63) {
                return Err(format!("{table}: dscp {dscp} is not 0 to 63"));
            }
            if let Some(dscp) = class.dscp.iter().find(|dscp| !dscps.insert(**dscp)) {
                return Err(format!("{table}: dscp {dscp} is named twice"));
            }
            if let Some(mark) = class.mark.iter().find(|mark| !marks.insert(**mark)) {
                return Err(format!("{table}: mark {mark} is named twice"));
            }
        }
        let sum: u64 = self.class.values().filter_map(|c| c.rate_kbit).sum();
        if sum > self.rate_kbit {
            return Err(format!(
                "{table}: its classes have {sum} kbit/s in any case, and the port {}",
                self.rate_kbit
            ));
        }
        Ok(())
    }
}

/// The scheduler of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Interface index.
    pub port: u32,
    /// At most [`CLASSES_MAX`], leaves in the order of their turns.
    pub classes: Vec<Class>,
    /// Number, from 0 on, of the leaf for what names none; none: that passes at once.
    pub other: Option<u16>,
    /// Which leaf the kernel's own frames are of.
    pub rules: Rules,
}

/// Which leaf a frame is of, by number from 0 on: the first that says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Priorities with which it passes all classes.
    pub past: Vec<u32>,
    /// Priorities.
    pub priorities: Vec<(u32, u16)>,
    /// Marks under a mask.
    pub marks: Vec<(u32, u32, u16)>,
    /// DSCP.
    pub dscps: Vec<(u8, u16)>,
    /// By the lower four bits of the priority, or its first one if the priority names a class.
    pub priomap: Vec<u16>,
}

/// A class (`struct fwe_class`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// As people call it.
    pub name: String,
    /// As its owner calls it: what waits goes on in the class of the same one.
    pub id: u32,
    /// Number of the class above, which is named earlier.
    pub above: Option<u16>,
    /// Of a leaf: 0 is first.
    pub priority: u16,
    /// Of a leaf: octets of a turn.
    pub quantum: u32,
    /// Of a leaf: frames that wait.
    pub limit: u32,
    /// Of a leaf: octets that wait.
    pub limit_bytes: u64,
    /// Octets a second; 0: it has only what those above it spare.
    pub rate: u64,
    /// Octets a second.
    pub ceiling: u64,
    /// What it may send at once, as the time that this takes at its rate.
    pub burst_ns: u64,
    /// And at its ceiling.
    pub ceiling_burst_ns: u64,
    /// Each frame counts as so many octets more,
    pub overhead: i32,
    /// and as that many at least.
    pub least: u32,
}

impl Schedule {
    /// Its leaves, with their numbers from 0 on.
    pub fn leaves(&self) -> impl Iterator<Item = (usize, &Class)> {
        let inner = |number: usize| {
            let mut above = self.classes.iter().filter_map(|class| class.above);
            above.any(|above| usize::from(above) == number)
        };
        let all = self.classes.iter().enumerate();
        all.filter(move |(number, _)| !inner(*number))
    }
}

/// What has become of a class's frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassCounts {
    /// The port, by interface index.
    pub port: u32,
    /// As people call it.
    pub name: String,
    /// Frames that left.
    pub packets: u64,
    /// Their octets.
    pub bytes: u64,
    /// Frames that found no room.
    pub dropped: u64,
    /// Frames that wait.
    pub waiting: u64,
    /// Their octets.
    pub waiting_bytes: u64,
    /// Nanoseconds that those that left have waited.
    pub delay_ns: u64,
    /// Those that left, by what they have waited: below 1.024 microseconds, below twice as much, and so on.
    pub delays: Vec<u64>,
}

impl ClassCounts {
    /// A bound, in nanoseconds, of what that share of the frames has waited at most; none: none has left.
    #[must_use]
    pub fn delay_below_ns(&self, share: f64) -> Option<u64> {
        let all: u64 = self.delays.iter().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut sum = 0;
        let within = |count: &u64| {
            sum += count;
            sum >= wanted
        };
        let bucket = self.delays.iter().position(within)?;
        (all > 0).then(|| 1024 << bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_configuration_cannot_mean_is_named() {
        let two = || ScheduleConfig {
            rate_kbit: 1000,
            default: Some("rest".into()),
            class: ["rest", "voice"]
                .map(|name| (name.to_owned(), ClassConfig::default()))
                .into(),
        };
        assert_eq!(two().check("t"), Ok(()));
        let wrong = |change: fn(&mut ScheduleConfig), words: &str| {
            let mut config = two();
            change(&mut config);
            let error = config.check("t").unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        fn voice(config: &mut ScheduleConfig) -> &mut ClassConfig {
            config.class.get_mut("voice").unwrap()
        }
        wrong(|c| c.rate_kbit = 0, "t: rate_kbit must be 8 to");
        wrong(|c| c.default = None, "default must name");
        wrong(|c| c.default = Some("x".into()), "\"x\" is no class");
        wrong(|c| c.class.clear(), "1 to 16 tables [t.class.NAME]");
        wrong(|c| voice(c).priority = 8, "t.class.voice: priority");
        wrong(|c| voice(c).weight = 0, "weight must be");
        wrong(|c| voice(c).queue = 0, "queue must be");
        wrong(|c| voice(c).rate_kbit = Some(1001), "8 to the port's 1000");
        wrong(|c| voice(c).ceiling_kbit = Some(7), "ceiling_kbit must be");
        wrong(
            |c| (voice(c).rate_kbit, voice(c).ceiling_kbit) = (Some(9), Some(8)),
            "more than ceiling_kbit",
        );
        wrong(|c| voice(c).dscp = vec![64], "dscp 64 is not");
        wrong(|c| voice(c).dscp = vec![46, 46], "dscp 46 is named twice");
        wrong(|c| voice(c).mark = vec![5, 5], "mark 5 is named twice");
        wrong(
            |c| c.class.values_mut().for_each(|c| c.rate_kbit = Some(501)),
            "1002 kbit/s in any case",
        );
    }

    #[test]
    fn delays_are_bounded_by_their_buckets() {
        let mut counts = ClassCounts::default();
        assert_eq!(counts.delay_below_ns(0.99), None);
        counts.delays = vec![98, 1, 1];
        assert_eq!(counts.delay_below_ns(0.5), Some(1024));
        assert_eq!(counts.delay_below_ns(0.99), Some(2048));
        assert_eq!(counts.delay_below_ns(1.0), Some(4096));
    }
}
