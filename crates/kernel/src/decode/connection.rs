// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracked connections (`ctnetlink_fill_info`, `ctnetlink_conntrack_event`). Numbers are in network byte order.

use crate::model::{Connection, CtCounters, CtStatus, Family, TcpInfo, TcpState, Tuple};
use crate::nla::{Attrs, attrs_after, u8_at};

pub const CTA_TUPLE_ORIG: u16 = 1;
pub const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
pub const CTA_PROTOINFO: u16 = 4;
const CTA_HELP: u16 = 5;
pub const CTA_TIMEOUT: u16 = 7;
const CTA_MARK: u16 = 8;
const CTA_COUNTERS_ORIG: u16 = 9;
const CTA_COUNTERS_REPLY: u16 = 10;
const CTA_ID: u16 = 12;
const CTA_SEQ_ADJ_ORIG: u16 = 15;
const CTA_SEQ_ADJ_REPLY: u16 = 16;
pub const CTA_ZONE: u16 = 18;
const CTA_TIMESTAMP: u16 = 20;
const CTA_LABELS: u16 = 22;
const CTA_SYNPROXY: u16 = 24;
pub const CTA_TUPLE_IP: u16 = 1;
pub const CTA_TUPLE_PROTO: u16 = 2;
const CTA_TUPLE_ZONE: u16 = 3;
pub const CTA_PROTO_NUM: u16 = 1;
pub const CTA_PROTO_SRC_PORT: u16 = 2;
pub const CTA_PROTO_DST_PORT: u16 = 3;
pub const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_TCP_STATE: u16 = 1;
pub const CTA_PROTOINFO_TCP_FLAGS_ORIGINAL: u16 = 4;
pub const CTA_PROTOINFO_TCP_FLAGS_REPLY: u16 = 5;
/// sizeof(struct nfgenmsg).
pub const NFGENMSG: usize = 4;

/// A connection.
pub fn connection(payload: &[u8]) -> Option<Connection> {
    let family = Family::from_number(u8_at(payload, 0)?)?;
    let (mut orig, mut reply) = (None, None);
    let mut found = Found::default();
    for attr in attrs_after(payload, NFGENMSG) {
        match attr.kind {
            CTA_TUPLE_ORIG => orig = tuple(attr.nested()),
            CTA_TUPLE_REPLY => reply = tuple(attr.nested()),
            CTA_STATUS => found.status = attr.be32()?,
            CTA_PROTOINFO => {
                found.tcp = attr
                    .nested()
                    .find(CTA_PROTOINFO_TCP)
                    .and_then(|a| tcp(a.nested()))
            }
            CTA_HELP => {
                found.helper = Some(
                    attr.nested()
                        .find(1)
                        .map_or_else(String::new, |name| name.text()),
                )
            }
            CTA_TIMEOUT => found.timeout_s = attr.be32(),
            CTA_MARK => found.mark = attr.be32()?,
            CTA_COUNTERS_ORIG => found.counters_orig = counters(attr.nested()),
            CTA_COUNTERS_REPLY => found.counters_reply = counters(attr.nested()),
            CTA_ID => found.id = attr.be32()?,
            CTA_SEQ_ADJ_ORIG | CTA_SEQ_ADJ_REPLY => found.seq_adjust = true,
            CTA_ZONE => found.zone = attr.be16()?,
            CTA_TIMESTAMP => {
                found.start_ns = attr.nested().find(1).and_then(|time| time.be64());
                found.stop_ns = attr.nested().find(2).and_then(|time| time.be64());
            }
            CTA_LABELS => found.labels = attr.payload.iter().any(|&byte| byte != 0),
            CTA_SYNPROXY => found.synproxy = true,
            _ => {}
        }
    }
    let ((orig, zone_orig), (reply, zone_reply)) = (orig?, reply?);
    if orig.family() != family || reply.family() != family {
        return None;
    }
    Some(Connection {
        id: found.id,
        family,
        proto: orig.proto,
        orig,
        reply,
        status: CtStatus(found.status),
        timeout_s: found.timeout_s,
        mark: found.mark,
        zone: found.zone,
        zone_orig,
        zone_reply,
        tcp: found.tcp,
        helper: found.helper,
        synproxy: found.synproxy,
        seq_adjust: found.seq_adjust,
        labels: found.labels,
        counters_orig: found.counters_orig,
        counters_reply: found.counters_reply,
        start_ns: found.start_ns,
        stop_ns: found.stop_ns,
    })
}

#[derive(Default)]
struct Found {
    id: u32,
    status: u32,
    timeout_s: Option<u32>,
    mark: u32,
    zone: u16,
    tcp: Option<TcpInfo>,
    helper: Option<String>,
    synproxy: bool,
    seq_adjust: bool,
    labels: bool,
    counters_orig: Option<CtCounters>,
    counters_reply: Option<CtCounters>,
    start_ns: Option<u64>,
    stop_ns: Option<u64>,
}

/// A tuple, and the zone if it is of this direction only.
fn tuple(attrs: Attrs<'_>) -> Option<(Tuple, Option<u16>)> {
    let (mut src, mut dst, mut zone) = (None, None, None);
    let (mut proto, mut sport, mut dport) = (0, 0, 0);
    for attr in attrs {
        match attr.kind {
            CTA_TUPLE_IP => {
                for ip in attr.nested() {
                    match ip.kind {
                        1 | 3 => src = ip.ip(),
                        2 | 4 => dst = ip.ip(),
                        _ => {}
                    }
                }
            }
            CTA_TUPLE_PROTO => {
                for part in attr.nested() {
                    match part.kind {
                        CTA_PROTO_NUM => proto = part.u8()?,
                        CTA_PROTO_SRC_PORT => sport = part.be16()?,
                        CTA_PROTO_DST_PORT => dport = part.be16()?,
                        // ICMP and ICMPv6: identifier, type, code.
                        4 | 7 => sport = part.be16()?,
                        5 | 8 => dport |= u16::from(part.u8()?) << 8,
                        6 | 9 => dport |= u16::from(part.u8()?),
                        _ => {}
                    }
                }
            }
            CTA_TUPLE_ZONE => zone = attr.be16(),
            _ => {}
        }
    }
    let (src, dst) = (src?, dst?);
    if Family::of(src) != Family::of(dst) {
        return None;
    }
    Some((
        Tuple {
            src,
            dst,
            proto,
            sport,
            dport,
        },
        zone,
    ))
}

/// `tcp_to_nlattr`; the flags are struct nf_ct_tcp_flags {flags, mask}.
fn tcp(attrs: Attrs<'_>) -> Option<TcpInfo> {
    let byte = |kind| attrs.clone().find(kind).and_then(|attr| attr.u8());
    Some(TcpInfo {
        state: TcpState::from(byte(CTA_PROTOINFO_TCP_STATE)?),
        flags_orig: byte(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL).unwrap_or(0),
        flags_reply: byte(CTA_PROTOINFO_TCP_FLAGS_REPLY).unwrap_or(0),
    })
}

fn counters(attrs: Attrs<'_>) -> Option<CtCounters> {
    Some(CtCounters {
        packets: attrs.clone().find(1)?.be64()?,
        bytes: attrs.find(2)?.be64()?,
    })
}
