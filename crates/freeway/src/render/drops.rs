// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway drops`.

use freeway_api::{Drops, DropsByLimit, DropsByRule};
use freeway_console::{Page, Terminal, bytes, count, duration, plural};

/// The whole page.
pub fn drops(drops: &Drops, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words("", &headline(drops));
    if !drops.rules.is_empty() {
        page.head("By set");
        let rows: Vec<_> = drops.rules.iter().map(by_set).collect();
        page.table(2, &[0, 1], &rows);
        for rule in &drops.rules {
            page.words("  ", &confirmed(rule));
        }
    }
    if !drops.ports.is_empty() {
        page.head("By port");
        let rows: Vec<_> = drops
            .ports
            .iter()
            .map(|port| {
                vec![
                    count(port.dropped.packets),
                    format!("{}/s", count(port.packets_per_s)),
                    port.port.clone(),
                ]
            })
            .collect();
        page.table(2, &[0, 1], &rows);
    }
    if !drops.top.is_empty() {
        page.head("Most dropped, by sample");
        let rows: Vec<_> = drops
            .top
            .iter()
            .map(|address| {
                let ends = address
                    .expires_s
                    .map(|s| format!("for {}", duration(s as f64)));
                vec![
                    count(address.packets),
                    address.address.clone(),
                    ends.unwrap_or_else(|| "for good".into()),
                    address.sets.join(", "),
                ]
            })
            .collect();
        page.table(2, &[0], &rows);
    }
    if !drops.kept.is_empty() {
        page.head("Rules that stay the kernel's");
        for kept in &drops.kept {
            let words = format!("{}, set {}: {}", kept.rule, kept.set, kept.reason);
            page.words("  ", &words);
        }
    }
    let concerned = !drops.rules.is_empty() || !drops.kept.is_empty();
    if concerned && !drops.ports_kept.is_empty() {
        page.head("Ports where the kernel drops");
        for kept in &drops.ports_kept {
            page.words("  ", &format!("{}: {}", kept.port, kept.reason));
        }
    }
    limits(&mut page, drops);
    page.finish()
}

/// `[[scrub.limit]]`, and who was over.
fn limits(page: &mut Page, drops: &Drops) {
    if drops.limits.is_empty() {
        return;
    }
    page.head("Over a limit of the configuration ([[scrub.limit]])");
    let rows: Vec<_> = drops.limits.iter().map(by_limit).collect();
    page.table(2, &[0, 1], &rows);
    for limit in &drops.limits {
        if limit.forgotten > 0 {
            let words = format!(
                "limit {}: {} could send anew before their time, for there were too many others",
                limit.number,
                plural(limit.forgotten, "source")
            );
            page.words("  ", &words);
        }
        for kept in &limit.ports_kept {
            let words = format!(
                "limit {} is not in force at {}: {}",
                limit.number, kept.port, kept.reason
            );
            page.words("  ", &words);
        }
    }
    if !drops.sources.is_empty() {
        page.head("Sources over a limit");
        let rows: Vec<_> = drops
            .sources
            .iter()
            .map(|source| {
                vec![
                    count(source.dropped),
                    format!("{}/s", count(source.dropped_per_s)),
                    source.source.clone(),
                    format!("limit {}", source.limit),
                ]
            })
            .collect();
        page.table(2, &[0, 1], &rows);
    }
}

fn by_limit(limit: &DropsByLimit) -> Vec<String> {
    let per_s: u64 = limit.ports.iter().map(|port| port.packets_per_s).sum();
    let ports: Vec<_> = limit.ports.iter().map(|port| port.port.as_str()).collect();
    vec![
        count(limit.dropped.packets),
        format!("{}/s", count(per_s)),
        format!("limit {}", limit.number),
        format!(
            "{}, {}/s from each /{} or /{}, {} at once",
            limit.proto,
            count(limit.packets_per_s.into()),
            limit.prefix_len4,
            limit.prefix_len6,
            count(limit.burst.into())
        ),
        match &ports[..] {
            [] => "at no port".into(),
            ports => format!("at {}", ports.join(", ")),
        },
    ]
}

fn headline(drops: &Drops) -> String {
    let dropped = drops.dropped.packets > 0 || !drops.rules.is_empty();
    let state = match (drops.enabled, drops.active) {
        (false, _) => "policy.drops is false: the kernel drops. ",
        (true, true) => "",
        (true, false) if drops.rules.is_empty() && drops.kept.is_empty() => {
            "No rule of the firewall drops by a set. "
        }
        (true, false) => "Nothing is dropped in XDP now. ",
    };
    match dropped {
        true => format!(
            "{state}XDP dropped {}, {}; {} a second",
            plural(drops.dropped.packets, "packet"),
            bytes(drops.dropped.bytes),
            count(drops.packets_per_s)
        ),
        false => state.trim_end().to_owned(),
    }
}

fn by_set(rule: &DropsByRule) -> Vec<String> {
    let loading = if rule.loading { ", being read" } else { "" };
    vec![
        count(rule.dropped.packets),
        format!("{}/s", count(rule.packets_per_s)),
        rule.set.clone(),
        format!("{}{loading}", plural(rule.elements, "element")),
        format!("at {}", rule.ports.join(", ")),
    ]
}

/// What the kernel has of it.
fn confirmed(rule: &DropsByRule) -> String {
    let mut words = format!(
        "{}: the kernel was given {} to confirm",
        rule.rule,
        count(rule.confirmed)
    );
    if let Some(packets) = rule.kernel_packets {
        words += &format!(", and its counter says {}", count(packets));
    }
    if rule.elements_kept > 0 {
        let kept = plural(rule.elements_kept, "element");
        words += &format!("; {kept} stay the kernel's");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_api::fake;
    use freeway_testkit::check_fits;

    #[test]
    fn a_page() {
        let text = drops(&fake::drops(), Terminal::PIPE);
        check_fits(&text);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "XDP dropped 1,000,000 packets, 64.0 MB; 120,000 a second",
            "inet banip blocklistv4 54,321 elements at wan0",
            "its counter says 9",
            "203.0.113.66",
            "set crowdsec: input and forward",
            "4,321 1,800/s limit 1 syn, 200/s from each /32 or /64, 64 at once at wan0",
            "limit 1: 7 sources could send anew",
            "limit 1 is not in force at ppp0",
            "4,000 1,800/s 2001:db8:66::/64 limit 1",
        ] {
            assert!(flat.contains(words), "{words}: {text}");
        }
        let none = drops(
            &Drops {
                enabled: true,
                ..Drops::default()
            },
            Terminal::PIPE,
        );
        assert_eq!(none.trim(), "No rule of the firewall drops by a set.");
    }
}
