//! LRFU against the paper's formula: the combined recency and frequency of a page at the time `t` is the sum over its
//! uses, at `u`, of `d^(t - u)` (Lee et al. 2001, section 3). Nothing is rounded here, and in the policy keys are
//! quarters; so only pages that are clearly apart must leave in order.

use std::collections::BTreeMap;

use clew_conformance::{World, page, run};
use clew_core::{
    AccessKind, AppId, Demand, Event, Observe, PageId, Reclaim, Tier, Unit, Verdict, Whole,
};
use clew_policy::reclaim::lrfu::{Lrfu, Params};
use proptest::prelude::*;

const PAGES: u64 = 40;
const DECAY: f64 = 0.85;

struct Machine {
    world: World,
    policy: Lrfu,
}

impl Machine {
    fn new(decay_pct: u32) -> Machine {
        let mut machine = Machine {
            world: World::new(&[0]),
            policy: Lrfu::new(Params { decay_pct: Whole::of(decay_pct) }),
        };
        machine.tell(Event::Resident { run: run(0, 0, PAGES as u32) });
        machine
    }

    fn tell(&mut self, event: Event) {
        self.world.before(&event);
        self.policy.on_event(&event, &self.world.view());
        self.world.after(&event);
    }

    fn relaunch(&mut self) {
        self.tell(Event::Relaunch { app: AppId(0) });
    }

    fn use_it(&mut self, vpn: u64) {
        self.tell(Event::Access { page: page(0, vpn), kind: AccessKind::Seen, write: false });
    }

    /// Leaves, and comes back.
    fn back(&mut self, vpn: u64, demand: bool) {
        let (page, tier) = (page(0, vpn), Tier::Pool);
        self.tell(Event::Stored { page, tier, bytes: 9 });
        self.tell(Event::PageIn { page, tier, demand });
    }

    fn pick(&mut self, pages: usize) -> Vec<u64> {
        let mut out = Vec::new();
        let view = self.world.view();
        self.policy.pick_victims(Demand { pages, urgent: false }, &view, &mut out);
        let vpn = |verdict: Verdict| match verdict {
            Verdict::Take(victim) => match victim.unit {
                Unit::Page(page) => page.vpn().0,
                unit => panic!("{unit:?}"),
            },
            other => panic!("{other:?}"),
        };
        out.into_iter().map(vpn).collect()
    }
}

proptest! {
    #[test]
    fn pages_leave_by_their_combined_recency_and_frequency(
        visits in prop::collection::vec(prop::collection::btree_set(0..PAGES, 0..12), 1..30)
    ) {
        let mut machine = Machine::new(85);
        let mut uses: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, visit) in visits.iter().enumerate() {
            machine.relaunch();
            for vpn in visit {
                machine.use_it(*vpn);
                // However often.
                machine.use_it(*vpn);
                uses.entry(*vpn).or_default().push(at);
            }
        }
        let end = visits.len();
        let sum = |vpn: u64| -> f64 {
            uses.get(&vpn).into_iter().flatten().map(|at| DECAY.powi((end - at) as i32)).sum()
        };
        let next = {
            let mut next = Vec::new();
            machine.policy.next_victims(usize::MAX, &machine.world.view(), &mut next);
            next.len()
        };
        prop_assert_eq!(next, PAGES as usize);
        let order = machine.pick(usize::MAX);
        prop_assert_eq!(order.len(), PAGES as usize);
        for (n, earlier) in order.iter().enumerate() {
            for later in &order[n + 1..] {
                // Less than a relaunch apart is no difference that is kept.
                prop_assert!(sum(*earlier) * DECAY <= sum(*later), "{} before {}", earlier, later);
            }
        }
        prop_assert!(machine.pick(1).is_empty(), "each once");
    }
}

#[test]
fn what_is_used_often_outlives_what_was_used_last() {
    let mut machine = Machine::new(85);
    for _ in 0..6 {
        machine.relaunch();
        machine.use_it(1);
    }
    machine.relaunch();
    machine.use_it(2);
    let order = machine.pick(PAGES as usize);
    assert_eq!(order[PAGES as usize - 2..], [2, 1]);
    // With hardly anything left of earlier uses it is an LRU.
    let mut lru = Machine::new(1);
    for _ in 0..6 {
        lru.relaunch();
        lru.use_it(1);
    }
    lru.relaunch();
    lru.use_it(2);
    assert_eq!(lru.pick(PAGES as usize)[PAGES as usize - 2..], [1, 2]);
}

#[test]
fn coming_along_is_a_part_of_a_use() {
    let mut machine = Machine::new(85);
    machine.relaunch();
    machine.back(1, true);
    machine.back(2, false);
    let order = machine.pick(PAGES as usize);
    assert_eq!(order[PAGES as usize - 2..], [2, 1], "both after what was never used");
    let mut machine = Machine::new(85);
    machine.relaunch();
    machine.back(1, true);
    machine.back(2, false);
    machine.relaunch();
    machine.tell(Event::Used { run: run(0, 2, 1) });
    assert_eq!(machine.pick(PAGES as usize)[PAGES as usize - 2..], [1, 2]);
}

#[test]
fn nobody_is_handed_out_twice_and_what_is_gone_is_forgotten() {
    let mut machine = Machine::new(85);
    let first = machine.pick(3);
    assert_eq!(first, [0, 1, 2], "found first");
    machine.use_it(1);
    assert!(!machine.pick(PAGES as usize).contains(&1), "it is on its way");
    machine.tell(Event::Stayed { page: page(0, 1) });
    machine.tell(Event::Stayed { page: page(0, 2) });
    machine.tell(Event::Freed { run: run(0, 2, 1) });
    machine.tell(Event::Moved { from: run(0, 1, 1), to: page(0, 77) });
    assert_eq!(machine.pick(PAGES as usize), [77]);
    machine.tell(Event::Resident { run: run(0, 100, 4) });
    machine.tell(Event::SpaceEnd { space: page(0, 100).space() });
    assert!(machine.pick(9).is_empty());
}

/// What is left in queues of pages that were used again does not pile up.
#[test]
fn queues_are_looked_through() {
    let mut machine = Machine::new(85);
    let queued = |machine: &Machine| {
        let metrics = machine.policy.metrics();
        metrics.iter().find(|metric| metric.name == "lrfu_queued_pages").expect("it is told").value
    };
    for _ in 0..2000 {
        machine.relaunch();
        (0..PAGES).for_each(|vpn| machine.use_it(vpn));
        machine.tell(Event::Tick);
        assert!(queued(&machine) <= f64::from((1 << 14) + 3 * PAGES as u32));
    }
    assert_eq!(machine.pick(usize::MAX).len(), PAGES as usize);
}

#[test]
fn events_about_strangers_leave_no_page() {
    let mut machine = Machine::new(85);
    machine.pick(PAGES as usize);
    let stranger: PageId = page(9, 5);
    for event in [
        Event::PageIn { page: stranger, tier: Tier::Pool, demand: true },
        Event::Stayed { page: stranger },
        Event::Used { run: run(9, 5, 3) },
    ] {
        machine.policy.on_event(&event, &machine.world.view());
    }
    assert!(machine.pick(9).is_empty());
}
