//! Pages that could not leave: some are in use, some never can (what is mapped read-only, what is
//! pinned). They are offered to the policies again after a while: at once, they would be the first to
//! be picked, and policies and workers had nothing else to do.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{AppId, Event, Ns, PageFacts, PageId, PageRun, SpaceId, Vpn};

use super::Driver;

/// For how long they are on no list.
const PAUSE: Ns = Ns::from_ms(1000);

/// Pages of commands that stayed where they were; the policies still wait for them.
#[derive(Default)]
pub(super) struct StayedPages {
    /// When each may be offered again.
    pages: BTreeMap<PageId, Ns>,
    /// The same, the first to be offered first.
    due: BTreeSet<(Ns, PageId)>,
}

impl StayedPages {
    fn insert(&mut self, page: PageId, due: Ns) {
        if let Some(before) = self.pages.insert(page, due) {
            self.due.remove(&(before, page));
        }
        self.due.insert((due, page));
    }

    /// Those of `run` wait no longer; which these were, and what they waited for.
    fn remove(&mut self, run: PageRun) -> Vec<(PageId, Ns)> {
        if self.pages.is_empty() {
            return Vec::new();
        }
        let removed: Vec<(PageId, Ns)> =
            self.pages.range(run.range()).map(|(page, due)| (*page, *due)).collect();
        for (page, due) in &removed {
            self.pages.remove(page);
            self.due.remove(&(*due, *page));
        }
        removed
    }

    fn moved(&mut self, from: PageRun, to: PageId) {
        let moved = self.remove(from);
        // What was there is gone.
        self.remove(PageRun { first: to, ..from });
        for (page, due) in moved {
            let vpn = Vpn(page.vpn().0 - from.first.vpn().0 + to.vpn().0);
            self.insert(PageId::new(to.space(), vpn), due);
        }
    }

    fn end(&mut self, space: SpaceId) {
        self.pages.retain(|page, _| page.space() != space);
        self.due.retain(|(_, page)| page.space() != space);
    }

    /// The next one that may be offered at `now`.
    fn pop(&mut self, now: Ns) -> Option<PageId> {
        let first = *self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.remove(&first);
        self.pages.remove(&first.1);
        Some(first.1)
    }
}

impl Driver {
    /// A page of a command could not leave. The policies hear of it after a while, or when they are
    /// asked for all that can leave, or take stock.
    pub fn stayed(&mut self, now: Ns, page: PageId) {
        self.stayed.insert(page, Ns(now.0 + PAUSE.0));
    }

    /// The same, for one that could leave at any time.
    pub(super) fn stayed_for_now(&mut self, page: PageId) {
        self.stayed.insert(page, Ns(0));
    }

    /// Offers those that were left alone for a while.
    pub(super) fn offer_stayed(&mut self, pages: &dyn PageFacts) {
        self.offer_stayed_until(self.now, pages);
    }

    /// Offers all: somebody asks for what can leave, or takes stock.
    pub(super) fn offer_all_stayed(&mut self, pages: &dyn PageFacts) {
        self.offer_stayed_until(Ns(u64::MAX), pages);
    }

    fn offer_stayed_until(&mut self, until: Ns, pages: &dyn PageFacts) {
        while let Some(page) = self.stayed.pop(until) {
            // What was stored since was told when it was.
            if pages.tier(page).is_none() {
                self.tell(self.now, &Event::Stayed { page }, pages);
            }
        }
    }

    /// What an event means for those that wait.
    pub(super) fn follow_stayed(&mut self, event: &Event, pages: &dyn PageFacts) {
        match *event {
            Event::Freed { run } => drop(self.stayed.remove(run)),
            Event::Moved { from, to } => self.stayed.moved(from, to),
            Event::SpaceEnd { space } => self.stayed.end(space),
            // Policies take stock of what is out.
            Event::Launch { .. }
            | Event::Relaunch { .. }
            | Event::ResponseComplete { .. }
            | Event::Background { .. } => self.offer_all_stayed(pages),
            _ => {}
        }
    }

    // ---- what is never picked --------------------------------------------------------------------

    /// From now on, of this space policies know no resident page, so none is picked, and `app` is not
    /// ended because memory is short.
    pub fn protect(&mut self, space: SpaceId, app: AppId) {
        self.protected.insert(space);
        self.spare(app);
    }

    /// Whether nothing of it is picked.
    pub fn is_protected(&self, space: SpaceId) -> bool {
        self.protected.contains(&space)
    }

    /// Resident pages of a protected space can be picked after all: its user asked.
    pub fn offer(&mut self, now: Ns, run: PageRun, pages: &dyn PageFacts) {
        self.put_event(now, &Event::Resident { run }, pages);
        self.attend();
    }

    /// Whether policies are not told of it.
    pub(super) fn hides(&self, event: &Event) -> bool {
        let space = match event {
            Event::Resident { run } => run.first.space(),
            Event::Access { page, .. } | Event::PageIn { page, .. } | Event::Stayed { page } => {
                page.space()
            }
            _ => return false,
        };
        !self.protected.is_empty() && self.protected.contains(&space)
    }
}
