//! One interleaving a test: what happens to a page while it is on its way out.

use std::sync::Arc;

use clew_core::{Event, Vpn};
use clew_engine::{Fault, MoverContext, SwapOut};

use crate::kernel::Point;
use crate::races_back::sleep_at;
use crate::world::{PAGES, Program, World};

/// A program that wrote `pages`.
pub fn writer(world: &World, pages: impl IntoIterator<Item = u64>) -> Arc<Program> {
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

/// Checks everything, reads everything, ends everything.
pub fn done(world: &World) {
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
            remap(&w, &p, 2, 20, ctx);
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
    // Afterwards it does.
    let child = world.programs().remove(1);
    assert_eq!(world.out(&child, &[&[4]], &mut MoverContext::default()).stored, 1);
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
fn a_child_that_joins_while_its_sister_is_told_is_told_too() {
    let world = Arc::new(World::roomy(false));
    let program = writer(&world, 1..6);
    let (w, p) = (Arc::clone(&world), Arc::clone(&program));
    program.kernel.set_hook(Some(Box::new(move |at| {
        if at == Point::Copying(0) {
            // The first child wants the page, and its own event stands in the way.
            let (child, ctx) = (w.fork(&p), &mut MoverContext::default());
            w.serve(&p, ctx);
            assert!(!w.touch(&child, 1, ctx));
            child.kernel.remove(4, 1);
            child.forget(4, 1);
        }
    })));
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| world.out(&program, &[&[1]], &mut MoverContext::default()));
        let refused = world
            .calls
            .changed
            .wait_while(world.calls.state.lock().unwrap(), |state| state.waiting.is_empty());
        let id = refused.unwrap().waiting[0];
        let ctx = &mut MoverContext::default();
        world.fork(&program);
        assert!(world.serve(&program, ctx));
        let first = world.program(id).unwrap();
        assert!(world.serve(&first, ctx));
        first.kernel.drop_removed();
        assert_eq!(swapper.join().unwrap().stored, 1);
    });
    assert_eq!(world.programs().len(), 3);
    done(&world);
}

#[test]
fn a_wanted_page_that_cannot_be_put_stays_stored() {
    let world = Arc::new(World::roomy(false));
    let program = writer(&world, 1..6);
    // The page is in the block when it is wanted.
    let out = during(&world, &program, &[&[1, 2]], Point::Copying(1), |world, program, ctx| {
        assert!(!world.touch(program, 1, ctx));
        program.kernel.refuse_puts(true);
    });
    assert_eq!((out.stored, stayed(&out)), (2, vec![]));
    assert!(!program.kernel.is_asleep(1));
    program.kernel.refuse_puts(false);
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
    let mut told = stayed(&out);
    told.dedup();
    // Zeros need no room, where they are tried.
    let room = |vpn: &u64| *vpn < 30 && vpn.is_multiple_of(9);
    let expected: Vec<u64> = ids(1..40).into_iter().filter(|vpn| !room(vpn)).collect();
    assert_eq!(told, expected);
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

#[test]
fn a_page_that_nobody_finds_again_is_damaged_and_never_zeros() {
    let world = Arc::new(World::roomy(true));
    let program = writer(&world, [5, 6]);
    program.kernel.lose_pages();
    // One of them is asked for meanwhile.
    let out = during(&world, &program, &[&[5, 6]], Point::Released, |world, program, _| {
        sleep_at(world, program, 6);
    });
    assert_eq!(out.stored, 2);
    assert!(program.kernel.sleepers().is_empty());
    for vpn in [5, 6] {
        let guard = program.space.table.lock.read();
        let mut ctx = MoverContext::default();
        let fault = world.mover.fault(&program.space, Vpn(vpn), &mut ctx, &mut Vec::new());
        assert!(matches!(fault, Fault::Corrupt(_)), "{fault:?}");
        drop(guard);
        assert!(program.kernel.bytes(vpn).is_none());
    }
}
