// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a hit costs in traffic, beside a bare redirect, without daemon or learning, needing root:
//! `cargo run --release -p freeway --example hit_cost -- [routed|routed6] [FLOWS] [ROUNDS] [CPU]`.
//!
//! Flows are entered by hand; their action writes everything and changes only the MAC addresses.
//! Samples are short and interleaved, and time is the CPU's, so that other work on the machine
//! disturbs little.

mod support;

use std::error::Error;
use std::net::IpAddr;

use freeway_abi::{
    FW_FLOW_CT, FW_FLOW_NAT, FW_KEY_IP6, FW_ST_ACTIVE, fw_flow, fw_key4, fw_nexthop, fw_state,
};
use freeway_datapath::{Datapath, FLOWS_MAX, Hook, LoadOptions};
use freeway_lab::{Lab, Options, Proto, Reference, measure, measure_reference};
use support::{Words, cost};

const FAR_FUTURE: u32 = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    freeway_lab::signal::cleanup_on_signal()?;
    let Words {
        topology,
        rounds,
        spec,
    } = Words::read("routed", 60)?;
    let flows = spec.flows;
    let lab = Lab::build(topology, Options::default())?;
    // the lab enters its namespaces by threads of its own
    let router = std::fs::File::open(lab.router().path())?;
    nix::sched::setns(router, nix::sched::CloneFlags::CLONE_NEWNET)?;
    let datapath = Datapath::load(&LoadOptions {
        flows: (flows * 2 + 1024).min(FLOWS_MAX),
        ..LoadOptions::default()
    })?;
    enter_flows(&datapath, &lab, flows)?;
    datapath.set_port(0, lab.wan_port().ifindex)?;
    let mut samples: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        samples[0].push(cost(measure_reference(&lab, &spec, Reference::XdpDrop)?));
        samples[1].push(cost(measure_reference(
            &lab,
            &spec,
            Reference::XdpRedirect,
        )?));
        let attached = datapath.attach(lab.lan_port().ifindex, Hook::Xdp)?;
        samples[2].push(cost(measure(&lab, &spec)?));
        drop(attached);
    }
    for (name, values) in ["drop", "redirect", "hit"].iter().zip(&mut samples) {
        values.sort_by(f64::total_cmp);
        println!(
            "{name:>9}: median {:6.1} ns, lowest tenth {:6.1}, least {:6.1}",
            values[values.len() / 2],
            values[values.len() / 10],
            values[0]
        );
    }
    let fast: u64 = (1..=flows).map(|i| datapath.flows.state(i).packets).sum();
    let over = |at: usize| (samples[2][at] - samples[0][at]) / (samples[1][at] - samples[0][at]);
    let count = samples[0].len();
    println!(
        "over redirect: medians {:.2}, lowest tenths {:.2}, least {:.2}; {fast} fast packets",
        over(count / 2),
        over(count / 10),
        over(0)
    );
    Ok(())
}

fn enter_flows(datapath: &Datapath, lab: &Lab, flows: u32) -> Result<(), Box<dyn Error>> {
    let now = datapath.clock.now_tick()?;
    datapath.control.set_on(true);
    datapath.control.set_epoch(1);
    datapath.control.set_deadline(now.wrapping_add(FAR_FUTURE));
    let spec = lab.flows(Proto::Udp, flows, 64);
    let mut nexthop = fw_nexthop {
        valid: 1,
        port: lab.wan_port().ifindex,
        l2_len: 14,
        ..Default::default()
    };
    let first = spec.frame(0, 0);
    nexthop.l2[..6].copy_from_slice(&lab.server_port().mac);
    nexthop.l2[6..12].copy_from_slice(&lab.wan_port().mac);
    nexthop.l2[12..14].copy_from_slice(&first[12..14]);
    datapath.nexthops.set(1, nexthop);
    for number in 0..flows {
        let (source, destination) = spec.tuple(number);
        let mut flow = fw_flow {
            key: fw_key4 {
                sport_be: source.port().to_be(),
                dport_be: destination.port().to_be(),
                port_proto: lab.lan_port().ifindex << 8 | 17,
                ..Default::default()
            },
            version_ihl: 0x45,
            proto: 17,
            ttl_in: spec.ttl,
            ttl_out: spec.ttl,
            flags: (FW_FLOW_NAT | FW_FLOW_CT) as u8,
            nexthop: 1,
            sport_be: source.port().to_be(),
            dport_be: destination.port().to_be(),
            l3_delta: 0xffff,
            l4_delta: 0xffff,
            state: fw_state {
                status: FW_ST_ACTIVE,
                epoch: 1,
                len_max: 1500,
                due_tick: now.wrapping_add(FAR_FUTURE),
                reval_tick: now.wrapping_add(FAR_FUTURE),
                ..Default::default()
            },
            ..Default::default()
        };
        flow.l2_in.copy_from_slice(&first[..14]);
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let (source, destination) =
                    (u32::from(source).to_be(), u32::from(destination).to_be());
                (flow.key.saddr_be, flow.saddr_be) = (source, source);
                (flow.key.daddr_be, flow.daddr_be) = (destination, destination);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                flow.key.port_proto |= FW_KEY_IP6;
                let words = |ip: std::net::Ipv6Addr| {
                    let octets = ip.octets();
                    std::array::from_fn(|i| {
                        u32::from_ne_bytes([
                            octets[4 * i],
                            octets[4 * i + 1],
                            octets[4 * i + 2],
                            octets[4 * i + 3],
                        ])
                    })
                };
                (flow.key_saddr6_be, flow.saddr6_be) = (words(source), words(source));
                (flow.key_daddr6_be, flow.daddr6_be) = (words(destination), words(destination));
            }
            _ => return Err("mixed address families".into()),
        }
        if !datapath.flows.insert(number + 1, &flow) {
            return Err("the table is full".into());
        }
    }
    Ok(())
}
