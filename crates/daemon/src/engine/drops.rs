// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why the kernel dropped packets, in words.

use std::collections::BTreeMap;

use freeway_abi::{FW_DROP_CAME, FW_DROP_LEAVING, fw_dropped};
use freeway_api::{Dropped, Why};
use freeway_kernel::nft::{DropChain, DropPlace};

/// Packets by how the kernel dropped them.
pub(super) type Drops = BTreeMap<Drop, u64>;

/// What the kernel says of a packet that it dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Drop {
    /// The kernel's number (`enum skb_drop_reason`), which is its own.
    reason: u32,
    /// Of the device that it was at, ifindex.
    port: u32,
    /// `enum fw_drop_place`.
    place: u32,
    /// Its TTL or hop limit was at its end.
    expired: bool,
    /// The kernel's function that freed it; may be empty.
    function: String,
}

impl Drop {
    /// None of a mere copy: packet sockets take some and drop them.
    pub fn of(event: &fw_dropped) -> Option<Drop> {
        let function = event.function.split(|byte| *byte == 0).next();
        let function = String::from_utf8_lossy(function.unwrap_or_default());
        let copy = ["packet_rcv", "tpacket_rcv"].iter();
        let is_copy = copy.clone().any(|name| function.starts_with(name));
        (!is_copy).then(|| Drop {
            reason: event.ev.reason,
            port: event.port,
            place: event.place,
            expired: event.ttl <= 1,
            function: function.into_owned(),
        })
    }

    fn place(&self, local: bool) -> DropPlace {
        match self.place {
            FW_DROP_CAME => DropPlace::Came,
            FW_DROP_LEAVING => DropPlace::Leaving,
            _ if local => DropPlace::ToRouter,
            _ => DropPlace::Forwarded,
        }
    }
}

/// What words about drops may name.
pub(super) struct Scene<'a> {
    /// The kernel's names of its reasons.
    pub names: &'a BTreeMap<u32, String>,
    /// One end is the router itself.
    pub local: bool,
    pub ipv4: bool,
    pub chains: &'a [DropChain],
    /// Hooks of netfilter that are no ruleset's may drop, too.
    pub foreign_hooks: bool,
    pub port_name: &'a dyn Fn(u32) -> String,
}

impl Scene<'_> {
    /// Each of the drops, the most frequent first.
    pub fn tell(&self, drops: &Drops) -> Vec<Told> {
        let mut by_count: Vec<_> = drops.iter().collect();
        by_count.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let told = by_count.into_iter().map(|(drop, count)| {
            let name = self.names.get(&drop.reason).map_or("not_specified", |n| n);
            Told {
                name: name.to_owned(),
                words: self.words(name, drop),
                function: Some(drop.function.clone()).filter(|name| !name.is_empty()),
                port: (self.port_name)(drop.port),
                count: *count,
            }
        });
        told.collect()
    }

    /// None if the kernel gives no reason.
    fn words(&self, name: &str, drop: &Drop) -> Option<String> {
        let at = (self.port_name)(drop.port);
        let words = match name {
            "not_specified" | "not_dropped_yet" | "consumed" => return None,
            "netfilter_drop" => self.firewall(drop),
            "ip_innoroutes" | "ip_outnoroutes" => {
                "the kernel has no route to its destination".into()
            }
            "ip_inaddrerrors" => "the kernel does not forward to its destination: no host is \
                                  to be reached there, or forwarding is switched off"
                .into(),
            "ip_rpfilter" => format!(
                "dropped by the reverse path filter (rp_filter): answers to its source would not \
                 leave by {at}, where it came in"
            ),
            "pkt_too_big" => "longer than the MTU where it would leave".into(),
            "ip_inhdr" if drop.expired => "its TTL or hop limit ends at this router".into(),
            "ip_inhdr" => "bad IP header".into(),
            "ip_local_source" => "its source address is one of this router".into(),
            "ip_invalid_source" | "ip_invalid_dest" | "ip_localnet" => {
                "its addresses are none that may be forwarded".into()
            }
            "no_socket" => "no socket of this router takes it".into(),
            "neigh_failed" | "neigh_queuefull" | "neigh_createfail" | "neigh_dead" => {
                "the next hop does not answer: no neighbour is known by its address".into()
            }
            "otherhost" => "its MAC address is that of another host".into(),
            "xfrm_policy" => "dropped by an IPsec policy".into(),
            "tc_ingress" | "tc_egress" => format!("dropped by a tc filter or program at {at}"),
            _ if name.starts_with("qdisc_") || name.starts_with("fq_") || name == "cake_flood" => {
                format!("dropped by the qdisc of {at}")
            }
            _ => format!("dropped by the kernel ({})", name.to_uppercase()),
        };
        Some(words)
    }

    fn firewall(&self, drop: &Drop) -> String {
        let place = drop.place(self.local);
        // since Linux 6.7: before, all chains and hooks drop in one function
        let by_nftables = drop.function == "nft_do_chain";
        let met = self.chains.iter().filter(|c| c.meets(self.ipv4, place));
        let met = met.filter(|chain| !(by_nftables && chain.legacy));
        let met: Vec<String> = met.map(DropChain::to_string).collect();
        // elsewhere conntrack drops too: when its table is full, or when connections clash
        let of_chains = matches!(place, DropPlace::Forwarded | DropPlace::ToRouter);
        let alone = by_nftables || (of_chains && !self.foreign_hooks);
        match &met[..] {
            [one] if alone => format!("dropped by {one}"),
            [] => "dropped by the firewall (NETFILTER_DROP), and no chain is known that would: \
                   conntrack's table may be full"
                .into(),
            _ => format!(
                "dropped by the firewall (NETFILTER_DROP); chains that may: {}",
                met.join("; ")
            ),
        }
    }
}

/// Drops of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    name: String,
    /// None: the kernel gives no reason.
    pub words: Option<String>,
    function: Option<String>,
    port: String,
    pub count: u64,
}

impl Told {
    pub fn shown(&self) -> Dropped {
        let unsaid = || "the kernel gives no reason".to_owned();
        Dropped {
            reason: self.name.clone(),
            words: self.words.clone().unwrap_or_else(unsaid),
            count: self.count,
            port: self.port.clone(),
            function: self.function.clone(),
        }
    }

    pub fn why(&self) -> Option<Why> {
        Some(Why {
            name: self.name.clone(),
            words: self.words.clone()?,
            stage: "kernel".into(),
        })
    }

    /// What is to be said of a drop whose reason the kernel does not give.
    pub fn note(&self) -> Option<String> {
        let function = self.function.as_ref().filter(|_| self.words.is_none())?;
        let packets = freeway_console::plural(self.count, "packet");
        Some(format!(
            "the kernel dropped {packets} of it in {function}() and gives no reason"
        ))
    }
}

#[cfg(test)]
mod tests {
    use freeway_abi::{FW_DROP_ROUTED, fw_event};

    use super::*;

    const FORWARD: u32 = 2;

    fn chain(table: &str) -> DropChain {
        DropChain {
            family: freeway_kernel::nft::NFPROTO_INET,
            table: table.into(),
            chain: "fw".into(),
            hook: FORWARD,
            legacy: false,
        }
    }

    fn drop_in(function: &str, place: u32, ttl: u32) -> Option<Drop> {
        let mut event = fw_dropped {
            ev: fw_event::default(),
            place,
            ttl,
            port: 2,
            ..fw_dropped::default()
        };
        event.function[..function.len()].copy_from_slice(function.as_bytes());
        Drop::of(&event)
    }

    #[track_caller]
    fn check(scene: &Scene<'_>, name: &str, drop: &Drop, words: &str) {
        let said = scene.words(name, drop).unwrap_or_default();
        assert!(said.contains(words), "{said}");
    }

    #[test]
    fn the_chain_is_named_if_it_is_the_only_one() {
        let routed = drop_in("nf_hook_slow", FW_DROP_ROUTED, 64).unwrap();
        let came = drop_in("nf_hook_slow", FW_DROP_CAME, 64).unwrap();
        let chains = [chain("f"), chain("g")];
        let scene = Scene {
            names: &BTreeMap::new(),
            local: false,
            ipv4: true,
            chains: &chains[..1],
            foreign_hooks: false,
            port_name: &|port| format!("p{port}"),
        };
        let one = "dropped by nftables: table inet f, chain fw";
        check(&scene, "netfilter_drop", &routed, one);
        check(&scene, "netfilter_drop", &came, "no chain is known");
        let sure = |scene: &Scene<'_>| {
            let words = scene.words("netfilter_drop", &routed).unwrap_or_default();
            !words.contains("NETFILTER_DROP")
        };
        assert!(sure(&scene));
        let foreign = Scene {
            foreign_hooks: true,
            ..scene
        };
        assert!(!sure(&foreign));
        let two = Scene {
            chains: &chains,
            foreign_hooks: false,
            ..foreign
        };
        let both = "nftables: table inet f, chain fw; nftables: table inet g, chain fw";
        check(&two, "netfilter_drop", &routed, both);
        let came = drop_in("nft_do_chain", FW_DROP_CAME, 64).unwrap();
        let early = [DropChain {
            hook: 0,
            ..chain("raw")
        }];
        let prerouting = Scene {
            chains: &early,
            ..two
        };
        let raw = "dropped by nftables: table inet raw, chain fw";
        check(&prerouting, "netfilter_drop", &came, raw);
        let local = Scene { local: true, ..two };
        check(&local, "netfilter_drop", &routed, "no chain is known");
    }

    #[test]
    fn other_reasons() {
        let scene = Scene {
            names: &BTreeMap::new(),
            local: false,
            ipv4: true,
            chains: &[],
            foreign_hooks: false,
            port_name: &|port| format!("p{port}"),
        };
        let drop = drop_in("ip_forward", FW_DROP_ROUTED, 64).unwrap();
        let expired = drop_in("ip_forward", FW_DROP_ROUTED, 1).unwrap();
        check(&scene, "ip_innoroutes", &drop, "no route");
        check(&scene, "ip_rpfilter", &drop, "would not leave by p2");
        check(&scene, "pkt_too_big", &drop, "MTU");
        check(&scene, "ip_inhdr", &expired, "TTL");
        check(&scene, "ip_inhdr", &drop, "bad IP header");
        check(&scene, "qdisc_overlimit", &drop, "qdisc of p2");
        // of a kernel that is newer than this program
        check(&scene, "moon_phase", &drop, "MOON_PHASE");
        assert_eq!(scene.words("not_specified", &drop), None);
        let told = Told {
            name: "not_specified".into(),
            words: None,
            function: Some("ip_forward".into()),
            port: "p2".into(),
            count: 3,
        };
        assert_eq!(told.why(), None);
        assert_eq!(
            told.note().unwrap_or_default(),
            "the kernel dropped 3 packets of it in ip_forward() and gives no reason"
        );
        assert_eq!(drop_in("tpacket_rcv", FW_DROP_CAME, 64), None);
    }
}
