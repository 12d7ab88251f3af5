//! What page tables say to the policies.

use std::cell::RefCell;
use std::sync::Arc;

use clew_core::view::PageCounts;
use clew_core::{FrameFacts, PageFacts, PageId, SpaceId, Tier, Vpn};
use clew_store::{Entry as TableEntry, State};

use crate::programs::process::Process;
use crate::programs::shared::Shared;

/// Where pages are, as the page tables say. Most questions in a row are about one space.
pub(super) struct Programs {
    shared: Arc<Shared>,
    last: RefCell<Option<Arc<Process>>>,
}

impl Programs {
    pub(super) fn new(shared: Arc<Shared>) -> Programs {
        Programs { shared, last: RefCell::new(None) }
    }

    pub(super) fn with<T>(&self, space: SpaceId, ask: impl FnOnce(&Process) -> T) -> Option<T> {
        let mut last = self.last.borrow_mut();
        if last.as_ref().is_none_or(|p| p.id != space) {
            *last = self.shared.process(space);
        }
        last.as_deref().map(ask)
    }

    /// Ends what was remembered: processes come and go.
    pub(super) fn look_again(&self) {
        self.last.take();
    }
}

impl PageFacts for Programs {
    fn tier(&self, page: PageId) -> Option<Tier> {
        let entry = self.with(page.space(), |p| p.space.table.load(page.vpn()))?;
        if entry.state() == State::Lent {
            return Some(Tier::Kernel);
        }
        let is_stored = matches!(entry.state(), State::Stored | State::Restoring);
        (is_stored && !entry.has(TableEntry::SAMPLED)).then(|| self.shared.mover.tier_of(entry))
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        let counts = self.with(space, |p| p.space.table.counts());
        let Some(counts) = counts else { return PageCounts::default() };
        let resident = counts.resident + counts.moving + counts.parked;
        let mut result = PageCounts { resident, ..PageCounts::default() };
        let stored = counts.stored + counts.restoring;
        let far = counts.flash + counts.donors;
        result.stored[Tier::Pool.index()] = stored - far.min(stored);
        result.stored[Tier::Flash.index()] = counts.flash;
        result.stored[Tier::DONORS] = counts.donors;
        result.stored[Tier::Kernel.index()] = counts.lent;
        result
    }

    fn may_have_copy(&self, page: PageId) -> bool {
        let entry = self.with(page.space(), |p| p.space.table.load(page.vpn()));
        entry.is_some_and(|entry| {
            let is_in = matches!(entry.state(), State::Resident | State::Moving);
            is_in && entry.handle().is_some()
        })
    }

    fn frame(&self, page: PageId) -> Option<FrameFacts> {
        let entry = self.with(page.space(), |p| p.space.table.load(page.vpn()))?;
        self.shared.mover.store.frame(entry.handle().filter(|_| entry.state() == State::Stored)?)
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let Some(process) = self.shared.process(space) else { return };
        process.space.table.for_range(Vpn(0), u64::MAX >> 20, |vpn, entry| {
            let page = PageId::new(space, vpn);
            match entry.state() {
                State::Resident => visit(page, None),
                State::Stored if entry.has(TableEntry::SAMPLED) => visit(page, None),
                State::Stored => visit(page, Some(self.shared.mover.tier_of(entry))),
                State::Lent => visit(page, Some(Tier::Kernel)),
                State::Absent | State::Moving | State::Restoring | State::Parked => {}
            }
        });
    }
}
