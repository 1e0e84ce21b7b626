// SPDX-License-Identifier: MIT OR Apache-2.0
//! The router's nftables ruleset.

use std::fmt::Write;

use crate::options::{Options, PortForward};
use crate::topology::{Family, Filter, Topology};

/// The counter of what the forward chain has seen, in a table of family `inet`.
pub(crate) const FORWARDED: &str = "filter forwarded";

/// On the devices that have the frames: the kernel finds a VLAN's tag, a session and a bridge's port by itself
/// (`dev_fill_forward_path()`).
const FLOWTABLE: &str = "\tcounter forwarded {}\n\
    \tflowtable fast {\n\
    \t\thook ingress priority filter;\n\
    \t\tdevices = { lan0, wan0 };\n\
    \t}\n";

/// What the flow table forwards does not come by here.
const OFFLOAD: &str = "\t\tcounter name \"forwarded\"\n\
    \t\tct state established meta l4proto { tcp, udp } flow add @fast\n";

/// So many rules that each forwarded packet passes ahead of the other chains' and that match none of a lab's: networks of
/// 10.0.0.0/8 (fd00::/8), protocol and port.
pub fn policies(family: Family, number: u32) -> String {
    let (name, of): (_, fn(u32) -> [String; 2]) = match family {
        Family::Ipv4 => ("ip", |i| {
            let (high, low) = (i / 256 % 64, i % 256);
            [
                format!("10.{high}.{low}.0/24"),
                format!("10.{}.{low}.0/24", high + 128),
            ]
        }),
        Family::Ipv6 => ("ip6", |i| {
            [format!("fd00:{i:x}::/64"), format!("fd01:{i:x}::/64")]
        }),
    };
    let mut text = format!(
        "table {name} policies {{\n\
         \tchain forward {{\n\
         \t\ttype filter hook forward priority filter - 5; policy accept;\n"
    );
    for i in 0..number {
        let [source, destination] = of(i);
        let proto = if i % 2 == 0 { "tcp" } else { "udp" };
        let port = 1024 + i % 8192;
        let _ = writeln!(
            text,
            "\t\t{name} saddr {source} {name} daddr {destination} {proto} dport {port} drop"
        );
    }
    text.push_str("\t}\n}\n");
    text
}

/// The ruleset for `nft -f -`, or nothing if the topology needs none.
pub fn ruleset(topology: &Topology, options: &Options) -> Option<String> {
    let mut text = String::new();
    let (lan, wan) = (options.lan(), options.wan());
    match options.filter.unwrap_or(topology.filter) {
        Filter::None => {}
        Filter::Tracked => text.push_str(
            "table inet filter {\n\
             \tchain forward {\n\
             \t\ttype filter hook forward priority filter; policy accept;\n\
             \t\tct state established,related,new accept\n\
             \t}\n}\n",
        ),
        Filter::Stateful => {
            let [flowtable, offload] = if options.flowtable {
                [FLOWTABLE, OFFLOAD]
            } else {
                [""; 2]
            };
            let _ = write!(
                text,
                "table inet filter {{\n\
                 {flowtable}\
                 \tchain forward {{\n\
                 \t\ttype filter hook forward priority filter; policy drop;\n\
                 {offload}\
                 \t\tct state established,related accept\n\
                 \t\tct state invalid drop\n\
                 \t\tiifname \"{lan}\" oifname \"{wan}\" ct state new accept\n"
            );
            if !options.port_forwards.is_empty() {
                text.push_str("\t\tct status dnat ct state new accept\n");
            }
            text.push_str("\t}\n}\n");
        }
    }
    let family = match topology.family {
        Family::Ipv4 => "ip",
        Family::Ipv6 => "ip6",
    };
    if topology.masquerade {
        let _ = write!(
            text,
            "table {family} nat {{\n\
             \tchain postrouting {{\n\
             \t\ttype nat hook postrouting priority srcnat;\n\
             \t\toifname \"{wan}\" masquerade\n\
             \t}}\n}}\n"
        );
    }
    if !options.port_forwards.is_empty() {
        let _ = write!(
            text,
            "table {family} nat {{\n\
             \tchain prerouting {{\n\
             \t\ttype nat hook prerouting priority dstnat;\n"
        );
        for PortForward {
            proto,
            wan_port,
            to,
            to_port,
        } in &options.port_forwards
        {
            let to = if to.is_ipv6() {
                format!("[{to}]")
            } else {
                to.to_string()
            };
            let proto = proto.name();
            let _ = writeln!(
                text,
                "\t\tiifname \"{wan}\" {proto} dport {wan_port} dnat to {to}:{to_port}"
            );
        }
        text.push_str("\t}\n}\n");
    }
    text.push_str(&options.extra_nft);
    (!text.is_empty()).then_some(text)
}
