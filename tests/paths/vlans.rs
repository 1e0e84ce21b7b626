// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths of VLANs: tags come off and on, and each VLAN is a port of its own.

use super::in_tc::TC;
use super::*;

const PORTS: [&str; 4] = ["lan0", "wan0", "lan0.7", "wan0.8"];
const FRAMES: u16 = 100;

/// A VLAN at each port, and a neighbour behind each exit; `None`, and says so: this kernel has no VLANs.
fn lab_of_vlans() -> Option<Lab> {
    let lab = build("routed");
    let add = |host: &freeway_lab::Netns, port: &str, vlan: u16| {
        let name = format!("{port}.{vlan}");
        host.tool(&format!(
            "ip link add link {port} name {name} type vlan id {vlan}"
        ))?;
        host.tool(&format!("ip link set {name} up"))
    };
    let made = add(lab.router(), "lan0", 7)
        .and_then(|_| add(lab.router(), "wan0", 8))
        .and_then(|_| add(lab.server(), "eth0", 8));
    if let Err(error) = made {
        println!("skipped: this kernel has no VLANs: {error}");
        return None;
    }
    ip(&lab, "address add 10.7.0.1/24 dev lan0.7");
    ip(&lab, "address add 10.8.0.1/24 dev wan0.8");
    let neighbour = "10.8.0.2 lladdr 02:00:00:00:09:10 nud permanent dev wan0.8";
    ip(&lab, &format!("neigh replace {neighbour}"));
    ip(&lab, "route add 203.0.113.0/24 via 10.8.0.2");
    ip(&lab, "route add 203.0.114.0/24 via 198.51.100.2");
    Some(lab)
}

/// A daemon for them all; `keys` are each port's.
fn start(lab: &Lab, keys: &str) -> Router {
    let of_vlan = |name: &str| format!("[port.\"{name}\"]\n{keys}");
    let vlans = of_vlan("lan0.7") + &of_vlan("wan0.8");
    let config = lab.config_with(keys, ON) + &vlans;
    let router = Router::start_in(lab.router(), &config, freeway(), &PORTS);
    wait_ports(&router, &PORTS);
    router
}

fn wait_ports(router: &Router, ports: &[&str]) -> Value {
    wait(router, "prefix paths", |routes| {
        let there = routes["ports"].as_array().unwrap();
        let all = ports.iter().all(|port| there.contains(&(*port).into()));
        routes["ipv4"]["active"] == true && there.len() == ports.len() && all
    })
}

fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()
}

/// From the VLAN or beside it, to one or beside it.
fn frames(of_vlan: bool, to_vlan: bool) -> Vec<Vec<u8>> {
    let network = if to_vlan { 113 } else { 114 };
    let dst = |n: u16| Ipv4Addr::new(203, 0, network, (n % 250) as u8);
    let frame = |n: u16| match of_vlan {
        true => tagged(&packet(Ipv4Addr::new(10, 7, 0, 2), dst(n), n)),
        false => packet(client(), dst(n), n),
    };
    (0..FRAMES).map(frame).collect()
}

fn all_kinds() -> impl Iterator<Item = (bool, bool)> {
    [false, true]
        .into_iter()
        .flat_map(|of| [false, true].map(|to| (of, to)))
}

/// Frames that the server's VLAN has received.
fn received(lab: &Lab) -> u64 {
    let shown = lab.server().tool("ip -s -j link show dev eth0.8").unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

fn leave_with_their_tags(lab: &Lab, router: &Router, path: &str) {
    for (of_vlan, to_vlan) in all_kinds() {
        let frames = frames(of_vlan, to_vlan);
        confirm(lab, router, &frames);
        // a daemon that is held up has the kernel take over
        let by_routes = until("most leave by prefixes", PATIENCE, || {
            let (before, tagged) = (routed(router), received(lab));
            let by_routes = left(lab, &frames);
            let (fast, tagged) = (routed(router) - before, received(lab) - tagged);
            println!(
                "of a VLAN: {of_vlan}, to one: {to_vlan}: {fast} by prefixes, {tagged} tagged"
            );
            // multicast of the router's own may be among them
            let wanted = if to_vlan { u64::from(FRAMES) } else { 0 };
            assert!(
                (wanted..wanted + u64::from(FRAMES) / 2).contains(&tagged),
                "{tagged} with a tag"
            );
            (fast > u64::from(FRAMES) / 2).then_some(by_routes)
        });
        assert!(router.run(&["off"]).status.success());
        assert_eq!(by_routes, left(lab, &frames), "{of_vlan} {to_vlan}");
        assert_eq!(by_routes.values().sum::<usize>(), frames.len());
        assert!(router.run(&["on"]).status.success());
        wait_ports(router, &PORTS);
    }
    let routes = router.json(&["routes"]);
    assert_eq!(routes["contradicted"], 0, "{routes}");
    let mut hops = routes["next_hops"].as_array().unwrap().iter();
    let hop = hops.find(|hop| hop["port"] == "wan0.8").unwrap();
    assert_eq!(hop["path"], path, "{hop}");
}

#[test]
fn vlans_in_xdp_leave_with_their_tags() {
    let Some(_machine) = machine() else { return };
    let Some(lab) = lab_of_vlans() else { return };
    let router = start(&lab, "");
    leave_with_their_tags(&lab, &router, "xdp");

    // each is judged by itself
    let nft = |text: &str| {
        let text = format!("flush ruleset\n{text}");
        lab.router().tool_with_input("nft -f -", &text).unwrap();
    };
    let of_vlan = frames(true, true);
    let whole = |what: &str| {
        let there = left(&lab, &of_vlan).values().sum::<usize>();
        assert_eq!(there, of_vlan.len(), "{what}");
    };
    nft("table ip f { chain c {
        type filter hook forward priority 0
        iifname \"lan0.7\" udp dport 9 drop
    }\n}");
    let routes = wait_ports(&router, &["lan0", "wan0", "wan0.8"]);
    let why = kept_at(&routes, "lan0.7");
    assert!(why.contains("chain c of table ip f"), "{why}");
    whole("a rule of the VLAN");
    nft("table netdev f { chain c {
        type filter hook ingress device \"lan0\" priority 0
        udp dport 9 drop
    }\n}");
    let routes = wait_ports(&router, &["wan0", "wan0.8"]);
    let why = kept_at(&routes, "lan0.7");
    assert!(why.contains("looks at its frames at lan0"), "{why}");
    whole("a rule of the device below");
    nft("");
    wait_ports(&router, &PORTS);
    confirm(&lab, &router, &of_vlan);
    whole("no rules");
    // the kernel deletes the routes of what goes down
    ip(&lab, "link set wan0.8 down");
    all_to(&lab, &of_vlan, "no route", None);
    // and a VLAN that goes is nobody's
    ip(&lab, "link del lan0.7");
    wait_ports(&router, &["lan0", "wan0"]);
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let plain = frames(false, true);
    confirm(&lab, &router, &plain);
    assert_eq!(left(&lab, &of_vlan).len(), 0);
    assert_eq!(left(&lab, &plain).values().sum::<usize>(), plain.len());
    router.stop();
}

#[test]
fn vlans_without_xdp_leave_with_their_tags() {
    let Some(_machine) = machine() else { return };
    let Some(lab) = lab_of_vlans() else { return };
    let router = start(&lab, TC);
    leave_with_their_tags(&lab, &router, "tc");
    router.stop();
}
