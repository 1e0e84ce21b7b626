// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ports were judged to have.

use freeway_abi::fw_route_here;
use freeway_datapath::RouteHook;

/// A port at which packets leave by prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routed {
    pub hook: RouteHook,
    /// Where the program is: the port, or the device below a VLAN.
    pub at: u32,
    /// The VLAN; 0: it is none.
    pub vlan: u16,
    /// The engine's device where it comes in, and the VLAN there, if the engine forwards it as well.
    pub engine: Option<(u32, u16)>,
    pub here: fw_route_here,
}
