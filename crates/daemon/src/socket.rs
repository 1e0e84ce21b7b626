// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket: one for each network namespace, for root and one group.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use freeway_api::netns;
use freeway_console::Stop;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Group, chown};

use super::lock::{Lock, LockError};

/// Its members may use the control socket.
const GROUP: &str = "freeway";
/// Owner and group may connect.
const MODE: u32 = 0o660;

/// A bound control socket and the locks behind it; dropping it removes all.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    // Fields are dropped in order: the locks go after the socket.
    locks: Vec<Lock>,
}

impl ControlSocket {
    /// Binds the socket at `path`, or the default one of this network namespace.
    pub fn open(path: Option<&Path>) -> Result<ControlSocket, Stop> {
        let (path, locks) = places(path)?;
        make_run_dir()?;
        let locks: Vec<&Path> = locks.iter().map(PathBuf::as_path).collect();
        Self::bind(&path, &locks)
    }

    /// Where it is to be: at `path`, or the default one.
    pub fn place(path: Option<&Path>) -> Result<PathBuf, Stop> {
        Ok(places(path)?.0)
    }

    /// The socket at `path`, as the daemon has bound it that hands over, and its locks.
    pub fn adopt(
        path: Option<&Path>,
        listener: OwnedFd,
        locks: Vec<OwnedFd>,
    ) -> Result<ControlSocket, Stop> {
        let (path, names) = places(path)?;
        let locks = names.iter().zip(locks).map(|(name, file)| {
            Lock::adopt(name, file).map_err(|error| refused(&error, name, &path))
        });
        Ok(ControlSocket {
            listener: listener.into(),
            locks: locks.collect::<Result<_, _>>()?,
            path,
        })
    }

    /// Takes the locks, replaces a stale socket and binds.
    pub fn bind(path: &Path, locks: &[&Path]) -> Result<ControlSocket, Stop> {
        let locks = locks
            .iter()
            .map(|lock| take(lock, path))
            .collect::<Result<Vec<_>, _>>()?;
        let failed = |what: &str, error: io::Error| {
            Stop::failure(format!(
                "cannot {what} control socket {}: {error}",
                path.display()
            ))
        };
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => {
                fs::remove_file(path).map_err(|error| failed("replace the stale", error))?;
            }
            Ok(_) => {
                return Err(Stop::failure(format!(
                    "cannot bind control socket {}: something else has this name; choose another with --socket",
                    path.display()
                )));
            }
            Err(_) => {}
        }
        let listener = listen_at(path).map_err(|error| failed("bind", error))?;
        let socket = ControlSocket {
            listener,
            path: path.to_path_buf(),
            locks,
        };
        share(path).map_err(|error| failed("set the permissions of", error))?;
        Ok(socket)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listener, for a server; names and locks stay here.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// Descriptors of the locks.
    pub fn locks(&self) -> io::Result<Vec<OwnedFd>> {
        let locks = self.locks.iter();
        locks
            .map(|lock| lock.as_fd().try_clone_to_owned())
            .collect()
    }

    /// Leaves names and locks to a process that has them, too.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Someone may have tidied /run; there is nothing to do about it here.
        let _ = fs::remove_file(&self.path);
    }
}

fn make_run_dir() -> Result<(), Stop> {
    match fs::create_dir(netns::RUN_DIR) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Stop::failure(format!(
            "cannot create {}: {error}",
            netns::RUN_DIR
        ))),
        _ => Ok(()),
    }
}

fn lock_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Where the socket is, and what is locked for it.
fn places(path: Option<&Path>) -> Result<(PathBuf, Vec<PathBuf>), Stop> {
    let proc = |error| {
        Stop::failure(format!(
            "cannot identify this network namespace: {error}; mount /proc"
        ))
    };
    let namespace = netns::lock_path().map_err(proc)?;
    Ok(match path {
        Some(path) => (path.to_path_buf(), vec![namespace, lock_beside(path)]),
        None => (netns::default_socket().map_err(proc)?, vec![namespace]),
    })
}

fn take(lock: &Path, socket: &Path) -> Result<Lock, Stop> {
    Lock::take(lock).map_err(|error| refused(&error, lock, socket))
}

fn refused(error: &LockError, lock: &Path, socket: &Path) -> Stop {
    match error {
        LockError::Held(pid) => {
            let pid = pid.map_or(String::new(), |pid| format!(" (process {pid})"));
            let what = if lock == lock_beside(socket) {
                format!("uses control socket {}", socket.display())
            } else {
                "serves this network namespace".to_owned()
            };
            Stop::failure(format!("another daemon{pid} {what}; stop it first"))
        }
        LockError::Io(error) => {
            Stop::failure(format!("cannot take lock {}: {error}", lock.display()))
        }
    }
}

/// The socket is nobody's but the owner's until its group is set.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let fd = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        None,
    )?;
    // The mode of the file is that of the descriptor (unix_bind_bsd).
    fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&fd, Backlog::new(64)?)?;
    Ok(fd.into())
}

fn share(path: &Path) -> io::Result<()> {
    if let Ok(Some(group)) = Group::from_name(GROUP) {
        chown(path, None, Some(group.gid))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn only_owner_and_group_may_connect() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let socket = ControlSocket::bind(&path, &[&lock_beside(&path)]).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o660);
        assert!(meta.file_type().is_socket());
        drop(socket);
        assert!(
            fs::read_dir(dir.path()).unwrap().next().is_none(),
            "something is left behind"
        );
    }

    #[test]
    fn a_second_daemon_is_refused_and_a_stale_socket_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a killed daemon's socket");
        let lock = lock_beside(&path);
        let _first = ControlSocket::bind(&path, &[&lock]).unwrap();
        let second = ControlSocket::bind(&path, &[&lock])
            .unwrap_err()
            .to_string();
        assert!(
            second.contains(&format!("process {}", std::process::id())),
            "{second}"
        );
        assert!(path.exists(), "the first one's socket is untouched");
    }

    #[test]
    fn other_files_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "x").unwrap();
        assert!(ControlSocket::bind(&path, &[]).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }
}
