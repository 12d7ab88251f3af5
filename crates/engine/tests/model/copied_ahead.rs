//! Pages that are compressed before they leave.

use std::sync::atomic::Ordering;

use clew_core::CodecKind;
use clew_engine::MoverContext;
use clew_store::State;

use crate::world::{Program, World, group};

const PAGES: [u64; 4] = [1, 2, 3, 4];

/// A program with these pages, none of them all zeros.
fn written(world: &World) -> std::sync::Arc<Program> {
    let (program, ctx) = (world.start(), &mut MoverContext::default());
    let is_zeros = |vpn| program.kernel.bytes(vpn).unwrap().iter().all(|byte| *byte == 0);
    for vpn in PAGES {
        while !world.write(&program, vpn, ctx) || is_zeros(vpn) {}
    }
    program
}

#[test]
fn a_copy_that_is_still_right_is_all_that_is_needed() {
    let world = World::roomy(false);
    let (program, ctx) = (written(&world), &mut MoverContext::default());
    let groups = PAGES.map(|vpn| group(&program, &[vpn], CodecKind::Lz4, 4096));
    assert_eq!(world.mover.copy_ahead(&program.space, &groups, ctx), 4);
    assert_eq!(world.mover.copy_ahead(&program.space, &groups, ctx), 0, "they have one");
    let before: Vec<_> = PAGES.iter().map(|vpn| program.entry(*vpn)).collect();
    assert!(before.iter().all(|e| e.state() == State::Resident && e.handle().is_some()));
    // What is written since must be stored anew.
    let old = program.kernel.bytes(3).expect("it is there");
    while !world.write(&program, 3, ctx) || program.kernel.bytes(3).as_ref() == Some(&old) {}
    assert_eq!(world.mover.swap_out(&program.space, &groups, ctx).stored, 4);
    assert_eq!(world.mover.counters.reused.load(Ordering::Relaxed), 3);
    for (vpn, before) in PAGES.into_iter().zip(before) {
        assert_eq!(program.entry(vpn).handle() == before.handle(), vpn != 3, "{vpn}");
        assert!(world.read(&program, vpn, ctx), "{vpn}");
    }
    world.check(ctx);
    world.finish();
}

/// What is not in the program, or all zeros, gets none; and nothing is left of the attempt.
#[test]
fn only_what_is_in_the_program_is_copied() {
    let world = World::roomy(false);
    let (program, ctx) = (written(&world), &mut MoverContext::default());
    let groups = PAGES.map(|vpn| group(&program, &[vpn], CodecKind::Lz4, 4096));
    world.mover.swap_out(&program.space, &groups[..2], ctx);
    let blocks = || world.store.facts().blocks;
    let before = blocks();
    assert_eq!(world.mover.copy_ahead(&program.space, &groups[..2], ctx), 0);
    assert_eq!(blocks(), before);
    let together = [group(&program, &PAGES, CodecKind::Lz4, 16384)];
    assert_eq!(world.mover.copy_ahead(&program.space, &together, ctx), 2);
    assert_eq!(blocks(), before + 1);
    let block = program.entry(3).handle();
    assert_eq!((program.entry(4).handle(), program.entry(4).index()), (block, 1));
    world.check(ctx);
    world.finish();
}
