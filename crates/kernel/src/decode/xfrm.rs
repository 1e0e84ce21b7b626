// SPDX-License-Identifier: MIT OR Apache-2.0
//! XFRM_MSG_NEWPOLICY (`dump_one_policy`) and XFRM_MSG_NEWSA (`dump_one_state`). Keys are never read.

use crate::nla::{attrs_after, u8_at, u32_at};

/// sizeof(struct xfrm_userpolicy_info).
const POLICY: usize = 168;
/// sizeof(struct xfrm_usersa_info).
const STATE: usize = 224;
const XFRMA_OFFLOAD_DEV: u16 = 28;
const XFRM_OFFLOAD_PACKET: u8 = 4;

/// The lasting part of a policy: selector and limits, priority, index, direction, action. Its use counters are left out.
pub fn policy(payload: &[u8]) -> Option<Vec<u8>> {
    let selector_and_limits = payload.get(..120)?;
    let rest = payload.get(152..164)?;
    Some([selector_and_limits, rest].concat())
}

/// The lasting part of a state: selector, identity, source, mode. Its lifetimes and counters are left out.
pub fn state(payload: &[u8]) -> Option<Vec<u8>> {
    let identity = payload.get(..96)?;
    let mode = payload.get(208..220)?;
    Some([identity, mode].concat())
}

/// The interface that a policy is offloaded to in packet mode.
pub fn policy_offload(payload: &[u8]) -> Option<u32> {
    offload(payload, POLICY)
}

/// The interface that a state is offloaded to in packet mode.
pub fn state_offload(payload: &[u8]) -> Option<u32> {
    offload(payload, STATE)
}

fn offload(payload: &[u8], header: usize) -> Option<u32> {
    let attr = attrs_after(payload, header).find(XFRMA_OFFLOAD_DEV)?;
    let packet_mode = u8_at(attr.payload, 4)? & XFRM_OFFLOAD_PACKET != 0;
    packet_mode.then(|| u32_at(attr.payload, 0)).flatten()
}
