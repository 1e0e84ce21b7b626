// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed answers, for the tests of client, server and rendering.
#![allow(missing_docs, clippy::unwrap_used)]

use crate::*;

/// A flow behind a masquerade.
pub fn flow() -> Flow {
    Flow {
        family: 4,
        proto: Proto::TCP,
        src: "192.0.2.2".parse().unwrap(),
        sport: 40000,
        dst: "198.51.100.2".parse().unwrap(),
        dport: 5201,
        port_in: "lan0".into(),
        to_src: "198.51.100.1".parse().unwrap(),
        to_sport: 40000,
        to_dst: "198.51.100.2".parse().unwrap(),
        to_dport: 5201,
        port_out: "wan0".into(),
        ports_out: Vec::new(),
        src_mac_out: Some("02:00:00:00:02:01".into()),
        dst_mac_out: Some("02:00:00:00:02:02".into()),
        state: FlowState::Active,
        path: FlowPath::Xdp,
        packets: 1_234_567,
        bytes: 1_850_000_000,
        age_s: 12.5,
        idle_s: 0.2,
        confirmed_s_ago: 3.0,
        length_max: 1500,
        ttl: 64,
        dscp: 0,
        connection: true,
        mark: 0,
        reply: false,
    }
}

/// Its answers.
pub fn reply_flow() -> Flow {
    let flow = flow();
    Flow {
        src: flow.to_dst,
        sport: flow.to_dport,
        dst: flow.to_src,
        dport: flow.to_sport,
        to_src: flow.dst,
        to_sport: flow.dport,
        to_dst: flow.src,
        to_dport: flow.sport,
        port_in: flow.port_out.clone(),
        port_out: flow.port_in.clone(),
        reply: true,
        ..flow
    }
}

/// What the fake daemon says of itself.
pub fn status() -> Status {
    let port = |ifindex, name: &str, state, path, reasons: &[&str]| Port {
        ifindex,
        name: name.into(),
        state,
        path,
        reasons: reasons.iter().map(|&words| words.into()).collect(),
        mtu: 1500,
        mac: Some(format!("02:00:00:00:00:{ifindex:02x}")),
        redirect_failures: 0,
        ring_drops: 0,
        xdp_features: vec!["basic".into(), "redirect".into(), "ndo-xmit".into()],
        routes: false,
        routes_reason: Some("connections are tracked".into()),
    };
    Status {
        version: "0.1.0".into(),
        pid: 4242,
        uptime_s: 3723,
        taken_over: None,
        kernel: "6.12.0-1-amd64".into(),
        on: true,
        paused: None,
        epoch: 3,
        flows: FlowCounts {
            active: 1998,
            preparing: 1,
            suspended: 2,
            unconfirmed: 0,
            capacity: 65_536,
        },
        engine: None,
        same_core: None,
        shares: Shares {
            holders: 3,
            greatest: vec![
                Holder {
                    address: "192.0.2.7".into(),
                    flows: 1960,
                },
                Holder {
                    address: "2001:db8::/64".into(),
                    flows: 40,
                },
            ],
            displaced: 0,
        },
        connections: 1000,
        next_hops: 4,
        ports: vec![
            port(2, "lan0", PortState::Fast, PortPath::Xdp, &[]),
            port(3, "wan0", PortState::Fast, PortPath::Xdp, &[]),
            port(
                4,
                "vethfaraway0000",
                PortState::Kernel,
                PortPath::Kernel,
                &[
                    "a veth whose peer may send merged frames and unfinished checksums: say wire_true = true for it in \
                     the configuration if it does not",
                    "a packet socket (tcpdump) sees its frames",
                ],
            ),
            port(
                5,
                "eth9",
                PortState::Down,
                PortPath::Kernel,
                &["no carrier"],
            ),
        ],
        ruleset: RulesetStatus {
            generation: 17,
            safe: false,
            findings: vec![
                "inet filter forward, handle 12: `limit` must see every packet from lan0".into(),
            ],
        },
        limits: limits(),
        scrub_limits: scrub_limits(),
        features: vec![
            Feature {
                name: "bpf_xdp_ct_lookup".into(),
                state: FeatureState::Present,
                needed_for: "checking connections once a second".into(),
                minimum_kernel: "6.0".into(),
            },
            Feature {
                name: "tcx".into(),
                state: FeatureState::Missing,
                needed_for: "attaching beside other tc programs".into(),
                minimum_kernel: "6.6".into(),
            },
        ],
        accounting: Some(accounting()),
        notices: vec![
            "nf_conntrack_max is 65,536: connections beyond it are dropped by the kernel".into(),
        ],
        invalidation: Invalidation {
            count: 12,
            p50_ms: 0.2,
            p99_ms: 0.9,
            worst_ms: 3.2,
        },
        staleness_bound_s: 10.0,
        learn: Learning {
            candidates: 2200,
            learned: 2001,
            refused: 199,
            learnable_to_fast_ms: Latency {
                p50: 4.0,
                p95: 18.0,
                p99: 60.0,
                max: 240.0,
            },
            connections: 1000,
            connection_to_fast_ms: Latency {
                p50: 8.0,
                p95: 20.0,
                p99: 60.0,
                max: 240.0,
            },
        },
        memory_rss_bytes: 12 << 20,
        memory_maps_bytes: 40 << 20,
        config_file: Some("/etc/freeway/freeway.toml".into()),
    }
}

fn limits() -> Vec<Limit> {
    let limit = |name: &str, packets_per_s, dropped| Limit {
        name: name.into(),
        packets_per_s,
        dropped,
    };
    vec![limit("icmp", 1_000, 0), limit("fragment", 10_000, 1_234)]
}

fn scrub_limits() -> Vec<ScrubLimit> {
    vec![ScrubLimit {
        number: 1,
        proto: "syn".into(),
        packets_per_s: 200,
        dropped: Packets {
            packets: 4_321,
            bytes: 276_544,
        },
    }]
}

/// `freeway drops`.
pub fn drops() -> Drops {
    let dropped = Packets {
        packets: 1_000_000,
        bytes: 64_000_000,
    };
    Drops {
        enabled: true,
        active: true,
        dropped,
        packets_per_s: 120_000,
        rules: vec![DropsByRule {
            set: "inet banip blocklistv4".into(),
            rule: "inet banip pre, rule 1 (handle 4)".into(),
            ip: 4,
            ports: vec!["wan0".into()],
            elements: 54_321,
            dropped,
            packets_per_s: 120_000,
            confirmed: 9,
            kernel_packets: Some(9),
            ..DropsByRule::default()
        }],
        ports: vec![DropsByPort {
            port: "wan0".into(),
            dropped,
            packets_per_s: 120_000,
        }],
        top: vec![DropsByAddress {
            address: "203.0.113.66".into(),
            packets: 999_936,
            sets: vec!["inet banip blocklistv4".into()],
            expires_s: Some(3600),
        }],
        kept: vec![KeptRule {
            set: "crowdsec".into(),
            rule: "ip crowdsec in, rule 1 (handle 3)".into(),
            reason: "input and forward come behind connection tracking and routing".into(),
        }],
        ports_kept: vec![KeptPort {
            port: "ppp0".into(),
            reason: "XDP does not run at the port itself".into(),
        }],
        limits: vec![DropsByLimit {
            number: 1,
            proto: "syn".into(),
            packets_per_s: 200,
            burst: 64,
            prefix_len4: 32,
            prefix_len6: 64,
            dropped: scrub_limits()[0].dropped,
            ports: vec![DropsByPort {
                port: "wan0".into(),
                dropped: scrub_limits()[0].dropped,
                packets_per_s: 1_800,
            }],
            ports_kept: vec![KeptPort {
                port: "ppp0".into(),
                reason: "XDP does not run at the port itself".into(),
            }],
            forgotten: 7,
        }],
        sources: vec![DropsBySource {
            source: "2001:db8:66::/64".into(),
            limit: 1,
            dropped: 4_000,
            dropped_per_s: 1_800,
        }],
    }
}

/// `freeway routes`.
pub fn routes() -> Routes {
    Routes {
        enabled: true,
        ipv4: FamilyRoutes {
            active: true,
            routes: 950_012,
            prefixes: 950_001,
            table_bytes: 3_400_000,
            withdrawn: 1,
            kept: vec![KeptPrefixes {
                reason: "several next hops".into(),
                prefixes: 3,
            }],
            ..FamilyRoutes::default()
        },
        ipv6: FamilyRoutes {
            reason: Some("net.ipv6.conf.all.forwarding is not 1".into()),
            ..FamilyRoutes::default()
        },
        routed: Packets {
            packets: 7_000_000,
            bytes: 448_000_000,
        },
        asked: 120,
        confirmed: 118,
        contradicted: 1,
        next_hops: vec![NextHop {
            port: "wan0".into(),
            neighbour: [198, 51, 100, 1].into(),
            mac: "02:00:00:00:00:fe".into(),
            path: FlowPath::Xdp,
            len_max: 1500,
            state: HopState::Confirmed,
            confirmed_ms: Some(340),
            routed: Packets {
                packets: 7_000_000,
                bytes: 448_000_000,
            },
        }],
        ports: vec!["lan0".into()],
        ports_kept: vec![KeptPort {
            port: "ppp0".into(),
            reason: "its packets have no Ethernet header".into(),
        }],
        ..Routes::default()
    }
}

/// Its counters.
pub fn stats() -> Stats {
    let reason = |name: &str, stage: &str, words: &str, packets| ReasonCount {
        name: name.into(),
        stage: stage.into(),
        words: words.into(),
        packets,
    };
    Stats {
        fast: Packets {
            packets: 1_234_567,
            bytes: 1_850_000_000,
        },
        reasons: vec![
            reason("fast", "fast", "forwarded by the fast path", 1_234_567),
            reason("miss", "punt", "no flow in the table", 4321),
            reason("icmp", "punt", "ICMP or ICMPv6", 0),
            reason(
                "epoch",
                "punt",
                "rules or routes changed: waiting for the kernel's confirmation",
                17,
            ),
            reason(
                "policed",
                "drop",
                "over the limit that the configuration sets for its reason",
                1_234,
            ),
            reason(
                "learn_changed",
                "learn",
                "fields changed that no rewrite explains (length, ID, flags, ECN)",
                3,
            ),
            reason("learned", "keep", "offered to the connection manager", 2200),
        ],
        limits: limits(),
        scrub_limits: scrub_limits(),
        bridged: BridgedFrames {
            paths: 12,
            learned: 40,
            packets: 7_654_321,
            bytes: 9_000_000_000,
            refused: vec![RefusalCount {
                name: "station".into(),
                words: "the bridge has a station elsewhere, or not at all".into(),
                count: 3,
            }],
        },
        drops: vec![DropsBySet {
            set: "inet banip blocklistv4".into(),
            dropped: Packets {
                packets: 1_000_000,
                bytes: 64_000_000,
            },
            confirmed: 9,
        }],
        events: Events {
            candidates: 2200,
            changed: 1,
            suspended: 40,
            watched: 0,
            lost: 0,
        },
        refused: vec![
            RefusalCount {
                name: "table_full".into(),
                words: "the flow table is full".into(),
                count: 0,
            },
            RefusalCount {
                name: "policy".into(),
                words: "excluded by the configuration".into(),
                count: 199,
            },
        ],
        netlink: Netlink {
            events: 77,
            overruns: 0,
            resyncs: 1,
        },
        reloads: Reloads {
            applied: 2,
            refused: 1,
        },
        accounting: Some(accounting()),
    }
}

/// `freeway hosts`.
pub fn hosts() -> Hosts {
    let counts = |packets| IpPackets {
        packets,
        ip_bytes: packets * 1_000,
    };
    let host = |address: &str, packets| HostCounts {
        address: address.parse().unwrap(),
        sent: counts(packets),
        received: counts(3 * packets),
        told_s_ago: 12.0,
    };
    Hosts {
        prefixes: vec![HostsOfPrefix {
            prefix: "192.0.2.0/24".parse().unwrap(),
            hosts: 2,
            sent: counts(1_010_000),
            received: counts(3_030_000),
        }],
        hosts: vec![host("192.0.2.2", 1_000_000), host("192.0.2.3", 10_000)],
        others_sent: IpPackets::default(),
        others_received: IpPackets::default(),
        kernel_counts: true,
        age_max_s: 60,
    }
}

/// Accounts with a collector that is there and one that is not.
pub fn accounting() -> Accounting {
    let collector = |collector: &str, transport: &str, state, dropped| Collector {
        collector: collector.into(),
        format: "ipfix".into(),
        transport: transport.into(),
        state,
        records: 1_234,
        messages: 98,
        bytes: 131_072,
        dropped,
        connects: 1,
        error: (dropped > 0).then(|| "Connection refused (os error 111)".into()),
    };
    Accounting {
        connections: 321,
        kernel_counts: true,
        records: 1_240,
        uncounted: 2,
        missed: 1,
        collectors: vec![
            collector("192.0.2.9:4739", "udp", CollectorState::Ready, 0),
            collector("192.0.2.10:4739", "tcp", CollectorState::Down, 6),
        ],
    }
}

/// A question about the flow.
pub fn query() -> ExplainQuery {
    ExplainQuery {
        proto: Proto::TCP,
        src: "192.0.2.2:40000".parse().unwrap(),
        dst: "198.51.100.2:5201".parse().unwrap(),
        watch_ms: 10,
    }
}

/// The answer to it.
pub fn explain() -> Explain {
    let orig = Endpoints::from(query());
    Explain {
        tuple: orig,
        verdict: Verdict::Fast,
        summary: "The fast path forwards this flow from lan0 to wan0.".into(),
        reasons: vec![Why {
            name: "fast".into(),
            words: "forwarded by the fast path".into(),
            stage: "xdp".into(),
        }],
        flow: Some(flow()),
        reply_flow: Some(reply_flow()),
        connection: Some(Connection {
            orig,
            reply: Endpoints {
                proto: Proto::TCP,
                src: orig.dst,
                sport: orig.dport,
                dst: "198.51.100.1".parse().unwrap(),
                dport: 40000,
            },
            status: vec!["seen_reply".into(), "assured".into(), "src_nat".into()],
            state: Some("established".into()),
            timeout_s: Some(431_999),
            mark: 0,
            helper: None,
            zone: 0,
        }),
        neighbour: Some(Neighbour {
            ip: "198.51.100.2".parse().unwrap(),
            mac: Some("02:00:00:00:02:02".into()),
            state: "reachable".into(),
            port: "wan0".into(),
        }),
        watched: Watched {
            packets: 31_415,
            seconds: 2.0,
            results: vec![Seen {
                stage: "xdp".into(),
                reason: "fast".into(),
                words: "forwarded by the fast path".into(),
                count: 31_415,
                port: "lan0".into(),
            }],
            dropped: Vec::new(),
        },
        notes: vec!["The connection's window tracking was made liberal.".into()],
    }
}

/// What is forwarded.
pub fn top() -> Top {
    let rate = |packets_per_s: f64| Rate {
        packets_per_s,
        bits_per_s: packets_per_s * 12_000.0,
    };
    let port = |name: &str, received, sent| TopPort {
        name: name.into(),
        received: rate(received),
        sent: rate(sent),
    };
    let flows = [(flow(), 80_000.0), (reply_flow(), 1_234.0)];
    Top {
        interval_s: 1.001,
        on: true,
        table: status().flows,
        engine: status().engine,
        fast: rate(81_234.0),
        paths: vec![TopPath {
            path: FlowPath::Xdp,
            rate: rate(81_234.0),
        }],
        ports: vec![
            port("lan0", 80_000.0, 1_234.0),
            port("wan0", 1_234.0, 80_000.0),
        ],
        flows: flows
            .map(|(flow, packets)| TopFlow {
                flow,
                rate: rate(packets),
            })
            .into(),
        reasons: vec![ReasonRate {
            name: "miss".into(),
            stage: "punt".into(),
            words: "no flow in the table".into(),
            packets_per_s: 12.5,
        }],
    }
}
