// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF_PROG_TEST_RUN.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Runs a program so often: its verdict, and the frame as it left it, behind the metadata that there may be.
pub fn run(prog: BorrowedFd<'_>, frame: &[u8], repeat: i32) -> (u32, Vec<u8>) {
    let mut out = vec![0u8; 4096];
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat,
        ..Default::default()
    };
    // SAFETY: both buffers outlive the call and are as long as said.
    let rc = unsafe { libbpf_sys::bpf_prog_test_run_opts(prog.as_raw_fd(), &mut opts) };
    assert_eq!(rc, 0, "BPF_PROG_TEST_RUN of {} bytes", frame.len());
    out.truncate(opts.data_size_out as usize);
    (opts.retval, out)
}
