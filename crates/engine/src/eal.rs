// SPDX-License-Identifier: MIT OR Apache-2.0
//! DPDK's environment abstraction layer: memory, cores, drivers.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::{fs, io};

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

fn prefix() -> String {
    format!("freeway-{}", std::process::id())
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

/// Such as `DPDK 22.11.11`.
#[must_use]
pub fn version() -> String {
    // SAFETY: a constant string.
    unsafe { CStr::from_ptr(fwe_dpdk_version()) }
        .to_string_lossy()
        .into_owned()
}
