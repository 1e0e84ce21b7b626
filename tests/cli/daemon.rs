// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon in a lab's router: one in each namespace, its answers, its end, and what is left behind.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freeway_lab::{Lab, Options, Proto, Topology};
use freeway_testkit::{Moment, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

fn program() -> Command {
    let mut command = freeway_testkit::freeway();
    command.stdin(Stdio::null());
    command
}

fn is_root() -> bool {
    let root = geteuid().is_root();
    if !root {
        println!("skipped: network namespaces need root");
    }
    root
}

struct Router {
    lab: Lab,
    daemon: Child,
}

impl Router {
    fn start() -> Router {
        let lab = Lab::build(Topology::parse("nat").unwrap(), Options::default()).unwrap();
        let mut command = program();
        command
            .args(["run", "--config", "/dev/stdin"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut daemon = lab.router().spawn(&mut command).unwrap();
        daemon
            .stdin
            .take()
            .unwrap()
            .write_all(lab.config_toml("").as_bytes())
            .unwrap();
        let mut router = Router { lab, daemon };
        let patience = Moment::now() + Duration::from_secs(60);
        while !router.ask(&["status"]).status.success() {
            if router.daemon.try_wait().unwrap().is_some() || Moment::now() > patience {
                let _ = router.daemon.kill();
                let mut log = String::new();
                std::io::Read::read_to_string(&mut router.daemon.stderr.take().unwrap(), &mut log)
                    .unwrap();
                panic!("the daemon does not answer: {log}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        router
    }

    /// Runs the program in the router.
    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = program();
        self.lab
            .router()
            .place(command.args(arguments))
            .unwrap()
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ask(&[arguments, &["--json"]].concat());
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {words}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn file(&self, end: &str) -> PathBuf {
        let inode = std::fs::metadata(self.lab.router().path()).unwrap().ino();
        PathBuf::from(format!("/run/freeway/netns-{inode}.{end}"))
    }

    fn stop(&mut self, signal: Signal) -> std::process::ExitStatus {
        kill(Pid::from_raw(self.daemon.id().cast_signed()), signal).unwrap();
        self.daemon.wait().unwrap()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        for end in ["sock", "lock", "sock.engine"] {
            let _ = std::fs::remove_file(self.file(end));
        }
    }
}

#[test]
fn a_daemon_serves_its_namespace_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let mut router = Router::start();
    let socket = std::fs::metadata(router.file("sock")).unwrap();
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.mode() & 0o777, 0o660);
    assert_eq!(socket.uid(), 0);

    let status = router.json(&["status"]);
    assert_eq!(status["pid"], router.daemon.id());
    assert_eq!(status["on"], true);
    let ports: Vec<_> = status["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["name"].clone())
        .collect();
    assert_eq!(ports, ["lan0", "wan0"]);

    let second = router.ask(&["run"]);
    assert_eq!(second.status.code(), Some(1));
    let line = String::from_utf8(second.stderr).unwrap();
    assert!(
        line.contains(&format!("another daemon (process {})", router.daemon.id())),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1, "{line}");

    // Clients of other namespaces do not find it.
    let mut elsewhere = program();
    let elsewhere = router
        .lab
        .client()
        .place(elsewhere.arg("status"))
        .unwrap()
        .output()
        .unwrap();
    assert_eq!(elsewhere.status.code(), Some(2));

    assert!(router.stop(Signal::SIGTERM).success());
    assert!(!router.file("sock").exists() && !router.file("lock").exists());
    assert_eq!(router.ask(&["status"]).status.code(), Some(2));
}

/// `freeway top` on a terminal of 80 columns and 24 lines.
struct OnTerminal {
    script: Child,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn start(router: &Router) -> Self {
        let program = program();
        let top = format!(
            "stty rows 24 cols 80; exec '{}' top --interval 0.2",
            program.get_program().to_str().unwrap()
        );
        let mut command = Command::new("script");
        command.args(["-qfec", &top, "/dev/null"]);
        command.env("TERM", "xterm").env("SHELL", "/bin/sh");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = router.lab.router().spawn(&mut command).unwrap();
        let mut screen = script.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let all = shown.clone();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut some) {
                all.lock().unwrap().extend_from_slice(&some[..count]);
            }
        });
        let terminal = Self { script, shown };
        terminal.wait_for("Packets by");
        terminal
    }

    fn has(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).contains(words)
    }

    #[track_caller]
    fn wait_for(&self, words: &str) {
        until(words, Duration::from_secs(60), || {
            self.has(words).then_some(())
        });
    }

    /// It has ended well, and the terminal has its first screen and its cursor again.
    #[track_caller]
    fn check_end(mut self) {
        let ended = until("the end of top", Duration::from_secs(60), || {
            self.script.try_wait().unwrap()
        });
        assert!(ended.success(), "{ended}");
        for restored in ["\x1b[?1049l", "\x1b[?25h"] {
            self.wait_for(restored);
        }
    }
}

#[test]
fn top_leaves_the_terminal_as_it_was() {
    if !is_root() {
        return;
    }
    let router = Router::start();
    let mut by_key = OnTerminal::start(&router);
    let mut keys = by_key.script.stdin.take().unwrap();
    // another order, held, and the end
    keys.write_all(b"s q").unwrap();
    by_key.check_end();
    let by_signal = OnTerminal::start(&router);
    let script = by_signal.script.id();
    let children = std::fs::read_to_string(format!("/proc/{script}/task/{script}/children"));
    let top: i32 = children.unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(top), Signal::SIGTERM).unwrap();
    by_signal.check_end();
}

#[test]
fn flows_are_learned_shown_and_switched() {
    if !is_root() {
        return;
    }
    let router = Router::start();
    for _ in 0..3 {
        // Two frames there and two back, and a flow is learned from its second.
        router.lab.prime(Proto::Udp, 20, None).unwrap();
    }
    let flows = router.json(&["flows", "proto", "udp", "port", "lan0"]);
    assert_eq!(flows["total"], 40, "{}", router.json(&["stats"]));
    let flows = router.json(&["flows", "state", "active", "src", "192.0.2.2", "-n", "1"]);
    let flow = &flows["flows"][0];
    assert_eq!(
        (flow["port_in"].as_str(), flow["to_src"].as_str()),
        (Some("lan0"), Some("198.51.100.1"))
    );

    let src = format!("{}:{}", flow["src"].as_str().unwrap(), flow["sport"]);
    let dst = format!("{}:{}", flow["dst"].as_str().unwrap(), flow["dport"]);
    let explain = router.json(&["explain", "udp", &src, &dst, "--watch", "0.1"]);
    assert_eq!(explain["flow"]["sport"], flow["sport"]);
    assert!(
        explain["connection"]["status"]
            .as_array()
            .unwrap()
            .contains(&"assured".into()),
        "{explain}"
    );

    assert!(router.json(&["flush"])["flows"].as_u64().unwrap() > 0);
    assert_eq!(router.json(&["flows"])["total"], 0);

    assert_eq!(router.json(&["off"])["was_on"], true);
    assert_eq!(router.json(&["status"])["on"], false);
    let text = String::from_utf8(router.ask(&["status"]).stdout).unwrap();
    assert!(
        text.starts_with("Freeway ") && text.contains(" is off: "),
        "{text}"
    );
    assert_eq!(router.json(&["on"])["was_on"], false);
}

#[test]
fn a_killed_daemon_is_replaced() {
    if !is_root() {
        return;
    }
    let mut router = Router::start();
    router.stop(Signal::SIGKILL);
    assert!(
        router.file("sock").exists(),
        "a killed daemon leaves its socket"
    );
    let output = router.ask(&["status"]);
    assert_eq!(output.status.code(), Some(2));
    let mut command = program();
    command
        .args(["run", "--log", "error", "-i", "lan0"])
        .process_group(0);
    router.daemon = router.lab.router().spawn(&mut command).unwrap();
    let patience = Moment::now() + Duration::from_secs(60);
    while !router.ask(&["status"]).status.success() {
        assert!(Moment::now() < patience && router.daemon.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(50));
    }
    // Without wire_true a veth is not XDP's, by name.
    let status = router.json(&["status"]);
    assert_eq!(status["ports"][0]["path"], "tc", "{status}");
    assert!(!status["ports"][0]["reasons"].as_array().unwrap().is_empty());
    assert!(router.stop(Signal::SIGINT).success());
}

#[test]
fn unknown_ports_are_refused() {
    if !is_root() {
        return;
    }
    let lab = Lab::build(Topology::parse("nat").unwrap(), Options::default()).unwrap();
    for arguments in [
        &["run", "-i", "nowhere0"][..],
        &["doctor", "-i", "nowhere0"],
    ] {
        let mut command = program();
        let output = lab
            .router()
            .place(command.args(arguments))
            .unwrap()
            .output()
            .unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        let last = line.lines().last().unwrap();
        assert_eq!(output.status.code(), Some(78), "{line}");
        assert!(
            last.starts_with("freeway: ") && last.contains("nowhere0"),
            "{line}"
        );
    }
}

#[test]
fn without_privilege_one_line_and_code_77() {
    let mut command = program();
    if geteuid().is_root() {
        command = Command::new("setpriv");
        command.args([
            "--bounding-set=-all",
            "--inh-caps=-all",
            &freeway_testkit::program("freeway"),
        ]);
    }
    let output = command.arg("run").output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(77), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains("CAP_NET_ADMIN"), "{line}");
}
