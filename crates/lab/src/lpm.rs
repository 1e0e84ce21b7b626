// SPDX-License-Identifier: MIT OR Apache-2.0
//! A router of an XDP program and an LPM trie, which holds the synthetic table.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::attach::{Attached, attach_xdp, set_device_at};
use crate::error::{Context, LabError};
use crate::frame::MAC_SERVER;
use crate::port::Port;
use crate::routes::{self, prefix};
use crate::skel::lpm::LpmSkelBuilder;

/// The one next hop of the table, the lab's server,
const NEXT_HOP: u32 = 0;
/// and its port in the program's map.
const PORT: u32 = 0;

/// Attaches it to an input, with the first so many routes of the table by way of an output; returns what counts the frames that
/// it leaves to the kernel, too.
pub(crate) fn attach(
    input: &Port,
    output: &Port,
    routes: u32,
) -> Result<(MapHandle, Attached), LabError> {
    routes::check(routes)?;
    let mut storage = MaybeUninit::uninit();
    let open = LpmSkelBuilder::default()
        .open(&mut storage)
        .context("open the LPM trie's program")?;
    let skel = open.load().context("load the LPM trie's program")?;
    let maps = &skel.maps;
    let ports = MapHandle::try_from(&maps.ports).context("open the port map")?;
    set_device_at(&ports, PORT, output)?;
    let hop = next_hop(output);
    maps.next_hops
        .update(&NEXT_HOP.to_ne_bytes(), &hop, MapFlags::ANY)
        .context("set the next hop")?;
    fill(&maps.routes, routes)?;
    let passed = MapHandle::try_from(&maps.passed).context("open the counters")?;
    Ok((passed, attach_xdp(skel.progs.xdp_lpm.as_fd(), input)?))
}

/// `struct next_hop` of the program.
fn next_hop(output: &Port) -> Vec<u8> {
    [&MAC_SERVER[..], &output.mac, &PORT.to_ne_bytes()].concat()
}

fn fill(trie: &impl MapCore, routes: u32) -> Result<(), LabError> {
    if routes == 0 {
        return Ok(());
    }
    // in one call, as somebody would who has a whole table at once
    let keys: Vec<u8> = (0..routes)
        .map(prefix)
        .flat_map(|of| [u32::from(of.len).to_ne_bytes(), of.address.to_be_bytes()])
        .flatten()
        .collect();
    let values = NEXT_HOP.to_ne_bytes().repeat(routes as usize);
    let any = MapFlags::ANY;
    trie.update_batch(&keys, &values, routes, any, any)
        .context(format!("put {routes} routes into an LPM trie"))
}
