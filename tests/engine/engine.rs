// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine as the path: DPDK between devices that the kernel does not have, the kernel behind TAPs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use freeway_lab::Lab;
use freeway_lab::frame::{MAC_LAN, MAC_WAN};
use freeway_testkit::engine::{Device, Engine, engine, take_ports, take_ports_of};
use freeway_testkit::*;
use nix::sys::signal::Signal;
use serde_json::Value;

/// A lab whose router's ports are the engine's, and a daemon that has given it the table.
struct Site {
    // dropped in order: the lab goes last
    router: Router,
    engine: Engine,
    config: String,
    lab: Lab,
}

impl Site {
    fn build(name: &str) -> Site {
        let lab = build(name);
        let config = take_ports(&lab);
        let engine = Engine::start(&lab, &config);
        let router = Self::daemon(&lab);
        Site {
            router,
            engine,
            config,
            lab,
        }
    }

    fn daemon(lab: &Lab) -> Router {
        Engine::daemon(lab.router(), "", &["lan0", "wan0"])
    }

    fn ends(&self) -> (UdpSocket, UdpSocket) {
        patient(udp_ends(&self.lab))
    }

    /// The flow from the client is in the table, and the engine forwards it.
    #[track_caller]
    fn until_fast(&self, ends: &(UdpSocket, UdpSocket)) {
        path::until_path(&self.router, ends, address(SERVER), "engine");
    }
}

/// Packets of the flow from the client that were fast.
fn fast_packets(router: &Router) -> u64 {
    let flows = router.flows("proto udp dport 5000");
    flows
        .first()
        .map_or(0, |flow| flow["packets"].as_u64().unwrap())
}

/// Of two datagrams at most one arrives: nobody else has forwarded it, too.
#[track_caller]
fn arrives_once(ends: &(UdpSocket, UdpSocket), server: SocketAddr) {
    let mut room = [0; 64];
    ends.0.send_to(b"once", server).unwrap();
    assert_eq!(ends.1.recv_from(&mut room).unwrap().0, 4);
    ends.1.set_nonblocking(true).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(ends.1.recv_from(&mut room).is_err(), "it came twice");
    ends.1.set_nonblocking(false).unwrap();
}

#[test]
fn flows_of_its_ports_are_forwarded_by_the_engine() {
    let Some(_machine) = machine() else { return };
    let site = Site::build("nat");
    let ends = site.ends();
    site.until_fast(&ends);
    let before = fast_packets(&site.router);
    path::send(&ends, address(SERVER), 200);
    let fast = fast_packets(&site.router) - before;
    // but for those that the kernel has confirmed meanwhile
    assert!(
        fast >= 150,
        "{fast} of 200 were fast\n{}",
        site.router.stats()
    );
    arrives_once(&ends, address(SERVER));
    let flows = site.router.flows("proto udp");
    assert_eq!(flows.len(), 2, "{flows:#?}");
    assert!(
        flows.iter().all(|flow| flow["path"] == "engine"),
        "{flows:#?}"
    );
    // conntrack has the translation, as without
    assert_eq!(flows[0]["connection"], true, "{flows:#?}");
    let (_, from) = {
        ends.0.send_to(b"from", SERVER).unwrap();
        ends.1.recv_from(&mut [0; 8]).unwrap()
    };
    assert_eq!(from.ip().to_string(), "198.51.100.1");
    let explained = path::explain(&site.router, &ends, CLIENT, SERVER);
    assert_eq!(explained["verdict"], "fast", "{explained:#}");
    let summary = explained["summary"].as_str().unwrap();
    assert!(summary.contains("by the engine"), "{explained:#}");
    // it tells of itself once a second
    let told = until("the engine's counts", Duration::from_secs(10), || {
        let status = site.router.status();
        let counts = &status["engine"]["counts"];
        (counts["forwarded"].as_u64() > Some(200)).then_some(status.clone())
    });
    let engine = &told["engine"];
    assert_eq!(engine["ports"], serde_json::json!(["lan0", "wan0"]));
    assert_eq!(engine["flows"], 2, "{engine:#}");
    assert!(
        engine["counts"]["exceptions"].as_u64() > Some(0),
        "{engine:#}"
    );
    assert_eq!(engine["counts"]["exceptions_dropped"], 0, "{engine:#}");
    let text = String::from_utf8(site.router.run(&["status"]).stdout).unwrap();
    assert!(
        text.contains("fast (engine)") && text.contains("DPDK"),
        "{text}"
    );
    site.router.stop();
    site.engine.stop();
}

#[test]
fn connections_open_and_close_through_the_engine() {
    let Some(_machine) = machine() else { return };
    let site = Site::build("nat");
    let listener = listen(site.lab.server(), address("198.51.100.2:7000"));
    for port in 41000..41003_u16 {
        let from = SocketAddr::new(address(CLIENT).ip(), port);
        let to = address("198.51.100.2:7000");
        let mut ends = pair((site.lab.client(), from), to, &listener);
        exchange_blocks(&mut ends, 200);
        site.router
            .wait_fast_while("proto tcp", 2, 20, || exchange_blocks(&mut ends, 20));
        let (client, mut server) = ends;
        drop(client);
        at_end(&mut server);
        drop(server);
        // the FIN went through the kernel, which has seen the connection close
        until("the flows' end", Duration::from_secs(10), || {
            site.router.flows("proto tcp").is_empty().then_some(())
        });
    }
    site.router.stop();
}

#[test]
fn flows_of_ipv6_are_forwarded_by_the_engine() {
    let Some(_machine) = machine() else { return };
    let site = Site::build("nat6");
    let server = address("[2001:db8:2::2]:5000");
    let ends = (
        udp(site.lab.client(), address("[2001:db8:1::2]:40000")),
        udp(site.lab.server(), server),
    );
    path::until_path(&site.router, &ends, server, "engine");
    path::send(&ends, server, 100);
    arrives_once(&ends, server);
    let flows = site.router.flows("proto udp");
    assert_eq!(flows.len(), 2, "{flows:#?}");
    assert!(
        flows.iter().all(|flow| flow["path"] == "engine"),
        "{flows:#?}"
    );
    site.router.stop();
}

/// Numbered datagrams at once, to cores that sleep: they come whole and in order.
#[track_caller]
fn arrive_in_order(ends: &(UdpSocket, UdpSocket), server: SocketAddr) {
    const AT_ONCE: u32 = 100;
    for number in 0..AT_ONCE {
        ends.0.send_to(&number.to_be_bytes(), server).unwrap();
    }
    let mut room = [0; 64];
    for number in 0..AT_ONCE {
        let len = ends.1.recv(&mut room).unwrap();
        assert_eq!(room[..len], number.to_be_bytes(), "datagram {number}");
    }
}

/// Where frames of the device wake nobody the core naps, else it sleeps; what comes then is fast, and what the kernel has
/// decided meanwhile holds.
#[test]
fn cores_without_traffic_sleep() {
    let Some(_machine) = machine() else { return };
    for (device, nap_us, words) in [
        (Device::AfPacket, 256, "lan0 is up; it has no interrupts"),
        (Device::Tap, 10_000, "lan0 is up; its frames wake"),
    ] {
        let lab = build("nat");
        let ports = [("lan0".into(), MAC_LAN), ("wan0".into(), MAC_WAN)];
        let config = take_ports_of(lab.router(), 0, device, &ports);
        let engine = Engine::start(&lab, &config);
        // a bridge hears late that a port of its has a carrier
        until("the bridges' ports", Duration::from_secs(20), || {
            let shown = lab
                .router()
                .tool("ip -d link show type bridge_slave")
                .unwrap();
            let down = shown.contains("state DOWN") || shown.contains("state disabled");
            (!down).then_some(())
        });
        let router = Site::daemon(&lab);
        let mut site = Site {
            router,
            engine,
            config,
            lab,
        };
        let ends = site.ends();
        site.until_fast(&ends);
        site.engine.sleeps(&site.router, nap_us);
        arrive_in_order(&ends, address(SERVER));
        let router = site.lab.router();
        router
            .tool_with_input(
                "nft -f -",
                "table inet late {\n chain c {\n type filter hook forward priority -1\n udp dport 5000 drop\n }\n}\n",
            )
            .unwrap();
        until("the end of its flows", Duration::from_secs(10), || {
            site.router
                .flows("proto udp dport 5000 state active")
                .is_empty()
                .then_some(())
        });
        ends.1
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        ends.0.send_to(b"late", SERVER).unwrap();
        assert!(ends.1.recv(&mut [0; 64]).is_err(), "it passed the new rule");
        let counts = site.router.status()["engine"]["counts"].clone();
        assert!(counts["asleep_permille"].as_u64() > Some(0), "{counts:#}");
        site.router.signal(Signal::SIGTERM);
        site.engine.signal(Signal::SIGTERM);
        assert!(site.engine.wait().success());
        let log = site.engine.log();
        assert!(log.contains(words), "{log}");
    }
}

/// A new rule, a shaper that the engine has not: what the kernel decides holds for the engine's frames, too.
#[test]
fn the_kernel_stays_the_router() {
    let Some(_machine) = machine() else { return };
    let site = Site::build("nat");
    let ends = site.ends();
    site.until_fast(&ends);
    let router = site.lab.router();
    router
        .tool("tc qdisc replace dev wan0 root tbf rate 1gbit burst 1mb latency 50ms linklayer atm")
        .unwrap();
    path::until_path(&site.router, &ends, address(SERVER), "tc");
    router.tool("tc qdisc del dev wan0 root").unwrap();
    site.until_fast(&ends);
    router
        .tool_with_input(
            "nft -f -",
            "table inet late {\n chain c {\n type filter hook forward priority -1\n udp dport 5000 drop\n }\n}\n",
        )
        .unwrap();
    let mut room = [0; 64];
    ends.1
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    until(
        "the first datagram that is dropped",
        Duration::from_secs(10),
        || {
            ends.0.send_to(b"late", SERVER).unwrap();
            ends.1.recv_from(&mut room).is_err().then_some(())
        },
    );
    // from then on none passes
    for _ in 0..20 {
        ends.0.send_to(b"late", SERVER).unwrap();
        assert!(
            ends.1.recv_from(&mut room).is_err(),
            "one passed the new rule"
        );
        if site
            .router
            .flows("proto udp dport 5000 state active")
            .is_empty()
        {
            break;
        }
    }
    router.tool("nft delete table inet late").unwrap();
    ends.1
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    site.until_fast(&ends);
    site.router.stop();
}

#[test]
fn a_killed_daemon_leaves_everything_to_the_kernel() {
    let Some(_machine) = machine() else { return };
    let mut site = Site::build("nat");
    let ends = site.ends();
    site.until_fast(&ends);
    site.router.signal(Signal::SIGKILL);
    site.router.wait();
    let flow_at = |forwarded: &mut u64| {
        // past the deadline the engine gives all frames to the kernel, whose own filters see them
        path::send(&ends, address(SERVER), 20);
        *forwarded += 20;
    };
    let mut forwarded = 0;
    for _ in 0..10 {
        flow_at(&mut forwarded);
        std::thread::sleep(Duration::from_millis(300));
    }
    let seen = || {
        let shown = site
            .lab
            .router()
            .tool("ip -s -j link show dev lan0")
            .unwrap();
        let shown: Value = serde_json::from_str(&shown).unwrap();
        shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    };
    let before = seen();
    path::send(&ends, address(SERVER), 50);
    assert!(seen() - before >= 50, "the kernel does not see them all");
    // another one gives its table, and the flows are fast again
    site.router = Site::daemon(&site.lab);
    site.until_fast(&ends);
}

#[test]
fn an_engine_that_comes_again_finds_its_taps() {
    let Some(_machine) = machine() else { return };
    let mut site = Site::build("nat");
    let ends = site.ends();
    site.until_fast(&ends);
    site.engine.signal(Signal::SIGKILL);
    site.engine.wait();
    until("the daemon's word of it", Duration::from_secs(10), || {
        site.router.status()["engine"].is_null().then_some(())
    });
    // with the addresses, routes and rules that they had
    site.engine = Engine::start_again(&site.lab, &site.config);
    until("the first datagram", Duration::from_secs(20), || {
        let mut room = [0; 64];
        ends.1
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        ends.0.send_to(b"again", SERVER).unwrap();
        ends.1.recv_from(&mut room).ok()
    });
    ends.1
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    while ends.1.set_nonblocking(true).is_ok() && ends.1.recv_from(&mut [0; 64]).is_ok() {}
    ends.1.set_nonblocking(false).unwrap();
    site.until_fast(&ends);
    // stopped and gone on: what waits comes late, and nothing is wrong
    site.engine.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(500));
    site.engine.signal(Signal::SIGCONT);
    path::send(&ends, address(SERVER), 50);
    // a second one is refused, for its TAPs are taken
    let mut command = engine();
    command.args(["run", "--config"]).arg(site.engine.config());
    let output = site.lab.router().run(&mut command);
    let words = format!("{output:?}");
    assert!(words.contains("another process has open"), "{words}");
    path::send(&ends, address(SERVER), 50);
    site.router.stop();
}

#[test]
fn a_tap_that_is_deleted_ends_the_engine() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let config = take_ports(&lab);
    let mut engine = Engine::start(&lab, &config);
    lab.router().tool("ip link delete lan0").unwrap();
    let status = engine.wait();
    let log = engine.log();
    assert_eq!(status.code(), Some(69), "{log}");
    assert!(log.contains("lan0 was deleted"), "{log}");
}

/// One line, the right code, and no TAP that was not there before.
#[test]
fn bad_input_is_named() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let good = take_ports(&lab);
    let check = |config: &str, code: i32, words: &str| {
        let (ended, text) = Engine::refuses(lab.router(), config);
        assert_eq!(ended, Some(code), "{config}\n{text}");
        assert!(
            text.lines().last().unwrap().contains(words),
            "{words}: {text}"
        );
        let links = lab.router().tool("ip -o link show").unwrap();
        assert!(
            !links.contains(" lan0:") && !links.contains(" wan0:"),
            "{links}"
        );
    };
    check("", 78, "no [engine.port.NAME] table");
    check("[engine]\nspeed = 1\n", 78, ":2:1: unknown field `speed`");
    check(
        &good.replace("core = 0", "core = 4000"),
        78,
        "there is no such CPU; there are: 0",
    );
    let none = good.replace("vdev = \"net_af_packet0,iface=dlan0\"\n", "");
    check(&none, 78, "engine.port.lan0: it names no device");
    check(
        &good.replace("iface=dlan0", "iface=nowhere"),
        69,
        "DPDK has no device net_af_packet0",
    );
    // with the unit's capabilities, which such a port's library does not do with
    check(
        &good.replace("net_af_packet0,", "net_af_xdp0,"),
        69,
        "takes CAP_SYS_ADMIN, and `af_xdp = true` does not",
    );
    let copied = format!("{good}copy_from = [\"lan0\"]\n");
    check(&copied, 78, "as well: there is nothing to copy");
    let pages = "huge_pages = true\n";
    let many = good.replace("huge_pages = false\n", pages);
    let many = many.replace("memory_mib = 64", "memory_mib = 9999998");
    check(&many, 69, "takes 4999999 huge pages of 2 MiB, and");
    lab.router().tool("ip link add br7 type bridge").unwrap();
    check(
        &good.replace("port.lan0", "port.br7"),
        69,
        "br7 exists and is no TAP",
    );
}
