// SPDX-License-Identifier: MIT OR Apache-2.0
//! Views of ABI structures as bytes.

use crate::raw;

/// A structure of the ABI: any bit pattern is a value, and there is no padding.
///
/// # Safety
/// Implementors are `repr(C)` without implicit padding or pointers.
pub unsafe trait Pod: Copy + Default {
    /// The structure's bytes, as the data plane sees them.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the trait's contract: no padding, so each byte is initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// Reads a structure from the front of `bytes`; `None` if they are too few.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: long enough, and any bit pattern is a value.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

macro_rules! pod {
    ($($name:ident),* $(,)?) => {
        // SAFETY: abi.h has fixed-width members only and asserts each size.
        $(unsafe impl Pod for raw::$name {})*
    };
}

pod!(
    fw_key4,
    fw_key6,
    fw_flow,
    fw_state,
    fw_nexthop,
    fw_olist,
    fw_copy,
    fw_framing,
    fw_framed,
    fw_session,
    fw_stations,
    fw_path,
    fw_path_count,
    fw_crossed,
    fw_own_mac,
    fw_control,
    fw_watch,
    fw_config,
    fw_clock,
    fw_hooked_at,
    fw_hooked,
    fw_slot,
    fw_tuple,
    fw_conn,
    fw_event,
    fw_candidate,
    fw_watch_event,
    fw_dropped,
    fw_tap_filter,
    fw_tap_frame,
    fw_tap_count,
    fw_port_fault,
    fw_seen,
    fw_kept,
    fw_edge,
    fw_offer_set,
    fw_observation_set,
    fw_policer,
    fw_origin,
    fw_port_table,
    fw_precedents,
    fw_scrub4,
    fw_scrub_side4,
    fw_scrub6,
    fw_scrub_net4,
    fw_scrub_net6,
    fw_scrub_net,
    fw_scrub_class,
    fw_scrub_rule,
    fw_scrub,
    fw_scrub_here,
    fw_scrub_count,
    fw_scrub_config,
    fw_ratelimit_bucket,
    fw_ratelimit_rule,
    fw_ratelimit,
    fw_ratelimit_here,
    fw_ratelimit_count,
    fw_ratelimit_config,
    fw_hop,
    fw_routes,
    fw_route_here,
    fw_route_entrance,
    fw_route_count,
    fw_route_config,
    fw_strayed,
);
