// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo and the bench: they end with figures, and nothing stays behind, however they end.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::MutexGuard;
use std::time::Duration;

use freeway_testkit::{Moment, freeway, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// They measure, so one at a time, and need a tool more than others.
fn machine() -> Option<MutexGuard<'static, ()>> {
    let machine = freeway_testkit::machine()?;
    if Command::new("iperf3").arg("--version").output().is_err() {
        println!("skipped: iperf3 is not installed");
        return None;
    }
    Some(machine)
}

fn start(arguments: &[&str]) -> Child {
    freeway()
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

/// Runs `freeway ... --json` to its end.
fn run(arguments: &[&str]) -> Output {
    let child = start(&[arguments, &["--json"]].concat());
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    nothing_left_of(pid);
    output
}

/// The same: what it printed, and what it said meanwhile.
fn measure(arguments: &[&str]) -> (Value, String) {
    let output = run(arguments);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    (serde_json::from_slice(&output.stdout).unwrap(), words)
}

/// Measures again what a busy machine can have spoiled; a fault shows in each attempt.
fn attempt(mut faults_of: impl FnMut() -> Vec<String>) {
    let mut faults = Vec::new();
    for attempt in 1..=3 {
        faults = faults_of();
        if faults.is_empty() {
            break;
        }
        println!("attempt {attempt}: {}", faults.join("\n"));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What [`attempt`] takes, of one claim.
fn fault_unless(good: bool, bench: &Value) -> Vec<String> {
    (!good).then(|| bench.to_string()).into_iter().collect()
}

/// Measures again where Freeway's share of the packets is too small: its daemon was away, and the kernel forwarded.
fn measure_fast(share: f64, arguments: &[&str]) -> (Value, String) {
    fn shares(result: &Value) -> Vec<f64> {
        match result {
            Value::Object(fields) => {
                let own = fields.get("fast_share").and_then(Value::as_f64);
                own.into_iter()
                    .chain(fields.values().flat_map(shares))
                    .collect()
            }
            Value::Array(values) => values.iter().flat_map(shares).collect(),
            _ => Vec::new(),
        }
    }
    let mut measured = (Value::Null, String::new());
    attempt(|| {
        measured = measure(arguments);
        // the kernel has none, or 0
        let fast = |of: &f64| *of == 0.0 || *of >= share;
        fault_unless(shares(&measured.0).iter().all(fast), &measured.0)
    });
    measured
}

#[test]
fn the_demo_ends_with_a_ratio() {
    let Some(_machine) = machine() else {
        return;
    };
    let (demo, words) = measure(&["demo", "--seconds", "1", "--flows", "100"]);
    assert!(demo["packet_ratio"].as_f64().unwrap() > 0.0, "{demo}");
    assert!(
        demo["freeway"]["tcp_gbit_s"].as_f64().unwrap() > 0.0,
        "{demo}"
    );
    for router in ["kernel", "freeway"] {
        let cpu_ms = demo[router]["tcp_cpu_ms_per_gbit"].as_f64().unwrap();
        assert!(cpu_ms > 0.0, "{demo}");
    }
    assert!(demo["tcp_cpu_ratio"].as_f64().unwrap() > 0.0, "{demo}");
    assert!(words.contains("packets took the fast path"), "{words}");
}

#[test]
fn the_bench_fills_its_fields() {
    let Some(_machine) = machine() else {
        return;
    };
    let (bench, _) = measure_fast(
        0.9,
        &[
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
        ],
    );
    assert_eq!(bench["scenario"], "routed6");
    assert_eq!(
        (bench["frame_bytes"].as_u64(), bench["wire_bytes"].as_u64()),
        (Some(64), Some(66))
    );
    assert!(bench["source_ns"].as_f64().unwrap() > 0.0, "{bench}");
    // differences of two times: others at work may make one negative
    for field in ["kernel_ns", "freeway_mpps", "speedup", "over_redirect"] {
        assert!(bench[field].is_number(), "{field}: {bench}");
    }
    assert!(bench["fast_share"].as_f64().unwrap() > 0.9, "{bench}");
}

/// Each CPU has its own flows and about its part of the frames; more CPUs than there are is an error that says so.
#[test]
fn several_cpus_send_at_once() {
    let Some(_machine) = machine() else {
        return;
    };
    let compare = ["bench", "compare", "--scenario", "routed"];
    let short = ["--runs", "1", "--seconds", "0.5", "--brief"];
    let online = Command::new("getconf").arg("_NPROCESSORS_ONLN").output();
    let online = String::from_utf8(online.unwrap().stdout).unwrap();
    let online: usize = online.trim().parse().unwrap();

    let more = (online + 1).max(2).to_string();
    let child = start(&[&compare[..], &["--cpus", &more], &short].concat());
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{words}");
    assert!(
        words.contains(&format!("this machine has {online}")),
        "{words}"
    );
    if online < 2 {
        println!("skipped: this machine has one CPU");
        return;
    }

    let two = ["--cpus", "2", "--flows", "51"];
    let (bench, _) = measure_fast(0.9, &[&compare[..], &two, &short].concat());
    assert_eq!(bench["scenario"], "routed");
    assert_eq!(bench["flows"], 51);
    for router in ["kernel", "freeway", "redirect"] {
        for field in ["one_mpps", "all_mpps", "ratio"] {
            let figure = bench[router][field].as_f64();
            assert!(figure.unwrap() > 0.0, "{router} {field}: {bench}");
        }
        assert!(bench[router]["lost_share"].is_number(), "{router}: {bench}");
    }
    for field in ["speedup_one", "speedup_all"] {
        assert!(bench[field].is_number(), "{field}: {bench}");
    }
    assert!(bench["fast_share"].as_f64().unwrap() > 0.9, "{bench}");
    let cpus = bench["cpus"].as_array().unwrap();
    let all = |field: &str| -> Vec<f64> {
        let each = cpus.iter().map(|cpu| cpu[field].as_f64().unwrap());
        each.collect()
    };
    assert_eq!(all("cpu"), [0.0, 1.0]);
    assert_eq!(all("flows"), [25.0, 26.0]);
    for field in ["kernel_share", "freeway_share"] {
        let shares = all(field);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{bench}");
        assert!(shares.iter().all(|share| *share > 0.0), "{bench}");
    }
    assert_eq!(bench["samples"].as_array().unwrap().len(), 1, "{bench}");
}

#[test]
fn flows_go_to_many_hosts() {
    let Some(_machine) = machine() else {
        return;
    };
    let (bench, _) = measure_fast(
        0.9,
        &[
            "bench",
            "compare",
            "--scenario",
            "nat",
            "--flows",
            "60",
            "--destinations",
            "20",
            "--runs",
            "1",
            "--seconds",
            "0.5",
            "--no-peers",
            "--brief",
        ],
    );
    assert_eq!(bench["destinations"], 20);
    assert!(bench["kernel_ns"].is_number(), "{bench}");
    assert!(bench["fast_share"].as_f64().unwrap() > 0.9, "{bench}");
}

/// Around each packet is something that the bridge's, VLAN's or session's router takes off or puts on. Where a kernel lacks that, it
/// is named, and nothing is left.
#[test]
fn the_bench_of_homes_is_fast_or_says_why_not() {
    let Some(_machine) = machine() else {
        return;
    };
    for (scenario, wire_bytes, needs) in [
        ("bridge", 64, "CONFIG_BRIDGE"),
        ("vlan", 68, "CONFIG_VLAN_8021Q"),
        ("pppoe", 64, "CONFIG_PPPOE"),
    ] {
        attempt(|| {
            let output = run(&[
                "bench",
                "compare",
                "--scenario",
                scenario,
                "--flows",
                "50",
                "--runs",
                "1",
                "--seconds",
                "0.5",
                "--brief",
            ]);
            let words = String::from_utf8_lossy(&output.stderr);
            if output.status.code() == Some(69) {
                println!("without {scenario}: {words}");
                assert!(words.contains(needs), "{words}");
                assert!(output.stdout.is_empty());
                return Vec::new();
            }
            assert!(output.status.success(), "{words}");
            let bench: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(bench["scenario"], scenario);
            assert_eq!(bench["wire_bytes"], wire_bytes);
            assert_eq!(bench["kernel"], "kernel_stateful");
            for field in ["kernel_mpps", "freeway_mpps", "redirect_mpps"] {
                assert!(bench[field].is_number(), "{field}: {bench}");
            }
            let plain = &bench["peers"][0];
            assert_eq!(plain["router"], "kernel_plain");
            assert!(plain["mpps"].is_number(), "{bench}");
            let fast = bench["fast_share"].as_f64().unwrap() > 0.9;
            fault_unless(fast, &bench)
        });
    }
}

/// Each column has figures, or a reason where this kernel cannot have them.
#[test]
fn the_imx8_bench_fills_its_rows() {
    let Some(_machine) = machine() else {
        return;
    };
    let names = [
        "ipv4-tcp-lan-wan",
        "ipv4-tcp-duplex",
        "ipv6-udp-wan-lan",
        "ipv4-udp-lan-wan-vlan-nat",
    ];
    let rows: Vec<&str> = names.iter().flat_map(|name| ["--row", name]).collect();
    let arguments = ["bench", "imx8", "--runs", "1", "--seconds", "1"];
    let (bench, words) = measure_fast(0.98, &[&arguments, &rows[..]].concat());
    assert_eq!(
        (&bench["flows"], &bench["path"]),
        (&64.into(), &"auto".into())
    );
    let rows = bench["rows"].as_array().unwrap();
    assert_eq!(rows.len(), names.len(), "{bench:#}");
    for (row, name) in rows.iter().zip(names) {
        assert_eq!(row["name"], name);
        let tagged = name.ends_with("-vlan-nat");
        let duplex = name.contains("-duplex");
        assert_eq!(row["duplex"], duplex);
        let line_pps = if duplex { 162_548.0 } else { 81_274.0 };
        assert!(tagged || row["line_pps"].as_f64().unwrap().floor() == line_pps);
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
            // differences of two times: others at work may make one negative
            for figure in ["ns", "mbit_s", "line_cpu"] {
                assert!(column.0[figure].is_number(), "{figure}: {row:#}");
            }
            let fits = column.0["line_cpu"].as_f64().unwrap() <= 1.0;
            let says = &column.0["carries_line"];
            if column.0["ns"].as_f64().unwrap() > 0.0 {
                assert_eq!(*says, fits, "{row:#}");
            } else {
                assert!(says.is_null(), "{row:#}");
            }
            // a direction that does not arrive at all is half of a duplex row
            assert!(column.0["lost_share"].as_f64().unwrap() < 0.4, "{row:#}");
            if column.1 != "kernel" {
                assert!(column.0["fast_share"].as_f64().unwrap() >= 0.98, "{row:#}");
            }
            assert!(words.contains(&format!("{name}, run 1 of 1: ")), "{words}");
        }
        if row["freeway"]["missing"].is_null() {
            assert!(row["kernel_over_freeway"].is_number(), "{row:#}");
        }
    }
}

#[test]
fn the_bulk_bench_fills_its_fields() {
    let Some(_machine) = machine() else {
        return;
    };
    let (bench, _) = measure_fast(
        0.9,
        &[
            "bench",
            "bulk",
            "--streams",
            "2",
            "--runs",
            "1",
            "--seconds",
            "2",
        ],
    );
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
    // what acknowledgements took is subtracted: others at work may make it negative
    assert!(program("merged_ns").is_finite(), "{bench}");
    assert!(
        (3000.0..66_000.0).contains(&program("merged_bytes")),
        "{bench}"
    );
}

/// What a fault would do to a shaped port, and a machine that stands still for a moment could do, too: what comes in
/// late counts as of the time measured.
fn shaper_faults(bench: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for router in ["kernel", "kernel_again", "freeway"] {
        let mut judge = |good: bool, what: &str| {
            if !good {
                faults.push(format!("{router}, {what}: {bench}"));
            }
        };
        let figure = |name: &str| bench[router][name].as_f64().unwrap();
        let fast = figure("fast_share") > 0.9;
        assert!(!fast || router == "freeway", "{router}: {bench}");
        judge(fast || router != "freeway", "fast");
        let (marked, dscp) = (figure("marked_mbit"), figure("dscp_mbit"));
        // the rate bounds frames, of which payload is a part; the classes share it by 60 to 40
        judge((10.0..20.0).contains(&(marked + dscp)), "rate");
        judge((1.2..1.9).contains(&(marked / dscp)), "shares");
        judge(figure("latency_p50_ms") > 1.0, "queue");
    }
    faults
}

#[test]
fn a_shaped_port_is_as_the_kernels() {
    let Some(_machine) = machine() else {
        return;
    };
    attempt(|| {
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
        shaper_faults(&bench)
    });
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
    // a difference of two times
    judge(kind["hit_ns_before"].as_f64().unwrap() > 0.0, "hits");
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
    attempt(|| {
        let kind = flood("udp-accepted", "2");
        for field in [
            "capacity_per_s",
            "flood_per_s",
            "miss_ns",
            "hits_per_miss",
            "freeway_sent",
            "kernel_sent",
        ] {
            assert!(kind[field].as_f64().unwrap() > 0.0, "{field}: {kind}");
        }
        // misses' time is subtracted
        assert!(kind["hit_ns_during"].is_number(), "{kind}");
        let count = |field: &str| kind[field].as_u64().unwrap();
        assert!(
            count("memory_after_bytes") < count("memory_before_bytes") + (32 << 20),
            "{kind}"
        );
        flood_faults(&kind)
    });
    assert_eq!(counting(), before);
}

#[test]
fn a_flood_of_banned_addresses_meets_the_scrubber() {
    let Some(_machine) = machine() else {
        return;
    };
    let kind = flood("syn-banned", "0.5");
    assert_eq!(kind["name"], "syn_banned");
    for field in ["capacity_per_s", "flood_per_s", "miss_ns", "freeway_sent"] {
        assert!(kind[field].as_f64().unwrap() > 0.0, "{field}: {kind}");
    }
    // others than those go on as before
    assert_eq!(kind["new_flows_fast_after"], kind["new_flows"], "{kind}");
}

#[test]
fn the_drop_bench_fills_its_fields() {
    let Some(_machine) = machine() else {
        return;
    };
    attempt(|| {
        let (bench, _) = measure(&[
            "bench",
            "drop",
            "--entries",
            "1000",
            "--runs",
            "1",
            "--seconds",
            "0.5",
        ]);
        let set = &bench["sets"][0];
        assert_eq!([&set["entries"], &set["sources"]], [&json!(1000); 2]);
        let figure = |name: &str| set[name].as_f64();
        for name in ["nft_ns", "freeway_ns", "xdp_drop_ns"] {
            assert!(figure(name).unwrap() > 0.0, "{name}: {bench}");
        }
        for (by_set, words) in [("iptables_ns", "ipset"), ("iptables_rule_ns", "one rule")] {
            let remarks = bench["remarks"].to_string();
            assert!(
                figure(by_set).is_some_and(|ns| ns > 0.0) || remarks.contains(words),
                "{by_set}: {bench}"
            );
        }
        assert_eq!(set["samples"]["freeway_ns"].as_array().unwrap().len(), 1);
        let scrubbed = figure("scrubbed_share").unwrap() > 0.5;
        fault_unless(scrubbed, &bench)
    });
}

/// One run.
fn flood(kind: &str, seconds: &str) -> Value {
    let (bench, _) = measure(&[
        "bench",
        "flood",
        "--kind",
        kind,
        "--flows",
        "200",
        "--runs",
        "1",
        "--seconds",
        seconds,
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
        let patience = Moment::now() + Duration::from_secs(30);
        while !inside.iter().all(gone) {
            assert!(Moment::now() < patience, "{inside:?} still run");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A figure of a router at which it lost nothing is none where it lost much, and so on: what holds however fast it is.
#[track_caller]
fn check_rates(router: &Value, ceiling_pps: f64, has_cpu: bool) {
    let number = |value: &Value| value.as_f64();
    for name in ["ndr", "pdr"] {
        let rate = &router[name];
        let (pps, at_least) = (number(&rate["pps"]), number(&rate["at_least_pps"]));
        assert!(pps.is_none() || at_least.is_none(), "{router:#}");
        let lower = number(&rate["lower_pps"]);
        assert_eq!(pps.or(at_least), lower, "{router:#}");
        assert!(pps.is_none_or(|pps| pps < ceiling_pps * 0.95), "{router:#}");
        let (lower, upper) = (lower.unwrap_or(0.0), number(&rate["upper_pps"]));
        assert!(lower <= ceiling_pps, "{router:#}");
        assert!(upper.is_none_or(|upper| lower < upper), "{router:#}");
        let conditional = number(&rate["conditional_pps"]).unwrap_or(0.0);
        assert!(conditional <= lower, "{router:#}");
    }
    let lower = |name: &str| number(&router[name]["lower_pps"]).unwrap_or(0.0);
    assert!(lower("ndr") <= lower("pdr"), "{router:#}");
    let losses = router["loss"].as_array().unwrap();
    assert!(!losses.is_empty(), "{router:#}");
    for loss in losses {
        let of = |name: &str| number(&loss[name]).unwrap();
        // a sender that was held up sends the rest later; a frame more or less for the whole time
        assert!(
            of("forwarded_pps") <= of("load_pps") * 1.001 + 100.0,
            "{loss}"
        );
        assert!(
            of("offered_pps") <= of("load_pps") * 1.001 + 100.0,
            "{loss}"
        );
        assert!((0.0..=1.0).contains(&of("loss_ratio")), "{loss}");
    }
    let burst = &router["back_to_back"];
    if !burst.is_null() {
        let of = |name: &str| number(&burst[name]).unwrap();
        assert!(
            of("least") <= of("frames") && of("frames") <= of("most"),
            "{burst}"
        );
        assert!(of("corrected_us") <= of("implied_us"), "{burst}");
    }
    for latency in router["latency"].as_array().unwrap() {
        check_latency(latency);
    }
    // the bench says so when the CPU was too busy for its idle loop
    assert!(has_cpu || router["cpu"] == json!([]), "{router:#}");
    if has_cpu {
        check_cpu(router);
    }
}

/// By the idle loop without load, at three loads, and at a full link where the router forwards that.
#[track_caller]
fn check_cpu(router: &Value) {
    let shares = router["cpu"].as_array().unwrap();
    let loads: Vec<Option<u64>> = shares
        .iter()
        .map(|share| share["percent_of_pdr"].as_u64())
        .collect();
    let wanted = [Some(0), Some(10), Some(50), Some(90), None];
    let has_pdr = !router["pdr"]["lower_pps"].is_null();
    let count = if has_pdr { 4..=5 } else { 1..=1 };
    assert!(count.contains(&loads.len()), "{router:#}");
    assert_eq!(loads, wanted[..loads.len()]);
    for share in shares {
        let of = |name: &str| share[name].as_f64().unwrap();
        // two frames without load, or none of a sender that was held up
        assert!(of("offered_pps") >= 0.0, "{share}");
        for name in ["loss_ratio", "router_cpu", "cpu_share"] {
            assert!((0.0..=1.0).contains(&of(name)), "{name}: {share}");
        }
    }
    for name in ["offered_pps", "cpu_share"] {
        let some = |share: &Value| share[name].as_f64() > Some(0.0);
        assert!(!has_pdr || shares.iter().any(some), "{name}: {router:#}");
    }
    // a router that did not run in the moment of a trial took no time in it: there are others
    let latency = router["latency"].as_array().unwrap();
    let mut trials = shares.iter().chain(latency);
    let ran = trials.any(|trial| trial["router_cpu"].as_f64() > Some(0.0));
    assert!(!has_pdr || ran, "{router:#}");
}

#[track_caller]
fn check_latency(latency: &Value) {
    let names = ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"];
    // percentiles without enough samples are null
    let times: Vec<f64> = names
        .iter()
        .filter_map(|name| latency[*name].as_f64())
        .collect();
    assert!(times[0] > 0.0 && times.is_sorted(), "{latency}");
    assert!(latency["max_us"].is_number(), "{latency}");
    assert!(latency["samples"].as_u64().unwrap() > 0, "{latency}");
    let curve = latency["curve"].as_array().unwrap().iter();
    let curve: Vec<[f64; 2]> = curve
        .map(|point| [0, 1].map(|at| point[at].as_f64().unwrap()))
        .collect();
    assert!(
        curve.is_sorted_by(|a, b| a[0] < b[0] && a[1] <= b[1]),
        "{latency}"
    );
}

#[test]
fn the_rfc9693_bench_counts_every_connection() {
    let Some(_machine) = machine() else {
        return;
    };
    let (connections, most) = (300, 400);
    // a connection whose packet a port had no room for is none
    let (bench, words) = until("there is room for all", Duration::from_secs(120), || {
        let measured = measure(&[
            "bench",
            "rfc9693",
            "--quick",
            "--connections",
            &connections.to_string(),
            "--table-max",
            &most.to_string(),
            "--capacity-max",
            "401",
        ]);
        let room = |router| measured.0[router]["capacity"]["connections"] == most;
        ["kernel", "freeway"]
            .into_iter()
            .all(room)
            .then_some(measured)
    });
    assert!(bench["generator_pps"].as_f64().unwrap() > 0.0, "{bench:#}");
    for router in ["kernel", "freeway"] {
        let figures = &bench[router];
        let made = &figures["establishment"];
        // whoever limits it on a machine that does other work
        let rate = ["per_s", "at_least_per_s"].map(|field| &made[field]);
        assert!(rate.iter().any(|rate| !rate.is_null()), "{bench:#}");
        assert_eq!(made["validated"], connections, "{bench:#}");
        let torn = &figures["tear_down"];
        assert_eq!(torn["connections"], connections, "{bench:#}");
        assert_eq!(torn["left"], 0, "{bench:#}");
        assert!(torn["all_ms"].as_f64() >= torn["table_ms"].as_f64());
        // one more is not there
        let capacity = &figures["capacity"];
        assert_eq!(capacity["connections"], most, "{words}\n{bench:#}");
        assert_eq!(capacity["validated"], most, "{bench:#}");
        assert_eq!(capacity["at_least"], false, "{bench:#}");
    }
    let none = &bench["kernel"];
    assert_eq!(none["tear_down"]["flows"], 0, "{bench:#}");
    assert!(none["flow_table"].is_null(), "{bench:#}");
    let torn = bench["freeway"]["tear_down"]["flows"].as_u64().unwrap();
    assert!((1..=2 * connections).contains(&torn), "{bench:#}");
    let table = &bench["freeway"]["flow_table"];
    assert_eq!(table["connections"], most, "{bench:#}");
    let flows = table["flows"].as_u64().unwrap();
    assert!((1..=2 * most).contains(&flows), "{bench:#}");
    assert!(flows <= table["room"].as_u64().unwrap(), "{bench:#}");
    assert_eq!(table["at_least"], flows == 2 * most, "{bench:#}");
}

#[test]
fn the_rfc2544_bench_holds_together() {
    let Some(_machine) = machine() else {
        return;
    };
    let short = ["bench", "rfc2544", "--seconds", "0.02", "--flows", "50"];
    for (arguments, directions, destinations, sizes) in [
        (
            &[
                "--scenario",
                "routed6",
                "--trials",
                "2",
                "--size",
                "64",
                "--size",
                "imix",
            ][..],
            1,
            None,
            &["64", "imix"][..],
        ),
        (
            &[
                "--scenario",
                "nat",
                "--trials",
                "1",
                "--size",
                "1518",
                "--bidirectional",
            ],
            2,
            None,
            &["1518"],
        ),
        (
            &["--trials", "1", "--size", "9000", "--destinations", "20"],
            1,
            Some(20),
            &["9000"],
        ),
    ] {
        // of a tester that was held up in each trial there is no latency, and of a daemon that was there are few fast packets
        let (bench, words) = until("the tester is timed", Duration::from_secs(120), || {
            let measured = measure(&[&short, arguments].concat());
            let mut sizes = measured.0["sizes"].as_array().unwrap().iter();
            let good = sizes.all(|size| {
                let fast = size["freeway"]["fast_share"].as_f64() > Some(0.9);
                size["tester_latency"].is_object() && fast
            });
            good.then_some(measured)
        });
        assert_eq!(bench["directions"], directions);
        assert_eq!(bench["destinations"].as_u64(), destinations);
        assert_eq!(bench["search"]["trial_s"], 0.02);
        let measured = bench["sizes"].as_array().unwrap();
        let names: Vec<&str> = measured
            .iter()
            .filter_map(|size| size["name"].as_str())
            .collect();
        assert_eq!(names, sizes);
        for size in measured {
            let ceiling_pps = size["ceiling_pps"].as_f64().unwrap();
            assert!(ceiling_pps > 0.0, "{size:#}");
            check_latency(&size["tester_latency"]);
            let label = match size["name"].as_str() {
                Some("imix") => "IMIX".to_owned(),
                name => format!("{} bytes", name.unwrap()),
            };
            for (router, name) in [("kernel", "kernel"), ("freeway", "Freeway")] {
                let without = format!("{label}, {name}: no CPU shares");
                let mut remarks = bench["remarks"].as_array().unwrap().iter();
                let has_cpu = !remarks.any(|r| r.as_str().unwrap().starts_with(&without));
                check_rates(&size[router], ceiling_pps, has_cpu);
            }
            // longer frames than a page are not XDP's
            let path = if size["name"] == "9000" { "tc" } else { "xdp" };
            assert_eq!(size["path"], path, "{size:#}");
            let remarks = bench["remarks"].as_array().unwrap().iter();
            let mut remarks = remarks.filter_map(Value::as_str);
            let told = remarks.any(|remark| remark.contains("forwards in tc (lan0: "));
            assert_eq!(told, path == "tc", "{bench:#}");
            assert!(size["kernel"]["fast_share"].is_null(), "{size:#}");
            assert!(
                size["freeway"]["fast_share"].as_f64().unwrap() > 0.9,
                "{size:#}"
            );
            let label = size["label"].as_str().unwrap();
            assert!(
                words.contains(&format!("{label}, Freeway: NDR ")),
                "{words}"
            );
        }
    }
}
