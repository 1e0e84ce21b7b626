// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of a rule: for each bit, its value if it is known, and whether it may differ within a flow.

use crate::nft::{CmpOp, Register};

/// Bytes of all registers.
const SIZE: usize = 64;

/// How a condition turns out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    No,
    Maybe,
    Yes,
}

impl Truth {
    pub fn not(self) -> Truth {
        match self {
            Truth::No => Truth::Yes,
            Truth::Maybe => Truth::Maybe,
            Truth::Yes => Truth::No,
        }
    }

    pub fn of(value: bool) -> Truth {
        if value { Truth::Yes } else { Truth::No }
    }
}

/// Some bytes, partly known. `known` and `varies` are masks; unknown bits of `value` are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    pub value: Vec<u8>,
    pub known: Vec<u8>,
    pub varies: Vec<u8>,
}

impl Bits {
    /// Bytes that are known.
    pub fn constant(value: &[u8]) -> Bits {
        Bits {
            value: value.to_vec(),
            known: vec![0xff; value.len()],
            varies: vec![0; value.len()],
        }
    }

    /// Bytes that are not known, but the same for all packets of a flow.
    pub fn unknown(len: usize) -> Bits {
        Bits {
            value: vec![0; len],
            known: vec![0; len],
            varies: vec![0; len],
        }
    }

    /// Adds a byte.
    pub fn push(&mut self, value: u8, known: u8, varies: u8) {
        self.value.push(value & known);
        self.known.push(known);
        self.varies.push(varies & !known);
    }

    /// True if a bit may differ between packets of one flow.
    pub fn vary(&self) -> bool {
        self.varies.iter().any(|&mask| mask != 0)
    }

    fn is_known(&self) -> bool {
        self.known.iter().all(|&mask| mask == 0xff)
    }

    /// Is it `data`?
    pub fn equals(&self, data: &[u8]) -> Truth {
        let differs = self.value.iter().zip(&self.known).zip(data);
        if differs
            .into_iter()
            .any(|((value, known), data)| (value ^ data) & known != 0)
        {
            Truth::No
        } else if self.is_known() && self.value.len() >= data.len() {
            Truth::Yes
        } else {
            Truth::Maybe
        }
    }

    /// Compares like memcmp (`nft_cmp_eval`).
    pub fn compare(&self, op: CmpOp, data: &[u8]) -> Truth {
        let order = || self.value.as_slice().cmp(data);
        match op {
            CmpOp::Eq => self.equals(data),
            CmpOp::Ne => self.equals(data).not(),
            _ if !self.is_known() => Truth::Maybe,
            CmpOp::Lt => Truth::of(order().is_lt()),
            CmpOp::Le => Truth::of(order().is_le()),
            CmpOp::Gt => Truth::of(order().is_gt()),
            CmpOp::Ge => Truth::of(order().is_ge()),
        }
    }

    /// Is it from `from` to `to`, both included?
    pub fn within(&self, from: &[u8], to: &[u8]) -> Truth {
        self.compare(CmpOp::Ge, from)
            .min(self.compare(CmpOp::Le, to))
    }

    /// (self & mask) ^ xor.
    pub fn masked(mut self, mask: &[u8], xor: &[u8]) -> Bits {
        let bytes = self
            .value
            .iter_mut()
            .zip(&mut self.known)
            .zip(&mut self.varies);
        for (((value, known), varies), (mask, xor)) in bytes.zip(mask.iter().zip(xor)) {
            *known |= !mask;
            *value = ((*value & mask) ^ xor) & *known;
            *varies &= mask;
        }
        self
    }

    /// The outcome of an operation that mixes all bits.
    pub fn mixed(&self) -> Bits {
        let varies = if self.vary() { 0xff } else { 0 };
        Bits {
            varies: vec![varies; self.value.len()],
            ..Bits::unknown(self.value.len())
        }
    }

    /// Swaps bytes within units of `size` bytes (`nft_byteorder_eval`; nothing on big-endian machines).
    pub fn swapped(mut self, size: usize) -> Bits {
        if cfg!(target_endian = "little") && size > 1 {
            for bytes in [&mut self.value, &mut self.known, &mut self.varies] {
                bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            }
        }
        self
    }
}

/// Which interface a register tells of, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The input, not the output.
    pub input: bool,
    /// By name, not by index.
    pub name: bool,
}

/// An address or port of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    Source,
    Destination,
    SourcePort,
    DestinationPort,
}

/// What a register was loaded from, where that narrows the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Interface(Interface),
    /// The first bits of a field; those behind them are cleared.
    Field {
        field: Field,
        bits: u8,
    },
}

/// All registers.
#[derive(Clone, Debug)]
pub struct Registers {
    value: [u8; SIZE],
    known: [u8; SIZE],
    varies: [u8; SIZE],
    origins: [Option<Origin>; SIZE / 4],
}

impl Registers {
    /// Nothing is known at the start of a rule.
    pub fn new() -> Registers {
        Registers {
            value: [0; SIZE],
            known: [0; SIZE],
            varies: [0; SIZE],
            origins: [None; SIZE / 4],
        }
    }

    /// Stores into a register; what does not fit is cut.
    pub fn store(&mut self, register: Register, bits: &Bits, origin: Option<Origin>) {
        let start = (register as usize).saturating_mul(4).min(SIZE);
        // Loads clear the rest of their last 32-bit slot.
        let slots = bits.value.len().div_ceil(4);
        for slot in start / 4..(start / 4 + slots).min(SIZE / 4) {
            self.origins[slot] = origin.filter(|_| slot == start / 4);
            let bytes = slot * 4..slot * 4 + 4;
            self.value[bytes.clone()].fill(0);
            self.known[bytes.clone()].fill(0xff);
            self.varies[bytes].fill(0);
        }
        for (index, ((value, known), varies)) in bits
            .value
            .iter()
            .zip(&bits.known)
            .zip(&bits.varies)
            .enumerate()
        {
            if let Some(slot) = self.value.get_mut(start + index) {
                *slot = *value;
                self.known[start + index] = *known;
                self.varies[start + index] = *varies;
            }
        }
    }

    /// Reads `len` bytes; what lies behind the last register is unknown.
    pub fn load(&self, register: Register, len: usize) -> Bits {
        let start = (register as usize).saturating_mul(4).min(SIZE);
        let len = len.min(SIZE);
        let mut bits = Bits::default();
        for index in start..start + len {
            match self.value.get(index) {
                Some(&value) => bits.push(value, self.known[index], self.varies[index]),
                None => bits.push(0, 0, 0xff),
            }
        }
        bits
    }

    /// What a register was loaded from.
    pub fn origin(&self, register: Register) -> Option<Origin> {
        *self.origins.get(register as usize)?
    }

    /// The interface that a register tells of.
    pub fn interface(&self, register: Register) -> Option<Interface> {
        match self.origin(register)? {
            Origin::Interface(interface) => Some(interface),
            Origin::Field { .. } => None,
        }
    }
}
