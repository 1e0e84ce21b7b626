// SPDX-License-Identifier: MIT OR Apache-2.0
//! Building a topology, and taking it down again.

use std::fmt::Write;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use serde::Serialize;

use crate::error::LabError;
use crate::frame::{
    Direction, FlowSpec, MAC_CLIENT, MAC_LAN, MAC_SERVER, MAC_WAN, Proto, mac_text,
};
use crate::limit::Raised;
use crate::netns::Netns;
use crate::ruleset::ruleset;
use crate::topology::{Family, Filter, Topology, offset};
use crate::wire::{self, Wire};
use crate::{signal, sweep};

/// How many client addresses flows may need: one for every 32,768.
pub const CLIENT_ADDRESSES: u32 = 32;

/// A port forward (destination NAT) on the WAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortForward {
    /// The protocol.
    pub proto: Proto,
    /// The port on the router's WAN address, host byte order.
    pub wan_port: u16,
    /// The host behind the router.
    pub to: IpAddr,
    /// Its port, host byte order.
    pub to_port: u16,
}

/// What may differ between two labs of one topology.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instead of the topology's own filter.
    pub filter: Option<Filter>,
    /// Destination NAT on the WAN.
    pub port_forwards: Vec<PortForward>,
    /// Appended to the router's ruleset, in nft's language.
    pub extra_nft: String,
    /// Permanent neighbour entries on all hosts, so that a sink may drop ARP.
    pub static_neighbours: bool,
    /// Generic receive offload on the router's ports. Without it, bare redirects need a program there.
    pub router_gro: bool,
    /// Transmit checksum offload on the router's ports. As with a network card the kernel then leaves the checksum of
    /// what GRO has merged to the device; a veth never finishes it. Switch it off where checksums are compared.
    pub router_tx_checksum: bool,
    /// Between each host and the router a pair of ports whose programs hand frames over, in the host's namespace. The
    /// router gets them as from a driver's ring, not as the skbs of the sender.
    pub wires: bool,
    /// MTU of all ports, bytes of L3.
    pub mtu: u32,
    /// Raises net.netfilter.nf_conntrack_max, which all namespaces share, while the lab exists.
    pub conntrack_max: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            filter: None,
            port_forwards: Vec::new(),
            extra_nft: String::new(),
            static_neighbours: true,
            router_gro: true,
            router_tx_checksum: true,
            wires: false,
            mtu: 1500,
            conntrack_max: None,
        }
    }
}

/// A network port of the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Where it is.
    pub netns: Netns,
    /// Its name there.
    pub name: String,
    /// Its index there.
    pub ifindex: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
}

/// A topology that exists. Dropping it removes everything.
#[derive(Debug)]
pub struct Lab {
    topology: &'static Topology,
    options: Options,
    ports: Ports,
    wires: Vec<Wire>,
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
    client: Netns,
    router: Netns,
    server: Netns,
}

impl Hosts {
    fn all(&self) -> [&Netns; 3] {
        [&self.client, &self.router, &self.server]
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for netns in self.all() {
            if let Err(error) = signal::remove(netns) {
                eprintln!("cannot remove namespace {}: {error}", netns.name());
            }
        }
    }
}

impl Lab {
    /// Builds a topology. Leftovers of killed runs are removed first.
    pub fn build(topology: &'static Topology, options: Options) -> Result<Lab, LabError> {
        if !geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        sweep::sweep();
        let run = sweep::next_run();
        let host = |name| Netns::named(sweep::netns_name(run, name));
        // From here on an error takes down what exists so far.
        let hosts = Hosts {
            client: host("client"),
            router: host("router"),
            server: host("server"),
        };
        for netns in hosts.all() {
            signal::create(netns)?;
        }
        set_sysctls(&hosts, topology)?;
        create_links(&hosts, &options)?;
        set_offloads(&hosts, &options)?;
        let wires = if options.wires {
            vec![Wire::connect(&hosts.client)?, Wire::connect(&hosts.server)?]
        } else {
            Vec::new()
        };
        set_addresses(&hosts, topology, &options)?;
        if let Some(text) = ruleset(topology, &options) {
            hosts.router.tool_with_input("nft -f -", &text)?;
        }
        wait_for_carrier(&hosts.all())?;
        let raise = |entries| signal::raise_limit(run, entries);
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
        Ok(Lab {
            topology,
            options,
            ports,
            wires,
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

    /// The router's port to the client, `lan0`.
    pub fn lan_port(&self) -> &Port {
        &self.ports.lan
    }

    /// The router's port to the server, `wan0`.
    pub fn wan_port(&self) -> &Port {
        &self.ports.wan
    }

    /// The server's port, `eth0`.
    pub fn server_port(&self) -> &Port {
        &self.ports.server
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
        let mut text = String::new();
        for port in [self.lan_port(), self.wan_port()] {
            let _ = writeln!(text, "[port.{}]\nwire_true = true\n{keys}\n", port.name);
        }
        text
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
            ..self.flows(proto, flows, frame_bytes)
        }
    }
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
    }
    match topology.family {
        Family::Ipv4 => hosts.router.sysctl("net/ipv4/ip_forward", "1"),
        Family::Ipv6 => hosts.router.sysctl("net/ipv6/conf/all/forwarding", "1"),
    }
}

pub(crate) fn batch(netns: &Netns, commands: &str) -> Result<(), LabError> {
    netns.tool_with_input("ip -batch -", commands).map(drop)
}

fn create_links(hosts: &Hosts, options: &Options) -> Result<(), LabError> {
    let mtu = options.mtu;
    let mut commands = String::new();
    for (port, mac, peer, peer_mac) in [
        ("lan0", MAC_LAN, &hosts.client, MAC_CLIENT),
        ("wan0", MAC_WAN, &hosts.server, MAC_SERVER),
    ] {
        let (mac, peer_mac) = (mac_text(mac), mac_text(peer_mac));
        let eth0 = format!("eth0 mtu {mtu} address {peer_mac}");
        let (far, near) = if options.wires {
            wire::create(peer, &eth0, mtu)?;
            (wire::FAR, format!("mtu {mtu}"))
        } else {
            ("eth0", format!("mtu {mtu} address {peer_mac}"))
        };
        let _ = writeln!(
            commands,
            "link add {port} mtu {mtu} address {mac} type veth peer name {far} {near} netns {}",
            peer.name()
        );
    }
    batch(&hosts.router, &commands)
}

/// A wire carries no 64 KB packets, no unfinished checksums and no tags outside the frame. GRO stays on
/// everywhere: it is what gives a veth the NAPI that redirects into it need.
const OFFLOADS_OF_A_WIRE: &str = "tx off tso off gso off txvlan off gro on";

/// Switches a port on that behaves as the end of a wire; programs alone send there.
pub(crate) fn wire_port(netns: &Netns, name: &str) -> Result<Port, LabError> {
    netns.tool(&format!("ethtool -K {name} {OFFLOADS_OF_A_WIRE}"))?;
    netns.tool(&format!("ip link set {name} up"))?;
    Ok(Port {
        netns: netns.clone(),
        ifindex: netns.ifindex(name)?,
        name: name.into(),
        mac: [0; 6],
    })
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

fn set_addresses(hosts: &Hosts, topology: &Topology, options: &Options) -> Result<(), LabError> {
    let plan = topology.family.plan();
    let len = plan.prefix_len;
    let nodad = match topology.family {
        Family::Ipv4 => "",
        Family::Ipv6 => " nodad",
    };
    let mut client = format!(
        "link set lo up\naddress add {}/{len} dev eth0{nodad}\n",
        plan.client
    );
    for i in 1..CLIENT_ADDRESSES {
        let address = offset(plan.client, i);
        // Deprecated, so that the client's own connections come from the first address.
        let _ = writeln!(
            client,
            "address add {address}/{len} dev eth0{nodad} preferred_lft 0"
        );
    }
    let mut router = format!(
        "link set lo up\naddress add {}/{len} dev lan0{nodad}\naddress add {}/{len} dev wan0{nodad}\n\
         link set lan0 up\nlink set wan0 up\n",
        plan.lan, plan.wan
    );
    let mut server = format!(
        "link set lo up\naddress add {}/{len} dev eth0{nodad}\nlink set eth0 up\n",
        plan.server
    );
    let _ = writeln!(
        client,
        "link set eth0 up\nroute add default via {}",
        plan.lan
    );
    if !topology.masquerade {
        // Behind a masquerade the server sees the router only; a route would hide what leaks.
        let _ = writeln!(server, "route add default via {}", plan.wan);
    }
    if options.static_neighbours {
        let neighbour = |address: IpAddr, mac, dev| {
            format!(
                "neighbour replace {address} lladdr {} nud permanent dev {dev}\n",
                mac_text(mac)
            )
        };
        client.push_str(&neighbour(plan.lan, MAC_LAN, "eth0"));
        server.push_str(&neighbour(plan.wan, MAC_WAN, "eth0"));
        router.push_str(&neighbour(plan.server, MAC_SERVER, "wan0"));
        for i in 0..CLIENT_ADDRESSES {
            router.push_str(&neighbour(offset(plan.client, i), MAC_CLIENT, "lan0"));
        }
    }
    batch(&hosts.client, &client)?;
    batch(&hosts.router, &router)?;
    batch(&hosts.server, &server)
}

/// The kernel announces a veth's carrier from a work queue, some time after both ends are up.
pub(crate) fn wait_for_carrier(hosts: &[&Netns]) -> Result<(), LabError> {
    let patience = Instant::now() + Duration::from_secs(5);
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
