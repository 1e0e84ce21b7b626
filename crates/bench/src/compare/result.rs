// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a comparison says.

use freeway_lab::SinkCost;
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use super::bench::{Bench, Figures, Run};
use super::scenario::Definition;
use crate::cli::CompareArgs;
use crate::expected::{CHANGES_EXPECTED, LOSS_EXPECTED, SHARE_EXPECTED};
use crate::median::{median, ratio};
use crate::router::Router;

/// The result of a comparison. Times are medians over the runs, per frame that arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The lab's topology.
    pub scenario: String,
    /// The protocol; reports of an older Freeway are of UDP.
    #[serde(default = "udp")]
    pub proto: String,
    /// Frame size asked for, FCS counted.
    pub frame_bytes: u32,
    /// Frame size sent: the shortest that holds the headers, if that is more.
    pub wire_bytes: u32,
    /// The path that the configuration gives Freeway's ports: `auto`, `xdp` or `tc`.
    pub path: String,
    /// Flows.
    pub flows: u32,
    /// Hosts beyond the WAN to which they went in turn; none if they went to the scenario's.
    #[serde(default)]
    pub destinations: Option<u32>,
    /// Freeway forwarded by the kernel's routes, without flows.
    #[serde(default)]
    pub routes: bool,
    /// Runs.
    pub runs: u32,
    /// Seconds of each Freeway sample.
    pub seconds: f64,
    /// Whether `kernel_ns` is of a kernel with conntrack or without; none in reports of an older Freeway.
    #[serde(default)]
    pub kernel: Option<Router>,
    /// The generator into an XDP drop at the router's input.
    pub source_ns: f64,
    /// The kernel's forwarding, net of the source.
    pub kernel_ns: f64,
    /// Freeway's forwarding, net of the source.
    pub freeway_ns: f64,
    /// A bare XDP redirect, net of the source.
    pub redirect_ns: f64,
    /// The kernel's rate, everything included.
    pub kernel_mpps: f64,
    /// Freeway's rate, everything included.
    pub freeway_mpps: f64,
    /// The bare redirect's rate, everything included.
    pub redirect_mpps: f64,
    /// kernel_ns / freeway_ns within a run; the median.
    pub speedup: f64,
    /// freeway_ns / redirect_ns within a run; the median.
    pub over_redirect: f64,
    /// freeway_ns / kernel_ns within a turn; the median.
    pub over_kernel: f64,
    /// Freeway's program at the router's input, for a frame, as the kernel counts it (kernel.bpf_stats_enabled), which
    /// is part of the figure; none with `--brief`, and where the kernel does not tell which program it is.
    pub program_ns: Option<f64>,
    /// Changes of routes and neighbours in each router a second, while it is measured.
    #[serde(default)]
    pub changes_per_s: u32,
    /// As many as there really were, in the run and the router with the fewest; none without changes.
    #[serde(default)]
    pub real_changes_per_s: Option<f64>,
    /// The policy refused all flows.
    pub refused: bool,
    /// Connections that conntrack held beside those of the flows.
    pub idle_connections: u32,
    /// The part of output port and sink in kernel_ns; none with `--brief`.
    pub sink_skb_ns: Option<f64>,
    /// The part of output port and sink in freeway_ns and redirect_ns; none with `--brief`.
    pub sink_xdp_ns: Option<f64>,
    /// The least share of a Freeway sample's frames that the fast path forwarded.
    pub fast_share: f64,
    /// The largest share of a kernel sample's frames that did not arrive.
    #[serde(default)]
    pub kernel_lost_share: f64,
    /// The same of Freeway's.
    #[serde(default)]
    pub freeway_lost_share: f64,
    /// Others in the same runs.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// The figures of each run.
    pub samples: Samples,
    /// What was measured on.
    pub machine: Machine,
}

/// Another router in the same runs. What has no figure is null; then `missing` says why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Who.
    pub router: Router,
    /// Why it was not measured.
    pub missing: Option<String>,
    /// Its forwarding, net of the source.
    pub ns: Option<f64>,
    /// Its rate, everything included.
    pub mpps: Option<f64>,
    /// ns / freeway_ns within a run; the median.
    pub over_freeway: Option<f64>,
    /// The least share of a run's frames that its fast path forwarded, if it has one.
    pub fast_share: Option<f64>,
    /// The largest share of a run's frames that did not arrive.
    pub lost_share: Option<f64>,
    /// `ns` of each run.
    pub samples: Vec<f64>,
}

impl Peer {
    pub fn missing(router: Router, why: &str) -> Self {
        Self {
            router,
            missing: Some(why.to_owned()),
            ns: None,
            mpps: None,
            over_freeway: None,
            fast_share: None,
            lost_share: None,
            samples: Vec::new(),
        }
    }

    pub fn of(router: Router, runs: &[Figures], freeway: &[f64]) -> Self {
        let samples: Vec<f64> = runs.iter().map(|of| of.net_ns).collect();
        Self {
            router,
            missing: None,
            ns: Some(median(samples.clone())),
            mpps: Some(mpps(runs.iter().map(|of| of.ns))),
            over_freeway: Some(ratio(&samples, freeway)),
            fast_share: runs.iter().filter_map(|of| of.fast_share).reduce(f64::min),
            lost_share: runs.iter().map(Figures::lost_share).reduce(f64::max),
            samples,
        }
    }
}

/// The figures of each run, in order; times are gross where not called net.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// The generator into an XDP drop.
    pub source_ns: Vec<f64>,
    /// The kernel.
    pub kernel_ns: Vec<f64>,
    /// A bare redirect.
    pub redirect_ns: Vec<f64>,
    /// Freeway.
    pub freeway_ns: Vec<f64>,
    /// The kernel less the source of the same turns; medians of the turns, as the next two.
    pub kernel_net_ns: Vec<f64>,
    /// The bare redirect likewise.
    pub redirect_net_ns: Vec<f64>,
    /// Freeway likewise.
    pub freeway_net_ns: Vec<f64>,
    /// Freeway's over the kernel's, both net, within a turn.
    pub over_kernel: Vec<f64>,
    /// Freeway's program.
    pub program_ns: Vec<f64>,
    /// Frames of the Freeway sample that did not arrive.
    pub freeway_lost: Vec<u64>,
    /// Share of its frames that the fast path forwarded.
    pub fast_share: Vec<f64>,
}

pub fn udp() -> String {
    "udp".into()
}

/// Millions of frames a second: the median of what the runs' gross times come to.
pub fn mpps(gross_ns: impl Iterator<Item = f64>) -> f64 {
    median(gross_ns.map(|ns| 1000.0 / ns).collect())
}

impl Comparison {
    /// Of the runs with so many flows.
    pub fn of(
        args: &CompareArgs,
        flows: u32,
        bench: &Bench<'_>,
        sink: Option<&SinkCost>,
        runs: &[Run],
    ) -> Self {
        let mut samples = Samples::default();
        runs.iter().for_each(|run| samples.push(run));
        let lost = |of: fn(&Run) -> &Figures| {
            let shares = runs.iter().map(|run| of(run).lost_share());
            shares.fold(0.0, f64::max)
        };
        let freeway = &samples.freeway_net_ns;
        let there = bench.peers().enumerate().map(|(at, router)| {
            let of: Vec<Figures> = runs.iter().map(|run| run.peers[at]).collect();
            Peer::of(router, &of, freeway)
        });
        let there: Vec<Peer> = there.collect();
        let peers = Definition::of(args.scenario).peers.iter().filter_map(|of| {
            let missing = bench.missing(*of).map(|why| Peer::missing(*of, why));
            missing.or_else(|| there.iter().find(|peer| peer.router == *of).cloned())
        });
        Self {
            scenario: args.scenario.name().into(),
            proto: args.proto.name().into(),
            frame_bytes: args.frame_bytes(),
            wire_bytes: bench.wire_bytes(),
            path: args.path.name().into(),
            flows,
            destinations: args.destinations,
            routes: args.routes,
            runs: args.runs,
            seconds: args.seconds,
            kernel: Some(bench.kernel_shape()),
            source_ns: median(samples.source_ns.clone()),
            kernel_ns: median(samples.kernel_net_ns.clone()),
            freeway_ns: median(freeway.clone()),
            redirect_ns: median(samples.redirect_net_ns.clone()),
            kernel_mpps: mpps(samples.kernel_ns.iter().copied()),
            freeway_mpps: mpps(samples.freeway_ns.iter().copied()),
            redirect_mpps: mpps(samples.redirect_ns.iter().copied()),
            speedup: ratio(&samples.kernel_net_ns, freeway),
            over_redirect: ratio(freeway, &samples.redirect_net_ns),
            over_kernel: median(samples.over_kernel.clone()),
            program_ns: (!samples.program_ns.is_empty())
                .then(|| median(samples.program_ns.clone())),
            changes_per_s: args.changes(),
            real_changes_per_s: runs
                .iter()
                .filter_map(|run| run.changes_per_s)
                .reduce(f64::min),
            refused: args.refused,
            idle_connections: args.idle_connections,
            sink_skb_ns: sink.map(|sink| sink.skb_ns),
            sink_xdp_ns: sink.map(|sink| sink.xdp_ns),
            fast_share: samples.fast_share.iter().copied().fold(1.0, f64::min),
            kernel_lost_share: lost(|run| &run.kernel),
            freeway_lost_share: lost(|run| &run.freeway),
            peers: peers.collect(),
            samples,
            machine: Machine::this(),
        }
    }

    /// Frames that an XDP drop at the router's input takes, millions a second: no router is faster here.
    pub fn drop_mpps(&self) -> f64 {
        mpps(self.samples.source_ns.iter().copied())
    }

    /// Why peers are missing, sentences without an end.
    pub fn missing(&self) -> impl Iterator<Item = String> {
        self.peers.iter().filter_map(|peer| {
            let why = peer.missing.as_ref()?;
            Some(format!("Without {}: {why}", peer.router.name()))
        })
    }

    /// What should have been otherwise.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let mut say = |name: &str, fast: Option<f64>, lost: Option<f64>| {
            if let Some(fast) = fast.filter(|share| *share < SHARE_EXPECTED) {
                let fast = fast * 100.0;
                remarks.push(format!(
                    "only {fast:.1} % of the frames took the fast path in one of the runs ({name})"
                ));
            }
            if let Some(lost) = lost.filter(|share| *share > LOSS_EXPECTED) {
                let lost = lost * 100.0;
                remarks.push(format!(
                    "{lost:.2} % of the frames were lost in one of the runs ({name})"
                ));
            }
        };
        let fast = (!self.refused).then_some(self.fast_share);
        let kernel = self.kernel.unwrap_or(Router::Kernel);
        say(kernel.name(), None, Some(self.kernel_lost_share));
        say(Router::Freeway.name(), fast, Some(self.freeway_lost_share));
        for peer in &self.peers {
            say(peer.router.name(), peer.fast_share, peer.lost_share);
        }
        let asked = f64::from(self.changes_per_s);
        if let Some(real) = self.real_changes_per_s
            && real < asked * CHANGES_EXPECTED
        {
            remarks.push(format!(
                "only {real:.0} of {asked:.0} changes a second were made in one of the routers"
            ));
        }
        remarks
    }
}

impl Samples {
    pub fn push(&mut self, run: &Run) {
        self.source_ns.push(run.source_ns);
        self.redirect_ns.push(run.redirect.ns);
        self.redirect_net_ns.push(run.redirect.net_ns);
        self.kernel_ns.push(run.kernel.ns);
        self.kernel_net_ns.push(run.kernel.net_ns);
        self.freeway_ns.push(run.freeway.ns);
        self.freeway_net_ns.push(run.freeway.net_ns);
        self.over_kernel.push(run.over_kernel);
        self.program_ns.extend(run.program_ns);
        self.freeway_lost.push(run.freeway.lost);
        self.fast_share.extend(run.freeway.fast_share);
    }
}
