// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two routers side by side between a LAN and a WAN, joined by a link of their own.
//!
//! ```text
//!                              +-------------------+
//!   +--------------+           | lan0  first  wan0 |           +--------------+
//!   |       first0 |-----------|       sync0       |-----------| first0       |
//!   | eth0         |           +---------|---------+           |         eth0 |
//!   |      second0 |-----------|       sync0       |-----------| second0      |
//!   +--------------+           | lan0 second  wan0 |           +--------------+
//!        client                +-------------------+                server
//! ```
//!
//! `eth0` of client and server is a bridge: the switch to which both routers are connected. The routers have addresses of their own,
//! and forward; what they share, rules and routes are the user's.

use std::fmt::Write;

use crate::error::LabError;
use crate::frame::mac_text;
use crate::lab::{batch, ports_toml, wait_for_carrier};
use crate::netns::Netns;
use crate::port::{OFFLOADS_OF_A_WIRE, Port};
use crate::space::{Run, Space};
use crate::twins::{ROUTER_SYSCTLS, write_sysctls};

/// The client has so many addresses, from 192.0.2.101 on.
pub const CLIENTS: u8 = 8;
/// The server's address (`198.51.100.0/24`).
pub const SERVER: &str = "198.51.100.2";
/// Last octets of the routers' own addresses: on the LAN, on the WAN, and on the link between them (`10.99.0.0/24`).
pub const OWN: [u8; 2] = [11, 12];

/// The switches' ports.
const ENDS: [&str; 2] = ["first0", "second0"];

/// The pair. Dropping it removes everything.
#[derive(Debug)]
pub struct Pair {
    lan: [Port; 2],
    wan: [Port; 2],
    spaces: Spaces,
}

#[derive(Debug)]
struct Spaces {
    client: Space,
    server: Space,
    routers: [Space; 2],
}

impl Spaces {
    fn all(&self) -> [&Netns; 4] {
        [
            &self.client,
            &self.server,
            &self.routers[0],
            &self.routers[1],
        ]
    }
}

impl Pair {
    /// Builds it. Leftovers of killed runs are removed first.
    pub fn build() -> Result<Pair, LabError> {
        let run = Run::begin()?;
        let spaces = Spaces {
            client: run.space("client")?,
            server: run.space("server")?,
            routers: [run.space("first")?, run.space("second")?],
        };
        for netns in spaces.all() {
            netns.sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        }
        for router in &spaces.routers {
            write_sysctls(router, ROUTER_SYSCTLS)?;
        }
        join(&spaces)?;
        wait_for_carrier(&spaces.all())?;
        Ok(Pair {
            lan: ends(&spaces.client)?,
            wan: ends(&spaces.server)?,
            spaces,
        })
    }

    /// The client's namespace.
    pub fn client(&self) -> &Netns {
        &self.spaces.client
    }

    /// The server's namespace.
    pub fn server(&self) -> &Netns {
        &self.spaces.server
    }

    /// One of the routers' namespaces.
    pub fn router(&self, router: usize) -> &Netns {
        &self.spaces.routers[router]
    }

    /// The switches' ports at which a router is: the LAN's, and the WAN's.
    pub fn ends(&self, router: usize) -> [&Port; 2] {
        [&self.lan[router], &self.wan[router]]
    }

    /// The Freeway daemon's configuration for one of the routers: a plain veth is not fit for XDP, these are.
    pub fn config_toml(&self) -> String {
        ports_toml(&["lan0".into(), "wan0".into()], "")
    }
}

/// The switches' ports of a host.
fn ends(host: &Netns) -> Result<[Port; 2], LabError> {
    let end = |name: &str| {
        Ok::<_, LabError>(Port {
            netns: host.clone(),
            ifindex: host.ifindex(name)?,
            name: name.into(),
            mac: [0; 6],
        })
    };
    Ok([end(ENDS[0])?, end(ENDS[1])?])
}

/// Links, addresses, and offloads as on a wire.
fn join(spaces: &Spaces) -> Result<(), LabError> {
    for (host, letter) in [(&spaces.client, 0xc), (&spaces.server, 0xd)] {
        let mac = mac_text([2, 0, 0, 0, letter, 2]);
        batch(
            host,
            &format!("link add eth0 address {mac} type bridge\nlink set eth0 up\n"),
        )?;
    }
    for (i, router) in spaces.routers.iter().enumerate() {
        let own = OWN[i];
        let mut commands = String::from("link set lo up\n");
        for (port, host, letter, net) in [
            ("lan0", &spaces.client, 0xc, "192.0.2"),
            ("wan0", &spaces.server, 0xd, "198.51.100"),
        ] {
            let (mac, peer) = (mac_text([2, 0, 0, 0, letter, own]), ENDS[i]);
            let _ = writeln!(
                commands,
                "link add {port} address {mac} type veth peer name {peer} netns {}\n\
                 address add {net}.{own}/24 dev {port}\nlink set {port} up",
                host.name()
            );
        }
        batch(router, &commands)?;
        for port in ["lan0", "wan0"] {
            router.tool(&format!("ethtool -K {port} {OFFLOADS_OF_A_WIRE}"))?;
        }
        for host in [&spaces.client, &spaces.server] {
            let peer = ENDS[i];
            host.tool(&format!("ethtool -K {peer} {OFFLOADS_OF_A_WIRE}"))?;
            batch(
                host,
                &format!("link set {peer} master eth0\nlink set {peer} up\n"),
            )?;
            // what was switched while it was down gives it no NAPI
            for gro in ["off", "on"] {
                host.tool(&format!("ethtool -K {peer} gro {gro}"))?;
            }
        }
    }
    batch(
        &spaces.routers[0],
        &format!(
            "link add sync0 type veth peer name sync0 netns {}\n",
            spaces.routers[1].name()
        ),
    )?;
    for (router, own) in spaces.routers.iter().zip(OWN) {
        batch(
            router,
            &format!("address add 10.99.0.{own}/24 dev sync0\nlink set sync0 up\n"),
        )?;
    }
    let mut client = String::new();
    for i in 0..CLIENTS {
        let _ = writeln!(
            client,
            "address add 192.0.2.{}/24 dev eth0",
            101 + u32::from(i)
        );
    }
    batch(&spaces.client, &client)?;
    batch(
        &spaces.server,
        &format!("address add {SERVER}/24 dev eth0\n"),
    )?;
    for host in [&spaces.client, &spaces.server] {
        host.tool("ethtool -K eth0 tx off tso off gso off")?;
    }
    Ok(())
}
