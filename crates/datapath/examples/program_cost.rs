// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program time of a hit, from BPF_PROG_TEST_RUN, needing root:
//! `cargo run --release -p freeway-datapath --example program_cost`.
//!
//! Repeated runs see the frame as the last one left it, so the flow's action is
//! the identity: everything is written, nothing changes.

use std::error::Error;
use std::os::fd::{AsRawFd, BorrowedFd};

use freeway_abi::{
    FW_FLOW_CT, FW_FLOW_NAT, FW_KEY_IP6, FW_ST_ACTIVE, fw_flow, fw_key4, fw_nexthop, fw_state,
};
use freeway_datapath::{Datapath, Hook, LoadOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let datapath = Datapath::load(&LoadOptions::default())?;
    let now = datapath.clock.now_tick()?;
    let control = &datapath.control;
    control.set_on(true);
    control.set_epoch(1);
    control.set_deadline(now.wrapping_add(1 << 30));
    let l2 = [2u8, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for (name, v6) in [("IPv4", false), ("IPv6", true)] {
        let frame = frame(&l2, v6);
        let mut l2_in = [0; 14];
        l2_in.copy_from_slice(&frame[..14]);
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
            flow.key.port_proto |= FW_KEY_IP6;
            (flow.key_saddr6_be, flow.saddr6_be) = ([1, 2, 3, 4], [1, 2, 3, 4]);
            (flow.key_daddr6_be, flow.daddr6_be) = ([5, 6, 7, 8], [5, 6, 7, 8]);
        } else {
            (flow.key.saddr_be, flow.saddr_be) = (1, 1);
            (flow.key.daddr_be, flow.daddr_be) = (2, 2);
        }
        assert!(datapath.flows.insert(index, &flow), "the table is empty");
        let costs: Vec<u32> = (0..RUNS)
            .map(|_| run(&datapath, Hook::Xdp, &frame))
            .collect::<Result<_, _>>()?;
        println!(
            "{name}: hit {} ns, {} packets",
            least(&costs),
            datapath.flows.state(index).packets
        );
        let mut miss = frame.clone();
        miss[14 + if v6 { 41 } else { 21 }] ^= 1;
        let costs: Vec<u32> = (0..RUNS)
            .map(|_| run(&datapath, Hook::Xdp, &miss))
            .collect::<Result<_, _>>()?;
        println!("{name}: miss {} ns", least(&costs));
    }
    Ok(())
}

/// The least of many short runs is the one that nothing else disturbed.
const RUNS: usize = 60;

fn least(costs: &[u32]) -> u32 {
    costs.iter().copied().min().unwrap_or(0)
}

fn frame(l2: &[u8; 12], v6: bool) -> Vec<u8> {
    let mut f = l2.to_vec();
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
