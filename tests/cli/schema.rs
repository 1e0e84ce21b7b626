// SPDX-License-Identifier: MIT OR Apache-2.0
//! What docs/json.md says of what commands print.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// The blocks of docs/json.md by name.
pub struct Schema(BTreeMap<String, Value>);

impl Schema {
    pub fn read() -> Schema {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
        let text = std::fs::read_to_string(file).unwrap();
        let blocks = text.split("```json schema ").skip(1).map(|block| {
            let (name, rest) = block.split_once('\n').unwrap();
            let (json, _) = rest.split_once("```").unwrap();
            let schema = serde_json::from_str(json).unwrap_or_else(|e| panic!("{name}: {e}"));
            (name.to_owned(), schema)
        });
        Schema(blocks.collect())
    }

    /// A value is what the block of that name says.
    #[track_caller]
    pub fn check(&self, name: &str, value: &Value) {
        let wrong = self.differences(name, value);
        assert!(wrong.is_empty(), "{name}: {wrong:#?}\n{value:#}");
    }

    /// In what a value is not that.
    pub fn differences(&self, name: &str, value: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        self.compare(&self.0[name], value, name, &mut wrong);
        wrong
    }

    fn compare(&self, schema: &Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
        match (schema, value) {
            (Value::Object(fields), Value::Object(values)) => {
                for (field, schema) in fields {
                    let (name, nullable) = match field.strip_suffix('?') {
                        Some(name) => (name, true),
                        None => (field.as_str(), false),
                    };
                    match values.get(name) {
                        None => wrong.push(format!("{place}.{name} is missing")),
                        Some(Value::Null) if nullable => {}
                        Some(value) => {
                            self.compare(schema, value, &format!("{place}.{name}"), wrong);
                        }
                    }
                }
                let known = |name: &str| {
                    fields.contains_key(name) || fields.contains_key(&format!("{name}?"))
                };
                let unknown = values.keys().filter(|name| !known(name));
                wrong.extend(unknown.map(|name| format!("{place}.{name} is not documented")));
            }
            (Value::Array(of), Value::Array(values)) => {
                for (at, value) in values.iter().enumerate() {
                    self.compare(&of[0], value, &format!("{place}[{at}]"), wrong);
                }
            }
            (Value::String(kind), value) => {
                let fits = match kind.as_str() {
                    "string" => value.is_string(),
                    "bool" => value.is_boolean(),
                    "integer" => value.is_u64(),
                    "number" => value.is_number(),
                    other => match other.strip_prefix('@') {
                        Some(name) => return self.compare(&self.0[name], value, place, wrong),
                        None => {
                            assert!(other.contains('|'), "{other} is no type");
                            other.split('|').any(|word| value == word)
                        }
                    },
                };
                if !fits {
                    wrong.push(format!("{place} is {value}, not {kind}"));
                }
            }
            _ => wrong.push(format!("{place} is {value}")),
        }
    }
}
