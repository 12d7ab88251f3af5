//! One interleaving a test: what happens to a page while it is on its way back, and what programs
//! do with their memory at rest.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};

use clew_core::{AccessKind, Event, PageId, PageRun, Vpn};
use clew_engine::{Fault, MoverContext, Restored};
use clew_store::SpaceWriteGuard;
use clew_store::State;

use crate::contents::page;
use crate::races_out::{done, writer};
use crate::world::{Program, World};

/// Starts a restore of `vpns`, a run of neighbours that are all stored, and runs `act` when all of
/// them are lent and none is put.
fn while_restoring(
    world: &World,
    program: &Program,
    vpns: Range<u64>,
    act: impl FnOnce(&SpaceWriteGuard<'_>),
) -> (usize, bool) {
    let restore = |vpns: &[Vpn]| {
        let mut ctx = MoverContext::default();
        world.mover.restore(&program.space, vpns, &mut ctx, &mut Vec::new())
    };
    while_lent(program, vpns, restore, act)
}

/// The same, where the pages are parked.
fn while_parking(
    world: &World,
    program: &Program,
    vpns: Range<u64>,
    act: impl FnOnce(&SpaceWriteGuard<'_>),
) -> (usize, bool) {
    let park = |vpns: &[Vpn]| {
        let mut ctx = MoverContext::default();
        world.mover.park(&program.space, vpns, &mut ctx, &mut Vec::new())
    };
    while_lent(program, vpns, park, act)
}

fn while_lent(
    program: &Program,
    vpns: Range<u64>,
    bring: impl FnOnce(&[Vpn]) -> Restored + Send,
    act: impl FnOnce(&SpaceWriteGuard<'_>),
) -> (usize, bool) {
    std::thread::scope(|scope| {
        let guard = program.space.table.lock.write();
        let last = vpns.end - 1;
        let vpns: Vec<Vpn> = vpns.map(Vpn).collect();
        let bringer = scope.spawn(move || bring(&vpns));
        while program.entry(last).state() != State::Restoring {
            std::thread::yield_now();
        }
        act(&guard);
        drop(guard);
        let result = bringer.join().unwrap();
        (result.pages, result.corrupt.is_some())
    })
}

/// A thread touches a page that is on its way; the lock is held.
pub fn sleep_at(world: &World, program: &Program, vpn: u64) {
    assert!(!program.kernel.touch(vpn));
    for vpn in program.kernel.read_faults() {
        let fault = world.mover.fault(
            &program.space,
            Vpn(vpn),
            &mut MoverContext::default(),
            &mut Vec::new(),
        );
        assert!(matches!(fault, Fault::Waiting), "{fault:?}");
    }
    assert!(program.kernel.is_asleep(vpn));
}

#[test]
fn who_waits_for_a_page_that_is_given_up_while_it_comes_back_is_woken() {
    let world = World::roomy(true);
    let program = writer(&world, 1..6);
    world.out(&program, &[&[1, 2, 3]], &mut MoverContext::default());
    while_restoring(&world, &program, 1..4, |guard| {
        sleep_at(&world, &program, 2);
        program.kernel.remove(2, 1);
        world.apply(&program, guard);
        program.kernel.drop_removed();
        program.forget(2, 1);
    });
    done(&world);
}

#[test]
fn who_waits_for_a_page_that_is_moved_while_it_comes_back_is_woken() {
    let world = World::roomy(true);
    let program = writer(&world, 1..6);
    world.out(&program, &[&[1, 2, 3]], &mut MoverContext::default());
    while_restoring(&world, &program, 1..4, |guard| {
        sleep_at(&world, &program, 2);
        program.kernel.remap(2, 1, 9, true, true);
        let version = program.model.lock().unwrap().remove(&2).unwrap();
        program.model.lock().unwrap().insert(9, version);
        world.apply(&program, guard);
    });
    done(&world);
}

#[test]
fn who_waits_behind_a_damaged_page_is_woken() {
    let world = World::roomy(true);
    let program = writer(&world, [5, 6, 7, 8]);
    world.out(&program, &[&[5], &[6], &[7], &[8]], &mut MoverContext::default());
    let handle = program.entry(6).handle().unwrap();
    assert!(world.store.damage(handle, 0));
    let (pages, corrupt) = while_restoring(&world, &program, 5..9, |_| {
        for vpn in 5..9 {
            sleep_at(&world, &program, vpn);
        }
    });
    assert_eq!((pages, corrupt), (3, true));
    assert!(program.kernel.sleepers().is_empty());
    let mut ctx = MoverContext::default();
    for vpn in [5, 7, 8] {
        assert!(world.read(&program, vpn, &mut ctx));
    }
    assert_eq!(program.entry(6).state(), State::Stored);
    let guard = program.space.table.lock.read();
    let fault = world.mover.fault(&program.space, Vpn(6), &mut ctx, &mut Vec::new());
    assert!(matches!(fault, Fault::Corrupt(_)), "{fault:?}");
    drop(guard);
    assert!(program.kernel.bytes(6).is_none());
    world.finish();
}

#[test]
fn who_waits_for_a_page_that_cannot_be_put_is_woken() {
    let world = World::roomy(true);
    let program = writer(&world, 1..6);
    world.out(&program, &[&[1, 2, 3]], &mut MoverContext::default());
    let (pages, _) = while_restoring(&world, &program, 1..4, |_| {
        sleep_at(&world, &program, 2);
        program.kernel.refuse_puts(true);
    });
    assert_eq!((pages, program.entry(2).state()), (0, State::Stored));
    assert!(program.kernel.sleepers().is_empty());
    program.kernel.refuse_puts(false);
    done(&world);
}

#[test]
fn who_waits_for_a_page_that_is_parked_instead_is_woken_and_gets_it() {
    let world = World::roomy(true);
    let program = writer(&world, 1..6);
    world.out(&program, &[&[1], &[2], &[3]], &mut MoverContext::default());
    let (pages, _) = while_parking(&world, &program, 1..4, |_| sleep_at(&world, &program, 2));
    assert_eq!((pages, program.entry(2).state()), (3, State::Parked));
    assert!(program.kernel.sleepers().is_empty());
    done(&world);
}

#[test]
fn pages_that_are_given_up_or_moved_while_they_are_parked_are_nobodys() {
    let world = World::roomy(true);
    let program = writer(&world, 1..6);
    world.out(&program, &[&[1], &[2], &[3]], &mut MoverContext::default());
    let (pages, _) = while_parking(&world, &program, 1..4, |guard| {
        sleep_at(&world, &program, 1);
        sleep_at(&world, &program, 2);
        program.kernel.remove(1, 1);
        program.kernel.remap(2, 1, 9, true, true);
        world.apply(&program, guard);
        program.kernel.drop_removed();
        program.forget(1, 1);
        let version = program.model.lock().unwrap().remove(&2).unwrap();
        program.model.lock().unwrap().insert(9, version);
    });
    assert_eq!((pages, world.mover.parked_pages()), (1, 1));
    assert_eq!(
        (program.entry(9).state(), program.entry(3).state()),
        (State::Stored, State::Parked)
    );
    done(&world);
}

/// A put that finds a page there wakes nobody.
#[test]
fn who_waits_where_a_page_has_come_by_another_way_is_woken() {
    let world = World::roomy(true);
    let program = writer(&world, 1..4);
    let mut ctx = MoverContext::default();
    // Another thread moves a page there.
    assert!(!program.kernel.touch(9));
    program.kernel.remap(2, 1, 9, true, true);
    let version = program.model.lock().unwrap().remove(&2).unwrap();
    program.model.lock().unwrap().insert(9, version);
    assert!(world.serve(&program, &mut ctx));
    assert!(!program.kernel.is_asleep(9), "a page that the table knows");
    // A page that the table does not know: its address is new.
    assert!(!program.kernel.touch(11));
    program.kernel.appear(11, page(0));
    assert!(world.serve(&program, &mut ctx));
    assert!(!program.kernel.is_asleep(11), "a page that the table does not know");
    assert_eq!(world.mover.counters.spurious.load(Ordering::Relaxed), 2);
    done(&world);
}

#[test]
fn who_waits_where_a_stored_page_is_there_already_is_woken() {
    let world = World::roomy(true);
    let program = writer(&world, 1..6);
    let there = |vpn| program.kernel.bytes(vpn).unwrap();
    let (one, two) = (there(1), there(2));
    let mut ctx = MoverContext::default();
    world.out(&program, &[&[1], &[2]], &mut ctx);
    // As nothing should be; whoever put it, the program is not to wait for ever.
    assert!(!program.kernel.touch(1));
    program.kernel.appear(1, one);
    assert!(world.serve(&program, &mut ctx));
    assert_eq!((program.kernel.sleepers(), program.entry(1).state()), (vec![], State::Resident));
    let (pages, _) = while_restoring(&world, &program, 2..3, |_| {
        sleep_at(&world, &program, 2);
        program.kernel.appear(2, two);
    });
    assert_eq!((pages, program.kernel.sleepers()), (0, vec![]));
    assert_eq!(program.entry(2).state(), State::Resident);
    assert_eq!(world.mover.counters.conflicts.load(Ordering::Relaxed), 2);
    for vpn in 1..6 {
        assert!(world.read(&program, vpn, &mut ctx));
    }
    world.finish();
}

#[test]
fn a_fork_while_pages_come_back_shares_them() {
    let world = World::roomy(false);
    let program = writer(&world, 1..6);
    world.out(&program, &[&[1, 2, 3]], &mut MoverContext::default());
    while_restoring(&world, &program, 1..4, |guard| {
        world.fork(&program);
        world.apply(&program, guard);
    });
    done(&world);
}

#[test]
fn two_restorers_of_a_page_that_went_away_and_came_back_give_two_references_back() {
    for retain in [false, true] {
        let world = World::roomy(retain);
        let program = writer(&world, 1..6);
        world.out(&program, &[&[3]], &mut MoverContext::default());
        std::thread::scope(|scope| {
            let guard = program.space.table.lock.write();
            let restorer = || {
                let (mut ctx, mut events) = (MoverContext::default(), Vec::new());
                world.mover.restore(&program.space, &[Vpn(3)], &mut ctx, &mut events).pages
            };
            let lent = || {
                while program.entry(3).state() != State::Restoring {
                    std::thread::yield_now();
                }
            };
            let first = scope.spawn(restorer);
            lent();
            for (from, to) in [(3, 9), (9, 3)] {
                program.kernel.remap(from, 1, to, true, true);
                world.apply(&program, &guard);
            }
            // Both have looked at the entry before either puts.
            *program.kernel.gate.lock().unwrap() = Some(Arc::new(Barrier::new(2)));
            let second = scope.spawn(restorer);
            lent();
            drop(guard);
            assert_eq!(first.join().unwrap() + second.join().unwrap(), 1);
        });
        *program.kernel.gate.lock().unwrap() = None;
        done(&world);
    }
}

#[test]
fn a_restore_goes_on_at_the_seam_of_two_mappings() {
    let world = World::roomy(false);
    let program = writer(&world, 10..40);
    let pages: Vec<u64> = (10..40).collect();
    let mut ctx = MoverContext::default();
    assert_eq!(world.out(&program, &[&pages], &mut ctx).stored, 30);
    let vpns: Vec<Vpn> = pages.iter().copied().map(Vpn).collect();
    let restored = world.mover.restore(&program.space, &vpns, &mut ctx, &mut Vec::new());
    assert_eq!(restored.pages, 30);
    done(&world);
}

#[test]
fn a_remap_that_was_left_half_done_is_done_again() {
    for moved in 0..=6u64 {
        let world = World::roomy(true);
        let program = writer(&world, 8..20);
        let all: Vec<u64> = (8..20).collect();
        let mut ctx = MoverContext::default();
        world.out(&program, &[&all], &mut ctx);
        let expected: Vec<_> = (0..6).map(|i| program.entry(8 + i)).collect();
        let guard = program.space.table.lock.write();
        // Death after the target was cleared and some pages were moved.
        world.mover.remap(&program.space, Vpn(8), moved, Vpn(14)).unwrap();
        world.mover.forget(&program.space, Vpn(14 + moved), 6 - moved);
        world.mover.remap(&program.space, Vpn(8), 6, Vpn(14)).unwrap();
        program.space.journal.set_step(0);
        drop(guard);
        let now: Vec<_> = (0..6).map(|i| program.entry(14 + i)).collect();
        assert_eq!(now, expected);
        assert!((8..14).all(|vpn| program.entry(vpn).is_absent()));
        world.finish();
    }
}

#[test]
fn pages_are_adopted_once_and_told_in_runs() {
    let world = World::roomy(false);
    let program = writer(&world, [12]);
    let mut events = Vec::new();
    world.mover.adopt(&program.space, Vpn(10), 5, &mut events);
    world.mover.adopt(&program.space, Vpn(10), 5, &mut events);
    let runs: Vec<(PageId, u32)> = events
        .iter()
        .map(|event| match event {
            Event::Resident { run } => (run.first, run.count),
            other => panic!("{other:?}"),
        })
        .collect();
    let id = |vpn| PageId::new(program.space.id(), Vpn(vpn));
    assert_eq!(runs, [(id(10), 2), (id(13), 2)]);
    world.finish();
}

#[test]
fn a_kept_copy_is_used_again_and_dropped_once() {
    let world = World::roomy(true);
    let program = writer(&world, 3..6);
    let mut ctx = MoverContext::default();
    world.out(&program, &[&[3, 4, 5]], &mut ctx);
    for vpn in 3..6 {
        world.read(&program, vpn, &mut ctx);
    }
    let nothing = Some(0);
    assert_eq!(world.mover.drop_kept(&program.space, Vpn(3)), nothing, "others need its block");
    assert_eq!(world.mover.drop_kept(&program.space, Vpn(3)), None);
    world.write(&program, 4, &mut ctx);
    world.out(&program, &[&[3, 4, 5]], &mut ctx);
    let reused = world.mover.counters.reused.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(reused, 1);
    assert_eq!(world.mover.drop_kept(&program.space, Vpn(4)), None, "the only copy");
    assert!(page(4) != page(5));
    done(&world);
}

/// Of a first touch the touched page is told as used, and what came along with it as found.
#[test]
fn a_first_touch_is_told_once() {
    let world = World::roomy(true);
    let program = world.start();
    for (vpn, along) in [(4, 0), (7, 2)] {
        assert!(!program.kernel.touch(vpn));
        assert_eq!(program.kernel.read_faults(), [vpn]);
        let (mut ctx, mut events) = (MoverContext::default(), Vec::new());
        {
            let _guard = program.space.table.lock.read();
            let fault = world.mover.fault(&program.space, Vpn(vpn), &mut ctx, &mut events);
            assert!(matches!(fault, Fault::Fresh(pages) if pages == along + 1), "{fault:?}");
        }
        let page = |vpn| PageId::new(program.space.id(), Vpn(vpn));
        let mut expected =
            vec![Event::Access { page: page(vpn), kind: AccessKind::Fresh, write: false }];
        if along > 0 {
            let run = PageRun { first: page(vpn + 1), count: along };
            expected.push(Event::Resident { run });
        }
        assert_eq!(format!("{events:?}"), format!("{expected:?}"));
    }
}
