//! Victims that wait for a fuller group, and those that do not leave after all.

use std::collections::BTreeSet;

use clew_core::{Event, PageFacts, PageId, PageRun, SpaceId, Unit};

use super::Engine;

impl Engine {
    /// Victims that do not leave after all.
    pub(super) fn hand_back(&mut self, stay: Vec<PageId>, pages: &dyn PageFacts) {
        self.counted.handed_back_pages += stay.len() as u64;
        for page in stay {
            // What was to go from one tier to another stays in that.
            let event = match pages.tier(page) {
                Some(tier) => Event::Stored { page, tier, bytes: 0 },
                None => Event::Stayed { page },
            };
            self.tell_policies(&event, pages);
        }
    }

    /// What waits and ends stops waiting; what waits and is used, moved or comes to the front with
    /// its app stays resident.
    pub(super) fn look_after_waiting(&mut self, event: &Event, pages: &dyn PageFacts) {
        if self.waiting.is_empty() {
            return;
        }
        match *event {
            Event::Access { page, .. } if self.waiting_pages.contains(&page) => {
                self.hand_back_waiting(|waiting| waiting == page, pages);
            }
            Event::Stored { page, .. } if self.waiting_pages.contains(&page) => {
                self.remove_waiting(|waiting| waiting == page);
            }
            // Reclaim lists what it is told is resident.
            Event::Freed { run } | Event::Resident { run }
                if self.waiting_pages.range(run.range()).next().is_some() =>
            {
                self.remove_waiting(|page| run.contains(page));
            }
            Event::Moved { from, to } => {
                self.hand_back_waiting(|page| from.contains(page), pages);
                let over = PageRun { first: to, ..from };
                self.remove_waiting(|page| over.contains(page));
            }
            Event::SpaceEnd { space } | Event::SpaceStart { space, .. } => {
                self.remove_waiting(|page| page.space() == space);
            }
            Event::Exit { app } => {
                let spaces: BTreeSet<SpaceId> = self.known.facts.spaces_of(app).collect();
                self.remove_waiting(|page| spaces.contains(&page.space()));
            }
            Event::Launch { app } | Event::Relaunch { app } => {
                let spaces: BTreeSet<SpaceId> = self.known.facts.spaces_of(app).collect();
                self.hand_back_waiting(|page| spaces.contains(&page.space()), pages);
            }
            _ => {}
        }
    }

    /// Takes pages out of what waits; a victim of several pages keeps the others.
    pub(super) fn remove_waiting(&mut self, which: impl Fn(PageId) -> bool) -> Vec<PageId> {
        let removed: Vec<PageId> =
            self.waiting_pages.iter().copied().filter(|page| which(*page)).collect();
        if !removed.is_empty() {
            self.waiting_pages.retain(|page| !which(*page));
            self.waiting.retain_mut(|victim| match &mut victim.unit {
                Unit::Page(page) => !which(*page),
                Unit::Pages(pages) => {
                    pages.retain(|page| !which(*page));
                    !pages.is_empty()
                }
                Unit::App(_) => true,
            });
        }
        removed
    }

    pub(super) fn hand_back_waiting(
        &mut self,
        which: impl Fn(PageId) -> bool,
        pages: &dyn PageFacts,
    ) {
        let back = self.remove_waiting(which);
        self.hand_back(back, pages);
    }
}
