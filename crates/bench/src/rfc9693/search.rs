// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to try next: a rate by bisection, and a number of connections exactly.

/// The least rate that is tried, connections a second.
const RATE_MIN: u64 = 100;

/// The rate to try after the highest that held and the lowest that did not. The first is the largest; bounds are as close as
/// that share of the upper one in the end.
pub fn next_rate(held: Option<u64>, failed: Option<u64>, max: u64, width: f64) -> Option<u64> {
    match (held, failed) {
        (None, None) => Some(max.max(RATE_MIN)),
        (Some(_), None) => None,
        (None, Some(failed)) => Some(failed / 2).filter(|rate| *rate >= RATE_MIN),
        (Some(held), Some(failed)) => {
            let apart = failed.saturating_sub(held);
            let near = apart <= 1 || apart as f64 <= failed as f64 * width;
            (!near).then(|| held + apart / 2)
        }
    }
}

/// A search for the most connections that hold, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// So many held; 0 if none did yet.
    pub held: u32,
    /// The fewest that did not.
    pub failed: Option<u32>,
    /// What the table had at a failure, which is likely all that it can: if it is, it holds, and one more does not.
    kept: Option<u32>,
    /// It was not.
    misled: bool,
}

impl Most {
    /// How many to try next, at most `max`; `first` is where it begins.
    pub fn next(&self, first: u32, max: u32) -> Option<u32> {
        let held = self.held;
        let Some(failed) = self.failed else {
            let next = if held == 0 {
                first
            } else {
                held.saturating_mul(2)
            };
            return (held < max).then_some(next.clamp(1, max));
        };
        let apart = failed.saturating_sub(held);
        if apart <= 1 {
            return None;
        }
        match self.kept.filter(|_| !self.misled) {
            Some(kept) if held < kept && kept < failed => Some(kept),
            Some(kept) if kept == held => Some(held + 1),
            _ => Some(held + apart / 2),
        }
    }

    /// So many hold.
    pub fn holds(&mut self, count: u32) {
        self.held = count;
    }

    /// So many do not, and the table had so many.
    pub fn fails(&mut self, count: u32, kept: Option<u32>) {
        self.misled |= self.kept == Some(count);
        (self.failed, self.kept) = (Some(count), kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_close_in() {
        for limit in [99, 100, 3_333, 250_000, 999_999, 1_000_000, 5_000_000] {
            let max = 1_000_000;
            let (mut held, mut failed) = (None, None);
            let mut tries = 0;
            while let Some(rate) = next_rate(held, failed, max, 0.02) {
                assert!(rate <= max && held < Some(rate), "{limit}: {rate}");
                if rate <= limit {
                    held = Some(rate);
                } else {
                    failed = Some(rate);
                }
                tries += 1;
                assert!(tries < 30, "{limit}");
            }
            match held {
                None => assert!(limit < 2 * RATE_MIN),
                Some(held) if held == max => assert!(limit >= max),
                Some(held) => {
                    assert!(held <= limit && failed.unwrap() > limit);
                    let narrow = (failed.unwrap() - held) as f64 <= failed.unwrap() as f64 * 0.02;
                    assert!(narrow || failed.unwrap() - held == 1, "{limit}: {held}");
                }
            }
        }
    }

    /// Looks for `limit`, with what a table of that size keeps, or with a false hint.
    fn looked_for(limit: u32, max: u32, hint: impl Fn(u32) -> Option<u32>) -> (u32, u32) {
        let mut most = Most::default();
        let mut tries = 0;
        while let Some(count) = most.next(100, max) {
            assert!(count > most.held && most.failed.is_none_or(|failed| count < failed));
            if count <= limit {
                most.holds(count);
            } else {
                most.fails(count, hint(count));
            }
            tries += 1;
            assert!(tries < 50, "{limit}");
        }
        (most.held, tries)
    }

    #[test]
    fn counts_are_exact() {
        for limit in [0, 1, 7, 99, 100, 101, 300, 12_345, 262_144, 999_999] {
            let max = 1_000_000;
            // the table says what it has
            let (found, tries) = looked_for(limit, max, |_| Some(limit));
            assert_eq!(found, limit);
            assert!(tries <= 17, "{limit}: {tries}");
            // or not, or what it has is not all that it can hold
            assert_eq!(looked_for(limit, max, |_| None).0, limit);
            assert_eq!(looked_for(limit, max, |_| Some(limit / 2)).0, limit);
            assert_eq!(looked_for(limit, max, |count| Some(count - 1)).0, limit);
        }
        // no further than asked for
        assert_eq!(looked_for(u32::MAX, 150, |_| None), (150, 2));
        assert_eq!(looked_for(u32::MAX, 50, |_| None), (50, 1));
    }
}
