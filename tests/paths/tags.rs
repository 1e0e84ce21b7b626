// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets without flows of VLANs, which leave with the tags that they are to have.

use std::net::Ipv4Addr;

use freeway_lab::Lab;
use freeway_testkit::*;
use serde_json::Value;

use crate::strangers::{PATIENCE, client, confirm, ip, left, packet, routed, wait};

pub const PORTS: [&str; 4] = ["lan0", "wan0", "lan0.7", "wan0.8"];
pub const FRAMES: u16 = 100;

/// A VLAN at each port, and a neighbour behind each exit; false, and says so: this kernel has no VLANs.
pub fn add_vlans(lab: &Lab) -> bool {
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
        return false;
    }
    ip(lab, "address add 10.7.0.1/24 dev lan0.7");
    ip(lab, "address add 10.8.0.1/24 dev wan0.8");
    let neighbour = "10.8.0.2 lladdr 02:00:00:00:09:10 nud permanent dev wan0.8";
    ip(lab, &format!("neigh replace {neighbour}"));
    ip(lab, "route add 203.0.113.0/24 via 10.8.0.2");
    ip(lab, "route add 203.0.114.0/24 via 198.51.100.2");
    true
}

pub fn wait_ports(router: &Router, ports: &[&str]) -> Value {
    wait(router, "prefix paths", |routes| {
        let there = routes["ports"].as_array().unwrap();
        let all = ports.iter().all(|port| there.contains(&(*port).into()));
        routes["ipv4"]["active"] == true && there.len() == ports.len() && all
    })
}

pub fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()
}

/// From the VLAN or beside it, to one or beside it.
pub fn frames(of_vlan: bool, to_vlan: bool) -> Vec<Vec<u8>> {
    let network = if to_vlan { 113 } else { 114 };
    let dst = |n: u16| Ipv4Addr::new(203, 0, network, (n % 250) as u8);
    let frame = |n: u16| match of_vlan {
        true => tagged(&packet(Ipv4Addr::new(10, 7, 0, 2), dst(n), n)),
        false => packet(client(), dst(n), n),
    };
    (0..FRAMES).map(frame).collect()
}

pub fn all_kinds() -> impl Iterator<Item = (bool, bool)> {
    [false, true]
        .into_iter()
        .flat_map(|of| [false, true].map(|to| (of, to)))
}

/// Frames that the server's VLAN has received.
pub fn received(lab: &Lab) -> u64 {
    let shown = lab.server().tool("ip -s -j link show dev eth0.8").unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

pub fn leave_with_their_tags(lab: &Lab, router: &Router, path: &str) {
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
