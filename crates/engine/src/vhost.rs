// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports to a switch, a guest or another program: `virtio_user` and memif devices, whose frames go by memory that both processes
//! map.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::thread::JoinHandle;

use freeway_api::engine::EngineConfig;
use freeway_console::{Exit, Stop};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::SockType;

use crate::listening::is_listened_at;

/// True if another process is to map the engine's memory. It is handed over by at most eight descriptors, so DPDK must not
/// have one for each huge page.
#[must_use]
pub fn is_mapped_by_others(config: &EngineConfig) -> bool {
    let mut devices = config.port.values().filter_map(|port| port.vdev.as_ref());
    devices.any(|vdev| is_virtio_user(vdev) || is_memif(vdev) && says(vdev, "zero-copy=yes"))
}

fn is_virtio_user(vdev: &str) -> bool {
    vdev.starts_with("net_virtio_user") || vdev.starts_with("virtio_user")
}

fn is_memif(vdev: &str) -> bool {
    vdev.starts_with("net_memif")
}

fn says(vdev: &str, word: &str) -> bool {
    vdev.split(',').skip(1).any(|said| said == word)
}

/// A socket at which the engine listens: as a server of `virtio_user` it waits there for its switch, as one of memif for nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    port: String,
    path: PathBuf,
    kind: SockType,
}

/// All of a configuration.
#[must_use]
pub fn listeners(config: &EngineConfig) -> Vec<Listener> {
    let of = |(port, vdev): (&String, &String)| {
        // an abstract socket, which is what memif has unless it is told otherwise, goes with its process
        let memif_serves = is_memif(vdev)
            && (says(vdev, "role=server") || says(vdev, "role=master"))
            && says(vdev, "socket-abstract=no");
        let (key, kind) = match () {
            () if is_virtio_user(vdev) && says(vdev, "server=1") => ("path=", SockType::Stream),
            () if memif_serves => ("socket=", SockType::SeqPacket),
            () => return None,
        };
        let mut words = vdev.split(',').skip(1);
        let path = words.find_map(|word| word.strip_prefix(key))?;
        Some(Listener {
            port: port.clone(),
            path: path.into(),
            kind,
        })
    };
    let ports = config.port.iter();
    let vdevs = ports.filter_map(|(name, port)| port.vdev.as_ref().map(|vdev| (name, vdev)));
    vdevs.filter_map(of).collect()
}

impl Listener {
    /// DPDK does not start until somebody has connected there.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.kind == SockType::Stream
    }

    /// Removes what an engine that was killed has left at its place: DPDK takes none that is there.
    pub fn clear(&self) -> Result<(), Stop> {
        let Self { port, path, kind } = self;
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
        match is_listened_at(path, *kind) {
            Ok(true) => Err(wrong("is another process's; name another path")),
            Ok(false) => fs::remove_file(path)
                .map_err(|error| wrong(&format!("is left over and cannot be removed: {error}"))),
            Err(error) => Err(wrong(&format!("cannot be asked: {error}"))),
        }
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
        for Listener { port, path, .. } in &listeners {
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
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    use freeway_api::engine::EnginePort;
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, UnixAddr, bind, listen, socket};

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
        let memif = "net_memif0,id=7,role=server,socket=/c";
        assert_eq!(at(memif), None, "its socket is abstract");
        let named = format!("{memif},socket-abstract=no");
        assert_eq!(at(&named), Some("/c".into()));
        assert_eq!(at(&named.replace("server", "client")), None);
        let waits = |vdev: &str| listeners(&config(vdev))[0].waits();
        assert_eq!((waits(&named), waits(&served)), (false, true));
        assert!(!is_mapped_by_others(&config(&named)));
        assert!(is_mapped_by_others(&config(&format!(
            "{named},zero-copy=yes"
        ))));
        assert!(is_mapped_by_others(&config(path)));
        assert!(!is_mapped_by_others(&config("net_af_packet0,iface=eth0")));
    }

    #[test]
    fn only_what_is_left_over_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener {
            port: "wan0".into(),
            path: folder.path().join("a.sock"),
            kind: SockType::Stream,
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
        let memif = Listener {
            kind: SockType::SeqPacket,
            ..listener.clone()
        };
        let of = AddressFamily::Unix;
        let other = socket(of, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(other.as_raw_fd(), &UnixAddr::new(&memif.path).unwrap()).unwrap();
        listen(&other, Backlog::new(1).unwrap()).unwrap();
        let refused = memif.clear().unwrap_err().to_string();
        assert!(refused.contains("is another process's"), "{refused}");
        drop(other);
        assert!(memif.clear().is_ok());
        assert!(!memif.path.exists());
        fs::write(&listener.path, "a file").unwrap();
        assert!(words().contains("is no socket"), "{}", words());
        assert!(listener.path.exists());
    }
}
