// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a real (little-endian) kernel, and what they say; every cut of them is survived.
#![cfg(target_endian = "little")]

use super::*;
use crate::model::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// A TCP connection from 127.0.0.1:40000 to 127.0.0.9:80, translated to 127.0.0.2:7777, in zone 7, with mark,
/// counters and time stamp.
const CONNECTION: &str = "
    02000000 34000180 14000180 08000100 7f000001 08000200 7f000009 1c000280 05000100 06000000
    06000200 9c400000 06000300 00500000 34000280 14000180 08000100 7f000002 08000200 7f000001
    1c000280 05000100 06000000 06000200 1e610000 06000300 9c400000 06001200 00070000 08000300
    000001ae 08000800 00000055 08000c00 a5ce66c5 08000b00 00000001 08000700 0006977f 30000480
    2c000180 05000100 03000000 05000200 0a000000 05000300 0a000000 06000400 23000000 06000500
    23000000 1c000980 0c000100 00000000 00000004 0c000200 00000000 000000dc 1c000a80 0c000100
    00000000 00000003 0c000200 00000000 000000a8 10001480 0c000100 18ea0129 9b4966fc";

#[test]
fn a_connection() {
    let message = bytes(CONNECTION);
    let found = connection::connection(&message).unwrap();
    let loopback = |last| [127, 0, 0, last].into();
    let orig = Tuple {
        src: loopback(1),
        dst: loopback(9),
        proto: 6,
        sport: 40000,
        dport: 80,
    };
    let reply = Tuple {
        src: loopback(2),
        dst: loopback(1),
        proto: 6,
        sport: 7777,
        dport: 40000,
    };
    let expected = Connection {
        id: 0xa5ce_66c5,
        family: Family::Ipv4,
        proto: 6,
        orig,
        reply,
        status: CtStatus(
            CtStatus::SEEN_REPLY
                | CtStatus::ASSURED
                | CtStatus::CONFIRMED
                | CtStatus::DST_NAT
                | CtStatus::SRC_NAT_DONE
                | CtStatus::DST_NAT_DONE,
        ),
        timeout_s: Some(431_999),
        mark: 0x55,
        zone: 7,
        zone_orig: None,
        zone_reply: None,
        tcp: Some(TcpInfo {
            state: TcpState::Established,
            flags_orig: 0x23,
            flags_reply: 0x23,
        }),
        helper: None,
        synproxy: false,
        seq_adjust: false,
        labels: false,
        counters_orig: Some(CtCounters {
            packets: 4,
            bytes: 220,
        }),
        counters_reply: Some(CtCounters {
            packets: 3,
            bytes: 168,
        }),
        start_ns: Some(0x18ea_0129_9b49_66fc),
        stop_ns: None,
    };
    assert_eq!(found, expected);
    for len in 0..message.len() {
        let _ = connection::connection(&message[..len]);
    }
}

#[test]
fn a_multipath_route() {
    let message = bytes(
        "02180000 fe030001 00000000 08000f00 fe000000 08000100 c6336400 0c000800 08000200 14050000
         24000900 10000001 03000000 08000500 c0000202 10000000 03000000 08000500 c0000203",
    );
    let hop = |last: u8, weight| Hop {
        oif: Some(3),
        gateway: Some([192, 0, 2, last].into()),
        weight,
        flags: 0,
    };
    let expected = Route {
        family: Family::Ipv4,
        table: 254,
        dst: Prefix {
            addr: [198, 51, 100, 0].into(),
            len: 24,
        },
        src: None,
        tos: 0,
        priority: 0,
        kind: 1,
        protocol: 3,
        scope: 0,
        prefsrc: None,
        nexthop_id: None,
        mtu: Some(1300),
        hops: vec![hop(2, 1), hop(3, 0)],
        special: false,
    };
    assert_eq!(route::route(&message), Some(expected));
    for len in 0..message.len() {
        let _ = route::route(&message[..len]);
    }
}

/// From 192.0.2.9 to 239.1.2.3, from interface 3 to 2 and, with a TTL above 16, to 5.
const MROUTE_IPV4: &str = "
    80202000 fd110005 00000000 08000f00 fd000000 08000200 c0000209 08000100 ef010203 08000300
    03000000 14000900 08000001 02000000 08000010 05000000 1c001100 00000000 00000000 00000000
    00000000 00000000 00000000 0c001700 00000000 00000000";

/// From 2001:db8::9 to ff1e::3, between the same interfaces.
const MROUTE_IPV6: &str = "
    81808000 fe110005 00000000 08000f00 fe000000 14000200 20010db8 00000000 00000000 00000009
    14000100 ff1e0000 00000000 00000000 00000003 08000300 03000000 14000900 08000001 02000000
    08000001 05000000 1c001100 00000000 00000000 00000000 00000000 00000000 00000000 0c001700
    00000000 00000000";

/// From 192.0.2.1 to 239.1.2.4, of which no daemon has said where to.
const MROUTE_UNRESOLVED: &str = "
    80202000 fd110005 20000000 08000f00 fd000000 08000200 c0000201 08000100 ef010204";

#[test]
fn multicast_forwarding() {
    let ip = |text: &str| text.parse().unwrap();
    let oif = |ifindex, ttl| Oif { ifindex, ttl };
    let ipv4 = Mroute {
        src: ip("192.0.2.9"),
        group: ip("239.1.2.3"),
        iif: 3,
        oifs: vec![oif(2, 1), oif(5, 16)],
        table: 253,
    };
    let ipv6 = Mroute {
        src: ip("2001:db8::9"),
        group: ip("ff1e::3"),
        iif: 3,
        oifs: vec![oif(2, 1), oif(5, 1)],
        table: 254,
    };
    let unresolved = Mroute {
        src: ip("192.0.2.1"),
        group: ip("239.1.2.4"),
        iif: 0,
        oifs: Vec::new(),
        table: 253,
    };
    for (hex, expected) in [
        (MROUTE_IPV4, &ipv4),
        (MROUTE_IPV6, &ipv6),
        (MROUTE_UNRESOLVED, &unresolved),
    ] {
        let message = bytes(hex);
        assert_eq!(mroute::mroute(&message).as_ref(), Some(expected));
        assert_eq!(route::route(&message), None);
        for len in 0..message.len() {
            let _ = mroute::mroute(&message[..len]);
        }
    }
    let changed = |offset: usize, byte| {
        let mut message = bytes(MROUTE_IPV4);
        message[offset] = byte;
        mroute::mroute(&message)
    };
    let nowhere = Some(Mroute {
        iif: 0,
        oifs: Vec::new(),
        ..ipv4
    });
    assert_eq!(changed(8, 0x20), nowhere, "unresolved, whatever follows");
    assert_eq!(changed(38, 0x7f), nowhere, "without its interface");
    for (what, offset, byte) in [
        ("a route", 0, 2),
        ("of the other IP version", 0, 129),
        ("without source", 22, 0x7f),
        ("without group", 30, 0x7f),
    ] {
        assert_eq!(changed(offset, byte), None, "{what}");
    }
}
