// SPDX-License-Identifier: MIT OR Apache-2.0
//! Application-level gateways: real FTP and TFTP through NAT, with conntrack's helpers. What the helpers must read stays
//! in the kernel, the data connections that they announce become fast, and every byte is right.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |  curl      |---------| lan0           wan0 |---------| pyftpdlib  |
//!  +------------+         +---------------------+         | dnsmasq    |
//!   192.0.2.2              masquerade on wan0             +------------+
//!                          helpers ftp, tftp               198.51.100.2
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freeway_lab::{Lab, Options};
use freeway_testkit::random::Random;
use freeway_testkit::*;

const HELPERS: &str = "table ip alg {\n\
    \tct helper ftp { type \"ftp\" protocol tcp; }\n\
    \tct helper tftp { type \"tftp\" protocol udp; }\n\
    \tchain prerouting {\n\
    \t\ttype filter hook prerouting priority filter\n\
    \t\ttcp dport 21 ct helper set \"ftp\"\n\
    \t\tudp dport 69 ct helper set \"tftp\"\n\
    \t}\n}\n";
const FTP_BYTES: usize = 32 << 20;
/// Less than 65,536 blocks of 512.
const TFTP_BYTES: usize = 20 << 20;
/// A case is tried so often: what is wrong is so each time.
const ATTEMPTS: usize = 3;

/// A folder that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("freeway-alg-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server of the lab; dropping it ends it.
struct Server(Child);

impl Server {
    fn start(lab: &Lab, line: &str, listens: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Self(lab.server().spawn(&mut command).unwrap());
        until("the server listens", Duration::from_secs(20), || {
            let sockets = lab.server().tool(listens).unwrap();
            (!sockets.trim().is_empty()).then_some(())
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn installed(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let there = command.status().is_ok_and(|status| status.success());
    if !there {
        println!("skipped: {program} {} does not run", arguments.join(" "));
    }
    there
}

/// Nothing of the connection that a helper reads is in the table.
#[track_caller]
fn check_control(router: &Router, proto: &str, port: u16) {
    for end in ["sport", "dport"] {
        let flows = router.flows(&format!("proto {proto} {end} {port}"));
        assert!(flows.is_empty(), "{flows:#?}");
    }
}

fn curl(lab: &Lab, line: &str) {
    lab.client()
        .tool(&format!("curl -sS --max-time 60 {line}"))
        .unwrap();
}

#[track_caller]
fn check_same(one: &Path, other: &Path) {
    let read = |path: &Path| std::fs::read(path).unwrap();
    assert!(read(one) == read(other), "{other:?} differs");
    std::fs::remove_file(other).unwrap();
}

fn ftp(lab: &Lab, folder: &Folder, router: Option<&Router>) {
    let file = folder.file("file");
    let line = format!(
        "/usr/bin/python3 -m pyftpdlib -i 198.51.100.2 -p 21 -w -d {}",
        folder.0.display()
    );
    let _server = Server::start(lab, &line, "ss -Hltn sport = :21");
    let up = format!("-T {} ftp://198.51.100.2/up", file.display());
    let down = format!(
        "-o {} ftp://198.51.100.2/file",
        folder.file("down").display()
    );
    for (mode, arguments) in [
        ("extended passive", ""),
        ("passive", "--disable-epsv"),
        ("extended active", "-P 192.0.2.2"),
        ("active", "-P 192.0.2.2 --disable-eprt"),
    ] {
        for (direction, transfer, there) in [("down", &down, "down"), ("up", &up, "up")] {
            // in one session with two listings, so that the control connection goes on after the data
            let list = format!("{arguments} -o /dev/null ftp://198.51.100.2/");
            let next = "--next -sS --max-time 60";
            let session = || {
                curl(
                    lab,
                    &format!("{list} {next} {arguments} {transfer} {next} {list}"),
                );
                check_same(&file, &folder.file(there));
            };
            let Some(router) = router else {
                session();
                continue;
            };
            // the file is short enough to be over before a daemon that was away has learned its flows
            let fast = (0..ATTEMPTS).any(|_| {
                let before = router.stats().fast_bytes();
                session();
                let fast = router.stats().fast_bytes() - before;
                let share = fast as f64 / FTP_BYTES as f64;
                eprintln!("FTP {mode} {direction}: {:.1} % fast", 100.0 * share);
                share > 0.5
            });
            assert!(fast, "{mode} {direction}\n{}", router.stats());
            check_control(router, "tcp", 21);
        }
    }
}

fn tftp(lab: &Lab, folder: &Folder, router: Option<&Router>) {
    let file = folder.file("file.tftp");
    let line = format!(
        "dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --user=root --pid-file= \
         --enable-tftp --tftp-root={} --listen-address=198.51.100.2 --bind-interfaces",
        folder.0.display()
    );
    let _server = Server::start(lab, &line, "ss -Hlun sport = :69");
    let down = folder.file("down");
    let before = router.map(Router::stats);
    if router.is_some() {
        // Conntrack takes two seconds to call it a stream; so it must not be over by then.
        let slow = "tc qdisc add dev eth0 root tbf rate 4mbit burst 1540 latency 50ms";
        lab.client().tool(slow).unwrap();
    }
    let start = std::time::Instant::now();
    curl(
        lab,
        &format!("-o {} tftp://198.51.100.2/file.tftp", down.display()),
    );
    check_same(&file, &down);
    let took = start.elapsed();
    let Some((router, before)) = router.zip(before) else {
        eprintln!("TFTP: {took:?}");
        return;
    };
    let fast = router.stats().fast() - before.fast();
    let packets = 2 * TFTP_BYTES as u64 / 512;
    let share = fast as f64 / packets as f64;
    eprintln!("TFTP: {took:?}, {:.1} % fast", 100.0 * share);
    assert!(share > 0.2, "{}", router.stats());
    check_control(router, "udp", 69);
}

#[test]
fn announced_connections_are_fast_and_right() {
    let Some(_machine) = machine() else { return };
    if !installed("/usr/bin/python3", &["-m", "pyftpdlib", "--help"])
        || !installed("dnsmasq", &["--version"])
        || !installed("curl", &["--version"])
    {
        return;
    }
    let folder = Folder::new();
    let bytes = Random(1).bytes(FTP_BYTES);
    std::fs::write(folder.file("file"), &bytes).unwrap();
    std::fs::write(folder.file("file.tftp"), &bytes[..TFTP_BYTES]).unwrap();
    for freeway in [false, true] {
        let lab = build_with(
            "nat",
            Options {
                extra_nft: HELPERS.into(),
                ..Options::default()
            },
        );
        let router = freeway.then(|| Router::start(&lab));
        ftp(&lab, &folder, router.as_ref());
        tftp(&lab, &folder, router.as_ref());
        if let Some(router) = router {
            let stats = router.stats();
            eprintln!("{stats}");
            assert!(stats.reason("learn_helper") > 0, "{stats}");
            router.stop();
        }
    }
}
