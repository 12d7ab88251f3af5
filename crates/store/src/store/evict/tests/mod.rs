//! Blocks on flash: drawn histories beside a map, threads, damage, and deaths between and inside of operations.

mod deaths;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use clew_core::seeded::Seeded;
use clew_core::{CodecKind, PoolKind, Vpn};

use super::*;
use crate::adopt::tests::POOLS;
use crate::codec::tests::block_of;
use crate::flash::tests::{CONFIG as FLASH, Plan, left, plan};
use crate::store::{FarBlock, FetchError, Get, Members, PutFarError, StoreConfig};

const PAGE: usize = 4096;
const CONFIG: StoreConfig =
    StoreConfig { page_bytes: PAGE, mem_limit_bytes: 16 << 20, disksize_pages: 1 << 16 };

fn store_on(pool: PoolKind, plan: &Arc<Plan>, config: StoreConfig) -> Arc<Store> {
    let store = Arc::new(Store::of(pool, config).unwrap());
    let flash = Flash::new(FLASH, plan.device()).unwrap();
    assert!(store.attach_log(Arc::new(flash)));
    store
}

/// A block, as whoever put it knows it.
#[derive(Clone)]
struct Block {
    bytes: Vec<u8>,
    refs: u32,
}

struct World {
    store: Arc<Store>,
    plan: Arc<Plan>,
    ctx: CodecContext,
    blocks: HashMap<Handle, Block>,
}

/// Waits for a block's bytes.
fn fetch(store: &Arc<Store>, block: FarBlock) -> Result<Fetched, FetchError> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    store.fetch(block, true, move |fetched| tell.send(fetched).unwrap());
    told.recv().unwrap()
}

/// One page, wherever it is.
fn page(
    store: &Arc<Store>,
    ctx: &mut CodecContext,
    handle: Handle,
    index: u16,
) -> Result<[u8; PAGE], String> {
    let mut out = [0; PAGE];
    loop {
        let block = match store.get(ctx, handle, index, &mut out) {
            Ok(Get::Here(())) => return Ok(out),
            Ok(Get::Far(block)) => block,
            Err(error) => return Err(error.to_string()),
        };
        match fetch(store, block) {
            Ok(fetched) => {
                let read = store.get_fetched(ctx, &fetched, index, &mut out);
                return read.map(|()| out).map_err(|error| error.to_string());
            }
            Err(FetchError::Moved { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn back(store: &Arc<Store>, handle: Handle) -> Result<(), BackError> {
    let mut ctx = CodecContext::new();
    let moved = BackError::Moved { handle };
    match store.get(&mut ctx, handle, 0, &mut [0; PAGE]).unwrap() {
        Get::Here(()) => Err(moved),
        Get::Far(block) => match fetch(store, block) {
            Ok(fetched) => store.bring_back(&fetched),
            Err(_) => Err(moved),
        },
    }
}

impl World {
    fn begin(slots: usize) -> World {
        World::of(PoolKind::SizeClasses, plan(slots), CONFIG)
    }

    fn of(pool: PoolKind, plan: Arc<Plan>, config: StoreConfig) -> World {
        let store = store_on(pool, &plan, config);
        World { store, plan, ctx: CodecContext::new(), blocks: HashMap::new() }
    }

    fn any(&self, draw: &mut Seeded) -> Option<Handle> {
        let mut handles: Vec<Handle> = self.blocks.keys().copied().collect();
        handles.sort_unstable();
        (!handles.is_empty()).then(|| handles[draw.below(handles.len() as u64) as usize])
    }

    fn put(&mut self, draw: &mut Seeded, on_flash: bool) -> Option<Handle> {
        let pages = [1, 1, 1, 2, 4, 9][draw.below(6) as usize];
        let mut bytes = block_of(pages, draw.draw());
        if draw.below(8) == 0 {
            bytes.iter_mut().for_each(|byte| *byte = draw.draw() as u8);
        }
        let codecs = [CodecKind::Raw, CodecKind::Lz4, CodecKind::Zstd, CodecKind::ZstdDictionary];
        let codec = codecs[draw.below(4) as usize];
        let chunk = [1024, 4096, 8192, 128 << 10][draw.below(4) as usize];
        let learned = (codec == CodecKind::ZstdDictionary)
            .then(|| self.store.learn(&mut self.ctx, &block_of(128, draw.below(3))));
        let vpns: Vec<Vpn> = (0..pages as u64).map(|i| Vpn(100 + 3 * i)).collect();
        let members = Members {
            vpns: &vpns,
            park: false,
            dictionary: learned.as_ref().and_then(Option::as_ref),
        };
        let handle = match on_flash {
            false => self.store.put_group(&mut self.ctx, &bytes, codec, chunk, members).ok()?,
            true => self
                .store
                .put_far(LogId::FLASH, &mut self.ctx, &bytes, codec, chunk, members)
                .ok()?,
        };
        let block = Block { bytes, refs: pages as u32 };
        assert!(self.blocks.insert(handle, block).is_none(), "{handle:?} is in use");
        Some(handle)
    }

    fn release(&mut self, handle: Handle) {
        let block = self.blocks.get_mut(&handle).unwrap();
        block.refs -= 1;
        let last = block.refs == 0;
        assert_eq!(self.store.release(handle), last);
        if last {
            self.blocks.remove(&handle);
        }
    }

    fn play(&mut self, draw: &mut Seeded) {
        let handle = self.any(draw);
        match (draw.below(20), handle) {
            (0..=4, _) => drop(self.put(draw, false)),
            (5..=6, _) => drop(self.put(draw, true)),
            (7..=10, Some(handle)) => {
                let form = [FlashForm::AsStored, FlashForm::Pages][draw.below(2) as usize];
                let was_there = self.store.log_of(handle).is_some();
                match self.store.evict(&mut self.ctx, handle, LogId::FLASH, form) {
                    Ok(()) => assert!(!was_there && self.store.log_of(handle).is_some()),
                    Err(EvictError::There { .. }) => assert!(was_there),
                    Err(EvictError::NotWorth { .. }) => {}
                    Err(EvictError::Append(AppendError::NoBuffer)) => {
                        self.store.log(LogId::FLASH).unwrap().flush();
                    }
                    Err(EvictError::Append(AppendError::NoSlot)) => {
                        if self.store.clean_log(LogId::FLASH) == Err(CleanError::Nothing) {
                            self.release(handle);
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            (11..=13, Some(handle)) => {
                let was_there = self.store.log_of(handle).is_some();
                let done = back(&self.store, handle).is_ok();
                assert_eq!((done, self.store.log_of(handle).is_some()), (was_there, false));
            }
            (14..=16, Some(handle)) => self.release(handle),
            (17, Some(handle)) => {
                assert!(self.store.retain(handle));
                self.blocks.get_mut(&handle).unwrap().refs += 1;
            }
            (18, _) => drop(self.store.clean_log(LogId::FLASH)),
            (_, None) => {}
            _ => {
                self.store.log(LogId::FLASH).unwrap().flush();
                self.store.compact(20);
            }
        }
    }

    fn check(&mut self) {
        let (mut ctx, mut places) = (CodecContext::new(), Vec::new());
        for (handle, block) in &self.blocks {
            let pages = block.bytes.len() / PAGE;
            assert_eq!(usize::from(self.store.block_pages(*handle)), pages);
            for (index, expected) in (0..).zip(block.bytes.chunks(PAGE)) {
                assert_eq!(self.store.checksum(*handle, index), self.store.hash(expected));
                let found = page(&self.store, &mut ctx, *handle, index).unwrap();
                assert!(found == *expected, "page {index} of {handle:?}");
            }
            places.extend(self.store.place(handle.raw()));
            assert_eq!(
                self.store.place(handle.raw()).is_some(),
                self.store.log_of(*handle).is_some()
            );
        }
        let facts = self.store.facts();
        let pages: usize = self.blocks.values().map(|block| block.bytes.len() / PAGE).sum();
        assert_eq!((facts.pages, facts.blocks), (pages as u64, self.blocks.len() as u64));
        assert_eq!(facts.corrupt_reads, 0);
        self.store.check();
        self.store.log(LogId::FLASH).unwrap().check(&places);
    }

    fn die(self) -> World {
        let World { store, plan, blocks, .. } = self;
        let fds =
            store.segments().into_iter().map(|s| s.as_fd().try_clone_to_owned().unwrap()).collect();
        let of_flash = left(store.log(LogId::FLASH).unwrap());
        let config = *store.config();
        drop(store);
        let names = blocks.iter().flat_map(|(h, block)| (0..block.refs).map(|_| *h));
        let (store, adopted) = Store::adopt(config, fds, names).unwrap();
        assert!(adopted.damaged.is_empty());
        let (flash, lost) = Flash::adopt(FLASH, of_flash, plan.device(), &adopted.far).unwrap();
        assert!(lost.is_empty());
        assert!(store.attach_log(Arc::new(flash)));
        World { store: Arc::new(store), plan, ctx: CodecContext::new(), blocks }
    }

    fn end(mut self) {
        self.check();
        for (handle, block) in std::mem::take(&mut self.blocks) {
            for left in (0..block.refs).rev() {
                assert_eq!(self.store.release(handle), left == 0);
            }
        }
        self.store.log(LogId::FLASH).unwrap().flush();
        self.check();
        let facts = self.store.facts();
        assert_eq!(
            (facts.objects, self.store.log(LogId::FLASH).unwrap().facts().live_bytes),
            (0, 0)
        );
    }
}

#[test]
fn drawn_histories_are_those_of_a_map() {
    for seed in 0..10 {
        let mut draw = Seeded::of(seed, &[1]);
        let pool = POOLS[seed as usize % 2];
        let mut world = World::of(pool, plan(6 + 3 * seed as usize), CONFIG);
        for step in 0..300 {
            world.play(&mut draw);
            if step % 60 == 0 {
                world.check();
            }
        }
        let facts = world.store.log(LogId::FLASH).unwrap().facts();
        assert!(facts.written_bytes > 0 && facts.reads > 0, "{facts:?}");
        world.end();
    }
}

#[test]
fn whoever_takes_over_has_all_blocks_where_they_were() {
    for seed in 0..6 {
        let mut draw = Seeded::of(seed, &[2]);
        let mut world = World::of(POOLS[seed as usize % 2], plan(20), CONFIG);
        for _ in 0..8 {
            for _ in 0..50 {
                world.play(&mut draw);
            }
            let there: Vec<Handle> =
                world.blocks.keys().copied().filter(|h| world.store.log_of(*h).is_some()).collect();
            world = world.die();
            assert!(there.iter().all(|handle| world.store.log_of(*handle).is_some()));
            world.check();
        }
        world.end();
    }
}

#[test]
fn pages_of_a_group_come_together_and_know_where_the_others_were() {
    let mut world = World::begin(20);
    let bytes = block_of(4, 1);
    let vpns = [5, 9, 7, 6].map(Vpn);
    let members = Members { vpns: &vpns, park: true, dictionary: None };
    for form in [FlashForm::AsStored, FlashForm::Pages] {
        let ctx = &mut world.ctx;
        let put = world.store.put_group(ctx, &bytes, CodecKind::Lz4, 128 << 10, members);
        let handle = put.unwrap();
        world.store.evict(ctx, handle, LogId::FLASH, form).unwrap();
        let mut out = vec![0; 4 * PAGE];
        let Get::Far(block) = world.store.get_chunk(ctx, handle, 2, &mut out).unwrap() else {
            panic!("it is here");
        };
        assert_eq!(block.handle(), handle);
        let fetched = fetch(&world.store, block).unwrap();
        let piece = world.store.get_chunk_fetched(ctx, &fetched, 2, &mut out).unwrap();
        let (from, to) = (usize::from(piece.pages.start), usize::from(piece.pages.end));
        assert_eq!((piece.of, piece.park), (4, true));
        assert_eq!((from, to), if form == FlashForm::Pages { (2, 3) } else { (0, 4) });
        assert!(out[..(to - from) * PAGE] == bytes[from * PAGE..to * PAGE]);
        assert_eq!(ctx.sibling(2, Vpn(107), 1), Some(Vpn(109)));
        let codec = [CodecKind::Lz4, CodecKind::Raw][usize::from(form == FlashForm::Pages)];
        assert_eq!(world.store.codec(handle), codec);
        for _ in 0..4 {
            world.store.release(handle);
        }
    }
    world.end();
}

#[test]
fn a_full_pool_can_evict() {
    // In the second order a block whose object is smaller than its stub, but for its parts, leaves where all of a frame's are
    // taken.
    for order in [0, 119] {
        POOLS.into_iter().for_each(|pool| full_pool_can_evict(pool, order));
    }
}

fn full_pool_can_evict(pool: PoolKind, order: u64) {
    let config = StoreConfig { mem_limit_bytes: 4 << 20, ..CONFIG };
    let mut world = World::of(pool, plan(200), config);
    let mut draw = Seeded::of(1, &[3]);
    while world.put(&mut draw, false).is_some() {}
    let full = world.store.used_bytes();
    let mut handles: Vec<Handle> = world.blocks.keys().copied().collect();
    handles.sort_unstable();
    Seeded::of(order, &[4]).shuffle(&mut handles);
    let mut evicted = 0;
    for handle in handles {
        match world.store.evict(&mut world.ctx, handle, LogId::FLASH, FlashForm::AsStored) {
            Ok(()) => evicted += 1,
            Err(EvictError::NotWorth { .. }) => {}
            Err(EvictError::Append(AppendError::NoBuffer)) => {
                assert!(world.store.log(LogId::FLASH).unwrap().flush());
            }
            Err(error) => panic!("{error} after {evicted}"),
        }
        assert!(world.store.used_bytes() <= config.mem_limit_bytes);
    }
    world.store.compact(usize::MAX);
    let used = world.store.used_bytes();
    assert!(evicted > 100 && used * 3 < full, "{evicted} evicted, {used} of {full} in use");
    while world.put(&mut draw, false).is_some() {}
    world.end();
}

#[test]
fn nothing_is_taken_where_nothing_can_be() {
    let mut ctx = CodecContext::new();
    let bare = Store::new(CONFIG).unwrap();
    let handle = bare.put(&mut ctx, &block_of(1, 1), CodecKind::Lz4, 4096).unwrap();
    assert_eq!(
        bare.evict(&mut ctx, handle, LogId::FLASH, FlashForm::AsStored),
        Err(EvictError::NoLog(LogId::FLASH))
    );
    let world = World::begin(20);
    let store = &world.store;
    let unknown = Err(EvictError::Unknown { handle: Handle::LOST });
    assert_eq!(store.evict(&mut ctx, Handle::LOST, LogId::FLASH, FlashForm::AsStored), unknown);
    let zeros = store.put(&mut ctx, &[0; PAGE], CodecKind::Lz4, 4096).unwrap();
    let refused = store.evict(&mut ctx, zeros, LogId::FLASH, FlashForm::AsStored);
    assert_eq!(refused, Err(EvictError::NotWorth { handle: zeros }));
    world.plan.fail_writes.lock().replace((0, libc::EIO));
    let one = store.put(&mut ctx, &block_of(1, 2), CodecKind::Lz4, 4096).unwrap();
    store.evict(&mut ctx, one, LogId::FLASH, FlashForm::AsStored).unwrap();
    assert!(!store.log(LogId::FLASH).unwrap().flush());
    let other = store.put(&mut ctx, &block_of(1, 3), CodecKind::Lz4, 4096).unwrap();
    let refused = store.evict(&mut ctx, other, LogId::FLASH, FlashForm::AsStored);
    assert!(matches!(refused, Err(EvictError::Append(AppendError::Latched { .. }))));
    let put = store.put_far(
        LogId::FLASH,
        &mut ctx,
        &block_of(1, 4),
        CodecKind::Lz4,
        4096,
        Members::default(),
    );
    assert!(matches!(put, Err(PutFarError::Append(AppendError::Latched { .. }))));
    assert!(page(store, &mut ctx, one, 0).unwrap() == *block_of(1, 2));
    assert!(page(store, &mut ctx, other, 0).unwrap() == *block_of(1, 3));
    back(store, one).unwrap();
    assert!(page(store, &mut ctx, one, 0).unwrap() == *block_of(1, 2));
    for handle in [zeros, one, other] {
        assert!(store.release(handle));
    }
    assert_eq!(store.log(LogId::FLASH).unwrap().facts().live_bytes, 0);
}

#[test]
fn damage_on_flash_is_an_error_and_never_another_page() {
    let mut world = World::begin(40);
    let mut draw = Seeded::of(1, &[4]);
    for _ in 0..60 {
        world.put(&mut draw, true);
        world.store.log(LogId::FLASH).unwrap().flush();
    }
    let plan = Arc::clone(&world.plan);
    let whole = plan.bytes.lock().clone();
    let mut failed = 0;
    for round in 0..6 {
        let mut bytes = whole.clone();
        for _ in 0..300 {
            let at = draw.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << draw.below(8);
        }
        if round == 0 {
            bytes.fill(0);
        }
        *plan.bytes.lock() = bytes;
        for (handle, block) in &world.blocks {
            for (index, expected) in (0..).zip(block.bytes.chunks(PAGE)) {
                match page(&world.store, &mut world.ctx, *handle, index) {
                    Ok(found) => assert!(found == *expected),
                    Err(_) => failed += 1,
                }
            }
        }
    }
    assert!(failed > world.blocks.len(), "{failed}");
    // A store that has lost its flash says so.
    let fds = world
        .store
        .segments()
        .into_iter()
        .map(|s| s.as_fd().try_clone_to_owned().unwrap())
        .collect();
    let names = world.blocks.iter().flat_map(|(h, block)| (0..block.refs).map(|_| *h));
    let (without, _) = Store::adopt(CONFIG, fds, names.collect::<Vec<_>>()).unwrap();
    let without = Arc::new(without);
    let there = world.blocks.keys().filter(|handle| without.log_of(**handle).is_some());
    for handle in there {
        assert!(page(&without, &mut world.ctx, *handle, 0).is_err());
    }
}

#[test]
fn threads_read_what_others_evict_bring_back_and_clean() {
    POOLS.into_iter().for_each(threads_evict_bring_back_and_clean);
}

fn threads_evict_bring_back_and_clean(pool: PoolKind) {
    let plan = plan(40);
    plan.is_slow.store(true, Relaxed);
    let store = &store_on(pool, &plan, CONFIG);
    let mut ctx = CodecContext::new();
    let bytes: Vec<Vec<u8>> = (0..24).map(|i| block_of(1 + i % 9, i as u64)).collect();
    let put = |bytes: &Vec<u8>| {
        let codec = if bytes.len() > 3 * PAGE { CodecKind::Raw } else { CodecKind::Lz4 };
        store.put(&mut ctx, bytes, codec, 128 << 10).unwrap()
    };
    let handles: Vec<Handle> = bytes.iter().map(put).collect();
    let (handles, bytes) = (&handles, &bytes);
    let over = &AtomicBool::new(false);
    let counts = &[const { AtomicU64::new(0) }; 3];
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let (mut ctx, mut draw) = (CodecContext::new(), Seeded::of(thread, &[5]));
                while !over.load(Relaxed) {
                    let handle = handles[draw.below(24) as usize];
                    let done = match draw.below(8) {
                        0..=3 => {
                            store.evict(&mut ctx, handle, LogId::FLASH, FlashForm::AsStored).is_ok()
                        }
                        4..=6 => back(store, handle).is_ok(),
                        _ => store.clean_log(LogId::FLASH).is_ok(),
                    };
                    let of = [0, 0, 0, 0, 1, 1, 1, 2][draw.below(8) as usize];
                    counts[of].fetch_add(u64::from(done), Relaxed);
                }
            });
        }
        let readers: Vec<_> = (10..12)
            .map(|thread| {
                scope.spawn(move || {
                    let (mut ctx, mut draw) = (CodecContext::new(), Seeded::of(thread, &[5]));
                    for _ in 0..1500 {
                        let at = draw.below(24) as usize;
                        let pages = bytes[at].len() / PAGE;
                        let index = draw.below(pages as u64) as usize;
                        let found = page(store, &mut ctx, handles[at], index as u16).unwrap();
                        assert!(found == bytes[at][index * PAGE..][..PAGE], "{index} of {at}");
                    }
                })
            })
            .collect();
        let read: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        over.store(true, Relaxed);
        assert!(read.into_iter().all(|read| read.is_ok()));
    });
    assert!(counts.iter().all(|count| count.load(Relaxed) > 0));
    for (handle, bytes) in handles.iter().zip(bytes) {
        for left in (0..bytes.len() / PAGE).rev() {
            assert_eq!(store.release(*handle), left == 0);
        }
    }
    assert_eq!(
        (store.facts().objects, store.log(LogId::FLASH).unwrap().facts().live_bytes),
        (0, 0)
    );
    store.check();
    store.log(LogId::FLASH).unwrap().check(&[]);
}

/// The last reference goes while the block is moved: by whoever is last, and once.
#[test]
fn threads_release_what_others_move() {
    POOLS.into_iter().for_each(threads_release_and_move);
}

fn threads_release_and_move(pool: PoolKind) {
    let plan = plan(60);
    let store = &store_on(pool, &plan, CONFIG);
    for round in 0..150 {
        let bytes = block_of(1 + round % 6, round as u64);
        let pages = bytes.len() / PAGE;
        let mut ctx = CodecContext::new();
        let handle = store.put(&mut ctx, &bytes, CodecKind::Raw, 128 << 10).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ = store.evict(
                    &mut CodecContext::new(),
                    handle,
                    LogId::FLASH,
                    FlashForm::AsStored,
                );
                let read = store.get(&mut CodecContext::new(), handle, 0, &mut [0; PAGE]);
                if let Ok(Get::Far(block)) = read
                    && let Ok(fetched) = fetch(store, block)
                {
                    let _ = store.bring_back(&fetched);
                }
            });
            for _ in 0..pages {
                store.release(handle);
            }
        });
        assert_eq!((store.facts().blocks, store.facts().objects), (0, 0), "round {round}");
        assert_eq!(store.log(LogId::FLASH).unwrap().facts().live_bytes, 0, "round {round}");
        store.log(LogId::FLASH).unwrap().flush();
    }
    store.check();
}
