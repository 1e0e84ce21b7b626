// SPDX-License-Identifier: MIT OR Apache-2.0
//! A word of which some bits are known.

/// `value` is 0 where `known` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    pub value: u32,
    pub known: u32,
}

impl From<u32> for Bits {
    fn from(value: u32) -> Self {
        Self { value, known: !0 }
    }
}

impl Bits {
    pub const UNKNOWN: Self = Self { value: 0, known: 0 };

    /// The value, if all of it is known.
    pub fn exact(self) -> Option<u32> {
        (self.known == !0).then_some(self.value)
    }

    /// The greatest value that it may be.
    pub fn most(self) -> u32 {
        self.value | !self.known
    }

    pub fn and(self, other: Self) -> Self {
        let zero = (self.known & !self.value) | (other.known & !other.value);
        Self {
            value: self.value & other.value,
            known: (self.known & other.known) | zero,
        }
    }

    pub fn or(self, other: Self) -> Self {
        let value = self.value | other.value;
        Self {
            value,
            known: (self.known & other.known) | value,
        }
    }

    pub fn xor(self, other: Self) -> Self {
        let known = self.known & other.known;
        Self {
            value: (self.value ^ other.value) & known,
            known,
        }
    }

    /// By so many bits, modulo 32; what comes in is 0.
    pub fn shifted_left(self, by: u32) -> Self {
        Self {
            value: self.value.wrapping_shl(by),
            known: !(!self.known).wrapping_shl(by),
        }
    }

    /// Likewise.
    pub fn shifted_right(self, by: u32) -> Self {
        Self {
            value: self.value.wrapping_shr(by),
            known: !(!self.known).wrapping_shr(by),
        }
    }

    /// An octet more, at the lower end.
    pub fn followed_by(self, octet: u8, known: u8) -> Self {
        let octet = Self {
            value: (octet & known).into(),
            known: u32::from(known) | !0xff,
        };
        self.shifted_left(8).or(octet)
    }

    /// Whether it equals the other; `None`: it may.
    pub fn equals(self, other: Self) -> Option<bool> {
        if (self.value ^ other.value) & self.known & other.known != 0 {
            return Some(false);
        }
        (self.known & other.known == !0).then_some(true)
    }

    /// Whether it is above the other; likewise.
    pub fn exceeds(self, other: Self) -> Option<bool> {
        if self.value > other.most() {
            return Some(true);
        }
        (self.most() <= other.value).then_some(false)
    }

    /// Whether a bit is set.
    pub fn is_set(self) -> Option<bool> {
        if self.value != 0 {
            return Some(true);
        }
        (self.known == !0).then_some(false)
    }
}
