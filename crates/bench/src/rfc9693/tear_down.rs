// SPDX-License-Identifier: MIT OR Apache-2.0
//! How soon connections are gone.

use std::thread;
use std::time::Duration;

use freeway_console::Stop;
use serde::{Deserialize, Serialize};

use super::gateway::{ASSURED_AFTER, Emptied, Gateway};
use super::spread::Spread;

/// An empty table is emptied so often.
const EMPTY_RUNS: usize = 5;

/// The connection tear-down rate (RFC 9693).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TearDown {
    /// Connections a second; none if the time did not differ from that of an empty table, or if some were left.
    pub per_s: Option<Spread>,
    /// Connections that were deleted, the least of all runs.
    pub connections: u64,
    /// Freeway's flows of them, the least of all runs.
    pub flows: u64,
    /// Milliseconds until the kernel's table was empty, median.
    pub table_ms: f64,
    /// Until Freeway's was, too; without it the same.
    pub all_ms: f64,
    /// What an empty table takes, which is subtracted.
    pub empty_ms: f64,
    /// Connections and flows that were left afterwards.
    pub left: u64,
    /// Connections a second of each run, in order; fewer if some had no time of their own or left any.
    pub samples: Vec<f64>,
}

/// A run's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Connections,
    connections: u64,
    /// and flows that there were,
    flows: u64,
    /// and how long they took.
    emptied: Emptied,
    left: u64,
}

/// What an empty table takes, median.
pub fn of_nothing(gateway: &mut Gateway) -> Result<Duration, Stop> {
    gateway.empty()?;
    let times = (0..EMPTY_RUNS).map(|_| gateway.empty().map(|emptied| emptied.all));
    let mut times: Vec<Duration> = times.collect::<Result<_, _>>()?;
    times.sort();
    Ok(times.get(times.len() / 2).copied().unwrap_or_default())
}

/// Fills the tables of all routers with connections that are assured and, with Freeway, fast, and deletes them.
pub fn run(
    gateways: &mut [Gateway; 2],
    connections: u32,
    rates_per_s: [u64; 2],
) -> Result<[Run; 2], Stop> {
    for (gateway, rate) in gateways.iter_mut().zip(rates_per_s) {
        gateway.fill(connections, rate)?;
    }
    thread::sleep(ASSURED_AFTER);
    let [kernel, freeway] = gateways.each_mut().map(|gateway| {
        let flows = gateway.real(connections)?;
        let connections = gateway.connections()?;
        let emptied = gateway.empty()?;
        let left = gateway.connections()? + emptied.flows_left;
        Ok::<_, Stop>(Run {
            connections,
            flows,
            emptied,
            left,
        })
    });
    Ok([kernel?, freeway?])
}

impl TearDown {
    /// What runs come to.
    pub fn of(runs: &[Run], empty: Duration) -> Self {
        let rate = |run: &Run| {
            let time = run.emptied.all.checked_sub(empty)?;
            (run.left == 0 && !time.is_zero()).then(|| run.connections as f64 / time.as_secs_f64())
        };
        let samples: Vec<f64> = runs.iter().filter_map(rate).collect();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let median = |time: fn(&Emptied) -> Duration| {
            crate::median::median(runs.iter().map(|run| ms(time(&run.emptied))).collect())
        };
        let least = |of: fn(&Run) -> u64| runs.iter().map(of).min().unwrap_or(0);
        Self {
            per_s: Spread::of(&samples),
            connections: least(|run| run.connections),
            flows: least(|run| run.flows),
            table_ms: median(|emptied| emptied.table),
            all_ms: median(|emptied| emptied.all),
            empty_ms: ms(empty),
            left: runs.iter().map(|run| run.left).max().unwrap_or(0),
            samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ms: u64) -> Run {
        let all = Duration::from_millis(ms);
        Run {
            connections: 1000,
            flows: 2000,
            emptied: Emptied {
                table: all / 2,
                all,
                flows_left: 0,
            },
            left: 0,
        }
    }

    #[test]
    fn the_time_of_an_empty_table_does_not_count() {
        let of = TearDown::of(&[110, 60, 210].map(run), Duration::from_millis(10));
        let spread = of.per_s.unwrap();
        assert_eq!(
            [spread.median, spread.least, spread.most],
            [10_000.0, 5_000.0, 20_000.0]
        );
        assert_eq!((of.connections, of.flows, of.left), (1000, 2000, 0));
        assert_eq!([of.table_ms, of.all_ms, of.empty_ms], [55.0, 110.0, 10.0]);
        // what is not gone has no rate
        let left = Run {
            left: 1,
            ..run(110)
        };
        let of = TearDown::of(&[run(60), left], Duration::from_millis(10));
        assert_eq!((of.samples.len(), of.left), (1, 1));
        // nothing can be said of what takes no longer
        let of = TearDown::of(&[run(9), run(10)], Duration::from_millis(10));
        assert_eq!((of.per_s, of.samples.len()), (None, 0));
    }
}
