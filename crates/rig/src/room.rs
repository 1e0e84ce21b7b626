// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room for many flows, in the kernel and in Freeway.

use freeway_datapath::{FLOWS_DEFAULT, FLOWS_MAX};
use freeway_lab::Options;

/// The lab for so many flows: conntrack must have room for them.
pub fn options(flows: u32) -> Options {
    let room = flows.saturating_mul(2).saturating_add(4096);
    let conntrack_max = (flows > 10_000).then_some(room);
    Options {
        conntrack_max,
        ..Options::default()
    }
}

/// The daemon's configuration for so many flows; nothing while the default has room.
pub fn flow_config(flows: u32) -> String {
    let needed = flows.saturating_mul(2).saturating_add(1024).min(FLOWS_MAX);
    if needed <= FLOWS_DEFAULT {
        String::new()
    } else {
        format!("[flows]\nmax = {needed}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_many_flows() {
        assert_eq!(flow_config(1000), "");
        assert_eq!(flow_config(1_000_000), "[flows]\nmax = 1835008\n");
        assert_eq!(options(1000).conntrack_max, None);
        assert_eq!(options(100_000).conntrack_max, Some(204_096));
    }
}
