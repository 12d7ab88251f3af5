//! Pages that are stored together come back together; parked pages wait for their use; samples tell
//! whether they are used.

use std::collections::BTreeSet;
use std::sync::Arc;

use clew_core::{AccessKind, CodecKind, Event, Group, PageId, Vpn};
use clew_engine::{Fault, Mover, MoverContext, Parking, Staged};
use clew_store::{Entry, State};

use crate::races_out::done;
use crate::world::{PAGES, Program, World, group};

/// Writes `pages`, none of them with zeros.
fn write(world: &World, program: &Program, pages: &[u64]) {
    let is_zeros = |vpn| program.kernel.bytes(vpn).unwrap().iter().all(|byte| *byte == 0);
    for vpn in pages.iter().copied() {
        while !world.write(program, vpn, &mut MoverContext::default()) || is_zeros(vpn) {}
    }
}

/// A program that wrote `pages`, none of them with zeros.
fn wrote(world: &World, pages: &[u64]) -> Arc<Program> {
    let program = world.start();
    write(world, &program, pages);
    program
}

/// A program whose pages were stored as one block, in chunks of so many bytes.
fn stored_as_one(world: &World, pages: &[u64], chunk_bytes: u32, park: bool) -> Arc<Program> {
    let program = wrote(world, pages);
    let mut group = group(&program, pages, CodecKind::Lz4, chunk_bytes);
    group.park_siblings = park;
    world.mover.swap_out(&program.space, &[group], &mut MoverContext::default());
    program
}

/// Answers the fault of a thread that touches `vpn`.
fn fault(world: &World, program: &Arc<Program>, vpn: u64) -> Vec<Event> {
    let (mut ctx, mut events) = (MoverContext::default(), Vec::new());
    assert!(!program.kernel.touch(vpn));
    assert_eq!(program.kernel.read_faults(), [vpn]);
    let _guard = program.space.table.lock.read();
    let fault = world.mover.fault(&program.space, Vpn(vpn), &mut ctx, &mut events);
    assert!(matches!(fault, Fault::Restored), "{fault:?}");
    assert!(!program.kernel.is_asleep(vpn));
    events
}

fn states(program: &Program, vpns: impl IntoIterator<Item = u64>) -> Vec<State> {
    vpns.into_iter().map(|vpn| program.entry(vpn).state()).collect()
}

/// What was told, a letter and a page each: Fault, Seen, page in on Demand or Not, Used, eXpired,
/// sTored, Released.
fn told(events: &[Event]) -> Vec<(char, u64)> {
    let word = |event: &Event| match event {
        Event::Access { page, kind: AccessKind::Fault, .. } => ('F', *page),
        Event::Access { page, kind: AccessKind::Seen, .. } => ('S', *page),
        Event::PageIn { page, demand: true, .. } => ('D', *page),
        Event::PageIn { page, demand: false, .. } => ('N', *page),
        Event::PrefetchUsed { page } => ('U', *page),
        Event::PrefetchExpired { page } => ('X', *page),
        Event::Stored { page, bytes, .. } => {
            assert!(*bytes > 0);
            ('T', *page)
        }
        Event::Stayed { page } => ('R', *page),
        other => panic!("{other:?}"),
    };
    events.iter().map(word).map(|(letter, page): (char, PageId)| (letter, page.vpn().0)).collect()
}

const ALL: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

#[test]
fn a_fault_brings_its_whole_block_back_the_page_that_is_waited_for_first() {
    for chunk_bytes in [1024, 4096, 8192, 12288, 32768] {
        for retain in [false, true] {
            let world = World::roomy(retain);
            let program = stored_as_one(&world, &ALL, chunk_bytes, false);
            let events = told(&fault(&world, &program, 4));
            assert_eq!(events[..2], [('F', 4), ('D', 4)]);
            let mut others: Vec<(char, u64)> = events[2..].to_vec();
            others.sort_unstable();
            let expected: Vec<(char, u64)> =
                ALL.into_iter().filter(|v| *v != 4).map(|v| ('N', v)).collect();
            assert_eq!(others, expected, "chunks of {chunk_bytes}");
            assert!(states(&program, ALL).iter().all(|s| *s == State::Resident));
            done(&world);
        }
    }
}

/// Where nothing fits, the page that is asked for comes alone, whether the others would be parked or not; they stay what
/// they were, and come once there is room. A small block comes whole.
#[test]
fn of_a_large_block_only_what_is_asked_for_comes_where_nothing_fits() {
    let large: Vec<u64> = (1..20).collect();
    for park in [false, true] {
        for retain in [false, true] {
            let world = World::roomy(retain);
            let program = stored_as_one(&world, &large, 8192, park);
            world.mover.room_along.is(0);
            assert_eq!(told(&fault(&world, &program, 4)), [('F', 4), ('D', 4)]);
            let others = large.iter().copied().filter(|vpn| *vpn != 4);
            assert!(states(&program, others).iter().all(|s| *s == State::Stored));
            // The page itself takes the last room.
            world.mover.room_along.is(1);
            assert_eq!(told(&fault(&world, &program, 9)), [('F', 9), ('D', 9)]);
            world.mover.room_along.is(2);
            let events = told(&fault(&world, &program, 12));
            let came = events.iter().filter(|(what, _)| *what == 'N').count();
            assert_eq!(came, large.len() - 3, "{events:?}");
            done(&world);
        }
    }
    let world = World::roomy(true);
    let program = stored_as_one(&world, &large[..16], 8192, false);
    world.mover.room_along.is(0);
    assert_eq!(told(&fault(&world, &program, 4)).len(), 2 + 15);
    done(&world);
}

#[test]
fn only_pages_that_are_still_there_come_along() {
    let world = World::roomy(true);
    let program = stored_as_one(&world, &[10, 2, 3, 4, 5, 6, 7, 8], 32768, false);
    let mut ctx = MoverContext::default();
    program.kernel.remove(2, 1);
    world.serve(&program, &mut ctx);
    program.kernel.drop_removed();
    program.forget(2, 1);
    for (from, to) in [(5, 30), (6, 31)] {
        program.kernel.remap(from, 1, to, true, true);
        let version = program.model.lock().unwrap().remove(&from).unwrap();
        program.model.lock().unwrap().insert(to, version);
        world.serve(&program, &mut ctx);
    }
    // What moved by as much is found, and nothing else; nothing comes to where 2 was.
    let events = told(&fault(&world, &program, 31));
    assert_eq!(events, [('F', 31), ('D', 31), ('N', 30)]);
    assert_eq!(states(&program, [3, 4, 7, 8, 10]), [State::Stored; 5]);
    // A restore takes along what it has decompressed.
    let restored = world.mover.restore(&program.space, &[Vpn(8)], &mut ctx, &mut Vec::new());
    assert_eq!((restored.pages, program.entry(2).state()), (5, State::Absent));
    done(&world);
}

/// Brings page 2 back by a fault or a restore; what was told.
fn bring_two(world: &World, program: &Arc<Program>, by_fault: bool) -> Vec<(char, u64)> {
    match by_fault {
        true => told(&fault(world, program, 2)),
        false => {
            let (mut ctx, mut events) = (MoverContext::default(), Vec::new());
            world.mover.restore(&program.space, &[Vpn(2)], &mut ctx, &mut events);
            told(&events)
        }
    }
}

#[test]
fn where_a_sibling_was_another_page_is_left_alone() {
    // Whether the siblings are in the piece that is read first, or in those after it.
    for (chunk_bytes, by_fault) in [(32768, true), (4096, true), (32768, false)] {
        let world = World::roomy(true);
        let program = stored_as_one(&world, &[2, 3, 4, 5, 6, 7, 8], chunk_bytes, false);
        let mut ctx = MoverContext::default();
        // 3 and 4 are given up and written anew; 4 leaves again, the third of another block.
        program.kernel.remove(3, 2);
        world.serve(&program, &mut ctx);
        program.kernel.drop_removed();
        program.forget(3, 2);
        write(&world, &program, &[3, 4, 50, 51]);
        world.out(&program, &[&[50, 51, 4]], &mut ctx);
        assert_eq!(program.entry(4).index(), 2, "as before, in another block");
        // 5 and 6 take each other's place.
        for (from, to) in [(5, 60), (6, 5), (60, 6)] {
            program.kernel.remap(from, 1, to, true, true);
            let mut model = program.model.lock().unwrap();
            let version = model.remove(&from).unwrap();
            model.insert(to, version);
            drop(model);
            world.serve(&program, &mut ctx);
        }
        // 7 is given up and nothing comes there.
        program.kernel.remove(7, 1);
        world.serve(&program, &mut ctx);
        program.kernel.drop_removed();
        program.forget(7, 1);
        let mut events = bring_two(&world, &program, by_fault);
        events.retain(|event| !matches!(event, ('F' | 'D', 2)));
        let expected = if by_fault { vec![('N', 8)] } else { vec![('N', 2), ('N', 8)] };
        assert_eq!(events, expected, "chunks of {chunk_bytes}");
        assert_eq!(states(&program, [4, 5, 6]), [State::Stored; 3]);
        assert_eq!(states(&program, [3, 7]), [State::Resident, State::Absent]);
        done(&world);
    }
}

#[test]
fn a_sibling_that_is_in_the_program_is_left_alone_with_its_kept_copy() {
    for (chunk_bytes, by_fault) in [(32768, true), (4096, true), (32768, false)] {
        let world = World::roomy(true);
        let program = stored_as_one(&world, &[2, 3, 4], chunk_bytes, false);
        let mut ctx = MoverContext::default();
        assert!(world.read(&program, 3, &mut ctx));
        let out = world.out(&program, &[&[2, 4]], &mut ctx);
        assert_eq!(out.stored, 2);
        assert_eq!(program.entry(2).handle(), program.entry(3).handle(), "kept copies are used");
        bring_two(&world, &program, by_fault);
        assert_eq!(states(&program, [2, 3, 4]), [State::Resident; 3]);
        done(&world);
    }
}

#[test]
fn a_restore_decompresses_a_block_once() {
    let world = World::roomy(false);
    // Neighbours are of different blocks, each with a page far away.
    let program = wrote(&world, &[1, 2, 3, 4, 41, 42, 43, 44]);
    let groups = [[1, 3, 42], [2, 4, 44]].map(|g| group(&program, &g, CodecKind::Zstd, 16384));
    let mut ctx = MoverContext::default();
    assert_eq!(world.mover.swap_out(&program.space, &groups, &mut ctx).stored, 6);
    let mut events = Vec::new();
    let vpns = [1, 2, 3, 4].map(Vpn);
    let restored = world.mover.restore(&program.space, &vpns, &mut ctx, &mut events);
    assert_eq!(restored.pages, 6);
    let expected = [1, 2, 3, 4, 42, 44].map(|vpn| ('N', vpn));
    assert_eq!(told(&events), expected);
    done(&world);
}

#[test]
fn a_damaged_page_of_a_block_hinders_no_other() {
    let world = World::roomy(false);
    let program = wrote(&world, &ALL);
    let group = group(&program, &ALL, CodecKind::Raw, 4096);
    let mut ctx = MoverContext::default();
    world.mover.swap_out(&program.space, &[group], &mut ctx);
    let handle = program.entry(1).handle().unwrap();
    // The checksum of its second page.
    assert!(world.store.damage(handle, 4));
    assert_eq!(told(&fault(&world, &program, 5)).len(), 2 + 6);
    assert_eq!(states(&program, [1, 2, 3]), [State::Resident, State::Stored, State::Resident]);
    // And it is told when it is asked for.
    let mut events = Vec::new();
    let restored = world.mover.restore(&program.space, &[Vpn(2)], &mut ctx, &mut events);
    assert_eq!((restored.pages, restored.corrupt.map(|c| c.0)), (0, Some(Vpn(2))));
    world.finish();
}

#[test]
fn the_pages_behind_a_fault_come_along_where_faults_run_on() {
    let world = World::roomy(true).running_ahead();
    let pages: Vec<u64> = (2..22).collect();
    let program = wrote(&world, &pages);
    let mut ctx = MoverContext::default();
    let alone: Vec<[u64; 1]> = pages.iter().map(|vpn| [*vpn]).collect();
    let alone: Vec<&[u64]> = alone.iter().map(|group| group.as_slice()).collect();
    world.out(&program, &alone, &mut ctx);
    // One is damaged and one is there: neither stops the run.
    assert!(world.store.damage(program.entry(6).handle().unwrap(), 20));
    assert!(world.read(&program, 9, &mut ctx));
    let events = told(&fault(&world, &program, 2));
    assert_eq!(events, [('F', 2), ('D', 2)], "nothing is known yet");
    let events = told(&fault(&world, &program, 3));
    assert_eq!(events, [('F', 3), ('D', 3), ('N', 4)]);
    let events = told(&fault(&world, &program, 5));
    assert_eq!(events, [('F', 5), ('D', 5)], "6 is damaged");
    let events = told(&fault(&world, &program, 8));
    assert_eq!(events, [('F', 8), ('D', 8), ('N', 10), ('N', 11)], "9 is there");
    assert_eq!(states(&program, [6, 11, 12]), [State::Stored, State::Resident, State::Stored]);
    let along = world.mover.counters.along.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(along, 3);
    assert!(world.store.damage(program.entry(6).handle().unwrap(), 20));
    world.check(&mut ctx);
    done(&world);
}

/// When a fault was answered is told as of the page that was asked for: what comes along, of its block or
/// behind it, comes when the program runs again, and its codec time is nobody's wait.
#[test]
fn a_fault_is_answered_before_anything_comes_along() {
    for of_a_block in [true, false] {
        let world = World::roomy(true).running_ahead();
        // In a block of a chunk a page each other page is decompressed by itself.
        let program = match of_a_block {
            true => stored_as_one(&world, &ALL, 4096, false),
            false => {
                let program = wrote(&world, &ALL);
                let alone: Vec<&[u64]> = ALL.chunks(1).collect();
                world.out(&program, &alone, &mut MoverContext::default());
                fault(&world, &program, 1);
                program
            }
        };
        let (mut ctx, mut events) = (MoverContext::default(), Vec::new());
        program.kernel.puts.lock().unwrap().clear();
        assert!(!program.kernel.touch(2));
        assert_eq!(program.kernel.read_faults(), [2]);
        let _guard = program.space.table.lock.read();
        let answer = world.mover.fault(&program.space, Vpn(2), &mut ctx, &mut events);
        assert!(matches!(answer, Fault::Restored), "{answer:?}");
        let puts = program.kernel.puts.lock().unwrap().clone();
        let answered = ctx.answered.expect("it was put");
        assert!(puts.len() > 1 && puts[0].1 == 2, "{puts:?}");
        assert!((puts[0].0..=puts[1].0).contains(&answered.at), "{answered:?}, {puts:?}");
        assert!((1..ctx.codec_ns).contains(&answered.codec_ns), "{answered:?} of {}", ctx.codec_ns);
        // The next fault begins anew, whatever comes of it.
        let answer = world.mover.fault(&program.space, Vpn(2), &mut ctx, &mut events);
        assert!(matches!(answer, Fault::Spurious), "{answer:?}");
        assert!(ctx.answered.is_none() && ctx.codec_ns == 0);
    }
}

#[test]
fn parked_pages_are_answered_without_their_block() {
    let world = World::roomy(false);
    let program = stored_as_one(&world, &[2, 3, 4, 5, 6], 32768, true);
    let events = told(&fault(&world, &program, 4));
    assert_eq!(events, [('F', 4), ('D', 4), ('N', 2), ('N', 3), ('N', 5), ('N', 6)]);
    assert_eq!(
        states(&program, [2, 3, 4, 5, 6])[..3],
        [State::Parked, State::Parked, State::Resident]
    );
    assert_eq!(world.mover.parked_pages(), 4);
    // The stored copy is there, and is not needed.
    let handle = program.entry(2).handle().unwrap();
    assert!(world.store.damage(handle, 0));
    assert_eq!(told(&fault(&world, &program, 2)), [('S', 2), ('U', 2)]);
    assert!(world.store.damage(handle, 0));
    // Parked pages leave without being taken out.
    let out = world.out(&program, &[&[3, 4]], &mut MoverContext::default());
    let events = told(&out.events);
    assert_eq!(events[..2], [('X', 3), ('T', 3)]);
    assert!(events.contains(&('T', 4)) && out.stored == 1, "{events:?}");
    // And come back as any other, when all is to.
    let mut events = Vec::new();
    let vpns = [2, 3, 4, 5, 6].map(Vpn);
    world.mover.restore(&program.space, &vpns, &mut MoverContext::default(), &mut events);
    let events = told(&events);
    for expected in [('N', 3), ('N', 4), ('X', 5), ('X', 6)] {
        assert!(events.contains(&expected), "{expected:?} of {events:?}");
    }
    assert_eq!(world.mover.parked_pages(), 0);
    done(&world);
}

#[test]
fn the_oldest_parked_page_is_pushed_out_unused() {
    for keep in [true, false] {
        // Its buffer holds six pages; what is not kept is compressed again.
        let world = World::roomy(keep);
        let pages: Vec<u64> = (1..20).collect();
        let program = wrote(&world, &pages);
        let mut ctx = MoverContext::default();
        let groups: Vec<&[u64]> = pages.chunks(1).collect();
        world.out(&program, &groups, &mut ctx);
        let before: Vec<_> = pages.iter().map(|v| program.entry(*v).handle()).collect();
        let vpns: Vec<Vpn> = pages.iter().copied().map(Vpn).collect();
        let mut events = Vec::new();
        let parked = world.mover.park(&program.space, &vpns, &mut ctx, &mut events);
        assert_eq!((parked.pages, world.mover.parked_pages()), (pages.len(), 6));
        let oldest = pages[0];
        let told = told(&events);
        let at = told.iter().position(|t| *t == ('X', oldest)).unwrap();
        assert_eq!(told[at + 1], ('T', oldest), "stored again");
        assert!(told[..at].iter().filter(|(letter, _)| *letter == 'N').count() >= 6);
        let expired = pages.len() - 6;
        assert_eq!(told.iter().filter(|(letter, _)| *letter == 'X').count(), expired);
        assert!(states(&program, 1..1 + expired as u64).iter().all(|s| *s == State::Stored));
        assert!(states(&program, 1 + expired as u64..20).iter().all(|s| *s == State::Parked));
        let now: Vec<_> = pages.iter().map(|v| program.entry(*v).handle()).collect();
        assert_eq!(now == before, keep, "the stored copy is the old one");
        let blocks = world.store.facts().blocks;
        assert_eq!(blocks, pages.len() as u64);
        done(&world);
    }
}

/// Ariadne 4.3 and 4.4: small chunks for hot pages, larger ones for warm, the largest for cold, and a
/// page that was decompressed for nothing is compressed again as it was. Alone, the largest chunk that
/// it has is the page.
#[test]
fn what_is_pushed_out_is_compressed_again_in_chunks_of_its_size() {
    let world = World::roomy(false);
    let program = wrote(&world, &(1..=24).collect::<Vec<_>>());
    // Those that compress: neither noise nor a repeated word.
    let compresses = |(vpn, version): (&u64, &u64)| (version % 9 > 2).then_some(*vpn);
    let pages: Vec<u64> =
        program.model.lock().unwrap().iter().filter_map(compresses).take(12).collect();
    let mut ctx = MoverContext::default();
    let [hot, warm, cold] = [0, 4, 8].map(|at| &pages[at..at + 4]);
    let groups: Vec<Group> = hot
        .chunks(1)
        .map(|of| group(&program, of, CodecKind::Lz4, 1 << 10))
        .chain(warm.chunks(1).map(|of| group(&program, of, CodecKind::Zstd, 2 << 10)))
        .chain([group(&program, cold, CodecKind::Zstd, 16 << 10)])
        .collect();
    world.mover.swap_out(&program.space, &groups, &mut ctx);
    let forms = || {
        let handles = pages.iter().map(|vpn| program.entry(*vpn).handle().expect("a block"));
        handles.map(|h| (h, world.store.codec(h), world.store.chunk_bytes(h))).collect::<Vec<_>>()
    };
    let before = forms();
    assert_eq!(before[8].2, 16 << 10);
    // The buffer holds six: the second half pushes out the first, and the first the second.
    let vpns: Vec<Vpn> = pages.iter().copied().map(Vpn).collect();
    for vpns in [&vpns[..6], &vpns[6..], &vpns[..6]] {
        let parked = world.mover.park(&program.space, vpns, &mut ctx, &mut Vec::new());
        assert_eq!(parked.pages, 6);
    }
    for ((vpn, before), now) in pages.iter().zip(&before).zip(forms()) {
        assert_ne!(now.0, before.0, "page {vpn} was compressed again");
        assert_eq!((now.1, now.2), (before.1, before.2.min(4 << 10)), "page {vpn}");
    }
    let sizes: BTreeSet<u32> = forms().into_iter().map(|(.., chunk_bytes)| chunk_bytes).collect();
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [1 << 10, 2 << 10, 4 << 10]);
    done(&world);
}

#[test]
fn parked_pages_are_moved_forked_given_up_and_inherited() {
    let world = World::roomy(true);
    let program = stored_as_one(&world, &[2, 3, 4, 5, 6], 32768, true);
    let mut ctx = MoverContext::default();
    fault(&world, &program, 4);
    program.kernel.remap(2, 1, 40, true, true);
    let version = program.model.lock().unwrap().remove(&2).unwrap();
    program.model.lock().unwrap().insert(40, version);
    world.serve(&program, &mut ctx);
    assert_eq!((program.entry(40).state(), world.mover.parked_pages()), (State::Parked, 4));
    let child = world.fork(&program);
    world.serve(&program, &mut ctx);
    assert_eq!(states(&child, [40, 3, 5]), [State::Stored; 3], "only the parent's are parked");
    program.kernel.remove(3, 1);
    world.serve(&program, &mut ctx);
    program.kernel.drop_removed();
    program.forget(3, 1);
    assert_eq!((program.entry(3).state(), world.mover.parked_pages()), (State::Absent, 3));
    // Its copy has moved with it: the block is not asked.
    let handle = program.entry(40).handle().unwrap();
    assert!(world.store.damage(handle, 0));
    assert_eq!(told(&fault(&world, &program, 40)), [('S', 40), ('U', 40)]);
    assert!(world.store.damage(handle, 0));
    world.check(&mut ctx);
    // A successor has the entries and no copies.
    let heir = Mover::new(Arc::clone(&world.store), true, Parking::default());
    let guard = program.space.table.lock.write();
    heir.recover(&program.space, &mut ctx, &mut |_, _| Staged::Unknown).unwrap();
    drop(guard);
    assert_eq!(states(&program, [5, 6]), [State::Stored; 2]);
    world.check(&mut ctx);
    for vpn in [4, 5, 6, 40] {
        assert!(world.read(&program, vpn, &mut ctx));
        assert!(world.read(&child, vpn, &mut ctx));
    }
    done(&world);
}

#[test]
fn a_parked_page_without_a_copy_is_read_from_its_block() {
    let world = World::roomy(true);
    let program = stored_as_one(&world, &[2, 3, 4], 32768, true);
    fault(&world, &program, 4);
    // As if it had been pushed out while its page was moved.
    let heir = Mover::new(Arc::clone(&world.store), true, Parking::default());
    assert!(!program.kernel.touch(2));
    program.kernel.read_faults();
    let guard = program.space.table.lock.read();
    let fault = heir.fault(&program.space, Vpn(2), &mut MoverContext::default(), &mut Vec::new());
    assert!(matches!(fault, Fault::Restored), "{fault:?}");
    drop(guard);
    done(&world);
}

/// Takes runs out as a sample; panics if anything is told.
fn sampled(world: &World, program: &Arc<Program>, runs: &[&[u64]]) -> usize {
    let groups: Vec<_> = runs.iter().map(|run| group(program, run, CodecKind::Raw, 4096)).collect();
    let out = world.mover.sample(&program.space, &groups, &mut MoverContext::default());
    assert_eq!(told(&out.events), []);
    out.stored
}

fn samples(program: &Program) -> Vec<u64> {
    (0..PAGES).filter(|vpn| program.entry(*vpn).has(Entry::SAMPLED)).collect()
}

#[test]
fn the_first_touch_of_a_sampled_run_tells_for_the_run() {
    for retain in [false, true] {
        let world = World::roomy(retain);
        let program = wrote(&world, &ALL);
        assert_eq!(sampled(&world, &program, &[&[1, 2, 3], &[5, 6, 7]]), 6);
        assert_eq!(samples(&program), [1, 2, 3, 5, 6, 7]);
        assert_eq!(told(&fault(&world, &program, 2)), [('S', 2), ('S', 1), ('S', 3)]);
        assert_eq!(samples(&program), [5, 6, 7]);
        // A raw copy is not worth keeping.
        assert!([1, 2, 3].iter().all(|vpn| program.entry(*vpn).handle().is_none()));
        // What nobody touched comes back and nothing is told; what is stored stays.
        let mut ctx = MoverContext::default();
        world.out(&program, &[&[1, 8]], &mut ctx);
        let vpns = ALL.map(Vpn);
        assert_eq!(world.mover.end_sample(&program.space, &vpns, &mut ctx).pages, 3);
        assert_eq!((samples(&program), states(&program, [1, 8])), (vec![], vec![State::Stored; 2]));
        done(&world);
    }
}

#[test]
fn samples_that_are_to_leave_are_compressed_where_they_are() {
    let world = World::roomy(false);
    let program = wrote(&world, &ALL);
    sampled(&world, &program, &[&[1, 2, 3], &[5, 6]]);
    let raw = program.entry(5).handle();
    let mut ctx = MoverContext::default();
    let out = world.out(&program, &[&[2, 4, 3], &[5], &[6]], &mut ctx);
    let mut events = told(&out.events);
    events.sort_unstable();
    assert_eq!(events, [('T', 2), ('T', 3), ('T', 4), ('T', 5), ('T', 6)]);
    assert_eq!((samples(&program), out.stored), (vec![1], 5));
    assert!(program.entry(5).handle() != raw && program.entry(6).handle() != raw);
    assert_eq!(world.store.facts().blocks, 4, "one raw block is gone");
    // With and without pages that are in the program still.
    assert_eq!(program.entry(2).handle(), program.entry(4).handle());
    assert_eq!(told(&fault(&world, &program, 1)), [('S', 1)]);
    assert_eq!(told(&fault(&world, &program, 4))[..2], [('F', 4), ('D', 4)]);
    done(&world);
}

#[test]
fn samples_without_room_to_be_compressed_are_stored_as_they_are() {
    // Room for what is there, and no more.
    let world = World::new(64 << 20, 4, false);
    let program = wrote(&world, &ALL);
    assert_eq!(sampled(&world, &program, &[&[1, 2, 3, 4]]), 4);
    let out = world.out(&program, &[&[1, 2], &[3]], &mut MoverContext::default());
    assert!(out.full.is_some());
    let mut events = told(&out.events);
    events.sort_unstable();
    assert_eq!(events, [('T', 1), ('T', 2), ('T', 3)]);
    assert_eq!(samples(&program), [4]);
    done(&world);
}

#[test]
fn a_child_and_a_successor_take_samples_for_stored() {
    let world = World::roomy(true);
    let program = wrote(&world, &ALL);
    sampled(&world, &program, &[&[1, 2], &[3, 4]]);
    let child = world.fork(&program);
    let mut ctx = MoverContext::default();
    world.serve(&program, &mut ctx);
    assert_eq!((samples(&child), samples(&program)), (vec![], vec![1, 2, 3, 4]));
    assert_eq!(told(&fault(&world, &child, 1))[..2], [('F', 1), ('D', 1)]);
    program.kernel.remap(3, 2, 50, true, true);
    let mut model = program.model.lock().unwrap();
    for vpn in [3, 4] {
        let version = model.remove(&vpn).unwrap();
        model.insert(vpn - 3 + 50, version);
    }
    drop(model);
    world.serve(&program, &mut ctx);
    assert_eq!(told(&fault(&world, &program, 51)), [('S', 51), ('S', 50)]);
    let heir = Mover::new(Arc::clone(&world.store), true, Parking::default());
    let guard = program.space.table.lock.write();
    heir.recover(&program.space, &mut ctx, &mut |_, _| Staged::Unknown).unwrap();
    drop(guard);
    assert_eq!((samples(&program), states(&program, [1, 2])), (vec![], vec![State::Stored; 2]));
    done(&world);
}
