// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses as the ABI has them: four words in network byte order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{FW_AF_INET, FW_AF_INET6};

/// An address from the ABI's four words in network order.
#[must_use]
pub fn addr_of(family: u8, words_be: &[u32; 4]) -> Option<IpAddr> {
    match u32::from(family) {
        FW_AF_INET => Some(Ipv4Addr::from(words_be[0].to_ne_bytes()).into()),
        FW_AF_INET6 => {
            let mut octets = [0u8; 16];
            for (chunk, word) in octets.chunks_exact_mut(4).zip(words_be) {
                chunk.copy_from_slice(&word.to_ne_bytes());
            }
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// The ABI's four words of an address; IPv4 takes the first.
#[must_use]
pub fn words_of(addr: IpAddr) -> [u32; 4] {
    match addr {
        IpAddr::V4(v4) => [u32::from_ne_bytes(v4.octets()), 0, 0, 0],
        IpAddr::V6(v6) => {
            let octets = v6.octets();
            std::array::from_fn(|i| u32::from_ne_bytes(std::array::from_fn(|j| octets[i * 4 + j])))
        }
    }
}
