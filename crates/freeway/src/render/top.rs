// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway top`.

use freeway_api::engine::{EngineCounts, EngineStatus};
use freeway_api::{Flow, Rate, ReasonRate, Top, ends};
use freeway_console::{Page, Terminal, Tone, bit_rate, count, duration, plural, rate};

use super::spark::History;

/// Flows shown.
const FLOWS: usize = 20;

/// What its workers have to do, and what they could not.
pub fn engine_lines(engine: &EngineStatus) -> Vec<String> {
    let counts = &engine.counts;
    let dropped = counts.exceptions_dropped
        + counts.tx_dropped
        + counts.sockets_dropped
        + counts.dispatch_dropped;
    let mut lines = vec![
        format!(
            "The engine is busy {:.1} %{} with {}; {} of {} buffers are free",
            f64::from(counts.busy_permille) / 10.0,
            asleep(counts),
            plural(engine.flows, "flow"),
            count(counts.pool_free.into()),
            count(counts.pool_size.into())
        ),
        format!(
            "It forwarded {}, gave {} to the kernel, dropped {}",
            count(counts.forwarded),
            count(counts.exceptions),
            count(dropped)
        ),
    ];
    lines.extend(cores(counts));
    lines.extend(counts.decisions.last().cloned());
    lines
}

/// How much its workers sleep, if they do.
pub fn asleep(counts: &EngineCounts) -> String {
    match counts.wakeups {
        0 => String::new(),
        times => format!(
            ", asleep {:.1} % (woke {} times)",
            f64::from(counts.asleep_permille) / 10.0,
            count(times)
        ),
    }
}

/// How busy each core is, where there are several.
pub fn cores(counts: &EngineCounts) -> Option<String> {
    let busy = |what: &str, cpu: u32, permille: u32, asleep: u32| {
        let words = format!("{what} on CPU {cpu} {:.1} %", f64::from(permille) / 10.0);
        match asleep {
            0 => words,
            asleep => format!("{words} (asleep {:.1} %)", f64::from(asleep) / 10.0),
        }
    };
    let workers = counts.workers.iter().map(|worker| {
        let words = busy(
            "worker",
            worker.cpu,
            worker.busy_permille,
            worker.asleep_permille,
        );
        match worker.buckets {
            0 => words,
            buckets => format!("{words}, {}", plural(buckets.into(), "bucket")),
        }
    });
    let io = counts.io.iter();
    let io = io.map(|io| busy("I/O core", io.cpu, io.busy_permille, io.asleep_permille));
    let all: Vec<_> = workers.chain(io).collect();
    (all.len() > 1).then(|| format!("busy: {}", all.join("; ")))
}

/// Remembers a frame for the sparklines.
pub fn remember(history: &mut History, top: &Top) {
    history.begin();
    history.set("fast", top.fast.packets_per_s);
    history.set("kernel", to_kernel(top));
    for port in &top.ports {
        let both = port.received.bits_per_s + port.sent.bits_per_s;
        history.set(&format!("port {}", port.name), both);
    }
    for reason in &top.reasons {
        history.set(&format!("reason {}", reason.name), reason.packets_per_s);
    }
    for busy in &top.flows {
        history.set(&flow_name(&busy.flow), busy.rate.bits_per_s);
    }
}

/// The whole page.
pub fn top(top: &Top, history: &History, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    let (tone, word) = if top.on {
        (Tone::Good, "on")
    } else {
        (Tone::Warn, "off")
    };
    let word = page.tone(tone, word);
    let span = match top.interval_s {
        0.0 => "rates follow".to_owned(),
        seconds => format!("rates over {}", duration(seconds)),
    };
    let table = &top.table;
    let flows = table.active + table.preparing + table.suspended + table.unconfirmed;
    page.words(
        "",
        &format!(
            "Freeway is {word}: {} in a table for {}, {span}",
            plural(flows, "flow"),
            count(table.capacity)
        ),
    );
    page.gap();
    let head = |page: &Page, cells: &[&str]| -> Vec<String> {
        cells
            .iter()
            .map(|cell| page.tone(Tone::Head, cell))
            .collect()
    };
    let rows = vec![
        head(&page, &["Packets by", "packets/s", "bit/s", ""]),
        vec![
            "fast path".into(),
            rate(top.fast.packets_per_s),
            bit_rate(top.fast.bits_per_s),
            history.line("fast"),
        ],
        vec![
            "kernel".into(),
            rate(to_kernel(top)),
            String::new(),
            history.line("kernel"),
        ],
    ];
    page.table(0, &[1, 2], &rows);
    if let Some(engine) = &top.engine {
        page.gap();
        for line in engine_lines(engine) {
            page.words("", &line);
        }
    }
    page.gap();
    let mut rows = vec![head(
        &page,
        &[
            "Port",
            "in packets/s",
            "in bit/s",
            "out packets/s",
            "out bit/s",
            "",
        ],
    )];
    for port in &top.ports {
        let Rate {
            packets_per_s,
            bits_per_s,
        } = port.received;
        rows.push(vec![
            port.name.clone(),
            rate(packets_per_s),
            bit_rate(bits_per_s),
            rate(port.sent.packets_per_s),
            bit_rate(port.sent.bits_per_s),
            history.line(&format!("port {}", port.name)),
        ]);
    }
    page.table(0, &[1, 2, 3, 4], &rows);
    let reasons = busiest(top);
    if !reasons.is_empty() {
        page.gap();
        let mut rows = vec![head(&page, &["Reason", "packets/s", "", ""])];
        rows.extend(reasons.iter().map(|reason| {
            vec![
                reason.name.clone(),
                rate(reason.packets_per_s),
                history.line(&format!("reason {}", reason.name)),
                cut(&reason.words, terminal.width.saturating_sub(46)),
            ]
        }));
        page.table(0, &[1], &rows);
    }
    if !top.flows.is_empty() {
        page.gap();
        let mut rows = vec![head(&page, &["Flow", "packets/s", "bit/s", ""])];
        for busy in top.flows.iter().take(FLOWS) {
            let name = flow_name(&busy.flow);
            rows.push(vec![
                cut(&name, terminal.width.saturating_sub(38)),
                rate(busy.rate.packets_per_s),
                bit_rate(busy.rate.bits_per_s),
                history.line(&name),
            ]);
        }
        page.table(0, &[1, 2], &rows);
    }
    page.finish()
}

/// Why packets leave the fast path, the most frequent reason first.
pub fn busiest(top: &Top) -> Vec<&ReasonRate> {
    let mut reasons: Vec<_> = top.reasons.iter().collect();
    reasons.sort_by(|a, b| b.packets_per_s.total_cmp(&a.packets_per_s));
    reasons
}

/// Packets a second that the data plane gave to the kernel.
pub fn to_kernel(top: &Top) -> f64 {
    let punts = top.reasons.iter().filter(|reason| reason.stage == "punt");
    punts.map(|reason| reason.packets_per_s).sum()
}

/// How a flow is named here.
pub fn flow_name(flow: &Flow) -> String {
    let words = ends(flow.proto, (flow.src, flow.sport), (flow.dst, flow.dport));
    format!("{} {words}", flow.proto)
}

/// At most so many characters; the middle goes.
fn cut(text: &str, room: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= room || room < 8 {
        return text.to_owned();
    }
    let tail = room / 2;
    let head = room - tail - 2;
    let ends = [&characters[..head], &characters[characters.len() - tail..]];
    ends.map(|part| part.iter().collect::<String>()).join("..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_api::engine::{IoCounts, WorkerCounts};
    use freeway_api::fake;
    use freeway_testkit::check_fits;

    #[test]
    fn several_cores_are_told_apart() {
        let worker = |cpu, busy_permille, buckets| WorkerCounts {
            cpu,
            busy_permille,
            buckets,
            ..WorkerCounts::default()
        };
        let mut engine = EngineStatus::default();
        engine.counts.workers = vec![worker(1, 500, 0)];
        assert_eq!(engine_lines(&engine).len(), 2);
        engine.counts.workers = vec![worker(1, 500, 300), worker(2, 505, 212)];
        engine.counts.io = vec![IoCounts {
            cpu: 3,
            busy_permille: 70,
            ..IoCounts::default()
        }];
        engine.counts.decisions = vec!["first".into(), "last".into()];
        let lines = engine_lines(&engine);
        assert_eq!(
            lines[2],
            "busy: worker on CPU 1 50.0 %, 300 buckets; worker on CPU 2 50.5 %, 212 buckets; I/O core on CPU 3 7.0 %"
        );
        assert_eq!(lines[3], "last");
        assert!(lines[0].contains("busy 0.0 % with"), "{}", lines[0]);
        engine.counts.wakeups = 1234;
        engine.counts.asleep_permille = 981;
        engine.counts.io[0].asleep_permille = 985;
        let lines = engine_lines(&engine);
        let words = "busy 0.0 %, asleep 98.1 % (woke 1,234 times) with";
        assert!(lines[0].contains(words), "{}", lines[0]);
        let words = "I/O core on CPU 3 7.0 % (asleep 98.5 %)";
        assert!(lines[2].ends_with(words), "{}", lines[2]);
    }

    #[test]
    fn ports_reasons_and_flows() {
        let mut history = History::default();
        remember(&mut history, &fake::top());
        let text = top(&fake::top(), &history, Terminal::PIPE);
        check_fits(&text);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "Freeway is on: 2,001 flows in a table for 65,536, rates over 1",
            "fast path 81,234 975 Mbit/s",
            "kernel 13",
            "lan0 80,000 960 Mbit/s 1,234 14.8 Mbit/s",
            "miss 13",
            "tcp 192.0.2.2:40000 > 198.51.100.2:5201 80,000 960 Mbit/s",
        ] {
            assert!(flat.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn long_names_are_cut_to_the_screen() {
        let long = "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap();
        let mut many = fake::top();
        let mut busy = many.flows[0].clone();
        (busy.flow.src, busy.flow.dst) = (long, long);
        many.flows = vec![busy; 50];
        let text = top(&many, &History::default(), Terminal::PIPE);
        check_fits(&text);
        assert!(text.contains(".."), "{text}");
    }
}
