// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds a port to a rate, for `freeway bench shaper`.

use clap::ValueEnum;
use freeway_lab::{Lab, LabError, SlowPort};
use freeway_rig::iperf::Writes;

use crate::cli::Discipline;

/// Of the packets of the first class.
pub const MARK: u32 = 7;
/// Shares of the rate that htb's classes have, percent.
const HTB_SHARES: [u32; 2] = [60, 40];
/// Share that the first class asks for where it goes ahead, percent.
const AHEAD_SHARE: u32 = 40;
/// Queues hold so much of their rate, and some merged packets.
const QUEUE_MS: u32 = 20;
const QUEUE_BYTES_MIN: u32 = 100_000;
/// In the one queue before a ring.
const QUEUE_PACKETS: u32 = 100;
/// What tbf and the policer let pass at once; a merged packet is shorter.
const BURST_BYTES: u32 = 100_000;
/// DSCP and ECN bits.
const AF11: u8 = 0x28;
const CS1: u8 = 0x20;
/// Of a paced stream.
const WRITE_BYTES: u32 = 1250;

/// As the command line has it.
pub fn name(discipline: Discipline) -> String {
    let value = discipline.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().replace('-', "_"))
}

/// True if each class has its own share.
pub fn has_shares(discipline: Discipline) -> bool {
    !matches!(
        discipline,
        Discipline::Tbf | Discipline::Police | Discipline::Ring
    )
}

/// Type of service of the second class.
pub fn tos(discipline: Discipline) -> u8 {
    match discipline {
        Discipline::Cake => CS1,
        _ => AF11,
    }
}

/// How each stream of the first class is paced, of which the port could carry so much; as fast as it can if by nothing.
pub fn writes(discipline: Discipline, mbit: u32) -> Option<Writes> {
    (discipline == Discipline::Prio).then(|| Writes {
        bytes: WRITE_BYTES,
        per_s: (mbit * 1_000_000 / 8 * AHEAD_SHARE / 100 / WRITE_BYTES).max(1),
    })
}

/// What makes it so.
pub fn install(
    discipline: Discipline,
    lab: &Lab,
    rate_mbit: u32,
) -> Result<Option<SlowPort>, LabError> {
    let ports = [lab.lan_port(), lab.wan_port()].map(|port| port.name.as_str());
    let batch = |commands: &str| lab.router().tool_with_input("tc -batch -", commands);
    let installed = batch(&commands(discipline, ports, rate_mbit));
    if discipline != Discipline::Ring {
        return installed.map(|_| None);
    }
    let [_, output] = ports;
    let one = format!("qdisc add dev {output} root pfifo limit {QUEUE_PACKETS}\n");
    installed.or_else(|_| batch(&one))?;
    freeway_rig::poll_by_threads(lab)?;
    SlowPort::attach(lab.server_port(), u64::from(rate_mbit) * 1_000_000).map(Some)
}

/// As `tc -batch` reads it; `ports` are those of the input and the output.
fn commands(discipline: Discipline, ports: [&str; 2], rate_mbit: u32) -> String {
    let [input, output] = ports;
    // by bytes: a packet may be a merged one of any size, and a queue of packets as long as that
    let limit = |percent: u32| (rate_mbit * percent / 100 * QUEUE_MS * 125).max(QUEUE_BYTES_MIN);
    let tbf = format!(
        "qdisc add dev {output} root handle 1: tbf rate {rate_mbit}mbit burst {BURST_BYTES} limit {}\n",
        limit(100)
    );
    match discipline {
        Discipline::Htb => htb(output, rate_mbit, limit),
        Discipline::Tbf => tbf,
        Discipline::Cake => {
            format!("qdisc add dev {output} root cake bandwidth {rate_mbit}mbit diffserv4\n")
        }
        Discipline::FqCodel => {
            tbf + &format!("qdisc add dev {output} parent 1:1 handle 10: fq_codel\n")
        }
        Discipline::Prio => {
            let queues = (1..=2).map(|band| {
                let limit = limit(100);
                format!("qdisc add dev {output} parent 10:{band} bfifo limit {limit}\n")
            });
            let bands = format!(
                "qdisc add dev {output} parent 1:1 handle 10: prio bands 2 priomap{}\n",
                " 1".repeat(16)
            );
            let ahead = format!(
                "filter add dev {output} parent 10: protocol ip prio 1 handle {MARK} fw classid 10:1\n"
            );
            tbf + &bands + &queues.collect::<String>() + &ahead
        }
        Discipline::Ring => format!("qdisc add dev {output} root fq_codel\n"),
        Discipline::Police => format!(
            "qdisc add dev {input} ingress\n\
             filter add dev {input} ingress protocol ip prio 1 matchall \
             action police rate {rate_mbit}mbit burst {BURST_BYTES} mtu 65535 conform-exceed drop\n"
        ),
    }
}

/// htb with two classes. The BPF program: `A = skb->mark; A == 7 ? 1:10 : no match`.
fn htb(port: &str, rate_mbit: u32, limit: impl Fn(u32) -> u32) -> String {
    let [marked, by_dscp] = HTB_SHARES;
    let part = |percent: u32| rate_mbit * percent / 100;
    format!(
        "qdisc add dev {port} root handle 1: htb default 20\n\
         class add dev {port} parent 1: classid 1:1 htb rate {rate_mbit}mbit\n\
         class add dev {port} parent 1:1 classid 1:10 htb rate {}mbit ceil {rate_mbit}mbit\n\
         class add dev {port} parent 1:1 classid 1:20 htb rate {}mbit ceil {rate_mbit}mbit\n\
         qdisc add dev {port} parent 1:10 handle 10: bfifo limit {}\n\
         qdisc add dev {port} parent 1:20 handle 20: bfifo limit {}\n\
         filter add dev {port} parent 1: protocol ip prio 1 bpf bytecode \
         \"4,32 0 0 4294963220,21 0 1 {MARK},6 0 0 65552,6 0 0 0\" classid 1:10\n\
         filter add dev {port} parent 1: protocol ip prio 2 u32 match ip dsfield {AF11:#x} 0xfc classid 1:20\n",
        part(marked),
        part(by_dscp),
        limit(marked),
        limit(by_dscp)
    )
}
