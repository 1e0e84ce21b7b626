// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF_PROG_TEST_RUN.

use std::os::fd::{AsRawFd, BorrowedFd};

/// What of an skb a test says, and sees (struct __sk_buff).
#[derive(Clone, Copy, Debug, Default)]
pub struct Skb {
    pub mark: u32,
    pub priority: u32,
    pub gso_size: u32,
}

/// Where these are, in words; of tc_index and others nothing may be said.
const MARK: usize = 2;
const PRIORITY: usize = 8;
const GSO_SIZE: usize = 44;
const WORDS: usize = 48;

/// Runs a program so often: its verdict, and the frame as it left it, behind the metadata that there may be.
pub fn run(prog: BorrowedFd<'_>, frame: &[u8], repeat: i32) -> (u32, Vec<u8>) {
    run_as(prog, frame, repeat, None)
}

/// The same of tc, with what is not in the frame.
pub fn run_as(
    prog: BorrowedFd<'_>,
    frame: &[u8],
    repeat: i32,
    skb: Option<&mut Skb>,
) -> (u32, Vec<u8>) {
    let mut context = [0u32; WORDS];
    if let Some(skb) = &skb {
        context[MARK] = skb.mark;
        context[PRIORITY] = skb.priority;
        context[GSO_SIZE] = skb.gso_size;
    }
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
    if skb.is_some() {
        opts.ctx_in = context.as_ptr().cast();
        opts.ctx_out = context.as_mut_ptr().cast();
        opts.ctx_size_in = size_of_val(&context) as u32;
        opts.ctx_size_out = size_of_val(&context) as u32;
    }
    // SAFETY: all buffers outlive the call and are as long as said.
    let rc = unsafe { libbpf_sys::bpf_prog_test_run_opts(prog.as_raw_fd(), &mut opts) };
    assert_eq!(rc, 0, "BPF_PROG_TEST_RUN of {} bytes", frame.len());
    out.truncate(opts.data_size_out as usize);
    if let Some(skb) = skb {
        skb.mark = context[MARK];
        skb.priority = context[PRIORITY];
    }
    (opts.retval, out)
}
