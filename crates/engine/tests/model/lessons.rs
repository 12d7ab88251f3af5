//! A program's dictionary is made from what is out.

use clew_core::{CodecKind, Group};
use clew_engine::MoverContext;

use crate::world::{PAGES, Program, World, group};

/// Takes pages out one by one in one call; how many of them are stored with a dictionary then.
fn out(world: &World, program: &Program, pages: &[u64], ctx: &mut MoverContext) -> usize {
    let codec = CodecKind::ZstdDictionary;
    let groups: Vec<Group> = pages.iter().map(|vpn| group(program, &[*vpn], codec, 4096)).collect();
    world.mover.swap_out(&program.space, &groups, ctx);
    let handles = pages.iter().filter_map(|vpn| program.entry(*vpn).handle());
    handles.filter(|handle| world.store.codec(*handle) == codec).count()
}

/// So many pages leave one after the other, and come back at once.
fn leave(world: &World, program: &Program, count: u64, ctx: &mut MoverContext) {
    for vpn in (0..PAGES).cycle().take(count as usize) {
        while !world.write(program, vpn, ctx) {}
        assert_eq!(out(world, program, &[vpn], ctx), 0, "no dictionary yet");
        while !world.touch(program, vpn, ctx) {}
    }
}

#[test]
fn a_lesson_waits_for_pages_enough_that_are_out() {
    let world = World::roomy(false);
    let (program, ctx) = (world.start(), &mut MoverContext::default());
    let all: Vec<u64> = (0..PAGES).collect();
    // Each page has come back when the next one leaves: of those seen, hardly one is out at any time.
    leave(&world, &program, 4096, ctx);
    let mut rounds = 0;
    let with = loop {
        for vpn in &all {
            while !world.write(&program, *vpn, ctx) {}
        }
        let with = out(&world, &program, &all, ctx);
        world.check(ctx);
        if with > 0 || rounds == 100 {
            break with;
        }
        for vpn in &all {
            while !world.touch(&program, *vpn, ctx) {}
        }
        rounds += 1;
    };
    assert!(with > all.len() / 3, "{with} of {} pages after {rounds} rounds", all.len());
    for vpn in &all {
        assert!(world.read(&program, *vpn, ctx));
    }
    world.check(ctx);
    world.finish();
}
