//! Fixed read-ahead: a fault brings the following pages too, as Linux's `vm.page-cluster` does.
//!
//! Linux reads 2^page-cluster neighbouring swap slots around the one demanded. Slots follow the
//! order of swap-out, which follows addresses; here the neighbours are the next `pages` addresses
//! of the same space, whatever was stored next to them.

use clew_core::{Observe, PageId, Prefetch, Trigger, View};

/// The policy. See the module.
pub struct Readahead {
    pages: u32,
}

impl Readahead {
    /// Reads the `pages` pages that follow a fault.
    pub fn new(pages: u32) -> Readahead {
        Readahead { pages }
    }
}

impl Observe for Readahead {}

impl Prefetch for Readahead {
    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let Trigger::Fault(page) = trigger else { return };
        let following = (1..=u64::from(self.pages))
            .map_while(|n| page.raw().checked_add(n).map(PageId::from_raw))
            .take_while(|next| next.space() == page.space());
        out.extend(following.filter(|next| view.pages.tier(*next).is_some()));
    }
}
