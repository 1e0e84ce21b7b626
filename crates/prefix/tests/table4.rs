// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random tables and changes of IPv4 prefixes, against the model.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use freeway_prefix::{NEXT_HOP_MAX, NextHop, Prefix4, Table4, Trie};
use proptest::prelude::*;

/// Near to each other, so that prefixes nest, touch and divide a /24, and some anywhere.
fn prefix() -> impl Strategy<Value = Prefix4> {
    let address = prop_oneof![
        4 => (0u32..4, 0u32..0x300).prop_map(|(chunk, low)| (chunk << 21) | low),
        2 => (0u32..0x40).prop_map(|slot| (10 << 24) | (slot << 8)),
        1 => any::<u32>(),
        1 => Just(u32::MAX),
    ];
    let length = prop_oneof![2 => 0u8..=32, 2 => 22u8..=32, 1 => Just(24), 1 => 9u8..=13];
    (address, length).prop_map(|(address, length)| Prefix4::new(address, length).unwrap())
}

fn change() -> impl Strategy<Value = (Prefix4, Option<NextHop>)> {
    let next_hop = prop_oneof![3 => 1u16..4, 1 => 0..=NEXT_HOP_MAX];
    (prefix(), prop::option::weighted(0.7, next_hop))
}

/// First, last, and those beside.
fn boundaries<'a>(prefixes: impl IntoIterator<Item = &'a Prefix4>) -> Vec<u32> {
    let mut all = vec![0, 1, u32::MAX];
    for prefix in prefixes {
        let (first, last) = (prefix.first(), prefix.last());
        all.extend([
            first,
            last,
            first.wrapping_sub(1),
            last.wrapping_add(1),
            first / 2 + last / 2,
        ]);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_boundary_is_as_the_trie_has_it(batches in prop::collection::vec(prop::collection::vec(change(), 1..60), 1..5)) {
        let mut table = Table4::new();
        let mut trie = Trie::default();
        let mut seen = BTreeMap::new();
        for batch in &batches {
            for &(prefix, next_hop) in batch {
                // not yet in force
                table.set(prefix, next_hop);
            }
            for &address in &boundaries(seen.keys()) {
                prop_assert_eq!(table.lookup(address), trie.lookup(address), "before the commit, {:x}", address);
            }
            for &(prefix, next_hop) in batch {
                trie.set(prefix, next_hop);
                seen.insert(prefix, ());
            }
            table.commit().unwrap();
            let addresses = boundaries(seen.keys());
            let mut burst = vec![0; addresses.len()];
            table.lookup_burst(&addresses, &mut burst);
            for (&address, &of_burst) in addresses.iter().zip(&burst) {
                prop_assert_eq!(table.lookup(address), trie.lookup(address), "{:x}", address);
                prop_assert_eq!(of_burst, trie.lookup(address));
            }
            table.release(table.commits());
        }
        // all of it removed is nothing
        for prefix in seen.keys() {
            table.set(*prefix, None);
        }
        let empty = Table4::new().bytes();
        table.commit().unwrap();
        table.release(table.commits());
        prop_assert_eq!(table.prefixes(), 0);
        for address in boundaries(seen.keys()) {
            prop_assert_eq!(table.lookup(address), 0);
        }
        prop_assert_eq!(table.bytes(), empty);
    }
}

#[test]
fn a_reader_held_up_sees_what_was_until_it_is_released() {
    let mut table = Table4::new();
    let prefix = Prefix4::new(0x0a00_0000, 25).unwrap();
    let same = Prefix4::new(0x0a00_0080, 32).unwrap();
    for round in 1..5000u16 {
        table.set(prefix, Some(round));
        table.set(same, (round % 2 == 0).then_some(round));
        assert_eq!(table.commit().unwrap(), 1);
        assert_eq!(table.lookup(0x0a00_0001), round);
        assert_eq!(
            table.lookup(0x0a00_0080),
            if round % 2 == 0 { round } else { 0 }
        );
        table.release(table.commits());
    }
}

#[test]
fn a_full_table_stays_as_it_was() {
    let mut table = Table4::new();
    table.set(Prefix4::new(0, 0).unwrap(), Some(7));
    table.commit().unwrap();
    // more /24s with a host than there is room for
    for slot in 0..300_000u32 {
        table.set(Prefix4::new((slot << 8) | 9, 32).unwrap(), Some(1));
    }
    assert!(table.commit().is_err());
    assert_eq!(table.lookup(9), 7);
    for slot in 60_000..300_000u32 {
        table.set(Prefix4::new((slot << 8) | 9, 32).unwrap(), None);
    }
    table.commit().unwrap();
    assert_eq!(table.lookup(9), 1);
    assert_eq!(table.lookup((65_000 << 8) | 9), 7);
}
