// SPDX-License-Identifier: MIT OR Apache-2.0
//! All routes of a family, one after the other, for whoever keeps them in few bytes.

use std::net::IpAddr;

use crate::decode;
use crate::error::Result;
use crate::message::Message;
use crate::model::{Family, Route};
use crate::nla::Writer;
use crate::socket::{Channel, Dump};

/// Lists the routes of all tables of a family, in the calling thread's network namespace. False: some changed meanwhile, so that
/// others may be missing.
pub fn read(family: Family, mut each: impl FnMut(Route)) -> Result<bool> {
    let mut channel = Channel::open(libc::NETLINK_ROUTE)?;
    settle(&mut channel)?;
    let mut message = |message: Message<'_>| {
        if let Some(route) = decode::route::route(message.payload) {
            each(route);
        }
    };
    let body = |writer: &mut Writer| {
        let mut header = [0; 12];
        header[0] = family.number();
        writer.raw(&header);
    };
    let dump = channel.dump("list the routes", libc::RTM_GETROUTE, body, &mut message)?;
    Ok(dump == Dump::Consistent)
}

/// Waits for RTNL: when a link goes down, the kernel tells first, and takes away its routes, of which it does not tell,
/// before it lets go of that lock (`__dev_notify_flags()`, `fib_netdev_event()`).
fn settle(channel: &mut Channel) -> Result<()> {
    /// struct ifinfomsg.
    const HEADER: usize = 16;
    let body = |writer: &mut Writer| {
        let mut header = [0; HEADER];
        // the loopback
        header[4..8].copy_from_slice(&1i32.to_ne_bytes());
        writer.raw(&header);
    };
    channel.request("read a link", libc::RTM_GETLINK, body, &mut |_| {})
}

/// The route that the kernel itself takes for an address, as `ip route get fibmatch` has it; `None`: none.
pub fn get(address: IpAddr) -> Result<Option<Route>> {
    const RTA_DST: u16 = 1;
    /// In rtm_flags: the route, not what came of it.
    const RTM_F_FIB_MATCH: u32 = 0x2000;
    let mut channel = Channel::open(libc::NETLINK_ROUTE)?;
    let mut found = None;
    let body = |writer: &mut Writer| {
        let mut header = [0; 12];
        let (family, length) = match address {
            IpAddr::V4(_) => (libc::AF_INET, 32),
            IpAddr::V6(_) => (libc::AF_INET6, 128),
        };
        header[0] = family as u8;
        header[1] = length;
        header[8..].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
        writer.raw(&header);
        match address {
            IpAddr::V4(address) => writer.attr(RTA_DST, &address.octets()),
            IpAddr::V6(address) => writer.attr(RTA_DST, &address.octets()),
        }
    };
    let mut each = |message: Message<'_>| found = decode::route::route(message.payload);
    match channel.request("ask for a route", libc::RTM_GETROUTE, body, &mut each) {
        Ok(()) => Ok(found),
        Err(error) => match error.errno() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EACCES) => Ok(None),
            _ => Err(error),
        },
    }
}
