//! What the engine does for ElasticZRAM: profiles, the device, the form in which pages lie on flash, and whom
//! it ends when flash is of no use any more.

use std::collections::BTreeMap;

use clew_core::{
    AppId, Demand, DeviceFacts, Event, FlashForm, Ns, Order, PageCounts, PageFacts, PageId,
    PageRun, SpaceId, Tier, TierFacts, Vpn,
};
use clew_engine::decide::Engine;
use clew_policy::Scheme;
use clew_policy::schemes::OnFull;

#[derive(Default)]
struct Table(BTreeMap<PageId, Option<Tier>>);

impl PageFacts for Table {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.0.get(&page).copied().flatten()
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        let mut counts = PageCounts::default();
        for (_, tier) in self.0.iter().filter(|(page, _)| page.space() == space) {
            match tier {
                None => counts.resident += 1,
                Some(tier) => counts.stored[tier.index()] += 1,
            }
        }
        counts
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let of_space = self.0.iter().filter(|(page, _)| page.space() == space);
        of_space.for_each(|(page, tier)| visit(*page, *tier));
    }
}

struct Machine {
    engine: Engine,
    table: Table,
    now: u64,
}

impl Machine {
    fn of(preset: &str, on_full: OnFull) -> Machine {
        let scheme = Scheme { on_full, ..Scheme::preset(preset).expect("a preset") };
        Machine { engine: Engine::new(&scheme), table: Table::default(), now: 0 }
    }

    fn tell(&mut self, event: Event) {
        self.now += 1_000_000;
        self.engine.tell(Ns(self.now), &event, &self.table);
    }

    /// An app with a space of the same number, in the background.
    fn start(&mut self, app: u32, pages: u32) {
        let (space, app) = (SpaceId(app), AppId(app));
        self.tell(Event::SpaceStart { space, app, file: false });
        let run = PageRun { first: PageId::new(space, Vpn(100)), count: pages };
        self.table.0.extend(run.pages().map(|page| (page, None)));
        self.tell(Event::Resident { run });
        self.tell(Event::Launch { app });
        self.tell(Event::ResponseComplete { app, response_ns: 5_000_000 });
        self.tell(Event::Background { app });
    }

    fn swap_out(&mut self, pages: usize, urgent: bool) -> Vec<Order> {
        let mut orders = Vec::new();
        self.engine.plan_swap_out(Demand { pages, urgent }, &self.table, &mut orders);
        orders
    }

    /// All that is ordered is done.
    fn carry_out(&mut self, orders: &[Order]) {
        for order in orders {
            let (Order::SwapOut { groups, tier, .. } | Order::Move { groups, tier, .. }) = order
            else {
                continue;
            };
            for page in groups.iter().flat_map(|group| &group.pages) {
                self.table.0.insert(*page, Some(*tier));
                self.tell(Event::Stored { page: *page, tier: *tier, bytes: 1000 });
            }
        }
    }

    /// So many pages fit, at a thousand bytes each.
    fn set_tier(&mut self, tier: Tier, pages: u64, limit: u64) {
        let (used_bytes, limit_bytes) = (pages * 1000, limit * 1000);
        let limit_pages = u64::MAX;
        self.engine.set_tier(
            tier,
            TierFacts { used_bytes, limit_bytes, pages, limit_pages, ..TierFacts::default() },
        );
    }
}

#[test]
fn a_profile_outlives_its_app_and_a_launch_says_nothing_of_swapping() {
    let mut m = Machine::of("elasticzram", OnFull::Stop);
    let app = AppId(1);
    m.start(1, 10);
    for response_ns in [7, 9] {
        m.tell(Event::Relaunch { app });
        m.tell(Event::ResponseComplete { app, response_ns });
        m.tell(Event::Background { app });
    }
    let stats = m.engine.facts().apps[&app].clone();
    assert_eq!((stats.launches, stats.footprint_pages), (3, 10));
    assert_eq!(stats.responses_ns, [7, 9]);
    m.table.0.clear();
    m.tell(Event::Exit { app });
    assert!(!m.engine.facts().apps.contains_key(&app));
    m.start(1, 4);
    let again = &m.engine.facts().apps[&app];
    assert_eq!((again.launches, again.footprint_pages), (4, 4));
    assert_eq!(again.responses_ns, [7, 9]);
    assert_eq!((again.resident_pages, again.stored_pages), (4, 0));
}

#[test]
fn what_is_evicted_and_what_goes_past_the_pool_lies_on_flash_as_its_scheme_says() {
    let mut m = Machine::of("zram-flash", OnFull::Stop);
    m.set_tier(Tier::Flash, 0, 10_000);
    m.set_tier(Tier::Pool, 0, 1000);
    m.start(1, 90);
    m.start(2, 60);
    let orders = m.swap_out(90, false);
    m.carry_out(&orders);
    m.set_tier(Tier::Pool, 90, 100);
    let orders = m.swap_out(60, false);
    let pages = |order: &Order, form| match order {
        Order::Move { groups, tier: Tier::Flash, form: found, .. }
        | Order::SwapOut { groups, tier: Tier::Flash, form: found, .. } => {
            assert_eq!(*found, form, "{order:?}");
            groups.len()
        }
        _ => 0,
    };
    let moved: usize = orders.iter().map(|order| pages(order, FlashForm::Pages)).sum();
    assert!(moved >= 50, "{orders:?}");
    // Ariadne's stay as they are.
    let mut m = Machine::of("ariadne-paper", OnFull::Stop);
    m.set_tier(Tier::Flash, 0, 10_000);
    m.set_tier(Tier::Pool, 0, 1000);
    m.start(1, 90);
    m.start(2, 60);
    let orders = m.swap_out(90, false);
    m.carry_out(&orders);
    m.set_tier(Tier::Pool, 90, 100);
    let orders = m.swap_out(60, true);
    let moved: usize = orders.iter().map(|order| pages(order, FlashForm::AsStored)).sum();
    assert!(moved > 0, "{orders:?}");
}

#[test]
fn when_flash_is_of_no_use_any_more_and_the_pool_is_full_an_app_ends() {
    let mut m = Machine::of("elasticzram", OnFull::Kill);
    m.set_tier(Tier::Flash, 0, 10_000);
    m.set_tier(Tier::Pool, 100, 100);
    m.start(1, 20);
    m.start(2, 20);
    let device = DeviceFacts { used_bytes: 85, total_bytes: 100, written_bytes: 0 };
    m.tell(Event::DeviceSample { device });
    assert_eq!(m.engine.facts().device, Some(device));
    assert_eq!(m.swap_out(10, false), []);
    let orders = m.swap_out(10, true);
    assert!(matches!(orders[..], [Order::EndApp { app: AppId(1), .. }]), "{orders:?}");
    // While it is, nobody needs to.
    let device = DeviceFacts { used_bytes: 39, ..device };
    m.tell(Event::DeviceSample { device });
    m.tell(Event::Exit { app: AppId(1) });
    let orders = m.swap_out(10, true);
    let ends = orders.iter().any(|order| matches!(order, Order::EndApp { .. }));
    assert!(!orders.is_empty() && !ends, "{orders:?}");
}
