// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench generator`, `sink` and `loop` with the kernel as the router of any make: a lab whose client and server are the
//! two hosts, or one host with both ports.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::{Lab, Netns};
use freeway_testkit::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Where hosts speak to each other beside the router.
const AT: &str = "10.99.0.2:12544";

/// A lab without default routes, whose client and server are also joined directly.
fn hosts(name: &str) -> Lab {
    let lab = build(name);
    let (client, server) = (lab.client(), lab.server());
    let networks = match name {
        "routed" => [
            ("-4", "198.51.100.0/24", "192.0.2.1"),
            ("-4", "192.0.2.0/24", "198.51.100.1"),
        ],
        _ => [
            ("-6", "2001:db8:2::/64", "2001:db8:1::1"),
            ("-6", "2001:db8:1::/64", "2001:db8:2::1"),
        ],
    };
    for (netns, (family, network, router)) in [client, server].into_iter().zip(networks) {
        netns
            .tool(&format!("ip {family} route del default"))
            .unwrap();
        netns
            .tool(&format!("ip {family} route add {network} via {router}"))
            .unwrap();
    }
    let line = format!(
        "ip link add mgmt type veth peer name mgmt netns {}",
        server.name()
    );
    client.tool(&line).unwrap();
    for (netns, address) in [(client, "10.99.0.1/24"), (server, "10.99.0.2/24")] {
        netns
            .tool(&format!("ip address add {address} dev mgmt"))
            .unwrap();
        netns.tool("ip link set mgmt up").unwrap();
    }
    lab
}

/// Runs `freeway bench` in a namespace.
fn bench(netns: &Netns, line: &str) -> Output {
    let mut command = freeway();
    command.arg("bench").args(line.split_whitespace());
    netns.place(&mut command).unwrap().output().unwrap()
}

#[track_caller]
fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// The exit code and the last line of what was said.
#[track_caller]
fn refusal(output: &Output) -> (i32, String) {
    assert!(output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().last().unwrap_or_default().to_owned();
    assert!(line.starts_with("freeway: "), "{said}");
    (output.status.code().unwrap(), line)
}

/// Whether a port has an XDP program.
fn has_program(netns: &Netns, port: &str) -> bool {
    let text = netns.tool(&format!("ip link show dev {port}")).unwrap();
    text.contains("xdp")
}

/// A running sink; dropping it ends it.
struct Sink {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Sink {
    fn start(netns: &Netns, line: &str) -> Self {
        let mut command = freeway();
        command
            .args(["bench", "sink"])
            .args(line.split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = netns.spawn(&mut command).unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("for a generator that connects to"), "{line}");
        Self { child, said }
    }

    /// Waits for its end; its exit code and what it said since.
    #[track_caller]
    fn ended(mut self) -> (i32, String) {
        let child = &mut self.child;
        let status = until("the sink's end", Duration::from_secs(10), || {
            child.try_wait().unwrap()
        });
        let mut text = String::new();
        self.said.read_to_string(&mut text).unwrap();
        (status.code().unwrap_or(-1), text)
    }

    fn stop(self, signal: Signal) -> (i32, String) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        self.ended()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to the sink, and its greeting.
fn call(netns: &Netns) -> (TcpStream, BufReader<TcpStream>, String) {
    let at: SocketAddr = AT.parse().unwrap();
    let stream = netns.enter(|| TcpStream::connect(at)).unwrap().unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut greeting = String::new();
    answers.read_line(&mut greeting).unwrap();
    (stream, answers, greeting)
}

fn answer(answers: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    line
}

const TO: &str = "--to 198.51.100.2";

#[test]
fn two_hosts_count_every_frame_and_see_losses() {
    let Some(_machine) = machine() else { return };
    let lab = hosts("routed");
    // ARP has to work while the meter is there
    for netns in [lab.client(), lab.router(), lab.server()] {
        netns.tool("ip neighbour flush all nud permanent").unwrap();
    }
    let sink = Sink::start(lab.server(), &format!("--port eth0 --listen {AT}"));
    assert!(!has_program(lab.server(), "eth0"));
    let generator = |arguments: &str| {
        let line = format!("generator --port eth0 --sink {AT} {TO} --json {arguments}");
        bench(lab.client(), &line)
    };

    let found = json(&generator(
        "--size 64 --size 1518 --flows 100 --pps 2000 --seconds 0.3",
    ));
    assert_eq!(found["sender"]["port"], "eth0");
    assert_eq!(found["sender"]["address"], "192.0.2.2");
    assert_eq!(found["sender"]["gateway"], "192.0.2.1");
    assert_eq!(found["sender"]["gateway_mac"], "02:00:00:00:01:01");
    assert_eq!(found["receiver"]["sink"], AT);
    assert_eq!(
        (&found["flows"], &found["search"]),
        (&100.into(), &Value::Null)
    );
    let sizes = found["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 2);
    for (size, bytes) in sizes.iter().zip([64.0, 1518.0]) {
        assert_eq!(size["frame_bytes"], bytes);
        let loss = &size["loss"][0];
        let sent = loss["sent"].as_u64().unwrap();
        assert!((1..=600).contains(&sent), "{size:#}");
        assert_eq!(
            (&loss["received"], &loss["loss_ratio"]),
            (&sent.into(), &0.0.into())
        );
        assert_eq!(loss["load_pps"], 2000.0);
        assert!(size["ndr"].is_null() && size["latency"] == Value::Array(Vec::new()));
    }

    let rules = "table ip lossy { chain forward { type filter hook forward priority 0; udp dport 9000 numgen random mod 10 0 drop; }; }";
    lab.router().tool_with_input("nft -f -", rules).unwrap();
    // of the few frames of a sender that is held up another share may be lost
    let loss = until(
        "most of the frames are sent",
        Duration::from_secs(60),
        || {
            let found = json(&generator("--size 64 --pps 10000 --seconds 1"));
            let loss = found["sizes"][0]["loss"][0].clone();
            (loss["sent"].as_u64().unwrap() > 5_000).then_some(loss)
        },
    );
    let ratio = loss["loss_ratio"].as_f64().unwrap();
    assert!((0.07..0.13).contains(&ratio), "{loss:#}");

    lab.router().tool("nft delete table ip lossy").unwrap();
    let rules = "table ip limited { chain forward { type filter hook forward priority 0; udp dport 9000 limit rate over 4000/second burst 200 packets drop; }; }";
    lab.router().tool_with_input("nft -f -", rules).unwrap();
    // for a sender that is held up, and then sends too much at once, no rate is low enough
    let found = until("both rates are found", Duration::from_secs(60), || {
        let found = json(&generator("--size 64 --seconds 0.05 --trials 1"));
        let size = &found["sizes"][0];
        let mut rates = ["ndr", "pdr"].iter().map(|name| &size[*name]["lower_pps"]);
        rates.all(serde_json::Value::is_number).then_some(found)
    });
    let size = &found["sizes"][0];
    assert_eq!(found["search"]["trial_s"], 0.05);
    let rate = |name: &str, field: &str| size[name][field].as_f64();
    // what a burst has room for comes on top in so short a trial
    for name in ["ndr", "pdr"] {
        let lower = rate(name, "lower_pps").unwrap();
        let upper = rate(name, "upper_pps").unwrap();
        assert!((500.0..12_000.0).contains(&lower), "{size:#}");
        assert!((lower..20_000.0).contains(&upper), "{size:#}");
    }
    let last = size["loss"].as_array().unwrap().last().unwrap();
    assert!(last["loss_ratio"].as_f64().unwrap() > 0.5, "{size:#}");
    assert!(size["trials"].as_u64().unwrap() > 5);

    lab.router().tool("nft delete table ip limited").unwrap();

    // a queue of two seconds: what comes late is lost, and none of the next size's
    let shaper = "tc qdisc replace dev wan0 root tbf rate 4mbit burst 4kb limit 1000000";
    lab.router().tool(shaper).unwrap();
    let found = json(&generator("--size 512 --size 64 --pps 5000 --seconds 1"));
    lab.router().tool("tc qdisc del dev wan0 root").unwrap();
    let losses: Vec<f64> = (0..2)
        .map(|size| {
            found["sizes"][size]["loss"][0]["loss_ratio"]
                .as_f64()
                .unwrap()
        })
        .collect();
    assert!((0.1..0.9).contains(&losses[0]), "{found:#}");
    assert_eq!(losses[1], 0.0, "{found:#}");
    let remarks = found["remarks"].to_string();
    assert!(remarks.contains("so long after their trials"), "{remarks}");
    assert!(!remarks.contains("more than were sent"), "{remarks}");

    assert!(!has_program(lab.client(), "eth0"));
    let (code, said) = sink.stop(Signal::SIGTERM);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("sends to 198.51.100.2:9000"), "{said}");
    assert!(!has_program(lab.server(), "eth0"));
}

#[test]
fn two_hosts_of_ipv6_and_a_sink_that_ends() {
    let Some(_machine) = machine() else { return };
    let lab = hosts("routed6");
    for netns in [lab.client(), lab.router(), lab.server()] {
        netns.tool("ip neighbour flush all nud permanent").unwrap();
    }
    let sink = Sink::start(lab.server(), &format!("--port eth0 --listen {AT} --once"));
    let line = format!(
        "generator --port eth0 --sink {AT} --to 2001:db8:2::2 --size imix --pps 1000 --seconds 0.3"
    );
    let output = bench(lab.client(), &line);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for words in ["IMIX", "0.00 %", "clocks of two hosts"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let (code, said) = sink.ended();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("has left after"), "{said}");
    assert!(!has_program(lab.server(), "eth0"));
}

#[test]
fn a_sink_takes_one_client_and_no_nonsense() {
    let Some(_machine) = machine() else { return };
    let lab = hosts("routed");
    let sink = Sink::start(lab.server(), &format!("--port eth0 --listen {AT}"));
    let client = lab.client();
    let long = format!("{}\n", "x".repeat(5000));
    let deep = format!("{}\n", "[".repeat(4000));
    for (nonsense, words) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "no request"),
        (b"{\"hello\":{\"version\":2}}\n", "version 2"),
        (b"{\"hello\":{\"version\":1,\"more\":1}}\n", "more"),
        (b"\"clear\"\n", "greeting"),
        (b"\xff\xfe\n", "UTF-8"),
        (long.as_bytes(), "more than 4096"),
        (&long.as_bytes()[..4999], "more than 4096"),
        (deep.as_bytes(), "no request"),
        (b"{\"hello\":{\"version\":1}}\n{\"read\":{\"frames\":1}}\n", "comes first"),
        (
            b"{\"hello\":{\"version\":1}}\n{\"meter\":{\"address\":\"198.51.100.9\",\"port\":9000,\"frame_bytes\":64}}\n",
            "ip address add 198.51.100.9/24 dev eth0",
        ),
    ] {
        let (mut stream, mut answers, greeting) = call(client);
        assert_eq!(greeting, "{\"hello\":{\"version\":1,\"port\":\"eth0\"}}\n");
        stream.write_all(nonsense).unwrap();
        let mut last = String::new();
        // an unread rest resets the connection
        while let Ok(1..) = answers.read_line(&mut last) {}
        let last = last.lines().last().unwrap_or_default().to_owned();
        assert!(last.starts_with("{\"error\":"), "{words}: {last}");
        assert!(last.contains(words), "{words}: {last}");
    }

    // one that is served, and others that are not
    let (mut stream, mut answers, _) = call(client);
    stream.write_all(b"{\"hello\":{\"version\":1}}\n").unwrap();
    assert_eq!(answer(&mut answers), "\"ready\"\n");
    let meter = b"{\"meter\":{\"address\":\"198.51.100.2\",\"port\":9000,\"frame_bytes\":64}}\n";
    stream.write_all(meter).unwrap();
    assert_eq!(answer(&mut answers), "\"ready\"\n");
    assert!(has_program(lab.server(), "eth0"));
    let (_other, _, busy) = call(client);
    assert!(
        busy.starts_with("{\"error\":") && busy.contains("it serves 10.99.0.1:"),
        "{busy}"
    );
    let line = format!("generator --port eth0 --sink {AT} {TO} --pps 100");
    let (code, line) = refusal(&bench(client, &line));
    assert_eq!(code, 1);
    assert!(line.contains("it serves 10.99.0.1:"), "{line}");
    // in pieces, and frames of others are not the meter's
    stream.write_all(b"\"cle").unwrap();
    thread::sleep(Duration::from_millis(50));
    stream
        .write_all(b"ar\"\n{\"read\":{\"frames\":1}}\n")
        .unwrap();
    assert_eq!(answer(&mut answers), "\"ready\"\n");
    let sender = udp(client, address("192.0.2.2:40000"));
    let receiver = udp(lab.server(), address("198.51.100.2:9001"));
    sender
        .send_to(b"no frame of a stream", receiver.local_addr().unwrap())
        .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    assert_eq!(receiver.recv(&mut [0; 64]).unwrap(), 20);
    let counted = answer(&mut answers);
    assert!(
        counted.starts_with("{\"counted\":{\"frames\":0,"),
        "{counted}"
    );
    stream.write_all(meter).unwrap();
    let twice = answer(&mut answers);
    assert!(twice.contains("counted already"), "{twice}");
    drop((stream, answers));
    until("the meter's end", Duration::from_secs(5), || {
        (!has_program(lab.server(), "eth0")).then_some(())
    });

    // a program of somebody else
    let (code, line) = {
        let reference = freeway_lab::Tally::attach(lab.server_port()).unwrap();
        let (mut stream, mut answers, _) = call(client);
        stream.write_all(b"{\"hello\":{\"version\":1}}\n").unwrap();
        assert_eq!(answer(&mut answers), "\"ready\"\n");
        stream.write_all(meter).unwrap();
        let busy = answer(&mut answers);
        assert!(busy.contains("another XDP program"), "{busy}");
        let refused = refusal(&bench(lab.server(), "sink --port eth0"));
        drop(reference);
        refused
    };
    assert_eq!(code, 1);
    assert!(line.contains("another XDP program"), "{line}");

    // one that stays while the sink ends
    let (mut stream, mut answers, _) = call(client);
    stream.write_all(b"{\"hello\":{\"version\":1}}\n").unwrap();
    assert_eq!(answer(&mut answers), "\"ready\"\n");
    stream.write_all(meter).unwrap();
    assert_eq!(answer(&mut answers), "\"ready\"\n");
    let (code, said) = sink.stop(Signal::SIGINT);
    assert_eq!(code, 0, "{said}");
    for words in ["was sent away", "version 2", "more than 4096"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!has_program(lab.server(), "eth0"));
}

#[test]
fn a_generator_says_why_it_does_not_begin() {
    let Some(_machine) = machine() else { return };
    let lab = hosts("routed");
    let client = lab.client();
    let generator = |arguments: &str| {
        // what is not refused is soon over
        let line = format!("generator --port eth0 --sink {AT} --pps 100 --seconds 0.1 {arguments}");
        refusal(&bench(client, &line))
    };
    let (code, line) = generator(TO);
    assert_eq!(code, 1);
    assert!(
        line.contains("does `freeway bench sink --listen 10.99.0.2:12544` run there?"),
        "{line}"
    );
    for (greeting, words) in [
        (
            "{\"hello\":{\"version\":7,\"port\":\"eth0\"}}\n",
            "version 7",
        ),
        ("SSH-2.0-OpenSSH_9.2\r\n", "is no sink"),
        ("", "has closed the connection"),
        ("{\"error\":{\"message\":\"\\u001b[2Jaway\"}}\n", " [2Jaway"),
    ] {
        let listener = lab
            .server()
            .enter(|| TcpListener::bind(AT))
            .unwrap()
            .unwrap();
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(greeting.as_bytes()).unwrap();
        });
        let (code, line) = generator(TO);
        serving.join().unwrap();
        assert_eq!(code, 1);
        assert!(line.contains(words), "{words}: {line}");
    }

    let sink = Sink::start(lab.server(), &format!("--port eth0 --listen {AT}"));
    for (arguments, code, words) in [
        (
            "--to 198.51.100.9",
            1,
            "`ip address add 198.51.100.9/24 dev eth0`",
        ),
        (
            "--to 198.51.100.2 --gateway 192.0.2.99",
            1,
            "nobody at eth0 answers for 192.0.2.99",
        ),
        (
            "--to 198.51.100.2 --from 2001:db8::1",
            64,
            "different families",
        ),
        (
            "--to 198.51.100.2 --gateway-mac 02:00:00:00:09:09 --size 64",
            1,
            "does the router at 02:00:00:00:09:09 forward them",
        ),
    ] {
        let found = generator(arguments);
        assert_eq!(found.0, code, "{arguments}: {}", found.1);
        assert!(found.1.contains(words), "{words}: {}", found.1);
    }
    client.tool("ip link set dev eth0 mtu 1400").unwrap();
    let (code, line) = generator(&format!("{TO} --size 1518"));
    assert_eq!(code, 64);
    assert!(line.contains("mtu 1500"), "{line}");
    client.tool("ip link set dev eth0 mtu 1500").unwrap();
    lab.server().tool("ip link set dev eth0 mtu 1400").unwrap();
    let (code, line) = generator(&format!("{TO} --size 1518"));
    assert_eq!(code, 1);
    assert!(
        line.contains("the sink at") && line.contains("mtu 1500"),
        "{line}"
    );
    lab.server().tool("ip link set dev eth0 mtu 1500").unwrap();
    client
        .tool("ip link property add dev eth0 altname uplink0")
        .unwrap();
    client.tool("ip route add default via 192.0.2.1").unwrap();
    let (code, line) = generator(TO);
    assert_eq!(code, 64);
    assert!(
        line.contains("default route") && line.contains("--force"),
        "{line}"
    );
    let line = format!("generator --port uplink0 --sink {AT} {TO} --pps 100 --seconds 0.1");
    let (code, line) = refusal(&bench(client, &line));
    assert_eq!(code, 64);
    assert!(
        line.contains("eth0 carries this host's default route"),
        "{line}"
    );
    client.tool("ip route del default").unwrap();
    sink.stop(Signal::SIGTERM);

    let refused = |line: &str| refusal(&bench(client, line));
    lab.router().tool("ip link set dev lan0 down").unwrap();
    until("no carrier", Duration::from_secs(5), || {
        let text = client.tool("ip link show dev eth0").unwrap();
        text.contains("NO-CARRIER").then_some(())
    });
    for line in ["sink --port eth0", "loop --out mgmt --in eth0 --pps 100"] {
        let (code, line) = refused(line);
        assert_eq!(code, 1);
        assert!(line.contains("eth0 has no carrier"), "{line}");
    }
    for (line, code, words) in [
        ("sink --port eth7", 64, "no port is called `eth7`"),
        ("sink --port lo", 64, "no Ethernet port"),
        (
            "sink --port mgmt --listen 192.0.2.77:1",
            1,
            "cannot listen at 192.0.2.77:1",
        ),
        ("loop --out mgmt --in mgmt --pps 100", 64, "two ports"),
        ("loop --out uplink0 --in eth0 --pps 100", 64, "two ports"),
    ] {
        let found = refused(line);
        assert_eq!(found.0, code, "{line}: {}", found.1);
        assert!(found.1.contains(words), "{words}: {}", found.1);
    }
}

#[test]
fn two_ports_of_one_host_have_latencies() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let host = lab.client();
    let moved = format!("ip link set dev eth0 down name eth1 netns {}", host.name());
    lab.server().tool(&moved).unwrap();
    for line in [
        "ip route del default",
        "ip address add 198.51.100.2/24 dev eth1",
        "ip link set dev eth1 up",
    ] {
        host.tool(line).unwrap();
    }
    until("carrier", Duration::from_secs(5), || {
        let text = host.tool("ip link show dev eth1").unwrap();
        text.contains("state UP").then_some(())
    });
    let looped = |arguments: &str| {
        bench(
            host,
            &format!("loop --out eth0 --in eth1 --size 64 {arguments}"),
        )
    };
    let (code, line) = refusal(&looped("--to 198.51.100.2 --pps 100"));
    assert_eq!(code, 64, "{line}");
    assert!(
        line.contains("name its address at eth0 with --gateway"),
        "{line}"
    );

    let rules = "table ip limited { chain forward { type filter hook forward priority 0; udp dport 9000 limit rate over 4000/second burst 200 packets drop; }; }";
    lab.router().tool_with_input("nft -f -", rules).unwrap();
    let began = Instant::now();
    let found = json(&looped(
        "--gateway 192.0.2.1 --seconds 0.05 --trials 1 --json",
    ));
    assert_eq!(found["receiver"]["port"], "eth1");
    assert_eq!(found["receiver"]["address"], "198.51.100.2");
    assert!(found["receiver"]["sink"].is_null());
    let size = &found["sizes"][0];
    let latencies = size["latency"].as_array().unwrap();
    assert!(!latencies.is_empty(), "{size:#}");
    for latency in latencies {
        let max_us = latency["max_us"].as_f64().unwrap();
        assert!(latency["samples"].as_u64().unwrap() > 0, "{latency:#}");
        assert!(
            max_us > 0.0 && max_us < began.elapsed().as_secs_f64() * 1e6,
            "{latency:#}"
        );
        assert!(latency["router_cpu"].is_null(), "{latency:#}");
    }
    assert!(size["ceiling_pps"].as_f64().unwrap() > 1000.0, "{size:#}");
    for port in ["eth0", "eth1"] {
        assert!(!has_program(host, port), "{port}");
    }
}
