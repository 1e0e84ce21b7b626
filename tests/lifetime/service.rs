// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon as a service of systemd: what it tells the manager that started it, and the journal.
//!
//! Both are sockets of the test's. The manager's has an abstract name in the router's network namespace, the journal's
//! its usual path in a mount namespace of the daemon's.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::thread;
use std::time::Duration;

use freeway_lab::Lab;
use freeway_testkit::*;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(30);
/// Fed at each beat of the engine's, four a second.
const WATCHDOG_USEC: u32 = 400_000;
/// Of the daemon's beats it has three.
const SILENCE: Duration = Duration::from_millis(750);

/// What arrives at a socket, in order.
struct Heard {
    socket: UnixDatagram,
    messages: Vec<String>,
}

impl Heard {
    fn of(socket: UnixDatagram) -> Self {
        socket.set_nonblocking(true).unwrap();
        let messages = Vec::new();
        Self { socket, messages }
    }

    fn look(&mut self) -> &[String] {
        let mut message = vec![0; 1 << 18];
        while let Ok(length) = self.socket.recv(&mut message) {
            let text = String::from_utf8_lossy(&message[..length]);
            self.messages.push(text.into_owned());
        }
        &self.messages
    }

    /// Waits for one from `from` on; where it is.
    #[track_caller]
    fn wait(&mut self, from: usize, what: &str, is: impl Fn(&str) -> bool) -> usize {
        let end = Moment::now() + PATIENCE;
        loop {
            let later = self.look().iter().skip(from);
            if let Some(at) = later.clone().position(|message| is(message)) {
                return from + at;
            }
            assert!(Moment::now() < end, "no {what}: {:#?}", self.messages);
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_for(&mut self, from: usize, message: &str) -> usize {
        self.wait(from, message, |heard| heard == message)
    }
}

struct Service {
    lab: Lab,
    file: tempfile::NamedTempFile,
    /// Where the journal's socket is.
    folder: tempfile::TempDir,
    manager: Heard,
    journal: Heard,
}

impl Service {
    fn new() -> Self {
        let lab = build("nat");
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from_abstract_name("freeway-test/notify").unwrap();
        let manager = lab.router().enter(|| UnixDatagram::bind_addr(&address));
        let journal = UnixDatagram::bind(folder.path().join("socket"));
        let service = Self {
            lab,
            file: tempfile::NamedTempFile::new().unwrap(),
            folder,
            manager: Heard::of(manager.unwrap().unwrap()),
            journal: Heard::of(journal.unwrap()),
        };
        service.write("");
        service
    }

    fn write(&self, extra: &str) {
        let config = format!("{}\n{extra}", self.lab.config_toml(""));
        std::fs::write(self.file.path(), config).unwrap();
    }

    /// As systemd would start it: its standard error is the journal's.
    fn start(&self) -> Router {
        let script = r#"
            keep=$1 journal=$2
            shift 2
            mkdir -p /run/freeway "$keep"
            mount --bind /run/freeway "$keep"
            mount -t tmpfs none /run
            mkdir -p /run/freeway /run/systemd/journal
            mount --bind "$keep" /run/freeway
            mount --bind "$journal" /run/systemd/journal
            export JOURNAL_STREAM WATCHDOG_PID=$$
            JOURNAL_STREAM=$(stat -L -c %d:%i /dev/stderr)
            exec "$@"
        "#;
        let mut program = Command::new("unshare");
        program
            .args(["--mount", "bash", "-euc", script, "bash"])
            .arg(self.folder.path().join("keep"))
            .arg(self.folder.path())
            .arg(freeway_testkit::program("freeway"))
            .arg("run")
            .arg("--config")
            .arg(self.file.path())
            .env("NOTIFY_SOCKET", "@freeway-test/notify")
            .env("WATCHDOG_USEC", WATCHDOG_USEC.to_string())
            .env_remove("FREEWAY_LOG");
        Router::start_program(self.lab.router(), program, |_| true)
    }
}

/// Stops one thread of a process, its first, and no other.
struct Stalled(Pid);

impl Stalled {
    fn new(pid: Pid) -> Self {
        trace(libc::PTRACE_SEIZE, pid);
        trace(libc::PTRACE_INTERRUPT, pid);
        waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
        Self(pid)
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        trace(libc::PTRACE_DETACH, self.0);
    }
}

fn trace(request: libc::c_uint, pid: Pid) {
    // SAFETY: these requests read and write no memory of this process.
    let rc = unsafe { libc::ptrace(request, pid.as_raw(), 0, 0) };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn the_manager_knows_what_the_daemon_does() {
    let Some(_machine) = machine() else { return };
    let mut service = Service::new();
    let mut router = service.start();
    let pid = Pid::from_raw(router.child.id().cast_signed());

    let ready = service.manager.wait_for(0, "READY=1");
    let status = "STATUS=on: 2 of 2 ports fast, 0 flows fast";
    assert_eq!(service.manager.messages[ready - 1], status);
    let before = &service.manager.messages[..ready];
    assert!(!before.contains(&"WATCHDOG=1".to_owned()), "{before:?}");
    service.manager.wait_for(ready, "WATCHDOG=1");

    // one that is applied, and one that is refused
    for extra in ["[flows]\nudp_idle_s = 45\n", "[flows]\nudp_idle_s = 0\n"] {
        let from = service.manager.look().len();
        service.write(extra);
        router.signal(Signal::SIGHUP);
        let manager = &mut service.manager;
        let reloading = manager.wait(from, "RELOADING", |message| {
            message.starts_with("RELOADING=1\nMONOTONIC_USEC=")
        });
        manager.wait_for(reloading, "READY=1");
    }

    // the engine's thread stands still, and the others do not
    let stalled = Stalled::new(pid);
    service.manager.look();
    service.manager.messages.clear();
    thread::sleep(SILENCE);
    assert_eq!(service.manager.look(), [""; 0], "there is no turn");
    drop(stalled);
    service.manager.wait_for(0, "WATCHDOG=1");

    // all of them
    router.signal(Signal::SIGSTOP);
    until("the daemon is stopped", PATIENCE, || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(") T ").then_some(())
    });
    service.manager.look();
    service.manager.messages.clear();
    thread::sleep(SILENCE);
    assert_eq!(service.manager.look(), [""; 0]);
    router.signal(Signal::SIGCONT);
    service.manager.wait_for(0, "WATCHDOG=1");

    // another process is the service, and says nothing before the manager knows it
    service.write("");
    service.manager.look();
    service.manager.messages.clear();
    let manager = &mut service.manager;
    let upgraded = thread::scope(|scope| {
        let upgrade = scope.spawn(|| router.upgrade());
        // few messages wait for who does not read
        while !upgrade.is_finished() {
            manager.look();
            thread::sleep(Duration::from_millis(20));
        }
        upgrade.join().unwrap()
    });
    let main = manager.wait_for(0, &format!("MAINPID={}", upgraded["to"]["pid"]));
    let ready = manager.wait_for(main, "READY=1");
    assert_eq!(manager.messages[ready - 1], status);
    assert_eq!(ready, main + 2, "{:?}", manager.messages);
    manager.wait_for(ready, "WATCHDOG=1");
    assert!(!manager.messages.contains(&"STOPPING=1".to_owned()));

    router.run(&["off"]);
    let off = "STATUS=off: 2 of 2 ports fast, 0 flows fast";
    let off = service.manager.wait_for(0, off);
    router.signal(Signal::SIGTERM);
    assert!(router.wait().success());
    let stopping = service.manager.wait_for(off, "STOPPING=1");
    assert_eq!(service.manager.look().len(), stopping + 1, "it is the last");
}

#[test]
fn log_lines_have_fields_in_the_journal() {
    let Some(_machine) = machine() else { return };
    let mut service = Service::new();
    let mut router = service.start();
    let has = |entry: &str, lines: &[&str]| {
        let there: Vec<_> = entry.lines().collect();
        lines.iter().all(|line| there.contains(line))
    };
    let fast = [
        "MESSAGE=flows through the port may be fast port=wan0",
        "PRIORITY=6",
        "SYSLOG_IDENTIFIER=freeway",
        "PORT=wan0",
    ];
    service.journal.wait(0, "wan0", |entry| has(entry, &fast));
    let config = std::fs::read_to_string(service.file.path()).unwrap();
    let table = "[port.\"wan0\"]\n";
    let kernels = config.replace(table, &format!("{table}path = \"kernel\"\n"));
    std::fs::write(service.file.path(), kernels).unwrap();
    router.signal(Signal::SIGHUP);
    let reason = "the configuration leaves it to the kernel";
    let message = format!("MESSAGE=the port is the kernel's port=wan0 reason={reason}");
    let field = format!("REASON={reason}");
    let kernels = [message.as_str(), "PORT=wan0", field.as_str()];
    service
        .journal
        .wait(0, &field, |entry| has(entry, &kernels));
    router.signal(Signal::SIGTERM);
    assert!(router.wait().success());
    assert_eq!(router.log(), "", "nothing is said twice");
    service.journal.wait(0, "its end", |entry| {
        has(entry, &["MESSAGE=stopped; the kernel forwards everything"])
    });
}
