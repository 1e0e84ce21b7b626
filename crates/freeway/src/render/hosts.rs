// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway hosts`.

use freeway_api::{Hosts, IpPackets};
use freeway_console::{Page, Terminal, bytes, count, plural};

/// The whole page; `most` hosts, 0: all.
pub fn hosts(hosts: &Hosts, most: usize, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    if hosts.prefixes.is_empty() {
        page.words(
            "",
            "No hosts are counted: name their networks in the configuration, such as accounting.hosts = [\"192.168.0.0/16\"]",
        );
        return page.finish();
    }
    if !hosts.kernel_counts {
        page.words(
            "",
            "The kernel does not count its part: sysctl -w net.netfilter.nf_conntrack_acct=1",
        );
    }
    let row = |name: String, sent: IpPackets, received: IpPackets| {
        vec![
            name,
            format!("{} sent", bytes(sent.ip_bytes)),
            count(sent.packets),
            format!("{} received", bytes(received.ip_bytes)),
            count(received.packets),
        ]
    };
    page.head("Networks");
    let rows: Vec<_> = hosts
        .prefixes
        .iter()
        .map(|of| row(of.prefix.to_string(), of.sent, of.received))
        .collect();
    page.table(2, &[1, 2, 3, 4], &rows);
    let all = hosts.hosts.len();
    let shown = if most == 0 { all } else { most.min(all) };
    if shown > 0 {
        page.head("Hosts");
    }
    let rows: Vec<_> = hosts.hosts[..shown]
        .iter()
        .map(|host| row(host.address.to_string(), host.sent, host.received))
        .collect();
    page.table(2, &[1, 2, 3, 4], &rows);
    if shown < all {
        page.words(
            "  ",
            &format!("and {} more", plural((all - shown) as u64, "host")),
        );
    }
    if hosts.others_sent.packets + hosts.others_received.packets > 0 {
        let others = row("others".into(), hosts.others_sent, hosts.others_received);
        page.table(2, &[1, 2, 3, 4], &[others]);
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_api::fake;
    use freeway_testkit::check_fits;

    #[test]
    fn the_busiest_are_shown() {
        let text = hosts(&fake::hosts(), 1, Terminal::PIPE);
        check_fits(&text);
        assert!(text.contains("192.0.2.2"), "{text}");
        assert!(!text.contains("192.0.2.3"), "{text}");
        assert!(text.contains("and 1 host more"), "{text}");
        let none = hosts(&Hosts::default(), 0, Terminal::PIPE);
        check_fits(&none);
        assert!(none.starts_with("No hosts are counted"), "{none}");
    }
}
