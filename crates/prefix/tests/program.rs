// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lookup as the BPF verifier takes it, and as the kernel runs it.
#![allow(clippy::unwrap_used)]

use freeway_prefix::{Prefix4, Table4};
use libbpf_rs::{MapCore, MapFlags, ObjectBuilder, ProgramInput};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lookup.o"));

#[test]
fn a_program_answers_as_the_library() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: loading a program needs root");
        return;
    }
    let object = ObjectBuilder::default().open_memory(OBJECT).unwrap();
    let object = object.load().unwrap();
    let mut table = Table4::new();
    // nested, side by side, dividing a /24, and at both ends of all addresses
    for (number, (address, length)) in (1..).zip([
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
    ]) {
        table.set(Prefix4::new(address, length).unwrap(), Some(number));
    }
    for index in 0..4000_u32 {
        let address = index.wrapping_mul(0x9e37_79b1);
        let prefix = Prefix4::new(address, 9 + (index % 24) as u8).unwrap();
        table.set(prefix, Some(1 + (index % 500) as u16));
    }
    table.commit().unwrap();
    let map = object.maps().find(|map| map.name() == "prefixes").unwrap();
    let memory = table.memory();
    // SAFETY: as large, and nobody writes it meanwhile.
    let value = unsafe {
        std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), map.value_size() as usize)
    };
    map.update(&0_u32.to_ne_bytes(), value, MapFlags::ANY)
        .unwrap();
    let program = object.progs_mut().next().unwrap();
    let mut addresses = vec![
        0,
        u32::MAX,
        0x0a01_027f,
        0x0a01_0280,
        0x0a01_02fe,
        0x0a01_02ff,
    ];
    addresses.extend((0..20_000_u32).map(|index| index.wrapping_mul(0x85eb_ca6b)));
    for address in addresses {
        let mut packet = [0; 64];
        packet[..4].copy_from_slice(&address.to_ne_bytes());
        let input = ProgramInput {
            data_in: Some(&packet),
            ..ProgramInput::default()
        };
        let output = program.test_run(input).unwrap();
        let wanted = table.lookup(address);
        assert_eq!(output.return_value, u32::from(wanted), "{address:x}");
    }
}
