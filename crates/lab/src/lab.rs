// SPDX-License-Identifier: MIT OR Apache-2.0
//! Building a topology, and taking it down again.

use std::fmt::Write;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::frame::{
    Direction, FlowSpec, MAC_CLIENT, MAC_LAN, MAC_SERVER, MAC_WAN, Proto, mac_text,
};
use crate::limit::Raised;
use crate::netns::Netns;
use crate::options::{BRIDGE, Options, PPP};
use crate::port::{OFFLOADS_OF_A_WIRE, Port};
use crate::pppoe::{self, Session};
use crate::reference::{Reference, ReferenceGuard};
use crate::ruleset::{FORWARDED, ruleset};
use crate::space::{Run, Space};
use crate::topology::{Family, Topology, offset};
use crate::wire::{self, Wire};
use crate::{routes, signal};

/// How many client addresses flows may need: one for every 32,768.
pub const CLIENT_ADDRESSES: u32 = 32;

/// A topology that exists. Dropping it removes everything.
#[derive(Debug)]
pub struct Lab {
    topology: &'static Topology,
    options: Options,
    ports: Ports,
    wires: Vec<Wire>,
    _sessions: Vec<Session>,
    // Last, for fields are dropped in order and the namespaces go when everything else has gone.
    hosts: Hosts,
    _conntrack_max: Option<Raised>,
}

#[derive(Debug)]
struct Ports {
    client: Port,
    lan: Port,
    wan: Port,
    server: Port,
}

#[derive(Debug)]
struct Hosts {
    client: Space,
    router: Space,
    server: Space,
}

impl Hosts {
    fn all(&self) -> [&Netns; 3] {
        [&self.client, &self.router, &self.server]
    }
}

impl Lab {
    /// Attaches a bare program to the router's ports, which must have no XDP program.
    pub fn attach(&self, reference: Reference) -> Result<ReferenceGuard, LabError> {
        reference.attach_at(self.lan_port(), self.wan_port())
    }

    /// Builds a topology. Leftovers of killed runs are removed first.
    pub fn build(topology: &'static Topology, options: Options) -> Result<Lab, LabError> {
        options.check(topology)?;
        let run = Run::begin()?;
        let hosts = Hosts {
            client: run.space("client")?,
            router: run.space("router")?,
            server: run.space("server")?,
        };
        set_sysctls(&hosts, topology)?;
        create_links(&hosts, &options)?;
        set_offloads(&hosts, &options)?;
        let wires = if options.wires {
            vec![Wire::connect(&hosts.client)?, Wire::connect(&hosts.server)?]
        } else {
            Vec::new()
        };
        create_vlans(&hosts, &options)?;
        create_bridge(&hosts.router, &options)?;
        let sessions = open_sessions(&hosts, &options)?;
        set_addresses(&hosts, topology, &options)?;
        load_ruleset(&hosts.router, topology, &options)?;
        wait_for_carrier(&hosts.all())?;
        let raise = |entries| signal::raise_limit(run.0, entries);
        let conntrack_max = options.conntrack_max.map(raise).transpose()?;
        let port = |netns: &Netns, name: &str, mac| {
            let ifindex = netns.ifindex(name)?;
            Ok::<_, LabError>(Port {
                netns: netns.clone(),
                name: name.into(),
                ifindex,
                mac,
            })
        };
        let ports = Ports {
            client: port(&hosts.client, "eth0", MAC_CLIENT)?,
            lan: port(&hosts.router, "lan0", MAC_LAN)?,
            wan: port(&hosts.router, "wan0", MAC_WAN)?,
            server: port(&hosts.server, "eth0", MAC_SERVER)?,
        };
        let server = topology.family.plan().server;
        if options.beyond.is_some() && options.routes == 0 {
            let line = format!("ip route add default via {server}");
            hosts.router.tool(&line)?;
        }
        if options.routes > 0 {
            routes::load(&ports.wan, server, options.routes)?;
        }
        Ok(Lab {
            topology,
            options,
            ports,
            wires,
            _sessions: sessions,
            hosts,
            _conntrack_max: conntrack_max,
        })
    }

    /// What was built.
    pub fn topology(&self) -> &'static Topology {
        self.topology
    }

    /// How it was built.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The client's namespace.
    pub fn client(&self) -> &Netns {
        &self.hosts.client
    }

    /// The router's namespace.
    pub fn router(&self) -> &Netns {
        &self.hosts.router
    }

    /// The server's namespace.
    pub fn server(&self) -> &Netns {
        &self.hosts.server
    }

    /// The client's port, `eth0`.
    pub fn client_port(&self) -> &Port {
        &self.ports.client
    }

    /// The router's port to the client, `lan0`, also where the LAN is a VLAN or a bridge.
    pub fn lan_port(&self) -> &Port {
        &self.ports.lan
    }

    /// The router's port to the server, `wan0`, also where the WAN is a PPPoE session.
    pub fn wan_port(&self) -> &Port {
        &self.ports.wan
    }

    /// The server's port, `eth0`.
    pub fn server_port(&self) -> &Port {
        &self.ports.server
    }

    /// Gives the router a synthetic full table's first so many routes by the server, as [`Options::routes`] does before anything
    /// runs there. They are all there when it returns.
    pub fn load_routes(&self, routes: u32) -> Result<(), LabError> {
        let server = self.topology.family.plan().server;
        routes::load(&self.ports.wan, server, routes)
    }

    /// The router's interface with the LAN's address: `lan0`, the VLAN on it, or the bridge that it is a port of.
    pub fn lan_interface(&self) -> String {
        self.options.lan()
    }

    /// The router's interface with the WAN's address: `wan0`, or the PPP device over it.
    pub fn wan_interface(&self) -> String {
        self.options.wan().into()
    }

    /// The router's interfaces that the Freeway daemon is to serve: its ports, and what has the addresses instead.
    pub fn interfaces(&self) -> Vec<String> {
        let mut names = vec![self.lan_port().name.clone(), self.wan_port().name.clone()];
        for name in [self.lan_interface(), self.wan_interface()] {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The port at which frames of a direction begin.
    pub fn sender(&self, direction: Direction) -> &Port {
        match direction {
            Direction::Forward => self.client_port(),
            Direction::Reply => self.server_port(),
        }
    }

    /// The port at which they end.
    pub fn receiver(&self, direction: Direction) -> &Port {
        match direction {
            Direction::Forward => self.server_port(),
            Direction::Reply => self.client_port(),
        }
    }

    /// The router's ports at which they come in, and go out.
    pub(crate) fn way(&self, direction: Direction) -> [&Port; 2] {
        match direction {
            Direction::Forward => [self.lan_port(), self.wan_port()],
            Direction::Reply => [self.wan_port(), self.lan_port()],
        }
    }

    /// Bytes of L3 that the flow table has left to the filter, see [`Options::flowtable`].
    pub fn filtered_bytes(&self) -> Result<u64, LabError> {
        let line = format!("nft list counter inet {FORWARDED}");
        let text = self.router().tool(&line)?;
        counted(&text)
            .ok_or_else(|| LabError::Incomplete(format!("`{line}` names no bytes: {text}")))
    }

    /// All ports of the hosts, those of their wires included.
    pub(crate) fn host_ports(&self) -> impl Iterator<Item = &Port> {
        let wires = self.wires.iter().flat_map(Wire::ports);
        [self.client_port(), self.server_port()]
            .into_iter()
            .chain(wires)
    }

    /// The Freeway daemon's configuration for the router: a plain veth is not fit for XDP, these are.
    /// `keys` are further lines for each port.
    pub fn config_toml(&self, keys: &str) -> String {
        ports_toml(&self.interfaces(), keys)
    }

    /// The same, and what is configured beside the ports; they have prefix paths if that asks for them.
    pub fn config_with(&self, keys: &str, extra: &str) -> String {
        let routes = extra.contains("routes = true");
        let ports = self.config_toml(&format!("{keys}routes = {routes}\n"));
        format!("{ports}\n{extra}")
    }

    /// Flows from the client to the server.
    pub fn flows(&self, proto: Proto, flows: u32, frame_bytes: u32) -> FlowSpec {
        let plan = self.topology.family.plan();
        FlowSpec {
            proto,
            flows,
            frame_bytes,
            direction: Direction::Forward,
            mac_source: MAC_CLIENT,
            mac_destination: MAC_LAN,
            near: plan.client,
            far: plan.server,
            vlan: self.options.vlan,
            beyond: self.options.beyond,
            headroom: headroom(self.options.pppoe.is_some()),
            ..FlowSpec::default()
        }
    }

    /// What the server sends for the same flows: to the client, or to the router where that masquerades. The
    /// masquerade keeps the ports of these flows, for no two differ in the source address alone.
    pub fn reply_flows(&self, proto: Proto, flows: u32, frame_bytes: u32) -> FlowSpec {
        let plan = self.topology.family.plan();
        FlowSpec {
            direction: Direction::Reply,
            mac_source: MAC_SERVER,
            mac_destination: MAC_WAN,
            near: if self.topology.masquerade {
                plan.wan
            } else {
                plan.client
            },
            near_fixed: self.topology.masquerade,
            vlan: None,
            beyond: None,
            headroom: headroom(self.options.vlan.is_some()),
            ..self.flows(proto, flows, frame_bytes)
        }
    }
}

/// The Freeway daemon's configuration of ports that a wire ends at.
pub(crate) fn ports_toml(interfaces: &[String], keys: &str) -> String {
    let keys = of_flows(keys);
    let interfaces = interfaces.iter();
    interfaces
        .map(|name| format!("[port.\"{name}\"]\nwire_true = true\n{keys}\n"))
        .collect()
}

/// Keys of a port, without prefix paths unless they say so: what a lab is for are flows.
pub(crate) fn of_flows(keys: &str) -> String {
    match keys.contains("routes = ") {
        true => keys.to_owned(),
        false => format!("routes = false\n{keys}"),
    }
}

/// Memory ahead of a frame that the router makes longer: the octets of a session's header, and more than those of a tag, so that
/// addresses stay as aligned as without.
fn headroom(grows: bool) -> u8 {
    if grows { pppoe::HEADER_BYTES as u8 } else { 0 }
}

fn set_sysctls(hosts: &Hosts, topology: &Topology) -> Result<(), LabError> {
    for netns in hosts.all() {
        for scope in ["all", "default"] {
            let conf = |key: &str| format!("net/ipv6/conf/{scope}/{key}");
            match topology.family {
                Family::Ipv4 => netns.sysctl(&conf("disable_ipv6"), "1")?,
                Family::Ipv6 => {
                    netns.sysctl(&conf("accept_dad"), "0")?;
                    netns.sysctl(&conf("accept_ra"), "0")?;
                    netns.sysctl(&conf("router_solicitations"), "0")?;
                }
            }
        }
        // a host that waits too long for an acknowledgement would send with another flow label, as another sender does:
        // sk_rethink_txhash(); Linux 5.18 and later have the switch
        let _ = netns.sysctl("net/core/txrehash", "0");
    }
    match topology.family {
        Family::Ipv4 => hosts.router.sysctl("net/ipv4/ip_forward", "1"),
        Family::Ipv6 => hosts.router.sysctl("net/ipv6/conf/all/forwarding", "1"),
    }
}

pub(crate) fn batch(netns: &Netns, commands: &str) -> Result<(), LabError> {
    netns.tool_with_input("ip -batch -", commands).map(drop)
}

/// What `ip link add` is told for so many queues; nothing for one, which is its default.
pub(crate) fn queue_words(queues: u32) -> String {
    match queues {
        1 => String::new(),
        _ => format!(" numtxqueues {queues} numrxqueues {queues}"),
    }
}

fn create_links(hosts: &Hosts, options: &Options) -> Result<(), LabError> {
    let wan_mtu = options.mtu + options.pppoe.map_or(0, |_| pppoe::HEADER_BYTES);
    let queues = queue_words(options.queues);
    let mut commands = String::new();
    for (port, mac, peer, peer_mac, mtu) in [
        ("lan0", MAC_LAN, &hosts.client, MAC_CLIENT, options.mtu),
        ("wan0", MAC_WAN, &hosts.server, MAC_SERVER, wan_mtu),
    ] {
        let (mac, peer_mac) = (mac_text(mac), mac_text(peer_mac));
        let eth0 = format!("eth0 mtu {mtu} address {peer_mac}");
        let (far, near) = if options.wires {
            wire::create(peer, &eth0, mtu)?;
            (wire::FAR, format!("mtu {mtu}"))
        } else {
            ("eth0", format!("mtu {mtu} address {peer_mac}{queues}"))
        };
        let _ = writeln!(
            commands,
            "link add {port} mtu {mtu} address {mac}{queues} type veth peer name {far} {near} netns {}",
            peer.name()
        );
    }
    batch(&hosts.router, &commands)
}

fn set_offloads(hosts: &Hosts, options: &Options) -> Result<(), LabError> {
    for netns in [&hosts.client, &hosts.server] {
        netns.tool(&format!("ethtool -K eth0 {OFFLOADS_OF_A_WIRE}"))?;
    }
    let gro = if options.router_gro { "on" } else { "off" };
    let tx = if options.router_tx_checksum {
        "on"
    } else {
        "off"
    };
    for port in ["lan0", "wan0"] {
        let line = format!("ethtool -K {port} tx {tx} tso off gso off txvlan off gro {gro}");
        hosts.router.tool(&line)?;
    }
    Ok(())
}

/// A VLAN's interface is there; it goes up with its addresses.
fn create_vlans(hosts: &Hosts, options: &Options) -> Result<(), LabError> {
    let Some(id) = options.vlan else {
        return Ok(());
    };
    for (netns, port) in [(&hosts.client, "eth0"), (&hosts.router, "lan0")] {
        let name = options.tagged(port);
        let line = format!("ip link add link {port} name {name} type vlan id {id}");
        let without = "this kernel has no VLANs (CONFIG_VLAN_8021Q)";
        add_device(netns, &line, without)?;
    }
    batch(&hosts.router, "link set lan0 up\n")?;
    batch(&hosts.client, "link set eth0 up\n")
}

/// `without` says what a kernel lacks that does not know the type.
fn add_device(netns: &Netns, line: &str, without: &str) -> Result<(), LabError> {
    let added = netns.tool(line).map(drop);
    added.map_err(|error| match &error {
        LabError::Command { stderr, .. } if stderr.contains("Unknown device type") => {
            LabError::Unsupported(without.into())
        }
        _ => error,
    })
}

/// A bridge with the LAN's port; it goes up with its address.
fn create_bridge(router: &Netns, options: &Options) -> Result<(), LabError> {
    if !options.bridge {
        return Ok(());
    }
    let (mtu, mac) = (options.mtu, mac_text(MAC_LAN));
    let line = format!("ip link add {BRIDGE} mtu {mtu} address {mac} type bridge");
    add_device(router, &line, "this kernel has no bridges (CONFIG_BRIDGE)")?;
    // what is bridged is no business of the router's rules
    router.show_bridged(false);
    batch(
        router,
        &format!("link set lan0 master {BRIDGE}\nlink set lan0 up\n"),
    )
}

/// The WAN's session, at both ends; the PPP devices go up with their addresses.
fn open_sessions(hosts: &Hosts, options: &Options) -> Result<Vec<Session>, LabError> {
    let Some(number) = options.pppoe else {
        return Ok(Vec::new());
    };
    let ends = [
        (&hosts.router, "wan0", MAC_SERVER),
        (&hosts.server, "eth0", MAC_WAN),
    ];
    let ends = ends.into_iter().map(|(netns, port, peer)| {
        batch(netns, &format!("link set {port} up\n"))?;
        let session = Session::open(netns, port, number, peer, PPP)?;
        batch(netns, &format!("link set {PPP} mtu {}\n", options.mtu))?;
        Ok(session)
    });
    ends.collect()
}

fn load_ruleset(router: &Netns, topology: &Topology, options: &Options) -> Result<(), LabError> {
    let load = |options: &Options| match ruleset(topology, options) {
        Some(text) => router.tool_with_input("nft -f -", &text).map(drop),
        None => Ok(()),
    };
    let loaded = load(options);
    if loaded.is_err() && options.flowtable {
        let without = Options {
            flowtable: false,
            ..options.clone()
        };
        if load(&without).is_ok() {
            let what = "this kernel has no flow tables (CONFIG_NF_FLOW_TABLE_INET, CONFIG_NFT_FLOW_OFFLOAD)";
            return Err(LabError::Unsupported(what.into()));
        }
    }
    loaded
}

/// The bytes of a counter as nft lists it.
fn counted(listing: &str) -> Option<u64> {
    let mut words = listing.split_whitespace();
    words.find(|word| *word == "bytes")?;
    words.next()?.parse().ok()
}

fn set_addresses(hosts: &Hosts, topology: &Topology, options: &Options) -> Result<(), LabError> {
    let plan = topology.family.plan();
    let len = plan.prefix_len;
    let (lan, wan) = (options.lan(), options.wan());
    let (eth0, uplink) = (options.tagged("eth0"), options.dialled("eth0"));
    let nodad = match topology.family {
        Family::Ipv4 => "",
        Family::Ipv6 => " nodad",
    };
    let mut client = format!(
        "link set lo up\naddress add {}/{len} dev {eth0}{nodad}\n",
        plan.client
    );
    for i in 1..CLIENT_ADDRESSES {
        let address = offset(plan.client, i);
        // Deprecated, so that the client's own connections come from the first address.
        let _ = writeln!(
            client,
            "address add {address}/{len} dev {eth0}{nodad} preferred_lft 0"
        );
    }
    let mut router = format!(
        "link set lo up\naddress add {}/{len} dev {lan}{nodad}\naddress add {}/{len} dev {wan}{nodad}\n\
         link set {lan} up\nlink set {wan} up\n",
        plan.lan, plan.wan
    );
    let mut server = format!(
        "link set lo up\naddress add {}/{len} dev {uplink}{nodad}\nlink set {uplink} up\n",
        plan.server
    );
    let _ = writeln!(
        client,
        "link set {eth0} up\nroute add default via {}",
        plan.lan
    );
    if !topology.masquerade {
        // Behind a masquerade the server sees the router only; a route would hide what leaks.
        let _ = writeln!(server, "route add default via {}", plan.wan);
    }
    if options.static_neighbours {
        let neighbour = |address: IpAddr, mac, dev: &str| {
            format!(
                "neighbour replace {address} lladdr {} nud permanent dev {dev}\n",
                mac_text(mac)
            )
        };
        client.push_str(&neighbour(plan.lan, MAC_LAN, &eth0));
        // a PPP device has no neighbours
        if options.pppoe.is_none() {
            server.push_str(&neighbour(plan.wan, MAC_WAN, "eth0"));
            router.push_str(&neighbour(plan.server, MAC_SERVER, "wan0"));
        }
        for i in 0..CLIENT_ADDRESSES {
            router.push_str(&neighbour(offset(plan.client, i), MAC_CLIENT, &lan));
        }
    }
    batch(&hosts.client, &client)?;
    batch(&hosts.router, &router)?;
    batch(&hosts.server, &server)
}

/// The kernel announces a veth's carrier from a work queue, some time after both ends are up.
pub(crate) fn wait_for_carrier(hosts: &[&Netns]) -> Result<(), LabError> {
    let patience = Instant::now() + Duration::from_secs(60);
    for netns in hosts {
        while netns
            .tool("ip -o link show up type veth")?
            .lines()
            .any(|link| !link.contains("state UP"))
        {
            if Instant::now() > patience {
                return Err(LabError::Incomplete(format!(
                    "a port in {} has no carrier",
                    netns.name()
                )));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let listing =
            "table inet filter {\n\tcounter forwarded {\n\t\tpackets 12 bytes 18168\n\t}\n}\n";
        assert_eq!(counted(listing), Some(18168));
        assert_eq!(counted("table inet filter {\n}\n"), None);
    }

    #[test]
    fn interfaces_with_addresses() {
        let plain = Options::default;
        let names = |options: Options| {
            let hosts = [options.tagged("eth0"), options.dialled("eth0").into()];
            [&[options.lan(), options.wan().into()], &hosts[..]].concat()
        };
        assert_eq!(names(plain()), ["lan0", "wan0", "eth0", "eth0"]);
        let vlan = Options {
            vlan: Some(5),
            ..plain()
        };
        assert_eq!(names(vlan), ["lan0.5", "wan0", "eth0.5", "eth0"]);
        let bridge = Options {
            bridge: true,
            ..plain()
        };
        assert_eq!(names(bridge), ["br0", "wan0", "eth0", "eth0"]);
        let pppoe = Options {
            pppoe: Some(7),
            ..plain()
        };
        assert_eq!(names(pppoe), ["lan0", "ppp0", "eth0", "ppp0"]);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let plain = Options::default;
        let nat = Topology::parse("nat").unwrap();
        assert!(plain().check(nat).is_ok());
        let (vlan, pppoe) = (Some(5), Some(7));
        for (options, words) in [
            (
                Options {
                    vlan,
                    bridge: true,
                    ..plain()
                },
                "a VLAN and a bridge",
            ),
            (
                Options {
                    vlan,
                    wires: true,
                    ..plain()
                },
                "a VLAN's frames",
            ),
            (
                Options {
                    pppoe,
                    wires: true,
                    ..plain()
                },
                "a session's frames",
            ),
            (
                Options {
                    pppoe,
                    routes: 1,
                    ..plain()
                },
                "a PPPoE session",
            ),
        ] {
            let why = options.check(nat).unwrap_err().to_string();
            assert!(why.contains(words), "{words}: {why}");
        }
    }
}
