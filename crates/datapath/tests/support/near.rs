// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames near to a hit of a flow, at random.

use super::frame::Frame;
use super::random::Random;
use super::state::Flow;

/// A frame of the flow, with what may differ in one.
pub fn plain(random: &mut Random, flow: &Flow) -> Frame {
    Frame {
        tos: flow.dscp | random.pick(&[0, 1, 2, 3]),
        id: random.next() as u16,
        frag: random.pick(&[0, 0x4000]),
        tcp_flags: random.pick(&[0x10, 0x18, 0xd0]),
        seq: random.next() as u32,
        ack: random.next() as u32,
        payload: random.pick(&[0, 1, 2, 6, 18, 40, 64, 1000]),
        padding: random.pick(&[0, 0, 6, 18]),
        ..flow.frame()
    }
}

/// Changes one field to what may not be.
pub fn spoil(random: &mut Random, frame: &mut Frame) {
    match random.below(18) {
        0 => frame.dst_mac = "02:00:00:00:00:77".into(),
        1 => frame.src_mac = "02:00:00:00:00:77".into(),
        2 => frame.version_ihl = random.pick(&[0x44, 0x46, 0x55, 0x65]),
        3 => frame.version = 4,
        4 => frame.tos ^= random.pick(&[0x04, 0x80]),
        5 => frame.frag = random.pick(&[0x2000, 1, 0x8000, 0x1fff]),
        6 => frame.ttl = random.pick(&[0, 1, 63, 65]),
        7 => frame.ip_check = Some(random.next() as u16),
        8 => frame.ip_len = Some(random.pick(&[0, 7, 8, 19, 20, 27, 28, 39, 40, 200, 65535])),
        9 => frame.proto = random.pick(&[0, 1, 6, 17, 44, 50, 58]),
        10 => frame.sport ^= 1,
        11 => frame.dport ^= 0x100,
        12 => frame.doff = random.pick(&[0, 4, 5, 6, 15]),
        13 => frame.tcp_flags = random.next() as u8,
        14 => frame.udp_len = Some(random.pick(&[0, 7, 8, 9, 65535])),
        16 => frame.flow_label ^= 1 << random.below(20),
        15 => frame.l4_check = Some(random.pick(&[0, 1, 0xffff])),
        _ => frame.ethertype = Some(random.pick(&[0x0800, 0x86dd, 0x8100, 0x0806])),
    }
}

/// Now and then flips a bit, or cuts the end off.
pub fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    if random.one_in(16) && !bytes.is_empty() {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
    if random.one_in(16) {
        bytes.truncate(random.below(bytes.len() + 1));
    }
}
