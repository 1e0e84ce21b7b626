// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of the legacy iptables, which netlink does not show: read with the calls that iptables itself uses.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use serde::Serialize;

use super::xtables::{INFO_LEN, Layout};
use super::{NFPROTO_IPV4, NFPROTO_IPV6, Table, xtables};
use crate::nla::u32_at;

/// IPT_SO_GET_INFO, IP6T_SO_GET_INFO.
const GET_INFO: i32 = 64;
/// IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES.
const GET_ENTRIES: i32 = 65;
/// struct ipt_get_entries before its entries: name of 32 bytes, size, padding.
const ENTRIES_AT: usize = 40;
/// Others change the table between the two calls; then they are made again.
const ATTEMPTS: u32 = 3;

/// A table of the legacy iptables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegacyTable {
    /// ip, ip6 or arp.
    pub family: String,
    /// filter, nat, mangle, raw or security.
    pub name: String,
    /// Rules and chains in it beside the policies of its built-in chains; `None` if that is not known.
    pub rules: Option<u32>,
    /// Differs if its rules do, but for their counters; `None` if they could not be read.
    pub digest: Option<u64>,
    /// Its rules as nftables would have them.
    #[serde(skip)]
    pub content: Option<Table>,
}

impl LegacyTable {
    /// The family that its rules are of, if they are of IP packets.
    pub fn nfproto(&self) -> Option<u8> {
        match self.family.as_str() {
            "ip" => Some(NFPROTO_IPV4),
            "ip6" => Some(NFPROTO_IPV6),
            _ => None,
        }
    }

    /// True if it may do something to an IP packet.
    pub fn matters(&self) -> bool {
        self.rules != Some(0) && self.nfproto().is_some()
    }
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
        let names = names.lines().filter(|name| !name.is_empty());
        tables.extend(names.map(|name| table(family, name)));
    }
    tables
}

fn table(family: &str, name: &str) -> LegacyTable {
    let mut table = LegacyTable {
        family: family.to_owned(),
        name: name.to_owned(),
        rules: None,
        digest: None,
        content: None,
    };
    // No more of the ARP tables: they meet no IP packet.
    let Some(socket) = Socket::open(family) else {
        return table;
    };
    for _ in 0..ATTEMPTS {
        let Some(info) = socket.info(name) else {
            break;
        };
        // An empty table has an entry for each built-in chain and one that ends it.
        let hooks = u32_at(&info, 32).map(u32::count_ones);
        let entries = u32_at(&info, 76);
        table.rules = entries
            .zip(hooks)
            .and_then(|(entries, hooks)| entries.checked_sub(hooks + 1));
        if let Some(entries) = socket.entries(name, &info) {
            table.digest = Some(digest(&entries, socket.layout));
            table.content = xtables::table(name, socket.layout, &info, &entries);
            break;
        }
    }
    table
}

/// A raw socket, as iptables uses to speak to the kernel.
struct Socket {
    fd: OwnedFd,
    level: i32,
    layout: Layout,
}

impl Socket {
    fn open(family: &str) -> Option<Socket> {
        let (domain, level, layout) = match family {
            "ip" => (libc::AF_INET, libc::IPPROTO_IP, xtables::IP),
            "ip6" => (libc::AF_INET6, libc::IPPROTO_IPV6, xtables::IP6),
            _ => return None,
        };
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
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Some(Socket { fd, level, layout })
    }

    fn get(&self, option: i32, buffer: &mut [u8]) -> Option<()> {
        let mut len = buffer.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to the buffer, and the length back to `len`.
        let done = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                self.level,
                option,
                buffer.as_mut_ptr().cast(),
                &mut len,
            )
        };
        (done == 0).then_some(())
    }

    fn info(&self, name: &str) -> Option<[u8; INFO_LEN]> {
        let mut info = [0u8; INFO_LEN];
        put_name(&mut info, name)?;
        self.get(GET_INFO, &mut info)?;
        Some(info)
    }

    fn entries(&self, name: &str, info: &[u8; INFO_LEN]) -> Option<Vec<u8>> {
        let size = u32_at(info, 80)?;
        let mut buffer = vec![0u8; ENTRIES_AT + size as usize];
        put_name(&mut buffer, name)?;
        buffer.get_mut(32..36)?.copy_from_slice(&size.to_ne_bytes());
        self.get(GET_ENTRIES, &mut buffer)?;
        Some(buffer.split_off(ENTRIES_AT))
    }
}

fn put_name(buffer: &mut [u8], name: &str) -> Option<()> {
    buffer
        .get_mut(..name.len())
        .filter(|slot| slot.len() < 32)?
        .copy_from_slice(name.as_bytes());
    Some(())
}

/// Of the entries without their counters.
fn digest(entries: &[u8], layout: Layout) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entry in xtables::entries(entries, layout) {
        entry.without_counters().hash(&mut hasher);
    }
    hasher.finish()
}
