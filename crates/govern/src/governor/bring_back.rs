//! Bringing pages back before they are asked for: MADV_WILLNEED has the kernel read them from swap, so that a
//! touch of them is no major fault any more.
//!
//! What was read so is in memory and in no page table: when it is there, its program has touched it. So what is
//! brought is a sensor besides. What is not touched for [`PATIENCE`] leaves again, for it would lie in the kernel's swap
//! cache, where no advice reaches it, until the kernel needs the memory.

use std::time::{Duration, Instant};

use clew_core::{AccessKind, AppId, Event, PageId, PageRun, SpaceId, Tier};
use clew_live::programs::pagemap::PageIs;

use crate::governor::Governor;
use crate::pages::Where;

/// From the kernel's headers.
const MADV_WILLNEED: i32 = 3;
/// How long what was brought may wait for its use.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pages that were brought, and when.
pub struct Brought {
    when: Instant,
    space: SpaceId,
    pages: Vec<PageId>,
}

impl Brought {
    pub(crate) fn is_not_of(&self, space: SpaceId) -> bool {
        self.space != space
    }
}

impl Governor {
    /// Has the kernel read these pages of a space.
    pub(super) fn bring_back(&mut self, space: SpaceId, pages: &[PageId], number: u64) {
        self.hear();
        let wanted: Vec<PageId> =
            pages.iter().copied().filter(|page| self.pages.get(*page) == Where::Out).collect();
        let advised = self.programs.get(&space).map(|program| {
            program.advise(&wanted, self.page_bytes, MADV_WILLNEED).map_err(|error| {
                tracing::debug!(pid = program.name.pid, "advice to read pages: {error}");
            })
        });
        let Some(Ok(_)) = advised else { return self.driver.carried_out(number, 0) };
        for page in &wanted {
            self.pages.set(*page, Where::Brought);
        }
        for page in &wanted {
            let event = Event::PageIn { page: *page, tier: Tier::Pool, demand: false };
            self.driver.tell(self.now, &event, &self.pages);
        }
        self.counts.brought += wanted.len() as u64;
        self.driver.carried_out(number, wanted.len());
        if !wanted.is_empty() {
            self.brought.push_back(Brought { when: Instant::now(), space, pages: wanted });
        }
    }

    /// Tells of what was brought and touched since; what was not touched for too long leaves again.
    pub(super) fn settle_brought(&mut self) {
        while let Some(first) = self.brought.front()
            && first.when.elapsed() >= PATIENCE
            && let Some(batch) = self.brought.pop_front()
        {
            let left = self.touched(batch.space, batch.pages);
            self.counts.expired += left.len() as u64;
            self.send_out(batch.space, &left, true);
        }
    }

    /// Tells of what was brought and touched so far of an app: what it uses belongs to the relaunch that is going on.
    /// The rest that relaunch did not use.
    pub(super) fn look_what_was_used(&mut self, app: AppId) {
        let is_of_app = |space: &SpaceId| self.driver.facts().app_of(*space) == Some(app);
        let (of_app, others): (Vec<Brought>, Vec<Brought>) =
            std::mem::take(&mut self.brought).into_iter().partition(|b| is_of_app(&b.space));
        self.brought = others.into();
        for mut batch in of_app {
            batch.pages = self.touched(batch.space, batch.pages);
            for run in batch.pages.chunk_by(|a, b| a.raw() + 1 == b.raw()) {
                let run = PageRun { first: run[0], count: run.len() as u32 };
                self.driver.tell(self.now, &Event::Unused { run }, &self.pages);
            }
            self.brought.push_back(batch);
        }
        self.brought.make_contiguous().sort_by_key(|batch| batch.when);
    }

    /// Tells of those that were touched; those that were not.
    fn touched(&mut self, space: SpaceId, mut pages: Vec<PageId>) -> Vec<PageId> {
        pages.retain(|page| self.pages.get(*page) == Where::Brought);
        let Some(program) = self.programs.get(&space) else { return Vec::new() };
        let states = program.states(&pages);
        let mut left = Vec::new();
        for (page, is) in pages.into_iter().zip(states) {
            match is {
                PageIs::Present => self.brought_was_used(page),
                PageIs::Swapped => left.push(page),
                PageIs::Nothing => {
                    self.pages.set(page, Where::Nowhere);
                    let run = PageRun { first: page, count: 1 };
                    self.driver.tell(self.now, &Event::Freed { run }, &self.pages);
                }
            }
        }
        left
    }

    /// A page that was brought was touched.
    pub(super) fn brought_was_used(&mut self, page: PageId) {
        self.pages.set(page, Where::Resident);
        self.counts.used += 1;
        let seen = Event::Access { page, kind: AccessKind::Seen, write: false };
        self.driver.tell(self.now, &seen, &self.pages);
        self.driver.tell(self.now, &Event::PrefetchUsed { page }, &self.pages);
    }

    /// Memory of what was brought and is in no program yet, bytes.
    pub(super) fn brought_bytes(&self) -> u64 {
        let pages: usize = self.brought.iter().map(|batch| batch.pages.len()).sum();
        pages as u64 * self.page_bytes
    }
}
