// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of the legacy iptables, which netlink does not show.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use serde::Serialize;

use crate::nla::u32_at;

/// IPT_SO_GET_INFO, IP6T_SO_GET_INFO.
const GET_INFO: i32 = 64;

/// A table of the legacy iptables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegacyTable {
    /// ip, ip6 or arp.
    pub family: String,
    /// filter, nat, mangle, raw or security.
    pub name: String,
    /// Rules and chains in it beside the policies of its built-in chains; `None` if that is not known.
    pub rules: Option<u32>,
}

/// The legacy tables of the calling thread's network namespace. One exists once a tool has looked at it.
/// Tables of legacy ebtables are not listed anywhere.
pub fn legacy_tables() -> Vec<LegacyTable> {
    // Not /proc/net: that is the namespace of the process's first thread.
    let files = [
        ("ip", "ip_tables_names", libc::AF_INET, libc::IPPROTO_IP),
        (
            "ip6",
            "ip6_tables_names",
            libc::AF_INET6,
            libc::IPPROTO_IPV6,
        ),
        // No count: the ARP tables meet no IP packet.
        ("arp", "arp_tables_names", -1, 0),
    ];
    let mut tables = Vec::new();
    for (family, file, domain, level) in files {
        let names = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        let names = names.lines().filter(|name| !name.is_empty());
        tables.extend(names.map(|name| LegacyTable {
            family: family.to_owned(),
            name: name.to_owned(),
            rules: rules(name, domain, level),
        }));
    }
    tables
}

/// Asks for struct ipt_getinfo (`get_info`): name of 32 bytes, valid hooks, 5 entry points, 5 underflows, number
/// of entries, size. An empty table has an entry for each built-in chain and one that ends it.
fn rules(name: &str, domain: i32, level: i32) -> Option<u32> {
    // SAFETY: no pointers; the result is checked before it is owned.
    let fd = unsafe {
        libc::socket(
            domain,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::IPPROTO_RAW,
        )
    };
    if fd < 0 {
        return None;
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut info = [0u8; 84];
    info.get_mut(..name.len())
        .filter(|slot| slot.len() < 32)?
        .copy_from_slice(name.as_bytes());
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `info`, and the length back to `len`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            GET_INFO,
            info.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if done != 0 {
        return None;
    }
    let hooks = u32_at(&info, 32)?.count_ones();
    u32_at(&info, 76)?.checked_sub(hooks + 1)
}
