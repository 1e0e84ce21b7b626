// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench` as people meet it: one clear line, help.
#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use freeway_testkit::{freeway, program};

/// The user that owns nothing.
const NOBODY: u32 = 65534;

fn bench(arguments: &[&str]) -> Output {
    freeway().arg("bench").args(arguments).output().unwrap()
}

#[test]
fn bad_input_exits_with_64() {
    for (arguments, words) in [
        (&["frobnicate"][..], "frobnicate"),
        (&[], "subcommand"),
        (&["compare", "--scenario", "moon"], "moon"),
        (&["compare", "--flows", "0"], "--flows"),
        (&["compare", "--cpus", "0"], "--cpus"),
        (&["imx8", "--row", "ipv4"], "ipv4-tcp-lan-wan"),
        (&["multicast", "--ports", "0"], "--ports"),
        (
            &["rfc9693", "--connections", "500", "--table-max", "400"],
            "--table-max 400 does not admit them",
        ),
        (
            &["rfc9693", "--cpu", "1"],
            "router and generator need a CPU each",
        ),
        (&["rfc2544", "--size", "9018"], "1518, 9000"),
        (&["rfc2544", "--size", "1519"], "1518, 9000"),
        (&["rfc2544", "--size", "65"], "imix"),
        (&["rfc2544", "--scenario", "churn"], "churn"),
        (&["rfc2544", "--destinations", "20001"], "--destinations"),
        (
            &["rfc2544", "--destinations", "9", "--bidirectional"],
            "cannot be used with '--bidirectional'",
        ),
        (
            &["rfc2544", "--scenario", "routed6", "--destinations", "9"],
            "`--scenario nat` and `routed` alone",
        ),
        (&["compare", "--destinations", "1000001"], "--destinations"),
        (&["sink"], "--port"),
        (
            &[
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
            &["loop", "--out", "a", "--in", "b", "--gateway-mac", "c"],
            "02:00:5e:10:00:01",
        ),
        (
            &["loop", "--out", "a", "--in", "b", "--flows", "32769"],
            "--flows",
        ),
        (
            &["loop", "--out", "a", "--in", "b", "--size", "9000"],
            "in one page each",
        ),
        (&["replay"], "<FILE>"),
        (&["replay", "a", "--speed", "0"], "0.001"),
        (&["replay", "a", "--pps", "9", "--full"], "--full"),
        (&["rfc2544", "--quick", "--trials", "1"], "--trials"),
    ] {
        let output = bench(arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
        assert!(line.starts_with("freeway: "), "{arguments:?}: {line}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {line}");
        assert!(line.contains(words), "{arguments:?}: {line}");
    }
}

#[test]
fn help_is_its_own() {
    let output = bench(&["--help"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Usage: freeway bench <COMMAND>"), "{text}");
    for words in ["compare", "rfc2544", "report", "diff"] {
        assert!(text.contains(&format!("\n  {words} ")), "{words}: {text}");
    }
    let output = bench(&["compare", "--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("Usage: freeway bench compare [OPTIONS]"),
        "{text}"
    );
}

#[test]
fn only_root_measures() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    for name in ["freeway", "freeway-bench"] {
        fs::copy(program(name), folder.path().join(name)).unwrap();
    }
    let mut command = Command::new(folder.path().join("freeway"));
    command.args(["bench", "compare"]);
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(77), "{line}");
    assert!(line.contains("root"), "{line}");
}
