// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon must be allowed to do.

use freeway_console::{Exit, Stop};

/// Capabilities that the daemon needs: name and number (linux/capability.h).
const NEEDED: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_BPF", 39), ("CAP_PERFMON", 38)];
/// Stands for CAP_BPF and CAP_PERFMON.
const CAP_SYS_ADMIN: u32 = 21;

/// One line if a capability is missing.
pub fn check() -> Result<(), Stop> {
    match missing(effective()) {
        missing if missing.is_empty() => Ok(()),
        missing => Err(Stop::new(
            Exit::Privilege,
            format!(
                "`freeway run` lacks {}: run it as root, or by the systemd unit",
                missing.join(", ")
            ),
        )),
    }
}

/// The effective capabilities of this process; none if they cannot be read.
fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    field
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

fn missing(effective: u64) -> Vec<&'static str> {
    let has = |number: u32| effective >> number & 1 == 1;
    NEEDED
        .into_iter()
        .filter(|(name, number)| !has(*number) && (*name == "CAP_NET_ADMIN" || !has(CAP_SYS_ADMIN)))
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_capabilities() {
        assert_eq!(missing(0), ["CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(missing(u64::MAX), [""; 0]);
        assert_eq!(missing(1 << 12 | 1 << 21), [""; 0]);
        assert_eq!(missing(1 << 12 | 1 << 39), ["CAP_PERFMON"]);
    }
}
