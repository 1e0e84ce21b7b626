// SPDX-License-Identifier: MIT OR Apache-2.0
//! Banned addresses: a set of the firewall, as tools of that kind fill it.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use freeway_console::Stop;
use freeway_lab::Netns;
use freeway_rig::RouterDaemon;

/// The first of them; the whole set is in [`PREFIX`].
pub const FIRST: u32 = 0x0a00_0001;
/// Where they all are.
pub const PREFIX: &str = "10.0.0.0/8";
/// Ahead of connection tracking.
pub const PREROUTING: (&str, &str) = ("inet", "type filter hook prerouting priority raw");
/// The name of the set's table.
const TABLE: &str = "bans";
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
