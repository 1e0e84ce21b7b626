// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a classic BPF socket filter over a frame, as `bpf_prog_run` would (`bpf_convert_filter`).

use serde::Serialize;

/// One instruction (struct sock_filter).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Jump if true.
    pub jt: u8,
    /// Jump if false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// What a filter may ask beside the bytes of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ancillary {
    /// Interface; none: it is not known, and who asks for it is not understood.
    pub ifindex: Option<u32>,
    /// PACKET_: 0 host, 4 outgoing.
    pub packet_type: u32,
    /// The frame's data starts with the network header (SOCK_DGRAM sockets).
    pub cooked: bool,
    /// Bytes of the frame that are not there, because it was cut.
    pub cut: u32,
}

const NET_OFFSET: u32 = -0x10_0000_i32 as u32;
const LL_OFFSET: u32 = -0x20_0000_i32 as u32;
const AD_OFFSET: u32 = -0x1000_i32 as u32;
const L2_HEADER: usize = 14;

/// How many bytes of the frame the filter accepts; 0 rejects it. `None` for a filter or an ancillary load that is
/// not understood: take it as accepting.
pub fn run(filter: &[Instruction], frame: &[u8], ancillary: Ancillary) -> Option<u32> {
    let mut machine = Machine::new(frame, ancillary);
    let mut at = 0usize;
    // Jumps only lead forward, so a filter ends after at most its length.
    loop {
        let instruction = filter.get(at)?;
        at += 1;
        match machine.step(*instruction)? {
            Next::Here => {}
            Next::Skip(count) => at = at.checked_add(count as usize)?,
            Next::Return(accepted) => return Some(accepted),
        }
    }
}

/// Whether [`run`] understands all of a filter, on whatever way it takes, where the interface is not known: each step alone,
/// jumps that stay inside, and a return at the end.
pub fn is_whole(filter: &[Instruction]) -> bool {
    let inside = |at: usize, skip: u32| {
        let to = (at + 1).checked_add(skip as usize);
        to.is_some_and(|to| to < filter.len())
    };
    let whole = |(at, of): (usize, &Instruction)| {
        let stays = match (of.code, of.code & 0x07) {
            (0x05, _) => inside(at, of.k),
            (_, 0x05) => inside(at, of.jt.into()) && inside(at, of.jf.into()),
            _ => true,
        };
        let mut machine = Machine::new(&[0; L2_HEADER], Ancillary::default());
        stays && machine.step(*of).is_some()
    };
    let returns = filter.last().is_some_and(|last| last.code & 0x07 == 0x06);
    returns && filter.iter().enumerate().all(whole)
}

enum Next {
    Here,
    Skip(u32),
    Return(u32),
}

struct Machine<'a> {
    frame: &'a [u8],
    ancillary: Ancillary,
    a: u32,
    x: u32,
    memory: [u32; 16],
}

impl<'a> Machine<'a> {
    fn new(frame: &'a [u8], ancillary: Ancillary) -> Self {
        Self {
            frame,
            ancillary,
            a: 0,
            x: 0,
            memory: [0; 16],
        }
    }

    fn step(&mut self, Instruction { code, jt, jf, k }: Instruction) -> Option<Next> {
        // A load beyond the frame rejects it.
        const REJECT: Option<Next> = Some(Next::Return(0));
        let data = self.data();
        match code & 0x07 {
            // BPF_LD, BPF_LDX.
            class @ (0x00 | 0x01) => {
                let value = match (code & 0xe0, class) {
                    (0x00, _) => k,
                    (0x20, 0) if k >= AD_OFFSET => self.ancillary_load(k - AD_OFFSET)?,
                    (0x20, 0) => match self.load(data, k, code & 0x18) {
                        Some(value) => value,
                        None => return REJECT,
                    },
                    (0x40, 0) => match self.load(data, self.x.wrapping_add(k), code & 0x18) {
                        Some(value) => value,
                        None => return REJECT,
                    },
                    (0x60, _) => *self.memory.get(k as usize)?,
                    (0x80, _) => (data.len() as u32).saturating_add(self.ancillary.cut),
                    // BPF_MSH: the length of an IPv4 header.
                    (0xa0, 1) => match self.load(data, k, 0x10) {
                        Some(byte) => (byte & 0x0f) << 2,
                        None => return REJECT,
                    },
                    _ => return None,
                };
                if class == 0 {
                    self.a = value
                } else {
                    self.x = value
                }
            }
            // BPF_ST, BPF_STX.
            0x02 => *self.memory.get_mut(k as usize)? = self.a,
            0x03 => *self.memory.get_mut(k as usize)? = self.x,
            // BPF_ALU.
            0x04 => {
                let operand = if code & 0x08 != 0 { self.x } else { k };
                self.a = match code & 0xf0 {
                    0x00 => self.a.wrapping_add(operand),
                    0x10 => self.a.wrapping_sub(operand),
                    0x20 => self.a.wrapping_mul(operand),
                    0x30 | 0x90 if operand == 0 => return REJECT,
                    0x30 => self.a / operand,
                    0x90 => self.a % operand,
                    0x40 => self.a | operand,
                    0x50 => self.a & operand,
                    0x60 => self.a.wrapping_shl(operand),
                    0x70 => self.a.wrapping_shr(operand),
                    0x80 => self.a.wrapping_neg(),
                    0xa0 => self.a ^ operand,
                    _ => return None,
                };
            }
            // BPF_JMP.
            0x05 => {
                let operand = if code & 0x08 != 0 { self.x } else { k };
                let taken = match code & 0xf0 {
                    0x00 => return Some(Next::Skip(k)),
                    0x10 => self.a == operand,
                    0x20 => self.a > operand,
                    0x30 => self.a >= operand,
                    0x40 => self.a & operand != 0,
                    _ => return None,
                };
                return Some(Next::Skip(u32::from(if taken { jt } else { jf })));
            }
            // BPF_RET.
            0x06 => {
                return Some(Next::Return(match code & 0x18 {
                    0x00 => k,
                    0x10 => self.a,
                    _ => return None,
                }));
            }
            // BPF_MISC.
            _ => match code & 0xf8 {
                0x00 => self.x = self.a,
                0x80 => self.a = self.x,
                _ => return None,
            },
        }
        Some(Next::Here)
    }

    fn data(&self) -> &'_ [u8] {
        let start = if self.ancillary.cooked { L2_HEADER } else { 0 };
        self.frame.get(start..).unwrap_or_default()
    }

    /// Loads 4, 2 or 1 bytes (size field 0x00, 0x08, 0x10) in network byte order.
    fn load(&self, data: &[u8], offset: u32, size: u16) -> Option<u32> {
        let (data, offset) = if offset >= NET_OFFSET {
            (self.frame.get(L2_HEADER..)?, offset - NET_OFFSET)
        } else if offset >= LL_OFFSET {
            (self.frame, offset - LL_OFFSET)
        } else {
            (data, offset)
        };
        let len = match size {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => return None,
        };
        let start = offset as usize;
        let bytes = data.get(start..start.checked_add(len)?)?;
        Some(
            bytes
                .iter()
                .fold(0, |value, &byte| value << 8 | u32::from(byte)),
        )
    }

    /// SKF_AD_ loads.
    fn ancillary_load(&self, which: u32) -> Option<u32> {
        match which {
            // PROTOCOL: the EtherType.
            0 => self.load(self.frame, 12, 0x08),
            4 => Some(self.ancillary.packet_type),
            8 => self.ancillary.ifindex,
            // HATYPE: Ethernet.
            28 => Some(1),
            // VLAN_TAG, VLAN_TAG_PRESENT: a tag that is inline in the frame is not in the descriptor.
            44 | 48 => Some(0),
            _ => None,
        }
    }
}
