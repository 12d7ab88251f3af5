//! The relaunch reserve (a scheme's `reserve`): what is to be free when the next relaunch begins, so that it need not
//! wait for reclaim, nor use more than the budget. It is as large as all but the largest of the last relaunches
//! have shown to need: what came back for them and what their programs allocated. The largest is left out, as one garbage
//! collection would cost everybody else a hundred megabytes for the next four.

use std::collections::VecDeque;

/// Relaunches that are remembered.
const REMEMBERED: usize = 4;

#[derive(Default)]
pub(super) struct Reserve {
    /// Pages that have left programs so far.
    left_pages: u64,
    /// Bytes that had come to programs when the relaunch that goes on began, and at most since.
    now: Option<(u64, u64)>,
    /// What the last relaunches took, bytes.
    took: VecDeque<u64>,
}

impl Reserve {
    /// So many pages have left programs.
    pub fn left(&mut self, pages: usize) {
        self.left_pages += pages as u64;
    }

    /// Programs have so much resident, and a relaunch goes on or not.
    pub fn look(&mut self, resident_bytes: u64, relaunching: bool, page_bytes: u64) {
        let came_bytes = resident_bytes + self.left_pages * page_bytes;
        match (&mut self.now, relaunching) {
            (None, true) => self.now = Some((came_bytes, came_bytes)),
            (Some((_, most)), true) => *most = came_bytes.max(*most),
            (Some((began, most)), false) => {
                self.took.push_back(came_bytes.max(*most) - *began);
                if self.took.len() > REMEMBERED {
                    self.took.pop_front();
                }
                self.now = None;
            }
            (None, false) => {}
        }
    }

    /// What is to be free before the next relaunch.
    pub fn bytes(&self) -> u64 {
        let mut took: Vec<u64> = self.took.iter().copied().collect();
        took.sort_unstable();
        took.iter().rev().nth(1).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A relaunch at which 100 MiB are resident: so much comes, and so much leaves meanwhile.
    fn relaunch(reserve: &mut Reserve, comes: u64, leaves: u64) {
        reserve.look(100 * MIB, true, 4096);
        reserve.left((leaves / 4096) as usize);
        reserve.look(100 * MIB + comes - leaves, true, 4096);
        reserve.look(100 * MIB + comes - leaves, false, 4096);
        // Between two, as much leaves, and that is no need of a relaunch.
        reserve.left(((comes - leaves) / 4096) as usize);
        reserve.look(100 * MIB, false, 4096);
    }

    #[test]
    fn a_reserve_is_what_all_but_the_largest_of_the_last_relaunches_took() {
        let mut reserve = Reserve::default();
        relaunch(&mut reserve, 30 * MIB, 0);
        assert_eq!(reserve.bytes(), 0, "one tells nothing");
        relaunch(&mut reserve, 50 * MIB, 20 * MIB);
        assert_eq!(reserve.bytes(), 30 * MIB);
        relaunch(&mut reserve, 400 * MIB, 300 * MIB);
        assert_eq!(reserve.bytes(), 50 * MIB, "what leaves meanwhile has come, too");
        (0..3).for_each(|_| relaunch(&mut reserve, 10 * MIB, MIB));
        assert_eq!(reserve.bytes(), 10 * MIB, "the rest is too long ago");
    }

    #[test]
    fn what_came_and_was_freed_by_the_program_is_needed_as_well() {
        let mut reserve = Reserve::default();
        for _ in 0..2 {
            reserve.look(100 * MIB, true, 4096);
            reserve.look(160 * MIB, true, 4096);
            reserve.look(120 * MIB, false, 4096);
        }
        assert_eq!(reserve.bytes(), 60 * MIB);
    }
}
