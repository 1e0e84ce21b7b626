// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration, and the words of `freeway flows FILTER`.

use freeway_api::filter;
use freeway_daemon::config::Config;

/// An error is one line, and names the file.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(stop) = Config::parse(&text, "freeway.toml") {
        let message = stop.to_string();
        assert_eq!(message.lines().count(), 1, "{message:?}");
        assert!(message.starts_with("freeway.toml"), "{message:?}");
    }
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if let Err(message) = filter::parse(&words) {
        assert!(!message.is_empty());
    }
}
