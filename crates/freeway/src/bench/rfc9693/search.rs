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

/// How many connections to try after the most that held (0: none yet) and the fewest that did not, beginning with `first`.
/// `kept` is what the table had at the last failure, which is likely all that it can: if it is, it holds, and one more does not.
pub fn next_count(
    held: u32,
    failed: Option<u32>,
    kept: Option<u32>,
    first: u32,
    max: u32,
) -> Option<u32> {
    let Some(failed) = failed else {
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
    match kept {
        // one less is no hint, but what was just tried
        Some(kept) if held < kept && kept + 1 < failed => Some(kept),
        Some(kept) if kept == held => Some(held + 1),
        _ => Some(held + apart / 2),
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
        let (mut held, mut failed, mut kept) = (0, None, None);
        let mut tries = 0;
        while let Some(count) = next_count(held, failed, kept, 100, max) {
            assert!(count > held && failed.is_none_or(|failed| count < failed));
            if count <= limit {
                held = count;
            } else {
                (failed, kept) = (Some(count), hint(count));
            }
            tries += 1;
            assert!(tries < 50, "{limit}");
        }
        (held, tries)
    }

    #[test]
    fn counts_are_exact() {
        for limit in [0, 1, 7, 99, 100, 101, 300, 12_345, 262_144, 999_999] {
            let max = 1_000_000;
            // the table says what it has
            let (found, tries) = looked_for(limit, max, |_| Some(limit));
            assert_eq!(found, limit);
            assert!(tries <= 34, "{limit}: {tries}");
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
