// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` report and diff.

use std::path::PathBuf;

use clap::Args;

use crate::report::names;

pub(super) const REPORT_HELP: &str = "\
Example: freeway bench report --quick --output report
         freeway bench report --from report/report.json --output again";

/// Arguments of `bench report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folder to write to; created if it is not there
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Measure in less than five minutes instead of about two hours
    #[arg(long)]
    pub quick: bool,
    /// Measure this scenario only; repeat for more [default: all]
    #[arg(long = "scenario", value_name = "NAME", value_parser = names())]
    pub scenarios: Vec<String>,
    /// Draw what was measured before, from its report.json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "scenarios"])]
    pub from: Option<PathBuf>,
}

pub(super) const DIFF_HELP: &str = "\
Example: freeway bench report --quick --output before
         freeway bench report --quick --output after
         freeway bench diff before/report.json after/report.json";

/// Arguments of `bench diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A report.json, or what a bench command printed with --json
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Another, which is called same, faster or slower than A
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
