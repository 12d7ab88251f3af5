//! Lists of pages: single steps, and all of them against naive lists.

use std::collections::BTreeMap;

use clew_core::Vpn;
use proptest::prelude::*;

use super::*;

const LIST: ListId = ListId(0);
const OTHER: ListId = ListId(1);

fn page(space: u32, vpn: u64) -> PageId {
    PageId::new(SpaceId(space), Vpn(vpn))
}

fn run(space: u32, vpn: u64, count: u32) -> PageRun {
    PageRun { first: page(space, vpn), count }
}

fn drain(lists: &mut PageLists, list: ListId) -> Vec<u64> {
    let mut vpns = Vec::new();
    while let Some(slot) = lists.tail(list) {
        vpns.push(lists.page(slot).vpn().0);
        lists.forget(slot);
    }
    vpns
}

#[test]
fn a_page_costs_nine_bytes_among_neighbours() {
    assert_eq!(size_of::<Block>(), 576);
}

#[test]
fn runs_enter_in_address_order_across_blocks_and_once() {
    let mut lists = PageLists::new();
    assert_eq!(lists.push_run(LIST, run(1, 60, 200)), 200);
    assert_eq!(lists.push_run(LIST, run(1, 0, 100)), 60);
    let expected: Vec<u64> = (60..260).chain(0..60).collect();
    assert_eq!(drain(&mut lists, LIST), expected);
    assert!(lists.by_key.is_empty(), "a block was not released");
}

#[test]
fn forgetting_a_huge_run_visits_known_blocks_only() {
    let mut lists = PageLists::new();
    lists.push_run(LIST, run(1, 1000, 10));
    lists.push_run(LIST, run(2, 1000, 10));
    let mut seen = 0;
    lists.forget_run(run(1, 1003, u32::MAX), |_, _| seen += 1);
    assert_eq!(seen, 7);
    assert_eq!(lists.listed_of_space(SpaceId(1)).len(), 3);
    assert_eq!(lists.listed_of_space(SpaceId(2)).len(), 10);
}

#[test]
fn moving_a_huge_run_visits_known_pages_only() {
    let mut lists = PageLists::new();
    let far = u64::from(u32::MAX) + 7;
    lists.push_run(LIST, run(1, 1000, 3));
    lists.push_run(LIST, run(1, far + 1, 2));
    lists.push_run(LIST, run(1, far + 1000, 2));
    let mut forgotten = 0;
    lists.move_run(run(1, 0, u32::MAX), page(1, far), |_, _| forgotten += 1);
    assert_eq!(forgotten, 4);
    assert_eq!(drain(&mut lists, LIST), [far + 1000, far + 1001, far + 1002]);
    assert!(lists.by_key.is_empty(), "a block was not released");
}

#[test]
fn appending_keeps_order_and_empties() {
    let mut lists = PageLists::new();
    lists.push_run(LIST, run(0, 0, 3));
    lists.push_run(OTHER, run(0, 100, 3));
    lists.append(OTHER, LIST);
    assert!(lists.is_empty(OTHER));
    lists.append(OTHER, LIST);
    assert_eq!(drain(&mut lists, LIST), [100, 101, 102, 0, 1, 2]);
}

#[test]
fn renaming_keeps_place_and_stamp() {
    let mut lists = PageLists::new();
    lists.push_run(LIST, run(0, 0, 3));
    lists.rename(page(0, 1), page(3, 77));
    let two = lists.find(page(0, 2)).unwrap();
    lists.set_gone(two, 42);
    lists.rename(page(0, 2), page(0, 500));
    assert_eq!(lists.find(page(0, 2)), None);
    let moved = lists.find(page(0, 500)).unwrap();
    assert_eq!(lists.stamp(moved), Some(42));
    assert_eq!(drain(&mut lists, LIST), [0, 77]);
}

const FLAGS: [Flag; 4] = [Flag::A, Flag::B, Flag::C, Flag::D];

/// What a page is, the naive way.
#[derive(Default)]
struct Naive {
    /// The newest first.
    lists: BTreeMap<u32, Vec<PageId>>,
    gone: BTreeMap<PageId, u32>,
    flags: BTreeMap<PageId, [bool; 4]>,
}

impl Naive {
    fn list_of(&self, page: PageId) -> Option<u32> {
        self.lists.iter().find(|(_, pages)| pages.contains(&page)).map(|(list, _)| *list)
    }

    fn is_known(&self, page: PageId) -> bool {
        self.list_of(page).is_some() || self.gone.contains_key(&page)
    }

    /// True if it was listed.
    fn take(&mut self, page: PageId) -> bool {
        let list = self.list_of(page);
        if let Some(list) = list {
            self.lists.get_mut(&list).unwrap().retain(|other| *other != page);
        }
        self.gone.remove(&page);
        list.is_some()
    }

    fn forget(&mut self, page: PageId) -> bool {
        self.flags.remove(&page);
        self.take(page)
    }

    fn push(&mut self, list: u32, page: PageId) {
        self.take(page);
        self.lists.entry(list).or_default().insert(0, page);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Front(u32, (u32, u64)),
    Gone((u32, u64), u32),
    Forget((u32, u64)),
    Flag((u32, u64), usize, bool),
    ClearFlags((u32, u64)),
    Rename((u32, u64), (u32, u64)),
    Push(u32, (u32, u64), u32),
    ForgetRun((u32, u64), u32),
    ForgetSpace(u32),
    Append(u32, u32),
}

fn place() -> impl Strategy<Value = (u32, u64)> {
    // Neighbours at the seams of blocks, and a page far away.
    let vpn = prop_oneof![4 => 0u64..4, 4 => 60u64..68, 2 => 124u64..132, 1 => Just(1 << 30)];
    (0u32..3, vpn)
}

fn op() -> impl Strategy<Value = Op> {
    let list = || 0u32..4;
    let count = || prop_oneof![4 => 1u32..10, 2 => 60u32..140, 1 => Just(u32::MAX)];
    prop_oneof![
        6 => (list(), place()).prop_map(|(list, page)| Op::Front(list, page)),
        4 => (place(), 0u32..9).prop_map(|(page, stamp)| Op::Gone(page, stamp)),
        4 => place().prop_map(Op::Forget),
        4 => (place(), 0usize..4, any::<bool>()).prop_map(|(p, flag, on)| Op::Flag(p, flag, on)),
        1 => place().prop_map(Op::ClearFlags),
        4 => (place(), place()).prop_map(|(from, to)| Op::Rename(from, to)),
        4 => (list(), place(), 1u32..140).prop_map(|(list, at, n)| Op::Push(list, at, n)),
        3 => (place(), count()).prop_map(|(at, n)| Op::ForgetRun(at, n)),
        1 => (0u32..4).prop_map(Op::ForgetSpace),
        2 => (list(), list()).prop_map(|(from, to)| Op::Append(from, to)),
    ]
}

/// Collects what it is told of, which must be listed at that moment.
fn collect(told: &mut Vec<PageId>) -> impl FnMut(&PageLists, Slot) + '_ {
    |lists, slot| {
        assert!(lists.is_listed(slot));
        told.push(lists.page(slot));
    }
}

fn apply(lists: &mut PageLists, ids: &[ListId], naive: &mut Naive, op: &Op) {
    let at = |(space, vpn): (u32, u64)| page(space, vpn);
    let id = |list: u32| ids[list as usize];
    match *op {
        Op::Front(list, place) => {
            let page = at(place);
            let slot = lists.slot(page);
            match lists.is_listed(slot) {
                true => lists.move_to_front(id(list), slot),
                false => lists.push_front(id(list), slot),
            }
            naive.push(list, page);
        }
        Op::Gone(place, stamp) => {
            let slot = lists.slot(at(place));
            lists.set_gone(slot, stamp);
            naive.forget(at(place));
            naive.gone.insert(at(place), stamp);
        }
        Op::Forget(place) => {
            if let Some(slot) = lists.find(at(place)) {
                lists.forget(slot);
            }
            naive.forget(at(place));
        }
        Op::Flag(place, flag, on) => {
            if let Some(slot) = lists.find(at(place)) {
                lists.set_flag(slot, FLAGS[flag], on);
                naive.flags.entry(at(place)).or_default()[flag] = on;
            }
        }
        Op::ClearFlags(place) => {
            if let Some(slot) = lists.find(at(place)) {
                lists.clear_flags(slot);
                naive.flags.remove(&at(place));
            }
        }
        Op::Rename(from, to) => {
            if naive.is_known(at(to)) {
                return;
            }
            lists.rename(at(from), at(to));
            if let Some(flags) = naive.flags.remove(&at(from)) {
                naive.flags.insert(at(to), flags);
            }
            if let Some(stamp) = naive.gone.remove(&at(from)) {
                naive.gone.insert(at(to), stamp);
            }
            for page in naive.lists.values_mut().flatten().filter(|page| **page == at(from)) {
                *page = at(to);
            }
        }
        Op::Push(list, place, count) => {
            let run = PageRun { first: at(place), count };
            let new: Vec<PageId> =
                run.pages().filter(|page| naive.list_of(*page).is_none()).collect();
            assert_eq!(lists.push_run(id(list), run), new.len() as u64);
            new.into_iter().for_each(|page| naive.push(list, page));
        }
        Op::ForgetRun(place, count) => {
            let run = PageRun { first: at(place), count };
            let mut told = Vec::new();
            lists.forget_run(run, collect(&mut told));
            forgotten(naive, |page| run.contains(page), told);
        }
        Op::ForgetSpace(space) => {
            let mut told = Vec::new();
            lists.forget_space(SpaceId(space), collect(&mut told));
            forgotten(naive, |page| page.space().0 == space, told);
        }
        Op::Append(from, to) if from != to => {
            lists.append(id(from), id(to));
            let pages = naive.lists.remove(&from).unwrap_or_default();
            naive.lists.entry(to).or_default().extend(pages);
        }
        Op::Append(..) => {}
    }
}

fn forgotten(naive: &mut Naive, is_of: impl Fn(PageId) -> bool, mut told: Vec<PageId>) {
    let known = naive.lists.values().flatten().chain(naive.gone.keys());
    let all: Vec<PageId> = known.copied().filter(|page| is_of(*page)).collect();
    let mut listed: Vec<PageId> = all.into_iter().filter(|page| naive.forget(*page)).collect();
    told.sort_unstable();
    listed.sort_unstable();
    assert_eq!(told, listed);
}

fn check(lists: &PageLists, ids: &[ListId], naive: &Naive) {
    for (number, id) in (0..).zip(ids) {
        let expected = naive.lists.get(&number).cloned().unwrap_or_default();
        assert_eq!(lists.is_empty(*id), expected.is_empty());
        let oldest = lists.tail(*id);
        let found = std::iter::successors(oldest, |slot| lists.newer(*id, *slot));
        let found: Vec<PageId> = found.map(|slot| lists.page(slot)).collect();
        assert!(found.iter().rev().eq(&expected), "{found:?} is not {expected:?} backwards");
    }
    for space in 0..4 {
        let of = |page: &PageId| page.space().0 == space;
        let mut found: Vec<PageId> =
            lists.listed_of_space(SpaceId(space)).into_iter().map(|s| lists.page(s)).collect();
        found.sort_unstable();
        let mut expected: Vec<PageId> =
            naive.lists.values().flatten().copied().filter(of).collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
        for (i, flag) in FLAGS.into_iter().enumerate() {
            let run = run(space, 2, 124);
            let found: Vec<PageId> =
                lists.listed_with(run, flag).into_iter().map(|s| lists.page(s)).collect();
            let mut wanted = expected.clone();
            wanted.retain(|page| {
                run.contains(*page) && naive.flags.get(page).is_some_and(|flags| flags[i])
            });
            assert_eq!(found, wanted, "in address order");
        }
        for vpn in (0..140).chain([1 << 30]) {
            let page = page(space, vpn);
            let slot = lists.find(page);
            assert_eq!(slot.is_some(), naive.is_known(page), "{page:?}");
            let Some(slot) = slot else { continue };
            assert_eq!(lists.page(slot), page);
            assert_eq!(lists.is_listed(slot), naive.list_of(page).is_some());
            assert_eq!(lists.stamp(slot), naive.gone.get(&page).copied());
            let flags = FLAGS.map(|flag| lists.flag(slot, flag));
            assert_eq!(flags, naive.flags.get(&page).copied().unwrap_or_default());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_lists_of_pages(ops in proptest::collection::vec(op(), 1..60)) {
        let (mut lists, mut naive) = (PageLists::new(), Naive::default());
        let ids = [LIST, OTHER, lists.new_list(), lists.new_list()];
        for op in &ops {
            apply(&mut lists, &ids, &mut naive, op);
        }
        check(&lists, &ids, &naive);
        // Nothing of it is left: who comes next finds the blocks.
        (0..3).for_each(|space| lists.forget_space(SpaceId(space), |_, _| {}));
        let blocks = lists.blocks.len();
        check(&lists, &ids, &Naive::default());
        prop_assert!(lists.by_key.is_empty());
        prop_assert_eq!(lists.free.len() + 2, blocks, "two hold heads");
        ids[2..].iter().for_each(|id| lists.end_list(*id));
    }
}

#[test]
fn lists_are_handed_out_once_until_they_are_given_back() {
    let mut lists = PageLists::new();
    let mut all: Vec<u32> = (0..130).map(|_| lists.new_list().0).collect();
    assert!(all.iter().all(|list| *list >= 64), "the first 64 are always there");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 130);
    for (vpn, list) in (0..).zip(&all) {
        lists.push_run(ListId(*list), run(1, vpn * 10, 2));
    }
    for (vpn, list) in (0..).zip(&all) {
        assert_eq!(drain(&mut lists, ListId(*list)), [vpn * 10, vpn * 10 + 1]);
        lists.end_list(ListId(*list));
    }
    let blocks = lists.blocks.len();
    let again: Vec<ListId> = (0..130).map(|_| lists.new_list()).collect();
    assert_eq!(again.len(), 130);
    assert_eq!(lists.blocks.len(), blocks);
}

#[test]
#[should_panic(expected = "a list ends with pages on it")]
fn a_list_with_pages_does_not_end() {
    let mut lists = PageLists::new();
    let list = lists.new_list();
    lists.push_run(list, run(1, 0, 1));
    lists.end_list(list);
}

#[test]
fn what_tracking_takes_grows_with_the_pages() {
    let mut lists = PageLists::new();
    let empty = lists.tracking_bytes();
    assert!(empty >= 576, "the heads");
    lists.push_run(LIST, run(1, 0, 1 << 20));
    let bytes = lists.tracking_bytes();
    // Links and flags, at least; with room to grow, and the map, at most.
    assert!((9 << 20..19 << 20).contains(&bytes), "{bytes}");
}
