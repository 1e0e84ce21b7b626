// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet sockets (packet_diag, `packet_diag_dump`): who watches the wire, and through which filter.

use serde::Serialize;

use crate::cbpf::{self, Ancillary, Instruction, Sketch};
use crate::error::Result;
use crate::message::Message;
use crate::nla::{attrs_after, u8_at, u16_at, u32_at};
use crate::socket::Channel;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const PACKET_SHOW_INFO: u32 = 0x01;
const PACKET_SHOW_FANOUT: u32 = 0x08;
const PACKET_SHOW_FILTER: u32 = 0x20;
const PACKET_DIAG_INFO: u16 = 0;
const PACKET_DIAG_UID: u16 = 5;
const PACKET_DIAG_FILTER: u16 = 7;
/// sizeof(struct packet_diag_msg).
const HEADER: usize = 16;
const ETH_P_ALL: u16 = 3;

/// A socket of family AF_PACKET.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PacketSocket {
    /// The interface it is bound to; `None`: all.
    pub ifindex: Option<u32>,
    /// EtherType it receives: 3 all (in and out), 0 nothing.
    pub protocol: u16,
    /// SOCK_DGRAM: its filter sees the packet from the network header.
    pub cooked: bool,
    /// Its inode, as in /proc/PID/fd.
    pub inode: u32,
    /// Its owner.
    pub uid: Option<u32>,
    /// Its classic BPF filter. `None`: no filter, or one that the kernel does not show (eBPF).
    pub filter: Option<Vec<Instruction>>,
}

impl PacketSocket {
    /// True if the socket may be given some Ethernet frame of an interface that looks so: it, its protocol and its filter
    /// take it. `outgoing` for a frame that leaves by the interface: only sockets for all protocols see those. What a
    /// filter asks that is not understood counts as taking.
    pub fn accepts(&self, ifindex: u32, frame: &Sketch, outgoing: bool) -> bool {
        if self.ifindex.is_some_and(|own| own != ifindex) {
            return false;
        }
        let ethertype = frame.word_at(12).unwrap_or(0);
        let wanted = match self.protocol {
            0 => false,
            ETH_P_ALL => true,
            protocol => !outgoing && (protocol == ethertype || tagged_as(frame, protocol)),
        };
        let Some(filter) = self.filter.as_ref().filter(|_| wanted) else {
            return wanted;
        };
        let packet_type = if outgoing { 4 } else { 0 };
        let ancillary = Ancillary {
            ifindex: Some(ifindex),
            packet_type,
            cooked: self.cooked,
            cut: 0,
        };
        cbpf::may_accept(filter, frame, ancillary)
    }
}

/// The kernel takes tags off before it looks at the protocol (`__netif_receive_skb_core`).
fn tagged_as(frame: &Sketch, protocol: u16) -> bool {
    let at = |offset: usize| frame.word_at(offset);
    let is_tag = |value| matches!(value, Some(0x8100 | 0x88a8));
    is_tag(at(12)) && (at(16) == Some(protocol) || (is_tag(at(16)) && at(20) == Some(protocol)))
}

/// The packet sockets of the calling thread's network namespace.
pub fn packet_sockets() -> Result<Vec<PacketSocket>> {
    let mut channel = Channel::open(libc::NETLINK_SOCK_DIAG)?;
    let mut sockets = Vec::new();
    let mut each = |message: Message<'_>| sockets.extend(packet_socket(message.payload));
    // struct packet_diag_req: family, protocol, padding, inode, what to show, cookie.
    let mut request = [0u8; 20];
    request[0] = libc::AF_PACKET as u8;
    let show = PACKET_SHOW_INFO | PACKET_SHOW_FANOUT | PACKET_SHOW_FILTER;
    request[8..12].copy_from_slice(&show.to_ne_bytes());
    let what = "list the packet sockets";
    channel.dump(
        what,
        SOCK_DIAG_BY_FAMILY,
        |writer| writer.raw(&request),
        &mut each,
    )?;
    Ok(sockets)
}

pub(crate) fn packet_socket(payload: &[u8]) -> Option<PacketSocket> {
    let mut socket = PacketSocket {
        ifindex: None,
        protocol: u16_at(payload, 2)?,
        cooked: i32::from(u8_at(payload, 1)?) == libc::SOCK_DGRAM,
        inode: u32_at(payload, 4)?,
        uid: None,
        filter: None,
    };
    for attr in attrs_after(payload, HEADER) {
        match attr.kind {
            PACKET_DIAG_INFO => socket.ifindex = attr.u32().filter(|&ifindex| ifindex != 0),
            PACKET_DIAG_UID => socket.uid = attr.u32(),
            PACKET_DIAG_FILTER if !attr.payload.is_empty() => {
                socket.filter = Some(
                    attr.payload
                        .chunks_exact(8)
                        .filter_map(|bytes| {
                            Some(Instruction {
                                code: u16_at(bytes, 0)?,
                                jt: u8_at(bytes, 2)?,
                                jf: u8_at(bytes, 3)?,
                                k: u32_at(bytes, 4)?,
                            })
                        })
                        .collect(),
                );
            }
            _ => {}
        }
    }
    Some(socket)
}
