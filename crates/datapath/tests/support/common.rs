// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the vectors are, and how a table goes over one of common.toml.

use std::path::PathBuf;

use toml::Table;

pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

pub fn read(name: &str) -> Table {
    let path = directory().join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    text.parse()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `base` names a table of common.toml; the rest goes over it.
pub fn over(common: &Table, kind: &str, table: &Table) -> Table {
    let mut result = match table.get("base") {
        Some(base) => {
            let name = base.as_str().unwrap();
            let named = common[kind]
                .get(name)
                .unwrap_or_else(|| panic!("no {kind} {name}"));
            over(common, kind, named.as_table().unwrap())
        }
        None => Table::new(),
    };
    result.extend(
        table
            .iter()
            .filter(|(key, _)| *key != "base")
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    result
}
