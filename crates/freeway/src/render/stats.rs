// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway stats`.

use freeway_api::{Accounting, Stats};
use freeway_console::{Page, Terminal, bytes, count, plural};

/// The whole page; `all` shows zeros too.
pub fn stats(stats: &Stats, all: bool, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    let fast = &stats.fast;
    page.words(
        "",
        &format!(
            "The fast path forwarded {}, {}",
            plural(fast.packets, "packet"),
            bytes(fast.bytes)
        ),
    );
    let bridged = &stats.bridged;
    if all || bridged.packets + bridged.paths > 0 {
        page.words(
            "",
            &format!(
                "XDP bridged {}, {}, between {} of stations",
                plural(bridged.packets, "frame"),
                bytes(bridged.bytes),
                plural(bridged.paths, "pair"),
            ),
        );
    }
    for (stage, heading) in [
        ("hand", "Packets handed to the engine"),
        ("punt", "Packets given to the kernel"),
        ("keep", "Packets that taught or confirmed a flow"),
        ("learn", "Packets from which nothing was learned"),
    ] {
        let reasons = stats.reasons.iter().filter(|reason| reason.stage == stage);
        let rows =
            reasons.map(|reason| (reason.packets, reason.name.as_str(), reason.words.as_str()));
        section(&mut page, heading, all, rows.collect());
    }
    let limits: Vec<_> = stats
        .limits
        .iter()
        .map(|limit| {
            let words = format!(
                "over {} a second and CPU",
                count(limit.packets_per_s.into())
            );
            (limit.dropped, limit.name.as_str(), words)
        })
        .collect();
    let rows = limits
        .iter()
        .map(|(dropped, name, words)| (*dropped, *name, words.as_str()));
    section(
        &mut page,
        "Packets dropped over a limit of the configuration",
        all,
        rows.collect(),
    );
    let drops = stats.drops.iter();
    let rows = drops.map(|set| (set.dropped.packets, set.set.as_str(), "see `freeway drops`"));
    section(
        &mut page,
        "Packets that XDP dropped by sets of the firewall",
        all,
        rows.collect(),
    );
    let limits: Vec<_> = stats
        .scrub_limits
        .iter()
        .map(|limit| {
            let name = format!("limit {}", limit.number);
            let rate = count(limit.packets_per_s.into());
            let words = format!(
                "{}, {rate} a second from each source; see `freeway drops`",
                limit.proto
            );
            (limit.dropped.packets, name, words)
        })
        .collect();
    let rows = limits
        .iter()
        .map(|(dropped, name, words)| (*dropped, name.as_str(), words.as_str()));
    section(
        &mut page,
        "Packets that XDP dropped of sources over a limit",
        all,
        rows.collect(),
    );
    let refused = stats
        .refused
        .iter()
        .map(|refusal| (refusal.count, refusal.name.as_str(), refusal.words.as_str()));
    section(
        &mut page,
        "Candidates that the connection manager refused",
        all,
        refused.collect(),
    );
    let refused = bridged.refused.iter();
    let rows = refused.map(|r| (r.count, r.name.as_str(), r.words.as_str()));
    section(
        &mut page,
        "Paths of bridged frames that were refused",
        all,
        rows.collect(),
    );
    let events = &stats.events;
    page.head("Events");
    page.words(
        "  ",
        &format!(
            "data plane: {}, {} changed, {} suspended, {} watched, {} lost",
            plural(events.candidates, "candidate"),
            count(events.changed),
            count(events.suspended),
            count(events.watched),
            count(events.lost)
        ),
    );
    let netlink = &stats.netlink;
    page.words(
        "  ",
        &format!(
            "kernel: {}, {}, {}",
            plural(netlink.events, "event"),
            plural(netlink.overruns, "overrun"),
            plural(netlink.resyncs, "resynchronisation")
        ),
    );
    if let Some(told) = &stats.accounting {
        accounting(&mut page, told);
    }
    page.finish()
}

/// Connections that collectors are told of.
fn accounting(page: &mut Page, told: &Accounting) {
    page.head("Accounts of connections");
    page.words(
        "  ",
        &format!(
            "{}, {} of which something is remembered; {} that the kernel did not count, \
             {} whose end it did not tell",
            plural(told.records, "record"),
            plural(told.connections, "connection"),
            count(told.uncounted),
            count(told.missed)
        ),
    );
    let rows: Vec<_> = told
        .collectors
        .iter()
        .map(|one| {
            vec![
                one.collector.clone(),
                format!("{}/{}", one.format, one.transport),
                one.state.name().to_owned(),
                format!("{} sent", count(one.records)),
                format!("{} dropped", count(one.dropped)),
                one.error.clone().unwrap_or_default(),
            ]
        })
        .collect();
    page.table(2, &[3, 4], &rows);
}

fn section(page: &mut Page, heading: &str, all: bool, mut rows: Vec<(u64, &str, &str)>) {
    rows.retain(|(number, ..)| all || *number > 0);
    if rows.is_empty() {
        return;
    }
    if !all {
        rows.sort_by_key(|(number, ..)| std::cmp::Reverse(*number));
    }
    page.head(heading);
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(number, name, words)| vec![count(number), name.to_owned(), words.to_owned()])
        .collect();
    page.table(2, &[0], &rows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_api::fake;
    use freeway_testkit::check_fits;

    #[test]
    fn zeros_are_left_out_unless_asked_for() {
        let text = stats(&fake::stats(), false, Terminal::PIPE);
        check_fits(&text);
        assert!(text.starts_with("The fast path forwarded 1,234,567 packets, 1.85 GB\n"));
        assert!(
            text.contains("  4,321  miss   no flow in the table\n"),
            "{text}"
        );
        assert!(
            text.contains("  1,234  fragment  over 10,000 a second and CPU\n"),
            "{text}"
        );
        assert!(!text.contains("icmp"));
        assert!(
            text.contains("  192.0.2.10:4739  ipfix/tcp  down   1,234 sent  6 dropped  Connection"),
            "{text}"
        );
        let all = stats(&fake::stats(), true, Terminal::PIPE);
        check_fits(&all);
        assert!(all.contains("icmp"));
    }
}
