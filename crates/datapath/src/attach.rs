// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attaching programs to ports.
//!
//! Links die with their file descriptor, so a killed daemon leaves the port as
//! it was. Kernels before 6.6 have no links for tc: there clsact filters are
//! made and, after a crash, found again by their handle and removed.
//!
//! A daemon that succeeds another one is given the descriptors of its links: another program in such a link's place is in
//! force from one frame to the next, and no driver resets anything.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};

use crate::DatapathError;

/// A place at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Native XDP.
    Xdp,
    /// tc ingress: tcx, or clsact before 6.6.
    Ingress,
    /// The same at a port without XDP.
    IngressAlone,
    /// tc egress: tcx, or clsact before 6.6.
    Egress,
    /// tc ingress at a port without a link layer, which XDP serves at a device below.
    RawIngress,
    /// The same without XDP.
    RawIngressAlone,
    /// tc egress there.
    RawEgress,
    /// Native XDP at a port of a bridge.
    BridgeXdp,
    /// tc ingress there.
    BridgeIngress,
    /// tc egress there.
    BridgeEgress,
    /// Native XDP at a part of a bond.
    BondXdp,
}

/// How many there are.
pub(crate) const HOOKS: usize = Hook::BondXdp as usize + 1;

impl Hook {
    /// Name of the program that goes there.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Hook::Xdp => "freeway_xdp",
            Hook::Ingress | Hook::RawIngress => "freeway_ingress",
            Hook::IngressAlone | Hook::RawIngressAlone => "freeway_ingress_alone",
            Hook::Egress | Hook::RawEgress => "freeway_egress",
            Hook::BridgeXdp => "freeway_bridge",
            Hook::BridgeIngress => "freeway_bridge_ingress",
            Hook::BridgeEgress => "freeway_bridge_egress",
            Hook::BondXdp => "freeway_bond",
        }
    }

    /// The attach type of a tcx link; none of XDP.
    fn tcx(self) -> Option<u32> {
        match self {
            Hook::Xdp | Hook::BridgeXdp | Hook::BondXdp => None,
            Hook::Ingress
            | Hook::IngressAlone
            | Hook::RawIngress
            | Hook::RawIngressAlone
            | Hook::BridgeIngress => Some(libbpf_sys::BPF_TCX_INGRESS),
            Hook::Egress | Hook::RawEgress | Hook::BridgeEgress => Some(libbpf_sys::BPF_TCX_EGRESS),
        }
    }
}

/// An XDP program of someone else, for comparison benches.
pub type XdpFd<'a> = BorrowedFd<'a>;

/// A program at a port; dropping it detaches.
#[derive(Debug)]
pub struct Attachment {
    hook: Hook,
    ifindex: u32,
    held: Held,
}

/// What keeps it there.
#[derive(Debug)]
enum Held {
    /// A bpf_link.
    Link(OwnedFd),
    /// A clsact filter.
    Filter(TcHook),
    /// Somebody else does.
    Disowned,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Held::Filter(hook) = &mut self.held
            && let Err(error) = hook.detach()
        {
            tracing::debug!("removing a clsact filter: {error}");
        }
    }
}

/// Links of a daemon that hands over, by port and by what they attach to, which is the kernel's word.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    links: BTreeMap<(u32, Point), OwnedFd>,
    /// Why a program could not take another one's place.
    refused: Option<String>,
}

/// Attach type of tcx; none of XDP.
type Point = Option<u32>;

impl Inherited {
    /// Those of ports that are there; others are let go.
    pub(crate) fn new(links: Vec<OwnedFd>) -> Self {
        let at = links.into_iter().filter_map(|link| {
            let (ifindex, point, _) = place(&link)?;
            (ifindex != 0).then_some(((ifindex, point), link))
        });
        let mut links = BTreeMap::new();
        links.extend(at);
        Self {
            links,
            refused: None,
        }
    }

    /// Puts a program in the place of the one that is there, if one is.
    pub(crate) fn take(
        &mut self,
        prog: BorrowedFd<'_>,
        ifindex: u32,
        hook: Hook,
    ) -> Option<io::Result<Attachment>> {
        let link = self.links.remove(&(ifindex, hook.tcx()))?;
        let attachment = Attachment {
            hook,
            ifindex,
            held: Held::Link(link),
        };
        match attachment.replace(prog) {
            Ok(()) => Some(Ok(attachment)),
            // it has lost its port meanwhile
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => None,
            Err(error) => {
                self.refused = Some(format!(
                    "{} at interface {ifindex}: {error}",
                    hook.program()
                ));
                Some(Err(error))
            }
        }
    }

    /// Why a program could not take another one's place.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.clone()
    }

    /// Programs that are still there.
    pub(crate) fn prog_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.links.values().filter_map(|link| Some(place(link)?.2))
    }
}

/// Lets the process have as many descriptors as it may: each port takes three.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure outlives both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Handle and priority of our clsact filters: "fw" and first in line.
const FILTER_HANDLE: u32 = 0x6677;
const FILTER_PRIORITY: u32 = 1;

impl Attachment {
    /// Attaches `prog` to `ifindex` in the calling thread's network namespace.
    pub fn new(
        prog: BorrowedFd<'_>,
        name: &'static str,
        ifindex: u32,
        hook: Hook,
    ) -> Result<Self, DatapathError> {
        let result = match hook.tcx() {
            Some(kind) => tc(prog, ifindex, kind),
            None => link(
                prog,
                ifindex,
                libbpf_sys::BPF_XDP,
                libbpf_sys::XDP_FLAGS_DRV_MODE,
            ),
        };
        let held = result.map_err(|source| failed(source, name, ifindex))?;
        Ok(Attachment {
            hook,
            ifindex,
            held,
        })
    }

    /// The place that it is at.
    #[must_use]
    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// It is a clsact filter.
    #[must_use]
    pub fn is_filter(&self) -> bool {
        matches!(self.held, Held::Filter(_))
    }

    /// The link, if it is one. Whoever has it, too, keeps the program where it is.
    #[must_use]
    pub fn link(&self) -> Option<BorrowedFd<'_>> {
        match &self.held {
            Held::Link(link) => Some(link.as_fd()),
            _ => None,
        }
    }

    /// Leaves the program where it is: somebody else has the link, or the filter's handle.
    pub fn disown(mut self) {
        self.held = Held::Disowned;
    }

    /// Has another program of the same kind take this one's place at once.
    pub fn replace(&self, prog: BorrowedFd<'_>) -> io::Result<()> {
        let link = match (&self.held, self.hook.tcx()) {
            (Held::Link(link), _) => link,
            // a filter of the same handle is changed in its place: cls_bpf_change() in net/sched/cls_bpf.c
            (Held::Filter(_), Some(kind)) => return clsact(prog, self.ifindex, kind).map(drop),
            _ => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        };
        // SAFETY: two descriptors, and no options.
        let rc = unsafe {
            libbpf_sys::bpf_link_update(link.as_raw_fd(), prog.as_raw_fd(), std::ptr::null())
        };
        match rc {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// True while the program is where it was put: others may detach links and delete filters, and no event tells.
    #[must_use]
    pub fn holds(&self) -> bool {
        match &self.held {
            Held::Link(link) => place(link).is_none_or(|(ifindex, ..)| ifindex != 0),
            Held::Filter(hook) => TcHook::query(&mut hook.clone()).is_ok(),
            Held::Disowned => true,
        }
    }

    /// Removes clsact filters that a killed daemon left at a port.
    pub fn sweep(prog: BorrowedFd<'_>, ifindex: u32) {
        for point in [TC_INGRESS, TC_EGRESS] {
            let mut hook = filter(prog, ifindex, point);
            if hook.query().is_ok() {
                let _ = hook.detach();
            }
        }
    }
}

/// That a program is not at a port, as it is told.
pub(crate) fn failed(source: io::Error, program: &'static str, ifindex: u32) -> DatapathError {
    DatapathError::Attach {
        program,
        ifindex,
        in_use: source.raw_os_error() == Some(libc::EBUSY),
        source,
    }
}

fn tc(prog: BorrowedFd<'_>, ifindex: u32, kind: u32) -> io::Result<Held> {
    // First in line at egress and ingress: a program that ends the chain would
    // otherwise hide frames from learning.
    match link(prog, ifindex, kind, libbpf_sys::BPF_F_BEFORE) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => clsact(prog, ifindex, kind),
        result => result,
    }
}

fn filter(prog: BorrowedFd<'_>, ifindex: u32, point: libbpf_rs::TcAttachPoint) -> TcHook {
    TcHookBuilder::new(prog)
        .ifindex(ifindex.cast_signed())
        .replace(true)
        .handle(FILTER_HANDLE)
        .priority(FILTER_PRIORITY)
        .hook(point)
}

fn clsact(prog: BorrowedFd<'_>, ifindex: u32, kind: u32) -> io::Result<Held> {
    let point = if kind == libbpf_sys::BPF_TCX_INGRESS {
        TC_INGRESS
    } else {
        TC_EGRESS
    };
    let mut hook = filter(prog, ifindex, point);
    let to_io = |e: libbpf_rs::Error| io::Error::other(e.to_string());
    // "exists" is as good as created
    let _ = hook.create();
    hook.attach().map(Held::Filter).map_err(to_io)
}

fn link(prog: BorrowedFd<'_>, ifindex: u32, kind: u32, flags: u32) -> io::Result<Held> {
    let opts = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        flags,
        ..Default::default()
    };
    // SAFETY: plain integers and a zeroed options structure of its own size.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            prog.as_fd().as_raw_fd(),
            ifindex.cast_signed(),
            kind as libbpf_sys::bpf_attach_type,
            &opts,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(Held::Link(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Where an XDP or tcx link is, and its program: the port, 0 if it was detached, and what it attaches to. `None` if the kernel
/// does not tell.
fn place(link: &OwnedFd) -> Option<(u32, Point, u32)> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `len` bytes to the structure.
    let rc = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(link.as_raw_fd(), (&raw mut info).cast(), &raw mut len)
    };
    if rc != 0 {
        return None;
    }
    // SAFETY: plain integers; XDP and tcx both begin with the index.
    let (ifindex, point) = unsafe {
        let of = info.__bindgen_anon_1;
        (of.xdp.ifindex, of.tcx.attach_type)
    };
    let point = (info.type_ != libbpf_sys::BPF_LINK_TYPE_XDP).then_some(point);
    Some((ifindex, point, info.prog_id))
}
