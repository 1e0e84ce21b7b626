// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration: optional, TOML, and strict. Without a file the defaults are right for a router.

mod change;
mod entries;
mod export;
mod limit;
mod names;
mod places;
mod scrub;
mod web;
mod within;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use freeway_api::engine::EngineConfig;
use freeway_api::{PathChoice, Selection, SteerRule};
use freeway_console::{Fault, Stop};
use serde::{Deserialize, Serialize};

use self::places::{Places, unnumbered};
use self::within::within;

pub use change::{Change, changes, needs_restart};
pub use entries::{Entry, dotted};
pub use export::{Accounting, Export, Format, Transport};
pub use limit::{Limited, PacketsPerSecond};
pub use scrub::{LimitProto, Scrub, SourceLimit};
pub use web::Web;

/// Read if it exists and `--config` is absent.
pub const DEFAULT_PATH: &str = "/etc/freeway/freeway.toml";

/// The daemon's whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `[flows]`: the flow table.
    pub flows: Flows,
    /// `[policy]`: what may be fast.
    pub policy: Policy,
    /// `[punts]`: what the kernel is given.
    pub punts: Punts,
    /// `[scrub]`: what XDP drops ahead of the kernel.
    pub scrub: Scrub,
    /// `[port.NAME]`: one table for each network port that needs one.
    pub port: BTreeMap<String, Port>,
    /// `[engine]`: forwarding on cores of its own, by `freeway-engine`.
    pub engine: EngineConfig,
    /// `[accounting]`: when connections are told of.
    pub accounting: Accounting,
    /// `[[export]]`: who is told of them.
    pub export: Vec<Export>,
    /// `[web]`: the page of `freeway web`.
    pub web: Web,
    /// `[daemon]`: the process.
    pub daemon: Daemon,
    /// Where it was read from; `None` for the built-in defaults.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// Where its keys are there.
    #[serde(skip)]
    places: Places,
}

/// A week: ticks are told apart for 24 days and more.
const IDLE_MAX_S: u32 = 7 * 24 * 3600;

/// `[flows]`: the flow table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Flows {
    /// Most flows (directions of conversations) in the table.
    #[serde(deserialize_with = "within::<_, 1, { freeway_datapath::FLOWS_MAX }>")]
    pub max: u32,
    /// Seconds without a packet after which a TCP flow leaves the table.
    #[serde(deserialize_with = "within::<_, 1, IDLE_MAX_S>")]
    pub tcp_idle_s: u32,
    /// Seconds without a packet after which a UDP flow leaves the table.
    #[serde(deserialize_with = "within::<_, 1, IDLE_MAX_S>")]
    pub udp_idle_s: u32,
}

impl Default for Flows {
    fn default() -> Self {
        Flows {
            max: freeway_datapath::FLOWS_DEFAULT,
            tcp_idle_s: 60,
            udp_idle_s: 30,
        }
    }
}

/// `[policy]`: what may be fast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// TCP may be fast.
    pub tcp: bool,
    /// UDP may be fast.
    pub udp: bool,
    /// Echoes of ICMP and ICMPv6 may be fast.
    pub icmp: bool,
    /// ESP and GRE that the router passes on may be fast.
    pub tunnels: bool,
    /// UDP to groups that the kernel routes may be fast.
    pub multicast: bool,
    /// Frames that bridges pass on may be fast.
    pub bridging: bool,
    /// What rules of the firewall drop by sets of addresses may be dropped in XDP.
    pub drops: bool,
    /// Packets without a flow may leave by the kernel's routes where nothing but the destination decides. Absent: where the kernel
    /// tells all that may decide.
    pub routes: Option<bool>,
    /// UDP without answers may be fast where no reachable rule must see each packet.
    pub udp_one_way: bool,
    /// Conversations that stay in the kernel.
    pub exclude: Vec<Selection>,
    /// Whose conversations are at ports that XDP and the engine share.
    pub steer: Vec<SteerRule>,
}

impl Policy {
    /// Packets without a flow are all the kernel's.
    pub fn without_routes(&self) -> bool {
        self.routes == Some(false)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            tcp: true,
            udp: true,
            icmp: true,
            tunnels: true,
            multicast: true,
            bridging: true,
            drops: true,
            routes: None,
            udp_one_way: true,
            exclude: Vec::new(),
            steer: Vec::new(),
        }
    }
}

/// `[punts]`: what the kernel is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Punts {
    /// Most packets that each CPU gives to the kernel, by reason; a reason that is not named has no limit.
    pub limits: BTreeMap<Limited, PacketsPerSecond>,
}

/// `[port.NAME]`: one network port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Port {
    /// The peer of this veth behaves as a wire: no merged frames, no unfinished checksums. XDP may then run on it.
    pub wire_true: bool,
    /// Who forwards what comes in here.
    pub path: PathChoice,
    /// What comes in here may leave by the kernel's routes without a flow, if `policy.routes` lets it.
    pub routes: bool,
}

impl Default for Port {
    fn default() -> Self {
        Port {
            wire_true: false,
            path: PathChoice::default(),
            routes: true,
        }
    }
}

/// `[daemon]`: the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Daemon {
    /// Network ports to accelerate; empty: each that forwards. `-i` replaces them.
    pub interfaces: Vec<String>,
    /// Control socket; absent: one for each network namespace, below /run/freeway, where clients look by themselves.
    /// `--socket` replaces it.
    pub socket: Option<PathBuf>,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub log: LogLevel,
    /// Receive buffer of each kernel event socket, bytes.
    pub rcvbuf_bytes: u32,
    /// Address that serves Prometheus metrics; absent: none. `--metrics` replaces it.
    pub metrics: Option<SocketAddr>,
}

impl Default for Daemon {
    fn default() -> Self {
        Daemon {
            interfaces: Vec::new(),
            socket: None,
            log: LogLevel::Info,
            rcvbuf_bytes: 8 << 20,
            metrics: None,
        }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// What failed.
    Error,
    /// And what someone should look at.
    Warn,
    /// And what changed.
    Info,
    /// And each decision.
    Debug,
    /// And each event.
    Trace,
}

impl LogLevel {
    /// As a filter of the log.
    pub fn directive(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

impl Config {
    /// Reads `path`, or the default file if there is one, or takes the defaults.
    pub fn read(path: Option<&Path>) -> Result<Config, Fault> {
        let file = path.unwrap_or(Path::new(DEFAULT_PATH));
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if path.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Config::default());
            }
            Err(error) => return Err(unreadable(file, &error.to_string())),
        };
        let mut config = Config::of(&text, &file.display().to_string())?;
        config.file = Some(file.to_path_buf());
        Ok(config)
    }

    /// Reads a file that was read before. A pipe would say nothing the second time, and might never end.
    pub fn read_again(path: Option<&Path>) -> Result<Config, Fault> {
        match path {
            Some(file) if file.metadata().is_ok_and(|meta| !meta.is_file()) => {
                Err(unreadable(file, "it is no regular file"))
            }
            _ => Config::read(path),
        }
    }

    /// Parses a configuration; `name` stands for the file in errors.
    pub fn parse(text: &str, name: &str) -> Result<Config, Stop> {
        Ok(Config::of(text, name)?)
    }

    fn of(text: &str, name: &str) -> Result<Config, Fault> {
        let mut config: Config = toml::from_str(text)
            .map_err(|error| Fault::in_text(name, text, error.span(), error.message()))?;
        config.places = Places::of(text);
        config.check().map_err(|(path, message)| Fault {
            file: Some(name.to_owned()),
            place: config.places.near(&path),
            key: Some(dotted(&unnumbered(&path))).filter(|key| !is_named(key, &message)),
            message,
        })?;
        Ok(config)
    }

    /// What types cannot express: the key, and what is wrong with it.
    fn check(&self) -> Result<(), (Vec<String>, String)> {
        if let Some(index) = self.policy.exclude.iter().position(Selection::is_empty) {
            let nth = index + 1;
            let path = ["policy", "exclude", &index.to_string()].map(str::to_owned);
            let message = format!(
                "policy.exclude number {nth} names nothing and would exclude everything; \
                 use policy.tcp = false and policy.udp = false for that"
            );
            return Err((path.into(), message));
        }
        let owns = |port: &str| self.engine.owns(port);
        freeway_api::check_steering(&self.policy.steer, owns).map_err(|(place, why)| {
            let path = ["policy", "steer", &place.to_string()].map(str::to_owned);
            let message = format!("policy.steer number {}: {why}", place + 1);
            (path.into(), message)
        })?;
        for (export, number) in self.export.iter().zip(0..) {
            export.check().map_err(|(key, message)| {
                let path = ["export", &format!("{number}"), key].map(str::to_owned);
                (path.into(), message)
            })?;
        }
        self.scrub.check().map_err(|(number, key, message)| {
            let path = ["scrub", "limit", &format!("{number}"), key].map(str::to_owned);
            (path.into(), message)
        })?;
        self.web
            .check()
            .map_err(|(key, message)| (vec!["web".into(), key.into()], message))?;
        self.engine.check().map_err(|message| {
            let path = self.places.named_by(&message);
            (path.unwrap_or_default().to_vec(), message)
        })
    }
}

/// Words name a key, or the list of tables that it is in.
fn is_named(key: &str, words: &str) -> bool {
    let table = key.rsplit_once('.').map(|(table, _)| table);
    let list = table.filter(|table| table.contains('.'));
    key.is_empty() || words.contains(key) || list.is_some_and(|list| words.contains(list))
}

fn unreadable(file: &Path, why: &str) -> Fault {
    Fault {
        message: format!("cannot read configuration {}: {why}", file.display()),
        ..Fault::default()
    }
}

#[cfg(test)]
mod tests {
    use freeway_api::{Proto, SteerPath};
    use freeway_console::Exit;

    use super::*;

    fn error(text: &str) -> String {
        let stop = Config::parse(text, "freeway.toml").unwrap_err();
        assert_eq!(stop.exit, Exit::Config);
        let message = stop.to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    }

    #[test]
    fn nothing_is_a_configuration() {
        assert_eq!(Config::parse("", "x").unwrap(), Config::default());
    }

    #[test]
    fn everything_is_read() {
        let text = r#"
            [flows]
            max = 1000
            tcp_idle_s = 10
            udp_idle_s = 5
            [policy]
            udp_one_way = false
            [[policy.exclude]]
            proto = "udp"
            dst = ["192.0.2.0/24", "2001:db8::/32"]
            dport = [53, "5060-5061"]
            port = ["wan0"]
            [[policy.steer]]
            path = "engine"
            dst = ["198.51.100.0/24"]
            dport = [53]
            [punts.limits]
            fragment = 10_000
            miss_close = 1
            [[scrub.limit]]
            port = ["wan0"]
            proto = "syn"
            packets_per_s = 200
            [[scrub.limit]]
            proto = "any"
            packets_per_s = 100_000
            burst = 5
            prefix_len4 = 24
            prefix_len6 = 48
            [port.lan0]
            wire_true = true
            path = "kernel"
            routes = false
            [accounting]
            active_s = 30
            [[export]]
            collector = "192.0.2.9:4739"
            transport = "tcp"
            [[export]]
            collector = "[2001:db8::9]:2055"
            format = "netflow9"
            domain = 7
            [web]
            listen = "192.0.2.1:8080"
            token_file = "/etc/freeway/web.token"
            hosts = ["router.lan"]
            [daemon]
            interfaces = ["lan0"]
            socket = "/run/x.sock"
            log = "debug"
            rcvbuf_bytes = 1048576
            metrics = "127.0.0.1:9100"
        "#;
        let config = Config::parse(text, "x").unwrap();
        assert_eq!(config.flows.max, 1000);
        assert!(config.policy.tcp && !config.policy.udp_one_way);
        let exclude = &config.policy.exclude[0];
        assert_eq!(exclude.proto, Some(Proto::UDP));
        assert!(exclude.dport[1].contains(5061));
        let steer = &config.policy.steer[0];
        assert_eq!(steer.path, Some(SteerPath::Engine));
        assert_eq!(steer.words(), "dst 198.51.100.0/24 dport 53");
        assert_eq!(
            config.port["lan0"],
            Port {
                wire_true: true,
                path: PathChoice::Kernel,
                routes: false
            }
        );
        let limits: Vec<_> = config.punts.limits.iter().collect();
        let names = limits.iter().map(|(of, rate)| (of.reason().name, rate.0));
        assert!(names.eq([("fragment", 10_000), ("miss_close", 1)]));
        let [syn, any] = &config.scrub.limit[..] else {
            panic!("{:?}", config.scrub);
        };
        assert_eq!((&syn.port[..], syn.burst()), (&["wan0".to_owned()][..], 64));
        assert_eq!((any.burst(), any.prefix_len4, any.prefix_len6), (5, 24, 48));
        assert_eq!((syn.prefix_len4, syn.prefix_len6), (32, 64));
        assert_eq!(
            (config.accounting.active_s, config.accounting.idle_s),
            (30, 60)
        );
        let [one, other] = &config.export[..] else {
            panic!("{:?}", config.export);
        };
        assert_eq!((one.format, one.transport), (Format::Ipfix, Transport::Tcp));
        assert!(one.biflow && one.room() == 1428);
        assert_eq!((other.format, other.domain), (Format::Netflow9, 7));
        assert_eq!(config.web.hosts, ["router.lan"]);
        assert_eq!(config.daemon.log, LogLevel::Debug);
        assert_eq!(config.daemon.interfaces, ["lan0"]);
    }

    #[test]
    fn errors_name_line_and_key() {
        for (text, place, words) in [
            (
                "[flows]\nmax = \"many\"\n",
                ":2:7: key `max`",
                "expected u32",
            ),
            (
                "[flows]\nmaximum = 1\n",
                ":2:1: ",
                "unknown field `maximum`, expected one of `max`",
            ),
            ("[flow]\n", ":1:2: ", "unknown field `flow`"),
            (
                "# a comment\n\n[port.lan0]\nwire_true = 1\n",
                ":4:13: key `wire_true`",
                "expected a boolean",
            ),
            (
                "[port.lan0]\npath = \"xpd\"\n",
                ":2:8: key `path`",
                "unknown variant `xpd`, expected one of `auto`, `xdp`, `tc`, `kernel`",
            ),
            (
                "[[policy.exclude]]\nsrc = [\"192.0.2.0/33\"]\n",
                ":2:7: key `src`",
                "at most 32 bits",
            ),
            (
                "[[policy.exclude]]\ndport = [70000]\n",
                ":2:9: key `dport`",
                "a port: a number from 0 to 65535",
            ),
            (
                "[[policy.steer]]\ndst = [\"192.0.2.0/24\"]\n",
                ":1:1: ",
                "policy.steer number 1: it has neither path nor mirror",
            ),
            (
                "[[policy.steer]]\nmirror = \"a\"\nport = [\"b\"]\n\
                 [engine.port.a]\nvdev = \"x\"\n[engine.port.b]\naf_xdp = true\n",
                ":1:1: ",
                "policy.steer number 1: port: b is the kernel's",
            ),
            (
                "[[policy.steer]]\npath = \"tc\"\n",
                ":2:8: key `path`",
                "unknown variant `tc`, expected `engine` or `xdp`",
            ),
            (
                "[daemon]\nlog = \"loud\"\n",
                ":2:7: key `log`",
                "unknown variant `loud`",
            ),
            (
                "[[export]]\nformat = \"ipfix\"\n",
                ":1:1: ",
                "missing field `collector`",
            ),
            (
                "[[export]]\ncollector = \"192.0.2.9\"\n",
                ":2:13: key `collector`",
                "socket address",
            ),
            (
                "[[export]]\ncollector = \"192.0.2.9:1\"\nformat = \"netflow9\"\ntransport = \"tcp\"\n",
                ":4:1: key `export.transport`",
                "NetFlow v9 goes over UDP alone",
            ),
            (
                "[accounting]\nactive_s = 0\n",
                ":2:12: key `active_s`",
                "0 is out of range; it may be 1 to 86400",
            ),
            ("[flows\n", ":1:7: ", "unclosed table"),
            (
                "[punts.limits]\nfragments = 1000\n",
                ":2:1: ",
                "`fragments` is no reason, did you mean `fragment`? a limit may be set for short,",
            ),
            (
                "[punts.limits]\nnot_ip = 1000\n",
                ":2:1: ",
                "`not_ip` (neither IPv4 nor IPv6) cannot be limited; a limit may be set for short,",
            ),
            (
                "[punts.limits]\nicmp = 0\n",
                ":2:8: key `icmp`",
                "invalid value: integer `0`, expected packets a second, 1 to 4294967295",
            ),
            (
                "[punts]\nlimits = { icmp = -5 }\n",
                ":2:19: key `limits`",
                "expected packets a second",
            ),
            (
                "[punts.limits]\nicmp = \"10k\"\n",
                ":2:8: key `icmp`",
                "invalid type: string",
            ),
            (
                "[punts]\nlimit = 1\n",
                ":2:1: ",
                "unknown field `limit`, expected `limits`",
            ),
            (
                "[[scrub.limit]]\nproto = \"udp\"\n",
                ":1:1: ",
                "missing field `packets_per_s`",
            ),
            (
                "[[scrub.limit]]\npackets_per_s = 1\n",
                ":1:1: ",
                "missing field `proto`",
            ),
            (
                "[[scrub.limit]]\nproto = \"sctp\"\npackets_per_s = 1\n",
                ":2:9: key `proto`",
                "unknown variant `sctp`, expected one of `any`, `tcp`, `syn`, `udp`, `icmp`",
            ),
            (
                "[[scrub.limit]]\nproto = \"udp\"\npackets_per_s = 0\n",
                ":3:17: key `packets_per_s`",
                "0 is out of range; it may be 1 to 100000000",
            ),
            (
                "[[scrub.limit]]\nproto = \"udp\"\npackets_per_s = 1\nprefix_len4 = 33\n",
                ":4:15: key `prefix_len4`",
                "33 is out of range; it may be 1 to 32",
            ),
            (
                "[[scrub.limit]]\nproto = \"udp\"\npackets_per_s = 1\nprefix_len6 = 0\n",
                ":4:15: key `prefix_len6`",
                "0 is out of range; it may be 1 to 128",
            ),
            (
                "[[scrub.limit]]\nproto = \"udp\"\npackets_per_s = 2\nburst = 0\n",
                ":4:1: ",
                "scrub.limit.burst is out of range; with 2 packets a second it may be 1 to 7200",
            ),
            (
                "[scrub]\nlimits = 1\n",
                ":2:1: ",
                "unknown field `limits`, expected `limit`",
            ),
            (
                "[policy]\ntcp = true\ntcp = false\n",
                ":3:1: key `tcp`",
                "duplicate key",
            ),
            (
                "[daemon]\nmetrics = \"here\"\n",
                ":2:11: key `metrics`",
                "socket address",
            ),
        ] {
            let message = error(text);
            assert!(
                message.starts_with(&format!("freeway.toml{place}")),
                "{message}"
            );
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn values_have_limits() {
        assert!(error("flows.max = 0").contains(":1:13: key `flows.max`: 0 is out of range"));
        assert!(
            error("[flows]\nudp_idle_s = 0").contains(":2:14: key `udp_idle_s`: 0 is out of range")
        );
        let nothing = "[policy]\ntcp = true\n\n[[policy.exclude]]\n";
        assert!(error(nothing).starts_with("freeway.toml:4:1: policy.exclude number 1"));
        let many = "[[scrub.limit]]\nproto = \"any\"\npackets_per_s = 1\n".repeat(17);
        let many = error(&many);
        assert!(
            many.starts_with("freeway.toml:50:1: there may be 16"),
            "{many}"
        );
        let open = error("[web]\nhosts = []\nlisten = \"0.0.0.0:80\"\n");
        assert!(open.starts_with("freeway.toml:3:1: web.listen: others reach 0.0.0.0:80"));
        let engine = "[flows]\n[engine.port.lan0]\nmtu = 1400\n";
        assert!(error(engine).starts_with("freeway.toml:2:14: engine.port.lan0: it names no"));
    }

    #[test]
    fn unreadable_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Stop::from(Config::read(Some(&dir.path().join("none.toml"))).unwrap_err());
        assert_eq!(stop.exit, Exit::Config);
        assert!(
            stop.to_string().contains("none.toml: No such file"),
            "{stop}"
        );
        assert!(Config::read_again(Some(dir.path())).is_err());
    }
}
