// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of connection tracking.

use freeway_console::count;
use freeway_daemon::config::Config;
use freeway_kernel::sysctl::{Sysctls, number};

use super::report::{Report, Severity};

const AREA: &str = "connections";

/// Looks at conntrack's settings.
pub fn examine(report: &mut Report, config: &Config) {
    let sysctls = Sysctls::read();
    let Some(max) = sysctls.conntrack_max else {
        report.add(
            AREA,
            Severity::Note,
            "connections are not tracked here: flows are learned without them",
        );
        return;
    };
    let now = number("netfilter/nf_conntrack_count").unwrap_or(0);
    let words = format!("{} of {} connections are in use", count(now), count(max));
    if now.saturating_mul(10) > max.saturating_mul(9) {
        report.advise(
            AREA,
            Severity::Warning,
            format!("{words}: the kernel will drop new ones"),
            format!(
                "sysctl net.netfilter.nf_conntrack_max={}",
                max.saturating_mul(2)
            ),
        );
    } else {
        report.add(AREA, Severity::Good, words);
    }
    // Each tracked connection has two flows.
    let flows = u64::from(config.flows.max);
    if flows < max.saturating_mul(2) && now.saturating_mul(2) > flows {
        report.advise(
            AREA,
            Severity::Note,
            format!(
                "the flow table has room for {} flows, two for each connection",
                count(flows)
            ),
            "raise flows.max in the configuration",
        );
    }
    if sysctls.conntrack_events == Some(0) {
        report.advise(
            AREA,
            Severity::Warning,
            "connections send no events: what happens to them is noticed up to a second late",
            "sysctl net.netfilter.nf_conntrack_events=2",
        );
    }
    let counts = sysctls.conntrack_acct == Some(1);
    if counts && config.export.is_empty() {
        report.add(
            AREA,
            Severity::Note,
            "packets and bytes are counted for each connection: those of the fast path are not among them",
        );
    }
    if !counts && !config.export.is_empty() {
        report.advise(
            AREA,
            Severity::Warning,
            "the kernel does not count the packets of connections: what is exported lacks those that it forwards",
            "sysctl net.netfilter.nf_conntrack_acct=1",
        );
    }
    if sysctls.conntrack_events == Some(0) && !config.export.is_empty() {
        report.add(
            AREA,
            Severity::Warning,
            "without events the ends of most connections are not exported",
        );
    }
}
