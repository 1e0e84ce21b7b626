// SPDX-License-Identifier: MIT OR Apache-2.0
//! By what the tables find their entries.

use std::net::IpAddr;

/// An address, alone or with what stands beside it in a concatenation (`fw_scrub6.pair`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScrubKey {
    /// The address.
    pub addr: IpAddr,
    /// 0: nothing.
    pub pair: u32,
}

/// An address's words as they lie in a packet.
pub(super) fn words(addr: IpAddr) -> [u32; 4] {
    match addr {
        IpAddr::V4(addr) => [u32::from_ne_bytes(addr.octets()), 0, 0, 0],
        IpAddr::V6(addr) => {
            let bytes = addr.octets();
            std::array::from_fn(|at| {
                let word = bytes[4 * at..].first_chunk().copied();
                u32::from_ne_bytes(word.unwrap_or_default())
            })
        }
    }
}
