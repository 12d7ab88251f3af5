//! What comes back before it is asked for: what the scheme expects to be used in a relaunch, or after
//! a fault, as far as there is room. What finds none stays where it is, unless the app in front must have it
//! ([`clew_core::Prefetch::brings_all`]): that is owed, and comes when there is room, which reclaim makes.

use clew_core::{AppId, Arrival, Event, PageFacts, PageId, Tier, Trigger};

use super::{Answer, Call, Command, Driver};
use crate::budget::{RECLAIM_PAGES, Use};
use crate::decide::Engine;

/// Pages that one command brings back at most: what is wanted first is not held up by the rest.
const RESTORE_PAGES: usize = 512;

/// Counts of what came back early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyCounts {
    /// Pages that were to come back.
    pub asked_pages: u64,
    /// Pages that did.
    pub came_pages: u64,
    /// Pages on their way.
    pub coming_pages: u64,
}

#[derive(Default)]
pub(super) struct Early {
    /// In the order wanted, and whether each is to be parked.
    wanted: Vec<(PageId, bool)>,
    /// The app in front, and what it must have, as well.
    owed: Option<(AppId, Vec<(PageId, bool)>)>,
    asked_pages: u64,
    came_pages: u64,
}

impl Early {
    /// So many pages are back.
    pub fn came(&mut self, pages: usize) {
        self.came_pages += pages as u64;
    }

    /// Room that is wanted for what is owed: as much as one round of reclaim makes.
    pub fn owed_bytes(&self, page_bytes: u64) -> u64 {
        let pages = self.owed.as_ref().map_or(0, |(_, owed)| owed.len());
        pages.min(RECLAIM_PAGES) as u64 * page_bytes
    }

    /// Nothing is owed to an app that is not in front any more.
    pub fn follow(&mut self, event: &Event) {
        let ends = match event {
            Event::Launch { .. } | Event::Relaunch { .. } => true,
            Event::Background { app } | Event::Exit { app } => {
                self.owed.as_ref().is_some_and(|(to, _)| to == app)
            }
            _ => false,
        };
        if ends {
            self.owed = None;
        }
    }
}

impl Driver {
    /// Asks the scheme what should come back now; [`Driver::bring_wanted`] follows. What a relaunch
    /// wants becomes resident.
    pub fn want_early(&mut self, trigger: Trigger, pages: &dyn PageFacts) {
        let is_relaunch = matches!(trigger, Trigger::Relaunch(_));
        let park = !is_relaunch && self.engine.arrival() != Arrival::Resident;
        let picked = self.pick_early(trigger, pages);
        self.early.wanted.extend(picked.into_iter().map(|page| (page, park)));
        if let Trigger::Relaunch(app) = trigger
            && self.engine.brings_all()
        {
            self.early.owed = Some((app, Vec::new()));
        }
    }

    /// What is wanted comes back, as far as there is room when so much is used: piece by piece in the
    /// order wanted, each piece by address.
    pub fn bring_wanted(&mut self, used: Use, pages: &dyn PageFacts) {
        let mut wanted = std::mem::take(&mut self.early.wanted);
        if let Some((_, owed)) = &mut self.early.owed {
            wanted.append(owed);
        }
        if wanted.is_empty() {
            return;
        }
        // What is lent comes back by itself.
        wanted.retain(|(page, _)| pages.tier(*page).is_some_and(|tier| tier != Tier::Kernel));
        let coming_bytes = self.under_way.back_pages() as u64 * self.budget.page_bytes;
        let fit = self.early_pages(Use {
            used_bytes: used.used_bytes + coming_bytes,
            resident_bytes: used.resident_bytes + coming_bytes,
            ..used
        });
        let rest = wanted.split_off(fit.min(wanted.len()));
        if let Some((_, owed)) = &mut self.early.owed {
            *owed = rest;
        }
        self.early.asked_pages += wanted.len() as u64;
        for alike in wanted.chunk_by_mut(|a, b| a.1 == b.1) {
            for piece in alike.chunks_mut(RESTORE_PAGES) {
                piece.sort_unstable();
                for of_space in piece.chunk_by(|a, b| a.0.space() == b.0.space()) {
                    self.restore(of_space);
                }
            }
        }
    }

    /// `wanted` is of one space, ascending.
    fn restore(&mut self, wanted: &[(PageId, bool)]) {
        let (first, park) = wanted[0];
        let mut pages: Vec<PageId> = wanted.iter().map(|(page, _)| *page).collect();
        pages.dedup();
        let number = self.under_way.begin_back(pages.len());
        self.commands.push_back(Command::Restore { space: first.space(), pages, park, number });
    }

    /// What came back early so far.
    pub fn early(&self) -> EarlyCounts {
        let Early { asked_pages, came_pages, .. } = self.early;
        EarlyCounts { asked_pages, came_pages, coming_pages: self.under_way.back_pages() as u64 }
    }

    /// Stored pages worth restoring now, in the order wanted, each once.
    pub(crate) fn pick_early(&mut self, trigger: Trigger, pages: &dyn PageFacts) -> Vec<PageId> {
        let ask = |engine: &mut Engine, pages: &dyn PageFacts| {
            let mut picked = Vec::new();
            engine.plan_prefetch(trigger, pages, &mut picked);
            picked
        };
        self.ask(|| Call::Prefetch(trigger), pages, ask, |picked| Answer::Pages(picked))
    }

    /// How many pages may come back early when so much is used, what is on its way back included.
    pub(crate) fn early_pages(&mut self, used: Use) -> usize {
        let budget = self.budget;
        let pages = budget.early_pages(used);
        self.note(|| Call::EarlyPages(budget, used), Answer::Count(pages));
        pages
    }
}
