//! The store against a naive one, its limits, damage, and threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::adopt::tests::POOLS;
use crate::codec::CodecContext;
use crate::codec::tests::block_of;
use clew_core::CodecKind;

const PAGE: usize = 4096;
const CODECS: [CodecKind; 5] = [
    CodecKind::Raw,
    CodecKind::Lz4,
    CodecKind::Lzo,
    CodecKind::BaseDeltaImmediate,
    CodecKind::Zstd,
];

fn store(mem_limit_bytes: u64, disksize_pages: u64) -> Store {
    store_in(PoolKind::SizeClasses, mem_limit_bytes, disksize_pages)
}

fn store_in(pool: PoolKind, mem_limit_bytes: u64, disksize_pages: u64) -> Store {
    Store::of(pool, StoreConfig { page_bytes: PAGE, mem_limit_bytes, disksize_pages }).unwrap()
}

fn noise(pages: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
    .take(pages * PAGE)
    .collect()
}

fn assert_holds(store: &Store, ctx: &mut CodecContext, handle: Handle, contents: &[u8]) {
    let pages = contents.len() / PAGE;
    assert_eq!(usize::from(store.block_pages(handle)), pages);
    let mut out = vec![0; contents.len()];
    for (index, page) in (0..).zip(contents.chunks(PAGE)) {
        store.get(ctx, handle, index, &mut out[..PAGE]).and_then(crate::Get::here).unwrap();
        assert!(out[..PAGE] == *page, "page {index} of {pages}");
        assert_eq!(store.checksum(handle, index), store.hash(page));
    }
    let mut index = 0;
    while usize::from(index) < pages {
        let piece =
            store.get_chunk(ctx, handle, index, &mut out).and_then(crate::Get::here).unwrap();
        assert!(piece.pages.contains(&index) && usize::from(piece.of) == pages, "{piece:?}");
        let (from, to) = (usize::from(piece.pages.start), usize::from(piece.pages.end));
        let restored = &out[..(to - from) * PAGE];
        assert!(*restored == contents[from * PAGE..to * PAGE], "{piece:?}");
        for (index, page) in piece.pages.clone().zip(restored.chunks(PAGE)) {
            assert_eq!(store.check_page(handle, index, page), Ok(()));
        }
        index = piece.pages.end;
    }
    let error = store
        .get(ctx, handle, pages as u16, &mut out[..PAGE])
        .and_then(crate::Get::here)
        .unwrap_err();
    assert!(matches!(error, ReadError::NoSuchPage { .. }), "{error}");
}

#[test]
fn every_shape_of_block_comes_back() {
    let (store, mut ctx) = (store(64 << 20, 1 << 20), CodecContext::new());
    let mut handles = Vec::new();
    for codec in CODECS {
        for chunk_bytes in [256, 1024, 4096, 12288, 16 << 10, 128 << 10] {
            for pages in [1, 2, 7, 32, 128] {
                for block in [block_of(pages, 5), noise(pages, 9), vec![3; pages * PAGE]] {
                    let handle = store.put(&mut ctx, &block, codec, chunk_bytes).unwrap();
                    assert_holds(&store, &mut ctx, handle, &block);
                    handles.push(handle);
                }
            }
        }
    }
    store.check();
    for handle in handles {
        for _ in 1..store.block_pages(handle) {
            assert!(!store.release(handle));
        }
        assert!(store.release(handle));
        assert_eq!(store.block_pages(handle), 0);
    }
    store.check();
    store.compact(0);
    let facts = store.facts();
    assert_eq!((facts.pages, facts.blocks, facts.objects, facts.payload_bytes), (0, 0, 0, 0));
    assert_eq!(facts.used_bytes, facts.handle_table_bytes + facts.slab_table_bytes);
}

#[test]
fn a_block_knows_where_its_pages_were() {
    let (store, mut ctx) = (store(64 << 20, 1 << 20), CodecContext::new());
    let far = 1 << 33;
    let vpns = [100, 7, 101, far, 90].map(Vpn);
    for contents in [block_of(5, 3), noise(5, 4)] {
        for (chunk_bytes, park) in [(1024, true), (8192, false), (128 << 10, true)] {
            let members = Members { vpns: &vpns, park, dictionary: None };
            let handle =
                store.put_group(&mut ctx, &contents, CodecKind::Lz4, chunk_bytes, members).unwrap();
            assert_holds(&store, &mut ctx, handle, &contents);
            let mut out = vec![0; 5 * PAGE];
            let piece =
                store.get_chunk(&mut ctx, handle, 2, &mut out).and_then(crate::Get::here).unwrap();
            assert_eq!((piece.of, piece.park), (5, park));
            // As it was, and after all of it has moved by a thousand pages.
            for (now, moved) in [(101, 0i64), (1101, 1000)] {
                for (other, vpn) in (0..).zip(vpns) {
                    let found = ctx.sibling(2, Vpn(now), other);
                    let at = vpn.0.checked_add_signed(moved).map(Vpn);
                    assert_eq!(found, at.filter(|_| vpn.0 != far), "page {other}");
                }
            }
            assert_eq!((ctx.sibling(3, Vpn(far), 0), ctx.sibling(2, Vpn(3), 1)), (None, None));
            assert_eq!(ctx.sibling(2, Vpn(101), 5), None);
            assert_eq!((0..5).filter(|_| store.release(handle)).count(), 1);
        }
    }
    // The largest blocks of the smallest chunks have no room for it.
    let words: Vec<u8> =
        noise(128, 1).into_iter().enumerate().map(|(i, b)| b * (i >= 256) as u8).collect();
    let vpns: Vec<Vpn> = (0..128).map(Vpn).collect();
    let members = Members { vpns: &vpns, park: true, dictionary: None };
    let handle = store.put_group(&mut ctx, &words, CodecKind::Lz4, 256, members).unwrap();
    assert_holds(&store, &mut ctx, handle, &words);
    let piece = store
        .get_chunk(&mut ctx, handle, 2, &mut vec![0; 3 * PAGE])
        .and_then(crate::Get::here)
        .unwrap();
    assert_eq!((piece.of, ctx.sibling(2, Vpn(2), 3)), (128, None));
}

#[test]
fn other_page_sizes_work() {
    let config =
        StoreConfig { page_bytes: 16 << 10, mem_limit_bytes: 8 << 20, disksize_pages: 1000 };
    let (store, mut ctx) = (Store::new(config).unwrap(), CodecContext::new());
    for contents in [block_of(12, 1), noise(12, 2)] {
        let handle = store.put(&mut ctx, &contents, CodecKind::Lz4, 4096).unwrap();
        let mut out = vec![0; 16 << 10];
        for index in 0..3 {
            store.get(&mut ctx, handle, index, &mut out).and_then(crate::Get::here).unwrap();
            assert!(out == contents[usize::from(index) << 14..][..16 << 10]);
        }
    }
}

#[test]
fn wrong_arguments_are_errors() {
    let (store, mut ctx) = (store(8 << 20, 1000), CodecContext::new());
    let put = |ctx: &mut CodecContext, bytes, chunk| {
        store.put(ctx, &vec![1; bytes], CodecKind::Lz4, chunk).unwrap_err()
    };
    for bytes in [0, 100, 4097, 129 * PAGE] {
        assert!(matches!(put(&mut ctx, bytes, 4096), PutError::BlockSize { .. }));
    }
    for chunk in [0, 128, 300, 256 << 10] {
        assert!(matches!(put(&mut ctx, PAGE, chunk), PutError::ChunkSize { .. }));
    }
    let mut out = [0; PAGE];
    for raw in [1, 500, u32::MAX] {
        let handle = Handle::from_raw(raw).unwrap();
        assert_eq!(
            store.get(&mut ctx, handle, 0, &mut out).and_then(crate::Get::here),
            Err(ReadError::Unknown { handle })
        );
        assert!(!store.retain(handle) && !store.release(handle));
        assert_eq!((store.checksum(handle, 0), store.stored_bytes(handle)), (0, 0));
    }
    // Parts of a block are no blocks.
    let block = store.put(&mut ctx, &noise(2, 1), CodecKind::Lz4, 4096).unwrap();
    for raw in 1..8 {
        let handle = Handle::from_raw(raw).unwrap();
        if handle != block {
            assert_eq!(
                store.get(&mut ctx, handle, 0, &mut out).and_then(crate::Get::here),
                Err(ReadError::Unknown { handle })
            );
            assert!(!store.release(handle));
        }
    }
    assert_holds(&store, &mut ctx, block, &noise(2, 1));
    let found = store.get(&mut ctx, block, 0, &mut out[..8]).and_then(crate::Get::here);
    assert_eq!(found, Err(ReadError::WrongSize { wanted: PAGE, found: 8 }));
    let small = store.get_chunk(&mut ctx, block, 0, &mut out[..8]).and_then(crate::Get::here);
    assert_eq!(small, Err(ReadError::WrongSize { wanted: PAGE, found: 8 }));
}

#[test]
fn a_block_says_how_it_was_compressed() {
    let (store, mut ctx) = (store(8 << 20, 1000), CodecContext::new());
    let page = PAGE as u32;
    let raw = (CodecKind::Raw, 8 * page);
    let cases = [
        (block_of(1, 3), CodecKind::Lz4, page, (CodecKind::Lz4, page)),
        (block_of(1, 3), CodecKind::Zstd, 1024, (CodecKind::Zstd, 1024)),
        (block_of(8, 3), CodecKind::Zstd, 1024, (CodecKind::Zstd, 1024)),
        (block_of(8, 3), CodecKind::Lz4, 4 * page, (CodecKind::Lz4, 4 * page)),
        (block_of(8, 3), CodecKind::Lz4, 32 * page, (CodecKind::Lz4, 8 * page)),
        (noise(8, 3), CodecKind::Lz4, page, raw),
        (noise(1, 3), CodecKind::Lz4, page, (CodecKind::Raw, page)),
        (block_of(8, 3), CodecKind::Raw, page, raw),
        (vec![7; PAGE], CodecKind::Zstd, page, (CodecKind::Lz4, page)),
    ];
    for (contents, codec, chunk_bytes, expected) in cases {
        let handle = store.put(&mut ctx, &contents, codec, chunk_bytes).unwrap();
        let said = (store.codec(handle), store.chunk_bytes(handle));
        assert_eq!(said, expected, "{} bytes, {codec:?} by {chunk_bytes}", contents.len());
    }
    // Of parts and of what there is not, nothing much.
    for raw in [2, 3, 500, u32::MAX] {
        let handle = Handle::from_raw(raw).unwrap();
        if store.block_pages(handle) == 0 {
            assert_eq!((store.codec(handle), store.chunk_bytes(handle)), (CodecKind::Lz4, page));
        }
    }
    assert_eq!(store.facts().corrupt_reads, 0, "to ask is not to read");
}

#[test]
fn limits_are_kept_and_nothing_is_half_stored() {
    let mut ctx = CodecContext::new();
    let pages_limited = store(8 << 20, 10);
    let error = pages_limited.put(&mut ctx, &noise(11, 1), CodecKind::Raw, 4096).unwrap_err();
    let limit = Limit::Pages { stored: 0, limit: 10 };
    assert_eq!(error, PutError::Full { limit, pages: 11 });
    assert!(pages_limited.put(&mut ctx, &noise(10, 1), CodecKind::Raw, 4096).is_ok());
    assert!(pages_limited.put(&mut ctx, &noise(1, 1), CodecKind::Raw, 4096).is_err());

    let small = store(40 * 4096, 1 << 20);
    let mut handles = Vec::new();
    let error = loop {
        match small.put(&mut ctx, &noise(7, handles.len() as u64), CodecKind::Lz4, 4096) {
            Ok(handle) => handles.push(handle),
            Err(error) => break error,
        }
        assert!(small.used_bytes() <= 40 * 4096);
    };
    assert!(matches!(error, PutError::Full { limit: Limit::Bytes { .. }, pages: 7 }));
    assert!(handles.len() >= 4);
    let facts = small.facts();
    assert_eq!((facts.blocks, facts.pages), (handles.len() as u64, 7 * handles.len() as u64));
    small.check();
    for (seed, handle) in (0..).zip(&handles) {
        assert_holds(&small, &mut ctx, *handle, &noise(7, seed));
    }
    // Room again once something left.
    assert_eq!((0..7).filter(|_| small.release(handles[0])).count(), 1);
    assert!(small.put(&mut ctx, &noise(7, 77), CodecKind::Lz4, 4096).is_ok());
    small.check();
}

#[test]
fn damage_is_found_and_told() {
    let (store, mut ctx) = (store(8 << 20, 1000), CodecContext::new());
    let mut out = vec![0; 8 * PAGE];
    for codec in CODECS {
        for (pages, chunk) in [(1, 4096), (1, 1024), (4, 16384), (8, 4096)] {
            for contents in [block_of(pages, 3), noise(pages, 3)] {
                let handle = store.put(&mut ctx, &contents, codec, chunk).unwrap();
                for offset in [0, 3, 11, 40] {
                    if !store.damage(handle, offset) {
                        continue;
                    }
                    let whole = (0..pages as u16).any(|index| {
                        match store
                            .get_chunk(&mut ctx, handle, index, &mut out)
                            .and_then(crate::Get::here)
                        {
                            Err(_) => true,
                            Ok(piece) => piece.pages.zip(out.chunks(PAGE)).any(|(index, page)| {
                                let is_it = store.check_page(handle, index, page).is_ok();
                                let at = usize::from(index) * PAGE;
                                assert!(!is_it || *page == contents[at..at + PAGE]);
                                !is_it
                            }),
                        }
                    });
                    let seen = (0..pages as u16).any(|index| {
                        let got = store
                            .get(&mut ctx, handle, index, &mut out[..PAGE])
                            .and_then(crate::Get::here);
                        // Whatever is not an error is right.
                        let at = usize::from(index) * PAGE;
                        assert!(got.is_err() || out[..PAGE] == contents[at..at + PAGE]);
                        got.is_err()
                    });
                    // Bytes behind the payload may be hit: then nothing changed.
                    assert_eq!(whole, seen, "{codec:?} {pages} {chunk} {offset}");
                    store.damage(handle, offset);
                    assert_holds(&store, &mut ctx, handle, &contents);
                }
            }
        }
    }
    let handle = store.put(&mut ctx, &vec![6; PAGE], CodecKind::Raw, 4096).unwrap();
    let expected = store.hash(&vec![6; PAGE]);
    store.damage(handle, 0);
    let error =
        store.get(&mut ctx, handle, 0, &mut out[..PAGE]).and_then(crate::Get::here).unwrap_err();
    assert!(
        matches!(error, ReadError::Corrupt { index: 0, expected: e, found, .. }
            if e == expected && found == store.hash(&out[..PAGE])),
        "{error}"
    );
    assert!(store.facts().corrupt_reads > 0);
}

#[test]
fn same_filled_pages_take_the_smallest_object() {
    let (store, mut ctx) = (store(8 << 20, 1000), CodecContext::new());
    let page: Vec<u8> = 0xdead_beef_u64.to_le_bytes().repeat(512);
    for codec in CODECS {
        let handle = store.put(&mut ctx, &page, codec, 4096).unwrap();
        assert_eq!(store.stored_bytes(handle), 32);
        assert_holds(&store, &mut ctx, handle, &page);
    }
}

#[test]
fn metadata_stays_below_32_bytes_a_page() {
    use crate::pool::object::HEADER_BYTES;
    let table_entry = size_of::<crate::table::Entry>();
    let handle_entry = 8;
    assert!(HEADER_BYTES + handle_entry + table_entry <= 32);
    let (store, mut ctx) = (store(256 << 20, 1 << 20), CodecContext::new());
    for seed in 0..8000 {
        store.put(&mut ctx, &block_of(1, seed), CodecKind::Lz4, 4096).unwrap();
    }
    let facts = store.facts();
    let headers = facts.objects * HEADER_BYTES as u64;
    let all = facts.handle_table_bytes + facts.slab_table_bytes + headers + facts.pages * 8;
    let bytes_a_page = all as f64 / facts.pages as f64;
    assert!(bytes_a_page <= 32.0, "{bytes_a_page}");
    let wasted = (facts.used_bytes - facts.object_bytes) as f64 / facts.used_bytes as f64;
    assert!(wasted < 0.06, "{wasted} of the frames hold no object");
}

#[test]
fn compaction_gives_memory_back_and_moves_nothing_out_of_sight() {
    let (store, mut ctx) = (store(256 << 20, 1 << 20), CodecContext::new());
    let blocks: Vec<_> = (0..6000)
        .map(|seed| {
            let contents = block_of(1, seed % 50);
            (store.put(&mut ctx, &contents, CodecKind::Lz4, 4096).unwrap(), contents)
        })
        .collect();
    let mut kept = Vec::new();
    for (i, (handle, contents)) in blocks.into_iter().enumerate() {
        match i % 5 {
            0 => kept.push((handle, contents)),
            _ => assert!(store.release(handle)),
        }
    }
    let before = store.used_bytes();
    let mut freed = 0;
    while let more @ 1.. = store.compact(100) {
        freed += more as u64;
    }
    store.check();
    assert!(before - store.used_bytes() > before / 2, "{before} to {}", store.used_bytes());
    assert!(freed * 4096 >= before - store.used_bytes());
    for (handle, contents) in &kept {
        assert_holds(&store, &mut ctx, *handle, contents);
    }
    assert_eq!(store.compact(usize::MAX), 0);
}

#[test]
fn threads_put_get_release_and_compact_at_once() {
    let store = store(24 << 20, 1 << 20);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, stop) = (&store, &stop);
        let compactor = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                store.compact(64);
            }
        });
        let workers: Vec<_> = (0..4u64)
            .map(|worker| {
                scope.spawn(move || {
                    let mut ctx = CodecContext::new();
                    let mut mine: Vec<(Handle, Vec<u8>)> = Vec::new();
                    let mut seed = worker * 7919 + 1;
                    for round in 0..3000 {
                        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                        let pick = (seed >> 33) as usize;
                        if mine.len() < 60 || pick.is_multiple_of(3) {
                            let pages = [1, 1, 1, 2, 5, 16][pick % 6];
                            let contents = match pick % 11 {
                                0 => noise(pages, seed),
                                _ => block_of(pages, seed),
                            };
                            let codec = CODECS[pick % 3];
                            match store.put(&mut ctx, &contents, codec, 4096 << (pick % 3)) {
                                Ok(handle) => mine.push((handle, contents)),
                                Err(PutError::Full { .. }) => {}
                                Err(error) => panic!("{error}"),
                            }
                        } else if round % 2 == 0 {
                            let (handle, contents) = &mine[pick % mine.len()];
                            assert_holds(store, &mut ctx, *handle, contents);
                        } else {
                            let (handle, contents) = mine.swap_remove(pick % mine.len());
                            assert!(store.retain(handle));
                            for _ in 0..contents.len() / PAGE {
                                assert!(!store.release(handle));
                            }
                            assert_holds(store, &mut ctx, handle, &contents);
                            assert!(store.release(handle));
                        }
                    }
                    for (handle, contents) in mine {
                        assert_holds(store, &mut ctx, handle, &contents);
                        for _ in 0..contents.len() / PAGE {
                            store.release(handle);
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        compactor.join().unwrap();
    });
    store.check();
    let facts = store.facts();
    assert_eq!((facts.blocks, facts.pages, facts.objects), (0, 0, 0));
}

#[test]
fn reads_that_race_with_the_last_release_are_errors_or_right() {
    let store = store(8 << 20, 1000);
    let mut ctx = CodecContext::new();
    let contents = block_of(1, 4);
    for _ in 0..300 {
        let handle = store.put(&mut ctx, &contents, CodecKind::Lz4, 4096).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut ctx, mut out) = (CodecContext::new(), vec![0; PAGE]);
                loop {
                    match store.get(&mut ctx, handle, 0, &mut out).and_then(crate::Get::here) {
                        Ok(()) => assert!(out == contents),
                        Err(error) => break assert_eq!(error, ReadError::Unknown { handle }),
                    }
                }
            });
            assert!(store.release(handle));
            reader.join().unwrap();
        });
    }
    store.check();
}

#[derive(Clone, Debug)]
enum Op {
    Put { pages: usize, kind: u8, seed: u64, codec: usize, chunk: u32 },
    Get { pick: usize },
    Retain { pick: usize },
    Release { pick: usize },
    Compact { objects: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let chunk = prop_oneof![
        Just(256u32),
        Just(512),
        Just(1024),
        Just(2048),
        Just(4096),
        Just(5120),
        Just(16384),
        Just(65536),
        Just(131072)
    ];
    let pages = prop_oneof![3 => Just(1usize), 2 => 1usize..33];
    prop_oneof![
        6 => (pages, 0u8..4, any::<u64>(), 0usize..3, chunk).prop_map(
            |(pages, kind, seed, codec, chunk)| Op::Put { pages, kind, seed, codec, chunk }
        ),
        3 => any::<usize>().prop_map(|pick| Op::Get { pick }),
        1 => any::<usize>().prop_map(|pick| Op::Retain { pick }),
        8 => any::<usize>().prop_map(|pick| Op::Release { pick }),
        1 => (0usize..200).prop_map(|objects| Op::Compact { objects }),
    ]
}

proptest! {
    #[test]
    fn behaves_as_a_map_of_blocks(
        pool in proptest::sample::select(&POOLS),
        ops in proptest::collection::vec(op(), 1..150),
    ) {
        let (limit_bytes, limit_pages) = (160 * 4096, 400);
        let (store, mut ctx) = (store_in(pool, limit_bytes, limit_pages), CodecContext::new());
        let mut model: HashMap<Handle, (Vec<u8>, u32)> = HashMap::new();
        let mut order: Vec<Handle> = Vec::new();
        for op in ops {
            match op {
                Op::Put { pages, kind, seed, codec, chunk } => {
                    let contents = match kind {
                        0 => noise(pages, seed),
                        1 => seed.to_le_bytes().repeat(pages * PAGE / 8),
                        _ => block_of(pages, seed),
                    };
                    let before = store.facts();
                    match store.put(&mut ctx, &contents, CODECS[codec], chunk) {
                        Ok(handle) => {
                            prop_assert!(model.insert(handle, (contents, pages as u32)).is_none());
                            order.push(handle);
                        }
                        Err(PutError::Full { limit, .. }) => {
                            match limit {
                                Limit::Log(_) => prop_assert!(false, "there is none"),
                                Limit::Pages { stored, limit } =>
                                    prop_assert!(stored + pages as u64 > limit),
                                Limit::Bytes { used, limit } =>
                                    prop_assert!(used + pages as u64 * 4200 + 8 * 4096 > limit),
                            }
                            let after = store.facts();
                            prop_assert_eq!(
                                (before.objects, before.payload_bytes, before.pages),
                                (after.objects, after.payload_bytes, after.pages)
                            );
                        }
                        Err(error) => return Err(TestCaseError::fail(error.to_string())),
                    }
                }
                Op::Get { pick } if !order.is_empty() => {
                    let handle = order[pick % order.len()];
                    assert_holds(&store, &mut ctx, handle, &model[&handle].0);
                }
                Op::Retain { pick } if !order.is_empty() => {
                    let handle = order[pick % order.len()];
                    prop_assert!(store.retain(handle));
                    model.get_mut(&handle).unwrap().1 += 1;
                }
                Op::Release { pick } if !order.is_empty() => {
                    let at = pick % order.len();
                    let handle = order[at];
                    let refs = &mut model.get_mut(&handle).unwrap().1;
                    // Mostly all at once, or hardly any block would ever go.
                    let many = if pick & 1024 == 0 { *refs } else { 1 };
                    for _ in 0..many {
                        *refs -= 1;
                        prop_assert_eq!(store.release(handle), *refs == 0);
                    }
                    if *refs == 0 {
                        model.remove(&handle);
                        order.swap_remove(at);
                    }
                }
                Op::Compact { objects } => {
                    store.compact(objects);
                }
                _ => {}
            }
            prop_assert!(store.used_bytes() <= limit_bytes);
        }
        store.check();
        let facts = store.facts();
        prop_assert_eq!(facts.blocks, model.len() as u64);
        let pages: usize = model.values().map(|(contents, _)| contents.len() / PAGE).sum();
        prop_assert_eq!(facts.pages, pages as u64);
        let bytes: u64 = model.keys().map(|handle| u64::from(store.stored_bytes(*handle))).sum();
        prop_assert_eq!(facts.object_bytes, bytes);
        for (handle, (contents, _)) in &model {
            assert_holds(&store, &mut ctx, *handle, contents);
        }
    }
}
