// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configurations of a grammar, right and wrong ones in turn, under load: a right one holds whole, a wrong one changes nothing.
//!
//! The seed is printed; `FREEWAY_SEED` has the same ones drawn again.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use freeway_testkit::bench::{Bench, IN_FLIGHT};
use freeway_testkit::random::Random;
use freeway_testkit::*;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::grammar::{Configuration, Reach};
use super::{Case, FLOWS, PATIENCE, PPS, fast_ports};

/// Beside the load: a port of a bridge, and a rule that drops by a set.
const BESIDE: &[&str] = &[
    "ip link add br9 type bridge",
    "ip link add spare0 type veth peer name spare1",
    "ip link set spare0 master br9",
    "ip link set spare1 up",
    "ip link set spare0 up",
    "ip link set br9 up",
];
const RULES: &str = "table inet ban {\n set banned { type ipv4_addr; elements = { 203.0.113.66 } }\n\
    chain early { type filter hook prerouting priority raw; policy accept; ip saddr @banned drop; }\n}\n";
/// Ports at which metrics may be.
const METRICS: [u16; 3] = [9100, 9101, 9102];

/// What is known of the load while configurations come and go.
struct Drawn {
    case: Case,
    rng: Random,
    flows: usize,
    half: u16,
    /// That is in force, and its text.
    config: Configuration,
    text: String,
    refused: Vec<String>,
    /// Somebody else's listener, where metrics cannot be served.
    _taken: TcpListener,
}

impl Drawn {
    fn start(seed: u64) -> Self {
        let mut rng = Random(seed);
        let (bench, flows) = match long() {
            true => (Bench::of_nat(), freeway_testkit::bench::FLOWS),
            false => (
                Bench::light(freeway_lab::Options::default(), FLOWS, PPS),
                FLOWS,
            ),
        };
        let router = bench.lab.router();
        for line in BESIDE {
            router.tool(line).unwrap();
        }
        router.tool_with_input("nft -f -", RULES).unwrap();
        let taken = router.enter(|| TcpListener::bind("192.0.2.1:9100"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = Configuration::draw(&mut rng, Reach::Apart, 0);
        let text = config.text(&mut rng);
        fs::write(file.path(), &text).unwrap();
        let router = Router::start_by(router, file.path(), |status| fast_ports(status) >= 2);
        Self {
            case: Case {
                bench,
                router,
                file,
            },
            rng,
            flows: flows as usize,
            half: 0,
            config,
            text,
            refused: Vec::new(),
            _taken: taken.unwrap().unwrap(),
        }
    }

    /// The source port above which half of the flows are; how many are below.
    fn halve(&mut self) -> usize {
        let flows = self.case.router.flows("state fast");
        let sports = flows.iter().map(|flow| flow["sport"].as_u64().unwrap());
        let mut sports: Vec<u64> = sports.collect();
        sports.sort_unstable();
        let mut distinct = sports.clone();
        distinct.dedup();
        let middle = distinct[distinct.len() / 2];
        self.half = u16::try_from(middle).unwrap();
        sports.iter().filter(|sport| **sport < middle).count()
    }

    /// What the daemon says of what it goes by.
    fn state(&self) -> Value {
        let router = &self.case.router;
        let mut status = router.status();
        let of = |key: &str| status[key].clone();
        let told = ["pid", "on", "paused", "ruleset", "limits", "config_file"].map(of);
        let limits = status["scrub_limits"].as_array_mut().unwrap().iter_mut();
        let limits: Vec<Value> = limits
            .map(|limit| {
                limit.as_object_mut().unwrap().remove("dropped");
                limit.take()
            })
            .collect();
        let collectors = status["accounting"]["collectors"].as_array();
        let collectors: Vec<Value> = (collectors.into_iter().flatten())
            .map(|of| json!([of["collector"], of["format"], of["transport"]]))
            .collect();
        let ports = status["ports"].as_array().unwrap().iter();
        let ports: Vec<Value> = ports
            .map(|port| json!([port["name"], port["state"], port["path"], port["reasons"]]))
            .collect();
        let hosts = match status["accounting"].is_null() {
            true => Value::Null,
            false => {
                let hosts = router.json(&["hosts"])["prefixes"].take();
                let prefixes = hosts.as_array().unwrap().iter();
                prefixes.map(|of| of["prefix"].clone()).collect()
            }
        };
        let served = METRICS.map(|port| !self.case.metrics(port).is_empty());
        json!({
            "told": told,
            "limits": limits,
            "ports": ports,
            "steering": router.json(&["steer", "list"]),
            "drops": router.json(&["drops"])["enabled"],
            "accounts": !status["accounting"].is_null(),
            "collectors": collectors,
            "hosts": hosts,
            "metrics": served,
        })
    }

    /// The same once programs that come by turns are there.
    fn settled(&self) -> Value {
        let mut before = Value::Null;
        until("nothing changes any more", PATIENCE, || {
            let now = self.state();
            let same = now == before;
            let judged = !now["ports"].to_string().contains("it is new, ");
            before = now;
            (same && judged).then_some(())
        });
        before
    }

    /// What it says is what the file says.
    #[track_caller]
    fn holds(&self, state: &Value) {
        let meaning = &self.config.meaning;
        let served = METRICS.map(|port| meaning.metrics == Some(port));
        let counts = |key: &Value| key.as_array().unwrap().len();
        let text = &self.text;
        assert_eq!(state["metrics"], json!(served), "{text}");
        assert_eq!(state["drops"], meaning.drops, "{text}");
        assert_eq!(state["accounts"], meaning.accounts, "{text}");
        assert_eq!(counts(&state["limits"]), meaning.limits, "{text}");
        assert_eq!(
            counts(&state["steering"]["rules"]),
            meaning.steered,
            "{text}"
        );
    }

    /// A right one: it holds, and once it does, nothing more changes.
    #[track_caller]
    fn apply(&mut self, reach: Reach) {
        self.config = Configuration::draw(&mut self.rng, reach, self.half);
        self.text = self.config.text(&mut self.rng);
        fs::write(self.case.file.path(), &self.text).unwrap();
        let before = self.case.reloads();
        if self.rng.permille(250) {
            self.hang_up(&before, "applied");
        } else {
            let output = self.case.router.run(&["reload"]);
            let line = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}\n{}", self.text);
            eprint!("{}", String::from_utf8_lossy(&output.stdout));
        }
        self.unchanged();
    }

    /// One with something wrong: it is refused by file, line and key.
    #[track_caller]
    fn refuse(&mut self, reach: Reach) {
        let other = Configuration::draw(&mut self.rng, reach, self.half);
        let (text, fault) = other.spoiled(&mut self.rng);
        let name = self.case.name().to_owned();
        fs::write(&name, &text).unwrap();
        let before = self.case.reloads();
        let place = match fault.exit {
            78 => format!("{name}:{}:", fault.line),
            _ => format!("{name}: needs a restart: "),
        };
        let key = match fault.exit {
            78 => fault.words.to_owned(),
            _ => format!("{} (line {})", fault.words, fault.line),
        };
        if self.rng.permille(250) {
            self.hang_up(&before, "refused");
            self.refused.push(place);
        } else {
            let output = self.case.router.run(&["reload"]);
            let line = String::from_utf8(output.stderr).unwrap();
            eprint!("{line}");
            assert_eq!(output.status.code(), Some(fault.exit), "{line}\n{text}");
            assert_eq!(line.lines().count(), 1, "{line}");
            for words in [&place, &key, "nothing was changed"] {
                assert!(line.contains(words), "{words}: {line}\n{text}");
            }
        }
        // the file alone is to blame, or what is there
        let output = self
            .case
            .router
            .run(&["config", "check", "--elsewhere", &name]);
        let code = Some(if fault.only_here { 0 } else { 78 });
        assert_eq!(output.status.code(), code, "{text}");
        fs::write(&name, &self.text).unwrap();
        self.unchanged();
    }

    /// What the file says is in force already.
    #[track_caller]
    fn unchanged(&self) {
        let reloaded = self.case.router.json(&["reload"]);
        assert_eq!(reloaded["changes"], json!([]), "{}", self.text);
    }

    /// Waits until so many flows are fast, all by one path.
    #[track_caller]
    fn wait_load(&self, wanted: usize, path: &str) {
        let end = Moment::now() + PATIENCE;
        loop {
            let flows = self.case.router.flows("");
            let mut there = BTreeMap::new();
            for flow in &flows {
                let kind = format!("{} by {}", flow["state"], flow["path"]);
                *there.entry(kind).or_insert(0) += 1;
            }
            let active = format!("\"active\" by \"{path}\"");
            let fast = there.get(&active).copied().unwrap_or(0);
            let slow = |flow: &Value| flow["path"] != path && flow["state"] == "active";
            if fast == wanted && !flows.iter().any(slow) {
                return;
            }
            let stats = || self.case.router.stats();
            assert!(
                Moment::now() < end,
                "{wanted} by {path}: {there:?}\n{}\n{}",
                self.text,
                stats()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn hang_up(&self, before: &Value, what: &str) {
        self.case.router.signal(Signal::SIGHUP);
        let wanted = before[what].as_u64().unwrap() + 1;
        let text = fs::read_to_string(self.case.name()).unwrap();
        until(&format!("SIGHUP, {what}: {text}"), PATIENCE, || {
            (self.case.reloads()[what] == wanted).then_some(())
        });
    }
}

#[test]
fn whatever_is_drawn_holds_whole_or_changes_nothing() {
    let Some(_machine) = machine() else { return };
    let seed = match std::env::var("FREEWAY_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_micros() as u64,
    };
    eprintln!("FREEWAY_SEED={seed}");
    let [apart, about] = if long() { [70, 30] } else { [8, 4] };
    let mut drawn = Drawn::start(seed);
    let flows = drawn.flows;
    // whatever has no part in these changes nothing for them
    let load = drawn.case.bench.load();
    drawn.case.wait_flows("", flows);
    let mut history = drawn.case.history();
    let mut anew = 0;
    let mut state = drawn.settled();
    drawn.holds(&state);
    for number in 0..apart {
        if number % 2 == 0 {
            drawn.refuse(Reach::Apart);
            assert_eq!(drawn.state(), state);
        } else {
            drawn.apply(Reach::Apart);
            state = drawn.settled();
            drawn.holds(&state);
        }
        let now = drawn.case.history();
        if now != history {
            eprintln!("all flows are learned anew: {history:?} -> {now:?}");
            anew += 1;
            history = now;
            drawn.case.wait_flows("", flows);
        }
        assert_eq!(drawn.case.flows(""), flows, "{}", drawn.text);
    }
    let mut sent = drawn.case.bench.end(load);
    drawn.case.bench.check(&sent, 0);
    // and now for what has
    let load = drawn.case.bench.load();
    drawn.case.wait_flows("", flows);
    let kept = drawn.halve();
    let mut replaced = 0;
    for number in 0..about {
        if number % 2 == 0 {
            let before = drawn.settled();
            drawn.refuse(Reach::Load);
            assert_eq!(drawn.state(), before);
        } else {
            drawn.apply(Reach::Load);
            replaced += 2;
        }
        let meaning = &drawn.config.meaning;
        let wanted = match (meaning.path, meaning.excluded) {
            ("kernel", _) => 0,
            (_, true) => kept,
            (_, false) => flows,
        };
        drawn.wait_load(wanted, meaning.path);
    }
    // the other load's are counted, too
    sent.frames += drawn.case.bench.end(load).frames;
    drawn.case.bench.check(&sent, replaced * 2 * IN_FLIGHT);
    drawn.case.router.signal(Signal::SIGTERM);
    assert!(drawn.case.router.wait().success());
    let log = drawn.case.router.log();
    assert!(!log.contains("panicked"), "{log}");
    // a machine that others use may keep the daemon waiting for longer than the data plane's deadline
    let late = log.matches("the daemon was stopped for").count();
    assert!(
        anew <= late,
        "{anew} times, and the daemon was late {late} times: {log}"
    );
    for place in &drawn.refused {
        let told = log
            .lines()
            .any(|line| line.contains(place) && line.contains("nothing was changed"));
        assert!(told, "{place}: {log}");
    }
}
