// SPDX-License-Identifier: MIT OR Apache-2.0
//! DIR-24-8 (Gupta, Lin, McKeown 1998), entries of two bytes.

use freeway_prefix::Range;

use super::{Block, LONG, Map, expand, last_octet};

/// An entry for each /24.
pub struct Slots {
    /// A next hop, or with bit 15 the number of a group.
    pub slots: Vec<u16>,
    /// 256 next hops of a divided /24 each.
    pub groups: Vec<u16>,
}

/// `None` if more /24s are divided than entries can name.
#[must_use]
pub fn slots(ranges: &[Range]) -> Option<Slots> {
    let mut groups: Vec<u16> = Vec::new();
    let slots = expand(Map(ranges), 0, 8, 1 << 24, |_, ranges| {
        let number = groups.len() / 256;
        groups.extend(last_octet(ranges));
        LONG | number as u16
    });
    let fits = groups.len() / 256 <= usize::from(LONG);
    fits.then_some(Slots { slots, groups })
}

/// `None` if they do not fit.
#[must_use]
pub fn dir24(ranges: &[Range]) -> Option<Block> {
    let Slots { slots, groups } = slots(ranges)?;
    Some(Block::new().halves(0, &slots).halves(1, &groups))
}
