// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests with namespaces share: one test at a time, a daemon in a lab's router, and looking at the kernel.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod bench;
pub mod large;
pub mod objects;
pub mod path;
pub mod random;
pub mod tunnel;
pub mod wire;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freeway_kernel::conntrack::{ConnectionFilter, Conntrack};
use freeway_kernel::model::Connection;
use freeway_lab::{Lab, Netns, Options, Port, Topology};
use freeway_testkit::Moment;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use nix::unistd::Pid;
use serde_json::Value;

/// Loading programs takes a second or two where the machine is busy, attaching to hundreds of ports many.
const START: Duration = Duration::from_secs(120);
/// How long a daemon may take to end.
const END: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// Of frames that are to be fast at least so many are. How many pass while the kernel has one of them to judge
/// is the machine's; where a path is not used, none are.
pub const FAST_MIN: f64 = 0.5;

/// One test at a time: they measure, and the machine may have two cores.
static MACHINE: Mutex<()> = Mutex::new(());

/// The machine, or nothing, with the reason printed, where the test cannot run.
pub fn machine() -> Option<MutexGuard<'static, ()>> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    let guard = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    freeway_lab::cleanup_on_signal().unwrap();
    Some(guard)
}

/// How long frames may go on by what was, after a change of which an event tells: in the median of several changes,
/// and at the worst. What misses the event waits for the look at each second. The long form, on a machine of
/// its own, asks for what an operator would see.
pub fn late_max() -> (Duration, Duration) {
    let ms = Duration::from_millis;
    if long() {
        (ms(10), ms(100))
    } else {
        (ms(100), ms(900))
    }
}

/// True if the tests may take minutes.
pub fn long() -> bool {
    std::env::var_os("FREEWAY_LONG").is_some_and(|value| value == "1")
}

pub fn build(name: &str) -> Lab {
    build_with(name, Options::default())
}

pub fn build_with(name: &str, options: Options) -> Lab {
    Lab::build(Topology::parse(name).unwrap(), options).unwrap()
}

/// The client's end of a UDP flow through a lab of IPv4, and the server's.
pub const CLIENT: &str = "192.0.2.2:40000";
pub const SERVER: &str = "198.51.100.2:5000";

/// An address and a port as they are written.
#[track_caller]
pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Sockets at [`CLIENT`] and [`SERVER`].
pub fn udp_ends(lab: &Lab) -> (UdpSocket, UdpSocket) {
    (
        udp(lab.client(), address(CLIENT)),
        udp(lab.server(), address(SERVER)),
    )
}

/// The program, to be run anywhere.
pub fn freeway() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freeway"));
    command.env("NO_COLOR", "1").env_remove("FREEWAY_LOG");
    command
}

/// Asks until there is an answer.
#[track_caller]
pub fn until<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Moment::now() + patience;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Moment::now() < end, "not within {patience:?}: {what}");
        thread::sleep(POLL);
    }
}

/// A Freeway daemon in a lab's router; dropping it ends it.
#[derive(Debug)]
pub struct Router {
    pub child: Child,
    pub netns: Netns,
    log: Option<JoinHandle<String>>,
}

impl Router {
    /// Starts a daemon for both ports and waits until they are fast.
    pub fn start(lab: &Lab) -> Router {
        Self::start_with(lab, "")
    }

    /// As [`Router::start`], with `extra` appended to the configuration.
    pub fn start_with(lab: &Lab, extra: &str) -> Router {
        Self::start_as(lab, extra, freeway(), &["lan0", "wan0"])
    }

    /// As [`Router::start_with`], with a program that ends up being `freeway`, and for these ports.
    pub fn start_as(lab: &Lab, extra: &str, program: Command, ports: &[&str]) -> Router {
        let config = format!("{}\n{extra}", lab.config_toml(""));
        Self::start_in(lab.router(), &config, program, ports)
    }

    /// Starts a daemon in a namespace and waits until its ports are fast.
    pub fn start_in(netns: &Netns, config_toml: &str, program: Command, ports: &[&str]) -> Router {
        Self::start_until(netns, config_toml, program, ports, |status| {
            let there = status["ports"].as_array().unwrap();
            there.len() == ports.len() && there.iter().all(|port| port["state"] == "fast")
        })
    }

    /// Starts a daemon in a namespace and waits until its status is as wanted.
    pub fn start_until(
        netns: &Netns,
        config_toml: &str,
        mut program: Command,
        ports: &[&str],
        ready: impl Fn(&Value) -> bool,
    ) -> Router {
        let mut child = netns
            .spawn(
                program
                    .args(["run", "--config", "/dev/stdin", "--log", "warn"])
                    .args(ports.iter().flat_map(|port| ["-i", port]))
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped()),
            )
            .unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let log = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut config = child.stdin.take().unwrap();
        config.write_all(config_toml.as_bytes()).unwrap();
        drop(config);
        let mut router = Router {
            child,
            netns: netns.clone(),
            log: Some(log),
        };
        let end = Moment::now() + START;
        loop {
            let output = router.run(&["status", "--json"]);
            let status: Option<Value> = serde_json::from_slice(&output.stdout).ok();
            if status.as_ref().is_some_and(&ready) {
                return router;
            }
            let ended = router.child.try_wait().unwrap();
            if ended.is_some() || Moment::now() > end {
                let _ = router.child.kill();
                let log = router.log();
                panic!("the daemon is not ready: {ended:?} {status:?}\n{log}");
            }
            thread::sleep(POLL);
        }
    }

    /// Runs `freeway` in the router.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = freeway();
        self.netns
            .place(command.args(arguments))
            .unwrap()
            .output()
            .unwrap()
    }

    /// Runs `freeway ... --json` in the router.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn status(&self) -> Value {
        self.json(&["status"])
    }

    pub fn stats(&self) -> Stats {
        Stats(self.json(&["stats"]))
    }

    /// The flow table, filtered by words such as `proto tcp`.
    pub fn flows(&self, filter: &str) -> Vec<Value> {
        let words: Vec<&str> = ["flows"]
            .into_iter()
            .chain(filter.split_whitespace())
            .collect();
        self.json(&words)["flows"].as_array().unwrap().clone()
    }

    /// Waits until `wanted` flows that the filter lets through are active and have forwarded `packets` each.
    #[track_caller]
    pub fn wait_fast(&self, filter: &str, wanted: usize, packets: u64) -> Vec<Value> {
        self.wait_fast_while(filter, wanted, packets, || {})
    }

    /// The same, with traffic ahead of each look.
    #[track_caller]
    pub fn wait_fast_while(
        &self,
        filter: &str,
        wanted: usize,
        packets: u64,
        mut traffic: impl FnMut(),
    ) -> Vec<Value> {
        let end = Moment::now() + Duration::from_secs(10);
        loop {
            traffic();
            let flows = self.flows(filter);
            let fast = |flow: &&Value| {
                flow["state"] == "active" && flow["packets"].as_u64().unwrap() >= packets
            };
            if flows.iter().filter(fast).count() >= wanted {
                return flows;
            }
            if Moment::now() > end {
                let stats = self.stats();
                panic!("{filter}: {wanted} fast flows wanted, there are {flows:#?}\n{stats}");
            }
            thread::sleep(POLL);
        }
    }

    /// The daemon knows all of the kernel: reading it again changes nothing.
    #[track_caller]
    pub fn wait_in_step(&self) {
        let mut changes = Vec::new();
        let end = Moment::now() + Duration::from_secs(5);
        while changes.last() != Some(&0) {
            assert!(
                Moment::now() < end,
                "each time it changes more: {changes:?}"
            );
            changes.push(self.json(&["resync"])["changes"].as_u64().unwrap());
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Ends the daemon as an administrator would; it has to end well and say nothing bad.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        let log = self.log();
        assert!(status.success(), "{status}\n{log}");
        assert!(!log.contains("panicked"), "{log}");
    }

    /// Waits for the end of the daemon.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        until("the daemon's end", END, || self.child.try_wait().unwrap())
    }

    /// The log of a daemon that has ended.
    pub fn log(&mut self) -> String {
        self.log
            .take()
            .map(|log| log.join().unwrap())
            .unwrap_or_default()
    }

    /// The control socket and the lock of its namespace.
    pub fn files(&self) -> [PathBuf; 2] {
        let inode = std::fs::metadata(self.netns.path()).unwrap().ino();
        ["sock", "lock"].map(|end| PathBuf::from(format!("/run/freeway/netns-{inode}.{end}")))
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        // Not waited for yet, so the number is still its own. A stopped process gets its signal once it goes on.
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
        let end = Moment::now() + END;
        while Moment::now() < end {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            thread::sleep(POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `freeway stats --json`.
#[derive(Clone, Debug)]
pub struct Stats(pub Value);

impl Stats {
    /// Packets that the fast path forwarded.
    pub fn fast(&self) -> u64 {
        self.0["fast"]["packets"].as_u64().unwrap()
    }

    /// Their bytes.
    pub fn fast_bytes(&self) -> u64 {
        self.0["fast"]["bytes"].as_u64().unwrap()
    }

    /// Packets with a reason.
    #[track_caller]
    pub fn reason(&self, name: &str) -> u64 {
        let reasons = self.0["reasons"].as_array().unwrap();
        let found = reasons.iter().find(|reason| reason["name"] == name);
        found.unwrap_or_else(|| panic!("no reason {name}"))["packets"]
            .as_u64()
            .unwrap()
    }

    /// Packets that XDP gave to the kernel, by name. A sampled packet is a miss that is kept out of GRO.
    pub fn punts(&self) -> Vec<(String, u64)> {
        let reasons = self.0["reasons"].as_array().unwrap();
        let punted = |reason: &&Value| reason["stage"] == "punt" || reason["name"] == "sampled";
        let pair = |reason: &Value| {
            (
                reason["name"].as_str().unwrap().to_owned(),
                reason["packets"].as_u64().unwrap(),
            )
        };
        reasons
            .iter()
            .filter(punted)
            .map(pair)
            .filter(|(_, packets)| *packets > 0)
            .collect()
    }

    /// Packets that XDP gave to the kernel.
    pub fn punted(&self) -> u64 {
        self.punts().iter().map(|(_, packets)| packets).sum()
    }
}

impl std::fmt::Display for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fast {}", self.fast())?;
        for reason in self.0["reasons"].as_array().unwrap() {
            if reason["packets"] != 0 {
                write!(
                    f,
                    ", {} {}",
                    reason["name"].as_str().unwrap(),
                    reason["packets"]
                )?;
            }
        }
        for refusal in self.0["refused"].as_array().unwrap() {
            if refusal["count"] != 0 {
                write!(
                    f,
                    ", refused for {} {}",
                    refusal["name"].as_str().unwrap(),
                    refusal["count"]
                )?;
            }
        }
        Ok(())
    }
}

/// The router's connections of one IP protocol.
pub fn connections(lab: &Lab, proto: u8) -> Vec<Connection> {
    let filter = ConnectionFilter {
        proto: Some(proto),
        ..ConnectionFilter::default()
    };
    let mut all = lab
        .router()
        .enter(|| Conntrack::open().unwrap().dump(&filter).unwrap())
        .unwrap();
    all.sort_by_key(|connection| connection.orig);
    all
}

/// The router's connection whose first packet came from this port.
pub fn connection_from(lab: &Lab, proto: u8, sport: u16) -> Option<Connection> {
    connections(lab, proto)
        .into_iter()
        .find(|connection| connection.orig.sport == sport)
}

/// Packets that a host's kernel has forwarded, IPv4 and IPv6.
pub fn forwarded(netns: &Netns) -> u64 {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    netns
        .enter(|| {
            let text = read("/proc/thread-self/net/snmp");
            let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
            let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
            let at = names
                .split(' ')
                .position(|name| name == "ForwDatagrams")
                .unwrap();
            let v4: u64 = values.split(' ').nth(at).unwrap().parse().unwrap();
            let text = read("/proc/thread-self/net/snmp6");
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("Ip6OutForwDatagrams"));
            v4 + line.map_or(0, |value| value.trim().parse::<u64>().unwrap())
        })
        .unwrap()
}

/// Frames that found no room at a port of the lab, on their way in or out: its ring was full, for the CPU that empties
/// it was busy or away. Neither Freeway nor the kernel's stack lost them.
pub fn dropped(lab: &Lab) -> u64 {
    let ports = [
        lab.client_port(),
        lab.lan_port(),
        lab.wan_port(),
        lab.server_port(),
    ];
    let of = |port: &Port| -> u64 {
        let line = format!("ip -j -s link show dev {}", port.name);
        // a test may have taken the namespace's name
        let Ok(text) = port.netns.tool(&line) else {
            return 0;
        };
        let link: Value = serde_json::from_str(&text).unwrap();
        let count = |way: &str| link[0]["stats64"][way]["dropped"].as_u64().unwrap();
        count("rx") + count("tx")
    };
    ports.into_iter().map(of).sum()
}

/// Frames a second of a load that may be so high. Others use the machine, too: only the long form asks for all of it.
pub fn paced(most_pps: u64) -> u64 {
    if long() {
        most_pps
    } else {
        most_pps.min(20_000)
    }
}

/// TCP segments that a host has sent again.
pub fn retransmitted(netns: &Netns) -> (u64, u64) {
    let text = netns
        .enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))
        .unwrap()
        .unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let value = |wanted: &str| {
        let at = names.split(' ').position(|name| name == wanted).unwrap();
        values.split(' ').nth(at).unwrap().parse().unwrap()
    };
    (value("RetransSegs"), value("OutSegs"))
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

fn tcp_socket(address: SocketAddr) -> OwnedFd {
    let fd = socket(
        family(address),
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    setsockopt(&fd, sockopt::ReuseAddr, &true).unwrap();
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
    fd
}

/// Listens in a namespace.
pub fn listen(netns: &Netns, address: SocketAddr) -> TcpListener {
    netns
        .enter(|| {
            let fd = tcp_socket(address);
            nix::sys::socket::listen(&fd, nix::sys::socket::Backlog::new(128).unwrap()).unwrap();
            // SAFETY: the descriptor is this function's own.
            unsafe { TcpListener::from_raw_fd(fd.into_raw_fd()) }
        })
        .unwrap()
}

/// Connects from a given address and port of a namespace; ports may be reused at once.
pub fn connect_from(netns: &Netns, from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    netns
        .enter(|| {
            let fd = tcp_socket(from);
            connect(fd.as_raw_fd(), &SockaddrStorage::from(to))?;
            // SAFETY: the descriptor is this function's own.
            let stream = unsafe { TcpStream::from_raw_fd(fd.into_raw_fd()) };
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            stream.set_write_timeout(Some(Duration::from_secs(20)))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
        .unwrap()
}

/// A connection through the router: the opener's end and the other one.
pub fn pair(
    from: (&Netns, SocketAddr),
    to: SocketAddr,
    listener: &TcpListener,
) -> (TcpStream, TcpStream) {
    let opener = connect_from(from.0, from.1, to).unwrap();
    let (other, _) = listener.accept().unwrap();
    other
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    other
        .set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    other.set_nodelay(true).unwrap();
    (opener, other)
}

/// A UDP socket of a namespace.
pub fn udp(netns: &Netns, address: SocketAddr) -> UdpSocket {
    let socket = netns.enter(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    socket
}

/// The block number `number` of a stream; each differs from all others.
pub fn block(number: u64) -> Vec<u8> {
    let mut bytes = vec![0u8; BLOCK];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i as u64 * 31 + (i as u64 >> 8) * 7) as u8;
    }
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Bytes of a block.
pub const BLOCK: usize = 1 << 18;

/// Sends so many blocks.
pub fn send_blocks(stream: &mut TcpStream, blocks: u64) -> std::io::Result<()> {
    let mut bytes = block(0);
    for number in 0..blocks {
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        stream.write_all(&bytes)?;
    }
    Ok(())
}

/// Receives so many blocks, each of which has to be right.
#[track_caller]
pub fn receive_blocks(stream: &mut TcpStream, blocks: u64) {
    let mut want = block(0);
    let mut bytes = vec![0u8; BLOCK];
    for number in 0..blocks {
        want[..8].copy_from_slice(&number.to_be_bytes());
        stream.read_exact(&mut bytes).unwrap();
        assert!(bytes == want, "block {number} differs");
    }
}

/// Sends blocks both ways at once and checks them.
pub fn exchange_blocks(ends: &mut (TcpStream, TcpStream), blocks: u64) {
    let mut senders = (ends.0.try_clone().unwrap(), ends.1.try_clone().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| send_blocks(&mut senders.0, blocks).unwrap());
        scope.spawn(|| send_blocks(&mut senders.1, blocks).unwrap());
        scope.spawn(|| receive_blocks(&mut ends.0, blocks));
        receive_blocks(&mut ends.1, blocks);
    });
}

/// True if the other end has closed and everything was read.
#[track_caller]
pub fn at_end(stream: &mut TcpStream) {
    let mut rest = [0u8; 1];
    assert_eq!(
        stream.read(&mut rest).unwrap(),
        0,
        "the FIN of the other end"
    );
}

/// Closes with a RST.
pub fn reset(stream: TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&stream, sockopt::Linger, &linger).unwrap();
}
