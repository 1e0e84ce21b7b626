// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a packet took the way it took.

/// What a reason is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Forwarded by the fast path.
    Fast,
    /// Given to the engine by XDP.
    Hand,
    /// Given to the kernel by XDP or tc.
    Punt,
    /// Dropped by XDP.
    Drop,
    /// tc egress did not learn from the packet.
    Learn,
    /// tc egress learned from the packet, or it confirmed a flow.
    Keep,
}

/// One entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// Stable name, as in JSON and metrics.
    pub name: &'static str,
    /// What it is about.
    pub stage: Stage,
    /// For people.
    pub words: &'static str,
    /// The configuration may limit how many packets the kernel is given for it.
    pub limitable: bool,
}

include!(concat!(env!("OUT_DIR"), "/reasons.rs"));

impl Reason {
    /// The reason with this number; unknown numbers read as "no reason recorded".
    #[must_use]
    pub fn get(number: u32) -> &'static Self {
        REASONS.get(number as usize).unwrap_or(&REASONS[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_matches_the_enum() {
        assert_eq!(REASONS.len(), crate::FW_R_COUNT as usize);
        assert_eq!(Reason::get(crate::FW_R_FAST).name, "fast");
        assert_eq!(Reason::get(crate::FW_R_SAMPLED).name, "sampled");
        assert_eq!(Reason::get(u32::MAX).name, "none");
    }

    #[test]
    fn what_a_link_needs_cannot_be_limited() {
        let limitable = |number| Reason::get(number).limitable;
        assert!(limitable(crate::FW_R_FRAGMENT) && limitable(crate::FW_R_MISS));
        for number in [
            crate::FW_R_NOT_IP,
            crate::FW_R_VLAN,
            crate::FW_R_DEADLINE,
            crate::FW_R_OFF,
            crate::FW_R_REVALIDATE,
            crate::FW_R_EPOCH,
        ] {
            assert!(!limitable(number), "{}", Reason::get(number).name);
        }
        let mut stages = REASONS.iter().filter(|r| r.limitable).map(|r| r.stage);
        assert!(stages.all(|stage| stage == Stage::Punt));
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = REASONS.iter().map(|r| r.name).collect();
        assert_eq!(names.len(), REASONS.len());
    }
}
