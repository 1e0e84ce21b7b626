// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ruleset: what must see every packet.

use freeway_kernel::nft::Ruleset;
use freeway_kernel::{Finding, analyse, hooks};

use super::{Report, Severity};

const AREA: &str = "rules";

/// Looks at the nftables ruleset, and at what else hooks into forwarding.
pub fn examine(report: &mut Report) {
    match Ruleset::read() {
        Ok(ruleset) => examine_nft(report, &ruleset),
        Err(error) => report.unread(AREA, "the nftables ruleset", Severity::Warning, &error),
    }
    for hook in hooks::forwarding_hooks().ok().flatten().unwrap_or_default() {
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
            words(finding),
            "flows that reach it stay in the kernel; put it behind `ct state established accept`, \
             or restrict it",
        );
    }
    for finding in &analysis.marks {
        let words = format!("{}: flows it marks stay in the kernel", words(finding));
        report.add(AREA, Severity::Note, words);
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
    let place = match handle {
        0 => String::new(),
        handle => format!(", handle {handle}"),
    };
    format!("{family} {table} {chain}{place}: `{expression}`: {reason}")
}
