//! Clean pages of files leave first, but for what is in use (ezswap III-A).

use clew_conformance::{World, page, run};
use clew_core::{
    AccessKind, AppId, Demand, Event, Observe, PageId, Reclaim, SpaceId, Unit, Verdict,
};
use clew_policy::reclaim::files_first::FilesFirst;

struct Machine {
    world: World,
    policy: FilesFirst,
}

impl Machine {
    /// Apps 0 and 1 with anonymous memory (spaces 0 and 1) and files (spaces 2 and 3), and the system's files (4).
    fn new() -> Machine {
        let (world, policy) = (World::new(&[0, 1]), FilesFirst::default());
        let mut machine = Machine { world, policy };
        for (space, app) in [(2, 0), (3, 1), (4, 2)] {
            machine.tell(Event::SpaceStart { space: SpaceId(space), app: AppId(app), file: true });
        }
        machine
    }

    fn tell(&mut self, event: Event) {
        self.world.before(&event);
        self.policy.on_event(&event, &self.world.view());
        self.world.after(&event);
    }

    fn front(&mut self, app: u32) {
        self.tell(Event::Relaunch { app: AppId(app) });
    }

    fn read(&mut self, space: u32, vpns: std::ops::Range<u64>) {
        for vpn in vpns {
            let page = page(space, vpn);
            let kind = AccessKind::Fault;
            self.tell(Event::Access { page, kind, write: false });
            self.tell(Event::PageIn { page, tier: clew_core::Tier::Flash, demand: true });
        }
    }

    fn pick(&mut self, pages: usize, urgent: bool) -> Vec<PageId> {
        let mut out = Vec::new();
        self.policy.pick_victims(Demand { pages, urgent }, &self.world.view(), &mut out);
        let page = |verdict| match verdict {
            Verdict::Take(victim) => match victim.unit {
                Unit::Page(page) => page,
                unit => panic!("{unit:?}"),
            },
            other => panic!("{other:?}"),
        };
        out.into_iter().map(page).collect()
    }
}

fn pages(space: u32, vpns: std::ops::Range<u64>) -> impl Iterator<Item = PageId> {
    vpns.map(move |vpn| page(space, vpn))
}

#[test]
fn old_files_then_anonymous_pages_then_files_in_use_then_the_front() {
    let mut machine = Machine::new();
    for space in [0, 1] {
        machine.tell(Event::Resident { run: run(space, 0, 4) });
    }
    machine.front(0);
    machine.read(2, 0..4);
    machine.read(4, 0..4);
    machine.front(1);
    machine.read(3, 0..2);
    // Used again: in use.
    let again = Event::Access { page: page(4, 1), kind: AccessKind::Seen, write: false };
    machine.tell(again);
    let expected: Vec<PageId> = pages(2, 0..4)
        .chain([page(4, 0), page(4, 2), page(4, 3)])
        .chain(pages(0, 0..4))
        .chain(pages(3, 0..2))
        .chain([page(4, 1)])
        .chain(pages(1, 0..4))
        .collect();
    assert_eq!(machine.pick(99, false), expected);
    assert_eq!(machine.pick(1, true), []);
}

#[test]
fn what_left_comes_back_as_in_use() {
    let mut machine = Machine::new();
    machine.tell(Event::Resident { run: run(0, 0, 2) });
    machine.front(1);
    machine.tell(Event::Resident { run: run(3, 0, 2) });
    assert_eq!(machine.pick(2, false), pages(3, 0..2).collect::<Vec<_>>());
    machine.tell(Event::Stored { page: page(3, 0), tier: clew_core::Tier::Flash, bytes: 0 });
    machine.tell(Event::Stayed { page: page(3, 1) });
    machine.read(3, 0..1);
    let expected = [page(0, 0), page(0, 1), page(3, 1), page(3, 0)];
    assert_eq!(machine.pick(9, false), expected);
    machine.tell(Event::SpaceEnd { space: SpaceId(3) });
    assert_eq!(machine.pick(9, true), []);
}
