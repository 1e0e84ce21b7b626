// SPDX-License-Identifier: MIT OR Apache-2.0
//! What HTTP is served by to whoever reaches an address.

use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioTimer;
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use tokio::net::TcpStream;

/// In which the head of a request has to arrive.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// Its octets and lines at most.
const HEAD_MAX: usize = 8192;
const HEADERS_MAX: usize = 64;
/// What was sent and is not taken for so long ends the connection.
const TAKEN_MS: u32 = 30_000;
/// For who accepts: after a connection that could not be, such as for want of descriptors.
pub const PAUSE: Duration = Duration::from_millis(100);

/// Ends a connection whose answer nobody takes, which would last otherwise.
///
/// # Errors
/// The socket does not.
pub fn end_untaken(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, TcpUserTimeout, &TAKEN_MS)
}

/// For a connection of one request, whose head is short and comes soon.
#[must_use]
pub fn one_request() -> Builder {
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false);
    builder
}
