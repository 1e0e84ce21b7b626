// SPDX-License-Identifier: MIT OR Apache-2.0
//! Daemons that do not take the engine: one that refuses it, one that stands still.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use freeway_api::engine::{Answer, Said, socket_beside};
use freeway_api::{handover, netns::socket_name};
use freeway_lab::Netns;
use freeway_testkit::engine::{Engine, take_ports};
use freeway_testkit::*;
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, connect, listen, socket,
};

/// Refused, an engine comes again no sooner.
const AGAIN: Duration = Duration::from_secs(1);

/// Where the engine of a namespace looks for its daemon.
fn door(router: &Netns) -> PathBuf {
    let inode = fs::metadata(router.path()).unwrap().ino();
    socket_beside(&Path::new("/run/freeway").join(socket_name(inode)))
}

fn seqpacket() -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap()
}

/// A socket at which an engine looks for its daemon; dropping it leaves none.
struct Door {
    fd: OwnedFd,
    path: PathBuf,
}

impl Door {
    /// At which so many may wait.
    fn open(path: &Path, waiting: i32) -> Door {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(path);
        let fd = seqpacket();
        bind(fd.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        listen(&fd, Backlog::new(waiting).unwrap()).unwrap();
        let path = path.to_owned();
        Door { fd, path }
    }
}

/// A door whose queue is full, and at which nobody answers.
fn stands_still(path: &Path) -> (Door, OwnedFd) {
    let door = Door::open(path, 0);
    let waiting = seqpacket();
    connect(waiting.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    (door, waiting)
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Waits for an engine, refuses it, and says when it came.
fn refuse(door: &Door, why: &str) -> Instant {
    let guest = accept4(door.fd.as_raw_fd(), SockFlag::SOCK_CLOEXEC).unwrap();
    let came = Instant::now();
    // SAFETY: the kernel has just made it.
    let guest = unsafe { OwnedFd::from_raw_fd(guest) };
    let said = handover::receive::<Said>(guest.as_fd()).unwrap().unwrap();
    assert!(matches!(said.0, Said::Hello(_)), "{:?}", said.0);
    handover::send(guest.as_fd(), &Answer::Refused(why.into()), &[]).unwrap();
    came
}

#[test]
fn who_refuses_is_asked_again_later_and_told_once() {
    let Some(_machine) = machine() else { return };
    const TIMES: u32 = 4;
    let lab = build("nat");
    let door_path = door(lab.router());
    let door = Door::open(&door_path, 4);
    let mut engine = Engine::start(&lab, &take_ports(&lab));
    let first = refuse(&door, "of another kind");
    let mut last = first;
    for _ in 1..TIMES {
        last = refuse(&door, "of another kind");
    }
    assert!(
        last - first >= AGAIN * (TIMES - 1),
        "{TIMES} times within {:?}",
        last - first
    );
    // the kernel is the router meanwhile
    let ends = patient(udp_ends(&lab));
    path::send(&ends, address(SERVER), 20);
    // and one that takes it is asked, too
    drop(door);
    let router = Engine::daemon(lab.router(), "", &["lan0", "wan0"]);
    path::until_path(&router, &ends, address(SERVER), "engine");
    router.stop();
    engine.signal(Signal::SIGTERM);
    let status = engine.wait();
    let log = engine.log();
    assert!(status.success(), "{log}");
    let told = log.matches("the daemon refuses: of another kind").count();
    assert_eq!(told, 1, "{log}");
}

#[test]
fn who_stands_still_holds_nothing_up() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let door_path = door(lab.router());
    let still = stands_still(&door_path);
    let mut engine = Engine::start(&lab, &take_ports(&lab));
    let ends = patient(udp_ends(&lab));
    path::send(&ends, address(SERVER), 200);
    drop(still);
    let router = Engine::daemon(lab.router(), "", &["lan0", "wan0"]);
    path::until_path(&router, &ends, address(SERVER), "engine");
    router.stop();
    // another one of them; a signal is heard all the same
    let _still = stands_still(&door_path);
    path::send(&ends, address(SERVER), 200);
    engine.signal(Signal::SIGTERM);
    let status = engine.wait();
    assert!(status.success(), "{status}\n{}", engine.log());
}
