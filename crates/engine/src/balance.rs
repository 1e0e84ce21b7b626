// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which buckets of flows move from full workers to those that are not: loads and costs in, moves out. The way of RSS++
//! (Barbette and others, CoNEXT 2019): few moves, from the fullest to the emptiest, and none within a band.

/// Within this share above the mean the fullest worker is left alone.
const BAND: f64 = 0.05;
/// A worker that is busy for less than this share of the time has room for all that could come.
const IDLE: f64 = 0.02;
/// Moves of a round: each parks its bucket's frames for the time that the old worker needs.
const MOVES_MAX: usize = 24;
/// Share of the mean that a move has to bring, or it is not worth its while.
const GAIN_MIN: f64 = 0.001;
/// The part that a new round has of what is known of a bucket.
const FRESH: f64 = 0.5;

/// What was measured in a round.
#[derive(Clone, Debug)]
pub struct Round<'a> {
    /// Cycles of each worker with frames.
    pub loads: &'a [f64],
    /// Of these, those of each bucket's frames at the worker that has it.
    pub costs: &'a [f64],
    /// Whose each bucket is.
    pub owner: &'a [u8],
    /// Cycles that a worker had.
    pub elapsed: f64,
}

/// A bucket that is to move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// Its number.
    pub bucket: usize,
    /// The worker that has it.
    pub from: u8,
    /// The worker that is to have it.
    pub to: u8,
    /// Its part of all load.
    pub share: f64,
}

/// What is decided in a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The fullest worker over the mean, as it is.
    pub over_mean: f64,
    /// The same once all has moved.
    pub expected: f64,
    /// In their order; none if all is well, or nothing would help.
    pub moves: Vec<Move>,
}

/// Remembers what buckets cost.
#[derive(Clone, Debug, Default)]
pub struct Balancer {
    costs: Vec<f64>,
    loads: Vec<f64>,
}

fn smooth(known: &mut Vec<f64>, new: &[f64]) {
    if known.len() != new.len() {
        *known = new.to_vec();
        return;
    }
    for (known, new) in known.iter_mut().zip(new) {
        *known += FRESH * (new - *known);
    }
}

/// The greatest, the smallest, and where they are.
fn ends(loads: &[f64]) -> Option<((usize, f64), (usize, f64))> {
    let each = || loads.iter().copied().enumerate();
    let fullest = each().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let emptiest = each().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((fullest, emptiest))
}

impl Balancer {
    /// What to do after a round.
    pub fn decide(&mut self, round: &Round<'_>) -> Decision {
        smooth(&mut self.costs, round.costs);
        smooth(&mut self.loads, round.loads);
        let total: f64 = self.loads.iter().sum();
        let mean = total / self.loads.len().max(1) as f64;
        let Some(((_, fullest), _)) = ends(&self.loads) else {
            return Decision::default();
        };
        if mean <= 0.0 {
            return Decision::default();
        }
        let over_mean = fullest / mean;
        let mut decision = Decision {
            over_mean,
            expected: over_mean,
            moves: Vec::new(),
        };
        if over_mean <= 1.0 + BAND || fullest < IDLE * round.elapsed {
            return decision;
        }
        let mut loads = self.loads.clone();
        let mut owner = round.owner.to_vec();
        while decision.moves.len() < MOVES_MAX {
            let Some(moved) = self.best(&loads, &owner, mean) else {
                break;
            };
            let (bucket, from, to, cost) = moved;
            for (worker, change) in [(from, -cost), (to, cost)] {
                if let Some(load) = loads.get_mut(worker) {
                    *load += change;
                }
            }
            if let Some(owner) = owner.get_mut(bucket) {
                *owner = to as u8;
            }
            decision.moves.push(Move {
                bucket,
                from: from as u8,
                to: to as u8,
                share: cost / total,
            });
            let most = loads.iter().copied().fold(0.0, f64::max);
            decision.expected = most / mean;
            // half the band, or the next breath of the load brings the next move
            if decision.expected <= 1.0 + BAND / 2.0 {
                break;
            }
        }
        // what is known of the loads goes with the buckets
        self.loads = loads;
        decision
    }

    /// Of the fullest worker's buckets the one that levels it with the emptiest the most. An elephant, which would only
    /// make the other one the fullest, stays where it is.
    fn best(&self, loads: &[f64], owner: &[u8], mean: f64) -> Option<(usize, usize, usize, f64)> {
        let ((from, fullest), (to, emptiest)) = ends(loads)?;
        let of_fullest = self.costs.iter().copied().enumerate().zip(owner);
        let of_fullest = of_fullest.filter(|(_, owner)| usize::from(**owner) == from);
        let highest = |cost: f64| (fullest - cost).max(emptiest + cost);
        let (bucket, cost) = of_fullest
            .map(|(bucket, _)| bucket)
            .min_by(|a, b| highest(a.1).total_cmp(&highest(b.1)))?;
        (highest(cost) < fullest - GAIN_MIN * mean).then_some((bucket, from, to, cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKETS: usize = 512;

    /// xorshift64*, so that a run can be repeated.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }
        fn below(&mut self, end: u64) -> u64 {
            (self.next() >> 16) % end
        }
    }

    struct World {
        costs: Vec<f64>,
        owner: Vec<u8>,
        workers: usize,
    }

    impl World {
        fn random(random: &mut Random) -> World {
            let workers = 1 + random.below(8) as usize;
            // as flows are: few that cost much, many that cost little, some that are not there
            let costs = (0..BUCKETS).map(|_| match random.below(8) {
                0 => 0.0,
                1 => random.below(100_000) as f64,
                _ => random.below(1000) as f64,
            });
            World {
                costs: costs.collect(),
                owner: (0..BUCKETS)
                    .map(|_| random.below(workers as u64) as u8)
                    .collect(),
                workers,
            }
        }
        fn loads(&self) -> Vec<f64> {
            let mut loads = vec![0.0; self.workers];
            for (cost, owner) in self.costs.iter().zip(&self.owner) {
                loads[usize::from(*owner)] += cost;
            }
            loads
        }
        fn fullest(&self) -> f64 {
            self.loads().into_iter().fold(0.0, f64::max)
        }
        fn mean(&self) -> f64 {
            self.costs.iter().sum::<f64>() / self.workers as f64
        }
        fn round(&self, balancer: &mut Balancer) -> Decision {
            balancer.decide(&Round {
                loads: &self.loads(),
                costs: &self.costs,
                owner: &self.owner,
                elapsed: self.mean(),
            })
        }
        fn go(&mut self, decision: &Decision) {
            for one in &decision.moves {
                assert_eq!(self.owner[one.bucket], one.from);
                self.owner[one.bucket] = one.to;
            }
        }
    }

    #[test]
    fn moves_are_few_and_level_the_loads() {
        for seed in 1..400 {
            let mut world = World::random(&mut Random(seed));
            let mut balancer = Balancer::default();
            let mut moves = 0;
            for _ in 0..60 {
                let before = world.fullest();
                let decision = world.round(&mut balancer);
                assert!(decision.moves.len() <= MOVES_MAX);
                for one in &decision.moves {
                    assert!(usize::from(one.to) < world.workers && one.from != one.to);
                }
                world.go(&decision);
                assert!(world.fullest() <= before * (1.0 + 1e-9), "seed {seed}");
                moves += decision.moves.len();
            }
            // each bucket twice at most: most are small, and stay
            assert!(moves <= 2 * BUCKETS, "seed {seed}: {moves}");
            // nothing is in the band but for a bucket that is larger than it
            let largest = world.costs.iter().copied().fold(0.0, f64::max);
            let reached = (1.0 + BAND) * world.mean() + largest;
            assert!(world.fullest() <= reached, "seed {seed}");
            // and then there is rest
            assert_eq!(world.round(&mut balancer).moves, [], "seed {seed}");
        }
    }

    #[test]
    fn an_elephant_stays_and_others_leave_it() {
        let mut costs = vec![10.0; BUCKETS];
        costs[7] = 4000.0;
        let mut world = World {
            costs,
            owner: (0..BUCKETS).map(|bucket| (bucket % 3) as u8).collect(),
            workers: 3,
        };
        let mut balancer = Balancer::default();
        for _ in 0..40 {
            let decision = world.round(&mut balancer);
            assert!(decision.moves.iter().all(|one| one.bucket != 7));
            world.go(&decision);
        }
        // it is alone, and the others have the rest in halves
        let beside = world.owner.iter().zip(&world.costs);
        let beside: f64 = beside.filter(|(o, _)| **o == 1).map(|(_, c)| c).sum();
        assert!(beside <= 4010.0, "{beside}");
        let loads = world.loads();
        assert!(
            (loads[0] - loads[2]).abs() <= 0.06 * world.mean(),
            "{loads:?}"
        );
    }

    #[test]
    fn workers_without_work_are_left_alone() {
        let mut world = World::random(&mut Random(5));
        world.workers = 2;
        world.owner.fill(0);
        let mut balancer = Balancer::default();
        let mut round = |elapsed: f64| {
            balancer.decide(&Round {
                loads: &world.loads(),
                costs: &world.costs,
                owner: &world.owner,
                elapsed,
            })
        };
        assert_eq!(round(world.fullest() * 100.0).moves, []);
        assert_ne!(round(world.fullest() * 2.0).moves, []);
        let nothing = Balancer::default().decide(&Round {
            loads: &[0.0, 0.0],
            costs: &[0.0; BUCKETS],
            owner: &[0; BUCKETS],
            elapsed: 1.0,
        });
        assert_eq!(nothing, Decision::default());
    }
}
