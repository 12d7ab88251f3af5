//! Everything at once: a program that writes and verifies, one that only touches, a reader of
//! events and faults, two restorers and a swapper. No test waits for a clock: each ends when the
//! program has done what it had to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clew_core::{CodecKind, FlashForm, Vpn};
use clew_engine::MoverContext;
use clew_store::flash::LogId;

use crate::contents::page;
use crate::world::{PAGES, Program, World, group};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// Sets its flag when it is dropped, so that a test that fails does not hang.
struct Finally<'a>(&'a AtomicBool, &'a Program);

impl Drop for Finally<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.kernel.notify();
    }
}

fn serve(world: &World, program: &Program, stop: &AtomicBool) {
    let mut ctx = MoverContext::default();
    while !stop.load(Ordering::SeqCst) {
        program.kernel.wait_readable(stop);
        world.serve(program, &mut ctx);
    }
}

/// Touches a page until it is there at that moment.
fn with_page<T>(program: &Program, vpn: u64, act: impl Fn() -> Option<T>) -> T {
    loop {
        if program.kernel.touch(vpn) {
            if let Some(value) = act() {
                return value;
            }
        } else {
            program.kernel.wait_woken(vpn);
        }
    }
}

fn write(world: &World, program: &Program, vpn: u64) {
    let version = world.next_version();
    with_page(program, vpn, || program.kernel.write(vpn, page(version)).then_some(()));
    program.model.lock().unwrap().insert(vpn, version);
}

fn verify(program: &Program, vpn: u64) {
    let bytes = with_page(program, vpn, || program.kernel.bytes(vpn));
    let version = program.model.lock().unwrap().get(&vpn).copied().unwrap_or(0);
    assert!(bytes == page(version), "page {vpn} of {} is not version {version}", program.id());
}

/// A forked child: verifies what it inherited, writes some of it, ends.
fn child(world: &World, child: &Program) {
    let stop = AtomicBool::new(false);
    while !child.born.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| serve(world, child, &stop));
        let _finally = Finally(&stop, child);
        (0..PAGES).for_each(|vpn| verify(child, vpn));
        (0..PAGES).step_by(3).for_each(|vpn| write(world, child, vpn));
        (0..PAGES).for_each(|vpn| verify(child, vpn));
    });
    world.end(child);
}

fn live(world: &World, program: &Program, steps: u64, seed: u64) {
    let mut random = Random(seed);
    std::thread::scope(|scope| {
        for step in 0..steps {
            let vpn = random.below(PAGES);
            let count = (1 + random.below(12)).min(PAGES - vpn);
            match random.below(40) {
                0..16 => write(world, program, vpn),
                16..34 => verify(program, vpn),
                34..37 => {
                    program.kernel.remove(vpn, count);
                    program.kernel.wait_read();
                    program.kernel.drop_removed();
                    program.forget(vpn, count);
                }
                37..39 => {
                    let to = random.below(PAGES - count + 1);
                    if vpn + count <= to || to + count <= vpn {
                        program.kernel.remap(vpn, count, to, step % 2 == 0, true);
                        program.kernel.wait_read();
                        let mut model = program.model.lock().unwrap();
                        for i in 0..count {
                            match model.remove(&(vpn + i)) {
                                Some(version) => model.insert(to + i, version),
                                None => model.remove(&(to + i)),
                            };
                        }
                    }
                }
                _ if step % 4 == 0 => {
                    let forked = world.fork(program);
                    program.kernel.wait_read();
                    scope.spawn(move || child(world, &forked));
                }
                _ => {}
            }
        }
        (0..PAGES).for_each(|vpn| verify(program, vpn));
    });
}

fn swap(world: &World, program: &Arc<Program>, stop: &AtomicBool) {
    let (mut ctx, mut random) = (MoverContext::default(), Random(5));
    let codecs = [CodecKind::Lz4, CodecKind::Zstd, CodecKind::Raw];
    while !stop.load(Ordering::SeqCst) {
        let groups: Vec<_> = (0..8)
            .map(|i| {
                let first = random.below(PAGES);
                let pages: Vec<u64> = (first..(first + 1 + random.below(6)).min(PAGES)).collect();
                group(program, &pages, codecs[i % 3], [1024, 4096, 16384][i % 3])
            })
            .collect();
        world.mover.swap_out(&program.space, &groups, &mut ctx);
        if world.store.log(LogId::FLASH).is_some() {
            let first = random.below(PAGES);
            let pages: Vec<u64> = (first..(first + 30).min(PAGES)).collect();
            let groups = [group(program, &pages, CodecKind::Lz4, 4096)];
            let form = [FlashForm::AsStored, FlashForm::Pages][random.below(2) as usize];
            world.mover.evict(&program.space, &groups, (LogId::FLASH, form), &mut ctx);
            let _ = world.store.clean_log(LogId::FLASH);
        }
        if random.below(8) == 0 {
            world.store.compact(64);
        }
    }
}

fn restore(world: &World, program: &Program, seed: u64, stop: &AtomicBool) {
    let (mut ctx, mut random, mut events) = (MoverContext::default(), Random(seed), Vec::new());
    while !stop.load(Ordering::SeqCst) {
        let first = random.below(PAGES);
        let vpns: Vec<Vpn> = (first..(first + random.below(40)).min(PAGES)).map(Vpn).collect();
        let restored = world.mover.restore(&program.space, &vpns, &mut ctx, &mut events);
        assert_eq!(restored.corrupt, None);
        events.clear();
        let first = random.below(PAGES);
        for vpn in first..first + random.below(20) {
            world.mover.drop_kept(&program.space, Vpn(vpn));
        }
        std::thread::yield_now();
    }
}

fn touch(program: &Program, stop: &AtomicBool) {
    let mut random = Random(99);
    while !stop.load(Ordering::SeqCst) {
        with_page(program, random.below(PAGES), || Some(()));
        std::thread::yield_now();
    }
}

/// Blocks that faults wait for arrive, in their time.
fn arrive(world: &World, stop: &AtomicBool) {
    let mut ctx = MoverContext::default();
    while world.arrive(&mut ctx) > 0 || !stop.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

fn everything_at_once(world: &World, steps: u64, seed: u64) {
    let program = world.start();
    let (done, unserved) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| serve(world, &program, &unserved));
        scope.spawn(|| arrive(world, &unserved));
        let _finally = Finally(&unserved, &program);
        std::thread::scope(|scope| {
            scope.spawn(|| swap(world, &program, &done));
            scope.spawn(|| restore(world, &program, 11, &done));
            scope.spawn(|| restore(world, &program, 12, &done));
            scope.spawn(|| touch(&program, &done));
            let _finally = Finally(&done, &program);
            live(world, &program, steps, seed);
        });
    });
    let mut ctx = MoverContext::default();
    world.check(&mut ctx);
    let counters = &world.mover.counters;
    for counter in [&counters.swapped_out, &counters.demand, &counters.restored] {
        assert_ne!(counter.load(Ordering::Relaxed), 0);
    }
    world.finish();
}

#[test]
fn programs_and_workers_and_flash_at_once() {
    let world = World::roomy(true).with_flash();
    world.is_late.store(true, Ordering::SeqCst);
    everything_at_once(&world, 4000, 4);
    let counters = &world.mover.counters;
    for counter in [&counters.evicted, &counters.demand_flash] {
        assert_ne!(counter.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn everything_at_once_with_room() {
    everything_at_once(&World::roomy(true), 4000, 1);
}

#[test]
fn everything_at_once_without_kept_copies() {
    everything_at_once(&World::roomy(false).running_ahead(), 4000, 2);
}

#[test]
fn everything_at_once_in_a_pool_that_is_too_small() {
    everything_at_once(&World::new(30 * 4096, 40, true).running_ahead(), 4000, 3);
}

#[test]
fn kept_copies_are_dropped_while_their_pages_leave() {
    let world = World::roomy(true);
    let program = world.start();
    let mut ctx = MoverContext::default();
    let pages: Vec<u64> = (0..PAGES).collect();
    for vpn in &pages {
        world.write(&program, *vpn, &mut ctx);
    }
    let vpns: Vec<Vpn> = pages.iter().copied().map(Vpn).collect();
    let groups: Vec<&[u64]> = pages.chunks(3).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                for vpn in &vpns {
                    world.mover.drop_kept(&program.space, *vpn);
                }
            }
        });
        let _finally = Finally(&stop, &program);
        for _ in 0..400 {
            world.out(&program, &groups, &mut ctx);
            world.mover.restore(&program.space, &vpns, &mut ctx, &mut Vec::new());
        }
    });
    world.check(&mut ctx);
    world.finish();
}
