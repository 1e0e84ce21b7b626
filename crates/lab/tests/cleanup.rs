// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nothing stays behind: after drop, panic, signals, and at the latest after the next start.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::namespaces_of;
use freeway_lab::sweep::sweep;
use freeway_lab::{Lab, LabError, Options, Topology};
use freeway_testkit::Moment;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn drop_removes_everything() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let own = std::process::id();
    let lab = common::build("nat");
    let second = common::build("routed6");
    assert_eq!(namespaces_of(own).len(), 6);
    assert!(
        lab.config_toml("")
            .contains("[port.\"lan0\"]\nwire_true = true\nroutes = false\n")
    );
    let mut sleeper = lab
        .router()
        .spawn(Command::new("sleep").arg("1000"))
        .unwrap();
    drop(lab);
    assert!(!sleeper.wait().unwrap().success());
    assert_eq!(namespaces_of(own).len(), 3);
    drop(second);
    assert_eq!(namespaces_of(own), Vec::<String>::new());
}

#[test]
fn a_panic_removes_everything() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let result = thread::spawn(|| {
        let _lab = common::build("routed");
        assert_eq!(namespaces_of(std::process::id()).len(), 3);
        panic!("on purpose");
    })
    .join();
    assert!(result.is_err());
    assert_eq!(namespaces_of(std::process::id()), Vec::<String>::new());
}

#[test]
fn a_lab_that_cannot_be_built_leaves_nothing() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let options = Options {
        extra_nft: "nonsense".into(),
        ..Options::default()
    };
    let error = Lab::build(Topology::parse("nat").unwrap(), options).unwrap_err();
    assert!(matches!(&error, LabError::Command { command, stderr, .. }
        if command == "nft -f -" && stderr.contains("syntax error")));
    assert_eq!(namespaces_of(std::process::id()), Vec::<String>::new());
}

#[test]
fn unknown_topologies_are_named() {
    let error = Topology::parse("ring").unwrap_err().to_string();
    assert_eq!(
        error,
        "no topology is called `ring`; there are: routed, nat, routed6, nat6"
    );
}

#[test]
fn inside_and_outside_are_told_apart() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    assert!(lab.router().enter(read).unwrap().contains("wan0"));
    assert!(!read().contains("wan0"));
    assert_eq!(
        lab.router().ifindex("lan0").unwrap(),
        lab.lan_port().ifindex
    );
    assert!(lab.client().ifindex("lan0").is_err());
    // Pins stay visible, which `ip netns exec` would hide.
    let mounts = || std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    assert_eq!(lab.router().enter(mounts).unwrap(), mounts());
    let error = lab
        .router()
        .tool("ip link show nothere")
        .unwrap_err()
        .to_string();
    assert!(error.contains("ip link show nothere") && error.contains("nothere\" does not exist"));
}

/// By how much the labs below raise the limit of connections.
const RAISE: u32 = 4096;

fn conntrack_max() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max").unwrap();
    text.trim().parse().unwrap()
}

/// Not a test of its own: what the tests below start, and end by a signal.
#[test]
#[ignore = "started by other tests"]
fn hold_a_lab() {
    freeway_lab::cleanup_on_signal().unwrap();
    freeway_lab::cleanup_on_signal().unwrap();
    let options = Options {
        conntrack_max: Some(conntrack_max() + RAISE),
        ..Options::default()
    };
    let lab = common::build_with("nat", options);
    let mut sleeper = lab
        .server()
        .spawn(Command::new("sleep").arg("1000"))
        .unwrap();
    println!("\nREADY");
    sleeper.wait().unwrap();
    // The cleanup ends the child above, and this thread must not get further before the signal ends the process.
    drop(lab);
    println!("\nSURVIVED");
}

/// Not a test of its own either.
#[test]
#[ignore = "started by other tests"]
fn open_a_shell() {
    assert!(common::build("routed6").shell("EXTRA\n").unwrap().success());
}

#[test]
fn a_shell_is_in_the_router() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "open_a_shell", "--nocapture"])
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let script =
        b"ip -o address show dev wan0; nsenter --net=/run/netns/$LAB_SERVER ip -o address\n";
    child.stdin.take().unwrap().write_all(script).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for part in [
        "Lab `routed6`",
        "EXTRA",
        "nsenter --net=",
        "2001:db8:2::1/64",
        "2001:db8:2::2/64",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

/// The limit of connections, once nobody has raised it who was killed.
fn limit() -> u32 {
    sweep();
    conntrack_max()
}

fn holder() -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "hold_a_lab", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "READY"));
    assert_eq!(namespaces_of(child.id()).len(), 3);
    child
}

#[test]
fn signals_clean_up_and_end_the_process() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let limit = limit();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut child = holder();
        assert_eq!(conntrack_max(), limit + RAISE);
        let start = Moment::now();
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal as i32), "{signal}: {status}");
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(namespaces_of(child.id()), Vec::<String>::new(), "{signal}");
        assert_eq!(conntrack_max(), limit, "{signal}");
    }
}

#[test]
fn the_next_start_sweeps_up_after_a_kill() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let limit = limit();
    let mut child = holder();
    let options = Options {
        conntrack_max: Some(limit + RAISE / 2),
        ..Options::default()
    };
    let own = common::build_with("routed", options);
    assert_eq!(
        namespaces_of(child.id()).len(),
        3,
        "a living run was swept away"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(namespaces_of(child.id()).len(), 3);
    assert_eq!(conntrack_max(), limit + RAISE);
    let swept = sweep();
    assert_eq!(
        swept
            .iter()
            .filter(|name| name.contains(&child.id().to_string()))
            .count(),
        3
    );
    assert_eq!(namespaces_of(child.id()), Vec::<String>::new());
    assert_eq!(namespaces_of(std::process::id()).len(), 3);
    assert_eq!(conntrack_max(), limit + RAISE / 2);
    drop(own);
    assert_eq!(conntrack_max(), limit);
}
