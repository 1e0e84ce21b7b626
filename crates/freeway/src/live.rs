// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page that is shown again and again: in place on a terminal, one after the other elsewhere.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use freeway_console::{Stop, Terminal, write};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{self, LocalFlags, SetArg, SpecialCharacterIndices, Termios};

/// Room for a page.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Columns and colours.
    pub terminal: Terminal,
    /// Lines; `None`: as many as it takes.
    pub lines: Option<usize>,
}

/// True if a page can be shown in place.
pub fn in_place() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !dumb && io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Shows `page` every `interval` until `q`, Escape or a signal; without a terminal until the reader leaves.
pub fn show(
    interval: Duration,
    mut page: impl FnMut(Room) -> Result<String, Stop>,
) -> Result<(), Stop> {
    if in_place() {
        return Screen::open()?.run(interval, page);
    }
    let room = Room {
        terminal: Terminal::stdout(),
        lines: None,
    };
    let mut gap = "";
    loop {
        let next = Instant::now() + interval;
        let text = format!("{gap}{}", page(room)?);
        if !write(text.as_bytes())? {
            return Ok(());
        }
        gap = "\n";
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Signals that end a page, as data: the terminal is restored before the program ends.
pub struct Signals {
    descriptor: SignalFd,
    blocked: SigSet,
}

impl Signals {
    /// Until it is dropped.
    pub fn block() -> Result<Signals, Stop> {
        Signals::of(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])
    }

    fn of(signals: &[Signal]) -> Result<Signals, Stop> {
        let failed = |error: Errno| Stop::failure(format!("cannot prepare the terminal: {error}"));
        let blocked: SigSet = signals.iter().copied().collect();
        blocked.thread_block().map_err(failed)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let descriptor = SignalFd::with_flags(&blocked, flags).map_err(failed)?;
        Ok(Signals {
            descriptor,
            blocked,
        })
    }

    /// True if one came.
    pub fn came(&mut self) -> Result<bool, Stop> {
        Ok(self.next()?.is_some())
    }

    fn next(&mut self) -> Result<Option<u32>, Stop> {
        let failed = |error: Errno| Stop::failure(format!("cannot read the terminal: {error}"));
        let signal = self.descriptor.read_signal().map_err(failed)?;
        Ok(signal.map(|signal| signal.ssi_signo))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.blocked.thread_unblock();
    }
}

/// The terminal's other screen, without cursor, echo and line editing; dropping it restores what was.
struct Screen {
    before: Termios,
    signals: Signals,
}

impl Screen {
    fn open() -> Result<Screen, Stop> {
        let failed = |error: Errno| Stop::failure(format!("cannot prepare the terminal: {error}"));
        let signals = Signals::of(&[
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGWINCH,
        ])?;
        let stdin = io::stdin();
        let before = termios::tcgetattr(&stdin).map_err(failed)?;
        let mut raw = before.clone();
        raw.local_flags &= !(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
        raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 0;
        raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        termios::tcsetattr(&stdin, SetArg::TCSANOW, &raw).map_err(failed)?;
        let screen = Screen { before, signals };
        write(b"\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(screen)
    }

    fn run(
        mut self,
        interval: Duration,
        mut page: impl FnMut(Room) -> Result<String, Stop>,
    ) -> Result<(), Stop> {
        loop {
            let next = Instant::now() + interval;
            let lines = Terminal::lines();
            let room = Room {
                terminal: Terminal::stdout(),
                // the last line scrolls if it is written to its end
                lines: Some(lines.saturating_sub(1)),
            };
            let text = page(room)?;
            if !write(frame(&text, room).as_bytes())? || self.wait(next)? {
                return Ok(());
            }
        }
    }

    /// Waits for a key, a signal or the next page; true if that is the end.
    fn wait(&mut self, next: Instant) -> Result<bool, Stop> {
        let failed = |error: Errno| Stop::failure(format!("cannot read the terminal: {error}"));
        loop {
            let left = next.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let stdin = io::stdin();
            let mut fds = [
                PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.signals.descriptor.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, timeout) {
                Ok(0) => return Ok(false),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(failed(error)),
            }
            if let Some(signal) = self.signals.next()? {
                // another size: at once
                return Ok(signal != Signal::SIGWINCH as u32);
            }
            match key(stdin.as_fd()).map_err(failed)? {
                Some(b'q' | b'Q' | 0x1b | 0x03 | 0x04) => return Ok(true),
                // any other key: now rather than later
                Some(_) => return Ok(false),
                None => {}
            }
        }
    }
}

/// A byte of what was typed; the rest of it is left out.
fn key(stdin: BorrowedFd<'_>) -> nix::Result<Option<u8>> {
    let mut keys = [0; 64];
    match nix::unistd::read(stdin, &mut keys) {
        Ok(0) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Ok(_) => Ok(keys.first().copied()),
        Err(error) => Err(error),
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = write(b"\x1b[?25h\x1b[?1049l");
        let _ = termios::tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}

/// The page from the upper left corner: each line replaces the one that was there, what does not fit is cut.
fn frame(text: &str, room: Room) -> String {
    let mut frame = String::from("\x1b[H");
    for line in text.lines().take(room.lines.unwrap_or(usize::MAX)) {
        frame.push_str(line);
        frame.push_str("\x1b[K\r\n");
    }
    frame.push_str("\x1b[J");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_replaces_the_one_before() {
        let room = Room {
            terminal: Terminal {
                width: 80,
                color: false,
            },
            lines: Some(2),
        };
        assert_eq!(
            frame("one\ntwo\nthree\n", room),
            "\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n\x1b[J"
        );
    }
}
