// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench report --from` and `freeway bench diff`, with figures that are invented; the page in a browser.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use freeway_testkit::Browser;
use serde_json::Value;

const PLOTS: [&str; 5] = ["speedup", "cost", "imx8", "line-cpu", "sources"];
/// A phone's width.
const PHONE: u32 = 390;
/// What the page says of itself where it is drawn.
const LOOKS: &str = r#"(() => {
  const style = (selector, property) => getComputedStyle(document.querySelector(selector))[property];
  const box = selector => document.querySelector(selector).getBoundingClientRect();
  return {
    inner: innerWidth,
    scroll: document.documentElement.scrollWidth,
    ground: style("body", "backgroundColor"),
    ink: style("svg .f-ink", "fill"),
    freeway: style("svg .f-freeway", "fill"),
    plots: document.querySelectorAll("figure svg").length,
    plot_width: box("figure svg").width,
    letters: parseFloat(style("svg text", "fontSize")) * box("figure svg").width / document.querySelector("figure svg").viewBox.baseVal.width,
  };
})()"#;

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("freeway-report-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/report.json")
}

fn freeway(arguments: &[&str]) -> Output {
    freeway_testkit::freeway()
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The page of the example.
fn drawn() -> Folder {
    let folder = Folder::new();
    let output = freeway(&[
        "bench",
        "report",
        "--from",
        text(&example()),
        "--output",
        text(&folder.0),
    ]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    assert!(!errors.contains('\x1b'), "{errors:?}");
    folder
}

/// The one line on standard error of what ends with 2.
#[track_caller]
fn refusal(arguments: &[&str]) -> String {
    let output = freeway(arguments);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(output.stdout.is_empty());
    line
}

#[test]
fn a_saved_report_is_drawn_again() {
    let folder = drawn();
    let read = |name: &str| std::fs::read(folder.file(name)).unwrap();
    for plot in PLOTS {
        let svg = String::from_utf8(read(&format!("{plot}.svg"))).unwrap();
        roxmltree::Document::parse(&svg).unwrap();
        assert!(svg.contains("prefers-color-scheme:dark"), "{plot}");
        let png = folder.file(&format!("{plot}.png"));
        if png.exists() {
            assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"));
        }
    }
    let page = String::from_utf8(read("index.html")).unwrap();
    assert!(page.contains("Example CPU at 3 GHz"));
    let value = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let first = value(&std::fs::read(example()).unwrap());
    assert!(value(&read("report.json")) == first, "it was changed");
}

#[test]
fn what_is_no_report_is_refused() {
    let folder = Folder::new();
    let out = folder.file("out");
    let nothing = folder.file("nothing.json");
    let garbage = folder.write("garbage.json", "{\"format\": ");
    let other = folder.write("other.json", "{\"fine\": true}");
    let report = std::fs::read_to_string(example()).unwrap();
    let newer = folder.write(
        "newer.json",
        &report.replace("\"version\": 1", "\"version\": 7"),
    );
    let damaged = report.replacen("\"kernel_net_ns\"", "\"kernel_net\"", 1);
    let damaged = folder.write("damaged.json", &damaged);
    for (file, words) in [
        (&nothing, "cannot read it: No such file"),
        (&garbage, "this is no JSON"),
        (&other, "neither a report nor the result of a bench command"),
        (&newer, "version is 7, this freeway reads 1"),
        (&damaged, "scenario `routed`: missing field `kernel_net_ns`"),
    ] {
        let from = ["bench", "report", "--from", text(file), "-o", text(&out)];
        let good = example();
        let diff = ["bench", "diff", text(&good), text(file)];
        for arguments in [&from[..], &diff[..]] {
            let line = refusal(arguments);
            assert!(line.contains(words), "{words}: {line}");
            assert!(line.contains(text(file)), "{line}");
        }
    }
    assert!(!out.exists());
    let single =
        serde_json::from_str::<Value>(&report).unwrap()["scenarios"][0]["result"].to_string();
    let single = folder.write("single.json", &single);
    let line = refusal(&["bench", "report", "--from", text(&single), "-o", text(&out)]);
    assert!(
        line.contains("the result of `bench compare` alone"),
        "{line}"
    );
}

#[test]
fn bad_arguments_end_with_64() {
    for (arguments, words) in [
        (&["bench", "report"][..], "--output"),
        (
            &["bench", "report", "-o", "x", "--scenario", "moon"],
            "moon",
        ),
        (
            &["bench", "report", "-o", "x", "--quick", "--from", "y"],
            "--from",
        ),
        (&["bench", "diff", "a"], "<B>"),
    ] {
        let output = freeway(arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{line}");
        assert!(line.contains(words), "{line}");
    }
}

/// A program that takes 20 ns more for each frame.
#[test]
fn a_slower_build_is_flagged() {
    let folder = Folder::new();
    let mut report: Value = serde_json::from_slice(&std::fs::read(example()).unwrap()).unwrap();
    for scenario in report["scenarios"].as_array_mut().unwrap() {
        if scenario["bench"] == "compare" {
            let samples = &mut scenario["result"]["samples"]["freeway_net_ns"];
            for sample in samples.as_array_mut().unwrap() {
                *sample = (sample.as_f64().unwrap() + 20.0).into();
            }
        }
    }
    let slower = folder.write("slower.json", &report.to_string());
    let diff = |arguments: &[&str]| {
        let output = freeway(&[&["bench", "diff"], arguments].concat());
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let json = |a: &Path, b: &Path| -> Value {
        serde_json::from_str(&diff(&[text(a), text(b), "--json"])).unwrap()
    };
    let verdicts = |of: &Value, wanted: &str| {
        let ratios = of["ratios"].as_array().unwrap().iter();
        let of = ratios.filter(|ratio| ratio["verdict"] == wanted);
        of.map(|ratio| {
            format!(
                "{}: {}",
                ratio["scenario"].as_str().unwrap(),
                ratio["name"].as_str().unwrap()
            )
        })
        .collect::<Vec<_>>()
    };
    let two = ["kernel / Freeway", "Freeway / bare redirect"];
    let expected = [
        ("routed", &two[..]),
        (
            "routed",
            &["kernel, conntrack / Freeway", "FIB from XDP / Freeway"],
        ),
        ("routed6", &two),
        ("nat", &two),
        ("policies", &two),
        ("policies", &["plain kernel / Freeway"]),
    ];
    let expected = expected.iter().flat_map(|(scenario, names)| {
        let of = move |name: &&str| format!("{scenario}: {name}");
        names.iter().map(of)
    });
    let expected: Vec<String> = expected.collect();
    let forth = json(&example(), &slower);
    assert_eq!(verdicts(&forth, "slower"), expected);
    assert_eq!(verdicts(&forth, "faster"), Vec::<String>::new());
    assert_eq!(verdicts(&json(&slower, &example()), "faster"), expected);
    let same = json(&example(), &example());
    assert_eq!(same["counts"]["slower"], 0);
    assert_eq!(same["counts"]["faster"], 0);
    let text = diff(&[text(&example()), text(&slower)]);
    assert!(text.contains("slower in 11"), "{text}");

    // single results are compared likewise
    let single = |report: &Value, name: &str| {
        folder.write(name, &report["scenarios"][2]["result"].to_string())
    };
    let first: Value = serde_json::from_slice(&std::fs::read(example()).unwrap()).unwrap();
    let (a, b) = (single(&first, "a.json"), single(&report, "b.json"));
    assert_eq!(verdicts(&json(&a, &b), "slower"), expected[6..8]);
}

#[test]
fn a_browser_shows_the_page() {
    let folder = drawn();
    let Some(mut browser) = Browser::start(None) else {
        return;
    };
    browser.open(&folder.file("index.html"));
    let mut inks = Vec::new();
    for dark in [false, true] {
        for width in [PHONE, 1000] {
            browser.look_at(width, 900, dark);
            let page = browser.evaluate(LOOKS);
            assert_eq!(page["inner"], width, "{page}");
            assert_eq!(page["plots"], 5, "{page}");
            let number = |field: &str| page[field].as_f64().unwrap();
            assert!(
                number("scroll") <= f64::from(width),
                "it is wider than the screen: {page}"
            );
            assert!(
                number("plot_width") > 0.8 * f64::from(width).min(640.0),
                "{page}"
            );
            assert!(number("letters") > 9.5, "letters are too small: {page}");
            let ground = if dark {
                "rgb(20, 24, 29)"
            } else {
                "rgb(255, 255, 255)"
            };
            assert_eq!(page["ground"], ground, "{page}");
            inks.push((page["ink"].clone(), page["freeway"].clone()));
        }
    }
    assert_eq!(inks[0], inks[1]);
    assert_eq!(inks[2], inks[3]);
    assert!(inks[0].0 != inks[2].0 && inks[0].1 != inks[2].1, "{inks:?}");
}
