// SPDX-License-Identifier: MIT OR Apache-2.0
//! Banned addresses: a set of the firewall, as tools of that kind fill it.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use freeway_console::Stop;
use freeway_lab::{LabError, Netns};
use freeway_rig::RouterDaemon;

/// The first of them; the whole set is in [`PREFIX`].
pub const FIRST: u32 = 0x0a00_0001;
/// Where they all are.
pub const PREFIX: &str = "10.0.0.0/8";
/// Ahead of connection tracking.
pub const PREROUTING: (&str, &str) = ("inet", "type filter hook prerouting priority raw");
/// The name of the set's table.
const TABLE: &str = "bans";
/// The name of a set of ipset.
const IPSET: &str = "banned";
/// Elements of one command of nft.
const PIECE: u32 = 5_000;
/// A million elements take the daemon a moment.
const FOLLOW: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

/// The first so many of them are in a set by which a chain of that family at that hook drops, instead of what was there.
pub fn ban(router: &Netns, (family, hook): (&str, &str), entries: u32) -> Result<(), Stop> {
    let nft = |text: &str| router.tool_with_input("nft -f -", text);
    nft(&format!(
        "table {family} {TABLE}
        delete table {family} {TABLE}
        table {family} {TABLE} {{
            set banned {{ type ipv4_addr; size {}; }}
            chain c {{ {hook}; policy accept; ip saddr @banned drop
            }}
        }}\n",
        entries.max(1 << 16)
    ))?;
    for first in (0..entries).step_by(PIECE as usize) {
        let last = (first + PIECE).min(entries);
        let mut text = format!("add element {family} {TABLE} banned {{ ");
        for at in first..last {
            let _ = write!(text, "{}, ", Ipv4Addr::from(FIRST + at));
        }
        nft(&(text + "}\n"))?;
    }
    Ok(())
}

/// A rule of iptables in FORWARD drops by a set of ipset from now on, which is empty; or why it cannot be.
pub fn ban_by_ipset(router: &Netns, iptables: &str) -> Result<(), LabError> {
    router.tool(&format!("ipset create -exist {IPSET} hash:ip"))?;
    let rule = format!("-A FORWARD -m set --match-set {IPSET} src -j DROP");
    router.tool(&format!("{iptables} {rule}")).map(drop)
}

/// The first so many of them are in that set, instead of what was there.
pub fn fill_ipset(router: &Netns, entries: u32) -> Result<(), Stop> {
    let mut text = format!(
        "create next hash:ip hashsize {} maxelem {}\n",
        entries.max(1 << 10),
        entries.max(1 << 16)
    );
    for at in 0..entries {
        let _ = writeln!(text, "add next {}", Ipv4Addr::from(FIRST + at));
    }
    let _ = writeln!(text, "swap next {IPSET}\ndestroy next");
    router.tool_with_input("ipset restore", &text)?;
    Ok(())
}

/// Waits until the daemon has all of them.
pub fn taken_over(daemon: &RouterDaemon, entries: u32) -> Result<(), Stop> {
    let patience = Instant::now() + FOLLOW;
    loop {
        let drops = daemon.drops()?;
        let mut rules = drops.rules.iter();
        let has = rules.any(|rule| rule.elements == u64::from(entries) && !rule.loading);
        if drops.active && has {
            return Ok(());
        }
        if Instant::now() > patience {
            return Err(Stop::failure(format!(
                "Freeway has not taken over a set of {entries} addresses: {drops:?}"
            )));
        }
        thread::sleep(POLL);
    }
}
