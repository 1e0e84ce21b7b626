// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of a daemon that runs is read again: all of it holds then, or nothing of it.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |  generator |---------| lan0           wan0 |---------| sink       |
//!  +------------+         +---------------------+         +------------+
//!   192.0.2.2/24      192.0.2.1/24      198.51.100.1/24   198.51.100.2/24
//!                       postrouting: masquerade on wan0
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod drawn;
mod grammar;

use std::process::Command;
use std::time::Duration;

use freeway_lab::Options;
use freeway_testkit::bench::{Bench, IN_FLIGHT};
use freeway_testkit::*;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const FLOWS: u32 = 64;
const PPS: u64 = 4000;
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon with a file of its own, under load.
struct Case {
    bench: Bench,
    router: Router,
    file: tempfile::NamedTempFile,
}

impl Case {
    fn start() -> Self {
        Self::start_with(Options::default(), 2)
    }

    fn start_with(options: Options, ports: usize) -> Self {
        let bench = Bench::light(options, FLOWS, PPS);
        let file = tempfile::NamedTempFile::new().unwrap();
        write(&bench, &file, "");
        let router = Router::start_by(bench.lab.router(), file.path(), |status| {
            fast_ports(status) == ports
        });
        Self {
            bench,
            router,
            file,
        }
    }

    /// Changes the file: the lab's ports, and more.
    fn write(&self, extra: &str) {
        write(&self.bench, &self.file, extra);
    }

    /// Changes the file and has it read; what changed, in words.
    #[track_caller]
    fn reload(&self, extra: &str) -> Vec<String> {
        self.write(extra);
        let reloaded = self.router.json(&["reload"]);
        assert_eq!(reloaded["file"], self.name());
        let changes = reloaded["changes"].as_array().unwrap();
        let value = |of: &Value| of.as_str().unwrap_or("none").to_owned();
        let words = |change: &Value| {
            let [key, from, to] = ["key", "from", "to"].map(|part| value(&change[part]));
            format!("{key}: {from} -> {to}")
        };
        changes.iter().map(words).collect()
    }

    /// Changes the file and has it read, which is refused; exit code and the line that says why.
    #[track_caller]
    fn refused(&self, extra: &str) -> (Option<i32>, String) {
        self.write(extra);
        let output = self.router.run(&["reload"]);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.contains("nothing was changed"), "{line}");
        (output.status.code(), line)
    }

    fn name(&self) -> &str {
        self.file.path().to_str().unwrap()
    }

    fn flows(&self, filter: &str) -> usize {
        self.router.flows(&format!("{filter} state fast")).len()
    }

    /// Waits until so many flows are fast; the traffic goes on.
    #[track_caller]
    fn wait_flows(&self, filter: &str, wanted: usize) {
        until(&format!("{wanted} fast flows {filter}"), PATIENCE, || {
            (self.flows(filter) == wanted).then_some(())
        });
    }

    /// Waits until all flows are fast by a path.
    #[track_caller]
    fn wait_path(&self, wanted: &str) {
        until(&format!("all by {wanted}"), PATIENCE, || {
            let flows = self.router.flows("state fast");
            let all = flows.iter().all(|flow| flow["path"] == wanted);
            (flows.len() == FLOWS as usize && all).then_some(())
        });
    }

    /// What no reload may change of flows that it does not concern: how many were ever learned, and the epoch.
    fn history(&self) -> [Value; 2] {
        let status = self.router.status();
        [status["learn"]["learned"].clone(), status["epoch"].clone()]
    }

    fn reloads(&self) -> Value {
        self.router.stats().0["reloads"].clone()
    }

    /// The metrics' page; empty if nobody serves there.
    fn metrics(&self, port: u16) -> String {
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
        );
        let mut bash = Command::new("bash");
        let netns = &self.router.netns;
        let output = netns.place(bash.args(["-c", &script])).unwrap().output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }
}

fn write(bench: &Bench, file: &tempfile::NamedTempFile, extra: &str) {
    // with two ports, the first line of what is appended is the eighth
    let ports = bench.lab.config_toml("");
    std::fs::write(file.path(), format!("{ports}\n{extra}")).unwrap();
}

fn fast_ports(status: &Value) -> usize {
    let ports = status["ports"].as_array().unwrap();
    ports.iter().filter(|port| port["state"] == "fast").count()
}

#[test]
fn what_is_not_concerned_stays_fast_and_nothing_is_lost() {
    let Some(_machine) = machine() else { return };
    let mut case = Case::start();
    let load = case.bench.load();
    case.wait_flows("", FLOWS as usize);
    let history = case.history();
    assert_eq!(case.reload(""), [""; 0]);
    let keys = "[flows]\nudp_idle_s = 45\n[policy]\nicmp = false\n[daemon]\nlog = \"error\"\nmetrics = \"127.0.0.1:9100\"\n";
    assert_eq!(
        case.reload(keys),
        [
            "daemon.log: \"info\" -> \"error\"",
            "daemon.metrics: none -> \"127.0.0.1:9100\"",
            "flows.udp_idle_s: 30 -> 45",
            "policy.icmp: true -> false",
        ]
    );
    let page = case.metrics(9100);
    assert!(
        page.contains("freeway_reloads_total{result=\"applied\"} 2\n"),
        "{page}"
    );
    case.reload(&keys.replace("9100", "9101"));
    assert!(!case.metrics(9101).is_empty());
    assert!(case.metrics(9100).is_empty());
    case.reload("");
    assert!(case.metrics(9101).is_empty());
    assert_eq!(case.history(), history);
    // some flows leave, and the others are not touched
    let flows = case.router.flows("");
    let mut sports: Vec<_> = flows.iter().map(|f| f["sport"].as_u64().unwrap()).collect();
    sports.sort_unstable();
    sports.dedup();
    let middle = sports[sports.len() / 2];
    let excluded = flows
        .iter()
        .filter(|f| f["sport"].as_u64().unwrap() >= middle)
        .count();
    assert!(excluded > 0 && excluded < FLOWS as usize, "{sports:?}");
    let exclude = format!("[[policy.exclude]]\nsport = [\"{middle}-65535\"]\n");
    assert_eq!(case.reload(&exclude).len(), 1);
    case.wait_flows("", FLOWS as usize - excluded);
    assert_eq!(case.flows(&format!("sport {middle}-65535")), 0);
    assert_eq!(case.history(), history);
    case.reload("");
    case.wait_flows("", FLOWS as usize);
    assert_eq!(case.reload("[policy]\nudp = false\n").len(), 1);
    case.wait_flows("", 0);
    case.reload("");
    case.wait_flows("", FLOWS as usize);
    let sent = case.bench.end(load);
    case.bench.check(&sent, 0);
    case.router.signal(Signal::SIGTERM);
    assert!(case.router.wait().success());
    let log = case.router.log();
    assert!(log.contains("daemon.log: \"info\" -> \"error\""), "{log}");
    assert!(!log.contains("9101\"\n"), "nothing but errors: {log}");
    assert!(log.contains("policy.udp: false -> true"), "{log}");
}

/// The LAN is a bridge, which is as its port is.
#[test]
fn ports_change_their_paths_and_come_and_go() {
    let Some(_machine) = machine() else { return };
    let bridge = Options {
        bridge: true,
        ..Options::default()
    };
    let case = Case::start_with(bridge, 3);
    let load = case.bench.load();
    let with = |port: &str, keys: &str| {
        let ports = case.bench.lab.config_toml("");
        let table = format!("[port.\"{port}\"]\n");
        assert!(ports.contains(&table), "{ports}");
        let ports = ports.replace(&table, &format!("{table}{keys}\n"));
        std::fs::write(case.file.path(), ports).unwrap();
        case.router.json(&["reload"])["changes"].clone()
    };
    case.wait_path("xdp");
    let change = json!({"key": "port.wan0.path", "from": "\"auto\"", "to": "\"tc\""});
    assert_eq!(with("wan0", "path = \"tc\""), json!([change]));
    case.wait_path("tc");
    with("wan0", "path = \"kernel\"");
    case.wait_flows("", 0);
    with("wan0", "");
    case.wait_path("xdp");
    with("lan0", "path = \"tc\"");
    case.wait_path("tc");
    case.reload("[daemon]\ninterfaces = [\"br0\", \"lan0\"]\n");
    case.wait_flows("", 0);
    assert_eq!(case.router.status()["ports"].as_array().unwrap().len(), 2);
    case.reload("");
    case.wait_path("xdp");
    case.reload("[policy]\nbridging = false\n");
    case.wait_path("tc");
    case.reload("[policy]\ndrops = false\nmulticast = false\nudp_one_way = false\n");
    case.wait_path("xdp");
    assert_eq!(case.router.json(&["drops"])["enabled"], false);
    case.reload("");
    assert_eq!(case.router.json(&["drops"])["enabled"], true);
    case.router.wait_in_step();
    case.wait_path("xdp");
    let sent = case.bench.end(load);
    // each program that comes or goes replaces the port's rings
    case.bench
        .check(&sent, (16 * IN_FLIGHT).max(sent.frames / 1000));
    case.router.stop();
}

#[test]
fn what_is_refused_changes_nothing() {
    let Some(_machine) = machine() else { return };
    let mut case = Case::start();
    let load = case.bench.load();
    case.wait_flows("", FLOWS as usize);
    let history = case.history();
    let name = case.name().to_owned();
    let taken = || std::net::TcpListener::bind("192.0.2.1:9100");
    let _taken = case.router.netns.enter(taken).unwrap().unwrap();
    // whatever else the file says
    let kernel = "[policy]\nudp = false\n";
    for (text, code, words) in [
        (
            "[flows]\ntcp_idle_s = 0\n",
            78,
            ":13:14: key `tcp_idle_s`: 0 is out of range",
        ),
        ("[flow]\n", 78, ":12:2: unknown field `flow`"),
        ("[flows\n", 78, ":12:"),
        (
            "[port.lan9]\npath = \"tc\"\n",
            78,
            ":12:7: key `port.lan9`: lan9: no such",
        ),
        (
            "[daemon]\nmetrics = \"192.0.2.1:9100\"\n",
            78,
            ":13:1: key `daemon.metrics`: cannot serve",
        ),
        (
            "[flows]\nmax = 9\n[daemon]\nsocket = \"/x\"\nlog = \"debug\"\n",
            1,
            ": needs a restart: daemon.socket (line 15), flows.max (line 13)",
        ),
        (
            "[punts.limits]\nicmp = 9\n",
            1,
            ": needs a restart: punts.limits.icmp (line 13)",
        ),
    ] {
        let (exit, line) = case.refused(&format!("{kernel}{text}"));
        assert_eq!(exit, Some(code), "{line}");
        assert!(line.contains(&format!("{name}{words}")), "{words}: {line}");
    }
    let refused = 7;
    // the daemon and `freeway config check` say the same
    case.write("[port.lan9]\n");
    let output = case.router.run(&["config", "check", &name]);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{line}");
    assert!(
        line.contains(&format!("{name}:10:7: key `port.lan9`")),
        "{line}"
    );
    let output = case.router.run(&["config", "check", "--elsewhere", &name]);
    assert_eq!(output.status.code(), Some(0));
    for (text, expected) in [
        (
            "[flows]\nudp_idle_s = 0\n",
            json!({"applied": 0, "refused": refused + 1}),
        ),
        (
            "[flows]\nmax = 7\n",
            json!({"applied": 0, "refused": refused + 2}),
        ),
        (
            "[flows]\nudp_idle_s = 31\n",
            json!({"applied": 1, "refused": refused + 2}),
        ),
    ] {
        case.write(text);
        case.router.signal(Signal::SIGHUP);
        until("SIGHUP is obeyed", PATIENCE, || {
            (case.reloads() == expected).then_some(())
        });
    }
    std::fs::remove_file(&name).unwrap();
    let output = case.router.run(&["reload"]);
    assert_eq!(output.status.code(), Some(78), "a file that is gone");
    // the file holds again, not what was changed beside it
    case.router
        .json(&["steer", "add", "engine", "proto", "tcp"]);
    assert_eq!(
        case.reload("[flows]\nudp_idle_s = 31\n"),
        ["policy.steer: [{ path = \"engine\", proto = \"tcp\" }] -> []"]
    );
    assert_eq!(case.history(), history);
    assert_eq!(case.flows(""), FLOWS as usize);
    let sent = case.bench.end(load);
    case.bench.check(&sent, 0);
    case.router.signal(Signal::SIGTERM);
    assert!(case.router.wait().success());
    let log = case.router.log();
    for words in [
        ":11:14: key `udp_idle_s`: 0 is out of range",
        "needs a restart: flows.max (line 11)",
        "configuration: flows.udp_idle_s: 30 -> 31",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}
