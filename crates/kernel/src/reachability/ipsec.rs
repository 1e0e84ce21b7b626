// SPDX-License-Identifier: MIT OR Apache-2.0
//! IPsec: which flows a forward policy judges.

use std::net::IpAddr;

use super::finding::{AddrRange, Finding};
use crate::model::{Family, Prefix};
use crate::nla::u16_at;

/// Of struct xfrm_userpolicy_info without its use counters (`decode::xfrm::policy`).
const FAMILY: usize = 40;
const DIRECTION: usize = 128;
const XFRM_POLICY_FWD: u8 = 2;

/// The flows that policies for forwarded packets select. Such a policy admits a packet that was decrypted and drops its like in the
/// clear, which have the same tuple and frame header: only the kernel knows which is which (`xfrm_policy_check`).
pub fn analyse_policies<'a>(policies: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<Finding> {
    policies.into_iter().filter_map(|p| finding(p)).collect()
}

fn finding(policy: &[u8]) -> Option<Finding> {
    if *policy.get(DIRECTION)? != XFRM_POLICY_FWD {
        return None;
    }
    let family = i32::from(u16_at(policy, FAMILY)?);
    let (ip, src, dst) = match family {
        libc::AF_INET => {
            let range = |at| prefix::<4>(policy, at);
            (vec![Family::Ipv4], range(SOURCE)?, range(DESTINATION)?)
        }
        libc::AF_INET6 => {
            let range = |at| prefix::<16>(policy, at);
            (vec![Family::Ipv6], range(SOURCE)?, range(DESTINATION)?)
        }
        _ => (Vec::new(), Vec::new(), Vec::new()),
    };
    Some(Finding {
        family: "ipsec".into(),
        table: "forward".into(),
        expression: "policy".into(),
        reason: "the kernel has to tell decrypted packets from others".into(),
        ip,
        src,
        dst,
        ..Finding::default()
    })
}

/// Offsets of an address and of its prefix length.
const DESTINATION: (usize, usize) = (0, 42);
const SOURCE: (usize, usize) = (16, 43);

/// The addresses of a selector; none: any.
fn prefix<const N: usize>(policy: &[u8], (addr, len): (usize, usize)) -> Option<Vec<AddrRange>>
where
    IpAddr: From<[u8; N]>,
{
    let octets: [u8; N] = policy.get(addr..addr + N)?.try_into().ok()?;
    let len = *policy.get(len)?;
    let addr = IpAddr::from(octets);
    Some(match len {
        0 => Vec::new(),
        _ => vec![Prefix { addr, len }.range()],
    })
}
