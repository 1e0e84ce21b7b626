// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs of type BPF_PROG_TYPE_SYSCALL.

use std::os::fd::{AsRawFd, OwnedFd};

use freeway_abi::Pod;

/// Runs one once; its context comes back as it left it. What it returned.
pub(crate) fn run<C: Pod>(prog: &OwnedFd, context: &mut C) -> libbpf_rs::Result<u32> {
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: std::ptr::from_mut(context).cast(),
        ctx_size_in: size_of::<C>() as u32,
        ..Default::default()
    };
    // SAFETY: the context is as long as it is said to be, and of plain data that any octets are valid for.
    let rc = unsafe { libbpf_sys::bpf_prog_test_run_opts(prog.as_raw_fd(), &mut opts) };
    match rc {
        0 => Ok(opts.retval),
        _ => Err(libbpf_rs::Error::from_raw_os_error(-rc)),
    }
}
