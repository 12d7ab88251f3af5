//! What was answered to leave the pool: it is not answered again while the order may be under way, nor at
//! once if it stayed there.
//!
//! A page that was answered may be answered again when something is told of it (it moved, came back, or is
//! gone). One that was told to be in the pool after all (nothing is gained by moving it, or there was no room
//! for it just then) is not answered again before it has come back or is gone, or ten seconds have passed.

use std::collections::HashSet;

use clew_core::{Event, Ns, PageId, SpaceId, Tier, View};

/// So long what stayed in the pool is not answered again, at most.
const REFUSED_FOR: Ns = Ns(10_000_000_000);

/// Pages that were answered.
#[derive(Default)]
pub(super) struct Answered {
    under_way: HashSet<PageId>,
    /// Answered, and still in the pool.
    refused: HashSet<PageId>,
    /// When those that are refused were forgotten last.
    forgotten: Ns,
}

impl Answered {
    /// Something happened.
    pub fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Stored { page, tier, .. } => {
                let answered = self.under_way.remove(&page);
                if answered && tier == Tier::Pool {
                    self.refused.insert(page);
                }
            }
            Event::PageIn { page, .. } | Event::Stayed { page } => {
                self.under_way.remove(&page);
                self.refused.remove(&page);
            }
            Event::Freed { run } | Event::Moved { from: run, .. } => {
                self.retain(|page| !run.contains(page));
            }
            Event::SpaceEnd { space } => self.forget_spaces(|of| of == space),
            Event::Exit { app } => {
                self.forget_spaces(|of| view.facts.app_of(of).is_none_or(|owner| owner == app));
            }
            _ => {}
        }
    }

    fn retain(&mut self, keep: impl Fn(PageId) -> bool) {
        for pages in [&mut self.under_way, &mut self.refused] {
            pages.retain(|page| keep(*page));
        }
    }

    fn forget_spaces(&mut self, ended: impl Fn(SpaceId) -> bool) {
        self.retain(|page| !ended(page.space()));
    }

    /// The question is asked: what was refused long ago may be tried again.
    pub fn asked(&mut self, now: Ns) {
        if now.0.saturating_sub(self.forgotten.0) >= REFUSED_FOR.0 {
            self.refused.clear();
            self.forgotten = now;
        }
    }

    /// Whether `page` may be answered; then it is.
    pub fn answer(&mut self, page: PageId) -> bool {
        !self.refused.contains(&page) && self.under_way.insert(page)
    }
}
