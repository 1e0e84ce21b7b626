// SPDX-License-Identifier: MIT OR Apache-2.0
//! net.netfilter.nf_conntrack_max, which all namespaces share: raised while labs need it, put back after the last one.
//!
//! Each lab that needs more leaves a note of what it needs and of what was there before any. Whoever removes a note, its
//! own or one of a process that was killed, sets what the others need.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::error::{Context, LabError};
use crate::owner;

const FILE: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// Not the daemon's directory, which may go with its service.
const NOTES: &str = "/run/freeway-lab";

/// A raised limit; dropping it puts it back, unless others need it.
#[derive(Debug)]
pub(crate) struct Raised {
    name: String,
}

/// Lets `run`, a lab of this process, have so many connections. Only the initial namespace may set the limit.
pub(crate) fn raise(run: u32, entries: u32) -> Result<Raised, LabError> {
    let name = owner::netns_name(run, "conntrack-max");
    Limit::machine()
        .raise(&name, entries)
        .context(format!("raise {FILE}"))?;
    Ok(Raised { name })
}

impl Drop for Raised {
    fn drop(&mut self) {
        report(Limit::machine().release(|name, _| name == self.name));
    }
}

/// Takes back what this process has raised.
pub(crate) fn release_own() {
    let own = std::process::id();
    report(Limit::machine().release(|name, _| owner::owner(name) == Some(own)));
}

/// Takes back what processes have raised that are gone.
pub(crate) fn sweep() {
    report(Limit::machine().release(owner::is_stale));
}

fn report(result: io::Result<()>) {
    if let Err(error) = result {
        eprintln!("cannot restore {FILE}: {error}");
    }
}

/// What a lab needs, and what was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    before: u32,
    needs: u32,
}

/// The limit and the notes about it.
#[derive(Debug)]
struct Limit {
    file: PathBuf,
    notes: PathBuf,
}

impl Limit {
    fn machine() -> Self {
        Self {
            file: FILE.into(),
            notes: NOTES.into(),
        }
    }

    fn raise(&self, name: &str, needs: u32) -> io::Result<()> {
        if self.read()? >= needs && !self.notes.exists() {
            return Ok(());
        }
        match fs::create_dir(&self.notes) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let _lock = self.lock()?;
        let now = self.read()?;
        let before = self.all()?.first().map_or(now, |(_, note)| note.before);
        fs::write(self.notes.join(name), format!("{before} {needs}\n"))?;
        if now < needs {
            fs::write(&self.file, needs.to_string())?;
        }
        Ok(())
    }

    /// Removes the notes that `which` names by their names and files.
    fn release(&self, which: impl Fn(&str, &Path) -> bool) -> io::Result<()> {
        if !self.notes.exists() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let (gone, rest): (Vec<_>, Vec<_>) = self
            .all()?
            .into_iter()
            .partition(|(name, _)| which(name, &self.notes.join(name)));
        let Some((_, Note { before, .. })) = gone.first() else {
            return Ok(());
        };
        let needed = |notes: &[(String, Note)]| {
            let needs = notes.iter().map(|(_, note)| note.needs);
            needs.fold(*before, u32::max)
        };
        // what somebody else has set meanwhile stays; a note that cannot be obeyed, too
        if self.read()? == needed(&[&gone[..], &rest].concat()) {
            fs::write(&self.file, needed(&rest).to_string())?;
        }
        gone.iter()
            .try_for_each(|(name, _)| fs::remove_file(self.notes.join(name)))
    }

    fn lock(&self) -> io::Result<Flock<File>> {
        let directory = File::open(&self.notes)?;
        Flock::lock(directory, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
    }

    fn read(&self) -> io::Result<u32> {
        let text = fs::read_to_string(&self.file)?;
        text.trim().parse().map_err(io::Error::other)
    }

    /// All notes that can be read.
    fn all(&self) -> io::Result<Vec<(String, Note)>> {
        let note = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let (before, needs) = text.trim().split_once(' ')?;
            let note = Note {
                before: before.parse().ok()?,
                needs: needs.parse().ok()?,
            };
            Some((entry.file_name().into_string().ok()?, note))
        };
        let entries = fs::read_dir(&self.notes)?;
        Ok(entries.flatten().filter_map(note).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(case: &str) -> (Limit, PathBuf) {
        let directory = std::env::temp_dir().join(format!("fw-{}-{case}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let limit = Limit {
            file: directory.join("max"),
            notes: directory.join("notes"),
        };
        fs::write(&limit.file, "1000\n").unwrap();
        (limit, directory)
    }

    #[test]
    fn the_last_one_puts_it_back() {
        let (limit, directory) = limit("last");
        let release = |wanted| limit.release(|name, _| name == wanted).unwrap();
        limit.raise("none", 1000).unwrap();
        assert!(!limit.notes.exists());
        limit.raise("small", 2000).unwrap();
        limit.raise("large", 3000).unwrap();
        limit.raise("between", 2500).unwrap();
        assert_eq!(limit.read().unwrap(), 3000);
        release("small");
        assert_eq!(limit.read().unwrap(), 3000);
        release("large");
        assert_eq!(limit.read().unwrap(), 2500);
        release("large");
        release("between");
        assert_eq!(limit.read().unwrap(), 1000);
        assert!(limit.all().unwrap().is_empty());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_somebody_else_sets_stays() {
        let (limit, directory) = limit("else");
        limit.raise("lab", 2000).unwrap();
        fs::write(&limit.file, "5000").unwrap();
        limit.release(|_, _| true).unwrap();
        assert_eq!(limit.read().unwrap(), 5000);
        assert!(limit.all().unwrap().is_empty());
        fs::remove_dir_all(directory).unwrap();
    }
}
