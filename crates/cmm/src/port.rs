// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports as the manager knows them.

use std::sync::Arc;

use freeway_abi::{
    FW_AF_INET6, FW_L2_MAX, FW_PPPOE_LEN, FW_SESSION, FW_TAG_LEN, FW_TAGS_MAX, fw_framed,
    fw_framing, fw_tag,
};

use crate::class::Classes;

/// A port and what it is fit for; the daemon decides and tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Interface index.
    pub ifindex: u32,
    /// Slot in the device map.
    pub slot: u32,
    /// The device that XDP sends through: itself, or one below.
    pub device: u32,
    /// L3 MTU in bytes.
    pub mtu: u32,
    /// MAC address.
    pub mac: Option<[u8; 6]>,
    /// What the devices below put around its packets, for XDP to do the same.
    pub framing: Framing,
    /// What XDP may do here.
    pub xdp: Fitness,
    /// It is a bridge, or a VLAN of one: XDP does that at the bridge's ports, for the stations that are known there.
    pub by_station: bool,
    /// What tc may do here.
    pub tc: Fitness,
    /// What the engine does there.
    pub engine: Served,
    /// Of the engine's scheduler there; none: it has none.
    pub classes: Option<Arc<Classes>>,
    /// The VRF that it is a port of; 0: none.
    pub vrf: u32,
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

/// A PPPoE session (RFC 2516) without compression of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session {
    /// Its number.
    pub id: u16,
    /// MAC address of the other end.
    pub remote: [u8; 6],
    /// MAC address of this one.
    pub own: [u8; 6],
}

impl Session {
    /// MAC addresses of what leaves: destination, source.
    #[must_use]
    pub fn macs(&self) -> [u8; 12] {
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&self.remote);
        macs[6..].copy_from_slice(&self.own);
        macs
    }

    /// The Ethernet header of what leaves, as it would be without the session; `family` is one of `FW_AF_*`.
    #[must_use]
    pub fn link(&self, family: u8) -> [u8; FW_L2_MAX as usize] {
        let v6 = u32::from(family) == FW_AF_INET6;
        let ethertype: u16 = if v6 { 0x86dd } else { 0x0800 };
        let mut l2 = [0; FW_L2_MAX as usize];
        l2[..12].copy_from_slice(&self.macs());
        l2[12..14].copy_from_slice(&ethertype.to_be_bytes());
        l2
    }
}

/// What is around a port's packets at the device below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Framing {
    /// Tags.
    pub tags: Tags,
    /// Within them, the session.
    pub session: Option<Session>,
}

impl Framing {
    /// Octets of tags in a frame.
    #[must_use]
    pub fn tags_len(&self) -> u16 {
        self.tags.iter().filter(|tag| tag.protocol != 0).count() as u16 * FW_TAG_LEN as u16
    }

    /// Octets by which it makes a frame longer.
    #[must_use]
    pub fn outer_len(&self) -> u16 {
        self.tags_len() + self.session.map_or(0, |_| FW_PPPOE_LEN as u16)
    }

    /// The session as the data plane names it.
    #[must_use]
    pub fn session_word(&self) -> u32 {
        self.session
            .map_or(0, |session| FW_SESSION | u32::from(session.id))
    }

    /// At a device.
    #[must_use]
    pub fn record(&self, port: u32) -> fw_framing {
        fw_framing {
            port,
            tag: self.tags.map(Tag::record),
            session: self.session_word(),
        }
    }

    /// Whose the frames are that come in so, and, in a session, with which addresses.
    #[must_use]
    pub fn framed(&self, port: u32) -> fw_framed {
        let mut macs = [0; 12];
        if let Some(session) = self.session {
            macs = session.macs();
            macs.rotate_left(6);
        }
        fw_framed { port, macs }
    }
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

/// What the engine does at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Served {
    /// Nothing.
    #[default]
    No,
    /// What XDP does at others; [`Port::xdp`] says what it may do.
    Whole,
    /// What the policy gives to it of what XDP could do.
    Chosen,
}

/// The program that forwards a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// XDP, in the driver.
    Xdp,
    /// tc ingress: through the qdisc of the port where it leaves.
    Tc,
    /// The engine, on a core of its own.
    Engine,
}
