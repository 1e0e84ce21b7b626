// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was written is what is read.

use std::net::IpAddr;

use freeway_kernel::model::Tuple;
use proptest::prelude::*;

use super::decoder::{Collector, Decoded, number};
use crate::{Counts, Encoder, EndReason, Format, Record};

const NOW_MS: u64 = 1_700_000_123_456;
const BOOT_MS: u64 = NOW_MS - 5_000_000;
const FORMATS: [Format; 3] = [
    Format::Ipfix { biflow: true },
    Format::Ipfix { biflow: false },
    Format::Netflow9,
];

fn address(six: bool) -> BoxedStrategy<IpAddr> {
    match six {
        false => any::<[u8; 4]>().prop_map(IpAddr::from).boxed(),
        true => any::<[u8; 16]>().prop_map(IpAddr::from).boxed(),
    }
}

fn tuple(six: bool, proto: u8) -> impl Strategy<Value = Tuple> {
    let parts = (address(six), address(six), any::<u16>(), any::<u16>());
    parts.prop_map(move |(src, dst, sport, dport)| Tuple {
        src,
        dst,
        proto,
        sport,
        dport,
    })
}

prop_compose! {
    fn record()(
        six in any::<bool>(),
        proto in prop_oneof![Just(6), Just(17), Just(1), Just(47)],
    )(
        orig in tuple(six, proto),
        reply in tuple(six, proto),
        id in any::<u32>(),
        ports in any::<[u32; 2]>(),
        numbers in any::<[u64; 4]>(),
        shapes in any::<[bool; 2]>(),
        started in 0..5_000_000u64,
        reason in prop_oneof![Just(EndReason::Idle), Just(EndReason::Active), Just(EndReason::End)],
    ) -> Record {
        let counts = |dir: usize| Counts { packets: numbers[dir] | 1, octets: numbers[dir + 2] };
        // one direction at least
        let any = |dir: usize| if shapes[dir] || !shapes[1 - dir] { counts(dir) } else { Counts::default() };
        Record {
            orig,
            reply,
            id,
            ports,
            counts: [any(0), any(1)],
            start_ms: BOOT_MS + started,
            end_ms: NOW_MS,
            reason,
        }
    }
}

/// All messages of a session, as small as they may be.
fn send(format: Format, room: usize, records: &[Record], templates_every: usize) -> Collector {
    let mut encoder = Encoder::new(format, 7, room, BOOT_MS);
    let mut collector = Collector::default();
    let mut rest = records;
    while !rest.is_empty() {
        let templates = collector.messages.is_multiple_of(templates_every);
        let (message, taken) = encoder.message(rest, templates, NOW_MS);
        assert!(message.len() <= room && taken > 0, "{}", message.len());
        collector.read(&message);
        rest = &rest[taken..];
    }
    collector
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn sums(records: &[Record]) -> [u64; 2] {
    let counts = records.iter().flat_map(|record| record.counts);
    counts.fold([0, 0], |sum, counts| {
        [
            sum[0].wrapping_add(counts.packets),
            sum[1].wrapping_add(counts.octets),
        ]
    })
}

fn decoded_sums(records: &[Decoded]) -> [u64; 2] {
    let sum = |element| {
        let own = |record: &Decoded| {
            let of = |enterprise| record.get(&(enterprise, element)).map_or(0, |v| number(v));
            of(0).wrapping_add(of(29305))
        };
        records.iter().map(own).fold(0, u64::wrapping_add)
    };
    [sum(2), sum(1)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost(records in prop::collection::vec(record(), 0..60), room in 512..9000usize, every in 1..5usize) {
        for format in FORMATS {
            let collector = send(format, room, &records, every);
            prop_assert_eq!(decoded_sums(&collector.records), sums(&records));
            if format == (Format::Ipfix { biflow: true }) {
                prop_assert_eq!(collector.records.len(), records.len());
            }
        }
    }

    #[test]
    fn a_biflow_says_what_the_record_does(record in record()) {
        let collector = send(Format::Ipfix { biflow: true }, 512, &[record], 1);
        let one = &collector.records[0];
        let get = |element| one[&(0, element)].clone();
        let (addresses, after) = match record.orig.src {
            IpAddr::V4(_) => ([8, 12], [225, 226]),
            IpAddr::V6(_) => ([27, 28], [281, 282]),
        };
        prop_assert_eq!(get(addresses[0]), octets(record.orig.src));
        prop_assert_eq!(get(addresses[1]), octets(record.orig.dst));
        prop_assert_eq!(get(after[0]), octets(record.reply.dst));
        prop_assert_eq!(get(after[1]), octets(record.reply.src));
        if record.orig.has_ports() {
            let wanted = [record.orig.sport, record.orig.dport, record.reply.dport, record.reply.sport];
            prop_assert_eq!([7, 11, 227, 228].map(|e| number(&get(e)) as u16), wanted);
        }
        prop_assert_eq!(number(&get(4)), u64::from(record.orig.proto));
        prop_assert_eq!(number(&get(136)), record.reason as u64);
        prop_assert_eq!(number(&get(152)), record.start_ms);
        prop_assert_eq!(number(&get(153)), record.end_ms);
        prop_assert_eq!(number(&get(148)), u64::from(record.id));
        prop_assert_eq!([10, 14].map(|e| number(&get(e)) as u32), record.ports);
        let counts = [(0, 2), (0, 1), (29305, 2), (29305, 1)].map(|key| number(&one[&key]));
        let [there, back] = record.counts;
        prop_assert_eq!(counts, [there.packets, there.octets, back.packets, back.octets]);
        prop_assert_eq!((collector.domain, collector.seconds), (7, 1_700_000_123));
    }
}

#[test]
fn the_directions_of_netflow9_are_each_others_inverse() {
    let tuple = |src: [u8; 4], sport, dst: [u8; 4], dport| Tuple {
        src: src.into(),
        dst: dst.into(),
        proto: 6,
        sport,
        dport,
    };
    let record = Record {
        orig: tuple([192, 0, 2, 2], 40000, [198, 51, 100, 2], 80),
        reply: tuple([10, 0, 0, 8], 8080, [198, 51, 100, 1], 61000),
        id: 1,
        ports: [3, 4],
        counts: [(5, 500), (7, 7000)].map(|(packets, octets)| Counts { packets, octets }),
        start_ms: NOW_MS - 3456,
        end_ms: NOW_MS - 456,
        reason: EndReason::End,
    };
    let collector = send(Format::Netflow9, 512, &[record], 1);
    let get = |element| {
        let values = collector.records.iter();
        values
            .map(|one| number(&one[&(0, element)]))
            .collect::<Vec<_>>()
    };
    let ip = |address: [u8; 4]| u64::from(u32::from_be_bytes(address));
    assert_eq!(get(8), [ip([192, 0, 2, 2]), ip([10, 0, 0, 8])]);
    assert_eq!(get(12), [ip([198, 51, 100, 2]), ip([198, 51, 100, 1])]);
    assert_eq!(get(225), [ip([198, 51, 100, 1]), ip([198, 51, 100, 2])]);
    assert_eq!(get(226), [ip([10, 0, 0, 8]), ip([192, 0, 2, 2])]);
    assert_eq!(get(7), [40000, 8080]);
    assert_eq!(get(11), [80, 61000]);
    assert_eq!(get(227), [61000, 80]);
    assert_eq!(get(228), [8080, 40000]);
    assert_eq!((get(10), get(14)), (vec![3, 4], vec![4, 3]));
    assert_eq!((get(2), get(1)), (vec![5, 7], vec![500, 7000]));
    // the moment of the header, less its uptime, and what the record says
    let boot = u64::from(collector.seconds) * 1000 - u64::from(collector.uptime_ms);
    assert_eq!(boot + get(22)[0], record.start_ms);
    assert_eq!(boot + get(21)[0], record.end_ms);
}

#[test]
fn sequences_wrap_and_templates_alone_count_as_no_record() {
    for format in FORMATS {
        let mut encoder = Encoder::new(format, 0, 1400, BOOT_MS);
        let mut collector = Collector::default();
        for _ in 0..3 {
            let (message, taken) = encoder.message(&[], true, NOW_MS);
            assert_eq!(taken, 0);
            collector.read(&message);
        }
        assert!(collector.records.is_empty());
    }
}
