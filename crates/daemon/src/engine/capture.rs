// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capture of fast packets: whose, at which ports, and its program there for as long as somebody reads.

mod place;

use std::collections::BTreeMap;

use freeway_abi::{FW_TAP_TAKEN_MAX, fw_tap_filter};
use freeway_api::{CaptureQuery, Failure, FlowFilter, Prefix};
use freeway_datapath::{Tap, TapRing};

/// Of a frame, unless it is said how much.
const TAKEN: u32 = 256;
/// Packets that each CPU tells of in a second, at most.
const PER_S: u32 = 50_000;

/// One that has begun.
#[derive(Debug)]
pub struct Captured {
    /// Where it is told of frames.
    pub ring: TapRing,
    /// Names of the ports that frames may come in or go out at, by ifindex.
    pub ports: BTreeMap<u32, String>,
    /// The ifindex of each slot of the device map.
    pub slots: BTreeMap<u32, u32>,
    /// Ports at which it is told of nothing, and why.
    pub kept: Vec<(String, String)>,
    /// Most bytes of a frame.
    pub taken: u32,
}

/// One at a time.
#[derive(Default)]
pub(super) struct Capture(Option<Running>);

struct Running {
    tap: Tap,
    /// Names of the ports, none: all.
    ports: Vec<String>,
}

impl Capture {
    /// Id of its program.
    pub(super) fn prog_id(&self) -> Option<u32> {
        self.0.as_ref()?.tap.prog_id()
    }
}

/// What the program goes by. `port`: ifindex and slot of the filter's.
fn filter_of(
    query: &CaptureQuery,
    port: Option<(u32, u32)>,
    hz: u32,
) -> Result<fw_tap_filter, Failure> {
    let filter = &query.filter;
    if filter.state.is_some() || filter.limit.is_some() {
        return Err(Failure::request(
            "a capture is of packets, which have no state",
            "leave `state` away",
        ));
    }
    let mut made = fw_tap_filter {
        port_max: [u16::MAX; 2],
        taken: if query.bytes == 0 { TAKEN } else { query.bytes }.clamp(64, FW_TAP_TAKEN_MAX),
        per_tick: (PER_S / hz).max(1),
        proto: filter.proto.map_or(0, |proto| proto.0),
        any_proto: filter.proto.is_none().into(),
        any_ports: (filter.sport.is_none() && filter.dport.is_none()).into(),
        family: family_of(filter)?,
        ..fw_tap_filter::default()
    };
    if let Some((ifindex, slot)) = port {
        made.port = ifindex;
        made.slot = slot;
    }
    for (end, (prefix, ports)) in [(filter.src, filter.sport), (filter.dst, filter.dport)]
        .into_iter()
        .enumerate()
    {
        if let Some(prefix) = prefix {
            (made.addr_be[end], made.mask_be[end]) = words(prefix);
        }
        if let Some(ports) = ports {
            made.port_min[end] = ports.first;
            made.port_max[end] = ports.last;
        }
    }
    Ok(made)
}

/// That which addresses and family agree on; 0: any.
fn family_of(filter: &FlowFilter) -> Result<u8, Failure> {
    let of = |prefix: Prefix| if prefix.addr.is_ipv4() { 4 } else { 6 };
    let mut families = [filter.family, filter.src.map(of), filter.dst.map(of)]
        .into_iter()
        .flatten();
    let first = families.next().unwrap_or(0);
    match families.all(|family| family == first) {
        true => Ok(first),
        false => Err(Failure::request(
            "the filter names both families",
            "give addresses of one",
        )),
    }
}

/// Network address and mask as they are in a packet.
fn words(prefix: Prefix) -> ([u32; 4], [u32; 4]) {
    let mut octets = [0; 16];
    match prefix.addr {
        std::net::IpAddr::V4(v4) => octets[..4].copy_from_slice(&v4.octets()),
        std::net::IpAddr::V6(v6) => octets.copy_from_slice(&v6.octets()),
    }
    let bits = u128::MAX
        .checked_shl(128 - u32::from(prefix.len))
        .unwrap_or(0);
    let mask = bits.to_be_bytes();
    let word = |octets: &[u8; 16], at: usize| {
        u32::from_ne_bytes(std::array::from_fn(|octet| octets[4 * at + octet]))
    };
    (
        std::array::from_fn(|at| word(&octets, at)),
        std::array::from_fn(|at| word(&mask, at)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(words: &str) -> CaptureQuery {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        CaptureQuery {
            filter: freeway_api::filter::parse(&words).unwrap(),
            ..CaptureQuery::default()
        }
    }

    #[test]
    fn a_filter_is_what_packets_have() {
        let made = filter_of(
            &query("proto udp src 192.0.2.0/24 dport 53-54"),
            Some((7, 9)),
            250,
        );
        let made = made.unwrap();
        assert_eq!(
            (made.family, made.proto, made.any_proto, made.any_ports),
            (4, 17, 0, 0)
        );
        assert_eq!(made.addr_be[0][0].to_ne_bytes(), [192, 0, 2, 0]);
        assert_eq!(made.mask_be[0][0].to_ne_bytes(), [255, 255, 255, 0]);
        assert_eq!(made.mask_be[1], [0; 4]);
        assert_eq!((made.port_min, made.port_max), ([0, 53], [u16::MAX, 54]));
        assert_eq!(
            (made.port, made.slot, made.taken, made.per_tick),
            (7, 9, TAKEN, 200)
        );
        let made = filter_of(&query("dst 2001:db8::/33"), None, 1000).unwrap();
        assert_eq!(
            (made.family, made.any_proto, made.any_ports, made.port),
            (6, 1, 1, 0)
        );
        assert_eq!(made.mask_be[1][1].to_ne_bytes(), [0x80, 0, 0, 0]);
    }

    #[test]
    fn what_no_packet_can_be_is_refused() {
        assert!(filter_of(&query("state fast"), None, 250).is_err());
        assert!(filter_of(&query("src 192.0.2.1 dst 2001:db8::1"), None, 250).is_err());
        assert!(filter_of(&query("family 6 dst 192.0.2.1"), None, 250).is_err());
    }
}
