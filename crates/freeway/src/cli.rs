// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one definition of the command line: parser, help, man pages and completions come from it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use freeway_api::engine::DispatchMode;
use freeway_api::{Endpoint, Proto, SteerPath, identifier};
use freeway_console::EXIT_CODES;
use freeway_daemon::config::LogLevel;

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
    /// Show what is dropped in XDP, by sets of the firewall and over limits of sources, and what is not and why
    ///
    /// Rules that drop by sets of addresses before anything else are carried out ahead of the kernel. One packet a second
    /// of each goes through the kernel all the same, so its counters and these add up. Ahead of them sources are held to
    /// [[scrub.limit]] of the configuration.
    Drops(StatusArgs),
    /// Show what is forwarded by the kernel's routes, without flows, and why not elsewhere
    ///
    /// At ports where nothing but the destination decides, XDP looks it up in the kernel's routes (policy.routes,
    /// port.NAME.routes). With an address: what becomes of packets to it, and whether that is what the kernel says.
    Routes(RoutesArgs),
    /// Show what hosts sent and received, and networks: what the kernel and what the fast path forwarded
    ///
    /// Hosts of the networks of `accounting.hosts` in the configuration. The kernel has to count, too
    /// (net.netfilter.nf_conntrack_acct). What connections that go on amount to is added every accounting.active_s seconds.
    Hosts(HostsArgs),
    /// Show the flow table
    Flows(FlowsArgs),
    /// Say for one flow whether it is fast, and exactly why
    ///
    /// Shows the flow's entry, the kernel's connection and neighbour, and watches real packets of the flow for up to
    /// two seconds. The tuple may be given as it comes in or as it goes out.
    Explain(ExplainArgs),
    /// Write fast packets to a file, as they come in and as they leave
    ///
    /// For Wireshark and tcpdump (pcapng): what the fast path forwards in XDP passes no packet socket. Each packet is there
    /// twice, at the port where it came in and at that where it left. Ends at Ctrl-C. Other ports go on as they are.
    Capture(CaptureArgs),
    /// Show live what is forwarded: by port, by reason, and the busiest flows
    ///
    /// On a terminal until q is pressed: s sorts flows by something else, the arrows scroll, space holds the page.
    /// Elsewhere, and with --once or --json, one page. Rates are L2, without FCS.
    Top(TopArgs),
    /// Serve a page for browsers, live: throughput by path, ports and why, reasons, the busiest flows
    ///
    /// It asks the daemon, and changes nothing. [web] of the configuration says where it listens, and who may look; these
    /// arguments replace its keys. Ends at Ctrl-C.
    #[command(after_help = EXIT_CODES)]
    Web(WebArgs),
    /// Switch the fast path on
    On(ShowArgs),
    /// Switch the fast path off: everything is the kernel's, programs stay attached
    Off(ShowArgs),
    /// Say whose flows are at ports that XDP and the engine share and what the engine copies, and change it
    ///
    /// The rules of a running daemon, which begins with those of its configuration, [[policy.steer]]. Of those with a
    /// path the first that matches counts; a flow that none matches is XDP's. Flows that become another's are learned
    /// anew. Of those with a mirror the first that takes a frame counts.
    #[command(subcommand)]
    Steer(SteerCommand),
    /// Say how frames come to the workers of the engine, and change it
    #[command(subcommand)]
    Engine(EngineCommand),
    /// Have the daemon read its configuration again; SIGHUP does the same
    ///
    /// All of it is applied, or nothing: a file that is wrong and keys that need a restart are refused by name. Flows that
    /// are not concerned stay fast. Exits with 78 if the file is wrong, with 1 if a restart is needed.
    Reload(ShowArgs),
    /// Have the program that is installed now take over from the daemon, without a gap
    ///
    /// The new daemon starts beside the one that runs, by the same command line and the configuration as it is now, and its
    /// programs take the places of those at the ports: no port is ever without, and no frame is lost. Flows go
    /// along where both have the same binary interface, and are learned anew otherwise. If anything fails, the daemon
    /// that runs goes on as before. For root alone. Exits with 78 if the configuration is wrong, with 1 if the new daemon could not take over.
    Upgrade(UpgradeArgs),
    /// Look at a configuration, without a daemon
    #[command(subcommand)]
    Config(ConfigCommand),
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
    /// Gather what somebody needs who is to help, in one archive
    ///
    /// State of daemon, network, rules and ports, the configuration, versions and the end of the log. Works without a
    /// daemon, too; what could not be gathered is named. Passwords and keys are left out. Look at it before you hand
    /// it on: it tells addresses and rules.
    Support(SupportArgs),
    /// Show the same traffic without and with the fast path
    ///
    /// Builds a router with NAT and a firewall from network namespaces, measures, and removes everything again. Takes
    /// about a minute. Needs root, iproute2, nftables, ethtool and iperf3.
    Demo(DemoArgs),
    /// Network-namespace topologies to play in
    #[command(subcommand)]
    Lab(LabCommand),
    /// Measure, with the program freeway-bench
    ///
    /// Looks for freeway-bench beside this program, then in PATH. `freeway bench --help` is its own help.
    #[command(disable_help_flag = true)]
    Bench {
        /// What freeway-bench is given
        #[arg(
            value_name = "ARGUMENT",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        arguments: Vec<OsString>,
    },
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
    /// Take over from the daemon at standard input
    #[arg(long, hide = true)]
    pub take_over: bool,
}

/// Arguments of `web`.
#[derive(Debug, Args)]
pub struct WebArgs {
    /// Serve the page at this address [default: 127.0.0.1:8080]
    #[arg(short, long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Ask who looks for the token in this file; needed at an address that others reach
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Configuration [default: /etc/freeway/freeway.toml if it exists]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub socket: SocketArg,
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

/// Arguments of `upgrade`.
#[derive(Debug, Args)]
pub struct UpgradeArgs {
    /// Give up if the new daemon has not loaded its programs after so long
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub timeout: u32,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Again and again.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct WatchArg {
    /// Show it again every so many seconds [default: 1]; q ends it
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = interval)]
    pub watch: Option<f64>,
}

/// Arguments of `status` and `drops`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub watch: WatchArg,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Arguments of `routes`.
#[derive(Debug, Args)]
pub struct RoutesArgs {
    /// An address
    #[arg(value_name = "ADDRESS")]
    pub address: Option<std::net::IpAddr>,
    #[command(flatten)]
    pub watch: WatchArg,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Arguments of `hosts`.
#[derive(Debug, Args)]
pub struct HostsArgs {
    /// Show so many hosts at most, the busiest; 0: all. With --json all are there
    #[arg(short = 'n', long, value_name = "N", default_value = "20")]
    pub limit: usize,
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
                           suspended: stopped by FIN, RST or a change of its connection
                           unconfirmed: waits for the kernel after a change

Flows are listed in the order of their places in the table, which they keep as long as they live.

Examples: freeway flows proto tcp src 192.0.2.0/24 dport 443
          freeway flows state learning --watch=2";

/// What to do with rules.
#[derive(Debug, Subcommand)]
pub enum SteerCommand {
    /// Show the rules, with their numbers
    List(ShowArgs),
    /// Add a rule, behind all others unless told otherwise
    #[command(after_help = STEER_HELP)]
    Add(SteerAddArgs),
    /// Add a rule by which the engine copies frames to another of its ports, for who looks on
    #[command(after_help = MIRROR_HELP)]
    Mirror(SteerMirrorArgs),
    /// Delete a rule by its number
    Delete {
        /// As `freeway steer list` shows it
        #[arg(value_name = "NUMBER")]
        number: usize,
        #[command(flatten)]
        show: ShowArgs,
    },
}

/// What to do with the engine.
#[derive(Debug, Subcommand)]
pub enum EngineCommand {
    /// Show how frames of each port come to workers, or have a port's come otherwise from now on
    ///
    /// rss: each worker reads a queue of the device. dispatch: an I/O core reads, and hands each bucket of flows to its
    /// worker. balanced: the same, and buckets move from workers that are full. No frame is lost or overtaken by a change.
    #[command(after_help = "Example: freeway engine dispatch lan0 balanced")]
    Dispatch {
        /// The port; none: show all
        #[arg(value_name = "PORT", requires = "mode")]
        port: Option<String>,
        /// How
        #[arg(value_name = "MODE")]
        mode: Option<DispatchMode>,
        #[command(flatten)]
        show: ShowArgs,
    },
}

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether the daemon would take it: exits with 78 if not, and names file, line and key
    #[command(after_help = EXIT_CODES)]
    Check {
        /// It is for another machine: do not look for its ports here
        #[arg(long)]
        elsewhere: bool,
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Show every key with its value, and where that is from: the file's line, or the default
    ///
    /// As TOML, which is a configuration itself. Arguments of `freeway run` are not known here.
    Show(ConfigArgs),
}

/// Which configuration.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// The file [default: /etc/freeway/freeway.toml if it exists]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `steer add`.
#[derive(Debug, Args)]
pub struct SteerAddArgs {
    /// Who forwards
    #[arg(value_name = "PATH")]
    pub path: SteerPath,
    /// Which flows, as pairs of words; none: all
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Its number; that rule and those behind it move on
    #[arg(long, value_name = "NUMBER")]
    pub at: Option<usize>,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Arguments of `steer mirror`.
#[derive(Debug, Args)]
pub struct SteerMirrorArgs {
    /// The engine's port that has the copies
    #[arg(value_name = "PORT")]
    pub mirror: String,
    /// Where, and which frames, as pairs of words
    #[arg(value_name = "FILTER", required = true)]
    pub filter: Vec<String>,
    /// Its number; that rule and those behind it move on
    #[arg(long, value_name = "NUMBER")]
    pub at: Option<usize>,
    #[command(flatten)]
    pub show: ShowArgs,
}

const MIRROR_HELP: &str = "\
Filter, all of which must hold, for either direction, of a frame as it is on the port's wire:
  port NAME                port of the engine's own at which it comes in or leaves; required
  proto tcp|udp|icmp|icmpv6|esp|gre
  src ADDRESS[/LENGTH]
  dst ADDRESS[/LENGTH]
  sport PORT[-PORT]
  dport PORT[-PORT]

Example: freeway steer mirror ids0 port lan0 proto tcp dport 443";

const STEER_HELP: &str = "\
Filter, all of which must hold, for either direction of a conversation as it comes in:
  proto tcp|udp|icmp|icmpv6|esp|gre
  src ADDRESS[/LENGTH]
  dst ADDRESS[/LENGTH]
  sport PORT[-PORT]
  dport PORT[-PORT]
  port NAME                network port it comes in or goes out at

Examples: freeway steer add engine proto udp dport 5000-5999
          freeway steer add xdp src 192.0.2.0/24 --at 1";

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
    #[arg(value_name = "SRC[:PORT]")]
    pub src: Endpoint,
    /// Destination address and port
    #[arg(value_name = "DST[:PORT]")]
    pub dst: Endpoint,
    /// ICMP: identifier of the echo requests; ESP: SPI; GRE: the header's first four octets [default: 0x00000800,
    /// IPv4 without a key]
    #[arg(value_name = "ID", value_parser = identifier)]
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

/// Arguments of `capture`.
#[derive(Debug, Args)]
#[command(after_help = CAPTURE_HELP)]
pub struct CaptureArgs {
    /// Of which flows, as pairs of words; none: all
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// The file, which must not exist yet; -: standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Only what comes in at this port; repeat for more [default: all that take part]
    #[arg(short, long = "interface", value_name = "IFACE")]
    pub interfaces: Vec<String>,
    /// Only packets that this expression of libpcap's takes, as they came in or as they left: one argument, in quotes;
    /// tcpdump compiles it
    #[arg(long, value_name = "EXPRESSION")]
    pub pcap: Option<String>,
    /// End after so many packets
    #[arg(short = 'c', long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// At most so many bytes of each frame
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=2048))]
    pub bytes: u32,
    #[command(flatten)]
    pub show: ShowArgs,
}

const CAPTURE_HELP: &str = "\
Filter, all of which must hold, before or after translation:
  family 4|6
  proto tcp|udp|icmp|icmpv6|esp|gre
  src ADDRESS[/LENGTH]
  dst ADDRESS[/LENGTH]
  sport PORT[-PORT]
  dport PORT[-PORT]
  port NAME                network port it comes in or goes out at

Example: freeway capture proto tcp dport 443 -w /tmp/https.pcapng
         freeway capture proto udp --pcap 'greater 1000 and ip[1] != 0' -w /tmp/marked.pcapng
         ssh router freeway capture -w - | wireshark -k -i -";

/// Arguments of `support`.
#[derive(Debug, Args)]
pub struct SupportArgs {
    /// The archive, which must not exist yet [default: freeway-support-TIME.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace IPv4, IPv6 and MAC addresses by made-up ones, the same by the same
    #[arg(long)]
    pub redact: bool,
    /// Read this configuration [default: the daemon's, or /etc/freeway/freeway.toml if it exists]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub show: ShowArgs,
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

fn watch_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0 to 60".into()),
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
