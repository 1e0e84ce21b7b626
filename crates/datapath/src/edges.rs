// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the ends of TCP connections said last, beside the flow table (`struct fw_edge`).
//!
//! conntrack believes every RST and FIN of a connection that it was told to be liberal with. The data plane judges them
//! instead, by what both ends said; a flow that leaves the table leaves that here.

use freeway_abi::{Pod, fw_config, fw_edge, fw_flow};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// Directions of connections that are remembered: what is more than the table's flows, or than this, costs the one
/// that was longest out of use its place.
const EDGES_MAX: u32 = 1 << 18;

unsafe extern "C" {
    fn fw_edge_keys(config: *const fw_config, flow: *const fw_flow, own: *mut u64, other: *mut u64);
}

/// Entries of the map for a table of this size.
pub(crate) fn edges_len(flow_mask: u32) -> u32 {
    (flow_mask + 1).min(EDGES_MAX)
}

/// Keys of the flow's direction and of the other one.
fn keys(config: &fw_config, flow: &fw_flow) -> (u64, u64) {
    let (mut own, mut other) = (0, 0);
    // SAFETY: reads two structures and writes two words.
    unsafe { fw_edge_keys(config, flow, &raw mut own, &raw mut other) };
    (own, other)
}

fn get(map: &MapHandle, key: u64) -> Option<fw_edge> {
    let value = map.lookup(&key.to_ne_bytes(), MapFlags::ANY).ok()??;
    fw_edge::from_bytes(&value)
}

/// Both directions of a flow's connection have edges from now on; what is known of them stays.
pub(crate) fn enter(map: &MapHandle, config: &fw_config, flow: &fw_flow) -> libbpf_rs::Result<()> {
    let (own, other) = keys(config, flow);
    for (key, peer) in [(own, other), (other, own)] {
        if get(map, key).is_none() {
            let edge = fw_edge {
                peer,
                ..fw_edge::default()
            };
            map.update(&key.to_ne_bytes(), edge.as_bytes(), MapFlags::ANY)?;
        }
    }
    Ok(())
}

/// What a flow's last fast segment said stays, unless the kernel has seen a later one.
pub(crate) fn leave(map: &MapHandle, config: &fw_config, flow: &fw_flow) -> libbpf_rs::Result<()> {
    let state = &flow.state;
    if state.seq_be | state.ack_be == 0 {
        return Ok(());
    }
    let (own, peer) = keys(config, flow);
    let later = |edge: &fw_edge| edge.tick.wrapping_sub(state.used_tick).cast_signed() > 0;
    if get(map, own).is_some_and(|edge| edge.seq_be | edge.ack_be != 0 && later(&edge)) {
        return Ok(());
    }
    let edge = fw_edge {
        peer,
        seq_be: state.seq_be,
        ack_be: state.ack_be,
        len_data: state.len_data.into(),
        tick: state.used_tick,
    };
    map.update(&own.to_ne_bytes(), edge.as_bytes(), MapFlags::ANY)
}
