// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose a namespace is, by its name.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Names are `fw-PID-RUN-HOST`.
const PREFIX: &str = "fw-";

/// The name of a host's namespace in the `run`th lab of this process.
pub(crate) fn netns_name(run: u32, host: &str) -> String {
    format!("{PREFIX}{}-{run}-{host}", std::process::id())
}

/// The process that a namespace belongs to, by its name.
pub(crate) fn owner(name: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    pid.parse().ok()
}

/// Whether the process that made the file `path` is still there: it lives, and is older than the file.
fn owner_lives(pid: u32, path: &Path) -> bool {
    let Some(started) = process_started(pid) else {
        return false;
    };
    let created = fs::metadata(path)
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    // Both clocks are coarse, and the wall clock may be stepped: doubt keeps the namespace.
    created.is_none_or(|created| started <= created + Duration::from_secs(5))
}

/// Whether `path`, which has the name of a namespace of a lab, was left behind by a process that is gone.
pub(crate) fn is_stale(name: &str, path: &Path) -> bool {
    owner(name).is_some_and(|pid| !owner_lives(pid, path))
}

/// The wall clock time of a process's start, or nothing if it does not live.
fn process_started(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and brackets; fields count from its last bracket.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next(), Some("Z" | "X")) {
        return None;
    }
    let ticks: u64 = fields.nth(18)?.parse().ok()?;
    let boot: u64 = fs::read_to_string("/proc/stat")
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    // SAFETY: sysconf takes no pointers.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) })
        .ok()?
        .max(1);
    Some(Duration::from_secs(boot) + Duration::from_millis(ticks * 1000 / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_owner() {
        assert_eq!(owner(&netns_name(3, "router")), Some(std::process::id()));
        assert_eq!(owner("fw-12x-0-router"), None);
        assert_eq!(owner("fw-12"), None);
        assert_eq!(owner("blue"), None);
    }

    #[test]
    fn a_living_owner_is_recognised() {
        let now = std::env::temp_dir().join(format!("fw-sweep-{}", std::process::id()));
        fs::write(&now, "").unwrap();
        assert!(owner_lives(std::process::id(), &now));
        assert!(!owner_lives(u32::MAX, &now));
        // A file far older than the process of that number belonged to another one.
        let file = fs::File::options().write(true).open(&now).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1))
            .unwrap();
        assert!(!owner_lives(std::process::id(), &now));
        fs::remove_file(&now).unwrap();
    }
}
