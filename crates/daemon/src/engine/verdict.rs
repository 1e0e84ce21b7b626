// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer of `explain`, and the one reason that says most.

use std::collections::BTreeMap;

use freeway_abi::{
    FW_R_CLOSING, FW_R_FAST, FW_R_FRAGMENT, FW_R_ICMP, FW_R_IP_CHECKSUM, FW_R_IP_HEADER,
    FW_R_IP_OPTIONS, FW_R_IP6_EXTENSION, FW_R_LEARN_BUDGET, FW_R_LEARN_EPOCH, FW_R_LEARN_NO_REPLY,
    FW_R_LEARN_OFFERED, FW_R_LEARN_ONCE, FW_R_LEARN_RING, FW_R_LEARN_SOURCE,
    FW_R_LEARN_STALE_TOKEN, FW_R_MISS, FW_R_MISS_CLOSE, FW_R_OWNER, FW_R_PREPARING, FW_R_PROTOCOL,
    FW_R_SHORT, FW_R_SUSPENDED, FW_R_TCP_FLAGS, FW_R_VLAN, FW_STAGE_TC_EGRESS, FW_STAGE_TC_INGRESS,
    FW_STAGE_USER, FW_STAGE_XDP, Reason, Stage,
};
use freeway_api::{FlowState, Verdict};
use freeway_cmm::Refusal;
use freeway_kernel::model::{Connection as Tracked, TcpState};

/// Packets by stage, reason and port.
pub(super) type Sightings = BTreeMap<(u32, u32, u32), u64>;

/// Without what tc tells of packets that XDP has told of, unless their flow is tc's.
pub(super) fn told_once(mut seen: Sightings) -> Sightings {
    let of_xdp = |wanted: Option<u32>| {
        let mut all = seen.keys();
        all.any(|(at, reason, _)| *at == FW_STAGE_XDP && wanted.is_none_or(|r| r == *reason))
    };
    if of_xdp(None) && !of_xdp(Some(FW_R_OWNER)) {
        seen.retain(|(at, reason, _), _| *at != FW_STAGE_TC_INGRESS || *reason == FW_R_FAST);
    }
    seen
}

/// Packets that came in. Where XDP and tc tell of them it is those of one of the two; the engine tells of those that it
/// forwards, which neither sees.
pub(super) fn arrived(seen: &Sightings) -> u64 {
    let at = |stage| {
        let told = seen.iter().filter(move |((at, ..), _)| *at == stage);
        told.map(|(_, count)| count).sum::<u64>()
    };
    at(FW_STAGE_XDP).max(at(FW_STAGE_TC_INGRESS)) + at(FW_STAGE_USER)
}

/// True if the kernel forwarded some of them.
pub(super) fn left(seen: &Sightings) -> bool {
    seen.keys().any(|(at, ..)| *at == FW_STAGE_TC_EGRESS)
}

/// Reasons for which nothing was learned yet, but will be.
const TEMPORARY: [u32; 8] = [
    FW_R_LEARN_STALE_TOKEN,
    FW_R_LEARN_NO_REPLY,
    FW_R_LEARN_ONCE,
    FW_R_LEARN_OFFERED,
    FW_R_LEARN_BUDGET,
    FW_R_LEARN_SOURCE,
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
    /// The kernel dropped some of its packets, most of them for this reason, if it gives any.
    pub dropped: Option<Option<&'a str>>,
    pub refusal: Option<Refusal>,
    /// Why XDP drops its packets, if it does.
    pub scrubbed: Option<&'a str>,
    /// Why XDP drops some of them, if it does.
    pub limited: Option<&'a str>,
    /// By which route its packets leave without a flow, if they do.
    pub routed: Option<&'a str>,
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
        let nothing = self.seen.is_empty() && self.dropped.is_none();
        match (self.saw(FW_R_FAST), nothing, self.state) {
            // nor does the data plane look at packets then
            _ if !self.on || self.scrubbed.is_some() => Verdict::Kernel,
            _ if self.routed.is_some() => Verdict::Fast,
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
            _ if self.scrubbed.is_some() => sentence(self.scrubbed.unwrap_or_default()),
            _ if self.limited.is_some() => sentence(self.limited.unwrap_or_default()),
            _ if self.routed.is_some() => sentence(self.routed.unwrap_or_default()),
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
        if at(FW_STAGE_USER) {
            return "Its packets are forwarded by the engine.";
        }
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
        // of what the kernel forwards nothing else than the drops that now and then happen
        let at_egress = left(self.seen);
        if !at_egress && let Some(Some(words)) = self.dropped {
            return words.into();
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
        let missed = [FW_R_MISS, FW_R_MISS_CLOSE, FW_R_ICMP, FW_R_PROTOCOL];
        let missed = missed.into_iter().any(|reason| self.saw(reason));
        if !at_egress && (missed || self.seen.is_empty()) {
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
                Some("the connection is closing: FIN or RST was seen".into())
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
    use freeway_abi::{FW_R_EPOCH, FW_R_LEARN_FRAME, FW_R_LEARN_HELPER};

    use super::*;

    const BLANK: Case<'static> = Case {
        on: true,
        state: None,
        seen: &Sightings::new(),
        dropped: None,
        refusal: None,
        scrubbed: None,
        limited: None,
        routed: None,
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
    fn the_kernel_says_why_it_drops() {
        let miss = ((FW_STAGE_TC_INGRESS, FW_R_MISS, 2), 9);
        let dropped = Case {
            seen: &[miss].into(),
            dropped: Some(Some("the kernel has no route")),
            // older than the packets
            refusal: Some(Refusal::TableFull),
            ..BLANK
        };
        check(dropped, Verdict::Kernel, "The kernel has no route.");
        let once = ((FW_STAGE_TC_EGRESS, FW_R_LEARN_ONCE, 3), 9);
        let forwarded = Case {
            seen: &[miss, once].into(),
            refusal: None,
            ..dropped
        };
        check(forwarded, Verdict::Kernel, "It is being learned: first");
        // by a port that takes no part, and without a reason
        let unsaid = Case {
            dropped: Some(None),
            ..BLANK
        };
        check(unsaid, Verdict::Kernel, "The kernel does not forward");
    }

    #[test]
    fn packets_count_once() {
        let sightings = |all: &[(u32, u32)]| -> Sightings {
            let all = all.iter().map(|(at, reason)| ((*at, *reason, 2), 5));
            all.collect()
        };
        let both = sightings(&[
            (FW_STAGE_XDP, FW_R_MISS),
            (FW_STAGE_TC_INGRESS, FW_R_MISS),
            (FW_STAGE_TC_EGRESS, FW_R_LEARN_ONCE),
        ]);
        assert_eq!(arrived(&both), 5);
        assert_eq!(told_once(both).len(), 2);
        let of_tc = sightings(&[
            (FW_STAGE_XDP, FW_R_OWNER),
            (FW_STAGE_TC_INGRESS, FW_R_EPOCH),
        ]);
        assert_eq!(told_once(of_tc.clone()), of_tc);
        let alone = sightings(&[(FW_STAGE_TC_INGRESS, FW_R_MISS)]);
        assert_eq!(told_once(alone.clone()), alone);
    }

    #[test]
    fn a_route_is_as_good_as_a_flow() {
        let words = Some("XDP forwards it by the route 203.0.113.0/24");
        let routed = Case {
            routed: words,
            ..BLANK
        };
        check(routed, Verdict::Fast, "by the route 203.0.113.0/24");
        let off = Case {
            on: false,
            ..routed
        };
        check(off, Verdict::Kernel, "switched off");
        let dropped = Case {
            scrubbed: Some("dropped in XDP"),
            ..routed
        };
        check(dropped, Verdict::Kernel, "Dropped in XDP");
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
