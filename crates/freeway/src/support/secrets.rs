// SPDX-License-Identifier: MIT OR Apache-2.0
//! What no archive is to have, whoever asks: keys and passwords. Nothing that is gathered shows any by itself, but comments
//! and configurations of others may.

use std::borrow::Cow;

use serde_json::Value;

/// What stands in place of one.
const GONE: &str = "(removed)";
/// Words behind which one follows.
const NAMES: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "psk",
    "private_key",
    "private-key",
    "privatekey",
    "preshared",
];
/// A key of 32 octets in base 64, as WireGuard writes it.
const KEY: usize = 44;

/// The text without them, line by line.
pub fn removed(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines
        .map(|line| without_keys(&without_named(line)))
        .collect()
}

/// The same of a value, which stays one.
pub fn removed_of(value: &mut Value) {
    match value {
        Value::String(text) => *text = removed(text),
        Value::Array(values) => values.iter_mut().for_each(removed_of),
        Value::Object(fields) => {
            for (name, value) in fields {
                match NAMES
                    .iter()
                    .any(|word| name.to_ascii_lowercase().contains(word))
                {
                    true => *value = GONE.into(),
                    false => removed_of(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What is said to be one: all behind the name, to the end of the line.
fn without_named(line: &str) -> Cow<'_, str> {
    let lower = line.to_ascii_lowercase();
    let ends = NAMES
        .iter()
        .filter_map(|name| lower.find(name).map(|at| at + name.len()));
    let Some(end) = ends.min() else {
        return line.into();
    };
    let newline = if line.ends_with('\n') { "\n" } else { "" };
    match line[end..].trim_end().is_empty() {
        true => line.into(),
        false => format!("{} {GONE}{newline}", &line[..end]).into(),
    }
}

fn without_keys(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while !rest.is_empty() {
        let of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
        let end = rest.find(|c| !of_key(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        let key = word.len() == KEY && word.ends_with('=') && !word[..KEY - 1].contains('=');
        out.push_str(if key { GONE } else { word });
        let next = rest[end..].chars().next().map_or(0, char::len_utf8);
        out.push_str(&rest[end..end + next]);
        rest = &rest[end + next..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_so_goes_and_the_rest_stays() {
        let text = "# Password: geheim\n[flows]\nmax = 7 # wifi psk \"x\"\nkey yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk= end\n";
        assert_eq!(
            removed(text),
            "# Password (removed)\n[flows]\nmax = 7 # wifi psk (removed)\nkey (removed) end\n"
        );
    }

    #[test]
    fn a_value_stays_one() {
        let mut value = serde_json::json!({"a": ["my psk is 7", 7], "wifi_psk": {"b": 1}});
        removed_of(&mut value);
        let expected = serde_json::json!({"a": ["my psk (removed)", 7], "wifi_psk": GONE});
        assert_eq!(value, expected);
    }

    #[test]
    fn what_only_looks_alike_stays() {
        let text = "the secret\nsha1 da39a3ee5e6b4b0d3255bfef95601890afd80709\na/very/long/path/with/many/folders/in/it/here\nü=";
        assert_eq!(removed(text), text);
    }
}
