// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reserve of huge pages.

use std::fs::{self, File};

use nix::fcntl::{Flock, FlockArg};

/// Of 2 MiB.
pub const HUGE_PAGE: usize = 2 << 20;
const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// Huge pages that were reserved for this process, and are given back. One process at a time has some: the reserve is one
/// number of the machine's, which another one would give back beneath it.
#[derive(Debug)]
pub struct Reserve {
    added: usize,
    _turn: Flock<File>,
}

impl Reserve {
    /// Sees to so many free huge pages, once nobody else has some; says what to do where it may not.
    pub fn free(pages: usize) -> Result<Self, String> {
        let file = File::open(RESERVED).map_err(|error| format!("{RESERVED}: {error}"))?;
        let turn = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, error)| format!("{RESERVED}: {error}"))?;
        let there = number(FREE)?;
        if there >= pages {
            return Ok(Self {
                added: 0,
                _turn: turn,
            });
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
            _turn: turn,
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
