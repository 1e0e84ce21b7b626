// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why the manager left a flow to the kernel.

/// One of the manager's reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The candidate made no sense (family, indices).
    Malformed,
    /// The ingress port is not a fast one.
    PortIn,
    /// The egress port is not a fast one.
    PortOut,
    /// A rule that must see each packet can be reached.
    Ruleset,
    /// The packet carries a mark, or a rule sets one.
    Mark,
    /// The configuration excludes it.
    Policy,
    /// conntrack zones other than 0.
    Zone,
    /// The outcome keeps changing.
    Unstable,
    /// More than one frame left for one that came in, and no multicast route says so.
    Copies,
    /// A socket of the router itself takes the group's packets.
    Local,
    /// The flow table is full.
    TableFull,
    /// The next-hop table is full.
    NexthopsFull,
    /// It was seen before the last change of rules.
    Epoch,
    /// conntrack did not accept the preparation.
    Preparation,
    /// The frame carries a VLAN tag or another L2 header than plain Ethernet.
    Framing,
    /// Longer than XDP can send at the egress port.
    Length,
    /// A packet socket takes its frames.
    Sniffed,
    /// Each port is fit for one path, but not both for the same.
    NoPath,
    /// Seen only as skbs that no wire carries, and tc may not forward it.
    Unwired,
    /// To a group, from or to a port of a VRF.
    VrfGroup,
    /// Between VRFs, and perhaps through a VRF's own interface.
    Leak,
    /// For another MAC address than its port's, which a device above it has.
    Station,
}

impl Refusal {
    /// True if the next packets of the flow may be as good as any: what made this one unfit is over.
    #[must_use]
    pub fn is_momentary(self) -> bool {
        self == Refusal::Epoch
    }

    /// All, in the order in which they are shown.
    pub const ALL: [Refusal; 22] = [
        Refusal::Malformed,
        Refusal::PortIn,
        Refusal::PortOut,
        Refusal::Ruleset,
        Refusal::Mark,
        Refusal::Policy,
        Refusal::Zone,
        Refusal::Unstable,
        Refusal::Copies,
        Refusal::Local,
        Refusal::TableFull,
        Refusal::NexthopsFull,
        Refusal::Epoch,
        Refusal::Preparation,
        Refusal::Framing,
        Refusal::Length,
        Refusal::Sniffed,
        Refusal::NoPath,
        Refusal::Unwired,
        Refusal::VrfGroup,
        Refusal::Leak,
        Refusal::Station,
    ];

    /// Stable name, as in JSON and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::PortIn => "port_in",
            Refusal::PortOut => "port_out",
            Refusal::Ruleset => "ruleset",
            Refusal::Mark => "mark",
            Refusal::Policy => "policy",
            Refusal::Zone => "zone",
            Refusal::Unstable => "unstable",
            Refusal::Copies => "copies",
            Refusal::Local => "local",
            Refusal::TableFull => "table_full",
            Refusal::NexthopsFull => "nexthops_full",
            Refusal::Epoch => "epoch",
            Refusal::Preparation => "preparation",
            Refusal::Framing => "framing",
            Refusal::Length => "length",
            Refusal::Sniffed => "sniffed",
            Refusal::NoPath => "no_path",
            Refusal::Unwired => "unwired",
            Refusal::VrfGroup => "vrf_group",
            Refusal::Leak => "leak",
            Refusal::Station => "station",
        }
    }

    /// For people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Refusal::Malformed => "the data plane's report makes no sense",
            Refusal::PortIn => "the ingress port is not fit for the fast path",
            Refusal::PortOut => "the egress port is not fit for the fast path",
            Refusal::Ruleset => "a reachable rule must see every packet",
            Refusal::Mark => "packet marks matter for this flow",
            Refusal::Policy => "excluded by the configuration",
            Refusal::Zone => "conntrack zone other than 0",
            Refusal::Unstable => "the kernel keeps changing the outcome",
            Refusal::Copies => "the kernel sends copies other than a multicast route's",
            Refusal::Local => "a program on the router itself receives it",
            Refusal::TableFull => "the flow table is full",
            Refusal::NexthopsFull => "the next-hop table is full",
            Refusal::Epoch => "seen before the last change of rules",
            Refusal::Preparation => "conntrack did not accept the preparation",
            Refusal::Framing => "tags or another L2 header than plain Ethernet",
            Refusal::Length => "longer than XDP can send at the egress port",
            Refusal::Sniffed => "a packet socket (tcpdump, say) looks at its packets",
            Refusal::NoPath => {
                "its ports are fit for different paths (XDP, tc), but for none together"
            }
            Refusal::Unwired => "merged frames or unfinished checksums, which XDP never sees",
            Refusal::VrfGroup => "multicast of a VRF",
            Refusal::Leak => "between VRFs, where a route leads to a VRF's own interface",
            Refusal::Station => "for a MAC address above its port (macvlan), where Freeway is not",
        }
    }
}
