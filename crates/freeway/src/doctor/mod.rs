// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway doctor`: what this machine, its drivers and its rules allow, and what to change. Needs no daemon.

mod conntrack;
mod engine;
mod kernel;
mod limits;
mod ports;
pub mod report;
mod rules;

use std::path::Path;
use std::time::Duration;

use freeway_api::Client;
use freeway_console::Stop;
use freeway_daemon::config::Config;
use freeway_daemon::hooked::Hooks;

use report::Report;

/// How long a daemon may take to say what it does.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks at everything. `interfaces` restricts the ports.
pub fn examine(config: Option<&Path>, interfaces: &[String]) -> Result<Report, Stop> {
    let mut config = Config::read(config)?;
    let socket = config.daemon.socket.clone();
    if !interfaces.is_empty() {
        config.daemon.interfaces = interfaces.to_vec();
    }
    let complete = nix::unistd::geteuid().is_root();
    let mut report = Report {
        complete,
        ..Report::default()
    };
    kernel::examine(&mut report);
    // A daemon that runs here knows its ports best.
    let daemon = Client::new(socket.as_deref())
        .and_then(|client| client.patience(PATIENCE).status())
        .ok();
    let hooks = Hooks::open();
    ports::examine(&mut report, &config, interfaces, daemon.as_ref(), &hooks)?;
    rules::examine(&mut report, &hooks);
    conntrack::examine(&mut report, &config);
    limits::examine(&mut report, &config, daemon.as_ref());
    engine::examine(&mut report, &config, daemon.as_ref());
    report.group();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::report::Severity;
    use super::*;

    #[test]
    fn findings_of_an_area_stay_together() {
        let mut report = Report::default();
        for (area, severity, words) in [
            ("b", Severity::Good, "1"),
            ("a", Severity::Warning, "2"),
            ("b", Severity::Note, "3"),
        ] {
            report.add(area, severity, words);
        }
        report.group();
        let order: Vec<_> = report.findings.iter().map(|f| f.words.as_str()).collect();
        assert_eq!(order, ["1", "3", "2"]);
        assert_eq!(report.worst, Severity::Warning);
    }
}
