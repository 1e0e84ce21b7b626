// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench lookup`: its fields. That all structures answer as the model does, it looks at itself before it measures.
#![allow(clippy::unwrap_used)]

use freeway_testkit::freeway;
use serde_json::Value;

#[test]
fn every_structure_has_its_figures() {
    let mut command = freeway();
    command.args(["bench", "lookup", "--synthetic", "--runs", "1", "--json"]);
    command.args(["--prefixes", "5000", "--prefixes", "1000"]);
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["prefixes"], 5000);
    assert_eq!(result["xdp_structure"], "bitmap");
    for field in ["xdp_mlps", "xdp_dependent_mlps", "bytes_per_prefix"] {
        assert!(result[field].as_f64().unwrap() > 0.0, "{field}");
    }
    let tables = result["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 2);
    for table in tables {
        assert!(table["compared"].as_u64().unwrap() > 10_000);
        let candidates = table["candidates"].as_array().unwrap();
        let names: Vec<&str> = candidates
            .iter()
            .map(|of| of["name"].as_str().unwrap())
            .collect();
        for name in ["bitmap", "dxr", "dxr_flat", "poptrie", "blocks", "dir24"] {
            assert!(names.contains(&name), "{names:?}");
        }
        for candidate in candidates {
            let rates = &candidate["pages"]["4k"];
            for rate in ["single_mlps", "dependent_mlps", "burst_mlps"] {
                assert!(rates[rate].as_f64().unwrap() > 0.0, "{candidate}");
            }
        }
    }
    let remarks = result["remarks"].to_string();
    let missing = remarks.contains("without rte_lpm and rte_fib");
    for field in ["rte_lpm_mlps", "rte_fib_mlps", "engine_over_rte_fib"] {
        assert_eq!(result[field].is_null(), missing, "{field}: {remarks}");
    }
}

#[test]
fn what_is_no_range_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ranges");
    std::fs::write(&file, "16777216,16777471,1,a\n16777472,x,2,b\n").unwrap();
    let mut command = freeway();
    command.args(["bench", "lookup", "--prefixes", "100", "--ranges"]);
    let output = command.arg(&file).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(words.contains("16777472,x,2,b"), "{words}");
}
