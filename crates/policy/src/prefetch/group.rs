//! What was compressed together comes back together, and waits for its use.
//!
//! Source: Archer 4.4: the other pages of a block "are maintained in the swap cache". That they come along
//! with the page that is demanded is what their block says
//! ([`park_siblings`](clew_core::Group::park_siblings)); how many of them wait at once, and that their
//! stored copies stay meanwhile, is said here. The oldest is pushed out first, and is stored as it was.
//! The paper has no bound but memory.

use clew_core::{Arrival, Event, Metric, Observe, PageId, Prefetch, Trigger, View, Whole};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Pages that wait at once.
    pub buffer_pages: Whole<1, { 1 << 20 }, 1024>,
}

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        let shown = "the group, parked";
        About { at_fault: true, ..About::of("group", shown) }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(WithGroup { params: *self, came: 0, used: 0, expired: 0 })
    }
}

/// The policy. See the module.
pub struct WithGroup {
    params: Params,
    came: u64,
    used: u64,
    expired: u64,
}

impl Observe for WithGroup {
    fn on_event(&mut self, event: &Event, _view: &View<'_>) {
        match event {
            Event::PageIn { demand: false, .. } => self.came += 1,
            Event::PrefetchUsed { .. } => self.used += 1,
            Event::PrefetchExpired { .. } => self.expired += 1,
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        [
            ("group_came_pages", self.came, "pages that came with one that was demanded"),
            ("group_used_pages", self.used, "of these, used while they waited"),
            ("group_expired_pages", self.expired, "of these, pushed out unused"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Prefetch for WithGroup {
    fn arrival(&self) -> Arrival {
        Arrival::Parked { pages: self.params.buffer_pages.get() as usize, keep: true }
    }

    /// Nothing beside what comes along.
    fn pick_prefetch(&mut self, _trigger: Trigger, _view: &View<'_>, _out: &mut Vec<PageId>) {}
}
