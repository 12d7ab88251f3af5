//! The whole app: when it comes to the front, all of its pages come back.
//!
//! Source: MobileSwap III-C: a foreground app must not depend on a machine that may be lost, so "MobileSwap swaps all
//! pages of that app back when it is launched". What the last relaunches used comes first (ours; the paper says
//! nothing of the order), then the rest by address; faults overtake both.

use std::collections::HashSet;

use clew_core::{Metric, Observe, PageId, Prefetch, Trigger, View};

use crate::plain;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct WholeApp {
    asked: u64,
}

plain!(
    WholeApp as dyn Prefetch,
    About { at_relaunch: true, ..About::of("whole-app", "at relaunch the whole app") }
);

impl Observe for WholeApp {
    fn metrics(&self) -> Vec<Metric> {
        let (name, value) = ("whole_app_pages", self.asked as f64);
        vec![Metric { name, value, help: "pages asked back at relaunches" }]
    }
}

impl Prefetch for WholeApp {
    fn brings_all(&self) -> bool {
        true
    }

    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let Trigger::Relaunch(app) = trigger else { return };
        let before = out.len();
        let mut known: HashSet<PageId> = HashSet::new();
        let sets = view.facts.launch_sets.get(&app).into_iter().flatten().rev().flatten();
        for page in sets {
            if view.pages.tier(*page).is_some() && known.insert(*page) {
                out.push(*page);
            }
        }
        for space in view.facts.spaces_of(app) {
            view.pages.for_each(space, &mut |page, tier| {
                if tier.is_some() && !known.contains(&page) {
                    out.push(page);
                }
            });
        }
        self.asked += (out.len() - before) as u64;
    }
}
