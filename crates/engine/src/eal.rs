// SPDX-License-Identifier: MIT OR Apache-2.0
//! DPDK's environment abstraction layer: memory, cores, drivers.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use nix::sys::socket::SockType;

use crate::listening::is_listened_at;

unsafe extern "C" {
    fn fwe_eal_start(count: c_int, arguments: *mut *mut c_char) -> c_int;
    fn fwe_eal_end();
    fn fwe_dpdk_version() -> *const c_char;
}

/// DPDK, started. There is one in a process, with a folder of its own below [`RUN_DIR`].
pub struct Eal {
    folder: PathBuf,
}

/// Where DPDK keeps a folder for each process, with the socket of its telemetry.
pub const RUN_DIR: &str = "/var/run/dpdk";

const PREFIX: &str = "freeway-";
/// A folder that is younger may be of a process that starts, of another PID namespace.
const ABANDONED: Duration = Duration::from_secs(60);

fn prefix() -> String {
    format!("{PREFIX}{}", std::process::id())
}

/// This process's.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(RUN_DIR).join(prefix())
}

impl Eal {
    /// Starts DPDK with these arguments, the program's name not among them.
    pub fn start(arguments: &[String]) -> io::Result<Self> {
        let name = prefix();
        let folder = folder();
        sweep(Path::new(RUN_DIR), ABANDONED);
        let own = ["freeway-engine".to_owned(), format!("--file-prefix={name}")];
        let all = own.iter().chain(arguments).map(String::as_str);
        let all = all.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        // DPDK keeps pointers to some of them
        let mut all: Vec<*mut c_char> = all.into_iter().map(CString::into_raw).collect();
        let count = c_int::try_from(all.len()).map_err(io::Error::other)?;
        all.push(std::ptr::null_mut());
        // SAFETY: as main()'s arguments, and they live until the process ends.
        let result = unsafe { fwe_eal_start(count, all.leak().as_mut_ptr()) };
        match result {
            0 => Ok(Self { folder }),
            errno => {
                let _ = fs::remove_dir_all(folder);
                Err(io::Error::from_raw_os_error(-errno))
            }
        }
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        // SAFETY: it was started, and nothing of it is used any more.
        unsafe { fwe_eal_end() };
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes the folders of processes that were killed.
fn sweep(dir: &Path, age: Duration) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        let modified = entry.metadata().and_then(|about| about.modified());
        let is_old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed >= age));
        let is_there = Path::new("/proc").join(pid.to_string()).exists();
        if is_old && !is_there && !answers(&entry.path()) {
            // another one may do the same
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a process has a socket in that folder.
fn answers(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // that of telemetry
    let kind = SockType::SeqPacket;
    let mut there = entries.map(|entry| is_listened_at(&entry.path(), kind));
    there.any(|there| matches!(there, Ok(true)))
}

/// Such as `DPDK 22.11.11`.
#[must_use]
pub fn version() -> String {
    // SAFETY: a constant string.
    unsafe { CStr::from_ptr(fwe_dpdk_version()) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, UnixAddr, bind, listen, socket};

    use super::*;

    #[test]
    fn folders_of_the_killed_are_swept() {
        // beyond the largest PID_MAX
        const NOBODY: u32 = (1 << 22) + 7;
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: String| {
            let folder = dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let dead = folder(format!("{PREFIX}{NOBODY}"));
        fs::write(dead.join("config"), "").unwrap();
        let own = folder(prefix());
        let foreign = folder("rte".into());
        let named = folder(format!("{PREFIX}ovs7"));
        let listening = folder(format!("{PREFIX}{}", NOBODY + 1));
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        let path = listening.join("dpdk_telemetry.v2");
        bind(fd.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&fd, Backlog::new(1).unwrap()).unwrap();
        sweep(dir.path(), ABANDONED);
        assert!(dead.exists(), "too young");
        sweep(dir.path(), Duration::ZERO);
        assert!(!dead.exists());
        for kept in [&own, &foreign, &named, &listening] {
            assert!(kept.exists(), "{}", kept.display());
        }
        drop(fd);
        sweep(dir.path(), Duration::ZERO);
        assert!(!listening.exists());
        sweep(&dir.path().join("nowhere"), Duration::ZERO);
    }
}
