// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens, said on standard error; on a terminal with a line that says how long it will take.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Terminal;

/// Of the bar.
const BAR: usize = 20;
/// Of the line on a terminal.
const EVERY: Duration = Duration::from_millis(500);
/// Back to the line's begin, and nothing in it.
const CLEAR: &str = "\r\x1b[K";

static METER: Mutex<Option<Steps>> = Mutex::new(None);

fn meter() -> MutexGuard<'static, Option<Steps>> {
    // a thread that panicked leaves nothing half done
    METER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says on standard error what happens.
pub fn progress(words: &str) {
    let meter = meter();
    match meter.as_ref().filter(|steps| steps.width.is_some()) {
        Some(steps) => say(&format!("{CLEAR}{words}\n{}", steps.line())),
        None => say(&format!("{words}\n")),
    }
}

fn say(text: &str) {
    let mut err = std::io::stderr().lock();
    // nobody is left to be told
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Steps of known length, one after the other.
#[derive(Clone, Debug)]
struct Steps {
    /// Names, and seconds that each is expected to take.
    steps: Vec<(String, f64)>,
    /// The one that is under way.
    at: usize,
    began: Instant,
    /// When the present one began.
    since: Instant,
    /// Of the terminal; none without one.
    width: Option<usize>,
}

impl Steps {
    fn new(steps: Vec<(String, f64)>, width: Option<usize>) -> Self {
        let now = Instant::now();
        Self {
            steps,
            at: 0,
            began: now,
            since: now,
            width,
        }
    }

    fn expected(&self, steps: std::ops::Range<usize>) -> f64 {
        self.steps[steps].iter().map(|(_, seconds)| seconds).sum()
    }

    /// Seconds left: what is expected, times what that has been wrong by so far.
    fn left(&self) -> f64 {
        let done = self.expected(0..self.at);
        let took = (self.since - self.began).as_secs_f64();
        let factor = if done > 0.0 { took / done } else { 1.0 };
        let next = (self.at + 1).min(self.steps.len());
        let current = self.expected(self.at..next) * factor - self.since.elapsed().as_secs_f64();
        current.max(0.0) + self.expected(next..self.steps.len()) * factor
    }

    /// The share that is done.
    fn share(&self) -> f64 {
        let took = self.began.elapsed().as_secs_f64();
        took / (took + self.left()).max(f64::MIN_POSITIVE)
    }

    fn line(&self) -> String {
        let Some(((name, _), width)) = self.steps.get(self.at).zip(self.width) else {
            return String::new();
        };
        let full = (self.share() * BAR as f64).round() as usize;
        let bar = format!(
            "{}{}",
            "#".repeat(full.min(BAR)),
            "-".repeat(BAR - full.min(BAR))
        );
        let of = self.steps.len();
        let line = format!(
            "[{bar}] {} of {of}: {name}, {} left",
            self.at + 1,
            rough(self.left())
        );
        // a line that wraps could not be taken back
        line.chars().take(width.saturating_sub(1)).collect()
    }
}

/// `40 s`, `3 min`: as exact as an estimate is.
pub fn rough(seconds: f64) -> String {
    if seconds < 90.0 {
        format!("{} s", (seconds / 5.0).ceil() as u64 * 5)
    } else {
        format!("{} min", (seconds / 60.0).round() as u64)
    }
}

/// The line, as long as this lives.
#[derive(Debug)]
pub struct Meter {
    end: Arc<AtomicBool>,
    ticker: Option<JoinHandle<()>>,
}

impl Meter {
    /// Begins with the first step.
    pub fn begin(steps: Vec<(String, f64)>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let plain = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let width = (terminal && !plain).then(|| Terminal::stderr().width);
        *meter() = Some(Steps::new(steps, width));
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let ticker = width.map(|_| {
            thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    if let Some(steps) = meter().as_ref() {
                        say(&format!("{CLEAR}{}", steps.line()));
                    }
                    thread::park_timeout(EVERY);
                }
            })
        });
        Self { end, ticker }
    }

    /// The step of that number is under way.
    pub fn step(&self, number: usize) {
        let words = {
            let mut meter = meter();
            let Some(steps) = meter.as_mut() else { return };
            steps.at = number;
            steps.since = Instant::now();
            let Some((name, _)) = steps.steps.get(number) else {
                return;
            };
            let of = steps.steps.len();
            format!(
                "{} of {of}: {name}, {} left",
                number + 1,
                rough(steps.left())
            )
        };
        progress(&words);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(ticker) = self.ticker.take() {
            ticker.thread().unpark();
            let _ = ticker.join();
            say(CLEAR);
        }
        *meter() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(width: usize) -> Steps {
        let steps = [("routed", 10.0), ("nat", 10.0), ("bulk", 20.0)];
        let steps = steps.map(|(name, seconds)| (name.to_owned(), seconds));
        Steps::new(steps.to_vec(), Some(width))
    }

    #[test]
    fn estimates_learn_from_what_is_done() {
        let mut steps = steps(80);
        assert!((39.0..=40.0).contains(&steps.left()), "{}", steps.left());
        let now = Instant::now();
        let Some(began) = now.checked_sub(Duration::from_secs(20)) else {
            return;
        };
        steps.at = 1;
        (steps.began, steps.since) = (began, now);
        // the first took twice as long
        assert!((59.0..=60.0).contains(&steps.left()), "{}", steps.left());
        assert!((0.24..0.26).contains(&steps.share()));
        assert_eq!(
            steps.line(),
            "[#####---------------] 2 of 3: nat, 60 s left"
        );
        steps.at = 3;
        assert_eq!(steps.line(), "");
        assert!(steps.left() < 1e-9);
    }

    #[test]
    fn lines_do_not_wrap() {
        assert_eq!(steps(40).line().chars().count(), 39);
    }

    #[test]
    fn estimates_are_rough() {
        assert_eq!(rough(0.0), "0 s");
        assert_eq!(rough(41.0), "45 s");
        assert_eq!(rough(200.0), "3 min");
    }
}
