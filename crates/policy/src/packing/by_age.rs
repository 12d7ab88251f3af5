//! By age: quickly what comes back, densely what does not.
//!
//! Ours; the kernel's zram does the second half as *recompression* of idle pages
//! (`Documentation/admin-guide/blockdev/zram.rst`). Every page is a block of its own.
//!
//! - What is hot or warm has been used since it left last, and may be again soon: a codec compresses it that is quick
//!   both ways (`quick_codec`).
//! - What is cold has not been asked for so far: it is compressed densely at once (`dense_codec`).
//! - What was compressed quickly and has not come back in `after_relaunches` relaunches is stored anew, densely, when
//!   nothing else is to be done. Where nothing is relaunched, [`LONGEST`] count as one.
//!
//! Of a page that was compressed quickly is known since how many relaunches it is stored: it is on the list of the
//! relaunch before which it left, of as many lists, and on the last one when it is old.
//!
//! Memory: 9.5 bytes a page that is stored quickly ([`crate::reclaim::page_lists`]). Every step takes constant time.

use clew_core::{
    CodecKind, Event, Group, Hotness, Metric, Ns, Observe, Packing, PageId, Tier, Victim, View,
    Whole,
};
use serde::{Deserialize, Serialize};

use super::one_page::each_page;
use crate::reclaim::page_lists::{ListId, PageLists};
use crate::schemes::{About, Answer};

/// So long without a relaunch counts as one.
const LONGEST: Ns = Ns::from_ms(15_000);
/// The list of those that are old; those of relaunches follow.
const OLD: ListId = ListId(1);
const FIRST: u32 = 2;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What compresses hot and warm pages.
    pub quick_codec: CodecKind,
    /// What compresses cold pages, and old ones.
    pub dense_codec: CodecKind,
    /// Relaunches after which a page is old.
    pub after_relaunches: Whole<1, 60, 8>,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            quick_codec: CodecKind::Lz4,
            dense_codec: CodecKind::ZstdDictionary,
            after_relaunches: Whole::default(),
        }
    }
}

impl Answer<dyn Packing> for Params {
    fn about(&self) -> About {
        let Params { quick_codec, dense_codec, after_relaunches } = self;
        let (quick, dense) = (quick_codec.shown(), dense_codec.shown());
        let after = after_relaunches.get();
        About::of("by-age", format!("one page, {quick}; cold, or {after} relaunches old: {dense}"))
    }

    fn build(&self) -> Box<dyn Packing> {
        Box::new(ByAge::new(*self))
    }
}

/// The policy. See the module.
pub struct ByAge {
    params: Params,
    lists: PageLists,
    /// The list of pages that leave now, counted from [`FIRST`].
    now: u32,
    began: Ns,
    quick: u64,
    stored_anew: u64,
}

impl ByAge {
    /// Has packed nothing yet.
    pub fn new(params: Params) -> ByAge {
        let (lists, began) = (PageLists::new(), Ns(0));
        ByAge { params, lists, now: 0, began, quick: 0, stored_anew: 0 }
    }

    fn list(&self, number: u32) -> ListId {
        ListId(FIRST + number)
    }

    /// A relaunch is over, or as good as that: what left before the first one that is remembered is old.
    fn next(&mut self, now: Ns) {
        self.began = now;
        self.now = (self.now + 1) % self.params.after_relaunches.get();
        let oldest = self.list(self.now);
        self.lists.append(oldest, OLD);
    }

    fn forget(&mut self, page: PageId) {
        if let Some(slot) = self.lists.find(page) {
            self.lists.forget(slot);
        }
    }

    fn push(
        &mut self,
        page: PageId,
        hotness: Option<Hotness>,
        view: &View<'_>,
        out: &mut Vec<Group>,
    ) {
        let is_cold = hotness == Some(Hotness::Cold);
        let codec = if is_cold { self.params.dense_codec } else { self.params.quick_codec };
        self.forget(page);
        if !is_cold {
            let (list, slot) = (self.list(self.now), self.lists.slot(page));
            self.lists.push_front(list, slot);
            self.quick += 1;
        }
        out.push(group(page, hotness, codec, view));
    }
}

fn group(page: PageId, hotness: Option<Hotness>, codec: CodecKind, view: &View<'_>) -> Group {
    let chunk_bytes = view.facts.page_bytes;
    Group { pages: vec![page], hotness, codec, chunk_bytes, park_siblings: false }
}

impl Observe for ByAge {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Relaunch { .. } => self.next(view.facts.now),
            Event::Tick if view.facts.now.since(self.began) >= LONGEST => {
                self.next(view.facts.now);
            }
            Event::PageIn { page, .. } | Event::Stayed { page } => self.forget(page),
            Event::Stored { page, tier, .. } if tier != Tier::Pool => self.forget(page),
            Event::Freed { run } => self.lists.forget_run(run, |_, _| {}),
            Event::Moved { from, to } => self.lists.move_run(from, to, |_, _| {}),
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => {
                self.lists.forget_space(space, |_, _| {});
            }
            Event::Exit { app } => {
                for space in view.facts.spaces_of(app) {
                    self.lists.forget_space(space, |_, _| {});
                }
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        [
            ("by_age_quick_pages", self.quick, "pages that were compressed quickly"),
            ("by_age_anew_pages", self.stored_anew, "of these, those that became old"),
            ("by_age_tracking_bytes", self.lists.tracking_bytes(), "memory held for their age"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Packing for ByAge {
    fn pack(
        &mut self,
        victims: &mut Vec<Victim>,
        _flush: bool,
        view: &View<'_>,
        out: &mut Vec<Group>,
    ) {
        each_page(victims, |page, hotness| self.push(page, hotness, view, out));
    }

    fn repacks(&self) -> bool {
        true
    }

    fn pick_repacks(&mut self, wanted: usize, view: &View<'_>, out: &mut Vec<Group>) {
        let before = out.len();
        while out.len() - before < wanted
            && let Some(slot) = self.lists.tail(OLD)
        {
            let page = self.lists.page(slot);
            self.lists.forget(slot);
            if view.pages.tier(page) == Some(Tier::Pool) {
                self.stored_anew += 1;
                out.push(group(page, Some(Hotness::Cold), self.params.dense_codec, view));
            }
        }
    }
}
