// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway capture`.

use serde::{Deserialize, Serialize};

use super::flow::FlowFilter;

/// Which fast packets to tell of. The answer is a file of pcapng that grows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CaptureQuery {
    /// Of which flows; neither a state nor a limit.
    pub filter: FlowFilter,
    /// Ports at which packets come in; empty: all.
    pub ports: Vec<String>,
    /// At most so many bytes of a frame; 0: 256.
    pub bytes: u32,
}
