//! Without room in page tables: programs go on, and no page that is out becomes zeros.

use std::sync::Arc;

use clew_core::Vpn;
use clew_engine::MoverContext;
use clew_store::State;

use crate::races_out::{done, writer};
use crate::world::{Program, World};

/// Chunks of the tables, and those of them that are kept for pages which must be known.
const LEAVES: u64 = 16;
const SPARE: u64 = 2;
const LEAF_PAGES: u64 = 512;

/// One program with stored pages 1 and 2, and one that has used up what there is.
fn full() -> (World, Arc<Program>, Arc<Program>) {
    let world = World::roomy(false).with_leaves(LEAVES);
    let program = writer(&world, [1, 2, 3]);
    assert_eq!(world.out(&program, &[&[1, 2]], &mut MoverContext::default()).stored, 2);
    let sparse = world.start();
    for leaf in 0..2 * LEAVES {
        sparse.kernel.map(leaf * LEAF_PAGES + 7, 1);
        assert!(world.write(&sparse, leaf * LEAF_PAGES + 7, &mut MoverContext::default()));
    }
    (world, program, sparse)
}

#[test]
fn a_page_that_nobody_can_note_stays_in_its_program() {
    let (world, _program, sparse) = full();
    let mut ctx = MoverContext::default();
    let known = |leaf: u64| sparse.entry(leaf * LEAF_PAGES + 7).state();
    let noted = (0..2 * LEAVES).filter(|leaf| known(*leaf) == State::Resident).count() as u64;
    assert_eq!(noted, LEAVES - SPARE - 1, "the other program has one");
    // Nor is it found by a scan, nor taken out; dropped, it is zeros.
    let (first, last) = (7, (2 * LEAVES - 1) * LEAF_PAGES + 7);
    let mut events = Vec::new();
    world.mover.adopt(&sparse.space, Vpn(last), 1, &mut events);
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(world.out(&sparse, &[&[first, last]], &mut ctx).stored, 1);
    assert!(world.read(&sparse, first, &mut ctx) && world.read(&sparse, last, &mut ctx));
    sparse.kernel.remove(last, 1);
    sparse.forget(last, 1);
    assert!(world.serve(&sparse, &mut ctx));
    sparse.kernel.drop_removed();
    assert!(world.read(&sparse, last, &mut ctx));
    assert!(sparse.kernel.bytes(last).unwrap().iter().all(|byte| *byte == 0));
    done(&world);
}

#[test]
fn what_is_out_has_room_to_be_moved_and_shared_before_anything_else() {
    let (world, program, _sparse) = full();
    let mut ctx = MoverContext::default();
    let child = world.fork(&program);
    assert!(world.serve(&program, &mut ctx));
    assert_eq!(child.entry(1).state(), State::Stored);
    let guard = program.space.table.lock.write();
    world.mover.remap(&program.space, Vpn(1), 1, Vpn(LEAF_PAGES + 1)).unwrap();
    program.space.journal.set_step(0);
    assert_eq!(program.entry(LEAF_PAGES + 1).state(), State::Stored);
    // Nothing is left. What cannot be written down is named, and stays where it is.
    let to = Vpn(2 * LEAF_PAGES);
    assert!(world.mover.remap(&program.space, Vpn(2), 2, to).is_err());
    program.space.journal.set_step(0);
    assert_eq!([2, 3].map(|vpn| program.entry(vpn).state()), [State::Stored, State::Absent]);
    drop(guard);
    let another = world.start();
    assert_eq!(world.mover.fork(&program.space, &another.space), [2, LEAF_PAGES + 1].map(Vpn));
    assert_eq!(another.space.table.leaves(), 0);
    for space in [&child.space, &program.space] {
        world.mover.end(space);
    }
    assert_eq!(world.store.facts().blocks, 0, "leaked references");
}
