// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock file, held by flock(2) and gone with its holder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// A lock that is held. The file goes when it is dropped; after a kill the kernel lets go and the file may be reused.
#[derive(Debug)]
pub struct Lock {
    held: Flock<File>,
    path: PathBuf,
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Someone holds it: their process, if it is known.
    Held(Option<u32>),
    /// The file could not be used.
    Io(io::Error),
}

impl Lock {
    /// Takes the lock without waiting.
    pub fn take(path: &Path) -> Result<Lock, LockError> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)
                .map_err(LockError::Io)?;
            let mut held = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(held) => held,
                Err((mut file, Errno::EWOULDBLOCK)) => {
                    let mut text = String::new();
                    let _ = file.read_to_string(&mut text);
                    return Err(LockError::Held(text.trim().parse().ok()));
                }
                Err((_, errno)) => return Err(LockError::Io(errno.into())),
            };
            // The previous holder may have removed the file between open and lock: then this is a lock on nothing.
            let same =
                |disk: fs::Metadata| held.metadata().is_ok_and(|own| own.ino() == disk.ino());
            if !fs::metadata(path).is_ok_and(same) {
                continue;
            }
            sign(&mut held).map_err(LockError::Io)?;
            return Ok(Lock {
                held,
                path: path.to_path_buf(),
            });
        }
    }

    /// The lock that another process holds by the same open file, and leaves.
    pub fn adopt(path: &Path, file: OwnedFd) -> Result<Lock, LockError> {
        let held = Flock::lock(File::from(file), FlockArg::LockExclusiveNonblock);
        let mut held = held.map_err(|(_, errno)| LockError::Io(errno.into()))?;
        sign(&mut held).map_err(LockError::Io)?;
        Ok(Lock {
            held,
            path: path.to_path_buf(),
        })
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }
}

/// Writes who holds it.
fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked here, so nobody else's file is removed.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.lock");
        let first = Lock::take(&path).unwrap();
        match Lock::take(&path) {
            Err(LockError::Held(pid)) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        assert!(!path.exists());
        // A file that a killed holder left is no lock.
        fs::write(&path, "1\n").unwrap();
        assert!(Lock::take(&path).is_ok());
    }
}
