// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fields of records: their numbers (IANA's registry of information elements), lengths and values.

use std::net::IpAddr;

use freeway_kernel::model::{Family, Tuple};

use crate::format::Format;
use crate::record::Uniflow;

/// The number under which reverse elements are registered (RFC 5103).
pub(crate) const REVERSE: u32 = 29305;

/// What a field has.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    Octets,
    Packets,
    ReverseOctets,
    ReversePackets,
    Proto,
    Source,
    Destination,
    SourcePort,
    DestinationPort,
    SourceAfter,
    DestinationAfter,
    SourcePortAfter,
    DestinationPortAfter,
    Ingress,
    Egress,
    StartMs,
    EndMs,
    StartUptime,
    EndUptime,
    Reason,
    FlowId,
    Initiator,
}

/// A field of a template.
pub(crate) struct Field {
    pub number: u16,
    pub length: u16,
    /// 0: IANA's.
    pub enterprise: u32,
    pub value: Value,
}

const fn field(number: u16, length: u16, value: Value) -> Field {
    Field {
        number,
        length,
        enterprise: 0,
        value,
    }
}

const fn reverse(number: u16, length: u16, value: Value) -> Field {
    Field {
        number,
        length,
        enterprise: REVERSE,
        value,
    }
}

/// The fields of a record, in order.
pub(crate) fn fields(format: Format, family: Family) -> Vec<Field> {
    let (addresses, length) = match family {
        Family::Ipv4 => ([8, 12, 225, 226], 4),
        Family::Ipv6 => ([27, 28, 281, 282], 16),
    };
    let mut fields = vec![
        field(addresses[0], length, Value::Source),
        field(addresses[1], length, Value::Destination),
        field(addresses[2], length, Value::SourceAfter),
        field(addresses[3], length, Value::DestinationAfter),
        field(7, 2, Value::SourcePort),
        field(11, 2, Value::DestinationPort),
        field(227, 2, Value::SourcePortAfter),
        field(228, 2, Value::DestinationPortAfter),
        field(4, 1, Value::Proto),
        field(136, 1, Value::Reason),
        field(10, 4, Value::Ingress),
        field(14, 4, Value::Egress),
        field(1, 8, Value::Octets),
        field(2, 8, Value::Packets),
    ];
    match format {
        Format::Netflow9 => fields.extend([
            field(22, 4, Value::StartUptime),
            field(21, 4, Value::EndUptime),
        ]),
        Format::Ipfix { biflow } => {
            fields.extend([
                field(152, 8, Value::StartMs),
                field(153, 8, Value::EndMs),
                field(148, 8, Value::FlowId),
            ]);
            if biflow {
                fields.extend([
                    field(239, 1, Value::Initiator),
                    reverse(1, 8, Value::ReverseOctets),
                    reverse(2, 8, Value::ReversePackets),
                ]);
            }
        }
    }
    fields
}

/// Appends a value. `boot_ms`: when the uptime began.
pub(crate) fn write(value: Value, flow: &Uniflow<'_>, boot_ms: u64, to: &mut Vec<u8>) {
    let uptime = |ms: u64| ms.saturating_sub(boot_ms) as u32;
    let record = flow.record;
    match value {
        Value::Octets => number64(flow.counts.octets, to),
        Value::Packets => number64(flow.counts.packets, to),
        Value::ReverseOctets => number64(flow.reverse.octets, to),
        Value::ReversePackets => number64(flow.reverse.packets, to),
        Value::Proto => to.push(flow.before.proto),
        Value::Source => address(flow.before.src, to),
        Value::Destination => address(flow.before.dst, to),
        Value::SourceAfter => address(flow.after.src, to),
        Value::DestinationAfter => address(flow.after.dst, to),
        Value::SourcePort => number16(ports(&flow.before).0, to),
        Value::DestinationPort => number16(ports(&flow.before).1, to),
        Value::SourcePortAfter => number16(ports(&flow.after).0, to),
        Value::DestinationPortAfter => number16(ports(&flow.after).1, to),
        Value::Ingress => number32(flow.ports[0], to),
        Value::Egress => number32(flow.ports[1], to),
        Value::StartMs => number64(record.start_ms, to),
        Value::EndMs => number64(record.end_ms, to),
        Value::StartUptime => number32(uptime(record.start_ms), to),
        Value::EndUptime => number32(uptime(record.end_ms), to),
        Value::Reason => to.push(record.reason as u8),
        Value::FlowId => number64(record.id.into(), to),
        Value::Initiator => to.push(1),
    }
}

/// Source and destination port. Of ICMP type and code are in the place of the destination's, as collectors know it.
fn ports(tuple: &Tuple) -> (u16, u16) {
    match tuple.proto {
        1 | 58 => (0, tuple.dport),
        _ => (tuple.sport, tuple.dport),
    }
}

pub(crate) fn number16(number: u16, to: &mut Vec<u8>) {
    to.extend(number.to_be_bytes());
}

pub(crate) fn number32(number: u32, to: &mut Vec<u8>) {
    to.extend(number.to_be_bytes());
}

fn number64(number: u64, to: &mut Vec<u8>) {
    to.extend(number.to_be_bytes());
}

fn address(address: IpAddr, to: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => to.extend(address.octets()),
        IpAddr::V6(address) => to.extend(address.octets()),
    }
}
