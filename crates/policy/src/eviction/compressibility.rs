//! Compressibility-aware replacement: what leaves the pool are the zpages of a frame drawn by lottery, where frames
//! that hold little, or little that is dear, have more tickets.
//!
//! Source: ezswap III-C, figure 7. Frames are of 18 categories: how many zpages (1 to 3), how many of these are pages
//! of files, and whether a quarter of the frame is free. A category's weight is the inverse of the benefit of keeping
//! such a frame (equation 1), times 10,000, as a whole number: the compression ratio of the fullest frame of the
//! category over the costs of its zpages ([`crate::ezswap`]). Each category is a list of [`super::lottery`].
//!
//! *Approximate LRU.* "When a new zpage enters the pool, it receives a time stamp of the current global clock, and then
//! the clock value is increased by 1"; where a frame goes on its list depends on the sum of its zpages' stamps. It is
//! put there anew when a zpage comes or leaves, in the category that it is of then.
//!
//! What the paper does not say: a frame that could not be emptied goes to the head of its list, as in z3fold, or it
//! would be drawn again at once. What was answered is on no list until something is told of it.
//!
//! What a frame holds is asked when one of its pages is told to be stored, or, of another page in it, to have left.
//! Pages that take no part of a frame (of one repeated word) never leave. Memory is about 40 bytes a page and 120 a
//! frame.

use std::collections::{BTreeMap, HashMap, HashSet};

use clew_core::{
    Event, Eviction, FrameFacts, Metric, Observe, PageId, PageRun, SpaceId, Tier, Unit, View, Whole,
};
use serde::{Deserialize, Serialize};

use super::frame_kinds::FrameKinds;
use super::lottery::Lottery;
use crate::ezswap::cost;
use crate::schemes::{About, Answer};

/// What is free when a frame has left the pool.
const FRAME_BYTES: u64 = 4096;
/// Chunks of a frame.
const CHUNKS: u32 = 64;
/// What is held of a page and of a frame, about: tree and table nodes, a list of pages.
const PAGE_HELD_BYTES: u64 = 40;
const FRAME_HELD_BYTES: u64 = 88;

/// Zpages of a frame, and those of these that are pages of files.
const HOLDINGS: [(u64, u64); 9] =
    [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (3, 3)];

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Where the second range of free space begins, per cent of a frame.
    pub free_pct: Whole<1, 99, 25>,
    /// What the lottery draws follows from it.
    pub seed: Whole<0, 1_000_000, 1>,
}

impl Answer<dyn Eviction> for Params {
    fn about(&self) -> About {
        About {
            needs_frames: true,
            ..About::of("compressibility", "frames by lottery, little held first")
        }
    }

    fn build(&self) -> Box<dyn Eviction> {
        Box::new(Compressibility::new(*self))
    }
}

/// The weight of frames of `zpages`, `files` of them pages of files, of which at least `free_pct` is free: the inverse of
/// equation 1, times 10,000, rounded down.
pub fn weight(zpages: u64, files: u64, free_pct: u64) -> u64 {
    let costs = files * cost(true) + (zpages - files) * cost(false);
    10_000 * (100 - free_pct) / (100 * zpages * costs)
}

/// The category of a frame with `files` pages of files, where the second range of free space begins at `free_pct`.
/// Those of the first range have even numbers.
fn category(facts: FrameFacts, files: usize, free_pct: u32) -> u8 {
    let zpages = u64::from(facts.zpages.clamp(1, 3));
    let files = (files as u64).min(zpages);
    let holding = HOLDINGS.iter().position(|holding| *holding == (zpages, files)).unwrap_or(0);
    let free = CHUNKS.saturating_sub(u32::from(facts.used_chunks));
    holding as u8 * 2 + u8::from(free * 100 >= free_pct * CHUNKS)
}

/// A zpage in a frame.
#[derive(Clone, Copy)]
struct Zpage {
    frame: u32,
    stamp: u64,
    file: bool,
}

/// What is known of a frame.
#[derive(Default)]
struct Frame {
    /// Its number in the pool.
    number: u32,
    pages: Vec<PageId>,
    /// Sum of its zpages' time stamps.
    stamps: u64,
    files: usize,
}

/// The policy. See the module.
pub struct Compressibility {
    free_pct: u32,
    lottery: Lottery,
    /// Positions of frames in `frames` by their number, and positions that are free.
    places: HashMap<u32, u32>,
    frames: Vec<Frame>,
    free: Vec<u32>,
    zpages: BTreeMap<PageId, Zpage>,
    /// Answered, and nothing was told of it since.
    under_way: HashSet<PageId>,
    clock: u64,
    kinds: FrameKinds,
    evicted_frames: u64,
    evicted_pages: u64,
}

impl Compressibility {
    /// Has heard of nothing yet.
    pub fn new(params: Params) -> Compressibility {
        let free_pct = params.free_pct.get();
        let of = |&(zpages, files): &(u64, u64)| {
            [0, u64::from(free_pct)].map(|free| weight(zpages, files, free))
        };
        let weights: Vec<u64> = HOLDINGS.iter().flat_map(of).collect();
        Compressibility {
            free_pct,
            lottery: Lottery::new(&weights, params.seed.get().into()),
            places: HashMap::new(),
            frames: Vec::new(),
            free: Vec::new(),
            zpages: BTreeMap::new(),
            under_way: HashSet::new(),
            clock: 0,
            kinds: FrameKinds::default(),
            evicted_frames: 0,
            evicted_pages: 0,
        }
    }

    fn place(&mut self, number: u32) -> u32 {
        let Compressibility { places, frames, free, .. } = self;
        *places.entry(number).or_insert_with(|| {
            let place = free.pop().unwrap_or_else(|| {
                frames.push(Frame::default());
                frames.len() as u32 - 1
            });
            frames[place as usize] = Frame { number, ..Frame::default() };
            place
        })
    }

    /// A frame goes where it belongs as it is now.
    fn relist(&mut self, place: u32, facts: FrameFacts, newest: bool) {
        let frame = &self.frames[place as usize];
        let (stamps, list) = (frame.stamps, category(facts, frame.files, self.free_pct));
        self.lottery.remove(place);
        self.lottery.insert(place, list, stamps, newest);
    }

    fn stored(&mut self, page: PageId, view: &View<'_>) {
        let Some(facts) = view.pages.frame(page) else { return self.left(page, view) };
        let stayed = self.under_way.remove(&page);
        let place = self.places.get(&facts.frame).copied();
        let known = self.zpages.get(&page).is_some_and(|zpage| Some(zpage.frame) == place);
        if !known {
            self.left(page, view);
            let place = self.place(facts.frame);
            let zpage = Zpage { frame: place, stamp: self.clock, file: view.is_file(page) };
            self.clock += 1;
            let frame = &mut self.frames[place as usize];
            frame.pages.push(page);
            frame.stamps += zpage.stamp;
            frame.files += usize::from(zpage.file);
            self.zpages.insert(page, zpage);
            self.relist(place, facts, false);
        } else if let Some(place) = place.filter(|_| stayed) {
            self.relist(place, facts, true);
        }
    }

    fn left(&mut self, page: PageId, view: &View<'_>) {
        if let Some(place) = self.forget(page)
            && self.lottery.list_of(place).is_some()
        {
            let Frame { number, pages, .. } = &self.frames[place as usize];
            let mut others = pages.iter().filter_map(|other| view.pages.frame(*other));
            if let Some(facts) = others.rfind(|facts| facts.frame == *number) {
                self.relist(place, facts, false);
            }
        }
    }

    /// A page is in its frame no more; the frame, if others are.
    fn forget(&mut self, page: PageId) -> Option<u32> {
        self.under_way.remove(&page);
        let Zpage { frame: place, stamp, file } = self.zpages.remove(&page)?;
        let frame = &mut self.frames[place as usize];
        frame.pages.retain(|other| *other != page);
        frame.stamps -= stamp;
        frame.files -= usize::from(file);
        if frame.pages.is_empty() {
            let number = frame.number;
            self.places.remove(&number);
            self.lottery.remove(place);
            self.free.push(place);
            return None;
        }
        Some(place)
    }

    fn left_all(&mut self, gone: Vec<PageId>, view: &View<'_>) {
        gone.into_iter().for_each(|page| self.left(page, view));
    }

    fn known(&self, run: PageRun) -> Vec<PageId> {
        self.zpages.range(run.range()).map(|(page, _)| *page).collect()
    }

    fn moved(&mut self, from: PageRun, to: PageId, view: &View<'_>) {
        self.left_all(self.known(PageRun { first: to, ..from }), view);
        for page in self.known(from) {
            let there = to.plus(page.raw() - from.first.raw());
            let Some(zpage) = self.zpages.remove(&page) else { continue };
            self.zpages.insert(there, zpage);
            let pages = &mut self.frames[zpage.frame as usize].pages;
            pages.iter_mut().filter(|of| **of == page).for_each(|of| *of = there);
            // Its order was for another page, and its frame is not empty.
            if self.under_way.remove(&page)
                && let Some(facts) = view.pages.frame(there)
            {
                self.relist(zpage.frame, facts, true);
            }
        }
    }

    fn ended(&mut self, ended: impl Fn(SpaceId) -> bool, view: &View<'_>) {
        let gone = self.zpages.keys().copied().filter(|page| ended(page.space())).collect();
        self.left_all(gone, view);
    }
}

impl Observe for Compressibility {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Stored { page, tier: Tier::Pool, .. } => self.stored(page, view),
            Event::Stored { page, .. } | Event::PageIn { page, .. } | Event::Stayed { page } => {
                self.left(page, view);
            }
            Event::Freed { run } => self.left_all(self.known(run), view),
            Event::Moved { from, to } => self.moved(from, to, view),
            Event::SpaceEnd { space } => self.ended(|of| of == space, view),
            Event::Exit { app } => {
                self.ended(|of| view.facts.app_of(of).is_none_or(|owner| owner == app), view);
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let (frames, pages) = (self.evicted_frames, self.evicted_pages);
        let known = self.places.len() as u64;
        let held = known * FRAME_HELD_BYTES
            + (self.zpages.len() + self.under_way.len()) as u64 * PAGE_HELD_BYTES
            + self.lottery.held_bytes();
        let own = [
            (
                "compressibility_tracking_bytes",
                held,
                "memory held for tracking pages and frames, about",
            ),
            ("compressibility_known_frames", known, "frames of the pool with pages"),
            ("compressibility_evicted_frames", frames, "frames drawn to leave the pool"),
            ("compressibility_evicted_pages", pages, "pages of frames drawn to leave the pool"),
        ];
        let own = own.map(|(name, value, help)| Metric { name, value: value as f64, help });
        own.into_iter().chain(self.kinds.metrics()).collect()
    }
}

impl Eviction for Compressibility {
    fn pick_evictions(&mut self, bytes: u64, view: &View<'_>, out: &mut Vec<Unit>) {
        let mut wanted = bytes.div_ceil(FRAME_BYTES);
        while wanted > 0
            && let Some(place) = self.lottery.draw()
        {
            self.lottery.remove(place);
            let frame = &self.frames[place as usize];
            let number = frame.number;
            let is_there = |page: &PageId| {
                let is_in = view.pages.frame(*page).is_some_and(|facts| facts.frame == number);
                is_in && view.pages.tier(*page) == Some(Tier::Pool)
            };
            let (mut there, gone): (Vec<PageId>, Vec<PageId>) =
                frame.pages.iter().copied().partition(is_there);
            for page in gone {
                self.forget(page);
            }
            let kind = (there.len(), there.iter().filter(|page| view.is_file(**page)).count());
            there.retain(|page| self.under_way.insert(*page));
            if !there.is_empty() {
                wanted -= 1;
                self.evicted_frames += 1;
                self.evicted_pages += there.len() as u64;
                self.kinds.count(kind.0, kind.1);
                out.push(Unit::Pages(there));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 7: the formula of III-C by hand, whose own example is the 750 of (2, 1).
    #[test]
    fn the_weights_are_those_of_figure_7() {
        let table = [
            (1, 0, 2500, 1875),
            (1, 1, 10000, 7500),
            (2, 0, 625, 468),
            (2, 1, 1000, 750),
            (2, 2, 2500, 1875),
            (3, 0, 277, 208),
            (3, 1, 370, 277),
            (3, 2, 555, 416),
            (3, 3, 1111, 833),
        ];
        for (zpages, files, full, free) in table {
            let found = [0, 25].map(|pct| weight(zpages, files, pct));
            assert_eq!(found, [full, free], "({zpages}, {files})");
        }
    }

    #[test]
    fn a_frame_is_of_the_category_that_its_free_space_says() {
        let of = |zpages, files, used_chunks| {
            let facts = FrameFacts { frame: 0, zpages, free_chunks: 0, used_chunks };
            category(facts, files, 25)
        };
        // 16 of 64 chunks are a quarter.
        assert_eq!([of(1, 0, 64), of(1, 0, 49), of(1, 0, 48), of(1, 0, 1)], [0, 0, 1, 1]);
        assert_eq!([of(1, 1, 64), of(2, 0, 64), of(3, 3, 3)], [2, 4, 17]);
        // What cannot be is the nearest that can.
        assert_eq!([of(0, 0, 0), of(2, 9, 64), of(9, 0, 64)], [1, 8, 10]);
    }
}
