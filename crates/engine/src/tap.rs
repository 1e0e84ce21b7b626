// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port's face in the kernel: a TAP (Documentation/networking/tuntap.rst) with the port's name, MAC address, MTU and
//! carrier. Routes, filters, addresses are configured on it as on any port.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use libc::{c_int, c_short, ifreq};

use crate::ffi::{fwe_steer_open, fwe_steer_rule};

/// linux/if_tun.h
#[allow(missing_docs)]
mod request {
    nix::ioctl_write_int!(set_interface, b'T', 202);
    nix::ioctl_write_int!(set_persistent, b'T', 203);
    nix::ioctl_read!(set_steering, b'T', 224, libc::c_int);
    nix::ioctl_write_ptr!(set_carrier, b'T', 226, libc::c_int);
}
use request::{set_carrier, set_interface, set_persistent, set_steering};

/// An open TAP. It goes with its descriptor unless it was kept.
#[derive(Debug)]
pub struct Tap {
    /// Its queues: one, or [`QUEUES`].
    _files: Vec<File>,
    fds: Vec<RawFd>,
    name: String,
    carrier: Option<bool>,
    /// Whoever has several queues of a TAP is not alone with it by that.
    _alone: OwnedFd,
}

/// Of a TAP (`FWE_TAP_QUEUES`): what the kernel sends is in the first one, unless it is told otherwise.
pub const QUEUES: usize = crate::ffi::FWE_TAP_QUEUES as usize;

impl Tap {
    /// Makes the TAP, or opens the one that is there. An error says what is in the way.
    pub fn open(name: &str) -> Result<Self, String> {
        let alone = claim(name)?;
        let several = libc::IFF_MULTI_QUEUE;
        let first = match queue(name, several) {
            // one that was made with one queue
            Err(nix::Error::EINVAL) => queue(name, 0).map(|file| (file, 1)),
            first => first.map(|file| (file, QUEUES)),
        };
        let (first, count) = first.map_err(|error| match error {
            nix::Error::ENOENT => {
                format!("cannot open /dev/net/tun: {error}; modprobe tun")
            }
            nix::Error::EBUSY => format!("{name} is a TAP that another process has open"),
            nix::Error::EINVAL => {
                format!("{name} exists and is no TAP: give the engine's port another name")
            }
            nix::Error::EPERM => format!("cannot make the TAP {name}: it takes CAP_NET_ADMIN"),
            error => format!("cannot make the TAP {name}: {error}"),
        })?;
        let mut tap = Self {
            fds: vec![first.as_raw_fd()],
            _files: vec![first],
            name: name.into(),
            carrier: None,
            _alone: alone,
        };
        if count == 1 {
            return Ok(tap);
        }
        // ahead of the other queues: the kernel would choose one by itself
        tap.steer(&[], 0)?;
        for _ in 1..count {
            let file = queue(name, several);
            let file = file.map_err(|error| format!("cannot open the TAP {name}: {error}"))?;
            tap.fds.push(file.as_raw_fd());
            tap._files.push(file);
        }
        Ok(tap)
    }

    /// What the kernel sends is in the queue of the first rule that matches, or in that other one.
    pub fn steer(&mut self, rules: &[fwe_steer_rule], other: u32) -> Result<(), String> {
        // SAFETY: so many rules.
        let program = unsafe { fwe_steer_open(rules.as_ptr(), rules.len() as u32, other) };
        let failed = |error: io::Error| {
            format!(
                "cannot have {} sort what the kernel sends: {error}",
                self.name
            )
        };
        if program < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        // SAFETY: made just now, and nobody else's.
        let program = unsafe { OwnedFd::from_raw_fd(program) };
        let mut number = program.as_raw_fd();
        // SAFETY: a number, which outlives the call; the kernel keeps the program.
        unsafe { set_steering(self.fd(), &raw mut number) }
            .map(drop)
            .map_err(|error| failed(error.into()))
    }

    /// Descriptors of its queues.
    #[must_use]
    pub fn queues(&self) -> &[RawFd] {
        &self.fds
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its descriptor, non-blocking: a frame a call.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.fds.first().copied().unwrap_or(-1)
    }

    /// Its interface index.
    pub fn ifindex(&self) -> Result<u32, String> {
        nix::net::if_::if_nametoindex(self.name.as_str())
            .map_err(|error| format!("{} is gone: {error}", self.name))
    }

    /// It stays when the process ends, with all that is configured on it.
    pub fn keep(&self) -> Result<(), String> {
        // SAFETY: takes a number.
        unsafe { set_persistent(self.fd(), 1) }
            .map(drop)
            .map_err(|error| format!("cannot keep the TAP {}: {error}", self.name))
    }

    /// Has it say that there is a link, or none.
    pub fn set_carrier(&mut self, up: bool) -> Result<(), String> {
        if self.carrier == Some(up) {
            return Ok(());
        }
        // SAFETY: a number, which outlives the call.
        unsafe { set_carrier(self.fd(), &c_int::from(up)) }
            .map_err(|error| format!("cannot set the carrier of {}: {error}", self.name))?;
        self.carrier = Some(up);
        Ok(())
    }

    /// Has the kernel take its frames. What else it is said to be (IFF_MULTICAST) is forgotten.
    pub(crate) fn up(&self) -> Result<(), String> {
        let mut flags = named(&self.name);
        flags.ifr_ifru.ifru_flags = libc::IFF_UP as c_short;
        configure(libc::SIOCSIFFLAGS, &flags)
            .map_err(|error| format!("cannot set {} up: {error}", self.name))
    }

    /// Gives it the port's MAC address and MTU.
    pub fn resemble(&self, mac: [u8; 6], mtu: u32) -> Result<(), String> {
        let failed = |what: &str, error: io::Error| {
            format!("cannot set the {what} of {}: {error}", self.name)
        };
        let mut address = named(&self.name);
        let mut data = [0; 14];
        for (to, from) in data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
        address.ifr_ifru.ifru_hwaddr = libc::sockaddr {
            sa_family: libc::ARPHRD_ETHER,
            sa_data: data,
        };
        configure(libc::SIOCSIFHWADDR, &address).map_err(|error| failed("MAC address", error))?;
        let mut length = named(&self.name);
        length.ifr_ifru.ifru_mtu = mtu.cast_signed();
        configure(libc::SIOCSIFMTU, &length).map_err(|error| failed("MTU", error))
    }
}

/// Only one process has a TAP of that name in this network namespace, as abstract sockets are the namespace's.
fn claim(name: &str) -> Result<OwnedFd, String> {
    let failed = |error: nix::Error| match error {
        nix::Error::EADDRINUSE => format!("{name} is a TAP that another process has open"),
        error => format!("cannot claim the TAP {name}: {error}"),
    };
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    );
    let socket = socket.map_err(failed)?;
    let address = format!("freeway-engine/{name}");
    let address = nix::sys::socket::UnixAddr::new_abstract(address.as_bytes()).map_err(failed)?;
    nix::sys::socket::bind(socket.as_raw_fd(), &address).map_err(failed)?;
    Ok(socket)
}

/// One more queue of a TAP, which is made if there is none.
fn queue(name: &str, flags: c_int) -> nix::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(|error| nix::Error::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    let mut request = named(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | flags) as c_short;
    let pointer = &raw const request as libc::c_ulong;
    // SAFETY: a structure as the kernel wants it, which outlives the call.
    unsafe { set_interface(file.as_raw_fd(), pointer) }?;
    Ok(file)
}

fn named(name: &str) -> ifreq {
    // SAFETY: all zeros is a value of it.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    // the configuration has checked the length; the last octet stays 0
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn configure(what: libc::c_ulong, request: &ifreq) -> io::Result<()> {
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: a structure as the kernel wants it, which outlives the call.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), what, request) };
    nix::errno::Errno::result(rc)?;
    Ok(())
}
