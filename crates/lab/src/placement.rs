// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts of any addresses behind the client and the server, of both families.
//!
//! The router's own addresses become link-local ones, so that no address that could be routed is its own or in a network of
//! its ports.

use std::fmt::Write;
use std::net::IpAddr;

use crate::error::LabError;
use crate::frame::{MAC_CLIENT, MAC_SERVER, mac_text};
use crate::lab::{Lab, batch};

/// A port of the router, its link-local addresses of both families, and those of all hosts behind it (RFC 3927, RFC 4291).
struct Side {
    port: &'static str,
    own: [&'static str; 2],
    hosts: [&'static str; 2],
    host_mac: [u8; 6],
}

const LAN: Side = Side {
    port: "lan0",
    own: ["169.254.1.1/24", "fe80::1:1/64"],
    hosts: ["169.254.1.2", "fe80::1:2"],
    host_mac: MAC_CLIENT,
};
const WAN: Side = Side {
    port: "wan0",
    own: ["169.254.2.1/24", "fe80::2:1/64"],
    hosts: ["169.254.2.2", "fe80::2:2"],
    host_mac: MAC_SERVER,
};

/// What it takes to forward packets of both families, from and to any address.
const SYSCTLS: [(&str, &str); 5] = [
    ("net/ipv6/conf/*/accept_dad", "0"),
    ("net/ipv6/conf/*/disable_ipv6", "0"),
    ("net/ipv6/conf/*/forwarding", "1"),
    ("net/ipv4/conf/*/send_redirects", "0"),
    ("net/ipv4/conf/*/rp_filter", "0"),
];

impl Lab {
    /// Has the router forward packets to these addresses to the client, and all others to the server, both by neighbours that
    /// stay. Hosts keep their addresses, which nobody reaches any more; who looks at what they get has to catch it below their
    /// stacks. Only for labs without tags, bridges and sessions, before a daemon runs.
    pub fn place(&self, near: &[IpAddr]) -> Result<(), LabError> {
        let router = self.router();
        router.sysctl("net/ipv4/ip_forward", "1")?;
        for scope in ["all", "lan0", "wan0"] {
            for (key, value) in SYSCTLS {
                router.sysctl(&key.replace('*', scope), value)?;
            }
        }
        let mut lines = String::new();
        for side in [LAN, WAN] {
            let (port, mac) = (side.port, mac_text(side.host_mac));
            let _ = writeln!(lines, "address flush dev {port}");
            for (address, nodad) in side.own.into_iter().zip(["", " nodad"]) {
                let _ = writeln!(lines, "address add {address} dev {port}{nodad}");
            }
            for host in side.hosts {
                let _ = writeln!(
                    lines,
                    "neighbour replace {host} lladdr {mac} nud permanent dev {port}"
                );
            }
        }
        for (all, host) in ["0.0.0.0/0", "::/0"].into_iter().zip(WAN.hosts) {
            let _ = writeln!(lines, "route add {all} via {host} dev {}", WAN.port);
        }
        for address in near {
            let [host4, host6] = LAN.hosts;
            let (length, host) = match address {
                IpAddr::V4(_) => (32, host4),
                IpAddr::V6(_) => (128, host6),
            };
            let _ = writeln!(
                lines,
                "route add {address}/{length} via {host} dev {}",
                LAN.port
            );
        }
        batch(router, &lines)
    }
}
