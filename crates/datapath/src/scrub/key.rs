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
