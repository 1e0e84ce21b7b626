// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports to a switch or a guest: `virtio_user` devices, whose frames go by memory that both processes map.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use freeway_api::engine::EngineConfig;
use freeway_console::{Exit, Stop};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// True if another process is to map the engine's memory. It is handed over by at most eight descriptors, so DPDK must not
/// have one for each huge page.
#[must_use]
pub fn is_mapped_by_others(config: &EngineConfig) -> bool {
    let mut devices = config.port.values().filter_map(|port| port.vdev.as_ref());
    devices.any(|vdev| is_virtio_user(vdev))
}

fn is_virtio_user(vdev: &str) -> bool {
    vdev.starts_with("net_virtio_user") || vdev.starts_with("virtio_user")
}

/// A socket at which the engine waits for its switch (`server=1`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    port: String,
    path: PathBuf,
}

/// All of a configuration.
#[must_use]
pub fn listeners(config: &EngineConfig) -> Vec<Listener> {
    let of = |(port, vdev): (&String, &String)| {
        let mut words = vdev.split(',').skip(1);
        let server = words.clone().any(|word| word == "server=1");
        let path = words.find_map(|word| word.strip_prefix("path="))?;
        (server && is_virtio_user(vdev)).then(|| Listener {
            port: port.clone(),
            path: path.into(),
        })
    };
    let ports = config.port.iter();
    let vdevs = ports.filter_map(|(name, port)| port.vdev.as_ref().map(|vdev| (name, vdev)));
    vdevs.filter_map(of).collect()
}

impl Listener {
    /// Removes what an engine that was killed has left at its place: DPDK takes none that is there.
    pub fn clear(&self) -> Result<(), Stop> {
        let Self { port, path } = self;
        let wrong = |what: &str| {
            let path = path.display();
            Stop::new(
                Exit::Unavailable,
                format!("engine.port.{port}: {path} {what}"),
            )
        };
        let file = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(wrong(&format!("cannot be read: {error}"))),
            Ok(file) => file,
        };
        if !file.file_type().is_socket() {
            return Err(wrong("is no socket; remove it, or name another path"));
        }
        match is_listened_at(path) {
            Ok(true) => Err(wrong("is another process's; name another path")),
            Ok(false) => fs::remove_file(path)
                .map_err(|error| wrong(&format!("is left over and cannot be removed: {error}"))),
            Err(error) => Err(wrong(&format!("cannot be asked: {error}"))),
        }
    }
}

/// Asked as somebody of another type, who disturbs nobody: a listener's queue does not have him.
fn is_listened_at(path: &Path) -> io::Result<bool> {
    let of = AddressFamily::Unix;
    let asker = socket(of, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    match connect(asker.as_raw_fd(), &UnixAddr::new(path)?) {
        Err(Errno::ECONNREFUSED) => Ok(false),
        Err(Errno::EPROTOTYPE) | Ok(()) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// While DPDK starts, which lasts until each switch has connected, somebody has to look at the signals.
#[derive(Debug)]
pub struct Wait {
    end: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Wait {
    /// Until it is dropped a signal ends the process, which leaves none of these and no folder.
    pub fn start(
        listeners: Vec<Listener>,
        signals: &SignalFd,
        folder: PathBuf,
    ) -> io::Result<Self> {
        let signals = signals.as_fd().try_clone_to_owned()?;
        let (ended, end) = nix::unistd::pipe()?;
        for Listener { port, path } in &listeners {
            let path = path.display();
            eprintln!("freeway-engine: {port} waits for who connects to {path}");
        }
        let look = move || {
            let both = [signals.as_fd(), ended.as_fd()];
            let mut fds = both.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            while poll(&mut fds, PollTimeout::NONE) == Err(Errno::EINTR) {}
            if fds[0].any() != Some(true) || fds[1].any() == Some(true) {
                return;
            }
            for listener in &listeners {
                let _ = fs::remove_file(&listener.path);
            }
            let _ = fs::remove_dir_all(&folder);
            eprintln!("freeway-engine: stopped");
            // SAFETY: ends the process; DPDK, which has not started, has nothing to tidy up.
            unsafe { libc::_exit(0) }
        };
        let thread = std::thread::Builder::new()
            .name("wait".into())
            .spawn(look)?;
        Ok(Self {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use freeway_api::engine::EnginePort;

    use super::*;

    fn config(vdev: &str) -> EngineConfig {
        let port = EnginePort {
            vdev: Some(vdev.into()),
            ..EnginePort::default()
        };
        EngineConfig {
            port: [("wan0".into(), port)].into(),
            ..EngineConfig::default()
        }
    }

    #[test]
    fn sockets_are_those_of_servers() {
        let at = |vdev: &str| {
            let all = listeners(&config(vdev));
            all.first().map(|it| it.path.display().to_string())
        };
        let path = "net_virtio_user0,path=/run/a.sock";
        assert_eq!(at(path), None);
        assert_eq!(at(&format!("{path},server=0")), None);
        let served = format!("{path},queues=1,server=1");
        assert_eq!(at(&served), Some("/run/a.sock".into()));
        assert_eq!(
            at("virtio_user7,server=1,path=/b"),
            Some("/b".into()),
            "its short name"
        );
        assert_eq!(at("net_memif0,server=1,path=/b"), None);
        assert!(is_mapped_by_others(&config(path)));
        assert!(!is_mapped_by_others(&config("net_af_packet0,iface=eth0")));
    }

    #[test]
    fn only_what_is_left_over_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener {
            port: "wan0".into(),
            path: folder.path().join("a.sock"),
        };
        let words = || listener.clear().unwrap_err().to_string();
        assert!(listener.clear().is_ok(), "there is nothing");
        let mut other = UnixListener::bind(&listener.path).unwrap();
        assert!(words().contains("is another process's"), "{}", words());
        // who listens has not been disturbed
        other.set_nonblocking(true).unwrap();
        assert_eq!(
            other.accept().unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "somebody has connected"
        );
        drop(std::mem::replace(
            &mut other,
            UnixListener::bind(folder.path().join("b.sock")).unwrap(),
        ));
        assert!(listener.path.exists());
        assert!(listener.clear().is_ok());
        assert!(!listener.path.exists());
        fs::write(&listener.path, "a file").unwrap();
        assert!(words().contains("is no socket"), "{}", words());
        assert!(listener.path.exists());
    }
}
