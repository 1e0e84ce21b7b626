// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths in tc: the same at ports without XDP, of merged frames too, and through the qdisc where they leave.

use freeway_lab::frame::sum16;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{UdpGroSegment, UdpGsoSegment};

use super::*;

pub(super) const TC: &str = "path = \"tc\"\n";

/// No port has XDP.
fn in_tc(lab: &Lab) -> Router {
    start(lab, &lab.config_with(TC, ON))
}

/// One has none.
fn in_tc_at_lan0(lab: &Lab) -> Router {
    start(lab, &at_lan0(&lab.config_with("", ON), TC))
}

/// A configuration with keys more of one port.
fn at_lan0(config: &str, keys: &str) -> String {
    let (before, after) = config.split_once("[port.\"lan0\"]\n").unwrap();
    format!("{before}[port.\"lan0\"]\n{keys}{after}")
}

fn start(lab: &Lab, config: &str) -> Router {
    Router::start_in(lab.router(), config, freeway(), &["lan0", "wan0"])
}

#[test]
fn packets_leave_in_tc_as_the_kernel_sends_them() {
    leave_as_the_kernel_sends_them(in_tc);
}

#[test]
fn packets_of_ipv6_leave_in_tc_as_the_kernel_sends_them() {
    strangers6::leave_as_the_kernel_sends_them(in_tc);
}

#[test]
fn a_change_of_the_kernel_is_one_in_tc() {
    changes_are_followed(in_tc);
}

#[test]
fn a_change_of_ipv6_is_one_in_tc() {
    strangers6::changes_are_followed(in_tc);
}

#[test]
fn sources_and_ttls_are_judged_in_tc_as_the_kernel_judges_them() {
    sources_and_ttls_are_judged(in_tc);
}

/// Without it the kernel leaves a packet's priority as it is.
#[test]
fn a_kernel_that_gives_no_classes_keeps_ipv4_from_tc() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let router = in_tc_at_lan0(&lab);
    wait(&router, "prefix paths", active);
    let classes = |value: &str| {
        let name = "net/ipv4/ip_forward_update_priority";
        lab.router().sysctl(name, value).unwrap();
    };
    classes("0");
    let routes = wait_for_reason(&router, "ipv4", "ip_forward_update_priority is not 1");
    assert!(kept_at(&routes, "lan0").starts_with("IPv4: "), "{routes}");
    assert!(!kept_at(&routes, "wan0").contains("priority"), "{routes}");
    classes("1");
    wait(&router, "prefix paths again", active);
}

/// With which classes and lengths packets leave is the kernel's own choice as well.
#[test]
fn what_leaves_in_tc_goes_through_the_qdisc_in_its_class() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let router = in_tc_at_lan0(&lab);
    wait(&router, "prefix paths", active);
    let dst = Ipv4Addr::new(203, 0, 113, 7);
    let of_class = |n: u16| {
        let mut frame = packet(client(), dst, n);
        // each TOS, by turns, and the checksum with it
        frame[15] = (n % 256) as u8;
        frame[24..26].fill(0);
        let sum = !sum16(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let frames: Vec<_> = (0..512).map(of_class).collect();
    confirm(&lab, &router, &frames);
    let hops = |path: &str| {
        until(path, PATIENCE, || {
            left(&lab, &frames);
            let routes = router.json(&["routes"]);
            let mut hops = routes["next_hops"].as_array().unwrap().iter();
            let wanted = ["wan0", path, "confirmed"];
            hops.any(|hop| ["port", "path", "state"].map(|key| &hop[key]) == wanted)
                .then_some(())
        });
    };
    hops("xdp");
    let tool = |line: &str| lab.router().tool(line).unwrap();
    tool("tc qdisc replace dev wan0 root tbf rate 1gbit burst 1mb latency 50ms");
    hops("tc");
    tool("tc qdisc del dev wan0 root");
    hops("xdp");
    let prio = "tc qdisc replace dev wan0 root handle 1: prio";
    if let Err(error) = lab.router().tool(prio) {
        println!("skipped: this kernel has no such qdisc: {error}");
        return;
    }
    hops("tc");
    // " Sent 18900 bytes 300 pkt (dropped 0, ..." of each class
    let classes = || -> Vec<u64> {
        let shown = tool("tc -s class show dev wan0");
        let sent = shown.lines().filter(|line| line.contains(" pkt "));
        sent.map(|line| line.split_whitespace().nth(3).unwrap().parse().unwrap())
            .collect()
    };
    let sent = || -> Vec<u64> {
        let before = classes();
        left(&lab, &frames);
        let after = classes();
        let pairs = after.iter().zip(before);
        pairs.map(|(after, before)| after - before).collect()
    };
    // a daemon that is held up has the kernel take over
    let by_routes = until("most leave by prefixes", PATIENCE, || {
        let before = routed(&router);
        let by_routes = sent();
        let fast = routed(&router) - before;
        println!("{by_routes:?}, {fast} by prefixes");
        (fast > 200).then_some(by_routes)
    });
    assert!(router.run(&["off"]).status.success());
    let by_kernel = sent();
    // ARP may be among them
    let near = |(one, other): (&u64, &u64)| one.abs_diff(*other) <= 4;
    assert!(
        by_routes.iter().zip(&by_kernel).all(near),
        "{by_routes:?} {by_kernel:?}"
    );
    assert!(
        by_kernel.iter().all(|packets| *packets > 50),
        "{by_kernel:?}"
    );
    assert_eq!(router.json(&["routes"])["contradicted"], 0);
}

/// Datagrams come merged as well, if a host sends them so.
#[test]
fn merged_datagrams_leave_in_tc_as_the_kernel_sends_them() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let ports = [(lab.client(), "eth0"), (lab.router(), "wan0")];
    for (host, name) in ports {
        host.tool(&format!("ethtool -K {name} tx on tso on gso on"))
            .unwrap();
    }
    let router = in_tc(&lab);
    wait(&router, "prefix paths", active);
    let ends = udp_ends(&lab);
    setsockopt(&ends.0, UdpGsoSegment, &1000).unwrap();
    setsockopt(&ends.1, UdpGroSegment, &true).unwrap();
    let mut room = [0; 16_000];
    until("merged datagrams by prefixes", PATIENCE, || {
        let before = routed(&router);
        for _ in 0..10 {
            ends.0.send_to(&[7; 8000], address(SERVER)).unwrap();
            assert_eq!(ends.1.recv(&mut room).unwrap(), 8000, "it was cut");
        }
        // one asks
        (routed(&router) - before >= 9 * 8).then_some(())
    });
    assert_eq!(router.flows("").len(), 0);
    assert_eq!(router.json(&["routes"])["contradicted"], 0);
}

/// TCP comes merged to ports without XDP.
#[test]
fn merged_frames_leave_in_tc_as_the_kernel_sends_them() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let router = in_tc(&lab);
    wait(&router, "prefix paths", active);
    let to = address("198.51.100.2:5001");
    let listener = listen(lab.server(), to);
    let mut ends = pair((lab.client(), address("192.0.2.2:40001")), to, &listener);
    let mut leave_by_prefixes = |what: &str| {
        until(what, PATIENCE, || {
            let before = routed(&router);
            exchange_blocks(&mut ends, 64);
            (routed(&router) > before + 1000).then_some(())
        });
    };
    leave_by_prefixes("merged frames");
    // nothing of it was ever a flow
    assert_eq!(router.flows("").len(), 0);
    // segments that are too long are the kernel's, which says so
    let route = "198.51.100.0/24 dev wan0 proto kernel scope link src 198.51.100.1";
    ip(&lab, &format!("route change {route} mtu 1200"));
    leave_by_prefixes("shorter segments");
    let routes = router.json(&["routes"]);
    assert_eq!(routes["contradicted"], 0, "{routes}");
    assert!(routes["confirmed"].as_u64().unwrap() > 0, "{routes}");
}

#[test]
fn a_port_that_loses_xdp_and_gets_it_again_keeps_prefix_paths() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("freeway.toml");
    let extra = format!("[daemon]\ninterfaces = [\"lan0\", \"wan0\"]\n{ON}");
    let config = lab.config_with("", &extra);
    let write = |keys: &str| std::fs::write(&file, at_lan0(&config, keys)).unwrap();
    write("");
    let router = Router::start_by(lab.router(), &file, |status| {
        let ports = status["ports"].as_array().unwrap();
        ports.len() == 2 && ports.iter().all(|port| port["state"] == "fast")
    });
    let frames = strangers(200);
    for (keys, path) in [("", "xdp"), (TC, "tc"), ("", "xdp"), (TC, "tc")] {
        write(keys);
        router.json(&["reload"]);
        until(path, PATIENCE, || {
            let status = router.status();
            let mut ports = status["ports"].as_array().unwrap().iter();
            let lan = ports.find(|port| port["name"] == "lan0").unwrap();
            (lan["path"] == path && lan["routes"] == true).then_some(())
        });
        wait(&router, path, active);
        confirm(&lab, &router, &frames);
        assert_eq!(left(&lab, &frames).values().sum::<usize>(), frames.len());
    }
    assert_eq!(router.json(&["routes"])["contradicted"], 0);
}
