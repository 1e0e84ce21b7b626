// SPDX-License-Identifier: MIT OR Apache-2.0
//! All routes of IPv4, one after the other, for whoever keeps them in few bytes.

use crate::decode;
use crate::error::Result;
use crate::message::Message;
use crate::model::Route;
use crate::nla::Writer;
use crate::socket::{Channel, Dump};

/// Lists the IPv4 routes of all tables, in the calling thread's network namespace. False: some changed meanwhile, so that
/// others may be missing.
pub fn read(mut each: impl FnMut(Route)) -> Result<bool> {
    let mut channel = Channel::open(libc::NETLINK_ROUTE)?;
    let mut message = |message: Message<'_>| {
        if let Some(route) = decode::route::route(message.payload) {
            each(route);
        }
    };
    let body = |writer: &mut Writer| {
        let mut header = [0; 12];
        header[0] = libc::AF_INET as u8;
        writer.raw(&header);
    };
    let dump = channel.dump("list the routes", libc::RTM_GETROUTE, body, &mut message)?;
    Ok(dump == Dump::Consistent)
}
