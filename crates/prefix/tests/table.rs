// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random tables and changes of both families, against the model.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::LowerHex;

use freeway_prefix::{
    Address, Family, NEXT_HOP_MAX, NextHop, Prefix, Prefix4, Prefix6, Table, Table4, Table6, Trie,
};
use proptest::prelude::*;

type Change<A> = (Prefix<A>, Option<NextHop>);

/// Near to each other, so that prefixes nest, touch and divide a /24, and some anywhere.
fn prefix4() -> impl Strategy<Value = Prefix4> {
    let address = prop_oneof![
        4 => (0u32..4, 0u32..0x300).prop_map(|(chunk, low)| (chunk << 21) | low),
        2 => (0u32..0x40).prop_map(|slot| (10 << 24) | (slot << 8)),
        1 => any::<u32>(),
        1 => Just(u32::MAX),
    ];
    let length = prop_oneof![2 => 0u8..=32, 2 => 22u8..=32, 1 => Just(24), 1 => 9u8..=13];
    (address, length).prop_map(|(address, length)| Prefix4::new(address, length).unwrap())
}

/// Likewise: in few chunks, many to a digit, and where digits meet.
fn prefix6() -> impl Strategy<Value = Prefix6> {
    let near = (0u128..3, 0u128..600, 0u128..3, 0u128..3, 0u128..4);
    let near = near.prop_map(|(chunk, site, net, host, end)| {
        (0x2001 + chunk) << 112 | site << 80 | net << 64 | host << 40 | end
    });
    let address = prop_oneof![
        6 => near,
        2 => any::<u128>(),
        1 => Just(u128::MAX),
        1 => Just(0),
    ];
    let length = prop_oneof![
        2 => 0u8..=128,
        4 => 32u8..=48,
        1 => 14u8..=18,
        1 => 46u8..=50,
        1 => 78u8..=82,
        1 => 110u8..=114,
        1 => Just(64),
        2 => Just(128),
    ];
    (address, length).prop_map(|(address, length)| Prefix6::new(address, length).unwrap())
}

fn batches<A: Address>(
    prefix: impl Strategy<Value = Prefix<A>>,
) -> impl Strategy<Value = Vec<Vec<Change<A>>>> {
    let next_hop = prop_oneof![3 => 1u16..4, 1 => 0..=NEXT_HOP_MAX];
    let change = (prefix, prop::option::weighted(0.7, next_hop));
    prop::collection::vec(prop::collection::vec(change, 1..60), 1..5)
}

/// First, last, and those beside.
fn boundaries<'a, A: Address + 'a>(prefixes: impl IntoIterator<Item = &'a Prefix<A>>) -> Vec<A> {
    let (least, greatest) = A::ENDS;
    let mut all = vec![least, least.next(), greatest];
    for prefix in prefixes {
        let (first, last) = (prefix.first(), prefix.last());
        let middle = first | (last & !A::mask(prefix.length().saturating_add(1).min(A::LENGTH)));
        // without a subtraction: all bits but those of what is added to reach it
        let before = !(!first).next();
        all.extend([first, last, before, last.next(), middle]);
    }
    all
}

fn is_as_the_trie<A: Family + LowerHex>(batches: &[Vec<Change<A>>]) -> Result<(), TestCaseError> {
    let mut table = Table::<A>::new();
    let mut trie = Trie::default();
    let mut seen = BTreeMap::new();
    for batch in batches {
        for &(prefix, next_hop) in batch {
            // not yet in force
            table.set(prefix, next_hop);
        }
        for &address in &boundaries(seen.keys()) {
            prop_assert_eq!(
                table.lookup(address),
                trie.lookup(address),
                "before the commit, {:x}",
                address
            );
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
    let empty = Table::<A>::new().bytes();
    table.commit().unwrap();
    table.release(table.commits());
    prop_assert_eq!(table.prefixes(), 0);
    for address in boundaries(seen.keys()) {
        prop_assert_eq!(table.lookup(address), 0);
    }
    prop_assert_eq!(table.bytes(), empty);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_boundary_of_ipv4_is_as_the_trie_has_it(batches in batches(prefix4())) {
        is_as_the_trie::<u32>(&batches)?;
    }

    #[test]
    fn every_boundary_of_ipv6_is_as_the_trie_has_it(batches in batches(prefix6())) {
        is_as_the_trie::<u128>(&batches)?;
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

/// Trees of each depth that there is room for: 16 intervals, and 17 times as many for each level more.
#[test]
fn a_tree_of_any_depth_finds_all_of_its_intervals() {
    let end = 0x2001_u128 << 112;
    for count in [
        1_u128, 7, 8, 9, 136, 137, 2312, 2313, 39_304, 39_305, 60_000,
    ] {
        let mut table = Table6::new();
        let site = |number: u128| end | number << 81;
        for number in 0..count {
            let next_hop = 1 + (number % 1000) as NextHop;
            table.set(Prefix6::new(site(number), 48).unwrap(), Some(next_hop));
        }
        table.commit().unwrap();
        for number in 0..count {
            let next_hop = 1 + (number % 1000) as NextHop;
            let first = site(number);
            assert_eq!(table.lookup(first), next_hop, "{number} of {count}");
            assert_eq!(table.lookup(first | ((1 << 80) - 1)), next_hop);
            assert_eq!(table.lookup(first | 1 << 80), 0, "{number} of {count}");
            assert_eq!(table.lookup(first.wrapping_sub(1)), 0);
        }
        assert_eq!(table.lookup(end | ((1 << 112) - 1)), 0);
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

#[test]
fn a_full_table_of_ipv6_stays_as_it_was() {
    let mut table = Table6::new();
    table.set(Prefix6::all(), Some(7));
    table.commit().unwrap();
    let host = |number: u32| 0x2001 << 112 | u128::from(number) << 64 | 9;
    for number in 0..40_000 {
        table.set(Prefix6::host(host(number)), Some(1));
    }
    assert!(table.commit().is_err());
    assert_eq!(table.lookup(host(0)), 7);
    for number in 1000..40_000 {
        table.set(Prefix6::host(host(number)), None);
    }
    table.commit().unwrap();
    assert_eq!(table.lookup(host(0)), 1);
    assert_eq!(table.lookup(host(999)), 1);
    assert_eq!(table.lookup(host(1000)), 7);
}
