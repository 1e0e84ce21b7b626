// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a filter is made of, and what it may ask.

use serde::Serialize;

/// One instruction (struct sock_filter).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Jump if true.
    pub jt: u8,
    /// Jump if false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// What a filter may ask beside the bytes of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ancillary {
    /// Interface; none: it is not known, and who asks for it is not understood.
    pub ifindex: Option<u32>,
    /// PACKET_: 0 host, 4 outgoing.
    pub packet_type: u32,
    /// The frame's data starts with the network header (SOCK_DGRAM sockets).
    pub cooked: bool,
    /// Bytes of the frame that are not there, because it was cut.
    pub cut: u32,
}
