// SPDX-License-Identifier: MIT OR Apache-2.0
//! 16, 8 and 8 bits, where equal blocks are one.

use freeway_prefix::Range;

use super::{Block, LONG, Map, Shared, expand, last_octet};

/// `None` if more /24s are divided, or more /16s differ, than entries can name.
#[must_use]
pub fn blocks(ranges: &[Range]) -> Option<Block> {
    let map = Map(ranges);
    let (mut of_16, mut of_24) = (Shared::new(), Shared::new());
    let mut root = Vec::with_capacity(1 << 16);
    for slot in 0..1u32 << 16 {
        let block = match map.within(slot << 16, 16)[..] {
            [(_, next_hop)] => vec![next_hop; 256],
            _ => expand(map, slot << 16, 8, 256, |_, ranges| {
                LONG | of_24.number(last_octet(ranges)) as u16
            }),
        };
        root.push(of_16.number(block) as u16);
    }
    let fits = of_24.all.len() <= usize::from(LONG);
    fits.then(|| {
        let block = Block::new().halves(0, &root);
        block
            .halves(1, &of_16.all.concat())
            .halves(2, &of_24.all.concat())
    })
}
