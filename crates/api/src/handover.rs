// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between daemon and engine, with descriptors (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::MESSAGE_MAX;

/// Descriptors of a message, at most: `SCM_MAX_FD` of include/net/scm.h.
pub const FDS_MAX: usize = 253;

/// Sends a message.
pub fn send(socket: BorrowedFd<'_>, message: &impl Serialize, fds: &[RawFd]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let rights = [ControlMessage::ScmRights(fds)];
    let rights: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL;
    let sent = sendmsg::<UnixAddr>(
        socket.as_raw_fd(),
        &[IoSlice::new(&text)],
        rights,
        flags,
        None,
    )?;
    match sent == text.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Waits for a message, as long as the socket's timeout says; `None`: the other end has gone. One that cannot be read is an
/// error.
pub fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut text = vec![0; MESSAGE_MAX];
    let mut room = nix::cmsg_space!([RawFd; FDS_MAX]);
    let mut parts = [IoSliceMut::new(&mut text)];
    let message = loop {
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut parts, Some(&mut room), flags) {
            Err(nix::Error::EINTR) => {}
            Err(nix::Error::ECONNRESET) => return Ok(None),
            result => break result?,
        }
    };
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just made them for this process.
            fds.extend(
                received
                    .into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    let too_long = MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC;
    if message.flags.intersects(too_long) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of more than {MESSAGE_MAX} bytes"),
        ));
    }
    let len = message.bytes;
    if len == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(text.get(..len).unwrap_or_default())?;
    Ok(Some((message, fds)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::{AsFd, AsRawFd};

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let kind = SockType::SeqPacket;
        socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    #[test]
    fn a_descriptor_comes_along() {
        let (one, other) = pair();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"table").unwrap();
        send(one.as_fd(), &"take it", &[file.as_raw_fd()]).unwrap();
        let (words, fds): (String, _) = receive(other.as_fd()).unwrap().unwrap();
        assert_eq!((words.as_str(), fds.len()), ("take it", 1));
        let mut file = File::from(fds.into_iter().next().unwrap());
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "table");
        drop(one);
        assert!(receive::<String>(other.as_fd()).unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let (one, other) = pair();
        for bytes in [vec![b'{'], vec![b' '; MESSAGE_MAX + 1]] {
            nix::unistd::write(&one, &bytes).unwrap();
            assert!(receive::<String>(other.as_fd()).is_err());
        }
    }
}
