// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames to groups, of which a bridge that snoops on IGMP and MLD sends a copy to each port behind which somebody
//! listens. The copies of a frame are gathered, must twice be the same, and those that the bridge's own multicast
//! database names.

mod copies;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use freeway_abi::{FW_AF_INET, FW_AF_INET6, addr_of, fw_crossed};
use freeway_kernel::model::{MdbKey, RouterPort};

use crate::bridged::{BridgeOp, BridgedLeg, Stations};

/// Frames that are copied alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Whose {
    stations: Stations,
    source: IpAddr,
    group: IpAddr,
}

impl Whose {
    fn of(crossed: &fw_crossed) -> Self {
        // no group of IPv4 begins as those of IPv6 do
        let v6 = crossed.group.daddr_be[0].to_ne_bytes()[0] == 0xff;
        let family = if v6 { FW_AF_INET6 } else { FW_AF_INET };
        let none = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let address = |words: &[u32; 4]| addr_of(family as u8, words).unwrap_or(none);
        Self {
            stations: Stations::of(&crossed.key),
            source: address(&crossed.group.saddr_be),
            group: address(&crossed.group.daddr_be),
        }
    }
}

/// The copies of one frame, so far.
#[derive(Debug)]
struct Gathering {
    token: u32,
    since_tick: u32,
    copies: Vec<fw_crossed>,
}

/// A list that is used.
#[derive(Clone, Debug)]
struct Copied {
    whose: Whose,
    legs: Vec<BridgedLeg>,
}

/// What is known of groups at bridges.
#[derive(Debug, Default)]
pub(crate) struct Snooped {
    /// Bridges that know who listens, and which would show what they hand up.
    bridges: BTreeSet<u32>,
    /// Who listens; true: but is kept from it.
    mdb: BTreeMap<MdbKey, bool>,
    routers: BTreeSet<RouterPort>,
    copied: BTreeMap<Stations, Copied>,
    gathering: HashMap<Whose, Gathering>,
    /// How the copies of the frame before left.
    before: HashMap<Whose, Vec<BridgedLeg>>,
    /// When who listens to a group at a bridge last changed, or to all (none): what came in until then says nothing.
    changed_tick: BTreeMap<(u32, Option<IpAddr>), u32>,
}

impl Snooped {
    pub fn any_bridge(&self) -> bool {
        !self.bridges.is_empty()
    }

    /// No path leads there any more.
    pub fn forget(&mut self, stations: &Stations) {
        self.copied.remove(stations);
    }

    /// True if copies of a path leave at a port.
    pub fn leaves_at(&self, stations: &Stations, port: u32) -> bool {
        let copied = self.copied.get(stations);
        copied.is_some_and(|copied| copied.legs.iter().any(|leg| leg.port == port))
    }

    /// What was seen of frames like these may be as it was before a change.
    fn forget_seen(&mut self, concerns: impl Fn(&Whose) -> bool, ops: &mut Vec<BridgeOp>) {
        self.before.retain(|whose, _| !concerns(whose));
        let stale = self.gathering.extract_if(|whose, _| concerns(whose));
        let sets = stale.filter_map(|(_, done)| done.copies.first().map(|copy| copy.set));
        ops.extend(sets.map(|set| BridgeOp::ForgetOffer { set }));
    }

    /// The ports that the bridge's database names for a frame, in a VLAN: `br_mdb_entry_skb_get()`,
    /// `br_multicast_flood()`. `None`: the machine itself listens.
    fn named(&self, bridge: u32, vlan: u16, whose: &Whose) -> Option<BTreeSet<u32>> {
        let first = MdbKey {
            bridge,
            group: whose.group,
            vlan,
            source: None,
            port: 0,
        };
        let of_group =
            |key: &MdbKey| (key.bridge, key.group, key.vlan) == (bridge, whose.group, vlan);
        let entries = self.mdb.range(first..);
        let entries: Vec<_> = entries.take_while(|(key, _)| of_group(key)).collect();
        let source = Some(whose.source);
        let of_source = entries.iter().any(|(key, _)| key.source == source);
        let source = source.filter(|_| of_source);
        let entries = entries.into_iter().filter(|(key, _)| key.source == source);
        let ports = entries.filter(|(_, excluded)| !**excluded);
        let ports: BTreeSet<u32> = ports.map(|(key, _)| key.port).collect();
        (!ports.contains(&bridge)).then_some(ports)
    }

    /// Did who listens change since?
    fn is_stale(&self, bridge: u32, whose: &Whose, tick: u32) -> bool {
        [None, Some(whose.group)].into_iter().any(|group| {
            let changed = self.changed_tick.get(&(bridge, group));
            changed.is_some_and(|changed| tick.wrapping_sub(*changed).cast_signed() <= 0)
        })
    }

    fn is_router(&self, bridge: u32, port: u32) -> bool {
        let vlan = 0;
        self.routers.contains(&RouterPort { bridge, port, vlan })
    }
}
