// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control port of a measurement's sink, and what a generator is answered.

use std::fmt::Debug;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::dut::control::{LINE_MAX, Lines, Received, printable};
use crate::dut::message::{Answer, Request};

const PATIENCE: Duration = Duration::from_secs(5);

/// Lines are what was sent, in order and bounded, and whatever ends them says why. A message is the same once written
/// and read again; no other side's words drive a terminal.
pub fn run(bytes: &[u8]) {
    #[allow(clippy::expect_used)]
    let mut lines = sent(bytes).expect("a pair of sockets");
    let until = Instant::now() + PATIENCE;
    let mut left = bytes;
    loop {
        let line = match lines.receive(until) {
            Ok(Received::Line(line)) => line,
            Ok(Received::End) => {
                assert!(!left.contains(&b'\n'), "a line was lost");
                return;
            }
            Err(why) => {
                assert!(why.starts_with("a line "), "{why}");
                return;
            }
        };
        assert!(line.len() <= LINE_MAX, "{} octets", line.len());
        let rest = left.strip_prefix(line.as_bytes());
        let rest = rest.and_then(|rest| rest.strip_prefix(b"\n"));
        assert!(rest.is_some(), "{line:?} was not sent next");
        left = rest.unwrap_or_default();
        same_again::<Request>(&line);
        same_again::<Answer>(&line);
        assert!(!printable(&line).contains(char::is_control), "{line:?}");
    }
}

/// Not over TCP: each input would leave a connection in TIME-WAIT.
fn sent(bytes: &[u8]) -> io::Result<Lines> {
    let (mut near, far) = UnixStream::pair()?;
    // it fits the socket's buffers: nobody reads yet
    near.write_all(bytes)?;
    near.shutdown(Shutdown::Write)?;
    Ok(Lines::new(TcpStream::from(OwnedFd::from(far))))
}

pub(super) fn same_again<T: Debug + PartialEq + Serialize + DeserializeOwned>(line: &str) {
    let Ok(message) = serde_json::from_str::<T>(line) else {
        return;
    };
    #[allow(clippy::expect_used)]
    let written = serde_json::to_string(&message).expect("JSON");
    let read = serde_json::from_str::<T>(&written);
    assert!(
        read.as_ref().is_ok_and(|again| *again == message),
        "{written}: {read:?}"
    );
}
