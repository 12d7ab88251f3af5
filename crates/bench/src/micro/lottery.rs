//! What a victim of ezswap's lottery costs, in a pool of ten thousand frames and in one of ten million, beside the least
//! recently used frame: the same lists, of which there is only one, so that nothing is drawn.
//!
//! Each frame counts as one page, which is the most frames that so many pages can have.

use std::hint::black_box;
use std::time::Instant;

use clew_core::seeded::Seeded;
use clew_policy::eviction::compressibility::weight;
use clew_policy::eviction::lottery::Lottery;

use super::MicroConfig;
use super::measured::{Costs, Measured};
use crate::error::BenchError;
use crate::interrupt;
use crate::progress::Progress;

/// Frames of the pools, and what they are called.
const SIZES: [(u32, &str); 2] = [(10_000, "10^4"), (10_000_000, "10^7")];
/// Victims of one repetition, and of one look at the clock.
const VICTIMS: usize = 200_000;
const BATCH: usize = 200;
const PEER: &str = "lru";

/// Measures it.
pub fn measure(config: &MicroConfig, progress: &dyn Progress) -> Result<Vec<Measured>, BenchError> {
    // Those of figure 7 for a full frame and for one that is a quarter free.
    let weights: Vec<u64> =
        [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (3, 3)]
            .iter()
            .flat_map(|&(zpages, files)| [0, 25].map(|free| weight(zpages, files, free)))
            .collect();
    let steps = 2 * SIZES.len() as u64 * (1 + config.repetitions as u64);
    progress.begin("lottery: frames that leave pools of two sizes", steps);
    let mut measured = Vec::new();
    for (frames, name) in SIZES {
        let mut pools = Vec::new();
        for weights in [&weights[..], &[1]] {
            interrupt::check()?;
            pools.push(Pool::new(weights, frames, config.seed));
            progress.step("frames have been put on their lists");
        }
        let mut sides = [Sides::default(), Sides::default()];
        for _ in 0..config.repetitions {
            for (pool, side) in pools.iter_mut().zip(&mut sides) {
                interrupt::check()?;
                side.draws.add(pool.draw());
                side.victims.add(pool.evict());
                progress.step("victims have been drawn");
            }
        }
        let [clew, peer] = sides;
        let of = |case: &str, unit: &str, clew: &Times, peer: &Times| {
            let case = format!("{case}-{name}");
            Measured::of("lottery", &case, unit, clew.costs(), (PEER, peer.costs()))
        };
        measured.push(of("draw", "one draw", &clew.draws, &peer.draws));
        measured.push(of("evict", "a frame for another", &clew.victims, &peer.victims));
    }
    progress.done("lottery: every victim was on its list");
    Ok(measured)
}

/// Frames on lists.
struct Pool {
    lottery: Lottery,
    lists: u64,
    random: Seeded,
    clock: u64,
}

impl Pool {
    /// So many frames, on lists by chance, as if their zpages had come in any order.
    fn new(weights: &[u64], frames: u32, seed: u64) -> Pool {
        let lottery = Lottery::new(weights, seed);
        let random = Seeded::of(seed, &[2]);
        let mut pool = Pool { lottery, lists: weights.len() as u64, random, clock: 0 };
        let mut order: Vec<u32> = (0..frames).collect();
        pool.random.shuffle(&mut order);
        for frame in order {
            pool.insert(frame);
        }
        pool
    }

    fn insert(&mut self, frame: u32) {
        self.clock += 1;
        let list = self.random.below(self.lists) as u8;
        self.lottery.insert(frame, list, self.clock, false);
    }

    /// Draws, each of which leaves the frame where it is; what a look at the clock gave for each.
    fn draw(&mut self) -> Vec<f64> {
        batches(|| {
            black_box(self.lottery.draw());
        })
    }

    /// A frame leaves, and comes back as the newest of another list, as the next one in its place would.
    fn evict(&mut self) -> Vec<f64> {
        batches(|| {
            let victim = self.lottery.draw().expect("all frames are on lists");
            self.lottery.remove(victim);
            self.insert(victim);
        })
    }
}

/// Microseconds that an act takes, batch by batch.
fn batches(mut act: impl FnMut()) -> Vec<f64> {
    (0..VICTIMS / BATCH)
        .map(|_| {
            let begin = Instant::now();
            (0..BATCH).for_each(|_| act());
            begin.elapsed().as_secs_f64() * 1e6 / BATCH as f64
        })
        .collect()
}

#[derive(Default)]
struct Sides {
    draws: Times,
    victims: Times,
}

/// Medians and 99th percentiles of the repetitions.
#[derive(Default)]
struct Times {
    medians: Vec<f64>,
    tails: Vec<f64>,
}

impl Times {
    fn add(&mut self, us: Vec<f64>) {
        let super::objects::Times { p50, p99 } = super::objects::Times::of(us);
        self.medians.push(p50);
        self.tails.push(p99);
    }

    fn costs(&self) -> Costs {
        Costs::of_distributions(&self.medians, &self.tails)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_leave_come_back() {
        let mut pool = Pool::new(&[3, 1], 1000, 1);
        assert_eq!(pool.draw().len(), VICTIMS / BATCH);
        pool.evict();
        assert_eq!(pool.lottery.frames(0) + pool.lottery.frames(1), 1000);
    }
}
