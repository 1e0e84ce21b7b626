// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of bounded length over TCP.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use serde::Serialize;

/// The longest line, octets.
pub const LINE_MAX: usize = 4096;
const CHUNK: usize = 1024;
/// Of what the other side says, so much is shown.
const SHOWN_MAX: usize = 400;

/// What was waited for.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A line, without its end.
    Line(String),
    /// The other side has closed the connection.
    End,
}

/// A connection, and what has come of the next lines.
#[derive(Debug)]
pub struct Lines {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl AsFd for Lines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Lines {
    /// Of a connection without anything read of it.
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Reads once; zero octets are the end.
    pub fn fill(&mut self) -> io::Result<usize> {
        let mut chunk = [0; CHUNK];
        let count = self.stream.read(&mut chunk)?;
        self.buffer.extend(&chunk[..count]);
        Ok(count)
    }

    /// Whether a line has begun.
    pub fn has_begun(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Whether [`Lines::take`] has something to say.
    pub fn is_ready(&self) -> bool {
        self.buffer.len() > LINE_MAX || self.buffer.contains(&b'\n')
    }

    /// The next line, if it is whole; an error says what is wrong with it.
    pub fn take(&mut self) -> Result<Option<String>, String> {
        let end = self.buffer.iter().position(|octet| *octet == b'\n');
        if end.unwrap_or(self.buffer.len()) > LINE_MAX {
            return Err(format!("a line of more than {LINE_MAX} octets"));
        }
        let Some(end) = end else {
            return Ok(None);
        };
        let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
        line.pop();
        let line = String::from_utf8(line);
        line.map(Some).map_err(|_| "a line that is no UTF-8".into())
    }

    /// Waits for a line.
    pub fn receive(&mut self, until: Instant) -> Result<Received, String> {
        loop {
            if let Some(line) = self.take()? {
                return Ok(Received::Line(line));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("no answer came in time".into());
            }
            let limited = self.stream.set_read_timeout(Some(left));
            limited.map_err(|error| error.to_string())?;
            match self.fill() {
                Ok(0) => return Ok(Received::End),
                Ok(_) => {}
                Err(error) if is_nothing_yet(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Writes a line.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }
}

/// Nothing has come, and more may.
pub fn is_nothing_yet(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// What the other side says, fit for a terminal.
pub fn printable(text: &str) -> String {
    let shown = text.chars().take(SHOWN_MAX);
    shown
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    fn pair() -> (TcpStream, Lines) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, Lines::new(listener.accept().unwrap().0))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn lines_come_in_pieces() {
        let (mut near, mut lines) = pair();
        near.write_all(b"one\ntwo\nth").unwrap();
        let line = |text: &str| Ok(Received::Line(text.into()));
        assert_eq!(lines.receive(soon()), line("one"));
        assert!(lines.is_ready() && lines.has_begun());
        assert_eq!(lines.receive(soon()), line("two"));
        assert!(!lines.is_ready());
        near.write_all(b"ree\n").unwrap();
        drop(near);
        assert_eq!(lines.receive(soon()), line("three"));
        assert_eq!(lines.receive(soon()), Ok(Received::End));
    }

    #[test]
    fn lines_are_bounded() {
        let longest = vec![b'x'; LINE_MAX];
        for (tail, fits) in [(&b"\n"[..], true), (b"x\n", false), (b"xx", false)] {
            let (mut near, mut lines) = pair();
            near.write_all(&[&longest[..], tail].concat()).unwrap();
            drop(near);
            let received = lines.receive(soon());
            assert_eq!(received.is_ok(), fits, "{received:?}");
        }
        let (mut near, mut lines) = pair();
        near.write_all(b"\xff\n").unwrap();
        assert!(lines.receive(soon()).unwrap_err().contains("UTF-8"));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let (_near, mut lines) = pair();
        let until = Instant::now() + Duration::from_millis(20);
        assert!(lines.receive(until).unwrap_err().contains("in time"));
    }

    #[test]
    fn terminals_are_not_driven() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a [2Jb ");
        assert_eq!(printable(&"x".repeat(9999)).len(), SHOWN_MAX);
    }
}
