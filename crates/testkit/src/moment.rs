// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deadlines that wait for a late machine.
//!
//! How long a program takes to react depends on how much of a CPU it gets. A limit in seconds is therefore a limit on
//! the neighbours. [`Moment`] is an instant of a clock that goes as fast as the machine works: where two threads
//! want each CPU, or a quota lets this process run half of the time, it shows half of what has passed.

use std::ops::Add;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often the machine is looked at.
const BEAT: Duration = Duration::from_millis(20);

/// Microseconds that the machine has given since the clock was started.
static SERVED_US: AtomicU64 = AtomicU64::new(0);

/// An instant of the machine's own clock; used like [`Instant`], for limits to how long something may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// This instant. The first call starts the clock.
    pub fn now() -> Self {
        static STARTED: OnceLock<()> = OnceLock::new();
        STARTED.get_or_init(|| {
            thread::spawn(beat);
        });
        Self(Duration::from_micros(SERVED_US.load(Ordering::Relaxed)))
    }

    /// What the machine has given since then: at most the time that has passed.
    pub fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, time: Duration) -> Moment {
        Moment(self.0 + time)
    }
}

fn beat() {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    loop {
        let start = Instant::now();
        thread::sleep(BEAT);
        let took = start.elapsed();
        let running = std::fs::read_to_string("/proc/loadavg")
            .ok()
            .and_then(|text| runnable(&text));
        let given = served(took, running.unwrap_or(1), cpus);
        SERVED_US.fetch_add(given.as_micros() as u64, Ordering::Relaxed);
    }
}

/// What a machine gave to each that wanted it, in a time in which one slept for [`BEAT`] and so many were runnable.
///
/// A late end of the sleep shows a quota or a stolen CPU; the number of those who run shows competition.
fn served(took: Duration, runnable: usize, cpus: usize) -> Duration {
    let competing = runnable.max(cpus);
    BEAT.min(took) * cpus as u32 / competing as u32
}

/// Of /proc/loadavg: `0.20 0.18 0.12 1/80 11206`; this thread is one of them.
fn runnable(loadavg: &str) -> Option<usize> {
    let (running, _) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_machine_gives_all() {
        assert_eq!(served(BEAT, 1, 2), BEAT);
        assert_eq!(served(BEAT, 2, 2), BEAT);
    }

    #[test]
    fn competition_and_late_ends_of_sleep_make_less_of_it() {
        assert_eq!(served(BEAT, 8, 2), BEAT / 4);
        assert_eq!(served(BEAT * 5, 1, 2), BEAT);
        assert_eq!(served(BEAT * 5, 4, 2), BEAT / 2);
    }

    #[test]
    fn the_number_of_runnable_threads_is_read() {
        assert_eq!(runnable("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(runnable("0.20 0.18"), None);
        assert_eq!(runnable(""), None);
    }

    #[test]
    fn the_clock_goes_and_not_faster_than_time() {
        let (start, wall) = (Moment::now(), Instant::now());
        while start.elapsed() < BEAT * 3 {
            thread::sleep(BEAT);
        }
        // one beat may have begun before
        assert!(start.elapsed() <= wall.elapsed() + BEAT);
        assert!(start + BEAT * 2 < Moment::now());
    }
}
