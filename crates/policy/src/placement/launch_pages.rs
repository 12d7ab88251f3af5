//! Launch pages to the pool, the rest to flash: SEAL.
//!
//! Source: Li et al., "SEAL: User experience-aware two-level swap for mobile devices" (TCAD 2020), as ElasticZRAM
//! has it for comparison (1, 4.1): it "placed data accessed during app launching in the compressed memory and
//! data accessed during app execution in the local storage". Which pages these are, the engine knows: those that
//! the last four relaunches were seen to use ([`clew_core::Facts::launch_sets`]). Of an app that was never
//! relaunched nothing is known, and all goes to flash. A launch page that finds no room in the pool goes to flash
//! too; without flash everything goes to the pool.

use std::collections::{BTreeMap, HashSet};

use clew_core::{
    AppId, Cause, Event, Group, Metric, Observe, PageId, Place, Placement, Tier, View,
};
use serde::{Deserialize, Serialize};

use super::flash::to_flash;
use crate::schemes::{About, Answer};

/// The pool has room as long as more than one part in so many is free.
const NO_ROOM: u64 = 32;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What goes to flash is compressed there.
    pub compressed: bool,
}

impl Answer<dyn Placement> for Params {
    fn about(&self) -> About {
        About {
            tiers: &[Tier::Pool],
            may_use: &[Tier::Flash],
            ..About::of("launch-pages", "launch pages to the pool, the rest to flash")
        }
    }

    fn build(&self) -> Box<dyn Placement> {
        Box::new(Seal {
            compressed: self.compressed,
            known: LaunchPages::default(),
            to_pool: 0,
            to_flash: 0,
        })
    }
}

/// The launch sets of apps as sets, made when they are asked for and kept until something may have
/// changed them.
#[derive(Default)]
pub(super) struct LaunchPages(BTreeMap<AppId, HashSet<PageId>>);

impl LaunchPages {
    /// Something happened.
    pub fn on_event(&mut self, event: &Event) {
        match event {
            // These change no set.
            Event::Access { .. }
            | Event::Stored { .. }
            | Event::Stayed { .. }
            | Event::PageIn { .. }
            | Event::PrefetchUsed { .. }
            | Event::PrefetchExpired { .. }
            | Event::Resident { .. }
            | Event::Used { .. }
            | Event::Unused { .. }
            | Event::Freed { .. } => {}
            _ => self.0.clear(),
        }
    }

    /// What the last relaunches of `app` used.
    pub fn of(&mut self, app: AppId, view: &View<'_>) -> &HashSet<PageId> {
        self.0.entry(app).or_insert_with(|| {
            view.facts.launch_sets.get(&app).into_iter().flatten().flatten().copied().collect()
        })
    }
}

/// The policy. See the module.
pub struct Seal {
    compressed: bool,
    known: LaunchPages,
    to_pool: u64,
    to_flash: u64,
}

impl Observe for Seal {
    fn on_event(&mut self, event: &Event, _view: &View<'_>) {
        self.known.on_event(event);
    }

    fn metrics(&self) -> Vec<Metric> {
        [
            ("seal_pool_pages", self.to_pool, "launch pages placed in the pool"),
            ("seal_flash_pages", self.to_flash, "other pages placed on flash"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Placement for Seal {
    fn place(&mut self, group: &Group, app: AppId, cause: Cause, view: &View<'_>) -> Place {
        let tiers = &view.facts.tiers;
        let pages = group.pages.len() as u64;
        if !tiers.contains_key(&Tier::Flash) {
            return match cause {
                Cause::SwapOut => Place::Tier(Tier::Pool),
                Cause::Rejected | Cause::Evicted => Place::Stay,
            };
        }
        let has_room = || tiers.get(&Tier::Pool).is_some_and(|pool| pool.has_part_free(NO_ROOM));
        let launch = self.known.of(app, view);
        let is_launch = group.pages.iter().any(|page| launch.contains(page));
        if cause == Cause::SwapOut && is_launch && has_room() {
            self.to_pool += pages;
            return Place::Tier(Tier::Pool);
        }
        self.to_flash += pages;
        to_flash(self.compressed)
    }
}
