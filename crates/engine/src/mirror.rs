// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is copied for who looks on (`engine/mirror.c`).

use std::fmt;
use std::net::IpAddr;

use freeway_api::{PortRange, Prefix, SteerRule};

use crate::ffi::{
    FWE_MIRROR_ANY_PROTO, fwe_mirror, fwe_mirror_end, fwe_mirror_net, fwe_mirror_range,
    fwe_mirror_rule, rte_mempool,
};
use crate::pool::Pool;

/// Rules as workers have them.
pub struct Mirror {
    given: Box<fwe_mirror>,
    /// What that points to,
    _rules: Vec<fwe_mirror_rule>,
    /// and what these point to.
    _ends: Vec<End>,
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror")
            .field("rules", &self.rules())
            .finish_non_exhaustive()
    }
}

/// Networks and ports of one end.
struct End {
    nets: Vec<fwe_mirror_net>,
    ports: Vec<fwe_mirror_range>,
}

impl End {
    fn new(nets: &[Prefix], ports: &[PortRange]) -> Self {
        let range = |range: &PortRange| fwe_mirror_range {
            first: range.first,
            last: range.last,
        };
        Self {
            nets: nets.iter().map(net).collect(),
            ports: ports.iter().map(range).collect(),
        }
    }

    /// As long as this lives, wherever it is.
    fn given(&self) -> fwe_mirror_end {
        fwe_mirror_end {
            nets: self.nets.as_ptr(),
            ports: self.ports.as_ptr(),
            nets_count: self.nets.len() as u32,
            ports_count: self.ports.len() as u32,
        }
    }
}

fn net(prefix: &Prefix) -> fwe_mirror_net {
    let mut addr = [0; 16];
    match prefix.addr {
        IpAddr::V4(net) => addr[..4].copy_from_slice(&net.octets()),
        IpAddr::V6(net) => addr = net.octets(),
    }
    fwe_mirror_net {
        addr,
        v6: prefix.addr.is_ipv6().into(),
        len: prefix.len,
    }
}

impl Mirror {
    /// The rules that name a mirror, for ports of these names in their order, and why others are none; `pool` is that of the
    /// copies, and lives longer.
    pub(crate) fn new(rules: &[SteerRule], names: &[&str], pool: &Pool) -> (Self, Vec<String>) {
        Self::with(rules, names, pool.as_ptr())
    }

    /// The same.
    #[must_use]
    pub fn with(
        rules: &[SteerRule],
        names: &[&str],
        pool: *mut rte_mempool,
    ) -> (Self, Vec<String>) {
        let number = |wanted: &String| {
            let place = names.iter().position(|name| name == wanted);
            place.ok_or_else(|| format!("{wanted} is no port of the engine that runs"))
        };
        let (mut built, mut ends, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for rule in rules {
            let Some(mirror) = &rule.mirror else { continue };
            let mut ports = rule.port.iter().map(number);
            let at = ports.try_fold(0, |at, port| Ok(at | 1 << port?));
            let (at, target) = match at.and_then(|at| Ok((at, number(mirror)?))) {
                Ok(numbers) => numbers,
                Err(why) => {
                    let why: String = why;
                    refused.push(format!("{} {}: {why}", rule.aim(), rule.words()));
                    continue;
                }
            };
            let both = [
                End::new(&rule.src, &rule.sport),
                End::new(&rule.dst, &rule.dport),
            ];
            let [src, dst] = [both[0].given(), both[1].given()];
            ends.extend(both);
            built.push(fwe_mirror_rule {
                at,
                target: target as u32,
                proto: rule
                    .proto
                    .map_or(FWE_MIRROR_ANY_PROTO, |proto| proto.0.into()),
                src,
                dst,
            });
        }
        let mirror = Self {
            given: Box::new(fwe_mirror {
                rules: built.as_ptr(),
                rules_count: built.len() as u32,
                pad: 0,
                pool,
            }),
            _rules: built,
            _ends: ends,
        };
        (mirror, refused)
    }

    /// How many.
    #[must_use]
    pub fn rules(&self) -> u32 {
        self.given.rules_count
    }

    /// For workers, as long as this lives.
    #[must_use]
    pub fn given(&self) -> &fwe_mirror {
        &self.given
    }
}
