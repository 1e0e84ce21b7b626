// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interpreter: an instruction at a time.

use super::bits::Bits;
use super::program::{Ancillary, Instruction};
use super::sketch::Sketch;

const NET_OFFSET: u32 = -0x10_0000_i32 as u32;
const LL_OFFSET: u32 = -0x20_0000_i32 as u32;
const AD_OFFSET: u32 = -0x1000_i32 as u32;
/// Of Ethernet.
pub(super) const L2_HEADER: usize = 14;

/// Where a filter goes on.
pub(super) enum Next {
    Here,
    Skip(u32),
    /// It is not known whether the condition holds: one of both.
    Either([u8; 2]),
    Return(Bits),
}

/// What is loaded beyond the frame.
enum Loaded {
    Value(Bits),
    /// The frame is rejected.
    Nothing,
}

/// A filter's registers, and what it reads.
#[derive(Clone)]
pub(super) struct Machine<'a> {
    frame: &'a [u8],
    /// Of a sketch; a frame is known, and ends.
    known: Option<&'a [u8]>,
    ancillary: Ancillary,
    a: Bits,
    x: Bits,
    memory: [Bits; 16],
}

impl<'a> Machine<'a> {
    pub fn of_frame(frame: &'a [u8], ancillary: Ancillary) -> Self {
        Self {
            frame,
            known: None,
            ancillary,
            a: 0.into(),
            x: 0.into(),
            memory: [0.into(); 16],
        }
    }

    pub fn of_sketch(sketch: &'a Sketch, ancillary: Ancillary) -> Self {
        Self {
            known: Some(sketch.known()),
            ..Self::of_frame(sketch.octets(), ancillary)
        }
    }

    pub fn step(&mut self, Instruction { code, jt, jf, k }: Instruction) -> Option<Next> {
        // A load beyond the frame rejects it.
        const REJECT: Option<Next> = Some(Next::Return(Bits {
            value: 0,
            known: !0,
        }));
        match code & 0x07 {
            // BPF_LD, BPF_LDX.
            class @ (0x00 | 0x01) => {
                let loaded = match (code & 0xe0, class) {
                    (0x00, _) => Loaded::Value(k.into()),
                    (0x20, 0) if k >= AD_OFFSET => self.ancillary_load(k - AD_OFFSET)?,
                    (0x20, 0) => self.load(k.into(), code & 0x18)?,
                    (0x40, 0) => {
                        let at = self.x.exact().map(|x| x.wrapping_add(k));
                        self.load(at.map_or(Bits::UNKNOWN, Bits::from), code & 0x18)?
                    }
                    (0x60, _) => Loaded::Value(*self.memory.get(k as usize)?),
                    (0x80, _) => Loaded::Value(self.length()),
                    // BPF_MSH: the length of an IPv4 header.
                    (0xa0, 1) => match self.load(k.into(), 0x10)? {
                        Loaded::Value(byte) => Loaded::Value(byte.and(0x0f.into()).shifted_left(2)),
                        Loaded::Nothing => Loaded::Nothing,
                    },
                    _ => return None,
                };
                let Loaded::Value(value) = loaded else {
                    return REJECT;
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
                let operand = self.operand(code, k);
                self.a = match code & 0xf0 {
                    0x30 | 0x90 if operand.exact() == Some(0) => return REJECT,
                    0x40 => self.a.or(operand),
                    0x50 => self.a.and(operand),
                    0xa0 => self.a.xor(operand),
                    operation => self.computed(operation, operand)?,
                };
            }
            // BPF_JMP.
            0x05 => {
                let operand = self.operand(code, k);
                let taken = match code & 0xf0 {
                    0x00 => return Some(Next::Skip(k)),
                    0x10 => self.a.equals(operand),
                    0x20 => self.a.exceeds(operand),
                    0x30 => operand.exceeds(self.a).map(|below| !below),
                    0x40 => self.a.and(operand).is_set(),
                    _ => return None,
                };
                return Some(match taken {
                    Some(true) => Next::Skip(jt.into()),
                    Some(false) => Next::Skip(jf.into()),
                    None => Next::Either([jt, jf]),
                });
            }
            // BPF_RET.
            0x06 => {
                return Some(Next::Return(match code & 0x18 {
                    0x00 => k.into(),
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

    fn operand(&self, code: u16, k: u32) -> Bits {
        match code & 0x08 {
            0 => k.into(),
            _ => self.x,
        }
    }

    /// What is not by bits alone.
    fn computed(&self, operation: u16, operand: Bits) -> Option<Bits> {
        let of: fn(u32, u32) -> u32 = match operation {
            0x00 => u32::wrapping_add,
            0x10 => u32::wrapping_sub,
            0x20 => u32::wrapping_mul,
            0x30 => |a, b| a.checked_div(b).unwrap_or(0),
            0x90 => |a, b| a.checked_rem(b).unwrap_or(0),
            0x60 | 0x70 => {
                return Some(match (operand.exact(), operation) {
                    (None, _) => Bits::UNKNOWN,
                    (Some(by), 0x60) => self.a.shifted_left(by),
                    (Some(by), _) => self.a.shifted_right(by),
                });
            }
            0x80 => |a, _| a.wrapping_neg(),
            _ => return None,
        };
        // the negative of a number has no operand, but whatever is said of one
        let operand = match operation {
            0x80 => Some(0),
            _ => operand.exact(),
        };
        let known = self.a.exact().zip(operand);
        Some(known.map_or(Bits::UNKNOWN, |(a, operand)| of(a, operand).into()))
    }

    fn length(&self) -> Bits {
        match self.known {
            Some(_) => Bits::UNKNOWN,
            None => {
                let length = self.frame.len().saturating_sub(self.start());
                (length as u32).saturating_add(self.ancillary.cut).into()
            }
        }
    }

    fn start(&self) -> usize {
        match self.ancillary.cooked {
            true => L2_HEADER,
            false => 0,
        }
    }

    /// Loads 4, 2 or 1 bytes (size field 0x00, 0x08, 0x10) in network byte order.
    fn load(&self, offset: Bits, size: u16) -> Option<Loaded> {
        let len: u32 = match size {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => return None,
        };
        let Some(offset) = offset.exact() else {
            // wherever it is, it is no longer
            let known = !(u32::MAX >> (32 - 8 * len));
            return Some(Loaded::Value(Bits { value: 0, known }));
        };
        let (start, offset) = if offset >= NET_OFFSET {
            (L2_HEADER, offset - NET_OFFSET)
        } else if offset >= LL_OFFSET {
            (0, offset - LL_OFFSET)
        } else {
            (self.start(), offset)
        };
        let first = start.saturating_add(offset as usize);
        let mut value = Bits::from(0);
        for at in first..first.saturating_add(len as usize) {
            let known = self
                .known
                .map_or(Some(0xff), |known| known.get(at).copied());
            value = match (self.frame.get(at), known) {
                (Some(octet), Some(known)) => value.followed_by(*octet, known),
                _ if self.known.is_some() => value.followed_by(0, 0),
                _ => return Some(Loaded::Nothing),
            };
        }
        Some(Loaded::Value(value))
    }

    /// SKF_AD_ loads.
    fn ancillary_load(&self, which: u32) -> Option<Loaded> {
        let value = match which {
            // PROTOCOL: the EtherType.
            0 => {
                return self.load((LL_OFFSET + 12).into(), 0x08);
            }
            4 => self.ancillary.packet_type.into(),
            8 => self.ancillary.ifindex?.into(),
            // HATYPE: Ethernet.
            28 => 1.into(),
            // VLAN_TAG, VLAN_TAG_PRESENT: a tag that is inline in the frame is not in the descriptor.
            44 | 48 => 0.into(),
            _ => return None,
        };
        Some(Loaded::Value(value))
    }
}
