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
//! The hosts have no addresses and answer nothing. The routers forward; addresses, routes and rules are the user's.

use std::fmt::Write;
use std::fs;

use nix::unistd::geteuid;

use crate::error::{Context, LabError};
use crate::lab::{Port, batch, text, wait_for_carrier};
use crate::netns::Netns;
use crate::{signal, sweep};

/// The routers' ports.
pub const PORTS: [&str; 3] = ["lan0", "wan0", "wan1"];
/// Room for frames a little longer than the routers' MTU.
const HOST_MTU: u32 = 1508;

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
    spaces: Spaces,
}

#[derive(Debug)]
struct Spaces {
    routers: [Netns; 2],
    hosts: Netns,
}

impl Spaces {
    fn all(&self) -> [&Netns; 3] {
        [&self.routers[0], &self.routers[1], &self.hosts]
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for netns in self.all() {
            if let Err(error) = signal::remove(netns) {
                eprintln!("cannot remove namespace {}: {error}", netns.name());
            }
        }
    }
}

impl Twins {
    /// Builds both. Leftovers of killed runs are removed first.
    pub fn build() -> Result<Twins, LabError> {
        if !geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        sweep::sweep();
        let run = sweep::next_run();
        let named = |name| Netns::named(sweep::netns_name(run, name));
        // From here on an error takes down what exists so far.
        let spaces = Spaces {
            routers: [named("router"), named("twin")],
            hosts: named("hosts"),
        };
        for netns in spaces.all() {
            signal::create(netns)?;
        }
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
        for (router, letter) in spaces.routers.iter().zip(["a", "b"]) {
            ends.push(join(router, &spaces.hosts, letter)?);
        }
        wait_for_carrier(&spaces.all())?;
        let ends = ends
            .try_into()
            .map_err(|_| LabError::Invalid("two routers".into()))?;
        Ok(Twins { ends, spaces })
    }

    /// Both routers.
    pub fn routers(&self) -> &[Netns; 2] {
        &self.spaces.routers
    }

    /// The hosts' end at a port of a router.
    pub fn end(&self, router: usize, port: usize) -> &Port {
        &self.ends[router][port]
    }

    /// The Freeway daemon's configuration for one of the routers: a plain veth is not fit for XDP, these are.
    /// `keys` are further lines for each port.
    pub fn config_toml(&self, keys: &str) -> String {
        PORTS
            .map(|port| format!("[port.{port}]\nwire_true = true\n{keys}\n"))
            .concat()
    }

    /// Whether a router's ports are polled by kernel threads. Then frames are sent without waiting for their way
    /// through the router, and it meets many at a time; otherwise each has left when it is sent.
    pub fn set_threaded(&self, router: usize, threaded: bool) -> Result<(), LabError> {
        let value = if threaded { "1" } else { "0" };
        let lines: Vec<String> = PORTS
            .iter()
            .map(|port| format!("echo {value} > /sys/class/net/{port}/threaded"))
            .collect();
        // The namespace's own /sys.
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", self.spaces.routers[router].name(), "sh"]);
        command.args(["-ec", &lines.join("; ")]);
        crate::command::run(&mut command).map(drop)
    }
}

/// Forwarding, every ICMP error that is due, and nothing that a router sends of its own accord.
const ROUTER_SYSCTLS: &[(&str, &str)] = &[
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
fn join(router: &Netns, hosts: &Netns, letter: &str) -> Result<[Port; 3], LabError> {
    let mut commands = String::new();
    for (i, port) in PORTS.iter().enumerate() {
        let (mac, peer_mac) = (text(router_mac(i)), text(host_mac(i)));
        let _ = writeln!(
            commands,
            "link add {port} mtu 1500 address {mac} type veth \
             peer name {letter}{i} mtu {HOST_MTU} address {peer_mac} netns {}",
            hosts.name()
        );
        let _ = writeln!(commands, "link set {port} up");
    }
    batch(router, &commands)?;
    let mut ends = Vec::new();
    let mut up = String::new();
    for (i, port) in PORTS.iter().enumerate() {
        router.tool(&format!(
            "ethtool -K {port} tx off tso off gso off txvlan off gro off"
        ))?;
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
    router.tool("ip link set lo up")?;
    ends.try_into()
        .map_err(|_| LabError::Invalid("three ports".into()))
}
