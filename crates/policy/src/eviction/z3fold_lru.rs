//! Frames by last insertion: what leaves the pool are all zpages of the frame into which none was put for
//! longest.
//!
//! Source: `z3fold_reclaim_page` and the list `lru` of its pool in mm/z3fold.c, by which zswap evicts (ezswap III-C:
//! "the swap page unmodified for the longest time"). A zpage that leaves does not count, nor does one that is read.
//! A frame that could not be emptied counts as the newest.
//!
//! Which frame a zpage is in is asked when its page is told to be stored, and again before it is answered: a
//! zpage that was put again elsewhere, or whose block somebody else has moved, is not in it any more. Pages that
//! take no part of a frame (of one repeated word) never leave, as there. A unit is a frame's pages, of whatever
//! spaces; what is told of them ends it.
//!
//! Time does not depend on how many frames there are, but for the depth of two trees. Memory is about 24 bytes a page
//! and 120 a frame.

use std::collections::{BTreeMap, HashMap, HashSet};

use clew_core::{Event, Eviction, Metric, Observe, PageId, PageRun, SpaceId, Tier, Unit, View};

use super::frame_kinds::FrameKinds;
use crate::plain;
use crate::schemes::About;

/// What is free when a frame has left the pool.
const FRAME_BYTES: u64 = 4096;
/// What is held of a page and of a frame, about: tree and table nodes, a list of pages.
const PAGE_HELD_BYTES: u64 = 24;
const FRAME_HELD_BYTES: u64 = 120;

/// What is known of a frame.
#[derive(Default)]
struct Frame {
    /// When the last page came, in insertions; `None` if what it has is on its way out.
    inserted: Option<u64>,
    pages: Vec<PageId>,
}

/// The policy. See the module.
#[derive(Default)]
pub struct Z3foldLru {
    frames: HashMap<u32, Frame>,
    of_page: BTreeMap<PageId, u32>,
    /// Answered, and nothing was told of it since.
    under_way: HashSet<PageId>,
    /// Frames that are not on their way out, the one without insertion for longest first.
    oldest: BTreeMap<u64, u32>,
    insertions: u64,
    evicted_frames: u64,
    evicted_pages: u64,
    kinds: FrameKinds,
}

plain!(
    Z3foldLru as dyn Eviction,
    About { needs_frames: true, ..About::of("z3fold-lru", "frames by last insertion") }
);

impl Z3foldLru {
    /// Has heard of nothing yet.
    pub fn new() -> Z3foldLru {
        Z3foldLru::default()
    }

    /// A frame is the newest.
    fn touch(&mut self, number: u32) {
        let Some(frame) = self.frames.get_mut(&number) else { return };
        if let Some(before) = frame.inserted.replace(self.insertions) {
            self.oldest.remove(&before);
        }
        self.oldest.insert(self.insertions, number);
        self.insertions += 1;
    }

    fn stored(&mut self, page: PageId, view: &View<'_>) {
        let Some(facts) = view.pages.frame(page) else { return self.left(page) };
        let stayed = self.under_way.remove(&page);
        if self.of_page.get(&page) != Some(&facts.frame) {
            self.left(page);
            self.of_page.insert(page, facts.frame);
            self.frames.entry(facts.frame).or_default().pages.push(page);
            self.touch(facts.frame);
        } else if stayed {
            self.touch(facts.frame);
        }
    }

    fn left(&mut self, page: PageId) {
        self.under_way.remove(&page);
        let Some(number) = self.of_page.remove(&page) else { return };
        let Some(frame) = self.frames.get_mut(&number) else { return };
        frame.pages.retain(|other| *other != page);
        if frame.pages.is_empty() {
            if let Some(inserted) = frame.inserted {
                self.oldest.remove(&inserted);
            }
            self.frames.remove(&number);
        }
    }

    fn known(&self, run: PageRun) -> Vec<PageId> {
        self.of_page.range(run.range()).map(|(page, _)| *page).collect()
    }

    fn moved(&mut self, from: PageRun, to: PageId) {
        self.known(PageRun { first: to, ..from }).into_iter().for_each(|page| self.left(page));
        for page in self.known(from) {
            let there = to.plus(page.raw() - from.first.raw());
            let Some(number) = self.of_page.remove(&page) else { continue };
            if self.under_way.remove(&page) {
                self.touch(number);
            }
            self.of_page.insert(there, number);
            let pages = self.frames.get_mut(&number).map(|frame| &mut frame.pages);
            pages.into_iter().flatten().filter(|of| **of == page).for_each(|of| *of = there);
        }
    }

    fn ended(&mut self, ended: impl Fn(SpaceId) -> bool) {
        let of_ended = self.of_page.keys().filter(|page| ended(page.space()));
        for page in of_ended.copied().collect::<Vec<_>>() {
            self.left(page);
        }
    }
}

impl Observe for Z3foldLru {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Stored { page, tier: Tier::Pool, .. } => self.stored(page, view),
            Event::Stored { page, .. } | Event::PageIn { page, .. } | Event::Stayed { page } => {
                self.left(page);
            }
            Event::Freed { run } => self.known(run).into_iter().for_each(|page| self.left(page)),
            Event::Moved { from, to } => self.moved(from, to),
            Event::SpaceEnd { space } => self.ended(|of| of == space),
            Event::Exit { app } => {
                self.ended(|of| view.facts.app_of(of).is_none_or(|owner| owner == app));
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let (frames, pages) = (self.evicted_frames, self.evicted_pages);
        let known = self.frames.len() as u64;
        let held = known * FRAME_HELD_BYTES
            + (self.of_page.len() + self.under_way.len()) as u64 * PAGE_HELD_BYTES;
        let own = [
            ("z3fold_lru_tracking_bytes", held, "memory held for tracking pages and frames, about"),
            ("z3fold_lru_known_frames", known, "frames of the pool with pages"),
            ("z3fold_lru_evicted_frames", frames, "frames chosen to leave the pool"),
            ("z3fold_lru_evicted_pages", pages, "pages of frames chosen to leave the pool"),
        ];
        let own = own.map(|(name, value, help)| Metric { name, value: value as f64, help });
        own.into_iter().chain(self.kinds.metrics()).collect()
    }
}

impl Eviction for Z3foldLru {
    fn pick_evictions(&mut self, bytes: u64, view: &View<'_>, out: &mut Vec<Unit>) {
        let mut wanted = bytes.div_ceil(FRAME_BYTES);
        while wanted > 0
            && let Some((_, number)) = self.oldest.pop_first()
        {
            let Some(frame) = self.frames.get_mut(&number) else { continue };
            frame.inserted = None;
            let is_there = |page: &PageId| {
                let is_in = view.pages.frame(*page).is_some_and(|facts| facts.frame == number);
                is_in && view.pages.tier(*page) == Some(Tier::Pool)
            };
            let (mut there, gone): (Vec<PageId>, Vec<PageId>) =
                frame.pages.iter().copied().partition(is_there);
            gone.into_iter().for_each(|page| self.left(page));
            let files = there.iter().filter(|page| view.is_file(**page)).count();
            let zpages = there.len();
            there.retain(|page| self.under_way.insert(*page));
            if !there.is_empty() {
                wanted -= 1;
                self.evicted_frames += 1;
                self.evicted_pages += there.len() as u64;
                self.kinds.count(zpages, files);
                out.push(Unit::Pages(there));
            }
        }
    }
}
