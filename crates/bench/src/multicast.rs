// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench multicast`: what a copy of a multicast frame costs the router.
//!
//! The router's ports are polled by threads on a CPU of their own, as in `bench bulk`: their time is all that it takes to
//! receive, to replicate and to hand over. Source and receivers have another CPU; there the receivers go ahead of the
//! source, which sends as fast as what is left allows. A frame that finds the router's input full costs the router
//! nothing. The kernel alone, the kernel with Freeway, and a bare XDP broadcast, which routes nothing, take turns in
//! places of one kind.

mod site;

use std::time::Duration;

use freeway_console::{Page, Stop, Terminal, Tone, progress, show};
use freeway_lab::{Family, Generator};
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use self::site::{Site, Turn};
use super::router::Router;
use crate::cli::MulticastArgs;
use crate::median::{median, ratio};
use crate::parallel::at_once;

const ROUTERS: [Router; 3] = [Router::Kernel, Router::Freeway, Router::Broadcast];
/// A router's share of a run at a time.
const TURN: Duration = Duration::from_millis(500);
/// Fewer of the frames on the fast path than this deserve a remark.
const SHARE_EXPECTED: f64 = 0.98;
/// So do more lost copies than this.
const LOSS_EXPECTED: f64 = 0.001;

/// The result. Figures are medians of the runs, of which each is a median of turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Multicast {
    /// Receivers, each at a port of its own.
    pub ports: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of each sample.
    pub seconds: f64,
    /// The receivers' ports had one MAC address.
    #[serde(default)]
    pub switch: bool,
    /// The policy refused all flows.
    pub refused: bool,
    /// Rules ahead of the one that accepts; none where nothing was filtered and no connection tracked.
    pub rules: Option<u32>,
    /// IPv4 and IPv6.
    pub families: Vec<Measured>,
    /// What was measured on.
    pub machine: Machine,
}

/// Frames of a family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The family.
    pub family: Family,
    /// Frame size, FCS counted: what was asked for, or the shortest that holds the headers.
    pub frame_bytes: u32,
    /// The kernel alone.
    pub kernel: Figures,
    /// With Freeway.
    pub freeway: Figures,
    /// An XDP program that hands every frame to all receivers as it is: the least that copies cost.
    pub broadcast: Figures,
    /// kernel.ns / freeway.ns within a run; the median.
    pub ratio: f64,
    /// freeway.ns / broadcast.ns likewise.
    pub over_broadcast: f64,
}

/// A router's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Nanoseconds of the router's CPU for each copy that reached a receiver.
    pub ns: f64,
    /// Copies that reached the receivers in a second, millions.
    pub copies_mpps: f64,
    /// Share of the CPU that the router had.
    pub router_cpu: f64,
    /// Share of the source's frames that the router took.
    pub taken_share: f64,
    /// The largest share of a run's copies that did not reach their receiver.
    pub lost_share: f64,
    /// The least share of a run's frames that Freeway forwarded.
    pub fast_share: f64,
    /// `ns` of each run.
    pub samples: Vec<f64>,
}

/// A run of a router.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Run {
    ns: f64,
    copies_mpps: f64,
    router_cpu: f64,
    taken_share: f64,
    lost_share: f64,
    fast_share: f64,
}

impl Run {
    fn of(turns: &[Turn], ports: u32) -> Self {
        let over = |figure: &dyn Fn(&Turn) -> f64| median(turns.iter().map(figure).collect());
        let sum = |figure: fn(&Turn) -> u64| turns.iter().map(figure).sum::<u64>() as f64;
        let share = |part: f64, whole: f64| part / whole.max(1.0);
        let (frames, copies) = (sum(|turn| turn.frames), sum(|turn| turn.copies));
        Self {
            ns: over(&Turn::ns),
            copies_mpps: over(&|turn| turn.copies as f64 * 1e-6 / turn.elapsed.as_secs_f64()),
            router_cpu: over(&|turn| turn.cpu.as_secs_f64() / turn.elapsed.as_secs_f64()),
            taken_share: share(frames, sum(|turn| turn.sent)),
            lost_share: (1.0 - share(copies, frames * f64::from(ports))).max(0.0),
            fast_share: share(sum(|turn| turn.fast), frames),
        }
    }
}

impl Multicast {
    /// What should have been otherwise.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for measured in &self.families {
            let family = name(measured.family);
            for (router, figures) in measured.routers() {
                if figures.lost_share > LOSS_EXPECTED {
                    let lost = figures.lost_share * 100.0;
                    remarks.push(format!(
                        "{family}, {}: {lost:.2} % of the copies were lost",
                        router.name()
                    ));
                }
            }
            let fast = measured.freeway.fast_share;
            if fast < SHARE_EXPECTED && !self.refused {
                let fast = fast * 100.0;
                remarks.push(format!(
                    "{family}: only {fast:.1} % of the frames were Freeway's"
                ));
            }
        }
        remarks
    }
}

impl Measured {
    fn routers(&self) -> [(Router, &Figures); 3] {
        let figures = [&self.kernel, &self.freeway, &self.broadcast];
        std::array::from_fn(|at| (ROUTERS[at], figures[at]))
    }
}

impl Figures {
    fn of(runs: &[Run]) -> Self {
        let over = |figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
        Self {
            ns: over(|run| run.ns),
            copies_mpps: over(|run| run.copies_mpps),
            router_cpu: over(|run| run.router_cpu),
            taken_share: over(|run| run.taken_share),
            lost_share: runs.iter().map(|run| run.lost_share).fold(0.0, f64::max),
            fast_share: runs.iter().map(|run| run.fast_share).fold(1.0, f64::min),
            samples: runs.iter().map(|run| run.ns).collect(),
        }
    }
}

/// Measures and prints.
pub fn multicast(args: &MulticastArgs) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.json, &result, |terminal| table(&result, terminal))
}

/// Measures.
pub fn measured(args: &MulticastArgs) -> Result<Multicast, Stop> {
    freeway_rig::prepare()?;
    progress("building the routers");
    let fanouts = at_once(ROUTERS, |_| Site::fanout(args))?;
    let [kernel, freeway, broadcast] = ROUTERS;
    let [of_kernel, of_freeway, of_broadcast] = fanouts;
    let sites = [
        Site::build(kernel, of_kernel, args)?,
        Site::build(freeway, of_freeway, args)?,
        Site::build(broadcast, of_broadcast, args)?,
    ];
    let families = [Family::Ipv4, Family::Ipv6].into_iter();
    let families = families.map(|family| measure(&sites, family, args));
    let families = families.collect::<Result<_, _>>()?;
    sites.into_iter().try_for_each(Site::end)?;
    Ok(Multicast {
        ports: args.ports,
        runs: args.runs,
        seconds: args.seconds,
        switch: args.switch,
        refused: args.refused,
        rules: args.rules,
        families,
        machine: Machine::this(),
    })
}

fn measure(sites: &[Site; 3], family: Family, args: &MulticastArgs) -> Result<Measured, Stop> {
    let generators = sites.iter().map(|site| site.generator(family));
    let generators: Vec<Generator> = generators.collect::<Result<_, _>>()?;
    let mut runs = [const { Vec::new() }; 3];
    for number in 1..=args.runs {
        for (site, generator) in sites.iter().zip(&generators) {
            site.warm_up(generator)?;
        }
        let mut turns = [const { Vec::new() }; 3];
        let mut left = Duration::from_secs_f64(args.seconds);
        while !left.is_zero() {
            for ((site, generator), turns) in sites.iter().zip(&generators).zip(&mut turns) {
                turns.push(site.turn(generator, left.min(TURN))?);
            }
            left = left.saturating_sub(TURN);
        }
        let run = turns.each_ref().map(|turns| Run::of(turns, args.ports));
        progress(&format!(
            "{}, run {number} of {}: kernel {:.1}, Freeway {:.1}, bare broadcast {:.1} ns a copy",
            name(family),
            args.runs,
            run[0].ns,
            run[1].ns,
            run[2].ns
        ));
        for (runs, run) in runs.iter_mut().zip(run) {
            runs.push(run);
        }
    }
    let [kernel, freeway, broadcast] = runs.each_ref().map(|runs| Figures::of(runs));
    Ok(Measured {
        family,
        frame_bytes: sites[0].flow(family).wire_bytes(),
        ratio: ratio(&kernel.samples, &freeway.samples),
        over_broadcast: ratio(&freeway.samples, &broadcast.samples),
        kernel,
        freeway,
        broadcast,
    })
}

fn name(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "IPv4",
        Family::Ipv6 => "IPv6",
    }
}

fn table(multicast: &Multicast, terminal: Terminal) -> String {
    let m = multicast;
    let mut page = Page::new(terminal);
    page.words(
        "",
        &format!(
            "1 source, {} receivers at ports of their own, UDP; medians of {} runs, {} s each",
            m.ports, m.runs, m.seconds
        ),
    );
    if m.switch {
        page.words(
            "",
            "the receivers' ports have one MAC address, as a switch's have",
        );
    }
    if let Some(rules) = m.rules {
        page.words(
            "",
            &format!(
                "conntrack and a stateful filter, {rules} rules ahead of the one that accepts"
            ),
        );
    }
    page.words("", &m.machine.to_string());
    page.gap();
    let heads = ["", "ns a copy", "Mpps of copies", "router CPU", "lost"];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    for measured in &m.families {
        for (router, figures) in measured.routers() {
            rows.push(vec![
                format!("{}, {}", name(measured.family), router.name()),
                format!("{:.1}", figures.ns),
                format!("{:.2}", figures.copies_mpps),
                format!("{:.2}", figures.router_cpu),
                format!("{:.2} %", figures.lost_share * 100.0),
            ]);
        }
    }
    page.table(2, &[1, 2, 3, 4], &rows);
    page.gap();
    for measured in &m.families {
        let ratio = page.tone(Tone::Good, &format!("{:.1} times", measured.ratio));
        page.words(
            "",
            &format!(
                "{}, frames of {} bytes: the kernel takes {ratio} as long for a copy as Freeway, which costs {:.2} bare \
                 broadcasts.",
                name(measured.family),
                measured.frame_bytes,
                measured.over_broadcast
            ),
        );
    }
    for words in m.remarks() {
        page.words("", &page.tone(Tone::Warn, &words));
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(cpu_us: u64, frames: u64, copies: u64) -> Turn {
        Turn {
            cpu: Duration::from_micros(cpu_us),
            elapsed: Duration::from_millis(1),
            sent: 2 * frames,
            frames,
            copies,
            fast: frames,
        }
    }

    #[test]
    fn runs_are_of_turns() {
        let turns = [
            turn(400, 100, 800),
            turn(800, 100, 800),
            turn(500, 100, 784),
        ];
        let run = Run::of(&turns, 8);
        assert!((run.ns - 500_000.0 / 784.0).abs() < 1e-9, "{run:?}");
        assert!((run.router_cpu - 0.5).abs() < 1e-9, "{run:?}");
        assert!((run.copies_mpps - 0.8).abs() < 1e-9, "{run:?}");
        assert!((run.taken_share - 0.5).abs() < 1e-9, "{run:?}");
        assert!((run.lost_share - 16.0 / 2400.0).abs() < 1e-9, "{run:?}");
        assert!((run.fast_share - 1.0).abs() < 1e-9, "{run:?}");
        let nothing = Run::of(&[Turn::default()], 8);
        assert!((nothing.lost_share - 1.0).abs() < 1e-9, "{nothing:?}");
    }

    #[test]
    fn the_page_has_the_figures() {
        let run = |ns, lost_share, fast_share| Run {
            ns,
            copies_mpps: 1.25,
            lost_share,
            fast_share,
            ..Run::default()
        };
        let kernel = Figures::of(&[
            run(640.0, 0.0, 0.0),
            run(800.0, 0.0, 0.0),
            run(700.0, 0.0, 0.0),
        ]);
        let freeway = Figures::of(&[
            run(64.0, 0.02, 1.0),
            run(50.0, 0.0, 0.9),
            run(70.0, 0.0, 1.0),
        ]);
        let result = Multicast {
            ports: 8,
            runs: 3,
            seconds: 4.0,
            switch: true,
            refused: false,
            rules: Some(100),
            families: vec![Measured {
                family: Family::Ipv4,
                frame_bytes: 64,
                ratio: ratio(&kernel.samples, &freeway.samples),
                over_broadcast: 1.25,
                kernel,
                freeway,
                broadcast: Figures::default(),
            }],
            machine: Machine::this(),
        };
        let terminal = Terminal {
            width: 80,
            color: false,
        };
        let text = table(&result, terminal);
        for words in [
            "8 receivers",
            "one MAC address",
            "100 rules ahead",
            "700.0",
            "64.0",
            "10.0 times",
            "1.25 bare",
            "IPv4, Freeway: 2.00 % of the copies were lost",
            "IPv4: only 90.0 % of the frames",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["families"][0]["family"], "ipv4");
        assert_eq!(json["families"][0]["kernel"]["samples"][1], 800.0);
    }
}
