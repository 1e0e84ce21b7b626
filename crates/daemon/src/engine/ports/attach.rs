// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attaching the programs to a port, and what became of it.

use freeway_datapath::{Datapath, DatapathError, Hook};
use freeway_kernel::model::{Framing as LinkFraming, Link};
use freeway_kernel::netdev;

use super::{Port, Within};

fn xdp_hook(within: Within) -> Hook {
    match within {
        Within::Nothing => Hook::Xdp,
        Within::Bridge => Hook::BridgeXdp,
        Within::Bond => Hook::BondXdp,
    }
}

/// At ingress and egress; `alone`: without XDP.
fn tc_hooks(link: &Link, within: Within, alone: bool) -> [Hook; 2] {
    match (link.framing(), alone) {
        _ if within == Within::Bridge => [Hook::BridgeIngress, Hook::BridgeEgress],
        (LinkFraming::Bare, true) => [Hook::RawIngressAlone, Hook::RawEgress],
        (LinkFraming::Bare, false) => [Hook::RawIngress, Hook::RawEgress],
        (_, true) => [Hook::IngressAlone, Hook::Egress],
        (_, false) => [Hook::Ingress, Hook::Egress],
    }
}

/// Loads what a link may need as a port.
pub(in crate::engine) fn load(datapath: &Datapath, link: &Link) -> Result<(), DatapathError> {
    let within = Within::of(link);
    let of_tc = [true, false].map(|alone| tc_hooks(link, within, alone));
    let hooks = of_tc.into_iter().flatten().chain([xdp_hook(within)]);
    hooks
        .into_iter()
        .try_for_each(|hook| datapath.prog(hook).map(drop))
}

/// Does what failed before only if the link has changed since.
pub(in crate::engine) fn attempt(
    link: &Link,
    failed: &mut Option<(u32, String)>,
    attach: impl FnOnce() -> Result<(), DatapathError>,
) -> Result<(), String> {
    match failed {
        Some((state, reason)) if *state == state_of(link) => return Err(reason.clone()),
        _ => *failed = None,
    }
    attach().map_err(|error| {
        let reason = error.to_string();
        match netdev::exists(link.ifindex) {
            true => tracing::warn!(port = link.name, reason, "a program cannot be attached"),
            false => tracing::debug!(port = link.name, reason, "the port went meanwhile"),
        }
        *failed = Some((state_of(link), reason.clone()));
        reason
    })
}

/// An error is why there is no program. `slot`: what is sent there leaves here; none at a part of a bond.
pub(in crate::engine) fn attach_xdp(
    datapath: &Datapath,
    link: &Link,
    port: &mut Port,
    slot: Option<u32>,
    without: Option<String>,
) -> Result<(), String> {
    if let Some(reason) = without {
        port.xdp_program = None;
        port.forget_programs();
        return Err(reason);
    }
    if port.xdp_program.is_some() {
        return Ok(());
    }
    let hook = xdp_hook(port.within);
    port.forget_programs();
    let program = &mut port.xdp_program;
    attempt(link, &mut port.xdp_failed, || {
        let attachment = datapath.attach(link.ifindex, hook)?;
        if let Some(slot) = slot {
            datapath.set_port(slot, link.ifindex)?;
        }
        *program = Some(attachment);
        Ok(())
    })
}

pub(in crate::engine) fn attach_tc(
    datapath: &Datapath,
    link: &Link,
    port: &mut Port,
    had_clsact: bool,
) -> Result<(), String> {
    let alone = !port.has_xdp();
    if !port.tc_programs.is_empty() && port.alone == alone {
        return Ok(());
    }
    port.alone = alone;
    // the fast path's own are attached
    port.tc_routed = false;
    let [ingress, egress] = tc_hooks(link, port.within, alone);
    let (programs, clsact) = (&mut port.tc_programs, &mut port.clsact);
    let attached = attempt(link, &mut port.failed, || {
        // while those that there are go on: the verifier may take long
        for hook in [ingress, egress] {
            datapath.prog(hook)?;
        }
        programs.clear();
        datapath.sweep(link.ifindex);
        let ingress = datapath.attach(link.ifindex, ingress)?;
        *clsact |= !had_clsact && ingress.is_filter();
        *programs = vec![ingress];
        programs.push(datapath.attach(link.ifindex, egress)?);
        Ok(())
    });
    attached.inspect_err(|_| port.detach(link.ifindex))
}

/// What an attempt to attach depends on.
pub(in crate::engine) fn state_of(link: &Link) -> u32 {
    link.mtu << 1 | u32::from(link.up)
}
