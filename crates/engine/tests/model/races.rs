//! One interleaving a test: what happens to a page while it is on its way.

use std::sync::{Arc, Barrier};

use clew_core::{Event, PageId, Vpn};
use clew_engine::{Fault, MoverContext, SwapOut};
use clew_store::State;
use parking_lot::RwLockWriteGuard;

use crate::contents::page;
use crate::kernel::Point;
use crate::world::{PAGES, Program, World};

/// A program that wrote `pages`.
fn writer(world: &World, pages: impl IntoIterator<Item = u64>) -> Arc<Program> {
    let program = world.start();
    for vpn in pages {
        while !world.write(&program, vpn, &mut MoverContext::default()) {}
    }
    program
}

/// Swaps `pages` out and runs `act` once, at `point`.
fn during(
    world: &Arc<World>,
    program: &Arc<Program>,
    groups: &[&[u64]],
    point: Point,
    act: impl Fn(&World, &Program, &mut MoverContext) + Send + 'static,
) -> SwapOut {
    let mut ctx = MoverContext::default();
    let (w, p) = (Arc::clone(world), Arc::clone(program));
    program.kernel.set_hook(Some(Box::new(move |at| {
        if at == point {
            act(&w, &p, &mut MoverContext::default());
        }
    })));
    let out = world.out(program, groups, &mut ctx);
    program.kernel.set_hook(None);
    world.serve(program, &mut ctx);
    out
}

/// mremap of one page, its event read.
fn remap(world: &World, program: &Program, from: u64, to: u64, ctx: &mut MoverContext) {
    program.kernel.remap(from, 1, to, false, true);
    let mut model = program.model.lock().unwrap();
    match model.remove(&from) {
        Some(version) => model.insert(to, version),
        None => model.remove(&to),
    };
    drop(model);
    assert!(world.serve(program, ctx));
}

/// madvise of one page, its event read and its page dropped.
fn remove(world: &World, program: &Program, vpn: u64, ctx: &mut MoverContext) {
    program.kernel.remove(vpn, 1);
    assert!(world.serve(program, ctx));
    program.kernel.drop_removed();
    program.forget(vpn, 1);
}

fn done(world: &World) {
    let mut ctx = MoverContext::default();
    world.check(&mut ctx);
    for program in world.programs() {
        for vpn in (0..PAGES).filter(|vpn| program.kernel.is_mapped(*vpn)) {
            assert!(world.read(&program, vpn, &mut ctx));
        }
    }
    world.check(&mut ctx);
    world.finish();
}

fn stayed(out: &SwapOut) -> Vec<u64> {
    let mut pages: Vec<u64> = out
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Stayed { page } => Some(page.vpn().0),
            _ => None,
        })
        .collect();
    pages.sort_unstable();
    pages
}

// ---- out ----------------------------------------------------------------------------------------

#[test]
fn a_moving_page_lands_on_a_moving_page() {
    for (from, to) in [(1, 2), (2, 1)] {
        let world = Arc::new(World::roomy(true));
        let program = writer(&world, 0..4);
        during(&world, &program, &[&[1, 2]], Point::Copying(0), move |world, program, ctx| {
            remap(world, program, from, to, ctx);
        });
        done(&world);
    }
}

#[test]
fn a_stored_and_a_resident_page_land_on_moving_pages() {
    let world = Arc::new(World::roomy(true));
    let program = writer(&world, 0..6);
    world.out(&program, &[&[4]], &mut MoverContext::default());
    during(&world, &program, &[&[1, 2]], Point::Released, |world, program, ctx| {
        remap(world, program, 4, 1, ctx);
        remap(world, program, 5, 2, ctx);
    });
    done(&world);
}

#[test]
fn a_moving_page_is_given_up_and_its_address_used_again() {
    let world = Arc::new(World::roomy(true));
    let program = writer(&world, 0..4);
    during(&world, &program, &[&[1, 2]], Point::Copying(0), |world, program, ctx| {
        remove(world, program, 1, ctx);
        assert!(world.write(program, 1, ctx), "nothing to wait for");
        remap(world, program, 1, 9, ctx);
    });
    done(&world);
}

#[test]
fn a_kept_copy_is_let_go_when_its_moving_page_is_overwritten() {
    let world = Arc::new(World::roomy(true));
    let program = writer(&world, 0..4);
    let mut ctx = MoverContext::default();
    world.out(&program, &[&[1], &[2]], &mut ctx);
    world.read(&program, 1, &mut ctx);
    world.read(&program, 2, &mut ctx);
    during(&world, &program, &[&[1], &[2]], Point::Copying(0), |world, program, ctx| {
        remap(world, program, 3, 1, ctx);
    });
    done(&world);
}

#[test]
fn who_waits_for_a_moving_page_that_goes_away_is_woken() {
    for remapped in [false, true] {
        let world = Arc::new(World::roomy(false));
        let program = writer(&world, 0..4);
        during(&world, &program, &[&[1, 2]], Point::Copying(0), move |world, program, ctx| {
            assert!(!world.touch(program, 2, ctx));
            match remapped {
                true => remap(world, program, 2, 9, ctx),
                false => remove(world, program, 2, ctx),
            }
            assert!(!program.kernel.is_asleep(2));
        });
        done(&world);
    }
}

#[test]
fn a_child_gets_what_was_moving_when_it_was_forked() {
    let world = Arc::new(World::roomy(true));
    let program = writer(&world, 0..6);
    let points = [Point::Copying(0), Point::Copying(2)];
    let (w, p) = (Arc::clone(&world), Arc::clone(&program));
    program.kernel.set_hook(Some(Box::new(move |at| {
        let ctx = &mut MoverContext::default();
        if points.contains(&at) {
            let child = w.fork(&p);
            w.serve(&p, ctx);
            // Both go on: the parent loses a page, the child moves one, and it forks too.
            remove(&w, &p, 3, ctx);
            remap(&w, &child, 4, 5, ctx);
            let grandchild = w.fork(&child);
            w.serve(&child, ctx);
            assert!(!w.touch(&grandchild, 5, ctx));
        }
    })));
    world.out(&program, &[&[1, 2], &[3, 4, 5]], &mut MoverContext::default());
    program.kernel.set_hook(None);
    assert_eq!(world.programs().len(), 5);
    done(&world);
}

#[test]
fn a_child_in_its_parents_batch_begins_none_of_its_own() {
    let world = Arc::new(World::roomy(true));
    let program = writer(&world, 0..6);
    during(&world, &program, &[&[1, 2]], Point::Copying(0), |world, program, ctx| {
        let child = world.fork(program);
        world.serve(program, ctx);
        assert!(world.write(&child, 4, ctx));
        let out = world.out(&child, &[&[4]], ctx);
        assert_eq!((out.stored, stayed(&out)), (0, vec![4]));
        remap(world, &child, 1, 9, ctx);
    });
    done(&world);
}

#[test]
fn a_child_that_ends_in_the_batch_leaves_nothing() {
    let world = Arc::new(World::roomy(true));
    let program = writer(&world, 0..6);
    during(&world, &program, &[&[1, 2]], Point::Copying(0), |world, program, ctx| {
        let child = world.fork(program);
        world.serve(program, ctx);
        world.end(&child);
    });
    done(&world);
}

#[test]
fn every_page_of_an_order_is_told_of() {
    // Room for two pages; the third does not fit and the fourth is not tried.
    let world = Arc::new(World::new(64 << 20, 2, false));
    let program = writer(&world, 1..6);
    let out = world.out(&program, &[&[5], &[4], &[3], &[1, 2]], &mut MoverContext::default());
    assert_eq!((out.stored, out.full.is_some(), stayed(&out)), (2, true, vec![1, 2, 3]));
    done(&world);

    // The same where the rest would be a batch of its own.
    let world = Arc::new(World::new(64 << 20, 0, false));
    let program = writer(&world, 1..40);
    let ids = |pages: std::ops::Range<u64>| pages.collect::<Vec<u64>>();
    let many: Vec<Vec<u64>> = (0..60).map(|_| ids(1..30)).chain([ids(30..40)]).collect();
    let many: Vec<&[u64]> = many.iter().map(Vec::as_slice).collect();
    let out = world.out(&program, &many, &mut MoverContext::default());
    assert_eq!(stayed(&out), ids(1..40));
    done(&world);
}

#[test]
fn a_page_that_stays_is_told_of_where_it_is_now() {
    let world = Arc::new(World::roomy(false));
    let program = writer(&world, 0..6);
    let (w, p) = (Arc::clone(&world), Arc::clone(&program));
    program.kernel.set_hook(Some(Box::new(move |at| match at {
        Point::Taking(1) => {
            p.kernel.remap(2, 1, 9, false, true);
            let mut model = p.model.lock().unwrap();
            let version = model.remove(&2).unwrap();
            model.insert(9, version);
        }
        Point::Released => assert!(w.serve(&p, &mut MoverContext::default())),
        _ => {}
    })));
    let out = world.out(&program, &[&[1, 2]], &mut MoverContext::default());
    program.kernel.set_hook(None);
    assert_eq!((out.stored, stayed(&out)), (1, vec![9]));
    done(&world);
}

#[test]
fn shared_pages_are_taken_at_the_second_try_in_any_order_of_groups() {
    let world = Arc::new(World::roomy(false));
    let program = writer(&world, 0..8);
    world.fork(&program);
    world.serve(&program, &mut MoverContext::default());
    let out = world.out(&program, &[&[1, 7], &[3], &[2, 5]], &mut MoverContext::default());
    assert_eq!((out.stored, stayed(&out)), (5, vec![]));
    done(&world);
}

#[test]
fn the_rest_of_a_group_is_stored_when_a_page_of_it_is_wanted() {
    let world = Arc::new(World::roomy(false));
    let program = writer(&world, 0..8);
    let out = during(&world, &program, &[&[1, 2, 3]], Point::Copying(1), |world, program, ctx| {
        assert!(!world.touch(program, 2, ctx));
    });
    assert_eq!((out.stored, stayed(&out)), (2, vec![2]));
    assert!(program.kernel.bytes(2).is_some());
    done(&world);
}

// ---- back ---------------------------------------------------------------------------------------

/// Starts a restore of `vpns`, a run of neighbours that are all stored, and runs `act` when all of
/// them are lent and none is put.
fn while_restoring(
    world: &World,
    program: &Program,
    vpns: std::ops::Range<u64>,
    act: impl FnOnce(&RwLockWriteGuard<'_, ()>),
) -> (usize, bool) {
    std::thread::scope(|scope| {
        let guard = program.space.table.lock.write();
        let last = vpns.end - 1;
        let restorer = scope.spawn(move || {
            let vpns: Vec<Vpn> = vpns.map(Vpn).collect();
            let mut ctx = MoverContext::default();
            let result = world.mover.restore(&program.space, &vpns, &mut ctx, &mut Vec::new());
            (result.pages, result.corrupt.is_some())
        });
        while program.entry(last).state() != State::Restoring {
            std::thread::yield_now();
        }
        act(&guard);
        drop(guard);
        restorer.join().unwrap()
    })
}

/// A thread touches a page that is on its way; the lock is held.
fn sleep_at(world: &World, program: &Program, vpn: u64) {
    assert!(!program.kernel.touch(vpn));
    for vpn in program.kernel.read_faults() {
        let fault = world.mover.fault(&program.space, Vpn(vpn), &mut MoverContext::default());
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
    assert_eq!((pages, corrupt), (1, true));
    assert_eq!(program.kernel.sleepers(), []);
    let mut ctx = MoverContext::default();
    for vpn in [5, 7, 8] {
        assert!(world.read(&program, vpn, &mut ctx));
    }
    assert_eq!(program.entry(6).state(), State::Stored);
    let guard = program.space.table.lock.read();
    let fault = world.mover.fault(&program.space, Vpn(6), &mut ctx);
    assert!(matches!(fault, Fault::Corrupt(_)), "{fault:?}");
    drop(guard);
    assert!(program.kernel.bytes(6).is_none());
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

// ---- what programs do -----------------------------------------------------------------------------

#[test]
fn ranges_that_overlap_are_remapped() {
    for (from, to) in [(10u64, 12u64), (12, 10)] {
        let world = World::roomy(true);
        let program = writer(&world, 8..20);
        let all: Vec<u64> = (8..20).collect();
        let mut ctx = MoverContext::default();
        world.out(&program, &[&all], &mut ctx);
        let expected: Vec<_> = (0..6).map(|i| program.entry(from + i)).collect();
        let guard = program.space.table.lock.write();
        world.mover.remap(&program.space, Vpn(from), 6, Vpn(to));
        drop(guard);
        let moved: Vec<_> = (0..6).map(|i| program.entry(to + i)).collect();
        assert_eq!(moved, expected);
        let rest = if from < to { [10, 11] } else { [16, 17] };
        assert!(rest.iter().all(|vpn| program.entry(*vpn).is_absent()));
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
    assert!(world.mover.drop_kept(&program.space, Vpn(3)));
    assert!(!world.mover.drop_kept(&program.space, Vpn(3)));
    world.write(&program, 4, &mut ctx);
    world.out(&program, &[&[3, 4, 5]], &mut ctx);
    let reused = world.mover.counters.reused.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(reused, 1);
    assert!(!world.mover.drop_kept(&program.space, Vpn(4)), "the only copy");
    assert!(page(4) != page(5));
    done(&world);
}
