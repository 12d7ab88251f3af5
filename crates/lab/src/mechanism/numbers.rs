//! A store without bytes: a block of the pool is a number of bytes, and its pages are what is known of
//! their sizes.
//!
//! What a block takes is modelled ([`SizeModel`]); the waste of size classes is not, that of z3fold is
//! ([`Frames`]). What work costs is summed up as it is done.
//!
//! Memory: 24 bytes a block; of z3fold about as much more.

use std::cell::RefCell;
use std::fs::File;

use std::convert::Infallible;

use clew_core::{CodecKind, FlashForm, FrameFacts, PoolKind, TierFacts, Vpn};
use clew_engine::BlockStore;
use clew_store::flash::LogId;
use clew_store::{
    Dictionary, Entry, EvictError, FetchError, Get, Handle, Limit, Members, Piece, PutError,
    PutFarError, ReadError, StoreConfig,
};
use clew_trace::{Content, ContentId, ContentStats, Contents};

use super::frames::Frames;
use super::{FarTier, Form};
use crate::costs::{CodecCost, Costs, FarCost, Spent};
use crate::error::LabError;
use crate::world::Holds;

/// Of the real pool: header, handle and its share of a slab's record (`clew-store`, `store`).
const OBJECT_BYTES: f64 = 23.0;

/// Flag of a resident page: it holds something else than its kept copy. (Of stored pages the same flag
/// says something else; one that leaves loses it.)
pub const DIRTY: u8 = 2;

/// How large a page is when it is stored.
pub enum SizeModel {
    /// Original over stored size is this, for every page, codec and chunk size: sizes are uniform.
    Ratio(f64),
    /// As the cost table says for codec and chunk size.
    Table,
    /// As the trace says for each page, by its statistics. Chunks of several pages take as much as
    /// their pages alone: an upper bound.
    Stats(Box<Contents<File>>),
}

/// What stands for the bytes of a page: what its size is known from.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Weight {
    /// Nothing: it is as large as any.
    #[default]
    Any,
    /// It is all zeros.
    Zeros,
    /// As large as these contents of the trace.
    Of(ContentId),
}

impl From<Holds> for Weight {
    fn from(holds: Holds) -> Weight {
        match holds {
            Holds::Zeros => Weight::Zeros,
            Holds::Content(id) => Weight::Of(id),
        }
    }
}

/// A page of a block.
#[derive(Clone, Copy)]
struct Member {
    vpn: Vpn,
    weight: Weight,
}

/// What stays in the pool of a block that is in a log, bytes: a place, checksums, what names the block.
const STUB_BYTES: u32 = 64;
/// Above the bits of [`Block::form`] that say what it was stored as: which log it is in, and one more; zero for the
/// pool.
const LOG_SHIFT: u32 = 10;

fn in_log(form: u16, log: LogId) -> u16 {
    form | (log.index() as u16 + 1) << LOG_SHIFT
}

/// A stored block.
#[derive(Clone)]
struct Block {
    /// What it takes, here or there.
    bytes: u32,
    /// References of it; none, and it is free.
    refs: u16,
    /// Position in [`Inside::forms`], with [`in_log`].
    form: u16,
    /// Its pages, unless it is one of which nothing is known.
    members: Option<Box<[Member]>>,
}

impl Block {
    #[inline]
    fn is_far(&self) -> bool {
        self.form >> LOG_SHIFT != 0
    }

    /// Position of the log that it is in.
    #[inline]
    fn log(&self) -> Option<usize> {
        usize::from(self.form >> LOG_SHIFT).checked_sub(1)
    }

    #[inline]
    fn form(&self) -> usize {
        usize::from(self.form & ((1 << LOG_SHIFT) - 1))
    }

    /// What it takes in the pool.
    #[inline]
    fn pool_bytes(&self) -> u32 {
        if self.is_far() { STUB_BYTES.min(self.bytes) } else { self.bytes }
    }

    #[inline]
    fn pages(&self) -> u16 {
        self.members.as_ref().map_or(1, |members| members.len() as u16)
    }
}

struct Inside {
    blocks: Vec<Block>,
    free: Vec<u32>,
    forms: Vec<(Form, CodecCost)>,
    model: SizeModel,
    costs: Costs,
    limits: StoreConfig,
    /// How full each log is, and what it costs, by [`LogId::index`].
    logs: Vec<Option<(TierFacts, FarCost)>>,
    /// Pages in all of them.
    far_pages: u64,
    /// Of a z3fold pool.
    frames: Option<Frames>,
    used_bytes: u64,
    /// In logs and in the pool.
    pages: u64,
    /// There was no room, and nothing is tried until somebody says so.
    full: bool,
    spent: Spent,
    error: Option<LabError>,
}

/// The store.
pub struct Numbers {
    inside: RefCell<Inside>,
    page_bytes: usize,
}

/// Where the pages of the block read last were.
#[derive(Default)]
pub struct Siblings(Vec<Vpn>);

impl Numbers {
    /// Blocks that take what `model` says.
    pub fn new(
        model: SizeModel,
        pool: PoolKind,
        limits: StoreConfig,
        costs: Costs,
        far: &[FarTier],
    ) -> Numbers {
        let mut logs = vec![None; LogId::COUNT];
        for FarTier { log, bytes, cost } in far {
            let facts =
                TierFacts { limit_bytes: *bytes, limit_pages: u64::MAX, ..TierFacts::default() };
            logs[log.index()] = Some((facts, *cost));
        }
        let inside = Inside {
            blocks: Vec::new(),
            free: Vec::new(),
            forms: Vec::new(),
            model,
            costs,
            limits,
            logs,
            far_pages: 0,
            frames: match pool {
                PoolKind::SizeClasses => None,
                PoolKind::Z3fold => Some(Frames::default()),
            },
            used_bytes: 0,
            pages: 0,
            full: false,
            spent: Spent::default(),
            error: None,
        };
        Numbers { inside: RefCell::new(inside), page_bytes: limits.page_bytes }
    }

    /// Whether sizes are known page by page.
    pub fn weighs(&self) -> bool {
        matches!(self.inside.borrow().model, SizeModel::Stats(_))
    }

    /// What the work since the last call cost; waited for was the first chunk that was read.
    ///
    /// # Errors
    /// If a size could not be known; that was told as no room.
    #[inline]
    pub fn take_spent(&self) -> Result<Spent, LabError> {
        let inside = &mut *self.inside.borrow_mut();
        let spent = std::mem::take(&mut inside.spent);
        inside.error.take().map_or(Ok(spent), Err)
    }

    /// Room is to be looked for again.
    pub fn look_for_room(&self) {
        self.inside.borrow_mut().full = false;
    }

    /// There was no room since [`Numbers::look_for_room`].
    pub fn was_full(&self) -> bool {
        self.inside.borrow().full
    }

    /// What all blocks take.
    #[inline]
    pub fn used_bytes(&self) -> u64 {
        self.inside.borrow().used_bytes
    }

    /// Pages of the blocks that are in the pool.
    pub fn pages(&self) -> u64 {
        let inside = self.inside.borrow();
        inside.pages - inside.far_pages
    }

    /// How many of them there may be.
    pub fn limit_pages(&self) -> u64 {
        self.inside.borrow().limits.disksize_pages
    }

    /// How full a log is, if there is such a one.
    pub fn log(&self, log: LogId) -> Option<TierFacts> {
        self.inside.borrow().logs[log.index()].map(|(facts, _)| facts)
    }
}

impl Inside {
    fn has_room_in(&self, log: LogId, bytes: u32) -> bool {
        self.logs[log.index()]
            .is_some_and(|(facts, _)| facts.used_bytes + u64::from(bytes) <= facts.limit_bytes)
    }

    /// What so many bytes more take of the pool.
    fn cost(&self, bytes: u32) -> u64 {
        self.frames.as_ref().map_or(u64::from(bytes), |frames| frames.cost(bytes))
    }

    /// A block comes into the pool.
    fn enter(&mut self, number: u32, bytes: u32) {
        self.used_bytes += self.cost(bytes);
        if let Some(frames) = &mut self.frames {
            frames.put(number, bytes);
        }
    }

    /// What a block takes of the pool is free.
    fn leave(&mut self, number: u32, bytes: u32) {
        let frames = self.frames.as_mut();
        self.used_bytes -= frames.map_or(u64::from(bytes), |frames| frames.take(number, bytes));
    }

    fn add_to_log(&mut self, block: &Block) {
        if let Some(Some((facts, cost))) = block.log().map(|log| &mut self.logs[log]) {
            facts.used_bytes += u64::from(block.bytes);
            facts.pages += u64::from(block.pages());
            self.far_pages += u64::from(block.pages());
            self.spent += cost.put(u64::from(block.bytes));
        }
    }

    fn block(&self, handle: Handle) -> &Block {
        &self.blocks[handle.raw() as usize - 1]
    }

    fn form(&mut self, form: Form) -> Result<u16, LabError> {
        if let Some(known) = self.forms.iter().position(|(known, _)| *known == form) {
            return Ok(known as u16);
        }
        let page_bytes = self.limits.page_bytes as u32;
        let cost = self.costs.codec(form.codec, form.chunk_bytes, page_bytes)?;
        self.forms.push((form, cost));
        Ok((self.forms.len() - 1) as u16)
    }

    /// What the pages take as one block.
    fn block_bytes(&mut self, form: u16, pages: &[Weight]) -> Result<u32, LabError> {
        let page_bytes = self.limits.page_bytes as f64;
        let (form, cost) = self.forms[form as usize];
        let ratio = match self.model {
            SizeModel::Ratio(_) if form.codec == CodecKind::Raw => 1.0,
            SizeModel::Ratio(ratio) => ratio,
            SizeModel::Table | SizeModel::Stats(_) => cost.ratio,
        };
        let mut bytes = 0.0;
        for weight in pages {
            bytes += match (*weight, &mut self.model) {
                (Weight::Of(id), SizeModel::Stats(contents)) => {
                    stored_bytes(&read_stats(contents, id)?, form, page_bytes)
                }
                _ => page_bytes / ratio,
            };
        }
        Ok((bytes + OBJECT_BYTES).round() as u32)
    }

    fn put(
        &mut self,
        pages: &[Weight],
        form: Form,
        vpns: &[Vpn],
        to: Option<LogId>,
    ) -> Result<Option<Handle>, LabError> {
        let form = self.form(form)?;
        let bytes = self.block_bytes(form, pages)?;
        let stored = self.pages + pages.len() as u64;
        if to.is_some_and(|log| !self.has_room_in(log, bytes)) {
            return Ok(None);
        }
        let in_pool = if to.is_some() { STUB_BYTES.min(bytes) } else { bytes };
        let used = self.used_bytes + self.cost(in_pool);
        let pages_in_pool = stored - self.far_pages;
        let is_full = to.is_none() && pages_in_pool > self.limits.disksize_pages;
        if used > self.limits.mem_limit_bytes || is_full {
            self.full = true;
            return Ok(None);
        }
        self.pages = stored;
        self.spent.out_ns += self.forms[form as usize].1.out_ns * pages.len() as f64;
        self.spent.compressed_pages += pages.len() as u64;
        let is_plain = pages.len() == 1 && pages[0] == Weight::Any;
        let members = (!is_plain).then(|| {
            let vpns = vpns.iter().copied().chain(std::iter::repeat(Vpn(0)));
            pages.iter().zip(vpns).map(|(weight, vpn)| Member { vpn, weight: *weight }).collect()
        });
        let form = to.map_or(form, |log| in_log(form, log));
        let block = Block { bytes, refs: pages.len() as u16, form, members };
        self.add_to_log(&block);
        let number = match self.free.pop() {
            Some(number) => {
                self.blocks[number as usize] = block;
                number
            }
            None => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as u32
            }
        };
        self.enter(number, in_pool);
        Ok(Handle::from_raw(number + 1))
    }
}

fn read_stats(contents: &mut Contents<File>, id: ContentId) -> Result<ContentStats, LabError> {
    let failed = |source| LabError::Trace { path: std::path::PathBuf::new(), source };
    match contents.get(id).map_err(failed)? {
        Content::Stats(stats) => Ok(stats),
        Content::Bytes(_) => Ok(ContentStats::default()),
    }
}

/// What base-delta-immediate takes of a page for what LZ4 does: on pages of python and node 1.24 is its ratio where
/// LZ4 has 3.07 (`clew bench codec`).
const BASE_DELTA_IMMEDIATE: f64 = 2.5;

/// What a page takes, by its statistics.
fn stored_bytes(stats: &ContentStats, form: Form, page_bytes: f64) -> f64 {
    let chunk = f64::from(form.chunk_bytes);
    let bytes = match form.codec {
        CodecKind::Raw => page_bytes,
        _ if stats.same_filled => 8.0,
        // What a dictionary would save is not among the statistics.
        CodecKind::Zstd | CodecKind::ZstdDictionary => f64::from(stats.zstd_page),
        CodecKind::BaseDeltaImmediate => {
            let lz4 = Form { codec: CodecKind::Lz4, chunk_bytes: page_bytes as u32, ..form };
            stored_bytes(stats, lz4, page_bytes) * BASE_DELTA_IMMEDIATE
        }
        // LZO's is within a few per cent of LZ4's, and not among the statistics.
        CodecKind::Lz4 | CodecKind::Lzo => {
            let known = [
                (256.0, f64::from(stats.lz4_256)),
                (1024.0, f64::from(stats.lz4_1k)),
                (page_bytes, f64::from(stats.lz4_page)),
            ];
            let above = known.iter().position(|(size, _)| *size >= chunk).unwrap_or(2);
            let (size, bytes) = known[above];
            match above.checked_sub(1) {
                Some(below) if size > chunk => {
                    let (from, least) = known[below];
                    let part = (chunk.log2() - from.log2()) / (size.log2() - from.log2());
                    least + (bytes - least) * part
                }
                _ => bytes,
            }
        }
    };
    bytes.min(page_bytes)
}

impl BlockStore for Numbers {
    type Unit = Weight;
    type Scratch = Siblings;
    // Nobody waits: what a device would take is summed up.
    type Far = Infallible;
    type Fetched = Infallible;
    const IS_TIMED: bool = false;
    const LEARNS: bool = false;

    #[inline]
    fn page_units(&self) -> usize {
        1
    }

    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn put_group(
        &self,
        _scratch: &mut Siblings,
        pages: &[Weight],
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
    ) -> Result<Handle, PutError> {
        let mut inside = self.inside.borrow_mut();
        let form = Form { codec, chunk_bytes, park: members.park };
        let put = match inside.full {
            true => Ok(None),
            false => inside.put(pages, form, members.vpns, None),
        };
        let put = put.unwrap_or_else(|error| {
            inside.error = Some(error);
            None
        });
        let limit = Limit::Bytes { used: inside.used_bytes, limit: inside.limits.mem_limit_bytes };
        put.ok_or(PutError::Full { limit, pages: pages.len() })
    }

    fn get(
        &self,
        scratch: &mut Siblings,
        handle: Handle,
        index: u16,
        out: &mut [Weight],
    ) -> Result<Get<(), Infallible>, ReadError> {
        self.get_chunk(scratch, handle, index, out).map(|_| Get::Here(()))
    }

    #[inline]
    fn get_chunk(
        &self,
        scratch: &mut Siblings,
        handle: Handle,
        index: u16,
        out: &mut [Weight],
    ) -> Result<Get<Piece, Infallible>, ReadError> {
        let inside = &mut *self.inside.borrow_mut();
        let block = &inside.blocks[handle.raw() as usize - 1];
        let (form, cost) = &inside.forms[block.form()];
        let of = block.pages();
        let each = (form.chunk_bytes as usize / self.page_bytes).clamp(1, usize::from(of)) as u16;
        let start = index / each * each;
        let pages = start..(start + each).min(of);
        if out.len() < pages.len() {
            return Err(ReadError::WrongSize { wanted: pages.len(), found: out.len() });
        }
        scratch.0.clear();
        match &block.members {
            Some(members) => {
                scratch.0.extend(members.iter().map(|member| member.vpn));
                for (out, index) in out.iter_mut().zip(pages.clone()) {
                    *out = members[usize::from(index)].weight;
                }
            }
            None => out[0] = Weight::Any,
        }
        let ns = cost.back_ns * f64::from(each);
        if inside.spent.wait_ns == 0.0 {
            inside.spent.wait_ns = ns;
        }
        inside.spent.back_ns += ns;
        inside.spent.decompressed_pages += u64::from(each);
        // The rest of a block is read ahead with its first chunk.
        let log = block.log().filter(|_| start == 0);
        if let Some(Some((_, cost))) = log.map(|log| &inside.logs[log]) {
            inside.spent += cost.read(u64::from(block.bytes));
        }
        Ok(Get::Here(Piece { pages, of, park: form.park }))
    }

    fn get_chunk_fetched(
        &self,
        _: &mut Siblings,
        fetched: &Infallible,
        _: u16,
        _: &mut [Weight],
    ) -> Result<Piece, ReadError> {
        match *fetched {}
    }

    fn fetch_here(&self, far: &Infallible) -> Option<Infallible> {
        match *far {}
    }

    fn fetch_now(&self, far: Infallible) -> Result<Infallible, FetchError> {
        match far {}
    }

    fn put_group_far(
        &self,
        to: LogId,
        _scratch: &mut Siblings,
        pages: &[Weight],
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
    ) -> Result<Handle, PutFarError> {
        let mut inside = self.inside.borrow_mut();
        let form = Form { codec, chunk_bytes, park: members.park };
        let put = inside.put(pages, form, members.vpns, Some(to)).unwrap_or_else(|error| {
            inside.error = Some(error);
            None
        });
        put.ok_or(PutFarError::NoLog(to))
    }

    fn evict(
        &self,
        _: &mut Siblings,
        handle: Handle,
        to: LogId,
        form: FlashForm,
    ) -> Result<(), EvictError> {
        let inside = &mut *self.inside.borrow_mut();
        let number = handle.raw() as usize - 1;
        let block = &inside.blocks[number];
        if block.is_far() {
            return Err(EvictError::There { handle });
        }
        let (in_pool, was) = (block.bytes, block.form());
        if in_pool <= STUB_BYTES {
            return Err(EvictError::NotWorth { handle });
        }
        let pages = u32::from(block.pages());
        let page_bytes = inside.limits.page_bytes as u32;
        let (bytes, now) = match form {
            FlashForm::AsStored => (in_pool, was as u16),
            FlashForm::Pages => {
                let raw = inside.forms[was].0.far(form, page_bytes);
                let now = inside.form(raw).map_err(|error| {
                    inside.error = Some(error);
                    EvictError::NoLog(to)
                })?;
                (pages * page_bytes, now)
            }
        };
        if !inside.has_room_in(to, bytes) {
            return Err(EvictError::NoLog(to));
        }
        if form == FlashForm::Pages {
            inside.spent.back_ns += inside.forms[was].1.back_ns * f64::from(pages);
            inside.spent.decompressed_pages += u64::from(pages);
        }
        let block = &mut inside.blocks[number];
        (block.form, block.bytes) = (in_log(now, to), bytes);
        let block = block.clone();
        inside.leave(number as u32, in_pool);
        inside.enter(number as u32, STUB_BYTES);
        inside.add_to_log(&block);
        Ok(())
    }

    #[inline]
    fn log_of(&self, handle: Handle) -> Option<LogId> {
        LogId::numbered(self.inside.borrow().block(handle).log()?)
    }

    fn look(&self, scratch: &mut Siblings, handle: Handle) -> u16 {
        let inside = self.inside.borrow();
        let block = inside.block(handle);
        scratch.0.clear();
        scratch.0.extend(block.members.iter().flatten().map(|member| member.vpn));
        block.pages()
    }

    #[inline]
    fn sibling(scratch: &Siblings, index: u16, vpn: Vpn, other: u16) -> Option<Vpn> {
        let at = |index: u16| scratch.0.get(usize::from(index)).map(|vpn| vpn.0 as i64);
        vpn.0.checked_add_signed(at(other)? - at(index)?).map(Vpn)
    }

    #[inline]
    fn check_page(&self, _: Handle, _: u16, _: &[Weight]) -> Result<(), ReadError> {
        Ok(())
    }

    #[inline]
    fn is_zeros(page: &[Weight]) -> bool {
        page == [Weight::Zeros]
    }

    #[inline]
    fn is_kept(&self, _kept: Handle, entry: Entry, _page: &[Weight]) -> bool {
        !entry.has(DIRTY)
    }

    #[inline]
    fn retain(&self, handle: Handle) -> bool {
        self.inside.borrow_mut().blocks[handle.raw() as usize - 1].refs += 1;
        true
    }

    #[inline]
    fn release(&self, handle: Handle) -> bool {
        let inside = &mut *self.inside.borrow_mut();
        let number = handle.raw() - 1;
        let block = &mut inside.blocks[number as usize];
        block.refs -= 1;
        if block.refs > 0 {
            return false;
        }
        let in_pool = block.pool_bytes();
        let pages = u64::from(block.pages());
        inside.pages -= pages;
        let (log, bytes) = (block.log(), u64::from(block.bytes));
        if let Some(Some((facts, _))) = log.map(|log| &mut inside.logs[log]) {
            facts.used_bytes -= bytes;
            facts.pages -= pages;
            inside.far_pages -= pages;
        }
        inside.blocks[number as usize].members = None;
        inside.leave(number, in_pool);
        inside.free.push(number);
        true
    }

    #[inline]
    fn stored_bytes(&self, handle: Handle) -> u32 {
        self.inside.borrow().block(handle).pool_bytes()
    }

    #[inline]
    fn block_pages(&self, handle: Handle) -> u16 {
        self.inside.borrow().block(handle).pages()
    }

    fn frame(&self, handle: Handle) -> Option<FrameFacts> {
        self.inside.borrow().frames.as_ref()?.of(handle.raw() - 1)
    }

    fn codec(&self, handle: Handle) -> CodecKind {
        let inside = self.inside.borrow();
        inside.forms[inside.block(handle).form()].0.codec
    }

    fn chunk_bytes(&self, handle: Handle) -> u32 {
        let inside = self.inside.borrow();
        inside.forms[inside.block(handle).form()].0.chunk_bytes
    }

    fn learn(&self, _scratch: &mut Siblings, _samples: &[Weight]) -> Option<Dictionary> {
        None
    }
}
