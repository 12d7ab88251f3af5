//! Around: a fault brings what is stored of the aligned block of pages around it, where that has paid.
//!
//! Ours. What a return of a real program touches lies near to something else that it touches: of the pages
//! that it never used before, nine in ten are in such 64 KiB. Whether a page that came along is used
//! nobody hears. So of the blocks that faults begin, some bring nothing and are watched:
//! how many of their stored pages the program asks for one by one. Blocks are brought where of those watched
//! last at least one page in [`WORTH`] was. Then a watched block costs the program a fault for each page, and one in
//! twice `probe_one_in` is; where none are brought it costs nothing, and one in half as many is.
//!
//! It must be asked where faults are answered, once for each fault of a space.

use std::collections::VecDeque;
use std::ops::Range;

use clew_core::{RunAhead, Vpn};

/// A fault that a program waits for costs about as much as so many pages that come along with another.
const WORTH: u32 = 4;
/// Blocks that are watched at once, the last ones.
const PROBES: usize = 64;
/// Blocks that must have been watched before one is brought.
const ENOUGH: usize = 8;

/// A block that is watched.
#[derive(Clone, Copy, Debug)]
struct Probe {
    block: u64,
    /// Pages of it that were stored when it was begun, the first one apart.
    stored: u32,
    /// Of these, those that were asked for since.
    used: u32,
}

/// The blocks of one space.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// The latest last.
    probes: VecDeque<Probe>,
    /// Sums over them.
    stored: u32,
    used: u32,
    /// Other blocks that were begun last, the latest first: a block is begun once.
    recent: VecDeque<u64>,
    begun: u32,
}

impl Around {
    /// What is held for one space beside this itself, bytes, at most.
    pub const MOST_BYTES: usize = PROBES * (size_of::<Probe>() + size_of::<u64>());

    /// A fault at `vpn`; which pages are to come with it, of those that are stored. `stored` counts the
    /// stored pages of a range.
    pub fn fault(
        &mut self,
        vpn: Vpn,
        params: RunAhead,
        stored: impl FnOnce(Range<u64>) -> u32,
    ) -> Range<u64> {
        let (pages, nothing) = (u64::from(params.around_pages), vpn.0..vpn.0);
        if pages < 2 {
            return nothing;
        }
        let block = vpn.0 / pages;
        let range = block * pages..(block + 1) * pages;
        if let Some(probe) = self.probes.iter_mut().find(|probe| probe.block == block) {
            if probe.used < probe.stored {
                probe.used += 1;
                self.used += 1;
            }
            return nothing;
        }
        if !self.recent.contains(&block) {
            self.begun = self.begun.wrapping_add(1);
            let probe_one_in = match self.pays() {
                true => params.probe_one_in.saturating_mul(2),
                false => params.probe_one_in / 2,
            };
            if self.begun.is_multiple_of(probe_one_in.max(1)) {
                let stored = stored(range);
                if stored > 0 {
                    self.watch(Probe { block, stored, used: 0 });
                }
                return nothing;
            }
            self.recent.truncate(PROBES - 1);
            self.recent.push_front(block);
        }
        if self.pays() { range } else { nothing }
    }

    fn pays(&self) -> bool {
        self.probes.len() >= ENOUGH && self.used * WORTH >= self.stored
    }

    fn watch(&mut self, probe: Probe) {
        if self.probes.len() == PROBES
            && let Some(over) = self.probes.pop_front()
        {
            self.stored -= over.stored;
            self.used -= over.used;
        }
        self.stored += probe.stored;
        self.probes.push_back(probe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: RunAhead = RunAhead { max_pages: 32, probe_one_in: 8, around_pages: 16 };

    /// Visits blocks far apart, using `used` of 16 stored pages of each in an order of no use to runs;
    /// faults, and pages that came and were not used, of the last half.
    fn blocks(around: &mut Around, used: u64, count: u64) -> (u64, u64) {
        let (mut faults, mut wasted) = (0, 0);
        for visit in 0..count {
            let block = visit * 7919 % 100_000;
            let mut is_here = [false; 16];
            for n in 0..used {
                let page = (n * 7 % 16) as usize;
                if is_here[page] {
                    continue;
                }
                let left = is_here.iter().filter(|here| !**here).count() as u32 - 1;
                let came = around.fault(Vpn(block * 16 + page as u64), PARAMS, |_| left);
                assert!(came.is_empty() || came == (block * 16..block * 16 + 16), "{came:?}");
                let late = visit >= count / 2;
                faults += u64::from(late);
                if !came.is_empty() {
                    is_here = [true; 16];
                    wasted += if late { 16 - used } else { 0 };
                }
                is_here[page] = true;
            }
        }
        (faults, wasted)
    }

    #[test]
    fn blocks_of_which_much_is_used_come_at_once() {
        let (faults, wasted) = blocks(&mut Around::default(), 9, 4000);
        // One block in sixteen is a probe and takes nine faults.
        assert_eq!((faults, wasted), (125 * 9 + 1875, 1875 * 7));
    }

    #[test]
    fn blocks_of_which_little_is_used_come_page_by_page() {
        let (faults, wasted) = blocks(&mut Around::default(), 3, 4000);
        assert_eq!((faults, wasted), (2000 * 3, 0));
    }

    #[test]
    fn what_is_learned_is_forgotten_when_it_is_no_longer_true() {
        let mut around = Around::default();
        blocks(&mut around, 16, 2000);
        assert_eq!(blocks(&mut around, 2, 4000), (2000 * 2, 0));
        assert_eq!(blocks(&mut around, 12, 4000).0, 125 * 12 + 1875);
    }

    #[test]
    fn nothing_comes_where_nothing_was_asked_for() {
        let none = RunAhead { around_pages: 0, ..PARAMS };
        let mut around = Around::default();
        for page in 0..1000 {
            assert!(around.fault(Vpn(page), none, |_| 15).is_empty());
        }
    }
}
