// SPDX-License-Identifier: MIT OR Apache-2.0
//! The router's nftables ruleset.

use std::fmt::Write;

use crate::lab::{Options, PortForward};
use crate::topology::{Family, Filter, Topology};

/// The counter of what the forward chain has seen, in a table of family `inet`.
pub(crate) const FORWARDED: &str = "filter forwarded";

/// On the devices that have the frames: the kernel finds a VLAN's tag by itself (`dev_fill_forward_path()`).
const FLOWTABLE: &str = "\tcounter forwarded {}\n\
    \tflowtable fast {\n\
    \t\thook ingress priority filter;\n\
    \t\tdevices = { lan0, wan0 };\n\
    \t}\n";

/// What the flow table forwards does not come by here.
const OFFLOAD: &str = "\t\tcounter name \"forwarded\"\n\
    \t\tct state established meta l4proto { tcp, udp } flow add @fast\n";

/// The ruleset for `nft -f -`, or nothing if the topology needs none.
pub fn ruleset(topology: &Topology, options: &Options) -> Option<String> {
    let mut text = String::new();
    let lan = options.lan();
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
                 \t\tiifname \"{lan}\" oifname \"wan0\" ct state new accept\n"
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
             \t\toifname \"wan0\" masquerade\n\
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
                "\t\tiifname \"wan0\" {proto} dport {wan_port} dnat to {to}:{to_port}"
            );
        }
        text.push_str("\t}\n}\n");
    }
    text.push_str(&options.extra_nft);
    (!text.is_empty()).then_some(text)
}
