// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedulers of the engine's outputs: what the daemon tells of one, and what has become of its classes.

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
    fn delays_are_bounded_by_their_buckets() {
        let mut counts = ClassCounts::default();
        assert_eq!(counts.delay_below_ns(0.99), None);
        counts.delays = vec![98, 1, 1];
        assert_eq!(counts.delay_below_ns(0.5), Some(1024));
        assert_eq!(counts.delay_below_ns(0.99), Some(2048));
        assert_eq!(counts.delay_below_ns(1.0), Some(4096));
    }
}
