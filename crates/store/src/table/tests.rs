//! The page table against a naive one, and from several threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use clew_core::{SpaceId, Vpn};
use proptest::prelude::*;

use super::*;
use crate::store::Handle;

fn space() -> (Arc<Tables>, Space) {
    let tables = Arc::new(Tables::new(1 << 24).unwrap());
    let space = Space::new(SpaceId(1), Arc::clone(&tables));
    (tables, space)
}

fn entry(state: usize, handle: u32) -> Entry {
    match Handle::from_raw(handle) {
        Some(block) => Entry::with_block(State::ALL[state], block, handle as u16 % 128),
        None => Entry::new(State::ALL[state]),
    }
}

#[test]
fn entries_keep_their_fields_apart() {
    let handle = Handle::from_raw(u32::MAX).unwrap();
    let entry = Entry::with_block(State::Stored, handle, 127);
    assert_eq!((entry.state(), entry.handle(), entry.index()), (State::Stored, Some(handle), 127));
    let wanted = entry.with(Entry::WANTED).with_state(State::Restoring);
    assert!(wanted.has(Entry::WANTED) && !wanted.has(2));
    assert_eq!(
        (wanted.state(), wanted.handle(), wanted.index()),
        (State::Restoring, Some(handle), 127)
    );
    assert_eq!(wanted.without(Entry::WANTED).with_state(State::Stored), entry);
    assert_eq!(entry.without_block(), Entry::new(State::Stored));
    assert_eq!(Entry::new(State::Absent), Entry::ABSENT);
    assert_eq!(format!("{wanted:?}"), "Restoring+wanted(4294967295[127])");
    assert_eq!(size_of::<Entry>(), 8);
}

/// What a daemon wrote is what every later one reads: a change of the check would be damage to it.
#[test]
fn words_stay_what_they_are() {
    let handle = Handle::from_raw(0x1234_5678).unwrap();
    let stored = Entry::with_block(State::Stored, handle, 0x0a0b);
    let restoring = stored.with(Entry::WANTED).with_state(State::Restoring);
    assert_eq!(stored.raw(), 0x1234_5678_870a_0b03);
    assert_eq!(restoring.raw(), 0x1234_5678_470a_0b14);
    assert_eq!(Entry::new(State::Resident).raw(), 0x0000_0000_df00_0001);
    for entry in [stored, restoring, restoring.without(Entry::WANTED), restoring.without_block()] {
        assert_eq!(Entry::checked(entry.raw()), Some(entry));
    }
}

#[test]
fn a_full_table_says_so_and_gets_its_memory_back() {
    let tables = Arc::new(Tables::new(1024).unwrap());
    let one = Space::new(SpaceId(1), Arc::clone(&tables));
    let resident = Entry::new(State::Resident);
    for vpn in [0, 512] {
        assert_eq!(one.store(Vpn(vpn), resident).unwrap(), Entry::ABSENT);
    }
    assert!(matches!(one.store(Vpn(1024), resident), Err(TableError::Full { leaves: 2 })));
    assert_eq!(one.load(Vpn(0)), resident);
    assert!(matches!(one.store(Vpn(1 << 45), resident), Err(TableError::Range { .. })));
    assert_eq!((tables.used_bytes(), one.leaves()), (3 * 4096, 2));
    drop(one);
    assert_eq!(tables.used_bytes(), 4096);
    let two = Space::new(SpaceId(2), Arc::clone(&tables));
    two.store(Vpn(3), resident).unwrap();
    assert_eq!(two.load(Vpn(2)), Entry::ABSENT);
}

#[test]
fn spaces_of_one_share_leave_the_rest_to_others() {
    let tables = Arc::new(Tables::new(64 * 512).unwrap());
    let share = Arc::new(LeafShare::new(16));
    let space = |id| Space::new(SpaceId(id), Arc::clone(&tables));
    let resident = Entry::new(State::Resident);
    let (one, two, other) = (space(1), space(2), space(3));
    one.store(Vpn(0), resident).unwrap();
    [&one, &two].into_iter().for_each(|space| space.charge(Arc::clone(&share)));
    // The first one had a leaf already; two of sixteen are kept for what must be known.
    for n in 1..14 {
        let space = if n % 2 == 0 { &one } else { &two };
        space.note(Vpn(n * 512), resident).unwrap();
    }
    assert!(matches!(two.note(Vpn(1 << 20), resident), Err(TableError::Full { leaves: 14 })));
    one.note(Vpn(1), resident).unwrap();
    for n in 14..16 {
        two.store(Vpn(n * 512), resident).unwrap();
    }
    assert!(matches!(one.store(Vpn(1 << 20), resident), Err(TableError::Full { leaves: 16 })));
    for n in 0..40 {
        other.note(Vpn(n * 512), resident).unwrap();
    }
    drop(two);
    one.note(Vpn(1 << 20), resident).unwrap();
}

#[test]
fn pages_behind_the_limit_are_absent_and_refused() {
    let (_tables, space) = space();
    let resident = Entry::new(State::Resident);
    let last = (1 << 45) - 1;
    space.compare_exchange(Vpn(last), Entry::ABSENT, resident).unwrap();
    assert_eq!(space.load(Vpn(last)), resident);
    for behind in [1 << 45, (1 << 45) + last, u64::MAX] {
        let vpn = Vpn(behind);
        assert_eq!(space.load(vpn), Entry::ABSENT);
        assert_eq!(space.store(vpn, Entry::ABSENT).unwrap(), Entry::ABSENT);
        assert!(matches!(space.store(vpn, resident), Err(TableError::Range { .. })));
        space.compare_exchange(vpn, Entry::ABSENT, Entry::ABSENT).unwrap();
        let refused = space.compare_exchange(vpn, Entry::ABSENT, resident);
        assert!(matches!(refused, Err(Refused::Table(TableError::Range { .. }))));
        let refused = space.compare_exchange(vpn, resident, Entry::ABSENT);
        assert!(matches!(refused, Err(Refused::Found(Entry::ABSENT))));
    }
    assert_eq!((space.counts().resident, space.leaves()), (1, 1));
}

#[test]
fn a_kernel_sees_no_more_memory_than_we_count() {
    let (tables, space) = space();
    for i in 0..2000 {
        space.store(Vpn(i * 700), Entry::new(State::Resident)).unwrap();
    }
    let held: u64 = tables.segments().iter().map(|s| s.resident_bytes().unwrap()).sum();
    assert_eq!(held, tables.used_bytes());
    assert_eq!(space.counts().resident, 2000);
}

#[test]
fn threads_see_each_others_leaves() {
    let (_, space) = space();
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let space = &space;
            scope.spawn(move || {
                for i in 0..4000 {
                    let vpn = Vpn(i * 97);
                    let mine = entry(3, (worker * 4000 + i + 1) as u32);
                    // Whoever comes first has the page; everybody sees who that was.
                    if let Err(Refused::Found(other)) =
                        space.compare_exchange(vpn, Entry::ABSENT, mine)
                    {
                        assert_eq!(space.load(vpn), other);
                    } else {
                        assert_eq!(space.load(vpn), mine);
                    }
                }
            });
        }
    });
    let mut seen = 0;
    space.for_range(Vpn(0), 1 << 45, |_, _| seen += 1);
    assert_eq!(space.counts().stored, seen);
}

fn pair((vpn, entry): (&u64, &Entry)) -> (u64, Entry) {
    (*vpn, *entry)
}

#[derive(Clone, Debug)]
enum Op {
    Store(u64, usize, u32),
    Exchange(u64, usize, u32, bool),
    Range(u64, u64),
}

fn vpn() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..3000, 1 => (1u64 << 35)..(1 << 35) + 3000, 1 => 0u64..1 << 45]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (vpn(), 0usize..6, 0u32..9).prop_map(|(v, s, h)| Op::Store(v, s, h)),
        4 => (vpn(), 0usize..6, 0u32..9, any::<bool>())
            .prop_map(|(v, s, h, b)| Op::Exchange(v, s, h, b)),
        1 => (vpn(), 0u64..1 << 36).prop_map(|(v, n)| Op::Range(v, n)),
    ]
}

proptest! {
    #[test]
    fn behaves_as_a_map_of_pages(ops in proptest::collection::vec(op(), 1..120)) {
        let (_tables, space) = space();
        let mut model: BTreeMap<u64, Entry> = BTreeMap::new();
        let set = |model: &mut BTreeMap<u64, Entry>, vpn, entry: Entry| {
            let old = match entry.is_absent() {
                true => model.remove(&vpn),
                false => model.insert(vpn, entry),
            };
            old.unwrap_or_default()
        };
        for op in ops {
            match op {
                Op::Store(vpn, state, handle) => {
                    let entry = if state == 0 { Entry::ABSENT } else { entry(state, handle) };
                    let old = space.store(Vpn(vpn), entry).unwrap();
                    prop_assert_eq!(old, set(&mut model, vpn, entry));
                }
                Op::Exchange(vpn, state, handle, right) => {
                    let now = model.get(&vpn).copied().unwrap_or_default();
                    let old = if right { now } else { entry(2, 77) };
                    let new = if state == 0 { Entry::ABSENT } else { entry(state, handle) };
                    match space.compare_exchange(Vpn(vpn), old, new) {
                        Ok(()) => {
                            prop_assert!(right);
                            set(&mut model, vpn, new);
                        }
                        Err(Refused::Found(found)) => {
                            prop_assert!(!right);
                            prop_assert_eq!(found, now);
                        }
                        Err(error) => return Err(TestCaseError::fail(error.to_string())),
                    }
                }
                Op::Range(first, count) => {
                    let mut seen = Vec::new();
                    space.for_range(Vpn(first), count, |vpn, entry| seen.push((vpn.0, entry)));
                    let range: Vec<_> = model.range(first..first + count).map(pair).collect();
                    prop_assert_eq!(seen, range);
                }
            }
        }
        let mut seen = BTreeMap::new();
        space.for_range(Vpn(0), u64::MAX, |vpn, entry| {
            seen.insert(vpn.0, entry);
        });
        prop_assert_eq!(&seen, &model);
        for (vpn, entry) in &model {
            prop_assert_eq!(space.load(Vpn(*vpn)), *entry);
        }
        let of = |state| model.values().filter(|entry| entry.state() == state).count() as u64;
        prop_assert_eq!(space.counts(), Counts {
            resident: of(State::Resident),
            moving: of(State::Moving),
            stored: of(State::Stored),
            restoring: of(State::Restoring),
            parked: of(State::Parked),
            lent: of(State::Lent),
            flash: model.values().filter(|entry| entry.is_on_flash()).count() as u64,
            donors: model.values().filter(|entry| entry.is_at_donor()).count() as u64,
        });
    }
}

#[test]
fn some_leaves_are_left_for_pages_that_must_be_known() {
    let tables = Arc::new(Tables::new(16 * 512).unwrap());
    let space = Space::new(SpaceId(1), Arc::clone(&tables));
    let resident = Entry::new(State::Resident);
    let noted = (0..20).filter(|n| space.note(Vpn(n * 512), resident).is_ok()).count();
    assert_eq!(noted, 14);
    assert!(space.note(Vpn(1), resident).is_ok(), "its leaf is there");
    let stored = (20..40).filter(|n| space.store(Vpn(n * 512), resident).is_ok()).count();
    assert_eq!((stored, space.leaves()), (2, 16));
    drop(space);
    let space = Space::new(SpaceId(2), tables);
    let noted = (0..20).filter(|n| space.note(Vpn(n * 512), resident).is_ok()).count();
    assert_eq!(noted, 14, "leaves that were given back count");
}
