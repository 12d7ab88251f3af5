//! Around: a fault brings pages of the aligned block of pages around it: all that is stored of it where that has
//! paid, and else those that the program has asked for before, where that has.
//!
//! Ours. What a return of a real program touches lies near to something else that it touches: of the pages
//! that it never used before, nine in ten are in such 64 KiB. And what it has asked for twice it asks for again. Whether
//! a page that came along is used nobody hears. So of the blocks that faults begin, some are watched: a quarter of their
//! pages does not come, or none where nothing would, and those of them that are asked for one by one tell. Where of
//! the withheld pages of the blocks watched last at least one in [`WORTH`] was asked for, whole blocks come. Where it is
//! not so, those pages come that were asked for since they were withheld last, unless of those that were withheld fewer than one in
//! [`WORTH_AGAIN`] were asked for again: who draws pages at random has asked for each of them in the end. One in twice `probe_one_in`
//! blocks is watched where something would come, and where nothing would, which costs nothing, one in half as many.
//!
//! It must be asked where faults are answered, once for each fault of a space.
//!
//! Memory: some 30 bytes for each block that faults began, of at most [`BLOCKS`].

use std::collections::VecDeque;

use clew_core::{RunAhead, Vpn};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// A fault that a program waits for costs about as much as so many pages that come along with another.
const WORTH: u32 = 4;
/// And of what it has asked for before twice as many: less of that comes.
const WORTH_AGAIN: u32 = 8;
/// Blocks that are watched at once, the last ones: an eighth of those that are known, but so many at least and at most. With 64
/// much of what a browser and an office come back to does so when it is watched no longer, and counts as not used; with
/// more than 256 what is drawn at random seems to pay (`docs/association.md`).
const LEAST_PROBES: usize = 64;
const MOST_PROBES: usize = 256;
const ONE_PROBE_IN: usize = 8;
/// A block that was begun is not begun again before so many others are: one visit of it is one beginning.
const RECENT: u32 = 64;
/// Blocks that must have been watched before one is brought.
const ENOUGH: u32 = 8;
/// Blocks of a space that something is known of. When there are more, all are learned anew.
const BLOCKS: usize = 1 << 17;
/// Every fourth page of a block.
const QUARTER: u64 = 0x1111_1111_1111_1111;
/// Pages of a block, at most.
pub const MOST_PAGES: u32 = 64;

/// Some pages of a block of a power of two of them, at most [`MOST_PAGES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Near {
    /// The first page of the block.
    pub first: u64,
    /// A bit for each of them, the lowest for the first page.
    pub pages: u64,
}

impl Near {
    /// The pages, ascending.
    pub fn vpns(self) -> impl Iterator<Item = u64> {
        let mut left = self.pages;
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| self.first + u64::from(left.trailing_zeros()));
            left &= left.wrapping_sub(1);
            next
        })
    }

    /// Whether that page is one of them.
    pub fn has(self, vpn: u64) -> bool {
        let at = vpn.wrapping_sub(self.first);
        at < 64 && self.pages >> at & 1 == 1
    }
}

/// Pages that were withheld.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Withheld {
    /// Those that were stored when their block was begun.
    stored: u32,
    /// Of these, those that were asked for since.
    used: u32,
    /// Blocks that have some.
    blocks: u32,
}

impl Withheld {
    fn of_a_block(stored: u32) -> Withheld {
        Withheld { stored, used: 0, blocks: u32::from(stored > 0) }
    }

    /// One of them was asked for; whether that counts.
    fn is_used(&mut self) -> bool {
        let counts = self.used < self.stored;
        self.used += u32::from(counts);
        counts
    }

    fn add(&mut self, other: Withheld) {
        self.stored += other.stored;
        self.used += other.used;
        self.blocks += other.blocks;
    }

    fn take_away(&mut self, other: Withheld) {
        self.stored -= other.stored;
        self.used -= other.used;
        self.blocks -= other.blocks;
    }

    /// Whether it is known what becomes of them.
    fn is_known(self) -> bool {
        self.blocks >= ENOUGH
    }

    /// Whether one in `worth` of them was asked for.
    fn pays(self, worth: u32) -> bool {
        self.used * worth >= self.stored
    }
}

/// A block that faults began.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Pages that were asked for since it was watched last.
    asked: u64,
    /// Of what number it was among all beginnings, the last time.
    begun: u32,
    watched: bool,
}

/// A block that is watched.
#[derive(Clone, Copy, Debug)]
struct Probe {
    block: u64,
    /// Of what number its beginning was.
    begun: u32,
    /// What does not come of it, and of that what had been asked for before.
    withheld: u64,
    before: u64,
    /// All of these, and those that had been.
    all: Withheld,
    again: Withheld,
}

/// The blocks of one space.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// The latest last.
    probes: VecDeque<Probe>,
    /// Sums over them.
    all: Withheld,
    again: Withheld,
    /// Beginnings of blocks.
    begun: u32,
    /// Blocks that were to be watched.
    probed: u32,
    blocks: HashMap<u64, Block, FixedState>,
}

impl Around {
    /// A fault at `vpn`; which pages are to come with it, of those that are stored. `stored` counts those
    /// of some pages that are.
    pub fn fault(&mut self, vpn: Vpn, params: RunAhead, stored: impl Fn(Near) -> u32) -> Near {
        let pages = u64::from(params.around_pages.min(MOST_PAGES));
        let (block, at) = (vpn.0 / pages.max(1), vpn.0 % pages.max(1));
        let nothing = Near { first: block * pages, pages: 0 };
        if pages < 2 {
            return nothing;
        }
        let (page, all) = (1 << at, u64::MAX >> (64 - pages));
        let known = self.note(block, page);
        let wanted = match (self.all.is_known(), self.again.is_known()) {
            (true, _) if self.all.pays(WORTH) => all,
            (_, true) if !self.again.pays(WORTH_AGAIN) => 0,
            _ => known.asked,
        };
        let wanted = wanted & !page;
        if known.watched {
            return Near { pages: wanted & !self.watched(known.begun, page), ..nothing };
        }
        if self.begun.wrapping_sub(known.begun) < RECENT {
            return Near { pages: wanted, ..nothing };
        }
        let (one_in, withheld) = match wanted {
            0 => (params.probe_one_in / 2, all),
            _ => (params.probe_one_in.saturating_mul(2), QUARTER << (self.probed % 4) & all),
        };
        let withheld = withheld & !page;
        // Not every so many-th: who goes over the same blocks again and again would have the same ones watched.
        self.begun = self.begun.wrapping_add(1);
        let drawn = self.begun.wrapping_mul(0x9e37_79b1) >> 8;
        let mut now = Block { asked: known.asked | page, begun: self.begun, watched: false };
        let mut pages = wanted;
        if drawn.is_multiple_of(one_in.max(1)) {
            self.probed = self.probed.wrapping_add(1);
            let of = |pages| Withheld::of_a_block(stored(Near { pages, ..nothing }));
            let before = known.asked & withheld;
            let (all, again) = (of(withheld), of(before));
            pages &= !withheld;
            if all.stored > 0 {
                self.watch(Probe { block, begun: self.begun, withheld, before, all, again });
                now = Block { asked: known.asked & !withheld | page, watched: true, ..now };
            }
        }
        self.blocks.insert(block, now);
        Near { pages, ..nothing }
    }

    /// A page of a block was asked for; what was known of it before.
    fn note(&mut self, block: u64, page: u64) -> Block {
        if self.blocks.len() >= BLOCKS && !self.blocks.contains_key(&block) {
            self.blocks.retain(|_, known| known.watched);
        }
        let new = Block { asked: 0, begun: self.begun.wrapping_sub(RECENT), watched: false };
        let known = self.blocks.entry(block).or_insert(new);
        let before = *known;
        known.asked |= page;
        before
    }

    /// A page was asked for of the block that is watched since that beginning; what is withheld of it.
    fn watched(&mut self, begun: u32, page: u64) -> u64 {
        let since = |probe: &Probe| self.begun.wrapping_sub(probe.begun);
        // The oldest first.
        let found =
            self.probes.binary_search_by(|probe| self.begun.wrapping_sub(begun).cmp(&since(probe)));
        let Some(probe) = found.ok().and_then(|at| self.probes.get_mut(at)) else { return 0 };
        if probe.withheld & page != 0 && probe.all.is_used() {
            self.all.used += 1;
        }
        if probe.before & page != 0 && probe.again.is_used() {
            self.again.used += 1;
        }
        probe.withheld
    }

    /// Memory that it holds beside itself, about, bytes. Of the table a place and its mark, of which seven eighths
    /// are taken at most.
    pub fn bytes(&self) -> usize {
        let place = size_of::<(u64, Block)>() + 1;
        self.blocks.capacity() * place * 8 / 7 + self.probes.capacity() * size_of::<Probe>()
    }

    fn watch(&mut self, probe: Probe) {
        let most = (self.blocks.len() / ONE_PROBE_IN).clamp(LEAST_PROBES, MOST_PROBES);
        while self.probes.len() >= most
            && let Some(over) = self.probes.pop_front()
        {
            self.all.take_away(over.all);
            self.again.take_away(over.again);
            if let Some(block) = self.blocks.get_mut(&over.block) {
                block.watched = false;
            }
        }
        self.all.add(probe.all);
        self.again.add(probe.again);
        self.probes.push_back(probe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: RunAhead = RunAhead { max_pages: 32, probe_one_in: 8, around_pages: 16 };

    /// Visits a block, using pages of it in an order of no use to runs; faults, and pages that came and
    /// were not used.
    fn visit(around: &mut Around, block: u64, used: &[u64]) -> (u64, u64) {
        let (mut faults, mut here, mut wasted) = (0, 0u64, 0);
        for page in used {
            if here >> page & 1 == 1 {
                continue;
            }
            let gone = |near: Near| (near.pages & !here).count_ones();
            let came = around.fault(Vpn(block * 16 + page), PARAMS, gone);
            assert_eq!(came.first, block * 16);
            assert!(!came.has(block * 16 + page), "it is there already");
            let new = came.pages & !here;
            wasted += new.count_ones() - used.iter().filter(|p| new >> **p & 1 == 1).count() as u32;
            here |= came.pages | 1 << page;
            faults += 1;
        }
        (faults, u64::from(wasted))
    }

    /// Visits blocks, each once, using `used` of 16 stored pages of each: the last half.
    fn blocks(around: &mut Around, used: u64, count: u64) -> (u64, u64) {
        let pages: Vec<u64> = (0..used).map(|n| n * 7 % 16).collect();
        let (mut faults, mut wasted) = (0, 0);
        for number in 0..count {
            // Never the same one.
            let block = u64::from(around.begun) + (1 << 20);
            let (f, w) = visit(around, block, &pages);
            if number >= count / 2 {
                (faults, wasted) = (faults + f, wasted + w);
            }
        }
        (faults, wasted)
    }

    #[test]
    fn blocks_of_which_much_is_used_come_at_once() {
        let (faults, wasted) = blocks(&mut Around::default(), 9, 4000);
        // Of one block in sixteen a quarter is withheld, of which nine in sixteen are asked for.
        assert!((2000 + 125..2000 + 125 * 3).contains(&faults), "{faults}");
        assert!((1875 * 7..2000 * 7).contains(&wasted), "{wasted}");
    }

    #[test]
    fn blocks_of_which_little_is_used_come_page_by_page_the_first_time() {
        let (faults, wasted) = blocks(&mut Around::default(), 3, 4000);
        // What was asked for just now is there, and comes for nothing.
        assert_eq!((faults, wasted), (2000 * 3, 0));
    }

    #[test]
    fn what_was_asked_for_comes_the_next_time() {
        let mut around = Around::default();
        let any = |block: u64| block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        let used = |block: u64| [any(block), (any(block) + 5) % 16];
        let round = |around: &mut Around| {
            let visits = (0..1000).map(|block| visit(around, block, &used(block)));
            visits.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
        };
        assert_eq!(round(&mut around), (2000, 0));
        for _ in 0..8 {
            let (faults, wasted) = round(&mut around);
            // Of one in sixteen a quarter is withheld, and an eighth of all go on to be watched.
            assert!((1000..1000 + 1000 / 16 + 1000 / 8).contains(&faults), "{faults}");
            assert_eq!(wasted, 0);
        }
        // What is no longer asked for is forgotten, block by block.
        let other = |block: u64| [(any(block) + 3) % 16, (any(block) + 10) % 16];
        let mut last = 0;
        for _ in 0..100 {
            last = (0..1000).map(|block| visit(&mut around, block, &other(block)).1).sum();
        }
        assert!(last < 1000, "{last} of 2000");
    }

    /// Each page is drawn at random, again and again, until each has been asked for.
    #[test]
    fn what_was_asked_for_does_not_come_where_it_is_not_asked_for_again() {
        let mut around = Around::default();
        let mut random = 1u64;
        let mut wasted = 0;
        // Of 32,000 pages each is drawn once in sixteen of these.
        for _ in 0..40 {
            wasted = 0;
            for _ in 0..2000 {
                random =
                    random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let page = random >> 33;
                wasted += visit(&mut around, page / 16 % 2000, &[page % 16]).1;
            }
        }
        assert!(wasted < 2000, "{wasted} pages came along with 2,000 faults");
    }

    #[test]
    fn what_is_learned_is_forgotten_when_it_is_no_longer_true() {
        let mut around = Around::default();
        blocks(&mut around, 16, 2000);
        assert_eq!(blocks(&mut around, 2, 8000).1, 0);
        let (faults, _) = blocks(&mut around, 12, 4000);
        assert!((2000 + 125..2000 + 125 * 4).contains(&faults), "{faults}");
    }

    #[test]
    fn nothing_comes_where_nothing_was_asked_for() {
        let none = RunAhead { around_pages: 0, ..PARAMS };
        let mut around = Around::default();
        for page in 0..1000 {
            assert_eq!(around.fault(Vpn(page), none, |near| near.pages.count_ones()).pages, 0);
        }
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut around = Around::default();
        for block in 0..3 * BLOCKS as u64 {
            around.fault(Vpn(block * 16), PARAMS, |near| near.pages.count_ones());
        }
        assert!(around.blocks.len() <= BLOCKS);
    }

    #[test]
    fn near_pages_are_named_once_and_in_order() {
        let near = Near { first: 32, pages: 0b1010_0000_0000_0001 };
        assert_eq!(near.vpns().collect::<Vec<_>>(), [32, 45, 47]);
        assert!(near.has(45) && !near.has(33) && !near.has(31) && !near.has(96));
        let all = Near { first: 64, pages: u64::MAX };
        assert_eq!(all.vpns().count(), 64);
    }
}
