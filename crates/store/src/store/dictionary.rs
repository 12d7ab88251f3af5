//! Dictionaries: blocks of the pool like others, named by the pages that were stored with them.
//!
//! A page that is stored with a dictionary owns one reference of it, and so does whoever may store
//! another ([`Dictionary`]); with the last one it is freed. No page table names it: a successor finds
//! it by what pages name. It is no page of any program, and not counted as one.
//!
//! What was made ready of it for reading is kept by its handle. Who adds that holds a reference; who gives up the
//! last one takes it out before the handle is free. The lock is a leaf.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use clew_core::CodecKind;
use parking_lot::RwLock;

use super::{Handle, Members, ReadError, Store};
use crate::codec::dictionary::{
    DICTIONARY_BYTES, Decoder, Encoder, NAME_BYTES, decode_error, train,
};
use crate::codec::{CodecContext, DecodeError, Stored};
use crate::pool::object::Header;
use crate::tier::ObjectTier;

/// What is ready, by handle.
pub(super) type Ready = RwLock<HashMap<u32, Arc<Decoder>>>;

/// Where a dictionary is, for who gives it up: a store over any tier.
trait Keeps: Send + Sync {
    fn give_up(&self, dictionary: Handle);
}

impl<T: ObjectTier> Keeps for Store<T> {
    fn give_up(&self, dictionary: Handle) {
        self.release_dictionary(dictionary);
    }
}

/// A dictionary that pages can be stored with ([`Members::dictionary`]).
pub struct Dictionary {
    store: Arc<dyn Keeps>,
    pub(super) handle: Handle,
    pub(super) encoder: Encoder,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dictionary({})", self.handle.raw())
    }
}

impl Drop for Dictionary {
    fn drop(&mut self) {
        self.store.give_up(self.handle);
    }
}

/// The dictionary that an object names, if its page was stored with one.
pub(super) fn named(header: &Header, payload: &[u8]) -> Option<Handle> {
    let learned = header.codec == Stored::ZstdDictionary && !header.framed;
    let name = payload.first_chunk::<NAME_BYTES>().filter(|_| learned)?;
    Handle::from_raw(u32::from_le_bytes(*name))
}

impl<T: ObjectTier> Store<T> {
    /// Makes a dictionary from `samples`, whole pages, and stores it. `None` if nothing is to be
    /// learned from them, or there is no room. Takes 25 us a page.
    pub fn learn(self: &Arc<Self>, ctx: &mut CodecContext, samples: &[u8]) -> Option<Dictionary> {
        let mut bytes = train(samples, self.config.page_bytes)?;
        bytes.resize(bytes.len().next_multiple_of(self.config.page_bytes), 0);
        let (encoder, decoder) = (Encoder::new(&bytes)?, Arc::new(Decoder::new(&bytes)?));
        let chunk_bytes = bytes.len() as u32;
        let members = Members::default();
        let handle = self.put_group(ctx, &bytes, CodecKind::Lz4, chunk_bytes, members).ok()?;
        let pages = bytes.len() / self.config.page_bytes;
        self.pages.fetch_sub(pages as u64, Relaxed);
        self.blocks.fetch_sub(1, Relaxed);
        // A block has one reference a page; this one is named by us alone.
        for _ in 1..pages {
            self.tier.release(handle.raw());
        }
        self.ready.write().insert(handle.raw(), decoder);
        let store = Arc::clone(self) as Arc<dyn Keeps>;
        Some(Dictionary { store, handle, encoder })
    }

    /// Gives up a reference of a dictionary.
    pub(super) fn release_dictionary(&self, handle: Handle) {
        if self.tier.release(handle.raw()) {
            self.ready.write().remove(&handle.raw());
            self.remove_block(handle);
        }
    }

    /// Restores a page from what was stored of it with a dictionary.
    pub(super) fn decompress_learned(
        &self,
        ctx: &mut CodecContext,
        payload: &[u8],
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        let failed = || decode_error(payload.len(), out.len());
        let (name, frame) = payload.split_first_chunk::<NAME_BYTES>().ok_or_else(failed)?;
        let handle = Handle::from_raw(u32::from_le_bytes(*name)).ok_or_else(failed)?;
        let ready = self.ready.read().get(&handle.raw()).cloned();
        let decoder = match ready {
            Some(decoder) => decoder,
            None => self.prepare(ctx, handle).ok_or_else(failed)?,
        };
        ctx.dictionary.decompress(&decoder, frame, out)
    }

    /// Makes a dictionary ready that a predecessor stored.
    fn prepare(&self, ctx: &mut CodecContext, handle: Handle) -> Option<Arc<Decoder>> {
        if !self.retain(handle) {
            return None;
        }
        let bytes = self.whole(ctx, handle).ok();
        let decoder = bytes.and_then(|bytes| Decoder::new(&bytes)).map(Arc::new);
        if let Some(decoder) = &decoder {
            self.ready.write().insert(handle.raw(), Arc::clone(decoder));
        }
        self.release_dictionary(handle);
        decoder
    }

    /// All pages of a dictionary, each verified.
    fn whole(&self, ctx: &mut CodecContext, handle: Handle) -> Result<Vec<u8>, ReadError> {
        let page_bytes = self.config.page_bytes;
        let most = DICTIONARY_BYTES.next_multiple_of(page_bytes);
        let mut bytes = vec![0; usize::from(self.block_pages(handle)) * page_bytes];
        if bytes.len() != most {
            return Err(ReadError::WrongSize { wanted: most, found: bytes.len() });
        }
        for (index, page) in (0..).zip(bytes.chunks_exact_mut(page_bytes)) {
            self.get(ctx, handle, index, page)?.here()?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;
    use crate::codec::tests::block_of;
    use crate::store::{PoolFacts, StoreConfig};

    const PAGE: usize = 4096;

    fn left(store: &Store) -> Vec<OwnedFd> {
        store.segments().iter().map(|s| s.as_fd().try_clone_to_owned().unwrap()).collect()
    }
    const CONFIG: StoreConfig =
        StoreConfig { page_bytes: PAGE, mem_limit_bytes: 64 << 20, disksize_pages: 1 << 20 };

    fn store() -> Arc<Store> {
        Arc::new(Store::new(CONFIG).unwrap())
    }

    /// Pages stored with a dictionary learned from pages like them.
    fn stored(store: &Arc<Store>, seed: u64, pages: usize) -> (Vec<u8>, Vec<Handle>) {
        let (mut ctx, bytes) = (CodecContext::new(), block_of(pages, seed));
        let learned = store.learn(&mut ctx, &block_of(256, seed + 1)).unwrap();
        let members = Members { dictionary: Some(&learned), ..Members::default() };
        let put = |page| store.put_group(&mut ctx, page, CodecKind::ZstdDictionary, 4096, members);
        let handles = bytes.chunks_exact(PAGE).map(put).collect::<Result<_, _>>().unwrap();
        (bytes, handles)
    }

    fn assert_holds(store: &Store, bytes: &[u8], handles: &[Handle]) {
        let (mut ctx, mut out) = (CodecContext::new(), [0; PAGE]);
        for (page, handle) in bytes.chunks_exact(PAGE).zip(handles) {
            store.get(&mut ctx, *handle, 0, &mut out).and_then(crate::Get::here).unwrap();
            assert!(out == *page);
        }
    }

    fn release(store: &Store, handles: &[Handle]) {
        handles.iter().for_each(|handle| assert!(store.release(*handle)));
    }

    fn assert_empty(store: &Store) {
        let PoolFacts { pages, blocks, objects, .. } = store.facts();
        assert_eq!((pages, blocks, objects), (0, 0, 0));
        assert!(store.ready.read().is_empty());
        store.check();
    }

    fn named_by(store: &Store, handle: Handle) -> Option<Handle> {
        store.tier.read(handle.raw(), named).flatten()
    }

    #[test]
    fn a_dictionary_stays_until_its_last_page_has_gone() {
        let store = store();
        let (bytes, handles) = stored(&store, 5, 300);
        let with: usize = handles.iter().filter(|h| named_by(&store, **h).is_some()).count();
        assert!(with > 200, "{with} of 300 pages were worth it");
        assert_eq!((store.facts().pages, store.facts().blocks), (300, 300));
        assert_eq!(store.codec(handles[0]), CodecKind::ZstdDictionary);
        assert_holds(&store, &bytes, &handles);
        let lz4 = self::store();
        let mut ctx = CodecContext::new();
        for page in bytes.chunks_exact(PAGE) {
            lz4.put(&mut ctx, page, CodecKind::Lz4, 4096).unwrap();
        }
        assert!(store.facts().payload_bytes < lz4.facts().payload_bytes);
        let (first, rest) = handles.split_at(299);
        release(&store, first);
        assert_holds(&store, &bytes[299 * PAGE..], rest);
        release(&store, rest);
        assert_empty(&store);
    }

    #[test]
    fn without_a_dictionary_or_with_several_pages_it_is_zstd() {
        let (store, mut ctx) = (store(), CodecContext::new());
        let learned = store.learn(&mut ctx, &block_of(256, 2)).unwrap();
        let (bytes, kind) = (block_of(4, 1), CodecKind::ZstdDictionary);
        let members = Members { dictionary: Some(&learned), ..Members::default() };
        let one = store.put(&mut ctx, &bytes[..PAGE], kind, 4096).unwrap();
        let four = store.put_group(&mut ctx, &bytes, kind, 16384, members).unwrap();
        let cut = store.put_group(&mut ctx, &bytes[..PAGE], kind, 1024, members).unwrap();
        for handle in [one, four, cut] {
            assert_eq!(store.codec(handle), CodecKind::Zstd);
        }
    }

    #[test]
    fn a_successor_finds_dictionaries_by_the_pages_that_name_them() {
        let store = store();
        let (mut bytes, mut handles) = stored(&store, 11, 200);
        let more = stored(&store, 77, 100);
        bytes.extend(more.0);
        handles.extend(more.1);
        // One that nobody names any more when its store dies.
        let unused = store.learn(&mut CodecContext::new(), &block_of(256, 3)).unwrap();
        std::mem::forget(unused);
        let fds = left(&store);
        // One page twice, as after a fork.
        let names = handles.iter().chain(&handles[..1]).copied();
        let (next, adopted) = Store::adopt(CONFIG, fds, names).unwrap();
        assert_eq!((adopted.pages, adopted.blocks), (300, 300));
        assert!(adopted.damaged.is_empty() && adopted.freed > 0, "{adopted:?}");
        assert_holds(&next, &bytes, &handles);
        next.check();
        assert!(!next.release(handles[0]));
        release(&next, &handles);
        assert_empty(&next);
    }

    #[test]
    fn a_damaged_dictionary_makes_errors_and_no_wrong_pages() {
        let store = store();
        let (_, handles) = stored(&store, 21, 50);
        let used = |store: &Store| handles.iter().filter_map(|h| named_by(store, *h)).next();
        let dictionary = used(&store).unwrap();
        let header = store.tier.read(dictionary.raw(), |header, _| *header).unwrap();
        assert!(header.framed);
        (40..2000).step_by(97).for_each(|at| assert!(store.damage(dictionary, at)));
        let fds = left(&store);
        let (next, _) = Store::adopt(CONFIG, fds, handles.iter().copied()).unwrap();
        let (mut ctx, mut out) = (CodecContext::new(), [0; PAGE]);
        for handle in handles.iter().filter(|h| named_by(&next, **h).is_some()) {
            let read = next.get(&mut ctx, *handle, 0, &mut out).and_then(crate::Get::here);
            assert!(matches!(read, Err(ReadError::Damaged { .. })), "{read:?}");
        }
    }

    #[test]
    fn a_lost_dictionary_is_nobody_elses() {
        let store = store();
        let (_, handles) = stored(&store, 31, 50);
        let lost = handles.iter().find_map(|handle| named_by(&store, *handle)).unwrap();
        let entries = store.segments()[2];
        entries.word(lost.raw() as usize).store(0, Relaxed);
        let fds = left(&store);
        let (next, adopted) = Store::adopt(CONFIG, fds, handles.iter().copied()).unwrap();
        assert!(adopted.damaged.contains(&lost), "{adopted:?}");
        let (mut ctx, mut out) = (CodecContext::new(), [0; PAGE]);
        for seed in 0..200 {
            let put = next.put(&mut ctx, &block_of(1, 500 + seed), CodecKind::Lz4, 4096);
            assert_ne!(put.unwrap(), lost);
        }
        for handle in handles.iter().filter(|h| named_by(&next, **h).is_some()) {
            assert!(next.get(&mut ctx, *handle, 0, &mut out).and_then(crate::Get::here).is_err());
        }
    }

    #[test]
    fn threads_learn_store_and_free_at_once() {
        let store = store();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for round in 0..8 {
                        let (bytes, handles) = stored(store, 1000 * thread + round, 64);
                        assert_holds(store, &bytes, &handles);
                        release(store, &handles);
                    }
                });
            }
        });
        assert_empty(&store);
    }
}
