// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is told of a connection.

use freeway_kernel::model::Tuple;

/// Packets and their octets, IP headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Octets from the IP header on.
    pub octets: u64,
}

impl Counts {
    /// True if there is nothing.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.packets == 0 && self.octets == 0
    }

    pub(crate) fn add(&mut self, other: Counts) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.octets = self.octets.wrapping_add(other.octets);
    }

    /// What was added since `before`.
    pub(crate) fn since(self, before: Counts) -> Counts {
        Counts {
            packets: self.packets.saturating_sub(before.packets),
            octets: self.octets.saturating_sub(before.octets),
        }
    }
}

/// Why a record was written (`flowEndReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Nothing passed for the idle time, or the kernel forgot the connection for that.
    Idle = 1,
    /// It goes on: the active time has passed.
    Active = 2,
    /// Its end was seen.
    End = 3,
    /// The exporter ends.
    Forced = 4,
}

/// What passed of a connection since the record before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The original direction as it came in.
    pub orig: Tuple,
    /// The reply direction as it came in.
    pub reply: Tuple,
    /// Conntrack's number; 0: not known.
    pub id: u32,
    /// Where the original direction came in and where it left, by ifindex; 0: not known.
    pub ports: [u32; 2],
    /// By direction, the original one first.
    pub counts: [Counts; 2],
    /// Milliseconds since 1970.
    pub start_ms: u64,
    /// Likewise.
    pub end_ms: u64,
    /// Why now.
    pub reason: EndReason,
}

/// One direction of a record.
pub(crate) struct Uniflow<'a> {
    pub record: &'a Record,
    /// As it came in.
    pub before: Tuple,
    /// As it left.
    pub after: Tuple,
    pub ports: [u32; 2],
    pub counts: Counts,
    /// The other direction's, where one record tells of both.
    pub reverse: Counts,
}

impl Record {
    /// Both directions in one.
    pub(crate) fn biflow(&self) -> Uniflow<'_> {
        Uniflow {
            record: self,
            before: self.orig,
            after: left(self.reply, &self.orig),
            ports: self.ports,
            counts: self.counts[0],
            reverse: self.counts[1],
        }
    }

    /// The directions in which anything passed.
    pub(crate) fn uniflows(&self) -> impl Iterator<Item = Uniflow<'_>> {
        let [port_in, port_out] = self.ports;
        let back = Uniflow {
            record: self,
            before: self.reply,
            after: left(self.orig, &self.reply),
            ports: [port_out, port_in],
            counts: self.counts[1],
            reverse: Counts::default(),
        };
        let there = Uniflow {
            reverse: Counts::default(),
            ..self.biflow()
        };
        let both = [there, back].into_iter();
        both.filter(|flow| !flow.counts.is_zero())
    }
}

/// A direction as it leaves: the answer's tuple, turned round. What is no port stays what it is.
fn left(answer: Tuple, own: &Tuple) -> Tuple {
    let ports = match own.has_ports() {
        true => (answer.dport, answer.sport),
        false => (own.sport, own.dport),
    };
    Tuple {
        src: answer.dst,
        dst: answer.src,
        proto: own.proto,
        sport: ports.0,
        dport: ports.1,
    }
}
