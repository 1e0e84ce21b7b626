// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench engine`: its fields, and what it refuses. That frames are what they should be, and none is lost, it looks at
//! itself.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use freeway_testkit::freeway;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

fn bench(words: &str) -> std::process::Output {
    let mut command = freeway();
    command.args(["bench", "engine"]);
    command.args(words.split_whitespace()).output().unwrap()
}

/// Another one than the generator's, where there is one.
fn worker_cpu() -> usize {
    let cpus = std::thread::available_parallelism().unwrap().get();
    usize::from(cpus > 1)
}

/// Of one that is to succeed.
#[track_caller]
fn result(words: &str) -> Value {
    let output = bench(words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_worker_between_rings_has_its_figures() {
    let Some(_machine) = freeway_testkit::machine() else {
        return;
    };
    let worker_cpu = worker_cpu();
    for (family, mode) in [("4", "dispatch"), ("6", "rss --flood")] {
        let result = result(&format!(
            "--flows 1,300 --rules 3 --family {family} --pages small --runs 1 --json --worker-cpu {worker_cpu} --mode {mode}"
        ));
        let counts = result["counts"].as_array().unwrap();
        let flows: Vec<_> = counts
            .iter()
            .map(|of| of["flows"].as_u64().unwrap())
            .collect();
        assert_eq!(flows, [1, 300], "{result:#}");
        for of in counts {
            assert_eq!(of["rules"], 3);
            for field in ["mpps", "macswap_mpps", "cycles"] {
                assert!(of[field].as_f64().unwrap() >= 0.0, "{field}: {of:#}");
            }
            let line_ns = of["line_ns"].as_f64();
            assert_eq!(line_ns > Some(0.0), worker_cpu > 0, "{of:#}");
            for at in ["dispatch", "dispatch_cold"] {
                let over = of[at]["over_ns"].is_number();
                assert_eq!(over, mode == "dispatch", "{of:#}");
            }
            // that misses are the kernel's, hits arrive, and all are counted, it looks at itself
            let flood = &of["flood"];
            assert!(flood.is_null() || mode != "dispatch", "{of:#}");
            if flood.is_object() {
                for field in ["kernel_pps", "misses_pps"] {
                    assert!(flood[field].as_f64() > Some(0.0), "{field}: {of:#}");
                }
                assert!(flood["hits_pps"][1].as_f64() > Some(0.0), "{of:#}");
            }
            // null where the machine was away for all of a sample
            for field in ["over_macswap", "mean_us", "p99_us"] {
                assert!(
                    of[field].is_number() || of[field].is_null(),
                    "{field}: {of:#}"
                );
            }
        }
    }
}

/// That each arrives as its next hop says, and is counted, it looks at itself.
#[test]
fn packets_without_flows_have_their_figures() {
    let Some(_machine) = freeway_testkit::machine() else {
        return;
    };
    let worker_cpu = worker_cpu();
    let result = result(&format!(
        "--flows 300 --routes 2000 --cold --pages small --runs 1 --rates-only --json --worker-cpu {worker_cpu}"
    ));
    assert_eq!(result["cold"], true, "{result:#}");
    assert_eq!(result["scenario"], "routes", "{result:#}");
    assert_eq!(result["routes"], 2000, "{result:#}");
    let counts = result["counts"].as_array().unwrap();
    assert_eq!(counts.len(), 1, "{result:#}");
    assert_eq!(counts[0]["flows"], 300, "{result:#}");
    assert!(counts[0]["checked"].as_u64() > Some(0), "{result:#}");
    let refused = bench("--routes 2000 --family 6");
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && words.contains("IPv4"),
        "{words}"
    );
}

/// The controller's decisions are about accounted cycles; that no frame is lost or overtaken holds whatever the machine does.
#[test]
fn several_workers_keep_the_order() {
    let Some(_machine) = freeway_testkit::machine() else {
        return;
    };
    let worker_cpu = worker_cpu();
    let result = result(&format!(
        "--workers 3 --mode rss,balanced --flows 500 --skew 1.2 --heavy depth --frames 20000 --json --worker-cpu {worker_cpu}"
    ));
    let runs = result["modes"].as_array().unwrap();
    let modes: Vec<_> = runs
        .iter()
        .map(|run| run["mode"].as_str().unwrap())
        .collect();
    assert_eq!(modes, ["rss", "balanced"]);
    for run in runs {
        assert!(run["sent"].as_u64() >= Some(20_000), "{run:#}");
        assert!(run["checked"].as_u64() > Some(200), "{run:#}");
        let gone = (&run["lost"], &run["reordered"]);
        assert_eq!(gone, (&0.into(), &0.into()), "{run:#}");
        assert!(run["first"].as_f64() >= Some(1.0), "{run:#}");
        let moves = run["moves"].as_u64().unwrap();
        assert!(run["mode"] == "balanced" || moves == 0, "{run:#}");
    }
}

/// Huge pages that are reserved while nobody has any for a while.
fn reserved() -> usize {
    let file = File::open(RESERVED).unwrap();
    let _turn = Flock::lock(file, FlockArg::LockExclusive).unwrap();
    reserved_now()
}

fn reserved_now() -> usize {
    fs::read_to_string(RESERVED)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn huge_pages_are_given_back_at_a_signal() {
    let Some(_machine) = freeway_testkit::machine() else {
        return;
    };
    let before = reserved();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut command = freeway_testkit::engine::engine();
        let words = format!(
            "bench --pages small --rates-only --worker-cpu {}",
            worker_cpu()
        );
        command
            .args(words.split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut bench = command.spawn().unwrap();
        // it tells of what it measures, and has them
        let mut told = BufReader::new(bench.stderr.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert!(line.contains("flow"), "{line}");
        let meanwhile = reserved_now();
        kill(Pid::from_raw(bench.id().cast_signed()), signal).unwrap();
        let status = bench.wait().unwrap();
        // DPDK's folder, which it could not tidy up
        let _ = fs::remove_dir_all(format!("/var/run/dpdk/freeway-{}", bench.id()));
        // of itself, if it had some to give back
        let ended = status.code().map(|code| code - 128).or(status.signal());
        assert_eq!(ended, Some(signal as i32), "{status}");
        assert_eq!(reserved(), before, "{meanwhile} meanwhile, {signal}");
        if meanwhile == before {
            println!("{signal}: the machine had none to give");
        }
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (words, part) in [
        ("--flows 0", "--flows"),
        ("--burst 65", "--burst"),
        ("--family 5", "--family"),
        ("--pages large", "--pages"),
        ("--seconds 0", "--seconds"),
        ("--mode even", "--mode"),
        ("--workers 17", "--workers"),
        ("--skew 9", "--skew"),
        ("--heavy most", "--heavy"),
    ] {
        let output = bench(words);
        assert_eq!(output.status.code(), Some(64), "{words}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(part) && text.lines().count() == 1, "{text}");
    }
}
