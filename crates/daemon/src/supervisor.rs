// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon tells the service manager that has started it: sd_notify(3), one datagram a message.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

const STARTING: u8 = 0;
const READY: u8 = 1;
const STOPPING: u8 = 2;

/// A service manager, or none. Copies tell the same one.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Option<Arc<Link>>);

#[derive(Debug)]
struct Link {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How long the daemon may keep silent.
    patience: Option<Duration>,
    /// What it was told last of the service's state.
    state: AtomicU8,
}

impl Supervisor {
    /// The one that the environment names, if there is one.
    pub fn of_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
            return Self::default();
        };
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let patience = number("WATCHDOG_USEC").filter(|us| meant && *us > 0);
        match Self::at(&name, patience.map(Duration::from_micros)) {
            Ok(supervisor) => supervisor,
            Err(error) => {
                tracing::warn!("the service manager is told nothing: {error}");
                Self::default()
            }
        }
    }

    /// `name`: a path, or @ and a name of the abstract namespace.
    fn at(name: &OsStr, patience: Option<Duration>) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(name),
        }?;
        let socket = UnixDatagram::unbound()?;
        // a manager that does not read must not hold up the packets
        socket.set_nonblocking(true)?;
        Ok(Self(Some(Arc::new(Link {
            socket,
            address,
            patience,
            state: AtomicU8::new(STARTING),
        }))))
    }

    /// True if somebody is told.
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// How long the daemon may keep silent, if somebody watches.
    pub fn patience(&self) -> Option<Duration> {
        self.0.as_ref()?.patience
    }

    /// The service does what it is for.
    pub fn ready(&self) {
        self.enter(READY, "READY=1");
    }

    /// The configuration is being read again.
    pub fn reloading(&self) {
        if self.is(READY) {
            // by which the manager tells this reload from one before
            let since = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Into::into);
            self.tell(&format!(
                "RELOADING=1\nMONOTONIC_USEC={}",
                since.as_micros()
            ));
        }
    }

    /// It was, and holds or not.
    pub fn reloaded(&self) {
        if self.is(READY) {
            self.tell("READY=1");
        }
    }

    /// The service ends.
    pub fn stopping(&self) {
        self.enter(STOPPING, "STOPPING=1");
    }

    /// Another process is the service's from now on.
    pub fn hand_over(&self, pid: u32) {
        self.enter(STOPPING, &format!("MAINPID={pid}"));
    }

    /// What the service does, in one line.
    pub fn status(&self, line: &str) {
        self.tell(&format!("STATUS={line}"));
    }

    /// The start goes on, and takes so long at most from now on.
    pub fn extend(&self, time: Duration) {
        self.tell(&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()));
    }

    /// The service lives.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn is(&self, state: u8) -> bool {
        let link = self.0.as_ref();
        link.is_some_and(|link| link.state.load(Ordering::Relaxed) == state)
    }

    fn enter(&self, state: u8, message: &str) {
        if let Some(link) = &self.0 {
            link.state.store(state, Ordering::Relaxed);
            self.tell(message);
        }
    }

    fn tell(&self, message: &str) {
        let Some(link) = &self.0 else { return };
        let sent = link.socket.send_to_addr(message.as_bytes(), &link.address);
        if let Err(error) = sent {
            tracing::debug!("telling the service manager: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    }

    #[test]
    fn paths_and_abstract_names_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("freeway-supervisor-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&address).unwrap(),
                format!("@{name}").into(),
            ),
        ] {
            let supervisor = Supervisor::at(&name, None).unwrap();
            supervisor.reloading();
            supervisor.status("starting");
            assert_eq!(heard(&socket), "STATUS=starting", "none before it is ready");
            supervisor.ready();
            assert_eq!(heard(&socket), "READY=1");
            supervisor.reloading();
            let reloading = heard(&socket);
            let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
            assert!(since.unwrap().parse::<u64>().unwrap() > 0, "{reloading}");
            supervisor.reloaded();
            assert_eq!(heard(&socket), "READY=1");
            supervisor.stopping();
            assert_eq!(heard(&socket), "STOPPING=1");
            supervisor.reloaded();
            supervisor.alive();
            assert_eq!(heard(&socket), "WATCHDOG=1", "it does not get ready again");
        }
    }

    #[test]
    fn a_manager_that_has_gone_or_does_not_read_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let deaf = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor::at(path.as_os_str(), None).unwrap();
        for _ in 0..10_000 {
            supervisor.alive();
        }
        drop(deaf);
        supervisor.alive();
        assert!(Supervisor::at(OsStr::new(&"x".repeat(200)), None).is_err());
    }
}
