// SPDX-License-Identifier: MIT OR Apache-2.0
//! What figures were measured on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// CPU model, as the kernel tells it.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Architecture.
    pub arch: String,
    /// Freeway's version.
    pub freeway: String,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} CPUs, Linux {}", self.cpu, self.cpus, self.kernel)
    }
}

impl Machine {
    /// This one.
    pub fn this() -> Machine {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            text.lines().find_map(|line| {
                line.strip_prefix(name)?
                    .split_once(':')
                    .map(|(_, value)| value.trim().to_owned())
            })
        };
        let name = nix::sys::utsname::uname().ok();
        Machine {
            cpu: field("model name")
                .or_else(|| field("CPU part"))
                .unwrap_or_else(|| "unknown".into()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: name.map_or_else(
                || "unknown".into(),
                |name| name.release().to_string_lossy().into_owned(),
            ),
            arch: std::env::consts::ARCH.into(),
            freeway: env!("CARGO_PKG_VERSION").into(),
        }
    }
}
