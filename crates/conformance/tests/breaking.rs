//! What breaks a rule is found, and which rule it is said.

use std::collections::{BTreeSet, HashSet};

use clew_conformance::Broken;
use clew_core::{
    Admission, Admit, AppId, Candidate, Cause, Classes, Demand, Event, Eviction, Group, Hotness,
    Observe, Packing, PageId, Place, Placement, Prefetch, Reclaim, Tier, Trigger, Unit, Verdict,
    Victim, View,
};

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Twice,
    Forgetful,
    KeepsEnded,
    KeepsOne,
    Unordered,
    Panics,
}

/// First in, first out; with a fault.
struct Fifo {
    fault: Fault,
    pages: BTreeSet<PageId>,
    unordered: HashSet<PageId>,
}

fn fifo(fault: Fault) -> Result<(), Broken> {
    clew_conformance::reclaim(|| {
        Box::new(Fifo { fault, pages: BTreeSet::new(), unordered: HashSet::new() })
    })
}

impl Fifo {
    fn forget(&mut self, gone: impl Fn(PageId) -> bool) {
        if self.fault != Fault::KeepsEnded {
            self.pages.retain(|page| !gone(*page));
        }
    }
}

impl Observe for Fifo {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Resident { run } => self.pages.extend(run.pages()),
            Event::Access { page, .. } if view.pages.tier(page).is_none() => {
                self.pages.insert(page);
            }
            Event::Stayed { page } | Event::PageIn { page, .. }
                if self.fault != Fault::Forgetful =>
            {
                self.pages.insert(page);
            }
            Event::Freed { run } => {
                let known = run.pages().all(|page| self.pages.contains(&page));
                assert!(known || self.fault != Fault::Panics, "{run:?} has unknown pages");
                self.pages.retain(|page| !run.contains(*page));
            }
            Event::Moved { from, to } => {
                let moved: Vec<_> =
                    self.pages.extract_if(.., |page| from.contains(*page)).collect();
                let last = to.raw() + u64::from(from.count);
                self.pages.retain(|page| !(to.raw()..last).contains(&page.raw()));
                self.pages.extend(moved.iter().map(|page| to.plus(page.raw() - from.first.raw())));
            }
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => {
                self.forget(|page| page.space() == space);
            }
            Event::Exit { app } => self.forget(|page| view.app_of(page) == Some(app)),
            Event::Stored { page, .. } => drop(self.pages.remove(&page)),
            _ => {}
        }
    }
}

impl Classes for Fifo {
    fn class(&self, _: PageId) -> Option<Hotness> {
        None
    }
}

fn take(page: PageId) -> Verdict {
    Verdict::Take(Victim { unit: Unit::Page(page), hotness: None })
}

impl Reclaim for Fifo {
    fn pick_victims(&mut self, demand: Demand, _: &View<'_>, out: &mut Vec<Verdict>) {
        let pages: Vec<PageId> = self.pages.iter().take(demand.pages).copied().collect();
        if self.fault == Fault::Unordered {
            self.unordered = self.pages.iter().copied().collect();
            let any: Vec<PageId> = self.unordered.iter().take(demand.pages).copied().collect();
            self.pages.retain(|page| !any.contains(page));
            return out.extend(any.into_iter().map(take));
        }
        if self.fault != Fault::Twice {
            self.pages.retain(|page| !pages.contains(page));
        }
        out.extend(pages.into_iter().map(take));
    }

    fn pick_app(&mut self, app: AppId, view: &View<'_>, out: &mut Vec<Verdict>) {
        let of_app = |page: &PageId| view.app_of(*page) == Some(app);
        let keep = usize::from(self.fault == Fault::KeepsOne);
        let pages: Vec<PageId> = self.pages.extract_if(.., |page| of_app(page)).collect();
        out.extend(pages.into_iter().skip(keep).map(take));
    }
}

fn says(result: Result<(), Broken>, what: &str) {
    let broken = result.expect_err(what);
    assert!(broken.to_string().contains(what), "{broken}");
}

#[test]
fn reclaim_that_keeps_the_rules_conforms_and_each_fault_is_found() {
    fifo(Fault::None).expect("it keeps the rules");
    says(fifo(Fault::Twice), "which nobody has told it back");
    says(fifo(Fault::Forgetful), "it keeps PageId");
    says(fifo(Fault::KeepsEnded), "which is not resident");
    says(fifo(Fault::KeepsOne), "it keeps PageId");
    says(fifo(Fault::Unordered), "and the next time");
    says(fifo(Fault::Panics), "it panicked");
}

/// Answers every question, each time with something else that it may not.
struct Bad(u32);

impl Observe for Bad {}

impl Admission for Bad {
    fn admit(&mut self, _: Candidate<'_>, _: &View<'_>) -> Admit {
        Admit::No
    }

    fn admits_all(&self) -> bool {
        true
    }
}

impl Packing for Bad {
    fn pack(&mut self, victims: &mut Vec<Victim>, _: bool, _: &View<'_>, _: &mut Vec<Group>) {
        victims.clear();
    }
}

impl Eviction for Bad {
    fn pick_evictions(&mut self, _: u64, view: &View<'_>, out: &mut Vec<Unit>) {
        view.facts.spaces_of(AppId(1)).for_each(|space| {
            view.pages.for_each(space, &mut |page, tier| {
                out.extend((tier == Some(Tier::Pool)).then_some(Unit::Page(page)));
            });
        });
    }
}

impl Placement for Bad {
    fn place(&mut self, _: &Group, _: AppId, _: Cause, _: &View<'_>) -> Place {
        Place::Tier(Tier::Kernel)
    }
}

impl Prefetch for Bad {
    fn pick_prefetch(&mut self, trigger: Trigger, _: &View<'_>, out: &mut Vec<PageId>) {
        self.0 += 1;
        if let Trigger::Fault(page) = trigger {
            out.push(page.plus(u64::from(self.0 % 2)));
        }
    }
}

#[test]
fn every_question_s_rules_are_checked() {
    says(clew_conformance::admission(|| Box::new(Bad(0))), "it admits all pages, but not");
    says(clew_conformance::packing(|| Box::new(Bad(0))), "it makes []");
    says(clew_conformance::eviction(|| Box::new(Bad(0))), "which is on its way");
    says(clew_conformance::placement(|| Box::new(Bad(0))), "which is not there");
    says(clew_conformance::prefetch(|| Box::new(Bad(0))), "which is what was used");
}
