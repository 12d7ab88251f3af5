//! What goes to flash, is waited for there, and what happens meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clew_core::{CodecKind, Event, FlashForm, Tier, Vpn};
use clew_engine::{BlockStore, Fault, MoverContext};
use clew_store::flash::LogId;
use clew_store::{FetchError, State};

use crate::races_out::{done, writer};
use crate::world::{Program, World, group};

fn on_flash(program: &Program) -> u64 {
    program.space.table.counts().flash
}

/// Moves the blocks of these pages to flash, all the way to the device; which pages are said to be in which tier.
fn evict(world: &World, program: &Program, pages: &[u64]) -> Vec<(u64, Tier)> {
    let told = evict_to_memory(world, program, pages);
    assert!(world.store.log(LogId::FLASH).is_none_or(|flash| flash.flush()));
    told
}

/// The same, and what is not a whole segment stays in a buffer.
fn evict_to_memory(world: &World, program: &Program, pages: &[u64]) -> Vec<(u64, Tier)> {
    let groups = [group(program, pages, CodecKind::Lz4, 4096)];
    let space = world.program(program.id()).unwrap();
    let out = world.mover.evict(
        &space.space,
        &groups,
        (LogId::FLASH, FlashForm::AsStored),
        &mut MoverContext::default(),
    );
    let mut told: Vec<_> = out
        .events
        .iter()
        .map(|event| match event {
            Event::Stored { page, tier, .. } => (page.vpn().0, *tier),
            other => panic!("{other:?}"),
        })
        .collect();
    told.sort_unstable();
    told
}

#[test]
fn a_block_goes_as_a_whole_and_each_of_its_pages_is_told() {
    let world = World::roomy(false).with_flash();
    let program = writer(&world, 1..9);
    let ctx = &mut MoverContext::default();
    world.out(&program, &[&[1, 2, 3], &[5], &[7]], ctx);
    assert_eq!(on_flash(&program), 0);
    let told = evict(&world, &program, &[2, 5, 8]);
    let flash = [1, 2, 3, 5].map(|vpn| (vpn, Tier::Flash));
    assert_eq!(told, flash, "8 is in its program");
    assert_eq!((on_flash(&program), world.store.facts().far_pages), (4, 4));
    assert_eq!(world.mover.tier_of(program.entry(7)), Tier::Pool);
    // Again, and nothing more goes.
    assert_eq!(evict(&world, &program, &[1, 5]), [(1, Tier::Flash), (5, Tier::Flash)]);
    assert_eq!(world.mover.counters.evicted.load(Ordering::Relaxed), 4);
    done(&world);
}

#[test]
fn a_fault_on_flash_is_told_so_and_brings_its_block() {
    for retain in [false, true] {
        let world = World::roomy(retain).with_flash();
        let program = writer(&world, 1..9);
        let ctx = &mut MoverContext::default();
        world.out(&program, &[&[1, 2, 3], &[5]], ctx);
        evict(&world, &program, &[1, 5]);
        let mut events = Vec::new();
        let space = &program.space;
        let guard = space.table.lock.read();
        let Fault::Far(awaited, far) = world.mover.fault(space, Vpn(2), ctx, &mut events) else {
            panic!("it is on flash");
        };
        assert_eq!((awaited.vpn, events.len()), (Vpn(2), 0));
        assert_eq!(program.entry(2).state(), State::Restoring);
        // Another thread that touches it waits, and memory answers meanwhile.
        let second = world.mover.fault(space, Vpn(2), ctx, &mut events);
        assert!(matches!(second, Fault::Waiting));
        let fetched = world.store.fetch_now(far);
        let arrived = world.mover.arrived(space, awaited, fetched, ctx, &mut events);
        drop(guard);
        assert!(matches!(arrived, Fault::Restored));
        let flash = |vpn, demand| (vpn, Tier::Flash, demand);
        assert_eq!(came(&events), [flash(2, true), flash(1, false), flash(3, false)]);
        assert_eq!(
            (on_flash(&program), world.mover.counters.demand_flash.load(Ordering::Relaxed)),
            (1, 1)
        );
        (1..4).for_each(|vpn| assert!(world.read(&program, vpn, ctx)));
        // With a copy that was kept on flash, leaving again is nothing to be written.
        let appended = world.store.log(LogId::FLASH).unwrap().facts().appended_bytes;
        let out = world.out(&program, &[&[1, 2, 3]], ctx);
        let is_flash = |e: &&Event| matches!(e, Event::Stored { tier: Tier::Flash, .. });
        assert_eq!(out.events.iter().filter(is_flash).count(), if retain { 3 } else { 0 });
        assert_eq!(world.store.log(LogId::FLASH).unwrap().facts().appended_bytes, appended);
        done(&world);
    }
}

/// Pages that came back, from where, and whether they were asked for.
fn came(events: &[Event]) -> Vec<(u64, Tier, bool)> {
    let came = |event: &Event| match event {
        Event::PageIn { page, tier, demand } => Some((page.vpn().0, *tier, *demand)),
        _ => None,
    };
    events.iter().filter_map(came).collect()
}

#[test]
fn what_is_on_its_way_to_the_device_is_waited_for_by_nobody() {
    let world = World::roomy(false).with_flash();
    let program = writer(&world, 1..9);
    let ctx = &mut MoverContext::default();
    world.out(&program, &[&[1, 2, 3]], ctx);
    evict_to_memory(&world, &program, &[1]);
    let mut events = Vec::new();
    let guard = program.space.table.lock.read();
    let fault = world.mover.fault(&program.space, Vpn(2), ctx, &mut events);
    drop(guard);
    assert!(matches!(fault, Fault::Restored), "{fault:?}");
    let flash = |vpn, demand| (vpn, Tier::Flash, demand);
    assert_eq!(came(&events), [flash(2, true), flash(1, false), flash(3, false)]);
    (1..9).for_each(|vpn| assert!(world.read(&program, vpn, ctx)));
    done(&world);
}

#[test]
fn what_was_read_with_a_block_comes_along_where_it_is_near() {
    let world = World::roomy(false).with_flash().running_ahead();
    let program = writer(&world, 1..60);
    let ctx = &mut MoverContext::default();
    let pages: Vec<u64> = (1..60).collect();
    let groups: Vec<&[u64]> = pages.chunks(1).collect();
    world.out(&program, &groups, ctx);
    evict(&world, &program, &pages);
    // Those that are all zeros are nowhere.
    assert!(on_flash(&program) > 40);
    let reads = || world.store.log(LogId::FLASH).unwrap().facts().reads;
    let mut near = 0;
    for vpn in 1..60 {
        let mut events = Vec::new();
        let guard = program.space.table.lock.read();
        let fault = match world.mover.fault(&program.space, Vpn(vpn), ctx, &mut events) {
            Fault::Far(awaited, far) => {
                let fetched = world.store.fetch_now(far);
                world.mover.arrived(&program.space, awaited, fetched, ctx, &mut events)
            }
            other => other,
        };
        drop(guard);
        assert!(matches!(fault, Fault::Restored | Fault::Spurious), "{vpn}: {fault:?}");
        near += came(&events).iter().filter(|(_, _, demand)| !demand).count();
    }
    assert!(near > 10, "{near} pages came along");
    // So many small objects lie in a few windows.
    assert!(reads() <= 4, "{} reads", reads());
    assert_eq!(on_flash(&program), 0);
    (1..60).for_each(|vpn| assert!(world.read(&program, vpn, ctx)));
    done(&world);
}

#[test]
fn what_is_given_up_or_moved_while_its_block_is_fetched_is_asked_for_anew() {
    for moved in [false, true] {
        let world = World::roomy(true).with_flash();
        world.is_late.store(true, Ordering::SeqCst);
        let program = writer(&world, 1..9);
        let ctx = &mut MoverContext::default();
        world.out(&program, &[&[1, 2, 3]], ctx);
        evict(&world, &program, &[1]);
        assert!(!program.kernel.touch(2));
        assert!(world.serve(&program, ctx));
        if moved {
            program.kernel.remap(2, 1, 40, true, true);
            let version = program.model.lock().unwrap().remove(&2).unwrap();
            program.model.lock().unwrap().insert(40, version);
        } else {
            program.kernel.remove(2, 1);
            program.forget(2, 1);
        }
        assert!(world.serve(&program, ctx));
        program.kernel.drop_removed();
        assert_eq!(world.arrive(ctx), 1);
        world.is_late.store(false, Ordering::SeqCst);
        [1, 3, if moved { 40 } else { 2 }]
            .into_iter()
            .for_each(|vpn| assert!(world.read(&program, vpn, ctx)));
        done(&world);
    }
}

#[test]
fn a_child_that_was_forked_while_a_block_was_fetched_has_its_own() {
    let world = World::roomy(false).with_flash();
    world.is_late.store(true, Ordering::SeqCst);
    let program = writer(&world, 1..9);
    let ctx = &mut MoverContext::default();
    world.out(&program, &[&[1, 2, 3], &[4]], ctx);
    evict(&world, &program, &[1, 4]);
    assert!(!program.kernel.touch(2));
    assert!(world.serve(&program, ctx));
    let child = world.fork(&program);
    assert!(world.serve(&program, ctx));
    assert_eq!(world.arrive(ctx), 1);
    world.is_late.store(false, Ordering::SeqCst);
    for program in [&program, &child] {
        (1..9).for_each(|vpn| assert!(world.read(program, vpn, ctx), "{vpn}"));
    }
    done(&world);
}

#[test]
fn what_flash_does_not_give_is_told_and_stays_stored() {
    let world = World::roomy(false).with_flash();
    let program = writer(&world, 1..9);
    let ctx = &mut MoverContext::default();
    world.out(&program, &[&[1, 2, 3]], ctx);
    evict(&world, &program, &[1]);
    let space = &program.space;
    let Fault::Far(awaited, far) = world.mover.fault(space, Vpn(1), ctx, &mut Vec::new()) else {
        panic!("it is on flash");
    };
    let lost = Err(FetchError::NoLog { handle: far.handle(), log: LogId::FLASH });
    let arrived = world.mover.arrived(space, awaited, lost, ctx, &mut Vec::new());
    assert!(matches!(arrived, Fault::Corrupt(_)), "{arrived:?}");
    assert_eq!(program.entry(1).state(), State::Stored);
    assert_eq!(world.mover.counters.corrupt.swap(0, Ordering::Relaxed), 1);
    // It was said of this time only.
    assert!(world.read(&program, 1, ctx));
    done(&world);
}

#[test]
fn a_restore_waits_for_flash_and_brings_all() {
    let world = World::roomy(true).with_flash();
    let program = writer(&world, 1..20);
    let ctx = &mut MoverContext::default();
    world.out(&program, &[&[1, 2, 3], &[4], &[5], &[6, 7], &[8]], ctx);
    evict(&world, &program, &[2, 5, 8]);
    let vpns: Vec<Vpn> = (1..20).map(Vpn).collect();
    let mut events = Vec::new();
    let restored = world.mover.restore(space_of(&program), &vpns, ctx, &mut events);
    assert_eq!((restored.pages, restored.corrupt), (8, None));
    let from_flash = |e: &&Event| matches!(e, Event::PageIn { tier: Tier::Flash, .. });
    assert_eq!(events.iter().filter(from_flash).count(), 5);
    done(&world);
}

fn space_of(program: &Program) -> &Arc<clew_engine::ManagedSpace> {
    &program.space
}

#[test]
fn what_leaves_past_the_pool_is_on_flash() {
    let world = World::roomy(true).with_flash();
    let program = writer(&world, 1..9);
    let ctx = &mut MoverContext::default();
    let groups = [group(&program, &[1, 2, 3], CodecKind::Raw, 4096)];
    let out =
        world.mover.swap_out_far(&program.space, &groups, (LogId::FLASH, FlashForm::AsStored), ctx);
    assert!(out.stored == 3 && out.full.is_none());
    let is_flash = |e: &Event| matches!(e, Event::Stored { tier: Tier::Flash, .. });
    assert!(out.events.iter().all(is_flash), "{:?}", out.events);
    assert_eq!(on_flash(&program), 3);
    (1..4).for_each(|vpn| assert!(world.read(&program, vpn, ctx)));
    done(&world);
}

/// ElasticZRAM 2.2.1: what is written to flash is decompressed, from the pool or past it.
#[test]
fn what_goes_as_pages_takes_as_much_there_as_its_pages() {
    let world = World::roomy(false).with_flash();
    let program = writer(&world, 1..9);
    let ctx = &mut MoverContext::default();
    world.out(&program, &[&[1, 2, 3]], ctx);
    let groups = [group(&program, &[2], CodecKind::Lz4, 4096)];
    let out = world.mover.evict(&program.space, &groups, (LogId::FLASH, FlashForm::Pages), ctx);
    assert_eq!(out.stored, 3);
    let groups = [group(&program, &[5, 6], CodecKind::Lz4, 4096)];
    let out =
        world.mover.swap_out_far(&program.space, &groups, (LogId::FLASH, FlashForm::Pages), ctx);
    assert!(out.stored == 2 && out.full.is_none());
    for (vpn, pages) in [(1, 3), (5, 2)] {
        let handle = program.entry(vpn).handle().expect("it is stored");
        assert!(world.store.log_bytes(handle) >= pages * 4096, "page {vpn}");
        assert_eq!(world.store.codec(handle), CodecKind::Raw, "page {vpn}");
    }
    (1..9).for_each(|vpn| assert!(world.read(&program, vpn, ctx), "{vpn}"));
    done(&world);
}

#[test]
fn without_flash_everything_stays_where_it_is() {
    let world = World::roomy(true);
    let program = writer(&world, 1..9);
    let ctx = &mut MoverContext::default();
    world.out(&program, &[&[1, 2]], ctx);
    assert_eq!(evict(&world, &program, &[1, 2]), [(1, Tier::Pool), (2, Tier::Pool)]);
    let groups = [group(&program, &[3], CodecKind::Lz4, 4096)];
    let out =
        world.mover.swap_out_far(&program.space, &groups, (LogId::FLASH, FlashForm::AsStored), ctx);
    assert!(out.stored == 0 && out.full.is_some());
    done(&world);
}

#[test]
fn a_successor_reads_what_is_on_flash_and_what_was_on_its_way_from_there() {
    let world = Arc::new(World::roomy(true).with_flash());
    world.is_late.store(true, Ordering::SeqCst);
    let program = writer(&world, 1..9);
    let ctx = &mut MoverContext::default();
    world.out(&program, &[&[1, 2, 3], &[4], &[5]], ctx);
    evict(&world, &program, &[1, 4]);
    assert!(!program.kernel.touch(2));
    assert!(world.serve(&program, ctx));
    assert_eq!(program.entry(2).state(), State::Restoring);
    let next = world.succeed(true);
    next.recover(ctx);
    let program = next.programs().remove(0);
    assert_eq!((on_flash(&program), program.entry(2).state()), (4, State::Stored));
    (1..9).for_each(|vpn| assert!(next.read(&program, vpn, ctx), "{vpn}"));
    done(&next);
}

/// More pages than there is room for in buffers leave, past the pool: none of them goes back because the device is behind.
#[test]
fn who_takes_pages_out_waits_for_the_device() {
    let world = World::roomy(false).with_slow_flash();
    let program = writer(&world, 1..61);
    let ctx = &mut MoverContext::default();
    let pages: Vec<u64> = (1..61).collect();
    let past: Vec<_> =
        pages.iter().map(|vpn| group(&program, &[*vpn], CodecKind::Raw, 4096)).collect();
    let to = (LogId::FLASH, FlashForm::Pages);
    let out = world.mover.swap_out_far(&program.space, &past, to, ctx);
    assert_eq!((out.stored, out.full), (60, None));
    // Those of zeros lie nowhere, and two buffers hold fifteen of the others each.
    assert!(on_flash(&program) > 30, "{}", on_flash(&program));
}
