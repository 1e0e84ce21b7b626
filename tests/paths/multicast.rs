// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routed multicast: copies exactly as the kernel makes them, to exactly the ports that its multicast routes name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use freeway_lab::{
    Capture, Family, Fanout, FlowSpec, Generator, Injector, Load, Netns, Sink, SinkSpec, Until,
};
use freeway_testkit::*;

const RECEIVERS: usize = 8;
const ALL: [usize; RECEIVERS] = [0, 1, 2, 3, 4, 5, 6, 7];
const WAIT: Duration = Duration::from_secs(2);
const SETTLE: Duration = Duration::from_millis(50);
/// From an event to its effect, with room for a busy machine.
const FOLLOWED: Duration = Duration::from_millis(200);
/// A poll and what comes after it.
const POLLED: Duration = Duration::from_secs(3);
/// Until most of a load is fast.
const FAST: Duration = Duration::from_secs(60);
/// Until a group is copied: a flow that has changed often waits for a minute, and only a fault takes longer.
const LEARNED: Duration = Duration::from_secs(90);

/// What takes redirected frames at each receiver, without which no port there is fit for them.
fn captures(fanout: &Fanout) -> Vec<Capture> {
    let open = |port| Capture::open(port).unwrap();
    fanout.receivers().iter().map(open).collect()
}

fn start(fanout: &Fanout) -> Router {
    let interfaces = fanout.interfaces();
    let ports: Vec<&str> = interfaces.iter().map(String::as_str).collect();
    Router::start_in(fanout.router(), &fanout.config_toml(""), freeway(), &ports)
}

/// Sends until packets of the group are fast at so many ports.
#[track_caller]
fn wait_copied(router: &Router, injector: &Injector, flow: &FlowSpec, ports: usize) {
    let filter = format!("proto udp dst {}", flow.far);
    let mut number = 1_000_000;
    until("the group is fast", LEARNED, || {
        for _ in 0..4 {
            injector.send(&flow.frame(0, number)).unwrap();
            number += 1;
        }
        let flows = router.flows(&filter);
        let fast = |flow: &serde_json::Value| {
            flow["state"] == "active"
                && flow["packets"].as_u64() > Some(0)
                && flow["ports_out"].as_array().map(Vec::len) == Some(ports)
        };
        (flows.len() == 1 && flows.iter().all(fast)).then_some(())
    });
}

/// Sends two flows at once, by a CPU each, until most of both is fast: a generator that is held up sends much at once, which
/// rings may have no room for.
fn send_both(fanout: &Fanout, router: &Router, flows: [&FlowSpec; 2], load: Load) {
    let send = |flow: &FlowSpec, cpu| {
        let generator = Arc::new(Generator::new(fanout.source(), flow).unwrap());
        generator.start(load.on_cpu(cpu)).unwrap()
    };
    until("most of both is fast", FAST, || {
        let before = router.stats().fast();
        let running = [send(flows[0], 0), send(flows[1], 1)];
        let sent: u64 = running.map(|run| run.wait().unwrap().frames).iter().sum();
        thread::sleep(SETTLE);
        let fast = router.stats().fast() - before;
        println!("{fast} of {sent} were fast");
        (fast > sent * 8 / 10).then_some(())
    });
}

/// Each receiver of these has exactly its own copy, byte for byte, and no other receiver has any.
#[track_caller]
fn check_copies(
    fanout: &Fanout,
    captures: &mut [Capture],
    injector: &Injector,
    flow: &FlowSpec,
    served: &[usize],
    number: u32,
) {
    let ours = |bytes: &[u8]| bytes.starts_with(&flow.mac_destination);
    for capture in captures.iter_mut() {
        capture.drain(Duration::from_millis(1), ours).unwrap();
    }
    injector.send(&flow.frame(0, number)).unwrap();
    for (i, capture) in captures.iter_mut().enumerate() {
        let wanted = usize::from(served.contains(&i));
        let mut got = capture.collect(wanted, WAIT, ours).unwrap();
        if i + 1 == RECEIVERS || wanted == 0 {
            got.extend(capture.drain(SETTLE, ours).unwrap());
        }
        assert_eq!(got.len(), wanted, "{} receiver {i} of {served:?}", flow.far);
        for frame in got {
            let copy = fanout.copy(flow, i).frame(0, number);
            assert_eq!(frame.bytes, copy, "{} receiver {i}", flow.far);
        }
    }
}

#[test]
fn copies_are_the_kernels() {
    let Some(_machine) = machine() else { return };
    let fanout = Fanout::build(RECEIVERS).unwrap();
    let mut captures = captures(&fanout);
    let router = start(&fanout);
    let injector = Injector::open(fanout.source()).unwrap();
    for family in [Family::Ipv4, Family::Ipv6] {
        let flow = fanout.flow(family, 200);
        for served in [&ALL[..], &[2], &[0, 3, 7], &ALL[1..]] {
            fanout.serve(&flow, served).unwrap();
            wait_copied(&router, &injector, &flow, served.len());
            let before = router.stats().fast();
            for number in 0..20 {
                check_copies(&fanout, &mut captures, &injector, &flow, served, number);
            }
            let fast = router.stats().fast() - before;
            assert!(fast >= 19, "{fast} of 20 were fast to {served:?}");
        }
    }
    router.stop();
}

/// Of ports with one MAC address copies are alike, and are not looked at again; but where there are others, too, all are.
#[test]
fn copies_that_are_alike_are_the_kernels() {
    let Some(_machine) = machine() else { return };
    let mut fanout = Fanout::switch(RECEIVERS).unwrap();
    let mut captures = captures(&fanout);
    let router = start(&fanout);
    let injector = Injector::open(fanout.source()).unwrap();
    let [alike, other] = [Family::Ipv4, Family::Ipv6].map(|family| fanout.flow(family, 200));
    fanout.serve(&alike, &ALL).unwrap();
    wait_copied(&router, &injector, &alike, RECEIVERS);
    let check = |fanout: &Fanout, captures: &mut [Capture], numbers: std::ops::Range<u32>| {
        let before = router.stats().fast();
        let frames = u64::from(numbers.end - numbers.start);
        for number in numbers {
            check_copies(fanout, captures, &injector, &alike, &ALL, number);
        }
        let fast = router.stats().fast() - before;
        assert!(fast + 1 >= frames, "{fast} of {frames} were fast");
    };
    check(&fanout, &mut captures, 0..20);
    // a port with another address: what all copies share is that of the first
    let mac = [0x02, 0, 0, 0, 1, 0x77];
    fanout.set_mac(0, mac).unwrap();
    fanout.serve(&alike, &[1, 2, 3]).unwrap();
    wait_copied(&router, &injector, &alike, 3);
    fanout.serve(&other, &[0, 1]).unwrap();
    wait_copied(&router, &injector, &other, 2);
    for number in 20..40 {
        check_copies(&fanout, &mut captures, &injector, &other, &[0, 1], number);
        check_copies(
            &fanout,
            &mut captures,
            &injector,
            &alike,
            &[1, 2, 3],
            number,
        );
    }
    // both at once, so that one poll hands copies of either kind to one device
    for capture in &mut captures {
        capture.drain(SETTLE, |_| true).unwrap();
    }
    let load = Load::paced(Until::Frames(5_000), 20_000);
    send_both(&fanout, &router, [&alike, &other], load);
    let mut counts = [[0u64; 2]; RECEIVERS];
    for (i, capture) in captures.iter_mut().enumerate() {
        for frame in capture.drain(SETTLE, |bytes| bytes[0] & 1 == 1).unwrap() {
            let flows = [&alike, &other];
            let of = flows
                .iter()
                .position(|flow| frame.bytes.starts_with(&flow.mac_destination));
            let Some(of) = of else { continue };
            assert_eq!(frame.bytes[6..12], fanout.outputs()[i].mac, "receiver {i}");
            let ttl = if of == 0 { 22 } else { 21 };
            assert_eq!(frame.bytes[ttl], flows[of].ttl - 1, "receiver {i}");
            counts[i][of] += 1;
        }
    }
    println!("{counts:?}");
    for (i, [alike, other]) in counts.into_iter().enumerate() {
        assert_eq!(alike > 1000, (1..4).contains(&i), "{counts:?}");
        assert_eq!(other > 1000, i < 2, "{counts:?}");
    }
    router.stop();
}

/// The last receiver leaves and comes back under load, and the flow is fast after each change.
fn come_and_go(fanout: &Fanout, router: &Router, sinks: &mut Vec<Sink>, family: Family) {
    let flow = fanout.flow(family, 80);
    fanout.serve(&flow, &ALL).unwrap();
    // one at a time, and never none
    *sinks = std::mem::take(sinks)
        .into_iter()
        .zip(fanout.receivers())
        .map(|(sink, port)| {
            drop(sink);
            Sink::attach(port, SinkSpec::thorough(1)).unwrap()
        })
        .collect();
    let last = &sinks[RECEIVERS - 1];
    let generator = Arc::new(Generator::new(fanout.source(), &flow).unwrap());
    let load = Load::paced(Until::Stopped, 5000).ahead();
    let running = generator.start(load).unwrap();
    let fast_from = router.stats().fast();
    let frames = |sink: &Sink| sink.counts().unwrap().frames;
    let more = |what: &str, sink: &Sink| {
        let before = frames(sink);
        until(what, WAIT, || (frames(sink) > before + 500).then_some(()));
    };
    let fast_again = |what: &str| {
        let before = router.stats().fast();
        until(what, 10 * WAIT, || {
            (router.stats().fast() > before + 500).then_some(())
        });
    };
    for _ in 0..10 {
        // the others do not notice
        fanout.serve(&flow, &ALL[..RECEIVERS - 1]).unwrap();
        until("served no more", 2 * FOLLOWED, || {
            let before = frames(last);
            more("frames of the others", &sinks[0]);
            (before == frames(last)).then_some(())
        });
        fast_again("fast without it");
        fanout.serve(&flow, &ALL).unwrap();
        more("served again", last);
        fast_again("fast with it");
    }
    let sent = running.stop().unwrap().frames;
    until("all to the others", WAIT, || {
        let all = |sink: &Sink| sink.flow(0).unwrap().frames >= sent;
        sinks[..RECEIVERS - 1].iter().all(all).then_some(())
    });
    let fast = router.stats().fast() - fast_from;
    println!("{family:?}: {fast} of {sent} were fast");
    for (i, sink) in sinks.iter().enumerate() {
        let (counts, of_flow) = (sink.counts().unwrap(), sink.flow(0).unwrap());
        assert_eq!(counts.bad_ip_checksum + counts.bad_l4_checksum, 0);
        if i + 1 < RECEIVERS {
            assert_eq!(of_flow.frames, sent, "{family:?}, receiver {i}");
        }
    }
}

#[test]
fn joins_and_leaves_are_followed_under_load() {
    let Some(_machine) = machine() else { return };
    let fanout = Fanout::build(RECEIVERS).unwrap();
    let attach = |port| Sink::attach(port, SinkSpec::thorough(1)).unwrap();
    let mut sinks: Vec<_> = fanout.receivers().iter().map(attach).collect();
    let router = start(&fanout);
    for family in [Family::Ipv4, Family::Ipv6] {
        come_and_go(&fanout, &router, &mut sinks, family);
    }
    router.stop();
}

/// smcroute as the multicast router; dropping it ends its daemon.
struct Smcroute {
    daemon: Child,
    files: PathBuf,
    netns: Netns,
}

impl Smcroute {
    /// Its ports are those of the router; `routes` is the rest of its configuration.
    fn start(fanout: &mut Fanout, routes: &str) -> Smcroute {
        fanout.leave_routing();
        let files = std::env::temp_dir().join(format!("freeway-smcroute-{}", std::process::id()));
        std::fs::create_dir_all(&files).unwrap();
        let mut config = String::new();
        for port in fanout.interfaces() {
            writeln!(config, "phyint {port} enable").unwrap();
        }
        std::fs::write(files.join("conf"), config + routes).unwrap();
        let mut command = Command::new("smcrouted");
        command.args(["-n", "-N", "-l", "err"]).stdin(Stdio::null());
        for (option, file) in [("-f", "conf"), ("-P", "pid"), ("-u", "socket")] {
            command.arg(option).arg(files.join(file));
        }
        let smcroute = Smcroute {
            daemon: fanout.router().spawn(&mut command).unwrap(),
            files,
            netns: fanout.router().clone(),
        };
        until("smcroute is ready", Duration::from_secs(10), || {
            smcroute.files.join("pid").exists().then_some(())
        });
        smcroute
    }

    /// Runs `smcroutectl`.
    #[track_caller]
    fn ctl(&self, words: &str) {
        let socket = self.files.join("socket");
        let line = format!("smcroutectl -u {} {words}", socket.display());
        self.netns.tool(&line).unwrap();
    }
}

impl Drop for Smcroute {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

/// The groups are joined at the input, too, as is done for the sake of switches.
#[test]
fn routes_of_smcroute_are_followed_under_load() {
    let Some(_machine) = machine() else { return };
    let mut fanout = Fanout::build(RECEIVERS).unwrap();
    let flows = [Family::Ipv4, Family::Ipv6].map(|family| fanout.flow(family, 80));
    let mut routes = String::new();
    for FlowSpec { near, far, .. } in flows {
        writeln!(routes, "mgroup from lan0 group {far}").unwrap();
        let route = format!("from lan0 source {near} group {far} to wan1 wan4");
        writeln!(routes, "mroute {route}").unwrap();
    }
    let smcroute = Smcroute::start(&mut fanout, &routes);
    let sinks: Vec<Sink> = (fanout.receivers().iter())
        .map(|port| Sink::attach(port, SinkSpec::thorough(1)).unwrap())
        .collect();
    let frames = || -> [u64; RECEIVERS] { ALL.map(|i| sinks[i].counts().unwrap().frames) };
    let router = start(&fanout);
    for flow in &flows {
        let injector = Injector::open(fanout.source()).unwrap();
        let generator = Arc::new(Generator::new(fanout.source(), flow).unwrap());
        let route = format!("lan0 {} {}", flow.near, flow.far);
        let steps: [(String, &[usize]); 3] = [
            (String::new(), &[1, 4]),
            (format!("add {route} wan6"), &[1, 4, 6]),
            (format!("remove {route} wan4"), &[1, 6]),
        ];
        for (change, served) in steps {
            if !change.is_empty() {
                let before = frames();
                let load = Load::paced(Until::Stopped, 5000).ahead();
                let running = generator.start(load).unwrap();
                thread::sleep(FOLLOWED);
                smcroute.ctl(&change);
                until("those that are served, and no others", FOLLOWED, || {
                    let changed = frames();
                    thread::sleep(FOLLOWED);
                    let after = frames();
                    let more = |i: usize| after[i] > changed[i];
                    ALL.iter()
                        .all(|i| more(*i) == served.contains(i))
                        .then_some(())
                });
                let sent = running.stop().unwrap().frames;
                until("wan1, which did not notice", WAIT, || {
                    (frames()[1] - before[1] == sent).then_some(())
                });
            }
            wait_copied(&router, &injector, flow, served.len());
            thread::sleep(SETTLE);
            let (before, fast) = (frames(), router.stats().fast());
            let load = Load::paced(Until::Frames(2000), 5000).ahead();
            generator.run(&load).unwrap();
            let arrived = |i: usize| frames()[i] - before[i];
            until("all to all that are served", WAIT, || {
                served.iter().all(|i| arrived(*i) >= 2000).then_some(())
            });
            thread::sleep(SETTLE);
            let fast = router.stats().fast() - fast;
            for i in ALL {
                let wanted = if served.contains(&i) { 2000 } else { 0 };
                assert_eq!(arrived(i), wanted, "{} receiver {i}", flow.far);
            }
            assert!(fast > 1600, "{}: {fast} of 2000 were fast", flow.far);
        }
    }
    for sink in &sinks {
        let counts = sink.counts().unwrap();
        assert_eq!(counts.bad_ip_checksum + counts.bad_l4_checksum, 0);
    }
    router.stop();
}

/// The kernel runs one program on all frames that it sends to a device at once: that of the first of them.
#[test]
fn unicast_beside_copies_is_what_it_was() {
    let Some(_machine) = machine() else { return };
    let fanout = Fanout::build(RECEIVERS).unwrap();
    // what all copies share is already that of the first
    let host = &fanout.receivers()[1];
    let mac = host.mac.map(|octet| format!("{octet:02x}")).join(":");
    let line = format!("ip neigh add 198.51.100.10 lladdr {mac} nud permanent dev wan1");
    fanout.router().tool(&line).unwrap();
    // some from the first frame to the last, whoever of the two begins; an odd number, for they may come by turns
    let spec = SinkSpec {
        capture_every: 7,
        capture_limit: u32::MAX,
        ..SinkSpec::default()
    };
    let sinks: Vec<_> = (fanout.receivers().iter())
        .map(|port| Sink::attach(port, spec).unwrap())
        .collect();
    let router = start(&fanout);
    let injector = Injector::open(fanout.source()).unwrap();
    let group = fanout.flow(Family::Ipv4, 100);
    let unicast = FlowSpec {
        mac_destination: fanout.input().mac,
        far: Ipv4Addr::new(198, 51, 100, 10).into(),
        ..group
    };
    // the device is a leg of nothing yet, then it is
    for _ in 0..20 {
        injector.send(&unicast.frame(0, 0)).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    fanout.serve(&group, &ALL).unwrap();
    wait_copied(&router, &injector, &group, RECEIVERS);
    router.wait_fast_while("proto udp dst 198.51.100.10", 1, 1, || {
        injector.send(&unicast.frame(0, 0)).unwrap();
    });
    let load = Load::paced(Until::Frames(20_000), 40_000);
    send_both(&fanout, &router, [&group, &unicast], load);
    let captured = sinks[1].captured().unwrap();
    let mut counts = [0u64; 2];
    for frame in &captured {
        let bytes = &frame.bytes;
        let to_group = bytes[..6] == group.mac_destination;
        assert!(to_group || bytes[..6] == host.mac, "{bytes:02x?}");
        assert_eq!(bytes[6..12], fanout.outputs()[1].mac, "{bytes:02x?}");
        assert_eq!(bytes[22], group.ttl - 1, "{bytes:02x?}");
        counts[usize::from(to_group)] += 1;
    }
    assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
    router.stop();
}

#[test]
fn what_a_program_on_the_router_receives_stays_in_the_kernel() {
    let Some(_machine) = machine() else { return };
    let fanout = Fanout::build(RECEIVERS).unwrap();
    let _captures = captures(&fanout);
    let router = start(&fanout);
    let injector = Injector::open(fanout.source()).unwrap();
    let flow = fanout.flow(Family::Ipv4, 100);
    let std::net::IpAddr::V4(group) = flow.far else {
        panic!("IPv4");
    };
    fanout.serve(&flow, &ALL[..2]).unwrap();
    let join = || -> UdpSocket {
        let any = (Ipv4Addr::UNSPECIFIED, flow.far_port).into();
        let socket = udp(fanout.router(), any);
        let lan = Ipv4Addr::new(192, 0, 2, 1);
        socket.join_multicast_v4(&group, &lan).unwrap();
        socket
    };
    // before the flow is learned, and when it is fast already
    for fast_before in [false, true] {
        if fast_before {
            wait_copied(&router, &injector, &flow, 2);
        }
        let socket = join();
        thread::sleep(POLLED);
        let before = router.stats().fast();
        for number in 0..50 {
            injector.send(&flow.frame(0, number)).unwrap();
            socket.recv(&mut [0; 100]).unwrap();
        }
        assert_eq!(router.stats().fast(), before, "fast past the program");
        if !fast_before {
            thread::sleep(SETTLE);
            let ends = [(flow.near, flow.near_port), (flow.far, flow.far_port)];
            let [from, to] = ends.map(|(address, port)| format!("{address}:{port}"));
            let explained = router.json(&["explain", "udp", &from, &to, "--watch", "0"]);
            let text = explained.to_string();
            assert!(text.contains("receives it"), "{explained:#}");
        }
        drop(socket);
        thread::sleep(POLLED);
        wait_copied(&router, &injector, &flow, 2);
    }
    router.stop();
}

#[test]
fn the_firewall_holds_for_each_port() {
    let Some(_machine) = machine() else { return };
    let fanout = Fanout::build(RECEIVERS).unwrap();
    let ruleset = "table inet filter {
        chain forward {
            type filter hook forward priority filter; policy drop;
            ct state established,related accept
            ct state invalid drop
            iifname lan0 accept
        }
    }";
    let nft = |input: &str| fanout.router().tool_with_input("nft -f -", input).unwrap();
    nft(ruleset);
    let mut captures = captures(&fanout);
    let router = start(&fanout);
    let injector = Injector::open(fanout.source()).unwrap();
    for family in [Family::Ipv4, Family::Ipv6] {
        let flow = fanout.flow(family, 200);
        fanout.serve(&flow, &ALL).unwrap();
        wait_copied(&router, &injector, &flow, RECEIVERS);
        let before = router.stats().fast();
        check_copies(&fanout, &mut captures, &injector, &flow, &ALL, 1);
        assert_eq!(router.stats().fast(), before + 1, "{family:?}");
        // a rule against one port: the copies are the kernel's, which are fewer than the route says
        nft("insert rule inet filter forward oifname wan3 drop");
        thread::sleep(FOLLOWED);
        let served: Vec<usize> = ALL.into_iter().filter(|i| *i != 3).collect();
        for number in 2..40 {
            check_copies(&fanout, &mut captures, &injector, &flow, &served, number);
        }
        nft("flush chain inet filter forward\nadd rule inet filter forward iifname lan0 accept");
        wait_copied(&router, &injector, &flow, RECEIVERS);
        check_copies(&fanout, &mut captures, &injector, &flow, &ALL, 50);
    }
    router.stop();
}

#[test]
fn copies_are_seen_by_whoever_looks() {
    let Some(_machine) = machine() else { return };
    let fanout = Fanout::build(RECEIVERS).unwrap();
    let mut captures = captures(&fanout);
    let router = start(&fanout);
    let injector = Injector::open(fanout.source()).unwrap();
    let flow = fanout.flow(Family::Ipv4, 100);
    fanout.serve(&flow, &ALL).unwrap();
    wait_copied(&router, &injector, &flow, RECEIVERS);
    // at any of the ports
    let looking = Capture::open(&fanout.outputs()[5]).unwrap();
    thread::sleep(POLLED);
    let before = router.stats().fast();
    for number in 0..20 {
        check_copies(&fanout, &mut captures, &injector, &flow, &ALL, number);
    }
    assert_eq!(router.stats().fast(), before, "fast past a packet socket");
    let ends = [(flow.near, flow.near_port), (flow.far, flow.far_port)];
    let [from, to] = ends.map(|(address, port)| format!("{address}:{port}"));
    let explained = router.json(&["explain", "udp", &from, &to, "--watch", "0"]);
    let text = explained.to_string();
    assert!(text.contains("packet socket"), "{explained:#}");
    drop(looking);
    thread::sleep(POLLED);
    wait_copied(&router, &injector, &flow, RECEIVERS);
    router.stop();
}

#[test]
fn a_copy_that_leaves_at_a_vlan_has_its_tag() {
    let Some(_machine) = machine() else { return };
    let mut fanout = Fanout::build(3).unwrap();
    let line = "ip link add link wan2 name wan2.5 up type vlan id 5";
    if let Err(error) = fanout.router().tool(line) {
        let text = error.to_string();
        assert!(
            text.contains("Unknown device type") || text.contains("not supported"),
            "{text}"
        );
        println!("skipped: this kernel has no VLANs: {text}");
        return;
    }
    let vlan = fanout.router().ifindex("wan2.5").unwrap();
    let mut captures = captures(&fanout);
    let mut interfaces = fanout.interfaces();
    interfaces.push("wan2.5".into());
    let ports: Vec<&str> = interfaces.iter().map(String::as_str).collect();
    let config = fanout.config_toml("");
    let router = Router::start_in(fanout.router(), &config, freeway(), &ports);
    let injector = Injector::open(fanout.source()).unwrap();
    let input = fanout.input().ifindex;
    let untagged = fanout.outputs()[0].ifindex;
    for family in [Family::Ipv4, Family::Ipv6] {
        let flow = fanout.flow(family, 200);
        fanout.mroute_mut(family).add_port(vlan).unwrap();
        let mroute = fanout.mroute(family);
        mroute
            .set(flow.near, flow.far, input, &[untagged, vlan])
            .unwrap();
        wait_copied(&router, &injector, &flow, 2);
        let any = |bytes: &[u8]| bytes.starts_with(&flow.mac_destination);
        for capture in &mut captures {
            capture.drain(SETTLE, any).unwrap();
        }
        let before = router.stats().fast();
        for number in 0..20 {
            let plain = [0, 2].map(|i| fanout.copy(&flow, i).frame(0, number));
            let mut tagged = plain[1].clone();
            tagged.splice(12..12, [0x81, 0, 0, 5]);
            let ours = |bytes: &[u8]| bytes.ends_with(&plain[0][plain[0].len() - 100..]);
            injector.send(&flow.frame(0, number)).unwrap();
            for (i, wanted) in [(0, &plain[0]), (2, &tagged)] {
                let got = captures[i].collect(1, WAIT, ours).unwrap();
                let bytes: Vec<&Vec<u8>> = got.iter().map(|frame| &frame.bytes).collect();
                assert_eq!(bytes, [wanted], "{family:?}, receiver {i}");
            }
            assert!(
                captures[1]
                    .drain(Duration::from_millis(5), ours)
                    .unwrap()
                    .is_empty()
            );
        }
        let fast = router.stats().fast() - before;
        assert!(fast >= 19, "{family:?}: {fast} of 20 were fast");
    }
    router.stop();
}
