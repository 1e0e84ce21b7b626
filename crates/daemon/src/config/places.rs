// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the keys of a configuration stand in its file.

use std::collections::BTreeMap;

use freeway_console::place_in;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Line and column of each key by its path; elements of lists have numbers, from 0 on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places(BTreeMap<Vec<String>, (usize, usize)>);

impl Places {
    /// Of a text that parses; none of another.
    pub fn of(text: &str) -> Self {
        let mut places = Self::default();
        if let Ok(table) = DeTable::parse(text) {
            places.enter_table(text, &mut Vec::new(), table.get_ref());
        }
        places
    }

    fn enter_table(&mut self, text: &str, path: &mut Vec<String>, table: &DeTable<'_>) {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            self.0
                .insert(path.clone(), place_in(text, key.span().start));
            self.enter(text, path, value);
            path.pop();
        }
    }

    fn enter(&mut self, text: &str, path: &mut Vec<String>, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.enter_table(text, path, table),
            DeValue::Array(elements) => {
                for (element, number) in elements.iter().zip(0..) {
                    path.push(format!("{number}"));
                    self.0
                        .insert(path.clone(), place_in(text, element.span().start));
                    self.enter(text, path, element);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    /// The line of a key, if the file has it.
    pub fn line(&self, path: &[String]) -> Option<usize> {
        self.0.get(path).map(|(line, _)| *line)
    }

    /// Where a key is, or what it is in.
    pub fn near(&self, path: &[String]) -> Option<(usize, usize)> {
        let mut within = (1..=path.len()).rev();
        within.find_map(|length| self.0.get(&path[..length]).copied())
    }

    /// The longest path with which words begin, as they write it.
    pub fn named_by(&self, words: &str) -> Option<&[String]> {
        let named = self.0.keys().filter(|path| {
            let rest = words.strip_prefix(&path.join("."));
            rest.is_some_and(|rest| rest.starts_with([':', '.', ' ']))
        });
        named.max_by_key(|path| path.len()).map(Vec::as_slice)
    }
}

/// A key's path without the numbers of tables in lists.
pub fn unnumbered(path: &[String]) -> Vec<String> {
    let number = |part: &&String| !part.chars().all(|c| c.is_ascii_digit());
    match path.first().map(String::as_str) {
        Some("port" | "engine") => path.to_vec(),
        _ => path.iter().filter(number).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_lines_however_they_are_written() {
        let text = "flows.max = 1\n\n[port]\nlan0 = { path = \"tc\" }\n[port.\"a.1\"]\n\n\
                    [[policy.exclude]]\nproto = \"udp\"\n[[policy.exclude]]\nport = [\n  \"lan0\",\n  \"lan1\"]\n";
        let places = Places::of(text);
        let line = |words: &str| {
            let path: Vec<_> = words.split(' ').map(str::to_owned).collect();
            places.line(&path)
        };
        assert_eq!(line("flows max"), Some(1));
        assert_eq!(line("port lan0 path"), Some(4));
        assert_eq!(line("port a.1"), Some(5));
        assert_eq!(line("policy exclude 1"), Some(9));
        assert_eq!(line("policy exclude 1 port 1"), Some(12));
        assert_eq!(line("flows tcp_idle_s"), None);
        let path = ["port", "lan0", "wire_true"].map(str::to_owned);
        assert_eq!(places.near(&path), Some((4, 1)));
        let named = places.named_by("port.lan0: wrong").unwrap();
        assert_eq!(named, ["port", "lan0"]);
        assert_eq!(Places::of("[flows"), Places::default());
    }
}
