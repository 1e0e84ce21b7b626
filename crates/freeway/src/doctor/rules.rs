// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ruleset: what must see every packet.

use freeway_kernel::nft::Ruleset;
use freeway_kernel::{Finding, analyse};

use super::{Report, Severity};

const AREA: &str = "rules";

/// Looks at the nftables ruleset.
pub fn examine(report: &mut Report) {
    let ruleset = match Ruleset::read() {
        Ok(ruleset) => ruleset,
        Err(error) => {
            report.add(
                AREA,
                Severity::Warning,
                format!("the nftables ruleset cannot be read: {error}"),
            );
            return;
        }
    };
    let analysis = analyse(&ruleset);
    if analysis.findings.is_empty() {
        report.add(
            AREA,
            Severity::Good,
            "no reachable nftables rule must see every packet",
        );
    }
    for finding in &analysis.findings {
        report.advise(
            AREA,
            Severity::Warning,
            words(finding),
            "flows that reach this rule stay in the kernel; put it behind `ct state established accept`, or restrict it",
        );
    }
    for finding in &analysis.marks {
        report.add(
            AREA,
            Severity::Note,
            format!(
                "{}: flows with a mark or priority stay in the kernel",
                words(finding)
            ),
        );
    }
}

fn words(finding: &Finding) -> String {
    let Finding {
        family,
        table,
        chain,
        handle,
        expression,
        reason,
        ..
    } = finding;
    let place = if *handle == 0 {
        String::new()
    } else {
        format!(", handle {handle}")
    };
    format!("{family} {table} {chain}{place}: `{expression}`: {reason}")
}
