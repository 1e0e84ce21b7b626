// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ruleset: what must see every packet.

use freeway_daemon::hooked::Hooks;
use freeway_kernel::analyse;
use freeway_kernel::nft::Ruleset;

use super::report::{Report, Severity};

const AREA: &str = "rules";

/// Looks at the nftables ruleset, and at what else hooks into forwarding.
pub fn examine(report: &mut Report, hooks: &Hooks) {
    match Ruleset::read() {
        Ok(ruleset) => examine_nft(report, &ruleset),
        Err(error) => report.unread(AREA, "the nftables ruleset", Severity::Warning, &error),
    }
    let functions = hooks.forwarding();
    if functions.is_none() && report.complete {
        let words = "this kernel does not tell which functions hook into forwarding";
        report.add(AREA, Severity::Note, words);
    }
    for hook in functions.unwrap_or_default() {
        if hook.is_foreign() {
            report.advise(
                AREA,
                Severity::Warning,
                format!("{} {} hooks into forwarding", hook.function, hook.module),
                "what it sees stays in the kernel; unload it if it is not needed",
            );
        }
    }
}

fn examine_nft(report: &mut Report, ruleset: &Ruleset) {
    let analysis = analyse(ruleset);
    if analysis.findings.is_empty() {
        let words = "no reachable nftables rule must see every packet";
        report.add(AREA, Severity::Good, words);
    }
    for finding in &analysis.findings {
        report.advise(
            AREA,
            Severity::Warning,
            finding.to_string(),
            "flows that reach it stay in the kernel; put it behind `ct state established accept`, \
             or restrict it",
        );
    }
    for finding in &analysis.marks {
        let words = format!("{finding}; such flows go through tc");
        report.add(AREA, Severity::Note, words);
    }
}
