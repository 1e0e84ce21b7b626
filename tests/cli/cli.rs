// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary as people meet it: exit codes, one clear line, help.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn freeway(arguments: &[&str]) -> Output {
    freeway_testkit::freeway().args(arguments).output().unwrap()
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
        &["drops"],
        &["routes", "192.0.2.1"],
        &["hosts"],
        &["flows", "proto", "tcp"],
        &["explain", "udp", "192.0.2.2:1", "198.51.100.2:2"],
        &["on"],
        &["off"],
        &["flush"],
        &["resync"],
        &["reload"],
        &["upgrade"],
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
        (&["routes", "2001:db8::g"], "invalid IP address"),
        (&["run", "--metrics", "here"], "--metrics"),
        (&["run", "--take-over"], "use `freeway upgrade`"),
        (&["upgrade", "--timeout", "0"], "--timeout"),
        (&["lab", "shell", "moon"], "moon"),
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
        "run", "status", "stats", "drops", "hosts", "routes", "flows", "explain", "capture", "web",
        "on", "off", "flush", "resync", "reload", "upgrade", "config", "doctor", "support", "demo",
        "lab", "bench",
    ] {
        assert!(text.contains(&format!("\n  {words} ")), "{words}: {text}");
    }
    assert!(text.contains("2   no daemon answers"), "{text}");
    assert!(!text.contains("completions"), "{text}");
    assert!(freeway(&["--version"]).status.success());
}

/// `freeway bench` is another program, which a router need not have.
#[test]
fn without_the_bench_it_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("freeway");
    std::fs::copy(freeway_testkit::program("freeway"), &program).unwrap();
    let output = Command::new(program)
        .args(["bench", "compare", "--help"])
        .env("PATH", folder.path())
        .output()
        .unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{line}");
    assert!(line.contains("install"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
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

#[test]
fn a_configuration_is_shown_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = path("a.toml");
    let text = "[flows]\nmax = 9\n[[policy.exclude]]\ndport = [53, \"80-90\"]\n[port.\"lan0.7\"]\npath = \"tc\"\n";
    std::fs::write(&file, text).unwrap();
    let shown = |file: &str| {
        let output = freeway(&["config", "show", file]);
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let first = shown(&file);
    for words in [
        "\n[flows]\nmax = 9                          # line 2\ntcp_idle_s = 60                  # default\n",
        "\nexclude = [{ dport = [\"53\", \"80-90\"] }] # line 3\n",
        "\n[port.\"lan0.7\"]\npath = \"tc\"                      # line 6\n",
        "\n#metrics =                       # default: none\n",
        "\n\nexport = []                      # default\n\n[accounting]\nactive_s = 60 ",
    ] {
        assert!(first.contains(words), "{words}: {first}");
    }
    // without the comments it says the same again
    let again = path("b.toml");
    std::fs::write(&again, &first).unwrap();
    let values = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("# "));
        let value = |line: &str| line.split(" #").next().unwrap().trim().to_owned();
        lines.map(value).collect()
    };
    assert_eq!(values(&shown(&again)), values(&first));
    let output = freeway(&["config", "check", "--elsewhere", &again]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        format!("{again} is a configuration that the daemon takes\n")
    );
}

#[test]
fn a_wrong_configuration_is_told_of_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.toml");
    std::fs::write(&file, "[flows]\n\nmax = 0\n").unwrap();
    let file = file.to_str().unwrap();
    for command in ["check", "show"] {
        let (code, line) = refusal(&["config", command, file]);
        assert_eq!(code, 78, "{line}");
        assert!(
            line.contains(&format!("{file}:3:7: key `max`: 0 is out of range")),
            "{line}"
        );
    }
    let output = freeway(&["config", "check", "--json", file]);
    assert_eq!(output.status.code(), Some(78));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\"key\": \"max\""), "{text}");
    let (code, line) = refusal(&["config", "check", "/nonexistent/a.toml"]);
    assert_eq!(code, 78, "{line}");
}
