// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench report`: all that the machine can measure, as one document and a page.

mod document;
mod machine;
mod outcome;

#[cfg(test)]
pub use document::tests;
pub use document::{Document, Report};
pub use outcome::{Better, Outcome, Ratio};
