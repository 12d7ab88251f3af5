//! Memory that nobody has touched, for who reads it from outside.

use clew_core::Vpn;
use clew_engine::MoverContext;
use clew_store::Entry;

use crate::world::{PAGES, Program, World};

/// A program with some pages resident, some stored, and most as they were.
fn program(world: &World) -> std::sync::Arc<Program> {
    let (program, ctx) = (world.start(), &mut MoverContext::default());
    for vpn in [4, 8, 20, 40] {
        while !world.write(&program, vpn, ctx) {}
    }
    world.out(&program, &[&[8], &[40]], ctx);
    program
}

fn untouched(program: &Program) -> Vec<u64> {
    (0..PAGES).filter(|vpn| program.entry(*vpn) == Entry::ABSENT).collect()
}

#[test]
fn zeros_are_put_where_nobody_has_been_and_all_else_stays() {
    let world = World::roomy(false);
    let program = program(&world);
    let before = untouched(&program);
    let known = [4, 8, 20, 40].map(|vpn| program.entry(vpn));
    assert_eq!(known.iter().filter(|entry| entry.handle().is_some()).count(), 2, "{known:?}");
    let is_zeros = |vpn: &u64| {
        program.kernel.bytes(*vpn).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    };
    let put = |most| world.mover.put_untouched(&program.space, Vpn(0), PAGES, most);
    // A part of them, then all, also where zeros are already.
    assert_eq!(put(5), 5);
    assert!(before[..5].iter().all(is_zeros) && !before[5..].iter().any(is_zeros));
    assert_eq!(put(1000), before.len() as u64);
    assert!(before.iter().all(is_zeros));
    // Nobody need know of them.
    assert_eq!(untouched(&program), before);
    assert_eq!([4, 8, 20, 40].map(|vpn| program.entry(vpn)), known);
    world.check(&mut MoverContext::default());
    world.finish();
}

/// What the program gives up meanwhile is not brought back, and who waits for it does not wait for ever.
#[test]
fn nothing_is_put_before_what_the_kernel_tells_is_read() {
    let world = World::roomy(false);
    let (program, ctx) = (program(&world), &mut MoverContext::default());
    let before = untouched(&program);
    program.forget(60, 10);
    program.kernel.unmap(60, 10);
    let put = || world.mover.put_untouched(&program.space, Vpn(0), PAGES, 1000);
    assert_eq!(put(), 0);
    assert_eq!(untouched(&program), before);
    world.serve(&program, ctx);
    // It ends where the mapping does: who asks says mapping by mapping.
    assert_eq!(put(), before.iter().filter(|vpn| **vpn < 60).count() as u64);
    assert!((60..70).all(|vpn| program.kernel.bytes(vpn).is_none()));
    world.check(ctx);
    world.finish();
}
