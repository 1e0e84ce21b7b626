// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports as the manager knows them.

use freeway_abi::{FW_TAG_LEN, FW_TAGS_MAX, fw_tag};

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
    /// That the devices below write, for XDP to do the same.
    pub tags: Tags,
    /// What XDP may do here.
    pub xdp: Fitness,
    /// What tc may do here.
    pub tc: Fitness,
}

/// An 802.1Q tag of priority 0; none if the protocol is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    /// 0x8100 or 0x88a8.
    pub protocol: u16,
    /// VLAN identifier.
    pub vlan: u16,
}

/// Outermost first.
pub type Tags = [Tag; FW_TAGS_MAX as usize];

impl Tag {
    /// As frames have it.
    #[must_use]
    pub fn record(self) -> fw_tag {
        fw_tag {
            tpid_be: self.protocol.to_be(),
            tci_be: self.vlan.to_be(),
        }
    }
}

/// Octets of tags in a frame.
#[must_use]
pub fn tags_len(tags: &Tags) -> u32 {
    tags.iter().filter(|tag| tag.protocol != 0).count() as u32 * FW_TAG_LEN
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
