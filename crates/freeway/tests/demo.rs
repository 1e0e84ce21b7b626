// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo and the bench: they end with figures, and nothing stays behind, however they end.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

/// They measure, so one at a time.
static MACHINE: Mutex<()> = Mutex::new(());

fn machine() -> Option<MutexGuard<'static, ()>> {
    if !geteuid().is_root() {
        println!("skipped: network namespaces need root");
        return None;
    }
    if Command::new("iperf3").arg("--version").output().is_err() {
        println!("skipped: iperf3 is not installed");
        return None;
    }
    Some(MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_freeway"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Fails if a namespace of the process `pid`, or a process inside one, is left.
#[track_caller]
fn nothing_left_of(pid: u32) {
    let prefix = format!("fw-{pid}-");
    let left: Vec<_> = std::fs::read_dir("/run/netns")
        .map(|entries| entries.flatten().map(|e| e.file_name()).collect())
        .unwrap_or_default();
    let left: Vec<_> = left
        .iter()
        .filter(|name| name.to_string_lossy().starts_with(&prefix))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Children of a process, by what the kernel says of every process.
fn children(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|child| {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
            fields.split_whitespace().nth(1) == Some(&pid.to_string())
        })
        .collect()
}

/// Runs `freeway ... --json` to its end: what it printed, and what it said meanwhile.
fn measure(arguments: &[&str]) -> (Value, String) {
    let child = start(&[arguments, &["--json"]].concat());
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    nothing_left_of(pid);
    (serde_json::from_slice(&output.stdout).unwrap(), words)
}

#[test]
fn the_demo_ends_with_a_ratio() {
    let Some(_machine) = machine() else {
        return;
    };
    let (demo, words) = measure(&["demo", "--seconds", "1", "--flows", "100"]);
    assert!(demo["packet_ratio"].as_f64().unwrap() > 1.5, "{demo}");
    assert!(
        demo["freeway"]["tcp_gbit_s"].as_f64().unwrap() > 0.0,
        "{demo}"
    );
    assert!(words.contains("packets took the fast path"), "{words}");
}

#[test]
fn the_bench_fills_its_fields() {
    let Some(_machine) = machine() else {
        return;
    };
    let (bench, _) = measure(&[
        "bench",
        "compare",
        "--scenario",
        "routed6",
        "--flows",
        "50",
        "--runs",
        "1",
        "--seconds",
        "1",
    ]);
    assert_eq!(bench["scenario"], "routed6");
    assert_eq!(
        (bench["frame_bytes"].as_u64(), bench["wire_bytes"].as_u64()),
        (Some(64), Some(66))
    );
    for field in [
        "source_ns",
        "kernel_ns",
        "freeway_mpps",
        "speedup",
        "over_redirect",
    ] {
        assert!(bench[field].as_f64().unwrap() > 0.0, "{field}: {bench}");
    }
    assert!(bench["fast_share"].as_f64().unwrap() > 0.9, "{bench}");
}

/// Each column has figures, or a reason where this kernel cannot have them.
#[test]
fn the_imx8_bench_fills_its_rows() {
    let Some(_machine) = machine() else {
        return;
    };
    let names = [
        "ipv4-tcp-lan-wan",
        "ipv6-udp-wan-lan",
        "ipv4-udp-lan-wan-vlan-nat",
    ];
    let rows: Vec<&str> = names.iter().flat_map(|name| ["--row", name]).collect();
    let arguments = ["bench", "imx8", "--runs", "1", "--seconds", "1"];
    let (bench, words) = measure(&[&arguments, &rows[..]].concat());
    assert_eq!(
        (&bench["flows"], &bench["path"]),
        (&64.into(), &"auto".into())
    );
    let rows = bench["rows"].as_array().unwrap();
    assert_eq!(rows.len(), names.len(), "{bench:#}");
    for (row, name) in rows.iter().zip(names) {
        assert_eq!(row["name"], name);
        let tagged = name.ends_with("-vlan-nat");
        assert_eq!(
            (&row["vlan_nat"], &row["frame_bytes"]),
            (&tagged.into(), &(if tagged { 1522 } else { 1518 }).into())
        );
        for column in ["kernel", "flowtable", "freeway"] {
            let column = (&row[column], column);
            if let Some(why) = column.0["missing"].as_str() {
                println!("{name} without {}: {why}", column.1);
                assert!(why.contains("CONFIG_"), "{row:#}");
                assert!(tagged || column.1 == "flowtable", "{row:#}");
                continue;
            }
            for figure in ["ns", "mbit_s", "line_cpu"] {
                assert!(
                    column.0[figure].as_f64().unwrap() > 0.0,
                    "{figure}: {row:#}"
                );
            }
            if column.1 != "kernel" {
                assert!(column.0["fast_share"].as_f64().unwrap() >= 0.98, "{row:#}");
            }
            assert!(words.contains(&format!("{name}, run 1 of 1: ")), "{words}");
        }
        if row["freeway"]["missing"].is_null() {
            assert!(
                row["kernel_over_freeway"].as_f64().unwrap() > 0.0,
                "{row:#}"
            );
        }
    }
}

#[test]
fn the_bulk_bench_fills_its_fields() {
    let Some(_machine) = machine() else {
        return;
    };
    let (bench, _) = measure(&[
        "bench",
        "bulk",
        "--streams",
        "2",
        "--runs",
        "1",
        "--seconds",
        "2",
    ]);
    let streams = &bench["streams"][0];
    assert_eq!(streams["streams"], 2);
    for router in ["kernel", "auto", "tc"] {
        let figures = &streams[router];
        assert!(
            figures["gbyte_per_cpu_s"].as_f64().unwrap() > 0.0,
            "{bench}"
        );
        let fast = figures["fast_share"].as_f64().unwrap();
        assert_eq!(fast > 0.9, router != "kernel", "{router}: {bench}");
    }
    assert!(streams["auto_ratio"].as_f64().unwrap() > 0.0, "{bench}");
    let program = |name: &str| bench["tc_program"][name].as_f64().unwrap();
    assert!(program("single_ns") > 0.0, "{bench}");
    assert!(program("merged_ns") > 0.0, "{bench}");
    assert!(
        (3000.0..66_000.0).contains(&program("merged_bytes")),
        "{bench}"
    );
}

#[test]
fn a_shaped_port_is_as_the_kernels() {
    let Some(_machine) = machine() else {
        return;
    };
    let (bench, _) = measure(&[
        "bench",
        "shaper",
        "--rate",
        "20",
        "--runs",
        "1",
        "--seconds",
        "5",
    ]);
    for router in ["kernel", "kernel_again", "freeway"] {
        let figure = |name: &str| bench[router][name].as_f64().unwrap();
        let (marked, dscp) = (figure("marked_mbit"), figure("dscp_mbit"));
        // the rate bounds frames, of which payload is a part; the classes share it by 60 to 40
        assert!((15.0..20.0).contains(&(marked + dscp)), "{bench}");
        assert!((1.2..1.9).contains(&(marked / dscp)), "{bench}");
        assert!(figure("latency_p50_ms") > 1.0, "{bench}");
        assert_eq!(figure("fast_share") > 0.9, router == "freeway", "{bench}");
    }
}

/// What a fault would do to floods, and a machine that is too busy could do, too.
fn flood_faults(kind: &Value) -> Vec<String> {
    let count = |field: &str| kind[field].as_u64().unwrap();
    let mut faults = Vec::new();
    let mut judge = |good: bool, what: &str| {
        if !good {
            faults.push(format!("{what}: {kind}"));
        }
    };
    judge(kind["daemon_cpu"].as_f64().unwrap() < 1.0, "daemon");
    let all = count("new_flows");
    // none can be fast that had no packets forwarded
    judge(count("new_flows_arrived") > 10 * all, "new flows' frames");
    judge(count("new_flows_fast") * 2 > all, "new flows fast");
    judge(count("new_flows_fast_after") == all, "fast after the flood");
    faults
}

#[test]
fn a_flood_fills_its_fields() {
    let Some(_machine) = machine() else {
        return;
    };
    let counting = || std::fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").unwrap();
    let before = counting();
    let mut faults = Vec::new();
    for attempt in 1..=3 {
        let kind = flood();
        for field in [
            "capacity_per_s",
            "flood_per_s",
            "hit_ns_before",
            "hit_ns_during",
            "miss_ns",
            "hits_per_miss",
            "freeway_sent",
            "kernel_sent",
        ] {
            assert!(kind[field].as_f64().unwrap() > 0.0, "{field}: {kind}");
        }
        let count = |field: &str| kind[field].as_u64().unwrap();
        assert!(
            count("memory_after_bytes") < count("memory_before_bytes") + (32 << 20),
            "{kind}"
        );
        faults = flood_faults(&kind);
        if faults.is_empty() {
            break;
        }
        println!("attempt {attempt}: {}", faults.join("\n"));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(counting(), before);
}

/// One run.
fn flood() -> Value {
    let (bench, _) = measure(&[
        "bench",
        "flood",
        "--kind",
        "udp-accepted",
        "--flows",
        "200",
        "--runs",
        "1",
        "--seconds",
        "2",
    ]);
    let kinds = bench["kinds"].as_array().unwrap();
    assert_eq!(kinds.len(), 1, "{bench}");
    kinds[0].clone()
}

#[test]
fn an_interrupted_demo_cleans_up() {
    let Some(_machine) = machine() else {
        return;
    };
    // While the kernel is measured, and while Freeway runs in the router.
    for moment in ["kernel: iperf3", "Freeway: iperf3"] {
        let mut child = start(&["demo", "--seconds", "2", "--flows", "10"]);
        let pid = child.id();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let reached = lines
            .map_while(Result::ok)
            .any(|line| line.contains(moment));
        assert!(reached, "the demo ended before `{moment}`");
        std::thread::sleep(Duration::from_millis(300));
        let inside = children(pid);
        assert!(!inside.is_empty());
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGINT).unwrap();
        assert!(!child.wait().unwrap().success());
        nothing_left_of(pid);
        // Zombies of whoever adopts them do not count.
        let gone = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ") || !Path::new(&format!("/proc/{pid}")).exists()
        };
        let patience = Instant::now() + Duration::from_secs(5);
        while !inside.iter().all(gone) {
            assert!(Instant::now() < patience, "{inside:?} still run");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
