// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports as the manager knows them.

/// A port and what it is fit for; the daemon decides and tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Interface index.
    pub ifindex: u32,
    /// Slot in the device map.
    pub slot: u32,
    /// L3 MTU in bytes.
    pub mtu: u32,
    /// MAC address.
    pub mac: Option<[u8; 6]>,
    /// What XDP may do here.
    pub xdp: Fitness,
    /// What tc may do here.
    pub tc: Fitness,
}

/// What a program may do at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fitness {
    /// Forward what comes in.
    pub input: bool,
    /// Send.
    pub output: bool,
}

impl Fitness {
    /// Both.
    pub const FULL: Fitness = Fitness {
        input: true,
        output: true,
    };

    /// Either.
    #[must_use]
    pub fn any(self) -> bool {
        self.input || self.output
    }
}

/// The program that forwards a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// XDP, in the driver.
    Xdp,
    /// tc ingress: through the qdisc of the port where it leaves.
    Tc,
}
