// SPDX-License-Identifier: MIT OR Apache-2.0
//! VLANs, bridges, bonds and PPPoE in the place of wires, two by two. `FREEWAY_LONG=1`: each with each, both families, with and
//! without NAT, or those pairs alone that `FREEWAY_PAIRS=FROM..TO,...` has the numbers of; else two by two.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use freeway_kernel::probe::sends_through_bonds;
use freeway_lab::Twins;
use freeway_lab::twins::{Kind, PORTS};
use freeway_testkit::Moment;

use crate::bench::{Bench, By};
use crate::case::Case;
use crate::setup::{Nat, Pace, Setup, Uplinks};
use crate::suite::{Extent, conclude, examine};
use crate::tally::Tally;

/// Seeds count up from here, from another one for each pair.
const SEED: u64 = 0x7000;
const SEEDS_OF_A_PAIR: u64 = 0x1000;
/// Until a PPPoE session is in XDP, at most.
const SESSION_CASES: usize = 12;
/// IPv6 or not, translated or not.
const TRAFFIC: [(bool, bool); 4] = [(false, true), (true, false), (false, false), (true, true)];
const TRAFFIC_OF_A_PAIR: usize = 1;
/// In one of so many cases flows become fast.
const CASES_MAX: usize = 3;
/// Until a port or a flow has the path that it is fit for.
const PATIENCE: Duration = Duration::from_secs(10);

impl By {
    /// The engine takes tags and sessions off, and knows no bridges and bonds.
    fn serves(self, kind: Kind) -> bool {
        let framed = [Kind::Wire, Kind::Vlan, Kind::VlanInVlan, Kind::Pppoe];
        self != By::Engine || framed.contains(&kind)
    }
}

/// Those that this kernel has.
fn kinds(by: By) -> Vec<Kind> {
    let has = |kind: &Kind| match Twins::build([*kind; 3]) {
        Ok(_) => true,
        Err(error) => {
            println!("without {kind:?}: {error}");
            false
        }
    };
    let wanted = Kind::ALL.into_iter().filter(|kind| by.serves(*kind));
    let kinds: Vec<Kind> = wanted.filter(has).collect();
    if kinds.len() < 2 {
        println!("skipped: this kernel has no other kinds of ports");
    }
    kinds
}

fn pairs(kinds: &[Kind]) -> Vec<[Kind; 2]> {
    if freeway_testkit::long() {
        let each = |lan: &Kind| kinds.iter().map(|wan| [*lan, *wan]).collect::<Vec<_>>();
        let mut pairs: Vec<_> = kinds.iter().flat_map(each).collect();
        pairs.sort_by_key(|pair| pair.contains(&Kind::Bond));
        let Ok(range) = std::env::var("FREEWAY_PAIRS") else {
            return pairs;
        };
        let some = |range: &str| {
            let (from, to) = range
                .split_once("..")
                .expect("FREEWAY_PAIRS is FROM..TO,...");
            let [from, to] = [from, to].map(|number| number.parse().expect("a number"));
            pairs[from..to].to_vec()
        };
        range.split(',').flat_map(some).collect()
    } else {
        let pair = |pair: &[Kind]| [pair[0], *pair.get(1).unwrap_or(&Kind::Wire)];
        let others: Vec<Kind> = kinds
            .iter()
            .copied()
            .filter(|kind| *kind != Kind::Wire)
            .collect();
        others.chunks(2).map(pair).collect()
    }
}

/// Where XDP serves a port of this kind; a PPPoE session once its packets have shown what it is, a bond from Linux 6.3 on.
fn for_xdp(kind: Kind) -> bool {
    kind != Kind::Bond || sends_through_bonds()
}

/// The next case in which all flows have to be fast; frames one at a time would take long in an emulated machine.
fn case(seed: &mut u64, frames: usize, (v6, nat): (bool, bool)) -> Case {
    let fits = |setup: &Setup| {
        let translated = setup.nat != Nat::None;
        (setup.v6, translated) == (v6, nat)
            && setup.explains().is_empty()
            && setup.pace == Pace::Burst
    };
    loop {
        *seed += 1;
        let case = Case::random(*seed, frames);
        if fits(&case.setup) {
            return case;
        }
    }
}

/// Runs cases until the kernel's own packets have shown what each session is.
fn dial(
    bench: &mut Bench,
    kinds: [Kind; 3],
    tally: &Mutex<Tally>,
    seed: &mut u64,
    frames: usize,
) -> usize {
    let sessions = PORTS
        .iter()
        .zip(kinds)
        .filter(|(_, kind)| *kind == Kind::Pppoe);
    let sessions: Vec<&str> = sessions.map(|(port, _)| *port).collect();
    for count in 0..=SESSION_CASES {
        let in_xdp = bench.served();
        if sessions
            .iter()
            .all(|port| in_xdp.iter().any(|name| name == port))
        {
            return count;
        }
        examine(bench, &case(seed, frames, TRAFFIC[0]), tally);
    }
    panic!("no session in XDP: {}", bench.ports());
}

/// All flows from a port to another are on that path before long; `none`: there may be none.
fn all_on(bench: &Bench, [from, to]: [&str; 2], wanted: &str, none: bool) -> bool {
    let end = Moment::now() + PATIENCE;
    while Moment::now() < end {
        let paths = bench.paths(from, to);
        if (none || !paths.is_empty()) && paths.iter().all(|path| path == wanted) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    false
}

/// Pairs of those that this kernel has.
pub fn same(by: By) {
    let Some(_machine) = freeway_testkit::machine() else {
        return;
    };
    // the engine's flows are learned a little later
    let frames = Extent::read().frames * if by == By::Engine { 2 } else { 1 };
    let tally = Mutex::new(Tally::of(by.whose()));
    let start = Instant::now();
    let mut cases = 0;
    for (number, [lan, wan]) in pairs(&kinds(by)).into_iter().enumerate() {
        let kinds = [lan, wan, Kind::Wire];
        let mut seed = SEED + SEEDS_OF_A_PAIR * (8 * lan as u64 + wan as u64);
        let mut bench = Bench::build(by, 0, kinds);
        // a session is tc's until its packets have shown what it is
        bench.counts_all = true;
        cases += dial(&mut bench, kinds, &tally, &mut seed, frames);
        let fit: Vec<&str> = (PORTS.into_iter().zip(kinds))
            .filter_map(|(port, kind)| for_xdp(kind).then_some(port))
            .collect();
        freeway_testkit::until("the ports' paths", PATIENCE, || {
            let in_xdp = bench.served();
            let has = |port: &&str| in_xdp.iter().any(|name| name == port);
            (PORTS.iter().filter(|port| has(port)).eq(&fit)).then_some(())
        });
        let wanted = if for_xdp(lan) && for_xdp(wan) {
            by.served()
        } else {
            "tc"
        };
        let some = if freeway_testkit::long() {
            TRAFFIC.len()
        } else {
            TRAFFIC_OF_A_PAIR
        };
        for traffic in TRAFFIC.iter().cycle().skip(some * number).take(some) {
            // the frames of a case may be over before a slow machine has learned anything
            let fast = (0..CASES_MAX).any(|_| {
                let case = case(&mut seed, frames, *traffic);
                examine(&mut bench, &case, &tally);
                cases += 1;
                [[PORTS[0], PORTS[1]], [PORTS[1], PORTS[0]]]
                    .into_iter()
                    .all(|[from, to]| {
                        // answers come in at the third port
                        let none = from == PORTS[1] && case.setup.uplinks == Uplinks::Asymmetric;
                        all_on(&bench, [from, to], wanted, none)
                    })
            });
            let paths = bench.paths(PORTS[0], PORTS[1]);
            assert!(
                fast,
                "{lan:?} and {wan:?}: {paths:?}, not {wanted}\n{}",
                bench.ports()
            );
        }
        println!("row: {lan:?} and {wan:?}: {wanted}");
        bench.stop();
    }
    conclude(tally, start, cases);
}
