// SPDX-License-Identifier: MIT OR Apache-2.0
//! A slow, obvious router, and a native pipeline that learns from it.

use std::net::IpAddr;

use freeway_abi::{FW_R_LEARN_ONCE, FW_R_LEARNED, FW_ST_ACTIVE, fw_conn, fw_tuple, words_of};
use freeway_cmm::{Around, Fitness, Manager, Op, Port, Served, Settings};
use freeway_datapath::DataplaneEvent;
use freeway_datapath::user::Pipeline;

use super::frame::Frame;

/// Ticks are about to wrap.
pub const NOW: u32 = 0xffff_ff00;

/// An empty pipeline whose clock stands at [`NOW`].
pub fn pipeline() -> Pipeline {
    let mut pipeline = Pipeline::new(64, 16).unwrap();
    pipeline.set_now(NOW);
    pipeline.control().deadline_tick = NOW.wrapping_add(1 << 20);
    pipeline
}

pub fn tuple(f: &Frame) -> fw_tuple {
    fw_tuple {
        saddr_be: words_of(f.src),
        daddr_be: words_of(f.dst),
        sport_be: f.sport.to_be(),
        dport_be: f.dport.to_be(),
    }
}

/// What a connection has of a tuple: of ESP and GRE no more than addresses.
pub fn tracked(t: fw_tuple, proto: u8) -> fw_tuple {
    match proto {
        47 | 50 => fw_tuple {
            sport_be: 0,
            dport_be: 0,
            ..t
        },
        _ => t,
    }
}

/// The answer to a tuple, as a connection has it.
pub fn inverse(t: fw_tuple, proto: u8) -> fw_tuple {
    let (sport_be, dport_be) = match proto {
        1 => (t.sport_be, t.dport_be ^ 0x0800u16.to_be()),
        58 => (t.sport_be, t.dport_be ^ 0x0100u16.to_be()),
        _ => (t.dport_be, t.sport_be),
    };
    let t = fw_tuple {
        saddr_be: t.daddr_be,
        daddr_be: t.saddr_be,
        sport_be,
        dport_be,
    };
    tracked(t, proto)
}

/// What a router does to every packet of a flow.
#[derive(Clone, Debug)]
pub struct Router {
    pub to: (IpAddr, u16, IpAddr, u16),
    /// The DSCP that leaves, if the router sets one.
    pub tos: Option<u8>,
}

impl Router {
    pub fn route(&self, f: &Frame) -> Frame {
        let (src, sport, dst, dport) = self.to;
        Frame {
            dst_mac: "02:00:00:00:00:04".into(),
            src_mac: "02:00:00:00:00:03".into(),
            src,
            sport,
            dst,
            dport,
            ttl: f.ttl - 1,
            tos: self.tos.map_or(f.tos, |dscp| dscp << 2 | f.tos & 3),
            padding: 0,
            ..f.clone()
        }
    }
}

/// What conntrack has of an established connection whose first packet came and left like this.
pub fn connection(came: &Frame, left: &Frame) -> fw_conn {
    fw_conn {
        orig: tracked(tuple(came), came.proto),
        reply: inverse(tuple(left), came.proto),
        status: 0xe,
        timeout_ticks: 100_000,
        present: 1,
        tcp_state: 3,
        ..Default::default()
    }
}

/// A manager of ports 1 to 3, without rules, a tick before [`NOW`].
pub fn manager() -> Manager {
    let before = NOW.wrapping_sub(1);
    let mut manager = Manager::new(Settings::default());
    let mut ops = Vec::new();
    for ifindex in [1, 2, 3] {
        let (slot, mtu, mac) = (ifindex, 9000, None);
        let port = Port {
            ifindex,
            slot,
            mtu,
            mac,
            device: ifindex,
            framing: Default::default(),
            by_station: false,
            engine: Served::No,
            classes: None,
            vrf: 0,
            xdp: Fitness::FULL,
            tc: Fitness::default(),
        };
        manager.set_port(port, before, &mut ops);
    }
    manager.set_ruleset(Vec::new(), Vec::new(), before, &mut ops);
    manager
}

/// Two packets through the slow path, and the flow enters the table.
pub fn learn(pipeline: &mut Pipeline, came: &Frame, router: &Router) {
    let left = router.route(came);
    pipeline.set_conn(&connection(came, &left));
    learn_pair(pipeline, (1, &came.bytes()), (2, &left.bytes()));
}

/// The same of frames as they are, with the ports where they came and left.
pub fn learn_pair(pipeline: &mut Pipeline, came: (u32, &[u8]), left: (u32, &[u8])) {
    for expected in [FW_R_LEARN_ONCE, FW_R_LEARNED] {
        let token = pipeline.ingress(&mut came.1.to_vec(), came.0, 0);
        assert_ne!(token, 0, "{came:02x?}");
        let reason = pipeline.egress(&mut left.1.to_vec(), left.0, 0, token);
        assert_eq!(reason, expected, "{came:02x?}\n{left:02x?}");
    }
    let Some(DataplaneEvent::Candidate(c)) = pipeline.event() else {
        panic!("no candidate")
    };
    let mut manager = manager();
    let mut ops = Vec::new();
    manager.candidate(&c, Around::PLAIN, NOW, &mut ops);
    for op in ops {
        match op {
            Op::SetNexthop { index, nexthop } => *pipeline.nexthop(index).unwrap() = *nexthop,
            Op::InsertFlow {
                index, flow, kept, ..
            } => {
                *pipeline.kept(index).unwrap() = kept;
                let to = pipeline.flow(index).unwrap();
                *to = *flow;
                to.state.status = FW_ST_ACTIVE;
                assert!(pipeline.insert(index));
            }
            _ => {}
        }
    }
}
