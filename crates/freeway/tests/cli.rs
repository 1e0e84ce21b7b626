// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary as people meet it: exit codes, one clear line, help.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn freeway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_freeway"))
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

/// The exit code and the one line on standard error.
#[track_caller]
fn refusal(arguments: &[&str]) -> (i32, String) {
    let output = freeway(arguments);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.starts_with("freeway: "), "{line}");
    assert!(output.stdout.is_empty());
    (output.status.code().unwrap(), line)
}

#[test]
fn clients_without_a_daemon_exit_with_2() {
    let nowhere = std::env::temp_dir().join("freeway-no-such-daemon.sock");
    let socket = nowhere.to_str().unwrap();
    for command in [
        &["status"][..],
        &["stats"],
        &["flows", "proto", "tcp"],
        &["explain", "udp", "192.0.2.2:1", "198.51.100.2:2"],
        &["on"],
        &["off"],
        &["flush"],
        &["resync"],
        &["status", "--json"],
    ] {
        let (code, line) = refusal(&[command, &["--socket", socket]].concat());
        assert_eq!(code, 2, "{command:?}: {line}");
        assert!(line.contains("freeway run"), "{line}");
    }
}

#[test]
fn bad_input_exits_with_64() {
    for (arguments, words) in [
        (&["frobnicate"][..], "frobnicate"),
        (&[], "subcommand"),
        (&["status", "--colour"], "--colour"),
        (
            &["explain", "tcp", "192.0.2.1", "198.51.100.1:1"],
            "192.0.2.1:80",
        ),
        (
            &["explain", "tcp", "192.0.2.1:1", "[2001:db8::1]:1"],
            "different families",
        ),
        (&["explain", "tcp"], "<SRC[:PORT]>"),
        (&["flows", "colour", "red"], "is no filter"),
        (&["run", "--metrics", "here"], "--metrics"),
        (&["lab", "shell", "moon"], "moon"),
        (&["bench", "compare", "--scenario", "moon"], "moon"),
        (&["bench", "compare", "--flows", "0"], "--flows"),
        (&["bench", "compare", "--cpus", "0"], "--cpus"),
        (&["bench", "imx8", "--row", "ipv4"], "ipv4-tcp-lan-wan"),
        (&["bench", "multicast", "--ports", "0"], "--ports"),
        (
            &[
                "bench",
                "rfc9693",
                "--connections",
                "500",
                "--table-max",
                "400",
            ],
            "--table-max 400 does not admit them",
        ),
        (
            &["bench", "rfc9693", "--cpu", "1"],
            "router and generator need a CPU each",
        ),
        (&["bench", "rfc2544", "--size", "9018"], "1518, 9000"),
        (&["bench", "rfc2544", "--size", "1519"], "1518, 9000"),
        (&["bench", "rfc2544", "--size", "65"], "imix"),
        (&["bench", "rfc2544", "--scenario", "churn"], "churn"),
        (
            &["bench", "rfc2544", "--destinations", "20001"],
            "--destinations",
        ),
        (
            &["bench", "rfc2544", "--destinations", "9", "--bidirectional"],
            "cannot be used with '--bidirectional'",
        ),
        (
            &[
                "bench",
                "rfc2544",
                "--scenario",
                "routed6",
                "--destinations",
                "9",
            ],
            "`--scenario nat` and `routed` alone",
        ),
        (
            &["bench", "compare", "--destinations", "20001"],
            "--destinations",
        ),
        (&["bench", "sink"], "--port"),
        (
            &[
                "bench",
                "generator",
                "--port",
                "a",
                "--sink",
                "b",
                "--to",
                "192.0.2.1",
            ],
            "--sink",
        ),
        (
            &[
                "bench",
                "loop",
                "--out",
                "a",
                "--in",
                "b",
                "--gateway-mac",
                "c",
            ],
            "02:00:5e:10:00:01",
        ),
        (
            &[
                "bench", "loop", "--out", "a", "--in", "b", "--flows", "32769",
            ],
            "--flows",
        ),
        (
            &["bench", "loop", "--out", "a", "--in", "b", "--size", "9000"],
            "in one page each",
        ),
        (&["bench", "replay"], "<FILE>"),
        (&["bench", "replay", "a", "--speed", "0"], "0.001"),
        (&["bench", "replay", "a", "--pps", "9", "--full"], "--full"),
        (
            &["bench", "rfc2544", "--quick", "--trials", "1"],
            "--trials",
        ),
    ] {
        let (code, line) = refusal(arguments);
        assert_eq!(code, 64, "{arguments:?}: {line}");
        assert!(line.contains(words), "{arguments:?}: {line}");
    }
}

#[test]
fn bad_configuration_exits_with_78() {
    let file = std::env::temp_dir().join(format!("freeway-cli-{}.toml", std::process::id()));
    std::fs::write(&file, "[flows]\nmax = 1\n\n[port.lan0]\nwire = true\n").unwrap();
    let (code, line) = refusal(&["run", "--config", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(code, 78, "{line}");
    assert!(line.contains(".toml:5:1: unknown field `wire`"), "{line}");
    let (code, line) = refusal(&["run", "--config", file.to_str().unwrap()]);
    assert_eq!(code, 78, "{line}");
    assert!(line.contains("No such file"), "{line}");
}

#[test]
fn help_is_complete() {
    let output = freeway(&["--help"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for words in [
        "run", "status", "stats", "flows", "explain", "on", "off", "flush", "resync", "doctor",
        "demo", "lab", "bench",
    ] {
        assert!(text.contains(&format!("\n  {words} ")), "{words}: {text}");
    }
    assert!(text.contains("2   no daemon answers"), "{text}");
    assert!(!text.contains("completions"), "{text}");
    assert!(freeway(&["--version"]).status.success());
}

#[test]
fn lab_list_takes_json() {
    let output = freeway(&["lab", "list", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\"name\": \"nat\""), "{text}");
    let text = String::from_utf8(freeway(&["lab", "list"]).stdout).unwrap();
    assert!(text.contains("routed6\n"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}
