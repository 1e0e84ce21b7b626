// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log: standard error, or the journal.

use freeway_console::Terminal;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;
use tracing_subscriber::reload;

use crate::config::LogLevel;
use crate::journal::Journal;

/// Sets how much is logged.
pub type SetLog = Box<dyn Fn(LogLevel) + Send>;

/// Logs go to standard error, or with their fields to the journal where that leads there; FREEWAY_LOG overrides the level:
/// `LEVEL`, or `TARGET=LEVEL,...`. What comes back sets the level, unless FREEWAY_LOG does.
pub fn start(level: LogLevel) -> SetLog {
    let filter = std::env::var("FREEWAY_LOG").ok();
    let filter = filter.and_then(|filter| filter.parse::<Targets>().ok());
    let forced = filter.is_some();
    let filter = filter.unwrap_or_else(|| filter_of(level));
    let (filter, handle) = reload::Layer::new(filter);
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        // or it would be said, and panic, where nobody can read it
        .log_internal_errors(false)
        .with_ansi(Terminal::stderr().color);
    let log = match (Journal::of_stderr(), std::env::var_os("JOURNAL_STREAM")) {
        (Some(journal), _) => journal.boxed(),
        // journald stamps what it receives
        (None, Some(_)) => log.without_time().boxed(),
        (None, None) => log.boxed(),
    };
    tracing_subscriber::registry().with(filter).with(log).init();
    Box::new(move |level| {
        if !forced && let Err(error) = handle.reload(filter_of(level)) {
            tracing::warn!("how much is logged stays as it is: {error}");
        }
    })
}

fn filter_of(level: LogLevel) -> Targets {
    let level = level.directive().parse();
    Targets::new().with_default(level.unwrap_or(LevelFilter::INFO))
}
