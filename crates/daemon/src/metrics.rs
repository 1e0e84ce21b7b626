// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status and counters in the text format of Prometheus.

use std::fmt::{Display, Write};

use freeway_api::engine::{EngineClass, EngineCounts, EngineStatus, SameCore};
use freeway_api::{
    Collector, CollectorState, DropsBySet, Port, PortState, ScrubLimit, Stats, Status,
};

/// The whole page.
pub fn render(status: &Status, stats: &Stats) -> String {
    let mut page = Page(String::new());
    let flows = &status.flows;
    page.family("freeway_info", "gauge", "The daemon and its kernel.");
    page.sample(
        "freeway_info",
        &[("version", &status.version), ("kernel", &status.kernel)],
        1,
    );
    page.single(
        "freeway_on",
        "gauge",
        "1 if the fast path is switched on.",
        u8::from(status.on),
    );
    page.single(
        "freeway_paused",
        "gauge",
        "1 if everything is the kernel's for now.",
        u8::from(status.paused.is_some()),
    );
    page.single(
        "freeway_uptime_seconds",
        "gauge",
        "Since the daemon started.",
        status.uptime_s,
    );
    page.single(
        "freeway_fast_packets_total",
        "counter",
        "Packets that the fast path forwarded.",
        stats.fast.packets,
    );
    page.single(
        "freeway_fast_bytes_total",
        "counter",
        "Their bytes, L2 without FCS.",
        stats.fast.bytes,
    );
    page.single(
        "freeway_bridged_packets_total",
        "counter",
        "Frames that XDP bridged.",
        stats.bridged.packets,
    );
    page.single(
        "freeway_bridged_bytes_total",
        "counter",
        "Their bytes, L2 without FCS.",
        stats.bridged.bytes,
    );
    page.single(
        "freeway_bridged_paths",
        "gauge",
        "Pairs of stations whose frames XDP bridges.",
        stats.bridged.paths,
    );
    page.family(
        "freeway_bridged_refused_total",
        "counter",
        "Offered paths of bridged frames that were refused, by reason.",
    );
    for refusal in &stats.bridged.refused {
        page.sample(
            "freeway_bridged_refused_total",
            &[("reason", refusal.name.as_str())],
            refusal.count,
        );
    }
    page.family(
        "freeway_reason_packets_total",
        "counter",
        "Packets by the reason they left the data plane for.",
    );
    for reason in &stats.reasons {
        let labels = [
            ("reason", reason.name.as_str()),
            ("stage", reason.stage.as_str()),
        ];
        page.sample("freeway_reason_packets_total", &labels, reason.packets);
    }
    page.family(
        "freeway_limit_packets_per_second",
        "gauge",
        "Most packets that each CPU gives to the kernel, by reason.",
    );
    for limit in &stats.limits {
        page.sample(
            "freeway_limit_packets_per_second",
            &[("reason", limit.name.as_str())],
            limit.packets_per_s,
        );
    }
    page.family(
        "freeway_policed_packets_total",
        "counter",
        "Packets dropped over the limit of their reason.",
    );
    for limit in &stats.limits {
        page.sample(
            "freeway_policed_packets_total",
            &[("reason", limit.name.as_str())],
            limit.dropped,
        );
    }
    for (name, help, value) in [
        (
            "freeway_scrub_dropped_packets_total",
            "Packets that XDP dropped ahead of the kernel, by set of the firewall.",
            (|set| set.dropped.packets) as fn(&DropsBySet) -> u64,
        ),
        (
            "freeway_scrub_dropped_bytes_total",
            "Bytes of their frames.",
            |set| set.dropped.bytes,
        ),
        (
            "freeway_scrub_confirmed_packets_total",
            "Packets in such a set that the kernel was given to confirm the drop.",
            |set| set.confirmed,
        ),
    ] {
        page.family(name, "counter", help);
        for set in &stats.drops {
            page.sample(name, &[("set", set.set.as_str())], value(set));
        }
    }
    for (name, help, value) in [
        (
            "freeway_scrub_limited_packets_total",
            "Packets that XDP dropped because their source was over a limit, by number of the limit.",
            (|limit| limit.dropped.packets) as fn(&ScrubLimit) -> u64,
        ),
        (
            "freeway_scrub_limited_bytes_total",
            "Bytes of their frames.",
            |limit| limit.dropped.bytes,
        ),
    ] {
        page.family(name, "counter", help);
        for limit in &stats.scrub_limits {
            let labels = [
                ("limit", limit.number.to_string()),
                ("proto", limit.proto.clone()),
            ];
            let labels = labels
                .each_ref()
                .map(|(name, value)| (*name, value.as_str()));
            page.sample(name, &labels, value(limit));
        }
    }
    page.family(
        "freeway_refused_total",
        "counter",
        "Candidates that the connection manager refused, by reason.",
    );
    for refusal in &stats.refused {
        page.sample(
            "freeway_refused_total",
            &[("reason", refusal.name.as_str())],
            refusal.count,
        );
    }
    page.family("freeway_flows", "gauge", "Flows in the table, by state.");
    for (state, count) in [
        ("active", flows.active),
        ("preparing", flows.preparing),
        ("suspended", flows.suspended),
        ("unconfirmed", flows.unconfirmed),
    ] {
        page.sample("freeway_flows", &[("state", state)], count);
    }
    page.single(
        "freeway_flows_capacity",
        "gauge",
        "Room in the flow table.",
        flows.capacity,
    );
    page.single(
        "freeway_flow_holders",
        "gauge",
        "Addresses that opened the connections of the flows.",
        status.shares.holders,
    );
    page.single(
        "freeway_flows_displaced_total",
        "counter",
        "Flows of a full table that left for hotter ones, or for those of a holder of less.",
        status.shares.displaced,
    );
    page.single(
        "freeway_connections",
        "gauge",
        "Connections behind the flows.",
        status.connections,
    );
    page.single(
        "freeway_next_hops",
        "gauge",
        "Next-hop records in use.",
        status.next_hops,
    );
    let mut by_port = |name, kind, help, value: fn(&Port) -> u64| {
        page.family(name, kind, help);
        for port in &status.ports {
            page.sample(name, &[("port", port.name.as_str())], value(port));
        }
    };
    by_port(
        "freeway_port_fast",
        "gauge",
        "1 if flows through the port may be fast.",
        |port| u64::from(port.state == PortState::Fast),
    );
    by_port(
        "freeway_port_redirect_failures_total",
        "counter",
        "Frames redirected to the port and lost.",
        |port| port.redirect_failures,
    );
    by_port(
        "freeway_port_ring_drops_total",
        "counter",
        "Frames redirected to the port for which its driver's ring had no room.",
        |port| port.ring_drops,
    );
    page.single(
        "freeway_ruleset_safe",
        "gauge",
        "1 if no reachable rule must see every packet.",
        u8::from(status.ruleset.safe),
    );
    page.single(
        "freeway_invalidations_total",
        "counter",
        "Changes that invalidated something.",
        status.invalidation.count,
    );
    page.family(
        "freeway_invalidation_seconds",
        "summary",
        "Time from a kernel event to the data plane, by quantile.",
    );
    for (quantile, ms) in [
        ("0.5", status.invalidation.p50_ms),
        ("0.99", status.invalidation.p99_ms),
        ("1", status.invalidation.worst_ms),
    ] {
        page.sample(
            "freeway_invalidation_seconds",
            &[("quantile", quantile)],
            ms / 1000.0,
        );
    }
    page.single(
        "freeway_staleness_bound_seconds",
        "gauge",
        "Longest that a change without an event goes unnoticed.",
        status.staleness_bound_s,
    );
    page.family(
        "freeway_events_total",
        "counter",
        "Events from the data plane.",
    );
    for (kind, count) in [
        ("candidate", stats.events.candidates),
        ("changed", stats.events.changed),
        ("suspended", stats.events.suspended),
        ("watched", stats.events.watched),
        ("lost", stats.events.lost),
    ] {
        page.sample("freeway_events_total", &[("kind", kind)], count);
    }
    page.single(
        "freeway_learned_total",
        "counter",
        "Flows learned.",
        status.learn.learned,
    );
    page.single(
        "freeway_netlink_overruns_total",
        "counter",
        "Times that the kernel dropped events.",
        stats.netlink.overruns,
    );
    page.single(
        "freeway_netlink_resyncs_total",
        "counter",
        "Times that everything was read anew.",
        stats.netlink.resyncs,
    );
    page.family(
        "freeway_reloads_total",
        "counter",
        "Times that the configuration was to be read again.",
    );
    for (result, count) in [
        ("applied", stats.reloads.applied),
        ("refused", stats.reloads.refused),
    ] {
        page.sample("freeway_reloads_total", &[("result", result)], count);
    }
    page.single(
        "freeway_memory_bytes",
        "gauge",
        "Resident memory of the daemon.",
        status.memory_rss_bytes,
    );
    page.single(
        "freeway_maps_bytes",
        "gauge",
        "Memory of the data plane's maps.",
        status.memory_maps_bytes,
    );
    engine(&mut page, status);
    accounting(&mut page, stats);
    page.0
}

struct Page(String);

// Writing to a string cannot fail.
impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{}\"", escape(value)))
            .collect();
        let _ = writeln!(self.0, "{name}{{{}}} {value}", labels.join(","));
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }
}

/// Of translated connections of the engine's ports.
fn same_core(page: &mut Page, of: &SameCore) {
    for (name, help, value) in [
        (
            "freeway_same_core_together_total",
            "Translated connections learned with both directions in one bucket.",
            of.together,
        ),
        (
            "freeway_same_core_apart_total",
            "Translated connections learned with the answers in another bucket.",
            of.apart,
        ),
        (
            "freeway_same_core_precedents_total",
            "First packets whose source was given a port.",
            of.precedents,
        ),
        (
            "freeway_same_core_ports_taken_total",
            "First packets of which the ports that were tried are others'.",
            of.ports_taken,
        ),
        (
            "freeway_same_core_refused_total",
            "First packets for which conntrack took no precedent.",
            of.refused,
        ),
    ] {
        page.single(name, "counter", help, value);
    }
}

/// Of the engine, if it is there.
fn engine(page: &mut Page, status: &Status) {
    page.single(
        "freeway_engine_up",
        "gauge",
        "1 if the engine on cores of its own is there.",
        u8::from(status.engine.is_some()),
    );
    if let Some(translated) = &status.same_core {
        same_core(page, translated);
    }
    let Some(engine) = &status.engine else { return };
    let counts = &engine.counts;
    for (name, help, value) in [
        (
            "freeway_engine_forwarded_packets_total",
            "Packets that the engine forwarded.",
            counts.forwarded,
        ),
        (
            "freeway_engine_routed_packets_total",
            "Of these, packets without a flow that left by their destination.",
            counts.routed,
        ),
        (
            "freeway_engine_exceptions_total",
            "Frames that the engine gave to the kernel.",
            counts.exceptions,
        ),
        (
            "freeway_engine_exceptions_dropped_total",
            "Frames for the kernel that found no room.",
            counts.exceptions_dropped,
        ),
        (
            "freeway_engine_from_kernel_total",
            "Frames of the kernel's that the engine sent.",
            counts.from_kernel,
        ),
        (
            "freeway_engine_tx_dropped_total",
            "Frames that a port of the engine did not take.",
            counts.tx_dropped,
        ),
        (
            "freeway_engine_sockets_dropped_total",
            "Frames that XDP handed over and that found no room.",
            counts.sockets_dropped,
        ),
        (
            "freeway_engine_mirrored_total",
            "Copies of frames that the engine gave to mirrors.",
            counts.mirrored,
        ),
        (
            "freeway_engine_not_mirrored_total",
            "Copies for mirrors that found no memory, or no room at their port.",
            counts.not_mirrored,
        ),
        (
            "freeway_engine_dispatch_dropped_total",
            "Frames of an I/O core's that found a worker's ring full.",
            counts.dispatch_dropped,
        ),
        (
            "freeway_engine_moves_total",
            "Buckets of flows that moved from one worker to another.",
            counts.moves,
        ),
        (
            "freeway_engine_moves_called_off_total",
            "Moves that were called off.",
            counts.moves_called_off,
        ),
        (
            "freeway_engine_parked_total",
            "Frames that waited for a move's end.",
            counts.parked,
        ),
    ] {
        page.single(name, "counter", help, value);
    }
    page.single(
        "freeway_engine_busy_ratio",
        "gauge",
        "Share of the last second that the workers spent with frames: their mean.",
        f64::from(counts.busy_permille) / 1000.0,
    );
    page.single(
        "freeway_engine_asleep_ratio",
        "gauge",
        "Share of the last second that the workers slept: their mean.",
        f64::from(counts.asleep_permille) / 1000.0,
    );
    page.single(
        "freeway_engine_wakeups_total",
        "counter",
        "How often workers that slept woke.",
        counts.wakeups,
    );
    cores(page, counts);
    page.single(
        "freeway_engine_free_buffers",
        "gauge",
        "Buffers for frames that are free.",
        counts.pool_free,
    );
    classes(page, engine);
}

/// Of its schedulers.
fn classes(page: &mut Page, engine: &EngineStatus) {
    type Figure = fn(&EngineClass) -> u64;
    let families: [(&str, &str, &str, Figure); 6] = [
        (
            "freeway_engine_class_packets_total",
            "counter",
            "Frames of a class that left by the engine's scheduler.",
            |class| class.packets,
        ),
        (
            "freeway_engine_class_bytes_total",
            "counter",
            "Their octets.",
            |class| class.bytes,
        ),
        (
            "freeway_engine_class_dropped_total",
            "counter",
            "Frames of a class that found no room in its queue.",
            |class| class.dropped,
        ),
        (
            "freeway_engine_class_waiting_packets",
            "gauge",
            "Frames of a class that wait.",
            |class| class.waiting,
        ),
        (
            "freeway_engine_class_waiting_bytes",
            "gauge",
            "Their octets.",
            |class| class.waiting_bytes,
        ),
        (
            "freeway_engine_class_delay_nanoseconds_total",
            "counter",
            "What the frames of a class that left have waited.",
            |class| class.delay_mean_ns.saturating_mul(class.packets),
        ),
    ];
    for (name, kind, help, figure) in families {
        page.family(name, kind, help);
        for class in &engine.classes {
            let labels = [
                ("port", class.port.as_str()),
                ("class", class.class.as_str()),
            ];
            page.sample(name, &labels, figure(class));
        }
    }
}

/// Of each core of the engine's, in the order of the configuration.
fn cores(page: &mut Page, counts: &EngineCounts) {
    let workers = counts.workers.iter().zip(0..);
    let workers = workers.map(|(core, number)| {
        let figures = [core.busy_permille, core.asleep_permille];
        ("worker", number, core.cpu, figures, core.wakeups)
    });
    let io = counts.io.iter().zip(0..);
    let io = io.map(|(core, number)| {
        let figures = [core.busy_permille, core.asleep_permille];
        ("io", number, core.cpu, figures, core.wakeups)
    });
    let all: Vec<_> = workers.chain(io).collect();
    let mut family = |name, kind, help, figure: &dyn Fn([u32; 2], u64) -> f64| {
        page.family(name, kind, help);
        for (kind, number, cpu, shares, wakeups) in &all {
            let (number, cpu) = (number.to_string(), cpu.to_string());
            let labels = [("kind", *kind), ("number", &number), ("cpu", &cpu)];
            page.sample(name, &labels, figure(*shares, *wakeups));
        }
    };
    family(
        "freeway_engine_core_busy_ratio",
        "gauge",
        "Share of the last second that a core spent with frames.",
        &|[busy, _], _| f64::from(busy) / 1000.0,
    );
    family(
        "freeway_engine_core_asleep_ratio",
        "gauge",
        "Share of the last second that a core slept.",
        &|[_, asleep], _| f64::from(asleep) / 1000.0,
    );
    family(
        "freeway_engine_core_wakeups_total",
        "counter",
        "How often a core that slept woke.",
        &|_, wakeups| wakeups as f64,
    );
}

/// Accounts of connections, if anybody is told of them.
fn accounting(page: &mut Page, stats: &Stats) {
    let Some(told) = &stats.accounting else {
        return;
    };
    for (name, kind, help, value) in [
        (
            "freeway_accounting_kernel_counts",
            "gauge",
            "1 if the kernel counts the packets of connections that it forwards.",
            u64::from(told.kernel_counts),
        ),
        (
            "freeway_accounting_connections",
            "gauge",
            "Connections of which something is remembered.",
            told.connections,
        ),
        (
            "freeway_accounting_records_total",
            "counter",
            "Records of connections that were due.",
            told.records,
        ),
        (
            "freeway_accounting_uncounted_total",
            "counter",
            "Connections that ended without counters of the kernel.",
            told.uncounted,
        ),
        (
            "freeway_accounting_missed_total",
            "counter",
            "Connections whose end the kernel did not tell.",
            told.missed,
        ),
    ] {
        page.single(name, kind, help, value);
    }
    let mut by_collector = |name, kind, help, value: fn(&Collector) -> u64| {
        page.family(name, kind, help);
        for one in &told.collectors {
            let labels = [
                ("collector", one.collector.as_str()),
                ("format", one.format.as_str()),
                ("transport", one.transport.as_str()),
            ];
            page.sample(name, &labels, value(one));
        }
    };
    by_collector(
        "freeway_export_up",
        "gauge",
        "1 if the collector is sent to, and does not refuse it.",
        |one| u64::from(one.state == CollectorState::Ready),
    );
    by_collector(
        "freeway_export_records_total",
        "counter",
        "Records that were sent.",
        |one| one.records,
    );
    by_collector(
        "freeway_export_messages_total",
        "counter",
        "Messages that were sent.",
        |one| one.messages,
    );
    by_collector(
        "freeway_export_bytes_total",
        "counter",
        "Their octets, without the headers of transport and IP.",
        |one| one.bytes,
    );
    by_collector(
        "freeway_export_dropped_records_total",
        "counter",
        "Records that found no room, or that the collector's host refused.",
        |one| one.dropped,
    );
    by_collector(
        "freeway_export_connects_total",
        "counter",
        "Times that the connection was made, or the socket opened.",
        |one| one.connects,
    );
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use freeway_api::fake;

    #[test]
    fn page_is_well_formed() {
        let page = render(&fake::status(), &fake::stats());
        assert!(page.contains("\nfreeway_fast_packets_total 1234567\n"));
        assert!(
            page.contains("freeway_reason_packets_total{reason=\"miss\",stage=\"punt\"} 4321\n")
        );
        assert!(page.contains("freeway_policed_packets_total{reason=\"fragment\"} 1234\n"));
        assert!(page.contains("freeway_limit_packets_per_second{reason=\"fragment\"} 10000\n"));
        let set = "freeway_scrub_dropped_packets_total{set=\"inet banip blocklistv4\"} 1000000\n";
        assert!(page.contains(set));
        let limit = "freeway_scrub_limited_packets_total{limit=\"1\",proto=\"syn\"} 4321\n";
        assert!(page.contains(limit));
        assert!(page.contains("freeway_reloads_total{result=\"refused\"} 1\n"));
        let down = "freeway_export_up{collector=\"192.0.2.10:4739\",format=\"ipfix\",transport=\"tcp\"} 0\n";
        assert!(page.contains(down));
        assert!(page.contains("freeway_port_fast{port=\"lan0\"} 1\n"));
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("freeway_"), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        let families: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("# TYPE"))
            .collect();
        let unique: BTreeSet<_> = families.iter().collect();
        assert_eq!(families.len(), unique.len());
    }

    /// What packaging/ has for Prometheus and Grafana names nothing else.
    #[test]
    fn dashboard_and_alerts_name_what_there_is() {
        let with_engine = Status {
            engine: Some(freeway_api::engine::EngineStatus::default()),
            same_core: Some(SameCore::default()),
            ..fake::status()
        };
        let page = render(&with_engine, &fake::stats());
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let there: BTreeSet<_> = types.filter_map(|line| line.split(' ').next()).collect();
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        for file in ["grafana/freeway.json", "prometheus/freeway.rules.yml"] {
            let text = std::fs::read_to_string(packaging.join(file)).unwrap();
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let named: BTreeSet<_> = words.filter(|w| w.starts_with("freeway_")).collect();
            assert!(named.len() > 15, "{file}: {named:?}");
            let unknown: Vec<_> = named.difference(&there).collect();
            assert!(unknown.is_empty(), "{file}: {unknown:?}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
