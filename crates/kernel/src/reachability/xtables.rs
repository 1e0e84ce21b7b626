// SPDX-License-Identifier: MIT OR Apache-2.0
//! iptables matches and targets in nftables rules (`nft_compat`).

use super::packet::{Packet, STATE_INVALID, Stage};
use super::registers::{Field, Truth};
use crate::nla::{u8_at, u16_at, u32_at};

/// What a match or target means for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A match that is a function of the flow.
    Condition(Truth),
    /// A target that changes nothing that is not seen.
    Nothing,
    /// A target that drops.
    Drops,
    /// A target that sets a mark or priority.
    Marks,
    /// It must see every packet, for a reason.
    PerPacket(&'static str),
}

use Meaning::{Condition, Drops, Marks, Nothing, PerPacket};

/// The meaning of a match.
pub fn matching(name: &str, revision: u32, info: &[u8], packet: Packet, stage: Stage) -> Meaning {
    let is = |protocol: i32| i32::from(packet.protocol) == protocol;
    match name {
        "comment" => Condition(Truth::Yes),
        "tcp" if !is(libc::IPPROTO_TCP) => Condition(Truth::No),
        "udp" if !is(libc::IPPROTO_UDP) => Condition(Truth::No),
        // types, codes and SPIs
        "icmp" if is(libc::IPPROTO_ICMP) => Condition(Truth::Maybe),
        "icmp6" if is(libc::IPPROTO_ICMPV6) => Condition(Truth::Maybe),
        "esp" if is(libc::IPPROTO_ESP) => Condition(Truth::Maybe),
        "icmp" | "icmp6" | "sctp" | "dccp" | "esp" | "ah" | "udplite" => Condition(Truth::No),
        "tcp" => tcp_match(info),
        "conntrack" => conntrack_match(revision, info, packet, stage),
        "state" => match u32_at(info, 0) {
            Some(mask) => Condition(state_in(mask, 64, packet, stage)),
            None => PerPacket("is too short to be understood"),
        },
        "tos" if revision == 1 && u8_at(info, 1).is_some_and(|mask| mask & 3 == 0) => {
            Condition(Truth::Maybe)
        }
        "tos" => PerPacket("compares ECN bits, which differ within a flow"),
        "udp" | "multiport" | "mark" | "connmark" | "connlabel" | "addrtype" | "iprange"
        | "mac" | "physdev" | "set" | "pkttype" | "realm" | "rpfilter" | "devgroup" | "ttl"
        | "hl" | "dscp" | "helper" | "policy" => Condition(Truth::Maybe),
        "limit" | "hashlimit" => PerPacket("matches at a rate, so it must count every packet"),
        "quota" | "connbytes" => PerPacket("counts bytes or packets"),
        "recent" => PerPacket("keeps a list of recent packets"),
        "statistic" => PerPacket("picks packets at random or by number"),
        "length" | "length2" | "string" | "u32" | "bpf" | "tcpmss" => {
            PerPacket("looks at what differs between packets of a flow")
        }
        "time" => PerPacket("depends on the time of day"),
        "connlimit" => PerPacket("depends on the number of other connections"),
        _ => PerPacket("is not known to depend on the flow alone"),
    }
}

/// struct xt_tcp: port ranges, option, flag mask and comparison, inversions (XT_TCP_INV_FLAGS 0x04).
fn tcp_match(info: &[u8]) -> Meaning {
    let (Some(option), Some(mask), Some(wanted), Some(inverted)) = (
        u8_at(info, 8),
        u8_at(info, 9),
        u8_at(info, 10),
        u8_at(info, 11),
    ) else {
        return PerPacket("is too short to be understood");
    };
    if option != 0 {
        return PerPacket("looks for a TCP option, which differs between packets of a flow");
    }
    // ACK is set; FIN, SYN and RST are not; the others vary.
    let differs = (0x10 ^ wanted) & mask & 0x17 != 0;
    let negated = inverted & 0x04 != 0;
    match (differs, negated, mask & !0x17) {
        (_, _, _) if mask == 0 => Condition(Truth::Maybe),
        (true, false, _) => Condition(Truth::No),
        (true, true, _) => Condition(Truth::Maybe),
        (false, _, rest) if rest != 0 => {
            PerPacket("looks at TCP flags that differ between packets of a flow")
        }
        (false, true, _) => Condition(Truth::No),
        (false, false, _) => Condition(Truth::Maybe),
    }
}

/// The ports that a match lets through, where it tells: struct xt_tcp and xt_udp (ranges, in host byte order), and
/// xt_multiport_v1 (flags, count, 15 ports, 15 marks of a range's begin, inversion).
pub fn ports(name: &str, revision: u32, info: &[u8]) -> Vec<(Field, Vec<(u16, u16)>)> {
    const ALL: (u16, u16) = (0, u16::MAX);
    let range = |at| Some((u16_at(info, at)?, u16_at(info, at + 2)?));
    let inverted_at = match name {
        "tcp" => 11,
        "udp" => 8,
        "multiport" if revision == 1 => return multiport(info).into_iter().collect(),
        _ => return Vec::new(),
    };
    let fields = [(Field::SourcePort, 0, 1), (Field::DestinationPort, 4, 2)];
    let narrowed = fields.into_iter().filter_map(|(field, at, bit)| {
        let (range, inverted) = (range(at)?, u8_at(info, inverted_at)?);
        (inverted & bit == 0 && range != ALL).then_some((field, vec![range]))
    });
    narrowed.collect()
}

fn multiport(info: &[u8]) -> Option<(Field, Vec<(u16, u16)>)> {
    let field = match u8_at(info, 0)? {
        0 => Field::SourcePort,
        1 => Field::DestinationPort,
        // Either of them.
        _ => return None,
    };
    let count = usize::from(u8_at(info, 1)?);
    if u8_at(info, 47)? != 0 || count > 15 {
        return None;
    }
    let port = |index: usize| u16_at(info, 2 + index * 2);
    let mut ranges = Vec::new();
    let mut index = 0;
    while index < count {
        let begins = u8_at(info, 32 + index)? != 0;
        let last = index + usize::from(begins);
        ranges.push((port(index)?, port(last)?));
        index = last + 1;
    }
    (!ranges.is_empty()).then_some((field, ranges))
}

/// struct xt_conntrack_mtinfo1 to 3.
fn conntrack_match(revision: u32, info: &[u8], packet: Packet, stage: Stage) -> Meaning {
    const STATE: u16 = 1;
    const EXPIRES: u16 = 1 << 7;
    /// It was written as `-m state`.
    const STATE_ALIAS: u16 = 1 << 13;
    let state_mask = match revision {
        1 => u8_at(info, 150).map(u32::from),
        2 | 3 => u16_at(info, 150).map(u32::from),
        _ => None,
    };
    let (Some(flags), Some(inverted), Some(mask)) =
        (u16_at(info, 146), u16_at(info, 148), state_mask)
    else {
        return PerPacket("has a revision that is not understood");
    };
    if flags & EXPIRES != 0 {
        return PerPacket("depends on the connection's time to expiry");
    }
    let others = flags & !(STATE | STATE_ALIAS) != 0;
    let mut truth = if others { Truth::Maybe } else { Truth::Yes };
    if flags & STATE != 0 {
        let state = state_in(mask, 1 << 8, packet, stage);
        truth = truth.min(if inverted & STATE != 0 {
            state.not()
        } else {
            state
        });
    }
    Condition(truth)
}

/// Is the packet's state in a mask of xtables? Untracked has another bit there than in nftables.
fn state_in(mask: u32, untracked: u32, packet: Packet, stage: Stage) -> Truth {
    /// XT_CONNTRACK_STATE_SNAT and DNAT, which share the mask.
    const TRANSLATED: u32 = 0xc0;
    let Some(bit) = packet.ct_state(stage) else {
        return Truth::Maybe;
    };
    let bit = if bit == 64 { untracked } else { bit };
    if mask & bit != 0 {
        Truth::Yes
    } else if untracked != 64 && mask & TRANSLATED != 0 && bit != STATE_INVALID {
        Truth::Maybe
    } else {
        Truth::No
    }
}

/// The meaning of a target.
pub fn target(name: &str, info: &[u8]) -> Meaning {
    match name {
        // struct xt_tos_target_info: value and mask.
        "TOS" if !matches!(info, [value, mask, ..] if (value | mask) & 3 == 0) => {
            PerPacket("writes ECN bits, which differ within a flow")
        }
        "REJECT" => Drops,
        "MARK" | "CONNMARK" | "CLASSIFY" => Marks,
        "MASQUERADE" | "SNAT" | "DNAT" | "REDIRECT" | "NETMAP" | "CT" | "NOTRACK" | "DSCP"
        | "TOS" | "TTL" | "HL" => Nothing,
        "LOG" | "NFLOG" | "ULOG" | "AUDIT" | "TRACE" => PerPacket("reports packets"),
        "NFQUEUE" => PerPacket("hands packets to user space"),
        "TEE" => PerPacket("copies packets"),
        "SET" => PerPacket("changes a set by packets"),
        "TCPMSS" | "TCPOPTSTRIP" | "CHECKSUM" | "ECN" => PerPacket("changes the packet"),
        _ => PerPacket("is not known to depend on the flow alone"),
    }
}
