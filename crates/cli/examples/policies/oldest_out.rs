//! Evicts what has been in the pool for longest.

use std::collections::VecDeque;

use clew_core::{Event, Eviction, Observe, PageId, Tier, Unit, View};
use clew_policy::plain;
use clew_policy::schemes::About;

#[derive(Default)]
struct OldestOut(VecDeque<PageId>);

plain!(OldestOut as dyn Eviction, About::of("oldest-out", "the oldest first"));

impl Observe for OldestOut {
    fn on_event(&mut self, event: &Event, _: &View<'_>) {
        if let Event::Stored { page, tier: Tier::Pool, .. } = event {
            self.0.push_back(*page);
        }
    }
}

impl Eviction for OldestOut {
    fn pick_evictions(&mut self, bytes: u64, view: &View<'_>, out: &mut Vec<Unit>) {
        let pages = bytes as usize / 1024;
        let pages = self.0.drain(..pages.min(self.0.len()));
        let stored = pages.filter(|page| view.pages.tier(*page) == Some(Tier::Pool));
        out.extend(stored.map(Unit::Page));
    }
}

/// To the pool, and what is evicted from there to the kernel's zram.
pub mod place {
    use clew_core::{AppId, Cause, Group, Observe, Place, Placement, Tier, View};
    use clew_policy::plain;
    use clew_policy::schemes::About;

    #[derive(Default)]
    struct Onwards;

    const SHOWN: &str = "pool, then the kernel's zram";

    plain!(
        Onwards as dyn Placement,
        About { tiers: &[Tier::Pool], kernel_share_pct: 50, ..About::of("onwards", SHOWN) }
    );

    impl Observe for Onwards {}

    impl Placement for Onwards {
        fn place(&mut self, _: &Group, _: AppId, cause: Cause, _: &View<'_>) -> Place {
            match cause {
                Cause::SwapOut => Place::Tier(Tier::Pool),
                Cause::Evicted => Place::Tier(Tier::Kernel),
                Cause::Rejected => Place::Stay,
            }
        }
    }
}
