// SPDX-License-Identifier: MIT OR Apache-2.0
//! What differs between two configurations, and what of that needs a restart.

use std::collections::BTreeMap;

use freeway_api::{KeyChange, PathChoice};

use super::Config;
use super::entries::{Entry, dotted};

/// A key that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The tables around it, and its name.
    pub path: Vec<String>,
    /// What is said of it.
    pub words: KeyChange,
    /// Its line in the newer file, if it is there.
    pub line: Option<usize>,
}

/// What differs, by key.
pub fn changes(before: &Config, after: &Config) -> Result<Vec<Change>, String> {
    let keyed = |config: &Config| -> Result<BTreeMap<Vec<String>, Entry>, String> {
        let entries = config.entries()?.into_iter();
        let mut keyed = BTreeMap::new();
        keyed.extend(entries.map(|entry| (entry.path.clone(), entry)));
        Ok(keyed)
    };
    let (before, after) = (keyed(before)?, keyed(after)?);
    let mut paths: Vec<&Vec<String>> = before.keys().chain(after.keys()).collect();
    paths.sort();
    paths.dedup();
    let value = |of: &BTreeMap<_, Entry>, path: &Vec<String>| match of.get(path) {
        Some(entry) => entry.value.clone(),
        None => without_table(path),
    };
    let mut changes = Vec::new();
    for path in paths {
        let (from, to) = (value(&before, path), value(&after, path));
        if from == to {
            continue;
        }
        changes.push(Change {
            path: path.clone(),
            words: KeyChange {
                key: dotted(path),
                from,
                to,
            },
            line: after.get(path).and_then(|entry| entry.line),
        });
    }
    Ok(changes)
}

/// What holds where a port has no table.
fn without_table(path: &[String]) -> Option<String> {
    match parts(path)[..] {
        ["port", _, "path"] => Some(format!("\"{}\"", PathChoice::default().name())),
        ["port", _, "wire_true"] => Some("false".into()),
        ["port", _, "routes"] => Some("true".into()),
        _ => None,
    }
}

fn parts(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// True of a key that a running daemon cannot apply: sizes and constants of the programs, and what others have been told.
pub fn needs_restart(path: &[String], before: &Config, after: &Config) -> bool {
    let engines = [before, after].map(|config| &config.engine.port);
    match parts(path)[..] {
        ["flows", "max"] | ["punts" | "engine", ..] | ["daemon", "socket" | "rcvbuf_bytes"] => true,
        // a data plane that has none at all was loaded so
        ["policy", "routes"] => before.policy.without_routes() != after.policy.without_routes(),
        // the engine has sockets and devices there that it was given when it came
        ["port", name, ..] => engines.iter().any(|ports| ports.contains_key(name)),
        ["daemon", "interfaces"] => engines.iter().any(|ports| !ports.is_empty()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, "x").unwrap()
    }

    fn words(before: &str, after: &str) -> Vec<String> {
        let changes = changes(&config(before), &config(after)).unwrap();
        changes.iter().map(|change| change.words.words()).collect()
    }

    #[test]
    fn each_key_that_differs_is_named() {
        assert!(words("", "flows.max = 65535\n[port.lan0]\npath = \"auto\"\n").is_empty());
        assert_eq!(
            words(
                "[flows]\ntcp_idle_s = 7\n[port.lan0]\npath = \"tc\"\n",
                "[daemon]\nmetrics = \"127.0.0.1:1\"\n[punts.limits]\nicmp = 9\n"
            ),
            [
                "daemon.metrics: none -> \"127.0.0.1:1\"",
                "flows.tcp_idle_s: 7 -> 60",
                "port.lan0.path: \"tc\" -> \"auto\"",
                "punts.limits.icmp: none -> 9",
            ]
        );
    }

    #[test]
    fn keys_that_need_a_restart_are_known() {
        let restarts = |before: &str, after: &str| {
            let (before, after) = (config(before), config(after));
            let changes = changes(&before, &after).unwrap();
            let restart = |change: &Change| needs_restart(&change.path, &before, &after);
            let keys = changes.iter().filter(|change| restart(change));
            keys.map(|change| change.words.key.clone())
                .collect::<Vec<_>>()
        };
        let after = "[flows]\nmax = 9\nudp_idle_s = 9\n[punts.limits]\nicmp = 9\n[policy]\ntcp = false\n\
            [port.lan0]\npath = \"tc\"\n[daemon]\ninterfaces = [\"lan0\"]\nrcvbuf_bytes = 9\nsocket = \"/a\"\n";
        assert_eq!(
            restarts("", after),
            [
                "daemon.rcvbuf_bytes",
                "daemon.socket",
                "flows.max",
                "punts.limits.icmp"
            ]
        );
        let engine = "[engine.port.lan0]\naf_xdp = true\n";
        let ports = "[port.lan0]\npath = \"tc\"\n[port.lan1]\npath = \"tc\"\n[daemon]\ninterfaces = [\"lan0\"]\n";
        assert_eq!(
            restarts(engine, &format!("{engine}{ports}")),
            ["daemon.interfaces", "port.lan0.path"]
        );
        assert_eq!(restarts("", engine), ["engine.port.lan0.af_xdp"]);
    }

    /// The table of docs/configuration.md is complete, and right.
    #[test]
    fn the_page_says_what_each_key_needs() {
        let page = include_str!("../../../../docs/configuration.md");
        let (_, page) = page.split_once("\n## Changing it\n").unwrap();
        let (section, _) = page.split_once("\n## ").unwrap();
        let config = config("[port.NAME]\n[punts.limits]\nicmp = 1\n");
        let mut keys: Vec<_> = config.entries().unwrap();
        keys.retain(|entry| entry.path[0] != "engine");
        for entry in keys {
            let key = match parts(&entry.path)[..] {
                ["punts", ..] => "punts.limits".to_owned(),
                _ => entry.key(),
            };
            let row = section
                .lines()
                .find(|row| row.contains(&format!("`{key}`")));
            let row = row.unwrap_or_else(|| panic!("{key}"));
            let restart = row.contains("needs a restart");
            assert_eq!(
                restart,
                needs_restart(&entry.path, &config, &config),
                "{row}"
            );
        }
    }
}
