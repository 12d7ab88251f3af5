//! Where the pages of governed programs are, as far as the governor knows: a byte a page that holds something.
//!
//! The kernel's page tables are the truth and change at any moment; this is what policies were told of them.

use std::collections::BTreeMap;
use std::ops::Range;

use clew_core::{PageCounts, PageFacts, PageId, SpaceId, Tier, Vpn};
use clew_live::programs::pagemap::PageIs;

/// Pages of a leaf.
const LEAF: u64 = 512;

/// Where a page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Where {
    /// It holds nothing that is known.
    #[default]
    Nowhere,
    /// In its program.
    Resident,
    /// In its program still; the kernel is being asked to take it.
    Leaving,
    /// In the kernel's swap.
    Out,
    /// Read from swap ahead of its program, which has not touched it yet: in memory, and as good as resident.
    Brought,
}

impl Where {
    /// Whether that is what the kernel says, or no contradiction.
    fn agrees(self, is: PageIs) -> bool {
        match self {
            Where::Nowhere => is == PageIs::Nothing,
            Where::Resident | Where::Leaving => is == PageIs::Present,
            // What was brought is on its way until it is settled whether it is used.
            Where::Out | Where::Brought => is == PageIs::Swapped,
        }
    }
}

/// Leaves by the first of their pages, and how many pages are where.
#[derive(Default)]
struct Space {
    leaves: BTreeMap<u64, Box<[Where; LEAF as usize]>>,
    counts: PageCounts,
}

/// All spaces.
#[derive(Default)]
pub struct Pages {
    spaces: BTreeMap<SpaceId, Space>,
}

/// What it counts as: 1 resident, 1 stored.
fn weight(state: Where) -> (u64, u64) {
    match state {
        Where::Nowhere => (0, 0),
        Where::Resident | Where::Leaving | Where::Brought => (1, 0),
        Where::Out => (0, 1),
    }
}

impl Pages {
    /// A new space, or what was known of it is forgotten.
    pub fn begin(&mut self, space: SpaceId) {
        self.spaces.insert(space, Space::default());
    }

    /// The space is gone.
    pub fn end(&mut self, space: SpaceId) {
        self.spaces.remove(&space);
    }

    /// Where a page is.
    pub fn get(&self, page: PageId) -> Where {
        let (leaf, slot) = place(page.vpn());
        let of_space = self.spaces.get(&page.space());
        of_space.and_then(|of| of.leaves.get(&leaf)).map_or(Where::Nowhere, |leaf| leaf[slot])
    }

    /// It is there now; where it was. Nothing is kept of a space that has not begun.
    pub fn set(&mut self, page: PageId, now: Where) -> Where {
        let Some(of_space) = self.spaces.get_mut(&page.space()) else { return Where::Nowhere };
        let (leaf, slot) = place(page.vpn());
        let leaf = match now {
            Where::Nowhere => match of_space.leaves.get_mut(&leaf) {
                Some(leaf) => leaf,
                None => return Where::Nowhere,
            },
            _ => of_space
                .leaves
                .entry(leaf)
                .or_insert_with(|| Box::new([Where::Nowhere; LEAF as usize])),
        };
        let before = std::mem::replace(&mut leaf[slot], now);
        let (old, new) = (weight(before), weight(now));
        let counts = &mut of_space.counts;
        counts.resident = counts.resident + new.0 - old.0;
        let stored = &mut counts.stored[Tier::Pool.index()];
        *stored = *stored + new.1 - old.1;
        before
    }

    /// The pages of a range that hold something, ascending.
    pub fn known(&self, space: SpaceId, range: Range<Vpn>) -> Vec<(Vpn, Where)> {
        let mut found = Vec::new();
        if let Some(of_space) = self.spaces.get(&space).filter(|_| range.start < range.end) {
            let leaves = of_space.leaves.range(place(range.start).0..range.end.0);
            for (first, leaf) in leaves {
                let pages = (*first..).map(Vpn).zip(leaf.iter().copied());
                found
                    .extend(pages.filter(|(vpn, is)| range.contains(vpn) && *is != Where::Nowhere));
            }
        }
        found
    }

    /// The pages of a range that are not known to be as the kernel says, ascending, and where they were thought to be.
    pub fn not_as(&self, space: SpaceId, range: Range<Vpn>, is: PageIs) -> Vec<(Vpn, Where)> {
        let mut found = Vec::new();
        let Some(of_space) = self.spaces.get(&space) else { return found };
        let (mut at, end) = (range.start.0, range.end.0);
        while at < end {
            let (leaf, slot) = place(Vpn(at));
            let next = (leaf + LEAF).min(end);
            match of_space.leaves.get(&leaf) {
                Some(states) => {
                    let states = states[slot..].iter().copied().zip(at..next);
                    let odd = states.filter(|(state, _)| !state.agrees(is));
                    found.extend(odd.map(|(state, vpn)| (Vpn(vpn), state)));
                    at = next;
                }
                None if is == PageIs::Nothing => {
                    // What is reserved and not used has no end.
                    let known = of_space.leaves.range(leaf..).next();
                    at = known.map_or(end, |(first, _)| *first);
                }
                None => {
                    found.extend((at..next).map(|vpn| (Vpn(vpn), Where::Nowhere)));
                    at = next;
                }
            }
        }
        found
    }

    /// Leaves of which no page holds anything are given back.
    pub fn tidy(&mut self, space: SpaceId) {
        if let Some(of_space) = self.spaces.get_mut(&space) {
            of_space.leaves.retain(|_, leaf| leaf.iter().any(|is| *is != Where::Nowhere));
        }
    }

    /// Pages of all spaces that are in the kernel's swap.
    pub fn out_pages(&self) -> u64 {
        self.spaces.values().map(|of| of.counts.stored_in(Tier::Pool)).sum()
    }
}

fn place(vpn: Vpn) -> (u64, usize) {
    (vpn.0 / LEAF * LEAF, (vpn.0 % LEAF) as usize)
}

impl PageFacts for Pages {
    fn tier(&self, page: PageId) -> Option<Tier> {
        (self.get(page) == Where::Out).then_some(Tier::Pool)
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        self.spaces.get(&space).map(|of| of.counts).unwrap_or_default()
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        for (vpn, is) in self.known(space, Vpn(0)..Vpn(u64::MAX)) {
            match is {
                Where::Resident => visit(PageId::new(space, vpn), None),
                Where::Out => visit(PageId::new(space, vpn), Some(Tier::Pool)),
                Where::Nowhere | Where::Leaving | Where::Brought => {}
            }
        }
    }

    /// The kernel may keep some, and nobody could give them up.
    fn may_have_copy(&self, _page: PageId) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: SpaceId = SpaceId(3);

    fn page(vpn: u64) -> PageId {
        PageId::new(SPACE, Vpn(vpn))
    }

    #[test]
    fn counts_follow_every_change() {
        let mut pages = Pages::default();
        assert_eq!(pages.set(page(5), Where::Resident), Where::Nowhere);
        assert_eq!(pages.get(page(5)), Where::Nowhere, "the space has not begun");
        pages.begin(SPACE);
        for vpn in 510..515 {
            pages.set(page(vpn), Where::Resident);
        }
        assert_eq!(pages.set(page(511), Where::Out), Where::Resident);
        pages.set(page(512), Where::Leaving);
        pages.set(page(513), Where::Brought);
        let counts = pages.counts(SPACE);
        assert_eq!((counts.resident, counts.stored_total(), pages.out_pages()), (4, 1, 1));
        assert_eq!((pages.tier(page(511)), pages.tier(page(513))), (Some(Tier::Pool), None));
        let mut seen = Vec::new();
        pages.for_each(SPACE, &mut |page, tier| seen.push((page.vpn().0, tier)));
        assert_eq!(seen, [(510, None), (511, Some(Tier::Pool)), (514, None)]);
        for vpn in 510..515 {
            pages.set(page(vpn), Where::Nowhere);
        }
        assert_eq!(pages.counts(SPACE), PageCounts::default());
        pages.tidy(SPACE);
        assert!(pages.spaces[&SPACE].leaves.is_empty());
        pages.set(page(1), Where::Out);
        pages.end(SPACE);
        assert_eq!((pages.out_pages(), pages.get(page(1))), (0, Where::Nowhere));
    }

    #[test]
    fn what_the_kernel_says_otherwise_is_found() {
        let mut pages = Pages::default();
        pages.begin(SPACE);
        pages.set(page(5), Where::Resident);
        pages.set(page(600), Where::Out);
        pages.set(page(601), Where::Brought);
        let odd = |range: Range<u64>, is| {
            let found = pages.not_as(SPACE, Vpn(range.start)..Vpn(range.end), is);
            found.into_iter().map(|(vpn, _)| vpn.0).collect::<Vec<u64>>()
        };
        assert_eq!(odd(4..7, PageIs::Present), [4, 6]);
        assert_eq!(odd(0..1 << 40, PageIs::Nothing), [5, 600, 601]);
        assert!(odd(6..600, PageIs::Nothing).is_empty());
        assert!(odd(600..602, PageIs::Swapped).is_empty());
        assert_eq!(odd(600..602, PageIs::Present), [600, 601]);
        assert_eq!(odd(1022..1026, PageIs::Swapped), [1022, 1023, 1024, 1025]);
        assert!(pages.not_as(SpaceId(9), Vpn(0)..Vpn(9), PageIs::Present).is_empty());
    }

    #[test]
    fn what_is_known_of_a_range_is_of_that_range() {
        let mut pages = Pages::default();
        pages.begin(SPACE);
        for vpn in [1, 511, 512, 1600] {
            pages.set(page(vpn), Where::Resident);
        }
        let known = |range: Range<u64>| {
            let found = pages.known(SPACE, Vpn(range.start)..Vpn(range.end));
            found.into_iter().map(|(vpn, _)| vpn.0).collect::<Vec<u64>>()
        };
        assert_eq!(known(1..512), [1, 511]);
        assert_eq!(known(2..1600), [511, 512]);
        assert_eq!(known(512..1601), [512, 1600]);
        assert!(known(5..5).is_empty());
    }
}
