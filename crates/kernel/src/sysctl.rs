// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values under /proc/sys/net, which tell of no change. They are those of the calling thread's network namespace.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::model::TcpState;

/// Sysctls that bear on what the fast path may do. `None` where the kernel has no such value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sysctls {
    /// `net.ipv4.ip_forward`.
    pub ip_forward: Option<u64>,
    /// `net.ipv6.conf.all.forwarding`.
    pub ipv6_forwarding: Option<u64>,
    /// `net.ipv4.ip_forward_use_pmtu`.
    pub ip_forward_use_pmtu: Option<u64>,
    /// `net.ipv4.ip_forward_update_priority`.
    pub ip_forward_update_priority: Option<u64>,
    /// `net.ipv4.fib_multipath_hash_policy`.
    pub ipv4_multipath_hash_policy: Option<u64>,
    /// `net.ipv4.fib_multipath_use_neigh`.
    pub ipv4_multipath_use_neigh: Option<u64>,
    /// `net.ipv6.fib_multipath_hash_policy`.
    pub ipv6_multipath_hash_policy: Option<u64>,
    /// `net.netfilter.nf_conntrack_checksum`.
    pub conntrack_checksum: Option<u64>,
    /// `net.netfilter.nf_conntrack_events`: 0 off, 1 on, 2 with listeners.
    pub conntrack_events: Option<u64>,
    /// `net.netfilter.nf_conntrack_acct`.
    pub conntrack_acct: Option<u64>,
    /// `net.netfilter.nf_conntrack_max`.
    pub conntrack_max: Option<u64>,
    /// `net.netfilter.nf_conntrack_tcp_be_liberal`.
    pub tcp_be_liberal: Option<u64>,
    /// `net.netfilter.nf_conntrack_tcp_loose`.
    pub tcp_loose: Option<u64>,
    /// `net.netfilter.nf_conntrack_tcp_timeout_established`, seconds.
    pub tcp_timeout_established_s: Option<u64>,
    /// `net.netfilter.nf_conntrack_tcp_timeout_unacknowledged`, seconds.
    pub tcp_timeout_unacknowledged_s: Option<u64>,
    /// `net.netfilter.nf_conntrack_udp_timeout`, seconds.
    pub udp_timeout_s: Option<u64>,
    /// `net.netfilter.nf_conntrack_udp_timeout_stream`, seconds.
    pub udp_timeout_stream_s: Option<u64>,
    /// `net.bridge.bridge-nf-call-iptables`.
    pub bridge_nf_call_iptables: Option<u64>,
    /// `net.bridge.bridge-nf-call-ip6tables`.
    pub bridge_nf_call_ip6tables: Option<u64>,
}

impl Sysctls {
    /// True if multipath routes choose by more than addresses, of either family.
    pub fn hash_beyond_addresses(&self) -> bool {
        let policies = [
            self.ipv4_multipath_hash_policy,
            self.ipv6_multipath_hash_policy,
        ];
        policies.into_iter().flatten().any(|policy| policy != 0)
    }

    /// Reads them all.
    pub fn read() -> Sysctls {
        let conntrack = |name: &str| number(&format!("netfilter/nf_conntrack_{name}"));
        Sysctls {
            ip_forward: number("ipv4/ip_forward"),
            ipv6_forwarding: number("ipv6/conf/all/forwarding"),
            ip_forward_use_pmtu: number("ipv4/ip_forward_use_pmtu"),
            ip_forward_update_priority: number("ipv4/ip_forward_update_priority"),
            ipv4_multipath_hash_policy: number("ipv4/fib_multipath_hash_policy"),
            ipv4_multipath_use_neigh: number("ipv4/fib_multipath_use_neigh"),
            ipv6_multipath_hash_policy: number("ipv6/fib_multipath_hash_policy"),
            conntrack_checksum: conntrack("checksum"),
            conntrack_events: conntrack("events"),
            conntrack_acct: conntrack("acct"),
            conntrack_max: conntrack("max"),
            tcp_be_liberal: conntrack("tcp_be_liberal"),
            tcp_loose: conntrack("tcp_loose"),
            tcp_timeout_established_s: conntrack("tcp_timeout_established"),
            tcp_timeout_unacknowledged_s: conntrack("tcp_timeout_unacknowledged"),
            udp_timeout_s: conntrack("udp_timeout"),
            udp_timeout_stream_s: conntrack("udp_timeout_stream"),
            bridge_nf_call_iptables: number("bridge/bridge-nf-call-iptables"),
            bridge_nf_call_ip6tables: number("bridge/bridge-nf-call-ip6tables"),
        }
    }
}

/// A number under /proc/sys/net, by its path with slashes.
pub fn number(path: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/net/{path}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Seconds for which conntrack keeps a TCP connection in a state (`net.netfilter.nf_conntrack_tcp_timeout_...`).
pub fn tcp_timeout_s(state: TcpState) -> Option<u32> {
    let name = match state {
        TcpState::SynSent => "syn_sent",
        TcpState::SynRecv => "syn_recv",
        TcpState::Established => "established",
        TcpState::FinWait => "fin_wait",
        TcpState::CloseWait => "close_wait",
        TcpState::LastAck => "last_ack",
        TcpState::TimeWait => "time_wait",
        TcpState::Close => "close",
        TcpState::None | TcpState::SynSent2 | TcpState::Other(_) => return None,
    };
    let seconds = number(&format!("netfilter/nf_conntrack_tcp_timeout_{name}"))?;
    u32::try_from(seconds).ok()
}

/// True if conntrack is there, built in or loaded.
#[must_use]
pub fn has_conntrack() -> bool {
    let paths = [
        "/proc/sys/net/netfilter/nf_conntrack_max",
        "/proc/sys/net/nf_conntrack_max",
    ];
    paths.iter().any(|path| Path::new(path).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_tcp_has_its_time() {
        for number in 1..=8 {
            let seconds = tcp_timeout_s(number.into());
            assert_eq!(seconds.is_some(), has_conntrack(), "{number}: {seconds:?}");
        }
        assert_eq!(tcp_timeout_s(TcpState::Other(77)), None);
    }
}
