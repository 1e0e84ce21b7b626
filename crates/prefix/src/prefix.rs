// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefixes and what they lead to.

use std::fmt::Debug;
use std::hash::Hash;
use std::ops::{BitAnd, BitOr, Not};

/// The number of a next hop; 0 is none.
pub type NextHop = u16;

/// An address in host order: `u32` for IPv4, `u128` for IPv6.
pub trait Address:
    Copy
    + Debug
    + Default
    + Ord
    + Hash
    + Send
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + Not<Output = Self>
{
    /// How many bits it has.
    const LENGTH: u8;
    /// The first and the last of all.
    const ENDS: (Self, Self);

    /// The leading bits are set, the rest is 0; at most [`Address::LENGTH`] are.
    #[must_use]
    fn mask(length: u8) -> Self;

    /// The one after it; the first after the last.
    #[must_use]
    fn next(self) -> Self;

    /// One of its bits, 0 being the first. Beyond the last one all are 0.
    #[must_use]
    fn bit(self, at: u8) -> bool;
}

macro_rules! address {
    ($type:ty, $bits:literal) => {
        impl Address for $type {
            const LENGTH: u8 = $bits;
            const ENDS: (Self, Self) = (<$type>::MIN, <$type>::MAX);

            fn mask(length: u8) -> Self {
                let rest = u32::from(Self::LENGTH.saturating_sub(length));
                <$type>::MAX.checked_shl(rest).unwrap_or(0)
            }

            fn next(self) -> Self {
                self.wrapping_add(1)
            }

            fn bit(self, at: u8) -> bool {
                self.checked_shl(at.into()).unwrap_or(0).leading_zeros() == 0
            }
        }
    };
}

address!(u32, 32);
address!(u128, 128);

/// The leading `length` bits of an address in host order, the rest 0.
///
/// The order is that of [`crate::ranges()`]: by address, the shorter first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

/// Of IPv4.
pub type Prefix4 = Prefix<u32>;
/// Of IPv6.
pub type Prefix6 = Prefix<u128>;

impl<A: Address> Prefix<A> {
    /// Bits beyond the length are cleared; `None` if it exceeds those of an address.
    #[must_use]
    pub fn new(address: A, length: u8) -> Option<Self> {
        (length <= A::LENGTH).then(|| Self {
            address: address & A::mask(length),
            length,
        })
    }

    /// That of one address.
    #[must_use]
    pub fn host(address: A) -> Self {
        Self {
            address,
            length: A::LENGTH,
        }
    }

    /// That of all.
    #[must_use]
    pub fn all() -> Self {
        Self {
            address: A::ENDS.0,
            length: 0,
        }
    }

    /// Its first address.
    #[must_use]
    pub fn first(&self) -> A {
        self.address
    }

    /// Its last one.
    #[must_use]
    pub fn last(&self) -> A {
        self.address | !A::mask(self.length)
    }

    /// Bits.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// True if it has one address.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.length == A::LENGTH
    }
}
