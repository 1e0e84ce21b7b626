// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench qos`: its fields, and what does not depend on how busy the machine is.
#![allow(clippy::unwrap_used)]

use freeway_testkit::freeway;
use serde_json::Value;

#[test]
fn a_scheduler_has_its_figures() {
    let Some(_machine) = freeway_testkit::machine() else {
        return;
    };
    let mut command = freeway();
    command.args([
        "bench",
        "qos",
        "--runs",
        "1",
        "--seconds",
        "0.5",
        "--cpu",
        "0",
        "--json",
    ]);
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["rates"].as_array().unwrap().len(), 8, "{result:#}");
    assert_eq!(result["priorities"].as_array().unwrap().len(), 3);
    // shares are of what left, whatever that was
    let error = result["weight_error"].as_f64().unwrap();
    assert!(error < 0.03, "{result:#}");
    let costs = result["costs"].as_array().unwrap();
    let names: Vec<_> = costs
        .iter()
        .map(|cost| cost["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"freeway"), "{names:?}");
    assert!(names.contains(&"rte_sched, weights"), "{names:?}");
    assert!(result["kernel"].is_array(), "{}", result["remarks"]);
}
