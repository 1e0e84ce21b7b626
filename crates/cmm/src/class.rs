// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes of a scheduler of the engine's, and which one a packet is of.

/// Which class a packet is of, by what the kernel has given to it: the first that says so. Classes have numbers from 0 on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// Priorities (`skb->priority`) with which a packet passes all classes.
    pub past: Vec<u32>,
    /// Priorities.
    pub priorities: Vec<(u32, u16)>,
    /// Marks under a mask.
    pub marks: Vec<(u32, u32, u16)>,
    /// DSCP.
    pub dscps: Vec<(u8, u16)>,
    /// By the lower four bits of the priority, or its first one if the priority names a class: that of a prio qdisc.
    pub priomap: Vec<u16>,
    /// What names none; none: that passes all classes.
    pub other: Option<u16>,
}

impl Classes {
    /// None: the kernel would send it past all classes. `tos` is the octet as it leaves.
    #[must_use]
    pub fn of(&self, priority: u32, mark: u32, tos: u8) -> Option<u16> {
        if self.past.contains(&priority) {
            return None;
        }
        let by_priority = self.priorities.iter().find(|(of, _)| *of == priority);
        let by_mark = || {
            let mut marks = self.marks.iter();
            marks.find(|(of, mask, _)| mark & mask == *of)
        };
        let by_dscp = || self.dscps.iter().find(|(of, _)| *of == tos >> 2);
        let by_map = || {
            let names_class = priority >> 16 != 0;
            let at = if names_class { 0 } else { priority & 15 };
            self.priomap.get(at as usize).copied()
        };
        by_priority
            .map(|(_, class)| *class)
            .or_else(|| by_mark().map(|(_, _, class)| *class))
            .or_else(|| by_dscp().map(|(_, class)| *class))
            .or_else(by_map)
            .or(self.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_names_a_packet_counts() {
        let classes = Classes {
            past: vec![0x0001_0000],
            priorities: vec![(0x0001_0010, 1)],
            marks: vec![(5, 0xff, 2)],
            dscps: vec![(46, 3)],
            priomap: vec![],
            other: Some(9),
        };
        assert_eq!(classes.of(0x0001_0000, 5, 0), None);
        assert_eq!(classes.of(0x0001_0010, 5, 46 << 2), Some(1));
        assert_eq!(classes.of(6, 0x105, 46 << 2), Some(2));
        assert_eq!(classes.of(6, 6, 46 << 2 | 3), Some(3));
        assert_eq!(classes.of(0, 0, 0), Some(9));
        let prio = Classes {
            priomap: (0..16).map(|priority| u16::from(priority > 7)).collect(),
            ..Classes::default()
        };
        assert_eq!(prio.of(7, 0, 0), Some(0));
        assert_eq!(prio.of(0x58, 0, 0), Some(1));
        assert_eq!(prio.of(0x0002_0009, 0, 0), Some(0));
        assert_eq!(Classes::default().of(0, 0, 0), None);
    }
}
