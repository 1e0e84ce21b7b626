// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mirror: the kernel's network configuration, kept up to date by events.

mod config;
pub(crate) mod dirty;
mod dump;
mod maps;
mod mroutes;
mod routes;
pub(crate) mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::RawFd;

use crate::error::Result;
use crate::message::Message;
use crate::model::*;
use crate::reachability::{Finding, analyse_policies};
use crate::socket::Listener;
use crate::{decode, nft};
use dirty::Dirty;
use dump::Dumper;
use mroutes::MrouteKey;
use routes::Routes;
use state::{FdbKey, State, difference};

pub use config::MirrorConfig;

const LINK_GROUPS: [u32; 10] = [
    1,  // RTNLGRP_LINK
    4,  // RTNLGRP_TC
    5,  // RTNLGRP_IPV4_IFADDR
    8,  // RTNLGRP_IPV4_RULE
    9,  // RTNLGRP_IPV6_IFADDR
    19, // RTNLGRP_IPV6_RULE
    24, // RTNLGRP_IPV4_NETCONF
    25, // RTNLGRP_IPV6_NETCONF
    32, // RTNLGRP_NEXTHOP
    33, // RTNLGRP_BRVLAN
];
const NEIGH_GROUPS: [u32; 2] = [
    3,  // RTNLGRP_NEIGH
    26, // RTNLGRP_MDB
];
const ROUTE_GROUPS: [u32; 4] = [
    6,  // RTNLGRP_IPV4_MROUTE
    7,  // RTNLGRP_IPV4_ROUTE
    10, // RTNLGRP_IPV6_MROUTE
    11, // RTNLGRP_IPV6_ROUTE
];
const NFT_GROUPS: [u32; 1] = [7];
/// NFNLGRP_CONNTRACK_UPDATE and DESTROY.
const CONNTRACK_GROUPS: [u32; 2] = [2, 3];
/// XFRMNLGRP_EXPIRE, SA, POLICY, MIGRATE.
const XFRM_GROUPS: [u32; 4] = [2, 3, 4, 7];

/// Events of connections that one reading takes.
const CONNECTIONS_PER_READ: usize = 2048;
/// Datagrams of nftables likewise: elements of large sets may come as fast.
const NFT_PER_READ: usize = 512;

const CT_NEW: u16 = 1 << 8;
const CT_DELETE: u16 = (1 << 8) | 2;

/// The kernel's network configuration in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Mirror {
    config: MirrorConfig,
    listeners: Vec<(Source, Listener)>,
    dumper: Dumper,
    state: State,
    nft: nft::events::Transaction,
    more: bool,
}

impl Mirror {
    /// Subscribes, dumps everything, and returns the mirror in step with the kernel.
    pub fn open() -> Result<Mirror> {
        Mirror::open_with(MirrorConfig::default())
    }

    /// [`Mirror::open`] with a configuration.
    pub fn open_with(config: MirrorConfig) -> Result<Mirror> {
        let mut wanted: Vec<(Source, i32, &[u32])> = vec![
            (Source::Link, libc::NETLINK_ROUTE, &LINK_GROUPS),
            (Source::Neigh, libc::NETLINK_ROUTE, &NEIGH_GROUPS),
            (Source::Route, libc::NETLINK_ROUTE, &ROUTE_GROUPS),
            (Source::Nft, libc::NETLINK_NETFILTER, &NFT_GROUPS),
            (Source::Xfrm, libc::NETLINK_XFRM, &XFRM_GROUPS),
        ];
        if config.conntrack_events {
            wanted.push((
                Source::Conntrack,
                libc::NETLINK_NETFILTER,
                &CONNTRACK_GROUPS,
            ));
        }
        let mut listeners = Vec::new();
        for (source, protocol, groups) in wanted {
            match Listener::open(protocol, groups, config.receive_buffer_bytes) {
                Ok(listener) => listeners.push((source, listener)),
                Err(error) if dump::listener_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let mut mirror = Mirror {
            config,
            listeners,
            dumper: Dumper::open()?,
            state: State::default(),
            nft: nft::events::Transaction::default(),
            more: false,
        };
        mirror.resync()?;
        Ok(mirror)
    }

    /// Hears no more of changes of connections that the socket with this port made.
    pub fn ignore(&self, port: u32) -> Result<()> {
        let conntrack = |(source, _): &&(Source, Listener)| *source == Source::Conntrack;
        match self.listeners.iter().find(conntrack) {
            Some((_, listener)) => listener.ignore(port),
            None => Ok(()),
        }
    }

    /// The event sockets, to be polled for reading; [`Mirror::read`] drains them.
    pub fn fds(&self) -> Vec<RawFd> {
        self.listeners
            .iter()
            .map(|(_, listener)| listener.fd())
            .collect()
    }

    /// The sources that the kernel has. A missing one has no changes to tell of, or tells none.
    pub fn sources(&self) -> Vec<Source> {
        self.listeners.iter().map(|(source, _)| *source).collect()
    }

    /// Drains the event sockets without blocking, updates the state, appends what changed. Of connections and elements of
    /// sets, which may change faster than anybody reads, a bounded number; [`Mirror::has_more`] tells.
    pub fn read(&mut self, events: &mut Vec<Event>) -> Result<()> {
        let mut dirty = Dirty::default();
        self.more = false;
        for (source, listener) in &mut self.listeners {
            let source = *source;
            let (state, nft, dirty) = (&mut self.state, &mut self.nft, &mut dirty);
            let limit = match source {
                Source::Conntrack => CONNECTIONS_PER_READ,
                Source::Nft => NFT_PER_READ,
                _ => usize::MAX,
            };
            let drained = listener.drain(limit, &mut |message| match source {
                Source::Link | Source::Neigh | Source::Route => {
                    state.apply(&message, dirty, events);
                }
                Source::Nft => {
                    if let Some(generation) = nft.apply(&message, events) {
                        state.generation = generation;
                    }
                }
                Source::Conntrack => events.extend(connection_event(&message)),
                Source::Xfrm => dirty.xfrm = true,
            })?;
            self.more |= drained.more;
            if drained.overrun {
                events.push(Event::Overrun { source });
            }
        }
        self.refresh(&dirty, events)
    }

    /// True if the last [`Mirror::read`] left something.
    pub fn has_more(&self) -> bool {
        self.more
    }

    fn refresh(&mut self, dirty: &Dirty, events: &mut Vec<Event>) -> Result<()> {
        if !dirty.traffic_control.is_empty() {
            self.dumper
                .traffic_control(&mut self.state, Some(&dirty.traffic_control))?;
            self.dumper
                .root_qdiscs(&mut self.state, &dirty.traffic_control)?;
        }
        if self.state.mroutes.doubtful(dirty) {
            let mroutes = self.dumper.mroutes()?;
            self.state.mroutes.difference(&mroutes, events);
            self.state.mroutes = mroutes;
        }
        if dirty.xfrm {
            self.dumper.xfrm(&mut self.state)?;
            events.push(Event::XfrmChanged);
        }
        Ok(())
    }

    /// Dumps everything and returns what changed since: queued events first, then the difference between what
    /// was known and what is. Start-up is this against an empty state; a second one right after returns nothing.
    /// Connections are not mirrored: after an overrun of [`Source::Conntrack`] look each up.
    pub fn resync(&mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        self.read(&mut events)?;
        // What was lost before the dump is in the dump.
        events.retain(
            |event| !matches!(event, Event::Overrun { source } if *source != Source::Conntrack),
        );
        let state = self.dumper.state(&self.config)?;
        events.extend(difference(&self.state, &state));
        self.state = state;
        self.state.routes_doubted = false;
        Ok(events)
    }

    /// What a dump of now has otherwise than the mirror, which stays as it is: of some of it an event may be under way.
    pub fn behind(&mut self) -> Result<Vec<Event>> {
        let state = self.dumper.state(&self.config)?;
        Ok(difference(&self.state, &state))
    }

    /// The present state as the events that lead to it from nothing.
    pub fn snapshot(&self) -> Vec<Event> {
        difference(&State::default(), &self.state)
    }

    /// Links by ifindex.
    pub fn links(&self) -> &BTreeMap<u32, Link> {
        &self.state.links
    }

    /// The link of a name.
    pub fn link_by_name(&self, name: &str) -> Option<&Link> {
        self.state.links.values().find(|link| link.name == name)
    }

    /// Addresses by interface, address and prefix length.
    pub fn addrs(&self) -> &BTreeMap<(u32, IpAddr, u8), Addr> {
        &self.state.addrs
    }

    /// Neighbours by interface and address.
    pub fn neighs(&self) -> &BTreeMap<(u32, IpAddr), Neigh> {
        &self.state.neighs
    }

    /// FDB entries by bridge (or tunnel device), VLAN (0 without) and station.
    pub fn fdb(&self) -> &BTreeMap<FdbKey, Fdb> {
        &self.state.fdb
    }

    /// Who listens to groups at bridges; whether those are kept from what others have.
    pub fn mdb(&self) -> &BTreeMap<MdbKey, bool> {
        &self.state.mdb
    }

    /// Ports of bridges with multicast routers.
    pub fn router_ports(&self) -> &BTreeSet<RouterPort> {
        &self.state.router_ports
    }

    /// Policy rules.
    pub fn rules(&self) -> &BTreeSet<Rule> {
        &self.state.rules
    }

    /// Nexthop objects by identifier.
    pub fn nexthops(&self) -> &BTreeMap<u32, Nexthop> {
        &self.state.nexthops
    }

    /// Routes, or `None` when there are more than the limit.
    pub fn routes(&self) -> Option<&BTreeSet<Route>> {
        match &self.state.routes {
            Routes::Kept { routes, .. } => Some(routes),
            Routes::Digest { .. } => None,
        }
    }

    /// Entries of the multicast forwarding caches by table, source and group.
    pub fn mroutes(&self) -> &BTreeMap<MrouteKey, Mroute> {
        self.state.mroutes.entries()
    }

    /// Classes of htb and hfsc by interface and handle.
    pub fn classes(&self) -> &BTreeMap<(u32, u32), Class> {
        &self.state.classes
    }

    /// Qdiscs by interface, parent and handle.
    pub fn qdiscs(&self) -> &BTreeMap<(u32, u32, u32), Qdisc> {
        &self.state.qdiscs
    }

    /// tc filters by interface, in the kernel's order within each parent.
    pub fn filters(&self) -> &BTreeMap<u32, Vec<Filter>> {
        &self.state.filters
    }

    /// Forwarding switches by family and interface (-1 all, -2 default).
    pub fn netconf(&self) -> &BTreeMap<(Family, i32), Netconf> {
        &self.state.netconf
    }

    /// Generation of the nftables ruleset, 0 without nftables.
    pub fn ruleset_generation(&self) -> u32 {
        self.state.generation
    }

    /// Number of IPsec policies.
    pub fn xfrm_policies(&self) -> usize {
        self.state.policies.len()
    }

    /// The flows whose forwarding an IPsec policy judges.
    pub fn xfrm_findings(&self) -> Vec<Finding> {
        analyse_policies(&self.state.policies)
    }

    /// Number of IPsec states.
    pub fn xfrm_states(&self) -> usize {
        self.state.states.len()
    }

    /// Interfaces that IPsec policies or states are offloaded to in packet mode.
    pub fn xfrm_offload_ports(&self) -> &BTreeSet<u32> {
        &self.state.offload_ports
    }
}

/// IPCTNL_MSG_CT_NEW in the UPDATE group, IPCTNL_MSG_CT_DELETE in the DESTROY group (`ctnetlink_conntrack_event`).
fn connection_event(message: &Message<'_>) -> Option<Event> {
    match message.kind {
        CT_NEW => decode::connection::connection(message.payload).map(Event::ConnectionUpdated),
        CT_DELETE => {
            decode::connection::connection(message.payload).map(Event::ConnectionDestroyed)
        }
        _ => None,
    }
}
