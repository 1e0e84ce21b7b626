// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF arrays that the daemon has given, mapped here as there (`BPF_F_MMAPABLE`, bpf(2)).

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

const PAGE_BYTES: usize = 4096;

/// Memory that is the value's.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value; what is in it is read and written by other processes, too.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Of a descriptor, shared with whoever else has it; or fresh.
    pub fn new(fd: Option<&OwnedFd>, bytes: usize) -> io::Result<Self> {
        Self::with(fd, bytes, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Of a descriptor, not to be written here.
    pub fn to_read(fd: &OwnedFd, bytes: usize) -> io::Result<Self> {
        Self::with(Some(fd), bytes, libc::PROT_READ)
    }

    fn with(fd: Option<&OwnedFd>, bytes: usize, rights: libc::c_int) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let (flags, fd) = match fd {
            Some(fd) => (libc::MAP_SHARED, fd.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: a fresh mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, fd, 0) };
        match NonNull::new(base).filter(|base| base.as_ptr() != libc::MAP_FAILED) {
            Some(base) => Ok(Self { base, bytes }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Where it begins.
    pub fn at<T>(&self) -> *mut T {
        self.base.as_ptr().cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in new(), and nobody uses it any more.
        unsafe { libc::munmap(self.base.as_ptr(), self.bytes) };
    }
}
