// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text for people: words first, aligned, with units, never wider than the terminal where it can be helped.

mod doctor;
mod explain;
mod flows;
mod number;
mod page;
mod spark;
mod stats;
mod status;
mod terminal;
mod top;

pub use doctor::doctor;
pub use explain::explain;
pub use flows::{flow, tail};
pub use number::{count, plural};
pub use page::{Page, Tone};
pub use spark::History;
pub use stats::stats;
pub use status::status;
pub use terminal::{Terminal, print, print_json, show, write};
pub use top::{remember, top};
