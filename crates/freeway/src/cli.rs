// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one definition of the command line: parser, help, man pages and completions come from it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use freeway_lab::Tempo;
use freeway_lab::frame::FRAME_BYTES_MAX;

use crate::api::Proto;
use crate::bench::{Row, Size, mac, report_scenarios};
use crate::config::{LogLevel, PathChoice};
use crate::exit::EXIT_CODES;

/// A fast path for Linux routers.
///
/// The kernel stays the router. Freeway watches what it does with the first packets of each flow, and repeats exactly
/// that for the rest before the kernel's network stack runs. What is unusual goes to the kernel.
#[derive(Debug, Parser)]
#[command(name = "freeway", version, max_term_width = 100, after_help = EXIT_CODES)]
#[command(
    subcommand_required = true,
    arg_required_else_help = false,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon, in the foreground
    ///
    /// Without -i every port that forwards is accelerated. One daemon runs in each network namespace.
    #[command(after_help = EXIT_CODES)]
    Run(RunArgs),
    /// Show each port's state and why, the flow table, rules and features
    Status(StatusArgs),
    /// Show packets by path and by reason
    Stats(StatsArgs),
    /// Show the flow table
    Flows(FlowsArgs),
    /// Say for one flow whether it is fast, and exactly why
    ///
    /// Shows the flow's entry, the kernel's connection and neighbour, and watches real packets of the flow for up to
    /// two seconds. The tuple may be given as it comes in or as it goes out.
    Explain(ExplainArgs),
    /// Show live what is forwarded: by port, by reason, and the busiest flows
    ///
    /// On a terminal until q is pressed; elsewhere, and with --once or --json, one page. Rates are L2, without FCS.
    Top(TopArgs),
    /// Switch the fast path on
    On(ShowArgs),
    /// Switch the fast path off: everything is the kernel's, programs stay attached
    Off(ShowArgs),
    /// Empty the flow table; flows are learned anew
    Flush(ShowArgs),
    /// Read everything from the kernel again, and say how much differed
    ///
    /// The daemon follows the kernel by itself and does this when events were lost. Flows are confirmed anew.
    Resync(ShowArgs),
    /// Say what this machine, its drivers and its rules allow, and what to change
    ///
    /// Needs no daemon. Exits with 1 if something keeps Freeway from running here.
    Doctor(DoctorArgs),
    /// Show the same traffic without and with the fast path
    ///
    /// Builds a router with NAT and a firewall from network namespaces, measures, and removes everything again. Takes
    /// about a minute. Needs root, iproute2, nftables, ethtool and iperf3.
    Demo(DemoArgs),
    /// Network-namespace topologies to play in
    #[command(subcommand)]
    Lab(LabCommand),
    /// Measure
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Write the man pages
    #[command(hide = true)]
    Man {
        /// Folder to write to; created if it is not there
        #[arg(
            long = "dir",
            value_name = "DIR",
            required_unless_present = "positional"
        )]
        dir: Option<PathBuf>,
        /// The same as --dir
        #[arg(value_name = "DIR", conflicts_with = "dir")]
        positional: Option<PathBuf>,
    },
    /// Write shell completions
    #[command(hide = true)]
    Completions {
        /// bash, zsh, fish, elvish or powershell: to standard output; anything else: a folder for the first three
        #[arg(value_name = "SHELL|DIR")]
        target: PathBuf,
    },
}

/// Where the daemon listens.
#[derive(Clone, Debug, Default, Args)]
pub struct SocketArg {
    /// Control socket [default: that of this network namespace, below /run/freeway]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Configuration [default: /etc/freeway/freeway.toml if it exists]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Accelerate this port; repeat for more [default: each that forwards]
    #[arg(short, long = "interface", value_name = "IFACE")]
    pub interfaces: Vec<String>,
    #[command(flatten)]
    pub socket: SocketArg,
    /// Serve Prometheus metrics at this address, such as 127.0.0.1:9100
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<SocketAddr>,
    /// How much to log to standard error [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<LogLevel>,
}

/// Arguments of commands that ask the daemon and show what it says.
#[derive(Clone, Debug, Default, Args)]
pub struct ShowArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Again and again.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct WatchArg {
    /// Show it again every so many seconds [default: 1]; q ends it
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = interval)]
    pub watch: Option<f64>,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub watch: WatchArg,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Show one page, with the rates of one interval
    #[arg(long)]
    pub once: bool,
    /// Seconds between two pages
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: f64,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Show reasons that no packet had, too
    #[arg(short, long)]
    pub all: bool,
    #[command(flatten)]
    pub watch: WatchArg,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Arguments of `flows`.
#[derive(Debug, Args)]
#[command(after_help = FILTER_HELP)]
pub struct FlowsArgs {
    /// What to show, as pairs of words
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Show at most so many flows
    #[arg(short = 'n', long, value_name = "NUMBER")]
    pub limit: Option<u64>,
    /// Show them again every so many seconds [default: 1], as many as fit on the terminal; q ends it
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = interval)]
    pub watch: Option<f64>,
    #[command(flatten)]
    pub show: ShowArgs,
}

const FILTER_HELP: &str = "\
Filter, all of which must hold:
  family 4|6
  proto tcp|udp|icmp|icmpv6|esp|gre
  src ADDRESS[/LENGTH]     before or after translation
  dst ADDRESS[/LENGTH]
  sport PORT[-PORT]
  dport PORT[-PORT]
  port NAME                network port it comes in or goes out at
  state fast|learning|suspended|unconfirmed
                           fast: forwarded by the fast path (also: active)
                           learning: its connection is being prepared (also: preparing)
                           suspended: stopped by SYN, FIN, RST or a change of its connection
                           unconfirmed: waits for the kernel after a change

Flows are listed in the order of their places in the table, which they keep as long as they live.

Examples: freeway flows proto tcp src 192.0.2.0/24 dport 443
          freeway flows state learning --watch=2";

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: freeway explain tcp 192.0.2.2:40000 198.51.100.2:443\n         \
                        freeway explain udp '[2001:db8:1::2]:5000' '[2001:db8:2::2]:53'\n         \
                        freeway explain icmp 192.0.2.2 198.51.100.2 4711\n         \
                        freeway explain esp 192.0.2.2 198.51.100.2 0xc0de0001"
)]
pub struct ExplainArgs {
    /// tcp, udp, icmp, icmpv6, esp, gre or an IP protocol number
    #[arg(value_name = "PROTO")]
    pub proto: Proto,
    /// Source address, of TCP and UDP with a port; IPv6 as [ADDRESS]:PORT
    #[arg(value_name = "SRC[:PORT]", value_parser = endpoint)]
    pub src: Endpoint,
    /// Destination address and port
    #[arg(value_name = "DST[:PORT]", value_parser = endpoint)]
    pub dst: Endpoint,
    /// ICMP: identifier of the echo requests; ESP: SPI; GRE: the header's first four octets [default: 0x00000800,
    /// IPv4 without a key]
    #[arg(value_name = "ID", value_parser = number)]
    pub id: Option<u32>,
    /// Watch real packets for at most so many seconds, 0 to 60
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = watch_seconds)]
    pub watch: f64,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Look at these ports only; repeat for more [default: each that forwards]
    #[arg(short, long = "interface", value_name = "IFACE")]
    pub interfaces: Vec<String>,
    /// Read this configuration [default: /etc/freeway/freeway.toml if it exists]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Print JSON at the end instead of the table
    #[arg(long)]
    pub json: bool,
    /// Seconds of each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// Flows of the packet generator
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub flows: u32,
}

/// What to do with topologies.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Say which topologies there are
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Build a topology and open a shell in its router; everything goes when the shell ends
    Shell {
        /// The topology: nat, nat6, routed or routed6
        #[arg(value_name = "NAME")]
        name: String,
        /// Run Freeway in the router
        #[arg(long)]
        freeway: bool,
    },
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Compare the kernel, Freeway and other fast paths on the same frames
    ///
    /// Kernel and Freeway alternate in each run, and with them others as far as the scenario and the kernel allow: the kernel
    /// with conntrack, without it, without what the scenario adds to it, nf_flowtable, and the kernel's FIB from XDP; a
    /// bare XDP redirect and an XDP drop are the limits. The kernel is measured without any program of Freeway attached.
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
    #[command(after_help = RFC2544_HELP)]
    Rfc2544(Rfc2544Args),
    /// Measure a router of any make that is cabled between two ports of this host
    ///
    /// Throughput (NDR and PDR by MLRsearch, RFC 9971), loss above it, the forwarding rate when all is sent that can be (RFC 2889),
    /// and one-way latency at no load and at 10, 50 and 90 % of the PDR, by frame size. UDP, in one direction: from the port
    /// --out, through the router, to an address of the port --in. Other traffic of the two ports stays the kernel's.
    #[command(after_help = LOOP_HELP)]
    Loop(LoopArgs),
    /// Measure a router of any make that is between this host and another, where a sink runs
    ///
    /// As `loop`, but frames are counted by `freeway bench sink` on the other host, which is asked over TCP. There is no
    /// latency, for the clocks of two hosts differ.
    #[command(after_help = GENERATOR_HELP)]
    Generator(GeneratorArgs),
    /// Count at this host what a generator on another sends through a router
    ///
    /// Takes one generator at a time, and counts and drops the UDP frames that it announces; all other frames of the port stay
    /// the kernel's. Ends at SIGTERM, SIGINT, SIGHUP. Who reaches the control port can use it: it has no passwords.
    #[command(after_help = SINK_HELP)]
    Sink(SinkArgs),
    /// Measure stateful NAT as RFC 9693 does: new connections, their tear-down, and how many there can be
    ///
    /// Masquerade and a stateful firewall, the kernel and Freeway by turns, UDP frames from one CPU through a router on another. The
    /// maximum connection establishment rate by bisection: a frame of each connection, all of which have to arrive, and one
    /// back through each. The tear-down rate: how soon a full table is empty, and Freeway's, too. The capacity: the most
    /// connections of which none is missing. What the generator can do by itself is measured first; a rate that it limited is told as "at least".
    #[command(after_help = RFC9693_HELP)]
    Rfc9693(Rfc9693Args),
    /// Replay a capture through the kernel and through Freeway
    ///
    /// The frames of a pcap or pcapng file (Ethernet), each sent from the side that had sent it, in the order of the file, to
    /// the kernel alone and to the kernel with Freeway by turns: how many arrived, the CPU time of the threads of the router's
    /// ports for a frame, and the share that Freeway forwarded. Who sends the first packet of a conversation is on the LAN.
    /// Only MAC addresses are rewritten, and VLAN tags come off; what no router forwards is not sent, and counted by reason.
    #[command(after_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Measure all that this machine can, and write a page about it
    ///
    /// Runs the other bench commands, in a short form with --quick, and writes to the folder report.json with the figures
    /// of every run, index.html, one page with everything in it, and each of its plots as SVG and as PNG. What cannot be
    /// measured here says why. Needs root, iproute2, nftables, ethtool, conntrack and iperf3; with --from nothing of it.
    #[command(after_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Compare two results: what is the same, faster or slower, and how sure that is
    ///
    /// Compares ratios, each to the kernel or to the bare program of the same run. Prints medians, 95 % confidence
    /// intervals (Student's t over the logarithms of the runs' values), and a verdict by Welch's t-test at 5 %, so about
    /// one ratio of twenty differs by chance. Exits with 0 whatever the verdict, and with 2 if a file is not what it
    /// should be.
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
}

const REPORT_HELP: &str = "\
Example: freeway bench report --quick --output report
         freeway bench report --from report/report.json --output again";

/// Arguments of `bench report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folder to write to; created if it is not there
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Measure in less than five minutes instead of about an hour
    #[arg(long)]
    pub quick: bool,
    /// Measure this scenario only; repeat for more [default: all]
    #[arg(long = "scenario", value_name = "NAME", value_parser = report_scenarios())]
    pub scenarios: Vec<String>,
    /// Draw what was measured before, from its report.json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "scenarios"])]
    pub from: Option<PathBuf>,
}

const DIFF_HELP: &str = "\
Example: freeway bench report --quick --output before
         freeway bench report --quick --output after
         freeway bench diff before/report.json after/report.json";

/// Arguments of `bench diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A report.json, or what a bench command printed with --json
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Another, which is called same, faster or slower than A
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench multicast`.
#[derive(Debug, Args)]
pub struct MulticastArgs {
    /// Receivers, each at a port of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=30))]
    pub ports: u32,
    /// Frame size in bytes, FCS counted
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=1518))]
    pub frame_bytes: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample of each router, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = sample_seconds)]
    pub seconds: f64,
    /// Track connections and filter statefully, with so many rules that do not match ahead of the one that accepts
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub rules: Option<u32>,
    /// The receivers' ports have one MAC address, as those of a switch
    #[arg(long)]
    pub switch: bool,
    /// Have the policy refuse all flows: what Freeway costs where it does not help
    #[arg(long)]
    pub refused: bool,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of source, receivers and the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub host_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const RFC2544_HELP: &str = "\
Example: freeway bench rfc2544 --quick
         freeway bench rfc2544 --scenario routed --size 64 --size 512 --bidirectional
         freeway bench rfc2544 --flows 20000 --destinations 20000
         freeway bench rfc2544 --size 1518 --seconds 60 --trials 1";

/// Arguments of `bench rfc2544`.
#[derive(Debug, Args)]
pub struct Rfc2544Args {
    /// The lab's topology
    #[arg(long, value_name = "NAME", default_value = "nat")]
    pub scenario: Rfc2544Scenario,
    /// Frame size, FCS counted: 64, 128, 256, 512, 1024, 1280, 1518, 9000, or imix (28 of 64 bytes, 16 of 570, 4 of 1518);
    /// repeat for more
    #[arg(long = "size", value_name = "BYTES", default_values = ["64", "imix", "1518"])]
    pub sizes: Vec<Size>,
    /// Flows, all of them assured connections where the router tracks them
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub flows: u32,
    /// Hosts beyond the WAN to which the flows go in turn, instead of to the server; in nat and routed only
    #[arg(long, value_name = "NUMBER", conflicts_with = "bidirectional", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub destinations: Option<u32>,
    /// Send in both directions at once; loads and rates are of one
    #[arg(long)]
    pub bidirectional: bool,
    /// Have all done in 8 seconds and 6 for each size, with short trials and coarse bounds; 8 more if 9000 is beside others
    #[arg(long, conflicts_with_all = ["seconds", "trials"])]
    pub quick: bool,
    /// Seconds of the search's last trials, and of those at fixed loads; latencies take five times that, 0.02 to 60
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = trial_seconds)]
    pub seconds: f64,
    /// Trials that decide about a load; of several, half may exceed the loss ratio
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub trials: u32,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of sender, receiver and the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub host_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Rfc2544Args {
    /// Directions in which frames are sent at the same time.
    pub fn directions(&self) -> u32 {
        if self.bidirectional { 2 } else { 1 }
    }
}

/// Where frames go, and how many.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Source address [default: the sending port's]
    #[arg(long, value_name = "ADDR")]
    pub from: Option<IpAddr>,
    /// The router's address at the sending port [default: as this host's routes say]
    #[arg(long, value_name = "ADDR")]
    pub gateway: Option<IpAddr>,
    /// The router's MAC address there [default: the kernel asks for it]
    #[arg(long, value_name = "MAC", value_parser = mac)]
    pub gateway_mac: Option<[u8; 6]>,
    /// Frame size, FCS counted: 64, 128, 256, 512, 1024, 1280, 1518, or imix (28 of 64 bytes, 16 of 570, 4 of 1518); repeat
    /// for more
    #[arg(long = "size", value_name = "BYTES", default_values = ["64", "imix", "1518"], value_parser = one_page)]
    pub sizes: Vec<Size>,
    /// Flows, which differ in their source port
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub flows: u32,
    /// Have all done in 8 seconds and 6 for each size, with short trials and coarse bounds
    #[arg(long, conflicts_with_all = ["seconds", "trials"])]
    pub quick: bool,
    /// Seconds of the search's last trials, and of those at fixed loads; latencies take five times that, 0.02 to 60
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = trial_seconds)]
    pub seconds: f64,
    /// Trials that decide about a load; of several, half may exceed the loss ratio
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub trials: u32,
    /// Do not search: send so many frames a second, once, and tell the loss
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["quick", "trials"], value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub pps: Option<u64>,
    /// CPU that sends
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Also by ports that carry the default route or no link
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl LoadArgs {
    /// Octets of the longest frame, FCS counted.
    pub fn longest(&self) -> u32 {
        let longest = |size: &Size| size.mix().sizes().max();
        self.sizes.iter().filter_map(longest).max().unwrap_or(0)
    }
}

const LOOP_HELP: &str = "\
Example: freeway bench loop --out eth1 --in eth2 --gateway 192.0.2.1
         freeway bench loop --out eth1 --in eth2 --gateway 192.0.2.1 --size 64 --pps 100000

eth1 has an address of the router's network there, eth2 one of the router's other network.";

/// Arguments of `bench loop`.
#[derive(Debug, Args)]
pub struct LoopArgs {
    /// Port that frames leave by, to the router
    #[arg(long, value_name = "PORT")]
    pub out: String,
    /// Port that they come back at
    #[arg(long = "in", value_name = "PORT")]
    pub input: String,
    /// Destination address [default: the receiving port's]
    #[arg(long, value_name = "ADDR")]
    pub to: Option<IpAddr>,
    #[command(flatten)]
    pub load: LoadArgs,
}

const GENERATOR_HELP: &str = "\
Example: freeway bench sink --port eth1 --listen 10.0.0.2:12544      on the one host
         freeway bench generator --port eth1 --sink 10.0.0.2:12544 --to 198.51.100.2";

/// Arguments of `bench generator`.
#[derive(Debug, Args)]
pub struct GeneratorArgs {
    /// Port that frames leave by, to the router
    #[arg(long, value_name = "PORT")]
    pub port: String,
    /// Where the sink listens; better not through the router
    #[arg(long, value_name = "ADDR:PORT")]
    pub sink: SocketAddr,
    /// Destination address, behind the router, of the sink's port
    #[arg(long, value_name = "ADDR")]
    pub to: IpAddr,
    #[command(flatten)]
    pub load: LoadArgs,
}

const SINK_HELP: &str = "\
Example: freeway bench sink --port eth1 --listen 10.0.0.2:12544";

/// Arguments of `bench sink`.
#[derive(Debug, Args)]
pub struct SinkArgs {
    /// Port that frames come in at
    #[arg(long, value_name = "PORT")]
    pub port: String,
    /// Address and TCP port for the generator's connection
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:12544")]
    pub listen: SocketAddr,
    /// End after one generator
    #[arg(long)]
    pub once: bool,
    /// Also at a port that carries the default route or no link, or does not have the destination address
    #[arg(long)]
    pub force: bool,
}

const RFC9693_HELP: &str = "\
Example: freeway bench rfc9693 --quick
         freeway bench rfc9693 --connections 100000 --runs 20
         freeway bench rfc9693 --capacity-max 1000000

Throughput of the connections afterwards, in both directions at once: freeway bench rfc2544 --scenario nat --bidirectional";

/// Arguments of `bench rfc9693`.
#[derive(Debug, Args)]
pub struct Rfc9693Args {
    /// Connections of a rate's test [default: 50000; 10000 with --quick]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub connections: Option<u32>,
    /// Runs; figures are their medians [default: 5; 1 with --quick]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: Option<u32>,
    /// Fewer connections and runs, and coarse bounds
    #[arg(long)]
    pub quick: bool,
    /// Have the router's rules admit so many connections [default: what the kernel's table holds]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub table_max: Option<u32>,
    /// Look for the capacity up to so many connections [default: 300000; 50000 with --quick]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub capacity_max: Option<u32>,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of Initiator, Responder and the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub host_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const REPLAY_HELP: &str = "\
Example: freeway bench replay office.pcapng
         freeway bench replay office.pcapng --speed 10 --loops 5
         freeway bench replay office.pcapng --full --loops 20 --runs 5 --stateful";

/// Arguments of `bench replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A capture, pcap or pcapng, of an Ethernet port
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Send at the times of the capture, so many times as fast, 0.001 to 100000 [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = speed_factor)]
    pub speed: Option<f64>,
    /// Send evenly, so many frames a second, both sides together
    #[arg(long, value_name = "NUMBER", conflicts_with = "speed", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub pps: Option<u64>,
    /// Send as fast as the CPU of the hosts can
    #[arg(long, conflicts_with_all = ["speed", "pps"])]
    pub full: bool,
    /// Send the frames so often in a run, the same each time
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub loops: u32,
    /// Runs of each router, which begin without flows and connections; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Track connections and filter by their state, without translation; what the WAN opens is dropped
    #[arg(long)]
    pub stateful: bool,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of the hosts and the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub host_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl ReplayArgs {
    /// When frames are sent.
    pub fn tempo(&self) -> Tempo {
        match self.pps {
            _ if self.full => Tempo::Full,
            Some(pps) => Tempo::Pps(pps),
            None => Tempo::Times(self.speed.unwrap_or(1.0)),
        }
    }
}

/// Arguments of `bench imx8`.
#[derive(Debug, Args)]
pub struct Imx8Args {
    /// Measure this row, such as ipv4-tcp-lan-wan, ipv6-udp-wan-lan-vlan-nat or ipv4-tcp-duplex; repeat for more [default: the
    /// 16 of one direction]
    #[arg(long = "row", value_name = "NAME")]
    pub rows: Vec<Row>,
    /// Measure full duplex, too: after each pair of rows both directions at once, whose frames alternate
    #[arg(long)]
    pub duplex: bool,
    /// Flows, in turn, so many that GRO finds no two frames of one to merge
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=10_000))]
    pub flows: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample of each router, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = sample_seconds)]
    pub seconds: f64,
    /// The path of Freeway's ports
    #[arg(long, value_name = "PATH", default_value = "auto")]
    pub path: PathChoice,
    /// CPU of generator and router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench kirkwood`.
#[derive(Debug, Args)]
pub struct KirkwoodArgs {
    /// Flows, in turn, so many that GRO finds no two frames of one to merge
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=10_000))]
    pub flows: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each Freeway sample, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = sample_seconds)]
    pub seconds: f64,
    /// The path of Freeway's ports
    #[arg(long, value_name = "PATH", default_value = "auto")]
    pub path: PathChoice,
    /// CPU of generator and router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Start Freeway once for each protocol, not anew for each run
    #[arg(long)]
    pub one_daemon: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench flows`.
#[derive(Debug, Args)]
pub struct ByFlowsArgs {
    /// What to measure in
    #[arg(long, value_name = "NAME", default_value = "nat")]
    pub scenario: Scenario,
    /// Flows, in turn; repeat for more
    #[arg(long, value_name = "NUMBER", default_values_t = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub flows: Vec<u32>,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample of each router, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = sample_seconds)]
    pub seconds: f64,
    /// The path of Freeway's ports
    #[arg(long, value_name = "PATH", default_value = "auto")]
    pub path: PathChoice,
    /// CPU of generator and router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench bulk`.
#[derive(Debug, Args)]
pub struct BulkArgs {
    /// Parallel TCP streams; may be given more than once
    #[arg(long, value_name = "NUMBER", default_values_t = [1, 16], value_parser = clap::value_parser!(u32).range(1..=128))]
    pub streams: Vec<u32>,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of the hosts and the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub host_cpu: usize,
    /// Leave out what is only reported: the time of tc's program
    #[arg(long)]
    pub brief: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench shaper`.
#[derive(Debug, Args)]
pub struct ShaperArgs {
    /// What shapes or polices
    #[arg(long, value_enum, default_value_t = Discipline::Htb)]
    pub discipline: Discipline,
    /// Rate of the port in megabits a second
    #[arg(long, value_name = "MBIT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub rate: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(2..=3600))]
    pub seconds: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What holds a port to its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Discipline {
    /// Classes of 60 and 40 %, by mark (BPF classifier) and by DSCP (u32).
    Htb,
    /// One queue.
    Tbf,
    /// Queues by flow and tins by DSCP (diffserv4): the second class is bulk (CS1).
    Cake,
    /// Queues by flow, below tbf.
    FqCodel,
    /// Bands, below tbf: the first class, of 40 %, goes ahead by its mark (fw).
    Prio,
    /// No queue: a policer at the input drops what is more.
    Police,
    /// No rate but that of whoever receives: the ring behind the queue (by flow; one, where the kernel has none by flow)
    /// fills.
    Ring,
}

/// Arguments of `bench flood`.
#[derive(Debug, Args)]
pub struct FloodArgs {
    /// What floods; all of them if none is named
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<FloodKind>,
    /// Established flows
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub flows: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub runs: u32,
    /// Seconds of each sample, 0.5 to 3600; a flood that would repeat its tuples ends sooner
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = sample_seconds)]
    pub seconds: f64,
    /// CPU of the flood and the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub daemon_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What new tuples come as, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FloodKind {
    /// TCP SYN, accepted.
    SynAccepted,
    /// TCP SYN, dropped by a rule.
    SynDropped,
    /// UDP, accepted.
    UdpAccepted,
    /// UDP, dropped by a rule.
    UdpDropped,
}

/// Arguments of `bench setup`.
#[derive(Debug, Args)]
pub struct SetupArgs {
    /// New connections a second [default: the highest rate that holds is looked for]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub rate: Option<u32>,
    /// Seconds for which connections begin, in each sample
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(4..=600))]
    pub seconds: u32,
    /// At most so many connections in a sample, which ends sooner then
    #[arg(long, value_name = "NUMBER", default_value_t = 600_000, value_parser = clap::value_parser!(u32).range(1000..=1_000_000))]
    pub connections: u32,
    /// Connections that conntrack holds already and nobody uses
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub idle_connections: u32,
    /// CPU of generator and router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub daemon_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// What to measure in
    #[arg(long, value_name = "NAME", default_value = "nat")]
    pub scenario: Scenario,
    /// Flows, all of them assured connections where the router tracks them [default: 1000; full-table: 20000; kirkwood: 64]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub flows: Option<u32>,
    /// Hosts beyond the WAN to which the flows go in turn, instead of to the server; in nat and routed only
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub destinations: Option<u32>,
    /// Protocol of the frames, udp or tcp
    #[arg(long, value_name = "NAME", default_value = "udp", value_parser = lab_proto)]
    pub proto: freeway_lab::Proto,
    /// Frame size in bytes, FCS counted [default: 64; kirkwood: 1418]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(64..=1518))]
    pub frame_bytes: Option<u32>,
    /// Leave out the peers: other shapes of the kernel, nf_flowtable, the kernel's FIB from XDP
    #[arg(long)]
    pub no_peers: bool,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Steady state of each Freeway sample in seconds, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = sample_seconds)]
    pub seconds: f64,
    /// Changes of routes and neighbours a second; in churn only [default there: 100]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub changes: Option<u32>,
    /// Have the policy refuse all flows: what Freeway costs where it does not help
    #[arg(long)]
    pub refused: bool,
    /// The path of Freeway's ports
    #[arg(long, value_name = "PATH", default_value = "auto")]
    pub path: PathChoice,
    /// Connections beside the flows that conntrack holds and nobody uses
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=999_999))]
    pub idle_connections: u32,
    /// CPU of generator and router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Send on so many CPUs at once, from --cpu on: rates of kernel and Freeway, over those of one CPU
    ///
    /// Each CPU has a generator, its share of the flows and a queue of each port. Only in nat, routed, routed6, policies and
    /// kirkwood, with 32,768 flows at most. The daemon has no CPU of its own: leave it one to see the data plane alone.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: u32,
    /// Leave out what is only reported: the time of the sink and Freeway's program
    #[arg(long)]
    pub brief: bool,
    /// Start Freeway once, not anew for each run
    #[arg(long)]
    pub one_daemon: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl CompareArgs {
    /// Flows: as many as asked for, or the scenario's.
    pub fn flows(&self) -> u32 {
        self.flows.unwrap_or(self.scenario.flows())
    }

    /// Frame size: what was asked for, or the scenario's.
    pub fn frame_bytes(&self) -> u32 {
        self.frame_bytes.unwrap_or(self.scenario.frame_bytes())
    }

    /// Changes a second of what the routers know; none but in `churn`.
    pub fn changes(&self) -> u32 {
        match self.scenario {
            Scenario::Churn => self.changes.unwrap_or(100),
            _ => 0,
        }
    }

    /// Why peers are not measured.
    pub fn without_peers(&self) -> Option<&'static str> {
        if self.no_peers {
            Some("--no-peers leaves it out")
        } else if self.cpus > 1 {
            Some("--cpus is for the kernel and Freeway alone")
        } else if self.refused {
            Some("--refused compares the kernel with itself")
        } else if self.idle_connections > 0 {
            Some("--idle-connections is for the kernel and Freeway alone")
        } else {
            None
        }
    }
}

fn lab_proto(text: &str) -> Result<freeway_lab::Proto, String> {
    match text {
        "udp" => Ok(freeway_lab::Proto::Udp),
        "tcp" => Ok(freeway_lab::Proto::Tcp),
        _ => Err("write udp or tcp".into()),
    }
}

/// What to measure in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// IPv4 masquerade and a stateful firewall.
    Nat,
    /// IPv4 routing without connection tracking.
    Routed,
    /// IPv6 routing without connection tracking.
    Routed6,
    /// Like nat, with 1,000 rules that do not match ahead of the one that accepts.
    Policies,
    /// Like routed, with 1,000,000 routes, of which the flows use 20,000.
    FullTable,
    /// Like nat, with packets of 1,400 bytes: `bench kirkwood` is both protocols of it.
    Kirkwood,
    /// Like routed, while routes and neighbours change.
    Churn,
    /// Like nat, the LAN being a bridge of the router.
    Bridge,
    /// Like nat, the LAN being an 802.1Q VLAN.
    Vlan,
    /// Like nat, the WAN being a PPPoE session.
    Pppoe,
}

impl Scenario {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Nat => "nat",
            Scenario::Routed => "routed",
            Scenario::Routed6 => "routed6",
            Scenario::Policies => "policies",
            Scenario::FullTable => "full-table",
            Scenario::Kirkwood => "kirkwood",
            Scenario::Churn => "churn",
            Scenario::Bridge => "bridge",
            Scenario::Vlan => "vlan",
            Scenario::Pppoe => "pppoe",
        }
    }

    /// How many flows it has unless told.
    fn flows(self) -> u32 {
        match self {
            Scenario::FullTable => 20_000,
            // so many that GRO finds no two frames of one to merge
            Scenario::Kirkwood => 64,
            _ => 1000,
        }
    }

    /// How large its frames are unless told: the smallest, or those around packets of 1,400 bytes.
    fn frame_bytes(self) -> u32 {
        match self {
            Scenario::Kirkwood => 1418,
            _ => 64,
        }
    }
}

/// What `bench rfc2544` can measure in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rfc2544Scenario {
    /// IPv4 masquerade and a stateful firewall.
    Nat,
    /// IPv4 routing without connection tracking.
    Routed,
    /// IPv6 routing without connection tracking.
    Routed6,
}

impl Rfc2544Scenario {
    /// Its name, which is the topology's.
    pub fn name(self) -> &'static str {
        match self {
            Rfc2544Scenario::Nat => "nat",
            Rfc2544Scenario::Routed => "routed",
            Rfc2544Scenario::Routed6 => "routed6",
        }
    }
}

/// One end of a flow, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub ip: IpAddr,
    /// The port, if there is one.
    pub port: Option<u16>,
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    let alone = |ip| Endpoint { ip, port: None };
    let with_port = |address: SocketAddr| Endpoint {
        ip: address.ip(),
        port: Some(address.port()),
    };
    text.parse()
        .map(with_port)
        .or_else(|_| text.parse().map(alone))
        .map_err(|_| "write 192.0.2.1:80 or [2001:db8::1]:80".to_owned())
}

fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "write a number of 32 bits, such as 4711 or 0xc0de0001".to_owned())
}

fn watch_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0 to 60".into()),
    }
}

fn trial_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.02..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0.02 to 60".into()),
    }
}

fn one_page(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size {
        Size::Bytes(bytes) if bytes > FRAME_BYTES_MAX => Err(format!(
            "frames leave by XDP in one page each: at most {FRAME_BYTES_MAX} bytes"
        )),
        size => Ok(size),
    }
}

fn sample_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.5..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0.5 to 3600".into()),
    }
}

fn speed_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.001..=100_000.0).contains(&factor) => Ok(factor),
        _ => Err("write a factor from 0.001 to 100000".into()),
    }
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0.1 to 3600".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn explain_takes_both_families() {
        let parse = |src, dst| Cli::try_parse_from(["freeway", "explain", "udp", src, dst]);
        assert!(parse("192.0.2.1:1", "198.51.100.1:53").is_ok());
        assert!(parse("[2001:db8::1]:1", "[2001:db8::2]:53").is_ok());
        assert!(parse("192.0.2.1:", "198.51.100.1:53").is_err());
        let echo = [
            "freeway",
            "explain",
            "icmp",
            "192.0.2.1",
            "198.51.100.1",
            "7",
        ];
        assert!(Cli::try_parse_from(echo).is_ok());
        let spi = [
            "freeway",
            "explain",
            "esp",
            "192.0.2.1",
            "198.51.100.1",
            "0xc0de0001",
        ];
        match Cli::try_parse_from(spi).unwrap().command {
            Command::Explain(args) => assert_eq!(args.id, Some(0xc0de_0001)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn interfaces_repeat() {
        let cli = Cli::try_parse_from(["freeway", "run", "-i", "lan0", "-i", "wan0"]).unwrap();
        match cli.command {
            Command::Run(args) => assert_eq!(args.interfaces, ["lan0", "wan0"]),
            other => panic!("{other:?}"),
        }
    }
}
