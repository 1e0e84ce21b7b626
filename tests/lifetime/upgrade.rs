// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another daemon takes over from the one that runs, under load; and what goes wrong there.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |  generator |---------| lan0           wan0 |---------| sink       |
//!  +------------+         +---------------------+         +------------+
//!   192.0.2.2/24      192.0.2.1/24      198.51.100.1/24   198.51.100.2/24
//!                       postrouting: masquerade on wan0
//! ```
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../cli/schema.rs"]
mod schema;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use freeway_lab::Options;
use freeway_testkit::bench::{Bench, IN_FLIGHT};
use freeway_testkit::*;
use schema::Schema;
use serde_json::Value;

const FLOWS: u32 = 64;
const PPS: u64 = 4000;
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon whose program may be replaced, as a package does it, under load.
struct Case {
    bench: Bench,
    router: Router,
    folder: tempfile::TempDir,
    /// The daemon's program.
    installed: PathBuf,
}

impl Case {
    /// `path`: by which program its ports forward.
    fn start(path: &str) -> Self {
        adopt_orphans();
        let bench = Bench::light(Options::default(), FLOWS, PPS);
        let built = PathBuf::from(program("freeway"));
        // of one file system, for links
        let folder = tempfile::tempdir_in(built.parent().unwrap()).unwrap();
        let installed = folder.path().join("freeway");
        fs::hard_link(&built, &installed).unwrap();
        write(&bench, folder.path(), path, "");
        let mut program = std::process::Command::new(&installed);
        program
            .args(["run", "--config"])
            .arg(folder.path().join("freeway.toml"))
            .env_remove("FREEWAY_LOG");
        let router = Router::start_program(bench.lab.router(), program, |status| {
            let ports = status["ports"].as_array().unwrap();
            ports.iter().filter(|port| port["state"] == "fast").count() == 2
        });
        Self {
            bench,
            router,
            folder,
            installed,
        }
    }

    fn write(&self, extra: &str) {
        write(&self.bench, self.folder.path(), "auto", extra);
    }

    /// Another program has the name of the daemon's.
    fn install(&self, program: &Path) {
        // a link of the same file would not replace it
        let _ = fs::remove_file(&self.installed);
        fs::hard_link(program, &self.installed).unwrap();
    }

    /// A script has.
    fn install_script(&self, text: &str) {
        let new = self.folder.path().join("script");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, &self.installed).unwrap();
    }

    /// One that passes on what the daemon and a true successor say, and does what it is to at some point.
    /// Returns the name of the successor's.
    fn install_relay(&self, plan: &str) -> PathBuf {
        self.install_relay_with(plan, "true")
    }

    /// Has the installed program take over, which is a relay in front of `behind`; the status of who has done so.
    fn upgrade(&mut self, behind: PathBuf) -> Value {
        let output = self.router.run(&["upgrade", "--json"]);
        assert!(output.status.success(), "{output:?}");
        assert!(self.router.wait().success());
        let status = self.router.status();
        self.router.adopt(status["pid"].as_u64().unwrap());
        self.installed = behind;
        status
    }

    /// The same; `change`: what the plan may want done.
    fn install_relay_with(&self, plan: &str, change: &str) -> PathBuf {
        let links = fs::read_dir(self.folder.path()).unwrap().count();
        let behind = self.folder.path().join(format!("behind-{links}"));
        fs::hard_link(program("freeway"), &behind).unwrap();
        let text = RELAY
            .replace("PROGRAM", behind.to_str().unwrap())
            .replace("PLAN", plan)
            .replace("CHANGE", change);
        self.install_script(&text);
        behind
    }

    /// Waits until all flows are fast; the traffic goes on.
    #[track_caller]
    fn wait_fast(&self) {
        until("all flows are fast", PATIENCE, || {
            let flows = self.router.flows("state fast");
            (flows.len() == FLOWS as usize).then_some(())
        });
    }

    /// An upgrade that is refused; exit code and the line that says why.
    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.router.run(&[&["upgrade"], arguments].concat());
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(
            line.contains("the daemon that runs goes on as before"),
            "{line}"
        );
        (output.status.code(), line)
    }

    /// What changes when flows are learned anew: how many were ever learned, and by which process.
    fn history(&self) -> [Value; 2] {
        let status = self.router.status();
        [status["learn"]["learned"].clone(), status["pid"].clone()]
    }

    fn metrics(&self) -> String {
        let script = "exec 3<>/dev/tcp/127.0.0.1/9100 && printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3";
        let mut bash = std::process::Command::new("bash");
        let placed = self.router.netns.place(bash.args(["-c", script]));
        String::from_utf8(placed.unwrap().output().unwrap().stdout).unwrap()
    }
}

fn write(bench: &Bench, folder: &Path, path: &str, extra: &str) {
    let mut ports = bench.lab.config_toml("");
    for port in ["lan0", "wan0"] {
        let table = format!("[port.\"{port}\"]\n");
        assert!(ports.contains(&table), "{ports}");
        ports = ports.replace(&table, &format!("{table}path = \"{path}\"\n"));
    }
    let text = format!("{ports}\n{extra}");
    fs::write(folder.join("freeway.toml"), text).unwrap();
}

/// Between a daemon and its successor. Plans: what is killed, and when.
const RELAY: &str = r#"#!/usr/bin/env python3
import os, signal, socket, subprocess, sys
plan = "PLAN"
old = socket.socket(fileno=os.dup(0))
near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
new = subprocess.Popen(["PROGRAM"] + sys.argv[1:], stdin=far)
far.close()
def hear(end):
    text, fds, _, _ = socket.recv_fds(end, 1 << 16, 253)
    if not text:
        sys.exit(1)
    return text, fds
def say(end, text, fds):
    socket.send_fds(end, [text], fds)
    for fd in fds:
        os.close(fd)
say(near, *hear(old))
ready = hear(near)
if plan == "old at once":
    os.kill(os.getppid(), signal.SIGKILL)
    sys.exit(0)
if plan == "change before":
    subprocess.run("CHANGE", shell=True, check=True)
say(old, *ready)
while True:
    text, fds = hear(old)
    if plan == "change after" and b"estate" in text:
        subprocess.run("CHANGE", shell=True, check=True)
    say(near, text, fds)
    if b"estate" in text:
        break
done = hear(near)
assert b"done" in done[0]
if plan.startswith("change"):
    say(old, *done)
    say(near, *hear(old))
elif plan == "new":
    new.kill()
    new.wait()
else:
    os.kill(os.getppid(), signal.SIGKILL)
"#;

#[test]
fn no_frame_is_lost_and_flows_are_fast_again() {
    let Some(_machine) = machine() else { return };
    // another build may be named, such as one with another binary interface, to go to and fro
    let other = std::env::var_os("FREEWAY_OTHER").map(PathBuf::from);
    let own = PathBuf::from(program("freeway"));
    let schema = Schema::read();
    let rounds = if long() { 50 } else { 2 };
    let mut case = Case::start("auto");
    let load = case.bench.load();
    case.wait_fast();
    let mut before = case.router.status();
    assert_eq!(before["taken_over"], Value::Null);
    for round in 0..rounds {
        match (&other, round % 2) {
            (Some(other), 0) => case.install(other),
            _ => case.install(&own),
        }
        match round {
            // what a running daemon could not apply
            0 => case.write("[flows]\nmax = 1000\n[daemon]\nmetrics = \"127.0.0.1:9100\"\n"),
            _ => assert!(case.metrics().contains("freeway_uptime_seconds")),
        }
        let upgraded = case.router.upgrade();
        let begun = Moment::now();
        case.wait_fast();
        let time = begun.elapsed();
        eprintln!("{upgraded}, all fast again after {time:?}");
        assert!(!long() || time < Duration::from_secs(1), "{time:?}");
        schema.check("upgrade", &upgraded);
        let status = case.router.status();
        schema.check("status", &status);
        assert_eq!(status["pid"], upgraded["to"]["pid"]);
        assert_eq!(upgraded["from"]["pid"], before["pid"]);
        assert_eq!(status["taken_over"]["pid"], before["pid"]);
        assert_eq!(status["taken_over"]["version"], before["version"]);
        assert_eq!(upgraded["same_abi"], other.is_none());
        assert_eq!(status["flows"]["capacity"], 1000);
        assert_eq!(status["ports"], before["ports"]);
        // nothing is taken for somebody else's
        assert_eq!(status["notices"], before["notices"]);
        before = status;
    }
    assert!(case.metrics().contains("freeway_uptime_seconds"));
    let page = String::from_utf8(case.router.run(&["status"]).stdout).unwrap();
    assert!(page.contains("Taken over from version"), "{page}");
    // off stays off
    case.router.run(&["off"]);
    case.router.upgrade();
    assert_eq!(case.router.status()["on"], false);
    assert_eq!(case.router.flows("").len(), 0);
    case.router.run(&["on"]);
    case.wait_fast();
    let sent = case.bench.end(load);
    case.bench.check(&sent, 0);
    let files = case.router.files();
    let pid = fs::read_to_string(&files[1]).unwrap();
    assert_eq!(
        pid.trim(),
        case.router.pid().to_string(),
        "who has the lock"
    );
    assert!(files.iter().all(|file| file.exists()), "{files:?}");
    case.router.stop();
    assert!(!files.iter().any(|file| file.exists()), "{files:?}");
}

/// Flows go along where both have the same binary interface: they are fast without a packet that is learned from.
#[test]
fn flows_go_along() {
    let Some(_machine) = machine() else { return };
    for path in ["auto", "tc"] {
        let mut case = Case::start(path);
        let load = case.bench.load();
        case.wait_fast();
        let sent = case.bench.end(load);
        let mut before = case.router.flows("");
        case.router.upgrade();
        let mut after = case.router.flows("state fast");
        for flows in [&mut before, &mut after] {
            flows.sort_by_key(|flow| flow["sport"].as_u64());
        }
        assert_eq!(after.len(), FLOWS as usize, "{after:#?}");
        for (one, other) in before.iter().zip(&after) {
            for key in [
                "sport",
                "dport",
                "src",
                "dst",
                "path",
                "dst_mac_out",
                "to_sport",
            ] {
                assert_eq!(one[key], other[key], "{key}");
            }
        }
        let load = case.bench.load();
        until("each has a fast packet", PATIENCE, || {
            let flows = case.router.flows("state fast");
            let used = |flow: &Value| flow["packets"].as_u64() > Some(0);
            (flows.iter().filter(|flow| used(flow)).count() == FLOWS as usize).then_some(())
        });
        let mut again = case.bench.end(load);
        let status = case.router.status();
        assert_eq!(status["taken_over"]["flows"], FLOWS);
        assert_eq!(status["learn"]["candidates"], 0, "nothing was learned");
        again.frames += sent.frames;
        case.bench.check(&again, 0);
        case.router.wait_in_step();
        case.router.stop();
    }
}

/// Whenever something changes while one daemon takes over from the other, one of them hears it.
#[test]
fn what_changes_meanwhile_is_heard() {
    let Some(_machine) = machine() else { return };
    let mut case = Case::start("auto");
    for (change, undo) in [
        (
            "nft insert rule inet filter forward meta l4proto udp drop",
            "nft flush chain inet filter forward; nft add rule inet filter forward accept",
        ),
        (
            "ip route add blackhole 198.51.100.2/32",
            "ip route del blackhole 198.51.100.2/32",
        ),
    ] {
        for plan in ["change before", "change after"] {
            let load = case.bench.load();
            case.wait_fast();
            case.bench.end(load);
            let behind = case.install_relay_with(plan, change);
            let status = case.upgrade(behind);
            let taken = status["taken_over"]["flows"].as_u64().unwrap();
            eprintln!("{plan}, {change}: {taken} flows go along");
            if plan == "change after" {
                assert_eq!(taken, u64::from(FLOWS), "they were listed before it");
            }
            let arrived = case.bench.sink.counts().unwrap().frames;
            let load = case.bench.load();
            std::thread::sleep(Duration::from_millis(500));
            case.bench.end(load);
            let now = case.bench.sink.counts().unwrap().frames;
            assert_eq!(now, arrived, "{plan}, {change}: frames arrive");
            let mut shell = std::process::Command::new("sh");
            let placed = case.router.netns.place(shell.args(["-c", undo])).unwrap();
            assert!(placed.status().unwrap().success());
        }
    }
    // nothing tells of a sysctl: what differs has each flow wait
    let load = case.bench.load();
    case.wait_fast();
    case.bench.end(load);
    let change = "sysctl -qw net.ipv4.ip_forward_use_pmtu=1";
    let behind = case.install_relay_with("change after", change);
    let status = case.upgrade(behind);
    assert_eq!(status["taken_over"]["flows"], FLOWS);
    assert_eq!(status["flows"]["unconfirmed"], FLOWS, "{}", status["flows"]);
    case.router.stop();
}

#[test]
fn a_successor_that_fails_changes_nothing() {
    let Some(_machine) = machine() else { return };
    let mut case = Case::start("auto");
    let load = case.bench.load();
    case.wait_fast();
    let history = case.history();
    fs::remove_file(&case.installed).unwrap();
    let (exit, line) = case.refused(&[]);
    assert!(line.contains("cannot start"), "{line}");
    assert_eq!(exit, Some(1));
    case.install_script("#!/bin/sh\nexit 3\n");
    let (exit, line) = case.refused(&[]);
    assert!(line.contains("ended (exit status: 3)"), "{line}");
    assert_eq!(exit, Some(1));
    case.install_script("#!/bin/sh\nexec sleep 1000\n");
    let (exit, line) = case.refused(&["--timeout", "1"]);
    assert!(
        line.contains("has not loaded its programs within 1 s"),
        "{line}"
    );
    assert_eq!(exit, Some(1));
    case.install(Path::new(&program("freeway")));
    for (text, words) in [
        ("[flow]\n", "unknown field `flow`"),
        (
            "[daemon]\nsocket = \"/run/x.sock\"\n",
            "a restart is needed",
        ),
        ("[flows]\nmax = 0\n", "key `max`"),
    ] {
        case.write(text);
        let (exit, line) = case.refused(&[]);
        assert!(line.contains(words), "{words}: {line}");
        assert_eq!(exit, Some(78), "{line}");
    }
    case.write("");
    assert_eq!(case.history(), history);
    assert_eq!(case.router.flows("state fast").len(), FLOWS as usize);
    // who is no member of root's may ask for much, and not for this
    let answer = as_nobody(&case);
    assert!(answer.contains("only root may upgrade"), "{answer}");
    assert!(answer.contains("403 Forbidden"), "{answer}");
    // its programs are at the ports already
    case.install_relay("new");
    let (exit, line) = case.refused(&[]);
    assert!(line.contains("ended (exit status: 0)"), "{line}");
    assert_eq!(exit, Some(1));
    case.wait_fast();
    assert_eq!(case.history()[1], history[1]);
    case.router.wait_in_step();
    // and it is no last word
    case.install(Path::new(&program("freeway")));
    case.router.upgrade();
    case.wait_fast();
    let sent = case.bench.end(load);
    case.bench.check(&sent, 0);
    case.router.stop();
}

/// The request of one of the group's.
fn as_nobody(case: &Case) -> String {
    let socket = &case.router.files()[0];
    // as a group's: its members may connect
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666)).unwrap();
    let script = "import http.client, os, socket, sys\n\
        os.setuid(65534)\n\
        link = socket.socket(socket.AF_UNIX); link.connect(sys.argv[1])\n\
        body = b'{\"timeout_s\": 9}'\n\
        link.send(b'POST /v1/upgrade HTTP/1.0\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body)\n\
        print(link.recv(65536).decode())";
    let mut python = std::process::Command::new("python3");
    let output = python.args(["-c", script]).arg(socket).output().unwrap();
    fs::set_permissions(socket, fs::Permissions::from_mode(0o660)).unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn the_router_forwards_whichever_daemon_is_killed() {
    let Some(_machine) = machine() else { return };
    // in tc, where links are taken over likewise
    let mut case = Case::start("tc");
    let load = case.bench.load();
    case.wait_fast();
    case.router.upgrade();
    case.wait_fast();
    let flows = case.router.flows("");
    assert!(flows.iter().all(|flow| flow["path"] == "tc"), "{flows:#?}");
    // the successor has all: it goes on
    let behind = case.install_relay("old");
    let old = case.router.pid();
    let output = case.router.run(&["upgrade"]);
    assert_eq!(output.status.code(), Some(2), "nobody answers");
    assert!(!case.router.wait().success());
    let new = until("the successor answers", PATIENCE, || {
        let output = case.router.run(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        status["pid"].as_u64()
    });
    assert_ne!(new, old.as_raw() as u64);
    case.router.adopt(new);
    case.installed = behind;
    case.wait_fast();
    let sent = case.bench.end(load);
    case.bench.check(&sent, 0);
    // nothing was handed over yet: all is the kernel's
    let load = case.bench.load();
    case.wait_fast();
    case.install_relay("old at once");
    case.router.run(&["upgrade"]);
    assert!(!case.router.wait().success());
    until("no daemon answers", PATIENCE, || {
        let output = case.router.run(&["status"]);
        (output.status.code() == Some(2)).then_some(())
    });
    case.bench.wait_kernel(PATIENCE);
    let sent_now = case.bench.end(load);
    eprintln!("{} and {} frames", sent.frames, sent_now.frames);
    let counts = case.bench.sink.counts().unwrap();
    let lost = (sent.frames + sent_now.frames).saturating_sub(counts.frames);
    // each program that comes or goes replaces the port's rings
    let most = 4 * IN_FLIGHT + dropped(&case.bench.lab);
    assert!(lost <= most, "{lost} frames are lost");
    // a daemon that is killed leaves its names
    for file in case.router.files() {
        fs::remove_file(file).unwrap();
    }
}
