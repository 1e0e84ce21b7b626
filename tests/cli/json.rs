// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the commands print with `--json` is what docs/json.md says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use freeway_testkit::*;
use serde_json::Value;

/// The blocks of docs/json.md by name.
struct Schema(BTreeMap<String, Value>);

impl Schema {
    fn read() -> Schema {
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

    #[track_caller]
    fn check(&self, name: &str, value: &Value) {
        let mut wrong = Vec::new();
        self.compare(&self.0[name], value, name, &mut wrong);
        assert!(wrong.is_empty(), "{name}: {wrong:#?}\n{value:#}");
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

#[test]
fn differences_are_found() {
    let schema = Schema::read();
    let flush = |json: &str| {
        let mut wrong = Vec::new();
        let value = serde_json::from_str(json).unwrap();
        schema.compare(&schema.0["flush"], &value, "flush", &mut wrong);
        wrong.len()
    };
    assert_eq!(flush(r#"{"flows": 1}"#), 0);
    assert_eq!(flush(r#"{"flows": -1}"#), 1);
    assert_eq!(flush(r#"{"flows": null}"#), 1);
    assert_eq!(flush(r#"{}"#), 1);
    assert_eq!(flush(r#"{"flows": 1, "more": 2}"#), 1);
    assert_eq!(flush("[]"), 1);
}

#[test]
fn every_command_prints_what_is_documented() {
    let Some(_machine) = machine() else { return };
    let schema = Schema::read();
    let lab = build("nat");
    let config = "[[policy.exclude]]\ndport = [9999]\n[accounting]\nhosts = [\"192.0.2.0/24\"]\n[[export]]\ncollector = \"192.0.2.2:4739\"\n";
    let router = Router::start_with(&lab, config);
    let to = "198.51.100.2:5001".parse().unwrap();
    let listener = listen(lab.server(), to);
    let from = "192.0.2.2:40001".parse().unwrap();
    let mut ends = pair((lab.client(), from), to, &listener);
    exchange_blocks(&mut ends, 8);
    router.wait_fast("proto tcp", 2, 1);

    for command in [
        "status", "stats", "drops", "hosts", "routes", "flows", "doctor",
    ] {
        schema.check(command, &router.json(&[command]));
    }
    assert_eq!(router.flows("").len(), 2);
    // each line of --watch is such an object
    for command in ["status", "stats", "drops", "routes", "flows"] {
        let program = freeway_testkit::program("freeway");
        let script = format!("{program} {command} --json --watch=0.1 | head -n 2");
        let mut shell = std::process::Command::new("sh");
        let output = lab
            .router()
            .place(shell.args(["-c", &script]))
            .unwrap()
            .output()
            .unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        assert_eq!(lines.lines().count(), 2, "{command}");
        for line in lines.lines() {
            schema.check(command, &serde_json::from_str(line).unwrap());
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a.tar.gz");
    let support = router.json(&["support", "-o", archive.to_str().unwrap()]);
    schema.check("support", &support);

    router.json(&["top"]);
    exchange_blocks(&mut ends, 8);
    std::thread::sleep(Duration::from_millis(600));
    let top = router.json(&["top"]);
    schema.check("top", &top);
    assert_eq!(top["flows"].as_array().unwrap().len(), 2, "{top:#}");
    assert!(top["fast"]["bits_per_s"].as_f64().unwrap() > 1e6, "{top:#}");

    let explain =
        |src: &str, dst: &str| router.json(&["explain", "--watch", "0.1", "tcp", src, dst]);
    let known = explain("192.0.2.2:40001", "198.51.100.2:5001");
    schema.check("explain", &known);
    for field in ["flow", "reply_flow", "connection", "neighbour"] {
        assert!(known[field].is_object(), "{field}: {known:#}");
    }
    schema.check("explain", &explain("203.0.113.1:1", "203.0.113.2:2"));

    for words in [
        "add engine",
        "add --at 1 xdp proto tcp src 192.0.2.0/24 dport 1-2 port lan0",
        "delete 2",
        "list",
    ] {
        let words: Vec<_> = ["steer"].into_iter().chain(words.split(' ')).collect();
        let steering = router.json(&words);
        schema.check("steer", &steering);
        assert!(!steering["rules"].as_array().unwrap().is_empty());
    }
    // the file of a pipe cannot be read again
    let reload = router.run(&["reload", "--json"]);
    assert_eq!(reload.status.code(), Some(78));
    let config = std::env::temp_dir().join(format!("freeway-json-{}.toml", std::process::id()));
    let file = config.to_str().unwrap();
    for (text, ok) in [("[flows]\nmax = 9\n", true), ("[flows]\nmax = 0\n", false)] {
        std::fs::write(&config, text).unwrap();
        let output = router.run(&["config", "check", "--json", file]);
        let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
        schema.check("config check", &checked);
        assert_eq!(checked["ok"], ok, "{checked:#}");
        assert_eq!(output.status.code(), Some(if ok { 0 } else { 78 }));
    }
    std::fs::write(&config, "[daemon]\nlog = \"warn\"\n").unwrap();
    schema.check("config show", &router.json(&["config", "show", file]));
    std::fs::remove_file(&config).unwrap();
    for command in ["off", "on", "flush", "resync"] {
        schema.check(command, &router.json(&[command]));
    }
    schema.check("lab list", &router.json(&["lab", "list"]));
    router.stop();
}
