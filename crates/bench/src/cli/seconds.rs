// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lengths of trials and samples.

pub fn trial_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.02..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0.02 to 60".into()),
    }
}

pub fn sample_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.5..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0.5 to 3600".into()),
    }
}
