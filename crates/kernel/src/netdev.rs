// SPDX-License-Identifier: MIT OR Apache-2.0
//! XDP abilities of devices: the generic netlink family "netdev" (6.3 and later, `netdev_nl_dev_fill`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::decode;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::nla::{Writer, attrs_after, u8_at};
use crate::socket::Channel;

/// sizeof(struct genlmsghdr).
const GENL: usize = 4;
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const NETDEV_CMD_DEV_GET: u8 = 1;

/// What a device can do with XDP (enum netdev_xdp_act).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct XdpFeatures {
    /// NETDEV_XDP_ACT_ bits.
    pub bits: u64,
}

#[allow(missing_docs)]
impl XdpFeatures {
    pub const BASIC: u64 = 1;
    pub const REDIRECT: u64 = 2;
    pub const NDO_XMIT: u64 = 4;
    pub const XSK_ZEROCOPY: u64 = 8;
    pub const HW_OFFLOAD: u64 = 16;
    pub const RX_SG: u64 = 32;
    pub const NDO_XMIT_SG: u64 = 64;

    /// True if all of `bits` are there.
    pub fn has(self, bits: u64) -> bool {
        self.bits & bits == bits
    }
}

/// XDP features of all devices by ifindex; `None` on a kernel that does not tell.
pub fn xdp_features() -> Result<Option<BTreeMap<u32, XdpFeatures>>> {
    let mut channel = Channel::open(libc::NETLINK_GENERIC)?;
    let Some(family) = family(&mut channel, "netdev")? else {
        return Ok(None);
    };
    let mut features = BTreeMap::new();
    let mut each = |message: Message<'_>| features.extend(device(message.payload));
    let what = "list the XDP features of the devices";
    channel.dump(
        what,
        family,
        |writer| writer.raw(&[NETDEV_CMD_DEV_GET, 1, 0, 0]),
        &mut each,
    )?;
    Ok(Some(features))
}

/// Indices of the links that take all frames, also where the kernel itself asked for it (IFLA_PROMISCUITY), of which
/// no event tells.
pub fn promiscuous() -> Result<BTreeSet<u32>> {
    let mut channel = Channel::open(libc::NETLINK_ROUTE)?;
    let mut found = BTreeSet::new();
    let mut each = |message: Message<'_>| {
        let link = decode::link::link(message.payload);
        found.extend(link.filter(|link| link.promiscuity != 0).map(|l| l.ifindex));
    };
    let body = |writer: &mut Writer| writer.raw(&[0; decode::link::HEADER]);
    channel.dump("list the links", libc::RTM_GETLINK, body, &mut each)?;
    Ok(found)
}

/// True if the calling thread's namespace has this interface now. From when the kernel begins to delete one it has none;
/// then programs come off, and then an event tells (`unregister_netdevice_many_notify()`).
pub fn exists(ifindex: u32) -> bool {
    let mut name: [libc::c_char; libc::IF_NAMESIZE] = [0; libc::IF_NAMESIZE];
    // SAFETY: the kernel writes a name of at most IF_NAMESIZE bytes to the array, which outlives the call.
    let found = unsafe { !libc::if_indextoname(ifindex, name.as_mut_ptr()).is_null() };
    let errno = std::io::Error::last_os_error().raw_os_error();
    found || !matches!(errno, Some(libc::ENXIO | libc::ENODEV))
}

/// The number of a generic netlink family.
fn family(channel: &mut Channel, name: &str) -> Result<Option<u16>> {
    let mut found = None;
    let mut each = |message: Message<'_>| {
        if u8_at(message.payload, 0).is_some() {
            found = attrs_after(message.payload, GENL)
                .find(1)
                .and_then(|attr| attr.u16())
                .or(found);
        }
    };
    let what = "look up a generic netlink family";
    let outcome = channel.request(
        what,
        GENL_ID_CTRL,
        |writer| {
            writer.raw(&[CTRL_CMD_GETFAMILY, 1, 0, 0]);
            writer.attr_text(2, name);
        },
        &mut each,
    );
    match outcome {
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
        Ok(()) => found.map(Some).ok_or_else(|| Error::Malformed {
            what: what.to_owned(),
            detail: "no identifier".to_owned(),
        }),
    }
}

pub(crate) fn device(payload: &[u8]) -> Option<(u32, XdpFeatures)> {
    let attrs = attrs_after(payload, GENL);
    let ifindex = attrs.clone().find(1)?.u32()?;
    Some((
        ifindex,
        XdpFeatures {
            bits: attrs.find(3)?.u64()?,
        },
    ))
}
