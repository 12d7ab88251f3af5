//! What comes back is compressed quickly, what does not densely: at once, or when it has become old.

use clew_conformance::{World, page};
use clew_core::{
    AppId, CodecKind, Event, Group, Hotness, Ns, Observe, Packing, PageId, PageRun, Tier, Unit,
    Victim, Whole,
};
use clew_policy::packing::by_age::{ByAge, Params};

const QUICK: CodecKind = CodecKind::Lz4;
const DENSE: CodecKind = CodecKind::ZstdDictionary;

struct Pool {
    world: World,
    policy: ByAge,
}

impl Pool {
    fn new(after_relaunches: u32) -> Pool {
        let params = Params { after_relaunches: Whole::of(after_relaunches), ..Params::default() };
        Pool { world: World::new(&[0]), policy: ByAge::new(params) }
    }

    fn tell(&mut self, event: &Event) {
        self.policy.on_event(event, &self.world.view());
    }

    /// The page leaves; what compresses it.
    fn leaves(&mut self, vpn: u64, hotness: Hotness) -> CodecKind {
        let page = page(0, vpn);
        let mut victims = vec![Victim { unit: Unit::Page(page), hotness: Some(hotness) }];
        let mut groups = Vec::new();
        self.policy.pack(&mut victims, true, &self.world.view(), &mut groups);
        self.world.table.stored.insert(page, Tier::Pool);
        self.tell(&Event::Stored { page, tier: Tier::Pool, bytes: 1000 });
        assert_eq!((victims.len(), groups.len(), &groups[0].pages[..]), (0, 1, &[page][..]));
        groups[0].codec
    }

    fn comes_back(&mut self, vpn: u64) {
        let page = page(0, vpn);
        self.world.table.stored.remove(&page);
        self.tell(&Event::PageIn { page, tier: Tier::Pool, demand: true });
    }

    fn relaunch(&mut self) {
        self.tell(&Event::Relaunch { app: AppId(0) });
    }

    /// Pages that are to be stored anew, of which so many are wanted.
    fn anew(&mut self, wanted: usize) -> Vec<u64> {
        let mut groups: Vec<Group> = Vec::new();
        self.policy.pick_repacks(wanted, &self.world.view(), &mut groups);
        assert!(groups.iter().all(|group| group.codec == DENSE && group.pages.len() == 1));
        let mut vpns: Vec<u64> = groups.iter().map(|group| group.pages[0].vpn().0).collect();
        vpns.sort_unstable();
        vpns
    }
}

#[test]
fn only_what_was_used_is_compressed_quickly() {
    let mut pool = Pool::new(2);
    assert!(pool.policy.repacks());
    assert_eq!(pool.leaves(1, Hotness::Cold), DENSE);
    assert_eq!(pool.leaves(2, Hotness::Warm), QUICK);
    assert_eq!(pool.leaves(3, Hotness::Hot), QUICK);
    (0..3).for_each(|_| pool.relaunch());
    assert_eq!(pool.anew(10), [2, 3]);
    assert_eq!(pool.anew(10), [], "each once");
}

#[test]
fn what_comes_back_in_time_is_young_when_it_leaves_again() {
    let mut pool = Pool::new(3);
    for vpn in 1..=4 {
        pool.leaves(vpn, Hotness::Warm);
    }
    pool.relaunch();
    pool.comes_back(2);
    pool.leaves(2, Hotness::Warm);
    pool.comes_back(3);
    pool.relaunch();
    assert_eq!(pool.anew(10), []);
    pool.relaunch();
    assert_eq!(pool.anew(1).len(), 1, "as many as are wanted");
    let rest = pool.anew(10);
    assert!(rest == [1] || rest == [4], "{rest:?}");
    pool.relaunch();
    assert_eq!(pool.anew(10), [2]);
}

#[test]
fn where_nothing_is_relaunched_time_counts() {
    let mut pool = Pool::new(2);
    pool.leaves(1, Hotness::Warm);
    for seconds in [10, 16, 20, 32] {
        assert_eq!(pool.anew(10), [], "{seconds}");
        pool.world.facts.now = Ns::from_ms(seconds * 1000);
        pool.tell(&Event::Tick);
    }
    assert_eq!(pool.anew(10), [1]);
}

#[test]
fn what_is_given_up_is_forgotten_and_what_moves_keeps_its_age() {
    let mut pool = Pool::new(1);
    for vpn in 0..8 {
        pool.leaves(vpn, Hotness::Hot);
    }
    pool.tell(&Event::Freed { run: PageRun { first: page(0, 0), count: 2 } });
    let to: PageId = page(0, 100);
    pool.tell(&Event::Moved { from: PageRun { first: page(0, 2), count: 2 }, to });
    for (from, to) in [(2, 100), (3, 101)] {
        pool.world.table.stored.remove(&page(0, from));
        pool.world.table.stored.insert(page(0, to), Tier::Pool);
    }
    // It has gone to flash, which keeps what it has.
    pool.tell(&Event::Stored { page: page(0, 4), tier: Tier::Flash, bytes: 1000 });
    pool.relaunch();
    assert_eq!(pool.anew(10), [5, 6, 7, 100, 101]);
}
