//! What is given to the kernel's swap and comes back from it, and what a stored page is said to take.

use std::sync::atomic::Ordering;

use clew_core::{AccessKind, CodecKind, Event, Tier, Vpn};
use clew_engine::MoverContext;
use clew_store::State;

use crate::races_out::{done, writer};
use crate::world::{World, group};

/// Of each page that was stored: where, and in how many bytes.
fn stored(events: &[Event]) -> Vec<(u64, Tier, u32)> {
    let mut all: Vec<(u64, Tier, u32)> = events
        .iter()
        .filter_map(|event| match event {
            Event::Stored { page, tier, bytes } => Some((page.vpn().0, *tier, *bytes)),
            _ => None,
        })
        .collect();
    all.sort_unstable_by_key(|(vpn, ..)| *vpn);
    all
}

#[test]
fn what_is_lent_is_told_and_counted_and_so_is_what_comes_back() {
    let world = World::roomy(true);
    let program = writer(&world, [1, 2, 3, 5, 7]);
    let mut ctx = MoverContext::default();
    world.mover.sample(&program.space, &[group(&program, &[7], CodecKind::Raw, 4096)], &mut ctx);
    // 5 has moved, and nobody has read of it yet.
    program.kernel.remap(5, 1, 40, true, true);
    let version = program.model.lock().unwrap().remove(&5).unwrap();
    program.model.lock().unwrap().insert(40, version);
    let groups = [group(&program, &[5, 2, 1, 7], CodecKind::Lz4, 4096)];
    let out = world.mover.lend(&program.space, &groups, 1000, &mut ctx);
    let told = stored(&out.events);
    assert_eq!(told[..2], [(1, Tier::Kernel, 1000), (2, Tier::Kernel, 1000)]);
    assert_eq!((told.len(), told[2].0, told[2].1), (3, 7, Tier::Pool), "a sample is out already");
    let freed = |event: &&Event| matches!(event, Event::Freed { run } if run.first.vpn().0 == 5);
    assert_eq!(out.events.iter().filter(freed).count(), 1);
    assert_eq!(out.stored, 3);
    let counters = &world.mover.counters;
    assert_eq!(counters.lent.load(Ordering::Relaxed), 2);
    assert!(world.serve(&program, &mut ctx));
    // Lent a second time it is told of, and nothing is done.
    let groups = [group(&program, &[1, 2], CodecKind::Lz4, 4096)];
    let again = world.mover.lend(&program.space, &groups, 900, &mut ctx);
    assert_eq!((again.stored, stored(&again.events).len()), (0, 2));
    assert_eq!(counters.lent.load(Ordering::Relaxed), 2);

    assert!(program.kernel.touch(1));
    let mut events = Vec::new();
    assert_eq!(world.mover.came_back(&program.space, Vpn(0), 2, &mut events), 1);
    assert_eq!(world.mover.came_back(&program.space, Vpn(3), 1, &mut events), 0, "never lent");
    let is_fault = |event: &Event| matches!(event, Event::Access { page, kind: AccessKind::Fault, .. } if page.vpn().0 == 1);
    let is_in = |event: &Event| matches!(event, Event::PageIn { page, tier: Tier::Kernel, demand: true } if page.vpn().0 == 1);
    assert!(events.len() == 2 && is_fault(&events[0]) && is_in(&events[1]), "{events:?}");
    assert_eq!(counters.lent_back.load(Ordering::Relaxed), 1);
    let states = [1, 2, 3].map(|vpn| program.entry(vpn).state());
    assert_eq!(states, [State::Resident, State::Lent, State::Resident]);
    done(&world);
}

#[test]
fn a_page_is_said_to_take_its_part_of_the_block() {
    let world = World::roomy(false);
    let program = writer(&world, [1, 2, 3, 4, 5]);
    let mut ctx = MoverContext::default();
    while program.kernel.bytes(5).unwrap().iter().any(|byte| *byte != 0) {
        assert!(world.write(&program, 5, &mut ctx));
    }
    let groups = [group(&program, &[1, 2, 3, 4, 5], CodecKind::Raw, 16384)];
    let out = world.mover.swap_out(&program.space, &groups, &mut ctx);
    let handle = program.entry(1).handle().unwrap();
    let part = world.store.stored_bytes(handle) / u32::from(world.store.block_pages(handle));
    assert!(part >= 4096 / 2, "they are not compressed: {part}");
    let told: Vec<(u64, u32)> = stored(&out.events).iter().map(|(vpn, _, n)| (*vpn, *n)).collect();
    let expected: Vec<(u64, u32)> =
        (1..6).map(|vpn| (vpn, program.entry(vpn).handle().map_or(0, |_| part))).collect();
    assert_eq!(told, expected, "zeros take nothing");
    let zeros = world.mover.counters.zeros.load(Ordering::Relaxed);
    assert!(zeros >= 1 && expected[4].1 == 0);
    done(&world);
}
