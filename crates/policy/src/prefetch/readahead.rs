//! Fixed read-ahead: a fault brings the following pages too, as Linux's `vm.page-cluster` does.
//!
//! Linux reads 2^page-cluster neighbouring swap slots around the one demanded. Slots follow the
//! order of swap-out, which follows addresses; here the neighbours are the next `pages` addresses
//! of the same space, whatever was stored next to them.

use clew_core::{Observe, PageId, Prefetch, Trigger, View, Whole};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

/// The policy. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Readahead {
    /// Pages that follow a fault.
    pub pages: Whole<1, 512, 8>,
}

impl Answer<dyn Prefetch> for Readahead {
    fn about(&self) -> About {
        let shown = match self.pages.get() {
            1 => "the page after a fault".to_string(),
            pages => format!("the {pages} pages after a fault"),
        };
        About { at_fault: true, ..About::of("readahead", shown) }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(*self)
    }
}

impl Observe for Readahead {}

impl Prefetch for Readahead {
    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let Trigger::Fault(page) = trigger else { return };
        let following = (1..=u64::from(self.pages.get()))
            .map_while(|n| page.raw().checked_add(n).map(PageId::from_raw))
            .take_while(|next| next.space() == page.space());
        out.extend(following.filter(|next| view.pages.tier(*next).is_some()));
    }
}
