//! Pages of the pool that are stored anew.

use clew_core::{CodecKind, Group, Vpn};
use clew_engine::MoverContext;
use clew_store::{Entry, State};

use crate::world::{Program, World, group};

const PAGES: [u64; 4] = [1, 2, 3, 4];

/// A program of which these pages were stored alone, by this codec.
fn stored(world: &World, codec: CodecKind) -> std::sync::Arc<Program> {
    let (program, ctx) = (world.start(), &mut MoverContext::default());
    let is_zeros = |vpn| program.kernel.bytes(vpn).unwrap().iter().all(|byte| *byte == 0);
    for vpn in PAGES {
        while !world.write(&program, vpn, ctx) || is_zeros(vpn) {}
    }
    let groups = PAGES.map(|vpn| group(&program, &[vpn], codec, 4096));
    world.mover.swap_out(&program.space, &groups, ctx);
    program
}

fn entries(program: &Program) -> Vec<Entry> {
    PAGES.iter().map(|vpn| program.entry(*vpn)).collect()
}

fn repack(world: &World, program: &Program, groups: &[Group]) -> usize {
    world.mover.repack(&program.space, groups, &mut MoverContext::default())
}

#[test]
fn pages_that_are_stored_anew_hold_what_they_held() {
    let world = World::roomy(false);
    let program = stored(&world, CodecKind::Raw);
    let before = entries(&program);
    assert_eq!(repack(&world, &program, &[group(&program, &PAGES, CodecKind::Zstd, 16384)]), 4);
    let after = entries(&program);
    assert!(after.iter().all(|entry| entry.state() == State::Stored));
    assert!(after.iter().all(|entry| entry.handle() == after[0].handle()), "one block");
    assert_ne!(before, after);
    let bytes = world.store.stored_bytes(after[0].handle().unwrap());
    assert!(bytes < 4 * 4096, "{bytes}");
    world.check(&mut MoverContext::default());
    for vpn in PAGES {
        assert!(world.read(&program, vpn, &mut MoverContext::default()), "{vpn}");
    }
    world.finish();
}

#[test]
fn what_would_take_no_less_stays_where_it_is() {
    let world = World::roomy(false);
    let program = stored(&world, CodecKind::Zstd);
    let in_use = || {
        let facts = world.store.facts();
        (facts.payload_bytes, facts.pages, facts.blocks)
    };
    let (before, used) = (entries(&program), in_use());
    assert_eq!(repack(&world, &program, &[group(&program, &PAGES, CodecKind::Raw, 4096)]), 0);
    assert_eq!(entries(&program), before);
    assert_eq!(in_use(), used, "and nothing is left of the attempt");
    world.finish();
}

/// A page that has come back, or is out to be watched, is left alone, also where its old block is still there.
#[test]
fn only_what_is_in_the_pool_is_stored_anew() {
    let world = World::roomy(true);
    let (program, ctx) = (stored(&world, CodecKind::Raw), &mut MoverContext::default());
    world.mover.restore(&program.space, &[Vpn(1)], ctx, &mut Vec::new());
    world.mover.restore(&program.space, &[Vpn(2)], ctx, &mut Vec::new());
    world.mover.sample(&program.space, &[group(&program, &[2], CodecKind::Raw, 4096)], ctx);
    let before = entries(&program);
    let groups = PAGES.map(|vpn| group(&program, &[vpn], CodecKind::Zstd, 4096));
    assert_eq!(repack(&world, &program, &groups), 2);
    assert_eq!(entries(&program)[..2], before[..2]);
    assert!(entries(&program)[2..].iter().zip(&before[2..]).all(|(now, then)| now != then));
    world.check(ctx);
    world.finish();
}

/// Parent and child name the same block; each goes its own way.
#[test]
fn a_page_that_a_child_shares_is_stored_anew_for_one_of_them() {
    let world = World::roomy(false);
    let (program, ctx) = (stored(&world, CodecKind::Raw), &mut MoverContext::default());
    let child = world.fork(&program);
    world.serve(&program, ctx);
    let of_child = entries(&child);
    assert_eq!(of_child, entries(&program), "forked");
    assert_eq!(repack(&world, &program, &[group(&program, &PAGES, CodecKind::Zstd, 4096)]), 4);
    assert_eq!(entries(&child), of_child);
    world.check(ctx);
    for vpn in PAGES {
        assert!(world.read(&child, vpn, ctx) && world.read(&program, vpn, ctx));
    }
    world.finish();
}
