// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of the bench commands as one type, and what of them is compared and drawn.

use freeway_rig::Machine;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::bulk::Bulk;
use super::super::compare::Comparison;
use super::super::drop::Drops;
use super::super::flood::Flood;
use super::super::flows::ByFlows;
use super::super::imx8::Imx8;
use super::super::kirkwood::Kirkwood;
use super::super::multicast::Multicast;
use super::super::replay::Replay;
use super::super::rfc2544::Rfc2544;
use super::super::rfc9693::{self, Rfc9693};
use super::super::router::Router;
use super::super::setup::Setup;
use super::super::shaper::Shaper;
use crate::median::ratio;

/// Of a full frame without FCS, at `bench bulk`'s MTU.
const ETHERNET_BYTES: u32 = 14;

/// What a bench command measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// `bench compare`.
    Compare(Box<Comparison>),
    /// `bench imx8`.
    Imx8(Imx8),
    /// `bench kirkwood`.
    Kirkwood(Box<Kirkwood>),
    /// `bench flows`.
    Flows(ByFlows),
    /// `bench bulk`.
    Bulk(Bulk),
    /// `bench multicast`.
    Multicast(Multicast),
    /// `bench rfc2544`.
    Rfc2544(Rfc2544),
    /// `bench rfc9693`.
    Rfc9693(Box<Rfc9693>),
    /// `bench replay`.
    Replay(Replay),
    /// `bench flood`.
    Flood(Flood),
    /// `bench drop`.
    Drop(Drops),
    /// `bench setup`.
    Setup(Setup),
    /// `bench shaper`.
    Shaper(Shaper),
}

/// Fields that only one command's result has.
const MARKS: [(&str, &str); 13] = [
    ("compare", "over_redirect"),
    ("imx8", "rows"),
    ("kirkwood", "tcp"),
    ("flows", "counts"),
    ("bulk", "streams"),
    ("multicast", "families"),
    ("rfc2544", "sizes"),
    ("rfc9693", "table_limit"),
    ("replay", "capture"),
    ("flood", "kinds"),
    ("drop", "sets"),
    ("setup", "packets"),
    ("shaper", "discipline"),
];

/// Fields that say what was measured.
const SETTINGS: [&str; 23] = [
    "scenario",
    "quick",
    "changes_per_s",
    "proto",
    "wire_bytes",
    "path",
    "flows",
    "connections",
    "table_max",
    "destinations",
    "refused",
    "rules",
    "idle_connections",
    "ports",
    "mtu",
    "directions",
    "digest",
    "tempo",
    "loops",
    "stateful",
    "discipline",
    "rate_mbit",
    "packets",
];

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// A larger ratio.
    More,
    /// A smaller one.
    Less,
}

/// A ratio to what was measured in the same run, so that the machine's speed is in both of its sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// What was measured, `IPv4 TCP LAN>WAN`; empty if the scenario has nothing else.
    pub case: String,
    /// `kernel / Freeway`.
    pub name: &'static str,
    /// Which way is better.
    pub better: Better,
    /// Of each run.
    pub samples: Vec<f64>,
}

/// The kernel's time or cost over Freeway's.
pub const SPEEDUP: &str = "kernel / Freeway";
/// The kernel's over the flow table's.
pub const OF_FLOWTABLE: &str = "kernel / flow table";
const OVER_REDIRECT: &str = "Freeway / bare redirect";
const OVER_BROADCAST: &str = "Freeway / bare broadcast";
const OVER_DROP: &str = "Freeway / bare drop";
const OVER_IPSET: &str = "iptables with ipset / Freeway";
/// A rule of iptables over the same in a set of nftables, taken over.
pub const OVER_RULE: &str = "iptables with one rule / Freeway";

/// What a frame costs, nanoseconds of CPU, of each run.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// As in [`Ratio`].
    pub case: String,
    /// What is counted, such as `64-byte frame`.
    pub unit: String,
    /// Who took how much; who is missing is not there.
    pub routers: Vec<(Router, Vec<f64>)>,
}

impl Outcome {
    /// Reads a result of the command of that name.
    pub fn read(bench: &str, value: Value) -> Result<Self, String> {
        let outcome = match bench {
            "compare" => serde_json::from_value(value).map(Outcome::Compare),
            "imx8" => serde_json::from_value(value).map(Outcome::Imx8),
            "kirkwood" => serde_json::from_value(value).map(Outcome::Kirkwood),
            "flows" => serde_json::from_value(value).map(Outcome::Flows),
            "bulk" => serde_json::from_value(value).map(Outcome::Bulk),
            "multicast" => serde_json::from_value(value).map(Outcome::Multicast),
            "rfc2544" => serde_json::from_value(value).map(Outcome::Rfc2544),
            "rfc9693" => serde_json::from_value(value).map(Outcome::Rfc9693),
            "replay" => serde_json::from_value(value).map(Outcome::Replay),
            "flood" => serde_json::from_value(value).map(Outcome::Flood),
            "drop" => serde_json::from_value(value).map(Outcome::Drop),
            "setup" => serde_json::from_value(value).map(Outcome::Setup),
            "shaper" => serde_json::from_value(value).map(Outcome::Shaper),
            other => return Err(format!("this freeway has no `bench {other}`")),
        };
        outcome.map_err(|error| error.to_string())
    }

    /// Which command's result this is, by the fields that it has.
    pub fn command_of(value: &Value) -> Option<&'static str> {
        let of = MARKS.iter().find(|(_, mark)| value.get(mark).is_some());
        of.map(|(command, _)| *command)
    }

    /// The command.
    pub fn bench(&self) -> &'static str {
        match self {
            Outcome::Compare(_) => "compare",
            Outcome::Imx8(_) => "imx8",
            Outcome::Kirkwood(_) => "kirkwood",
            Outcome::Flows(_) => "flows",
            Outcome::Bulk(_) => "bulk",
            Outcome::Multicast(_) => "multicast",
            Outcome::Rfc2544(_) => "rfc2544",
            Outcome::Rfc9693(_) => "rfc9693",
            Outcome::Replay(_) => "replay",
            Outcome::Flood(_) => "flood",
            Outcome::Drop(_) => "drop",
            Outcome::Setup(_) => "setup",
            Outcome::Shaper(_) => "shaper",
        }
    }

    /// What a single result is called where a report has the scenario's name.
    pub fn scenario(&self) -> &str {
        match self {
            Outcome::Compare(result) => &result.scenario,
            other => other.bench(),
        }
    }

    /// What was measured on.
    pub fn machine(&self) -> &Machine {
        match self {
            Outcome::Compare(result) => &result.machine,
            Outcome::Imx8(result) => &result.machine,
            Outcome::Kirkwood(result) => &result.machine,
            Outcome::Flows(result) => &result.machine,
            Outcome::Bulk(result) => &result.machine,
            Outcome::Multicast(result) => &result.machine,
            Outcome::Rfc2544(result) => &result.machine,
            Outcome::Rfc9693(result) => &result.machine,
            Outcome::Replay(result) => &result.machine,
            Outcome::Flood(result) => &result.machine,
            Outcome::Drop(result) => &result.machine,
            Outcome::Setup(result) => &result.machine,
            Outcome::Shaper(result) => &result.machine,
        }
    }

    /// What was asked of the command, but for how long and how often: results of other settings are no repetitions.
    pub fn settings(&self) -> String {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else {
            return String::new();
        };
        let asked = SETTINGS.iter().filter_map(|name| {
            let value = fields.get(*name)?;
            let words = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            Some(format!("{name} {words}"))
        });
        asked.collect::<Vec<_>>().join(", ")
    }

    /// All ratios, in order. Those that a missing router leaves out are not there.
    pub fn ratios(&self) -> Vec<Ratio> {
        let mut ratios = Ratios(Vec::new());
        match self {
            Outcome::Compare(c) => ratios.of_comparison("", c),
            Outcome::Kirkwood(kirkwood) => {
                for (case, of) in kirkwood.cases() {
                    ratios.of_comparison(case, of);
                }
            }
            Outcome::Imx8(imx8) => {
                for row in &imx8.rows {
                    let case = imx8_case(&row.label, row.vlan_nat);
                    let [kernel, flowtable, freeway] = row.columns().map(|column| {
                        column
                            .cost()
                            .map_or(&[][..], |cost| cost.samples.as_slice())
                    });
                    ratios.more(&case, SPEEDUP, kernel, freeway);
                    ratios.more(&case, OF_FLOWTABLE, kernel, flowtable);
                    ratios.less(&case, OVER_REDIRECT, freeway, &row.redirect_samples);
                }
            }
            Outcome::Flows(flows) => {
                for of in &flows.counts {
                    ratios.of_comparison(&flows_case(of), of);
                }
            }
            Outcome::Bulk(bulk) => {
                for s in &bulk.streams {
                    let case = streams(s.streams);
                    let (kernel, auto, tc) = (&s.kernel.samples, &s.auto.samples, &s.tc.samples);
                    // bytes for each second of CPU: the inverse of a cost
                    ratios.more(&case, SPEEDUP, auto, kernel);
                    ratios.more(&case, "kernel / Freeway in tc", tc, kernel);
                }
            }
            Outcome::Multicast(multicast) => {
                for family in &multicast.families {
                    let case = family_name(family.family);
                    let freeway = &family.freeway.samples;
                    ratios.more(case, SPEEDUP, &family.kernel.samples, freeway);
                    ratios.less(case, OVER_BROADCAST, freeway, &family.broadcast.samples);
                }
            }
            Outcome::Rfc2544(result) => {
                for size in &result.sizes {
                    // what the generator limited is not the router's
                    for (name, [over, under]) in size.rates() {
                        let samples = |pps: Option<f64>| pps.into_iter().collect::<Vec<f64>>();
                        ratios.more(&size.label, name, &samples(over), &samples(under));
                    }
                }
            }
            Outcome::Rfc9693(result) => {
                let (kernel, freeway) = (&result.kernel, &result.freeway);
                let made = |of: &rfc9693::Figures| {
                    // what the generator limited is not the router's
                    let of = &of.establishment;
                    of.per_s.map_or_else(Vec::new, |_| of.samples.clone())
                };
                let (over, under) = (made(freeway), made(kernel));
                ratios.more("new connections", "rate, Freeway / kernel", &over, &under);
                ratios.more(
                    "deleted connections",
                    "rate, Freeway / kernel",
                    &freeway.tear_down.samples,
                    &kernel.tear_down.samples,
                );
            }
            Outcome::Replay(result) => {
                let (kernel, freeway) = (&result.kernel.samples, &result.freeway.samples);
                ratios.more("", SPEEDUP, kernel, freeway);
            }
            Outcome::Flood(flood) => {
                for kind in &flood.kinds {
                    let s = &kind.samples;
                    let case = kind.name.replace('_', " ");
                    let (during, before) = (&s.hit_ns_during, &s.hit_ns_before);
                    ratios.less(&case, "a hit in the flood / before", during, before);
                    ratios.more(
                        &case,
                        "frames that arrived, Freeway / kernel",
                        &s.freeway_arrived_share,
                        &s.kernel_arrived_share,
                    );
                }
            }
            Outcome::Drop(drops) => {
                for set in &drops.sets {
                    let case = drop_case(set);
                    let of = &set.samples;
                    ratios.more(&case, OVER_IPSET, &of.iptables_ns, &of.freeway_ns);
                    ratios.more(&case, OVER_RULE, &of.iptables_rule_ns, &of.freeway_ns);
                    ratios.more(&case, "nftables / Freeway", &of.nft_ns, &of.freeway_ns);
                    ratios.less(&case, OVER_DROP, &of.freeway_ns, &of.xdp_drop_ns);
                }
            }
            // a rate that was looked for, without repetitions
            Outcome::Setup(_) => {}
            Outcome::Shaper(shaper) => {
                let of = |runs: &[super::super::shaper::Figures], figure: fn(&_) -> f64| {
                    runs.iter().map(figure).collect::<Vec<f64>>()
                };
                let (freeway, kernel) = (&shaper.samples.freeway, &shaper.samples.kernel);
                let case = shaper.discipline.as_str();
                ratios.more(
                    case,
                    "rate, Freeway / kernel",
                    &of(freeway, |f| f.both_mbit),
                    &of(kernel, |f| f.both_mbit),
                );
                ratios.less(
                    case,
                    "latency, Freeway / kernel",
                    &of(freeway, |f| f.latency_p50_ms),
                    &of(kernel, |f| f.latency_p50_ms),
                );
            }
        }
        ratios.0
    }

    /// What should have been otherwise, sentences without an end.
    pub fn remarks(&self) -> Vec<String> {
        match self {
            Outcome::Compare(c) => c.remarks(),
            Outcome::Kirkwood(kirkwood) => {
                let of_case = |(case, of): (&str, &Comparison)| {
                    let remarks = of.remarks().into_iter();
                    remarks
                        .map(move |words| format!("{case}: {words}"))
                        .collect::<Vec<_>>()
                };
                kirkwood.cases().into_iter().flat_map(of_case).collect()
            }
            Outcome::Imx8(imx8) => {
                let of_row = |row: &super::super::imx8::Measured| {
                    let case = imx8_case(&row.label, row.vlan_nat);
                    let remarks = row.remarks.iter();
                    remarks
                        .map(|words| format!("{case}: {words}"))
                        .collect::<Vec<_>>()
                };
                imx8.rows.iter().flat_map(of_row).collect()
            }
            Outcome::Flows(flows) => {
                let of_count = |of: &Comparison| {
                    let remarks = of.remarks().into_iter();
                    let case = flows_case(of);
                    remarks
                        .map(|words| format!("{case}: {words}"))
                        .collect::<Vec<_>>()
                };
                flows.counts.iter().flat_map(of_count).collect()
            }
            Outcome::Multicast(multicast) => multicast.remarks(),
            Outcome::Rfc2544(result) => result.remarks.clone(),
            Outcome::Rfc9693(result) => result.remarks.clone(),
            Outcome::Replay(result) => result.remarks.clone(),
            Outcome::Drop(result) => result.remarks.clone(),
            Outcome::Bulk(_) | Outcome::Flood(_) | Outcome::Setup(_) | Outcome::Shaper(_) => {
                Vec::new()
            }
        }
    }

    /// Who could not be measured beside the others: each with its name and why.
    pub fn missing_peers(&self) -> Vec<(&'static str, &str)> {
        let of = match self {
            Outcome::Compare(c) => c.as_ref(),
            Outcome::Kirkwood(kirkwood) => &kirkwood.udp,
            _ => return Vec::new(),
        };
        let missing = of.peers.iter().filter_map(|peer| {
            let why = peer.missing.as_deref()?;
            Some((peer.router.name(), why))
        });
        missing.collect()
    }

    /// The kernel's time over Freeway's with the generator in both; nothing of commands that do not measure with it.
    pub fn gross_speedups(&self) -> Vec<(&'static str, f64)> {
        let of = |c: &Comparison| ratio(&c.samples.kernel_ns, &c.samples.freeway_ns);
        match self {
            Outcome::Compare(c) => vec![("", of(c))],
            Outcome::Kirkwood(kirkwood) => kirkwood.cases().map(|(case, c)| (case, of(c))).to_vec(),
            _ => Vec::new(),
        }
    }

    /// What frames cost; nothing of commands that do not say.
    pub fn costs(&self) -> Vec<Costs> {
        match self {
            Outcome::Compare(c) => vec![of_comparison("", c)],
            Outcome::Kirkwood(kirkwood) => {
                let of_cases = kirkwood.cases().map(|(case, of)| of_comparison(case, of));
                of_cases.to_vec()
            }
            Outcome::Flows(flows) => {
                let of_count = |of| of_comparison(&flows_case(of), of);
                flows.counts.iter().map(of_count).collect()
            }
            Outcome::Imx8(imx8) => {
                let of_row = |row: &super::super::imx8::Measured| {
                    let [kernel, flowtable, freeway] = row.columns().map(|column| {
                        column
                            .cost()
                            .map_or_else(Vec::new, |cost| cost.samples.clone())
                    });
                    Costs {
                        case: imx8_case(&row.label, row.vlan_nat),
                        unit: format!("{}-byte frame", row.frame_bytes),
                        routers: present([
                            (Router::Kernel, kernel),
                            (Router::Flowtable, flowtable),
                            (Router::Freeway, freeway),
                            (Router::Redirect, row.redirect_samples.clone()),
                        ]),
                    }
                };
                imx8.rows.iter().map(of_row).collect()
            }
            Outcome::Bulk(bulk) => {
                let frame_bytes = f64::from(bulk.mtu + ETHERNET_BYTES);
                let ns = |samples: &[f64]| samples.iter().map(|gb| frame_bytes / gb).collect();
                let of_streams = |s: &super::super::bulk::Streams| Costs {
                    case: streams(s.streams),
                    unit: format!("{frame_bytes} bytes of TCP"),
                    routers: present([
                        (Router::Kernel, ns(&s.kernel.samples)),
                        (Router::Freeway, ns(&s.auto.samples)),
                        (Router::Tc, ns(&s.tc.samples)),
                    ]),
                };
                bulk.streams.iter().map(of_streams).collect()
            }
            Outcome::Multicast(multicast) => {
                let of_family = |family: &super::super::multicast::Measured| Costs {
                    case: family_name(family.family).to_owned(),
                    unit: format!("copy of a {}-byte frame", family.frame_bytes),
                    routers: present([
                        (Router::Kernel, family.kernel.samples.clone()),
                        (Router::Freeway, family.freeway.samples.clone()),
                        (Router::Redirect, family.broadcast.samples.clone()),
                    ]),
                };
                multicast.families.iter().map(of_family).collect()
            }
            Outcome::Replay(result) => vec![Costs {
                case: String::new(),
                unit: "frame of the capture".into(),
                routers: present([
                    (Router::Kernel, result.kernel.samples.clone()),
                    (Router::Freeway, result.freeway.samples.clone()),
                ]),
            }],
            Outcome::Rfc2544(_)
            | Outcome::Rfc9693(_)
            | Outcome::Flood(_)
            | Outcome::Drop(_)
            | Outcome::Setup(_)
            | Outcome::Shaper(_) => Vec::new(),
        }
    }
}

/// What a row of the i.MX 8 measurement is called.
pub fn imx8_case(label: &str, vlan_nat: bool) -> String {
    let shape = if vlan_nat { ", VLAN, NAT" } else { "" };
    format!("{label}{shape}")
}

fn flows_case(of: &Comparison) -> String {
    freeway_console::plural(of.flows.into(), "flow")
}

/// What a set of banned addresses is called.
pub fn drop_case(set: &super::super::drop::Set) -> String {
    let addresses = freeway_console::count(set.entries.into());
    match set.entries {
        1 => "1 address".into(),
        entries if entries == set.sources => format!("{addresses} addresses"),
        _ => {
            let sources = freeway_console::count(set.sources.into());
            format!("{addresses} addresses, {sources} of them send")
        }
    }
}

fn streams(number: u32) -> String {
    freeway_console::plural(number.into(), "stream")
}

fn family_name(family: freeway_lab::Family) -> &'static str {
    match family {
        freeway_lab::Family::Ipv4 => "IPv4",
        freeway_lab::Family::Ipv6 => "IPv6",
    }
}

/// The kernel as it is there, the peers, Freeway and the bare redirect.
fn of_comparison(case: &str, c: &Comparison) -> Costs {
    let kernel = c.kernel.unwrap_or(Router::Kernel);
    let mut routers = vec![(kernel, c.samples.kernel_net_ns.clone())];
    let peers = c.peers.iter();
    routers.extend(peers.map(|peer| (peer.router, peer.samples.clone())));
    routers.push((Router::Freeway, c.samples.freeway_net_ns.clone()));
    routers.push((Router::Redirect, c.samples.redirect_net_ns.clone()));
    Costs {
        case: case.to_owned(),
        unit: format!("{}-byte frame", c.wire_bytes),
        routers: present(routers),
    }
}

/// Those with figures.
fn present(routers: impl Into<Vec<(Router, Vec<f64>)>>) -> Vec<(Router, Vec<f64>)> {
    let mut routers: Vec<_> = routers.into();
    routers.retain(|(_, samples)| !samples.is_empty());
    routers
}

struct Ratios(Vec<Ratio>);

impl Ratios {
    fn of_comparison(&mut self, case: &str, c: &Comparison) {
        let s = &c.samples;
        let (kernel, freeway) = (&s.kernel_net_ns, &s.freeway_net_ns);
        self.more(case, SPEEDUP, kernel, freeway);
        self.less(case, OVER_REDIRECT, freeway, &s.redirect_net_ns);
        for peer in &c.peers {
            self.more(case, peer.router.over_freeway(), &peer.samples, freeway);
        }
    }

    fn more(&mut self, case: &str, name: &'static str, over: &[f64], under: &[f64]) {
        self.push(case, name, Better::More, over, under);
    }

    fn less(&mut self, case: &str, name: &'static str, over: &[f64], under: &[f64]) {
        self.push(case, name, Better::Less, over, under);
    }

    fn push(
        &mut self,
        case: &str,
        name: &'static str,
        better: Better,
        over: &[f64],
        under: &[f64],
    ) {
        let samples: Vec<f64> = over.iter().zip(under).map(|(a, b)| a / b).collect();
        if !samples.is_empty() {
            self.0.push(Ratio {
                case: case.to_owned(),
                name,
                better,
                samples,
            });
        }
    }
}
