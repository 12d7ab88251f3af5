//! Taking pages out: MADV_PAGEOUT has the kernel swap them, as if it had chosen them itself.

use clew_core::{Event, Group, PageId, PageRun, SpaceId, Tier};
use clew_live::programs::pagemap::PageIs;

use crate::governor::Governor;
use crate::pages::Where;

/// From the kernel's headers.
const MADV_PAGEOUT: i32 = 21;

impl Governor {
    /// Has the kernel take out these pages of a space; true if some left. Each is told of as it is then: some stay,
    /// because they are shared with a forked child, pinned or locked, or because swap is full.
    pub(super) fn page_out(&mut self, space: SpaceId, groups: &[Group], number: u64) -> bool {
        // A fault of before must not be taken for one of after.
        self.hear();
        let mut pages: Vec<PageId> =
            groups.iter().flat_map(|group| group.pages.iter().copied()).collect();
        pages.sort_unstable();
        pages.dedup();
        let left = self.send_out(space, &pages, false);
        self.counts.paged_out += left;
        self.driver.carried_out(number, 0);
        left > 0
    }

    /// Takes out `pages` (ascending, each once); how many left. `expired`: they had been brought back early, and were
    /// not used.
    pub(super) fn send_out(&mut self, space: SpaceId, pages: &[PageId], expired: bool) -> u64 {
        let bytes = self.stored_page_bytes();
        let Some(program) = self.programs.get_mut(&space) else {
            // It has ended, which was told.
            return 0;
        };
        program.stir();
        for page in pages {
            let before = self.pages.set(*page, Where::Leaving);
            // What was only read ahead is in no page table yet, where advice would not find it.
            if before == Where::Brought || expired {
                program.touch(*page, self.page_bytes);
            }
        }
        if let Err(error) = program.advise(pages, self.page_bytes, MADV_PAGEOUT) {
            tracing::debug!(pid = program.name.pid, "advice to take pages out: {error}");
        }
        let mut left = 0;
        for (page, is) in pages.iter().zip(program.states(pages)) {
            let page = *page;
            match is {
                PageIs::Swapped => {
                    left += 1;
                    self.pages.set(page, Where::Out);
                    if expired {
                        self.driver.tell(self.now, &Event::PrefetchExpired { page }, &self.pages);
                    }
                    let stored = Event::Stored { page, tier: Tier::Pool, bytes };
                    self.driver.tell(self.now, &stored, &self.pages);
                }
                PageIs::Present => {
                    self.pages.set(page, Where::Resident);
                    if !expired {
                        self.driver.stayed(self.now, page);
                    }
                }
                PageIs::Nothing => {
                    self.pages.set(page, Where::Nowhere);
                    let run = PageRun { first: page, count: 1 };
                    self.driver.tell(self.now, &Event::Freed { run }, &self.pages);
                }
            }
        }
        left
    }
}
