// SPDX-License-Identifier: MIT OR Apache-2.0
//! The qdisc that tc filters of kernels before 6.6 hang on.

use crate::decode;
use crate::error::Result;
use crate::message::Message;
use crate::model::{TC_EGRESS, TC_INGRESS};
use crate::nla::Writer;
use crate::socket::Channel;

/// Where clsact sits (TC_H_CLSACT), and its handle.
const PARENT: u32 = 0xffff_fff1;
const HANDLE: u32 = 0xffff_0000;

/// Removes the clsact qdisc of a port in the calling thread's network namespace, unless a filter hangs on it; false:
/// one does. A port without it is an error of the kernel's.
pub fn remove_unused(ifindex: u32) -> Result<bool> {
    let mut channel = Channel::open(libc::NETLINK_ROUTE)?;
    for parent in [TC_INGRESS, TC_EGRESS] {
        let mut filters = 0;
        let mut each = |message: Message<'_>| {
            filters += u32::from(decode::tc::filter(message.payload).is_some());
        };
        let body = |writer: &mut Writer| header(writer, ifindex, 0, parent);
        channel.dump("list the filters", libc::RTM_GETTFILTER, body, &mut each)?;
        if filters > 0 {
            return Ok(false);
        }
    }
    let what = format!("remove the clsact qdisc of interface {ifindex}");
    let body = |writer: &mut Writer| header(writer, ifindex, HANDLE, PARENT);
    channel.request(&what, libc::RTM_DELQDISC, body, &mut |_| {})?;
    Ok(true)
}

/// struct tcmsg.
fn header(writer: &mut Writer, ifindex: u32, handle: u32, parent: u32) {
    let mut header = [0u8; 20];
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header[8..12].copy_from_slice(&handle.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    writer.raw(&header);
}
