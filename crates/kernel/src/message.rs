// SPDX-License-Identifier: MIT OR Apache-2.0
//! Netlink messages in a datagram.

use std::io;

use crate::nla::{align, attrs, u16_at, u32_at};

/// NLM_F_REQUEST.
pub const REQUEST: u16 = 0x1;
/// NLM_F_ACK.
pub const ACK: u16 = 0x4;
/// NLM_F_DUMP.
pub const DUMP: u16 = 0x300;
/// NLM_F_DUMP_INTR: what is dumped changed meanwhile.
pub const DUMP_INTERRUPTED: u16 = 0x10;
/// NLM_F_REPLACE in a new-object notification.
pub const REPLACE: u16 = 0x100;
/// NLM_F_CAPPED: the refused request is not echoed in full.
const CAPPED: u16 = 0x100;
/// NLM_F_ACK_TLVS: attributes follow the acknowledgement.
const ACK_TLVS: u16 = 0x200;
/// NLMSG_ERROR, also a positive acknowledgement.
pub const ERROR: u16 = 2;
/// NLMSG_DONE.
pub const DONE: u16 = 3;
const HEADER: usize = 16;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Type.
    pub kind: u16,
    /// NLM_F_ flags.
    pub flags: u16,
    /// Sequence number of the request that it answers.
    pub seq: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// An iterator over the messages of a datagram. It ends at the first one that does not fit.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

/// The messages in a datagram.
pub fn messages(datagram: &[u8]) -> Messages<'_> {
    Messages { rest: datagram }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let len = u32_at(self.rest, 0)? as usize;
        let message = Message {
            kind: u16_at(self.rest, 4)?,
            flags: u16_at(self.rest, 6)?,
            seq: u32_at(self.rest, 8)?,
            payload: self.rest.get(HEADER..len)?,
        };
        self.rest = self.rest.get(align(len)..).unwrap_or_default();
        Some(message)
    }
}

impl Message<'_> {
    /// The status in an NLMSG_ERROR or NLMSG_DONE message, with the kernel's words.
    pub fn status(&self) -> Result<(), (io::Error, Option<String>)> {
        let code = u32_at(self.payload, 0).map_or(0, |code| code as i32);
        if code >= 0 {
            return Ok(());
        }
        let offset = if self.kind == DONE {
            4
        } else if self.flags & CAPPED != 0 {
            4 + HEADER
        } else {
            4 + align(u32_at(self.payload, 4).unwrap_or(HEADER as u32) as usize)
        };
        let words = (self.flags & ACK_TLVS != 0)
            .then(|| attrs(self.payload.get(offset..).unwrap_or_default()).find(NLMSGERR_ATTR_MSG))
            .flatten()
            .map(|attr| attr.text());
        Err((io::Error::from_raw_os_error(code.saturating_neg()), words))
    }
}
