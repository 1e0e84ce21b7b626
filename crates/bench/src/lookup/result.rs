// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the measurement says.

use freeway_lookup::{Pages, Rates, Table, XDP};
use freeway_rig::Machine;
use serde::Serialize;

/// What the engine takes.
const ENGINE: &str = XDP;
/// With AVX-512 for bursts and without.
const RTE_FIB: [&str; 2] = ["rte_fib", "rte_fib_avx512"];
const RTE_LPM: &str = "rte_lpm";

/// The result. Rates are millions of lookups a second; those without another word are of the largest table, one address
/// at a time, from pages of 4 KiB.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lookup {
    /// Of the largest table.
    pub prefixes: usize,
    /// Where the prefixes are from.
    pub source: String,
    /// Runs.
    pub runs: u32,
    /// The structure that is meant for XDP.
    pub xdp_structure: String,
    /// Its rate.
    pub xdp_mlps: f64,
    /// Each address is known when the next hop before is.
    pub xdp_dependent_mlps: f64,
    /// What a lookup in it may read, for each prefix.
    pub bytes_per_prefix: f64,
    /// The structure that the engine takes.
    pub engine_structure: String,
    /// 64 at a time.
    pub engine_burst_mlps: f64,
    /// DPDK's `rte_lpm`.
    pub rte_lpm_mlps: Option<f64>,
    /// Likewise.
    pub rte_lpm_dependent_mlps: Option<f64>,
    /// DPDK's `rte_fib`, DIR-24-8: the better of scalar code and AVX-512.
    pub rte_fib_mlps: Option<f64>,
    /// Likewise.
    pub rte_fib_dependent_mlps: Option<f64>,
    /// Likewise, 64 at a time.
    pub rte_fib_burst_mlps: Option<f64>,
    /// `engine_burst_mlps` over that of `rte_fib`.
    pub engine_over_rte_fib: Option<f64>,
    /// `xdp_mlps` over that of `rte_lpm`.
    pub xdp_over_rte_lpm: Option<f64>,
    /// Over that of `rte_fib`.
    pub xdp_over_rte_fib: Option<f64>,
    /// Every table, all structures.
    pub tables: Vec<Table>,
    /// What should have been otherwise.
    pub remarks: Vec<String>,
    /// What was measured on.
    pub machine: Machine,
}

impl Lookup {
    /// Of these tables, the largest last; none if there is none.
    pub fn of(
        source: String,
        runs: u32,
        tables: Vec<Table>,
        mut remarks: Vec<String>,
        machine: Machine,
    ) -> Option<Self> {
        let largest = tables.last()?;
        let xdp = largest.of(XDP)?;
        let rates = xdp.pages.get(&Pages::Small)?.clone();
        let best = |names: &[&str], rate: fn(&Rates) -> f64| {
            let all = names.iter().filter_map(|name| largest.of(name));
            let all = all.filter_map(|candidate| candidate.pages.get(&Pages::Small));
            all.map(rate).reduce(f64::max)
        };
        let single = |rates: &Rates| rates.single_mlps;
        let dependent = |rates: &Rates| rates.dependent_mlps;
        let rte_lpm_mlps = best(&[RTE_LPM], single);
        let rte_fib_mlps = best(&RTE_FIB, single);
        if !xdp.pages.contains_key(&Pages::Huge) {
            let words = "without pages of 2 MiB: 256 are to be reserved (vm.nr_hugepages)";
            remarks.push(words.into());
        }
        let engine_burst_mlps = best(&[ENGINE], |rates| rates.burst_mlps)?;
        let rte_fib_burst_mlps = best(&RTE_FIB, |rates| rates.burst_mlps);
        Some(Self {
            prefixes: largest.prefixes,
            source,
            runs,
            xdp_structure: XDP.into(),
            xdp_mlps: rates.single_mlps,
            xdp_dependent_mlps: rates.dependent_mlps,
            bytes_per_prefix: xdp.bytes_per_prefix,
            engine_structure: ENGINE.into(),
            engine_burst_mlps,
            rte_lpm_mlps,
            rte_lpm_dependent_mlps: best(&[RTE_LPM], dependent),
            rte_fib_mlps,
            rte_fib_dependent_mlps: best(&RTE_FIB, dependent),
            rte_fib_burst_mlps,
            engine_over_rte_fib: rte_fib_burst_mlps.map(|other| engine_burst_mlps / other),
            xdp_over_rte_lpm: rte_lpm_mlps.map(|other| rates.single_mlps / other),
            xdp_over_rte_fib: rte_fib_mlps.map(|other| rates.single_mlps / other),
            tables,
            remarks,
            machine,
        })
    }
}
