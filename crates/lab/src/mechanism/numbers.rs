//! A store without bytes: a block of the pool is a number of bytes, and its pages are what is known of
//! their sizes.
//!
//! What a block takes is modelled ([`SizeModel`]); the waste of size classes is not. What work costs is
//! summed up as it is done.
//!
//! Memory: 24 bytes a block.

use std::cell::RefCell;
use std::fs::File;

use clew_core::{CodecKind, Vpn};
use clew_engine::BlockStore;
use clew_store::{Entry, Handle, Limit, Members, Piece, PutError, ReadError, StoreConfig};
use clew_trace::{Content, ContentId, ContentStats, Contents};

use super::Form;
use crate::costs::{CodecCost, Costs, Spent};
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

/// A stored block.
#[derive(Clone)]
struct Block {
    bytes: u32,
    /// References of it; none, and it is free.
    refs: u16,
    /// Position in [`Inside::forms`].
    form: u16,
    /// Its pages, unless it is one of which nothing is known.
    members: Option<Box<[Member]>>,
}

impl Block {
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
    used_bytes: u64,
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
    pub fn new(model: SizeModel, limits: StoreConfig, costs: Costs) -> Numbers {
        let inside = Inside {
            blocks: Vec::new(),
            free: Vec::new(),
            forms: Vec::new(),
            model,
            costs,
            limits,
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

    /// Pages of all blocks.
    pub fn pages(&self) -> u64 {
        self.inside.borrow().pages
    }
}

impl Inside {
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
    ) -> Result<Option<Handle>, LabError> {
        let form = self.form(form)?;
        let bytes = self.block_bytes(form, pages)?;
        let used = self.used_bytes + u64::from(bytes);
        let stored = self.pages + pages.len() as u64;
        if used > self.limits.mem_limit_bytes || stored > self.limits.disksize_pages {
            self.full = true;
            return Ok(None);
        }
        (self.used_bytes, self.pages) = (used, stored);
        self.spent.out_ns += self.forms[form as usize].1.out_ns * pages.len() as f64;
        self.spent.compressed_pages += pages.len() as u64;
        let is_plain = pages.len() == 1 && pages[0] == Weight::Any;
        let members = (!is_plain).then(|| {
            let vpns = vpns.iter().copied().chain(std::iter::repeat(Vpn(0)));
            pages.iter().zip(vpns).map(|(weight, vpn)| Member { vpn, weight: *weight }).collect()
        });
        let block = Block { bytes, refs: pages.len() as u16, form, members };
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

/// What a page takes, by its statistics.
fn stored_bytes(stats: &ContentStats, form: Form, page_bytes: f64) -> f64 {
    let chunk = f64::from(form.chunk_bytes);
    let bytes = match form.codec {
        CodecKind::Raw => page_bytes,
        _ if stats.same_filled => 8.0,
        // What a dictionary would save is not among the statistics.
        CodecKind::Zstd | CodecKind::ZstdDictionary => f64::from(stats.zstd_page),
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
    const IS_TIMED: bool = false;

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
            false => inside.put(pages, form, members.vpns),
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
    ) -> Result<(), ReadError> {
        self.get_chunk(scratch, handle, index, out).map(drop)
    }

    #[inline]
    fn get_chunk(
        &self,
        scratch: &mut Siblings,
        handle: Handle,
        index: u16,
        out: &mut [Weight],
    ) -> Result<Piece, ReadError> {
        let inside = &mut *self.inside.borrow_mut();
        let block = &inside.blocks[handle.raw() as usize - 1];
        let (form, cost) = &inside.forms[block.form as usize];
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
        Ok(Piece { pages, of, park: form.park })
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
        inside.used_bytes -= u64::from(block.bytes);
        inside.pages -= u64::from(block.pages());
        block.members = None;
        inside.free.push(number);
        true
    }

    #[inline]
    fn stored_bytes(&self, handle: Handle) -> u32 {
        self.inside.borrow().block(handle).bytes
    }

    #[inline]
    fn block_pages(&self, handle: Handle) -> u16 {
        self.inside.borrow().block(handle).pages()
    }

    fn codec(&self, handle: Handle) -> CodecKind {
        let inside = self.inside.borrow();
        inside.forms[inside.block(handle).form as usize].0.codec
    }

    fn chunk_bytes(&self, handle: Handle) -> u32 {
        let inside = self.inside.borrow();
        inside.forms[inside.block(handle).form as usize].0.chunk_bytes
    }
}
