// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path of a port, as configuration and command line ask for it.

use serde::{Deserialize, Serialize};

/// Who may forward for a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum PathChoice {
    /// The fastest that the port is fit for.
    #[default]
    Auto,
    /// XDP, else the kernel.
    Xdp,
    /// tc, through the qdiscs.
    Tc,
    /// The kernel alone.
    #[value(skip)]
    Kernel,
}

impl PathChoice {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            PathChoice::Auto => "auto",
            PathChoice::Xdp => "xdp",
            PathChoice::Tc => "tc",
            PathChoice::Kernel => "kernel",
        }
    }
}
