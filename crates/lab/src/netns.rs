// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named network namespaces, visible to `ip netns`, entered with setns(2).
//!
//! `ip netns exec` is not used: it mounts a new /sys, in which pinned BPF objects are missing.

use std::ffi::CString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::{io, panic, thread};

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::gettid;

use crate::command;
use crate::error::{Context, LabError};

/// Where iproute2 keeps the names of namespaces.
pub(crate) const NETNS_DIR: &str = "/run/netns";

/// The main thread's own namespace, and what messages call it.
const OWN: &str = "/proc/self/ns/net";
const OWN_NAME: &str = "this network namespace";

/// A named network namespace, or the process's own. It holds the name only, so that a clone keeps nothing alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netns {
    name: String,
    file: PathBuf,
}

impl Netns {
    /// The namespace called `name`, which need not exist yet.
    pub fn named(name: impl Into<String>) -> Self {
        let name = name.into();
        let file = PathBuf::from(NETNS_DIR).join(&name);
        Self { name, file }
    }

    /// The one that this process is in.
    pub fn own() -> Self {
        Self {
            name: OWN_NAME.into(),
            file: OWN.into(),
        }
    }

    /// The name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for the namespace, for `nsenter --net=PATH`.
    pub fn path(&self) -> PathBuf {
        self.file.clone()
    }

    fn open(&self) -> Result<File, LabError> {
        File::open(self.path()).context(format!("open network namespace {}", self.name))
    }

    /// Runs `work` in a new namespace without a name, which is there for as long as the file is open.
    pub(crate) fn unshared<T: Send>(
        work: impl FnOnce(&Netns) -> Result<T, LabError> + Send,
    ) -> Result<(T, File), LabError> {
        let inside = || {
            unshare(CloneFlags::CLONE_NEWNET).context("create a network namespace")?;
            let netns = Netns {
                name: "a namespace without a name".into(),
                file: format!("/proc/self/task/{}/ns/net", gettid()).into(),
            };
            Ok((work(&netns)?, netns.open()?))
        };
        thread::scope(|scope| {
            let thread = scope.spawn(inside);
            thread
                .join()
                .unwrap_or_else(|cause| panic::resume_unwind(cause))
        })
    }

    /// Tells it from all others that exist.
    pub(crate) fn inode(&self) -> Result<u64, LabError> {
        let about = self.open()?.metadata();
        let about = about.context(format!("look at network namespace {}", self.name))?;
        Ok(about.ino())
    }

    /// Runs `work` in a thread of its own inside the namespace and returns its result.
    ///
    /// Read /proc/thread-self/net there, for /proc/net is the main thread's.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let file = self.open()?;
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?;
                Ok(work())
            });
            inside
                .join()
                .unwrap_or_else(|cause| panic::resume_unwind(cause))
        })
        .map_err(|errno: nix::errno::Errno| LabError::Io {
            what: format!("enter network namespace {}", self.name),
            source: errno.into(),
        })
    }

    /// Makes `command` run inside the namespace when it is started, once or often.
    pub fn place<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command, LabError> {
        let file = self.open()?;
        let inside = move || setns(file.as_fd(), CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
        Ok(unsafe { command.pre_exec(inside) })
    }

    /// Runs a command inside to its end; its output is captured, and failing is an error.
    pub fn run(&self, command: &mut Command) -> Result<Output, LabError> {
        command::run(self.place(command)?)
    }

    /// Starts a command inside. Whatever still runs when the lab goes is ended with it.
    pub fn spawn(&self, command: &mut Command) -> Result<Child, LabError> {
        let child = self.place(command)?.spawn();
        child.context(format!("start `{}`", command::line(command)))
    }

    /// Runs a command line inside, without a shell, and returns its standard output.
    pub fn tool(&self, line: &str) -> Result<String, LabError> {
        let output = self.run(&mut command::parse(line)?)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Like [`Netns::tool`], with `input` on standard input.
    pub fn tool_with_input(&self, line: &str, input: &str) -> Result<String, LabError> {
        let mut command = command::parse(line)?;
        let output = command::run_with_input(self.place(&mut command)?, input)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sets a sysctl given as a path below /proc/sys, such as `net/ipv4/ip_forward`.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<(), LabError> {
        let file = format!("/proc/sys/{path}");
        self.enter(|| fs::write(&file, value))?
            .context(format!("write {value} to {file} in {}", self.name))
    }

    /// Whether netfilter's IP hooks see what is bridged; false where the kernel has no such switch.
    pub fn show_bridged(&self, on: bool) -> bool {
        let switched = ["", "6"].map(|family| {
            let path = format!("net/bridge/bridge-nf-call-ip{family}tables");
            self.sysctl(&path, if on { "1" } else { "0" }).is_ok()
        });
        switched.contains(&true)
    }

    /// The index of an interface of the namespace.
    pub fn ifindex(&self, interface: &str) -> Result<u32, LabError> {
        let what = format!("find interface {interface} in {}", self.name);
        let c_name = CString::new(interface)
            .map_err(|_| LabError::Invalid(format!("not an interface name: {interface:?}")))?;
        // SAFETY: if_nametoindex reads a terminated string that outlives the call.
        self.enter(|| match unsafe { libc::if_nametoindex(c_name.as_ptr()) } {
            0 => Err(io::Error::last_os_error()),
            index => Ok(index),
        })?
        .context(what)
    }

    /// The MTU of an interface of the namespace, bytes of L3.
    pub(crate) fn mtu(&self, interface: &str) -> Result<u32, LabError> {
        let what = format!("read the MTU of {interface} in {}", self.name);
        self.enter(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            // SAFETY: all zeroes are a valid ifreq: an empty name.
            let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
            let room = request.ifr_name.len() - 1;
            for (place, byte) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
                *place = byte as libc::c_char;
            }
            // SAFETY: the request outlives the call, and its name ends with a zero.
            match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) } {
                // SAFETY: the kernel has just written this member.
                0 => Ok(unsafe { request.ifr_ifru.ifru_mtu }.cast_unsigned()),
                _ => Err(io::Error::last_os_error()),
            }
        })?
        .context(what)
    }

    /// Processes whose main thread is inside, without the calling process.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let Ok(identity) = fs::metadata(self.path()).map(|meta| meta.ino()) else {
            return Vec::new();
        };
        let own = std::process::id().cast_signed();
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| *pid != own)
            .filter(|pid| {
                fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|meta| meta.ino() == identity)
            })
            .collect()
    }

    pub(crate) fn create(&self) -> Result<(), LabError> {
        command::run(Command::new("ip").args(["netns", "add", &self.name])).map(drop)
    }

    pub(crate) fn delete(&self) -> Result<(), LabError> {
        command::run(
            Command::new("ip")
                .args(["netns", "delete", &self.name])
                .stdin(Stdio::null()),
        )
        .map(drop)
    }
}
