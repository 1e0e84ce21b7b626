// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer of `explain`, and the one reason that says most.

use std::collections::BTreeMap;

use freeway_abi::{
    FW_R_CLOSING, FW_R_FAST, FW_R_FRAGMENT, FW_R_ICMP, FW_R_IP_CHECKSUM, FW_R_IP_HEADER,
    FW_R_IP_OPTIONS, FW_R_IP6_EXTENSION, FW_R_LEARN_BUDGET, FW_R_LEARN_EPOCH, FW_R_LEARN_NO_REPLY,
    FW_R_LEARN_OFFERED, FW_R_LEARN_ONCE, FW_R_LEARN_RING, FW_R_LEARN_STALE_TOKEN, FW_R_MISS,
    FW_R_MISS_CLOSE, FW_R_PREPARING, FW_R_PROTOCOL, FW_R_SHORT, FW_R_SUSPENDED, FW_R_TCP_FLAGS,
    FW_R_VLAN, FW_STAGE_TC_EGRESS, FW_STAGE_TC_INGRESS, FW_STAGE_XDP, Reason, Stage,
};
use freeway_cmm::Refusal;
use freeway_kernel::model::{Connection as Tracked, TcpState};

use crate::api::{FlowState, Verdict};

/// Packets by stage, reason and port.
pub(super) type Sightings = BTreeMap<(u32, u32, u32), u64>;

/// Reasons for which nothing was learned yet, but will be.
const TEMPORARY: [u32; 7] = [
    FW_R_LEARN_STALE_TOKEN,
    FW_R_LEARN_NO_REPLY,
    FW_R_LEARN_ONCE,
    FW_R_LEARN_OFFERED,
    FW_R_LEARN_BUDGET,
    FW_R_LEARN_RING,
    FW_R_LEARN_EPOCH,
];

/// What is known of a tuple.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    /// The fast path is switched on.
    pub on: bool,
    /// Of its flow, if it has one.
    pub state: Option<FlowState>,
    pub seen: &'a Sightings,
    pub refusal: Option<Refusal>,
    /// One end is the router itself.
    pub local: bool,
    pub connection: Option<&'a Tracked>,
    /// Packets of whatever flow that came meanwhile and showed no ports: the most frequent reason, and how many.
    pub nameless: Option<(u32, u64)>,
}

/// Reasons of packets that leave the parser before their ports are found.
pub(super) const NAMELESS: [u32; 6] = [
    FW_R_VLAN,
    FW_R_IP_HEADER,
    FW_R_IP_CHECKSUM,
    FW_R_IP_OPTIONS,
    FW_R_IP6_EXTENSION,
    FW_R_FRAGMENT,
];

impl Case<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        match (self.saw(FW_R_FAST), self.seen.is_empty(), self.state) {
            // nor does the data plane look at packets then
            _ if !self.on => Verdict::Kernel,
            (true, ..) => Verdict::Fast,
            (false, false, _) => Verdict::Kernel,
            (false, true, Some(FlowState::Active)) => Verdict::Fast,
            (false, true, Some(_)) => Verdict::Kernel,
            (false, true, None) => Verdict::Unknown,
        }
    }

    /// One sentence.
    pub(super) fn summary(&self) -> String {
        match self.verdict() {
            _ if !self.on => "The fast path is switched off.".into(),
            Verdict::Fast if !self.seen.is_empty() => self.fast().into(),
            Verdict::Fast => "It is in the flow table, and no packet came while watching.".into(),
            _ if self.local => {
                "One end is this router: local traffic is always the kernel's.".into()
            }
            Verdict::Kernel => sentence(&self.why()),
            Verdict::Unknown => match self.refusal {
                Some(refusal) => format!(
                    "Not in the flow table; when last seen: {}.",
                    refusal.words()
                ),
                None => match self.nameless {
                    Some((reason, count)) => format!(
                        "No packet that shows its ports came while watching, but {count} did that show none: {}, \
                         always the kernel's.",
                        Reason::get(reason).words
                    ),
                    None => {
                        "Not in the flow table, and no packet of it came while watching.".into()
                    }
                },
            },
        }
    }

    /// Where its fast packets were seen.
    fn fast(&self) -> &'static str {
        let at = |wanted| {
            let mut seen = self.seen.keys();
            seen.any(|(stage, reason, _)| (*stage, *reason) == (wanted, FW_R_FAST))
        };
        match (at(FW_STAGE_XDP), at(FW_STAGE_TC_INGRESS)) {
            (true, true) => "Its packets are forwarded in XDP and in tc.",
            (false, true) => "Its packets are forwarded in tc, through the qdisc where they leave.",
            _ => "Its packets are forwarded in XDP.",
        }
    }

    /// Why the kernel has its packets, the most decisive reason there is.
    fn why(&self) -> String {
        if self.most(|n| self.stage_of(n) == Stage::Drop).is_some() {
            return "packets of it are dropped before the kernel: \
                    over a limit of [punts.limits] in the configuration"
                .into();
        }
        // What cannot be a flow's packet says nothing of the flow, and is said first.
        // misses of some protocols go by the names of what is no flow's
        let miss = |n| [FW_R_ICMP, FW_R_PROTOCOL].contains(&n);
        let never = |n| (FW_R_SHORT..=FW_R_TCP_FLAGS).contains(&n) && !miss(n);
        if let Some(reason) = self.most(never) {
            return format!("{}: always the kernel's", reason.words);
        }
        if let Some(closing) = self.closing() {
            return closing;
        }
        if let Some(refusal) = self.refusal {
            return refusal.words().into();
        }
        if let Some(reason) = self.most(|n| self.stage_of(n) == Stage::Learn) {
            return if TEMPORARY.contains(&reason.number) {
                format!("it is being learned: {}", reason.words)
            } else {
                reason.words.into()
            };
        }
        if self.saw(FW_R_PREPARING) || self.state == Some(FlowState::Preparing) {
            return "it is being learned: its connection is being prepared".into();
        }
        if let Some(state) = self.state {
            return format!("its flow is {state}");
        }
        let at_egress = self.seen.keys().any(|(at, ..)| *at == FW_STAGE_TC_EGRESS);
        if !at_egress
            && [FW_R_MISS, FW_R_MISS_CLOSE, FW_R_ICMP, FW_R_PROTOCOL]
                .into_iter()
                .any(|reason| self.saw(reason))
        {
            return "the kernel does not forward its packets to a port that takes part: \
                    a rule drops them, there is no route, or it leaves elsewhere"
                .into();
        }
        match self.most(|n| self.stage_of(n) == Stage::Punt) {
            Some(reason) => reason.words.into(),
            None => "it is being learned".into(),
        }
    }

    fn closing(&self) -> Option<String> {
        let state = self.connection.and_then(|c| c.tcp).map(|tcp| tcp.state);
        let name = match state {
            Some(TcpState::FinWait) => Some("FIN-WAIT"),
            Some(TcpState::CloseWait) => Some("CLOSE-WAIT"),
            Some(TcpState::LastAck) => Some("LAST-ACK"),
            Some(TcpState::TimeWait) => Some("TIME-WAIT"),
            Some(TcpState::Close) => Some("CLOSED"),
            _ => None,
        };
        match name {
            Some(name) => Some(format!(
                "the connection is closing ({name}): its last packets are the kernel's"
            )),
            _ if self.saw(FW_R_CLOSING) || self.saw(FW_R_SUSPENDED) => {
                Some("the connection is closing: SYN, FIN or RST was seen".into())
            }
            _ => None,
        }
    }

    fn saw(&self, reason: u32) -> bool {
        self.seen.keys().any(|(_, seen, _)| *seen == reason)
    }

    fn stage_of(&self, number: u32) -> Stage {
        Reason::get(number).stage
    }

    /// Of the reasons that `wanted` names, the one that most packets met.
    fn most(&self, wanted: impl Fn(u32) -> bool) -> Option<Found> {
        let hits = self.seen.iter().filter(|((_, n, _), _)| wanted(*n));
        let ((_, number, _), _) = hits.max_by_key(|(_, count)| **count)?;
        Some(Found {
            number: *number,
            words: Reason::get(*number).words,
        })
    }
}

struct Found {
    number: u32,
    words: &'static str,
}

fn sentence(words: &str) -> String {
    let mut chars = words.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use freeway_abi::{FW_R_LEARN_FRAME, FW_R_LEARN_HELPER};

    use super::*;

    const BLANK: Case<'static> = Case {
        on: true,
        state: None,
        seen: &Sightings::new(),
        refusal: None,
        local: false,
        connection: None,
        nameless: None,
    };

    #[track_caller]
    fn check(case: Case<'_>, verdict: Verdict, words: &str) {
        assert_eq!(case.verdict(), verdict);
        let summary = case.summary();
        assert!(summary.contains(words), "{summary}");
    }

    #[test]
    fn the_most_decisive_reason_is_said() {
        let miss = ((FW_STAGE_XDP, FW_R_MISS, 2), 9);
        let egress = |reason| ((FW_STAGE_TC_EGRESS, reason, 3), 9);
        let case = |seen: &[((u32, u32, u32), u64)], words| {
            let seen = seen.iter().copied().collect();
            check(
                Case {
                    seen: &seen,
                    ..BLANK
                },
                Verdict::Kernel,
                words,
            );
        };
        case(&[miss], "The kernel does not forward its packets");
        case(
            &[miss, egress(FW_R_LEARN_ONCE)],
            "It is being learned: first",
        );
        case(
            &[miss, egress(FW_R_LEARN_HELPER)],
            "The connection has a helper",
        );
        let fragment = ((FW_STAGE_XDP, FW_R_FRAGMENT, 2), 1);
        case(
            &[miss, fragment, egress(FW_R_LEARN_FRAME)],
            "Fragment: always the kernel's",
        );
        case(&[((FW_STAGE_XDP, FW_R_CLOSING, 2), 1), miss], "is closing");
        let refused = Case {
            seen: &[miss, egress(FW_R_LEARN_ONCE)].into(),
            refusal: Some(Refusal::TableFull),
            ..BLANK
        };
        check(refused, Verdict::Kernel, "The flow table is full.");
        let local = Case {
            seen: &[miss].into(),
            local: true,
            ..BLANK
        };
        check(local, Verdict::Kernel, "One end is this router");
    }

    #[test]
    fn without_packets_the_table_answers() {
        check(BLANK, Verdict::Unknown, "Not in the flow table, and");
        let refusal = Some(Refusal::Policy);
        let refused = Case { refusal, ..BLANK };
        check(refused, Verdict::Unknown, "when last seen: excluded");
        let state = Some(FlowState::Active);
        check(
            Case { state, ..BLANK },
            Verdict::Fast,
            "It is in the flow table",
        );
        let off = Case {
            state,
            on: false,
            ..BLANK
        };
        check(off, Verdict::Kernel, "switched off");
    }
}
