// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway flows`.

use freeway_api::{Flow, FlowState, ends};
use freeway_console::{Page, TIE, Terminal, Tone, bytes, count, duration, plural};

/// One flow of the list.
pub fn flow(flow: &Flow, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    lines(&mut page, "", flow);
    page.finish()
}

/// What ends the list: how many the filter lets through, and how many of them were shown.
pub fn tail(shown: u64, total: u64) -> String {
    let some = if shown < total {
        format!(", {} shown", count(shown))
    } else {
        String::new()
    };
    let gap = if shown > 0 { "\n" } else { "" };
    format!("{gap}{}{some}\n", plural(total, "flow"))
}

/// One flow in three lines or a few more.
pub(super) fn lines(page: &mut Page, indent: &str, flow: &Flow) {
    let tone = match flow.state {
        FlowState::Active => Tone::Good,
        _ => Tone::Warn,
    };
    let state = page.tone(tone, flow.state.word());
    let came = ends(flow.proto, (flow.src, flow.sport), (flow.dst, flow.dport));
    page.words(
        &format!("{indent}{:<4} ", flow.proto),
        &format!("{came} {state}"),
    );
    let rest = format!("{indent}     ");
    let out = match flow.ports_out.as_slice() {
        [] => flow.port_out.clone(),
        copies => copies.join(" "),
    };
    let mut way = format!("{} > {out} ({})", flow.port_in, flow.path);
    if (flow.src, flow.sport, flow.dst, flow.dport)
        != (flow.to_src, flow.to_sport, flow.to_dst, flow.to_dport)
    {
        let (src, dst) = ((flow.to_src, flow.to_sport), (flow.to_dst, flow.to_dport));
        way = format!("{way} as {}", ends(flow.proto, src, dst));
    }
    page.words(&rest, &way);
    // one below the other in a list; ties hold the figures together and apart
    let mut figures = vec![
        format!("{:>11} packets", count(flow.packets)),
        format!("{TIE}{:>7}", bytes(flow.bytes)),
        format!("{TIE}age {:<7}", duration(flow.age_s)),
        format!("idle {:<5}", duration(flow.idle_s)),
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
    page.words(&rest, &figures.join(" "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_api::fake;
    use freeway_testkit::check_fits;

    #[test]
    fn a_translation_is_shown() {
        let text = flow(&fake::flow(), Terminal::PIPE);
        check_fits(&text);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "tcp  192.0.2.2:40000 > 198.51.100.2:5201 fast");
        assert_eq!(
            lines[1],
            "     lan0 > wan0 (xdp) as 198.51.100.1:40000 > 198.51.100.2:5201"
        );
        assert_eq!(tail(1, 7), "\n7 flows, 1 shown\n");
        assert_eq!(tail(7, 7), "\n7 flows\n");
        assert_eq!(tail(0, 0), "0 flows\n");
    }

    #[test]
    fn long_addresses_wrap() {
        let long = "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap();
        let six = Flow {
            family: 6,
            src: long,
            dst: long,
            to_src: long,
            to_dst: long,
            mark: 9,
            ..fake::flow()
        };
        let text = flow(&six, Terminal::PIPE);
        check_fits(&text);
        assert!(text.contains("mark 0x9"));
    }
}
