// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of IPFIX (RFC 7011) and NetFlow v9 (RFC 3954).

use freeway_kernel::model::Family;

use crate::field::{Field, fields, number16, number32, write};
use crate::format::Format;
use crate::record::{Record, Uniflow};

const IPFIX_HEADER: usize = 16;
const NETFLOW9_HEADER: usize = 20;
/// Of a set: number and length.
const SET_HEADER: usize = 4;
/// Number of the set that has templates.
const IPFIX_TEMPLATES: u16 = 2;
const NETFLOW9_TEMPLATES: u16 = 0;
/// Set in the number of a field that is not IANA's.
const ENTERPRISE: u16 = 1 << 15;
/// Room that each message has: templates, and a connection of IPv6 in both directions.
pub(crate) const ROOM_MIN: usize = 512;

struct Template {
    number: u16,
    fields: Vec<Field>,
    /// Octets of a record.
    length: usize,
}

/// Writes the messages of one session with a collector.
pub struct Encoder {
    format: Format,
    domain: u32,
    room: usize,
    /// When the uptime that NetFlow v9 tells began.
    boot_ms: u64,
    /// IPFIX: data records before this message; NetFlow v9: messages. Both wrap.
    sequence: u32,
    templates: [Template; 2],
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            format, sequence, ..
        } = self;
        write!(f, "Encoder({format:?}, {sequence})")
    }
}

impl Encoder {
    /// `domain`: the observation domain; `room`: octets of a message; `boot_ms`: since when the exporter is up.
    #[must_use]
    pub fn new(format: Format, domain: u32, room: usize, boot_ms: u64) -> Self {
        let template = |number, family| {
            let fields = fields(format, family);
            let length = fields.iter().map(|field| usize::from(field.length)).sum();
            Template {
                number,
                fields,
                length,
            }
        };
        Self {
            format,
            domain,
            room: room.clamp(ROOM_MIN, u16::MAX.into()),
            boot_ms,
            sequence: 0,
            templates: [template(256, Family::Ipv4), template(257, Family::Ipv6)],
        }
    }

    /// A message of as many of the records as it has room for, and how many these are: one at least, if there is any.
    /// `templates`: they come first.
    pub fn message(
        &mut self,
        records: &[Record],
        templates: bool,
        now_ms: u64,
    ) -> (Vec<u8>, usize) {
        let header = match self.format {
            Format::Ipfix { .. } => IPFIX_HEADER,
            Format::Netflow9 => NETFLOW9_HEADER,
        };
        let mut message = Vec::with_capacity(self.room);
        message.resize(header, 0);
        let mut told = 0;
        if templates {
            self.write_templates(&mut message);
            told += self.templates.len();
        }
        let (mut taken, mut data) = (0, 0);
        // where the set begins that is being written, and whose
        let mut set: Option<(usize, u16)> = None;
        for record in records {
            let template = self.template(record);
            let flows = self.flows(record).count();
            let opens = set.is_none_or(|(_, number)| number != template.number);
            // of the set before, and of this one
            let padding = 6;
            let needed = flows * template.length + usize::from(opens) * SET_HEADER + padding;
            if message.len() + needed > self.room {
                break;
            }
            if opens && flows > 0 {
                close(&mut message, set);
                set = Some((message.len(), template.number));
                number16(template.number, &mut message);
                number16(0, &mut message);
            }
            for flow in self.flows(record) {
                for field in &template.fields {
                    write(field.value, &flow, self.boot_ms, &mut message);
                }
            }
            data += flows;
            taken += 1;
        }
        close(&mut message, set);
        self.write_header(&mut message, now_ms, told + data);
        self.sequence = self.sequence.wrapping_add(match self.format {
            Format::Ipfix { .. } => data as u32,
            Format::Netflow9 => 1,
        });
        (message, taken)
    }

    /// What a record is told by.
    fn flows<'a>(&self, record: &'a Record) -> impl Iterator<Item = Uniflow<'a>> + use<'a> {
        let biflow = self.format == Format::Ipfix { biflow: true };
        let both = biflow.then(|| record.biflow());
        let single = (!biflow).then(|| record.uniflows());
        both.into_iter().chain(single.into_iter().flatten())
    }

    fn template(&self, record: &Record) -> &Template {
        let [four, six] = &self.templates;
        match record.orig.family() {
            Family::Ipv4 => four,
            Family::Ipv6 => six,
        }
    }

    fn write_templates(&self, message: &mut Vec<u8>) {
        let begin = message.len();
        let number = match self.format {
            Format::Ipfix { .. } => IPFIX_TEMPLATES,
            Format::Netflow9 => NETFLOW9_TEMPLATES,
        };
        number16(number, message);
        number16(0, message);
        for template in &self.templates {
            number16(template.number, message);
            number16(template.fields.len() as u16, message);
            for field in &template.fields {
                let enterprise = if field.enterprise == 0 { 0 } else { ENTERPRISE };
                number16(field.number | enterprise, message);
                number16(field.length, message);
                if field.enterprise != 0 {
                    number32(field.enterprise, message);
                }
            }
        }
        close(message, Some((begin, number)));
    }

    fn write_header(&self, message: &mut [u8], now_ms: u64, count: usize) {
        let mut header = Vec::with_capacity(NETFLOW9_HEADER);
        let seconds = (now_ms / 1000) as u32;
        match self.format {
            Format::Ipfix { .. } => {
                number16(10, &mut header);
                number16(message.len() as u16, &mut header);
                number32(seconds, &mut header);
            }
            Format::Netflow9 => {
                number16(9, &mut header);
                number16(count as u16, &mut header);
                // the moment that the seconds name, or times that are computed from both would jump
                let named_ms = u64::from(seconds) * 1000;
                number32(named_ms.saturating_sub(self.boot_ms) as u32, &mut header);
                number32(seconds, &mut header);
            }
        }
        number32(self.sequence, &mut header);
        number32(self.domain, &mut header);
        message[..header.len()].copy_from_slice(&header);
    }
}

/// Ends a set: pads it and writes its length.
fn close(message: &mut Vec<u8>, set: Option<(usize, u16)>) {
    let Some((begin, _)) = set else { return };
    let length = (message.len() - begin).next_multiple_of(4);
    message.resize(begin + length, 0);
    message[begin + 2..begin + 4].copy_from_slice(&(length as u16).to_be_bytes());
}
