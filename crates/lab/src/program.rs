// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a BPF program runs, as the kernel counts it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libbpf_sys::{
    BPF_STATS_RUN_TIME, bpf_enable_stats, bpf_prog_get_fd_by_id, bpf_prog_get_info_by_fd,
    bpf_prog_info, bpf_xdp_query_id,
};

use crate::attach::returned;
use crate::error::{Context, LabError};
use crate::port::Port;

/// While it lives, the kernel counts how long programs run: kernel.bpf_stats_enabled for as long as a descriptor is
/// open, so that nothing has to be restored.
#[derive(Debug)]
pub struct Counting {
    _fd: OwnedFd,
}

impl Counting {
    /// Begins.
    pub fn begin() -> Result<Self, LabError> {
        // SAFETY: no pointers.
        let fd = unsafe { bpf_enable_stats(BPF_STATS_RUN_TIME) };
        let fd = returned(fd).context("count the run time of BPF programs")?;
        Ok(Self { _fd: fd })
    }
}

/// What the kernel has counted of a program since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Nanoseconds, of which some are the counting's own.
    pub ns: u64,
    /// Runs.
    pub count: u64,
}

impl RunTime {
    /// What came since an earlier reading.
    pub fn since(self, earlier: RunTime) -> RunTime {
        RunTime {
            ns: self.ns - earlier.ns,
            count: self.count - earlier.count,
        }
    }

    /// Of a run, nanoseconds; NaN of none.
    pub fn mean_ns(self) -> f64 {
        self.ns as f64 / self.count as f64
    }
}

/// A program's descriptor.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// The XDP program of a port, if it has one.
    pub fn xdp(port: &Port) -> Result<Option<Self>, LabError> {
        let ifindex = port.ifindex.cast_signed();
        let found = port.netns.enter(|| {
            let mut id = 0;
            // SAFETY: `id` outlives the call.
            let rc = unsafe { bpf_xdp_query_id(ifindex, 0, &raw mut id) };
            match rc {
                0 => Ok(id),
                error => Err(io::Error::from_raw_os_error(-error)),
            }
        })?;
        let id = found.context(format!("find the XDP program of {}", port.name))?;
        (id != 0).then(|| Self::open(id)).transpose()
    }

    /// The program with this id.
    pub fn open(id: u32) -> Result<Self, LabError> {
        // SAFETY: no pointers.
        let fd = unsafe { bpf_prog_get_fd_by_id(id) };
        Ok(Self(
            returned(fd).context(format!("open BPF program {id}"))?,
        ))
    }

    /// What it took so far, while somebody was [`Counting`].
    pub fn run_time(&self) -> Result<RunTime, LabError> {
        let mut info = bpf_prog_info::default();
        let mut len = size_of::<bpf_prog_info>() as u32;
        // SAFETY: the kernel writes at most `len` bytes to `info`, which asks for nothing behind pointers.
        let rc =
            unsafe { bpf_prog_get_info_by_fd(self.0.as_raw_fd(), &raw mut info, &raw mut len) };
        let result = match rc {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        };
        result.context("read the run time of a BPF program")?;
        Ok(RunTime {
            ns: info.run_time_ns,
            count: info.run_cnt,
        })
    }
}
