// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports: drivers, offloads, and what stands in the way.

use std::collections::BTreeMap;

use freeway_api::{PathChoice, PortState, Status};
use freeway_console::{Exit, Stop};
use freeway_daemon::config::{Config, Port};
use freeway_daemon::hooked::{Hooks, Untold};
use freeway_daemon::kinds;
use freeway_kernel::ethtool::Ethtool;
use freeway_kernel::model::{Family, Framing, Link};
use freeway_kernel::netdev::{XdpFeatures, xdp_features};
use freeway_kernel::progs::{self, tcx};
use freeway_kernel::sockets::packet_sockets;
use freeway_kernel::sysctl::Sysctls;
use freeway_kernel::{Mirror, MirrorConfig, hooks};

use super::report::{Report, Severity};

/// ETH_P_ALL, ETH_P_IP and ETH_P_IPV6: what a socket may ask for and see flows.
const SEES_FLOWS: [u16; 3] = [0x0003, 0x0800, 0x86dd];
/// Names of this data plane's own programs begin so.
const OWN: &str = "freeway_";
/// What the kernel says where it cannot be asked goes here.
const AREA: &str = "ports";

/// Looks at every port that forwards, or at those that the configuration names. `asked`: on the command line, so they must
/// be there.
pub fn examine(
    report: &mut Report,
    config: &Config,
    asked: &[String],
    daemon: Option<&Status>,
    functions: &Hooks,
) -> Result<(), Stop> {
    let Some(machine) = Machine::look(report) else {
        return Ok(());
    };
    let links = machine.mirror.links();
    let is_there = |name: &str| machine.mirror.link_by_name(name).is_some();
    if let Some(name) = asked.iter().find(|name| !is_there(name)) {
        let message = format!("there is no port `{name}`; `ip link` shows those there are");
        return Err(Stop::new(Exit::Config, message));
    }
    for words in config.absent_words(is_there) {
        report.advise(
            AREA,
            Severity::Warning,
            words,
            "freeway config check tells the line; ip link shows the ports that there are",
        );
    }
    let named = &config.daemon.interfaces;
    let wanted = |link: &&Link| match named.is_empty() {
        true => machine.forwards(link),
        false => named.contains(&link.name),
    };
    let ports: Vec<_> = links.values().filter(wanted).collect();
    if ports.is_empty() {
        report.advise(
            AREA,
            Severity::Warning,
            "no port forwards",
            "sysctl net.ipv4.ip_forward=1, and net.ipv6.conf.all.forwarding=1 for IPv6",
        );
    }
    for link in ports {
        let served =
            daemon.and_then(|status| status.ports.iter().find(|p| p.ifindex == link.ifindex));
        match served {
            Some(port) => examine_served(report, port),
            None => {
                let settings = config.port.get(&link.name).cloned().unwrap_or_default();
                examine_port(report, &machine, link, &settings);
                examine_taker(report, link, functions);
            }
        }
    }
    examine_sockets(report, &machine.mirror);
    Ok(())
}

/// What is asked once for all ports.
struct Machine {
    mirror: Mirror,
    ethtool: Option<Ethtool>,
    xdp: Option<BTreeMap<u32, XdpFeatures>>,
}

impl Machine {
    fn look(report: &mut Report) -> Option<Machine> {
        let wanted = MirrorConfig {
            conntrack_events: false,
            ..MirrorConfig::default()
        };
        match Mirror::open_with(wanted) {
            Ok(mirror) => Some(Machine {
                mirror,
                ethtool: Ethtool::open().ok(),
                xdp: xdp_features().unwrap_or_default(),
            }),
            Err(error) => {
                let what = "the kernel's network state";
                report.unread(AREA, what, Severity::Problem, &error);
                None
            }
        }
    }

    fn forwards(&self, link: &Link) -> bool {
        let index = i32::try_from(link.ifindex).unwrap_or(-1);
        let netconf = self.mirror.netconf();
        let switched = |family| netconf.get(&(family, index)).and_then(|n| n.forwarding);
        let forwarding = [Family::Ipv4, Family::Ipv6].map(switched);
        link.framing() != Framing::Other && link.up && forwarding.contains(&Some(true))
    }
}

/// A port that a running daemon serves.
fn examine_served(report: &mut Report, port: &freeway_api::Port) {
    let area = format!("port {}", port.name);
    if port.state == PortState::Fast {
        report.add(
            &area,
            Severity::Good,
            "a daemon runs, and this port is fast",
        );
    }
    let severity = match port.state {
        PortState::Down | PortState::Attaching => Severity::Note,
        PortState::Fast | PortState::Kernel => Severity::Warning,
    };
    for reason in &port.reasons {
        report.add(&area, severity, reason.clone());
    }
}

fn examine_port(report: &mut Report, machine: &Machine, link: &Link, settings: &Port) {
    let area = format!("port {}", link.name);
    if settings.path == PathChoice::Kernel {
        report.add(
            &area,
            Severity::Note,
            "the configuration leaves it to the kernel",
        );
        return;
    }
    let links = machine.mirror.links().values();
    if let Some(reason) = kinds::unsupported_among(link, links) {
        report.add(&area, Severity::Warning, reason);
        return;
    }
    let before = report.findings.len();
    if !link.up || !link.running {
        report.add(&area, Severity::Note, "no link");
    }
    examine_kind(report, &area, link, settings);
    examine_driver(report, &area, machine, link);
    examine_programs(report, &area, machine, link);
    let fit = |finding: &super::report::Finding| finding.severity < Severity::Warning;
    if report.findings[before..].iter().all(fit) {
        let driver = machine
            .ethtool
            .as_ref()
            .and_then(|ethtool| ethtool.driver(&link.name).ok());
        let driver = driver.map_or_else(|| "unknown".to_owned(), |driver| driver.name);
        let words = format!("fit for the fast path (driver {driver}, MTU {})", link.mtu);
        report.add(&area, Severity::Good, words);
    }
}

fn examine_kind(report: &mut Report, area: &str, link: &Link, settings: &Port) {
    if let Some(reason) = kinds::without_xdp(link, settings.wire_true) {
        report.add(area, Severity::Note, reason);
    }
    if let Some(reason) = kinds::bridge_netfilter(link, &Sysctls::read()) {
        report.add(area, Severity::Warning, reason);
    }
}

fn examine_driver(report: &mut Report, area: &str, machine: &Machine, link: &Link) {
    let name = &link.name;
    if let Some(xdp) = &machine.xdp
        && kinds::without_xdp(link, true).is_none()
    {
        let features = xdp.get(&link.ifindex).copied().unwrap_or_default();
        if !features.has(XdpFeatures::BASIC | XdpFeatures::REDIRECT) {
            report.advise(
                area,
                Severity::Note,
                "its driver has no native XDP with redirection, so tc forwards for it, which is \
                 slower",
                "use a port whose driver has it",
            );
        }
    }
    let features = machine
        .ethtool
        .as_ref()
        .and_then(|ethtool| ethtool.features(name).ok())
        .unwrap_or_default();
    let on = |feature: &str| features.get(feature) == Some(&true);
    if on("rx-lro") {
        report.advise(
            area,
            Severity::Warning,
            "large receive offload merges frames before XDP sees them",
            format!("ethtool -K {name} lro off"),
        );
    }
    if let Some(switch) = kinds::hidden_tags(on).filter(|_| link.kind.is_none()) {
        report.advise(
            area,
            Severity::Note,
            "the hardware hides VLAN tags from XDP: tc forwards what comes in, which is slower",
            format!("ethtool -K {name} {switch} off"),
        );
    }
}

/// Programs, filters, queueing disciplines and hooks that must see what passes.
fn examine_programs(report: &mut Report, area: &str, machine: &Machine, link: &Link) {
    let keeps = "leave the port to it and it stays in the kernel, or remove it";
    let mut found = Vec::new();
    for qdisc in machine.mirror.qdiscs().values() {
        // the latter holds filters only
        let plain = |kind: &str| kinds::UNSHAPED.contains(&kind) || kind == "ingress";
        if qdisc.ifindex == link.ifindex && !plain(&qdisc.kind) {
            let words = format!(
                "queueing discipline {} shapes or classifies what it sends, which goes through tc",
                qdisc.kind
            );
            report.add(area, Severity::Note, words);
        }
    }
    let filters = machine.mirror.filters().get(&link.ifindex);
    for filter in filters.into_iter().flatten().filter(|f| f.is_hooked()) {
        let own = filter
            .name
            .as_deref()
            .is_some_and(|name| name.starts_with(OWN));
        if !own {
            let words = format!("tc filter {}, priority {}", filter.kind, filter.priority);
            found.push(words);
        }
    }
    if let Ok(Some(tcx)) = tcx(link.ifindex) {
        for program in tcx.ingress.iter().chain(&tcx.egress) {
            if !program.name.starts_with(OWN) {
                found.push(format!("tcx program {} (id {})", program.name, program.id));
            }
        }
    }
    for program in &link.xdp {
        let name = progs::name(program.id);
        if !name.starts_with(OWN) {
            let words = format!(
                "XDP program {name} (id {}) has the port, so tc forwards for it",
                program.id
            );
            report.add(area, Severity::Note, words);
        }
    }
    for hook in hooks::ingress_hooks(&link.name)
        .ok()
        .flatten()
        .unwrap_or_default()
    {
        if hook.is_foreign() {
            found.push(format!("hooked function {} {}", hook.function, hook.module));
        }
    }
    for words in found {
        report.advise(area, Severity::Warning, words, keeps);
    }
}

/// Who has a port's frames ahead of IP, from whatever network namespace; of bridges, bonds and VRFs links tell.
fn examine_taker(report: &mut Report, link: &Link, functions: &Hooks) {
    let words = match functions.taker(link.ifindex) {
        Ok(Some(function)) if link.master.is_none() => format!(
            "{function}() takes some of its frames: nothing is dropped or forwarded by prefixes in XDP there"
        ),
        Err(Untold) if report.complete => {
            "this kernel does not tell who takes its frames ahead of IP".into()
        }
        _ => return,
    };
    report.add(&format!("port {}", link.name), Severity::Note, words);
}

/// Packet sockets: what their filters accept must pass the kernel.
fn examine_sockets(report: &mut Report, mirror: &Mirror) {
    for socket in packet_sockets().unwrap_or_default() {
        if !SEES_FLOWS.contains(&socket.protocol) {
            continue;
        }
        let port = socket.ifindex.and_then(|index| mirror.links().get(&index));
        let area = port.map_or_else(|| AREA.to_owned(), |link| format!("port {}", link.name));
        let filter = match socket.filter {
            Some(_) => "what its filter accepts goes through tc instead of XDP",
            None => "it has no filter, so everything it can see goes through tc instead of XDP",
        };
        let words = format!(
            "a packet socket listens (inode {}, as tcpdump's does): {filter}",
            socket.inode
        );
        report.add(&area, Severity::Note, words);
    }
}
