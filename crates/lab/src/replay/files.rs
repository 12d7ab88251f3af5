//! Clean pages of files, for schemes that take them out of DRAM (ezswap III-A).
//!
//! A page of a space of files is in DRAM, in the pool, or nowhere but in its file, where nothing is known of it: it is
//! absent. What is dropped becomes absent and costs nothing; what is absent is read from its file when it is used,
//! the first time too, at the cost of flash. The kernel reads neighbours with one request: of pages that are read one
//! behind the other only the first waits for the device to begin. Where a page between them came from the pool, the
//! rest is another request ("new read requests to read the non-existing parts").
//!
//! A page of a file that is written is taken to be written to its file at once, for nothing: no trace has any.

use clew_core::{AccessKind, Event, Group, PageId, PageRun, Tier};
use clew_store::State;

use super::Replay;
use crate::costs::{Costs, Spent};
use crate::error::LabError;
use crate::mechanism::Mechanism;

/// What a replay keeps of files.
#[derive(Default)]
pub(super) struct Files {
    /// The page that was read last.
    last: Option<PageId>,
    /// Pages read from their files.
    pub read_pages: u64,
    /// Pages of files that left DRAM for the pool.
    pub to_pool_pages: u64,
    /// Pages of files that were dropped, from DRAM and from the pool.
    pub dropped_pages: u64,
    pub dropped_from_pool_pages: u64,
}

impl Files {
    /// For results.
    pub fn counts(&self) -> clew_report::Files {
        clew_report::Files {
            read_pages: self.read_pages,
            to_pool_pages: self.to_pool_pages,
            dropped_pages: self.dropped_pages,
            dropped_from_pool_pages: self.dropped_from_pool_pages,
        }
    }

    /// What reading a page from its file takes.
    fn read(&mut self, page: PageId, costs: &Costs, page_bytes: u64) -> Result<Spent, LabError> {
        let flash = costs.flash()?;
        let mut spent = flash.read(page_bytes);
        if self.last.is_some_and(|last| last.raw() + 1 == page.raw()) {
            spent.device_ns -= flash.read_ns;
        }
        self.last = Some(page);
        self.read_pages += 1;
        spent.kernel_ns = costs.fault_ns;
        spent.wait_ns = spent.kernel_ns + spent.device_ns;
        Ok(spent)
    }
}

impl<M: Mechanism> Replay<'_, M> {
    /// Whether a page that is touched has to be read from its file.
    #[inline]
    pub(super) fn is_in_file(&self, page: PageId) -> bool {
        self.takes_files
            && self.spaces.is_file(page.space())
            && self.mechanism.state(page) == State::Absent
    }

    /// A page was read from its file, which the mechanism took for a first touch.
    pub(super) fn read_from_file(
        &mut self,
        page: PageId,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        events.retain(|event| !matches!(event, Event::Resident { .. }));
        for event in events.iter_mut() {
            if let Event::Access { kind, .. } = event {
                *kind = AccessKind::Fault;
            }
        }
        events.push(Event::PageIn { page, tier: Tier::Flash, demand: true });
        self.files.read(page, &self.costs, self.driver.budget().page_bytes)
    }

    /// Drops pages of files, wherever they are; true if that freed memory.
    pub(super) fn drop_pages(&mut self, groups: &[Group]) -> bool {
        let mut dropped = false;
        for page in groups.iter().flat_map(|group| group.pages.iter().copied()) {
            let state = self.mechanism.state(page);
            if !matches!(state, State::Resident | State::Stored) {
                continue;
            }
            match state {
                State::Stored => self.files.dropped_from_pool_pages += 1,
                _ => self.files.dropped_pages += 1,
            }
            self.mechanism.free(PageRun { first: page, count: 1 });
            self.tell(&Event::Stored { page, tier: Tier::Flash, bytes: 0 });
            dropped = true;
        }
        dropped
    }
}
