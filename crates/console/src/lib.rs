// SPDX-License-Identifier: MIT OR Apache-2.0
//! How Freeway's programs speak: text for people (words first, aligned, with units, never wider than the terminal where it
//! can be helped), JSON, progress on standard error, exit codes, man pages.

mod configuration;
mod exit;
mod manual;
mod number;
mod page;
mod program;
mod progress;
mod start;
mod terminal;

pub use configuration::{Fault, place_in, unreadable};
pub use exit::{EXIT_CODES, Exit, Stop};
pub use manual::{write_completions, write_pages};
pub use number::{bit_rate, bytes, count, duration, plural, rate};
pub use page::{Page, TIE, Tone};
pub use program::program;
pub use progress::{Meter, progress, rough};
pub use start::start;
pub use terminal::{Terminal, print, print_json, show, write};
