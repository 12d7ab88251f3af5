//! Successors of processes that were killed between two operations, inside of one at any
//! instruction, with several threads at any moment; and of memory that was damaged.

mod damage;
mod image;
mod killed;
mod owners;
pub(crate) mod step;
mod world;

use image::Image;
pub(crate) use world::POOLS;
use world::{Content, Model, Op, World};

/// Numbers for tests that choose by themselves; the same for the same seed.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}
