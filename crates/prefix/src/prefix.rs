// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefixes and what they lead to.

/// The number of a next hop; 0 is none.
pub type NextHop = u16;

/// The leading `length` bits of an address in host order, the rest 0. `A` is `u32` for IPv4, `u128` for IPv6.
///
/// The order is that of [`crate::ranges()`]: by address, the shorter first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

/// Of IPv4.
pub type Prefix4 = Prefix<u32>;

impl Prefix4 {
    /// Bits beyond the length are cleared; `None` if it exceeds 32.
    #[must_use]
    pub fn new(address: u32, length: u8) -> Option<Self> {
        (length <= 32).then(|| Self {
            address: address & mask(length),
            length,
        })
    }

    /// That of one address.
    #[must_use]
    pub fn host(address: u32) -> Self {
        Self {
            address,
            length: 32,
        }
    }

    /// Its first address.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.address
    }

    /// Its last one.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.address | !mask(self.length)
    }

    /// Bits.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }
}

fn mask(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}
