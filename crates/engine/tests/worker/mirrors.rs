// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies for who looks on: of what comes in and leaves at a port, as it is on its wire, whoever forwards it.

use freeway_api::SteerRule;
use freeway_engine::ffi;
use freeway_engine::mirror::Mirror;

use crate::rings::{Between, Scheduler, alone};
use crate::support::frame::Frame;
use crate::support::state::Flow;

const NAMES: [&str; 3] = ["lan0", "wan0", "ids0"];
const LAN: u32 = 0;
const WAN: u32 = 1;
const IDS: u32 = 2;

/// Lasts until the process ends.
fn pool(frames: u32) -> *mut ffi::rte_mempool {
    // SAFETY: DPDK has been started.
    let pool = unsafe { ffi::fwe_pool_new(frames, 2048, -1) };
    assert!(!pool.is_null());
    pool
}

fn mirror(rules: &[&str], pool: *mut ffi::rte_mempool) -> Mirror {
    let rules = rules
        .iter()
        .map(|rule| serde_json::from_str::<SteerRule>(rule).unwrap());
    let rules: Vec<_> = rules.collect();
    let (mirror, refused) = Mirror::with(&rules, &NAMES, pool);
    assert_eq!(refused, Vec::<String>::new());
    mirror
}

/// A worker with one flow, from the first port to the second one.
fn worker(rings: *mut ffi::fwe_rings) -> (Between, Flow) {
    let mut between = Between::new(rings, 32);
    let flow = Flow::default();
    between.admit(&flow);
    (between, flow)
}

fn all(between: &Between, port: u32) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| between.take(port)).collect()
}

/// What is on each port's wire, and the kernel's.
#[derive(Debug, PartialEq)]
struct Passed {
    wan: Vec<Vec<u8>>,
    copies: Vec<Vec<u8>>,
    kernel: Vec<Vec<u8>>,
}

fn pass(between: &mut Between, frames: &[Vec<u8>]) -> Passed {
    for (number, frame) in frames.iter().enumerate() {
        // in one piece, or in several
        assert!(between.put(LAN, frame, [4000, 60][number % 2]));
    }
    between.turn();
    let passed = Passed {
        wan: all(between, WAN),
        copies: all(between, IDS),
        kernel: between
            .exceptions
            .drain(..)
            .map(|(frame, _)| frame)
            .collect(),
    };
    assert_eq!(all(between, LAN), Vec::<Vec<u8>>::new());
    assert_eq!(between.missing(), 0);
    passed
}

/// Of the flow, of no flow, and no IP.
fn mixture(flow: &Flow) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for number in 0..8 {
        let of_flow = Frame {
            payload: number * 40,
            ..flow.frame()
        };
        frames.push(of_flow.bytes());
        let mut stranger = flow.frame();
        stranger.sport ^= 0x100;
        frames.push(stranger.bytes());
        let mut arp = vec![0xff; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        frames.push(arp);
    }
    frames
}

fn in_and_out(rings: *mut ffi::fwe_rings) {
    let copies = pool(255);
    let (mut between, flow) = worker(rings);
    let frames = mixture(&flow);
    let prior = between.stats().model[ffi::FWE_PATH_MIRROR as usize];
    let plain = pass(&mut between, &frames);
    assert_eq!((plain.wan.len(), plain.kernel.len()), (8, 16));
    assert_eq!(plain.copies, Vec::<Vec<u8>>::new());
    assert_ne!(plain.wan[0], frames[0]);

    // as it comes in, whatever becomes of it
    let at_lan = mirror(&[r#"{"mirror": "ids0", "port": ["lan0"]}"#], copies);
    between.mirror(Some(&at_lan));
    let passed = pass(&mut between, &frames);
    assert_eq!(passed.copies, frames);
    assert_eq!((&passed.wan, &passed.kernel), (&plain.wan, &plain.kernel));
    assert_eq!(between.stats().mirrored, 24);
    let model = between.stats().model[ffi::FWE_PATH_MIRROR as usize];
    assert_ne!(model, prior, "what a copy costs was measured");

    // as it leaves
    let at_wan = mirror(&[r#"{"mirror": "ids0", "port": ["wan0"]}"#], copies);
    between.mirror(Some(&at_wan));
    let passed = pass(&mut between, &frames);
    assert_eq!((&passed.copies, &passed.wan), (&plain.wan, &plain.wan));

    // what a rule names, at both; the first rule that takes a frame counts
    let proto = flow.frame().bytes()[23];
    let rules = [
        format!(
            r#"{{"mirror": "ids0", "port": ["lan0", "wan0"], "proto": "{proto}", "sport": [{}]}}"#,
            flow.sport
        ),
        r#"{"mirror": "ids0", "port": ["wan0"]}"#.into(),
    ];
    let both = mirror(&rules.each_ref().map(|rule: &String| rule.as_str()), copies);
    between.mirror(Some(&both));
    let mut passed = pass(&mut between, &frames);
    let left = passed.copies.split_off(8);
    let of_flow: Vec<_> = frames.iter().step_by(3).cloned().collect();
    assert_eq!((passed.copies, &left), (of_flow, &plain.wan));

    between.mirror(None);
    assert_eq!(pass(&mut between, &frames), plain);
    assert_eq!(between.stats().not_mirrored, 0);
    assert_eq!(between.stats().tx_dropped, 0);
}

/// What an engine has no port for does not end what it has.
fn without_a_port(rings: *mut ffi::fwe_rings) {
    let (mut between, flow) = worker(rings);
    let rule = |mirror: &str, port: &str| SteerRule {
        mirror: Some(mirror.into()),
        port: vec![port.into()],
        ..SteerRule::default()
    };
    let rules = [
        rule("ids0", "lan9"),
        rule("ids9", "lan0"),
        rule("ids0", "lan0"),
    ];
    let (mirror, refused) = Mirror::with(&rules, &NAMES, pool(63));
    assert_eq!(refused.len(), 2);
    for (why, words) in refused
        .iter()
        .zip(["port lan9: lan9 is", "port lan0: ids9 is"])
    {
        assert!(why.contains(words), "{why}");
    }
    between.mirror(Some(&mirror));
    let frames = [flow.frame().bytes()];
    assert_eq!(pass(&mut between, &frames).copies, frames);
}

/// At a port with a scheduler copies are what leaves it; a mirror's own has the copies.
fn scheduled(rings: *mut ffi::fwe_rings) {
    let (mut between, flow) = worker(rings);
    let frames: Vec<_> = (0..20)
        .map(|number| {
            let frame = Frame {
                payload: number * 10,
                ..flow.frame()
            };
            frame.bytes()
        })
        .collect();
    let plain = pass(&mut between, &frames);
    let rules = mirror(&[r#"{"mirror": "ids0", "port": ["wan0"]}"#], pool(255));
    between.mirror(Some(&rules));
    for port in [WAN, IDS] {
        let schedule = Scheduler::new();
        let given = schedule.at(port);
        between.schedules(Some(&given));
        let passed = pass(&mut between, &frames);
        assert_eq!((&passed.wan, &passed.copies), (&plain.wan, &plain.wan));
        // turns without traffic are not taken for work
        let model = between.stats().model;
        for _ in 0..100 {
            between.turn();
        }
        assert_eq!(between.stats().model, model);
        between.schedules(None);
        between.turn();
    }
    assert_eq!(between.stats().mirrored, 40);
}

/// Where memory or the port's ring is short, copies are lost and nothing else.
fn short(rings: *mut ffi::fwe_rings) {
    let few = pool(7);
    let (mut between, flow) = worker(rings);
    let frames = mixture(&flow);
    let plain = pass(&mut between, &frames);
    let at_lan = mirror(&[r#"{"mirror": "ids0", "port": ["lan0"]}"#], few);
    between.mirror(Some(&at_lan));
    let passed = pass(&mut between, &frames);
    assert_eq!((&passed.wan, &passed.kernel), (&plain.wan, &plain.kernel));
    assert!(passed.copies.len() < frames.len());
    let lost = frames.len() - passed.copies.len();
    let stats = between.stats();
    assert_eq!(stats.mirrored, passed.copies.len() as u64);
    assert_eq!(stats.not_mirrored, lost as u64);

    let plenty = pool(1023);
    let at_lan = mirror(&[r#"{"mirror": "ids0", "port": ["lan0"]}"#], plenty);
    between.mirror(Some(&at_lan));
    let before = between.stats().mirrored;
    for round in 0..8 {
        for frame in &frames {
            assert!(between.put(LAN, frame, 4000));
        }
        between.turn();
        assert_eq!(all(&between, WAN), plain.wan, "round {round}");
    }
    // the ring has no room for all of them
    let there = all(&between, IDS).len() as u64;
    let stats = between.stats();
    assert_eq!(stats.mirrored - before, there);
    assert_eq!(stats.not_mirrored, lost as u64 + 8 * 24 - there);
    assert!(there < 8 * 24);
    between.exceptions.clear();
    assert_eq!(between.missing(), 0);
    // SAFETY: it lives.
    assert_eq!(unsafe { ffi::fwe_pool_available(plenty) }, 1023);
}

/// An IPv4 packet behind an Ethernet header of this type and these octets.
fn ip4(ethertype: u16, between: &[u8], fragment: u16, ports: [u16; 2]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(between);
    frame.extend([0x45, 0, 0, 28, 0, 0]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, 17, 0, 0, 192, 0, 2, 129, 198, 51, 100, 9]);
    for port in ports {
        frame.extend(port.to_be_bytes());
    }
    frame.extend([0, 8, 0, 0]);
    frame
}

/// UDP behind these headers, each with its own number.
fn ip6(headers: &[(u8, &[u8])]) -> Vec<u8> {
    let numbers: Vec<u8> = headers
        .iter()
        .map(|(number, _)| *number)
        .chain([17])
        .collect();
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, numbers[0], 64]);
    let address = |last: u8| {
        let mut address = [0; 16];
        (address[0], address[1], address[15]) = (0x20, 1, last);
        address
    };
    frame.extend(address(1));
    frame.extend(address(2));
    for ((_, header), next) in headers.iter().zip(&numbers[1..]) {
        frame.push(*next);
        frame.extend(*header);
    }
    frame.extend([0, 53, 3, 232, 0, 8, 0, 0]);
    frame
}

#[test]
fn rules_name_conversations() {
    let tag = [0, 7, 8, 0];
    let two = [0, 7, 0x81, 0, 0, 8, 8, 0];
    let session = [0x11, 0, 0, 1, 0, 30, 0, 0x21];
    let plain = ip4(0x800, &[], 0, [1000, 53]);
    let fragment = ip4(0x800, &[], 0x2000, [1000, 53]);
    let arp = ip4(0x806, &[], 0, [1000, 53]);
    let cases: [(&str, &[u8], bool); 34] = [
        ("", &plain, true),
        ("", &arp, true),
        ("", &plain[..13], true),
        (r#""proto": "udp""#, &plain, true),
        (r#""proto": "tcp""#, &plain, false),
        (r#""proto": "udp""#, &arp, false),
        (r#""proto": "udp""#, &fragment, true),
        (r#""src": ["192.0.2.128/25"]"#, &plain, true),
        (r#""src": ["192.0.2.0/25"]"#, &plain, false),
        (r#""src": ["192.0.2.129"]"#, &plain, true),
        (r#""src": ["192.0.2.128/32"]"#, &plain, false),
        (r#""src": ["10.0.0.0/8", "192.0.2.0/24"]"#, &plain, true),
        // the other way round
        (
            r#""dst": ["192.0.2.0/24"], "src": ["198.51.100.0/24"]"#,
            &plain,
            true,
        ),
        (r#""dst": ["192.0.2.0/24"], "dport": [1000]"#, &plain, true),
        // not one end each way
        (r#""dst": ["192.0.2.0/24"], "dport": [53]"#, &plain, false),
        (
            r#""src": ["192.0.2.0/24"], "dst": ["192.0.2.0/24"]"#,
            &plain,
            false,
        ),
        (r#""dport": ["50-60"]"#, &plain, true),
        (r#""dport": ["54-60", "1-52"]"#, &plain, false),
        (r#""dport": [53]"#, &fragment, false),
        (r#""src": ["::/0"]"#, &plain, false),
        (r#""src": ["0.0.0.0/0"]"#, &arp, false),
        (r#""dport": [53]"#, &plain[..36], false),
        (
            r#""dport": [53], "src": ["192.0.2.129"]"#,
            &ip4(0x8100, &tag, 0, [1000, 53]),
            true,
        ),
        (r#""dport": [53]"#, &ip4(0x88a8, &two, 0, [1000, 53]), true),
        (
            r#""dport": [53]"#,
            &ip4(0x8864, &session, 0, [1000, 53]),
            true,
        ),
        (
            r#""src": ["2001::2/128"], "dport": [53], "proto": "udp""#,
            &ip6(&[]),
            true,
        ),
        // a source may put what it likes ahead of the ports
        (
            r#""dport": [53]"#,
            &ip6(&[(0, &[1; 15]), (60, &[0; 7]), (43, &[0; 7])]),
            true,
        ),
        (r#""dport": [53]"#, &ip6(&[(51, &[1; 11])]), true),
        (r#""dport": [53]"#, &ip6(&[(44, &[0; 7])]), true),
        (
            r#""dport": [53]"#,
            &ip6(&[(44, &[0, 0, 1, 0, 0, 0, 0])]),
            false,
        ),
        (
            r#""proto": "udp""#,
            &ip6(&[(44, &[0, 0, 9, 0, 0, 0, 0])]),
            true,
        ),
        (r#""dport": [53]"#, &ip6(&[(60, &[255; 7])]), false),
        (
            r#""dport": [53]"#,
            &ip6(&[(60, &[0u8; 7] as &[u8]); 9]),
            false,
        ),
        (r#""proto": "0""#, &ip6(&[]), false),
    ];
    for (rule, frame, taken) in cases {
        let comma = if rule.is_empty() { "" } else { ", " };
        let rule = format!(r#"{{"mirror": "ids0", "port": ["wan0"]{comma}{rule}}}"#);
        let mirror = mirror(&[&rule], std::ptr::null_mut());
        let at = |port| {
            // as long as the frame is; another octet behind it would be looked at
            let frame = frame.to_vec().into_boxed_slice();
            // SAFETY: so long is the frame.
            unsafe {
                ffi::fwe_mirror_match(mirror.given(), port, frame.as_ptr(), frame.len() as u32)
            }
        };
        assert_eq!(at(WAN), if taken { 0 } else { -1 }, "{rule}");
        assert_eq!(at(LAN), -1, "{rule}");
    }
}

#[test]
fn what_passes_a_port_is_copied() {
    alone(in_and_out);
    alone(without_a_port);
    alone(scheduled);
    alone(short);
}
