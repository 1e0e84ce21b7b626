// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports: drivers, offloads, and what stands in the way.

use freeway_kernel::model::{Family, Link};
use freeway_kernel::{Mirror, MirrorConfig};

use super::device::Device;
use super::{Report, Severity};
use crate::api::{self, PortState, Status};
use crate::config::{Config, PathChoice, Port};
use crate::exit::{Exit, Stop};

/// Queueing disciplines that neither shape nor classify: XDP may pass them by.
const PLAIN_QDISCS: [&str; 7] = [
    "noqueue",
    "pfifo",
    "bfifo",
    "pfifo_fast",
    "fq_codel",
    "fq",
    "mq",
];

/// Looks at every port that forwards, or at those that the configuration names.
pub fn examine(report: &mut Report, config: &Config, daemon: Option<&Status>) -> Result<(), Stop> {
    let wanted = MirrorConfig {
        conntrack_events: false,
        ..MirrorConfig::default()
    };
    let mirror = match Mirror::open_with(wanted) {
        Ok(mirror) => mirror,
        Err(error) => {
            report.add(
                "ports",
                Severity::Problem,
                format!("the kernel's network state cannot be read: {error}"),
            );
            return Ok(());
        }
    };
    for name in config.daemon.interfaces.iter().chain(config.port.keys()) {
        if !mirror.links().values().any(|link| link.name == *name) {
            return Err(Stop::new(
                Exit::Config,
                format!("there is no port `{name}`; `ip link` shows those there are"),
            ));
        }
    }
    let named = &config.daemon.interfaces;
    let ports: Vec<_> = mirror
        .links()
        .values()
        .filter(|link| {
            if named.is_empty() {
                forwards(&mirror, link)
            } else {
                named.contains(&link.name)
            }
        })
        .collect();
    if ports.is_empty() {
        report.advise(
            "ports",
            Severity::Warning,
            "no port forwards",
            "sysctl net.ipv4.ip_forward=1, and net.ipv6.conf.all.forwarding=1 for IPv6",
        );
    }
    for link in ports {
        let settings = config.port.get(&link.name).cloned().unwrap_or_default();
        match daemon.and_then(|status| {
            status
                .ports
                .iter()
                .find(|port| port.ifindex == link.ifindex)
        }) {
            Some(port) => served(report, port),
            None => examine_port(report, &mirror, link, &settings),
        }
    }
    sniffers(report, &mirror);
    Ok(())
}

fn forwards(mirror: &Mirror, link: &Link) -> bool {
    let index = i32::try_from(link.ifindex).unwrap_or(-1);
    let switched = |family| {
        mirror
            .netconf()
            .get(&(family, index))
            .and_then(|netconf| netconf.forwarding)
            .unwrap_or(false)
    };
    link.is_ethernet() && link.up && (switched(Family::Ipv4) || switched(Family::Ipv6))
}

/// A port that a running daemon serves.
fn served(report: &mut Report, port: &api::Port) {
    let area = format!("port {}", port.name);
    if port.state == PortState::Fast {
        report.add(&area, Severity::Good, "a daemon runs and this port is fast");
    }
    for reason in &port.reasons {
        let severity = if port.state == PortState::Down {
            Severity::Note
        } else {
            Severity::Warning
        };
        report.add(&area, severity, reason.clone());
    }
}

fn examine_port(report: &mut Report, mirror: &Mirror, link: &Link, settings: &Port) {
    let area = format!("port {}", link.name);
    let device = Device::ask(&link.name).unwrap_or_default();
    if settings.path == PathChoice::Kernel {
        report.add(
            &area,
            Severity::Note,
            "the configuration leaves it to the kernel",
        );
        return;
    }
    if !link.is_ethernet() {
        report.add(
            &area,
            Severity::Warning,
            "no Ethernet framing: its flows stay in the kernel",
        );
        return;
    }
    let before = report.findings.len();
    if !link.up || !link.running {
        report.add(&area, Severity::Note, "no link");
    }
    kind(report, &area, link, settings, &device);
    offloads(report, &area, link, &device);
    for qdisc in mirror
        .qdiscs()
        .values()
        .filter(|qdisc| qdisc.ifindex == link.ifindex)
    {
        if !PLAIN_QDISCS.contains(&qdisc.kind.as_str())
            && qdisc.kind != "clsact"
            && qdisc.kind != "ingress"
        {
            let words = format!(
                "queueing discipline {} shapes or classifies what it sends",
                qdisc.kind
            );
            report.advise(
                &area,
                Severity::Warning,
                words,
                "flows to it stay in the kernel, so that it sees them",
            );
        }
    }
    for filter in mirror.filters().get(&link.ifindex).into_iter().flatten() {
        let own = filter
            .name
            .as_deref()
            .is_some_and(|name| name.starts_with("freeway_"));
        if !own {
            let words = format!("tc filter {} (priority {})", filter.kind, filter.priority);
            report.advise(
                &area,
                Severity::Warning,
                words,
                "its flows stay in the kernel, so that the filter sees them",
            );
        }
    }
    for program in &link.xdp {
        report.advise(
            &area,
            Severity::Warning,
            format!("an XDP program (id {}) is attached", program.id),
            "detach it, for there is room for one, or leave the port to it: it stays in the kernel",
        );
    }
    if link.master.is_some() {
        report.add(
            &area,
            Severity::Note,
            "part of a bridge, bond or VRF: what is learned there is limited",
        );
    }
    if report.findings[before..]
        .iter()
        .all(|finding| finding.severity < Severity::Warning)
    {
        let driver = device
            .driver
            .as_deref()
            .or(link.kind.as_deref())
            .unwrap_or("unknown");
        report.add(
            &area,
            Severity::Good,
            format!("fit for the fast path (driver {driver}, MTU {})", link.mtu),
        );
    }
}

fn kind(report: &mut Report, area: &str, link: &Link, settings: &Port, device: &Device) {
    let name = &link.name;
    match link.kind.as_deref() {
        Some("veth") if !settings.wire_true => report.advise(
            area,
            Severity::Warning,
            "a veth: its peer may send merged frames and unfinished checksums, which no wire carries, so XDP leaves it alone",
            format!(
                "if the peer is wire-true (ethtool -K PEER tso off gso off tx off), say so in the configuration: \
                 [port.{name}] wire_true = true"
            ),
        ),
        Some("veth") if device.gro == Some(false) => report.advise(
            area,
            Severity::Note,
            "GRO is off: redirects to it need a program on it, which Freeway attaches",
            format!("ethtool -K {name} gro on"),
        ),
        Some(kind @ ("vlan" | "bridge" | "bond" | "vrf" | "macvlan" | "wireguard" | "vxlan")) => report.add(
            area,
            Severity::Note,
            format!("a {kind} device: flows are taken over at the physical ports below it, if anywhere"),
        ),
        _ => {}
    }
}

fn offloads(report: &mut Report, area: &str, link: &Link, device: &Device) {
    let name = &link.name;
    if device.lro == Some(true) {
        report.advise(
            area,
            Severity::Warning,
            "large receive offload merges frames before XDP",
            format!("ethtool -K {name} lro off"),
        );
    }
    if device.rx_vlan == Some(true) && link.kind.is_none() {
        report.advise(
            area,
            Severity::Note,
            "the hardware hides VLAN tags from XDP; this matters if VLANs are used on it",
            format!("ethtool -K {name} rxvlan off"),
        );
    }
}

/// Packet sockets: what they listen to must pass the kernel.
fn sniffers(report: &mut Report, mirror: &Mirror) {
    let text = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap_or_default();
    for (ifindex, count) in sockets(&text) {
        let place = match mirror.links().get(&ifindex) {
            Some(link) => format!("port {}", link.name),
            None => "ports".into(),
        };
        let noun = if count == 1 {
            "a packet socket listens"
        } else {
            "packet sockets listen"
        };
        report.add(
            &place,
            Severity::Note,
            format!(
                "{noun} to all protocols (tcpdump?): what its filter accepts stays in the kernel"
            ),
        );
    }
}

/// Interfaces (0 for all) and numbers of sockets that listen to ETH_P_ALL or IP.
fn sockets(text: &str) -> std::collections::BTreeMap<u32, u32> {
    let mut found = std::collections::BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (Some(&protocol), Some(Ok(ifindex))) =
            (fields.get(3), fields.get(4).map(|field| field.parse()))
        else {
            continue;
        };
        if matches!(protocol, "0003" | "0800" | "86dd") {
            *found.entry(ifindex).or_default() += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_sockets_are_read() {
        let text = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                    0000000000000000 3      3    0003   2     1 0      0      1234\n\
                    0000000000000000 3      3    88cc   2     1 0      0      1235\n\
                    0000000000000000 3      2    0800   0     1 0      0      1236\n";
        assert_eq!(
            sockets(text).into_iter().collect::<Vec<_>>(),
            [(0, 1), (2, 1)]
        );
        assert!(sockets("").is_empty());
    }
}
