// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits to what the kernel is given.

use freeway_api::{Limit, Status};
use freeway_console::count;
use freeway_daemon::config::Config;

use super::report::{Report, Severity};

const AREA: &str = "limits";

/// Looks at `[punts.limits]`: the daemon's, or, where none runs, the configuration's.
pub fn examine(report: &mut Report, config: &Config, daemon: Option<&Status>) {
    let configured = config.punts.limits.iter().map(|(limited, rate)| Limit {
        name: limited.reason().name.into(),
        packets_per_s: rate.0,
        dropped: 0,
    });
    let limits = match daemon {
        Some(status) => status.limits.clone(),
        None => configured.collect(),
    };
    for limit in &limits {
        examine_limit(report, limit);
    }
}

fn examine_limit(report: &mut Report, limit: &Limit) {
    let Limit {
        name,
        packets_per_s,
        dropped,
    } = limit;
    let rate = count((*packets_per_s).into());
    let words = format!("{name}: each CPU gives the kernel {rate} packets a second at most");
    if *dropped > 0 {
        report.advise(
            AREA,
            Severity::Warning,
            format!("{words}; {} over it were dropped", count(*dropped)),
            format!("raise punts.limits.{name} in the configuration if they were wanted"),
        );
        return;
    }
    match company(name) {
        Some(company) => report.add(
            AREA,
            Severity::Note,
            format!("{words}, and {company} among them"),
        ),
        None => report.add(AREA, Severity::Good, words),
    }
}

/// What a router needs that shares the reason with a flood.
fn company(name: &str) -> Option<&'static str> {
    match name {
        "miss" => Some("what is for the router itself, and every flow that is not fast, are"),
        "miss_close" => Some("the first and last packets of all TCP connections are"),
        "icmp" => Some("\"packet too big\" and \"fragmentation needed\" are"),
        "protocol" => Some("OSPF, VRRP, IGMP, GRE and IPsec are"),
        "multicast" => Some("DHCP and routing protocols over UDP are"),
        "ip6_extension" => Some("multicast listener reports are"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(daemon: Option<&Status>) -> Report {
        let text = "[punts.limits]\nfragment = 500\nmiss = 2000\n";
        let config = Config::parse(text, "x").unwrap();
        let mut report = Report::default();
        examine(&mut report, &config, daemon);
        report
    }

    #[test]
    fn the_configuration_is_judged() {
        let found = report(None).findings;
        assert_eq!(
            found.iter().map(|f| f.severity).collect::<Vec<_>>(),
            [Severity::Good, Severity::Note]
        );
        assert!(found[1].words.contains("2,000 packets"), "{found:?}");
        assert!(found[1].words.contains("the router itself"), "{found:?}");
    }

    #[test]
    fn the_daemon_knows_what_was_dropped() {
        let status = freeway_api::fake::status();
        let found = report(Some(&status)).findings;
        let words: Vec<_> = found.iter().map(|f| f.words.as_str()).collect();
        assert!(words[0].starts_with("icmp: each CPU gives"), "{words:?}");
        assert!(
            words[1].ends_with("1,234 over it were dropped"),
            "{words:?}"
        );
        assert_eq!(found[1].severity, Severity::Warning);
    }
}
