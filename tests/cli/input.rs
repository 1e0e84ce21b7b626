// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bad input: arguments, configurations, privileges, sockets, and frames of any content.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |   injector |---------| lan0           wan0 |---------| capture    |
//!  +------------+         +---------------------+         +------------+
//!   192.0.2.2/24      192.0.2.1/24      198.51.100.1/24   198.51.100.2/24
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, MAC_WAN, sum16};
use freeway_lab::{Capture, Injector, Lab, Options};
use freeway_testkit::random::Random;
use freeway_testkit::*;

const NOBODY: &str = "65534";

/// A folder that everybody may enter, gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("freeway-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().into()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The exit code and the one line on standard error; nothing on standard output.
#[track_caller]
fn refusal(output: &Output) -> (i32, String) {
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.starts_with("freeway: "), "{line}");
    assert!(output.stdout.is_empty());
    (output.status.code().unwrap(), line)
}

#[track_caller]
fn expect(output: &Output, code: i32, words: &[&str]) {
    let (exit, line) = refusal(output);
    assert_eq!(exit, code, "{line}");
    for words in words {
        assert!(line.contains(words), "no `{words}` in: {line}");
    }
}

/// Runs a command in the lab's router.
fn inside(lab: &Lab, command: &mut Command) -> Output {
    lab.router().place(command).unwrap().output().unwrap()
}

#[test]
fn ports_and_configurations() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let folder = Folder::new("input");
    let run = |arguments: &[&str]| inside(&lab, freeway().arg("run").args(arguments));
    expect(&run(&["-i", "lan7"]), 78, &["lan7", "lan0", "wan0"]);
    expect(
        &run(&["-i", "lan0", "-i", ""]),
        78,
        &["no such network interface"],
    );
    let nowhere = folder.path("nowhere.toml");
    expect(
        &run(&["--config", &nowhere]),
        78,
        &[&nowhere, "No such file"],
    );
    let itself = folder.0.to_str().unwrap();
    expect(&run(&["--config", itself]), 78, &[itself, "directory"]);
    for (text, words) in [
        ("[port.lan0]\nwire_tru = true\n", &[":2:1", "wire_tru"][..]),
        (
            "[port.lan0]\nwire_true = 7\n",
            &[":2:13", "wire_true", "boolean"],
        ),
        ("[port.lan0]\nroutes = 7\n", &[":2:10", "routes", "boolean"]),
        ("[flows]\n\nmax = \"many\"\n", &[":3:7", "max"]),
        ("[flows]\nmax = 0\n", &[":2:7", "max"]),
        ("[policy]\ntcp = true\ntcp = false\n", &[":3:", "tcp"]),
        ("[policy\n", &[":1:8"]),
        (
            "[[policy.exclude]]\nsrc = [\"192.0.2.0/33\"]\n",
            &[":2:", "192.0.2.0/33"],
        ),
        (
            "[[policy.exclude]]\ndport = [\"80-70\"]\n",
            &[":2:", "80-70"],
        ),
        ("\u{0}\u{1}", &[":1:"]),
    ] {
        let file = folder.file("wrong.toml", text);
        let output = run(&["--config", &file]);
        let (exit, line) = refusal(&output);
        eprint!("{line}");
        assert_eq!(exit, 78, "{text:?}: {line}");
        for words in words {
            assert!(line.contains(words), "{text:?}: no `{words}` in: {line}");
        }
    }
    // such a port may come later, but who asks is told
    for text in [
        "[port.lan7]\nwire_true = true\n",
        "[[policy.exclude]]\nport = [\"lan7\"]\n",
    ] {
        let file = folder.file("wrong.toml", text);
        let output = inside(&lab, freeway().args(["config", "check", &file]));
        expect(&output, 78, &["lan7"]);
    }
    let file = folder.0.join("latin1.toml");
    fs::write(&file, b"# caf\xe9\n").unwrap();
    expect(
        &run(&["--config", file.to_str().unwrap()]),
        78,
        &["latin1.toml", "UTF-8"],
    );
    assert!(!run(&["--socket", "/nowhere/at/all.sock"]).status.success());
    expect(
        &run(&["--socket", "/nowhere/at/all.sock"]),
        1,
        &["/nowhere/at/all.sock"],
    );
    // Nothing of all that is left.
    assert!(
        !lab.router()
            .tool("ip -d link show")
            .unwrap()
            .contains("xdp")
    );
}

#[test]
fn privileges() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let folder = Folder::new("nobody");
    // Where this was built others may not be allowed to go.
    let program = folder.path("freeway");
    fs::copy(freeway_testkit::program("freeway"), &program).unwrap();
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid",
                NOBODY,
                "--regid",
                NOBODY,
                "--clear-groups",
                &program,
            ])
            .args(arguments)
            .env("NO_COLOR", "1");
        inside(&lab, &mut command)
    };
    expect(
        &nobody(&["run", "-i", "lan0"]),
        77,
        &["CAP_NET_ADMIN", "root"],
    );
    let secret = folder.file("secret.toml", "");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    expect(
        &nobody(&["run", "--config", &secret]),
        78,
        &[&secret, "Permission denied"],
    );
    let router = Router::start(&lab);
    for command in ["status", "off", "flush"] {
        expect(&nobody(&[command]), 77, &["group freeway"]);
    }
    assert_eq!(router.status()["on"], true);
    for arguments in [&["lab", "shell", "nat"][..], &["demo"]] {
        let (_, line) = refusal(&nobody(arguments));
        assert!(line.contains("root"), "{line}");
    }
    router.stop();
}

#[test]
fn sockets_and_tuples() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let folder = Folder::new("sockets");
    let ask = |arguments: &[&str]| inside(&lab, freeway().args(arguments));
    expect(&ask(&["status"]), 2, &["no daemon", "freeway run"]);
    // A daemon that was killed leaves a socket without a listener.
    let dead = folder.path("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    assert!(Path::new(&dead).exists());
    expect(&ask(&["status", "--socket", &dead]), 2, &[&dead]);
    let file = folder.file("file.sock", "no socket");
    expect(&ask(&["status", "--socket", &file]), 2, &[&file]);
    // Somebody else listens and hangs up.
    let other = folder.path("other.sock");
    let listener = UnixListener::bind(&other).unwrap();
    let hangs_up = std::thread::spawn(move || drop(listener.accept()));
    expect(&ask(&["stats", "--socket", &other]), 2, &[&other]);
    hangs_up.join().unwrap();

    let router = Router::start(&lab);
    for (arguments, words) in [
        (
            &["explain", "tcp", "192.0.2.2", "198.51.100.2:1"][..],
            "192.0.2.1:80",
        ),
        (
            &["explain", "tcp", "192.0.2.2:99999", "198.51.100.2:1"],
            "192.0.2.1:80",
        ),
        (
            &["explain", "sctpp", "192.0.2.2:1", "198.51.100.2:1"],
            "sctpp",
        ),
        (
            &["explain", "tcp", "192.0.2.2:1", "[2001:db8::1]:1"],
            "different families",
        ),
        (
            &[
                "explain",
                "tcp",
                "192.0.2.2:1",
                "198.51.100.2:1",
                "--watch",
                "61",
            ],
            "60",
        ),
        (&["flows", "src"], "src"),
        (&["flows", "src", "nowhere"], "nowhere"),
        (&["flows", "state", "slow"], "slow"),
    ] {
        expect(&ask(arguments), 64, &[words]);
    }
    // Tuples that cannot be, but can be asked for.
    for (source, destination) in [
        ("0.0.0.0:0", "255.255.255.255:0"),
        ("192.0.2.2:1", "192.0.2.2:1"),
        ("[::]:0", "[ff02::1]:9"),
    ] {
        let explain = router.json(&["explain", "udp", source, destination, "--watch", "0"]);
        assert_ne!(explain["verdict"], "fast");
    }
    // What does not speak its language does not disturb the daemon.
    let path = &router.files()[0];
    for bytes in [
        &b"\x00\xff\x00\xff\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/switch HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n{",
    ] {
        use std::io::Write;
        let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        stream.write_all(bytes).unwrap();
    }
    assert_eq!(router.status()["on"], true);
    router.stop();
}

/// The live flow's ports.
const PORTS: (u16, u16) = (20_000, 7000);

/// What of a frame may be out of the ordinary.
#[derive(Clone)]
struct Odd {
    tos: u8,
    id: u16,
    fragment: u16,
    ttl: u8,
    options: Vec<u8>,
    bad_ip_checksum: bool,
    udp_checksum: bool,
    udp_len: i32,
    payload: Vec<u8>,
    padding: usize,
}

impl Default for Odd {
    fn default() -> Self {
        Odd {
            tos: 0,
            id: 0x1234,
            fragment: 0x4000,
            ttl: 64,
            options: Vec::new(),
            bad_ip_checksum: false,
            udp_checksum: true,
            udp_len: 0,
            payload: b"the usual sixteen".to_vec(),
            padding: 0,
        }
    }
}

impl Odd {
    /// A UDP frame from the client to the server.
    fn frame(&self) -> Vec<u8> {
        let (source, destination) = (Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(198, 51, 100, 2));
        let len = (8 + self.payload.len() as i32 + self.udp_len) as u16;
        let mut udp = Vec::new();
        for word in [PORTS.0, PORTS.1, len, 0] {
            udp.extend(word.to_be_bytes());
        }
        udp.extend(&self.payload);
        if self.udp_checksum {
            let mut pseudo = [source.octets(), destination.octets()].concat();
            pseudo.extend([0, 17]);
            pseudo.extend(len.to_be_bytes());
            pseudo.extend(&udp);
            let sum = match !sum16(&pseudo) {
                0 => 0xffff,
                sum => sum,
            };
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        let header_len = 20 + self.options.len();
        let mut ip = vec![0x40 | (header_len / 4) as u8, self.tos];
        ip.extend(((header_len + udp.len()) as u16).to_be_bytes());
        ip.extend(self.id.to_be_bytes());
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([self.ttl, 17, 0, 0]);
        ip.extend(source.octets());
        ip.extend(destination.octets());
        ip.extend(&self.options);
        let sum = !sum16(&ip) ^ u16::from(self.bad_ip_checksum);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut frame = [MAC_LAN, MAC_CLIENT].concat();
        frame.extend([8, 0]);
        frame.extend(ip);
        frame.extend(udp);
        frame.resize(frame.len() + self.padding, 0xee);
        frame
    }
}

/// Frames that a router has to do something with, each in its own way.
fn odd_frames() -> Vec<(&'static str, Vec<u8>)> {
    let usual = Odd::default;
    let mut frames = vec![
        ("plain", usual().frame()),
        (
            "no UDP checksum",
            Odd {
                udp_checksum: false,
                ..usual()
            }
            .frame(),
        ),
        (
            "no payload",
            Odd {
                payload: Vec::new(),
                ..usual()
            }
            .frame(),
        ),
        (
            "padded",
            Odd {
                payload: vec![1],
                padding: 17,
                ..usual()
            }
            .frame(),
        ),
        (
            "padded by much",
            Odd {
                padding: 900,
                ..usual()
            }
            .frame(),
        ),
        (
            "odd length",
            Odd {
                payload: vec![9; 777],
                ..usual()
            }
            .frame(),
        ),
        (
            "the longest",
            Odd {
                payload: vec![5; 1472],
                ..usual()
            }
            .frame(),
        ),
        (
            "longer than the MTU",
            Odd {
                payload: vec![5; 1473],
                ..usual()
            }
            .frame(),
        ),
        (
            "fragment allowed",
            Odd {
                fragment: 0,
                ..usual()
            }
            .frame(),
        ),
        (
            "reserved flag",
            Odd {
                fragment: 0x8000,
                ..usual()
            }
            .frame(),
        ),
        (
            "TTL 255",
            Odd {
                ttl: 255,
                ..usual()
            }
            .frame(),
        ),
        ("TTL 2", Odd { ttl: 2, ..usual() }.frame()),
        ("TTL 1", Odd { ttl: 1, ..usual() }.frame()),
        ("TTL 0", Odd { ttl: 0, ..usual() }.frame()),
        (
            "bad IP checksum",
            Odd {
                bad_ip_checksum: true,
                ..usual()
            }
            .frame(),
        ),
        (
            "no operation options",
            Odd {
                options: vec![1, 1, 1, 0],
                ..usual()
            }
            .frame(),
        ),
        (
            "router alert",
            Odd {
                options: vec![0x94, 4, 0, 0],
                ..usual()
            }
            .frame(),
        ),
        (
            "source route",
            Odd {
                options: vec![131, 3, 4, 0],
                ..usual()
            }
            .frame(),
        ),
        (
            "UDP length too long",
            Odd {
                udp_len: 40,
                ..usual()
            }
            .frame(),
        ),
        (
            "UDP length short",
            Odd {
                udp_len: -3,
                ..usual()
            }
            .frame(),
        ),
        (
            "UDP length 7",
            Odd {
                udp_len: -18,
                ..usual()
            }
            .frame(),
        ),
        (
            "first fragment",
            Odd {
                fragment: 0x2000,
                payload: vec![3; 64],
                ..usual()
            }
            .frame(),
        ),
        (
            "later fragment",
            Odd {
                fragment: 9,
                payload: vec![4; 24],
                ..usual()
            }
            .frame(),
        ),
    ];
    for ecn in 1..4 {
        frames.push((
            "ECN",
            Odd {
                tos: ecn,
                ..usual()
            }
            .frame(),
        ));
    }
    for dscp in [0x20, 0xb8, 0xfc] {
        frames.push((
            "DSCP",
            Odd {
                tos: dscp,
                ..usual()
            }
            .frame(),
        ));
    }
    let change = |at: usize, byte: u8| {
        let mut frame = usual().frame();
        frame[at] = byte;
        frame
    };
    frames.push(("to another MAC address", change(5, 0x99)));
    frames.push(("from another MAC address", change(11, 0x99)));
    frames.push(("to a multicast MAC address", change(0, 0x03)));
    frames.push(("IP version 5", change(14, 0x55)));
    frames.push(("header length 4", change(14, 0x44)));
    frames.push(("header length 15", change(14, 0x4f)));
    frames.push(("total length too long", change(17, 0xff)));
    frames.push(("total length short", change(17, 24)));
    frames.push(("another ethertype", change(12, 0x88)));
    // Every header byte that can be cut off.
    let whole = Odd {
        payload: vec![8; 8],
        ..usual()
    }
    .frame();
    for len in 14..whole.len() {
        frames.push(("cut short", whole[..len].to_vec()));
    }
    frames
}

/// Sends frames and returns what each of them made arrive, byte by byte.
fn send(
    lab: &Lab,
    injector: &Injector,
    capture: &mut Capture,
    frames: &[Vec<u8>],
) -> Vec<Vec<Vec<u8>>> {
    // A last one that certainly arrives says that nothing more comes.
    let mark = Odd {
        payload: b"the end of it".to_vec(),
        ..Odd::default()
    }
    .frame();
    let is_mark = |bytes: &[u8]| bytes.ends_with(b"the end of it");
    let _ = lab;
    frames
        .iter()
        .map(|frame| {
            // What the kernel of this host refuses to send does not count.
            let _ = injector.send(frame);
            injector.send(&mark).unwrap();
            let mut arrived = Vec::new();
            loop {
                let next = capture
                    .collect(1, Duration::from_secs(2), |bytes| bytes[6..12] == MAC_WAN)
                    .unwrap();
                let bytes = next.into_iter().next().expect("the mark").bytes;
                if is_mark(&bytes) {
                    return arrived;
                }
                arrived.push(bytes);
            }
        })
        .collect()
}

/// A flow from the client's port to the server's, in both directions, so that it is assured; fast if there is Freeway.
fn live(lab: &Lab, router: Option<&Router>) {
    let near = udp(
        lab.client(),
        format!("192.0.2.2:{}", PORTS.0).parse().unwrap(),
    );
    let far = udp(
        lab.server(),
        format!("198.51.100.2:{}", PORTS.1).parse().unwrap(),
    );
    let start = Moment::now();
    let mut bytes = [0; 100];
    loop {
        near.send_to(b"alive", far.local_addr().unwrap()).unwrap();
        let (_, from) = far.recv_from(&mut bytes).unwrap();
        far.send_to(b"alive", from).unwrap();
        near.recv_from(&mut bytes).unwrap();
        let fast = router.is_none_or(|router| {
            let flows = router.flows(&format!("proto udp sport {}", PORTS.0));
            flows
                .iter()
                .any(|flow| flow["packets"].as_u64().unwrap() > 5)
        });
        if fast && start.elapsed() > Duration::from_millis(2300) {
            return;
        }
        assert!(
            start.elapsed() < Duration::from_secs(8),
            "{}",
            router.unwrap().stats()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn same_frames_same_result(topology: &str) {
    let options = || Options {
        router_tx_checksum: false,
        router_gro: true,
        mtu: 1500,
        ..Options::default()
    };
    let mut cases = odd_frames();
    if topology == "routed" {
        // Where connections are tracked the kernel verifies L4 checksums and the rules drop what is invalid. The fast
        // path does not: a frame with a wrong checksum passes, and its checksum stays wrong.
        let mut frame = Odd::default().frame();
        frame[40] ^= 0x40;
        cases.push(("bad UDP checksum", frame));
    }
    let frames: Vec<Vec<u8>> = cases.iter().map(|(_, frame)| frame.clone()).collect();
    let results = [false, true].map(|on| {
        let lab = build_with(topology, options());
        // Sockets that are closed answer with ICMP; both ways the same.
        let router = on.then(|| Router::start(&lab));
        live(&lab, router.as_ref());
        let injector = Injector::open(lab.client_port()).unwrap();
        let mut capture = Capture::open(lab.server_port()).unwrap();
        let arrived = send(&lab, &injector, &mut capture, &frames);
        if let Some(router) = router {
            eprintln!("{topology}: {}", router.stats());
            router.stop();
        }
        arrived
    });
    let [kernel, freeway] = results;
    let mut wrong = 0;
    for ((what, frame), (kernel, freeway)) in cases.iter().zip(kernel.iter().zip(&freeway)) {
        if kernel != freeway {
            wrong += 1;
            eprintln!(
                "{what} ({} bytes)\n  in      {frame:02x?}\n  kernel  {kernel:02x?}\n  Freeway {freeway:02x?}",
                frame.len()
            );
        }
    }
    assert_eq!(wrong, 0, "{wrong} of {} frames differ", frames.len());
    let forwarded = kernel.iter().filter(|frames| !frames.is_empty()).count();
    assert!(
        forwarded > 10 && forwarded < frames.len(),
        "{forwarded} arrived"
    );
}

#[test]
fn odd_frames_are_treated_as_by_the_kernel_when_routed() {
    let Some(_machine) = machine() else { return };
    same_frames_same_result("routed");
}

#[test]
fn odd_frames_are_treated_as_by_the_kernel_behind_nat() {
    let Some(_machine) = machine() else { return };
    same_frames_same_result("nat");
}

/// Random frames, and the live flow's frames with random damage.
fn garbage(random: &mut Random, live: &[u8]) -> Vec<u8> {
    let len = 14 + random.below(1987);
    match random.below(5) {
        0 => random.bytes(len),
        // for the router, of a type it knows
        1 => {
            let mut frame = random.bytes(len);
            frame[..6].copy_from_slice(&MAC_LAN);
            let types = [
                [8, 0],
                [0x86, 0xdd],
                [8, 6],
                [0x81, 0],
                [0x88, 0xa8],
                [0x88, 0x64],
            ];
            frame[12..14].copy_from_slice(&types[random.below(types.len())]);
            frame
        }
        // cut short
        2 => live[..14 + random.below(live.len() - 14)].to_vec(),
        // damaged
        3 => {
            let mut frame = live.to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below(frame.len());
                frame[at] = random.draw() as u8;
            }
            frame
        }
        // right headers before garbage
        _ => {
            let mut frame = live[..14 + random.below(40)].to_vec();
            let rest = random.below(1900);
            frame.extend(random.bytes(rest));
            frame
        }
    }
}

#[test]
fn random_frames_disturb_nobody() {
    let Some(_machine) = machine() else { return };
    let lab = build_with(
        "nat",
        Options {
            mtu: 2000,
            ..Options::default()
        },
    );
    let mut router = Router::start(&lab);
    live(&lab, Some(&router));
    let valid = Odd::default().frame();
    let injectors =
        [lab.client_port(), lab.server_port()].map(|port| Injector::open(port).unwrap());
    let mut random = Random(0x5eed);
    let count = if long() { 2_000_000 } else { 100_000 };
    let before = router.stats();
    let mut sent = 0u64;
    let mut capture = Capture::open(lab.server_port()).unwrap();
    for number in 0..count {
        let frame = garbage(&mut random, &valid);
        // Those that this host's own kernel does not send are no input.
        sent += u64::from(injectors[usize::from(number % 8 == 0)].send(&frame).is_ok());
        if number % 1000 == 0 {
            let payload = format!("valid {number}").into_bytes();
            injectors[0]
                .send(
                    &Odd {
                        payload: payload.clone(),
                        ..Odd::default()
                    }
                    .frame(),
                )
                .unwrap();
            let got = capture
                .collect(1, Duration::from_secs(2), |bytes| bytes.ends_with(&payload))
                .unwrap();
            assert_eq!(got.len(), 1, "frame {number} was the last");
            assert!(
                router.child.try_wait().unwrap().is_none(),
                "{}",
                router.log()
            );
        }
    }
    assert!(sent > count * 9 / 10, "{sent} sent");
    let stats = router.stats();
    eprintln!("{sent} random frames: {stats}");
    let counted = stats.fast() + stats.punted() - before.fast() - before.punted();
    assert!(counted >= sent, "{counted} of {sent} counted");
    for name in ["short", "not_ip", "ip_header", "ip_checksum", "multicast"] {
        assert!(stats.reason(name) > before.reason(name), "{name}: {stats}");
    }
    live(&lab, Some(&router));
    drop(capture);
    router.stop();
}

/// At boot, ports and addresses that the configuration names may be on their way.
#[test]
fn what_is_named_may_come_later() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let folder = Folder::new("later");
    let config = |idle_s: u32, more: &str| {
        let keys = lab.config_toml("");
        let later =
            "interfaces = [\"lan0\", \"wan0\", \"late0\"]\nmetrics = \"198.51.100.77:9100\"";
        let flows = format!("[flows]\nudp_idle_s = {idle_s}\n");
        let port = "[port.late0]\nwire_true = true\n";
        folder.file(
            "later.toml",
            &format!("[daemon]\n{later}\n{flows}{keys}{port}{more}"),
        )
    };
    let file = config(5, "");
    let notice = |router: &Router| {
        router.status()["notices"]
            .to_string()
            .contains("late0 is named")
    };
    let ports = |router: &Router| router.status()["ports"].to_string().contains("\"late0\"");
    let router = Router::start_by(lab.router(), Path::new(&file), |status| {
        status["ports"]
            .as_array()
            .is_some_and(|ports| ports.len() == 2)
    });
    assert!(notice(&router), "{}", router.status());
    let doctor = router.run(&["doctor", "--config", &file, "--json"]);
    let said = String::from_utf8(doctor.stdout).unwrap();
    assert!(
        said.contains("late0 is named") && said.contains("conntrack"),
        "{said}"
    );

    // it comes, and takes part
    let ip = |arguments: &str| lab.router().tool(&format!("ip {arguments}")).unwrap();
    ip("link add late0 type veth peer name late1");
    ip("link set late0 up");
    let patience = Duration::from_secs(30);
    until("the late port", patience, || ports(&router).then_some(()));
    until("no notice", patience, || (!notice(&router)).then_some(()));
    ip("addr add 198.51.100.77/32 dev wan0");
    until("metrics at the late address", patience, || {
        let mut curl = Command::new("curl");
        curl.args(["-sf", "http://198.51.100.77:9100/metrics"]);
        let output = inside(&lab, &mut curl);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.contains("freeway_").then_some(())
    });

    // away again: nobody is kept from other changes, but a new name is to be right
    ip("link del late0");
    until("the notice", patience, || notice(&router).then_some(()));
    config(7, "");
    let output = router.run(&["reload"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    config(9, "[port.later0]\nwire_true = true\n");
    let output = router.run(&["reload"]);
    expect(&output, 78, &["later0", "no such network interface"]);
    router.stop();
}
