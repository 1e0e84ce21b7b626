// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway routes`.

use std::net::IpAddr;

use freeway_api::{FamilyRoutes, FlowPath, NextHop, RouteAnswer, Routes};
use freeway_console::{Page, Terminal, bytes, count, plural};

/// The whole page.
pub fn routes(routes: &Routes, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    if let Some(answer) = &routes.answer {
        page.words("", &answered(answer));
        return page.finish();
    }
    for line in headlines(routes) {
        page.words("", &line);
    }
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
    let (ipv4, ipv6) = (&routes.ipv4, &routes.ipv6);
    if !(ipv4.kept.is_empty() && ipv6.kept.is_empty()) {
        page.head("Prefixes that are the kernel's");
        for (family, routes) in [("IPv4", ipv4), ("IPv6", ipv6)] {
            for kept in &routes.kept {
                let prefixes = count(kept.prefixes);
                page.words("  ", &format!("{prefixes} of {family}: {}", kept.reason));
            }
        }
    }
    let somewhere = ipv4.reason.is_none() || ipv6.reason.is_none();
    if somewhere && !routes.ports_kept.is_empty() {
        page.head("Ports without prefix paths");
        for kept in &routes.ports_kept {
            page.words("  ", &format!("{}: {}", kept.port, kept.reason));
        }
    }
    page.finish()
}

fn headlines(routes: &Routes) -> Vec<String> {
    if !routes.enabled {
        return vec!["policy.routes is false: packets without a flow are the kernel's".into()];
    }
    let mut lines = vec![
        format!("IPv4: {}", of_family(&routes.ipv4)),
        format!("IPv6: {}", of_family(&routes.ipv6)),
    ];
    if routes.ipv4.active || routes.ipv6.active {
        lines.push(format!(
            "For what comes in at {}; {} left, {}, by {}",
            routes.ports.join(", "),
            plural(routes.routed.packets, "packet"),
            bytes(routes.routed.bytes),
            plural(routes.next_hops.len() as u64, "next hop"),
        ));
    }
    lines
}

fn of_family(routes: &FamilyRoutes) -> String {
    if let Some(reason) = &routes.reason {
        return format!("no port has prefix paths: {reason}");
    }
    if routes.loading {
        return "the kernel's routes are being read".into();
    }
    if !routes.active {
        return "no port has prefix paths now".into();
    }
    format!(
        "{} in {}",
        prefixes(routes.prefixes),
        bytes(routes.table_bytes)
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
        hop.path.to_string(),
        format!("{} {confirmed}", hop.state.name()),
    ]
}

/// Who forwards.
fn by(path: Option<FlowPath>) -> &'static str {
    match path {
        Some(FlowPath::Tc) => "tc forwards its packets that come in at ports without XDP",
        _ => "XDP forwards its packets",
    }
}

fn answered(answer: &RouteAnswer) -> String {
    let way = |port: &Option<String>, neighbour: &Option<IpAddr>| match (port, neighbour) {
        (Some(port), Some(neighbour)) => format!("to {neighbour} at {port}"),
        (Some(port), None) => format!("at {port}"),
        _ => "nowhere".to_owned(),
    };
    let prefix = answer.prefix.as_deref().unwrap_or("no route");
    let known = way(&answer.port, &answer.neighbour);
    let path = match (&answer.reason, answer.fast) {
        (_, true) => by(answer.path).to_owned(),
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
            "IPv4: 950,001 prefixes in 3.40 MB",
            "IPv6: no port has prefix paths: net.ipv6.conf.all.forwarding is not 1",
            "For what comes in at lan0; 7,000,000 packets left, 448 MB, by 1 next hop",
            "198.51.100.1 02:00:00:00:00:fe xdp confirmed 340 ms ago",
            "given 120 packets to confirm, and confirmed 118; 1 left otherwise",
            "3 of IPv4: several next hops",
            "ppp0: its packets have no Ethernet header",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn nowhere_has_a_reason() {
        let page = |routes: &Routes| flat(&super::routes(routes, Terminal::PIPE));
        let off = Routes::default();
        assert!(page(&off).starts_with("policy.routes is false"));
        let tracked = FamilyRoutes {
            reason: Some("connections are tracked".into()),
            ..FamilyRoutes::default()
        };
        let tracked = Routes {
            enabled: true,
            ipv4: tracked.clone(),
            ipv6: tracked,
            ..Routes::default()
        };
        let line = "no port has prefix paths: connections are tracked";
        assert_eq!(page(&tracked), format!("IPv4: {line} IPv6: {line}"));
    }

    #[test]
    fn an_address_is_compared_with_the_kernel() {
        let answer = RouteAnswer {
            address: [203, 0, 113, 7].into(),
            prefix: Some("203.0.113.0/24".into()),
            port: Some("wan0".into()),
            neighbour: Some([198, 51, 100, 1].into()),
            fast: true,
            path: Some(FlowPath::Xdp),
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
