// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the machine is, and how its network is set up: by the programs with which it is.

use std::io::{self, Write};
use std::path::Path;

use freeway_api::Status;
use nix::sys::utsname::uname;

use super::collection::Collection;
use super::daemon::read;
use super::tool;

/// Of what one program prints.
const PRINTED_MAX: u64 = 2 << 20;
/// Ports whose drivers are asked.
const PORTS_MAX: usize = 64;
/// Lines of the log.
const LOG_LINES: &str = "2000";
/// Where the kernel tells its types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// What `ip` prints as JSON, of all families.
const NETWORK: [(&str, &[&str]); 7] = [
    ("link", &["ip", "-d", "-s", "-j", "link"]),
    ("addr", &["ip", "-d", "-j", "addr"]),
    (
        "route",
        &["ip", "-d", "-j", "route", "show", "table", "all"],
    ),
    (
        "route6",
        &["ip", "-6", "-d", "-j", "route", "show", "table", "all"],
    ),
    ("rule", &["ip", "-d", "-j", "rule"]),
    ("rule6", &["ip", "-6", "-d", "-j", "rule"]),
    ("neigh", &["ip", "-d", "-j", "neigh"]),
];

/// What ethtool(8) says of a port.
const DRIVER: [(&str, &str); 4] = [
    ("driver", "-i"),
    ("features", "-k"),
    ("rings", "-g"),
    ("channels", "-l"),
];

/// Gathers all of it.
pub fn gather<W: Write>(into: &mut Collection<W>, status: Option<&Status>) -> io::Result<()> {
    into.add("versions.txt", Ok((versions(), false)))?;
    for (name, line) in NETWORK {
        into.add_json(&format!("network/{name}.json"), printed(line))?;
    }
    let qdiscs = printed(&["tc", "-s", "-d", "-j", "qdisc"]);
    into.add_json("network/qdisc.json", qdiscs)?;
    into.add("network/nft.txt", printed(&["nft", "list", "ruleset"]))?;
    for port in ports(status).iter().take(PORTS_MAX) {
        let mut text = String::new();
        for (what, option) in DRIVER {
            let said = tool::run(&["ethtool", option, port], PRINTED_MAX);
            let said = said.map_or_else(|why| format!("{why}\n"), |printed| printed.text);
            text.push_str(&format!("## {what}\n{said}\n"));
        }
        into.add(&format!("network/ethtool/{port}.txt"), Ok((text, false)))?;
    }
    let log = [
        "journalctl",
        "--unit",
        "freeway",
        "--unit",
        "freeway-engine",
        "--unit",
        "freeway-web",
        "--lines",
        LOG_LINES,
        "--no-pager",
        "--no-hostname",
        "--output",
        "short-iso-precise",
    ];
    into.add("log.txt", printed(&log))
}

fn printed(line: &[&str]) -> Result<(String, bool), String> {
    tool::run(line, PRINTED_MAX).map(|printed| (printed.text, printed.cut))
}

/// The daemon's, or all that there are.
fn ports(status: Option<&Status>) -> Vec<String> {
    if let Some(status) = status {
        return status.ports.iter().map(|port| port.name.clone()).collect();
    }
    // of this network namespace, as nix counts them; an address more is the same name once more
    let names = nix::net::if_::if_nameindex();
    let names = names.map(|list| {
        list.iter()
            .map(|i| i.name().to_string_lossy().into_owned())
            .collect()
    });
    let names: Vec<String> = names.unwrap_or_default();
    names.into_iter().filter(|name| name != "lo").collect()
}

fn versions() -> String {
    let mut text = format!("freeway {}\n", env!("CARGO_PKG_VERSION"));
    match uname() {
        // not the name of the machine
        Ok(name) => text.push_str(&format!(
            "{} {} {} {}\n",
            name.sysname().to_string_lossy(),
            name.release().to_string_lossy(),
            name.version().to_string_lossy(),
            name.machine().to_string_lossy()
        )),
        Err(error) => text.push_str(&format!("kernel: {error}\n")),
    }
    let btf = if Path::new(BTF).exists() {
        "present"
    } else {
        "missing"
    };
    text.push_str(&format!("BTF {btf} ({BTF})\n"));
    for (tool, option) in [("ip", "-V"), ("nft", "--version"), ("ethtool", "--version")] {
        let said = tool::run(&[tool, option], PRINTED_MAX);
        text.push_str(&said.map_or_else(|why| why + "\n", |printed| printed.text));
    }
    let release = read(Path::new("/etc/os-release"));
    text.push_str(&release.map_or_else(|why| why + "\n", |(text, _)| text));
    text
}
