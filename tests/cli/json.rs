// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the commands print with `--json` is what docs/json.md says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "schema.rs"]
mod schema;

use std::time::Duration;

use freeway_testkit::*;
use schema::Schema;
use serde_json::Value;

#[test]
fn differences_are_found() {
    let schema = Schema::read();
    let flush = |json: &str| {
        let value = serde_json::from_str(json).unwrap();
        schema.differences("flush", &value).len()
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
    router.wait_fast_while("proto tcp", 2, 1, || exchange_blocks(&mut ends, 8));

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
    for command in ["reload", "upgrade"] {
        let refused = router.run(&[command, "--json"]);
        assert_eq!(refused.status.code(), Some(78), "{command}");
    }
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
