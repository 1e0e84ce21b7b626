// SPDX-License-Identifier: MIT OR Apache-2.0
//! A configuration as a list of keys and values, as they would be written.

use toml::{Table, Value};

use super::Config;

/// Keys that may be absent.
const OPTIONAL: [[&str; 2]; 3] = [
    ["daemon", "metrics"],
    ["daemon", "socket"],
    ["web", "token_file"],
];

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The tables around it, and its name.
    pub path: Vec<String>,
    /// As TOML writes it, in one line; `None`: it is absent.
    pub value: Option<String>,
    /// Its line in the file; `None`: it is not there.
    pub line: Option<usize>,
}

impl Entry {
    /// Tables and name with dots between.
    pub fn key(&self) -> String {
        dotted(&self.path)
    }
}

/// A path as TOML writes it.
pub fn dotted(path: &[String]) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let part = |part: &String| match !part.is_empty() && part.chars().all(bare) {
        true => part.clone(),
        false => Value::String(part.clone()).to_string(),
    };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}

impl Config {
    /// Every key that has a value or could have one; of lists of tables the list is the value.
    pub fn entries(&self) -> Result<Vec<Entry>, String> {
        let table = Table::try_from(self).map_err(|error| error.to_string())?;
        let mut entries = Vec::new();
        self.enter(&mut Vec::new(), table, &mut entries);
        for path in OPTIONAL.map(|path| path.map(str::to_owned)) {
            if !entries.iter().any(|entry| entry.path == path) {
                entries.push(Entry {
                    path: path.into(),
                    value: None,
                    line: None,
                });
            }
        }
        // a table's own keys come ahead of the tables in it
        entries.sort_by(|one, other| tables(one).cmp(&tables(other)));
        Ok(entries)
    }

    fn enter(&self, path: &mut Vec<String>, table: Table, entries: &mut Vec<Entry>) {
        for (name, value) in table {
            path.push(name);
            match value {
                Value::Table(table) => self.enter(path, table, entries),
                value => entries.push(Entry {
                    path: path.clone(),
                    value: Some(shortened(value).to_string()),
                    line: self.places.line(path),
                }),
            }
            path.pop();
        }
    }
}

fn tables(entry: &Entry) -> (&[String], Option<&String>) {
    let (name, tables) = match entry.path.split_last() {
        Some((name, tables)) => (Some(name), tables),
        None => (None, &[][..]),
    };
    (tables, name)
}

/// Without what a table in a list does not name.
fn shortened(value: Value) -> Value {
    let named = |value: &Value| value.as_array().is_none_or(|list| !list.is_empty());
    match value {
        Value::Array(list) => Value::Array(list.into_iter().map(shortened).collect()),
        Value::Table(mut table) => {
            table.retain(|_, value| named(value));
            Value::Table(table)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[flows]\nudp_idle_s = 5\n[[policy.exclude]]\nproto = \"udp\"\ndport = [53, \"5060-5061\"]\n\
        [[policy.steer]]\npath = \"engine\"\n[punts.limits]\nicmp = 100\n[port.\"lan0.7\"]\npath = \"tc\"\n\
        [[scrub.limit]]\nport = [\"lan1\"]\nproto = \"udp\"\npackets_per_s = 100\n\
        [engine.port.lan1]\naf_xdp = true\n[daemon]\nlog = \"debug\"\nmetrics = \"127.0.0.1:9100\"\n";

    #[test]
    fn entries_are_the_configuration() {
        let config = Config::parse(TEXT, "x").unwrap();
        let entries = config.entries().unwrap();
        let line = |entry: &Entry| {
            let value = entry.value.as_ref();
            value.map(|value| format!("{} = {value}\n", entry.key()))
        };
        let text: String = entries.iter().filter_map(line).collect();
        let again = Config::parse(&text, "x").unwrap();
        let without_places = |config: &Config| Config {
            places: Default::default(),
            ..config.clone()
        };
        assert_eq!(without_places(&again), without_places(&config), "{text}");
        for words in [
            "flows.max = 65535\n",
            "policy.exclude = [{ dport = [\"53\", \"5060-5061\"], proto = \"udp\" }]\n",
            "port.\"lan0.7\".path = \"tc\"\n",
            "punts.limits.icmp = 100\n",
            "scrub.limit = [{ packets_per_s = 100, port = [\"lan1\"], prefix_len4 = 32, prefix_len6 = 64, proto = \"udp\" }]\n",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn entries_have_lines_and_are_all() {
        let config = Config::parse(TEXT, "x").unwrap();
        let entries = config.entries().unwrap();
        let of = |key: &str| entries.iter().find(|entry| entry.key() == key).unwrap();
        assert_eq!(of("flows.udp_idle_s").line, Some(2));
        assert_eq!(of("flows.max").line, None);
        assert_eq!(of("policy.steer").line, Some(6));
        assert_eq!(of("port.\"lan0.7\".path").line, Some(11));
        assert_eq!(of("port.\"lan0.7\".wire_true").line, None);
        assert_eq!(of("daemon.socket").value, None);
    }
}
