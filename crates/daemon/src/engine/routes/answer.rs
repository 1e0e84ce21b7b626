// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of prefix paths.

use std::net::{IpAddr, Ipv4Addr};

use freeway_abi::{FW_R_ROUTE_ASKED, FW_R_ROUTE_CONFIRMED, fw_hop};
use freeway_api::{
    HopState, KeptPort, KeptPrefixes, NextHop, Packets, RouteAnswer, Routes, RoutesQuery,
};
use freeway_kernel::routes;
use freeway_prefix::Prefix4;
use freeway_routing::{HOP_MAX, Hop, Way};

use super::super::Engine;
use super::Table;

fn words(prefix: &Prefix4) -> String {
    format!("{}/{}", Ipv4Addr::from(prefix.first()), prefix.length())
}

fn mac_words(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl Table {
    /// What left by prefixes.
    fn routed(&self) -> Packets {
        let mut all = Packets::default();
        for leaf in 0..=HOP_MAX {
            let count = self.data.count(leaf);
            all.packets += count.packets;
            all.bytes += count.bytes;
        }
        all
    }
}

impl Engine {
    /// Packets that left by prefixes.
    pub(in crate::engine) fn routed(&self) -> Packets {
        self.routes
            .table
            .as_ref()
            .map_or_else(Packets::default, Table::routed)
    }

    /// Why a port has no prefix paths; `None`: it has.
    pub(in crate::engine) fn unrouted_at(&self, ifindex: u32, name: &str) -> Option<String> {
        if !self.config.policy.routes {
            return Some("policy.routes is false in the configuration".into());
        }
        let routed = self.ports.by_index.get(&ifindex);
        if routed.is_some_and(|port| port.is_routed()) {
            return None;
        }
        let kept = self.routes.ports_kept.get(name).cloned();
        kept.or_else(|| self.routes.reason.clone())
            .or_else(|| Some("it was not judged yet".into()))
    }

    /// `freeway routes`.
    pub(in crate::engine) fn routes(&self, query: &RoutesQuery) -> Routes {
        let known = &self.routes;
        let mut routes = Routes {
            enabled: self.config.policy.routes,
            reason: known.reason.clone(),
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
        let ports = ports.filter(|port| port.is_routed());
        routes.ports = ports.map(|port| port.name.clone()).collect();
        let reasons = self.datapath.reasons().unwrap_or_default();
        let reason = |at: u32| reasons.get(at as usize).copied().unwrap_or(0);
        routes.asked = reason(FW_R_ROUTE_ASKED);
        routes.confirmed = reason(FW_R_ROUTE_CONFIRMED);
        if let Some(table) = &known.table {
            let counts = table.routing.counts();
            routes.active = table.data.valid();
            routes.loading = table.loader.busy || !table.prefixes.is_empty();
            routes.routes = counts.routes as u64;
            let (prefixes, bytes) = table.data.size();
            routes.prefixes = prefixes as u64;
            routes.table_bytes = bytes as u64;
            routes.routed = table.routed();
            routes.withdrawn = counts.withdrawn as u64;
            routes.next_hops = self.next_hops(table);
            let kept = counts.kept.into_iter();
            routes.kept = kept
                .map(|(why, prefixes)| KeptPrefixes {
                    reason: why.words().into(),
                    prefixes: prefixes as u64,
                })
                .collect();
        }
        routes.answer = query.address.map(|address| self.route_of(address));
        routes
    }

    /// By which route XDP forwards packets to an address, if it does.
    pub(in crate::engine) fn route_words(&self, to: IpAddr) -> Option<String> {
        let IpAddr::V4(to) = to else { return None };
        self.routes.table.as_ref()?;
        let answer = self.route_of(to);
        let (prefix, port) = answer.prefix.zip(answer.port).filter(|_| answer.fast)?;
        Some(format!(
            "XDP forwards it without a flow, by the route {prefix}, at {port}"
        ))
    }

    fn next_hops(&self, table: &Table) -> Vec<NextHop> {
        let now = self.now_tick().unwrap_or(0);
        let epoch = self.manager.epoch();
        let hops = (0..=HOP_MAX).filter_map(|leaf| Some((leaf, table.data.hop(leaf)?)));
        let mut hops: Vec<NextHop> = hops
            .map(|(leaf, hop)| {
                let count = table.data.count(leaf);
                let confirmed = hop.confirmed_tick != 0;
                let ticks = now.wrapping_sub(hop.confirmed_tick);
                NextHop {
                    port: self.port_words(hop.port),
                    neighbour: table.neighbours.get(&leaf).copied().unwrap_or(0).into(),
                    mac: mac_of(&hop),
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
                }
            })
            .collect();
        hops.sort_by_key(|hop| std::cmp::Reverse(hop.routed.packets));
        hops
    }

    fn port_words(&self, ifindex: u32) -> String {
        let link = self.mirror.links().get(&ifindex);
        link.map_or_else(|| format!("if{ifindex}"), |link| link.name.clone())
    }

    /// What becomes of packets to an address.
    fn route_of(&self, address: Ipv4Addr) -> RouteAnswer {
        let table = self.routes.table.as_ref();
        let known = table.and_then(|table| table.routing.lookup(address.into()));
        let kernel = routes::get(address).ok().flatten();
        let gateway = |gateway: u32| (gateway != 0).then(|| Ipv4Addr::from(gateway));
        let (mut prefix, mut port, mut neighbour) = (None, None, None);
        if let Some((_, of, way)) = known.as_ref().and_then(|known| known.route) {
            prefix = Some(words(&of));
            if let Some(Way::Via {
                oif, gateway: via, ..
            }) = way
            {
                port = Some(self.port_words(oif));
                neighbour = gateway(via).or(Some(address));
            }
        }
        let kernel_port = kernel.as_ref().and_then(|route| route.oif());
        let kernel_port = kernel_port.map(|oif| self.port_words(oif));
        let kernel_neighbour = kernel.as_ref().and_then(|route| match route.gateway() {
            Some(IpAddr::V4(gateway)) => Some(gateway),
            Some(IpAddr::V6(_)) => None,
            None => route.oif().map(|_| address),
        });
        let fast = |hop: &Hop| {
            let confirmed = known.as_ref().and_then(|known| table?.data.hop(known.leaf));
            confirmed.is_some_and(|record| {
                record.port == hop.oif && record.epoch == self.manager.epoch()
            })
        };
        let hop = known.as_ref().and_then(|known| known.hop.as_ref());
        let valid = table.is_some_and(|table| table.data.valid());
        let why = known.as_ref().and_then(|known| known.why);
        let reason = if let Some(reason) = self.routes.reason.clone() {
            Some(reason)
        } else if table.is_none() {
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
            reason,
            kernel_port,
            kernel_neighbour,
            agrees,
        }
    }
}

fn mac_of(hop: &fw_hop) -> String {
    let mut mac = [0; 6];
    mac.copy_from_slice(&hop.l2[..6]);
    mac_words(mac)
}
