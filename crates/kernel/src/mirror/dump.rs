// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the whole state from the kernel.

use std::collections::BTreeSet;
use std::path::Path;

use super::config::MirrorConfig;
use super::dirty::Dirty;
use super::mroutes::Mroutes;
use super::routes::Routes;
use super::state::State;
use crate::decode::mroute::{RTNL_FAMILY_IP6MR, RTNL_FAMILY_IPMR};
use crate::error::{Error, Result};
use crate::message::Message;
use crate::model::{Class, Event, Filter, Qdisc, TC_EGRESS, TC_INGRESS};
use crate::nla::Writer;
use crate::socket::{Channel, Dump};
use crate::{decode, nft};

const RTM_GETNETCONF: u16 = 82;
const RTM_GETMDB: u16 = 86;
const RTM_GETNEXTHOP: u16 = 106;
const IFLA_EXT_MASK: u16 = 29;
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
const XFRM_MSG_GETSA: u16 = 0x12;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
/// An interrupted dump is made again; what still changes then is told by events.
const ATTEMPTS: u32 = 4;

/// The sockets that dumps are asked on.
#[derive(Debug)]
pub struct Dumper {
    route: Channel,
    nft: Option<Channel>,
    xfrm: Option<Channel>,
}

/// A subsystem that the kernel does not have is an empty one.
pub fn optional<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if matches!(
                error.errno(),
                Some(
                    libc::EPROTONOSUPPORT
                        | libc::EOPNOTSUPP
                        | libc::EAFNOSUPPORT
                        | libc::EINVAL
                        | libc::ENOENT
                )
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Dumper {
    pub fn open() -> Result<Dumper> {
        Ok(Dumper {
            route: Channel::open(libc::NETLINK_ROUTE)?,
            nft: optional(Channel::open(libc::NETLINK_NETFILTER))?,
            xfrm: optional(Channel::open(libc::NETLINK_XFRM))?,
        })
    }

    /// The state of now.
    pub fn state(&mut self, config: &MirrorConfig) -> Result<State> {
        let mut state = State {
            routes: Routes::with_limit(config.route_limit),
            ..State::default()
        };
        self.fill(&mut state, "list the links", libc::RTM_GETLINK, |writer| {
            writer.raw(&[0; decode::link::HEADER]);
            writer.attr(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
        })?;
        let fixed: [(&str, u16, usize, &[i32]); 6] = [
            (
                "list the addresses",
                libc::RTM_GETADDR,
                8,
                &[libc::AF_UNSPEC],
            ),
            (
                "list the neighbours",
                libc::RTM_GETNEIGH,
                12,
                &[libc::AF_UNSPEC, libc::AF_BRIDGE],
            ),
            (
                "list who listens at bridges",
                RTM_GETMDB,
                decode::mdb::HEADER,
                &[libc::AF_BRIDGE],
            ),
            (
                "list the policy rules",
                libc::RTM_GETRULE,
                12,
                &[libc::AF_INET, libc::AF_INET6],
            ),
            (
                "list the nexthop objects",
                RTM_GETNEXTHOP,
                8,
                &[libc::AF_UNSPEC],
            ),
            (
                "list the forwarding switches",
                RTM_GETNETCONF,
                4,
                &[libc::AF_INET, libc::AF_INET6],
            ),
        ];
        for (what, kind, header, families) in fixed {
            for &family in families {
                self.fill(&mut state, what, kind, |writer| {
                    family_header(writer, family, header)
                })?;
            }
        }
        self.routes(&mut state, config)?;
        state.mroutes = self.mroutes()?;
        self.traffic_control(&mut state, None)?;
        self.xfrm(&mut state)?;
        state.generation = self.generation()?;
        Ok(state)
    }

    /// Dumps one kind of object into a state, by the same function that applies its events.
    fn fill(
        &mut self,
        state: &mut State,
        what: &str,
        kind: u16,
        body: impl Fn(&mut Writer),
    ) -> Result<()> {
        let (mut dirty, mut events) = (Dirty::default(), Vec::<Event>::new());
        for _ in 0..ATTEMPTS {
            let mut each = |message: Message<'_>| {
                state.apply(&message, &mut dirty, &mut events);
                events.clear();
            };
            match optional(self.route.dump(what, kind, &body, &mut each))? {
                Some(Dump::Interrupted) => {}
                _ => break,
            }
        }
        Ok(())
    }

    fn routes(&mut self, state: &mut State, config: &MirrorConfig) -> Result<()> {
        for _ in 0..ATTEMPTS {
            state.routes = Routes::with_limit(config.route_limit);
            let mut interrupted = false;
            for family in [libc::AF_INET, libc::AF_INET6] {
                let mut each = |message: Message<'_>| {
                    let own = message.payload.first().map(|&f| i32::from(f)) == Some(family);
                    if let Some(route) = decode::route::route(message.payload).filter(|_| own) {
                        state.routes.collect(route);
                    }
                };
                let body = |writer: &mut Writer| family_header(writer, family, 12);
                let dump = self
                    .route
                    .dump("list the routes", libc::RTM_GETROUTE, body, &mut each);
                interrupted |= optional(dump)? == Some(Dump::Interrupted);
            }
            if !interrupted {
                break;
            }
        }
        Ok(())
    }

    /// The multicast forwarding caches.
    pub fn mroutes(&mut self) -> Result<Mroutes> {
        let mut mroutes = Mroutes::default();
        for _ in 0..ATTEMPTS {
            mroutes = Mroutes::default();
            let mut interrupted = false;
            for (family, file) in [
                (RTNL_FAMILY_IPMR, "ip_mr_cache"),
                (RTNL_FAMILY_IP6MR, "ip6_mr_cache"),
            ] {
                // A kernel without the cache would list all routes instead (`rtnl_dump_all`), maybe a million.
                if !Path::new("/proc/thread-self/net").join(file).exists() {
                    continue;
                }
                let mut each = |message: Message<'_>| {
                    if let Some(mroute) = decode::mroute::mroute(message.payload) {
                        mroutes.collect(mroute);
                    }
                };
                let body = |writer: &mut Writer| family_header(writer, i32::from(family), 12);
                let what = "list the multicast routes";
                let dump = self.route.dump(what, libc::RTM_GETROUTE, body, &mut each);
                interrupted |= optional(dump)? == Some(Dump::Interrupted);
            }
            if !interrupted {
                break;
            }
        }
        Ok(mroutes)
    }

    /// Reads qdiscs and filters anew, of some links or of all.
    pub fn traffic_control(
        &mut self,
        state: &mut State,
        only: Option<&BTreeSet<u32>>,
    ) -> Result<()> {
        let wanted = |ifindex: u32| only.is_none_or(|only| only.contains(&ifindex));
        let mut qdiscs: Vec<Qdisc> = Vec::new();
        for _ in 0..ATTEMPTS {
            qdiscs.clear();
            let mut each = |message: Message<'_>| qdiscs.extend(decode::tc::qdisc(message.payload));
            let body = |writer: &mut Writer| writer.raw(&[0; 20]);
            match optional(
                self.route
                    .dump("list the qdiscs", libc::RTM_GETQDISC, body, &mut each),
            )? {
                Some(Dump::Interrupted) => {}
                _ => break,
            }
        }
        let links: Vec<u32> = match only {
            Some(only) => only.iter().copied().collect(),
            None => state.qdiscs.values().map(|qdisc| qdisc.ifindex).collect(),
        };
        links
            .into_iter()
            .for_each(|ifindex| state.forget_traffic_control(ifindex));
        for qdisc in qdiscs.into_iter().filter(|qdisc| wanted(qdisc.ifindex)) {
            let mut parents = filter_parents(&qdisc);
            if CLASSES_FILTER.contains(&qdisc.kind.as_str()) {
                let classes = self.classes(&qdisc)?;
                parents.extend(inner_classes(&qdisc, &classes));
                let keyed = classes.into_iter();
                let keyed = keyed.map(|class| ((class.ifindex, class.handle), class));
                state.classes.extend(keyed);
            }
            for parent in parents {
                let filters = self.filters(qdisc.ifindex, parent)?;
                if !filters.is_empty() {
                    state
                        .filters
                        .entry(qdisc.ifindex)
                        .or_default()
                        .extend(filters);
                }
            }
            state
                .qdiscs
                .insert((qdisc.ifindex, qdisc.parent, qdisc.handle), qdisc);
        }
        Ok(())
    }

    /// Reads the root qdisc's name in the links anew: a new qdisc is no event of the link.
    pub fn root_qdiscs(&mut self, state: &mut State, links: &BTreeSet<u32>) -> Result<()> {
        for &ifindex in links {
            let Some(known) = state.links.get_mut(&ifindex) else {
                continue;
            };
            let mut each = |message: Message<'_>| {
                if let Some(link) = decode::link::link(message.payload) {
                    known.qdisc = link.qdisc;
                }
            };
            let body = |writer: &mut Writer| {
                let mut header = [0u8; decode::link::HEADER];
                header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
                writer.raw(&header);
                writer.attr(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
            };
            match self
                .route
                .request("show a link", libc::RTM_GETLINK, body, &mut each)
            {
                // The link went away meanwhile; its event follows.
                Err(error) if error.errno() == Some(libc::ENODEV) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// The classes of a qdisc that has classes.
    fn classes(&mut self, qdisc: &Qdisc) -> Result<Vec<Class>> {
        const MINOR: u32 = 0xffff;
        let mut classes = Vec::new();
        let mut each = |message: Message<'_>| {
            let class = decode::tc::class(message.payload);
            classes.extend(class.filter(|class| class.handle & !MINOR == qdisc.handle));
        };
        let body = |writer: &mut Writer| writer.raw(&subject_header(qdisc.ifindex, 0));
        let dump = self
            .route
            .dump("list the classes", libc::RTM_GETTCLASS, body, &mut each);
        match optional(dump) {
            // The link went away meanwhile.
            Err(error) if error.errno() == Some(libc::ENODEV) => {}
            outcome => outcome.map(|_| ())?,
        }
        Ok(classes)
    }

    fn filters(&mut self, ifindex: u32, parent: u32) -> Result<Vec<Filter>> {
        let mut filters: Vec<Filter> = Vec::new();
        let mut each = |message: Message<'_>| {
            // Filters of a shared block carry the block instead of the link.
            let filter = decode::tc::filter(message.payload);
            filters.extend(filter.map(|filter| Filter {
                ifindex,
                parent,
                ..filter
            }));
        };
        let body = |writer: &mut Writer| writer.raw(&subject_header(ifindex, parent));
        match optional(
            self.route
                .dump("list the filters", libc::RTM_GETTFILTER, body, &mut each),
        ) {
            // The link went away meanwhile.
            Err(error) if error.errno() == Some(libc::ENODEV) => return Ok(Vec::new()),
            outcome => outcome.map(|_| ())?,
        }
        // Each classifier is preceded by an entry without handle that names it.
        let mut named = BTreeSet::new();
        let whole = filters.iter().filter(|f| f.handle != 0);
        named.extend(whole.map(|f| (f.chain, f.priority)));
        filters.retain(|f| f.handle != 0 || !named.contains(&(f.chain, f.priority)));
        Ok(filters)
    }

    /// Reads IPsec policies and states anew.
    pub fn xfrm(&mut self, state: &mut State) -> Result<()> {
        let Some(channel) = &mut self.xfrm else {
            return Ok(());
        };
        state.policies.clear();
        state.states.clear();
        state.offload_ports.clear();
        let mut each = |message: Message<'_>| {
            state.policies.extend(decode::xfrm::policy(message.payload));
            state
                .offload_ports
                .extend(decode::xfrm::policy_offload(message.payload));
        };
        let what = "list the IPsec policies";
        optional(channel.dump(
            what,
            XFRM_MSG_GETPOLICY,
            |writer| writer.raw(&[0; 64]),
            &mut each,
        ))?;
        let mut each = |message: Message<'_>| {
            state.states.extend(decode::xfrm::state(message.payload));
            state
                .offload_ports
                .extend(decode::xfrm::state_offload(message.payload));
        };
        let what = "list the IPsec states";
        // no header: a dump's request is read as attributes alone (xfrm_dump_sa)
        optional(channel.dump(what, XFRM_MSG_GETSA, |_| {}, &mut each))?;
        Ok(())
    }

    /// The generation of the nftables ruleset; 0 without nftables.
    pub fn generation(&mut self) -> Result<u32> {
        match &mut self.nft {
            Some(channel) => Ok(optional(nft::generation(channel))?.unwrap_or(0)),
            None => Ok(0),
        }
    }
}

/// Those that have classes below: a packet that comes to one goes on by its filters.
fn inner_classes(qdisc: &Qdisc, classes: &[Class]) -> BTreeSet<u32> {
    const MINOR: u32 = 0xffff;
    let parents = classes.iter().map(|class| class.parent);
    // the root and the qdisc itself are no classes
    let inner = parents
        .filter(|parent| parent & !MINOR == qdisc.handle && !matches!(parent & MINOR, 0 | MINOR));
    inner.collect()
}

fn family_header(writer: &mut Writer, family: i32, len: usize) {
    let mut header = vec![0u8; len];
    if let Some(first) = header.first_mut() {
        *first = family as u8;
    }
    writer.raw(&header);
}

/// The header of a request about traffic control (`struct tcmsg`).
fn subject_header(ifindex: u32, parent: u32) -> [u8; 20] {
    let mut header = [0; 20];
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    header
}

/// Qdiscs whose classes have filters of their own (`htb_tcf_block`, `hfsc_tcf_block`).
const CLASSES_FILTER: [&str; 2] = ["htb", "hfsc"];

/// Where filters may hang on a qdisc, beside its classes.
fn filter_parents(qdisc: &Qdisc) -> Vec<u32> {
    match qdisc.kind.as_str() {
        "clsact" => vec![TC_INGRESS, TC_EGRESS],
        "ingress" => vec![TC_INGRESS],
        _ if qdisc.handle != 0 => vec![qdisc.handle],
        _ => Vec::new(),
    }
}

/// A missing subsystem, for listeners.
pub fn listener_missing(error: &Error) -> bool {
    matches!(
        error.errno(),
        Some(libc::EPROTONOSUPPORT | libc::EOPNOTSUPP | libc::EAFNOSUPPORT)
    )
}
