// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring.

mod bulk;
mod compare;
mod diff;
mod discipline;
mod dut;
mod flood;
mod flows;
mod forwarded;
mod imx8;
mod kirkwood;
mod line;
mod multicast;
mod port;
mod process;
mod program;
mod progress;
mod replay;
mod report;
mod rfc2544;
mod rfc9693;
mod router;
mod setup;
mod shaper;
mod statistics;
mod streamed;

use std::thread;

use freeway_datapath::FLOWS_MAX;
use freeway_lab::{Lab, LabError, NapiThreads, Options, Sample};

use crate::exit::Stop;

pub use bulk::bulk;
pub use compare::compare;
pub use diff::diff;
pub use dut::{cable, generator, mac, sink};
pub use flood::flood;
pub use flows::flows;
pub use imx8::{Row, imx8};
pub use kirkwood::kirkwood;
pub use multicast::multicast;
pub use process::pin;
pub use progress::progress;
pub use replay::replay;
pub use report::{names as report_scenarios, report};
pub use rfc2544::{Size, rfc2544};
pub use rfc9693::rfc9693;
pub use setup::setup;
pub use shaper::shaper;
pub use streamed::Streamed;

/// Builds each in a thread of its own, for most of the time is the wait for links to be up. Processes end with the thread that
/// starts them.
pub fn at_once<I: Send, T: Send, const N: usize>(
    of: [I; N],
    build: impl Fn(I) -> Result<T, Stop> + Sync,
) -> Result<[T; N], Stop> {
    let build = &build;
    let built = thread::scope(|scope| {
        let threads = of.map(|one| scope.spawn(move || build(one)));
        threads.map(|thread| {
            let failed = |_| Stop::failure("a thread that builds a router ended badly");
            thread.join().map_err(failed)?
        })
    });
    let built: Vec<T> = built.into_iter().collect::<Result<_, _>>()?;
    let lost = |_| Stop::failure("a router was lost");
    built.try_into().map_err(lost)
}

/// The lab for so many flows: conntrack must have room for them.
pub fn options(flows: u32) -> Options {
    let room = flows.saturating_mul(2).saturating_add(4096);
    let conntrack_max = (flows > 10_000).then_some(room);
    Options {
        conntrack_max,
        ..Options::default()
    }
}

/// The router's ports are polled by threads on the first CPU. Returns them and the CPU of the hosts: another, if there is.
pub fn poll_by_threads(lab: &Lab) -> Result<(NapiThreads, usize), LabError> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let host_cpu = 1.min(cpus - 1);
    Ok((lab.poll_by_threads(0, host_cpu)?, host_cpu))
}

/// The daemon's configuration for so many flows; nothing while the default has room.
pub fn flow_config(flows: u32) -> String {
    let needed = flows.saturating_mul(2).saturating_add(1024).min(FLOWS_MAX);
    if needed <= crate::config::Flows::default().max {
        String::new()
    } else {
        format!("[flows]\nmax = {needed}\n")
    }
}

/// `1,234 ns, 0.81 Mpps`.
pub fn figures(sample: &Sample) -> String {
    format!(
        "{:>7.1} ns a frame, {:>5.2} Mpps",
        sample.ns_per_frame,
        sample.mpps()
    )
}

/// The middle value; NaN of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The median of the runs' ratios: what a run's speed was is in both of its figures.
pub fn ratio(over: &[f64], under: &[f64]) -> f64 {
    median(over.iter().zip(under).map(|(a, b)| a / b).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn room_for_many_flows() {
        assert_eq!(flow_config(1000), "");
        assert_eq!(flow_config(1_000_000), "[flows]\nmax = 1835008\n");
        assert_eq!(options(1000).conntrack_max, None);
        assert_eq!(options(100_000).conntrack_max, Some(204_096));
    }
}
