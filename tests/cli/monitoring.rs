// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metrics as Prometheus takes them, and what packaging/ makes of them: each query of the dashboard has an answer,
//! each alert is understood.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use freeway_lab::Netns;
use freeway_testkit::*;
use serde_json::Value;

const METRICS: &str = "127.0.0.1:9100";
const PROMETHEUS: &str = "127.0.0.1:9090";
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks of Prometheus at the daemon, and at the alerts.
const INTERVAL: &str = "250ms";

/// The tables that a page without them has no samples for: a limit, and a set by which a rule drops.
const LIMITS: &str = "[punts.limits]\nfragment = 10000\n";
const RULESET: &str = "table inet f {
    set banned { type ipv4_addr; elements = { 203.0.113.9 } }
    chain raw { type filter hook prerouting priority raw; ip saddr @banned counter drop; }
}";

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name)
}

/// Runs `promtool` with something to read.
#[track_caller]
fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new("promtool");
    let command = command.args(arguments).stdin(Stdio::piped());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let words = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{arguments:?}: {}", words.concat());
    output
}

#[test]
fn alerts_are_raised_when_they_should_be() {
    let rules = packaged("prometheus/freeway.rules.yml");
    promtool(&["check", "rules", rules.to_str().unwrap()], "");
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/prometheus.yml");
    promtool(&["test", "rules", cases.to_str().unwrap()], "");
    // no alert without a case
    let rules = std::fs::read_to_string(rules).unwrap();
    let cases = std::fs::read_to_string(cases).unwrap();
    for line in rules.lines() {
        if let Some(alert) = line.trim().strip_prefix("- alert: ") {
            let raised = format!("alertname: {alert}\n        exp_alerts:");
            assert!(cases.contains(&raised), "{alert} is never raised");
        }
    }
}

/// A Prometheus in a namespace; dropping it ends it.
struct Prometheus {
    netns: Netns,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(netns: &Netns) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "global: {{ scrape_interval: {INTERVAL}, evaluation_interval: {INTERVAL} }}\n\
             rule_files: [{:?}]\n\
             scrape_configs:\n- {{ job_name: freeway, static_configs: [ {{ targets: [ {METRICS:?} ] }} ] }}\n",
            packaged("prometheus/freeway.rules.yml")
                .canonicalize()
                .unwrap()
        );
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={PROMETHEUS}"))
            .arg("--log.level=warn")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self {
            netns: netns.clone(),
            child: netns.spawn(&mut command).unwrap(),
            _folder: folder,
        }
    }

    /// What it answers, once it does.
    fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Option<Value> {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--get",
            &format!("http://{PROMETHEUS}/api/v1/{path}"),
        ]);
        for (name, value) in parameters {
            curl.args(["--data-urlencode", &format!("{name}={value}")]);
        }
        let output = self.netns.place(&mut curl).unwrap().output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).ok()?;
        assert_eq!(answer["status"], "success", "{parameters:?}: {answer}");
        Some(answer["data"].clone())
    }

    /// The series that a query finds.
    fn query(&self, query: &str) -> Vec<Value> {
        let found = self.ask("query", &[("query", query)]);
        let found = found.map(|data| data["result"].as_array().unwrap().clone());
        found.unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each query of the dashboard with the row and panel that it is of.
fn queries() -> Vec<(String, String, String)> {
    let text = std::fs::read_to_string(packaged("grafana/freeway.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = Vec::new();
    let mut row = String::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap().to_owned();
        if panel["type"] == "row" {
            row = title;
            continue;
        }
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap().to_owned();
            queries.push((row.clone(), title.clone(), query));
        }
    }
    queries
}

/// As Grafana would ask it.
fn filled_in(query: &str) -> String {
    let query = query.replace("$__rate_interval", "1m");
    query
        .replace("$job", "freeway")
        .replace("$instance", METRICS)
}

#[test]
fn prometheus_answers_what_the_dashboard_asks() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    lab.router().tool_with_input("nft -f -", RULESET).unwrap();
    let extra = format!("{LIMITS}[daemon]\nmetrics = \"{METRICS}\"\n");
    let router = Router::start_with(&lab, &extra);
    let prometheus = Prometheus::start(lab.router());
    let to = address("198.51.100.2:5001");
    let listener = listen(lab.server(), to);
    let mut ends = pair((lab.client(), address("192.0.2.2:40001")), to, &listener);
    router.wait_fast_while("proto tcp", 2, 1, || exchange_blocks(&mut ends, 8));

    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", &format!("http://{METRICS}/metrics")]);
    let page = lab.router().run(&mut curl).unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    let said = promtool(&["check", "metrics"], &page);
    assert_eq!(String::from_utf8_lossy(&said.stderr), "", "{page}");

    // rates want two looks
    until("Prometheus has looked", PATIENCE, || {
        let looks = prometheus.query("count_over_time(up{job=\"freeway\"}[1m]) >= 3");
        (!looks.is_empty()).then_some(())
    });
    let queries = queries();
    assert!(queries.len() > 30, "{queries:?}");
    let made = include_str!("../../crates/daemon/src/metrics.rs");
    for (row, title, query) in &queries {
        let filled = filled_in(query);
        assert!(!filled.contains('$'), "{filled}");
        // no engine is here, and this daemon has bridged nothing
        if row == "Engine" && !query.contains("engine_up") {
            let found = prometheus.query(&filled);
            assert!(found.is_empty(), "{title}: {filled}");
        } else {
            // after a look that a busy machine was late for there is nothing until the next one
            until(&format!("{title}: {filled}"), PATIENCE, || {
                (!prometheus.query(&filled).is_empty()).then_some(())
            });
        }
        // so it is seen from their names that these ask for something
        for name in filled.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()) {
            let known = !name.starts_with("freeway_") || made.contains(&format!("\"{name}\""));
            assert!(known, "{title}: {name}");
        }
    }
    let up = prometheus.query(&filled_in("freeway_fast_packets_total{job=\"$job\"}"));
    assert_eq!(up.len(), 1, "{up:?}");

    let rules = until("the alerts were looked at", PATIENCE, || {
        let groups = prometheus.ask("rules", &[])?["groups"].clone();
        let rules = groups[0]["rules"].as_array()?.clone();
        let known = rules.iter().all(|rule| rule["health"] != "unknown");
        known.then_some(rules)
    });
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        let well = ["inactive", "pending"].contains(&rule["state"].as_str().unwrap());
        assert!(well, "{rule}");
    }
    drop(prometheus);
    router.stop();
}
