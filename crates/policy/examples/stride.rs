//! Faults at equal distances bring what lies at the next ones: a stride prefetcher.
//!
//! Source: Fu, Patel, Janssens, "Stride directed prefetching in scalar processors" (MICRO 1992), with
//! pages for cache lines and address spaces for instructions.

use std::collections::HashMap;

use clew_core::{Event, Observe, PageId, Prefetch, SpaceId, Trigger, View, Whole};
use clew_policy::schemes::{About, Answer, Registry};
use serde::{Deserialize, Serialize};

/// For each space the page of its last fault, and how far apart its faults are.
struct Stride {
    ahead: u64,
    last: HashMap<SpaceId, (u64, u64)>,
}

impl Observe for Stride {
    fn on_event(&mut self, event: &Event, _view: &View<'_>) {
        if let Event::SpaceStart { space, .. } | Event::SpaceEnd { space } = event {
            self.last.remove(space);
        }
    }
}

impl Prefetch for Stride {
    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let Trigger::Fault(page) = trigger else { return };
        let (before, stride) = self.last.get(&page.space()).copied().unwrap_or_default();
        let now = page.raw().wrapping_sub(before);
        // What was brought does not fault: the next fault lies behind it.
        let goes_on = now == stride || now == stride.wrapping_mul(self.ahead + 1);
        let stride = if goes_on { stride } else { now };
        self.last.insert(page.space(), (page.raw(), stride));
        for n in 1..=if goes_on { self.ahead } else { 0 } {
            let next = PageId::from_raw(page.raw().wrapping_add(stride.wrapping_mul(n)));
            if next.space() == page.space() && view.pages.tier(next).is_some() {
                out.push(next);
            }
        }
    }
}

/// What a scheme may say of it: `prefetch = { kind = "stride", ahead = 8 }`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// How many strides ahead pages are brought: from 1 to 64, 4 where nothing is said.
    ahead: Whole<1, 64, 4>,
}

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        let shown = format!("{} strides ahead", self.ahead.get());
        About { at_fault: true, ..About::of("stride", shown) }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(Stride { ahead: self.ahead.get().into(), last: HashMap::new() })
    }
}

/// The kinds that Clew has, and this one.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.prefetch = registry.prefetch.with::<Params>();
    registry
}

fn main() {
    clew_conformance::prefetch(|| Params::default().build()).expect("it keeps the rules");
}
