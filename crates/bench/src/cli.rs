// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one definition of `freeway bench`: parser, help, man pages and completions come from it.

mod compare;
mod drop;
mod dut;
mod engine;
mod flood;
mod imx8;
mod lookup;
mod multicast;
mod qos;
mod replay;
mod report;
mod rfc2544;
mod rfc9693;
mod seconds;
mod stream;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use freeway_console::EXIT_CODES;

pub use compare::{ByFlowsArgs, CompareArgs, KirkwoodArgs, Scenario};
pub use drop::DropArgs;
pub use dut::{GeneratorArgs, LoadArgs, LoopArgs, SinkArgs};
pub use engine::{EngineArgs, Order};
pub use flood::{FloodArgs, FloodKind, SetupArgs};
pub use imx8::Imx8Args;
pub use lookup::LookupArgs;
pub use multicast::MulticastArgs;
pub use qos::QosArgs;
pub use replay::ReplayArgs;
pub use report::{DiffArgs, ReportArgs};
pub use rfc2544::{Rfc2544Args, Rfc2544Scenario};
pub use rfc9693::Rfc9693Args;
pub use stream::{BulkArgs, Discipline, ShaperArgs};

/// Measure
///
/// Most commands build routers from network namespaces, have the kernel and Freeway forward the same frames by turns, and
/// remove everything again. `loop`, `generator` and `sink` measure a router of any make. These need no root: `diff`,
/// `lookup`, `report --from`, `engine` without --flood, and `qos`, which leaves out the kernel's htb then.
#[derive(Debug, Parser)]
#[command(name = "freeway-bench", bin_name = "freeway bench", version, max_term_width = 100, after_help = EXIT_CODES)]
#[command(
    subcommand_required = true,
    arg_required_else_help = false,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to measure.
    #[command(subcommand)]
    pub command: Command,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare the kernel, Freeway and other fast paths on the same frames
    ///
    /// Kernel and Freeway alternate in each run, and with them others as far as the scenario and the kernel allow: the kernel
    /// with conntrack, without it, without what the scenario adds to it, nf_flowtable, and the kernel's FIB and an LPM trie
    /// from XDP; a bare XDP redirect and an XDP drop are the limits. The kernel is measured without any program of Freeway attached.
    /// Figures are medians, in nanoseconds for each frame net of the generator (source_ns), rates are gross.
    Compare(CompareArgs),
    /// Count new connections that become fast in a second, and how soon
    ///
    /// Each connection is a UDP one with five packets both ways: one, a pause of 2.2 seconds after which the kernel
    /// calls it assured, and four, 20 ms apart. A rate holds if 99 % of the connections are fast in both directions
    /// when their packets end. The time to fast is measured at a tenth of the rate.
    Setup(SetupArgs),
    /// Measure established fast flows while new tuples flood the same port
    ///
    /// The flood comes at the rate at which the kernel alone takes new tuples, as SYN and as UDP, accepted and dropped
    /// by rule. Compared with the time before it is what a hit takes in the program; compared with the kernel alone
    /// what is lost of the established flows' frames.
    Flood(FloodArgs),
    /// Measure what dropping a flood costs: iptables, nftables, Freeway and a bare XDP drop
    ///
    /// SYNs from banned sources, one after the other: nanoseconds of the router's CPU (threaded NAPI) for each frame,
    /// by the number of addresses in the set. iptables in FORWARD, by a set of ipset and by one rule for a prefix with
    /// all of them, a set of nftables in prerouting and at the ingress of the port, the same with Freeway, and a program
    /// that drops everything, by turns.
    Drop(DropArgs),
    /// Measure what TCP in frames of a wire costs the router
    ///
    /// Bytes that leave for each second of CPU that the threads of the router's ports take (threaded NAPI): through
    /// the kernel, through Freeway as it chooses, and through Freeway in tc.
    Bulk(BulkArgs),
    /// Compare a shaped port with and without Freeway
    ///
    /// TCP in two classes, one by mark and one by DSCP, more than they may have, and datagrams that ask for their
    /// round-trip time: rates and latencies of the kernel, of a second kernel, and of Freeway, by turns.
    Shaper(ShaperArgs),
    /// Measure the combinations of NXP's i.MX 8 "Fast Packet Routing": kernel, nf_flowtable and Freeway
    ///
    /// Full size frames in 16 rows: IPv4 and IPv6, TCP and UDP, either direction, plain and with a VLAN on the LAN and
    /// masquerade on the WAN. What a frame costs one CPU, net of the generator; payload that one CPU forwards at that
    /// cost; and the share of a CPU that a full 1 Gb/s link takes. With --duplex also both directions at once, and
    /// whether one CPU carries a link that is full both ways.
    Imx8(Imx8Args),
    /// Compare kernel and Freeway as Marvell's Kirkwood NFP was measured: TCP and UDP, packets of 1,400 bytes
    ///
    /// Masquerade and a stateful firewall; established connections whose frames come in turn. What a frame costs one CPU,
    /// net of the generator, and the kernel's cost over Freeway's beside what the source gained by its fast path.
    Kirkwood(KirkwoodArgs),
    /// Measure what a frame costs by how many flows there are
    ///
    /// `compare` with different numbers of flows, one after the other, in routers and with a daemon that have the greatest
    /// number's connections from the start: the kernel, Freeway and a bare XDP redirect, net of the generator.
    Flows(ByFlowsArgs),
    /// Measure what a copy of a multicast frame costs the router
    ///
    /// One source and as many receivers as asked for, each at a port of its own; IPv4 and IPv6, small UDP frames. The
    /// CPU time of the threads of the router's ports (threaded NAPI) for each copy that reached a receiver: the kernel
    /// alone, with Freeway, and a bare XDP broadcast, by turns. Fails if a receiver's copies are not as many as the router's frames.
    Multicast(MulticastArgs),
    /// Measure throughput, loss, bursts and latency as RFC 2544 and its successors do
    ///
    /// Frames from one CPU through a router on another, the kernel and Freeway by turns. By frame size: NDR and PDR by
    /// MLRsearch (RFC 9971), loss above them, the forwarding rate when the generator sends all it can (RFC 2889), back-to-back
    /// frames (RFC 9004), one-way latency at no load and at 10, 50 and 90 % of the PDR, and at these loads and at 1 Gb/s the CPU
    /// that a loop of the lowest priority does not get. What the generator can do by itself is measured first; a rate within 5 % of that is told as "at least", and is no result.
    #[command(after_help = rfc2544::RFC2544_HELP)]
    Rfc2544(Rfc2544Args),
    /// Measure a router of any make that is cabled between two ports of this host
    ///
    /// Throughput (NDR and PDR by MLRsearch, RFC 9971), loss above it, the forwarding rate when all is sent that can be (RFC 2889),
    /// and one-way latency at no load and at 10, 50 and 90 % of the PDR, by frame size. UDP, in one direction: from the port
    /// --out, through the router, to an address of the port --in. Other traffic of the two ports stays the kernel's.
    #[command(after_help = dut::LOOP_HELP)]
    Loop(LoopArgs),
    /// Measure a router of any make that is between this host and another, where a sink runs
    ///
    /// As `loop`, but frames are counted by `freeway bench sink` on the other host, which is asked over TCP. There is no
    /// latency, for the clocks of two hosts differ.
    #[command(after_help = dut::GENERATOR_HELP)]
    Generator(GeneratorArgs),
    /// Count at this host what a generator on another sends through a router
    ///
    /// Takes one generator at a time, and counts and drops the UDP frames that it announces; all other frames of the port stay
    /// the kernel's. Ends at SIGTERM, SIGINT, SIGHUP. Who reaches the control port can use it: it has no passwords.
    #[command(after_help = dut::SINK_HELP)]
    Sink(SinkArgs),
    /// Measure stateful NAT as RFC 9693 does: new connections, their tear-down, and how many there can be
    ///
    /// Masquerade and a stateful firewall, the kernel and Freeway by turns, UDP frames from one CPU through a router on another. The
    /// maximum connection establishment rate by bisection: a frame of each connection, all of which have to arrive, and one
    /// back through each. The tear-down rate: how soon a full table is empty, and Freeway's, too. The capacity: the most
    /// connections of which none is missing. What the generator can do by itself is measured first; a rate that it limited is told as "at least".
    #[command(after_help = rfc9693::RFC9693_HELP)]
    Rfc9693(Rfc9693Args),
    /// Measure a worker of the engine between rings: frames a second, cycles a frame, latency
    ///
    /// Runs the program freeway-engine, which is looked for beside this program, then in PATH. A generator on one CPU fills a
    /// ring with small frames of established flows, source NAT; one worker on another forwards them to a second ring. A
    /// MAC swap between the same rings is the limit, by turns with it. Frames that arrive are compared with what is
    /// expected, by sample, and every frame is accounted for. Latencies are at no load, and at 10, 50 and 90 % of the rate.
    #[command(after_help = engine::ENGINE_HELP)]
    Engine(EngineArgs),
    /// Measure the scheduler of the engine's outputs: rates, priorities, weights, cost of a frame
    ///
    /// Runs the program freeway-engine, as `bench engine` does. Rates from 1 Mb/s to what one core sends; the delay of the first
    /// priority while the last one is offered ten times the rate; weights; what a frame costs, beside DPDK's rte_sched; and the
    /// same tree of priorities, rates and ceilings in the engine and in the kernel's htb, which needs root. While somebody
    /// else has the core, the clock stands.
    #[command(after_help = qos::QOS_HELP)]
    Qos(QosArgs),
    /// Replay a capture through the kernel and through Freeway
    ///
    /// The frames of a pcap or pcapng file (Ethernet), each sent from the side that had sent it, in the order of the file, to
    /// the kernel alone and to the kernel with Freeway by turns: how many arrived, the CPU time of the threads of the router's
    /// ports for a frame, and the share that Freeway forwarded. Who sends the first packet of a conversation is on the LAN.
    /// Only MAC addresses are rewritten, and VLAN tags come off; what no router forwards is not sent, and counted by reason.
    #[command(after_help = replay::REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Measure longest prefix match: structures for a full table, and DPDK's
    ///
    /// IPv4 destinations in one process on one CPU: the structure that is meant for XDP, what else it could be, and, where
    /// freeway-engine is, `rte_lpm` and `rte_fib`. One address at a time, each dependent on the one before, and 64 at a time; from
    /// pages of 4 KiB and of 2 MiB. All answer a sample as a binary trie does before anything is timed. The prefixes are
    /// the Internet's by origin (npm package @ip-location-db/asn, CC-BY-4.0, kept in ~/.cache/freeway-bench), with more
    /// specific ones added or others left out. Forwards nothing and needs no root.
    Lookup(LookupArgs),
    /// Measure all that this machine can, and write a page about it
    ///
    /// Runs `compare` in each scenario, `flows`, `kirkwood`, `imx8`, `bulk`, `multicast`, `rfc2544`, `flood`, `drop`, `setup`
    /// and `shaper`, in a short form with --quick, and writes to the folder report.json with the figures
    /// of every run, index.html, one page with everything in it, and each of its plots as SVG and as PNG. What cannot be
    /// measured here says why. Needs root, iproute2, nftables, ethtool, conntrack and iperf3; with --from nothing of it.
    #[command(after_help = report::REPORT_HELP)]
    Report(ReportArgs),
    /// Compare two results: what is the same, faster or slower, and how sure that is
    ///
    /// Compares ratios, each to the kernel or to the bare program of the same run. Prints medians, 95 % confidence
    /// intervals (Student's t over the logarithms of the runs' values), and a verdict by Welch's t-test at 5 %, so about
    /// one ratio of twenty differs by chance. Exits with 0 whatever the verdict, and with 2 if a file is not what it
    /// should be.
    #[command(after_help = report::DIFF_HELP)]
    Diff(DiffArgs),
    /// Write the man pages
    #[command(hide = true)]
    Man {
        /// Folder to write to; created if it is not there
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Write shell completions
    #[command(hide = true)]
    Completions {
        /// bash, zsh, fish, elvish or powershell: to standard output; anything else: a folder for the first three
        #[arg(value_name = "SHELL|DIR")]
        target: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }
}
