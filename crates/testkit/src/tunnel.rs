// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tunnel between a lab's router and its server, as VPN programs make one: two tun devices whose packets a thread carries.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use freeway_lab::{Lab, Netns};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Name of the device at both ends.
pub const TUN: &str = "tun0";

/// Both ends' devices; dropping it ends the thread and removes them.
pub struct Tunnel {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tunnel {
    /// Opens the devices; addresses and routes are the caller's.
    pub fn open(lab: &Lab) -> Tunnel {
        let ends = [device(lab.router()), device(lab.server())];
        let end = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&end);
        let thread = Some(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                carry(&ends);
            }
        }));
        Tunnel { end, thread }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn device(netns: &Netns) -> File {
    let open = || {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun")?;
        // SAFETY: a structure of plain integers, zeroed.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(TUN.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the kernel reads and writes the structure, which outlives the call.
        let rc = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        if rc < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(file)
    };
    netns.enter(open).unwrap().unwrap()
}

/// Waits a moment for packets, and carries one of each end that has some.
fn carry(ends: &[File; 2]) {
    let mut ready = ends
        .each_ref()
        .map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN));
    if poll(&mut ready, PollTimeout::from(100u8)).is_err() {
        return;
    }
    let mut packet = [0; 65536];
    for (i, fd) in ready.iter().enumerate() {
        if fd.any() == Some(true)
            && let Ok(len) = (&ends[i]).read(&mut packet)
        {
            // one that the other end does not take is lost, as on any network
            let _ = (&ends[1 - i]).write(&packet[..len]);
        }
    }
}
