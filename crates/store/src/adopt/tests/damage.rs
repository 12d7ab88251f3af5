//! Memory that was damaged: found, told, and never read as something else.

use std::time::{Duration, Instant};

use clew_core::{PoolKind, Vpn};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::image::{ARENA, Copy, FRAME, HANDLES, LEAVES, OWNERS, RECORDS};
use super::world::{PAGE, clear, config, op};
use super::{Content, Image, Model, Op, POOLS, Random, World};
use crate::pool::object::{HEADER_BYTES, Header};
use crate::{
    AdoptError, Adopted, Entry, Handle, Limit, PutError, ReadError, State, Store, StoreConfig,
};

fn handle(raw: u32) -> Handle {
    Handle::from_raw(raw).unwrap()
}

fn put(first: u64, pages: u64, kind: u8) -> Op {
    Op::Put { space: 0, first, pages, kind, seed: first * 1000, codec: 0, chunk: 2 }
}

fn made(ops: &[Op]) -> (World, Model) {
    made_in(PoolKind::SizeClasses, ops)
}

fn made_in(pool: PoolKind, ops: &[Op]) -> (World, Model) {
    let (mut world, mut model) = (World::of(pool), Model::new());
    ops.iter().for_each(|op| world.apply(op, &mut model));
    (world, model)
}

fn adopt(image: &Image) -> (World, Adopted) {
    let (world, adopted, damage) = World::adopt(image.write(), &[0, 1, 2], config()).unwrap();
    assert!(damage.iter().all(|damage| damage.pages.is_empty()));
    world.check();
    (world, adopted)
}

fn damaged(adopted: &Adopted) -> Vec<u32> {
    adopted.damaged.iter().map(|handle| handle.raw()).collect()
}

/// Pages `vpns` of the first space are errors, all others of `model` as they should be; and so they
/// stay, whatever is put.
fn only_these_are_lost(world: &mut World, model: &mut Model, vpns: &[u64]) {
    for round in 0..3 {
        for ((space, vpn), content) in model.iter() {
            match world.read(*space, *vpn) {
                Some(Ok(bytes)) => {
                    assert!(!vpns.contains(vpn), "page {vpn}");
                    assert_eq!(bytes, content.bytes());
                }
                Some(Err(error)) => {
                    assert!(vpns.contains(vpn), "page {vpn}: {error}");
                    assert!(matches!(error, ReadError::Unknown { .. }), "{error}");
                }
                None => panic!("page {vpn} is lost and nobody is told"),
            }
        }
        let more: Vec<Op> = (0..20).map(|i| put(round * 100 + 600 + i, 1, i as u8 % 4)).collect();
        more.iter().for_each(|op| world.apply(op, model));
        world.check();
    }
    let (second, adopted) = adopt(&world.image());
    assert_eq!(adopted.damaged.is_empty(), vpns.is_empty());
    assert_eq!(second.store.facts().blocks, world.store.facts().blocks);
}

#[test]
fn two_handles_of_one_object_are_both_damaged() {
    let (world, mut model) = made(&[put(0, 1, 1), put(1, 1, 1), put(2, 1, 1), put(3, 1, 2)]);
    let mut image = world.image();
    let first = image.0[HANDLES].word(1);
    image.0[HANDLES].set_word(2, first);
    let (mut next, adopted) = adopt(&image);
    assert_eq!((damaged(&adopted), adopted.blocks, adopted.freed), (vec![1, 2], 2, 0));
    only_these_are_lost(&mut next, &mut model, &[0, 1]);
    assert!(next.store.retain(handle(1)) && !next.store.release(handle(1)));
}

#[test]
fn an_object_must_name_its_handle() {
    let (world, mut model) = made(&[put(0, 1, 1), put(1, 1, 1), put(2, 1, 2)]);
    let mut image = world.image();
    let one = image.0[HANDLES].word(1);
    let other = image.0[HANDLES].word(2);
    image.0[HANDLES].set_word(1, other);
    image.0[HANDLES].set_word(2, one);
    let (mut next, adopted) = adopt(&image);
    assert_eq!(damaged(&adopted), [1, 2]);
    only_these_are_lost(&mut next, &mut model, &[0, 1]);
}

#[test]
fn parts_belong_to_one_block_and_to_no_page() {
    // Two blocks, parts 1 and 2 of block 3, parts 4 and 5 of block 6.
    let (world, model) = made(&[put(0, 2, 0), put(10, 2, 0), put(20, 2, 0)]);
    let image = world.image();
    let replace = |from: [u8; 8], to: [u8; 8]| {
        let mut image = image.clone();
        let mut found = 0;
        for frame in image.0[ARENA].frames.values_mut() {
            while let Some(at) = frame.windows(8).position(|bytes| bytes == from) {
                frame[at..at + 8].copy_from_slice(&to);
                found += 1;
            }
        }
        assert_eq!(found, 1);
        image
    };
    let fronts = [
        ([1, 0, 0, 0, 5, 0, 0, 0], vec![3, 6], 4, vec![0, 1, 10, 11]), // another's
        ([4, 0, 0, 0, 4, 0, 0, 0], vec![6], 2, vec![10, 11]),          // twice
        ([4, 0, 0, 0, 6, 0, 0, 0], vec![6], 2, vec![10, 11]),          // itself
        ([4, 0, 0, 0, 9, 0, 0, 0], vec![6, 9], 3, vec![10, 11, 20, 21]), // a block
        ([4, 0, 0, 0, 5, 1, 0, 0], vec![6], 2, vec![10, 11]),          // none
        ([4, 0, 0, 0, 255, 255, 255, 255], vec![6], 2, vec![10, 11]),  // beyond all
    ];
    for (front, lost, freed, vpns) in fronts {
        let (mut next, adopted) = adopt(&replace([4, 0, 0, 0, 5, 0, 0, 0], front));
        if front[4] == 9 {
            // The block that was listed is a block all the same.
            assert_eq!((damaged(&adopted), adopted.freed), (vec![6], 2));
            only_these_are_lost(&mut next, &mut model.clone(), &[10, 11]);
            continue;
        }
        assert_eq!((damaged(&adopted), adopted.freed), (lost, freed), "{front:?}");
        only_these_are_lost(&mut next, &mut model.clone(), &vpns);
    }
    // A page names a part: it is no page's, and no block's any more.
    let entry = Entry::with_block(State::Stored, handle(4), 0);
    world.spaces[0].store(Vpn(30), entry).unwrap();
    let (mut next, adopted) = adopt(&world.image());
    assert_eq!((damaged(&adopted), adopted.freed), (vec![4, 6], 1));
    let mut model = model.clone();
    model.insert((0, 30), Content::Zero);
    only_these_are_lost(&mut next, &mut model, &[10, 11, 30]);
}

#[test]
fn a_slab_is_of_one_class() {
    let (world, mut model) = made(&[put(0, 1, 1), put(1, 1, 1), put(2, 3, 0)]);
    let mut image = world.image();
    // Handle 2 says, and its object too, that it is of the next class, in the slab of handle 1.
    let header =
        Header { checksum: 0, handle: 2, len: 30, codec: crate::codec::Stored::Raw, framed: false };
    let slab = image.0[HANDLES].word(1) >> 40;
    image.0[HANDLES].set_word(2, slab << 40 | 3 << 30 | 1 << 22 | 1);
    let frame = image.0[ARENA].frames.get_mut(&(slab as usize * 8)).unwrap();
    frame[3 * 48..3 * 48 + HEADER_BYTES].copy_from_slice(&header.to_bytes());
    let (mut next, adopted) = adopt(&image);
    assert_eq!(damaged(&adopted), [1, 2]);
    only_these_are_lost(&mut next, &mut model, &[0, 1]);
}

#[test]
fn memory_that_is_gone_is_damage() {
    let (world, mut model) = made(&[put(0, 1, 1), put(1, 20, 0), put(40, 1, 2)]);
    let mut image = world.image();
    let frames: Vec<usize> = image.0[ARENA].frames.keys().copied().collect();
    // One of the frames of parts: the parts before it are sound, the block is not.
    let part = image.0[HANDLES].word(5);
    let frame = (part >> 40) as usize * 8 + (part >> 30 & 0x3ff) as usize;
    assert!(frames.contains(&frame));
    image.0[ARENA].frames.remove(&frame);
    let (mut next, adopted) = adopt(&image);
    assert_eq!(adopted.damaged.len(), 1);
    let lost: Vec<u64> = (1..21).collect();
    only_these_are_lost(&mut next, &mut model, &lost);

    let mut no_seed = world.image();
    no_seed.0[HANDLES].frames.remove(&0);
    let refused = World::adopt(no_seed.write(), &[0], config());
    assert!(matches!(refused, Err(AdoptError::NoSeed)));
    let mut no_records = world.image();
    no_records.0[RECORDS].frames.clear();
    let (next, adopted) = adopt(&no_records);
    assert_eq!((adopted.blocks, adopted.damaged.len()), (0, 3));
    assert_eq!(next.store.used_bytes(), 4096);
}

#[test]
fn handles_that_pages_name_are_not_given_away() {
    let config = StoreConfig { mem_limit_bytes: 8 << 20, disksize_pages: 9000, ..config() };
    let mut world = World::sized(PoolKind::SizeClasses, config, 64);
    let mut model = Model::new();
    world.apply(&put(0, 1, 1), &mut model);
    // In the table, in a page of it that is not there, and beyond.
    let unknown = [7, 700, 701, 1100, 40_000, u32::MAX - 1, u32::MAX];
    for (vpn, raw) in (100..).zip(unknown) {
        let entry = Entry::with_block(State::Stored, handle(raw), 0);
        world.spaces[0].store(Vpn(vpn), entry).unwrap();
    }
    let fds = world.image().write();
    let (mut next, adopted, _) = World::adopt(fds, &[0], config).unwrap();
    assert_eq!((adopted.blocks, damaged(&adopted)), (1, unknown.to_vec()));
    let put = put(0, 1, 1).block();
    let mut seen = std::collections::HashSet::new();
    let mut ctx = crate::CodecContext::new();
    for _ in 0..1500 {
        let new = next.store.put(&mut ctx, &put, clew_core::CodecKind::Lz4, 4096).unwrap();
        assert!(!unknown.contains(&new.raw()) && seen.insert(new));
    }
    assert!(seen.contains(&handle(702)) && seen.contains(&handle(1101)));
    next.check();
    for vpn in 100..107 {
        assert!(matches!(next.read(0, vpn), Some(Err(ReadError::Unknown { .. }))));
    }
    // When nobody names them any more, a successor may.
    clear(&next.spaces[0], 100, 10, |_, entry| {
        assert!(!next.store.release(entry.handle().unwrap()))
    });
    let fds = next.image().write();
    let (last, adopted, _) = World::adopt(fds, &[0], config).unwrap();
    assert_eq!((adopted.blocks, adopted.freed, damaged(&adopted)), (1, 1500, vec![]));
    assert_eq!(last.store.facts().handle_table_bytes, 4096);
    last.end();
}

#[test]
fn the_limits_may_be_others() {
    let (world, model) = made(&[put(0, 60, 0), put(100, 60, 1), put(200, 60, 2)]);
    let image = world.image();
    let small = StoreConfig { mem_limit_bytes: 5 * 4096, disksize_pages: 100, ..config() };
    let (mut next, _, _) = World::adopt(image.write(), &[0, 1, 2], small).unwrap();
    next.check();
    next.verify(&model, &model);
    let mut ctx = crate::CodecContext::new();
    let mut put_one =
        |world: &World| world.store.put(&mut ctx, &[5; PAGE], clew_core::CodecKind::Lz4, 4096);
    let full = Limit::Pages { stored: 180, limit: 100 };
    assert_eq!(put_one(&next), Err(PutError::Full { limit: full, pages: 1 }));
    let mut left = model.clone();
    next.apply(&Op::Clear { space: 0, first: 100, pages: 100 }, &mut left);
    next.apply(&Op::Clear { space: 0, first: 200, pages: 100 }, &mut left);
    // The pages fit now, and one more object where there is room in a slab, but no frame.
    let mut refused = false;
    for seed in 0..40 {
        let block = put(seed, 1, 0).block();
        let result = next.store.put(&mut ctx, &block, clew_core::CodecKind::Raw, 4096);
        refused |= matches!(result, Err(PutError::Full { limit: Limit::Bytes { .. }, .. }));
    }
    assert!(refused);
    next.check();
    next.verify(&left, &left);

    let large = StoreConfig { mem_limit_bytes: 1 << 30, disksize_pages: 1 << 30, ..config() };
    let (next, _, _) = World::adopt(image.write(), &[0, 1, 2], large).unwrap();
    let mut puts = 0;
    // As far as the segments go.
    while next
        .store
        .put(&mut ctx, &put(puts, 1, 0).block(), clew_core::CodecKind::Raw, 4096)
        .is_ok()
    {
        puts += 1;
    }
    assert!(puts > 200 && puts < 10_000, "{puts}");
    next.check();

    let wrong = StoreConfig { page_bytes: 1000, ..config() };
    let refused = World::adopt(image.write(), &[0], wrong);
    assert!(matches!(refused, Err(AdoptError::PageSize { page_bytes: 1000 })));
}

#[test]
fn other_page_sizes_are_adopted() {
    let config =
        StoreConfig { page_bytes: 16 << 10, mem_limit_bytes: 8 << 20, disksize_pages: 1000 };
    let mut ctx = crate::CodecContext::new();
    let store = Store::new(config).unwrap();
    let block = [put(0, 12, 3).block(), put(0, 4, 0).block()].concat();
    let named = store.put(&mut ctx, &block, clew_core::CodecKind::Lz4, 4096).unwrap();
    let fds = store.segments().into_iter().map(|segment| Copy::of(segment).write()).collect();
    let (next, adopted) = Store::adopt(config, fds, [named, named]).unwrap();
    assert_eq!((adopted.blocks, adopted.pages, adopted.freed), (1, 4, 0));
    next.check();
    let mut out = vec![0; 16 << 10];
    for index in 0..4 {
        next.get(&mut ctx, named, index, &mut out).and_then(crate::Get::here).unwrap();
        assert!(out == block[usize::from(index) << 14..][..16 << 10]);
    }
    // Two entries named it, so there were two references.
    assert!(!next.release(named) && next.release(named));
    // Pages of another size are none that anybody could read as his own.
    let fds = store.segments().into_iter().map(|segment| Copy::of(segment).write()).collect();
    let config = StoreConfig { page_bytes: 4096, ..config };
    let (next, _) = Store::adopt(config, fds, [named]).unwrap();
    assert!(next.get(&mut ctx, named, 0, &mut out[..4096]).and_then(crate::Get::here).is_err());
}

#[test]
fn what_nobody_named_is_freed_with_its_parts() {
    let (mut world, model) = made(&[put(0, 1, 1)]);
    let mut ctx = crate::CodecContext::new();
    for block in [put(1, 4, 0).block(), put(2, 1, 1).block(), put(3, 7, 2).block()] {
        world.store.put(&mut ctx, &block, clew_core::CodecKind::Lz4, 4096).unwrap();
    }
    let (mut next, adopted) = world.succeeded();
    assert_eq!((adopted.blocks, adopted.pages), (1, 1));
    assert_eq!(adopted.freed, world.store.facts().objects - 1);
    assert!(adopted.freed >= 7);
    next.verify(&model, &model);
    assert_eq!((next.store.facts().objects, next.store.facts().pages), (1, 1));
    // The spaces are not wanted: nor are their blocks.
    let (none, adopted, _) = World::adopt(world.image().write(), &[], config()).unwrap();
    assert_eq!((adopted.blocks, none.tables.used_bytes()), (0, 4096));
    assert_eq!(adopted.freed, world.store.facts().objects);
    world.spaces.clear();
}

// ---- damage at random -------------------------------------------------------------------------

fn any_frame<'a>(copy: &'a mut Copy, random: &mut Random) -> Option<&'a mut Vec<u8>> {
    let pick = random.below(copy.frames.len() as u64) as usize;
    copy.frames.values_mut().nth(pick)
}

/// Bits flipped, bytes written over, words zeroed, frames that are gone, too many, or another's.
fn damage(image: &mut Image, random: &mut Random) {
    let segment = random.below(image.0.len() as u64) as usize;
    let copy = &mut image.0[segment];
    let at = random.below(FRAME as u64) as usize;
    match random.below(12) {
        0..4 => {
            let (flips, at) = (1 + random.below(3), at & !7);
            if let Some(frame) = any_frame(copy, random) {
                (0..flips)
                    .for_each(|_| frame[at + random.below(8) as usize] ^= 1 << random.below(8));
            }
        }
        4..6 => {
            let end = (at + 1 + random.below(64) as usize).min(FRAME);
            if let Some(frame) = any_frame(copy, random) {
                frame[at..end].iter_mut().for_each(|byte| *byte = random.next() as u8);
            }
        }
        6..8 => {
            let end = (at + 8 * random.below(8) as usize).min(FRAME) & !7;
            if let Some(frame) = any_frame(copy, random) {
                frame[(at & !7).min(end)..end].fill(0);
            }
        }
        8 => {
            let pick = random.below(copy.frames.len() as u64) as usize;
            if let Some(frame) = copy.frames.keys().nth(pick).copied() {
                copy.frames.remove(&frame);
            }
        }
        9 => {
            let frame = match random.below(3) {
                0 => random.below((copy.len / FRAME) as u64),
                _ => random.below(24).min((copy.len / FRAME) as u64 - 1),
            };
            let bytes = (0..FRAME).map(|_| random.next() as u8).collect();
            copy.frames.entry(frame as usize).or_insert(bytes);
        }
        // Entries would be entries of other pages, which nothing tells.
        _ if segment == LEAVES => {}
        10 => {
            let from = any_frame(copy, random).cloned();
            if let (Some(from), Some(to)) = (from, any_frame(copy, random)) {
                to.copy_from_slice(&from);
            }
        }
        _ => {
            let (from, to) = (at & !7, random.below(FRAME as u64) as usize & !7);
            if let Some(frame) = any_frame(copy, random) {
                frame.copy_within(from..from + 8, to);
            }
        }
    }
}

/// The word of a page, where its leaf was before the damage.
fn word_of(before: &Image, now: &Image, (space, vpn): (u32, u64)) -> u64 {
    let owner = |leaf: &usize| {
        before.0[OWNERS].word(leaf * 2) == vpn / 512 + 1
            && before.0[OWNERS].word(leaf * 2 + 1) as u32 == space
    };
    let leaf = (1..300).find(owner).unwrap();
    now.0[LEAVES].word(leaf * 512 + (vpn % 512) as usize)
}

fn right_or_an_error(world: &mut World, model: &Model, whole: &Image, now: &Image) -> (u32, u32) {
    let (mut right, mut errors) = (0, 0);
    for (key, content) in model {
        match world.read(key.0, key.1) {
            Some(Ok(bytes)) => {
                assert!(bytes == content.bytes(), "page {key:?} reads as another");
                right += 1;
            }
            Some(Err(_)) => errors += 1,
            // A word of zeros is a page that is not there; nothing tells otherwise.
            None => assert_eq!(word_of(whole, now, *key), 0, "page {key:?} is lost"),
        }
    }
    (right, errors)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn damage_is_never_read(
        pool in proptest::sample::select(&POOLS),
        ops in proptest::collection::vec(op(), 5..40),
        seed in any::<u64>(),
    ) {
        let (mut world, mut model) = (World::of(pool), Model::new());
        for op in ops.iter().filter(|op| !matches!(op, Op::End { .. })) {
            world.apply(op, &mut model);
        }
        let whole = world.image();
        let mut random = Random(seed);
        for _ in 0..12 {
            let mut image = whole.clone();
            (0..1 + random.below(5)).for_each(|_| damage(&mut image, &mut random));
            // Without the seed, or with another, there is nothing left to see.
            if random.below(4) > 0 && image.0[HANDLES].frames.contains_key(&0) {
                image.0[HANDLES].set_word(0, whole.0[HANDLES].word(0));
            }
            let Ok((mut next, adopted, damage)) = World::adopt(image.write(), &[0, 1, 2], config())
            else {
                continue;
            };
            next.check();
            prop_assert!(
                next.store.used_bytes() + next.tables.used_bytes() <= image.bytes() as u64
            );
            right_or_an_error(&mut next, &model, &whole, &image);
            let told = adopted.damaged.len() + damage.iter().map(|d| d.pages.len()).sum::<usize>();
            let lost = model.keys().filter(|key| {
                matches!(next.read(key.0, key.1), Some(Err(ReadError::Unknown { .. })))
            });
            prop_assert!(lost.count() == 0 || told > 0, "lost, and nobody is told");
            // It goes on, with other pages.
            let mut other = Model::new();
            for (i, op) in (0u64..).zip(&ops) {
                match op.clone() {
                    Op::Put { space, pages, kind, seed, codec, chunk, .. } => {
                        let first = 2000 + i * 40;
                        let op = Op::Put { space, first, pages, kind, seed, codec, chunk };
                        next.apply(&op, &mut other);
                    }
                    op @ Op::Compact { .. } => next.apply(&op, &mut other),
                    Op::Clear { space, .. } => next.apply(
                        &Op::Clear { space, first: 2000 + i / 2 * 40, pages: 100 },
                        &mut other,
                    ),
                    _ => {}
                }
            }
            next.check();
            for (key, content) in &other {
                prop_assert_eq!(next.read(key.0, key.1), Some(Ok(content.bytes())));
            }
            right_or_an_error(&mut next, &model, &whole, &image);
            let ids = next.ids();
            let (second, _, again) = World::adopt(next.image().write(), &ids, config()).unwrap();
            second.check();
            prop_assert!(again.iter().all(|damage| damage.pages.is_empty()));
            prop_assert_eq!(second.store.facts().blocks, next.store.facts().blocks);
        }
    }
}

/// Tells which numbers failed.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with CLEW_FUZZ_SEED={}", self.0);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Segments of any length with anything in them.
fn noise(random: &mut Random) -> Image {
    let segment = |random: &mut Random| {
        let size = random.below(14);
        let len = (1 + random.below(1 << size)) as usize * FRAME;
        let mut copy = Copy { len, ..Copy::default() };
        let zeros = random.below(3) > 0;
        for _ in 0..random.below(40) {
            let size = random.below(13);
            let frame = random.below(1 << size) as usize;
            if frame < len / FRAME {
                let byte = |random: &mut Random| {
                    // Mostly small numbers: these mean something.
                    let word = random.next();
                    if zeros && word & 0xf00 != 0 { 0 } else { word as u8 }
                };
                copy.frames.insert(frame, (0..FRAME).map(|_| byte(random)).collect());
            }
        }
        copy
    };
    // Of either pool.
    let segments = [5, 7][random.below(2) as usize];
    Image((0..segments).map(|_| segment(random)).collect())
}

/// For `CLEW_FUZZ_SECONDS` (2), from `CLEW_FUZZ_SEED`.
#[test]
fn adopting_garbage_is_an_error() {
    let base = number("CLEW_FUZZ_SEED").unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| since.as_nanos() as u64)
    });
    let end = Instant::now() + Duration::from_secs(number("CLEW_FUZZ_SECONDS").unwrap_or(2));
    println!("CLEW_FUZZ_SEED={base}");
    let (mut rounds, mut adopted_ones, mut read) = (0u64, 0u64, 0u64);
    let mut runner = TestRunner::deterministic();
    let mut worlds = Vec::new();
    for pool in POOLS.repeat(4) {
        let ops = proptest::collection::vec(op(), 10..60).new_tree(&mut runner).unwrap().current();
        let (world, model) = made_in(pool, &ops);
        worlds.push((world.image(), world.ids(), model));
    }
    while Instant::now() < end || rounds == 0 {
        let seed = base.wrapping_add(rounds);
        let (_told, mut random) = (Told(seed), Random(seed));
        rounds += 1;
        let garbage = random.below(3) == 0;
        let (whole, ids, model) = &worlds[random.below(8) as usize];
        let mut image = if garbage { noise(&mut random) } else { whole.clone() };
        if !garbage || random.below(2) == 0 {
            (0..random.below(200)).for_each(|_| damage(&mut image, &mut random));
        }
        if garbage && random.below(2) == 0 {
            // Tables that are sound, and a store that is not.
            image.0[LEAVES] = whole.0[LEAVES].clone();
            image.0[OWNERS] = whole.0[OWNERS].clone();
        }
        let bytes = image.bytes() as u64;
        let Ok((mut world, ..)) = World::adopt(image.write(), ids, config()) else { continue };
        adopted_ones += 1;
        world.check();
        assert!(world.store.used_bytes() + world.tables.used_bytes() <= bytes);
        for (key, content) in model {
            if let Some(Ok(now)) = world.read(key.0, key.1) {
                assert!(now == content.bytes(), "page {key:?} reads as another");
                read += 1;
            }
        }
        let mut other = Model::new();
        for first in 0..random.below(20) {
            let space = random.below(ids.len() as u64) as usize;
            let (kind, codec) = (random.below(4) as u8, random.below(3) as usize);
            let first = 4000 + first * 8;
            world.apply(
                &Op::Put { space, first, pages: 1 + first % 5, kind, seed: first, codec, chunk: 1 },
                &mut other,
            );
            world.apply(&Op::Clear { space, first: first - 16, pages: 9 }, &mut other);
        }
        for (key, content) in &other {
            assert_eq!(world.read(key.0, key.1), Some(Ok(content.bytes())));
        }
        world.store.compact(100);
        world.check();
        for space in 0..ids.len() {
            world.apply(&Op::End { space }, &mut other);
        }
        world.check();
        assert_eq!(world.store.facts().objects, 0, "nobody names anything any more");
    }
    println!("{rounds} rounds, {adopted_ones} could be adopted, {read} pages were read");
}
