// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be measured: the same for both programs that can.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use clap::Args;

use crate::measure::{Others, measure, pages};
use crate::result::Table;
use crate::routes::{of_ranges, resized, synthetic};

/// Tells what is done now.
pub type Progress<'a> = &'a dyn Fn(&str);

/// Tables and how often each is measured.
#[derive(Args, Clone, Debug)]
pub struct Job {
    /// Lines `first,last,origin,...` of ranges of addresses, as numbers; without them prefixes are made up
    #[arg(long, value_name = "FILE")]
    pub ranges: Option<PathBuf>,
    /// Prefixes of a table, in ascending order; repeat for more
    #[arg(long, value_name = "NUMBER")]
    pub prefixes: Vec<usize>,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub runs: u32,
}

impl Job {
    /// Every table.
    pub fn run(&self, others: Others<'_>, progress: Progress<'_>) -> io::Result<Vec<Table>> {
        let pages = pages();
        let most = self.prefixes.iter().copied().max().unwrap_or(0);
        let base = match &self.ranges {
            Some(file) => of_ranges(BufReader::new(File::open(file)?))?,
            None => synthetic(most),
        };
        let tables = self.prefixes.iter().map(|&prefixes| {
            progress(&format!("{prefixes} prefixes"));
            let routes = resized(base.clone(), prefixes);
            measure(&routes, self.runs, &pages, others)
        });
        tables.collect()
    }
}
