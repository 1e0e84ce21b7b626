// SPDX-License-Identifier: MIT OR Apache-2.0
//! A multicast routing daemon's socket (linux/mroute.h, linux/mroute6.h).
#![allow(clippy::panic)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use freeway_kernel::model::Family;

/// MRT_ and MRT6_ options, which have the same numbers.
pub const INIT: i32 = 200;
pub const ADD_VIF: i32 = 202;
pub const DEL_VIF: i32 = 203;
pub const ADD_MFC: i32 = 204;
pub const DEL_MFC: i32 = 205;
pub const ADD_MFC_PROXY: i32 = 210;
pub const DEL_MFC_PROXY: i32 = 211;

const VIFF_USE_IFINDEX: u8 = 8;

#[repr(C)]
struct Vifctl {
    vifi: u16,
    flags: u8,
    threshold: u8,
    rate_limit: u32,
    local_ifindex: i32,
    remote: u32,
}

#[repr(C)]
struct Mfcctl {
    origin: [u8; 4],
    group: [u8; 4],
    parent: u16,
    ttls: [u8; 32],
    counters: [u32; 3],
    expire: i32,
}

#[repr(C)]
struct Mif6ctl {
    mifi: u16,
    flags: u8,
    threshold: u8,
    physical: u16,
    rate_limit: u32,
}

#[repr(C)]
struct Mf6cctl {
    origin: libc::sockaddr_in6,
    group: libc::sockaddr_in6,
    parent: u16,
    set: [u32; 8],
}

fn sockaddr(ip: Ipv6Addr) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as u16,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr {
            s6_addr: ip.octets(),
        },
        sin6_scope_id: 0,
    }
}

/// The routing of one IP version in the thread's namespace, until it is dropped.
pub struct Routing {
    socket: OwnedFd,
    family: Family,
}

impl Routing {
    pub fn open(family: Family) -> io::Result<Routing> {
        let protocol = match family {
            Family::Ipv4 => libc::IPPROTO_IGMP,
            Family::Ipv6 => libc::IPPROTO_ICMPV6,
        };
        // SAFETY: no memory is given to the call, and its descriptor is owned by nothing else.
        let socket = unsafe {
            let fd = libc::socket(i32::from(family.number()), libc::SOCK_RAW, protocol);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let routing = Routing { socket, family };
        routing.set(INIT, &1i32)?;
        Ok(routing)
    }

    fn set<T>(&self, option: i32, value: &T) -> io::Result<()> {
        let level = match self.family {
            Family::Ipv4 => libc::IPPROTO_IP,
            Family::Ipv6 => libc::IPPROTO_IPV6,
        };
        let value = std::ptr::from_ref(value).cast();
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: pointer and length describe `value`, which outlives the call.
        match unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, value, len) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Adds or deletes the virtual interface of a number.
    pub fn interface(&self, option: i32, number: u16, ifindex: u32) {
        match self.family {
            Family::Ipv4 => self.set(
                option,
                &Vifctl {
                    vifi: number,
                    flags: VIFF_USE_IFINDEX,
                    threshold: 1,
                    rate_limit: 0,
                    local_ifindex: ifindex as i32,
                    remote: 0,
                },
            ),
            Family::Ipv6 if option == DEL_VIF => self.set(option, &number),
            Family::Ipv6 => self.set(
                option,
                &Mif6ctl {
                    mifi: number,
                    flags: 0,
                    threshold: 1,
                    physical: ifindex as u16,
                    rate_limit: 0,
                },
            ),
        }
        .unwrap();
    }

    /// Adds, replaces or deletes an entry; `outs` are virtual interfaces and thresholds, which IPv6 has not.
    pub fn entry(
        &self,
        option: i32,
        src: IpAddr,
        group: IpAddr,
        parent: u16,
        outs: &[(usize, u8)],
    ) {
        match (src, group) {
            (IpAddr::V4(src), IpAddr::V4(group)) => {
                let mut ttls = [0; 32];
                outs.iter().for_each(|&(out, ttl)| ttls[out] = ttl);
                let octets = |ip: Ipv4Addr| ip.octets();
                self.set(
                    option,
                    &Mfcctl {
                        origin: octets(src),
                        group: octets(group),
                        parent,
                        ttls,
                        counters: [0; 3],
                        expire: 0,
                    },
                )
            }
            (IpAddr::V6(src), IpAddr::V6(group)) => {
                let mut set = [0; 8];
                outs.iter()
                    .for_each(|&(out, _)| set[out / 32] |= 1 << (out % 32));
                self.set(
                    option,
                    &Mf6cctl {
                        origin: sockaddr(src),
                        group: sockaddr(group),
                        parent,
                        set,
                    },
                )
            }
            _ => panic!("{src} and {group} are of two IP versions"),
        }
        .unwrap();
    }
}
