// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway capture`: each fast packet as it comes in and as it leaves, of those that are wanted, at the ports that are
//! wanted; and everything is as before when it ends.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::Permissions;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use freeway_lab::Lab;
use freeway_testkit::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

struct Case {
    lab: Lab,
    router: Router,
    folder: tempfile::TempDir,
    client: UdpSocket,
    server: UdpSocket,
}

impl Case {
    fn start() -> Self {
        let lab = build("nat");
        let router = Router::start(&lab);
        let (client, server) = udp_ends(&lab);
        let case = Self {
            lab,
            router,
            folder: tempfile::tempdir().unwrap(),
            client,
            server,
        };
        case.router
            .wait_fast_while("proto udp", 2, 1, || case.talk(b"warm"));
        case
    }

    /// A datagram there and one back, if they arrive.
    fn talk(&self, words: &[u8]) {
        for socket in [&self.client, &self.server] {
            socket
                .set_read_timeout(Some(Duration::from_secs(1)))
                .unwrap();
        }
        self.client.send_to(words, address(SERVER)).unwrap();
        let mut room = [0; 2048];
        if let Ok((_, from)) = self.server.recv_from(&mut room) {
            self.server.send_to(words, from).unwrap();
            let _ = self.client.recv_from(&mut room);
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Begins a capture, which runs when this returns.
    fn capture(&self, name: &str, arguments: &[&str]) -> Child {
        let before = self.programs();
        let mut command = freeway();
        command
            .args(["capture", "--json", "-w"])
            .arg(self.path(name))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.lab.router().spawn(&mut command).unwrap();
        until("the capture has begun", PATIENCE, || {
            if let Some(status) = child.try_wait().unwrap() {
                let output = std::io::read_to_string(child.stderr.take().unwrap());
                panic!("{status}: {}", output.unwrap());
            }
            (self.programs() != before && self.path(name).exists()).then_some(())
        });
        child
    }

    /// Ends one as a user would; what it says of itself.
    #[track_caller]
    fn end(&self, child: Child) -> Value {
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        let output = child.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A capture has ended for the daemon, too, which hears of it later than who made it.
    #[track_caller]
    fn until_plain(&self, plain: [Option<u64>; 2]) {
        until("the plain programs are back", PATIENCE, || {
            (self.programs() == plain).then_some(())
        });
    }

    /// Ids of the XDP programs at lan0 and wan0.
    fn programs(&self) -> [Option<u64>; 2] {
        ["lan0", "wan0"].map(|port| {
            let links = self.lab.router().tool(&format!("ip -j link show {port}"));
            let links: Value = serde_json::from_str(&links.unwrap()).unwrap();
            links[0]["xdp"]["prog"]["id"].as_u64()
        })
    }
}

/// A frame of a file.
#[derive(Debug)]
struct Frame {
    port: String,
    out: bool,
    packet: u64,
    comment: String,
    octets: Vec<u8>,
}

impl Frame {
    fn addresses(&self) -> [IpAddr; 2] {
        let at = |at: usize| {
            <[u8; 4]>::try_from(&self.octets[at..at + 4])
                .unwrap()
                .into()
        };
        [at(26), at(30)]
    }

    fn payload(&self) -> &[u8] {
        &self.octets[42..]
    }
}

/// Reads a file as pcapng describes it, of this machine's byte order.
fn frames(path: &Path) -> Vec<Frame> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let option = |mut at: usize, wanted: usize| loop {
        let (code, length) = (word(at) & 0xffff, word(at) >> 16);
        if code == wanted {
            break bytes[at + 4..at + 4 + length].to_vec();
        }
        assert_ne!(code, 0, "option {wanted}");
        at += 4 + length.next_multiple_of(4);
    };
    let (mut at, mut names, mut frames) = (0, Vec::new(), Vec::new());
    // one that is being written may end within a block
    while bytes.len() >= at + 8 && bytes.len() >= at + word(at + 4) {
        match word(at) {
            1 => names.push(String::from_utf8(option(at + 16, 2)).unwrap()),
            6 => {
                let (taken, begin) = (word(at + 20), at + 28);
                let options = begin + taken.next_multiple_of(4);
                frames.push(Frame {
                    port: names[word(at + 8)].clone(),
                    out: option(options, 2)[0] & 3 == 2,
                    packet: u64::from_ne_bytes(option(options, 5).try_into().unwrap()),
                    comment: String::from_utf8(option(options, 1)).unwrap(),
                    octets: bytes[begin..begin + taken].to_vec(),
                });
            }
            _ => {}
        }
        assert_eq!(
            word(at + word(at + 4) - 4),
            word(at + 4),
            "a block's two lengths"
        );
        at += word(at + 4);
    }
    frames
}

#[test]
fn packets_are_there_as_they_came_in_and_as_they_left() {
    let Some(_machine) = machine() else { return };
    let case = Case::start();
    let plain = case.programs();
    let capture = case.capture("all", &[]);
    let captured = case.programs();
    let notices = case.router.status()["notices"].to_string();
    assert!(notices.contains("packets are captured"), "{notices}");
    assert!(plain[0] != captured[0] && plain[1] != captured[1]);
    assert!(
        case.router.status()["ports"]
            .as_array()
            .unwrap()
            .iter()
            .all(|p| p["path"] == "xdp")
    );
    // a second at least, after which one is the kernel's to confirm the flow
    until("both ways are in the file", PATIENCE, || {
        case.talk(b"captured!");
        let frames = frames(&case.path("all"));
        let ports =
            ["lan0", "wan0"].map(|p| frames.iter().filter(|f| f.port == p && !f.out).count());
        ports.iter().all(|count| *count >= 3).then_some(())
    });
    let said = case.end(capture);
    assert_eq!(said["kept"], serde_json::json!([]));
    let fields: Vec<_> = said.as_object().unwrap().keys().collect();
    // docs/json.md
    assert_eq!(fields, ["file", "frames", "kept", "lost", "packets"]);
    case.until_plain(plain);

    let frames = frames(&case.path("all"));
    assert_eq!(said["frames"], frames.len());
    assert_eq!(said["packets"], frames.len() / 2);
    let [client, router, server] =
        ["192.0.2.2", "198.51.100.1", "198.51.100.2"].map(|a| a.parse::<IpAddr>().unwrap());
    for pair in frames.chunks(2) {
        let [came, left] = pair else {
            panic!("{pair:?}")
        };
        assert!(
            !came.out && left.out && came.packet == left.packet,
            "{pair:?}"
        );
        assert_eq!(
            (came.payload(), left.payload()),
            (&b"captured!"[..], &b"captured!"[..])
        );
        match came.port.as_str() {
            "lan0" => {
                assert_eq!(left.port, "wan0");
                assert_eq!(came.addresses(), [client, server]);
                assert_eq!(left.addresses(), [router, server]);
            }
            port => {
                assert_eq!([port, left.port.as_str()], ["wan0", "lan0"]);
                assert_eq!(came.addresses(), [server, router]);
                assert_eq!(left.addresses(), [server, client]);
            }
        }
        // TTL goes down by one
        assert_eq!(came.octets[22], left.octets[22] + 1);
        // what the flow is called elsewhere
        let flow = match came.port.as_str() {
            "lan0" => "fast: udp 192.0.2.2:40000 > 198.51.100.2:5000",
            _ => "fast: udp 198.51.100.2:5000 > 198.51.100.1:40000",
        };
        assert_eq!([&came.comment, &left.comment], [flow; 2]);
    }
    let mode = std::fs::metadata(case.path("all"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // as others read it
    let mut tcpdump = Command::new("tcpdump");
    let tcpdump = tcpdump.arg("-vvnr").arg(case.path("all")).output().unwrap();
    let words = String::from_utf8(tcpdump.stdout).unwrap();
    assert_eq!(words.matches("udp sum ok").count(), frames.len(), "{words}");
    assert!(!words.contains("bad"), "{words}");
    case.router.stop();
}

/// Numbered datagrams, at half of the rate that a capture takes: over it packets are counted, and not in the file.
const KNOWN: u64 = 10_000;
const AT_ONCE: u64 = 25;
const PAUSE: Duration = Duration::from_millis(1);

/// A line of output of Wireshark's tools, which read what they did not write.
fn wireshark(line: &str, file: &Path) -> String {
    let mut words = line.split_whitespace();
    let mut tool = Command::new(words.next().unwrap());
    let output = tool.args(words).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

impl Case {
    /// Packets that the flow has forwarded, in XDP.
    fn forwarded(&self) -> u64 {
        let flows = self.router.flows("proto udp dport 5000");
        assert_eq!(flows.len(), 1, "{flows:?}");
        let [state, path] = [&flows[0]["state"], &flows[0]["path"]];
        assert_eq!([state, path], [&Value::from("active"), &"xdp".into()]);
        flows[0]["packets"].as_u64().unwrap()
    }

    /// Captures known packets into a file: how many were fast, and what is said of the file.
    fn known(&self, name: &str) -> (u64, Value) {
        let before = self.forwarded();
        let capture = self.capture(name, &["proto", "udp", "dport", "5000"]);
        self.server.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut room = [0; 64];
        for first in (0..KNOWN).step_by(AT_ONCE as usize) {
            for number in first..first + AT_ONCE {
                let sent = self.client.send_to(&number.to_be_bytes(), address(SERVER));
                sent.unwrap();
            }
            // one that the kernel forwards to confirm the flow may overtake others
            let mut arrived: Vec<_> = (0..AT_ONCE)
                .map(|_| {
                    let (len, _) = self.server.recv_from(&mut room).unwrap();
                    u64::from_be_bytes(room[..len].try_into().unwrap())
                })
                .collect();
            arrived.sort_unstable();
            assert!(arrived.into_iter().eq(first..first + AT_ONCE));
            if first == KNOWN / 2 {
                self.forwarded();
            }
            thread::sleep(PAUSE);
        }
        let fast = self.forwarded() - before;
        // some blocks of statistics, which follow whatever there was, and nothing else
        let size = || std::fs::metadata(self.path(name)).unwrap().len();
        let mut seen = 0;
        until("no frame is on its way", PATIENCE, || {
            let last = std::mem::replace(&mut seen, size());
            thread::sleep(Duration::from_millis(500));
            (100..500).contains(&(size() - last)).then_some(())
        });
        (fast, self.end(capture))
    }
}

#[test]
fn all_of_many_packets_are_there_and_wireshark_reads_them() {
    let Some(_machine) = machine() else { return };
    let case = Case::start();
    let plain = case.programs();
    // a machine that stands still meanwhile has more of them in a tick than are taken
    let mut attempts = (1..=3).map(|attempt| {
        let name = format!("many{attempt}");
        let (fast, said) = case.known(&name);
        // what was not fast is the kernel's: it confirms the flow
        assert!(fast > KNOWN * 9 / 10 && fast <= KNOWN, "{fast}");
        let counted = said["packets"].as_u64().unwrap() + said["lost"].as_u64().unwrap();
        assert_eq!(counted, fast, "{said}");
        (said["lost"] == 0).then_some((fast, case.path(&name)))
    });
    let (fast, file) = attempts.find_map(|attempt| attempt).unwrap();
    case.until_plain(plain);
    case.forwarded();
    let frames = frames(&file);
    assert_eq!(frames.len() as u64, 2 * fast);
    let numbers = frames.chunks(2).map(|pair| {
        assert_eq!(pair[0].payload(), pair[1].payload());
        u64::from_be_bytes(pair[0].payload()[..8].try_into().unwrap())
    });
    let numbers: Vec<_> = numbers.collect();
    assert!(numbers.is_sorted_by(|a, b| a < b) && numbers[numbers.len() - 1] < KNOWN);
    case.router.stop();

    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: tshark is not installed");
        return;
    }
    let counted = wireshark("capinfos -c -M -r -T", &file);
    assert!(
        counted.trim_end().ends_with(&format!("\t{}", 2 * fast)),
        "{counted}"
    );
    // a checksum that is right is 1; comments, directions and ports are those of the file
    let shown = wireshark(
        "tshark -o udp.check_checksum:TRUE -T fields -e udp.checksum.status -e frame.interface_name \
         -e frame.packet_flags_direction -e frame.comment -r",
        &file,
    );
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines.len() as u64, 2 * fast);
    for pair in lines.chunks(2) {
        let line =
            |port, way| format!("1\t{port}\t{way}\tfast: udp 192.0.2.2:40000 > 198.51.100.2:5000");
        assert_eq!(
            pair,
            [line("lan0", "0x00000001"), line("wan0", "0x00000002")]
        );
    }
}

#[test]
fn an_expression_of_libpcaps_chooses_packets() {
    let Some(_machine) = machine() else { return };
    let case = Case::start();
    // as it leaves; the length is that of the whole frame
    let words = "outbound and src host 198.51.100.1 and greater 500";
    let capture = case.capture("long", &["-s", "64", "--pcap", words]);
    until("long packets are in the file", PATIENCE, || {
        case.talk(b"short");
        case.talk(&[b'l'; 600]);
        (frames(&case.path("long")).len() >= 6).then_some(())
    });
    let said = case.end(capture);
    let taken = frames(&case.path("long"));
    assert_eq!(said["packets"], taken.len() / 2);
    for pair in taken.chunks(2) {
        assert_eq!([&pair[0].port, &pair[1].port], ["lan0", "wan0"]);
        assert!(
            pair.iter()
                .all(|frame| frame.payload().starts_with(b"llll"))
        );
    }
    let file = case.path("refused");
    let refused = case.router.run(&[
        "capture",
        "-w",
        file.to_str().unwrap(),
        "--pcap",
        "udp prot 1",
    ]);
    let line = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(64), "{line}");
    assert!(
        line.contains("--pcap: can't parse filter expression"),
        "{line}"
    );
    let refused = case.router.run(&[
        "capture",
        "--pcap",
        "ifindex 3",
        "-w",
        file.to_str().unwrap(),
    ]);
    let line = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(64), "{line}");
    assert!(line.contains("leave out `ifindex`"), "{line}");
    assert!(!file.exists());
    case.router.stop();
}

#[test]
fn a_capture_is_of_what_is_wanted_and_ends_by_itself() {
    let Some(_machine) = machine() else { return };
    let mut case = Case::start();
    let plain = case.programs();
    // the filter is met after translation; the other port has the plain program all the time
    let filter = [
        "-i",
        "lan0",
        "-c",
        "2",
        "-s",
        "64",
        "src",
        "198.51.100.1",
        "sport",
        "1-65535",
    ];
    let capture = case.capture("some", &filter);
    assert_eq!(case.programs()[1], plain[1]);
    let words = "much more than sixty-four octets, which are all that is taken of it";
    let mut capture = capture;
    until("it ends by itself", PATIENCE, || {
        case.talk(words.as_bytes());
        capture.try_wait().unwrap()
    });
    let said: Value = serde_json::from_reader(capture.stdout.take().unwrap()).unwrap();
    assert_eq!((&said["packets"], &said["frames"]), (&2.into(), &4.into()));
    let taken = frames(&case.path("some"));
    assert!(taken.iter().all(|frame| frame.octets.len() == 64));
    assert!(
        taken.iter().filter(|f| !f.out).all(|f| f.port == "lan0"),
        "{taken:?}"
    );
    case.until_plain(plain);

    // nothing matches
    let none = case.capture("none", &["proto", "tcp"]);
    (0..8).for_each(|_| case.talk(b"not TCP"));
    // one at a time
    let second = case
        .router
        .run(&["capture", "-w", case.path("second").to_str().unwrap()]);
    let line = String::from_utf8(second.stderr).unwrap();
    assert!(line.contains("another capture runs"), "{line}");
    assert!(!case.path("second").exists());
    assert_eq!(case.end(none)["packets"], 0);
    case.until_plain(plain);

    for (arguments, words) in [
        (["state", "fast"], "no state"),
        (["port", "nowhere0"], "no port that takes part"),
        (["-i", "nowhere0"], "no port that takes part"),
    ] {
        let file = case.path("refused");
        let output = case
            .router
            .run(&[&["capture", "-w", file.to_str().unwrap()][..], &arguments].concat());
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{line}");
        assert!(line.contains(words), "{line}");
    }

    // whoever else may use the socket
    let socket = &case.router.files()[0];
    std::fs::set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
    for (what, data) in [
        ("capture", "{}"),
        (
            "steer",
            r#"{"add": {"rule": {"mirror": "wan0", "port": ["lan0"]}}}"#,
        ),
    ] {
        let mut curl = Command::new("setpriv");
        curl.args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(["curl", "--silent", "--data", data, "--unix-socket"])
            .arg(socket)
            .arg(format!("http://localhost/v1/{what}"));
        let answer = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        assert!(answer.contains("only root"), "{what}: {answer}");
    }

    // a reader that is killed, and then a daemon that is
    let mut killed = case.capture("killed", &[]);
    killed.kill().unwrap();
    killed.wait().unwrap();
    case.until_plain(plain);
    let capture = case.capture("orphan", &[]);
    case.router.signal(Signal::SIGTERM);
    assert!(case.router.wait().success());
    let output = capture.wait_with_output().unwrap();
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) || output.status.success(),
        "{line}"
    );
    assert_eq!(case.programs(), [None; 2]);
}
