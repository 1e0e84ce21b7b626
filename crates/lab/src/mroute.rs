// SPDX-License-Identifier: MIT OR Apache-2.0
//! A multicast router's control plane, as small as can be: the kernel forwards what the entries say (its multicast
//! forwarding cache, MFC), and nobody speaks IGMP, MLD or PIM. A family of a namespace has room for one.

use std::io;
use std::mem::zeroed;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::{Context, LabError};
use crate::netns::Netns;
use crate::topology::Family;

/// Options of linux/mroute.h; those of linux/mroute6.h have the same numbers.
const MRT_INIT: libc::c_int = 200;
const MRT_ADD_VIF: libc::c_int = 202;
const MRT_ADD_MFC: libc::c_int = 204;
const MRT_DEL_MFC: libc::c_int = 205;
/// A port is named by its ifindex, not by its address.
const VIFF_USE_IFINDEX: u8 = 8;
/// Ports of one router (MAXVIFS, MAXMIFS).
pub const MROUTE_PORTS: usize = 32;
/// Packets of a TTL above this leave by a port that an entry names. 0 would mean that none do.
const THRESHOLD: u8 = 1;
/// linux/icmpv6.h.
const ICMPV6_FILTER: libc::c_int = 1;

/// `struct vifctl`.
#[repr(C)]
struct Vif {
    vifi: u16,
    flags: u8,
    threshold: u8,
    rate_limit: u32,
    ifindex: i32,
    remote: u32,
}

/// `struct mif6ctl`.
#[repr(C)]
struct Mif {
    mifi: u16,
    flags: u8,
    threshold: u8,
    /// 16 bits, as the kernel has it.
    ifindex: u16,
    rate_limit: u32,
}

/// `struct mfcctl`.
#[repr(C)]
struct Mfc {
    origin: libc::in_addr,
    group: libc::in_addr,
    parent: u16,
    ttls: [u8; MROUTE_PORTS],
    /// Packets, bytes, wrong input, expiry: not looked at.
    unused: [u32; 4],
}

/// `struct mf6cctl`.
#[repr(C)]
struct Mf6c {
    origin: libc::sockaddr_in6,
    group: libc::sockaddr_in6,
    parent: u16,
    /// `struct if_set`.
    ports: [u32; 8],
}

/// The multicast router of one family of a namespace. Its ports and entries go when it is dropped.
#[derive(Debug)]
pub struct Mroute {
    netns: Netns,
    family: Family,
    socket: OwnedFd,
    /// By their place in the kernel's table.
    ports: Vec<u32>,
}

impl Mroute {
    /// Makes the namespace a multicast router without ports. Forwarding is switched on by port.
    pub fn open(netns: &Netns, family: Family) -> Result<Self, LabError> {
        let socket = netns.enter(|| control_socket(family))?;
        let mroute = Self {
            socket: socket.context(format!("open a control socket in {}", netns.name()))?,
            netns: netns.clone(),
            family,
            ports: Vec::new(),
        };
        mroute.option(MRT_INIT, &1i32, || "route multicast".into())?;
        Ok(mroute)
    }

    /// Makes an interface one that multicast comes in by and goes out by; it must be up.
    pub fn add_port(&mut self, ifindex: u32) -> Result<(), LabError> {
        let number = self.ports.len() as u16;
        let what = || format!("route multicast by interface {ifindex}");
        match self.family {
            Family::Ipv4 => {
                let vif = Vif {
                    vifi: number,
                    flags: VIFF_USE_IFINDEX,
                    threshold: THRESHOLD,
                    rate_limit: 0,
                    ifindex: ifindex.cast_signed(),
                    remote: 0,
                };
                self.option(MRT_ADD_VIF, &vif, what)?;
            }
            Family::Ipv6 => {
                let ifindex = u16::try_from(ifindex).map_err(|_| {
                    LabError::Invalid(format!("interface {ifindex}: the kernel takes 16 bits"))
                })?;
                let mif = Mif {
                    mifi: number,
                    flags: 0,
                    threshold: THRESHOLD,
                    ifindex,
                    rate_limit: 0,
                };
                self.option(MRT_ADD_VIF, &mif, what)?;
            }
        }
        self.ports.push(ifindex);
        Ok(())
    }

    /// From now on packets from `source` to `group` that come in by interface `input` go out by `outputs`, and by no
    /// other; none is as good as any number. It replaces what there is of that source and group.
    pub fn set(
        &self,
        source: IpAddr,
        group: IpAddr,
        input: u32,
        outputs: &[u32],
    ) -> Result<(), LabError> {
        let outputs = outputs.iter().map(|output| self.number(*output));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        self.entry(MRT_ADD_MFC, source, group, self.number(input)?, &outputs)
    }

    /// Forgets source and group. The kernel then asks for an entry: it keeps up to four packets, for ten seconds, and
    /// sends them by the entry that is set meanwhile. One without outputs drops them.
    pub fn remove(&self, source: IpAddr, group: IpAddr) -> Result<(), LabError> {
        self.entry(MRT_DEL_MFC, source, group, 0, &[])
    }

    fn number(&self, ifindex: u32) -> Result<u16, LabError> {
        let place = self.ports.iter().position(|port| *port == ifindex);
        place.map(|number| number as u16).ok_or_else(|| {
            let netns = self.netns.name();
            LabError::Invalid(format!(
                "interface {ifindex} routes no multicast in {netns}"
            ))
        })
    }

    fn entry(
        &self,
        option: libc::c_int,
        source: IpAddr,
        group: IpAddr,
        parent: u16,
        outputs: &[u16],
    ) -> Result<(), LabError> {
        let what = || format!("set the entry of {source} and {group}");
        match (self.family, source, group) {
            (Family::Ipv4, IpAddr::V4(source), IpAddr::V4(group)) => {
                let mut mfc = Mfc {
                    origin: address4(source),
                    group: address4(group),
                    parent,
                    ttls: [0; MROUTE_PORTS],
                    unused: [0; 4],
                };
                for output in outputs {
                    mfc.ttls[usize::from(*output)] = THRESHOLD;
                }
                self.option(option, &mfc, what)
            }
            (Family::Ipv6, IpAddr::V6(source), IpAddr::V6(group)) => {
                let mut mfc = Mf6c {
                    origin: address6(source),
                    group: address6(group),
                    parent,
                    ports: [0; 8],
                };
                for output in outputs {
                    mfc.ports[usize::from(output / 32)] |= 1 << (output % 32);
                }
                self.option(option, &mfc, what)
            }
            _ => {
                let what = format!("{source} to {group}: not of this router's family");
                Err(LabError::Invalid(what))
            }
        }
    }

    fn option<T>(
        &self,
        name: libc::c_int,
        value: &T,
        what: impl FnOnce() -> String,
    ) -> Result<(), LabError> {
        let level = match self.family {
            Family::Ipv4 => libc::IPPROTO_IP,
            Family::Ipv6 => libc::IPPROTO_IPV6,
        };
        set_option(&self.socket, level, name, value).context(format!(
            "{} in {}",
            what(),
            self.netns.name()
        ))
    }
}

/// The socket whose closing ends the router. What the kernel has to say, it says here; nobody reads it.
fn control_socket(family: Family) -> io::Result<OwnedFd> {
    let (domain, protocol) = match family {
        Family::Ipv4 => (libc::AF_INET, libc::IPPROTO_IGMP),
        Family::Ipv6 => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
    };
    // SAFETY: socket(2) takes no pointers.
    let fd = unsafe { libc::socket(domain, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor to us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    if family == Family::Ipv6 {
        // All types are blocked: neighbour discovery is not for it.
        set_option(&socket, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &[u32::MAX; 8])?;
    }
    Ok(socket)
}

/// `T` is what the option wants, an integer or a `repr(C)` structure.
fn set_option<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value has this length and outlives the call.
    let rc = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, name, value, len)
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn address4(address: std::net::Ipv4Addr) -> libc::in_addr {
    libc::in_addr {
        s_addr: u32::from_ne_bytes(address.octets()),
    }
}

fn address6(address: std::net::Ipv6Addr) -> libc::sockaddr_in6 {
    // SAFETY: all zeroes are a valid sockaddr_in6.
    let mut socket: libc::sockaddr_in6 = unsafe { zeroed() };
    socket.sin6_family = libc::AF_INET6 as libc::sa_family_t;
    socket.sin6_addr.s6_addr = address.octets();
    socket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<Vif>(), 16);
        assert_eq!(size_of::<Mif>(), 12);
        assert_eq!(size_of::<Mfc>(), 60);
        assert_eq!(size_of::<Mf6c>(), 92);
    }
}
