//! Launch sets: what the last switches to an app used comes back at the next one.
//!
//! Source: Son et al., "ASAP: Fast Mobile Application Switch via Adaptive Prepaging" (USENIX ATC 2020), as
//! Archer 5.1 has it for comparison: its estimator for anonymous pages, which predicts that a switch uses
//! what switches before it used. (Its other half, for file pages, has nothing to do here.)
//!
//! The sets are the engine's ([`clew_core::Facts::launch_sets`]): the pages that each of the last four
//! relaunches was seen to use. A page is restored that is in `used_in` of the last `switches` of them and
//! stored, in the order of its first use in the newest set that has it, in batches by address.
//!
//! Where touches of resident pages are not seen (live), a page that was restored is seen no more, and
//! falls out of the sets until the next fault on it: one switch in `switches` + 1 faults.

use std::collections::HashMap;

use clew_core::{Metric, Observe, PageId, Prefetch, Trigger, View, Whole};
use serde::{Deserialize, Serialize};

use super::hot_list::sort_batches;
use crate::schemes::{About, Answer};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Switches that are looked at; the engine keeps four.
    pub switches: Whole<1, 4, 4>,
    /// So many of them used the page.
    pub used_in: Whole<1, 4, 1>,
    /// Pages restored in the order of their addresses before the next ones come.
    pub batch_pages: Whole<1, { 1 << 20 }, 512>,
}

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        let shown = format!(
            "what {} of the last {} switches used",
            self.used_in.get(),
            self.switches.get()
        );
        About { at_relaunch: true, ..About::of("asap", shown) }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(Asap::new(*self))
    }

    fn validate(&self) -> Result<(), String> {
        let fits = self.used_in.get() <= self.switches.get();
        let why =
            "used_in and switches contradict each other: no page is in more sets than there are";
        fits.then_some(()).ok_or_else(|| why.to_string())
    }
}

/// The policy. See the module.
pub struct Asap {
    params: Params,
    restored: u64,
}

impl Asap {
    /// Has restored nothing yet.
    pub fn new(params: Params) -> Asap {
        Asap { params, restored: 0 }
    }
}

impl Observe for Asap {
    fn metrics(&self) -> Vec<Metric> {
        let (name, value) = ("asap_restored_pages", self.restored as f64);
        vec![Metric { name, value, help: "pages asked for at relaunches" }]
    }
}

impl Prefetch for Asap {
    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let Trigger::Relaunch(app) = trigger else { return };
        let Some(sets) = view.facts.launch_sets.get(&app) else { return };
        let newest_first = || sets.iter().rev().take(self.params.switches.get() as usize).flatten();
        let mut used_in: HashMap<PageId, u32> = HashMap::new();
        for page in newest_first() {
            *used_in.entry(*page).or_default() += 1;
        }
        // Taken out as it is picked: each comes once.
        let is_wanted = |page: &&PageId| {
            let times = used_in.remove(*page);
            times.is_some_and(|times| times >= self.params.used_in.get())
                && view.pages.tier(**page).is_some()
        };
        let mut pages: Vec<PageId> = newest_first().filter(is_wanted).copied().collect();
        sort_batches(&mut pages, self.params.batch_pages.get());
        self.restored += pages.len() as u64;
        out.append(&mut pages);
    }
}
