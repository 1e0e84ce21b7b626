// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF programs attached to a port by tcx links, which netlink neither lists nor announces (BPF_PROG_QUERY).
//! Classic tc filters are in [`crate::Mirror::filters`], XDP programs in [`crate::model::Link::xdp`].

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::nla::{text, u32_at};

const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_PROG_QUERY: libc::c_long = 16;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
/// BPF_MPROG_MAX.
const PROGRAM_LIMIT: usize = 64;

/// A BPF program in a tcx chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TcxProgram {
    /// Program id.
    pub id: u32,
    /// Its name, empty if the kernel does not tell.
    pub name: String,
}

/// The tcx programs of a port, each side in the order they run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tcx {
    /// Ingress.
    pub ingress: Vec<TcxProgram>,
    /// Egress.
    pub egress: Vec<TcxProgram>,
}

/// Raw union bpf_attr, zeroed behind what is used.
#[repr(C, align(8))]
struct Attr([u8; 128]);

impl Attr {
    fn put32(&mut self, offset: usize, value: u32) {
        if let Some(slot) = self.0.get_mut(offset..offset + 4) {
            slot.copy_from_slice(&value.to_ne_bytes());
        }
    }

    fn put64(&mut self, offset: usize, value: u64) {
        if let Some(slot) = self.0.get_mut(offset..offset + 8) {
            slot.copy_from_slice(&value.to_ne_bytes());
        }
    }

    /// Calls bpf(2) with the first `len` bytes.
    ///
    /// # Safety
    /// Pointers in the attribute must be valid for what the command does with them.
    unsafe fn call(&mut self, command: libc::c_long, len: usize) -> io::Result<i32> {
        // SAFETY: the attribute is at least `len` bytes; the caller vouches for pointers in it.
        let done = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), len) };
        if done < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(done as i32)
        }
    }
}

/// The tcx programs of a port; `None` on a kernel before 6.6.
pub fn tcx(ifindex: u32) -> Result<Option<Tcx>> {
    let side = |attach| match query(ifindex, attach) {
        Ok(ids) => Ok(Some(
            ids.into_iter()
                .map(|id| TcxProgram { id, name: name(id) })
                .collect(),
        )),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(Error::system(
            format!("list the tcx programs of interface {ifindex}"),
            error,
        )),
    };
    let (ingress, egress): (Option<Vec<_>>, Option<Vec<_>>) =
        (side(BPF_TCX_INGRESS)?, side(BPF_TCX_EGRESS)?);
    Ok(ingress
        .zip(egress)
        .map(|(ingress, egress)| Tcx { ingress, egress }))
}

fn query(ifindex: u32, attach: u32) -> io::Result<Vec<u32>> {
    let mut ids = [0u32; PROGRAM_LIMIT];
    let mut attr = Attr([0; 128]);
    attr.put32(0, ifindex);
    attr.put32(4, attach);
    attr.put64(16, ids.as_mut_ptr() as u64);
    attr.put32(24, PROGRAM_LIMIT as u32);
    // SAFETY: the kernel writes at most PROGRAM_LIMIT ids to `ids`, and the count back.
    unsafe { attr.call(BPF_PROG_QUERY, 64)? };
    let count = u32_at(&attr.0, 24).unwrap_or(0) as usize;
    Ok(ids.iter().copied().take(count).collect())
}

/// The name of a program, empty if it cannot be looked at.
pub fn name(id: u32) -> String {
    let mut attr = Attr([0; 128]);
    attr.put32(0, id);
    // SAFETY: no pointers in the attribute.
    let Ok(fd) = (unsafe { attr.call(BPF_PROG_GET_FD_BY_ID, 12) }) else {
        return String::new();
    };
    // SAFETY: a fresh descriptor that nothing else owns.
    let program = unsafe { OwnedFd::from_raw_fd(fd) };
    // struct bpf_prog_info: the name is at 64, 16 bytes.
    let mut info = [0u64; 32];
    let mut attr = Attr([0; 128]);
    attr.put32(0, program.as_raw_fd() as u32);
    attr.put32(4, size_of_val(&info) as u32);
    attr.put64(8, info.as_mut_ptr() as u64);
    // SAFETY: the kernel writes at most the given length to `info`.
    match unsafe { attr.call(BPF_OBJ_GET_INFO_BY_FD, 16) } {
        Ok(_) => {
            let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_ne_bytes()).collect();
            text(bytes.get(64..80).unwrap_or_default())
        }
        Err(_) => String::new(),
    }
}
