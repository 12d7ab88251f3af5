//! The store: blocks of pages, compressed, behind counted handles.
//!
//! A block is 1 to 128 pages that were stored together. It has one reference a page when it is put
//! and is freed with the last one. Whoever reads it holds a reference: freeing it meanwhile is a
//! mistake of the caller, which yields an error or the contents of another block, and no worse.
//!
//! Every page has a checksum (xxh3-64, seeded at random for each store) that every read verifies.
//!
//! Metadata of a page that is stored alone: 14 bytes of header, 8 of handle, 8 of page table, and
//! its share of the 16 of its slab (about 1 with LZ4 on process pages); pages of blocks have less.
//! A page that does not compress has about 62: it fills a frame, and header and last bytes go to a
//! small second object, which is denser than objects a little larger than a frame (one frame in
//! eight would be lost).
//!
//! A successor finds the blocks that the page tables name, the dictionaries that these need, and no
//! others. So who puts a block
//! publishes it afterwards, and who gives up the last entry that names it does that first. A block
//! comes after its parts and goes before them.
//!
//! This layer has no locks; see [`crate::pool`] for those below it.

mod adopt;
mod dictionary;
mod evict;
mod far;
mod fetch;
mod front;
mod get;
mod put;
mod refusal;
mod stub;

pub use adopt::Adopted;
pub use dictionary::Dictionary;
pub use evict::{BackError, EvictError};
pub use far::{FarBlock, Fetched};
pub use get::{Get, Piece};
pub use put::PutFarError;
pub use refusal::{FetchError, Limit, PutError, ReadError, StoreError};

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use clew_core::{CodecKind, FrameFacts, PoolKind, Vpn};
use parking_lot::Mutex;
use twox_hash::XxHash3_64;

use crate::codec::Stored;
use crate::codec::chunks::MIN_CHUNK_BYTES;
use crate::flash::{Flash, LogId};
use crate::pool::handle::NO_HANDLE;
use crate::pool::object::Header;
use crate::segment::Segment;
use crate::tier::{AnyTier, ObjectTier};
use stub::Seen;

/// Largest block, bytes.
pub const MAX_BLOCK_BYTES: usize = 512 << 10;
/// Largest block, pages.
const MAX_BLOCK_PAGES: usize = 128;

/// Blocks that may be on flash, whatever the pool may hold: it takes address space.
const ON_FLASH: u64 = 1 << 26;

/// How large a store may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Bytes of a page: a power of two, 4 to 64 KiB.
    pub page_bytes: usize,
    /// Limit of [`PoolFacts::used_bytes`]; `u64::MAX` for none (then 512 GiB).
    pub mem_limit_bytes: u64,
    /// How many pages may be in the pool; those on flash do not count. `u64::MAX` for none.
    pub disksize_pages: u64,
}

/// Names a block; never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(NonZeroU32);

impl Handle {
    /// No block ever has this handle, so reading it is an error: for pages that are known to be
    /// stored and not known where.
    pub const LOST: Handle = Handle(NonZeroU32::new(NO_HANDLE).unwrap());

    /// The number, for tables.
    pub fn raw(self) -> u32 {
        self.0.get()
    }

    /// The handle of a number; `None` for zero.
    pub fn from_raw(raw: u32) -> Option<Handle> {
        NonZeroU32::new(raw).map(Handle)
    }
}

/// Where the pages of a block are in their program when it is stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Members<'a> {
    /// One a page, in the order of the block; none if nobody is to know.
    pub vpns: &'a [Vpn],
    /// Who restores one of the pages parks the others, and does not make them resident.
    pub park: bool,
    /// What [`CodecKind::ZstdDictionary`] is to use; without one, [`CodecKind::Zstd`] is used.
    pub dictionary: Option<&'a Dictionary>,
}

/// What a store holds. Taken without stopping it: exact only while nobody changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFacts {
    /// All frames in use: slabs, their records, handles.
    pub used_bytes: u64,
    /// Compressed bytes with the fronts of blocks, headers apart.
    pub payload_bytes: u64,
    /// What the objects take in their slabs, bytes.
    pub object_bytes: u64,
    /// Part of `used_bytes`: handle table.
    pub handle_table_bytes: u64,
    /// Part of `used_bytes`: slab records.
    pub slab_table_bytes: u64,
    /// Pages of all blocks, however many references they have.
    pub pages: u64,
    /// Of `pages`, those of blocks that are in a log.
    pub far_pages: u64,
    /// The same, of each log ([`LogId::index`]).
    pub log_pages: [u64; LogId::COUNT],
    /// Blocks.
    pub blocks: u64,
    /// Objects; a block has one or, if it is large, several.
    pub objects: u64,
    /// Slabs.
    pub slabs: u64,
    /// Limit of `used_bytes`.
    pub limit_bytes: u64,
    /// Limit of `pages`.
    pub limit_pages: u64,
    /// Reads that found damage.
    pub corrupt_reads: u64,
    /// Times the kernel refused to take memory back.
    pub punch_failures: u64,
}

/// Compressed pages, in objects of a tier; of whichever pool there is, unless said otherwise. All methods may be called from
/// any thread.
#[derive(Debug)]
pub struct Store<T: ObjectTier = AnyTier> {
    config: StoreConfig,
    tier: T,
    seed: u64,
    pages: AtomicU64,
    blocks: AtomicU64,
    /// Of these pages, those that are in each log.
    log_pages: [AtomicU64; LogId::COUNT],
    /// The sum of these.
    far_pages: AtomicU64,
    corrupt_reads: AtomicU64,
    ready: dictionary::Ready,
    /// Where blocks go that leave the tier.
    logs: [OnceLock<Arc<Flash>>; LogId::COUNT],
    /// Whether there is any.
    has_logs: AtomicBool,
    /// Blocks that lost their parts without losing their pages.
    moved: AtomicU64,
    /// Held by whoever takes a block's parts away, or gives it some, for so long.
    moving: Mutex<()>,
}

fn page_bytes_are_sound(page_bytes: usize) -> bool {
    page_bytes.is_power_of_two() && (4096..=65536).contains(&page_bytes)
}

fn random_seed() -> Result<u64, StoreError> {
    let mut bytes = [0u8; 8];
    // SAFETY: eight bytes are writable there.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match got {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(StoreError::Random(std::io::Error::last_os_error())),
    }
}

impl Store {
    /// An empty store in size classes: see [`Store::of`].
    ///
    /// # Errors
    /// As there.
    pub fn new(config: StoreConfig) -> Result<Store, StoreError> {
        Store::of(PoolKind::SizeClasses, config)
    }

    /// An empty store in a pool of this kind. It takes address space for its limits and one page of memory.
    ///
    /// # Errors
    /// If pages of that size cannot be, or the system refuses.
    pub fn of(pool: PoolKind, config: StoreConfig) -> Result<Store, StoreError> {
        let page_bytes = config.page_bytes;
        if !page_bytes_are_sound(page_bytes) {
            return Err(StoreError::PageSize { page_bytes });
        }
        let seed = random_seed()?;
        // A block has a page at least, a part a frame of its own. Blocks on flash have a handle, too.
        let blocks = config.disksize_pages.max(ON_FLASH);
        let handles = blocks.saturating_add(config.mem_limit_bytes / 4096 + 1);
        let tier = AnyTier::new(pool, config.mem_limit_bytes, handles, seed)?;
        Ok(Store::over(config, tier, 0, 0))
    }

    /// What a successor needs, which knows by their number how the pool keeps its objects: arena, slab records and
    /// handle table (with the seed); of a z3fold pool also frames and their records.
    pub fn segments(&self) -> Vec<&Segment> {
        self.tier.segments()
    }

    /// How the pool keeps its objects.
    pub fn pool(&self) -> PoolKind {
        self.tier.kind()
    }
}

impl<T: ObjectTier> Store<T> {
    /// A store in `tier`, in which there are so many blocks and pages of them.
    pub(crate) fn over(config: StoreConfig, tier: T, blocks: u64, pages: u64) -> Store<T> {
        Store {
            config,
            seed: tier.seed(),
            tier,
            pages: AtomicU64::new(pages),
            blocks: AtomicU64::new(blocks),
            log_pages: [const { AtomicU64::new(0) }; LogId::COUNT],
            far_pages: AtomicU64::new(0),
            corrupt_reads: AtomicU64::new(0),
            ready: dictionary::Ready::default(),
            logs: [const { OnceLock::new() }; LogId::COUNT],
            has_logs: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            moving: Mutex::new(()),
        }
    }

    /// What it was made with.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// The checksum of a page: xxh3-64 with this store's seed.
    #[inline]
    pub fn hash(&self, page: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.seed, page)
    }

    /// Pages of a block; zero if there is no such block.
    pub fn block_pages(&self, handle: Handle) -> u16 {
        let pages = |header: &Header, payload: &[u8]| match Seen::of(header, payload) {
            None => 0,
            Some(Seen { framed: false, .. }) => 1,
            Some(seen) => self.front(handle, &seen).map_or(0, |front| front.pages),
        };
        self.tier.read(handle.raw(), pages).unwrap_or(0)
    }

    /// The codec with which a block was stored, raw if it did not become smaller. LZ4
    /// for a repeated word, and where there is no such block.
    pub fn codec(&self, handle: Handle) -> CodecKind {
        let codec = |header: &Header, payload: &[u8]| Some(Seen::of(header, payload)?.codec);
        match self.tier.read(handle.raw(), codec).flatten() {
            Some(Stored::Raw) => CodecKind::Raw,
            Some(Stored::Zstd) => CodecKind::Zstd,
            Some(Stored::ZstdDictionary) => CodecKind::ZstdDictionary,
            Some(Stored::Lzo) => CodecKind::Lzo,
            Some(Stored::BaseDeltaImmediate) => CodecKind::BaseDeltaImmediate,
            Some(Stored::Lz4 | Stored::Same | Stored::Stub | Stored::Part) | None => CodecKind::Lz4,
        }
    }

    /// Bytes that one call of the codec compressed of a block: of a page or of several, the whole
    /// block where it was one chunk or is stored as it is. A page, where there is no such block.
    pub fn chunk_bytes(&self, handle: Handle) -> u32 {
        let page_bytes = self.config.page_bytes as u32;
        let chunk = |header: &Header, payload: &[u8]| match Seen::of(header, payload) {
            None | Some(Seen { framed: false, .. }) => page_bytes,
            Some(seen) => self.front(handle, &seen).map_or(page_bytes, |front| {
                match front.encoded.chunk_units {
                    0 => u32::from(front.pages) * page_bytes,
                    units => u32::from(units) * MIN_CHUNK_BYTES,
                }
            }),
        };
        self.tier.read(handle.raw(), chunk).unwrap_or(page_bytes)
    }

    /// The checksum that page `index` of a block had when it was stored; zero if there is no such
    /// page.
    pub fn checksum(&self, handle: Handle, index: u16) -> u64 {
        self.tier
            .read(handle.raw(), |header, payload| match Seen::of(header, payload) {
                None => 0,
                Some(Seen { framed: false, .. }) => match index {
                    0 => header.checksum,
                    _ => 0,
                },
                Some(seen) => self
                    .front(handle, &seen)
                    .ok()
                    .and_then(|front| front.checksum(header.checksum, index))
                    .unwrap_or(0),
            })
            .unwrap_or(0)
    }

    /// Adds a reference; false, and nothing done, if there is no such block. A block with four
    /// million references keeps them for ever.
    pub fn retain(&self, handle: Handle) -> bool {
        self.tier.retain(handle.raw())
    }

    /// Drops a reference; true if it was the last and the block is gone.
    pub fn release(&self, handle: Handle) -> bool {
        if !self.tier.release(handle.raw()) {
            return false;
        }
        let pages = self.remove_block(handle);
        self.pages.fetch_sub(u64::from(pages), Relaxed);
        self.blocks.fetch_sub(1, Relaxed);
        true
    }

    /// Removes a block that nobody names any more, and gives up its dictionary; its pages.
    fn remove_block(&self, handle: Handle) -> u16 {
        // 129 at most; the count in the front has one byte.
        let mut parts = [0u32; 256];
        let seen = self.tier.read_unowned(handle.raw(), |header, payload| {
            let Some(seen) = Seen::of(header, payload) else { return (1, 0, None, None) };
            let Seen { dictionary, place, .. } = seen;
            match self.front(handle, &seen) {
                Ok(front) if seen.framed => {
                    for (slot, part) in parts.iter_mut().zip(front.parts()) {
                        *slot = part;
                    }
                    (front.pages, front.parts().len(), dictionary, place)
                }
                _ => (1, 0, dictionary, place),
            }
        });
        let (pages, count, dictionary, place) = seen.unwrap_or((1, 0, None, None));
        self.tier.remove(handle.raw());
        for part in &parts[..count] {
            self.tier.remove(*part);
        }
        if let Some(dictionary) = dictionary {
            self.release_dictionary(dictionary);
        }
        if let Some(place) = place {
            if let Some(log) = self.log(place.log) {
                log.free(place);
            }
            self.count_gone(place.log, pages);
        }
        pages
    }

    /// Bytes that the objects of a block take in the pool; zero if there is no such block.
    pub fn stored_bytes(&self, handle: Handle) -> u32 {
        let (own, parts) = self
            .tier
            .read(handle.raw(), |header, payload| {
                let own = self.tier.object_bytes(payload.len());
                let seen = Seen::of(header, payload).filter(|seen| seen.framed);
                let front = seen.map(|seen| self.front(handle, &seen).ok());
                let parts: Vec<u32> =
                    front.flatten().map(|front| front.parts().collect()).unwrap_or_default();
                (own, parts)
            })
            .unwrap_or_default();
        let of_part = |part| {
            let bytes = |_: &_, payload: &[u8]| self.tier.object_bytes(payload.len());
            self.tier.read(part, bytes).unwrap_or(0)
        };
        (own + parts.into_iter().map(of_part).sum::<usize>()) as u32
    }

    /// The frame of the pool that a block is in, if the pool has frames that zpages share; that of its first part, if
    /// it has parts.
    pub fn frame(&self, handle: Handle) -> Option<FrameFacts> {
        let part = |header: &Header, payload: &[u8]| {
            let seen = Seen::of(header, payload).filter(|seen| seen.framed)?;
            self.front(handle, &seen).ok()?.parts().next()
        };
        let part = self.tier.read(handle.raw(), part)?;
        self.tier.frame(part.unwrap_or(handle.raw()))
    }

    /// Moves up to about `max_objects` objects together, so that slabs become free, and gives their
    /// memory back. Returns frames of 4 KiB freed. Releasing frees empty slabs by itself; this is
    /// for those that are nearly empty, and takes about 2 us an object.
    pub fn compact(&self, max_objects: usize) -> usize {
        self.tier.compact(max_objects)
    }

    /// Frames in use, bytes; much cheaper than [`Store::facts`].
    pub fn used_bytes(&self) -> u64 {
        self.tier.used_bytes()
    }

    /// What it holds.
    pub fn facts(&self) -> PoolFacts {
        let usage = self.tier.usage();
        PoolFacts {
            used_bytes: usage.used_bytes,
            payload_bytes: usage.payload_bytes,
            object_bytes: usage.object_bytes,
            handle_table_bytes: usage.handle_table_bytes,
            slab_table_bytes: usage.slab_table_bytes,
            pages: self.pages.load(Relaxed),
            far_pages: self.far_pages.load(Relaxed),
            log_pages: self.log_pages.each_ref().map(|pages| pages.load(Relaxed)),
            blocks: self.blocks.load(Relaxed),
            objects: usage.objects,
            slabs: usage.slabs,
            limit_bytes: self.config.mem_limit_bytes,
            limit_pages: self.config.disksize_pages,
            corrupt_reads: self.corrupt_reads.load(Relaxed),
            punch_failures: usage.punch_failures,
        }
    }

    /// Inverts byte `offset` of what is stored of a block; false if it is not that long.
    #[cfg(any(test, feature = "fault-injection"))]
    pub fn damage(&self, handle: Handle, offset: usize) -> bool {
        self.tier.damage(handle.raw(), offset)
    }

    /// Panics unless the pool's invariants hold.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.tier.check();
    }
}

#[cfg(test)]
mod tests;
