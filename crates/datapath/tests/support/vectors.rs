// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs tests/vectors/*.toml on a target. A vector names the verdict, the bytes, and every counter
//! and every field of a flow that changes; whatever it does not name must not change.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use freeway_abi::{REASONS, fw_conn, fw_control, fw_state};
use freeway_datapath::DataplaneEvent;
use serde::Deserialize;
use toml::{Table, Value};

use super::frame::Frame;
use super::state::{Change, Flow, Tick};
use super::target::{Loaded, Target};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    /// Flows 1, 2, ...
    #[serde(default)]
    flows: Vec<Table>,
    #[serde(default)]
    control: Control,
    conn: Option<Conn>,
    /// conntrack is liberal with the connection, whose largest window is that.
    window: Option<u32>,
    frame: Table,
    #[serde(default = "one")]
    port: u32,
    #[serde(default = "one")]
    times: u32,
    /// Forwarded: how the frame that leaves differs from the one that came in, but for its checksums.
    out: Option<Table>,
    /// Dropped, for the reason.
    #[serde(default)]
    drop: bool,
    /// Left to the kernel: why.
    reason: Option<String>,
    /// Instead of that reason, once for each time.
    counts: Option<BTreeMap<String, u64>>,
    /// What becomes of flows 1, 2, ...
    #[serde(default)]
    state: Vec<Change>,
    event: Option<Event>,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Control {
    on: u32,
    epoch: u32,
    learn: u32,
    deadline: Tick,
    reval_budget: u32,
    check_budget: u32,
    sample_budget: u32,
    /// What ends of TCP connections said before counts no more.
    edges: Option<Tick>,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            on: 1,
            epoch: 1,
            learn: 0,
            deadline: Tick("now+1000000".into()),
            reval_budget: 1000,
            check_budget: 1000,
            sample_budget: 1,
            edges: None,
        }
    }
}

/// What conntrack answers to the check of a hit.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Conn {
    status: u32,
    mark: u32,
    tcp_state: u8,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    reason: String,
    state: u32,
}

fn number(reason: &str) -> usize {
    REASONS
        .iter()
        .position(|r| r.name == reason)
        .unwrap_or_else(|| panic!("no reason {reason}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.chunks(16).fold(String::new(), |mut text, line| {
        for byte in line {
            let _ = write!(text, " {byte:02x}");
        }
        text + "\n"
    })
}

/// A field that counts ticks may be as the clock was at any moment of the run.
fn same_state(want: [&fw_state; 2], have: &fw_state) -> bool {
    let within = |low: u32, high: u32, have: u32| have.wrapping_sub(low) <= high.wrapping_sub(low);
    let [low, high] = want;
    let ticks = within(low.used_tick, high.used_tick, have.used_tick)
        && within(low.due_tick, high.due_tick, have.due_tick)
        && within(low.reval_tick, high.reval_tick, have.reval_tick)
        && within(low.confirmed_tick, high.confirmed_tick, have.confirmed_tick);
    let rest = fw_state {
        used_tick: have.used_tick,
        due_tick: have.due_tick,
        reval_tick: have.reval_tick,
        confirmed_tick: have.confirmed_tick,
        ..*low
    };
    ticks && rest == *have
}

/// What a vector says of a target that does not ask conntrack: the kernel gets what closes a connection as it came, and the
/// flow stays as it is, for it is closed by the connection's event. `None`: nothing.
fn without_conntrack(mut vector: Vector, frame: &Frame) -> Option<Vector> {
    let reason = vector.reason.as_deref();
    if matches!(reason, Some("conn_gone" | "conn_changed")) {
        return None;
    }
    let closes = frame.proto == 6 && frame.tcp_flags & 0x07 != 0;
    let judged = vector.out.is_some()
        || matches!(
            reason,
            Some("closing" | "stray_close" | "tcp_flags" | "owner")
        );
    if closes && judged {
        vector.reason = Some("closing".into());
        vector.out = None;
        vector.drop = false;
        vector.state.clear();
        vector.event = None;
    }
    Some(vector)
}

struct Failures(Vec<String>);

impl Failures {
    fn check(&mut self, ok: bool, what: impl FnOnce() -> String) {
        if !ok {
            self.0.push(what());
        }
    }
}

/// Why the vector does not apply to the target, or what failed.
fn run(
    target: &mut dyn Target,
    common: &Table,
    vector: Vector,
) -> Result<Vec<String>, &'static str> {
    let frame: Frame = super::over(common, "frame", &vector.frame)
        .try_into()
        .unwrap();
    let vector = if target.asks_conntrack() {
        vector
    } else {
        without_conntrack(vector, &frame).ok_or("it does not ask conntrack")?
    };
    let bytes = frame.bytes();
    if bytes.len() < target.shortest_frame() {
        return Err("a frame this short cannot be put in");
    }
    if vector.port != 1 && !target.any_port() {
        return Err("frames come in at port 1");
    }
    if (vector.conn.is_some() || vector.window.is_some()) && !target.chooses_conntrack() {
        return Err("conntrack's answer cannot be chosen");
    }
    let flows: Vec<Flow> = vector
        .flows
        .iter()
        .map(|flow| super::over(common, "flow", flow).try_into().unwrap())
        .collect();
    let hz = target.hz();
    let start = target.now();
    target.control(&fw_control {
        deadline_tick: vector.control.deadline.at(start, hz),
        on: vector.control.on,
        epoch: vector.control.epoch,
        learn: vector.control.learn,
        reval_budget: vector.control.reval_budget,
        check_budget: vector.control.check_budget,
        sample_budget: vector.control.sample_budget,
        edges_tick: vector
            .control
            .edges
            .as_ref()
            .map_or(0, |edges| edges.at(start, hz)),
        ..Default::default()
    });
    let conn = vector
        .conn
        .as_ref()
        .map_or_else(fw_conn::default, |conn| fw_conn {
            present: 1,
            status: conn.status,
            mark: conn.mark,
            tcp_state: conn.tcp_state,
            ..Default::default()
        });
    target.conn(&conn);
    target.window(vector.window.unwrap_or(0));
    for (flow, index) in flows.iter().zip(1..) {
        let state = flow.state(start, hz);
        target.nexthop(index, flow.nexthop(Loaded::SLOT));
        target.keep(index, flow.kept());
        target.insert(index, &flow.record(index, target.is_tc(), state));
    }
    for (flow, index) in flows.iter().zip(1..) {
        target.set_peer(index, flow.peer);
    }
    let before: Vec<fw_state> = (1..=flows.len() as u32)
        .map(|index| target.state(index))
        .collect();
    target.events();
    let counts = target.counts();

    let outcomes: Vec<_> = (0..vector.times)
        .map(|_| target.run(&bytes, vector.port))
        .collect();

    let end = target.now();
    let counted: BTreeMap<&str, u64> = target
        .counts()
        .iter()
        .zip(&counts)
        .zip(REASONS.iter())
        .filter(|((after, before), _)| after != before)
        .map(|((after, before), reason)| (reason.name, after - before))
        .collect();
    let events = target.events();
    let after: Vec<fw_state> = (1..=flows.len() as u32)
        .map(|index| target.state(index))
        .collect();
    for index in 1..=flows.len() as u32 {
        target.remove(index);
    }

    let mut failures = Failures(Vec::new());
    let fast = vector.out.is_some();
    let name = if fast {
        "fast"
    } else {
        vector.reason.as_deref().expect("out or reason")
    };
    let wanted = match &vector.out {
        Some(out) => {
            let mut leaves = super::over(common, "frame", &vector.frame);
            leaves.insert("padding".into(), Value::Integer(0));
            leaves.extend(out.clone());
            leaves.try_into::<Frame>().unwrap().bytes()
        }
        None => bytes.clone(),
    };
    for outcome in &outcomes {
        failures.check(
            outcome.fast == fast && outcome.dropped == vector.drop,
            || format!("expected fast: {fast}, drop: {}; {outcome:?}", vector.drop),
        );
        failures.check(outcome.frame == wanted, || {
            format!(
                "frame that left:\n{}expected:\n{}",
                hex(&outcome.frame),
                hex(&wanted)
            )
        });
        if let (Some(reason), None) = (outcome.reason, &vector.counts) {
            let reason = REASONS[reason as usize].name;
            failures.check(reason == name, || {
                format!("reason {reason}, expected {name}")
            });
        }
        if let (true, Some(port)) = (fast, outcome.port_out) {
            let to = flows[0].to_port;
            failures.check(port == to, || format!("left at port {port}, expected {to}"));
        }
    }
    let expected: BTreeMap<&str, u64> = match &vector.counts {
        Some(counts) => counts
            .iter()
            .map(|(reason, n)| (REASONS[number(reason)].name, *n))
            .collect(),
        None if fast && !target.counts_fast() => BTreeMap::new(),
        None => [(REASONS[number(name)].name, u64::from(vector.times))].into(),
    };
    failures.check(counted == expected, || {
        format!("counted {counted:?}, expected {expected:?}")
    });
    for (i, (before, after)) in before.iter().zip(&after).enumerate() {
        let mut change = vector.state.get(i).cloned().unwrap_or_default();
        if fast && i == 0 {
            let times = u64::from(vector.times);
            change.packets.get_or_insert(times);
            change
                .bytes
                .get_or_insert(times * (14 + frame.len_l3() as u64));
            change.used.get_or_insert(Tick("now".into()));
        }
        let (mut low, mut high) = (
            change.apply(*before, start, hz),
            change.apply(*before, end, hz),
        );
        // what a fast plain segment says is noted
        if fast && i == 0 && frame.proto == 6 && frame.tcp_flags & 0x07 == 0 {
            for state in [&mut low, &mut high] {
                state.seq_be = frame.seq.to_be();
                state.ack_be = frame.ack.to_be();
                state.len_data = frame.payload as u16;
            }
        }
        failures.check(same_state([&low, &high], after), || {
            format!(
                "state of flow {} before, expected, after:\n{before:?}\n{low:?}\n{after:?}",
                i + 1
            )
        });
    }
    let seen: Vec<(&str, u32)> = events
        .iter()
        .map(|event| match event {
            DataplaneEvent::Suspended(ev) => (REASONS[ev.reason as usize].name, ev.state),
            other => panic!("{other:?}"),
        })
        .collect();
    let wanted: Vec<(&str, u32)> = vector
        .event
        .iter()
        .map(|event| (REASONS[number(&event.reason)].name, event.state))
        .collect();
    failures.check(seen == wanted, || {
        format!("events {seen:?}, expected {wanted:?}")
    });
    if !failures.0.is_empty() {
        failures
            .0
            .push(format!("all counters that changed: {counted:?}"));
        failures.0.push(format!("states after: {after:#?}"));
        failures
            .0
            .push(format!("frame that came in:\n{}", hex(&bytes)));
    }
    Ok(failures.0)
}

/// Runs all vectors of all files.
pub fn run_all(target: &mut dyn Target) {
    let common = super::read("common.toml");
    let mut files: Vec<PathBuf> = std::fs::read_dir(super::directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension().is_some_and(|e| e == "toml") && !path.ends_with("common.toml")
        })
        .collect();
    files.sort();
    let (mut passed, mut failed) = (0, Vec::new());
    let mut skipped: BTreeMap<&str, u32> = BTreeMap::new();
    for path in files {
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut table = super::read(&format!("{file}.toml"));
        let Some(Value::Array(vectors)) = table.remove("vector") else {
            continue;
        };
        for value in vectors {
            let mut table = value.as_table().unwrap().clone();
            // What differs at one target, on purpose, goes over the rest.
            for other in ["xdp", "tc", "user", "engine"] {
                if let Some(Value::Table(special)) = table.remove(other)
                    && other == target.name()
                {
                    table.extend(special);
                }
            }
            let name = table["name"].as_str().unwrap().to_owned();
            let vector: Vector = table
                .try_into()
                .unwrap_or_else(|error| panic!("{file}: {name}: {error}"));
            match run(target, &common, vector) {
                Ok(failures) if failures.is_empty() => passed += 1,
                Ok(failures) => {
                    println!(
                        "--- {}: {file}: {name}\n{}",
                        target.name(),
                        failures.join("\n")
                    );
                    failed.push(format!("{file}: {name}"));
                }
                Err(why) => *skipped.entry(why).or_default() += 1,
            }
        }
    }
    println!(
        "{}: {passed} passed, not applicable: {skipped:?}",
        target.name()
    );
    assert!(failed.is_empty(), "{}: {failed:#?}", target.name());
    assert!(passed > 50, "{}: {passed} vectors", target.name());
}
