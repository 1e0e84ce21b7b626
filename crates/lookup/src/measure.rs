// SPDX-License-Identifier: MIT OR Apache-2.0
//! All structures by turns.

use std::hint::black_box;
use std::io;

use freeway_prefix::{Range, Trie, ranges};

use crate::contender::{Contender, Kind, Loop, Loops, candidates};
use crate::pages::{Memory, Pages};
use crate::random::Random;
use crate::result::{Candidate, Rates, Table};
use crate::routes::{Routes, addresses, next_hops};

/// Addresses of a pass.
const ADDRESSES: usize = 1 << 20;
/// Those of the model, which is slow.
const OF_TRIE: usize = 1 << 17;
/// Addresses of which each answer is compared, anywhere and at the ends of prefixes.
const COMPARED: usize = 1 << 15;

/// What all of them take in pages of 2 MiB.
const HUGE_BYTES: usize = 512 << 20;

/// Other structures with the same routes: DPDK's, where it is linked.
pub type Others<'a> = &'a mut dyn FnMut(&Routes, &[Range], &[Pages]) -> io::Result<Vec<Contender>>;

/// The sizes of pages that this machine has for structures of this size.
#[must_use]
pub fn pages() -> Vec<Pages> {
    let huge = Memory::new(Pages::Huge, HUGE_BYTES).is_ok();
    let mut all = vec![Pages::Small];
    all.extend(huge.then_some(Pages::Huge));
    all
}

/// One table.
pub fn measure(
    routes: &Routes,
    runs: u32,
    pages: &[Pages],
    others: Others<'_>,
) -> io::Result<Table> {
    let all_routes = routes.iter().map(|(prefix, next_hop)| (*prefix, *next_hop));
    let ranges = ranges(0, u32::MAX, 0, all_routes);
    let mut contenders = candidates(routes, &ranges, pages)?;
    contenders.extend(others(routes, &ranges, pages)?);
    let addresses = addresses(routes, ADDRESSES);
    let mut trie = Trie::default();
    for (prefix, next_hop) in routes {
        trie.set(*prefix, Some(*next_hop));
    }
    let compared = compare(routes, &addresses, &trie, &contenders)?;
    let begun = now();
    for address in &addresses[..OF_TRIE] {
        black_box(trie.lookup(*address));
    }
    let trie_mlps = mlps(OF_TRIE, begun);
    drop(trie);
    let mut samples = vec![[const { Vec::new() }; 3]; contenders.len()];
    let mut sums = Vec::new();
    for _ in 0..runs {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            let modes: [fn(&Loops) -> Loop; 3] = [|of| of.single, |of| of.dependent, |of| of.burst];
            // what was measured before has the caches
            sums.push(contender.run(|of| of.single, &addresses));
            for (of, samples) in modes.into_iter().zip(samples) {
                let begun = now();
                sums.push(contender.run(of, &addresses));
                samples.push(mlps(addresses.len(), begun));
            }
        }
    }
    if sums.iter().any(|sum| *sum != sums[0]) {
        return Err(io::Error::other("structures do not agree while measured"));
    }
    Ok(Table {
        prefixes: routes.len(),
        next_hops: next_hops(routes),
        ranges: ranges.len(),
        addresses: addresses.len(),
        compared,
        trie_mlps,
        candidates: gathered(routes.len(), &contenders, samples),
    })
}

/// By the CPU time of this thread, in seconds: others may want the CPU as well.
fn now() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: there is such a clock, and the time is this one's.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn mlps(lookups: usize, begun: f64) -> f64 {
    lookups as f64 / (now() - begun) / 1e6
}

/// Every structure says of every address what the model says.
fn compare(
    routes: &Routes,
    addresses: &[u32],
    trie: &Trie,
    contenders: &[Contender],
) -> io::Result<usize> {
    let mut random = Random::new(7);
    let every = routes.len().div_ceil(COMPARED / 4);
    let ends = routes.keys().step_by(every).flat_map(|prefix| {
        let (first, last) = (prefix.first(), prefix.last());
        [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
    });
    let mut sample: Vec<u32> = ends.collect();
    sample.extend(&addresses[..COMPARED]);
    sample.extend((0..COMPARED).map(|_| random.word()));
    for &address in &sample {
        let expected = u64::from(trie.lookup(address));
        for contender in contenders {
            let next_hop = contender.run(|of| of.single, &[address]);
            if next_hop != expected {
                let (name, address) = (contender.name, std::net::Ipv4Addr::from(address));
                let message = format!("{name} says {next_hop} of {address}, the model {expected}");
                return Err(io::Error::other(message));
            }
        }
    }
    Ok(sample.len())
}

fn gathered(
    prefixes: usize,
    contenders: &[Contender],
    samples: Vec<[Vec<f64>; 3]>,
) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for (contender, [single, dependent, burst]) in contenders.iter().zip(samples) {
        let rates = Rates {
            single_mlps: median(&single),
            dependent_mlps: median(&dependent),
            burst_mlps: median(&burst),
            single_samples: single,
        };
        let known = all.iter().position(|known| known.name == contender.name);
        let at = known.unwrap_or_else(|| {
            all.push(Candidate {
                name: contender.name.to_owned(),
                dpdk: contender.kind == Kind::Dpdk,
                bytes_per_prefix: contender.bytes as f64 / prefixes as f64,
                build_seconds: contender.build.as_secs_f64(),
                pages: [].into(),
            });
            all.len() - 1
        });
        all[at].pages.insert(contender.pages, rates);
    }
    all
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}
