// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the pipeline may do to a frame, said once more, slowly: when a frame may be fast, and what it is then.

use freeway_abi::{FW_FLOW_NAT, FW_ST_ACTIVE, fw_control, fw_flow, fw_nexthop};

use crate::support::frame::sum;

const ETH: usize = 14;

/// Where the parts of a frame lie that can be fast.
struct Shape {
    v6: bool,
    l4: usize,
    end: usize,
    /// None: of ESP and GRE.
    check: Option<usize>,
    proto: u8,
}

fn shape(frame: &[u8]) -> Shape {
    let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let v6 = word(12) == 0x86dd;
    let (l4, end, proto) = if v6 {
        (ETH + 40, ETH + 40 + word(ETH + 4), frame[ETH + 6])
    } else {
        assert_eq!(word(12), 0x0800);
        (ETH + 20, ETH + word(ETH + 2), frame[ETH + 9])
    };
    let check = match proto {
        6 => Some(l4 + 16),
        17 => Some(l4 + 6),
        1 if !v6 => Some(l4 + 2),
        58 if v6 => Some(l4 + 2),
        47 | 50 => None,
        other => unreachable!("protocol {other} was forwarded"),
    };
    Shape {
        v6,
        l4,
        end,
        check,
        proto,
    }
}

/// Everything that must hold for a frame that was forwarded.
pub fn permitted(
    frame: &[u8],
    flow: &fw_flow,
    nexthop: &fw_nexthop,
    control: &fw_control,
    now: u32,
) {
    let shape = shape(frame);
    let ip = &frame[ETH..];
    assert!(frame.len() >= shape.end, "longer than its frame");
    assert!(
        (control.deadline_tick.wrapping_sub(now) as i32) > 0,
        "past the deadline"
    );
    assert_eq!(control.on, FW_ST_ACTIVE, "switched off");
    assert_eq!(flow.state.status, FW_ST_ACTIVE, "not active");
    assert_eq!(flow.state.epoch, control.epoch, "unconfirmed");
    assert_eq!(nexthop.valid, 1, "invalid next hop");
    assert_eq!(frame[..ETH], flow.l2_in, "another L2 header");
    let (ttl, tos) = if shape.v6 {
        (ip[7], ip[0] << 4 | ip[1] >> 4)
    } else {
        (ip[8], ip[1])
    };
    assert_eq!(ttl, flow.ttl_in, "another TTL");
    assert!(ttl > 1);
    assert_eq!(tos & 0xfc, flow.dscp_in, "another DSCP");
    assert!(
        shape.end - ETH <= usize::from(flow.state.len_max),
        "longer than proven"
    );
    if shape.v6 {
        assert_eq!(ip[0] >> 4, 6);
    } else {
        assert_eq!(ip[0], 0x45, "options");
        assert_eq!(sum(&ip[..20]), 0xffff, "wrong checksum");
        assert_eq!(u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff, 0, "a fragment");
    }
    let l4 = &frame[shape.l4..shape.end];
    assert!(l4.len() >= 8, "no header");
    match shape.proto {
        6 => {
            assert_eq!(l4[13] & 0x17, 0x10, "flags");
            let header = usize::from(l4[12] >> 4) * 4;
            assert!((20..=l4.len()).contains(&header), "data offset");
        }
        17 => assert_eq!(usize::from(u16::from_be_bytes([l4[4], l4[5]])), l4.len()),
        1 => assert!([[8, 0], [0, 0]].contains(&[l4[0], l4[1]]), "no echo"),
        58 => assert!([[128, 0], [129, 0]].contains(&[l4[0], l4[1]]), "no echo"),
        47 => assert_eq!(l4[1] & 7, 0, "another version of GRE"),
        _ => {}
    }
}

/// The sum of what the checksum is over, in which 0xffff is 0.
fn l4_sum(frame: &[u8], shape: &Shape) -> u16 {
    let addresses = match (shape.proto, shape.v6) {
        (1, _) => shape.l4,
        (_, true) => ETH + 8,
        (_, false) => ETH + 12,
    };
    let parts = [&frame[addresses..shape.l4], &frame[shape.l4..shape.end]];
    sum(&parts.concat()) % 0xffff
}

/// The frame that must have left, all checksums computed anew; `left` is what did.
pub fn rewritten(frame: &[u8], flow: &fw_flow, nexthop: &fw_nexthop, left: &[u8]) {
    let shape = shape(frame);
    let mut want = frame[..shape.end].to_vec();
    want[..ETH].copy_from_slice(&nexthop.l2[..ETH]);
    if flow.flags & FW_FLOW_NAT as u8 != 0 {
        if shape.v6 {
            put(&mut want, ETH + 8, &flow.saddr6_be);
            put(&mut want, ETH + 24, &flow.daddr6_be);
        } else {
            put(&mut want, ETH + 12, &[flow.saddr_be, flow.daddr_be]);
        }
        let (sport, dport) = (flow.sport_be.to_ne_bytes(), flow.dport_be.to_ne_bytes());
        match shape.proto {
            6 | 17 => {
                want[shape.l4..shape.l4 + 2].copy_from_slice(&sport);
                want[shape.l4 + 2..shape.l4 + 4].copy_from_slice(&dport);
            }
            1 | 58 => want[shape.l4 + 4..shape.l4 + 6].copy_from_slice(&sport),
            _ => {}
        }
    }
    if let Some(check) = shape.check.filter(|_| flow.flags & FW_FLOW_NAT as u8 != 0) {
        // wrong by as much as before, or not there, as before
        let (before, after) = (word(frame, check), word(left, check));
        let udp = shape.proto == 17;
        assert_eq!(
            udp && before == 0,
            udp && after == 0,
            "a checksum came or went"
        );
        if !(udp && before == 0) {
            assert_eq!(l4_sum(left, &shape), l4_sum(frame, &shape), "L4 checksum");
        }
        want[check..check + 2].copy_from_slice(&left[check..check + 2]);
    }
    let ip = &mut want[ETH..];
    if shape.v6 {
        ip[7] = flow.ttl_out;
        let tos = ip[0] << 4 | ip[1] >> 4;
        let tos = flow.dscp_out | tos & 3;
        ip[0] = 0x60 | tos >> 4;
        ip[1] = tos << 4 | ip[1] & 15;
    } else {
        ip[8] = flow.ttl_out;
        ip[1] = flow.dscp_out | ip[1] & 3;
        ip[10..12].fill(0);
        let check = !sum(&ip[..20]);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
    }
    assert_eq!(left, want, "another frame left");
}

fn put(frame: &mut [u8], at: usize, words: &[u32]) {
    for (i, word) in words.iter().enumerate() {
        frame[at + 4 * i..at + 4 * i + 4].copy_from_slice(&word.to_ne_bytes());
    }
}

fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}
