// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two routers that cannot be told apart, each between packet sockets: what one does is compared with what the other
//! does.
//!
//! ```text
//!            hosts                 router                  hosts
//!   +-----------------+   +--------------------+   +-----------------+
//!   | a0 (b0)         |---| lan0          wan0 |---| a1 (b1)         |
//!   +-----------------+   |               wan1 |---| a2 (b2)         |
//!                         +--------------------+   +-----------------+
//! ```
//!
//! The hosts have no addresses and answer nothing. The routers forward; addresses, routes and rules are the user's. A port
//! may be something else than the wire ([`Kind`]): it has the port's name, and the wire below it another.

use std::fmt::Write;
use std::fs;

use crate::error::{Context, LabError};
use crate::frame::mac_text;
use crate::lab::{batch, of_flows, wait_for_carrier};
use crate::netns::Netns;
use crate::port::Port;
use crate::pppoe::{self, Session};
use crate::space::{Run, Space};

/// The routers' ports.
pub const PORTS: [&str; 3] = ["lan0", "wan0", "wan1"];
/// A wire of a router's: its name, and the MAC address there.
pub type Wire = (String, [u8; 6]);
/// Room for frames a little longer than the routers' MTU.
const HOST_MTU: u32 = 1508;

/// What a router's port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The wire itself.
    Wire,
    /// An 802.1Q VLAN.
    Vlan,
    /// An 802.1Q VLAN in one of 802.1ad.
    VlanInVlan,
    /// A bridge whose only port is the wire.
    Bridge,
    /// The same with VLAN filtering; frames of the wire are a VLAN's without having a tag.
    VlanAwareBridge,
    /// A VLAN of such a bridge; frames of the wire have its tag.
    VlanOfBridge,
    /// A bond whose only part is the wire.
    Bond,
    /// A PPPoE session in an 802.1Q VLAN.
    Pppoe,
}

/// The number of the first port's PPPoE session; the others' follow.
const SESSION: u16 = 0x1234;

fn session(port: usize) -> u16 {
    SESSION + port as u16
}

impl Kind {
    /// All.
    pub const ALL: [Kind; 8] = [
        Kind::Wire,
        Kind::Vlan,
        Kind::VlanInVlan,
        Kind::Bridge,
        Kind::VlanAwareBridge,
        Kind::VlanOfBridge,
        Kind::Bond,
        Kind::Pppoe,
    ];

    /// The tags of frames on the wire, the outer one first: TPID and VLAN identifier.
    fn tags(self) -> &'static [(u16, u16)] {
        match self {
            Kind::Vlan | Kind::VlanOfBridge | Kind::Pppoe => &[(0x8100, 5)],
            Kind::VlanInVlan => &[(0x88a8, 5), (0x8100, 7)],
            _ => &[],
        }
    }

    /// Octets of a frame that others do not have.
    fn overhead(self) -> u32 {
        let session = if self == Kind::Pppoe { 8 } else { 0 };
        session + 4 * self.tags().len() as u32
    }

    /// An Ethernet frame as it is on the wire of a port, which is of this kind.
    pub fn framed(self, port: usize, frame: &[u8]) -> Vec<u8> {
        let packet = (self == Kind::Pppoe).then(|| pppoe::framed(frame, session(port)));
        let packet = packet.flatten();
        let frame = packet.as_deref().unwrap_or(frame);
        let (macs, rest) = frame.split_at(frame.len().min(12));
        let mut bytes = macs.to_vec();
        for (tpid, id) in self.tags() {
            bytes.extend(tpid.to_be_bytes());
            bytes.extend(id.to_be_bytes());
        }
        bytes.extend(rest);
        bytes
    }

    /// The Ethernet frame of one of the wire; what is framed otherwise stays as it is.
    pub fn unframed(self, port: usize, frame: &[u8]) -> Vec<u8> {
        let behind = 12 + 4 * self.tags().len();
        let parts = [frame.get(..12), frame.get(behind..)].map(Option::unwrap_or_default);
        let bare = parts.concat();
        let bare = match self {
            Kind::Pppoe => pppoe::unframed(&bare, session(port)).unwrap_or(bare),
            _ => bare,
        };
        if frame.starts_with(&self.framed(port, &bare)) {
            bare
        } else {
            frame.to_vec()
        }
    }

    /// Name of the wire below a port of this kind.
    fn wire(self, port: &str) -> String {
        match self {
            Kind::Wire => port.into(),
            _ => format!("{port}w"),
        }
    }

    /// Names of the links below a VLAN, session, bridge or bond, at which XDP serves it.
    fn below(self, port: &str) -> Vec<String> {
        match self {
            Kind::Vlan | Kind::Bridge | Kind::VlanAwareBridge | Kind::Bond => vec![self.wire(port)],
            Kind::VlanInVlan | Kind::VlanOfBridge | Kind::Pppoe => {
                vec![self.wire(port), format!("{port}o")]
            }
            _ => Vec::new(),
        }
    }

    /// What `ip -batch` makes the port of, once the wire is there.
    fn commands(self, port: &str, mac: &str) -> String {
        let wire = self.wire(port);
        let (make, join) = match self {
            Kind::Wire => return String::new(),
            Kind::Vlan => (
                format!("link add link {wire} name {port} mtu 1500 type vlan id 5\n"),
                String::new(),
            ),
            Kind::Pppoe => {
                return format!(
                    "link add link {wire} name {port}o mtu 1500 type vlan id 5\nlink set {port}o up\n"
                );
            }
            Kind::VlanInVlan => (
                format!(
                    "link add link {wire} name {port}o mtu 1504 type vlan id 5 protocol 802.1ad\n\
                     link set {port}o up\n\
                     link add link {port}o name {port} mtu 1500 type vlan id 7\n"
                ),
                String::new(),
            ),
            Kind::Bridge => (
                format!("link add {port} address {mac} type bridge\n"),
                format!("link set {wire} master {port}\n"),
            ),
            Kind::VlanAwareBridge => (
                format!(
                    "link add {port} address {mac} type bridge vlan_filtering 1 vlan_default_pvid 5\n"
                ),
                format!("link set {wire} master {port}\n"),
            ),
            Kind::VlanOfBridge => (
                format!(
                    "link add {port}o address {mac} type bridge vlan_filtering 1\n\
                     link set {wire} master {port}o\nlink set {port}o up\n"
                ),
                format!("link add link {port}o name {port} mtu 1500 type vlan id 5\n"),
            ),
            Kind::Bond => (
                format!("link add {port} address {mac} type bond mode active-backup\n"),
                format!("link set {wire} down\nlink set {wire} master {port}\n"),
            ),
        };
        format!("{make}{join}link set {port} mtu 1500 up\n")
    }

    /// What `bridge -batch` then does.
    fn memberships(self, port: &str) -> String {
        match self {
            Kind::VlanOfBridge => format!(
                "vlan add dev {} vid 5\nvlan add dev {port}o vid 5 self\n",
                self.wire(port)
            ),
            _ => String::new(),
        }
    }
}

/// The MAC address of a router's port.
pub fn router_mac(port: usize) -> [u8; 6] {
    [0x02, 0, 0, 0, 1, port as u8]
}

/// The MAC address of what is behind it.
pub fn host_mac(port: usize) -> [u8; 6] {
    [0x02, 0, 0, 0, 2, port as u8]
}

/// Twins that exist. Dropping them removes everything.
#[derive(Debug)]
pub struct Twins {
    ends: [[Port; 3]; 2],
    kinds: [Kind; 3],
    _sessions: Vec<Session>,
    spaces: Spaces,
}

#[derive(Debug)]
struct Spaces {
    routers: [Space; 2],
    hosts: Space,
}

impl Spaces {
    fn all(&self) -> [&Netns; 3] {
        [&self.routers[0], &self.routers[1], &self.hosts]
    }
}

impl Twins {
    /// Builds both, with ports of these kinds. Leftovers of killed runs are removed first.
    pub fn build(kinds: [Kind; 3]) -> Result<Twins, LabError> {
        Self::build_with(kinds, &mut |_, _| ())
    }

    /// The same; before there is anything on the wires of the second router, `take` may put other devices of these names and
    /// MAC addresses in their place.
    pub fn build_with(
        kinds: [Kind; 3],
        take: &mut dyn FnMut(&Netns, &[Wire]),
    ) -> Result<Twins, LabError> {
        let run = Run::begin()?;
        let spaces = Spaces {
            routers: [run.space("router")?, run.space("twin")?],
            hosts: run.space("hosts")?,
        };
        write_sysctls(
            &spaces.hosts,
            &[("net/ipv6/conf/default/disable_ipv6", "1")],
        )?;
        for router in &spaces.routers {
            write_sysctls(router, ROUTER_SYSCTLS)?;
            // Before Linux 6.13 these are the machine's.
            let _ = write_sysctls(router, GLOBAL_SYSCTLS);
        }
        let mut ends = Vec::new();
        let mut leave = |_: &Netns, _: &[Wire]| ();
        let [first, second] = &spaces.routers;
        ends.push(join(first, &spaces.hosts, "a", kinds, &mut leave)?);
        ends.push(join(second, &spaces.hosts, "b", kinds, take)?);
        wait_for_carrier(&spaces.all())?;
        let ends = ends
            .try_into()
            .map_err(|_| LabError::Invalid("two routers".into()))?;
        let mut sessions = Vec::new();
        for router in &spaces.routers {
            for (i, (port, kind)) in PORTS.iter().zip(kinds).enumerate() {
                if kind == Kind::Pppoe {
                    let below = format!("{port}o");
                    let session = Session::open(router, &below, session(i), host_mac(i), port)?;
                    router.tool(&format!("ip link set {port} mtu 1492 up"))?;
                    sessions.push(session);
                }
            }
        }
        Ok(Twins {
            ends,
            kinds,
            _sessions: sessions,
            spaces,
        })
    }

    /// Both routers.
    pub fn routers(&self) -> [&Netns; 2] {
        [&self.spaces.routers[0], &self.spaces.routers[1]]
    }

    /// What the ports are.
    pub fn kinds(&self) -> [Kind; 3] {
        self.kinds
    }

    /// The hosts' end at a port of a router.
    pub fn end(&self, router: usize, port: usize) -> &Port {
        &self.ends[router][port]
    }

    /// The names of a router's links that are the Freeway daemon's business: the ports, and what serves them below.
    pub fn links(&self) -> Vec<String> {
        let below = PORTS.iter().zip(self.kinds);
        let below = below.flat_map(|(port, kind)| kind.below(port));
        PORTS.map(str::to_owned).into_iter().chain(below).collect()
    }

    /// The names of a router's wires.
    pub fn wires(&self) -> Vec<String> {
        let wires = PORTS.iter().zip(self.kinds);
        wires.map(|(port, kind)| kind.wire(port)).collect()
    }

    /// The Freeway daemon's configuration for one of the routers: a plain veth is not fit for XDP, these are.
    /// `keys` are further lines for each port.
    pub fn config_toml(&self, keys: &str) -> String {
        let keys = of_flows(keys);
        let links = self.links().into_iter();
        links
            .map(|link| format!("[port.{link}]\nwire_true = true\n{keys}\n"))
            .collect()
    }

    /// Whether a router's ports are polled by kernel threads. Then frames are sent without waiting for their way
    /// through the router, and it meets many at a time; otherwise each has left when it is sent.
    pub fn set_threaded(&self, router: usize, threaded: bool) -> Result<(), LabError> {
        let value = if threaded { "1" } else { "0" };
        let lines: Vec<String> = (self.wires().iter())
            .map(|wire| format!("echo {value} > /sys/class/net/{wire}/threaded"))
            .collect();
        // The namespace's own /sys.
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", self.spaces.routers[router].name(), "sh"]);
        command.args(["-ec", &lines.join("; ")]);
        crate::command::run(&mut command).map(drop)
    }
}

/// Forwarding, every ICMP error that is due, and nothing that a router sends of its own accord.
pub(crate) const ROUTER_SYSCTLS: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/conf/default/forwarding", "1"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv4/icmp_ratelimit", "0"),
    ("net/ipv6/icmp/ratelimit", "0"),
];

const GLOBAL_SYSCTLS: &[(&str, &str)] = &[
    ("net/ipv4/icmp_msgs_per_sec", "1000000"),
    ("net/ipv4/icmp_msgs_burst", "1000000"),
];

/// Writes sysctls, given as paths below /proc/sys.
pub fn write_sysctls(netns: &Netns, values: &[(&str, &str)]) -> Result<(), LabError> {
    netns.enter(|| {
        for (path, value) in values {
            let file = format!("/proc/sys/{path}");
            fs::write(&file, value).context(format!("write {value} to {file}"))?;
        }
        Ok(())
    })?
}

/// Joins a router with the hosts; the offloads are as on a wire, and GRO is off at the router.
fn join(
    router: &Netns,
    hosts: &Netns,
    letter: &str,
    kinds: [Kind; 3],
    take: &mut dyn FnMut(&Netns, &[Wire]),
) -> Result<[Port; 3], LabError> {
    let mut commands = String::new();
    let ports = || PORTS.iter().zip(kinds).enumerate();
    for (i, (port, kind)) in ports() {
        let (mac, peer_mac) = (mac_text(router_mac(i)), mac_text(host_mac(i)));
        let (mtu, host_mtu) = (1500 + kind.overhead(), HOST_MTU + kind.overhead());
        let _ = writeln!(
            commands,
            "link add {} mtu {mtu} address {mac} type veth \
             peer name {letter}{i} mtu {host_mtu} address {peer_mac} netns {}",
            kind.wire(port),
            hosts.name()
        );
        let _ = writeln!(commands, "link set {} up", kind.wire(port));
    }
    batch(router, &commands)?;
    let mut ends = Vec::new();
    let mut up = String::new();
    for (_, (port, kind)) in ports() {
        router.tool(&format!(
            "ethtool -K {} tx off tso off gso off txvlan off tx-vlan-stag-hw-insert off gro off",
            kind.wire(port)
        ))?;
    }
    let wires: Vec<_> = ports()
        .map(|(i, (port, kind))| (kind.wire(port), router_mac(i)))
        .collect();
    take(router, &wires);
    for (i, (port, kind)) in ports() {
        batch(router, &kind.commands(port, &mac_text(router_mac(i))))?;
        let vlans = kind.memberships(port);
        if !vlans.is_empty() {
            router.tool_with_input("bridge -batch -", &vlans)?;
        }
        let name = format!("{letter}{i}");
        hosts.tool(&format!(
            "ethtool -K {name} tx off tso off gso off txvlan off gro on"
        ))?;
        let _ = writeln!(up, "link set {name} up");
        ends.push(Port {
            netns: hosts.clone(),
            ifindex: hosts.ifindex(&name)?,
            name,
            mac: host_mac(i),
        });
    }
    batch(hosts, &up)?;
    router.show_bridged(false);
    router.tool("ip link set lo up")?;
    ends.try_into()
        .map_err(|_| LabError::Invalid("three ports".into()))
}
