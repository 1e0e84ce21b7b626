// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of large tables, on huge pages where there are, and the reserve of huge pages.

use std::fs;
use std::io;
use std::ptr::{self, NonNull};

/// Of 2 MiB.
pub const HUGE_PAGE: usize = 2 << 20;
const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// What a table lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 2 MiB.
    Huge,
    /// 4 KiB, as a BPF array that is mapped.
    Small,
}

/// Memory that is all 0 at first.
#[derive(Debug)]
pub struct Memory {
    at: NonNull<u8>,
    length: usize,
}

// SAFETY: plain memory, which belongs to this alone.
unsafe impl Send for Memory {}

impl Memory {
    /// So many octets on pages of that size.
    pub fn new(length: usize, pages: Pages) -> io::Result<Self> {
        let length = length.next_multiple_of(HUGE_PAGE);
        let huge = match pages {
            Pages::Huge => libc::MAP_HUGETLB | libc::MAP_POPULATE,
            Pages::Small => 0,
        };
        // SAFETY: a new mapping, at no fixed address.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if pages == Pages::Small {
            // SAFETY: advice on the mapping that was made above; without it the kernel might merge pages.
            unsafe { libc::madvise(at, length, libc::MADV_NOHUGEPAGE) };
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, length })
    }

    /// As an array of `T`, which is as valid as all zeros are.
    #[must_use]
    pub fn cast<T>(&self) -> *mut T {
        self.at.as_ptr().cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by new() and unmapped once.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.length) };
    }
}

/// Huge pages that were reserved for this process, and are given back.
#[derive(Debug, Default)]
pub struct Reserve {
    added: usize,
}

impl Reserve {
    /// Sees to so many free huge pages; says what to do where it may not.
    pub fn free(pages: usize) -> Result<Self, String> {
        let there = number(FREE)?;
        if there >= pages {
            return Ok(Self::default());
        }
        let before = number(RESERVED)?;
        let wanted = before + pages - there;
        let advice = || {
            format!(
                "{pages} huge pages of 2 MiB are needed and {there} are free: `echo {wanted} > {RESERVED}` as root reserves them"
            )
        };
        fs::write(RESERVED, wanted.to_string()).map_err(|_| advice())?;
        let reserve = Self {
            added: number(RESERVED)?.saturating_sub(before),
        };
        match number(FREE)? >= pages {
            true => Ok(reserve),
            false => Err(format!("{}, were there so much memory", advice())),
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if self.added > 0 {
            let left = number(RESERVED).unwrap_or(0).saturating_sub(self.added);
            // nothing else could be done about it
            let _ = fs::write(RESERVED, left.to_string());
        }
    }
}

fn number(path: &str) -> Result<usize, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    text.trim()
        .parse()
        .map_err(|_| format!("{path} is no number: {}", text.trim()))
}
