// SPDX-License-Identifier: MIT OR Apache-2.0
//! Property tests: no decoder panics, whatever the bytes; what is written is read back.

use std::net::IpAddr;

use proptest::prelude::*;

use crate::cbpf::{self, Ancillary, Instruction, Sketch};
use crate::fuzz::decode;
use crate::message::{Message, messages};
use crate::mirror::dirty::Dirty;
use crate::mirror::state::State;
use crate::model::*;
use crate::nla::{Writer, attrs};

/// Nested attributes of random types: deeper into the decoders than random bytes get.
fn attributes() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop::collection::vec(any::<u8>(), 0..40);
    let leaf = prop_oneof![
        leaf,
        prop::sample::select(vec![
            "vlan",
            "bridge",
            "bond",
            "bpf",
            "cmp",
            "bitwise",
            "payload",
            "lookup",
            "immediate",
            "match",
        ])
        .prop_map(|name| [name.as_bytes(), &[0]].concat()),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop::collection::vec((0u16..48, inner), 0..6).prop_map(|list| {
            let mut writer = Writer::default();
            list.iter()
                .for_each(|(kind, payload)| writer.attr(*kind, payload));
            writer.as_bytes().to_vec()
        })
    })
}

fn header() -> impl Strategy<Value = Vec<u8>> {
    let family = prop::sample::select(vec![0u8, 1, 2, 5, 7, 10, 128, 129]);
    (family, prop::collection::vec(any::<u8>(), 0..24)).prop_map(|(family, mut rest)| {
        rest.insert(0, family);
        rest
    })
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(payload in prop::collection::vec(any::<u8>(), 0..300)) {
        decode(&payload);
        for message in messages(&payload) {
            let _ = message.status();
        }
    }

    #[test]
    fn random_attributes(header in header(), attributes in attributes(), cut in 0usize..400) {
        let mut payload = header;
        payload.extend(attributes);
        decode(&payload);
        payload.truncate(cut);
        decode(&payload);
    }

    #[test]
    fn random_events(events in prop::collection::vec((16u16..120, header(), attributes()), 0..8)) {
        let (mut state, mut dirty, mut out) = (State::default(), Dirty::default(), Vec::new());
        for (kind, mut payload, attributes) in events {
            payload.resize(payload.len().next_multiple_of(4), 0);
            payload.extend(attributes);
            let message = Message { kind, flags: 0, seq: 0, payload: &payload };
            state.apply(&message, &mut dirty, &mut out);
        }
        prop_assert!(crate::mirror::state::difference(&state, &state.clone()).is_empty());
    }

    #[test]
    fn attributes_are_read_back(list in prop::collection::vec((0u16..0x3fff, prop::collection::vec(any::<u8>(), 0..50)), 0..10)) {
        let mut writer = Writer::default();
        writer.nest(7, |writer| list.iter().for_each(|(kind, payload)| writer.attr(*kind, payload)));
        let outer: Vec<_> = attrs(writer.as_bytes()).collect();
        prop_assert_eq!(outer.len(), 1);
        let read: Vec<_> = outer[0].nested().map(|attr| (attr.kind, attr.payload.to_vec())).collect();
        prop_assert_eq!(read, list);
    }

    #[test]
    fn filters_end(
        filter in prop::collection::vec((any::<u16>(), any::<u8>(), any::<u8>(), any::<u32>()), 0..64),
        frame in prop::collection::vec(any::<u8>(), 0..100),
        cooked in any::<bool>(),
    ) {
        let filter: Vec<Instruction> =
            filter.into_iter().map(|(code, jt, jf, k)| Instruction { code: code & 0xff, jt: jt & 7, jf: jf & 7, k }).collect();
        let answer = cbpf::run(&filter, &frame, Ancillary { ifindex: Some(1), packet_type: 0, cooked, cut: 0 });
        // the EtherType is asked for
        prop_assert!(answer.is_some() || frame.len() < 14 || !cbpf::is_whole(&filter));
    }

    #[test]
    fn what_may_be_accepted_is_told_of_a_part(
        filter in prop::collection::vec((any::<u8>(), 0u8..4, 0u8..4, prop_oneof![0u32..40, any::<u32>()]), 1..24),
        frame in prop::collection::vec((any::<u8>(), any::<u8>()), 20..60),
        part in 0usize..60,
        cooked in any::<bool>(),
    ) {
        let filter: Vec<Instruction> =
            filter.into_iter().map(|(code, jt, jf, k)| Instruction { code: code.into(), jt, jf, k }).collect();
        let octets: Vec<u8> = frame.iter().map(|(octet, _)| *octet).collect();
        let mut sketch = Sketch::default();
        frame.iter().take(part).for_each(|(octet, known)| sketch.put_bits(*octet, *known));
        let ancillary = Ancillary { ifindex: Some(1), packet_type: 4, cooked, cut: 0 };
        let accepted = cbpf::run(&filter, &octets, ancillary).is_none_or(|accepted| accepted > 0);
        prop_assert!(!accepted || cbpf::may_accept(&filter, &sketch, ancillary));
    }

    #[test]
    fn prefixes_hold_by_bits(net in address(), ip in address(), len in 0u8..=130) {
        let held = Prefix { addr: net, len }.contains(ip);
        let bits = |ip: IpAddr| -> Vec<bool> {
            let bytes = match ip { IpAddr::V4(ip) => ip.octets().to_vec(), IpAddr::V6(ip) => ip.octets().to_vec() };
            bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 != 0)).collect()
        };
        let (net_bits, ip_bits) = (bits(net), bits(ip));
        let len = usize::from(len).min(net_bits.len());
        prop_assert_eq!(held, net_bits.len() == ip_bits.len() && net_bits[..len] == ip_bits[..len]);
        let whole = Prefix { addr: ip, len: 255 };
        prop_assert!(whole.contains(ip));
    }
}
