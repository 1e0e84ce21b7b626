// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rulesets as firewall tools load them: which flows are fast on each, and why the others are not.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |            |---------| lan0           wan0 |---------|            |
//!  +------------+         |       docker0       |         +------------+
//!   192.0.2.2/24          +----------+----------+          198.51.100.2/24
//!   (to .33)                         |
//!                           container 172.17.0.2
//! ```
//!
//! `tests/rulesets/*.toml` are the expectations: the findings that `status` and `doctor` name, without their handles;
//! and flows. A flow without `slow` has to be fast in both directions, the first on its `path`. `slow` are words of what `explain` answers,
//! `note` words of one of its notes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use freeway_lab::{Filter, Lab, Netns, Options};
use freeway_testkit::*;
use serde::Deserialize;
use serde_json::Value;

/// How long a flow may take to be fast, or to say for good why it is not.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    loaders: Vec<String>,
    file: PathBuf,
    findings: Vec<String>,
    #[serde(default)]
    container: bool,
    flow: Vec<Flow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Flow {
    name: String,
    proto: String,
    #[serde(default)]
    from: Host,
    /// The client's address, if not the first.
    source: Option<String>,
    /// Port of the server.
    dport: Option<u16>,
    /// Address and port, where it is not the server's.
    to: Option<SocketAddr>,
    /// Where it arrives after translation.
    at: Option<SocketAddr>,
    /// Who forwards what comes from the client; XDP if not said.
    path: Option<String>,
    slow: Option<String>,
    note: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Host {
    #[default]
    Client,
    Server,
    Container,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/rulesets")
}

/// A namespace behind the bridge docker0 of the router.
struct Container(Netns);

impl Container {
    fn new(lab: &Lab) -> Container {
        // Named as the lab's own, whose leftovers are removed.
        let name = lab.router().name().replace("router", "container");
        ip(&["netns", "add", &name]);
        let container = Container(Netns::named(&name));
        let commands = format!(
            "link add docker0 type bridge\n\
             address add 172.17.0.1/16 dev docker0\n\
             link set docker0 up\n\
             link add docker1 master docker0 type veth peer name eth0 netns {name}\n\
             link set docker1 up\n"
        );
        lab.router()
            .tool_with_input("ip -batch -", &commands)
            .unwrap();
        let commands = "address add 172.17.0.2/16 dev eth0\nlink set eth0 up\n\
                        route add default via 172.17.0.1\n";
        container
            .0
            .tool_with_input("ip -batch -", commands)
            .unwrap();
        container
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        ip(&["netns", "del", self.0.name()]);
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().unwrap();
    assert!(status.success(), "ip {arguments:?}");
}

/// A conversation: both ends, and the addresses that the client used.
enum Ends {
    Udp(UdpSocket, UdpSocket),
    Tcp(TcpStream, TcpStream),
}

struct Conversation<'a> {
    flow: &'a Flow,
    from: SocketAddr,
    to: SocketAddr,
    ends: Ends,
}

impl Conversation<'_> {
    /// There and back. A datagram may be lost.
    fn exchange(&mut self) {
        let mut room = [0; 64];
        match &mut self.ends {
            Ends::Udp(near, far) => {
                near.send(b"there").unwrap();
                if let Ok((_, from)) = far.recv_from(&mut room) {
                    far.send_to(b"back", from).unwrap();
                    let _ = near.recv(&mut room);
                }
            }
            Ends::Tcp(near, far) => {
                near.write_all(b"there").unwrap();
                far.read_exact(&mut room[..5]).unwrap();
                far.write_all(b"back").unwrap();
                near.read_exact(&mut room[..4]).unwrap();
            }
        }
    }
}

struct Site {
    container: Option<Container>,
    lab: Lab,
}

impl Site {
    fn host(&self, address: SocketAddr) -> &Netns {
        match address.ip().to_string().as_str() {
            ip if ip.starts_with("192.0.2.") => self.lab.client(),
            ip if ip.starts_with("172.17.") => &self.container.as_ref().unwrap().0,
            _ => self.lab.server(),
        }
    }

    fn open<'a>(&self, flow: &'a Flow, sport: u16) -> Conversation<'a> {
        let source = match (flow.from, &flow.source) {
            (_, Some(source)) => source,
            (Host::Client, _) => "192.0.2.2",
            (Host::Server, _) => "198.51.100.2",
            (Host::Container, _) => "172.17.0.2",
        };
        let from = SocketAddr::new(source.parse().unwrap(), sport);
        let server = || SocketAddr::new("198.51.100.2".parse().unwrap(), flow.dport.unwrap());
        let to = flow.to.unwrap_or_else(server);
        let at = flow.at.unwrap_or(to);
        let (near, far) = (self.host(from), self.host(at));
        let ends = match flow.proto.as_str() {
            "udp" => {
                let (near, far) = (udp(near, from), udp(far, at));
                near.connect(to).unwrap();
                for socket in [&near, &far] {
                    let patience = Some(Duration::from_millis(200));
                    socket.set_read_timeout(patience).unwrap();
                }
                Ends::Udp(near, far)
            }
            "tcp" => {
                let listener = listen(far, at);
                let (near, far) = pair((near, from), to, &listener);
                Ends::Tcp(near, far)
            }
            other => panic!("{other}"),
        };
        Conversation {
            flow,
            from,
            to,
            ends,
        }
    }
}

/// Asks until the flow is as expected; else what is wrong.
fn judge(router: &Router, flow: &Flow, from: SocketAddr, to: SocketAddr) -> Result<(), String> {
    let (src, dst) = (from.to_string(), to.to_string());
    let question = ["explain", &flow.proto, &src, &dst];
    let end = Moment::now() + PATIENCE;
    loop {
        let json = router.json(&question);
        let summary = json["summary"].as_str().unwrap();
        let done = match &flow.slow {
            None => {
                json["verdict"] == "fast"
                    && json["flow"]["path"] == flow.path.as_deref().unwrap_or("xdp")
                    && json["reply_flow"]["state"] == "active"
            }
            Some(words) => {
                let notes = json["notes"].as_array().unwrap();
                let noted = |words: &String| {
                    let has = |note: &Value| note.as_str().unwrap().contains(words.as_str());
                    notes.iter().any(has)
                };
                json["verdict"] != "fast"
                    && json["flow"] == Value::Null
                    && summary.contains(words.as_str())
                    && flow.note.as_ref().is_none_or(noted)
            }
        };
        if done {
            println!("  {:16} {summary}", flow.name);
            return Ok(());
        }
        if Moment::now() > end {
            return Err(format!("{}: {json:#}", flow.name));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// A rule's words without its handle, which is the kernel's own.
fn without_handle(words: &str) -> String {
    match words.split_once(" (handle ") {
        Some((before, rest)) => format!("{before}{}", rest.split_once(')').unwrap().1),
        None => words.to_owned(),
    }
}

fn strings(list: &Value) -> Vec<String> {
    let words = list.as_array().unwrap().iter();
    words
        .map(|words| without_handle(words.as_str().unwrap()))
        .collect()
}

fn run(name: &str) {
    let Some(_machine) = machine() else { return };
    let path = directory().join(name).with_extension("toml");
    let case: Case = toml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let rules = fs::read_to_string(directory().join(&case.file)).unwrap();
    for loader in &case.loaders {
        let options = Options {
            filter: Some(Filter::None),
            ..Options::default()
        };
        let lab = build_with("routed", options);
        let site = Site {
            container: case.container.then(|| Container::new(&lab)),
            lab,
        };
        let program = Command::new(loader).arg("--version").output();
        if program.is_err() {
            println!("skipped: no {loader}");
            continue;
        }
        println!("{name}, by {loader}:");
        let line = match loader.as_str() {
            "nft" => "nft -f -",
            restore => restore,
        };
        site.lab.router().tool_with_input(line, &rules).unwrap();
        let router = Router::start(&site.lab);
        let ruleset = &router.status()["ruleset"];
        assert_eq!(strings(&ruleset["findings"]), case.findings, "{ruleset:#}");
        doctor(&router, &case.findings);
        flows(&site, &router, &case);
        router.stop();
    }
}

/// The doctor names the same rules as the status.
fn doctor(router: &Router, findings: &[String]) {
    let output = router.run(&["doctor", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = json["findings"].as_array().unwrap().iter();
    let rules = all.filter(|finding| finding["area"] == "rules" && finding["severity"] != "good");
    let words: Vec<String> = rules
        .map(|finding| without_handle(finding["words"].as_str().unwrap()))
        .collect();
    assert_eq!(words, findings, "{json:#}");
}

fn flows(site: &Site, router: &Router, case: &Case) {
    let mut conversations: Vec<_> = case
        .flow
        .iter()
        .zip(20_000..)
        .map(|(flow, sport)| site.open(flow, sport))
        .collect();
    let ends: Vec<_> = conversations
        .iter()
        .map(|talk| (talk.flow, talk.from, talk.to))
        .collect();
    let done = AtomicBool::new(false);
    let wrong: Vec<String> = thread::scope(|scope| {
        let _over = Ends(&done);
        for talk in &mut conversations {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    talk.exchange();
                    thread::sleep(Duration::from_millis(10));
                }
            });
        }
        let judged = ends
            .iter()
            .filter_map(|(flow, from, to)| judge(router, flow, *from, *to).err());
        judged.collect()
    });
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), router.stats());
}

#[test]
fn openwrt() {
    run("fw4");
}

#[test]
fn firewalld() {
    run("firewalld");
}

#[test]
fn ufw() {
    run("ufw");
}

#[test]
fn docker() {
    run("docker");
}

#[test]
fn gateway() {
    run("gateway");
}
