//! What a mover needs of the place where pages are stored: blocks behind counted handles, and what pages
//! are made of.
//!
//! A page is a slice of units: bytes, or one number where a replay has no contents. What is generic is
//! made for each of the two, so neither looks at run time for what it is.

use std::sync::Arc;
use std::time::Duration;

use clew_core::{CodecKind, FlashForm, FrameFacts, Vpn};
use clew_store::flash::LogId;
use clew_store::{
    CodecContext, Dictionary, Entry, EvictError, FarBlock, FetchError, Fetched, Get, Handle,
    Members, Piece, PutError, PutFarError, ReadError, Store,
};

/// Blocks of pages behind counted handles, as [`Store`] has them.
pub trait BlockStore {
    /// What pages are made of.
    type Unit: Copy + Default + 'static;
    /// Scratch of one thread.
    type Scratch: Default;
    /// Where a block is that has to be waited for.
    type Far;
    /// The bytes of one.
    type Fetched;
    /// Whether anybody asks how long reading took, and when a fault was answered.
    const IS_TIMED: bool;
    /// Whether dictionaries can be learned from what it holds.
    const LEARNS: bool;

    /// Units of a page.
    fn page_units(&self) -> usize;

    /// Bytes of a page.
    fn page_bytes(&self) -> usize;

    /// See [`Store::put_group`].
    ///
    /// # Errors
    /// As there.
    fn put_group(
        &self,
        scratch: &mut Self::Scratch,
        pages: &[Self::Unit],
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
    ) -> Result<Handle, PutError>;

    /// See [`Store::get`].
    ///
    /// # Errors
    /// As there.
    fn get(
        &self,
        scratch: &mut Self::Scratch,
        handle: Handle,
        index: u16,
        out: &mut [Self::Unit],
    ) -> Result<Get<(), Self::Far>, ReadError>;

    /// See [`Store::get_chunk`].
    ///
    /// # Errors
    /// As there.
    fn get_chunk(
        &self,
        scratch: &mut Self::Scratch,
        handle: Handle,
        index: u16,
        out: &mut [Self::Unit],
    ) -> Result<Get<Piece, Self::Far>, ReadError>;

    /// See [`Store::get_chunk_fetched`].
    ///
    /// # Errors
    /// As there.
    fn get_chunk_fetched(
        &self,
        scratch: &mut Self::Scratch,
        fetched: &Self::Fetched,
        index: u16,
        out: &mut [Self::Unit],
    ) -> Result<Piece, ReadError>;

    /// The bytes of a block that is far away, if they are in memory after all. Waits for nothing.
    fn fetch_here(&self, far: &Self::Far) -> Option<Self::Fetched>;

    /// The bytes of a block that is far away. Waits for them.
    ///
    /// # Errors
    /// See [`FetchError`].
    fn fetch_now(&self, far: Self::Far) -> Result<Self::Fetched, FetchError>;

    /// See [`Store::put_far`].
    ///
    /// # Errors
    /// As there.
    fn put_group_far(
        &self,
        to: LogId,
        scratch: &mut Self::Scratch,
        pages: &[Self::Unit],
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
    ) -> Result<Handle, PutFarError>;

    /// Pages that it makes sense to have on their way to a log together.
    fn room_at_a_time(&self, _to: LogId) -> usize {
        usize::MAX
    }

    /// Waits for `patience` at most until so many pages have room in the buffers of a log; false if they do not get it. A
    /// store that writes to no device has room.
    fn wait_for_room(&self, _to: LogId, _pages: usize, _patience: Duration) -> bool {
        true
    }

    /// See [`Store::evict`].
    ///
    /// # Errors
    /// As there.
    fn evict(
        &self,
        scratch: &mut Self::Scratch,
        handle: Handle,
        to: LogId,
        form: FlashForm,
    ) -> Result<(), EvictError>;

    /// See [`Store::log_of`]. Cheap where there is no log.
    fn log_of(&self, handle: Handle) -> Option<LogId>;

    /// See [`Store::look`].
    fn look(&self, scratch: &mut Self::Scratch, handle: Handle) -> u16;

    /// See [`CodecContext::sibling`].
    fn sibling(scratch: &Self::Scratch, index: u16, vpn: Vpn, other: u16) -> Option<Vpn>;

    /// See [`Store::check_page`].
    ///
    /// # Errors
    /// As there.
    fn check_page(&self, handle: Handle, index: u16, page: &[Self::Unit]) -> Result<(), ReadError>;

    /// Whether the page is all zeros.
    fn is_zeros(page: &[Self::Unit]) -> bool;

    /// Whether the copy that is kept of a page holds what the page holds; `entry` is the page's.
    fn is_kept(&self, kept: Handle, entry: Entry, page: &[Self::Unit]) -> bool;

    /// See [`Store::retain`].
    fn retain(&self, handle: Handle) -> bool;

    /// See [`Store::release`].
    fn release(&self, handle: Handle) -> bool;

    /// See [`Store::stored_bytes`].
    fn stored_bytes(&self, handle: Handle) -> u32;

    /// See [`Store::block_pages`].
    fn block_pages(&self, handle: Handle) -> u16;

    /// See [`Store::frame`].
    fn frame(&self, handle: Handle) -> Option<FrameFacts>;

    /// See [`Store::codec`].
    fn codec(&self, handle: Handle) -> CodecKind;

    /// See [`Store::chunk_bytes`].
    fn chunk_bytes(&self, handle: Handle) -> u32;

    /// See [`Store::learn`]; `None` where nothing can be learned.
    fn learn(&self, scratch: &mut Self::Scratch, samples: &[Self::Unit]) -> Option<Dictionary>;
}

impl BlockStore for Arc<Store> {
    type Unit = u8;
    type Scratch = CodecContext;
    type Far = FarBlock;
    type Fetched = Fetched;
    const IS_TIMED: bool = true;
    const LEARNS: bool = true;

    fn page_units(&self) -> usize {
        self.config().page_bytes
    }

    fn page_bytes(&self) -> usize {
        self.config().page_bytes
    }

    fn put_group(
        &self,
        scratch: &mut CodecContext,
        pages: &[u8],
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
    ) -> Result<Handle, PutError> {
        Store::put_group(self, scratch, pages, codec, chunk_bytes, members)
    }

    fn get(
        &self,
        scratch: &mut CodecContext,
        handle: Handle,
        index: u16,
        out: &mut [u8],
    ) -> Result<Get<()>, ReadError> {
        Store::get(self, scratch, handle, index, out)
    }

    fn get_chunk(
        &self,
        scratch: &mut CodecContext,
        handle: Handle,
        index: u16,
        out: &mut [u8],
    ) -> Result<Get<Piece>, ReadError> {
        Store::get_chunk(self, scratch, handle, index, out)
    }

    fn get_chunk_fetched(
        &self,
        scratch: &mut CodecContext,
        fetched: &Fetched,
        index: u16,
        out: &mut [u8],
    ) -> Result<Piece, ReadError> {
        Store::get_chunk_fetched(self, scratch, fetched, index, out)
    }

    fn fetch_here(&self, far: &FarBlock) -> Option<Fetched> {
        Store::fetch_here(self, far)
    }

    fn fetch_now(&self, far: FarBlock) -> Result<Fetched, FetchError> {
        let (handle, log) = (far.handle(), far.place().log);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        self.fetch(far, false, move |fetched| drop(tell.send(fetched)));
        told.recv().unwrap_or(Err(FetchError::NoLog { handle, log }))
    }

    fn put_group_far(
        &self,
        to: LogId,
        scratch: &mut CodecContext,
        pages: &[u8],
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
    ) -> Result<Handle, PutFarError> {
        self.put_far(to, scratch, pages, codec, chunk_bytes, members)
    }

    fn room_at_a_time(&self, to: LogId) -> usize {
        self.log(to).map_or(usize::MAX, |log| log.room_at_a_time(BlockStore::page_bytes(self)))
    }

    fn wait_for_room(&self, to: LogId, pages: usize, patience: Duration) -> bool {
        let page_bytes = BlockStore::page_bytes(self);
        self.log(to).is_none_or(|log| log.wait_for_room(pages, page_bytes, patience))
    }

    fn evict(
        &self,
        scratch: &mut CodecContext,
        handle: Handle,
        to: LogId,
        form: FlashForm,
    ) -> Result<(), EvictError> {
        Store::evict(self, scratch, handle, to, form)
    }

    fn log_of(&self, handle: Handle) -> Option<LogId> {
        if self.has_logs() { Store::log_of(self, handle) } else { None }
    }

    fn look(&self, scratch: &mut CodecContext, handle: Handle) -> u16 {
        Store::look(self, scratch, handle)
    }

    fn sibling(scratch: &CodecContext, index: u16, vpn: Vpn, other: u16) -> Option<Vpn> {
        scratch.sibling(index, vpn, other)
    }

    fn check_page(&self, handle: Handle, index: u16, page: &[u8]) -> Result<(), ReadError> {
        Store::check_page(self, handle, index, page)
    }

    fn is_zeros(page: &[u8]) -> bool {
        page.iter().all(|byte| *byte == 0)
    }

    fn is_kept(&self, kept: Handle, entry: Entry, page: &[u8]) -> bool {
        self.checksum(kept, entry.index()) == self.hash(page)
    }

    fn retain(&self, handle: Handle) -> bool {
        Store::retain(self, handle)
    }

    fn release(&self, handle: Handle) -> bool {
        Store::release(self, handle)
    }

    fn stored_bytes(&self, handle: Handle) -> u32 {
        Store::stored_bytes(self, handle)
    }

    fn block_pages(&self, handle: Handle) -> u16 {
        Store::block_pages(self, handle)
    }

    fn frame(&self, handle: Handle) -> Option<FrameFacts> {
        Store::frame(self, handle)
    }

    fn codec(&self, handle: Handle) -> CodecKind {
        Store::codec(self, handle)
    }

    fn chunk_bytes(&self, handle: Handle) -> u32 {
        Store::chunk_bytes(self, handle)
    }

    fn learn(&self, scratch: &mut CodecContext, samples: &[u8]) -> Option<Dictionary> {
        Store::learn(self, scratch, samples)
    }
}
