// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs cost, and what load-time constants save, from BPF_PROG_TEST_RUN, needing root:
//! `cargo run --release -p freeway-datapath --example program_cost`.
//!
//! Repeated runs see the frame as the last one left it, so the flow's action is
//! the identity: everything is written, nothing changes.

use std::error::Error;
use std::os::fd::{AsRawFd, BorrowedFd};

use freeway_abi::{
    FW_FLOW_CT, FW_FLOW_NAT, FW_KEY_IP6, FW_R_ICMP, FW_ST_ACTIVE, fw_flow, fw_key4, fw_nexthop,
    fw_state,
};
use freeway_datapath::{Datapath, Hook, LoadOptions};

/// What runs: a program and the frame that it sees.
type Case = (&'static str, Hook, Vec<u8>);

fn main() -> Result<(), Box<dyn Error>> {
    let limits = |packets_per_s| LoadOptions {
        limits: [(FW_R_ICMP, packets_per_s)].into(),
        ..LoadOptions::default()
    };
    let variants = [
        ("as the daemon loads them", LoadOptions::default()),
        (
            "without conntrack",
            LoadOptions {
                conntrack: false,
                ..LoadOptions::default()
            },
        ),
        ("ICMP limited, not reached", limits(u32::MAX)),
        ("ICMP limited, exceeded", limits(1)),
    ];
    let mut loaded = Vec::new();
    for (name, options) in &variants {
        let datapath = Datapath::load(options)?;
        prepare(&datapath)?;
        loaded.push((name, datapath));
    }
    let cases = cases();
    let mut costs = vec![vec![Vec::new(); cases.len()]; loaded.len()];
    // by turns, so that the machine's speed is the same for all
    for _ in 0..RUNS {
        for ((_, datapath), costs) in loaded.iter().zip(&mut costs) {
            for ((_, hook, frame), costs) in cases.iter().zip(costs) {
                costs.push(run(datapath, *hook, frame)?);
            }
        }
    }
    println!("ns for one run, the least and the median of {RUNS}\n");
    print!("{:28}", "");
    for (what, ..) in &cases {
        print!("{what:>17}");
    }
    println!();
    for ((name, _), costs) in loaded.iter().zip(&mut costs) {
        print!("{name:28}");
        for costs in costs {
            costs.sort_unstable();
            print!("{:>12} {:>4}", costs[0], costs[RUNS / 2]);
        }
        println!();
    }
    println!("\ninstructions, bytes of machine code, instructions that the verifier looked at\n");
    for (name, datapath) in &loaded {
        print!("{name:28}");
        for (what, hook) in [
            ("XDP", Hook::Xdp),
            ("tc ingress", Hook::Ingress),
            ("tc egress", Hook::Egress),
        ] {
            let size = datapath.size(hook)?;
            print!(
                "  {what} {:>5} {:>6} {:>6}",
                size.instructions, size.native_bytes, size.verified
            );
        }
        println!();
    }
    Ok(())
}

/// Hits, misses, and a punt that is named while parsing.
fn cases() -> Vec<Case> {
    let miss = |v6| {
        let mut frame = frame(v6);
        frame[14 + if v6 { 41 } else { 21 }] ^= 1;
        frame
    };
    let mut icmp = frame(true);
    icmp[14 + 6] = 58;
    vec![
        ("IPv4 hit", Hook::Xdp, frame(false)),
        ("IPv6 hit", Hook::Xdp, frame(true)),
        ("IPv4 miss", Hook::Xdp, miss(false)),
        ("IPv6 miss", Hook::Xdp, miss(true)),
        ("ICMPv6", Hook::Xdp, icmp),
        ("tc, IPv4 miss", Hook::Ingress, miss(false)),
    ]
}

/// Switches on, and enters a flow for each IP version.
fn prepare(datapath: &Datapath) -> Result<(), Box<dyn Error>> {
    let now = datapath.clock.now_tick()?;
    let control = &datapath.control;
    control.set_on(true);
    control.set_learn(1);
    control.set_epoch(1);
    control.set_deadline(now.wrapping_add(1 << 30));
    for v6 in [false, true] {
        let mut l2_in = [0; 14];
        l2_in.copy_from_slice(&frame(v6)[..14]);
        let index = 1 + u32::from(v6);
        let mut nexthop = fw_nexthop {
            valid: 1,
            port: 1,
            l2_len: 14,
            ..Default::default()
        };
        nexthop.l2[..14].copy_from_slice(&l2_in);
        datapath.nexthops.set(index, nexthop);
        let mut flow = fw_flow {
            key: fw_key4 {
                sport_be: 1000u16.to_be(),
                dport_be: 2000u16.to_be(),
                port_proto: 1 << 8 | 17,
                ..Default::default()
            },
            l2_in,
            version_ihl: 0x45,
            proto: 17,
            ttl_in: 64,
            ttl_out: 64,
            flags: (FW_FLOW_NAT | FW_FLOW_CT) as u8,
            nexthop: index,
            sport_be: 1000u16.to_be(),
            dport_be: 2000u16.to_be(),
            l3_delta: 0xffff,
            l4_delta: 0xffff,
            state: fw_state {
                status: FW_ST_ACTIVE,
                epoch: 1,
                len_max: 1500,
                due_tick: now.wrapping_add(1 << 30),
                reval_tick: now.wrapping_add(1 << 30),
                ..Default::default()
            },
            ..Default::default()
        };
        if v6 {
            flow.word0_in_be = (6u32 << 28).to_be();
            flow.key.port_proto |= FW_KEY_IP6;
            (flow.key_saddr6_be, flow.saddr6_be) = ([1, 2, 3, 4], [1, 2, 3, 4]);
            (flow.key_daddr6_be, flow.daddr6_be) = ([5, 6, 7, 8], [5, 6, 7, 8]);
        } else {
            (flow.key.saddr_be, flow.saddr_be) = (1, 1);
            (flow.key.daddr_be, flow.daddr_be) = (2, 2);
        }
        assert!(datapath.flows.insert(index, &flow), "the table is empty");
    }
    Ok(())
}

/// Short ones, of which the least is one that nothing else disturbed.
const RUNS: usize = 60;

fn frame(v6: bool) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let udp = |f: &mut Vec<u8>, len: u16| {
        for word in [1000u16, 2000, len, 0x1234] {
            f.extend(word.to_be_bytes());
        }
        f.resize(f.len() + usize::from(len) - 8, 0);
    };
    if v6 {
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, 17, 64]);
        for word in [1u32, 2, 3, 4, 5, 6, 7, 8] {
            f.extend(word.to_ne_bytes());
        }
        udp(&mut f, 26);
        return f;
    }
    let mut ip = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    ip.extend(1u32.to_ne_bytes());
    ip.extend(2u32.to_ne_bytes());
    let sum: u32 = ip
        .chunks_exact(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    f.extend([8, 0]);
    f.extend(ip);
    udp(&mut f, 26);
    f
}

/// ns for one run of the program.
fn run(datapath: &Datapath, hook: Hook, frame: &[u8]) -> Result<u32, Box<dyn Error>> {
    let prog = datapath.prog(hook)?;
    let fd: BorrowedFd<'_> = std::os::fd::AsFd::as_fd(&prog);
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: 100_000,
        ..Default::default()
    };
    // SAFETY: the frame outlives the call, and nothing is written back.
    match unsafe { libbpf_sys::bpf_prog_test_run_opts(fd.as_raw_fd(), &mut opts) } {
        0 => Ok(opts.duration),
        e => Err(std::io::Error::from_raw_os_error(-e).into()),
    }
}
