// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon has counted.

use serde_json::Value;

/// `freeway stats --json`.
#[derive(Clone, Debug)]
pub struct Stats(pub Value);

impl Stats {
    /// Packets that the fast path forwarded.
    pub fn fast(&self) -> u64 {
        self.0["fast"]["packets"].as_u64().unwrap()
    }

    /// Their bytes.
    pub fn fast_bytes(&self) -> u64 {
        self.0["fast"]["bytes"].as_u64().unwrap()
    }

    /// Packets with a reason.
    #[track_caller]
    pub fn reason(&self, name: &str) -> u64 {
        let reasons = self.0["reasons"].as_array().unwrap();
        let found = reasons.iter().find(|reason| reason["name"] == name);
        found.unwrap_or_else(|| panic!("no reason {name}"))["packets"]
            .as_u64()
            .unwrap()
    }

    /// Packets that XDP gave to the kernel, by name. A sampled packet is a miss that is kept out of GRO.
    pub fn punts(&self) -> Vec<(String, u64)> {
        let reasons = self.0["reasons"].as_array().unwrap();
        let punted = |reason: &&Value| reason["stage"] == "punt" || reason["name"] == "sampled";
        let pair = |reason: &Value| {
            (
                reason["name"].as_str().unwrap().to_owned(),
                reason["packets"].as_u64().unwrap(),
            )
        };
        reasons
            .iter()
            .filter(punted)
            .map(pair)
            .filter(|(_, packets)| *packets > 0)
            .collect()
    }

    /// Packets that XDP gave to the kernel.
    pub fn punted(&self) -> u64 {
        self.punts().iter().map(|(_, packets)| packets).sum()
    }
}

impl std::fmt::Display for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fast {}", self.fast())?;
        for reason in self.0["reasons"].as_array().unwrap() {
            if reason["packets"] != 0 {
                write!(
                    f,
                    ", {} {}",
                    reason["name"].as_str().unwrap(),
                    reason["packets"]
                )?;
            }
        }
        for refusal in self.0["refused"].as_array().unwrap() {
            if refusal["count"] != 0 {
                write!(
                    f,
                    ", refused for {} {}",
                    refusal["name"].as_str().unwrap(),
                    refusal["count"]
                )?;
            }
        }
        Ok(())
    }
}
