// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where text goes.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsRawFd;

use serde::Serialize;

use crate::Stop;

/// Columns where nobody says how many there are.
const WIDTH: usize = 80;
/// Lines where nobody says how many there are.
const LINES: usize = 24;
/// Text becomes unreadable below.
const WIDTH_MIN: usize = 40;
/// Lines become unreadable above.
const WIDTH_MAX: usize = 120;

/// What the reader's side can show.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Columns.
    pub width: usize,
    /// Escape sequences are understood and wanted.
    pub color: bool,
}

impl Terminal {
    /// What a pipe is written for.
    pub const PIPE: Terminal = Terminal {
        width: WIDTH,
        color: false,
    };

    /// Standard output's.
    pub fn stdout() -> Terminal {
        Terminal::of(&io::stdout())
    }

    /// Lines of standard output's terminal.
    pub fn lines() -> usize {
        size_of(&io::stdout()).map_or(LINES, |size| size.ws_row.into())
    }

    /// Standard error's.
    pub fn stderr() -> Terminal {
        Terminal::of(&io::stderr())
    }

    fn of(stream: &(impl IsTerminal + AsRawFd)) -> Terminal {
        let tty = stream.is_terminal();
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let columns = std::env::var("COLUMNS")
            .ok()
            .and_then(|text| text.parse().ok());
        let width = columns
            .or_else(|| if tty { columns_of(stream) } else { None })
            .unwrap_or(WIDTH);
        Terminal {
            width: width.clamp(WIDTH_MIN, WIDTH_MAX),
            color: tty && !dumb && !set("NO_COLOR"),
        }
    }
}

fn columns_of(stream: &impl AsRawFd) -> Option<usize> {
    size_of(stream).map(|size| size.ws_col.into())
}

fn size_of(stream: &impl AsRawFd) -> Option<libc::winsize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the kernel writes one winsize, which outlives the call.
    let rc = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (rc == 0 && size.ws_col > 0 && size.ws_row > 0).then_some(size)
}

/// Writes to standard output; a reader that has left is no error.
pub fn print(text: &str) -> Result<(), Stop> {
    write(text.as_bytes()).map(drop)
}

/// The same for one part of many; false if the reader has left.
pub fn write(bytes: &[u8]) -> Result<bool, Stop> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Stop::failure(format!(
            "cannot write to standard output: {error}"
        ))),
    }
}

/// Writes a value to standard output, as JSON or as text.
pub fn show(
    json: bool,
    value: &impl Serialize,
    text: impl FnOnce(Terminal) -> String,
) -> Result<(), Stop> {
    if json {
        print_json(value)
    } else {
        print(&text(Terminal::stdout()))
    }
}

/// Writes one JSON value to standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), Stop> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|error| Stop::failure(error.to_string()))?;
    text.push('\n');
    print(&text)
}
