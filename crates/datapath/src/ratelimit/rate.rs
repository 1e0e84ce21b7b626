// SPDX-License-Identifier: MIT OR Apache-2.0
//! A limit in the data plane's terms.

use std::net::IpAddr;

use freeway_abi::{
    FW_RATELIMIT_OWNER_IP6, FW_RATELIMIT_SHIFT, fw_ratelimit_bucket, fw_ratelimit_rule,
};

/// More are counted as more than a CPU can tell apart.
pub const PACKETS_PER_S_MAX: u32 = 100_000_000;

/// What each source may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRate {
    /// 1 to [`PACKETS_PER_S_MAX`].
    pub packets_per_s: u32,
    /// Packets at once after a pause, at least one.
    pub burst: u32,
    /// Bits of an IPv4 address that tell sources apart.
    pub prefix_len4: u8,
    /// Of an IPv6 address.
    pub prefix_len6: u8,
}

fn mask(len: u8, bits: u32) -> u128 {
    let free = bits.saturating_sub(len.into());
    let all = u128::MAX.checked_shr(128 - bits).unwrap_or(0);
    all & u128::MAX.checked_shl(free).unwrap_or(0)
}

fn half_be(mask: u128, upper: bool) -> u64 {
    let half = if upper { mask >> 64 } else { mask } as u64;
    u64::from_ne_bytes(half.to_be_bytes())
}

impl SourceRate {
    /// Rounded, and wider by a tick, in the source's favour: the clock shows whole ones.
    pub(super) fn rule(&self, hz: u32, owner: u32) -> fw_ratelimit_rule {
        let tick = 1u64 << FW_RATELIMIT_SHIFT;
        let second = tick * u64::from(hz);
        let cost = (second / u64::from(self.packets_per_s.max(1))).max(1);
        let (six, four) = (mask(self.prefix_len6, 128), mask(self.prefix_len4, 32));
        fw_ratelimit_rule {
            cost,
            depth: u64::from(self.burst.max(1)) * cost + tick,
            mask_be: [half_be(six, true), half_be(six, false)],
            mask4_be: u32::from_ne_bytes((four as u32).to_be_bytes()).into(),
            owner,
            pad: 0,
        }
    }
}

/// The address of a bucket's prefix.
pub(super) fn address(bucket: &fw_ratelimit_bucket) -> IpAddr {
    if bucket.owner & FW_RATELIMIT_OWNER_IP6 == 0 {
        return (bucket.prefix[0] as u32).to_ne_bytes().into();
    }
    let mut bytes = [0; 16];
    for (to, word) in bytes.chunks_exact_mut(8).zip(bucket.prefix) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_masks() {
        assert_eq!(mask(32, 32), 0xffff_ffff);
        assert_eq!(mask(24, 32), 0xffff_ff00);
        assert_eq!(mask(0, 32), 0);
        assert_eq!(mask(64, 128), u128::from(u64::MAX) << 64);
        assert_eq!(mask(128, 128), u128::MAX);
        assert_eq!(mask(0, 128), 0);
    }
}
