// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway routes`.

use freeway_api::{NextHop, RouteAnswer, Routes};
use freeway_console::{Page, Terminal, bytes, count, plural};

/// The whole page.
pub fn routes(routes: &Routes, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    if let Some(answer) = &routes.answer {
        page.words("", &answered(answer));
        return page.finish();
    }
    page.words("", &headline(routes));
    if !routes.next_hops.is_empty() {
        page.head("By next hop");
        let rows: Vec<_> = routes.next_hops.iter().map(by_hop).collect();
        page.table(2, &[0], &rows);
        let asked = format!(
            "The kernel was given {} to confirm, and confirmed {}; {} left otherwise",
            plural(routes.asked, "packet"),
            count(routes.confirmed),
            count(routes.contradicted)
        );
        page.words("  ", &asked);
    }
    if !routes.kept.is_empty() {
        page.head("Prefixes that are the kernel's");
        for kept in &routes.kept {
            let prefixes = count(kept.prefixes);
            page.words("  ", &format!("{prefixes}: {}", kept.reason));
        }
    }
    if routes.reason.is_none() && !routes.ports_kept.is_empty() {
        page.head("Ports without prefix paths");
        for kept in &routes.ports_kept {
            page.words("  ", &format!("{}: {}", kept.port, kept.reason));
        }
    }
    page.finish()
}

fn headline(routes: &Routes) -> String {
    if !routes.enabled {
        return "policy.routes is false: packets without a flow are the kernel's".into();
    }
    if let Some(reason) = &routes.reason {
        return format!("No port has prefix paths: {reason}");
    }
    if routes.loading {
        return "The kernel's routes are being read".into();
    }
    if !routes.active {
        return "No port has prefix paths now".into();
    }
    format!(
        "{} in {}, {}, for what comes in at {}; {} left, {}",
        prefixes(routes.prefixes),
        bytes(routes.table_bytes),
        plural(routes.next_hops.len() as u64, "next hop"),
        routes.ports.join(", "),
        plural(routes.routed.packets, "packet"),
        bytes(routes.routed.bytes)
    )
}

fn prefixes(number: u64) -> String {
    let noun = if number == 1 { "prefix" } else { "prefixes" };
    format!("{} {noun}", count(number))
}

fn by_hop(hop: &NextHop) -> Vec<String> {
    let confirmed = hop
        .confirmed_ms
        .map(|ms| format!("{} ms ago", count(ms)))
        .unwrap_or_default();
    vec![
        count(hop.routed.packets),
        hop.port.clone(),
        hop.neighbour.to_string(),
        hop.mac.clone(),
        format!("{} {confirmed}", hop.state.name()),
    ]
}

fn answered(answer: &RouteAnswer) -> String {
    let way =
        |port: &Option<String>, neighbour: &Option<std::net::Ipv4Addr>| match (port, neighbour) {
            (Some(port), Some(neighbour)) => format!("to {neighbour} at {port}"),
            (Some(port), None) => format!("at {port}"),
            _ => "nowhere".to_owned(),
        };
    let prefix = answer.prefix.as_deref().unwrap_or("no route");
    let known = way(&answer.port, &answer.neighbour);
    let path = match (&answer.reason, answer.fast) {
        (_, true) => "XDP forwards its packets".to_owned(),
        (Some(reason), _) => format!("the kernel forwards its packets: {reason}"),
        (None, _) => "the kernel forwards its packets".to_owned(),
    };
    let kernel = way(&answer.kernel_port, &answer.kernel_neighbour);
    let agrees = if answer.agrees {
        "ip route get says the same".to_owned()
    } else {
        format!("ip route get says otherwise: {kernel}")
    };
    format!("{}: {prefix}, {known}; {path}; {agrees}", answer.address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_api::fake;
    use freeway_testkit::check_fits;

    fn flat(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_page() {
        let text = routes(&fake::routes(), Terminal::PIPE);
        check_fits(&text);
        let text = flat(&text);
        for words in [
            "950,001 prefixes in 3.40 MB, 1 next hop, for what comes in at lan0",
            "198.51.100.1 02:00:00:00:00:fe confirmed 340 ms ago",
            "given 120 packets to confirm, and confirmed 118; 1 left otherwise",
            "3: several next hops",
            "ppp0: XDP does not run at the port itself",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn nowhere_has_a_reason() {
        let page = |routes: &Routes| flat(&super::routes(routes, Terminal::PIPE));
        let off = Routes::default();
        assert!(page(&off).starts_with("policy.routes is false"));
        let tracked = Routes {
            enabled: true,
            reason: Some("connections are tracked".into()),
            ..Routes::default()
        };
        assert_eq!(
            page(&tracked),
            "No port has prefix paths: connections are tracked"
        );
    }

    #[test]
    fn an_address_is_compared_with_the_kernel() {
        let answer = RouteAnswer {
            address: [203, 0, 113, 7].into(),
            prefix: Some("203.0.113.0/24".into()),
            port: Some("wan0".into()),
            neighbour: Some([198, 51, 100, 1].into()),
            fast: true,
            reason: None,
            kernel_port: Some("wan0".into()),
            kernel_neighbour: Some([198, 51, 100, 1].into()),
            agrees: true,
        };
        let page = |answer: &RouteAnswer| {
            let routes = Routes {
                answer: Some(answer.clone()),
                ..Routes::default()
            };
            flat(&super::routes(&routes, Terminal::PIPE))
        };
        assert_eq!(
            page(&answer),
            "203.0.113.7: 203.0.113.0/24, to 198.51.100.1 at wan0; XDP forwards its packets; ip route get says the same"
        );
        let other = RouteAnswer {
            agrees: false,
            kernel_port: None,
            kernel_neighbour: None,
            ..answer
        };
        assert!(page(&other).ends_with("ip route get says otherwise: nowhere"));
    }
}
