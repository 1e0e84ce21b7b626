// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs to measure against: what a port costs at the very least, and another fast path.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use serde::Serialize;

use crate::attach::{Attached, attach_tc_egress, attach_xdp, counters, set_device, set_device_at};
use crate::error::{Context, LabError};
use crate::lpm;
use crate::port::Port;
use crate::skel::fib::FibSkelBuilder;
use crate::skel::flowtable::FlowtableSkelBuilder;
use crate::skel::reference::ReferenceSkelBuilder;

/// The kernel's function that finds a packet's entry of the flow table.
const FLOW_LOOKUP: &str = "bpf_xdp_flow_lookup";

/// What to attach to the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// An XDP drop on `lan0`: what the generator and the input port cost.
    XdpDrop,
    /// A bare redirect from `lan0` to `wan0`, nothing rewritten; the sink's XDP program ignores MAC addresses.
    XdpRedirect,
    /// The same, and it finishes checksums as the network card would at the end of which it stands.
    XdpWire,
    /// An XDP program on `lan0` that passes everything to the kernel.
    XdpPass,
    /// An XDP program on `lan0` that asks the kernel's FIB (`bpf_fib_lookup`) and forwards by itself; it translates nothing.
    XdpFib,
    /// An XDP program on `lan0` that looks up the destination in an LPM trie of its own and forwards by itself, IPv4 only. The trie
    /// holds the first so many routes of [`crate::routes`], the next hop of which is the server.
    XdpLpm {
        /// How many.
        routes: u32,
    },
    /// An XDP program on `lan0` that asks the kernel's flow table (`bpf_xdp_flow_lookup`, Linux 6.13) and forwards by itself.
    /// The lab has a flow table, or there is nothing to ask.
    XdpFlowtable,
    /// The kernel forwards, and tc drops at `wan0`'s egress (Linux 6.6).
    TcEgressDrop,
}

/// Attaches a program that passes everything, to any port.
pub(crate) fn attach_pass(port: &Port) -> Result<Attached, LabError> {
    let mut storage = MaybeUninit::uninit();
    let open = ReferenceSkelBuilder::default()
        .open(&mut storage)
        .context("open the references")?;
    let skel = open.load().context("load the reference programs")?;
    attach_xdp(skel.progs.xdp_pass.as_fd(), port)
}

/// Attaches a program that hands each frame to all of these ports.
pub(crate) fn attach_broadcast(
    input: &Port,
    outputs: &[&Port],
) -> Result<ReferenceGuard, LabError> {
    let mut storage = MaybeUninit::uninit();
    let open = ReferenceSkelBuilder::default()
        .open(&mut storage)
        .context("open the references")?;
    let skel = open.load().context("load the reference programs")?;
    let all = MapHandle::try_from(&skel.maps.all).context("open the port map")?;
    for (index, output) in (0..).zip(outputs) {
        set_device_at(&all, index, output)?;
    }
    Ok(ReferenceGuard {
        frames: MapHandle::try_from(&skel.maps.frames).context("open the counters")?,
        _attached: attach_xdp(skel.progs.xdp_broadcast.as_fd(), input)?,
    })
}

fn attach_fib(input: &Port, output: &Port) -> Result<ReferenceGuard, LabError> {
    let mut storage = MaybeUninit::uninit();
    let open = FibSkelBuilder::default()
        .open(&mut storage)
        .context("open the FIB's program")?;
    let skel = open.load().context("load the FIB's program")?;
    let ports = MapHandle::try_from(&skel.maps.ports).context("open the port map")?;
    for port in [input, output] {
        set_device_at(&ports, port.ifindex, port)?;
    }
    Ok(ReferenceGuard {
        frames: MapHandle::try_from(&skel.maps.passed).context("open the counters")?,
        _attached: attach_xdp(skel.progs.xdp_fib.as_fd(), input)?,
    })
}

fn attach_flowtable(input: &Port, output: &Port) -> Result<ReferenceGuard, LabError> {
    if !has_function(FLOW_LOOKUP) {
        let why = format!("this kernel has no {FLOW_LOOKUP} (Linux 6.13)");
        return Err(LabError::Unsupported(why));
    }
    let mut storage = MaybeUninit::uninit();
    let open = FlowtableSkelBuilder::default()
        .open(&mut storage)
        .context("open the flow table's program")?;
    let skel = open.load().context("load the flow table's program")?;
    let ports = MapHandle::try_from(&skel.maps.ports).context("open the port map")?;
    for port in [input, output] {
        set_device_at(&ports, port.ifindex, port)?;
    }
    Ok(ReferenceGuard {
        frames: MapHandle::try_from(&skel.maps.passed).context("open the counters")?,
        _attached: attach_xdp(skel.progs.xdp_flowtable.as_fd(), input)?,
    })
}

/// True if the kernel, or its module of flow tables once that is loaded, tells of such a function in its BTF.
fn has_function(name: &str) -> bool {
    let word = format!("\0{name}\0").into_bytes();
    ["nf_flow_table", "vmlinux"].iter().any(|file| {
        let btf = fs::read(format!("/sys/kernel/btf/{file}"));
        btf.is_ok_and(|btf| btf.windows(word.len()).any(|at| at == word))
    })
}

/// A reference program at work; dropping it detaches it.
#[derive(Debug)]
pub struct ReferenceGuard {
    frames: MapHandle,
    _attached: Attached,
}

impl ReferenceGuard {
    /// Frames that it dropped, or with [`Reference::XdpFib`], [`Reference::XdpLpm`] and [`Reference::XdpFlowtable`] those it left to the kernel. What
    /// the others redirect or pass is not counted.
    pub fn counted(&self) -> Result<u64, LabError> {
        Ok(counters(&self.frames)?.first().copied().unwrap_or(0))
    }
}

impl Reference {
    /// A word for ports that serve it alone.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reference::XdpDrop => "drop",
            Reference::XdpRedirect => "redirect",
            Reference::XdpWire => "wire",
            Reference::XdpPass => "pass",
            Reference::XdpFib => "fib",
            Reference::XdpLpm { .. } => "lpm",
            Reference::XdpFlowtable => "flowtable",
            Reference::TcEgressDrop => "tcdrop",
        }
    }

    /// Attaches it to an input, in the place of `lan0`, or to an output.
    pub(crate) fn attach_at(self, lan: &Port, wan: &Port) -> Result<ReferenceGuard, LabError> {
        let mut storage = MaybeUninit::uninit();
        let open = ReferenceSkelBuilder::default()
            .open(&mut storage)
            .context("open the references")?;
        let skel = open.load().context("load the reference programs")?;
        let progs = &skel.progs;
        let out = MapHandle::try_from(&skel.maps.out).context("open the port map")?;
        let frames = MapHandle::try_from(&skel.maps.frames).context("open the counters")?;
        let attached = match self {
            Reference::XdpDrop => attach_xdp(progs.xdp_drop.as_fd(), lan)?,
            Reference::XdpRedirect => {
                set_device(&out, wan)?;
                attach_xdp(progs.xdp_redirect.as_fd(), lan)?
            }
            Reference::XdpWire => {
                set_device(&out, wan)?;
                attach_xdp(progs.xdp_wire.as_fd(), lan)?
            }
            Reference::XdpPass => attach_xdp(progs.xdp_pass.as_fd(), lan)?,
            Reference::XdpFib => return attach_fib(lan, wan),
            Reference::XdpLpm { routes } => {
                let (frames, attached) = lpm::attach(lan, wan, routes)?;
                return Ok(ReferenceGuard {
                    frames,
                    _attached: attached,
                });
            }
            Reference::XdpFlowtable => return attach_flowtable(lan, wan),
            Reference::TcEgressDrop => attach_tc_egress(progs.tc_drop.as_fd(), wan)?,
        };
        Ok(ReferenceGuard {
            frames,
            _attached: attached,
        })
    }
}
