// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench report`: all that the machine can measure, as one document and a page.

mod by_flows;
mod chart;
mod curve;
mod document;
mod figure;
mod latency;
mod machine;
mod measure;
mod outcome;
mod page;
mod plots;
mod png;
mod run;
mod scenario;
mod sources;
mod tables;
mod text;
mod theme;

pub use document::Document;

#[cfg(test)]
pub use document::Report;
#[cfg(test)]
pub use document::tests;
pub use outcome::{Better, Outcome, Ratio};
pub use run::report;
pub use scenario::names;
