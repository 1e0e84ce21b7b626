// SPDX-License-Identifier: MIT OR Apache-2.0
//! Throw-away network namespaces. Each lives as long as the thread that entered it; nothing is left behind.
#![allow(dead_code)]

pub mod mirror;
pub mod routing;

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs `body` in a network namespace of its own with the loopback up. Without the privilege, says so and
/// returns.
pub fn in_namespace(body: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root to make a network namespace");
        return;
    }
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        run("ip link set lo up");
        body();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a command of words, which must succeed.
pub fn run(command: &str) -> String {
    let (success, output) = attempt(command);
    assert!(success, "{command}: {output}");
    output
}

/// Runs a command of words; whether it succeeded, and its output and errors.
pub fn attempt(command: &str) -> (bool, String) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Feeds text to a command, which must succeed.
pub fn feed(command: &str, text: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(
        child.wait().unwrap().success(),
        "{command} refused:\n{text}"
    );
}

/// Writes each closing brace of a block on a line of its own, which older versions of nft ask for.
pub fn one_brace_a_line(ruleset: &str) -> String {
    let mut text = String::from("flush ruleset\n");
    let (mut blocks, mut statement) = (Vec::new(), String::new());
    for letter in ruleset.chars() {
        match letter {
            '{' => {
                let first = statement.split_whitespace().next().unwrap_or_default();
                let short = statement.split_whitespace().count() <= 3;
                let opens = ["table", "chain", "set", "counter", "quota", "limit"];
                blocks.push(short && opens.contains(&first));
                text.push('{');
            }
            '}' if blocks.pop() == Some(true) => text.push_str("\n}\n"),
            other => text.push(other),
        }
        match letter {
            '{' | '}' | ';' | '\n' => statement.clear(),
            other => statement.push(other),
        }
    }
    text
}

/// Loads an nftables ruleset in place of the present one.
pub fn nft(ruleset: &str) {
    feed("nft -f -", &one_brace_a_line(ruleset));
}
