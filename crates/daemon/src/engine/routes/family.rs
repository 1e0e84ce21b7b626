// SPDX-License-Identifier: MIT OR Apache-2.0
//! What differs between the families.

use freeway_datapath::RoutedFamily;
use freeway_kernel::model::Family;
use freeway_routing::{Hop, Ip};

/// What the daemon needs of a family.
pub trait Sided: Ip + RoutedFamily {
    const FAMILY: Family;
    /// For people.
    const NAME: &'static str;
    const ETHERTYPE: [u8; 2];

    /// Tells next hops apart: the same of two only if they are to the same neighbour.
    fn owner(hop: &Hop<Self>) -> u64;
}

impl Sided for u32 {
    const FAMILY: Family = Family::Ipv4;
    const NAME: &'static str = "IPv4";
    const ETHERTYPE: [u8; 2] = [0x08, 0x00];

    fn owner(hop: &Hop<u32>) -> u64 {
        u64::from(hop.oif) << 32 | u64::from(hop.gateway)
    }
}

impl Sided for u128 {
    const FAMILY: Family = Family::Ipv6;
    const NAME: &'static str = "IPv6";
    const ETHERTYPE: [u8; 2] = [0x86, 0xdd];

    fn owner(hop: &Hop<u128>) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (hop.oif, hop.gateway).hash(&mut hasher);
        hasher.finish()
    }
}
