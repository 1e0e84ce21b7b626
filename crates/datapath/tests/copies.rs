// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames to a group: what each port's copy is, and what the kernel's copies teach and confirm.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use freeway_abi::{
    FW_EV_CANDIDATE, FW_EV_CHANGED, FW_NH_OLIST, FW_R_CONFIRMED, FW_R_EPOCH, FW_R_FAST,
    FW_R_LEARN_CHANGED, FW_R_LEARN_COPIES, FW_R_LEARN_ONCE, FW_R_LEARNED, FW_R_MULTICAST,
    FW_R_NEXTHOP, FW_R_REVALIDATE, fw_candidate, fw_tag,
};
use freeway_datapath::DataplaneEvent;
use freeway_datapath::user::Pipeline;
use support::frame::{Frame, address};
use support::router::pipeline;
use support::state::{Flow, Tick};

const OLIST: u32 = 5;
/// Ports, the devices at which their copies leave, and the last octets of their addresses.
const LEGS: [(u32, u32, u8); 3] = [(2, 2, 0xa2), (13, 3, 0xa3), (4, 4, 0xa4)];
const VLAN: u16 = 0x123;

fn flow(v6: bool) -> Flow {
    let group = if v6 {
        [0xff3e, 0, 0, 0, 0, 0, 0, 1].into()
    } else {
        [239, 1, 1, 1].into()
    };
    Flow {
        src: address(v6, [192, 0, 2, 2], 2),
        dst: group,
        dst_mac: "01:00:5e:01:01:01".into(),
        ttl: 64,
        len_max: 1500,
        due: Tick("now+1000000".into()),
        ..Flow::default()
    }
}

/// As the kernel sends it at a port.
fn left(came: &Frame, mac: u8) -> Frame {
    Frame {
        src_mac: format!("02:00:00:00:00:{mac:02x}"),
        ttl: came.ttl - 1,
        ..came.clone()
    }
}

fn set_list(pipeline: &mut Pipeline, flow: &Flow) {
    let legs = LEGS.map(|(port, _, mac)| {
        let mut leg = Flow {
            to_dst_mac: flow.dst_mac.clone(),
            to_src_mac: format!("02:00:00:00:00:{mac:02x}"),
            ..flow.clone()
        }
        .nexthop(0);
        leg.port = port;
        if port != mac_port(port) {
            leg.tag[0] = fw_tag {
                tpid_be: 0x8100u16.to_be(),
                tci_be: VLAN.to_be(),
            };
            (leg.tags_len, leg.outer_len) = (4, 4);
        }
        leg
    });
    let olist = pipeline.olist(OLIST).unwrap();
    olist.count = LEGS.len() as u32;
    for (at, leg) in legs.into_iter().enumerate() {
        olist.device[at] = LEGS[at].1;
        olist.leg[at] = leg;
    }
}

fn mac_port(port: u32) -> u32 {
    LEGS.iter().find(|leg| leg.0 == port).unwrap().1
}

/// With the flow in the table.
fn router(flow: &Flow) -> Pipeline {
    let mut pipeline = pipeline();
    pipeline.control().multicast = 1;
    pipeline.control().deadline_tick = 1_000_000;
    pipeline.set_now(1000);
    set_list(&mut pipeline, flow);
    let mut nexthop = flow.nexthop(OLIST);
    (nexthop.valid, nexthop.port) = (FW_NH_OLIST, 0);
    *pipeline.nexthop(1).unwrap() = nexthop;
    let state = flow.state(1000, 250);
    *pipeline.flow(1).unwrap() = flow.record(1, false, state);
    assert!(pipeline.insert(1));
    pipeline
}

/// What the kernel's copies at these ports taught, one after the other.
fn kernel(pipeline: &mut Pipeline, came: &Frame, ports: &[u32]) -> Vec<u32> {
    let token = pipeline.ingress(&mut came.bytes(), 1, 0);
    assert_ne!(token, 0);
    let teach = |port: &u32| {
        let mac = LEGS
            .iter()
            .find(|leg| leg.0 == *port)
            .map_or(0xff, |leg| leg.2);
        pipeline.egress(&mut left(came, mac).bytes(), *port, 0, token)
    };
    ports.iter().map(teach).collect()
}

const PORTS: [u32; 3] = [2, 13, 4];

#[test]
fn each_port_has_its_copy() {
    for v6 in [false, true] {
        let flow = flow(v6);
        let mut router = router(&flow);
        let came = flow.frame();
        let mut frame = came.bytes();
        let verdict = router.forward(&mut frame, flow.port);
        assert_eq!((verdict.reason, verdict.olist), (FW_R_FAST, OLIST));
        for (port, device, mac) in LEGS {
            let (copy, at) = router.copy(&frame, OLIST, device).unwrap();
            let mut wanted = left(&came, mac).bytes();
            if port != device {
                let tag = [0x81, 0, (VLAN >> 8) as u8, VLAN as u8];
                wanted.splice(12..12, tag);
            }
            assert_eq!((copy, at), (wanted, port), "v6 {v6}");
        }
        assert_eq!(router.copy(&frame, OLIST, 99), None);
        assert_eq!(router.copy(&frame, OLIST + 1, 2), None);
        assert_eq!(router.flow(1).unwrap().state.packets, 1);
        // one write stops it
        router.nexthop(1).unwrap().valid = 0;
        let mut frame = came.bytes();
        let verdict = router.forward(&mut frame, flow.port);
        assert_eq!((verdict.reason, frame), (FW_R_NEXTHOP, came.bytes()));
    }
}

#[test]
fn a_flow_is_confirmed_by_all_of_its_copies() {
    for v6 in [false, true] {
        let flow = flow(v6);
        let came = flow.frame();
        let forward = |router: &mut Pipeline| router.forward(&mut came.bytes(), flow.port).reason;
        let mut router = router(&flow);
        let partly = [FW_R_LEARN_COPIES, FW_R_LEARN_COPIES, FW_R_CONFIRMED];
        assert_eq!(kernel(&mut router, &came, &PORTS), partly);
        assert_eq!(kernel(&mut router, &came, &[4, 2, 13]), partly);
        // a revalidation of which a port had none is a miss
        let state = &mut router.flow(1).unwrap().state;
        (state.due_tick, state.reval_tick) = (1000, 1000);
        assert_eq!(forward(&mut router), FW_R_REVALIDATE);
        assert_eq!(kernel(&mut router, &came, &PORTS[..2]), partly[..2]);
        assert_eq!(router.flow(1).unwrap().state.pending, 1);
        assert_eq!(router.flow(1).unwrap().state.misses, 1);
        assert_eq!(kernel(&mut router, &came, &PORTS), partly);
        assert_eq!(router.flow(1).unwrap().state.pending, 0);
        // one port twice, and one that the flow does not know: the kernel does otherwise, whoever else has one
        for ports in [&[2, 2][..], &[2, 77], &[2, 2, 13, 4], &[2, 77, 13, 4]] {
            let mut router = self::router(&flow);
            let taught = kernel(&mut router, &came, ports);
            assert_eq!(taught[..2], [FW_R_LEARN_COPIES; 2]);
            assert_eq!(forward(&mut router), FW_R_EPOCH, "{ports:?}");
            let taught = kernel(&mut router, &came, &PORTS);
            assert_eq!(taught[2], FW_R_CONFIRMED);
            assert_eq!(forward(&mut router), FW_R_FAST);
        }
        // what a copy carries is proven like any frame
        let mut router = self::router(&flow);
        let token = router.ingress(&mut came.bytes(), 1, 0);
        let mut other = left(&came, LEGS[0].2);
        other.payload_word = Some(0x1234);
        let taught = router.egress(&mut Frame { id: 7, ..other }.bytes(), 2, 0, token);
        assert!(v6 || taught == FW_R_LEARN_CHANGED);
        assert_eq!(forward(&mut router), FW_R_EPOCH);
    }
}

fn taken(pipeline: &mut Pipeline) -> fw_candidate {
    match pipeline.event() {
        Some(DataplaneEvent::Candidate(c)) => *c,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_copies_of_a_packet_are_offered_or_none() {
    for known in [false, true] {
        let flow = flow(false);
        let came = flow.frame();
        let mut router = router(&flow);
        if known {
            // the kernel sends to one port less than the flow says
            router.flow(1).unwrap().state.epoch = 0;
        } else {
            router.remove(1);
        }
        let kind = if known {
            FW_EV_CHANGED
        } else {
            FW_EV_CANDIDATE
        };
        let ports = &PORTS[..2];
        let once = kernel(&mut router, &came, ports);
        assert_eq!(once, [FW_R_LEARN_ONCE, FW_R_LEARN_COPIES]);
        let token = router.ingress(&mut came.bytes(), 1, 0);
        for (number, (port, _, mac)) in LEGS[..2].iter().enumerate() {
            let reason = router.egress(&mut left(&came, *mac).bytes(), *port, 0, token);
            assert!(reason == FW_R_LEARNED || known, "{reason}");
            let c = taken(&mut router);
            assert_eq!((c.ev.kind, c.token, c.port_out), (kind, token, *port));
            assert_eq!(usize::from(c.copy), number);
        }
        // then silence
        assert_eq!(router.ingress(&mut came.bytes(), 1, 0), 0);
    }
}

#[test]
fn what_routers_do_not_copy_gets_no_token() {
    let flow = flow(false);
    let mut router = router(&flow);
    let frame = |dst: [u8; 4]| {
        Frame {
            dst: dst.into(),
            ..flow.frame()
        }
        .bytes()
    };
    let frame6 = |group: u16| {
        let dst = [group, 0, 0, 0, 0, 0, 0, 1].into();
        let src = address(true, [0; 4], 2);
        Frame {
            src,
            dst,
            ..flow.frame()
        }
        .bytes()
    };
    assert_ne!(router.ingress(&mut frame([224, 0, 1, 1]), 1, 0), 0);
    assert_ne!(router.ingress(&mut frame6(0xff05), 1, 0), 0);
    // of a link, or of a host
    assert_eq!(router.ingress(&mut frame([224, 0, 0, 251]), 1, 0), 0);
    assert_eq!(router.ingress(&mut frame6(0xff02), 1, 0), 0);
    assert_eq!(router.ingress(&mut frame6(0xff11), 1, 0), 0);
    // of another protocol
    let tcp = Frame {
        proto: 6,
        ..flow.frame()
    };
    assert_eq!(router.ingress(&mut tcp.bytes(), 1, 0), 0);
    // to a host, by a group's link address
    assert_eq!(router.ingress(&mut frame([198, 51, 100, 2]), 1, 0), 0);
    // and where no multicast is routed
    router.control().multicast = 0;
    assert_eq!(router.ingress(&mut frame([239, 1, 1, 1]), 1, 0), 0);
    let mut unknown = frame([239, 2, 2, 2]);
    assert_eq!(router.forward(&mut unknown, 1).reason, FW_R_MULTICAST);
}
