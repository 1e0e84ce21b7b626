// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway status`.

use freeway_api::engine::{EngineClass, EngineCounts, EngineStatus, SameCore};
use freeway_api::{
    Accounting, Collector, CollectorState, FeatureState, FlowCounts, Invalidation, Latency,
    Learning, Limit, Port, PortPath, PortState, ScrubLimit, Shares, Status,
};
use freeway_console::{Page, Terminal, Tone, bytes, count, duration, plural};

/// The whole page.
pub fn status(status: &Status, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    headline(&mut page, status);
    page.head("Ports");
    if status.ports.is_empty() {
        page.words(
            "  ",
            "none forwards: enable forwarding (net.ipv4.ip_forward), or name ports with -i",
        );
    }
    let rows: Vec<_> = status
        .ports
        .iter()
        .map(|port| port_row(&page, port))
        .collect();
    page.table(2, &[], &rows);
    page.gap();
    let mut rows = figures(&page, status);
    for row in &mut rows {
        row[0] = page.tone(Tone::Head, &row[0]);
    }
    page.table(0, &[], &rows);
    for finding in &status.ruleset.findings {
        page.words("  - ", finding);
    }
    features(&mut page, status);
    if !status.notices.is_empty() {
        page.head("Notices");
        for notice in &status.notices {
            let mark = page.tone(Tone::Warn, "!");
            page.words(&format!("  {mark} "), notice);
        }
    }
    page.finish()
}

fn headline(page: &mut Page, status: &Status) {
    let (tone, word) = match (status.on, &status.paused) {
        (false, _) => (Tone::Warn, "off"),
        (true, Some(_)) => (Tone::Warn, "paused"),
        (true, None) => (Tone::Good, "on"),
    };
    let word = page.tone(tone, word);
    let tail = match (status.on, &status.paused) {
        (false, _) => "the kernel forwards everything; `freeway on` switches it on".to_owned(),
        (true, Some(why)) => format!("the kernel forwards everything for now: {why}"),
        (true, None) => {
            let verb = if status.flows.active == 1 {
                "is"
            } else {
                "are"
            };
            format!("{} {verb} fast", plural(status.flows.active, "flow"))
        }
    };
    page.words("", &format!("Freeway {} is {word}: {tail}", status.version));
    let uptime = duration(status.uptime_s as f64);
    page.words(
        "",
        &format!(
            "Process {}, up {uptime}, Linux {}",
            status.pid, status.kernel
        ),
    );
    if let Some(before) = &status.taken_over {
        page.words(
            "",
            &format!(
                "Taken over from version {} (process {}) with {} flows, {uptime} ago",
                before.version, before.pid, before.flows
            ),
        );
    }
}

/// How many are told, and who is not.
fn collectors(accounting: &Accounting) -> String {
    let all = &accounting.collectors;
    let away = |one: &&Collector| one.state != CollectorState::Ready;
    let away: Vec<_> = all
        .iter()
        .filter(away)
        .map(|one| format!("{} is {}", one.collector, one.state.name()))
        .collect();
    let told = format!(
        "{} for {}",
        plural(accounting.records, "record"),
        plural(all.len() as u64, "collector")
    );
    match away.is_empty() {
        true => told,
        false => format!("{told}; {}", away.join(", ")),
    }
}

fn port_row(page: &Page, port: &Port) -> Vec<String> {
    let (tone, word) = match (port.state, port.path) {
        (PortState::Fast, PortPath::Tc) => (Tone::Good, "fast (tc)"),
        (PortState::Fast, PortPath::Engine) => (Tone::Good, "fast (engine)"),
        (PortState::Fast, _) => (Tone::Good, "fast (XDP)"),
        (PortState::Kernel, _) => (Tone::Warn, "kernel"),
        (PortState::Attaching, _) => (Tone::Warn, "attaching"),
        (PortState::Down, _) => (Tone::Warn, "down"),
    };
    let mut words = port.reasons.join("; ");
    if port.redirect_failures > 0 {
        let lost = format!(
            "{} lost on the way out",
            plural(port.redirect_failures, "frame")
        );
        words = if words.is_empty() {
            lost
        } else {
            format!("{words}; {lost}")
        };
    }
    if words.is_empty() {
        words = format!("MTU {}", port.mtu);
    }
    vec![port.name.clone(), page.tone(tone, word), words]
}

fn figures(page: &Page, status: &Status) -> Vec<Vec<String>> {
    let flows = &status.flows;
    let mut states = vec![format!("{} fast", count(flows.active))];
    for (number, word) in [
        (flows.preparing, "learning"),
        (flows.suspended, "suspended"),
        (flows.unconfirmed, "unconfirmed"),
    ] {
        if number > 0 {
            states.push(format!("{} {word}", count(number)));
        }
    }
    let rules = if status.ruleset.safe {
        page.tone(Tone::Good, "nothing must see every packet")
    } else {
        page.tone(Tone::Warn, "these keep flows in the kernel:")
    };
    let row = |name: &str, words: String| vec![name.to_owned(), words];
    let mut rows = vec![
        row(
            "Flows",
            format!("{}; room for {}", states.join(", "), count(flows.capacity)),
        ),
        row("Held by", held(flows, &status.shares)),
        row(
            "Connections",
            format!(
                "{} over {}",
                count(status.connections),
                plural(status.next_hops, "next hop")
            ),
        ),
        row("Learning", learning(&status.learn)),
        row(
            "Changes",
            changes(&status.invalidation, status.staleness_bound_s),
        ),
        row(
            "Memory",
            format!(
                "{} and {} of maps",
                bytes(status.memory_rss_bytes),
                bytes(status.memory_maps_bytes)
            ),
        ),
        row(
            "Config",
            status
                .config_file
                .clone()
                .unwrap_or_else(|| "defaults".into()),
        ),
    ];
    let routed = status.ports.iter().filter(|port| port.routes);
    let routed: Vec<&str> = routed.map(|port| port.name.as_str()).collect();
    if !routed.is_empty() {
        let words = format!(
            "prefix paths at {}; see `freeway routes`",
            routed.join(", ")
        );
        rows.push(row("Routes", words));
    }
    if let Some(there) = &status.engine {
        rows.push(row("Engine", engine(there)));
        let classes = there.classes.iter();
        rows.extend(classes.map(|class| row("Class", engine_class(class))));
    }
    if let Some(translated) = &status.same_core {
        rows.push(row("Same core", same_core(translated)));
    }
    if let Some(accounting) = &status.accounting {
        rows.push(row("Collectors", collectors(accounting)));
    }
    if !status.limits.is_empty() {
        rows.push(row("Limits", limits(page, &status.limits)));
    }
    if !status.scrub_limits.is_empty() {
        rows.push(row("Sources", sources(page, &status.scrub_limits)));
    }
    rows.push(row("Rules", rules));
    rows
}

fn same_core(of: &SameCore) -> String {
    let mut words = vec![format!(
        "of {} translated {} have both directions on one core",
        count(of.together + of.apart),
        count(of.together)
    )];
    words.extend(
        of.ports
            .iter()
            .map(|port| format!("{} to {}", port.name, port.addresses.join(", "))),
    );
    for (number, what) in [
        (of.ports_taken, "without a free port"),
        (of.refused, "refused by conntrack"),
    ] {
        if number > 0 {
            words.push(format!("{} {what}", count(number)));
        }
    }
    words.join("; ")
}

/// A class of a scheduler of the engine's.
fn engine_class(class: &EngineClass) -> String {
    let ms = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
    format!(
        "{} of {} on {}: {} left, {} dropped, {} waiting; delay {} in the mean, 99 % below {}",
        class.class,
        class.kind,
        class.port,
        count(class.packets),
        count(class.dropped),
        count(class.waiting),
        ms(class.delay_mean_ns),
        ms(class.delay_p99_below_ns)
    )
}

/// How frames come to workers, what they cost there, and what was decided last.
fn dispatch(counts: &EngineCounts) -> Vec<String> {
    if counts.io.is_empty() {
        return Vec::new();
    }
    let modes = counts.dispatch.iter();
    let modes: Vec<_> = modes
        .map(|of| format!("{} {}", of.port, of.mode.name()))
        .collect();
    let costs: Vec<_> = counts
        .model
        .iter()
        .map(|of| format!("{} {}", of.path.replace('_', " "), count(of.cycles.into())))
        .collect();
    let mut words = vec![
        modes.join(", "),
        format!("cycles a frame by path: {}", costs.join(", ")),
        format!(
            "{} moved, {} called off, {} parked",
            plural(counts.moves, "bucket"),
            count(counts.moves_called_off),
            plural(counts.parked, "frame")
        ),
    ];
    words.extend(counts.decisions.last().cloned());
    words
}

fn engine(engine: &EngineStatus) -> String {
    let counts = &engine.counts;
    let mut words = vec![
        format!("process {}, {}", engine.pid, engine.dpdk),
        plural(engine.flows, "flow"),
        format!(
            "{} forwarded, {} to the kernel, {} from it",
            count(counts.forwarded),
            count(counts.exceptions),
            count(counts.from_kernel)
        ),
        format!(
            "busy {:.1} %{}, {} cycles a frame, bursts of {:.1}",
            f64::from(counts.busy_permille) / 10.0,
            super::asleep(counts),
            count(counts.cycles.into()),
            f64::from(counts.burst_percent) / 100.0
        ),
        format!(
            "{} of {} buffers free",
            count(counts.pool_free.into()),
            count(counts.pool_size.into())
        ),
    ];
    words.extend(super::cores(counts));
    words.extend(dispatch(counts));
    if counts.routed > 0 {
        words.push(format!(
            "{} without a flow",
            plural(counts.routed, "packet")
        ));
    }
    if counts.mirrors > 0 || counts.mirrored > 0 {
        words.push(format!(
            "{} copied by {}",
            plural(counts.mirrored, "frame"),
            plural(counts.mirrors.into(), "mirror rule")
        ));
    }
    for (number, what) in [
        (counts.exceptions_dropped, "for the kernel found no room"),
        (counts.tx_dropped, "were not taken by a port"),
        (counts.sockets_dropped, "of XDP's found no room"),
        (
            counts.not_copied,
            "were to be copied to another node and were handed over",
        ),
        (counts.dispatch_dropped, "found a worker's ring full"),
        (counts.not_mirrored, "could not be copied to a mirror"),
    ] {
        if number > 0 {
            words.push(format!("{} {what}", plural(number, "frame")));
        }
    }
    words.join("; ")
}

fn held(flows: &FlowCounts, shares: &Shares) -> String {
    let used = flows.active + flows.preparing + flows.suspended + flows.unconfirmed;
    let mut words: Vec<_> = shares
        .greatest
        .iter()
        .map(|holder| format!("{} {}", holder.address, count(holder.flows)))
        .collect();
    let others = shares.holders.saturating_sub(words.len() as u64);
    if others > 0 {
        words.push(plural(others, "other"));
    }
    if words.is_empty() {
        words.push("nobody".into());
    }
    let mut words = words.join(", ");
    if shares.displaced > 0 {
        words += &format!("; {} made room for others", count(shares.displaced));
    } else if used >= flows.capacity {
        words += "; the table is full";
    }
    words
}

fn limits(page: &Page, limits: &[Limit]) -> String {
    let words: Vec<_> = limits
        .iter()
        .map(|limit| limit_words(page, &limit.name, limit.packets_per_s, limit.dropped))
        .collect();
    format!("{} on each CPU", words.join(", "))
}

fn sources(page: &Page, limits: &[ScrubLimit]) -> String {
    let words: Vec<_> = limits
        .iter()
        .map(|limit| {
            limit_words(
                page,
                &limit.proto,
                limit.packets_per_s,
                limit.dropped.packets,
            )
        })
        .collect();
    format!("{} from each; see `freeway drops`", words.join(", "))
}

fn limit_words(page: &Page, name: &str, packets_per_s: u32, dropped: u64) -> String {
    let rate = format!("{name} {}/s", count(packets_per_s.into()));
    match dropped {
        0 => rate,
        dropped => {
            let dropped = format!("{} dropped", count(dropped));
            format!("{rate} ({})", page.tone(Tone::Warn, &dropped))
        }
    }
}

fn learning(learn: &Learning) -> String {
    if learn.candidates == 0 {
        return "nothing yet".into();
    }
    let Latency { p50, p95, max, .. } = learn.learnable_to_fast_ms;
    format!(
        "{} learned of {}, {} refused; fast after {p50:.0} ms (p95 {p95:.0} ms, max {max:.0} ms)",
        count(learn.learned),
        plural(learn.candidates, "candidate"),
        count(learn.refused),
    )
}

fn changes(changes: &Invalidation, bound_s: f64) -> String {
    let bound = match bound_s {
        0.0 => String::new(),
        bound => format!("; without an event within {}", duration(bound)),
    };
    if changes.count == 0 {
        return format!("none yet{bound}");
    }
    format!(
        "{} took effect in p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms{bound}",
        count(changes.count),
        changes.p50_ms,
        changes.p99_ms,
        changes.worst_ms
    )
}

fn features(page: &mut Page, status: &Status) {
    let lacking: Vec<_> = status
        .features
        .iter()
        .filter(|feature| feature.state != FeatureState::Present)
        .collect();
    if lacking.is_empty() {
        return;
    }
    page.head("Features that this kernel lacks");
    for feature in lacking {
        let unknown = if feature.state == FeatureState::Unknown {
            " (could not be tried)"
        } else {
            ""
        };
        let words = format!(
            "{}{unknown}, for {}; Linux {} has it",
            feature.name, feature.needed_for, feature.minimum_kernel
        );
        page.words("  - ", &words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_api::fake;
    use freeway_testkit::check_fits;

    #[test]
    fn every_port_is_named_with_its_reason() {
        let text = status(&fake::status(), Terminal::PIPE);
        check_fits(&text);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flat.starts_with("Freeway 0.1.0 is on: 1,998 flows are fast"),
            "{text}"
        );
        for words in [
            "lan0 fast (XDP) MTU 1500",
            "vethfaraway0000 kernel a veth whose peer",
            "eth9 down no carrier",
            "`limit` must see every packet from lan0",
            "tcx, for attaching",
            "Limits icmp 1,000/s, fragment 10,000/s (1,234 dropped) on each CPU",
            "up 62 min",
            "! nf_conntrack_max",
        ] {
            assert!(flat.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn off_and_paused_come_first() {
        let mut off = fake::status();
        off.on = false;
        assert!(
            status(&off, Terminal::PIPE)
                .starts_with("Freeway 0.1.0 is off: the kernel forwards everything")
        );
        let mut paused = fake::status();
        paused.paused = Some("the ruleset is being read".into());
        let text = status(&paused, Terminal::PIPE);
        check_fits(&text);
        assert!(text.starts_with("Freeway 0.1.0 is paused"), "{text}");
    }
}
