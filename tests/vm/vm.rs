// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows become fast, on whatever kernel runs this: UDP and TCP through a masquerade, in XDP and in tc, and through
//! PPPoE and Wi-Fi, by sockets, IPsec tunnels of strongSwan that pass, and ports of VRFs; benches whose scenarios need VLANs, PPPoE
//! and flow tables. `make test-vm` runs it on Debian's kernels;
//! software emulation is slow, so no rate is asserted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod unit;
mod vrf;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freeway_kernel::probe::kernel_version;
use freeway_lab::frame::MAC_WAN;
use freeway_lab::{
    Capture, Captured, Direction, Directions, Filter, Generator, Lab, LabError, Load, MeasureSpec,
    Netns, Options, Proto, Sink, SinkSpec, Topology, Until, measure, pppoe,
};
use freeway_testkit::Moment;
use serde_json::Value;

const SERVER: &str = "198.51.100.2";
const PATIENCE: Duration = Duration::from_secs(90);
/// What a change needs to reach the fast path, in an emulated machine.
const LATE_MAX: Duration = Duration::from_millis(100);
/// Sent by the server before it closes.
const DOWNLOAD: usize = 4 << 20;
/// Of the generator.
const FLOWS: u32 = 16;

/// The daemon in the lab's router; its log goes to standard error.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// `keys` are of each of the lab's ports, `ports` beside them.
    fn start(lab: &Lab, keys: &str, ports: &[&str]) -> Self {
        let socket = PathBuf::from(format!("/run/freeway-vm-{}.sock", std::process::id()));
        let mut command = Command::new(freeway_testkit::program("freeway"));
        command
            .args(["run", "--config", "/dev/stdin", "--log", "info"])
            .args(["-i", &lab.lan_port().name, "-i", &lab.wan_port().name])
            .args(ports.iter().flat_map(|port| ["-i", port]))
            .arg("--socket")
            .arg(&socket)
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped());
        let mut child = lab.router().spawn(&mut command).unwrap();
        let config = lab.config_toml(keys);
        child
            .stdin
            .take()
            .unwrap()
            .write_all(config.as_bytes())
            .unwrap();
        let mut daemon = Self { child, socket };
        let start = Moment::now();
        while daemon.ask(&["status"]).is_none() {
            if let Some(status) = daemon.child.try_wait().unwrap() {
                panic!("the daemon ended: {status}");
            }
            assert!(start.elapsed() < PATIENCE, "the daemon does not answer");
            thread::sleep(Duration::from_millis(200));
        }
        println!("daemon: ready after {:?}", start.elapsed());
        daemon
    }

    fn ask(&self, command: &[&str]) -> Option<Value> {
        let mut ask = Command::new(freeway_testkit::program("freeway"));
        ask.args(command)
            .arg("--json")
            .arg("--socket")
            .arg(&self.socket);
        let output = ask.output().unwrap();
        output
            .status
            .success()
            .then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    fn get(&self, command: &[&str]) -> Value {
        self.ask(command)
            .unwrap_or_else(|| panic!("freeway {} failed", command.join(" ")))
    }

    /// Fast packets of both directions of a protocol: client to server, and back.
    fn fast(&self, proto: &str) -> [u64; 2] {
        let flows = self.get(&["flows", "proto", proto]);
        let mut packets = [0; 2];
        for flow in flows["flows"].as_array().unwrap() {
            let reply = usize::from(flow["reply"].as_bool().unwrap());
            packets[reply] += flow["packets"].as_u64().unwrap();
        }
        packets
    }

    fn fast_packets(&self) -> u64 {
        self.get(&["stats"])["fast"]["packets"].as_u64().unwrap()
    }

    /// All that it says of itself, for a failure.
    fn dump(&self) -> String {
        let stats = self.get(&["stats"]);
        let counts: Vec<String> = stats["reasons"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|r| r["packets"] != 0)
            .map(|r| format!("{}={}", r["name"].as_str().unwrap(), r["packets"]))
            .collect();
        let refused: Vec<&Value> = stats["refused"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|r| r["count"] != 0)
            .collect();
        let status = self.get(&["status"]);
        format!(
            "reasons: {counts:?}\nrefused: {refused:?}\nports: {:#}\nruleset: {:#}\nflows: {:#}",
            status["ports"],
            status["ruleset"],
            self.get(&["flows"])
        )
    }

    fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the daemon ended badly: {status}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn in_netns<T: Send + 'static>(
    netns: &Netns,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let netns = netns.clone();
    thread::spawn(move || netns.enter(work).unwrap())
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Answers every datagram with itself until told to end.
fn udp_echo(netns: &Netns, end: &Arc<AtomicBool>) -> JoinHandle<()> {
    let end = Arc::clone(end);
    let socket = netns
        .enter(|| UdpSocket::bind("0.0.0.0:7000").unwrap())
        .unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while !end.load(Ordering::Relaxed) {
            match socket.recv_from(&mut buffer) {
                Ok((len, from)) => drop(socket.send_to(&buffer[..len], from).unwrap()),
                Err(error) => assert!(is_timeout(&error), "{error}"),
            }
        }
    })
}

/// Asks and answers of different lengths and contents until told to end; counts those that came back right.
fn udp_client(
    netns: &Netns,
    server: &'static str,
    end: &Arc<AtomicBool>,
) -> JoinHandle<(u64, u64)> {
    let end = Arc::clone(end);
    in_netns(netns, move || {
        let socket = UdpSocket::bind("192.0.2.2:40000").unwrap();
        socket.connect((server, 7000)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let (mut sent, mut good) = (0u64, 0u64);
        let mut buffer = [0; 2048];
        while !end.load(Ordering::Relaxed) {
            let length = 1 + (sent as usize * 37) % 1360;
            let data: Vec<u8> = (0..length).map(|i| (sent as usize + i) as u8).collect();
            socket.send(&data).unwrap();
            sent += 1;
            match socket.recv(&mut buffer) {
                Ok(len) => good += u64::from(buffer[..len] == data[..]),
                Err(error) => assert!(is_timeout(&error), "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        }
        (sent, good)
    })
}

/// Echoes single bytes until it gets a 0xff, then sends the download and closes.
fn tcp_server(netns: &Netns) -> JoinHandle<()> {
    let listener = netns
        .enter(|| TcpListener::bind("0.0.0.0:7001").unwrap())
        .unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut byte = [0];
        loop {
            stream.read_exact(&mut byte).unwrap();
            if byte == [0xff] {
                break;
            }
            stream.write_all(&byte).unwrap();
        }
        let data: Vec<u8> = (0..DOWNLOAD).map(pattern).collect();
        stream.write_all(&data).unwrap();
    })
}

fn pattern(i: usize) -> u8 {
    (i * 7 + (i >> 10)) as u8
}

/// Waits until both directions of a protocol have had fast packets.
#[track_caller]
fn wait_until_fast(daemon: &Daemon, proto: &str, mut meanwhile: impl FnMut()) {
    let start = Moment::now();
    loop {
        let fast = daemon.fast(proto);
        if fast.iter().all(|packets| *packets >= 5) {
            println!(
                "{proto}: fast both ways after {:?}: {fast:?}",
                start.elapsed()
            );
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{proto} is not fast: {fast:?}\n{}",
            daemon.dump()
        );
        meanwhile();
    }
}

/// One test at a time.
static MACHINE: Mutex<()> = Mutex::new(());

/// The machine; none, and says why, where it is not a virtual one.
fn vm(why: &str) -> Option<MutexGuard<'static, ()>> {
    if std::env::var_os("IN_VM").is_none() {
        println!("skipped: {why}, and this is not a virtual machine");
        return None;
    }
    Some(MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A lab, and the machine for it; none, and says why, where this is not a virtual machine.
fn lab_in_vm(
    why: &str,
    topology: &str,
    options: Options,
) -> Option<(MutexGuard<'static, ()>, Lab)> {
    let machine = vm(why)?;
    let lab = Lab::build(Topology::parse(topology).unwrap(), options).unwrap();
    Some((machine, lab))
}

/// UDP both ways and a TCP download, fast in both directions and right.
fn exchange(lab: &Lab, daemon: &Daemon, to: &'static str) {
    let end = Arc::new(AtomicBool::new(false));
    let echo = udp_echo(lab.server(), &end);
    let client = udp_client(lab.client(), to, &end);
    wait_until_fast(daemon, "udp", || thread::sleep(Duration::from_millis(500)));

    let server = tcp_server(lab.server());
    let mut stream = in_netns(lab.client(), move || {
        TcpStream::connect((to, 7001)).unwrap()
    })
    .join()
    .unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    wait_until_fast(daemon, "tcp", || {
        for i in 0..20u8 {
            let mut byte = [i];
            stream.write_all(&byte).unwrap();
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [i]);
        }
    });
    let before = daemon.fast_packets();
    let start = Moment::now();
    stream.write_all(&[0xff]).unwrap();
    let mut data = Vec::new();
    stream.read_to_end(&mut data).unwrap();
    assert_eq!(data.len(), DOWNLOAD);
    assert!(
        data.iter().enumerate().all(|(i, byte)| *byte == pattern(i)),
        "damaged"
    );
    let during = daemon.fast_packets() - before;
    println!(
        "tcp: {DOWNLOAD} bytes in {:?}, {during} fast packets meanwhile",
        start.elapsed()
    );
    assert!(
        during as usize > DOWNLOAD / 1448 / 4,
        "{during} fast\n{}",
        daemon.dump()
    );
    drop(stream);
    server.join().unwrap();

    end.store(true, Ordering::Relaxed);
    let (sent, good) = client.join().unwrap();
    echo.join().unwrap();
    println!("udp: {good} of {sent} came back right");
    assert!(sent - good <= sent / 50, "{}", daemon.dump());
    println!("{}", daemon.dump().lines().next().unwrap());
}

/// The same, all of it in tc.
fn exchange_in_tc(lab: &Lab, daemon: &Daemon, to: &'static str) {
    exchange(lab, daemon, to);
    for flow in daemon.get(&["flows"])["flows"].as_array().unwrap() {
        assert_eq!(flow["path"], "tc", "{flow:#}");
    }
}

#[track_caller]
fn wait_for_path(daemon: &Daemon, port: &str, path: &str) {
    let start = Moment::now();
    loop {
        let status = daemon.get(&["status"]);
        let mut ports = status["ports"].as_array().unwrap().iter();
        let port = ports.find(|p| p["name"] == port).unwrap();
        if port["path"] == path {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{}", daemon.dump());
        thread::sleep(Duration::from_millis(200));
    }
}

/// The same through a port, in XDP once that is fit for it.
fn exchange_in_xdp(lab: &Lab, daemon: &Daemon, to: &'static str, port: &str) {
    wait_for_path(daemon, port, "xdp");
    exchange(lab, daemon, to);
    for flow in daemon.get(&["flows"])["flows"].as_array().unwrap() {
        assert_eq!(flow["path"], "xdp", "{flow:#}");
    }
}

#[test]
fn nat_flows_become_fast() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: network namespaces need root");
        return;
    }
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    for (path, keys) in [("xdp", ""), ("tc", "path = \"tc\"\n")] {
        let lab = Lab::build(Topology::parse("nat").unwrap(), Options::default()).unwrap();
        let daemon = Daemon::start(&lab, keys, &[]);
        for port in daemon.get(&["status"])["ports"].as_array().unwrap() {
            assert_eq!(port["state"], "fast", "{}", daemon.dump());
            assert_eq!(port["path"], path, "{}", daemon.dump());
        }
        exchange(&lab, &daemon, SERVER);
        // FIN went through the kernel: the connection ends there as if it had seen all of it.
        let tracked = lab.router().tool("conntrack -L -p tcp").unwrap();
        assert!(!tracked.contains("ESTABLISHED"), "{tracked}");
        daemon.stop();
        leaves_nothing(&lab);
    }
}

/// A program of a namespace, ended with this value.
struct Helper(Child);

impl Helper {
    fn start(netns: &Netns, line: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::null());
        Self(netns.spawn(&mut command).unwrap())
    }

    fn end(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        self.0.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends to the server, a datagram each millisecond, until told to end, whether or not there is a way.
fn load(netns: &Netns, server: &'static str, end: &Arc<AtomicBool>) -> JoinHandle<()> {
    let end = Arc::clone(end);
    in_netns(netns, move || {
        let socket = UdpSocket::bind("192.0.2.2:41000").unwrap();
        while !end.load(Ordering::Relaxed) {
            let _ = socket.send_to(b"a datagram", (server, 9));
            thread::sleep(Duration::from_millis(1));
        }
    })
}

/// What a frame of a PPPoE session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// A packet of IPv4 or IPv6.
    Packet,
    /// LCP's Terminate-Request (RFC 1661).
    End,
    Other,
}

/// The session of a frame of the router's in a VLAN, and what it says.
fn of_session(frame: &[u8]) -> Option<(u16, Said)> {
    let (link, rest) = frame.split_at_checked(16)?;
    if link[6..12] != MAC_WAN || rest.len() < 11 || rest[..4] != [0x88, 0x64, 0x11, 0] {
        return None;
    }
    let said = match rest[8..11] {
        [0, 0x21 | 0x57, _] => Said::Packet,
        [0xc0, 0x21, 5] => Said::End,
        _ => Said::Other,
    };
    Some((u16::from_be_bytes([rest[4], rest[5]]), said))
}

/// A PPPoE session in a VLAN from the router to an access concentrator at the server, lost and set up anew.
#[test]
fn pppoe_flows_become_fast() {
    const SESSION: &str = "noauth\nnodefaultroute\nnoccp\nnovj\nmtu 1492\nmru 1492\n";
    let options = Options {
        filter: Some(Filter::Tracked),
        extra_nft: "table inet beside {\n\tchain postrouting {\n\
                    \t\ttype nat hook postrouting priority srcnat;\n\
                    \t\toifname \"ppp0\" masquerade\n\t}\n}\n"
            .into(),
        ..Options::default()
    };
    let Some((_machine, lab)) = lab_in_vm("this kernel may have no PPPoE", "routed", options)
    else {
        return;
    };
    for (host, own) in [(lab.router(), "wan0"), (lab.server(), "eth0")] {
        // tags are in the frames, as on a wire
        let inline = format!("ethtool -K {own} txvlan off");
        host.tool(&inline).unwrap();
        let vlan = format!("link add link {own} name vl0 type vlan id 5\nlink set vl0 up\n");
        host.tool_with_input("ip -batch -", &vlan).unwrap();
    }
    let file = PathBuf::from("/run/freeway-vm-session");
    std::fs::write(&file, SESSION).unwrap();
    let _concentrator = Helper::start(
        lab.server(),
        &format!(
            "pppoe-server -F -I vl0 -L 10.6.0.1 -R 10.6.0.2 -N 8 -O {}",
            file.display()
        ),
    );
    let dial = || {
        let line = format!(
            "pppd plugin pppoe.so nic-vl0 nodetach noipdefault ifname ppp0 file {}",
            file.display()
        );
        let pppd = Helper::start(lab.router(), &line);
        let start = Moment::now();
        while !lab
            .router()
            .tool("ip -4 address show dev ppp0")
            .is_ok_and(|text| text.contains("10.6.0.1"))
        {
            assert!(start.elapsed() < PATIENCE, "no PPPoE session");
            thread::sleep(Duration::from_millis(200));
        }
        pppd
    };
    let mut pppd = dial();
    let daemon = Daemon::start(&lab, "", &["vl0", "ppp0"]);
    exchange(&lab, &daemon, "10.6.0.1");
    exchange_in_xdp(&lab, &daemon, "10.6.0.1", "ppp0");
    // the session is lost under load: no packet follows its end
    let mut wire = Capture::open(lab.server_port()).unwrap();
    let (end, before) = (Arc::new(AtomicBool::new(false)), daemon.fast_packets());
    let sender = load(lab.client(), "10.6.0.1", &end);
    let start = Moment::now();
    while daemon.fast_packets() < before + 200 {
        assert!(start.elapsed() < PATIENCE, "{}", daemon.dump());
    }
    pppd.end();
    thread::sleep(Duration::from_secs(2));
    let mut of_sessions = || -> Vec<(u64, u16, Said)> {
        let frames = wire.drain(Duration::ZERO, |frame| of_session(frame).is_some());
        let said =
            |frame: &Captured| of_session(&frame.bytes).map(|(id, said)| (frame.time_ns, id, said));
        frames.unwrap().iter().filter_map(said).collect()
    };
    let frames = of_sessions();
    let old = frames[0].1;
    let ended = frames.iter().position(|(.., said)| *said == Said::End);
    let (before, after) = frames.split_at(ended.expect("an end of the session"));
    let packets = |frames: &[(u64, u16, Said)]| -> Vec<u64> {
        let packets = frames.iter().filter(|(.., said)| *said == Said::Packet);
        packets.map(|(time_ns, ..)| *time_ns).collect()
    };
    let (before, late) = (packets(before), packets(after));
    let late = late
        .iter()
        .map(|time_ns| Duration::from_nanos(time_ns.saturating_sub(after[0].0)));
    let late: Vec<Duration> = late.collect();
    println!(
        "session {old:#x}: {} packets before its end, after it: {late:?}",
        before.len()
    );
    assert!(before.len() > 200, "{}", before.len());
    assert!(late.iter().all(|late| *late < LATE_MAX), "{late:?}");
    let _again = dial();
    let dialled = Moment::now();
    let before = daemon.fast_packets();
    while daemon.fast_packets() < before + 5 {
        assert!(dialled.elapsed() < PATIENCE, "{}", daemon.dump());
    }
    println!(
        "packets of the new session are fast after {:?}",
        dialled.elapsed()
    );
    end.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    let news: std::collections::BTreeSet<u16> = of_sessions()
        .iter()
        .map(|(_, session, _)| *session)
        .collect();
    assert!(
        news.len() == 1 && !news.contains(&old),
        "{old:#x}, then {news:x?}"
    );
    drop(wire);
    exchange(&lab, &daemon, "10.6.0.1");
    exchange_in_xdp(&lab, &daemon, "10.6.0.1", "ppp0");
    // as a shaper there has to
    let shaper = "tc qdisc replace dev wan0 root tbf rate 100mbit burst 100kb latency 50ms";
    lab.router().tool(shaper).unwrap();
    wait_for_path(&daemon, "ppp0", "tc");
    exchange(&lab, &daemon, "10.6.0.1");
    daemon.stop();
}

/// Behind the server's end of the tunnel.
const INNER: &str = "10.9.0.2";

/// strongSwan's settings; none of Debian's.
const CHARON: &str = "charon-systemd {
    load = random nonce aes sha1 sha2 hmac kdf gmp kernel-netlink socket-default vici
    delete_rekeyed_delay = 1
    plugins {
        vici {
            socket = unix://FILES/vici
        }
    }
    filelog {
        stderr {
            default = 1
            enc = 0
            net = 0
        }
    }
}
";

/// An end of a tunnel, signed and not encrypted: to start the kernel's generator of IVs takes an emulated machine ten seconds.
const TUNNEL: &str = "connections {
    tunnel {
        version = 2
        proposals = aes128-sha256-modp2048
        local_addrs = OWN
        remote_addrs = OTHER
        local {
            auth = psk
            id = OWN
        }
        remote {
            auth = psk
        }
        children {
            net {
                esp_proposals = null-sha256
                local_ts = NEAR/32
                remote_ts = FAR/32
            }
        }
    }
}
secrets {
    ike {
        secret = \"known to both\"
    }
}
";

/// strongSwan at one end of a tunnel between client and server.
struct Peer {
    netns: Netns,
    files: String,
    _charon: Helper,
}

impl Peer {
    fn start(netns: &Netns, [own, other]: [&str; 2], [near, far]: [&str; 2]) -> Self {
        let files = format!("/run/freeway-vm-{own}");
        std::fs::create_dir_all(&files).unwrap();
        let write = |name: &str, text: String| {
            std::fs::write(format!("{files}/{name}"), text).unwrap();
        };
        write("charon", CHARON.replace("FILES", &files));
        let tunnel = TUNNEL.replace("OWN", own).replace("OTHER", other);
        write("tunnel", tunnel.replace("NEAR", near).replace("FAR", far));
        let line = format!("env STRONGSWAN_CONF={files}/charon charon-systemd");
        Self {
            netns: netns.clone(),
            _charon: Helper::start(netns, &line),
            files,
        }
    }

    fn swanctl(&self, words: &str) -> Result<String, LabError> {
        let files = &self.files;
        let line =
            format!("env STRONGSWAN_CONF={files}/charon swanctl {words} --uri unix://{files}/vici");
        self.netns.tool(&line)
    }

    fn configure(&self) {
        let load = format!("--load-all --file {}/tunnel", self.files);
        let start = Moment::now();
        while let Err(error) = self.swanctl(&load) {
            assert!(start.elapsed() < PATIENCE, "{error}");
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn connect(&self) {
        let start = Moment::now();
        self.swanctl("--initiate --child net").unwrap();
        println!("tunnel: there after {:?}", start.elapsed());
    }

    /// The SPIs that the kernel has, of both directions.
    fn spis(&self) -> Vec<u64> {
        let states = self.netns.tool("ip xfrm state").unwrap();
        let words: Vec<&str> = states.split_whitespace().collect();
        let spis = words.windows(2).filter(|pair| pair[0] == "spi");
        spis.map(|pair| u64::from_str_radix(pair[1].trim_start_matches("0x"), 16).unwrap())
            .collect()
    }

    /// New keys, and the old ones gone.
    fn rekey(&self) -> Vec<u64> {
        let old = self.spis();
        self.swanctl("--rekey --child net").unwrap();
        let start = Moment::now();
        loop {
            let spis = self.spis();
            if spis.len() == 2 && spis.iter().all(|spi| !old.contains(spi)) {
                println!(
                    "rekey: {old:x?}, then {spis:x?}, after {:?}",
                    start.elapsed()
                );
                return spis;
            }
            assert!(start.elapsed() < PATIENCE, "{old:x?}, then {spis:x?}");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Both ends of a tunnel through the router, from the client to what is behind the server.
fn peers(lab: &Lab) -> [Peer; 2] {
    let line = format!("ip address add {INNER}/32 dev lo");
    lab.server().tool(&line).unwrap();
    let [client, anybody] = ["192.0.2.2", "%any"];
    [
        Peer::start(lab.client(), [client, SERVER], [client, INNER]),
        Peer::start(lab.server(), [SERVER, anybody], [INNER, client]),
    ]
}

/// Works while traffic passes through the tunnel, and nearly all of it has to.
fn through_tunnel(lab: &Lab, daemon: &Daemon, work: impl FnOnce()) {
    let end = Arc::new(AtomicBool::new(false));
    let echo = udp_echo(lab.server(), &end);
    let client = udp_client(lab.client(), INNER, &end);
    work();
    end.store(true, Ordering::Relaxed);
    let (sent, good) = client.join().unwrap();
    echo.join().unwrap();
    println!("udp within ESP: {good} of {sent} came back right");
    let few = sent / 50 + 1;
    assert!(good > 10 && sent - good <= few, "{}", daemon.dump());
    for flow in daemon.get(&["flows"])["flows"].as_array().unwrap() {
        assert_eq!(flow["path"], "xdp", "{flow:#}");
    }
}

/// Waits until the flows of both SPIs have had fast packets.
#[track_caller]
fn wait_spis_fast(daemon: &Daemon, spis: &[u64]) {
    let start = Moment::now();
    loop {
        let flows = daemon.get(&["flows", "proto", "esp"]);
        let fast = |spi: &u64| {
            let mut flows = flows["flows"].as_array().unwrap().iter();
            flows.any(|flow| {
                let [upper, lower] = ["sport", "dport"].map(|half| flow[half].as_u64().unwrap());
                upper << 16 | lower == *spi && flow["packets"].as_u64() >= Some(5)
            })
        };
        if spis.iter().all(fast) {
            println!("esp: fast both ways after {:?}", start.elapsed());
            return;
        }
        let late = start.elapsed() > PATIENCE;
        assert!(!late, "{spis:x?} are not fast\n{}", daemon.dump());
        thread::sleep(Duration::from_millis(500));
    }
}

const MASQUERADE: &str = "table ip nat {
    chain postrouting {
        type nat hook postrouting priority srcnat
        oifname wan0 masquerade
    }
}
";

/// Of strongSwan: ESP as it is, and behind a masquerade within UDP, in one flow with IKE; each with new keys under traffic.
#[test]
fn ipsec_tunnels_that_pass_become_fast() {
    let options = Options {
        filter: Some(Filter::Stateful),
        ..Options::default()
    };
    let why = "ESP needs a kernel with CONFIG_INET_ESP";
    let Some((_machine, lab)) = lab_in_vm(why, "routed", options) else {
        return;
    };
    let peers = peers(&lab);
    let daemon = Daemon::start(&lab, "", &[]);
    let [client, server] = &peers;
    peers.iter().for_each(Peer::configure);
    client.connect();
    let mut ping = Command::new("ping");
    ping.args(["-n", "-i", "0.1", SERVER]).stdout(Stdio::null());
    let mut ping = lab.client().spawn(&mut ping).unwrap();
    let sleep = || thread::sleep(Duration::from_millis(500));
    through_tunnel(&lab, &daemon, || {
        // where programs see an skb's connection
        if kernel_version() >= Some((6, 2)) {
            wait_spis_fast(&daemon, &client.spis());
            wait_until_fast(&daemon, "icmp", sleep);
            wait_spis_fast(&daemon, &client.rekey());
        } else {
            client.rekey();
            thread::sleep(Duration::from_secs(2));
            assert_eq!([daemon.fast("esp"), daemon.fast("icmp")], [[0; 2]; 2]);
            println!("row: this kernel's programs see no connections of ESP and ICMP");
        }
    });
    ping.kill().unwrap();
    ping.wait().unwrap();

    client.swanctl("--terminate --ike tunnel").unwrap();
    let router = lab.router();
    router.tool_with_input("nft -f -", MASQUERADE).unwrap();
    // IKE's, too, would stay untranslated
    router.tool("conntrack -F").unwrap();
    client.connect();
    through_tunnel(&lab, &daemon, || {
        wait_until_fast(&daemon, "udp", sleep);
        client.rekey();
        let before = daemon.fast("udp");
        let start = Moment::now();
        while (0..2).any(|way| daemon.fast("udp")[way] < before[way] + 20) {
            assert!(start.elapsed() < PATIENCE, "{}", daemon.dump());
            sleep();
        }
    });
    let states = server.netns.tool("ip xfrm state").unwrap();
    assert!(states.contains("espinudp"), "{states}");
    daemon.stop();
}

/// A bridge of two access points (mac80211_hwsim, hostapd) instead of the LAN's port, and the client as their station, which moves
/// from one to the other.
#[test]
fn flows_of_a_roaming_station_become_fast() {
    let options = Options {
        filter: Some(Filter::Tracked),
        static_neighbours: false,
        ..Options::default()
    };
    let why = "mac80211_hwsim is the whole machine's";
    let Some((_machine, lab)) = lab_in_vm(why, "routed", options) else {
        return;
    };
    let loaded = Command::new("modprobe")
        .args(["mac80211_hwsim", "radios=3"])
        .status()
        .unwrap();
    assert!(loaded.success(), "mac80211_hwsim: {loaded}");
    for (radio, netns) in [lab.router(), lab.router(), lab.client()]
        .iter()
        .enumerate()
    {
        let line = format!("phy phy{radio} set netns name {}", netns.name());
        let moved = Command::new("iw").args(line.split(' ')).status().unwrap();
        assert!(moved.success(), "iw {line}: {moved}");
    }
    let bridge = "address flush dev lan0\nlink add br0 type bridge\nlink set br0 up\n\
                  address add 192.0.2.1/24 dev br0\n";
    lab.router().tool_with_input("ip -batch -", bridge).unwrap();
    let points = ["wlan0", "wlan1"].map(|radio| {
        let file = format!("/run/freeway-vm-{radio}");
        let settings = format!(
            "interface={radio}\nbridge=br0\ndriver=nl80211\nssid=freeway\nhw_mode=g\nchannel=1\n"
        );
        std::fs::write(&file, settings).unwrap();
        Helper::start(lab.router(), &format!("hostapd {file}"))
    });
    let station = "link set eth0 down\naddress add 192.0.2.2/24 dev wlan2\nlink set wlan2 up\n\
                   route replace default via 192.0.2.1 dev wlan2\n";
    lab.client()
        .tool_with_input("ip -batch -", station)
        .unwrap();
    let daemon = Daemon::start(&lab, "", &["br0"]);
    for point in ["wlan0", "wlan1"] {
        let info = lab.router().tool(&format!("iw dev {point} info")).unwrap();
        let address = info
            .lines()
            .find_map(|line| line.trim().strip_prefix("addr "))
            .unwrap();
        let _ = lab.client().tool("iw dev wlan2 disconnect");
        let line = format!("iw dev wlan2 connect freeway 2412 {address}");
        let start = Moment::now();
        loop {
            // an access point may need a moment before it is heard of
            let _ = lab.client().tool(&line);
            thread::sleep(Duration::from_secs(1));
            let state = lab.client().tool("iw dev wlan2 link").unwrap();
            if state.contains(address) {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{point}: {state}");
        }
        exchange_in_tc(&lab, &daemon, SERVER);
    }
    daemon.stop();
    drop(points);
}

/// One of the kernels, for emulation takes long.
fn is_6_12() -> bool {
    let version = kernel_version().unwrap();
    let is = version == (6, 12);
    if !is {
        println!("skipped: on Linux 6.12 alone, and this is {version:?}");
    }
    is
}

/// Frames with and without a tag through nf_flowtable, as the kernel sends them: tags, addresses and checksums are right,
/// and the filter sees none of them.
#[test]
fn a_flow_table_forwards_between_a_vlan_and_a_masquerade() {
    let options = Options {
        vlan: Some(5),
        flowtable: true,
        ..Options::default()
    };
    let why = "this kernel may have no VLANs and no flow tables";
    let Some((_machine, lab)) = lab_in_vm(why, "nat6", options) else {
        return;
    };
    let sent = 2000;
    for proto in [Proto::Tcp, Proto::Udp] {
        lab.prime(proto, FLOWS, None).unwrap();
        for direction in [Direction::Forward, Direction::Reply] {
            let spec = match direction {
                Direction::Forward => lab.flows(proto, FLOWS, 1518),
                Direction::Reply => lab.reply_flows(proto, FLOWS, 1518),
            };
            let sink = SinkSpec {
                tagged: direction == Direction::Reply,
                ..SinkSpec::thorough(FLOWS)
            };
            let sink = Sink::attach(lab.receiver(direction), sink).unwrap();
            let generator = Generator::new(lab.sender(direction), &spec).unwrap();
            let send = || {
                generator
                    .run(&Load::paced(Until::Frames(sent), 5000))
                    .unwrap()
            };
            send();
            let filtered = lab.filtered_bytes().unwrap();
            send();
            assert_eq!(
                lab.filtered_bytes().unwrap(),
                filtered,
                "{proto:?} {direction:?}"
            );
            let counts = sink.counts().unwrap();
            let wrong = counts.bad_ip_checksum + counts.bad_l4_checksum + counts.unverified;
            assert_eq!(
                (counts.frames, wrong),
                (2 * sent, 0),
                "{proto:?} {direction:?}: {counts:?}"
            );
        }
        let line = format!("conntrack -L -f ipv6 -p {}", proto.name());
        let known = lab.router().tool(&line).unwrap();
        let offloaded = known.matches("[OFFLOAD]").count();
        assert_eq!(offloaded, FLOWS as usize, "{known}");
    }
}

/// No figure is missing where the kernel has VLANs and flow tables, and frames took the ways that they are of. With
/// `FREEWAY_LONG` in all rows.
#[test]
fn rows_of_imx8_have_three_figures() {
    let why = "this kernel may have no VLANs and no flow tables";
    let Some(_machine) = vm(why) else { return };
    if !is_6_12() {
        return;
    }
    let mut bench = Command::new(freeway_testkit::program("freeway"));
    bench.args(["bench", "imx8", "--json", "--runs", "1", "--seconds", "0.5"]);
    let few = ["ipv4-tcp-lan-wan-vlan-nat", "ipv4-udp-duplex-vlan-nat"];
    let wanted = if std::env::var_os("FREEWAY_LONG").is_some() {
        bench.arg("--duplex");
        24
    } else {
        bench.args(few.iter().flat_map(|row| ["--row", row]));
        few.len()
    };
    let start = Moment::now();
    let output = bench.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    println!("bench imx8: {:?}", start.elapsed());
    let bench: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = bench["rows"].as_array().unwrap();
    assert_eq!(rows.len(), wanted, "{bench:#}");
    for row in rows {
        for column in ["kernel", "flowtable", "freeway"] {
            let figure = |name: &str| row[column][name].as_f64();
            assert!(figure("ns") > Some(0.0), "{row:#}");
            let all = column == "kernel" || figure("fast_share") >= Some(0.98);
            assert!(all, "{row:#}");
        }
        for ratio in [
            "kernel_over_freeway",
            "kernel_over_flowtable",
            "flowtable_over_freeway",
        ] {
            assert!(row[ratio].as_f64() > Some(0.0), "{row:#}");
        }
    }
}

/// No router is missing in the routers of a home, and what is around packets there costs no fast path its frames. With `FREEWAY_LONG`
/// of a VLAN, too, and of a bridge, which other kernels have without a flow table.
#[test]
fn routers_of_homes_have_all_figures() {
    let why = "this kernel may have no VLANs, no PPPoE and no flow tables";
    let Some(_machine) = vm(why) else { return };
    if !is_6_12() {
        return;
    }
    let long = std::env::var_os("FREEWAY_LONG").is_some();
    let scenarios = ["pppoe", "vlan", "bridge"];
    for scenario in &scenarios[..if long { 3 } else { 1 }] {
        let mut bench = Command::new(freeway_testkit::program("freeway"));
        bench.args(["bench", "compare", "--scenario", scenario, "--json"]);
        bench.args(["--runs", "1", "--seconds", "0.5", "--brief"]);
        bench.args(["--flows", "200"]);
        let start = Moment::now();
        let output = bench.stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{scenario}: {}", output.status);
        println!("{scenario}: {:?}", start.elapsed());
        let bench: Value = serde_json::from_slice(&output.stdout).unwrap();
        // net times of so short a run may be less than nothing here
        for figure in ["kernel_mpps", "freeway_mpps", "redirect_mpps"] {
            assert!(bench[figure].as_f64() > Some(0.0), "{figure}: {bench:#}");
        }
        assert!(bench["fast_share"].as_f64() > Some(0.9), "{bench:#}");
        let peers = bench["peers"].as_array().unwrap();
        let routers: Vec<&str> = peers
            .iter()
            .map(|peer| peer["router"].as_str().unwrap())
            .collect();
        assert_eq!(routers, ["kernel_plain", "flowtable"]);
        for peer in peers {
            assert!(peer["missing"].is_null(), "{peer:#}");
            assert!(peer["mpps"].as_f64() > Some(0.0), "{peer:#}");
        }
        assert!(peers[1]["fast_share"].as_f64() > Some(0.9), "{bench:#}");
    }
}

/// What the generator sends into a WAN that is a session leaves in it, also by XDP, and reaches a sink as any frame does.
#[test]
fn generated_frames_leave_in_the_session() {
    const SESSION: u16 = 0x1234;
    const ROUNDS: u64 = 10;
    let why = "this kernel may have no PPPoE";
    let options = Options {
        pppoe: Some(SESSION),
        ..Options::default()
    };
    let Some((_machine, lab)) = lab_in_vm(why, "nat", options) else {
        return;
    };
    if !is_6_12() {
        return;
    }
    lab.prime(Proto::Udp, FLOWS, None).unwrap();
    let daemon = Daemon::start(&lab, "", &["ppp0"]);
    let start = Moment::now();
    while daemon.get(&["status"])["ports"]
        .as_array()
        .unwrap()
        .iter()
        .all(|port| port["name"] != "ppp0" || port["path"] != "xdp")
    {
        assert!(start.elapsed() < PATIENCE, "{}", daemon.dump());
        lab.greet().unwrap();
        thread::sleep(Duration::from_millis(500));
    }
    let generator = Generator::new(lab.client_port(), &lab.flows(Proto::Udp, FLOWS, 64)).unwrap();
    let frames = ROUNDS * u64::from(FLOWS);
    let send = || {
        let before = daemon.fast_packets();
        generator
            .run(&Load::paced(Until::Frames(frames), 1000))
            .unwrap();
        daemon.fast_packets() - before
    };
    let start = Moment::now();
    while send() < frames * 9 / 10 {
        assert!(start.elapsed() < PATIENCE, "{}", daemon.dump());
    }
    let mut wire = Capture::open(lab.server_port()).unwrap();
    let fast = send();
    // the server's own, which says that nobody listens, is not from the router
    let of_router = |frame: &[u8]| frame[6..12] == MAC_WAN;
    let left = wire
        .drain(Duration::from_millis(200), |frame| of_router(frame))
        .unwrap();
    assert_eq!(left.len() as u64, frames);
    for frame in &left {
        let bare = pppoe::unframed(&frame.bytes, SESSION).expect("a frame of the session");
        // TTL, and the router's address
        assert_eq!((bare[22], &bare[26..30]), (63, &[198, 51, 100, 1][..]));
    }
    println!("{frames} frames of the session, {fast} of them fast");
    assert!(fast >= frames * 9 / 10, "{}", daemon.dump());
    drop(wire);
    let spec = MeasureSpec {
        flows: FLOWS,
        duration: Duration::from_millis(100),
        ..MeasureSpec::default()
    };
    assert!(measure(&lab, &spec).unwrap().received > 0);
    let answers = MeasureSpec {
        directions: Directions::Reply,
        ..spec
    };
    let why = measure(&lab, &answers).unwrap_err().to_string();
    assert!(why.contains("PPPoE"), "{why}");
    daemon.stop();
    leaves_nothing(&lab);
}

fn leaves_nothing(lab: &Lab) {
    for port in [lab.lan_port(), lab.wan_port()] {
        for hook in ["ingress", "egress"] {
            let left = lab
                .router()
                .tool(&format!("tc filter show dev {} {hook}", port.name))
                .unwrap();
            assert_eq!(left, "", "left behind");
        }
        let link = lab
            .router()
            .tool(&format!("ip -d link show dev {}", port.name))
            .unwrap();
        assert!(!link.contains("xdp"), "{link}");
        let qdiscs = lab
            .router()
            .tool(&format!("tc qdisc show dev {}", port.name))
            .unwrap();
        assert!(!qdiscs.contains("clsact"), "{qdiscs}");
    }
}

/// A client's socket.
fn asker(netns: &Netns, port: u16) -> UdpSocket {
    let socket = netns
        .enter(|| UdpSocket::bind(("192.0.2.2", port)).unwrap())
        .unwrap();
    socket.connect((SERVER, 7000)).unwrap();
    socket
}

/// One question; true if its answer comes.
fn ask(socket: &UdpSocket, patience: Duration) -> bool {
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.send(b"a question").unwrap();
    match socket.recv(&mut [0; 64]) {
        Ok(_) => true,
        Err(error) => {
            assert!(is_timeout(&error), "{error}");
            false
        }
    }
}

/// Conntrack's table is full: what is fast goes on, what is new does not begin, as without Freeway. All namespaces share
/// the limit, so a machine of its own is needed.
#[test]
fn a_full_conntrack_table_leaves_what_is_fast() {
    let why = "nf_conntrack_max is the whole machine's";
    let Some((_machine, lab)) = lab_in_vm(why, "nat", Options::default()) else {
        return;
    };
    let daemon = Daemon::start(&lab, "", &[]);
    let end = Arc::new(AtomicBool::new(false));
    let echo = udp_echo(lab.server(), &end);
    let few = Duration::from_secs(5);
    let all: Vec<UdpSocket> = (0..30).map(|i| asker(lab.client(), 40_000 + i)).collect();
    assert!(all.iter().all(|socket| ask(socket, few)));
    // Connections of two seconds are assured, and none of them makes room for others.
    thread::sleep(Duration::from_millis(2500));
    assert!(all.iter().all(|socket| ask(socket, few)));
    wait_until_fast(&daemon, "udp", || {
        for _ in 0..10 {
            assert!(ask(&all[0], few));
        }
    });
    let limit = "/proc/sys/net/netfilter/nf_conntrack_max";
    let before = std::fs::read_to_string(limit).unwrap();
    let count = lab.router().tool("conntrack -C").unwrap();
    std::fs::write(limit, count.trim()).unwrap();
    let new: Vec<UdpSocket> = (0..5).map(|i| asker(lab.client(), 41_000 + i)).collect();
    let answered = new
        .iter()
        .filter(|socket| ask(socket, Duration::from_millis(500)))
        .count();
    let fast = daemon.fast_packets();
    let good = (0..100).filter(|_| ask(&all[0], few)).count();
    let after = daemon.fast_packets();
    std::fs::write(limit, before.trim()).unwrap();
    println!(
        "{} connections at most: {answered} of 5 new ones answered, {good} of 100 of an old one, {} fast packets",
        count.trim(),
        after - fast
    );
    assert_eq!((answered, good), (0, 100), "{}", daemon.dump());
    assert!(after - fast > 100, "{}", daemon.dump());
    assert!(
        new.iter().all(|socket| ask(socket, few)),
        "there is room again"
    );
    let start = Moment::now();
    while daemon.get(&["resync"])["changes"] != 0 {
        assert!(start.elapsed() < PATIENCE, "{}", daemon.dump());
    }
    end.store(true, Ordering::Relaxed);
    echo.join().unwrap();
    daemon.stop();
}
