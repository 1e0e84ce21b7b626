// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory by the size of its pages.

use std::io;
use std::ptr::{NonNull, copy_nonoverlapping, null_mut};

use serde::{Deserialize, Serialize};

/// 2 MiB.
const HUGE: usize = 2 << 20;

/// The size of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Pages {
    /// 4 KiB, never merged.
    #[serde(rename = "4k")]
    Small,
    /// 2 MiB, of those that are reserved.
    #[serde(rename = "2m")]
    Huge,
}

impl Pages {
    /// `4 KiB` or `2 MiB`.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Small => "4 KiB",
            Self::Huge => "2 MiB",
        }
    }
}

/// A mapping of one's own.
pub struct Memory {
    at: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    /// So many bytes, rounded up to pages, all there and zero.
    pub fn new(pages: Pages, bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(HUGE);
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if pages == Pages::Huge {
            flags |= libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever there is room.
        let at = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if pages == Pages::Small {
            // SAFETY: the mapping is this one's.
            unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
        }
        // SAFETY: as above; pages that were never written would all be the same one.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) };
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, bytes })
    }

    /// A copy.
    pub fn of(pages: Pages, content: &[u8]) -> io::Result<Self> {
        let memory = Self::new(pages, content.len())?;
        // SAFETY: it is at least so long.
        unsafe { copy_nonoverlapping(content.as_ptr(), memory.at.as_ptr(), content.len()) };
        Ok(memory)
    }

    /// Where it begins.
    #[must_use]
    pub fn at(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// How long it is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by new().
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
