// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernels of a lab say.

use freeway_kernel::conntrack::{ConnectionFilter, Conntrack};
use freeway_kernel::model::Connection;
use freeway_lab::{Lab, Netns, Port};
use serde_json::Value;

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
    ports.into_iter().map(dropped_at).sum()
}

/// The same of one port.
pub fn dropped_at(port: &Port) -> u64 {
    // a test may have taken the namespace's name; an engine has given the device another one
    let shown = ["", "d"].into_iter().filter_map(|of_engine| {
        let line = format!("ip -j -s link show dev {of_engine}{}", port.name);
        port.netns.tool(&line).ok()
    });
    let dropped = |text: String| {
        let link: Value = serde_json::from_str(&text).unwrap();
        let count = |way: &str| link[0]["stats64"][way]["dropped"].as_u64().unwrap();
        count("rx") + count("tx")
    };
    shown.map(dropped).sum()
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
