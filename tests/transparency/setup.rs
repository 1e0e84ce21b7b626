// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a router is configured to do: random, applied to both twins alike, and simplified step by step.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ruleset::{self, Effect, Rule};
use freeway_testkit::random::Random;

/// What conntrack sees, and what the filter does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracking {
    /// Nothing is hooked, unless a random rule needs it.
    None,
    /// All but the flows to some ports.
    Notrack,
    /// Everything, and nothing is dropped.
    Tracked,
    /// Policy drop; established passes, invalid is dropped.
    Stateful,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nat {
    None,
    Masquerade,
    Snat,
}

/// How the servers are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplinks {
    One,
    /// A route with two next hops.
    Multipath,
    /// A route to a group of nexthop objects.
    Nexthops,
    /// A packet mark set by a rule chooses the table.
    Mark,
    /// A connection mark, restored for each packet.
    Connmark,
    /// The source address chooses the table.
    Source,
    /// Requests leave at one port, answers come in at the other.
    Asymmetric,
}

/// How frames are sent to Freeway's router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each has left when the next one is sent.
    Single,
    /// Many at a time.
    Burst,
    /// The same, but for 1 ms or more between two of a flow.
    Gaps,
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub v6: bool,
    pub tracking: Tracking,
    pub nat: Nat,
    /// Port forwards on the WAN.
    pub forwards: bool,
    /// LAN hosts use the port forwards.
    pub hairpin: bool,
    /// A network behind another router in the LAN.
    pub one_armed: bool,
    /// Servers open connections to LAN hosts.
    pub inbound: bool,
    pub uplinks: Uplinks,
    /// fib_multipath_hash_policy
    pub hash_policy: u8,
    pub rp_filter: u8,
    /// MTU of the uplinks.
    pub mtu: u16,
    /// nf_conntrack_checksum
    pub verifies: bool,
    /// Conntrack's timeouts are a few seconds, so that flows are revalidated often.
    pub brief: bool,
    /// Established packets are accepted before the random rules of the forward chain.
    pub early: bool,
    pub rules: Vec<Rule>,
    pub pace: Pace,
}

/// Ports of servers whose flows are not tracked under [`Tracking::Notrack`].
pub const NOTRACK_PORTS: (u16, u16) = (30000, 30002);
/// Forwarded ports of the router, one for each flow.
pub const FORWARD_PORT: u16 = 8080;
pub const HAIRPIN_PORT: u16 = 9080;
pub const INBOUND_PORT: u16 = 7000;
/// More flows than any setup has.
pub const PORT_RANGE: u16 = 99;

fn address(v6: bool, v4: [u8; 3], net: u16, host: u8) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(v4[0], v4[1], v4[2], host).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, host.into()).into(),
    }
}

/// Hosts of the LAN.
pub fn lan(v6: bool, host: u8) -> IpAddr {
    address(v6, [192, 0, 2], 1, host)
}

/// Hosts behind the uplinks' gateways.
pub fn server(v6: bool, host: u8) -> IpAddr {
    address(v6, [198, 18, 0], 8, host)
}

/// Hosts behind another router of the LAN.
pub fn beyond(v6: bool, host: u8) -> IpAddr {
    address(v6, [198, 19, 0], 9, host)
}

/// In the network of an uplink: 1 is the router, 2 the gateway.
pub fn uplink(v6: bool, port: usize, host: u8) -> IpAddr {
    match port {
        1 => address(v6, [198, 51, 100], 2, host),
        _ => address(v6, [203, 0, 113], 3, host),
    }
}

/// Conntrack's timeouts for UDP and TCP, seconds, where they are brief.
pub const BRIEF_S: (&str, &str) = ("8", "12");

/// The LAN's other router and the target of hairpins have a MAC address of their own.
pub const OTHER_MAC: [u8; 6] = [0x02, 0, 0, 0, 3, 0];
pub const OTHER_ROUTER: u8 = 3;
pub const FORWARD_HOST: u8 = 20;
pub const HAIRPIN_HOST: u8 = 21;
/// The client that policies single out.
pub const POLICY_HOST: u8 = 11;

/// What every setup starts from: addresses and neighbours of both families.
pub fn base_commands() -> String {
    let mut text = String::new();
    for v6 in [false, true] {
        let (len, nodad) = if v6 { (64, " nodad") } else { (24, "") };
        let mut add = |address: IpAddr, port: &str| {
            let _ = writeln!(text, "address add {address}/{len} dev {port}{nodad}");
        };
        add(lan(v6, 1), "lan0");
        add(uplink(v6, 1, 1), "wan0");
        add(uplink(v6, 2, 1), "wan1");
        let mut neighbour = |address: IpAddr, mac: [u8; 6], port: &str| {
            let mac = freeway_lab::frame::mac_text(mac);
            let _ = writeln!(
                text,
                "neighbour replace {address} lladdr {mac} nud permanent dev {port}"
            );
        };
        for host in 2..40 {
            let other = [OTHER_ROUTER, HAIRPIN_HOST].contains(&host);
            let mac = if other {
                OTHER_MAC
            } else {
                freeway_lab::twins::host_mac(0)
            };
            neighbour(lan(v6, host), mac, "lan0");
        }
        neighbour(uplink(v6, 1, 2), freeway_lab::twins::host_mac(1), "wan0");
        neighbour(uplink(v6, 2, 2), freeway_lab::twins::host_mac(2), "wan1");
    }
    text
}

impl Setup {
    pub fn random(rng: &mut Random) -> Self {
        let tracking = rng.of(&[
            Tracking::None,
            Tracking::None,
            Tracking::Notrack,
            Tracking::Tracked,
            Tracking::Stateful,
            Tracking::Stateful,
        ]);
        let nat = match tracking {
            Tracking::None => Nat::None,
            _ => rng.of(&[Nat::None, Nat::Masquerade, Nat::Masquerade, Nat::Snat]),
        };
        let uplinks = rng.of(&[
            Uplinks::One,
            Uplinks::One,
            Uplinks::One,
            Uplinks::One,
            Uplinks::Multipath,
            Uplinks::Multipath,
            Uplinks::Nexthops,
            Uplinks::Nexthops,
            Uplinks::Source,
            Uplinks::Asymmetric,
            Uplinks::Asymmetric,
            Uplinks::Mark,
            Uplinks::Connmark,
        ]);
        let mut setup = Setup {
            v6: rng.permille(350),
            tracking,
            nat,
            forwards: tracking != Tracking::None && rng.permille(400),
            hairpin: tracking != Tracking::None && rng.permille(250),
            one_armed: rng.permille(250),
            inbound: rng.permille(250),
            uplinks,
            hash_policy: rng.below(2) as u8,
            rp_filter: rng.of(&[0, 0, 2]),
            mtu: rng.of(&[1500, 1500, 1500, 1492, 1400, 1280]),
            verifies: !rng.permille(150),
            brief: rng.permille(150),
            early: rng.permille(300),
            rules: Vec::new(),
            pace: rng.of(&[
                Pace::Single,
                Pace::Single,
                Pace::Burst,
                Pace::Burst,
                Pace::Gaps,
            ]),
        };
        if setup.uplinks == Uplinks::Connmark && tracking == Tracking::None {
            setup.tracking = Tracking::Tracked;
        }
        if setup.uplinks == Uplinks::One && rng.permille(200) {
            setup.rp_filter = 1;
        }
        // Only a confirmation of the kernel in the middle of the frames is a revalidation.
        if setup.brief {
            setup.pace = Pace::Gaps;
        }
        setup.rules = ruleset::random(&setup, rng);
        setup
    }

    /// The same, but little decides what becomes of a packet save its destination and port.
    pub fn routed(mut self, rng: &mut Random) -> Self {
        let rules = std::mem::take(&mut self.rules);
        let by_destination = [Uplinks::One, Uplinks::Multipath, Uplinks::Nexthops];
        Setup {
            tracking: Tracking::None,
            nat: Nat::None,
            forwards: false,
            hairpin: false,
            uplinks: match by_destination.contains(&self.uplinks) {
                true => self.uplinks,
                false => Uplinks::One,
            },
            rules: ruleset::routed(rules, rng),
            brief: false,
            ..self
        }
    }

    /// Whether conntrack sees anything.
    pub fn tracked(&self) -> bool {
        self.tracking != Tracking::None || self.rules.iter().any(|rule| rule.needs_conntrack())
    }

    /// The uplink depends on flow label and extension headers, and a masquerade ends a connection whose packet takes
    /// another one (`nf_nat_oif_changed`).
    pub fn ends_by_label(&self) -> bool {
        self.v6
            && self.hash_policy == 0
            && self.nat == Nat::Masquerade
            && matches!(self.uplinks, Uplinks::Multipath | Uplinks::Nexthops)
    }

    /// Why flows may stay in the kernel here; empty if they have to be fast.
    pub fn explains(&self) -> Vec<Effect> {
        let mut effects: Vec<Effect> = self.rules.iter().map(|rule| rule.effect()).collect();
        if matches!(self.uplinks, Uplinks::Mark | Uplinks::Connmark) {
            effects.push(Effect::Mark);
        }
        effects.retain(|effect| *effect != Effect::Safe);
        effects
    }

    /// `ip` commands that add what the setup needs.
    pub fn commands(&self) -> Vec<String> {
        let v6 = self.v6;
        let (servers, others) = match v6 {
            false => ("198.18.0.0/16", "198.19.0.0/16"),
            true => ("2001:db8:8::/48", "2001:db8:9::/48"),
        };
        let via = |port: usize| format!("via {} dev wan{}", uplink(v6, port, 2), port - 1);
        let mut lines = Vec::new();
        if self.mtu != 1500 {
            for port in ["wan0", "wan1"] {
                lines.push(format!("link set {port} mtu {}", self.mtu));
            }
        }
        match self.uplinks {
            Uplinks::Multipath => lines.push(format!(
                "route add {servers} nexthop {} weight 2 nexthop {} weight 1",
                via(1),
                via(2)
            )),
            Uplinks::Nexthops => {
                lines.push(format!("nexthop add id 11 {}", via(1)));
                lines.push(format!("nexthop add id 12 {}", via(2)));
                lines.push("nexthop add id 20 group 11/12,2".into());
                lines.push(format!("route add {servers} nhid 20"));
            }
            _ => lines.push(format!("route add {servers} {}", via(1))),
        }
        let selector = match self.uplinks {
            Uplinks::Mark | Uplinks::Connmark => Some("fwmark 0x1".to_string()),
            Uplinks::Source => Some(format!("from {}", lan(v6, POLICY_HOST))),
            _ => None,
        };
        if let Some(selector) = selector {
            lines.push(format!("route add {servers} {} table 101", via(2)));
            lines.push(format!("rule add {selector} lookup 101"));
        }
        if self.one_armed {
            let router = lan(v6, OTHER_ROUTER);
            lines.push(format!("route add {others} via {router} dev lan0"));
        }
        lines
    }

    /// What takes them back, in the order in which to run it.
    pub fn undo(&self) -> Vec<String> {
        let undo = |line: &String| {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["link", "set", port, "mtu", _] => format!("link set {port} mtu 1500"),
                ["nexthop", "add", "id", id, ..] => format!("nexthop del id {id}"),
                _ => line.replacen(" add ", " del ", 1),
            }
        };
        self.commands().iter().rev().map(undo).collect()
    }

    /// Sysctls of the router, below /proc/sys.
    pub fn sysctls(&self) -> Vec<(String, String)> {
        let policy = self.hash_policy.to_string();
        let mut values: Vec<(String, String)> = ["all", "lan0", "wan0", "wan1"]
            .map(|port| {
                let value = if port == "all" { 0 } else { self.rp_filter };
                (format!("net/ipv4/conf/{port}/rp_filter"), value.to_string())
            })
            .into();
        let (udp, tcp) = if self.brief {
            (BRIEF_S.0, BRIEF_S.1)
        } else {
            ("120", "432000")
        };
        for (path, value) in [
            ("net/ipv4/fib_multipath_hash_policy", policy.as_str()),
            ("net/ipv6/fib_multipath_hash_policy", policy.as_str()),
            (
                "net/netfilter/nf_conntrack_checksum",
                if self.verifies { "1" } else { "0" },
            ),
            ("net/netfilter/nf_conntrack_acct", "1"),
            ("net/netfilter/nf_conntrack_udp_timeout_stream", udp),
            ("net/netfilter/nf_conntrack_tcp_timeout_established", tcp),
        ] {
            values.push((path.into(), value.into()));
        }
        values
    }

    /// Setups that are simpler in one respect.
    pub fn simpler(&self) -> Vec<Setup> {
        let mut setups = Vec::new();
        for i in 0..self.rules.len() {
            let mut rules = self.rules.clone();
            rules.remove(i);
            setups.push(Setup {
                rules,
                ..self.clone()
            });
        }
        let mut try_with = |differs: bool, setup: Setup| {
            if differs {
                setups.push(setup);
            }
        };
        let s = || self.clone();
        try_with(
            self.pace != Pace::Single,
            Setup {
                pace: Pace::Single,
                ..s()
            },
        );
        try_with(
            self.uplinks != Uplinks::One,
            Setup {
                uplinks: Uplinks::One,
                ..s()
            },
        );
        try_with(
            self.nat != Nat::None,
            Setup {
                nat: Nat::None,
                ..s()
            },
        );
        let untracked = Setup {
            tracking: Tracking::None,
            nat: Nat::None,
            forwards: false,
            hairpin: false,
            ..s()
        };
        try_with(
            self.tracking != Tracking::None && self.uplinks != Uplinks::Connmark,
            untracked,
        );
        let tracked = Setup {
            tracking: Tracking::Tracked,
            ..s()
        };
        try_with(
            matches!(self.tracking, Tracking::Stateful | Tracking::Notrack),
            tracked,
        );
        try_with(self.mtu != 1500, Setup { mtu: 1500, ..s() });
        try_with(
            self.rp_filter != 0,
            Setup {
                rp_filter: 0,
                ..s()
            },
        );
        try_with(
            !self.verifies,
            Setup {
                verifies: true,
                ..s()
            },
        );
        try_with(
            self.brief,
            Setup {
                brief: false,
                ..s()
            },
        );
        try_with(
            self.early,
            Setup {
                early: false,
                ..s()
            },
        );
        try_with(
            self.hash_policy != 0,
            Setup {
                hash_policy: 0,
                ..s()
            },
        );
        setups
    }
}

impl std::fmt::Display for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        write!(f, "{family} {:?}", self.tracking)?;
        if self.nat != Nat::None {
            write!(f, " {:?}", self.nat)?;
        }
        if self.uplinks != Uplinks::One {
            write!(f, " {:?}/{}", self.uplinks, self.hash_policy)?;
        }
        for (on, name) in [
            (self.forwards, "forwards"),
            (self.hairpin, "hairpin"),
            (self.one_armed, "one-armed"),
            (self.inbound, "inbound"),
            (!self.verifies, "sums-unverified"),
            (self.brief, "brief"),
            (self.early, "early-accept"),
        ] {
            if on {
                write!(f, " {name}")?;
            }
        }
        if self.mtu != 1500 {
            write!(f, " mtu={}", self.mtu)?;
        }
        if self.rp_filter != 0 {
            write!(f, " rp_filter={}", self.rp_filter)?;
        }
        write!(f, " {:?}", self.pace)?;
        for rule in &self.rules {
            write!(f, " [{rule}]")?;
        }
        Ok(())
    }
}
