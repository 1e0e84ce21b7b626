// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mirrored state: what a kernel message changes in it, and how two states differ. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::dirty::Dirty;
use super::maps::maps;
use super::mroutes::Mroutes;
use super::routes::Routes;
use crate::decode;
use crate::message::{Message, REPLACE};
use crate::model::*;

const RTM_NEWNETCONF: u16 = 80;
const RTM_DELNETCONF: u16 = 81;
const RTM_NEWMDB: u16 = 84;
const RTM_DELMDB: u16 = 85;
const RTM_GETMDB: u16 = 86;
const RTM_NEWCHAIN: u16 = 100;
const RTM_DELCHAIN: u16 = 101;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_NEWVLAN: u16 = 112;
const RTM_DELVLAN: u16 = 113;
const RTM_NEWNEXTHOPBUCKET: u16 = 116;
const RTM_DELNEXTHOPBUCKET: u16 = 117;

/// Key of an FDB entry: bridge (or tunnel device), VLAN (0 without), station.
pub type FdbKey = (u32, u16, Mac);

/// Everything that is mirrored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub links: BTreeMap<u32, Link>,
    pub addrs: BTreeMap<(u32, IpAddr, u8), Addr>,
    pub neighs: BTreeMap<(u32, IpAddr), Neigh>,
    pub fdb: BTreeMap<FdbKey, Fdb>,
    /// With whether it is excluded.
    pub mdb: BTreeMap<MdbKey, bool>,
    pub router_ports: BTreeSet<RouterPort>,
    pub rules: BTreeSet<Rule>,
    pub nexthops: BTreeMap<u32, Nexthop>,
    pub routes: Routes,
    /// Routes may have gone without an event, so that one which is known may be new.
    pub routes_doubted: bool,
    pub mroutes: Mroutes,
    pub qdiscs: BTreeMap<(u32, u32, u32), Qdisc>,
    /// By interface and handle, of qdiscs whose classes have filters.
    pub classes: BTreeMap<(u32, u32), Class>,
    pub filters: BTreeMap<u32, Vec<Filter>>,
    pub netconf: BTreeMap<(Family, i32), Netconf>,
    pub generation: u32,
    pub policies: BTreeSet<Vec<u8>>,
    pub states: BTreeSet<Vec<u8>>,
    pub offload_ports: BTreeSet<u32>,
}

/// True of a message about multicast forwarding.
fn is_mroute(payload: &[u8]) -> bool {
    use decode::mroute::{RTNL_FAMILY_IP6MR, RTNL_FAMILY_IPMR};
    matches!(
        payload.first(),
        Some(&(RTNL_FAMILY_IPMR | RTNL_FAMILY_IP6MR))
    )
}

fn fdb_key(fdb: &Fdb) -> FdbKey {
    (
        fdb.master.unwrap_or(fdb.ifindex),
        fdb.vlan.unwrap_or(0),
        fdb.mac,
    )
}

fn addr_key(addr: &Addr) -> (u32, IpAddr, u8) {
    (addr.ifindex, addr.local, addr.prefix_len)
}

impl State {
    /// Applies one rtnetlink message; appends what changed to `events`.
    pub fn apply(&mut self, message: &Message<'_>, dirty: &mut Dirty, events: &mut Vec<Event>) {
        let payload = message.payload;
        let known = match message.kind {
            libc::RTM_NEWLINK | libc::RTM_DELLINK => {
                self.link(message.kind == libc::RTM_NEWLINK, payload, dirty, events)
            }
            libc::RTM_NEWADDR | libc::RTM_DELADDR => {
                self.addr(message.kind == libc::RTM_NEWADDR, payload, events)
            }
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE if is_mroute(payload) => {
                decode::mroute::mroute(payload).map(|mroute| {
                    let new = message.kind == libc::RTM_NEWROUTE;
                    dirty.mroutes |= self.mroutes.apply(new, mroute, events);
                })
            }
            libc::RTM_NEWROUTE => decode::route::route(payload).map(|route| {
                let replace = message.flags & REPLACE != 0;
                if self.routes.insert(route.clone(), replace) || self.routes_doubted {
                    events.push(Event::RouteChanged(route, replace));
                }
            }),
            libc::RTM_DELROUTE => decode::route::route(payload).map(|route| {
                self.routes.remove(&route);
                events.push(Event::RouteGone(route));
            }),
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
                let new = message.kind == libc::RTM_NEWNEIGH;
                match payload.first().map(|&family| i32::from(family)) {
                    Some(libc::AF_BRIDGE) => self.fdb(new, payload, events),
                    _ => self.neigh(new, payload, events),
                }
            }
            // those of a dump are called what it was asked by (br_mdb_dump)
            RTM_NEWMDB | RTM_GETMDB | RTM_DELMDB => {
                self.mdb(message.kind != RTM_DELMDB, payload, events)
            }
            libc::RTM_NEWRULE | libc::RTM_DELRULE if decode::mroute::is_family(payload) => {
                events.push(Event::MruleChanged);
                Some(())
            }
            libc::RTM_NEWRULE => decode::rule::rule(payload).map(|rule| {
                // one that is as another may differ in what is not decoded
                self.rules.insert(rule.clone());
                events.push(Event::RuleChanged(rule));
            }),
            libc::RTM_DELRULE => decode::rule::rule(payload).map(|rule| {
                self.rules.remove(&rule);
                events.push(Event::RuleChanged(rule));
            }),
            RTM_NEWNEXTHOP => decode::nexthop::nexthop(payload).map(|nexthop| {
                let id = nexthop.id;
                let old = self.nexthops.insert(id, nexthop.clone());
                self.routes_doubted |= old.is_some();
                if old.as_ref() != Some(&nexthop) {
                    events.push(Event::NexthopChanged { id });
                }
            }),
            RTM_DELNEXTHOP => decode::nexthop::nexthop(payload).map(|nexthop| {
                self.routes_doubted = true;
                self.nexthops.remove(&nexthop.id);
                events.push(Event::NexthopChanged { id: nexthop.id });
            }),
            RTM_NEWNEXTHOPBUCKET | RTM_DELNEXTHOPBUCKET => {
                decode::nexthop::bucket(payload).map(|id| events.push(Event::NexthopChanged { id }))
            }
            RTM_NEWNETCONF | RTM_DELNETCONF => {
                self.netconf(message.kind == RTM_NEWNETCONF, payload, dirty, events)
            }
            libc::RTM_NEWQDISC | libc::RTM_DELQDISC | libc::RTM_NEWTCLASS | libc::RTM_DELTCLASS => {
                self.qdisc_event(payload, dirty, events)
            }
            libc::RTM_NEWTFILTER | libc::RTM_DELTFILTER | RTM_NEWCHAIN | RTM_DELCHAIN => {
                self.filter_event(payload, dirty, events)
            }
            RTM_NEWVLAN | RTM_DELVLAN => crate::nla::u32_at(payload, 4).map(|ifindex| {
                events.extend(self.links.get(&ifindex).cloned().map(Event::LinkChanged));
            }),
            _ => None,
        };
        let _ = known;
    }

    fn link(
        &mut self,
        new: bool,
        payload: &[u8],
        dirty: &mut Dirty,
        events: &mut Vec<Event>,
    ) -> Option<()> {
        let (family, ifindex) = decode::link::subject(payload)?;
        if i32::from(family) == libc::AF_BRIDGE {
            // About the port, not the link; deletion means that it left the bridge, and VLAN
            // membership, which is not mirrored, may have changed: always worth an event.
            let link = self.links.get_mut(&ifindex)?;
            if new {
                link.port = decode::link::bridge_port(payload).unwrap_or(link.port);
            }
            events.push(Event::LinkChanged(link.clone()));
        } else if i32::from(family) != libc::AF_UNSPEC {
            return None;
        } else if new {
            let link = decode::link::link(payload)?;
            let old = self.links.insert(ifindex, link.clone());
            // A default qdisc comes and goes without an event of its own.
            if old.as_ref().map(|old| &old.qdisc) != Some(&link.qdisc) {
                dirty.traffic_control.insert(ifindex);
                if old.is_some() {
                    events.push(Event::QdiscChanged { ifindex });
                }
            }
            // the kernel deletes IPv4 routes in silence (fib_sync_down_dev, nexthop_flush_dev, fib_disable_ip)
            let moved = old.as_ref().is_some_and(|old| old.master != link.master);
            self.routes_doubted |= moved || !link.up || !link.running || !link.carrier;
            if old.as_ref() != Some(&link) {
                events.push(Event::LinkChanged(link));
            }
        } else {
            self.forget_traffic_control(ifindex);
            // the bridge's own entries go with it in silence
            self.mdb
                .retain(|key, _| key.bridge != ifindex && key.port != ifindex);
            let there = |at: &RouterPort| at.bridge != ifindex && at.port != ifindex;
            self.router_ports.retain(there);
            dirty.links_gone.insert(ifindex);
            self.routes_doubted = true;
            self.links.remove(&ifindex)?;
            events.push(Event::LinkGone { ifindex });
        }
        Some(())
    }

    fn addr(&mut self, new: bool, payload: &[u8], events: &mut Vec<Event>) -> Option<()> {
        let addr = decode::address::addr(payload)?;
        if !new {
            // so it does with those that have it as their source (fib_sync_down_addr)
            self.routes_doubted = true;
            self.addrs.remove(&addr_key(&addr));
            events.push(Event::AddrGone(addr));
        } else if self.addrs.insert(addr_key(&addr), addr.clone()).as_ref() != Some(&addr) {
            events.push(Event::AddrChanged(addr));
        }
        Some(())
    }

    fn neigh(&mut self, new: bool, payload: &[u8], events: &mut Vec<Event>) -> Option<()> {
        let neigh = decode::neigh::neigh(payload)?;
        let key = (neigh.ifindex, neigh.ip);
        if !new {
            self.neighs.remove(&key);
            events.push(Event::NeighGone(neigh));
        } else if !self
            .neighs
            .insert(key, neigh.clone())
            .is_some_and(|old| old.same_outcome(&neigh))
        {
            events.push(Event::NeighChanged(neigh));
        }
        Some(())
    }

    fn fdb(&mut self, new: bool, payload: &[u8], events: &mut Vec<Event>) -> Option<()> {
        let fdb = decode::neigh::fdb(payload)?;
        if new {
            if self.fdb.insert(fdb_key(&fdb), fdb.clone()).as_ref() != Some(&fdb) {
                events.push(Event::FdbChanged(fdb));
            }
        } else {
            self.fdb.remove(&fdb_key(&fdb));
            events.push(Event::FdbGone(fdb));
        }
        Some(())
    }

    fn mdb(&mut self, new: bool, payload: &[u8], events: &mut Vec<Event>) -> Option<()> {
        let (entries, routers) = decode::mdb::mdb(payload)?;
        for entry in entries {
            if !new {
                self.mdb.remove(&entry.key);
                events.push(Event::MdbGone(entry));
            } else {
                // several listeners of a port may have an entry each, of which no message tells which it is
                self.mdb.insert(entry.key, entry.excluded);
                events.push(Event::MdbChanged(entry));
            }
        }
        for router in routers {
            if !new {
                self.router_ports.remove(&router);
                events.push(Event::RouterPortGone(router));
            } else if self.router_ports.insert(router) {
                events.push(Event::RouterPortNew(router));
            }
        }
        Some(())
    }

    fn netconf(
        &mut self,
        new: bool,
        payload: &[u8],
        dirty: &mut Dirty,
        events: &mut Vec<Event>,
    ) -> Option<()> {
        let news = decode::netconf::netconf(payload)?;
        let (family, ifindex) = (news.family, news.ifindex);
        // All that is told when multicast forwarding gains or loses an interface (`vif_add`, `vif_delete`). It is a
        // count, of which only that it is not 0 is known.
        let known = self.netconf.get(&(family, ifindex));
        let was = known.and_then(|known| known.mc_forwarding) == Some(true);
        dirty.mroute_links |= news.mc_forwarding.is_some_and(|is| is || was);
        let changed = if new {
            let current = self
                .netconf
                .entry((family, ifindex))
                .or_insert_with(|| Netconf {
                    family,
                    ifindex,
                    forwarding: None,
                    rp_filter: None,
                    mc_forwarding: None,
                    proxy_neigh: None,
                    ignore_linkdown: None,
                });
            let old = current.clone();
            decode::netconf::merge(current, &news);
            *current != old
        } else {
            self.netconf.remove(&(family, ifindex)).is_some()
        };
        if changed {
            events.push(Event::NetconfChanged { ifindex, family });
        }
        Some(())
    }

    fn qdisc_event(
        &mut self,
        payload: &[u8],
        dirty: &mut Dirty,
        events: &mut Vec<Event>,
    ) -> Option<()> {
        let (ifindex, _) = decode::tc::subject(payload)?;
        dirty.traffic_control.insert(ifindex);
        events.push(Event::QdiscChanged { ifindex });
        Some(())
    }

    fn filter_event(
        &mut self,
        payload: &[u8],
        dirty: &mut Dirty,
        events: &mut Vec<Event>,
    ) -> Option<()> {
        let (ifindex, block) = decode::tc::subject(payload)?;
        let links: BTreeSet<u32> = if ifindex == decode::tc::MAGIC_BLOCK {
            let uses = |qdisc: &&Qdisc| {
                qdisc.ingress_block == Some(block) || qdisc.egress_block == Some(block)
            };
            self.qdiscs
                .values()
                .filter(uses)
                .map(|qdisc| qdisc.ifindex)
                .collect()
        } else {
            BTreeSet::from([ifindex])
        };
        for ifindex in links {
            dirty.traffic_control.insert(ifindex);
            events.push(Event::FilterChanged { ifindex });
        }
        Some(())
    }

    /// Forgets qdiscs and filters of a link.
    pub fn forget_traffic_control(&mut self, ifindex: u32) {
        self.qdiscs.retain(|&(index, _, _), _| index != ifindex);
        self.classes.retain(|&(index, _), _| index != ifindex);
        self.filters.remove(&ifindex);
    }
}

/// The events that lead from `old` to `new`.
pub fn difference(old: &State, new: &State) -> Vec<Event> {
    let mut events = Vec::new();
    for (&ifindex, link) in &new.links {
        let before = old.links.get(&ifindex);
        if before != Some(link) {
            events.push(Event::LinkChanged(link.clone()));
        }
    }
    let gone = old
        .links
        .keys()
        .filter(|ifindex| !new.links.contains_key(ifindex));
    events.extend(gone.map(|&ifindex| Event::LinkGone { ifindex }));
    maps(
        &old.addrs,
        &new.addrs,
        |a, b| a == b,
        Event::AddrChanged,
        Event::AddrGone,
        &mut events,
    );
    let same = Neigh::same_outcome;
    maps(
        &old.neighs,
        &new.neighs,
        same,
        Event::NeighChanged,
        Event::NeighGone,
        &mut events,
    );
    maps(
        &old.fdb,
        &new.fdb,
        |a, b| a == b,
        Event::FdbChanged,
        Event::FdbGone,
        &mut events,
    );
    let entry = |(&key, &excluded): (&MdbKey, &bool)| Mdb { key, excluded };
    let news = new.mdb.iter();
    let news = news.filter(|(key, value)| old.mdb.get(key) != Some(value));
    events.extend(news.map(entry).map(Event::MdbChanged));
    let gone = old.mdb.iter();
    let gone = gone.filter(|(key, _)| !new.mdb.contains_key(key));
    events.extend(gone.map(entry).map(Event::MdbGone));
    let news = new.router_ports.difference(&old.router_ports);
    events.extend(news.copied().map(Event::RouterPortNew));
    let gone = old.router_ports.difference(&new.router_ports);
    events.extend(gone.copied().map(Event::RouterPortGone));
    let rules = old.rules.symmetric_difference(&new.rules);
    events.extend(rules.cloned().map(Event::RuleChanged));
    let nexthops = changed_keys(&old.nexthops, &new.nexthops);
    events.extend(nexthops.into_iter().map(|id| Event::NexthopChanged { id }));
    old.routes.difference(&new.routes, &mut events);
    old.mroutes.difference(&new.mroutes, &mut events);
    let qdiscs = changed_keys(&old.qdiscs, &new.qdiscs);
    let classes = changed_keys(&old.classes, &new.classes);
    let classes = classes.into_iter().map(|(ifindex, _)| ifindex);
    let links = qdiscs.into_iter().map(|(ifindex, _, _)| ifindex);
    let links: BTreeSet<u32> = links.chain(classes).collect();
    events.extend(
        links
            .into_iter()
            .map(|ifindex| Event::QdiscChanged { ifindex }),
    );
    let filters = changed_keys(&old.filters, &new.filters);
    events.extend(
        filters
            .into_iter()
            .map(|ifindex| Event::FilterChanged { ifindex }),
    );
    let netconf = changed_keys(&old.netconf, &new.netconf);
    events.extend(
        netconf
            .into_iter()
            .map(|(family, ifindex)| Event::NetconfChanged { ifindex, family }),
    );
    if old.generation != new.generation {
        events.push(Event::RulesetChanged {
            generation: new.generation,
        });
    }
    if old.policies != new.policies
        || old.states != new.states
        || old.offload_ports != new.offload_ports
    {
        events.push(Event::XfrmChanged);
    }
    events
}

fn changed_keys<K: Ord + Copy, V: PartialEq>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
) -> BTreeSet<K> {
    let news = new.iter();
    let news = news.filter(|(key, value)| old.get(key) != Some(value));
    let gone = old.keys().filter(|key| !new.contains_key(key));
    let mut changed = BTreeSet::new();
    changed.extend(news.map(|(key, _)| *key));
    changed.extend(gone.copied());
    changed
}
