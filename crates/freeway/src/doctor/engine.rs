// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine on a core of its own, where the configuration has one.

use freeway_api::Status;
use freeway_api::engine::{EngineConfig, EngineStatus};
use freeway_console::count;
use freeway_daemon::config::Config;

use super::report::{Report, Severity};

const AREA: &str = "engine";
const HUGE_PAGES_FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// Thousandths of its time from which a core has no room left.
const FULL_PERMILLE: u32 = 950;

/// Looks at `[engine]`, and at the one that runs.
pub fn examine(report: &mut Report, config: &Config, daemon: Option<&Status>) {
    let there = daemon.and_then(|status| status.engine.as_ref());
    if config.engine.port.is_empty() && there.is_none() {
        return;
    }
    match (there, daemon) {
        (Some(there), _) => examine_running(report, there),
        (None, Some(_)) => report.advise(
            AREA,
            Severity::Warning,
            "it is configured, and is not there",
            "systemctl start freeway-engine; journalctl -u freeway-engine says why it ended",
        ),
        (None, None) => examine_memory(report, &config.engine),
    }
    for (name, port) in &config.engine.port {
        let exists = nix::net::if_::if_nametoindex(name.as_str()).is_ok();
        if port.af_xdp && !exists {
            report.advise(
                AREA,
                Severity::Warning,
                format!("{name} is to be shared with it, and there is no such port"),
                format!("correct or remove [engine.port.{name}] in the configuration"),
            );
        }
    }
}

/// Before it starts: what it would lack.
fn examine_memory(report: &mut Report, config: &EngineConfig) {
    let free = std::fs::read_to_string(HUGE_PAGES_FREE).unwrap_or_default();
    let free: u32 = free.trim().parse().unwrap_or(0);
    let wanted = config.memory_mib.div_ceil(2);
    if config.huge_pages && free < wanted {
        report.advise(
            AREA,
            Severity::Warning,
            format!("it takes {wanted} huge pages of 2 MiB, and {free} are free"),
            format!(
                "echo {wanted} > {}, or huge_pages = false",
                HUGE_PAGES_FREE.replace("free_", "nr_")
            ),
        );
    }
}

fn examine_running(report: &mut Report, there: &EngineStatus) {
    let counts = &there.counts;
    let fullest = counts
        .workers
        .iter()
        .map(|worker| worker.busy_permille)
        .max();
    let permille = fullest.unwrap_or(counts.busy_permille);
    let busy = f64::from(permille) / 10.0;
    let words = match counts.workers.len() {
        0 | 1 => format!("its core is busy {busy:.1} %"),
        several => format!("the fullest of its {several} workers is busy {busy:.1} %"),
    };
    match permille >= FULL_PERMILLE {
        true => report.advise(
            AREA,
            Severity::Warning,
            words,
            "leave flows to XDP: freeway steer",
        ),
        false => report.add(AREA, Severity::Good, words),
    }
    if counts.pool_size > 0 && counts.pool_free < counts.pool_size / 8 {
        report.advise(
            AREA,
            Severity::Warning,
            format!(
                "{} of {} buffers are free",
                count(counts.pool_free.into()),
                count(counts.pool_size.into())
            ),
            "raise engine.memory_mib in the configuration",
        );
    }
    for (dropped, what) in [
        (counts.exceptions_dropped, "for the kernel found no room"),
        (counts.tx_dropped, "were not taken by a port"),
        (counts.sockets_dropped, "of XDP's found no room"),
        (counts.dispatch_dropped, "found a worker's ring full"),
        (counts.not_mirrored, "could not be copied to a mirror"),
    ] {
        if dropped > 0 {
            let words = format!("{} frames {what}", count(dropped));
            report.add(AREA, Severity::Note, words);
        }
    }
}

#[cfg(test)]
mod tests {
    use freeway_api::engine::{EngineCounts, WorkerCounts};

    use super::*;

    #[test]
    fn what_an_engine_lacks_is_said() {
        let found = |counts: EngineCounts| {
            let mut report = Report::default();
            let there = EngineStatus {
                counts,
                ..EngineStatus::default()
            };
            examine_running(&mut report, &there);
            let words: Vec<_> = report.findings.into_iter().map(|f| f.words).collect();
            (report.worst, words.join("; "))
        };
        let calm = EngineCounts {
            busy_permille: 123,
            pool_free: 900,
            pool_size: 1000,
            ..EngineCounts::default()
        };
        assert_eq!(
            found(calm.clone()),
            (Severity::Good, "its core is busy 12.3 %".into())
        );
        let (worst, words) = found(EngineCounts {
            busy_permille: 990,
            pool_free: 12,
            sockets_dropped: 5,
            ..calm
        });
        assert_eq!(worst, Severity::Warning);
        assert!(words.contains("12 of 1,000 buffers are free"), "{words}");
        assert!(words.contains("5 frames of XDP's found no room"), "{words}");
        let worker = |busy_permille| WorkerCounts {
            busy_permille,
            ..WorkerCounts::default()
        };
        let (worst, words) = found(EngineCounts {
            workers: vec![worker(100), worker(960)],
            dispatch_dropped: 3,
            ..EngineCounts::default()
        });
        assert_eq!(worst, Severity::Warning);
        assert!(
            words.contains("the fullest of its 2 workers is busy 96.0 %"),
            "{words}"
        );
        assert!(
            words.contains("3 frames found a worker's ring full"),
            "{words}"
        );
    }

    #[test]
    fn one_that_is_not_there_is_missed() {
        let text = "[engine.port.none9]\naf_xdp = true\n";
        let config = Config::parse(text, "x").unwrap();
        let mut report = Report::default();
        examine(&mut report, &config, Some(&Status::default()));
        let words: Vec<_> = report.findings.iter().map(|f| f.words.as_str()).collect();
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(words[0].contains("is not there"), "{words:?}");
        assert!(words[1].contains("none9"), "{words:?}");
        let mut report = Report::default();
        examine(&mut report, &Config::default(), Some(&Status::default()));
        assert!(report.findings.is_empty());
    }
}
