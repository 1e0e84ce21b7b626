// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which bucket a frame is: that of the packet that it carries, whichever way and with whatever around.

use std::net::IpAddr;

use freeway_engine::ffi;

use crate::support::frame::{Frame, address};
use crate::support::random::Random;

const KEY: [u64; 5] = [
    0x9e37_79b9_7f4a_7c15,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
];
const ETH: usize = 14;

fn bucket(frame: &[u8]) -> u32 {
    // SAFETY: so long is the frame.
    let bucket = unsafe {
        ffi::fwe_bucket_of_frame(frame.as_ptr().cast(), frame.len() as u32, KEY.as_ptr())
    };
    assert!(bucket < ffi::FWE_BUCKETS);
    bucket
}

fn frame(random: &mut Random, v6: bool, proto: u8) -> Frame {
    let one = |random: &mut Random, net: u8| {
        let host = random.next();
        address(v6, [10, net, (host >> 8) as u8, host as u8], host as u16)
    };
    Frame {
        src: one(random, 1),
        dst: one(random, 2),
        sport: random.next() as u16,
        dport: random.next() as u16,
        proto,
        ..Frame::default()
    }
}

fn answer(frame: &Frame) -> Frame {
    Frame {
        src: frame.dst,
        dst: frame.src,
        sport: frame.dport,
        dport: frame.sport,
        ..frame.clone()
    }
}

/// The same with that ahead of its Ethernet type.
fn tagged(frame: &[u8], tags: &[u8]) -> Vec<u8> {
    [&frame[..12], tags, &frame[12..]].concat()
}

fn in_session(frame: &[u8]) -> Vec<u8> {
    let v6 = frame[12] == 0x86;
    let len = (frame.len() - ETH + 2) as u16;
    let head = [0x88, 0x64, 0x11, 0, 0, 7];
    let ppp = [0, if v6 { 0x57 } else { 0x21 }];
    [&frame[..12], &head, &len.to_be_bytes(), &ppp, &frame[ETH..]].concat()
}

/// In a tunnel between two others; `gre`: its header from the flags on, without the type.
fn in_tunnel(
    frame: &[u8],
    v6: bool,
    flags: u16,
    ethertype: u16,
    rest: &[u8],
    outer: u16,
) -> Vec<u8> {
    let carried = if ethertype == 0x6558 {
        frame
    } else {
        &frame[ETH..]
    };
    let carrier = Frame {
        src: address(v6, [192, 0, 2, 1], 1),
        dst: address(v6, [198, 51, 100, outer as u8], outer),
        proto: 47,
        sport: flags,
        dport: ethertype,
        payload: 0,
        ..Frame::default()
    };
    let mut bytes = carrier.bytes();
    bytes.truncate(ETH + if v6 { 40 } else { 20 } + 4);
    [&bytes, rest, carried].concat()
}

#[test]
fn a_frame_is_in_the_bucket_of_what_it_carries() {
    let mut random = Random(0x5eed);
    let mut used = std::collections::BTreeSet::new();
    for _ in 0..2000 {
        let v6 = random.one_in(2);
        let proto = random.pick(&[6, 17]);
        let plain = frame(&mut random, v6, proto);
        let bytes = plain.bytes();
        let home = bucket(&bytes);
        used.insert(home);
        assert_eq!(bucket(&answer(&plain).bytes()), home, "{plain:?}");
        let vlan = tagged(&bytes, &[0x81, 0, 0, 5]);
        let qinq = tagged(&bytes, &[0x88, 0xa8, 0, 9, 0x81, 0, 0x60, 5]);
        let session = in_session(&bytes);
        let session_in_vlan = tagged(&session, &[0x81, 0, 0, 5]);
        let ethertype = if v6 { 0x86dd } else { 0x0800 };
        let outer_v6 = random.one_in(2);
        let plain_gre = in_tunnel(&bytes, outer_v6, 0, ethertype, &[], 1);
        let keyed = in_tunnel(&bytes, outer_v6, 0xa000, ethertype, &[0; 8], 2);
        let bridged = in_tunnel(&vlan, outer_v6, 0x2000, 0x6558, &[0; 4], 3);
        for (what, framed) in [
            ("VLAN", &vlan),
            ("QinQ", &qinq),
            ("PPPoE", &session),
            ("PPPoE in a VLAN", &session_in_vlan),
            ("GRE", &plain_gre),
            ("GRE in a session", &in_session(&plain_gre)),
            ("GRE with checksum and key", &keyed),
            ("Ethernet in GRE", &bridged),
        ] {
            assert_eq!(bucket(framed), home, "{what}: {framed:02x?}");
        }
        // its receiver wants it in order: all of the tunnel is one flow, whatever is in it
        let other = frame(&mut random, v6, proto).bytes();
        let in_order = |frame: &[u8]| in_tunnel(frame, false, 0x1000, ethertype, &[0; 4], 4);
        assert_eq!(bucket(&in_order(&bytes)), bucket(&in_order(&other)));
        // a third tag is not looked behind
        let deep = |frame: &[u8]| {
            tagged(
                &tagged(frame, &[0x81, 0, 0, 5]),
                &[0x81, 0, 0, 5, 0x81, 0, 0, 5],
            )
        };
        assert_eq!(bucket(&deep(&bytes)), 0);
    }
    // 2,000 draws of 512
    assert!(used.len() > 450, "{} buckets", used.len());
}

#[test]
fn fragments_of_a_packet_are_in_one_bucket() {
    let mut random = Random(7);
    for _ in 0..500 {
        let whole = frame(&mut random, false, 17);
        let parts = [0x2000, 0x2010, 0x0020].map(|frag| Frame {
            frag,
            // what stands in the place of ports is data, but in the first one
            sport: random.next() as u16,
            ..whole.clone()
        });
        let [first, middle, last] = parts.map(|part| bucket(&part.bytes()));
        assert_eq!((first, first), (middle, last));
        let back = Frame {
            frag: 0x2000,
            ..answer(&whole)
        };
        assert_eq!(bucket(&back.bytes()), first);
        // IPv6 says so in a header of its own
        let whole = frame(&mut random, true, 44);
        let parts = [0x0001, 0x0011].map(|offset| Frame {
            sport: 17 << 8,
            dport: offset,
            ..whole.clone()
        });
        let [first, last] = parts.map(|part| bucket(&part.bytes()));
        assert_eq!(first, last);
    }
}

/// What a masquerade puts in the place of an end that is worth the same does not move the connection.
#[test]
fn an_end_that_is_worth_the_same_keeps_the_bucket() {
    let mut random = Random(11);
    let wan = IpAddr::from([203, 0, 113, 1]);
    let mut held = 0;
    for _ in 0..40 {
        let out = frame(&mut random, false, 17);
        let home = bucket(&out.bytes());
        for sport in 1024..4096 {
            let translated = Frame {
                src: wan,
                sport,
                ..out.clone()
            };
            if bucket(&translated.bytes()) != home {
                continue;
            }
            assert_eq!(bucket(&answer(&translated).bytes()), home);
            // wherever the client goes from there
            let elsewhere = Frame {
                dport: random.next() as u16,
                ..out.clone()
            };
            let translated = Frame {
                dport: elsewhere.dport,
                ..translated
            };
            assert_eq!(bucket(&elsewhere.bytes()), bucket(&translated.bytes()));
            held += 1;
        }
    }
    assert!(held > 40, "{held}");
}

/// Two pages, of which the second one may not be read.
struct Guarded {
    at: *mut u8,
}

const PAGE: usize = 4096;

impl Guarded {
    fn new() -> Self {
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh mapping, whose second page nobody uses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 2 * PAGE, rights, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let at = at.cast::<u8>();
        // SAFETY: as above.
        assert_eq!(
            unsafe { libc::mprotect(at.add(PAGE).cast(), PAGE, libc::PROT_NONE) },
            0
        );
        Self { at }
    }

    /// The frame, at the end of what may be read.
    fn hold(&mut self, frame: &[u8]) -> &[u8] {
        // SAFETY: within the first page.
        unsafe {
            let to = self.at.add(PAGE - frame.len());
            std::ptr::copy_nonoverlapping(frame.as_ptr(), to, frame.len());
            std::slice::from_raw_parts(to, frame.len())
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped in new().
        unsafe { libc::munmap(self.at.cast(), 2 * PAGE) };
    }
}

/// Whatever is missing or wrong, no octet behind the frame is read.
#[test]
fn frames_that_are_cut_or_random_have_a_bucket() {
    let mut guarded = Guarded::new();
    let mut random = Random(3);
    for _ in 0..20_000 {
        let v6 = random.one_in(2);
        let proto = random.pick(&[6, 17, 47, 1, 58, 44]);
        let mut bytes = frame(&mut random, v6, proto).bytes();
        if random.one_in(2) {
            bytes = in_tunnel(&bytes, v6, 0x2000, 0x6558, &[0; 4], 1);
        }
        if random.one_in(2) {
            bytes = in_session(&bytes);
        }
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(random.below(bytes.len() + 1));
        bucket(guarded.hold(&bytes));
    }
}
