// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of the legacy iptables, which netlink does not show.

use std::fs;

use serde::Serialize;

/// A table of the legacy iptables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegacyTable {
    /// ip, ip6 or arp.
    pub family: String,
    /// filter, nat, mangle, raw or security.
    pub name: String,
}

/// The legacy tables of the calling thread's network namespace. One exists once a tool has looked at it.
/// Tables of legacy ebtables are not listed anywhere.
pub fn legacy_tables() -> Vec<LegacyTable> {
    // Not /proc/net: that is the namespace of the process's first thread.
    let files = [
        ("ip", "ip_tables_names"),
        ("ip6", "ip6_tables_names"),
        ("arp", "arp_tables_names"),
    ];
    let mut tables = Vec::new();
    for (family, file) in files {
        let names = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        tables.extend(
            names
                .lines()
                .filter(|name| !name.is_empty())
                .map(|name| LegacyTable {
                    family: family.to_owned(),
                    name: name.to_owned(),
                }),
        );
    }
    tables
}
