// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions hooked into netfilter (nfnetlink_hook, 5.14 and later, `nfnl_hook_dump`).

use serde::Serialize;

use crate::error::Result;
use crate::message::Message;
use crate::nft;
use crate::nla::{Writer, attrs_after, u8_at};
use crate::socket::Channel;

/// NFNL_SUBSYS_HOOK, NFNL_MSG_HOOK_GET.
const HOOK_GET: u16 = 12 << 8;
const NFNLA_HOOK_HOOKNUM: u16 = 1;
const NFNLA_HOOK_PRIORITY: u16 = 2;
const NFNLA_HOOK_DEV: u16 = 3;
const NFNLA_HOOK_FUNCTION_NAME: u16 = 4;
const NFNLA_HOOK_MODULE_NAME: u16 = 5;
const NFNLA_HOOK_CHAIN_INFO: u16 = 6;
/// NFNL_HOOK_TYPE_NFTABLES.
const TYPE_NFTABLES: u32 = 1;
/// Hooks that forwarded packets pass, by NFPROTO_.
pub const FORWARDING: [(u8, &[u32]); 3] = [
    (nft::NFPROTO_IPV4, &[0, 2, 4]),
    (nft::NFPROTO_IPV6, &[0, 2, 4]),
    (nft::NFPROTO_BRIDGE, &[0, 1, 2, 3, 4]),
];

/// A hooked function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HookedFunction {
    /// NFPROTO_ number.
    pub family: u8,
    /// Hook number.
    pub hook: u32,
    /// Lower runs first.
    pub priority: i32,
    /// The function, if the kernel names it.
    pub function: String,
    /// Its module, empty if built in.
    pub module: String,
    /// It is a base chain of nftables.
    pub nftables: bool,
}

/// The kernel's own functions that do nothing but what conntrack and NAT show.
const KNOWN: [&str; 25] = [
    "ipv4_conntrack_defrag",
    "ipv6_defrag",
    "ipv4_conntrack_in",
    "ipv6_conntrack_in",
    "ipv4_conntrack_local",
    "ipv6_conntrack_local",
    "nf_confirm",
    "ipv4_confirm",
    "ipv6_confirm",
    "nf_nat_ipv4_pre_routing",
    "nf_nat_ipv4_in",
    "nf_nat_ipv4_out",
    "nf_nat_ipv6_in",
    "nf_nat_ipv6_out",
    // Bridged packets, handed to the IP hooks.
    "br_nf_pre_routing",
    "br_nf_local_in",
    "br_nf_forward",
    "br_nf_forward_ip",
    "br_nf_forward_arp",
    "br_nf_post_routing",
    "ip_sabotage_in",
    "selinux_ip_forward",
    "selinux_ip_postroute",
    "apparmor_ip_postroute",
    // In place of one that is being removed.
    "accept_all",
];

/// Those by which conntrack sees packets that come in, by NFPROTO_.
const CONNTRACK: [(u8, &str); 2] = [
    (nft::NFPROTO_IPV4, "ipv4_conntrack_in"),
    (nft::NFPROTO_IPV6, "ipv6_conntrack_in"),
];

/// Of base chains of nftables: `nft_do_chain_ipv4`, `nft_do_chain_inet` and others; of its flowtables.
const OF_NFTABLES: [&str; 2] = ["nft_do_chain", "nf_flow_offload_"];
/// Of tables of the legacy iptables, which are read: `ipt_do_table`, and before it `iptable_filter_hook` and others.
const OF_LEGACY: [&str; 4] = ["ipt_do_table", "ip6t_do_table", "iptable_", "ip6table_"];

impl HookedFunction {
    /// One of which no more is known than its name, as kernels have it that do not list their hooks.
    #[must_use]
    pub fn named(family: u8, hook: u32, function: String, module: String) -> Self {
        Self {
            family,
            hook,
            priority: 0,
            nftables: false,
            function,
            module,
        }
    }

    /// True if it is neither a chain of nftables or a table of iptables, which have an analysis of their own, nor known to be
    /// harmless.
    pub fn is_foreign(&self) -> bool {
        let function = self.function.as_str();
        let legacy = OF_LEGACY.iter().any(|legacy| function.starts_with(legacy));
        // of a chain that is being added or removed no more is told than its function
        let nftables = self.nftables || OF_NFTABLES.iter().any(|of| function.starts_with(of));
        !nftables && !legacy && !KNOWN.contains(&function)
    }
}

/// Whether conntrack is among the functions, for IPv4 and for IPv6: rules are not all that has it hooked (`enable_hooks` of the
/// module, other modules).
#[must_use]
pub fn track(functions: &[HookedFunction]) -> [bool; 2] {
    CONNTRACK.map(|(family, name)| {
        let mut functions = functions.iter();
        functions.any(|hooked| hooked.family == family && hooked.function == name)
    })
}

/// The functions on the hooks that forwarded packets pass; `None` on a kernel that does not list them.
pub fn forwarding_hooks() -> Result<Option<Vec<HookedFunction>>> {
    let mut channel = Channel::open(libc::NETLINK_NETFILTER)?;
    let mut functions = Vec::new();
    for (family, hooks) in FORWARDING {
        for &hook in hooks {
            match dump(&mut channel, family, hook, None, &mut functions) {
                // No such subsystem.
                Err(error) if matches!(error.errno(), Some(libc::EINVAL)) => return Ok(None),
                // No such family, or nothing hooked.
                Err(error) if matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::ENOENT)) => {}
                other => other?,
            }
        }
    }
    Ok(Some(functions))
}

/// The functions on the netdev ingress hook of a device.
pub fn ingress_hooks(device: &str) -> Result<Option<Vec<HookedFunction>>> {
    let mut channel = Channel::open(libc::NETLINK_NETFILTER)?;
    let mut functions = Vec::new();
    match dump(
        &mut channel,
        nft::NFPROTO_NETDEV,
        0,
        Some(device),
        &mut functions,
    ) {
        Err(error) if matches!(error.errno(), Some(libc::EINVAL)) => Ok(None),
        Err(error) if matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::ENOENT)) => {
            Ok(Some(functions))
        }
        other => other.map(|()| Some(functions)),
    }
}

fn dump(
    channel: &mut Channel,
    family: u8,
    hook: u32,
    device: Option<&str>,
    functions: &mut Vec<HookedFunction>,
) -> Result<()> {
    let mut each = |message: Message<'_>| functions.extend(function(message.payload));
    let body = |writer: &mut Writer| {
        writer.raw(&[family, 0, 0, 0]);
        writer.attr(NFNLA_HOOK_HOOKNUM, &hook.to_be_bytes());
        if let Some(device) = device {
            writer.attr_text(NFNLA_HOOK_DEV, device);
        }
    };
    channel
        .dump("list the netfilter hooks", HOOK_GET, body, &mut each)
        .map(|_| ())
}

pub(crate) fn function(payload: &[u8]) -> Option<HookedFunction> {
    let mut found = HookedFunction {
        family: u8_at(payload, 0)?,
        hook: 0,
        priority: 0,
        function: String::new(),
        module: String::new(),
        nftables: false,
    };
    for attr in attrs_after(payload, 4) {
        match attr.kind {
            NFNLA_HOOK_HOOKNUM => found.hook = attr.be32()?,
            NFNLA_HOOK_PRIORITY => found.priority = attr.be32()? as i32,
            NFNLA_HOOK_FUNCTION_NAME => found.function = attr.text(),
            NFNLA_HOOK_MODULE_NAME => found.module = attr.text(),
            NFNLA_HOOK_CHAIN_INFO => {
                let kind = attr.nested().find(2).and_then(|kind| kind.be32());
                found.nftables = kind == Some(TYPE_NFTABLES);
            }
            _ => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_tracked_by_family() {
        let hooked =
            |family, name: &str| HookedFunction::named(family, 0, name.to_owned(), String::new());
        let four = hooked(nft::NFPROTO_IPV4, "ipv4_conntrack_in");
        let six = hooked(nft::NFPROTO_IPV6, "ipv6_conntrack_in");
        let other = hooked(nft::NFPROTO_IPV4, "ipv4_conntrack_defrag");
        assert_eq!(track(&[]), [false; 2]);
        assert_eq!(track(&[other.clone(), four]), [true, false]);
        assert_eq!(track(&[six, other]), [false, true]);
    }
}
