//! A daemon dies in the middle of what it does, and the next one goes on with what is in the segments.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use clew_core::Vpn;
use clew_engine::{Fault, MoverContext};
use clew_store::{Entry, State};

use crate::contents::page;
use crate::kernel::Point;
use crate::races_out::{done, writer};
use crate::world::{Program, World};

/// What the program does before the daemon dies.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Touch,
    GiveUp,
    Move,
    Fork,
}

fn act(world: &World, program: &Program, what: Act) {
    let ctx = &mut MoverContext::default();
    match what {
        Act::Nothing => {}
        Act::Touch => drop(world.touch(program, 3, ctx)),
        Act::GiveUp => {
            program.kernel.remove(3, 1);
            program.forget(3, 1);
            world.serve(program, ctx);
        }
        Act::Move => {
            // One that is on its way lands on another, a third goes where nothing was.
            for (from, to) in [(2, 3), (4, 20)] {
                program.kernel.remap(from, 1, to, true, true);
                let mut model = program.model.lock().unwrap();
                let version = model.remove(&from).unwrap();
                model.insert(to, version);
                drop(model);
                world.serve(program, ctx);
            }
        }
        Act::Fork => {
            world.fork(program);
            world.serve(program, ctx);
        }
    }
}

#[test]
fn a_successor_ends_the_batch_in_which_its_predecessor_died() {
    let points = [
        Point::Taking(0),
        Point::Taking(2),
        Point::Released,
        Point::Copying(0),
        Point::Copying(2),
        Point::Copying(4),
        Point::Published,
    ];
    let acts = [Act::Nothing, Act::Touch, Act::GiveUp, Act::Move, Act::Fork];
    for (point, what) in points.iter().flat_map(|point| acts.map(|what| (*point, what))) {
        for retain in [false, true] {
            let world = Arc::new(World::roomy(retain));
            let program = writer(&world, 1..9);
            let mut ctx = MoverContext::default();
            // Some are out, and some have kept copies.
            world.out(&program, &[&[1, 8], &[5]], &mut ctx);
            assert!(world.read(&program, 5, &mut ctx));
            let (w, p) = (Arc::clone(&world), Arc::clone(&program));
            program.kernel.set_hook(Some(Box::new(move |at| {
                if at == point {
                    act(&w, &p, what);
                    resume_unwind(Box::new("the daemon is killed"));
                }
            })));
            let out = || world.out(&program, &[&[2], &[3, 4], &[5, 6]], &mut ctx);
            assert!(catch_unwind(AssertUnwindSafe(out)).is_err(), "it does not die at {point:?}");
            let mut ctx = MoverContext::default();
            let next = world.succeed(retain);
            next.recover(&mut ctx);
            // And can take out and bring back what it likes.
            for program in next.programs() {
                next.out(&program, &[&[1, 2, 3], &[4, 5, 6, 20]], &mut ctx);
            }
            done(&next);
        }
    }
}

#[test]
fn a_batch_that_was_over_but_for_a_word_brings_nothing_back() {
    let world = Arc::new(World::roomy(true));
    let program = writer(&world, 1..9);
    let mut ctx = MoverContext::default();
    world.out(&program, &[&[2, 3, 4]], &mut ctx);
    let there: Vec<_> = (1..9).map(|vpn| program.entry(vpn)).collect();
    // As it was before the batch was ended; what is in staging has a place already.
    program.space.journal.begin_batch(&[Vpn(2), Vpn(3), Vpn(4)], program.space.id());
    let next = world.succeed(true);
    next.recover(&mut ctx);
    let program = next.programs().remove(0);
    assert_eq!((1..9).map(|vpn| program.entry(vpn)).collect::<Vec<_>>(), there);
    done(&next);
}

/// Turns stored pages into pages that a daemon was bringing back when it died.
fn lent(program: &Program, vpns: &[u64]) {
    for vpn in vpns {
        let entry = program.entry(*vpn);
        assert_eq!(entry.state(), State::Stored);
        let lent = entry.with_state(State::Restoring);
        program.space.table.store(Vpn(*vpn), lent).unwrap();
    }
}

#[test]
fn a_successor_brings_back_what_its_predecessor_was_bringing_back() {
    for retain in [false, true] {
        let world = Arc::new(World::roomy(retain));
        let program = writer(&world, 1..9);
        let mut ctx = MoverContext::default();
        while program.kernel.bytes(7).unwrap().iter().any(|byte| *byte != 0) {
            assert!(world.write(&program, 7, &mut ctx));
        }
        let one = program.kernel.bytes(1).unwrap();
        world.out(&program, &[&[1], &[2, 3], &[7], &[8]], &mut ctx);
        assert_eq!(program.entry(7).handle(), None, "zeros");
        lent(&program, &[1, 2, 7]);
        // One was put.
        program.kernel.appear(1, one);
        let next = world.succeed(retain);
        next.recover(&mut ctx);
        let program = next.programs().remove(0);
        for vpn in [1, 2, 7] {
            assert_eq!(program.entry(vpn).state(), State::Resident, "{vpn}");
            let kept = program.entry(vpn).handle().is_some();
            assert_eq!(kept, retain && vpn != 7, "the copy of {vpn}");
        }
        assert_eq!(program.entry(3).state(), State::Stored);
        done(&next);
    }
}

#[test]
fn what_a_successor_cannot_bring_back_stays_stored() {
    let world = Arc::new(World::roomy(true));
    let program = writer(&world, 1..6);
    let mut ctx = MoverContext::default();
    world.out(&program, &[&[1], &[2]], &mut ctx);
    lent(&program, &[1, 2]);
    let damaged = program.entry(2).handle().unwrap();
    assert!(world.store.damage(damaged, 20));
    program.kernel.refuse_puts(true);
    let next = world.succeed(true);
    next.recover(&mut ctx);
    let program = next.programs().remove(0);
    program.kernel.refuse_puts(false);
    assert_eq!(
        (program.entry(1).state(), program.entry(2).state()),
        (State::Stored, State::Stored)
    );
    assert!(next.read(&program, 1, &mut ctx));
    let guard = program.space.table.lock.read();
    let fault = next.mover.fault(&program.space, Vpn(2), &mut ctx, &mut Vec::new());
    assert!(matches!(fault, Fault::Corrupt(_)), "{fault:?}");
    drop(guard);
    next.finish();
}

#[test]
fn pages_on_their_way_of_which_the_journal_knows_nothing_are_damaged_and_never_zeros() {
    let world = Arc::new(World::roomy(true));
    let program = writer(&world, 1..6);
    for (vpn, state) in [(1, State::Moving), (2, State::Parked)] {
        program.kernel.remap(vpn, 1, vpn + 30, false, true);
        program.kernel.read_change();
        program.space.table.store(Vpn(vpn), Entry::new(state)).unwrap();
    }
    let next = world.succeed(true);
    let mut ctx = MoverContext::default();
    next.recover(&mut ctx);
    let program = next.programs().remove(0);
    for vpn in [1, 2] {
        let guard = program.space.table.lock.read();
        let fault = next.mover.fault(&program.space, Vpn(vpn), &mut ctx, &mut Vec::new());
        assert!(matches!(fault, Fault::Corrupt(_)), "{fault:?}");
        drop(guard);
        assert!(program.kernel.bytes(vpn).is_none());
    }
    assert!(program.kernel.bytes(3).unwrap() != page(0));
    next.finish();
}
