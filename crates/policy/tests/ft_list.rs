//! FT-List: who leaves in which round, and when what was used together is known.

use clew_conformance::{World, page};
use clew_core::{
    AccessKind, AppId, Demand, Event, Job, Ns, Observe, PageId, PageRun, Reclaim, SpaceId, Tier,
    Unit, Verdict, Whole,
};
use clew_policy::reclaim::ft_list::{FtList, Params};

/// Windows of four uses; whatever is there is mined at each tick.
fn quick() -> Params {
    Params {
        wide_pages: Whole::of(4),
        window: Whole::of(4),
        heartbeat_ms: Whole::of(0),
        least_transactions: Whole::of(1),
        support_pct: Whole::of(0),
        ..Params::default()
    }
}

struct Machine {
    world: World,
    list: FtList,
    jobs: Vec<Job>,
}

impl Machine {
    fn new(owners: &[u32], params: Params) -> Machine {
        Machine { world: World::new(owners), list: FtList::new(params), jobs: Vec::new() }
    }

    fn tell(&mut self, event: Event) {
        self.world.before(&event);
        self.list.on_event(&event, &self.world.view());
        self.world.after(&event);
        while let Some(job) = self.list.take_job() {
            self.jobs.push(job);
        }
    }

    fn resident(&mut self, pages: &[PageId]) {
        for first in pages {
            self.tell(Event::Resident { run: PageRun { first: *first, count: 1 } });
        }
    }

    fn used(&mut self, pages: &[PageId]) {
        for page in pages {
            let kind = AccessKind::Seen;
            self.tell(Event::Access { page: *page, kind, write: false });
        }
    }

    fn leave(&mut self, pages: &[PageId]) {
        for page in pages {
            self.tell(Event::Stored { page: *page, tier: Tier::Pool, bytes: 9 });
        }
    }

    /// What was used is mined, and the policy hears of it.
    fn learn(&mut self) {
        self.tell(Event::Tick);
        for job in std::mem::take(&mut self.jobs) {
            let id = job.id;
            (job.run)();
            self.tell(Event::JobDone { job: id });
        }
    }

    fn in_front(&mut self, app: u32, at: u64) {
        self.world.facts.fronts = vec![AppId(app)];
        self.world.facts.apps.entry(AppId(app)).or_default().last_foreground = Ns(at);
    }

    fn pick(&mut self, pages: usize, urgent: bool) -> Vec<Vec<PageId>> {
        let mut out = Vec::new();
        self.list.pick_victims(Demand { pages, urgent }, &self.world.view(), &mut out);
        out.into_iter().map(pages_of).collect()
    }

    fn metric(&self, name: &str) -> f64 {
        self.list.metrics().iter().find(|metric| metric.name == name).expect("a metric").value
    }
}

fn pages_of(verdict: Verdict) -> Vec<PageId> {
    match verdict {
        Verdict::Take(victim) => match victim.unit {
            Unit::Page(page) => vec![page],
            Unit::Pages(pages) => pages,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn pages(space: u32, vpns: &[u64]) -> Vec<PageId> {
    vpns.iter().map(|vpn| page(space, *vpn)).collect()
}

#[test]
fn every_history_is_lived_through_with_groups_in_it() {
    for (wide_pages, tree_nodes) in [(1, 64), (4, 131_072), (1, 131_072)] {
        let params = Params {
            wide_pages: Whole::of(wide_pages),
            tree_nodes: Whole::of(tree_nodes),
            ..quick()
        };
        clew_conformance::reclaim(|| Box::new(FtList::new(params)))
            .unwrap_or_else(|broken| panic!("{params:?}: {broken}"));
    }
}

/// Pages 1 and 2, and 11 and 12 of another app, are used together; 3 and 4 are not.
fn two_apps(params: Params) -> Machine {
    let mut m = Machine::new(&[0, 1], params);
    m.in_front(1, 5);
    m.in_front(0, 9);
    m.resident(&pages(0, &[1, 2, 3, 4]));
    m.resident(&pages(1, &[11, 12, 13]));
    for other in [3, 4] {
        m.used(&pages(0, &[1, 2, other, other]));
        m.used(&pages(1, &[11, 12, 11, 12]));
    }
    m.learn();
    assert_eq!(m.list.group(page(0, 2)), pages(0, &[1, 2]));
    assert_eq!(m.list.group(page(0, 3)), []);
    m
}

#[test]
fn a_small_round_takes_pages_one_by_one_and_a_large_one_groups() {
    let mut m = two_apps(quick());
    m.world.facts.fronts.clear();
    // 13 was never used; what is on the LRU lists leaves by itself.
    assert_eq!(m.pick(1, false), [pages(1, &[13])]);
    // Least active app first, then LRU pages.
    let wide = m.pick(5, false);
    assert_eq!(wide[..2], [pages(1, &[11, 12]), pages(0, &[1, 2])]);
    assert_eq!(wide.len(), 3);
    assert!(wide[2] == pages(0, &[3]) || wide[2] == pages(0, &[4]), "{wide:?}");
    assert_eq!(m.metric("ft_list_picked_groups"), 2.0);
    assert_eq!(m.metric("ft_list_narrow_pages"), 2.0);
    // Nobody is handed out twice.
    assert_eq!(m.pick(8, true).concat().len(), 1);
}

#[test]
fn the_app_in_front_comes_last() {
    let mut m = two_apps(quick());
    assert_eq!(m.pick(4, false)[..2], [pages(1, &[11, 12]), pages(1, &[13])]);
    // Of app 0, which is in front, what its tree has is last of all.
    let rest = m.pick(9, false);
    assert_eq!(rest.last(), Some(&pages(0, &[1, 2])));
}

#[test]
fn of_a_group_leaves_what_is_resident_and_what_came_back_is_of_it_again() {
    let mut m = two_apps(quick());
    m.leave(&pages(1, &[11]));
    assert_eq!(m.pick(4, false)[0], pages(1, &[12]));
    m.leave(&pages(1, &[12]));
    for page in pages(1, &[11, 12]) {
        m.tell(Event::PageIn { page, tier: Tier::Pool, demand: page.vpn().0 == 11 });
    }
    assert_eq!(m.pick(4, false)[0], pages(1, &[11, 12]));
    // One of them could not leave.
    m.tell(Event::Stayed { page: page(1, 11) });
    m.leave(&pages(1, &[12]));
    assert_eq!(m.pick(4, false)[0], pages(1, &[11]));
}

#[test]
fn pages_that_drift_apart_are_on_the_lru_lists_again() {
    let mut m = two_apps(quick());
    for _ in 0..4 {
        m.used(&pages(0, &[1, 3, 1, 3]));
    }
    m.learn();
    assert_eq!(m.list.group(page(0, 2)), []);
    m.world.facts.fronts = vec![AppId(1)];
    let narrow: Vec<PageId> = m.pick(3, false).concat();
    assert!(narrow.contains(&page(0, 2)), "{narrow:?}");
}

#[test]
fn nothing_is_mined_while_the_machine_is_busy_or_another_batch_is_away() {
    let mut m = Machine::new(&[0], Params { least_transactions: Whole::of(2), ..quick() });
    m.resident(&pages(0, &[1, 2]));
    m.used(&pages(0, &[1, 2, 1, 2]));
    m.tell(Event::Tick);
    assert_eq!((m.jobs.len(), m.metric("ft_list_idle_heartbeats")), (0, 1.0));
    m.used(&pages(0, &[1, 2, 1, 2]));
    m.world.facts.cpu_load = 0.81;
    m.tell(Event::Tick);
    assert_eq!((m.jobs.len(), m.metric("ft_list_busy_heartbeats")), (0, 1.0));
    m.world.facts.cpu_load = 0.8;
    m.tell(Event::Tick);
    assert_eq!(m.jobs.len(), 1);
    m.used(&pages(0, &[1, 2, 1, 2, 1, 2, 1, 2]));
    m.tell(Event::Tick);
    assert_eq!(m.jobs.len(), 1, "the trees are away");
    // Nothing changes before the policy is told.
    let job = m.jobs.pop().expect("a job");
    let id = job.id;
    (job.run)();
    assert_eq!(m.list.group(page(0, 1)), []);
    m.tell(Event::JobDone { job: id });
    assert_eq!(m.list.group(page(0, 1)), pages(0, &[1, 2]));
    m.tell(Event::JobDone { job: id });
    m.tell(Event::Tick);
    assert_eq!(m.jobs.len(), 1, "what was used meanwhile waited");
}

#[test]
fn a_heartbeat_is_three_seconds() {
    let mut m = Machine::new(&[0], Params { heartbeat_ms: Whole::of(3000), ..quick() });
    m.resident(&pages(0, &[1, 2]));
    m.used(&pages(0, &[1, 2, 1, 2]));
    m.world.facts.now = Ns::from_ms(2999);
    m.tell(Event::Tick);
    assert!(m.jobs.is_empty());
    m.world.facts.now = Ns::from_ms(3000);
    m.tell(Event::Tick);
    assert_eq!(m.jobs.len(), 1);
}

#[test]
fn what_ends_while_it_is_mined_is_not_known_afterwards() {
    let mut m = Machine::new(&[0, 1], quick());
    m.resident(&pages(0, &[1, 2]));
    m.resident(&pages(1, &[1, 2]));
    m.used(&[pages(0, &[1, 2, 1, 2]), pages(1, &[1, 2, 1, 2])].concat());
    m.tell(Event::Tick);
    m.tell(Event::SpaceEnd { space: SpaceId(0) });
    m.tell(Event::SpaceStart { space: SpaceId(0), app: AppId(1), file: false });
    m.tell(Event::Exit { app: AppId(0) });
    let job = m.jobs.pop().expect("a job");
    let id = job.id;
    (job.run)();
    m.tell(Event::JobDone { job: id });
    assert_eq!(m.list.group(page(0, 1)), []);
    assert_eq!(m.list.group(page(1, 1)), pages(1, &[1, 2]));
    m.tell(Event::Exit { app: AppId(1) });
    assert_eq!(m.list.group(page(1, 1)), []);
    assert_eq!(m.metric("ft_list_associated_pages"), 0.0);
}

#[test]
fn a_job_that_is_never_run_costs_what_was_known_and_no_more() {
    let mut m = two_apps(quick());
    m.used(&pages(0, &[1, 2, 1, 2]));
    m.tell(Event::Tick);
    let job = m.jobs.pop().expect("a job");
    m.tell(Event::JobDone { job: job.id });
    m.used(&pages(0, &[3, 4, 3, 4]));
    m.learn();
    assert_eq!(m.list.group(page(0, 3)), pages(0, &[3, 4]));
}

#[test]
fn a_full_ring_forgets_the_oldest_transactions() {
    let mut m = Machine::new(&[0], Params { transactions: Whole::of(2), ..quick() });
    for first in [1, 3, 5] {
        m.used(&pages(0, &[first, first + 1, first, first + 1]));
    }
    m.learn();
    assert_eq!(m.metric("ft_list_lost_transactions"), 1.0);
    assert_eq!(m.list.group(page(0, 1)), []);
    assert_eq!(m.list.group(page(0, 3)), pages(0, &[3, 4]));
}

#[test]
fn moved_pages_lose_their_association_and_stay_on_a_list() {
    let mut m = two_apps(quick());
    let from = PageRun { first: page(1, 12), count: 1 };
    m.tell(Event::Moved { from, to: page(1, 40) });
    assert_eq!(m.list.group(page(1, 40)), []);
    let all: Vec<PageId> = m.pick(20, true).concat();
    let of_other: Vec<PageId> = all.into_iter().filter(|p| p.space() == SpaceId(1)).collect();
    let mut sorted = of_other;
    sorted.sort_unstable();
    assert_eq!(sorted, pages(1, &[11, 13, 40]));
}

#[test]
fn what_is_held_is_counted_and_stays_bounded() {
    let mut m = Machine::new(&[0], Params { tree_nodes: Whole::of(64), ..quick() });
    let mut most = 0.0f64;
    for round in 0..400u64 {
        let vpns: Vec<u64> = (0..16).map(|n| (round * 37 + n * 11) % 5000).collect();
        m.resident(&pages(0, &vpns));
        m.used(&pages(0, &vpns));
        m.learn();
        assert!(m.metric("ft_list_tree_nodes") <= 64.0);
        assert!(m.metric("ft_list_associated_pages") <= 64.0);
        most = most.max(m.metric("ft_list_bytes"));
    }
    assert!(m.metric("ft_list_halvings") > 10.0);
    // Lists of the trees keep what they had of pages that were associated once.
    assert!(most < 200_000.0, "{most}");
}

#[test]
fn what_contradicts_itself_is_refused() {
    let text = |reclaim: &str| {
        format!(
            "[scheme]\nname = 'x'\nreclaim = {reclaim}\nadmission = 'all'\npacking = 'one-page'\n\
             eviction = 'none'\nplacement = 'pool'\nprefetch = 'none'"
        )
    };
    let read = |reclaim: &str| clew_policy::Scheme::from_toml(&text(reclaim));
    assert!(read("{ kind = 'ft-list', queue = 32, window = 32 }").is_ok());
    let refused = read("{ kind = 'ft-list', queue = 31 }").expect_err("a window that does not fit");
    assert!(refused.to_string().contains("window and queue"), "{refused}");
    let refused = read("{ kind = 'ft-list', confidence = 70 }").expect_err("unknown");
    assert!(refused.to_string().contains("confidence_pct"), "{refused}");
}
