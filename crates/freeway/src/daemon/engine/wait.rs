// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for any of several descriptors.

use std::os::fd::{BorrowedFd, RawFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::failure;
use crate::daemon::DaemonError;

/// An epoll set that tokio waits for.
pub(super) struct Readable {
    set: AsyncFd<std::os::fd::OwnedFd>,
    again: Notify,
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
        let set = set.map_err(failure)?;
        Ok(Self {
            set,
            again: Notify::new(),
        })
    }

    /// Completes when one is readable. The caller drains them all, or calls [`Readable::again`].
    pub(super) async fn wait(&self) -> Result<(), DaemonError> {
        tokio::select! {
            guard = self.set.readable() => {
                // before the draining: what comes later is a new edge
                guard.map_err(failure)?.clear_ready();
                Ok(())
            }
            () = self.again.notified() => Ok(()),
        }
    }

    /// The next wait completes at once.
    pub(super) fn again(&self) {
        self.again.notify_one();
    }
}
