// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of prefix paths.

use std::net::IpAddr;

use freeway_abi::{FW_HOP_ENGINE, FW_HOP_TC, FW_R_ROUTE_ASKED, FW_R_ROUTE_CONFIRMED, fw_hop};
use freeway_api::{
    FamilyRoutes, FlowPath, HopState, KeptPort, KeptPrefixes, NextHop, Packets, RouteAnswer,
    Routes, RoutesQuery,
};
use freeway_datapath::{RouteHook, RouteTable};
use freeway_kernel::routes;
use freeway_prefix::Prefix;
use freeway_routing::{HOP_MAX, Hop, Ip, Way};

use super::super::Engine;
use super::Table;
use super::family::Sided;
use super::side::Side;

/// As people write it.
pub fn prefix_words<A: Ip>(prefix: &Prefix<A>) -> String {
    format!("{}/{}", prefix.first().ip(), prefix.length())
}

fn mac_words(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn routed_by<A: Sided>(data: &RouteTable) -> Packets {
    let mut all = Packets::default();
    for leaf in 0..=HOP_MAX {
        let count = data.count(A::leaf(leaf));
        all.packets += count.packets;
        all.bytes += count.bytes;
    }
    all
}

impl Table {
    /// What left by prefixes.
    fn routed(&self) -> Packets {
        // what is no next hop's is of neither
        let (mut all, ipv6) = (routed_by::<u32>(&self.data), routed_by::<u128>(&self.data));
        all.packets += ipv6.packets;
        all.bytes += ipv6.bytes;
        all
    }
}

fn family<A: Sided>(side: &Side<A>, data: &RouteTable) -> FamilyRoutes {
    let counts = side.counts();
    let (prefixes, bytes) = data.size::<A>();
    let kept = counts.kept.into_iter();
    FamilyRoutes {
        active: data.valid::<A>(),
        reason: None,
        loading: side.is_loading(),
        routes: counts.routes as u64,
        prefixes: prefixes as u64,
        table_bytes: bytes as u64,
        withdrawn: counts.withdrawn as u64,
        kept: kept
            .map(|(why, prefixes)| KeptPrefixes {
                reason: why.words().into(),
                prefixes: prefixes as u64,
            })
            .collect(),
    }
}

pub(super) fn refused_words(prefix: &Prefix<u32>) -> String {
    format!(
        "rp_filter is 0 at a port, and the kernel takes no packets from {}, a local route",
        prefix_words(prefix)
    )
}

impl Engine {
    /// Packets that left by prefixes, ever.
    pub(in crate::engine) fn routed(&self) -> Packets {
        let table = self.routes.table.as_ref();
        let now = table.map_or_else(Packets::default, Table::routed);
        Packets {
            packets: self.routes.past.packets + now.packets,
            bytes: self.routes.past.bytes + now.bytes,
        }
    }

    /// Why a port has no prefix paths; `None`: it has.
    pub(in crate::engine) fn unrouted_at(&self, ifindex: u32, name: &str) -> Option<String> {
        if self.config.policy.without_routes() {
            return Some("policy.routes is false in the configuration".into());
        }
        let routed = self.ports.by_index.get(&ifindex);
        if routed.is_some_and(|port| port.by_routes) {
            return None;
        }
        let kept = self.routes.ports_kept.get(name).cloned();
        kept.or_else(|| Some("it was not judged yet".into()))
    }

    /// `freeway routes`.
    pub(in crate::engine) fn routes(&self, query: &RoutesQuery) -> Routes {
        let known = &self.routes;
        let mut routes = Routes {
            enabled: !self.config.policy.without_routes(),
            contradicted: known.strayed,
            ..Routes::default()
        };
        let kept = known.ports_kept.iter();
        routes.ports_kept = kept
            .map(|(port, reason)| KeptPort {
                port: port.clone(),
                reason: reason.clone(),
            })
            .collect();
        let ports = self.ports.by_index.values();
        let ports = ports.filter(|port| port.by_routes);
        routes.ports = ports.map(|port| port.name.clone()).collect();
        let reasons = self.datapath.reasons().unwrap_or_default();
        let reason = |at: u32| reasons.get(at as usize).copied().unwrap_or(0);
        routes.asked = reason(FW_R_ROUTE_ASKED);
        routes.confirmed = reason(FW_R_ROUTE_CONFIRMED);
        if let Some(table) = &known.table {
            routes.ipv4 = family(&table.v4, &table.data);
            routes.ipv6 = family(&table.v6, &table.data);
            routes.next_hops = self.next_hops(&table.v4, &table.data);
            let of_ipv6 = self.next_hops(&table.v6, &table.data);
            routes.next_hops.extend(of_ipv6);
            let busiest = |hop: &NextHop| std::cmp::Reverse(hop.routed.packets);
            routes.next_hops.sort_by_key(busiest);
        }
        routes.routed = self.routed();
        routes.ipv4.reason.clone_from(&known.reasons.ipv4);
        routes.ipv6.reason.clone_from(&known.reasons.ipv6);
        let refused = self.refused_sources();
        let refused = refused.map(|prefix| refused_words(&prefix));
        routes.ipv4.reason = routes.ipv4.reason.or(refused);
        routes.answer = query.address.map(|address| self.route_of(address));
        routes
    }

    /// By which route packets to an address leave without a flow, if they do.
    pub(in crate::engine) fn route_words(&self, to: IpAddr) -> Option<String> {
        self.routes.table.as_ref()?;
        let answer = self.route_of(to);
        let (prefix, port) = answer.prefix.zip(answer.port).filter(|_| answer.fast)?;
        let by = match answer.path {
            Some(FlowPath::Tc) => "tc forwards what comes in at ports without XDP",
            Some(FlowPath::Engine) => "the engine forwards what comes in at its ports",
            _ => "XDP forwards it",
        };
        Some(format!(
            "{by} without a flow, by the route {prefix}, at {port}"
        ))
    }

    fn next_hops<A: Sided>(&self, side: &Side<A>, data: &RouteTable) -> Vec<NextHop> {
        let now = self.now_tick().unwrap_or(0);
        let epoch = self.manager.epoch();
        let hops = (0..=HOP_MAX).filter_map(|leaf| Some((leaf, data.hop(A::leaf(leaf))?)));
        hops.filter_map(|(leaf, hop)| {
            let count = data.count(A::leaf(leaf));
            let confirmed = hop.confirmed_tick != 0;
            let ticks = now
                .wrapping_sub(hop.confirmed_tick)
                .cast_signed()
                .max(0)
                .cast_unsigned();
            Some(NextHop {
                port: self.port_words(hop.port),
                neighbour: side.neighbour(leaf)?.ip(),
                mac: mac_of(&hop),
                path: self.path_here(&hop),
                len_max: hop.len_max,
                state: match hop.epoch == epoch {
                    true => HopState::Confirmed,
                    false => HopState::Unconfirmed,
                },
                confirmed_ms: confirmed
                    .then(|| u64::from(ticks) * 1000 / u64::from(self.datapath.clock.hz())),
                routed: Packets {
                    packets: count.packets,
                    bytes: count.bytes,
                },
            })
        })
        .collect()
    }

    /// By what packets leave by a next hop, wherever they may come in.
    fn path_here(&self, hop: &fw_hop) -> FlowPath {
        let mut ports = self.ports.by_index.values();
        let in_xdp = ports.any(|port| port.routed() == Some(RouteHook::Xdp));
        let mut ports = self.ports.by_index.values();
        let table = self.routes.table.as_ref();
        let by_engine = table.is_some_and(|table| self.cores.goes_by_routes(table.number))
            && ports.any(|port| port.by_engine_routes);
        match path_of(hop) {
            FlowPath::Xdp if !in_xdp => FlowPath::Tc,
            FlowPath::Engine if !by_engine => FlowPath::Tc,
            path => path,
        }
    }

    fn port_words(&self, ifindex: u32) -> String {
        let link = self.mirror.links().get(&ifindex);
        link.map_or_else(|| format!("if{ifindex}"), |link| link.name.clone())
    }

    /// What becomes of packets to an address.
    fn route_of(&self, address: IpAddr) -> RouteAnswer {
        let table = self.routes.table.as_ref();
        match address {
            IpAddr::V4(ip) => self.route_by(ip.to_bits(), table.map(|table| &table.v4)),
            IpAddr::V6(ip) => self.route_by(ip.to_bits(), table.map(|table| &table.v6)),
        }
    }

    fn route_by<A: Sided>(&self, to: A, side: Option<&Side<A>>) -> RouteAnswer {
        let address = to.ip();
        let data = self.routes.table.as_ref().map(|table| &table.data);
        let known = side.and_then(|side| side.routing().lookup(to));
        let kernel = routes::get(address).ok().flatten();
        let (mut prefix, mut port, mut neighbour) = (None, None, None);
        if let Some((_, of, way)) = known.as_ref().and_then(|known| known.route) {
            prefix = Some(prefix_words(&of));
            if let Some(Way::Via {
                oif, gateway: via, ..
            }) = way
            {
                port = Some(self.port_words(oif));
                neighbour = Some(if via == A::default() {
                    address
                } else {
                    via.ip()
                });
            }
        }
        let kernel_port = kernel.as_ref().and_then(|route| route.oif());
        let kernel_port = kernel_port.map(|oif| self.port_words(oif));
        let kernel_neighbour = kernel.as_ref().and_then(|route| match route.gateway() {
            Some(gateway) => A::of(gateway).map(|_| gateway),
            None => route.oif().map(|_| address),
        });
        let record = known
            .as_ref()
            .and_then(|known| data?.hop(A::leaf(known.leaf)));
        let fast = |hop: &Hop<A>| {
            record.is_some_and(|record| {
                record.port == hop.oif && record.epoch == self.manager.epoch()
            })
        };
        let hop = known.as_ref().and_then(|known| known.hop.as_ref());
        let valid = data.is_some_and(|data| data.valid::<A>());
        let why = known.as_ref().and_then(|known| known.why);
        let reason = if let Some(reason) = self.routes.reasons.of(A::FAMILY).clone() {
            Some(reason)
        } else if !self.routes.has(A::FAMILY) {
            Some("no port has prefix paths".into())
        } else if !valid {
            Some("the kernel's routes are being read".into())
        } else if let Some(why) = why {
            Some(why.words().into())
        } else if known.is_none() {
            Some("there is no route".into())
        } else if hop.is_none() {
            Some("its neighbour, or the port where it leaves, cannot be used now".into())
        } else if !hop.is_some_and(fast) {
            Some("its next hop waits for the kernel to confirm it".into())
        } else {
            None
        };
        let agrees = port.is_none() || (port == kernel_port && neighbour == kernel_neighbour);
        RouteAnswer {
            address,
            prefix,
            port,
            neighbour,
            fast: reason.is_none(),
            path: record
                .filter(|_| reason.is_none())
                .map(|hop| self.path_here(&hop)),
            reason,
            kernel_port,
            kernel_neighbour,
            agrees,
        }
    }
}

fn path_of(hop: &fw_hop) -> FlowPath {
    match (hop.status, hop.engine) {
        (FW_HOP_TC, FW_HOP_ENGINE) => FlowPath::Engine,
        (FW_HOP_TC, _) => FlowPath::Tc,
        _ => FlowPath::Xdp,
    }
}

fn mac_of(hop: &fw_hop) -> String {
    let mut mac = [0; 6];
    mac.copy_from_slice(&hop.l2[..6]);
    mac_words(mac)
}
