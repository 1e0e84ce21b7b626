// SPDX-License-Identifier: MIT OR Apache-2.0
//! What daemon and engine say to each other, over a pair of sockets.

use std::fmt::Debug;
use std::os::fd::{AsFd, OwnedFd};

use freeway_api::engine::{Answer, MESSAGE_MAX, Said};
use freeway_api::handover;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::control::same_again;

/// What is no message is an error, never a panic; one that is read is the same once written and read again.
pub fn run(bytes: &[u8]) {
    heard::<Said>(bytes);
    heard::<Answer>(bytes);
}

#[allow(clippy::expect_used)]
fn heard<T: Debug + PartialEq + Serialize + DeserializeOwned>(bytes: &[u8]) {
    let kind = SockType::SeqPacket;
    let pair = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC);
    let (near, far): (OwnedFd, OwnedFd) = pair.expect("a pair of sockets");
    // longer ones than a socket's buffer takes come from nobody
    if nix::unistd::write(&near, bytes).is_err() {
        return;
    }
    match handover::receive::<T>(far.as_fd()) {
        Ok(None) => assert!(bytes.is_empty(), "the end, after {} octets", bytes.len()),
        Ok(Some((message, fds))) => {
            assert!(fds.is_empty() && bytes.len() <= MESSAGE_MAX);
            same_again::<T>(&serde_json::to_string(&message).expect("JSON"));
        }
        Err(_) => {}
    }
}
