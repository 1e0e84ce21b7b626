// SPDX-License-Identifier: MIT OR Apache-2.0
//! What left one router against what left the other: byte for byte, and in which order.
//!
//! One thing may differ, and only so: where conntrack looks at a packet it verifies the UDP or TCP checksum
//! (`nf_conntrack_checksum`) and calls a wrong one invalid. The fast path does not verify. For such a packet it may send
//! the frame as it sends the flow's others (translated, and by the way that the connection's mark gives it), whose
//! checksum is wrong by as much as it was; anything else has to be what the kernel sends.
//! A RST of a tracked connection that conntrack would believe, and its receiver would not, is dropped if its flow is not
//! fast at that moment (docs/limits.md); `stray_close` counts it.
//! And where a rule writes DSCP, an IPv4 header checksum of 0x0000 and one of 0xffff are the same.
//! IPv6 fragments that conntrack has put together may leave in other pieces: `ip6_fragment` makes new ones where packets
//! lack room for the output's header, and with an XDP program at the input they have more.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use freeway_lab::frame::sum16;
use freeway_lab::twins::Kind;

use crate::bench::{FREEWAY, KERNEL, Left, Outcome};
use crate::case::Case;
use crate::flow::{Flow, ICMP, TCP, UDP};
use crate::frame::{ETH, Plan, Sum, View, hex, number};
use crate::ruleset::Rule;
use crate::setup::{NOTRACK_PORTS, Tracking};

#[derive(Debug, Default)]
pub struct Comparison {
    /// In words, at most so many.
    pub differences: Vec<String>,
    /// All of them.
    pub different: usize,
    /// Frames that one router alone sent, with the port, and the numbers that they have.
    pub alone: BTreeMap<(&'static str, usize), (usize, BTreeSet<u32>)>,
    /// Flows (by index) with a difference.
    pub flows: BTreeSet<usize>,
    /// Frames that were overtaken, and the worst extent (RFC 4737, section 4.2.2).
    pub displaced: usize,
    pub extent: usize,
    /// Some of them.
    pub overtakings: Vec<String>,
    /// Overtaken ones of the last frames alone.
    pub displaced_last: usize,
    /// Frames with a wrong checksum under conntrack, and those of them that only Freeway translated.
    pub wrong_sums: usize,
    pub translated: usize,
    /// Groups of IPv6 fragments that left in other pieces.
    pub repacked: usize,
    /// RSTs that only the kernel forwarded.
    pub withheld: u64,
}

const SHOWN: usize = 6;

/// Compares what the routers of a case sent.
pub fn compare(case: &Case, outcome: &Outcome) -> Comparison {
    let plans: HashMap<u32, &Plan> = case
        .traffic
        .parts()
        .into_iter()
        .flatten()
        .map(|plan| (plan.number, plan))
        .collect();
    let mut comparison = Comparison::default();
    let judged: BTreeSet<u32> = plans
        .values()
        .filter(|plan| is_judged(case, plan))
        .map(|plan| plan.number)
        .collect();
    comparison.wrong_sums = judged.len();
    let either_zero = case.setup.rules.iter().any(Rule::writes_dscp);
    let [kernel, freeway] =
        [KERNEL, FREEWAY].map(|router| groups(&outcome.left[router], &judged, either_zero));
    let nothing = Vec::new();
    let keys: BTreeSet<_> = kernel
        .ordinary
        .keys()
        .chain(freeway.ordinary.keys())
        .collect();
    for key in keys {
        let [k, f] = [&kernel, &freeway].map(|groups| groups.ordinary.get(key).unwrap_or(&nothing));
        if k == f {
            continue;
        }
        // at a wire there is room
        if case.setup.tracked() && outcome.kinds[key.0] != Kind::Wire {
            let [k, f] =
                [KERNEL, FREEWAY].map(|router| wholes(&pieces(&outcome.left[router], key)));
            if k.is_some() && k == f {
                comparison.repacked += 1;
                continue;
            }
        }
        // ICMP errors and fragments of several flows look like one, and have no order among them.
        let one_flow = k
            .iter()
            .chain(f)
            .all(|frame| View::of(frame).is_some_and(|v| v.tuple().is_some()));
        if !differ(&mut comparison, key.0, (k, f), &plans, case, outcome) && one_flow {
            displacement(&mut comparison, k, f, case);
        }
    }
    let strays = outcome
        .reasons
        .iter()
        .find(|(name, _)| name == "stray_close");
    let strays = strays.map_or(0, |(_, count)| *count);
    if comparison.withheld > strays {
        let text = format!(
            "{} RSTs are missing, and {strays} were dropped as strays",
            comparison.withheld
        );
        comparison.note(text, None);
    }
    let templates = templates(outcome, &plans);
    for number in judged {
        let [k, f] = [&kernel, &freeway].map(|groups| groups.judged.get(&number));
        if k == f {
            continue;
        }
        let plan = plans[&number];
        let of_flow = templates.get(&template_key(plan)).into_iter().flatten();
        let wanted: Vec<Left> = of_flow
            .filter_map(|template| translated(&outcome.sent[&number], template))
            .collect();
        match f.map(Vec::as_slice) {
            Some([only]) if wanted.contains(only) => {
                comparison.translated += 1;
            }
            _ => {
                let [k, f] = [k, f].map(|left| left.cloned().unwrap_or_default());
                let mut text = format!("a frame with a wrong checksum, number {number}:");
                for (by, left) in [("the kernel", k), ("Freeway", f), ("allowed", wanted)] {
                    for Left { port, bytes } in left {
                        text += &format!(
                            "\n  {by}, port {port}: {} bytes {}",
                            bytes.len(),
                            hex(&bytes)
                        );
                    }
                }
                comparison.note(text, plans.get(&number).map(|plan| plan.flow));
            }
        }
    }
    comparison
}

impl Comparison {
    /// Which frames one router alone sent: all from some moment on, those of some flows, or the same by another port.
    pub fn alone(&self) -> String {
        let line = |(&(by, port), (frames, numbers)): (&(&str, usize), &(usize, BTreeSet<u32>))| {
            format!("only by {by} at port {port}: {frames} frames, of the numbers {numbers:?}\n")
        };
        self.alone.iter().map(line).collect()
    }

    fn note(&mut self, text: String, flow: Option<usize>) {
        self.different += 1;
        self.flows.extend(flow);
        if self.differences.len() < SHOWN {
            self.differences.push(text);
        }
    }
}

/// Conntrack sees the frame and calls it invalid for its L4 checksum.
pub fn is_judged(case: &Case, plan: &Plan) -> bool {
    let flow = &case.flows[plan.flow];
    plan.l4_sum == Sum::Wrong && case.setup.verifies && is_tracked(case, flow)
}

/// Conntrack sees the frame, which ends a connection at once.
fn is_reset(case: &Case, plan: &Plan) -> bool {
    let flow = &case.flows[plan.flow];
    plan.proto == TCP && plan.tcp_flags & 4 != 0 && is_tracked(case, flow)
}

/// Conntrack sees the flow.
pub fn is_tracked(case: &Case, flow: &Flow) -> bool {
    let (first, last) = NOTRACK_PORTS;
    let exempt = case.setup.tracking == Tracking::Notrack
        && [TCP, UDP].contains(&flow.proto)
        && (first..=last).contains(&flow.dst.port());
    case.setup.tracked() && !exempt
}

/// Port, and what tells flows apart in what leaves there.
type Key = (usize, Vec<u8>);

#[derive(Default)]
struct Groups {
    ordinary: BTreeMap<Key, Vec<Vec<u8>>>,
    judged: BTreeMap<u32, Vec<Left>>,
}

fn groups(left: &[Left], judged: &BTreeSet<u32>, either_zero: bool) -> Groups {
    let mut groups = Groups::default();
    for Left { port, bytes } in left {
        let mut bytes = without_chosen_ids(bytes.clone());
        if either_zero && bytes[12..14] == [8, 0] && bytes[24..26] == [0xff, 0xff] {
            bytes[24..26].fill(0);
        }
        match number(&bytes).filter(|number| judged.contains(number)) {
            Some(number) => {
                let left = Left { port: *port, bytes };
                groups.judged.entry(number).or_default().push(left);
            }
            None => {
                let key = View::of(&bytes).map_or_else(Vec::new, |view| view.key());
                groups.ordinary.entry((*port, key)).or_default().push(bytes);
            }
        }
    }
    groups
}

/// The IPv6 fragments of a group, with their IDs; empty if it is of something else.
fn pieces<'a>(left: &'a [Left], (port, key): &Key) -> Vec<&'a [u8]> {
    let of_group = |left: &&Left| {
        let view = View::of(&left.bytes).filter(|view| view.v6 && view.proto == 44);
        left.port == *port && view.is_some_and(|view| view.key() == *key)
    };
    left.iter()
        .filter(of_group)
        .map(|left| &left.bytes[..])
        .collect()
}

/// The packets that IPv6 fragments are of (RFC 8200, section 4.5), without IDs, sorted; none if one is not complete, or there are no fragments.
fn wholes(frames: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    const IDS: std::ops::Range<usize> = 58..62;
    if frames.is_empty() {
        return None;
    }
    let mut packets: BTreeMap<&[u8], Vec<(u16, &[u8])>> = BTreeMap::new();
    for frame in frames {
        let place = u16::from_be_bytes(frame.get(56..58)?.try_into().ok()?);
        let length = u16::from_be_bytes(frame.get(18..20)?.try_into().ok()?);
        if usize::from(length) != frame.len() - 54 || place & 6 != 0 {
            return None;
        }
        packets
            .entry(frame.get(IDS)?)
            .or_default()
            .push((place, frame));
    }
    let mut wholes = Vec::new();
    for mut pieces in packets.into_values() {
        pieces.sort_unstable();
        let (last, first) = (pieces.last()?, pieces.first()?);
        let mut packet = first.1[..56].to_vec();
        // the length of what follows is the piece's
        packet[18..20].fill(0);
        let headers = packet.len();
        for (place, frame) in &pieces {
            let same = |range: std::ops::Range<usize>| frame[range.clone()] == first.1[range];
            if usize::from(place & !7) != packet.len() - headers || !same(0..18) || !same(20..56) {
                return None;
            }
            packet.extend(&frame[IDS.end..]);
        }
        let more = |place: u16| place & 1 == 1;
        if more(last.0) || pieces.iter().filter(|(place, _)| !more(*place)).count() != 1 {
            return None;
        }
        wholes.push(packet);
    }
    wholes.sort_unstable();
    Some(wholes)
}

/// A router chooses the ID of its own ICMP errors by a counter, and that of IPv6 fragments that it makes at random.
fn without_chosen_ids(mut frame: Vec<u8>) -> Vec<u8> {
    match View::of(&frame).map(|view| (view.v6, view.proto)) {
        // not those of echoes, which hosts choose
        Some((false, ICMP)) if View::of(&frame).is_some_and(|view| view.tuple().is_none()) => {
            frame[18..20].fill(0);
            frame[24..26].fill(0);
        }
        Some((true, 44)) if frame.len() >= 62 => frame[58..62].fill(0),
        _ => {}
    }
    frame
}

/// True if the frames differ, their order apart.
fn differ(
    comparison: &mut Comparison,
    port: usize,
    (kernel, freeway): (&[Vec<u8>], &[Vec<u8>]),
    plans: &HashMap<u32, &Plan>,
    case: &Case,
    outcome: &Outcome,
) -> bool {
    let mut counts: BTreeMap<&Vec<u8>, i64> = BTreeMap::new();
    for frame in freeway {
        *counts.entry(frame).or_default() += 1;
    }
    for frame in kernel {
        *counts.entry(frame).or_default() -= 1;
    }
    counts.retain(|_, count| *count != 0);
    for (frame, count) in &counts {
        let by = if *count > 0 { "Freeway" } else { "the kernel" };
        let number = number(frame);
        let plan = match number {
            Some(number) => plans.get(&number).copied(),
            None => short_segment(frame, plans, outcome),
        };
        let (frames, numbers) = comparison.alone.entry((by, port)).or_default();
        *frames += count.unsigned_abs() as usize;
        numbers.extend(number);
        if *count < 0 && plan.is_some_and(|plan| is_reset(case, plan)) {
            comparison.withheld += count.unsigned_abs();
            continue;
        }
        let mut text = format!(
            "only by {by}, {} times, port {port}: {} bytes {}",
            count.abs(),
            frame.len(),
            hex(frame)
        );
        for sent in number
            .and_then(|number| outcome.sent.get(&number))
            .into_iter()
            .flatten()
        {
            text += &format!("\n  was sent as {} bytes {}", sent.len(), hex(sent));
        }
        if let Some(plan) = plan {
            text += &format!("\n  {plan:?}");
        }
        comparison.note(text, plan.map(|plan| plan.flow));
    }
    !counts.is_empty()
}

/// The plan of a TCP segment that has no room for its number: by what no router writes in it.
fn short_segment<'a>(
    frame: &[u8],
    plans: &HashMap<u32, &'a Plan>,
    outcome: &Outcome,
) -> Option<&'a Plan> {
    let unchanged = View::of(frame)?.tcp_unchanged()?;
    let is_it = |plan: &&Plan| {
        let sent = outcome.sent.get(&plan.number).into_iter().flatten();
        let mut sent = sent.filter_map(|sent| View::of(sent)?.tcp_unchanged());
        plan.is_short() && sent.any(|sent| sent == unchanged)
    };
    plans.values().copied().find(is_it)
}

/// RFC 4737: a frame is reordered if one that was sent later came before; its extent is how far back the first of
/// those is.
fn displacement(comparison: &mut Comparison, kernel: &[Vec<u8>], freeway: &[Vec<u8>], case: &Case) {
    // A router's own RST answers a frame of the other direction.
    let forwarded = |frame: &&Vec<u8>| {
        let view = View::of(frame).filter(|view| view.proto == TCP);
        number(frame).is_some() || view.is_none_or(|v| frame[v.l4 + 13] & 4 == 0)
    };
    let freeway: Vec<&Vec<u8>> = freeway.iter().filter(forwarded).collect();
    let mut places: HashMap<&Vec<u8>, VecDeque<usize>> = HashMap::new();
    for (place, frame) in kernel.iter().filter(forwarded).enumerate() {
        places.entry(frame).or_default().push_back(place);
    }
    let last = &case.traffic.last;
    let first_of_last = last.first().map_or(u32::MAX, |plan| plan.number);
    let end_of_last = last.last().map_or(0, |plan| plan.number);
    let mut order: Vec<usize> = Vec::new();
    for frame in &freeway {
        let place = places
            .get_mut(*frame)
            .and_then(VecDeque::pop_front)
            .unwrap();
        if let Some(before) = order.iter().position(|other| *other > place) {
            comparison.displaced += 1;
            if comparison.overtakings.len() < SHOWN {
                let text = format!("{} came before {}", hex(freeway[before]), hex(frame));
                comparison.overtakings.push(text);
            }
            comparison.extent = comparison.extent.max(order.len() - before);
            let is_last = number(frame).is_some_and(|n| (first_of_last..=end_of_last).contains(&n));
            comparison.displaced_last += usize::from(is_last);
        }
        order.push(place);
    }
}

/// What the kernel does to plain frames of a direction with a TTL, a DSCP and a label: one that came in, one that left.
/// For each way out: what conntrack calls invalid for another reason has no mark to be routed by.
type Templates<'a> = HashMap<TemplateKey, Vec<Template<'a>>>;
type Template<'a> = (&'a [u8], &'a Left);
type TemplateKey = (usize, bool, u8, u8, u32);

fn template_key(plan: &Plan) -> TemplateKey {
    let label = if plan.v6 { plan.label } else { 0 };
    (plan.flow, plan.back, plan.ttl, plan.tos >> 2, label)
}

fn templates<'a>(outcome: &'a Outcome, plans: &HashMap<u32, &Plan>) -> Templates<'a> {
    let mut templates = Templates::new();
    for left in &outcome.left[KERNEL] {
        let Some(plan) = number(&left.bytes).and_then(|number| plans.get(&number)) else {
            continue;
        };
        let Some(view) = View::of(&left.bytes).filter(|view| view.tuple().is_some()) else {
            continue;
        };
        let plain = view.proto == plan.proto
            && plan.l4_sum != Sum::Wrong
            && !plan.split
            && !plan.mac_roams
            && plan.tags.is_empty()
            && plan.ip_options.is_empty();
        // What conntrack calls invalid for another reason is not translated either.
        let way = outcome.ways[plan.flow][usize::from(plan.back)];
        let missed =
            way.is_some_and(|way| way.leaves_as != way.tuple && view.tuple() == Some(way.tuple));
        if missed {
            continue;
        }
        if let (true, [sent]) = (plain, outcome.sent[&plan.number].as_slice()) {
            let key = template_key(plan);
            let of_flow: &mut Vec<Template<'_>> = templates.entry(key).or_default();
            let known = |(_, other): &Template<'_>| {
                (other.port, &other.bytes[..ETH]) == (left.port, &left.bytes[..ETH])
            };
            if !of_flow.iter().any(known) {
                of_flow.push((sent, left));
            }
        }
    }
    templates
}

/// What the fast path may make of a frame whose checksum is wrong: the same as of the flow's other frames, with all
/// that the checksum covers corrected by what changed.
fn translated(sent: &[Vec<u8>], (came, left): &Template<'_>) -> Option<Left> {
    let [sent] = sent else { return None };
    // A stray of another host is not the flow's.
    if sent[..ETH] != came[..ETH] {
        return None;
    }
    let (view, out) = (View::of(sent)?, View::of(&left.bytes)?);
    let mut frame = sent.clone();
    let addresses = view.address_bytes();
    let len = view.len_l3();
    if ETH + len > frame.len() || view.l4 != out.l4 {
        return None;
    }
    frame.truncate(ETH + len);
    frame[..ETH].copy_from_slice(&left.bytes[..ETH]);
    frame[addresses.clone()].copy_from_slice(&left.bytes[addresses.clone()]);
    let numbers = view.numbers()?;
    for at in numbers {
        frame[at..at + 2].copy_from_slice(&left.bytes[at..at + 2]);
    }
    if view.v6 {
        frame[21] = out.ttl();
        let word = u16::from_be_bytes([frame[14], frame[15]]) & !0x0fc0;
        let word = word | u16::from(out.tos() & 0xfc) << 4;
        frame[14..16].copy_from_slice(&word.to_be_bytes());
    } else {
        frame[22] = out.ttl();
        frame[15] = out.tos() & 0xfc | frame[15] & 3;
        frame[24..26].fill(0);
        let sum = !sum16(&frame[ETH..view.l4]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let at = view.check()?;
    let check = u16::from_be_bytes([frame[at], frame[at + 1]]);
    // Not there, so not wrong.
    if view.proto == UDP && check == 0 {
        return None;
    }
    let changed = |frame: &[u8]| {
        let mut bytes: Vec<u8> = Vec::new();
        if view.proto != ICMP {
            bytes.extend(&frame[addresses.clone()]);
        }
        bytes.extend(&frame[numbers[0]..numbers[0] + 2]);
        if numbers[1] != numbers[0] {
            bytes.extend(&frame[numbers[1]..numbers[1] + 2]);
        }
        bytes
    };
    let mut words = (!check).to_be_bytes().to_vec();
    words.extend(changed(sent).iter().map(|byte| !byte));
    words.extend(changed(&frame));
    let sum = match !sum16(&words) {
        0 if view.proto == UDP => 0xffff,
        sum => sum,
    };
    if changed(sent) != changed(&frame) {
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    Some(Left {
        port: left.port,
        bytes: frame,
    })
}
