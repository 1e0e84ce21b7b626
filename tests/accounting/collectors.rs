// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's nfcapd and nfacctd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freeway_lab::Netns;
use freeway_testkit::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::traffic::{Sums, TCP_PORT, UDP_PORT};

const PATIENCE: Duration = Duration::from_secs(30);

/// A program that is told of connections.
pub trait Collector {
    /// Waits until it listens.
    fn wait(&self);

    /// Lets it read all that waits, and has it end.
    fn end(&self);

    /// Waits for its end, and says what it was told.
    fn sums(self: Box<Self>) -> Sums;
}

/// A process that listens at a port.
struct Server<'a> {
    netns: &'a Netns,
    port: u16,
    child: Child,
}

impl<'a> Server<'a> {
    fn start(netns: &'a Netns, port: u16, command: &mut Command) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = netns.spawn(command).unwrap();
        Server { netns, port, child }
    }

    fn waiting(&self) -> Option<u64> {
        waiting(self.netns, self.port)
    }

    fn wait(&self) {
        until("a collector listens", PATIENCE, || self.waiting());
    }

    fn end(&self, signal: Signal) {
        until("the collector has read all", PATIENCE, || {
            (self.waiting() == Some(0)).then_some(())
        });
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    fn ended(&mut self) {
        until("the collector has ended", PATIENCE, || {
            self.child.try_wait().unwrap()
        });
    }
}

/// Octets that wait in the UDP socket at a port; `None`: there is none.
pub fn waiting(netns: &Netns, port: u16) -> Option<u64> {
    let read = || fs::read_to_string("/proc/thread-self/net/udp").unwrap();
    let table = netns.enter(read).unwrap();
    let port = format!(":{port:04X}");
    let mut sockets = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = sockets.find(|fields| fields.get(1).is_some_and(|at| at.ends_with(&port)))?;
    assert_eq!(own.last(), Some(&"0"), "datagrams that found no room");
    u64::from_str_radix(own[4].split_once(':').unwrap().1, 16).ok()
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One line of what a collector has written.
struct Line<'a> {
    src: &'a str,
    /// As it left.
    src_after: &'a str,
    proto: &'a str,
    sport: u16,
    dport: u16,
    /// Packets and octets as the record's direction has them, and the other's.
    counts: [u64; 4],
}

fn add(sums: &mut Sums, line: &Line<'_>) {
    let servers = [UDP_PORT, TCP_PORT];
    let (client, back) = match (servers.contains(&line.dport), servers.contains(&line.sport)) {
        (true, _) => (line.sport, false),
        (_, true) => (line.dport, true),
        // the collectors' own
        (false, false) => return,
    };
    let version = if line.src.contains(':') { 6 } else { 4 };
    // nfdump 1.7.1 does not know the fields of IPv6
    if !back && version == 4 {
        assert_eq!(line.src_after, "198.51.100.1", "{}", line.src);
    }
    let proto = match line.proto.to_lowercase().as_str() {
        "udp" | "17" => 17,
        "tcp" | "6" => 6,
        other => panic!("{other}"),
    };
    let sum = sums.entry((version, proto, client)).or_default();
    for (at, count) in line.counts.iter().enumerate() {
        sum[if back { (at + 2) % 4 } else { at }] += count;
    }
}

/// Fields of a line, whatever is around them.
fn fields(line: &str) -> Vec<&str> {
    line.split(',').map(str::trim).collect()
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// nfdump's.
pub struct Nfcapd<'a> {
    server: Server<'a>,
    directory: PathBuf,
}

impl<'a> Nfcapd<'a> {
    pub fn start(netns: &'a Netns, port: u16, directory: &Path) -> Self {
        fs::create_dir(directory).unwrap();
        let mut command = Command::new("nfcapd");
        command.arg("-w").arg(directory).args(["-t", "3600"]);
        command.args(["-p", &port.to_string(), "-b", "192.0.2.2"]);
        Self {
            server: Server::start(netns, port, &mut command),
            directory: directory.to_owned(),
        }
    }
}

impl Collector for Nfcapd<'_> {
    fn wait(&self) {
        self.server.wait();
    }

    fn end(&self) {
        self.server.end(Signal::SIGTERM);
    }

    fn sums(mut self: Box<Self>) -> Sums {
        self.server.ended();
        let mut command = Command::new("nfdump");
        command
            .arg("-R")
            .arg(&self.directory)
            .args(["-q", "-6", "-N"]);
        command.args(["-o", "fmt:%sa,%nsa,%pr,%sp,%dp,%pkt,%byt,%opkt,%obyt"]);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut sums = Sums::new();
        for line in text.lines() {
            let [src, src_after, proto, sport, dport, counts @ ..] = &fields(line)[..] else {
                continue;
            };
            let line = Line {
                src,
                src_after,
                proto,
                sport: number(sport),
                dport: number(dport),
                counts: std::array::from_fn(|i| number(counts[i])),
            };
            add(&mut sums, &line);
        }
        sums
    }
}

/// pmacct's.
pub struct Nfacctd<'a> {
    server: Server<'a>,
    file: PathBuf,
}

impl<'a> Nfacctd<'a> {
    pub fn start(netns: &'a Netns, port: u16, directory: &Path) -> Self {
        fs::create_dir(directory).unwrap();
        let (config, file) = (directory.join("config"), directory.join("csv"));
        let text = format!(
            "daemonize: false\nnfacctd_ip: 192.0.2.2\nnfacctd_port: {port}\nnfacctd_time_new: true\n\
             plugins: print\nprint_output: csv\nprint_output_file: {}\nprint_refresh_time: 3600\n\
             plugin_pipe_size: 67108864\nplugin_buffer_size: 65536\nprint_cache_entries: 65537\n\
             aggregate: src_host, dst_host, src_port, dst_port, proto, post_nat_src_host\n",
            file.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new("nfacctd");
        command.arg("-f").arg(config);
        Self {
            server: Server::start(netns, port, &mut command),
            file,
        }
    }
}

impl Collector for Nfacctd<'_> {
    fn wait(&self) {
        self.server.wait();
    }

    fn end(&self) {
        self.server.end(Signal::SIGINT);
    }

    fn sums(mut self: Box<Self>) -> Sums {
        self.server.ended();
        // a process of its own writes it
        let text = until("nfacctd's file", PATIENCE, || {
            let text = fs::read_to_string(&self.file).ok()?;
            text.ends_with('\n').then_some(text)
        });
        let mut lines = text.lines();
        let head = fields(lines.next().unwrap());
        let mut sums = Sums::new();
        for line in lines {
            let fields = fields(line);
            let get = |name| fields[head.iter().position(|one| *one == name).unwrap()];
            let line = Line {
                src: get("SRC_IP"),
                src_after: get("POST_NAT_SRC_IP"),
                proto: get("PROTOCOL"),
                sport: number(get("SRC_PORT")),
                dport: number(get("DST_PORT")),
                counts: [number(get("PACKETS")), number(get("BYTES")), 0, 0],
            };
            add(&mut sums, &line);
        }
        sums
    }
}
