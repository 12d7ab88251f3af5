//! Pages of files, compressed, under a limit, which may change: what was used longest ago goes first, or what ezswap's lottery
//! draws ([`crate::lottery`]).
//!
//! A page is bound to the state of its file ([`Stamp`]) by the file's epoch, a number that is never used
//! twice: whoever reads a page from disk takes the epoch first, and if anything was dropped from the file in
//! the meantime, the page is not taken.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use clew_core::{CodecKind, PageId, PoolKind, TierFacts};
use clew_store::{CodecContext, Get, Handle, PoolFacts, PutError, Store, StoreConfig, StoreError};
use hashbrown::HashMap;
use lru::LruCache;
use parking_lot::Mutex;

use crate::PAGE_BYTES;
use crate::door::Door;
use crate::lottery::Lottery;
use crate::stamp::{FileKey, PageKey, Stamp};

thread_local! {
    static CONTEXT: RefCell<CodecContext> = RefCell::new(CodecContext::new());
}

/// How many pages leave together where room is needed.
const LEAVING: usize = 32;
/// What frames that are drawn together have.
const DRAWN_BYTES: u64 = LEAVING as u64 / 2 * PAGE_BYTES as u64;
/// How often that is tried for one page, before the page is what is left out.
const ATTEMPTS: usize = 32;
/// What the index takes for a page, about.
const INDEX_BYTES: u64 = 100;

/// How it is made.
#[derive(Clone, Copy, Debug)]
pub struct FilePagesConfig {
    /// Bytes that the compressed pages may ever take with the store's own tables; the index is beside it.
    pub limit_bytes: u64,
    /// What compresses them.
    pub codec: CodecKind,
    /// What leaves it, which says how it keeps what it has.
    pub leaves: Leaves,
    /// Whether only what is worth its room is taken (ezswap's selective admission); otherwise everything is.
    pub selective: bool,
}

/// What leaves a full pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaves {
    /// What was used longest ago; pages of about one size share slabs.
    Oldest,
    /// Frames by lottery, those first that hold little (ezswap III-C); up to three pages share a frame of z3fold.
    Lottery,
}

impl Leaves {
    fn pool(self) -> PoolKind {
        match self {
            Leaves::Oldest => PoolKind::SizeClasses,
            Leaves::Lottery => PoolKind::Z3fold,
        }
    }
}

/// A page of the pool.
#[derive(Clone, Copy, Debug)]
struct Kept {
    handle: Handle,
    /// What the door calls it.
    name: PageId,
}

/// What a file's pages are bound to until something is dropped from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch(u64);

#[derive(Debug)]
struct File {
    stamp: Stamp,
    epoch: Epoch,
    pages: BTreeSet<u64>,
}

#[derive(Debug)]
struct Index {
    /// Least recently used last.
    order: LruCache<PageKey, Kept>,
    files: HashMap<FileKey, File>,
    next_epoch: u64,
}

/// Compressed pages of files. All methods may be called from any thread.
#[derive(Debug)]
pub struct FilePages {
    store: Store,
    codec: CodecKind,
    index: Mutex<Index>,
    door: Door,
    /// Where what was used longest ago does not go first.
    lottery: Option<Lottery>,
    /// What compressed pages may take now: no more than the store's own limit.
    limit_bytes: AtomicU64,
    hits: AtomicU64,
    left: AtomicU64,
    rejected: AtomicU64,
    foreign_changes: AtomicU64,
}

impl Index {
    fn epoch(&mut self) -> Epoch {
        self.next_epoch += 1;
        Epoch(self.next_epoch)
    }

    /// Takes pages of a file out of the index; what they were goes to `gone`.
    fn take(&mut self, key: FileKey, pages: Range<u64>, gone: &mut Vec<Kept>) {
        let Some(file) = self.files.get_mut(&key) else { return };
        let taken: Vec<u64> = file.pages.range(pages).copied().collect();
        for page in taken {
            file.pages.remove(&page);
            gone.extend(self.order.pop(&PageKey { file: key, page }));
        }
    }
}

impl FilePages {
    /// An empty pool.
    ///
    /// # Errors
    /// If the system gives no memory.
    pub fn new(config: FilePagesConfig) -> Result<FilePages, StoreError> {
        let store = Store::of(
            config.leaves.pool(),
            StoreConfig {
                page_bytes: PAGE_BYTES,
                mem_limit_bytes: config.limit_bytes,
                // A page takes a 40th of itself at least, with all that is kept about it.
                disksize_pages: config.limit_bytes / (PAGE_BYTES as u64 / 40) + 1,
            },
        )?;
        let index = Index { order: LruCache::unbounded(), files: HashMap::new(), next_epoch: 0 };
        Ok(FilePages {
            store,
            codec: config.codec,
            index: Mutex::new(index),
            door: Door::new(config.selective),
            lottery: (config.leaves == Leaves::Lottery).then(Lottery::new),
            limit_bytes: AtomicU64::new(config.limit_bytes),
            hits: AtomicU64::new(0),
            left: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            foreign_changes: AtomicU64::new(0),
        })
    }

    /// The epoch of a file that has this stamp. What the pool has of it with another one is dropped:
    /// somebody has changed it behind our back.
    pub fn epoch(&self, key: FileKey, stamp: Stamp) -> Epoch {
        let mut gone = Vec::new();
        let mut index = self.index.lock();
        let epoch = match index.files.get(&key) {
            Some(file) if file.stamp == stamp => return file.epoch,
            Some(file) => {
                if !file.pages.is_empty() {
                    self.foreign_changes.fetch_add(1, Relaxed);
                }
                index.take(key, 0..u64::MAX, &mut gone);
                index.epoch()
            }
            None => index.epoch(),
        };
        index.files.insert(key, File { stamp, epoch, pages: BTreeSet::new() });
        drop(index);
        self.release(gone);
        epoch
    }

    /// Restores what the pool has of these pages in this epoch, each to its place in `bytes`, which has room for all.
    /// The runs that it does not have: their places hold anything.
    ///
    /// # Panics
    /// If there is less room.
    pub fn restore(
        &self,
        key: FileKey,
        epoch: Epoch,
        pages: Range<u64>,
        bytes: &mut [u8],
    ) -> Vec<Range<u64>> {
        let mut missing: Vec<Range<u64>> = Vec::new();
        let mut next = pages.start;
        let mut restored = 0;
        for (page, handle) in self.retained(key, epoch, pages.clone()) {
            let at = (page - pages.start) as usize * PAGE_BYTES;
            if self.read_retained(key, page, handle, &mut bytes[at..at + PAGE_BYTES]) {
                if next < page {
                    missing.push(next..page);
                }
                next = page + 1;
                restored += 1;
            }
        }
        if next < pages.end {
            missing.push(next..pages.end);
        }
        self.hits.fetch_add(restored, Relaxed);
        self.door.asked(restored, pages.end - pages.start - restored);
        missing
    }

    /// What the pool has of these pages. Whoever drops one meanwhile does not take it away from under us.
    fn retained(&self, key: FileKey, epoch: Epoch, pages: Range<u64>) -> Vec<(u64, Handle)> {
        let mut index = self.index.lock();
        let Index { order, files, .. } = &mut *index;
        let Some(file) = files.get(&key).filter(|file| file.epoch == epoch) else {
            return Vec::new();
        };
        let found = file.pages.range(pages).filter_map(|page| {
            let kept = order.get(&PageKey { file: key, page: *page })?;
            self.store.retain(kept.handle).then_some((*page, kept.handle))
        });
        found.collect()
    }

    fn read_retained(&self, key: FileKey, page: u64, handle: Handle, out: &mut [u8]) -> bool {
        let read = CONTEXT
            .with_borrow_mut(|context| self.store.get(context, handle, 0, out).and_then(Get::here));
        self.store.release(handle);
        if let Err(error) = &read {
            // Damaged memory: the disk still has it.
            tracing::warn!("a page of the pool is read from disk instead: {error}");
            let mut gone = Vec::new();
            self.index.lock().take(key, page..page + 1, &mut gone);
            self.release(gone);
        }
        read.is_ok()
    }

    /// Whether the pool has a page in this epoch; its place in the order stays.
    pub fn has(&self, key: FileKey, epoch: Epoch, page: u64) -> bool {
        let index = self.index.lock();
        index.files.get(&key).is_some_and(|file| file.epoch == epoch && file.pages.contains(&page))
    }

    /// Keeps a page that was read in this epoch; false if that is over, if it is not worth its room, or there is none.
    ///
    /// # Panics
    /// If it is not one page.
    pub fn put(&self, key: FileKey, epoch: Epoch, page: u64, bytes: &[u8]) -> bool {
        assert_eq!(bytes.len(), PAGE_BYTES, "a page");
        let room = TierFacts {
            used_bytes: self.store.used_bytes(),
            limit_bytes: self.limit_bytes(),
            ..TierFacts::default()
        };
        let Some(name) = self.door.admits(bytes, room) else {
            self.rejected.fetch_add(1, Relaxed);
            return false;
        };
        let Some(handle) = self.store_page(bytes) else { return false };
        // Before anybody could tell it that the page has left.
        self.door.entered(name, self.store.stored_bytes(handle));
        if let Some(lottery) = &self.lottery {
            lottery.entered(name, PageKey { file: key, page }, handle, &self.store);
        }
        let page_kept = Kept { handle, name };
        let mut gone = Vec::new();
        let kept = {
            let mut index = self.index.lock();
            match index.files.get_mut(&key) {
                Some(file) if file.epoch == epoch => {
                    file.pages.insert(page);
                    gone.extend(index.order.put(PageKey { file: key, page }, page_kept));
                    true
                }
                _ => {
                    gone.push(page_kept);
                    false
                }
            }
        };
        self.release(gone);
        self.keep_limit();
        kept
    }

    /// Has pages leave until what is there is within the limit.
    fn keep_limit(&self) {
        while self.store.used_bytes() > self.limit_bytes() && self.make_room() {}
    }

    /// Compressed pages may take so much from now on, or the store's own limit, if that is less.
    pub fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes.min(self.store.config().mem_limit_bytes), Relaxed);
        self.keep_limit();
    }

    /// What compressed pages may take.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// What is known about each of them takes so much beside that.
    pub fn index_bytes(&self) -> u64 {
        self.store.facts().pages * INDEX_BYTES
    }

    /// Pages that readers had from here.
    pub fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    fn store_page(&self, bytes: &[u8]) -> Option<Handle> {
        for _ in 0..ATTEMPTS {
            let put = CONTEXT.with_borrow_mut(|context| {
                self.store.put(context, bytes, self.codec, PAGE_BYTES as u32)
            });
            match put {
                Ok(handle) => return Some(handle),
                Err(PutError::Full { .. }) => {
                    if !self.make_room() {
                        return None;
                    }
                }
                Err(error) => {
                    tracing::error!("the pool takes no page: {error}");
                    return None;
                }
            }
        }
        None
    }

    /// Drops some pages; false if there was nothing.
    fn make_room(&self) -> bool {
        let mut gone = self.lottery.as_ref().map_or(Vec::new(), |lottery| self.take_drawn(lottery));
        // Pages of one repeated word have no frame, and are never drawn.
        if gone.is_empty() {
            gone = self.take_oldest();
        }
        let left = gone.len();
        self.left.fetch_add(left as u64, Relaxed);
        self.release(gone);
        // They are not neighbours: their slabs become free only when others move together.
        self.store.compact(LEAVING);
        left > 0
    }

    /// Takes what was used longest ago out of the index.
    fn take_oldest(&self) -> Vec<Kept> {
        let mut gone = Vec::with_capacity(LEAVING);
        let mut index = self.index.lock();
        while gone.len() < LEAVING {
            let Some((key, kept)) = index.order.pop_lru() else { break };
            if let Some(file) = index.files.get_mut(&key.file) {
                file.pages.remove(&key.page);
            }
            gone.push(kept);
        }
        gone
    }

    /// Takes what is drawn out of the index.
    fn take_drawn(&self, lottery: &Lottery) -> Vec<Kept> {
        let drawn = lottery.draw(DRAWN_BYTES, &self.store);
        let (mut gone, mut stay) = (Vec::new(), Vec::new());
        {
            let mut index = self.index.lock();
            for (name, key) in drawn {
                // One that somebody is just putting there, or taking, is not in the index.
                match index.order.peek(&key).is_some_and(|kept| kept.name == name) {
                    true => index.take(key.file, key.page..key.page + 1, &mut gone),
                    false => stay.push(name),
                }
            }
        }
        stay.into_iter().for_each(|name| lottery.stays(name, &self.store));
        gone
    }

    /// A change of ours has made a file with the stamp `before` one with the stamp `after`, and nothing but
    /// `pages` is different. Drops these, or all, if the pool knew it by another stamp.
    pub fn changed(&self, key: FileKey, before: Stamp, after: Stamp, pages: Range<u64>) {
        let mut gone = Vec::new();
        let mut index = self.index.lock();
        let epoch = index.epoch();
        let Some(file) = index.files.get_mut(&key) else { return };
        let known = file.stamp == before;
        file.stamp = after;
        // Whoever has read something meanwhile does not know what.
        file.epoch = epoch;
        index.take(key, if known { pages } else { 0..u64::MAX }, &mut gone);
        drop(index);
        self.release(gone);
    }

    /// Nobody is about to read this file. What the pool has of it stays.
    pub fn leave(&self, key: FileKey) {
        let mut index = self.index.lock();
        if index.files.get(&key).is_some_and(|file| file.pages.is_empty()) {
            index.files.remove(&key);
        }
    }

    fn release(&self, gone: Vec<Kept>) {
        if gone.is_empty() {
            return;
        }
        for kept in &gone {
            if let Some(lottery) = &self.lottery {
                lottery.left(kept.name, &self.store);
            }
            self.store.release(kept.handle);
        }
        self.door.left(gone.iter().map(|kept| kept.name));
    }

    /// What it holds.
    pub fn facts(&self) -> PoolFacts {
        self.store.facts()
    }

    /// Pages that left because others needed the room.
    pub fn left(&self) -> u64 {
        self.left.load(Relaxed)
    }

    /// Pages that were not worth their room.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Relaxed)
    }

    /// How often all of a file was dropped because it had been changed behind our back.
    pub fn foreign_changes(&self) -> u64 {
        self.foreign_changes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: FileKey = FileKey { dev: 1, ino: 7 };

    fn stamp(second: i64) -> Stamp {
        Stamp { size: 1 << 20, mtime: (second, 0), ctime: (second, 0), btime: (1, 0) }
    }

    fn pool(limit_bytes: u64) -> FilePages {
        FilePages::new(FilePagesConfig {
            limit_bytes,
            codec: CodecKind::Lz4,
            leaves: Leaves::Oldest,
            selective: false,
        })
        .unwrap()
    }

    /// About a third of it compresses.
    fn page(number: u64) -> Vec<u8> {
        let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..PAGE_BYTES)
            .map(|at| {
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                if at % 3 == 0 { 0 } else { word as u8 }
            })
            .collect()
    }

    fn reads(pool: &FilePages, epoch: Epoch, number: u64) -> bool {
        let mut out = vec![0; PAGE_BYTES];
        let found = pool.restore(KEY, epoch, number..number + 1, &mut out).is_empty();
        assert!(!found || out == page(number), "page {number} is another");
        found
    }

    #[test]
    fn a_page_comes_back_in_its_epoch_and_in_no_other() {
        let pool = pool(1 << 20);
        let epoch = pool.epoch(KEY, stamp(10));
        assert!(pool.put(KEY, epoch, 3, &page(3)));
        assert!(reads(&pool, epoch, 3) && !reads(&pool, epoch, 4));
        assert_eq!(pool.epoch(KEY, stamp(10)), epoch);
        let later = pool.epoch(KEY, stamp(11));
        assert!(!reads(&pool, later, 3) && !reads(&pool, epoch, 3));
        assert_eq!((pool.foreign_changes(), pool.facts().pages), (1, 0));
        // What was read before the change comes too late.
        assert!(!pool.put(KEY, epoch, 3, &page(3)));
        assert_eq!(pool.facts().pages, 0);
    }

    #[test]
    fn what_is_there_goes_to_its_place_and_what_is_not_is_told() {
        let pool = pool(1 << 20);
        let epoch = pool.epoch(KEY, stamp(10));
        for number in [1, 2, 5] {
            assert!(pool.put(KEY, epoch, number, &page(number)));
        }
        let mut out = vec![0; 7 * PAGE_BYTES];
        assert_eq!(pool.restore(KEY, epoch, 0..7, &mut out), [0..1, 3..5, 6..7]);
        for number in [1, 2, 5] {
            let at = number as usize * PAGE_BYTES;
            assert!(out[at..at + PAGE_BYTES] == page(number), "page {number}");
        }
        assert_eq!(pool.restore(KEY, epoch, 1..3, &mut out), []);
        assert!(out[PAGE_BYTES..2 * PAGE_BYTES] == page(2));
        let none = |epoch, pages: Range<u64>, out: &mut [u8]| {
            pool.restore(KEY, epoch, pages.clone(), out) == std::slice::from_ref(&pages)
        };
        assert!(none(epoch, 7..9, &mut out) && none(Epoch(99), 1..3, &mut out));
    }

    #[test]
    fn what_is_not_worth_its_room_is_rejected_and_counted() {
        let pool = FilePages::new(FilePagesConfig {
            limit_bytes: 256 << 10,
            codec: CodecKind::Lz4,
            leaves: Leaves::Oldest,
            selective: true,
        })
        .unwrap();
        let epoch = pool.epoch(KEY, stamp(10));
        // Enough of what compresses well for the pool to be full, and then all that is asked for is there.
        let plain: Vec<u8> = (0..PAGE_BYTES).map(|at| (at / 16) as u8).collect();
        for number in 0..2_000 {
            assert!(pool.put(KEY, epoch, number, &plain), "page {number}");
        }
        let mut out = vec![0; PAGE_BYTES];
        for _ in 0..300 {
            assert_eq!(pool.restore(KEY, epoch, 1_999..2_000, &mut out), []);
        }
        let noise: Vec<u8> =
            (0..PAGE_BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert!(!pool.put(KEY, epoch, 5_000, &noise));
        assert!(pool.put(KEY, epoch, 5_001, &[0; PAGE_BYTES]));
        assert_eq!(pool.rejected(), 1);
    }

    #[test]
    fn a_change_of_ours_drops_what_it_changed() {
        let pool = pool(1 << 20);
        let epoch = pool.epoch(KEY, stamp(10));
        for number in 0..8 {
            assert!(pool.put(KEY, epoch, number, &page(number)));
        }
        pool.changed(KEY, stamp(10), stamp(20), 2..4);
        assert!(!pool.put(KEY, epoch, 2, &page(2)), "read before the change");
        let epoch = pool.epoch(KEY, stamp(20));
        let there: Vec<u64> = (0..8).filter(|number| reads(&pool, epoch, *number)).collect();
        assert_eq!(there, [0, 1, 4, 5, 6, 7]);
        // Somebody else had changed it before.
        pool.changed(KEY, stamp(30), stamp(40), 0..1);
        assert_eq!(pool.facts().pages, 0);
        assert!(!reads(&pool, pool.epoch(KEY, stamp(40)), 7));
    }

    #[test]
    fn the_limit_holds_and_what_is_used_stays() {
        let pool = pool(256 << 10);
        let epoch = pool.epoch(KEY, stamp(10));
        for number in 0..400 {
            assert!(pool.put(KEY, epoch, number, &page(number)), "page {number}");
            assert!(reads(&pool, epoch, 0), "page 0 is gone after {number}");
            assert!(pool.facts().used_bytes <= 256 << 10);
        }
        assert!(pool.left() > 100, "{} left", pool.left());
        assert!(!reads(&pool, epoch, 1) && reads(&pool, epoch, 399));
    }

    #[test]
    fn what_holds_little_is_drawn_first_and_the_rest_is_right() {
        let pool = FilePages::new(FilePagesConfig {
            limit_bytes: 512 << 10,
            codec: CodecKind::Lz4,
            leaves: Leaves::Lottery,
            selective: false,
        })
        .unwrap();
        // A quarter does not compress, and has a frame alone; the others share one by threes.
        let is_dense = |number: u64| !number.is_multiple_of(4);
        let page = |number: u64| {
            let mut page = page(number);
            if is_dense(number) {
                page[PAGE_BYTES / 4..].fill(0);
            }
            page
        };
        let reads = |epoch, number: u64| {
            let mut out = vec![0; PAGE_BYTES];
            let found = pool.restore(KEY, epoch, number..number + 1, &mut out).is_empty();
            assert!(!found || out == page(number), "page {number} is another");
            found
        };
        let epoch = pool.epoch(KEY, stamp(10));
        for number in 0..1200 {
            assert!(pool.put(KEY, epoch, number, &page(number)), "page {number}");
            assert!(pool.facts().used_bytes <= 512 << 10);
        }
        let there: Vec<u64> = (0..1200).filter(|number| reads(epoch, *number)).collect();
        assert_eq!(
            (there.len() as u64, pool.left()),
            (pool.facts().pages, 1200 - pool.facts().pages)
        );
        let dense = there.iter().filter(|number| is_dense(**number)).count();
        assert!(dense > 200 && dense * 10 > there.len() * 9, "{dense} of {}", there.len());
        pool.set_limit(128 << 10);
        let fewer = pool.facts();
        assert!(fewer.used_bytes <= 128 << 10 && fewer.pages > 10, "{fewer:?}");
        pool.changed(KEY, stamp(10), stamp(20), 0..u64::MAX);
        assert_eq!(pool.facts().pages, 0);
        // What was forgotten is drawn no more.
        let epoch = pool.epoch(KEY, stamp(20));
        for number in 0..200 {
            assert!(pool.put(KEY, epoch, number, &page(number)), "page {number}");
        }
        assert!(reads(epoch, 199));
    }

    /// Readers, who puts, who changes and who lowers the limit at once.
    #[test]
    fn everything_at_once_is_right_whatever_leaves() {
        for leaves in [Leaves::Oldest, Leaves::Lottery] {
            let limit_bytes = 256 << 10;
            let config =
                FilePagesConfig { limit_bytes, codec: CodecKind::Lz4, leaves, selective: false };
            let pool = FilePages::new(config).unwrap();
            let (rounds, pages) = (400u64, 120u64);
            std::thread::scope(|scope| {
                for thread in 0..3u64 {
                    let pool = &pool;
                    scope.spawn(move || {
                        for round in 0..rounds {
                            let number = (round * 7 + thread * 13) % pages;
                            let epoch = pool.epoch(KEY, stamp(10));
                            if !reads(pool, epoch, number) {
                                pool.put(KEY, epoch, number, &page(number));
                            }
                        }
                    });
                }
                scope.spawn(|| {
                    for round in 0..rounds / 8 {
                        pool.set_limit(limit_bytes / (1 + round % 4));
                        let first = round % pages;
                        pool.changed(KEY, stamp(10), stamp(10), first..first + 3);
                    }
                    pool.set_limit(limit_bytes);
                });
            });
            let epoch = pool.epoch(KEY, stamp(10));
            let there = (0..pages).filter(|number| reads(&pool, epoch, *number)).count() as u64;
            assert_eq!(there, pool.facts().pages, "{leaves:?}");
            assert!(there > 0 && pool.facts().used_bytes <= limit_bytes, "{leaves:?}");
        }
    }

    #[test]
    fn a_lower_limit_holds_at_once_and_a_higher_one_no_further_than_the_stores() {
        let pool = pool(1 << 20);
        let epoch = pool.epoch(KEY, stamp(10));
        for number in 0..200 {
            assert!(pool.put(KEY, epoch, number, &page(number)));
        }
        let all = pool.facts();
        assert!(all.pages == 200 && all.used_bytes > 256 << 10, "{all:?}");
        pool.set_limit(256 << 10);
        let fewer = pool.facts();
        assert!(fewer.used_bytes <= 256 << 10 && fewer.pages > 30, "{fewer:?}");
        assert!(reads(&pool, epoch, 199) && !reads(&pool, epoch, 0), "who was used last stays");
        for number in 200..300 {
            assert!(pool.put(KEY, epoch, number, &page(number)));
            assert!(pool.facts().used_bytes <= 256 << 10);
        }
        pool.set_limit(u64::MAX);
        assert_eq!(pool.limit_bytes(), 1 << 20);
        assert_eq!(pool.hits(), 1);
        pool.set_limit(0);
        assert_eq!(pool.facts().pages, 0);
    }

    #[test]
    fn files_are_known_as_long_as_they_have_pages() {
        let pool = pool(1 << 20);
        let epoch = pool.epoch(KEY, stamp(10));
        pool.leave(KEY);
        assert!(!pool.put(KEY, epoch, 0, &page(0)), "nobody knows the file");
        let epoch = pool.epoch(KEY, stamp(10));
        assert!(pool.put(KEY, epoch, 0, &page(0)));
        pool.leave(KEY);
        assert!(reads(&pool, pool.epoch(KEY, stamp(10)), 0));
    }
}
