// SPDX-License-Identifier: MIT OR Apache-2.0
//! Medians of runs.

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
}
