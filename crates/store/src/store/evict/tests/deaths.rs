//! Deaths inside of operations.

use super::*;
use crate::adopt::tests::step;

/// In a process of its own a block is moved, up to so many instructions.
#[test]
fn whoever_dies_while_moving_a_block_leaves_it_here_or_there() {
    let name = "whoever_dies_while_moving_a_block_leaves_it_here_or_there";
    let (mut here, mut there) = (0, 0);
    for seed in 0..48 {
        let mut draw = Seeded::of(seed, &[6]);
        let mut world = World::of(POOLS[seed as usize % 2], plan(20), CONFIG);
        for _ in 0..draw.below(60) {
            world.play(&mut draw);
        }
        let Some(handle) = world.put(&mut draw, seed % 3 == 1) else { continue };
        world.store.log(LogId::FLASH).unwrap().flush();
        let fetched = match world.store.get(&mut world.ctx, handle, 0, &mut [0; PAGE]).unwrap() {
            Get::Far(block) => Some(fetch(&world.store, block).unwrap()),
            Get::Here(()) => None,
        };
        let (store, ctx) = (&world.store, &mut world.ctx);
        let child = step::traced(name, || match fetched {
            Some(fetched) => drop(store.bring_back(&fetched)),
            None => drop(store.evict(ctx, handle, LogId::FLASH, FlashForm::AsStored)),
        });
        let Some(mut child) = child else { return };
        for _ in 0..draw.size(100, 40_000) {
            if !child.step() {
                break;
            }
        }
        child.kill();
        let mut world = world.die();
        match world.store.log_of(handle).is_some() {
            true => there += 1,
            false => here += 1,
        }
        world.check();
        for _ in 0..40 {
            world.play(&mut draw);
        }
        world.end();
    }
    assert!(here > 3 && there > 3, "{here} here, {there} there");
}

/// Other processes' objects come and go until they are killed; named are those of before.
#[test]
fn whoever_dies_by_surprise_leaves_what_was_named() {
    for seed in 0..12 {
        let mut draw = Seeded::of(seed, &[7]);
        let mut world = World::of(POOLS[seed as usize % 2], plan(60), CONFIG);
        for _ in 0..40 {
            world.play(&mut draw);
        }
        world.store.log(LogId::FLASH).unwrap().flush();
        let store = Arc::clone(&world.store);
        let handles: Vec<Handle> = world.blocks.keys().copied().collect();
        let child = step::fork(|| {
            let mut ctx = CodecContext::new();
            let mut draw = Seeded::of(seed, &[8]);
            loop {
                let handle = handles[draw.below(handles.len() as u64) as usize];
                let _ = store.evict(&mut ctx, handle, LogId::FLASH, FlashForm::AsStored);
                // Without a thread that writes, only what is in memory can be read.
                let put = store.put_far(
                    LogId::FLASH,
                    &mut ctx,
                    &block_of(2, 1),
                    CodecKind::Lz4,
                    8192,
                    Members::default(),
                );
                if let Ok(put) = put {
                    store.release(put);
                    store.release(put);
                }
            }
        });
        std::thread::sleep(std::time::Duration::from_micros(500 + draw.below(4000)));
        child.kill();
        drop(store);
        let mut world = world.die();
        world.check();
        for _ in 0..60 {
            world.play(&mut draw);
        }
        world.end();
    }
}
