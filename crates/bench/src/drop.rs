// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench drop`: what a frame of a flood costs the router that drops it.
//!
//! The router's ports are polled by threads, as in `bench multicast`: their time is all that it takes to receive and to drop,
//! net of the source, which by default has the same CPU, so that frames are where a card would have put them: in its caches. iptables
//! with a set and with one rule, nftables in prerouting and at ingress, Freeway, and a bare XDP drop take turns in places of one kind.

mod site;

use std::time::Duration;

use freeway_console::{Page, Stop, Terminal, Tone, count, progress, show};
use freeway_lab::Generator;
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use self::site::{Dropper, Site, Turn};
use super::cli::DropArgs;
use super::median::{median, ratio};

/// One address, as many as a list of a service has, and as many as lists together.
const ENTRIES: [u32; 3] = [1, 1000, 1_000_000];
/// A router's share of a run at a time.
const TURN: Duration = Duration::from_millis(250);
/// Fewer of the frames dropped in XDP than this deserve a remark.
const SHARE_EXPECTED: f64 = 0.98;

/// The result. Figures are nanoseconds of the router's CPU for a frame, net of the source: medians of the runs, of which
/// each is a median of turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drops {
    /// Frame size, FCS counted.
    pub frame_bytes: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of each sample.
    pub seconds: f64,
    /// By number of addresses in the set.
    pub sets: Vec<Set>,
    /// What should have been otherwise.
    pub remarks: Vec<String>,
    /// What was measured on.
    pub machine: Machine,
}

/// A set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Set {
    /// Addresses in it.
    pub entries: u32,
    /// Of these so many sent, one after the other.
    pub sources: u32,
    /// A rule of iptables with a set of ipset, in FORWARD; none where there is no iptables or no ipset.
    pub iptables_ns: Option<f64>,
    /// One rule of iptables for a prefix with all of them, in FORWARD; none where there is no iptables.
    pub iptables_rule_ns: Option<f64>,
    /// nftables in prerouting, priority raw.
    pub nft_ns: f64,
    /// nftables at the ingress of the port; none where the kernel has none.
    pub nft_ingress_ns: Option<f64>,
    /// The rule in prerouting, taken over by Freeway.
    pub freeway_ns: f64,
    /// A program that drops everything.
    pub xdp_drop_ns: f64,
    /// iptables_ns / freeway_ns within a run; the median.
    pub over_iptables: Option<f64>,
    /// iptables_rule_ns / freeway_ns likewise.
    pub over_iptables_rule: Option<f64>,
    /// nft_ns / freeway_ns likewise.
    pub over_nft: f64,
    /// xdp_drop_ns / freeway_ns likewise: the share of the bare drop's rate.
    pub of_xdp_drop: f64,
    /// The least share of a run's frames that Freeway dropped.
    pub scrubbed_share: f64,
    /// Of each run.
    pub samples: Samples,
}

/// Nanoseconds for a frame, of each run; of who could not be measured none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// As in [`Set`].
    pub iptables_ns: Vec<f64>,
    /// Likewise.
    pub iptables_rule_ns: Vec<f64>,
    /// Likewise.
    pub nft_ns: Vec<f64>,
    /// Likewise.
    pub freeway_ns: Vec<f64>,
    /// Likewise.
    pub xdp_drop_ns: Vec<f64>,
}

/// Measures and prints.
pub fn drop(args: &DropArgs) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.json, &result, |terminal| table(&result, terminal))
}

/// Measures.
pub fn measured(args: &DropArgs) -> Result<Drops, Stop> {
    freeway_rig::prepare()?;
    progress("building the routers");
    let (mut sites, mut remarks) = (Vec::new(), Vec::new());
    for dropper in Dropper::ALL {
        match Site::build(dropper, args)? {
            Ok(site) => sites.push(site),
            Err(why) => remarks.push(format!("without {}: {why}", dropper.name())),
        }
    }
    let all = match &args.entries[..] {
        [] => &ENTRIES[..],
        some => some,
    };
    let mut sets = Vec::new();
    for entries in all {
        sets.push(measure(&mut sites, *entries, args, &mut remarks)?);
    }
    for set in &sets {
        if set.scrubbed_share < SHARE_EXPECTED {
            remarks.push(format!(
                "{} addresses: only {:.1} % of the frames were dropped in XDP",
                count(set.entries.into()),
                set.scrubbed_share * 100.0
            ));
        }
    }
    sites.into_iter().try_for_each(Site::end)?;
    Ok(Drops {
        frame_bytes: args.frame_bytes,
        runs: args.runs,
        seconds: args.seconds,
        sets,
        remarks,
        machine: Machine::this(),
    })
}

fn measure(
    sites: &mut Vec<Site<'_>>,
    entries: u32,
    args: &DropArgs,
    remarks: &mut Vec<String>,
) -> Result<Set, Stop> {
    progress(&format!("{} addresses", count(entries.into())));
    let mut failed = None;
    for (at, site) in sites.iter().enumerate() {
        match site.fill(entries) {
            Ok(()) => {}
            // a kernel without this hook
            Err(why) if site.dropper == Dropper::NftIngress => failed = Some((at, why)),
            Err(why) => return Err(why),
        }
    }
    if let Some((at, why)) = failed {
        let site = sites.remove(at);
        remarks.push(format!("without {}: {why}", site.dropper.name()));
        site.end()?;
    }
    let generators = sites.iter().map(|site| site.generator(entries));
    let generators: Vec<Generator> = generators.collect::<Result<_, _>>()?;
    let mut samples = vec![Vec::new(); sites.len()];
    let mut scrubbed_share: f64 = 1.0;
    for number in 1..=args.runs {
        let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); sites.len()];
        let mut left = Duration::from_secs_f64(args.seconds);
        while !left.is_zero() {
            for ((site, generator), turns) in sites.iter().zip(&generators).zip(&mut turns) {
                turns.push(site.turn(generator, left.min(TURN))?);
            }
            left = left.saturating_sub(TURN);
        }
        let mut words = Vec::new();
        for ((site, turns), samples) in sites.iter().zip(&turns).zip(&mut samples) {
            let ns = median(turns.iter().map(|turn| turn.ns).collect());
            words.push(format!("{} {ns:.1}", site.dropper.name()));
            samples.push(ns);
            if site.dropper == Dropper::Freeway {
                let sum = |of: fn(&Turn) -> u64| turns.iter().map(of).sum::<u64>() as f64;
                let share = sum(|turn| turn.scrubbed) / sum(|turn| turn.frames).max(1.0);
                scrubbed_share = scrubbed_share.min(share);
            }
        }
        progress(&format!(
            "{} addresses, run {number} of {}: {} ns a frame",
            count(entries.into()),
            args.runs,
            words.join(", ")
        ));
    }
    let of = |dropper: Dropper| {
        let at = sites.iter().position(|site| site.dropper == dropper)?;
        samples.get(at)
    };
    let needed = |dropper: Dropper| {
        let missing = || Stop::failure(format!("{} was not measured", dropper.name()));
        of(dropper).ok_or_else(missing)
    };
    let middle = |samples: &Vec<f64>| median(samples.clone());
    let (nft, freeway, bare) = (
        needed(Dropper::Nft)?,
        needed(Dropper::Freeway)?,
        needed(Dropper::XdpDrop)?,
    );
    let over = |dropper: Dropper| of(dropper).map(|theirs| ratio(theirs, freeway));
    Ok(Set {
        entries,
        sources: entries.min(args.sources),
        iptables_ns: of(Dropper::Iptables).map(middle),
        iptables_rule_ns: of(Dropper::IptablesRule).map(middle),
        nft_ns: middle(nft),
        nft_ingress_ns: of(Dropper::NftIngress).map(middle),
        freeway_ns: middle(freeway),
        xdp_drop_ns: middle(bare),
        over_iptables: over(Dropper::Iptables),
        over_iptables_rule: over(Dropper::IptablesRule),
        over_nft: ratio(nft, freeway),
        of_xdp_drop: ratio(bare, freeway),
        scrubbed_share,
        samples: Samples {
            iptables_ns: of(Dropper::Iptables).cloned().unwrap_or_default(),
            iptables_rule_ns: of(Dropper::IptablesRule).cloned().unwrap_or_default(),
            nft_ns: nft.clone(),
            freeway_ns: freeway.clone(),
            xdp_drop_ns: bare.clone(),
        },
    })
}

fn table(drops: &Drops, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words(
        "",
        &format!(
            "SYNs of {} bytes from banned sources; medians of {} runs, {} s each; ns of the router's CPU for a frame, net of the source",
            drops.frame_bytes, drops.runs, drops.seconds
        ),
    );
    page.words("", &drops.machine.to_string());
    page.gap();
    let heads = [
        "addresses",
        "sources",
        "iptables, ipset",
        "one rule",
        "nft",
        "nft ingress",
        "Freeway",
        "XDP drop",
    ];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    let some = |ns: Option<f64>| ns.map_or_else(|| "-".into(), |ns| format!("{ns:.1}"));
    for row in &drops.sets {
        rows.push(vec![
            count(row.entries.into()),
            count(row.sources.into()),
            some(row.iptables_ns),
            some(row.iptables_rule_ns),
            some(Some(row.nft_ns)),
            some(row.nft_ingress_ns),
            some(Some(row.freeway_ns)),
            some(Some(row.xdp_drop_ns)),
        ]);
    }
    page.table(2, &[0, 1, 2, 3, 4, 5, 6, 7], &rows);
    page.gap();
    for row in &drops.sets {
        let times = |over: Option<f64>, whose: &str| {
            over.map_or_else(String::new, |over| format!("{over:.1} times {whose}, "))
        };
        let iptables = times(row.over_iptables, "iptables' with ipset")
            + &times(row.over_iptables_rule, "iptables' with one rule");
        page.words(
            "",
            &format!(
                "{} addresses: Freeway drops at {iptables}{:.1} times nft's rate, and at {:.2} of the bare drop's.",
                count(row.entries.into()),
                row.over_nft,
                row.of_xdp_drop
            ),
        );
    }
    for words in &drops.remarks {
        page.words("", &page.tone(Tone::Warn, words));
    }
    page.finish()
}
