// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lookups as the BPF verifier takes them, and as the kernel runs them.
#![allow(clippy::unwrap_used)]

use freeway_prefix::{Address, Family, NextHop, Prefix, Prefix4, Prefix6, Table};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lookup.o"));

fn object() -> Option<Object> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: loading a program needs root");
        return None;
    }
    let object = ObjectBuilder::default().open_memory(OBJECT).unwrap();
    Some(object.load().unwrap())
}

/// The program's answers are the library's.
fn answers_alike<A: Family>(
    object: &Object,
    names: (&str, &str),
    routes: impl IntoIterator<Item = (Prefix<A>, NextHop)>,
    addresses: impl IntoIterator<Item = A>,
    octets: impl Fn(A) -> [u8; 16],
) {
    let mut table = Table::<A>::new();
    for (prefix, next_hop) in routes {
        table.set(prefix, Some(next_hop));
    }
    table.commit().unwrap();
    let map = object.maps().find(|map| map.name() == names.0).unwrap();
    let memory = table.memory();
    // SAFETY: as large, and nobody writes it meanwhile.
    let value = unsafe {
        std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), map.value_size() as usize)
    };
    map.update(&0_u32.to_ne_bytes(), value, MapFlags::ANY)
        .unwrap();
    let program = object.progs_mut().find(|prog| prog.name() == names.1);
    let program = program.unwrap();
    let mut found = 0;
    for address in addresses {
        let mut packet = [0; 64];
        packet[..16].copy_from_slice(&octets(address));
        let input = ProgramInput {
            data_in: Some(&packet),
            ..ProgramInput::default()
        };
        let output = program.test_run(input).unwrap();
        let wanted = table.lookup(address);
        assert_eq!(output.return_value, u32::from(wanted), "{address:x?}");
        found += usize::from(wanted != 0);
    }
    assert!(found > 0);
}

#[test]
fn a_program_answers_as_the_library() {
    let Some(object) = object() else { return };
    // nested, side by side, dividing a /24, and at both ends of all addresses
    let named = (1..).zip([
        (0, 0),
        (0x0a00_0000, 8),
        (0x0a01_0000, 16),
        (0x0a01_0200, 24),
        (0x0a01_0280, 25),
        (0x0a01_02ff, 32),
        (0xc000_0200, 24),
        (0xc000_0300, 26),
        (0xffff_ff00, 24),
        (0xffff_ffff, 32),
    ]);
    let named =
        named.map(|(number, (address, length))| (Prefix4::new(address, length).unwrap(), number));
    let many = (0..4000_u32).map(|index| {
        let address = index.wrapping_mul(0x9e37_79b1);
        let prefix = Prefix4::new(address, 9 + (index % 24) as u8).unwrap();
        (prefix, 1 + (index % 500) as u16)
    });
    let mut addresses = vec![
        0,
        u32::MAX,
        0x0a01_027f,
        0x0a01_0280,
        0x0a01_02fe,
        0x0a01_02ff,
    ];
    addresses.extend((0..20_000_u32).map(|index| index.wrapping_mul(0x85eb_ca6b)));
    answers_alike::<u32>(
        &object,
        ("prefixes4", "lookup4"),
        named.chain(many),
        addresses,
        |address| {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.to_ne_bytes());
            octets
        },
    );
}

#[test]
fn a_program_of_ipv6_answers_as_the_library() {
    let Some(object) = object() else { return };
    // a site is in one of three chunks; what is beyond its /48 divides one of few
    let of = |index: u32| {
        let random = index.wrapping_mul(0x9e37_79b1);
        let chunk = 0x2001 + u128::from(random % 3);
        let site = u128::from(random >> 4);
        let below = u128::from(random.rotate_left(9) % 5);
        chunk << 112 | site << 80 | below << 62 | below << 47 | below << 15 | below
    };
    let lengths = [20, 32, 40, 48, 48, 56, 64, 80, 96, 112, 128];
    let many = (0..9000_u32).map(|index| {
        let length = lengths[index as usize % lengths.len()];
        let prefix = Prefix6::new(of(index), length).unwrap();
        (prefix, 1 + (index % 500) as u16)
    });
    let named = [(Prefix6::all(), 600), (Prefix6::host(u128::MAX), 601)];
    let near = (0..9000).flat_map(|index| {
        let address = of(index);
        let before = !(!address).next();
        [address, address ^ 1, before, address ^ (1 << 80)]
    });
    answers_alike::<u128>(
        &object,
        ("prefixes6", "lookup6"),
        named.into_iter().chain(many),
        near.chain([0, u128::MAX]),
        u128::to_be_bytes,
    );
}
