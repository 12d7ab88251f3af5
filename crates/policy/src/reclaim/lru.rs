//! Active/inactive LRU over the pages of all apps: how Linux chooses what goes to zram.
//!
//! Source: Linux `mm/vmscan.c` (`shrink_active_list`, `folio_check_references`,
//! `inactive_is_low`), `mm/swap.c` (`mark_page_accessed`), `mm/workingset.c`. The papers name it as
//! their baseline (Ariadne 5, Archer 2, ElasticZRAM 2.1, MobileSwap II-A). As there:
//! - a page enters at the head of the inactive list, a run in address order;
//! - its second use while inactive activates it; the active list is never reordered;
//! - victims come from the inactive tail. A page used once since it was last looked at goes round
//!   once more and is activated by its next use;
//! - when active pages outnumber inactive ones by more than sqrt(10 x GiB), 32 from the active tail
//!   become inactive;
//! - a page that leaves is stamped with an age that counts evictions and activations. When it is
//!   demanded back and the age has grown by no more than the active list is long, it becomes active
//!   at once, otherwise inactive. (The kernel judges pages that were read ahead too; here they enter
//!   inactive, as nobody has asked for them.)
//! - a victim that could not leave becomes active (`shrink_folio_list`, `activate_locked`): what is
//!   pinned would else be at the tail again and again where the inactive list is short;
//! - the pages of the app in front are spared (set aside in order) until the demand is urgent or
//!   nothing else is left (Ariadne 4.2 describes this option of Android's kernel).
//!
//! *Swappiness.* The larger it is, the more aggressively memory is swapped (ElasticZRAM 2.2.2): of what is wanted
//! a round takes this part, per cent; what is urgent is taken in any case.
//!
//! Anonymous pages only: for pages of files there is [`super::files_first`]. A fault tells nothing here, the
//! `PageIn` that goes with it does.
//!
//! Invariants: a resident page that was told of is on exactly one list unless it was handed out;
//! what is spared counts as inactive; every step takes constant time, amortised over uses (one lap
//! a use, one setting aside a page and change of the foreground). Memory: see
//! [`super::page_lists`], 9.5 bytes a page, resident or stored, where neighbours are known too.

use clew_core::{
    AccessKind, AppId, Classes, Demand, Event, Hotness, Metric, Observe, PageId, PageRun, Reclaim,
    Unit, Verdict, Victim, View, Whole,
};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

use super::page_lists::{Flag, ListId, PageLists, Slot};

const INACTIVE: ListId = ListId(0);
const ACTIVE: ListId = ListId(1);
/// Inactive pages of the app in front that reached the tail.
const SPARED: ListId = ListId(2);

/// The page counts as active.
const IS_ACTIVE: Flag = Flag::A;
/// Used since it was last looked at at the inactive tail, or since it entered.
const YOUNG: Flag = Flag::B;
/// It has gone round the inactive list once for a use.
const REFERENCED: Flag = Flag::C;

/// Pages looked at before the balance is looked at again (the kernel's SWAP_CLUSTER_MAX).
const BATCH_PAGES: u32 = 32;

/// The policy. See the module.
#[derive(Default)]
pub struct Lru {
    swappiness: Whole<0, 200, 100>,
    lists: PageLists,
    active: u64,
    /// Spared pages included.
    inactive: u64,
    /// Evictions and activations so far.
    age: u64,
    /// The foreground app that the spared pages belong to.
    spared_for: Vec<AppId>,
    counted: Counted,
}

#[derive(Default)]
struct Counted {
    activated: u64,
    deactivated: u64,
    second_laps: u64,
    spared: u64,
    picked: u64,
    refaults_active: u64,
    refaults_inactive: u64,
}

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Of the pages that are wanted so many leave, per cent (the kernel's `vm.swappiness`, which shares
    /// reclaim out to anonymous and file pages, of which only the former are here).
    pub swappiness: Whole<0, 200, 100>,
}

impl Answer<dyn Reclaim> for Params {
    fn about(&self) -> About {
        let shown = match self.swappiness.get() {
            100 => "active/inactive LRU".to_string(),
            other => format!("active/inactive LRU, swappiness {other}"),
        };
        About::of("lru", shown)
    }

    fn build(&self) -> Box<dyn Reclaim> {
        Box::new(Lru { swappiness: self.swappiness, ..Lru::default() })
    }
}

impl Lru {
    /// Empty lists.
    pub fn new() -> Lru {
        Lru::default()
    }

    /// A page that is resident, on no list and was never used.
    pub(super) fn enter(&mut self, page: PageId) {
        let slot = self.lists.slot(page);
        if !self.lists.is_listed(slot) {
            self.lists.push_front(INACTIVE, slot);
            self.inactive += 1;
        }
    }

    /// A page that was picked could not leave.
    fn stayed(&mut self, page: PageId) {
        let slot = self.lists.slot(page);
        if !self.lists.is_listed(slot) {
            self.lists.push_front(ACTIVE, slot);
            self.lists.set_flag(slot, IS_ACTIVE, true);
            self.active += 1;
        }
    }

    fn used(&mut self, page: PageId) {
        let Some(slot) = self.lists.find(page) else {
            return self.enter(page);
        };
        if !self.lists.is_listed(slot) || self.lists.flag(slot, IS_ACTIVE) {
            return;
        }
        if self.lists.flag(slot, YOUNG) || self.lists.flag(slot, REFERENCED) {
            self.lists.clear_flags(slot);
            self.lists.set_flag(slot, IS_ACTIVE, true);
            self.lists.move_to_front(ACTIVE, slot);
            self.inactive -= 1;
            self.active += 1;
            self.age += 1;
            self.counted.activated += 1;
        } else {
            self.lists.set_flag(slot, YOUNG, true);
        }
    }

    fn page_in(&mut self, page: PageId, demand: bool) {
        let stamp = self.lists.find(page).and_then(|slot| self.lists.stamp(slot));
        let Some(stamp) = stamp.filter(|_| demand) else {
            return self.enter(page);
        };
        let distance = (self.age as u32).wrapping_sub(stamp);
        if u64::from(distance) <= self.active {
            let slot = self.lists.slot(page);
            self.lists.push_front(ACTIVE, slot);
            self.lists.set_flag(slot, IS_ACTIVE, true);
            self.active += 1;
            self.age += 1;
            self.counted.refaults_active += 1;
        } else {
            self.enter(page);
            self.counted.refaults_inactive += 1;
        }
    }

    /// Hands out as many pages of `app` as this, those that were not.
    pub(super) fn pick_some_of_app(
        &mut self,
        app: AppId,
        at_most: usize,
        view: &View<'_>,
        out: &mut Vec<Verdict>,
    ) {
        let end = out.len().saturating_add(at_most);
        for space in view.facts.spaces_of(app) {
            for slot in self.lists.listed_of_space(space) {
                if out.len() >= end {
                    return;
                }
                out.push(take(self.lists.page(slot)));
                self.leave(slot);
            }
        }
    }

    fn forget_run(&mut self, run: PageRun) {
        let Lru { lists, active, inactive, .. } = self;
        lists.forget_run(run, |lists, slot| uncount(lists, slot, active, inactive));
    }

    fn moved(&mut self, from: PageRun, to: PageId) {
        let Lru { lists, active, inactive, .. } = self;
        lists.move_run(from, to, |lists, slot| uncount(lists, slot, active, inactive));
    }

    /// Takes a page off its list, stamped as the kernel does at eviction.
    fn leave(&mut self, slot: Slot) {
        uncount(&self.lists, slot, &mut self.active, &mut self.inactive);
        self.lists.set_gone(slot, self.age as u32);
        self.age += 1;
    }

    /// `inactive_is_low` of `mm/vmscan.c`.
    fn inactive_is_low(&self, page_bytes: u32) -> bool {
        let gib = ((self.active + self.inactive) * u64::from(page_bytes)) >> 30;
        let ratio = if gib == 0 { 1 } else { (10 * gib).isqrt() };
        self.inactive * ratio < self.active
    }

    fn deactivate_batch(&mut self) {
        for _ in 0..BATCH_PAGES {
            let Some(slot) = self.lists.tail(ACTIVE) else { return };
            self.lists.clear_flags(slot);
            self.lists.move_to_front(INACTIVE, slot);
            self.active -= 1;
            self.inactive += 1;
            self.counted.deactivated += 1;
        }
    }

    /// Knows a page no more; whether it was on a list (`Some(true)`), or had left.
    pub(super) fn give_away(&mut self, page: PageId) -> Option<bool> {
        let slot = self.lists.find(page)?;
        let listed = self.lists.is_listed(slot);
        if listed {
            uncount(&self.lists, slot, &mut self.active, &mut self.inactive);
        }
        self.lists.forget(slot);
        Some(listed)
    }

    /// A page that was never on these lists has left.
    pub(super) fn has_left(&mut self, page: PageId) {
        let slot = self.lists.slot(page);
        self.lists.set_gone(slot, self.age as u32);
        self.age += 1;
    }

    /// Looks at the page at the tail of `list`: it goes round once more, or leaves.
    fn look_at(&mut self, slot: Slot, list: ListId) -> Option<Verdict> {
        if self.lists.flag(slot, YOUNG) {
            self.lists.set_flag(slot, YOUNG, false);
            self.lists.set_flag(slot, REFERENCED, true);
            self.lists.move_to_front(list, slot);
            self.counted.second_laps += 1;
            return None;
        }
        self.counted.picked += 1;
        let page = self.lists.page(slot);
        self.leave(slot);
        Some(take(page))
    }
}

fn uncount(lists: &PageLists, slot: Slot, active: &mut u64, inactive: &mut u64) {
    *(if lists.flag(slot, IS_ACTIVE) { active } else { inactive }) -= 1;
}

fn take(page: PageId) -> Verdict {
    Verdict::Take(Victim { unit: Unit::Page(page), hotness: None })
}

impl Observe for Lru {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Resident { run } => self.inactive += self.lists.push_run(INACTIVE, run),
            Event::Access { page, kind: AccessKind::Seen, .. } => {
                self.used(page);
            }
            Event::Used { run } => run.pages().for_each(|page| self.used(page)),
            Event::Access { page, kind: AccessKind::Fresh, .. } => {
                self.enter(page);
            }
            Event::PageIn { page, demand, .. } => {
                self.page_in(page, demand);
            }
            Event::Stayed { page } => self.stayed(page),
            Event::Stored { page, .. } => {
                let slot = self.lists.slot(page);
                if self.lists.is_listed(slot) {
                    self.leave(slot);
                } else if self.lists.stamp(slot).is_none() {
                    self.lists.set_gone(slot, self.age as u32);
                    self.age += 1;
                }
            }
            Event::Freed { run } => self.forget_run(run),
            Event::Moved { from, to } => self.moved(from, to),
            Event::SpaceEnd { space } => {
                let Lru { lists, active, inactive, .. } = self;
                lists.forget_space(space, |lists, slot| uncount(lists, slot, active, inactive));
            }
            Event::Exit { app } => {
                let Lru { lists, active, inactive, .. } = self;
                for space in view.facts.spaces_of(app) {
                    lists.forget_space(space, |lists, slot| {
                        uncount(lists, slot, active, inactive);
                    });
                }
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let c = &self.counted;
        [
            ("lru_active_pages", self.active, "pages on the active list"),
            (
                "lru_inactive_pages",
                self.inactive,
                "pages on the inactive list, spared ones included",
            ),
            ("lru_picked_pages", c.picked, "victims handed out"),
            ("lru_activated_pages", c.activated, "inactive pages activated by their second use"),
            ("lru_deactivated_pages", c.deactivated, "active pages made inactive for balance"),
            ("lru_second_lap_pages", c.second_laps, "used pages that passed the inactive tail"),
            ("lru_spared_pages", c.spared, "times a page of the foreground app was set aside"),
            ("lru_refault_active_pages", c.refaults_active, "refaults of the working set"),
            ("lru_refault_inactive_pages", c.refaults_inactive, "refaults beyond the working set"),
            ("lru_tracking_bytes", self.lists.tracking_bytes(), "memory held for tracking pages"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Classes for Lru {
    /// An LRU knows no hot, warm and cold.
    fn class(&self, _page: PageId) -> Option<Hotness> {
        None
    }
}

impl Lru {
    /// As [`Reclaim::pick_victims`]; without `spared` the app in front is spared even if nobody else is
    /// left. How many of the wanted pages were not found.
    pub(super) fn pick(
        &mut self,
        demand: Demand,
        spared: bool,
        view: &View<'_>,
        out: &mut Vec<Verdict>,
    ) -> usize {
        if demand.urgent || self.spared_for != view.facts.fronts {
            self.lists.append(SPARED, INACTIVE);
            self.spared_for.clone_from(&view.facts.fronts);
        }
        let mut wanted = demand.pages;
        let mut until_balance = 0;
        while wanted > 0 {
            if until_balance == 0 || self.lists.is_empty(INACTIVE) {
                if self.lists.is_empty(INACTIVE) || self.inactive_is_low(view.facts.page_bytes) {
                    self.deactivate_batch();
                }
                until_balance = BATCH_PAGES;
            }
            let verdict = if let Some(slot) = self.lists.tail(INACTIVE) {
                until_balance -= 1;
                if !demand.urgent && view.is_foreground(self.lists.page(slot)) {
                    self.lists.move_to_front(SPARED, slot);
                    self.counted.spared += 1;
                    continue;
                }
                self.look_at(slot, INACTIVE)
            } else if let Some(slot) = self.lists.tail(SPARED).filter(|_| spared) {
                self.look_at(slot, SPARED)
            } else {
                break;
            };
            if let Some(verdict) = verdict {
                out.push(verdict);
                wanted -= 1;
            }
        }
        wanted
    }
}

impl Reclaim for Lru {
    fn pick_victims(&mut self, demand: Demand, view: &View<'_>, out: &mut Vec<Verdict>) {
        let scaled = demand.pages * self.swappiness.get() as usize / 100;
        let pages = if demand.urgent { scaled.max(demand.pages) } else { scaled };
        self.pick(Demand { pages, ..demand }, true, view, out);
    }

    fn pick_app(&mut self, app: AppId, view: &View<'_>, out: &mut Vec<Verdict>) {
        self.pick_some_of_app(app, usize::MAX, view, out);
    }
}
