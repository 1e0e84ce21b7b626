// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway flows`.

use std::net::SocketAddr;

use super::number::{bytes, count, duration, plural};
use super::page::{Page, TIE, Tone};
use super::terminal::Terminal;
use crate::api::{Flow, FlowState, Flows};

/// The whole page.
pub fn flows(flows: &Flows, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    for flow in &flows.flows {
        lines(&mut page, "", flow);
    }
    let shown = flows.flows.len() as u64;
    let tail = if shown < flows.total {
        format!(", {} shown", count(shown))
    } else {
        String::new()
    };
    page.gap();
    page.line(&format!("{}{tail}", plural(flows.total, "flow")));
    page.finish()
}

/// One flow in three lines or a few more.
pub(super) fn lines(page: &mut Page, indent: &str, flow: &Flow) {
    let (tone, name) = match flow.state {
        FlowState::Active => (Tone::Good, flow.state.name()),
        _ => (Tone::Warn, flow.state.name()),
    };
    let state = page.tone(tone, name);
    let src = SocketAddr::new(flow.src, flow.sport);
    let dst = SocketAddr::new(flow.dst, flow.dport);
    page.words(
        &format!("{indent}{:<4} ", flow.proto),
        &format!("{src} > {dst} {state}"),
    );
    let rest = format!("{indent}     ");
    let mut way = format!("{} > {} ({})", flow.port_in, flow.port_out, flow.path);
    if (flow.src, flow.sport, flow.dst, flow.dport)
        != (flow.to_src, flow.to_sport, flow.to_dst, flow.to_dport)
    {
        let src = SocketAddr::new(flow.to_src, flow.to_sport);
        let dst = SocketAddr::new(flow.to_dst, flow.to_dport);
        way = format!("{way} as {src} > {dst}");
    }
    page.words(&rest, &way);
    let mut figures = vec![
        plural(flow.packets, "packet"),
        bytes(flow.bytes),
        format!("age {}", duration(flow.age_s)),
        format!("idle {}", duration(flow.idle_s)),
        format!("confirmed {} ago", duration(flow.confirmed_s_ago)),
    ];
    if flow.mark != 0 {
        figures.push(format!("mark {:#x}", flow.mark));
    }
    if !flow.connection {
        figures.push("no connection".into());
    }
    for figure in &mut figures {
        *figure = figure.replace(' ', TIE);
    }
    page.words(&rest, &figures.join(", "));
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::{PIPE, check_fits};
    use super::*;
    use crate::daemon::fake;

    #[test]
    fn a_translation_is_shown() {
        let text = flows(
            &Flows {
                flows: vec![fake::flow()],
                total: 7,
            },
            PIPE,
        );
        check_fits(&text);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "tcp  192.0.2.2:40000 > 198.51.100.2:5201 active");
        assert_eq!(
            lines[1],
            "     lan0 > wan0 (xdp) as 198.51.100.1:40000 > 198.51.100.2:5201"
        );
        assert!(text.ends_with("\n\n7 flows, 1 shown\n"), "{text}");
    }

    #[test]
    fn long_addresses_wrap() {
        let long = "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap();
        let flow = Flow {
            family: 6,
            src: long,
            dst: long,
            to_src: long,
            to_dst: long,
            mark: 9,
            ..fake::flow()
        };
        let text = flows(
            &Flows {
                flows: vec![flow],
                total: 1,
            },
            PIPE,
        );
        check_fits(&text);
        assert!(text.contains("mark 0x9"));
        assert_eq!(flows(&Flows::default(), PIPE), "0 flows\n");
    }
}
