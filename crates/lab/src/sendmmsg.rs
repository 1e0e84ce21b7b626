// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that leave through a packet socket, many by one system call.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::capture::wait;

/// Frames of one system call, at most.
pub(crate) const BATCH: usize = 64;
/// Pieces of a frame.
const PIECES: usize = 2;
/// A socket that takes nothing for so long is broken.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sends at most [`BATCH`] frames, each of two pieces in a row, and says for how many there was no room: of a frame that is not
/// the first of a system call the kernel does not say so, and it is tried again as the first of the next.
pub(crate) fn send_all<'a>(
    socket: &OwnedFd,
    frames: impl Iterator<Item = [&'a [u8]; PIECES]>,
) -> io::Result<u64> {
    const NOTHING: libc::iovec = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    let mut vectors = [[NOTHING; PIECES]; BATCH];
    // SAFETY: all zeroes are valid: no name, no vectors, no control data.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    let places = messages.iter_mut().zip(&mut vectors);
    for ((message, vectors), pieces) in places.zip(frames) {
        for (vector, piece) in vectors.iter_mut().zip(pieces) {
            vector.iov_base = piece.as_ptr().cast_mut().cast();
            vector.iov_len = piece.len();
        }
        message.msg_hdr.msg_iov = vectors.as_mut_ptr();
        message.msg_hdr.msg_iovlen = PIECES as _;
        count += 1;
    }
    let (mut done, mut refused) = (0, 0);
    let mut stuck = None;
    while done < count {
        let left = &mut messages[done..count];
        // SAFETY: messages, vectors and frames outlive the call, which reads the frames only.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                left.as_mut_ptr(),
                left.len() as libc::c_uint,
                0,
            )
        };
        if sent > 0 {
            done += sent as usize;
            stuck = None;
            continue;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOBUFS) => {
                // dropped on its way, and counted as sent
                done += 1;
                refused += 1;
            }
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => {
                let until = *stuck.get_or_insert_with(|| Instant::now() + PATIENCE);
                if Instant::now() >= until {
                    return Err(error);
                }
                wait(socket, libc::POLLOUT, until)?;
            }
            _ => return Err(error),
        }
    }
    Ok(refused)
}
