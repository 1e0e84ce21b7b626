// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the daemon should end, and when it should read its configuration again.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Completes at SIGINT or SIGTERM, and at SIGHUP if the terminal has gone. The handlers are installed at once.
pub fn ended() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        let name = loop {
            tokio::select! {
                _ = interrupt.recv() => break "SIGINT",
                _ = terminate.recv() => break "SIGTERM",
                _ = hangup.recv() => {
                    if is_gone(io::stderr()) {
                        break "SIGHUP";
                    }
                }
            }
        };
        tracing::info!("{name}: stopping");
    })
}

/// SIGHUP as daemons take it.
pub struct Hangup(Signal);

impl Hangup {
    /// Within a runtime. From here on the signal no longer ends the process.
    pub fn heed() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Completes when there is one and the daemon goes on; false: there is none any more.
    pub async fn next(&mut self) -> bool {
        loop {
            match self.0.recv().await {
                Some(()) if is_gone(io::stderr()) => {}
                Some(()) => return true,
                None => return false,
            }
        }
    }
}

/// True of a terminal that has been closed: nobody reads or writes there any more.
fn is_gone(terminal: impl AsFd) -> bool {
    let mut fds = [PollFd::new(terminal.as_fd(), PollFlags::POLLOUT)];
    let asked = poll(&mut fds, PollTimeout::ZERO);
    let hung = fds[0].revents().unwrap_or(PollFlags::empty());
    // a closed one no longer says that it is a terminal, and the journal's socket may hang up, too
    let device = fstat(terminal.as_fd())
        .is_ok_and(|stat| stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits());
    asked.is_ok() && device && hung.contains(PollFlags::POLLHUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_terminal_is_told_from_an_open_one() {
        let pair = nix::pty::openpty(None, None).unwrap();
        assert!(!is_gone(&pair.slave));
        drop(pair.master);
        assert!(is_gone(&pair.slave));
        let (reader, writer) = io::pipe().unwrap();
        assert!(!is_gone(&writer));
        drop(reader);
        assert!(!is_gone(&writer), "a log that nobody reads");
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(far);
        assert!(!is_gone(&near), "a journal that has ended");
    }
}
