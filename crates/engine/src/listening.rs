// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether somebody is at a Unix socket that has a name.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// Asked as somebody of another type than those of that `kind`, who disturbs nobody: a listener's queue does not have him.
pub fn is_listened_at(path: &Path, kind: SockType) -> io::Result<bool> {
    let of = AddressFamily::Unix;
    let other = match kind {
        SockType::Stream => SockType::SeqPacket,
        _ => SockType::Stream,
    };
    let asker = socket(of, other, SockFlag::SOCK_CLOEXEC, None)?;
    match connect(asker.as_raw_fd(), &UnixAddr::new(path)?) {
        Err(Errno::ECONNREFUSED) => Ok(false),
        Err(Errno::EPROTOTYPE) | Ok(()) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}
