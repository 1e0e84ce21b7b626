// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attaching BPF programs to ports, as links: they go with the descriptor, also when the process dies.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, OpenObject};
use libbpf_sys::{BPF_TCX_EGRESS, BPF_XDP, bpf_attach_type, bpf_link_create, bpf_link_detach};

use crate::error::{Context, LabError};
use crate::port::Port;

/// A program attached to a port; dropping it detaches.
#[derive(Debug)]
pub(crate) struct Attached {
    link: OwnedFd,
}

impl Drop for Attached {
    /// A child that another thread has just forked may hold the descriptor a moment longer.
    fn drop(&mut self) {
        // SAFETY: the descriptor is open; what it refers to goes with it at the latest.
        unsafe { bpf_link_detach(self.link.as_raw_fd()) };
    }
}

fn attach(
    program: BorrowedFd<'_>,
    port: &Port,
    kind: bpf_attach_type,
    what: &str,
) -> Result<Attached, LabError> {
    let (program, ifindex) = (program.as_raw_fd(), port.ifindex.cast_signed());
    // The kernel looks the index up in the caller's namespace.
    let result = port.netns.enter(|| {
        // SAFETY: the descriptor is borrowed for the call, and no options are passed.
        returned(unsafe { bpf_link_create(program, ifindex, kind, std::ptr::null()) })
    })?;
    let link = result.context(format!(
        "attach {what} to {} in {}",
        port.name,
        port.netns.name()
    ))?;
    Ok(Attached { link })
}

/// Attaches an XDP program in native mode, which is what a veth does unless told otherwise.
pub(crate) fn attach_xdp(program: BorrowedFd<'_>, port: &Port) -> Result<Attached, LabError> {
    attach(program, port, BPF_XDP, "an XDP program")
}

/// Attaches a tc program at egress, by tcx (Linux 6.6).
pub(crate) fn attach_tc_egress(program: BorrowedFd<'_>, port: &Port) -> Result<Attached, LabError> {
    attach(program, port, BPF_TCX_EGRESS, "a tc program")
}

/// A descriptor of its own for a loaded program.
pub(crate) fn own(fd: BorrowedFd<'_>) -> Result<OwnedFd, LabError> {
    fd.try_clone_to_owned()
        .context("duplicate a BPF program's descriptor")
}

/// Has an XDP program make frames of a template, so many, `batch` of them at a time. An error is the kernel's; EINTR: a signal
/// cut it short.
pub(crate) fn run_live(
    program: &OwnedFd,
    template: &[u8],
    repeat: u32,
    batch: u32,
) -> io::Result<()> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: template.as_ptr().cast(),
        data_size_in: template.len() as u32,
        repeat: repeat.cast_signed(),
        flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: batch.min(repeat),
        ..Default::default()
    };
    // SAFETY: the options point to data that outlives the call, and nothing is written back but to them.
    let rc = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    match -rc {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Of the programs of an object that is about to be loaded, only this one is.
pub(crate) fn load_only(object: &mut OpenObject, name: &str) {
    for mut program in object.progs_mut() {
        program.set_autoload(program.name() == name);
    }
}

/// The longest packets for which a veth takes an XDP program without fragments: a page, less headroom, Ethernet header and what
/// the kernel keeps behind (`veth_xdp_set()`).
const LINEAR_MTU_MAX: u32 = 4096 - 256 - 320 - 14;

/// Lets the XDP programs of an object that is about to be loaded have frames of several pages, of which they see the first
/// directly, if the port's MTU asks for it; returns whether it does.
pub(crate) fn admit_fragments(object: &mut OpenObject, port: &Port) -> Result<bool, LabError> {
    let admitted = port.netns.mtu(&port.name)? > LINEAR_MTU_MAX;
    if admitted {
        for mut program in object.progs_mut() {
            program.set_flags(libbpf_sys::BPF_F_XDP_HAS_FRAGS);
        }
    }
    Ok(admitted)
}

/// A program of a loaded object.
pub(crate) fn program(object: &Object, name: &str) -> Result<OwnedFd, LabError> {
    let program = object.progs().find(|program| program.name() == name);
    let program = program.ok_or_else(|| LabError::Invalid(format!("no program {name}")))?;
    own(program.as_fd())
}

/// A descriptor that libbpf has just returned, or a negative error number.
pub(crate) fn returned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Element 0 of an array map, or of a program's globals.
pub(crate) fn element(map: &MapHandle) -> Result<Vec<u8>, LabError> {
    let value = map
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .context("read a BPF map")?;
    value.ok_or_else(|| LabError::Incomplete("a BPF map is empty".into()))
}

/// Element 0 of a per-CPU array of 64-bit counters, summed over the CPUs.
pub(crate) fn counters(map: &MapHandle) -> Result<Vec<u64>, LabError> {
    let values = map
        .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
        .context("read counters")?;
    let values = values.ok_or_else(|| LabError::Incomplete("a counter map is empty".into()))?;
    let mut sums = vec![0u64; map.value_size() as usize / 8];
    for value in &values {
        for (sum, word) in sums.iter_mut().zip(words(value)) {
            *sum = sum.wrapping_add(word);
        }
    }
    Ok(sums)
}

/// The 64-bit words of a map value, native byte order.
pub(crate) fn words(value: &[u8]) -> impl Iterator<Item = u64> + '_ {
    value.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    })
}

/// Puts a port into element 0 of a device map.
pub(crate) fn set_device(map: &MapHandle, port: &Port) -> Result<(), LabError> {
    set_device_at(map, 0, port)
}

/// Puts a port into an element of a device map.
pub(crate) fn set_device_at(map: &MapHandle, index: u32, port: &Port) -> Result<(), LabError> {
    // As with links, the index is one of the caller's namespace.
    let set = || {
        map.update(
            &index.to_ne_bytes(),
            &port.ifindex.to_ne_bytes(),
            MapFlags::ANY,
        )
    };
    let what = format!("redirect to {} in {}", port.name, port.netns.name());
    port.netns.enter(set)?.context(what)
}
