// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every input of the corpus, and every one that once failed, through its target. Without sanitizers: those are
//! scripts/fuzz's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use freeway_fuzz::TARGETS;

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn the_corpus_breaks_nothing() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, target) in TARGETS {
        let corpus = files(&fuzz.join("corpus").join(name));
        assert!(!corpus.is_empty(), "no corpus for {name}");
        let failed = files(&fuzz.join("regressions").join(name));
        for file in corpus.iter().chain(&failed) {
            // named if it fails
            println!("{}", file.display());
            target(&fs::read(file).unwrap());
        }
        println!(
            "{name}: {} inputs, {} that once failed",
            corpus.len(),
            failed.len()
        );
    }
}

#[test]
fn what_once_failed_is_described() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(fuzz.join("regressions/README.md")).unwrap();
    for (name, _) in TARGETS {
        for file in files(&fuzz.join("regressions").join(name)) {
            let file = format!("{name}/{}", file.file_name().unwrap().to_string_lossy());
            assert!(
                text.contains(&format!("`{file}`")),
                "{file} is not described"
            );
        }
    }
}
