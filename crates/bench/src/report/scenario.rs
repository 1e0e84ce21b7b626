// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scenarios of a report: each is a bench command, in a short form and in a long one.

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// One word.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// `bench` command and arguments in the short form,
    quick: &'static str,
    /// how many seconds that takes,
    quick_s: f64,
    /// and in the long form.
    long: &'static str,
    /// How many seconds that takes.
    long_s: f64,
    /// CPUs that it needs.
    cpus: usize,
}

/// All of them, in the order of the page.
pub const ALL: [Definition; 19] = [
    Definition {
        name: "routed",
        title: "IPv4 routing without connection tracking",
        quick: "compare --scenario routed --runs 3 --seconds 0.5 --brief --one-daemon",
        quick_s: 13.0,
        long: "compare --scenario routed --runs 5 --seconds 20",
        long_s: 400.0,
        cpus: 1,
    },
    Definition {
        name: "routed6",
        title: "IPv6 routing without connection tracking",
        quick: "compare --scenario routed6 --runs 3 --seconds 0.5 --brief --one-daemon",
        quick_s: 13.0,
        long: "compare --scenario routed6 --runs 5 --seconds 20",
        long_s: 400.0,
        cpus: 1,
    },
    Definition {
        name: "full-table",
        title: "IPv4 routing with 1,000,000 routes, 20,000 of them in use",
        quick: "compare --scenario full-table --runs 3 --seconds 0.5 --brief --one-daemon --no-peers",
        quick_s: 22.0,
        long: "compare --scenario full-table --runs 5 --seconds 20",
        long_s: 420.0,
        cpus: 1,
    },
    Definition {
        name: "nat",
        title: "IPv4 masquerade and a stateful firewall",
        quick: "compare --scenario nat --runs 3 --seconds 0.5 --brief --one-daemon",
        quick_s: 13.0,
        long: "compare --scenario nat --runs 5 --seconds 20",
        long_s: 360.0,
        cpus: 1,
    },
    Definition {
        name: "policies",
        title: "The same with 1,000 rules that do not match",
        quick: "compare --scenario policies --runs 3 --seconds 0.5 --brief --one-daemon",
        quick_s: 12.0,
        long: "compare --scenario policies --runs 5 --seconds 20",
        long_s: 380.0,
        cpus: 1,
    },
    Definition {
        name: "bridge",
        title: "IPv4 masquerade, the LAN being a bridge of the router",
        quick: "compare --scenario bridge --runs 3 --seconds 0.5 --brief --one-daemon",
        quick_s: 12.0,
        long: "compare --scenario bridge --runs 5 --seconds 20",
        long_s: 380.0,
        cpus: 1,
    },
    Definition {
        name: "vlan",
        title: "IPv4 masquerade, the LAN being an 802.1Q VLAN",
        quick: "compare --scenario vlan --runs 3 --seconds 0.5 --brief --one-daemon",
        quick_s: 12.0,
        long: "compare --scenario vlan --runs 5 --seconds 20",
        long_s: 380.0,
        cpus: 1,
    },
    Definition {
        name: "pppoe",
        title: "IPv4 masquerade, the WAN being a PPPoE session",
        quick: "compare --scenario pppoe --runs 3 --seconds 0.5 --brief --one-daemon",
        quick_s: 13.0,
        long: "compare --scenario pppoe --runs 5 --seconds 20",
        long_s: 380.0,
        cpus: 1,
    },
    Definition {
        name: "flows",
        title: "IPv4 masquerade by number of flows",
        quick: "flows --flows 1 --flows 10000 --runs 3 --seconds 0.5",
        quick_s: 20.0,
        long: "flows --runs 5 --seconds 5",
        long_s: 420.0,
        cpus: 1,
    },
    Definition {
        name: "churn",
        title: "IPv4 routing while routes and neighbours change, 100 times a second",
        quick: "compare --scenario churn --runs 3 --seconds 0.5 --brief --one-daemon",
        quick_s: 11.0,
        long: "compare --scenario churn --runs 5 --seconds 20",
        long_s: 420.0,
        cpus: 2,
    },
    Definition {
        name: "kirkwood",
        title: "TCP and UDP in packets of 1,400 bytes",
        quick: "kirkwood --runs 3 --seconds 0.5 --one-daemon",
        quick_s: 19.0,
        long: "kirkwood --runs 5 --seconds 5",
        long_s: 140.0,
        cpus: 1,
    },
    Definition {
        name: "imx8",
        title: "Full frames in the rows of the i.MX 8",
        quick: "imx8 --runs 3 --seconds 0.5 --row ipv4-tcp-lan-wan --row ipv6-udp-wan-lan --row ipv4-tcp-lan-wan-vlan-nat \
                --row ipv6-udp-wan-lan-vlan-nat",
        quick_s: 25.0,
        long: "imx8 --runs 5 --seconds 2",
        long_s: 400.0,
        cpus: 1,
    },
    Definition {
        name: "bulk",
        title: "TCP in frames of a wire",
        quick: "bulk --streams 1 --runs 3 --seconds 1 --brief",
        quick_s: 33.0,
        long: "bulk --runs 5 --seconds 5",
        long_s: 330.0,
        cpus: 2,
    },
    Definition {
        name: "multicast",
        title: "Copies of a multicast frame for 8 receivers",
        quick: "multicast --runs 3 --seconds 0.5",
        quick_s: 21.0,
        long: "multicast --runs 5 --seconds 4",
        long_s: 140.0,
        cpus: 2,
    },
    Definition {
        name: "rfc2544",
        title: "Throughput and latency by RFC 2544",
        quick: "rfc2544 --quick",
        quick_s: 25.0,
        long: "rfc2544",
        long_s: 600.0,
        cpus: 2,
    },
    Definition {
        name: "flood",
        title: "Established flows in a flood of new tuples",
        quick: "flood --kind udp-dropped --runs 1 --seconds 0.5",
        quick_s: 21.0,
        long: "flood --runs 5 --seconds 3",
        long_s: 900.0,
        cpus: 2,
    },
    Definition {
        name: "drop",
        title: "Drops of banned sources",
        quick: "drop --entries 1000 --runs 2 --seconds 0.5",
        quick_s: 10.0,
        long: "drop --runs 5 --seconds 2",
        long_s: 300.0,
        cpus: 1,
    },
    Definition {
        name: "setup",
        title: "New connections a second",
        quick: "setup --rate 20000 --seconds 4",
        quick_s: 19.0,
        long: "setup",
        long_s: 150.0,
        cpus: 2,
    },
    Definition {
        name: "shaper",
        title: "A shaped port with and without Freeway",
        quick: "shaper --runs 1 --seconds 2",
        quick_s: 21.0,
        long: "shaper --runs 5 --seconds 15",
        long_s: 300.0,
        cpus: 1,
    },
];

impl Definition {
    /// Whether a report has it if no scenario is named.
    pub fn is_default(&self, quick: bool) -> bool {
        !quick || !LONG_ONLY.contains(&self.name)
    }

    fn arguments(&self, quick: bool) -> &'static str {
        if quick { self.quick } else { self.long }
    }

    /// The command that measures it alone.
    pub fn command(&self, quick: bool) -> String {
        format!("freeway bench {}", self.arguments(quick))
    }

    /// How long it takes, roughly.
    pub fn seconds(&self, quick: bool) -> f64 {
        if quick { self.quick_s } else { self.long_s }
    }

    /// Why so few CPUs are not enough.
    pub fn lacks_cpus(&self, cpus: usize) -> Option<String> {
        let needed = self.cpus;
        (cpus < needed)
            .then(|| format!("needs {needed} CPUs, of which this process may use {cpus}"))
    }
}

/// Those that the short form measures only if asked for by name.
const LONG_ONLY: [&str; 1] = ["shaper"];

/// Their names.
pub fn names() -> [&'static str; ALL.len()] {
    ALL.map(|scenario| scenario.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_short() {
        let all = || ALL.iter().filter(|scenario| scenario.is_default(true));
        let sum: f64 = all().map(|scenario| scenario.seconds(true)).sum();
        // where the kernel has neither VLANs nor PPPoE, these say so at once
        let optional = all().filter(|scenario| ["vlan", "pppoe"].contains(&scenario.name));
        let optional: f64 = optional.map(|scenario| scenario.seconds(true)).sum();
        assert!(sum - optional < 290.0, "{sum} less {optional}");
        assert!(sum < 320.0, "{sum}");
    }

    #[test]
    fn one_cpu_is_too_few_for_some() {
        let of = |name| ALL.iter().find(|scenario| scenario.name == name).unwrap();
        let why = of("bulk").lacks_cpus(1).unwrap();
        assert!(why.contains("needs 2 CPUs"), "{why}");
        assert_eq!(of("routed").lacks_cpus(1), None);
    }
}
