// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for any of several descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::DaemonError;
use crate::error::failure;

/// An epoll set that tokio waits for.
pub(super) struct Readable {
    set: AsyncFd<OwnedFd>,
}

impl Readable {
    pub(super) fn new(fds: &[RawFd]) -> Result<Self, DaemonError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failure)?;
        for fd in fds {
            // SAFETY: the owners of the descriptors outlive the set: both belong to `run`.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            epoll
                .add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))
                .map_err(failure)?;
        }
        // SAFETY: the set owns the epoll descriptor, which stays open and is never replaced.
        let set = unsafe { AsyncFd::register_with_interest(epoll.0, Interest::READABLE) };
        set.map(|set| Self { set }).map_err(failure)
    }

    /// Completes when one is readable. The caller drains them all, or remembers that there is more.
    pub(super) async fn wait(&self) -> Result<(), DaemonError> {
        let mut guard = self.set.readable().await.map_err(failure)?;
        // before the draining: what comes later is a new edge
        guard.clear_ready();
        Ok(())
    }

    /// True if one is readable at this moment, whether or not the runtime has noticed.
    pub(super) fn ready(&self) -> Result<bool, DaemonError> {
        let mut set = [PollFd::new(self.set.get_ref().as_fd(), PollFlags::POLLIN)];
        match poll(&mut set, PollTimeout::ZERO) {
            Ok(count) => Ok(count > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(failure(error)),
        }
    }
}
