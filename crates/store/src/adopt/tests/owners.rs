//! Page tables: owner records half written or damaged, entries that are none.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use clew_core::{SpaceId, Vpn};

use super::image::{Copy, FRAME};
use crate::{
    AdoptError, Damage, Entry, Handle, ReadError, Segment, Space, SpaceLeaves, State, Store, Tables,
};

const RESIDENT: Entry = Entry::new(State::Resident);

fn tables() -> Arc<Tables> {
    Arc::new(Tables::new(1000 * 512).unwrap())
}

fn space(id: u32, tables: &Arc<Tables>, vpns: &[u64]) -> Space {
    let space = Space::new(SpaceId(id), Arc::clone(tables));
    for vpn in vpns {
        space.store(Vpn(*vpn), RESIDENT).unwrap();
    }
    space
}

fn copies(tables: &Tables) -> [Copy; 2] {
    tables.segments().map(Copy::of)
}

fn adopt(copies: &[Copy; 2]) -> Result<(Tables, SpaceLeaves), AdoptError> {
    Tables::adopt([copies[0].write(), copies[1].write()]).inspect(|(tables, _)| tables.settle())
}

fn held(tables: &Tables) -> u64 {
    tables.segments().iter().map(|s| s.resident_bytes().unwrap()).sum()
}

fn sorted(spaces: &SpaceLeaves) -> Vec<(u32, Vec<(u64, u32)>)> {
    let mut all: Vec<_> = spaces.iter().map(|(id, leaves)| (id.0, leaves.clone())).collect();
    all.sort();
    all
}

#[test]
fn every_space_gets_its_leaves_back() {
    let tables = tables();
    let one = space(1, &tables, &[0, 600, 1 << 44]);
    let two = space(2, &tables, &[0]);
    let gone = space(3, &tables, &[0, 512]);
    let last = space(4, &tables, &[7]);
    drop(gone);
    let (next, mut spaces) = adopt(&copies(&tables)).unwrap();
    let expected =
        vec![(1, vec![(0, 1), (1, 2), ((1 << 44) / 512, 3)]), (2, vec![(0, 4)]), (4, vec![(0, 7)])];
    assert_eq!(sorted(&spaces), expected);
    assert_eq!((held(&next), next.used_bytes()), (6 * 4096, 6 * 4096));
    let next = Arc::new(next);
    let (again, damage) =
        Space::adopt(SpaceId(1), Arc::clone(&next), spaces.remove(&SpaceId(1)).unwrap());
    assert_eq!(damage, Damage::default());
    assert_eq!((again.counts(), again.leaves()), (one.counts(), 3));
    for vpn in [0, 600, 1 << 44, 1] {
        assert_eq!(again.load(Vpn(vpn)), one.load(Vpn(vpn)));
    }
    // The others are not wanted. Leaves of those that went come first.
    spaces.into_values().for_each(|leaves| next.discard(leaves));
    assert_eq!((held(&next), next.used_bytes()), (4 * 4096, 4 * 4096));
    again.store(Vpn(9 << 20), RESIDENT).unwrap();
    assert_eq!(next.used_bytes(), 5 * 4096);
    drop((again, two, last));
    assert_eq!(next.used_bytes(), 4096);
    let (empty, spaces) = adopt(&copies(&next)).unwrap();
    assert_eq!((spaces.len(), held(&empty), empty.used_bytes()), (0, 0, 0));
    space(5, &Arc::new(empty), &[0]);
}

#[test]
fn tables_that_are_full_are_found_to_the_last_leaf() {
    for leaves in [1, 2, 255, 256] {
        let tables = Arc::new(Tables::new(leaves * 512).unwrap());
        let vpns: Vec<u64> = (0..leaves).map(|leaf| leaf * 512).collect();
        let full = space(1, &tables, &vpns);
        assert!(full.store(Vpn(1 << 30), RESIDENT).is_err());
        let (next, spaces) = adopt(&copies(&tables)).unwrap();
        let expected: Vec<(u64, u32)> = (0..leaves).map(|leaf| (leaf, leaf as u32 + 1)).collect();
        assert_eq!(sorted(&spaces), [(1, expected)]);
        assert_eq!((held(&next), next.used_bytes()), (held(&tables), tables.used_bytes()));
    }
}

#[test]
fn what_was_being_made_or_freed_is_free() {
    let tables = tables();
    let _space = space(1, &tables, &[0, 600, 1200]);
    let whole = copies(&tables);
    type Change = fn(&mut [Copy; 2]);
    let half: [(&str, Change, usize); 6] = [
        ("zeroed, no owner yet", |c| drop(c[0].frames.insert(4, vec![0; FRAME])), 3),
        (
            "second word written",
            |c| {
                c[0].frames.insert(4, vec![0; FRAME]);
                c[1].set_word(9, 77 << 32 | 1);
            },
            3,
        ),
        ("no room for its record yet", |c| drop(c[0].frames.insert(256, vec![0; FRAME])), 3),
        (
            "room for its record, not used yet",
            |c| {
                c[0].frames.insert(256, vec![0; FRAME]);
                c[1].frames.insert(1, vec![0; FRAME]);
            },
            3,
        ),
        ("punched", |c| drop(c[0].frames.remove(&2)), 2),
        (
            "first word zeroed",
            |c| {
                c[0].frames.remove(&2);
                c[1].set_word(4, 0);
            },
            2,
        ),
    ];
    for (name, change, leaves) in half {
        let mut copies = whole.clone();
        change(&mut copies);
        let (tables, spaces) = adopt(&copies).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(spaces[&SpaceId(1)].len(), leaves, "{name}");
        assert_eq!(held(&tables), tables.used_bytes(), "{name}");
        assert_eq!(tables.used_bytes(), (leaves as u64 + 1) * 4096, "{name}");
    }
}

#[test]
fn an_owner_that_is_none_is_an_error() {
    let tables = tables();
    let _spaces = (space(1, &tables, &[0, 600]), space(9, &tables, &[512 * 77]));
    let whole = copies(&tables);
    for leaf in 1..=3usize {
        for bit in 0..128 {
            let mut copies = whole.clone();
            let word = leaf * 2 + bit / 64;
            copies[1].set_word(word, copies[1].word(word) ^ 1 << (bit % 64));
            match adopt(&copies) {
                Err(AdoptError::Owner { leaf: c }) => assert_eq!(c as usize, leaf),
                // The number plus one was a power of two.
                Err(AdoptError::Unowned { leaf: c }) => assert_eq!(c, leaf),
                other => panic!("bit {bit} of leaf {leaf}: {other:?}"),
            }
        }
    }
    let mut moved = whole.clone();
    for half in 0..2 {
        let (one, other) = (moved[1].word(2 + half), moved[1].word(6 + half));
        moved[1].set_word(2 + half, other);
        moved[1].set_word(6 + half, one);
    }
    assert!(matches!(adopt(&moved), Err(AdoptError::Owner { leaf: 1 })));
    let mut hole = whole.clone();
    hole[1].frames.remove(&0);
    assert!(matches!(adopt(&hole), Err(AdoptError::Unowned { leaf: 1 })));
    hole[1].frames.insert(1, vec![0; FRAME]);
    assert!(matches!(adopt(&hole), Err(AdoptError::Owner { leaf: 256 })));
    for frame in [0, 4, 200, 900] {
        let mut foreign = whole.clone();
        foreign[0].frames.insert(frame, vec![1; FRAME]);
        let refused = adopt(&foreign);
        assert!(matches!(refused, Err(AdoptError::Unowned { leaf }) if leaf == frame));
    }
}

#[test]
fn two_leaves_for_one_place_are_an_error() {
    let tables = tables();
    let _twice = (space(5, &tables, &[700]), space(5, &tables, &[700]));
    let refused = adopt(&copies(&tables));
    let Err(AdoptError::Twice { space, number: 1, first: 1, second: 2 }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(space, SpaceId(5));
}

#[test]
fn no_segment_is_an_error() {
    let file = |len| -> OwnedFd { Copy { len, ..Copy::default() }.write() };
    let (pipe, other) = std::io::pipe().unwrap();
    assert!(Tables::adopt([pipe.into(), other.into()]).is_err());
    // The least that can be: one leaf, which is nobody's.
    let (tables, spaces) = Tables::adopt([file(4096), file(4096)]).unwrap();
    tables.settle();
    assert!(spaces.is_empty());
    let space = Space::new(SpaceId(1), Arc::new(tables));
    assert!(space.store(Vpn(0), RESIDENT).is_err());
}

#[test]
fn few_flipped_bits_make_no_other_entry() {
    let handle = |raw| Handle::from_raw(raw).unwrap();
    let entries = [
        Entry::ABSENT,
        RESIDENT,
        Entry::new(State::Stored),
        Entry::with_block(State::Stored, handle(1), 0),
        Entry::with_block(State::Restoring, handle(u32::MAX), 127).with(Entry::WANTED),
        Entry::with_block(State::Parked, handle(0x1234_5678), 5),
    ];
    for entry in entries {
        let raw = entry.raw();
        assert_eq!(Entry::checked(raw), Some(entry));
        for a in 0..64 {
            for b in a + 1..64 {
                let two = 1u64 << a ^ 1 << b;
                assert_eq!(Entry::checked(raw ^ two), None, "{entry:?} and {two:#x}");
                for c in b..64 {
                    let bits = 1u64 << a ^ 1 << b ^ 1 << c;
                    let found = Entry::checked(raw ^ bits);
                    assert!(found.is_none(), "{entry:?} and {bits:#x}: {found:?}");
                }
            }
        }
        for byte in 0..8 {
            for value in 1..256 {
                assert_eq!(Entry::checked(raw ^ value << (byte * 8)), None);
            }
        }
    }
}

#[test]
fn what_is_no_entry_is_stored_nowhere() {
    let tables = tables();
    let _space = space(1, &tables, &[0, 1, 2, 3, 512, 513]);
    let mut damaged = copies(&tables);
    let words = [
        (1, 6),                                          // unknown state
        (2, RESIDENT.raw() | 1 << 5),                    // reserved flag
        (3, u64::MAX),                                   // anything
        (4, 1 << 32),                                    // was absent
        (512, Entry::new(State::Stored).raw() | 9 << 8), // index without a block
    ];
    for (page, word) in words {
        damaged[0].set_word((page / 512 + 1) * 512 + page % 512, word);
    }
    let store = Store::new(super::world::config()).unwrap();
    let mut ctx = crate::CodecContext::new();
    for round in 0..2 {
        let (tables, mut spaces) = adopt(&damaged).unwrap();
        let tables = Arc::new(tables);
        let leaves = spaces.remove(&SpaceId(1)).unwrap();
        let (space, damage) = Space::adopt(SpaceId(1), Arc::clone(&tables), leaves);
        let pages =
            if round == 0 { words.map(|(page, _)| Vpn(page as u64)).to_vec() } else { vec![] };
        assert_eq!(damage, Damage { pages });
        assert_eq!((space.counts().resident, space.counts().stored), (2, 5));
        assert_eq!(space.handles().filter(|handle| *handle == Handle::LOST).count(), 5);
        for (page, _) in words {
            let entry = space.load(Vpn(page as u64));
            assert_eq!((entry.state(), entry.handle()), (State::Stored, Some(Handle::LOST)));
            let read = store
                .get(&mut ctx, Handle::LOST, entry.index(), &mut [0; 4096])
                .and_then(crate::Get::here);
            assert_eq!(read, Err(ReadError::Unknown { handle: Handle::LOST }));
            assert!(!store.release(Handle::LOST) && !store.retain(Handle::LOST));
        }
        assert_eq!(space.load(Vpn(0)), RESIDENT);
        damaged = copies(&tables);
    }
}

#[test]
fn asking_does_not_make_memory() {
    let tables = Tables::new(1 << 30).unwrap();
    let [leaves, owners] = tables.segments();
    let fds = [leaves, owners].map(|s: &Segment| Copy::of(s).write());
    let (tables, _) = Tables::adopt(fds).unwrap();
    tables.settle();
    assert_eq!(held(&tables), 0);
}
