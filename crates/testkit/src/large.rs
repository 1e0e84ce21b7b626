// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filling a large flow table.

use std::net::{IpAddr, Ipv4Addr};

use freeway_lab::{FlowSpec, Generator, Lab, Load, Proto, Until};

/// Flows that are learned together: few enough for the data plane to remember a first observation of each.
const GROUP: u32 = 2048;
/// Packets of each flow.
const ROUNDS: u64 = 12;
/// Flows of one source address, as the lab counts them.
const FLOWS_PER_BLOCK: u32 = 1 << 15;

/// Sends each flow's packets close together: two observations make a flow.
pub fn learn(lab: &Lab, flows: u32) {
    let all = lab.flows(Proto::Udp, flows, 64);
    let IpAddr::V4(near) = all.near else { panic!() };
    for first in (0..flows).step_by(GROUP as usize) {
        let (block, port) = (first / FLOWS_PER_BLOCK, first % FLOWS_PER_BLOCK);
        let spec = FlowSpec {
            flows: GROUP.min(flows - first),
            near: Ipv4Addr::from(u32::from(near) + block).into(),
            near_port: all.near_port + port as u16,
            far_port: all.far_port + block as u16,
            ..all
        };
        let frames = Until::Frames(ROUNDS * u64::from(spec.flows));
        let generator = Generator::new(lab.client_port(), &spec).unwrap();
        generator
            .run(&Load::paced(frames, 400_000).on_cpu(0))
            .unwrap();
    }
}
