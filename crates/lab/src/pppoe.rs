// SPDX-License-Identifier: MIT OR Apache-2.0
//! PPPoE sessions without discovery or negotiation: both ends know the session's number and each other's address
//! (RFC 2516, `drivers/net/ppp/pppoe.c`). The frames are those of any session.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, c_ulong};

use crate::error::LabError;
use crate::netns::Netns;

/// The EtherType of a session's frames.
pub const ETHERTYPE: u16 = 0x8864;
/// Octets of a session's header and of PPP's protocol field, by which its frames are longer.
pub const HEADER_BYTES: u32 = 8;
/// PPP protocol numbers.
const PPP_IP: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
/// `PX_PROTO_OE`.
const PX_PROTO_OE: c_int = 0;
const PPPIOCGCHAN: c_ulong = libc::_IOR::<c_int>(b't' as u32, 55);
const PPPIOCATTCHAN: c_ulong = libc::_IOW::<c_int>(b't' as u32, 56);
const PPPIOCCONNECT: c_ulong = libc::_IOW::<c_int>(b't' as u32, 58);
const PPPIOCNEWUNIT: c_ulong = libc::_IOWR::<c_int>(b't' as u32, 62);

/// `struct sockaddr_pppox` (linux/if_pppox.h) with PPPoE's address.
#[repr(C, packed)]
struct SockaddrPppox {
    family: libc::sa_family_t,
    protocol: u32,
    session_be: u16,
    remote: [u8; 6],
    device: [u8; libc::IFNAMSIZ],
}

/// A session, and the PPP interface that it carries. Dropping it removes both.
#[derive(Debug)]
pub struct Session {
    _unit: File,
    _channel: File,
    _socket: OwnedFd,
}

impl Session {
    /// Opens a session with `peer` over an Ethernet interface, and names its PPP interface.
    pub fn open(
        netns: &Netns,
        device: &str,
        session: u16,
        peer: [u8; 6],
        name: &str,
    ) -> Result<Session, LabError> {
        let opened = netns.enter(|| open(device, session, peer))?;
        let (unit, session) = opened.map_err(|source| match source.raw_os_error() {
            Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => {
                LabError::Unsupported("this kernel has no PPPoE (CONFIG_PPPOE)".into())
            }
            _ => LabError::Io {
                what: format!("open a PPPoE session over {device}"),
                source,
            },
        })?;
        netns.tool(&format!("ip link set ppp{unit} name {name}"))?;
        Ok(session)
    }
}

/// In the calling thread's namespace; the number of the PPP interface comes with it.
fn open(device: &str, session: u16, remote: [u8; 6]) -> io::Result<(c_int, Session)> {
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_PPPOX, libc::SOCK_STREAM, PX_PROTO_OE) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor to us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let mut address = SockaddrPppox {
        family: libc::AF_PPPOX as libc::sa_family_t,
        protocol: PX_PROTO_OE.cast_unsigned(),
        session_be: session.to_be(),
        remote,
        device: [0; libc::IFNAMSIZ],
    };
    for (to, from) in address.device.iter_mut().zip(device.bytes()) {
        *to = from;
    }
    let len = size_of::<SockaddrPppox>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of the address, which outlives the call.
    let rc = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    let ppp = || OpenOptions::new().read(true).write(true).open("/dev/ppp");
    let (channel, unit) = (ppp()?, ppp()?);
    let (mut number, mut index) = (-1, 0);
    control(&socket, PPPIOCGCHAN, &mut index)?;
    control(&channel, PPPIOCATTCHAN, &mut index)?;
    control(&unit, PPPIOCNEWUNIT, &mut number)?;
    control(&channel, PPPIOCCONNECT, &mut number)?;
    let session = Session {
        _unit: unit,
        _channel: channel,
        _socket: socket,
    };
    Ok((number, session))
}

fn control(file: &impl AsRawFd, request: c_ulong, value: &mut c_int) -> io::Result<()> {
    // SAFETY: these requests read or write one int, which outlives the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(value)) } {
        rc if rc < 0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A session's payload as a frame of the wire: of an Ethernet frame with IPv4 or IPv6, `None` of another. What is ahead of
/// the EtherType stays.
pub fn framed(frame: &[u8], session: u16) -> Option<Vec<u8>> {
    let (head, rest) = frame.split_at_checked(12)?;
    let (ethertype, packet) = rest.split_at_checked(2)?;
    let protocol = match ethertype {
        [8, 0] => PPP_IP,
        [0x86, 0xdd] => PPP_IPV6,
        _ => return None,
    };
    let mut bytes = head.to_vec();
    bytes.extend(ETHERTYPE.to_be_bytes());
    bytes.extend([0x11, 0]);
    bytes.extend(session.to_be_bytes());
    bytes.extend((packet.len() as u16 + 2).to_be_bytes());
    bytes.extend(protocol.to_be_bytes());
    bytes.extend(packet);
    Some(bytes)
}

/// The Ethernet frame that [`framed`] makes this of; `None` of a frame that is no such one. What follows the payload is padding
/// of the wire, and goes.
pub fn unframed(frame: &[u8], session: u16) -> Option<Vec<u8>> {
    let len = u16::from_be_bytes([*frame.get(18)?, *frame.get(19)?]);
    let packet = frame.get(22..20 + usize::from(len))?;
    let ethertype: u16 = match frame.get(20..22)? {
        [0, 0x21] => 0x0800,
        [0, 0x57] => 0x86dd,
        _ => return None,
    };
    let mut bytes = frame.get(..12)?.to_vec();
    bytes.extend(ethertype.to_be_bytes());
    bytes.extend(packet);
    let again = framed(&bytes, session)?;
    frame.starts_with(&again).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_session() {
        let packet = [&[2u8; 12][..], &[8, 0, 0x45, 1, 2, 3]].concat();
        let framed_once = framed(&packet, 7).unwrap_or_default();
        assert_eq!(
            framed_once[12..],
            [0x88, 0x64, 0x11, 0, 0, 7, 0, 6, 0, 0x21, 0x45, 1, 2, 3]
        );
        assert_eq!(unframed(&framed_once, 7), Some(packet));
        assert_eq!(unframed(&framed_once, 8), None);
        let arp = [&[2u8; 12][..], &[8, 6, 0, 1]].concat();
        assert_eq!(framed(&arp, 7), None);
    }
}
