// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway explain`.

use freeway_api::{Connection, Dropped, Explain, Neighbour, Verdict, Watched};
use freeway_console::{Page, Terminal, Tone, count, duration, plural};

use super::flows::lines;

/// The whole page.
pub fn explain(explain: &Explain, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words("", &explain.tuple.to_string());
    let (tone, word) = match explain.verdict {
        Verdict::Fast => (Tone::Good, "Fast"),
        Verdict::Kernel => (Tone::Warn, "Not fast"),
        Verdict::Unknown => (Tone::Warn, "Unknown"),
    };
    let word = page.tone(tone, word);
    page.words("", &format!("{word}: {}", explain.summary));
    if !explain.reasons.is_empty() {
        page.head("Why");
        let rows: Vec<_> = explain
            .reasons
            .iter()
            .map(|why| vec![why.stage.clone(), why.name.clone(), why.words.clone()])
            .collect();
        page.table(2, &[], &rows);
    }
    watched(&mut page, &explain.watched);
    for (heading, flow) in [
        ("Flow entry", &explain.flow),
        ("Flow entry of the other direction", &explain.reply_flow),
    ] {
        page.head(heading);
        match flow {
            Some(flow) => {
                lines(&mut page, "  ", flow);
                let to = flow.dst_mac_out.as_ref();
                let words = format!(
                    "{}by {}; packets up to {} bytes, TTL {}, DSCP {}",
                    to.map_or(String::new(), |mac| format!("to {mac} ")),
                    flow.port_out,
                    flow.length_max,
                    flow.ttl,
                    flow.dscp
                );
                page.words("       ", &words);
            }
            None => page.line("  none"),
        }
    }
    page.head("Kernel's connection");
    match &explain.connection {
        Some(connection) => connection_lines(&mut page, connection),
        None => page.line("  none: not tracked, or gone"),
    }
    page.head("Neighbour");
    match &explain.neighbour {
        Some(neighbour) => page.words("  ", &neighbour_words(neighbour)),
        None => page.line("  none known"),
    }
    if !explain.notes.is_empty() {
        page.head("Notes");
        for note in &explain.notes {
            page.words("  - ", note);
        }
    }
    page.finish()
}

fn watched(page: &mut Page, watched: &Watched) {
    page.head("Packets watched");
    let span = match watched.seconds {
        seconds @ ..0.95 => format!("{:.0} ms", seconds * 1000.0),
        seconds => duration(seconds),
    };
    if watched.packets == 0 {
        let words = match watched.seconds {
            ..0.05 => "not watched".into(),
            _ => format!("none of this flow came within {span}"),
        };
        page.words("  ", &words);
        return;
    }
    page.words(
        "  ",
        &format!("{} within {span}", plural(watched.packets, "packet")),
    );
    let rows: Vec<_> = watched
        .results
        .iter()
        .map(|seen| {
            let place = format!("{} {}", seen.port, seen.stage);
            vec![count(seen.count), place, seen.words.clone()]
        })
        .chain(watched.dropped.iter().map(|dropped| {
            let place = format!("{} kernel", dropped.port);
            vec![count(dropped.count), place, dropped_words(dropped)]
        }))
        .collect();
    page.table(2, &[0], &rows);
}

fn dropped_words(dropped: &Dropped) -> String {
    match &dropped.function {
        Some(function) => format!("{}: in {function}()", dropped.words),
        None => dropped.words.clone(),
    }
}

fn connection_lines(page: &mut Page, connection: &Connection) {
    page.words("  ", &connection.orig.to_string());
    page.words("  ", &format!("answers: {}", connection.reply));
    let mut words = Vec::new();
    words.extend(connection.state.clone());
    words.extend(
        connection
            .status
            .iter()
            .map(|status| status.replace('_', " ")),
    );
    words.extend(
        connection
            .timeout_s
            .map(|seconds| format!("expires in {}", duration(seconds.into()))),
    );
    words.push(format!("mark {:#x}", connection.mark));
    words.extend(
        connection
            .helper
            .as_ref()
            .map(|helper| format!("helper {helper}")),
    );
    if connection.zone != 0 {
        words.push(format!("zone {}", connection.zone));
    }
    page.words("  ", &words.join(", "));
}

fn neighbour_words(neighbour: &Neighbour) -> String {
    let mac = neighbour.mac.as_deref().unwrap_or("no MAC address");
    format!(
        "{} at {mac} on {}, {}",
        neighbour.ip, neighbour.port, neighbour.state
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_api::fake;
    use freeway_testkit::check_fits;

    #[test]
    fn the_answer_comes_first() {
        let text = explain(&fake::explain(), Terminal::PIPE);
        check_fits(&text);
        let start =
            "tcp 192.0.2.2:40000 > 198.51.100.2:5201\nFast: The fast path forwards this flow";
        assert!(text.starts_with(start), "{text}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "31,415 packets within 2 s",
            "established, seen reply, assured, src nat, expires in 4 d 23 h, mark 0x0",
            "198.51.100.2 at 02:00:00:00:02:02 on wan0, reachable",
            "packets up to 1500 bytes, TTL 64, DSCP 0",
        ] {
            assert!(flat.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn what_the_kernel_drops_is_said() {
        let drop = Dropped {
            reason: "netfilter_drop".into(),
            words: "dropped by nftables: table inet f, chain fw".into(),
            count: 16,
            port: "lan0".into(),
            function: Some("nf_hook_slow".into()),
        };
        let dropped = Explain {
            watched: Watched {
                dropped: vec![drop],
                ..fake::explain().watched
            },
            ..fake::explain()
        };
        let text = explain(&dropped, Terminal::PIPE);
        check_fits(&text);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = "16 lan0 kernel dropped by nftables: table inet f, chain fw: in nf_hook_slow()";
        assert!(flat.contains(words), "{text}");
    }

    #[test]
    fn what_is_not_there_is_said() {
        let nothing = Explain {
            verdict: Verdict::Unknown,
            summary: "Neither a packet nor an entry was seen.".into(),
            reasons: Vec::new(),
            flow: None,
            reply_flow: None,
            connection: None,
            neighbour: None,
            watched: Watched {
                packets: 0,
                seconds: 2.0,
                ..Watched::default()
            },
            notes: Vec::new(),
            ..fake::explain()
        };
        let text = explain(&nothing, Terminal::PIPE);
        check_fits(&text);
        assert!(text.contains("none of this flow came within 2 s"), "{text}");
    }
}
