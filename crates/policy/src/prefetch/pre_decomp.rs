//! PreDecomp: when a stored page is used, the page at the next sector is decompressed ahead.
//!
//! Source: Ariadne 4.4, with insight 3 and table 3 for "sector": the number of the page's slot on
//! the swap device, not where its compressed form happens to lie. Slots are given in the order of
//! swap-out. A page keeps its slot when it comes back, as pages of the kernel's swap cache do, until
//! it leaves again (and gets the next slot) or is gone; slots that become free are closed up. So
//! the page at the next sector is the one that left right after, however long ago, and nothing is
//! ahead if that one is back already or belongs to another app.
//!
//! One page at a time (table 3: four in a row are much less likely than two). Pages decompressed
//! ahead wait in a first-in-first-out buffer; when one of them is used ([`Trigger::Hit`]), the page
//! after it is next. One that is pushed out unused is compressed again, as in the paper
//! ([`Expire::Recompress`]) and gets the next slot, or its stored copy, kept meanwhile, is valid
//! once more ([`Expire::Keep`]) at the slot it had.
//!
//! Memory: 9.5 bytes a page that has left at least once, see
//! [`crate::reclaim::page_lists`]. Every step takes constant time.

use clew_core::{Arrival, Event, Metric, Observe, PageId, Prefetch, Trigger, View, Whole};
use serde::{Deserialize, Serialize};

use crate::reclaim::page_lists::{Flag, ListId, PageLists};
use crate::schemes::{About, Answer};

/// What becomes of a page that is pushed out of the buffer unused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expire {
    /// Its stored copy was kept and is valid once more.
    Keep,
    /// It is compressed again (the paper).
    #[default]
    Recompress,
}

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Pages the buffer holds.
    pub buffer_pages: Whole<1, 65536, 64>,
    /// What becomes of those pushed out of it unused.
    pub expire: Expire,
}

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        About { at_fault: true, ..About::of("pre-decomp", "PreDecomp") }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(PreDecomp::new(*self))
    }
}

/// Pages by sector, the newest at the front.
const SECTORS: ListId = ListId(0);
/// The page is stored (it has left since it last came back).
const IS_STORED: Flag = Flag::A;

/// The policy. See the module.
pub struct PreDecomp {
    params: Params,
    sectors: PageLists,
    predicted: u64,
    used: u64,
    expired: u64,
}

impl PreDecomp {
    /// Knows no sectors yet.
    pub fn new(params: Params) -> PreDecomp {
        PreDecomp { params, sectors: PageLists::new(), predicted: 0, used: 0, expired: 0 }
    }

    /// A page that has left gets the next slot. One that only goes to another tier keeps its own.
    fn stored(&mut self, page: PageId) {
        let slot = self.sectors.slot(page);
        if !self.sectors.is_listed(slot) {
            self.sectors.push_front(SECTORS, slot);
        } else if !self.sectors.flag(slot, IS_STORED) {
            self.sectors.move_to_front(SECTORS, slot);
        }
        self.sectors.set_flag(slot, IS_STORED, true);
    }

    fn came_back(&mut self, page: PageId) {
        if let Some(slot) = self.sectors.find(page) {
            self.sectors.set_flag(slot, IS_STORED, false);
        }
    }

    /// The page's copy was kept, and its slot with it.
    fn never_left(&mut self, page: PageId) {
        if let Some(slot) = self.sectors.find(page) {
            self.sectors.set_flag(slot, IS_STORED, true);
        }
    }

    /// The page at the sector after that of `page`.
    fn after(&self, page: PageId) -> Option<PageId> {
        let slot = self.sectors.find(page)?;
        self.sectors.newer(SECTORS, slot).map(|slot| self.sectors.page(slot))
    }
}

impl Observe for PreDecomp {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Stored { page, .. } => self.stored(page),
            Event::PageIn { page, .. } => self.came_back(page),
            Event::PrefetchUsed { .. } => self.used += 1,
            Event::PrefetchExpired { page } => {
                self.expired += 1;
                if self.params.expire == Expire::Keep {
                    self.never_left(page);
                }
            }
            Event::Freed { run } => self.sectors.forget_run(run, |_, _| ()),
            Event::Moved { from, to } => self.sectors.move_run(from, to, |_, _| ()),
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => {
                self.sectors.forget_space(space, |_, _| ());
            }
            Event::Exit { app } => {
                for space in view.facts.spaces_of(app) {
                    self.sectors.forget_space(space, |_, _| ());
                }
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        [
            ("pre_decomp_predicted_pages", self.predicted, "pages asked for ahead of their use"),
            ("pre_decomp_used_pages", self.used, "of these, pages that were then used"),
            ("pre_decomp_expired_pages", self.expired, "of these, pages left unused"),
            (
                "pre_decomp_tracking_bytes",
                self.sectors.tracking_bytes(),
                "memory held for sectors of pages",
            ),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Prefetch for PreDecomp {
    fn arrival(&self) -> Arrival {
        let keep = self.params.expire == Expire::Keep;
        Arrival::Parked { pages: self.params.buffer_pages.get() as usize, keep }
    }

    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let (Trigger::Fault(page) | Trigger::Hit(page)) = trigger else { return };
        let next = self.after(page).filter(|next| {
            view.pages.tier(*next).is_some() && view.app_of(*next) == view.app_of(page)
        });
        self.predicted += u64::from(next.is_some());
        out.extend(next);
    }
}
