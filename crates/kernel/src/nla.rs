// SPDX-License-Identifier: MIT OR Apache-2.0
//! Netlink attributes: a reader that cannot fail on truncated input, and a writer.
//!
//! Netlink is in host byte order, except where a function name says `be`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::Mac;

/// NLA_F_NESTED, to be set on nested attributes of strict families.
pub const NESTED: u16 = 1 << 15;
const KIND_MASK: u16 = 0x3fff;

/// Rounds up to NLMSG_ALIGNTO, which is NLA_ALIGNTO too.
pub const fn align(len: usize) -> usize {
    (len + 3) & !3
}

/// `N` bytes at `offset`, if they are there.
pub fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk::<N>().copied()
}

/// An 8-bit number at `offset`.
pub fn u8_at(bytes: &[u8], offset: usize) -> Option<u8> {
    bytes.get(offset).copied()
}

/// A 16-bit number in host byte order.
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    array(bytes, offset).map(u16::from_ne_bytes)
}

/// A 32-bit number in host byte order.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    array(bytes, offset).map(u32::from_ne_bytes)
}

/// An address of 4 or 16 bytes.
pub fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => array::<4>(bytes, 0).map(|a| IpAddr::V4(Ipv4Addr::from(a))),
        16 => array::<16>(bytes, 0).map(|a| IpAddr::V6(Ipv6Addr::from(a))),
        _ => None,
    }
}

/// Text up to the first NUL.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// One attribute.
#[derive(Clone, Copy, Debug)]
pub struct Attr<'a> {
    /// Its type, without the nested and byte-order flags.
    pub kind: u16,
    /// Its payload.
    pub payload: &'a [u8],
}

impl<'a> Attr<'a> {
    pub fn u8(&self) -> Option<u8> {
        self.payload.first().copied()
    }
    pub fn u16(&self) -> Option<u16> {
        u16_at(self.payload, 0)
    }
    pub fn u32(&self) -> Option<u32> {
        u32_at(self.payload, 0)
    }
    pub fn u64(&self) -> Option<u64> {
        array(self.payload, 0).map(u64::from_ne_bytes)
    }
    pub fn be16(&self) -> Option<u16> {
        array(self.payload, 0).map(u16::from_be_bytes)
    }
    pub fn be32(&self) -> Option<u32> {
        array(self.payload, 0).map(u32::from_be_bytes)
    }
    pub fn be64(&self) -> Option<u64> {
        array(self.payload, 0).map(u64::from_be_bytes)
    }
    pub fn ip(&self) -> Option<IpAddr> {
        ip(self.payload)
    }
    pub fn mac(&self) -> Option<Mac> {
        <[u8; 6]>::try_from(self.payload).ok().map(Mac)
    }
    pub fn text(&self) -> String {
        text(self.payload)
    }
    pub fn nested(&self) -> Attrs<'a> {
        attrs(self.payload)
    }
}

/// An iterator over attributes. It ends at the first one that does not fit.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    rest: &'a [u8],
}

impl<'a> Attrs<'a> {
    /// The first attribute of a type.
    pub fn find(mut self, kind: u16) -> Option<Attr<'a>> {
        Iterator::find(&mut self, |attr| attr.kind == kind)
    }
}

/// The attributes in `bytes`.
pub fn attrs(bytes: &[u8]) -> Attrs<'_> {
    Attrs { rest: bytes }
}

/// The attributes behind a fixed header of `len` bytes.
pub fn attrs_after(bytes: &[u8], len: usize) -> Attrs<'_> {
    attrs(bytes.get(align(len)..).unwrap_or_default())
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Attr<'a>;

    fn next(&mut self) -> Option<Attr<'a>> {
        let len = usize::from(u16_at(self.rest, 0)?);
        let kind = u16_at(self.rest, 2)? & KIND_MASK;
        let payload = self.rest.get(4..len)?;
        self.rest = self.rest.get(align(len)..).unwrap_or_default();
        Some(Attr { kind, payload })
    }
}

/// Builds the messages of one datagram.
#[derive(Debug, Default)]
pub struct Writer {
    buf: Vec<u8>,
}

impl Writer {
    /// The messages so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Appends a message: header, then what `body` writes.
    pub fn message(&mut self, kind: u16, flags: u16, seq: u32, body: impl FnOnce(&mut Writer)) {
        let start = self.buf.len();
        self.buf.extend_from_slice(&[0; 4]);
        self.buf.extend_from_slice(&kind.to_ne_bytes());
        self.buf.extend_from_slice(&flags.to_ne_bytes());
        self.buf.extend_from_slice(&seq.to_ne_bytes());
        self.buf.extend_from_slice(&0u32.to_ne_bytes());
        body(self);
        let len = (self.buf.len() - start) as u32;
        if let Some(slot) = self.buf.get_mut(start..start + 4) {
            slot.copy_from_slice(&len.to_ne_bytes());
        }
        self.pad();
    }

    /// Appends raw bytes and pads them.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
        self.pad();
    }

    /// Appends an attribute. Payloads beyond 65,531 bytes are cut.
    pub fn attr(&mut self, kind: u16, payload: &[u8]) {
        let payload = payload.get(..payload.len().min(65_531)).unwrap_or_default();
        self.buf
            .extend_from_slice(&(payload.len() as u16 + 4).to_ne_bytes());
        self.buf.extend_from_slice(&kind.to_ne_bytes());
        self.raw(payload);
    }

    /// Appends a NUL-terminated string attribute.
    pub fn attr_text(&mut self, kind: u16, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes);
    }

    /// Appends an IP address attribute in network byte order.
    pub fn attr_ip(&mut self, kind: u16, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => self.attr(kind, &ip.octets()),
            IpAddr::V6(ip) => self.attr(kind, &ip.octets()),
        }
    }

    /// Appends a nested attribute with what `body` writes.
    pub fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Writer)) {
        let start = self.buf.len();
        self.buf.extend_from_slice(&[0; 2]);
        self.buf.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        body(self);
        let len = (self.buf.len() - start) as u16;
        if let Some(slot) = self.buf.get_mut(start..start + 2) {
            slot.copy_from_slice(&len.to_ne_bytes());
        }
        self.pad();
    }

    fn pad(&mut self) {
        self.buf.resize(align(self.buf.len()), 0);
    }
}
