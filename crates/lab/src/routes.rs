// SPDX-License-Identifier: MIT OR Apache-2.0
//! A synthetic full table of IPv4 routes, and hosts in its networks.
//!
//! In each /16 that it uses there are 50 prefixes, /19 to /24, most of them /24, as in a BGP table; a number drawn from the
//! /16's own moves them, so that no two look alike. The way of all of them is the same next hop, as behind one provider.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::{Context, LabError};
use crate::port::Port;

/// The most routes of a table.
pub const ROUTES_MAX: u32 = 1_000_000;
/// The most destinations.
pub const DESTINATIONS_MAX: u32 = 1_000_000;

/// Prefix lengths of a /16 and how many there are of each, the shortest first, so that each begins at a multiple of its size.
const LAYOUT: [(u8, u32); 6] = [(19, 1), (20, 2), (21, 4), (22, 5), (23, 8), (24, 30)];
const ROUTES_OF_A_BLOCK: u32 = 50;
/// 1.0.0.0/16 is the first block; every second one is used.
const FIRST_BLOCK: u32 = 0x0100;
/// Blocks of 127.0.0.0/8 are left out.
const LOOPBACK: std::ops::Range<u32> = 0x7f00..0x8000;
/// Messages to the kernel at a time, so that they fit its buffer.
const BATCH: u32 = 1024;

/// A prefix of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) address: u32,
    pub(crate) len: u8,
}

/// Numbers without order, the same each time (Steele and Vigna's SplitMix64).
fn mix(number: u32) -> u64 {
    let mut z = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The `number`th route.
pub(crate) fn prefix(number: u32) -> Prefix {
    let cell = number / ROUTES_OF_A_BLOCK;
    let drawn = mix(cell);
    let mut block = FIRST_BLOCK + 2 * cell + (drawn & 1) as u32;
    if block >= LOOPBACK.start {
        block += LOOPBACK.end - LOOPBACK.start;
    }
    let (mut before, mut offset) = (number % ROUTES_OF_A_BLOCK, 0);
    let mut len = 24;
    for (of, count) in LAYOUT {
        let size = 1 << (32 - u32::from(of));
        len = of;
        offset += size * before.min(count);
        if before < count {
            break;
        }
        before -= count;
    }
    // an aligned block stays one if the bits above its size are turned over
    let moved = (drawn >> 8) as u32 & 0xffff & (u32::MAX << (32 - u32::from(len)));
    Prefix {
        address: block << 16 | offset ^ moved,
        len,
    }
}

/// Hosts in networks of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// How many.
    pub hosts: u32,
    /// Of how many routes the table is.
    pub routes: u32,
}

impl Beyond {
    /// Their addresses, no two in one network if there are as many; in no order.
    pub fn addresses(self) -> Vec<Ipv4Addr> {
        let count = self.hosts.clamp(1, DESTINATIONS_MAX);
        let routes = self.routes.clamp(1, ROUTES_MAX);
        let apart = (routes / count).max(1);
        let mut hosts: Vec<(u64, u32)> = (0..count)
            .map(|number| {
                let of = prefix(number * apart % routes);
                let drawn = mix(u32::MAX - 1 - number);
                let host = (drawn >> 40) as u32 & !(u32::MAX << (32 - u32::from(of.len)));
                (drawn, of.address | host)
            })
            .collect();
        hosts.sort_unstable();
        let hosts = hosts.into_iter();
        hosts.map(|(_, address)| address.into()).collect()
    }
}

/// Says so if a table cannot have so many routes.
pub(crate) fn check(routes: u32) -> Result<(), LabError> {
    if routes > ROUTES_MAX {
        let what = format!("{routes} routes: there can be {ROUTES_MAX}");
        return Err(LabError::Invalid(what));
    }
    Ok(())
}

/// Gives a port's namespace the first so many routes, by way of a gateway behind the port.
pub(crate) fn load(port: &Port, gateway: IpAddr, routes: u32) -> Result<(), LabError> {
    let IpAddr::V4(gateway) = gateway else {
        return Err(LabError::Invalid("the table is IPv4's".into()));
    };
    check(routes)?;
    let what = format!("load {routes} routes in {}", port.netns.name());
    let send = || -> io::Result<()> {
        let socket = netlink()?;
        let mut first = 0;
        while first < routes {
            let after = routes.min(first + BATCH);
            let messages: Vec<u8> = (first..after)
                .flat_map(|number| {
                    // the kernel answers the last one, and any that it refuses
                    message(prefix(number), gateway, port.ifindex, number + 1 == after)
                })
                .collect();
            exchange(&socket, &messages)?;
            first = after;
        }
        Ok(())
    };
    port.netns.enter(send)?.context(what)
}

fn netlink() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// RTM_NEWROUTE with destination, gateway and output.
fn message(prefix: Prefix, gateway: Ipv4Addr, oif: u32, answered: bool) -> Vec<u8> {
    let mut flags = libc::NLM_F_REQUEST | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    if answered {
        flags |= libc::NLM_F_ACK;
    }
    let mut bytes = vec![0; 4];
    bytes.extend(libc::RTM_NEWROUTE.to_ne_bytes());
    bytes.extend((flags as u16).to_ne_bytes());
    // sequence number and port
    bytes.extend([0; 8]);
    // struct rtmsg: source length, type of service
    bytes.extend([libc::AF_INET as u8, prefix.len, 0, 0]);
    bytes.extend([
        libc::RT_TABLE_MAIN,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_UNIVERSE,
        libc::RTN_UNICAST,
    ]);
    bytes.extend([0; 4]);
    for (kind, value) in [
        (libc::RTA_DST, prefix.address.to_be_bytes()),
        (libc::RTA_GATEWAY, gateway.octets()),
        (libc::RTA_OIF, oif.to_ne_bytes()),
    ] {
        bytes.extend(8u16.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
    }
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// Sends messages of which the last is answered, and returns the first answer that is an error.
fn exchange(socket: &OwnedFd, messages: &[u8]) -> io::Result<()> {
    // SAFETY: the messages outlive the call.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            messages.as_ptr().cast(),
            messages.len(),
            0,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0u8; 4096];
    // SAFETY: the kernel writes at most as much as the buffer holds.
    let got = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            answer.len(),
            0,
        )
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // struct nlmsgerr behind the header: an error number, negative, or 0
    let mut error = [0; 4];
    match answer.get(16..20).filter(|_| got >= 20) {
        Some(bytes) => error.copy_from_slice(bytes),
        None => return Err(io::ErrorKind::UnexpectedEof.into()),
    }
    match i32::from_ne_bytes(error) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(-number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(of: Prefix) -> (u32, u32) {
        (of.address, of.address + (1 << (32 - u32::from(of.len))) - 1)
    }

    #[test]
    fn prefixes_are_apart_and_aligned() {
        let mut ranges: Vec<_> = (0..ROUTES_MAX)
            .map(|number| range(prefix(number)))
            .collect();
        ranges.sort_unstable();
        let apart = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
        assert!(apart, "two of them overlap");
        for number in (0..ROUTES_MAX).step_by(7) {
            let of = prefix(number);
            assert_eq!(of.address & !(u32::MAX << (32 - u32::from(of.len))), 0);
        }
        let addresses = |text: &str| u32::from(text.parse::<Ipv4Addr>().unwrap());
        for reserved in ["127.0.0.1", "192.0.2.2", "198.51.100.2", "224.0.0.1"] {
            let of = addresses(reserved);
            let inside = ranges
                .iter()
                .any(|(low, high)| (*low..=*high).contains(&of));
            assert!(!inside, "{reserved}");
        }
    }

    #[test]
    fn most_are_of_24_bits() {
        let of = (0..ROUTES_OF_A_BLOCK).map(|number| prefix(number).len);
        assert_eq!(of.filter(|len| *len == 24).count(), 30);
        let whole: u32 = LAYOUT.iter().map(|(_, count)| count).sum();
        assert_eq!(whole, ROUTES_OF_A_BLOCK);
    }

    #[test]
    fn destinations_are_in_networks_of_their_own() {
        for (hosts, routes) in [
            (20_000, 20_000),
            (20_000, 100_000),
            (20_000, ROUTES_MAX),
            (DESTINATIONS_MAX, ROUTES_MAX),
        ] {
            let mut ranges: Vec<_> = (0..routes).map(|number| range(prefix(number))).collect();
            ranges.sort_unstable();
            let of = Beyond { hosts, routes };
            let addresses = of.addresses();
            let within = addresses.iter().map(|host| {
                let host = u32::from(*host);
                let at = ranges.partition_point(|(low, _)| *low <= host) - 1;
                assert!(host <= ranges[at].1, "{host:x}");
                at
            });
            let mut within: Vec<_> = within.collect();
            assert!(!within.is_sorted(), "they are in order");
            within.sort_unstable();
            within.dedup();
            assert_eq!(within.len(), hosts as usize);
        }
    }

    #[test]
    fn messages_are_whole() {
        let of = Prefix {
            address: 0x0102_0300,
            len: 24,
        };
        let bytes = message(of, [198, 51, 100, 2].into(), 3, true);
        assert_eq!(bytes.len(), 16 + 12 + 3 * 8);
        assert_eq!(bytes[..4], 52u32.to_ne_bytes());
        assert_eq!(bytes[17], 24);
        assert_eq!(bytes[32..36], [1, 2, 3, 0]);
    }
}
