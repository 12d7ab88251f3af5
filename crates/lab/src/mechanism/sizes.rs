//! A mechanism without bytes: page tables are the daemon's, a block of the pool is a number of
//! bytes. For questions about policies, and for traces that have no contents.
//!
//! What a block takes is modelled ([`SizeModel`]); the waste of size classes is not. Everything else
//! is done as the real mechanism does it, in the same order, and tells the same events: kept copies,
//! blocks that come back whole, the buffer. Pages are zeros only where the trace says so.
//!
//! Memory: 8 bytes a page (page table), 24 a block.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use clew_core::{
    AccessKind, CodecKind, Event, Group, PageCounts, PageFacts, PageId, PageRun, SpaceId, Tier,
    TierFacts, Vpn,
};
use clew_store::{Entry, Handle, Space, State, StoreConfig, Tables};
use clew_trace::{Content, ContentId, ContentStats, Contents, Trace};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{Buffer, Form, MAX_PAGES, Mechanism, by_form, counts, for_each, tier};
use crate::costs::{CodecCost, Costs, Spent};
use crate::error::LabError;
use crate::world::{Holds, World};

/// Of the real pool: header, handle and its share of a slab's record (`clew-store`, `store`).
const OBJECT_BYTES: f64 = 23.0;

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

/// The page holds something else than its kept copy. (Flags 2, 4 and 8 are free in the daemon's own
/// tables.)
const DIRTY: u8 = 2;

/// Pages restored together, and those that come along with them, as in the mover.
const RESTORE_RUN: usize = 32;
const ALONG: usize = 128;

/// A stored block.
#[derive(Clone)]
struct Block {
    bytes: u32,
    /// Pages that are stored in it, or kept of it.
    live: u16,
    /// Position in [`Sizes::forms`].
    form: u16,
    /// Where its pages are, if they are several.
    vpns: Option<Box<[Vpn]>>,
}

/// The mechanism. See the module.
pub struct Sizes {
    tables: Arc<Tables>,
    spaces: Vec<Option<Space>>,
    blocks: Vec<Block>,
    free_blocks: Vec<u32>,
    forms: Vec<(Form, CodecCost)>,
    model: SizeModel,
    costs: Costs,
    limits: StoreConfig,
    retain: bool,
    buffer: Buffer,
    /// Parked pages by their turn, oldest first; names pages that have left since.
    queue: VecDeque<(u64, PageId)>,
    /// The turn of each parked page.
    turns: HashMap<PageId, u64, FixedState>,
    next_turn: u64,
    resident: u64,
    used_bytes: u64,
    stored_pages: u64,
    full: bool,
}

impl Sizes {
    /// Moves pages that weigh what `model` says.
    pub fn new(
        model: SizeModel,
        limits: StoreConfig,
        retain: bool,
        buffer: Option<Buffer>,
        costs: Costs,
    ) -> Result<Sizes, LabError> {
        Ok(Sizes {
            tables: Arc::new(Tables::new(MAX_PAGES)?),
            spaces: Vec::new(),
            blocks: Vec::new(),
            free_blocks: Vec::new(),
            forms: Vec::new(),
            model,
            costs,
            limits,
            retain,
            buffer: buffer.unwrap_or(Buffer { pages: 1024, keep: true }),
            queue: VecDeque::new(),
            turns: HashMap::with_hasher(FixedState::default()),
            next_turn: 0,
            resident: 0,
            used_bytes: 0,
            stored_pages: 0,
            full: false,
        })
    }

    /// Sizes by the statistics of `trace`.
    pub fn stats_of(trace: &Trace) -> Result<SizeModel, LabError> {
        let contents = trace.contents().map_err(LabError::trace(trace.path()))?;
        Ok(SizeModel::Stats(Box::new(contents)))
    }

    #[inline]
    fn table(&self, space: SpaceId) -> Option<&Space> {
        self.spaces.get(space.0 as usize)?.as_ref()
    }

    #[inline]
    fn load(&self, page: PageId) -> Entry {
        self.table(page.space()).map_or(Entry::ABSENT, |table| table.load(page.vpn()))
    }

    /// Replaces an entry and keeps count.
    fn set(&mut self, page: PageId, entry: Entry) -> Result<Entry, LabError> {
        let Some(table) = self.table(page.space()) else { return Ok(Entry::ABSENT) };
        let old = table.store(page.vpn(), entry)?;
        let count = |state, of: Entry| u64::from(of.state() == state);
        self.resident = self.resident + count(State::Resident, entry) - count(State::Resident, old);
        if old.state() == State::Parked {
            self.turns.remove(&page);
        }
        Ok(old)
    }

    fn block(&self, handle: Handle) -> &Block {
        &self.blocks[handle.raw() as usize - 1]
    }

    fn block_mut(&mut self, handle: Handle) -> &mut Block {
        &mut self.blocks[handle.raw() as usize - 1]
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

    /// Gives back what an entry owns of its block.
    fn release(&mut self, entry: Entry) {
        let Some(handle) = entry.handle() else { return };
        let number = handle.raw() - 1;
        let block = &mut self.blocks[number as usize];
        block.live -= 1;
        if block.live == 0 {
            self.used_bytes -= u64::from(block.bytes);
            self.stored_pages -= block.vpns.as_ref().map_or(1, |vpns| vpns.len() as u64);
            block.vpns = None;
            self.free_blocks.push(number);
        }
    }

    /// Pages that one call of the codec decompresses, for a page of the block.
    fn chunk_pages(&self, block: &Block) -> u64 {
        let chunk = self.forms[block.form as usize].0.chunk_bytes as usize;
        let of_block = block.vpns.as_ref().map_or(1, |vpns| vpns.len());
        (chunk / self.limits.page_bytes).clamp(1, of_block) as u64
    }

    fn stats(&mut self, page: PageId, world: Option<&World<'_>>) -> Result<Weighed, LabError> {
        let (SizeModel::Stats(contents), Some(world)) = (&mut self.model, world) else {
            return Ok(Weighed::Unknown);
        };
        Ok(match world.holds(page) {
            Holds::Zeros => Weighed::Zeros,
            Holds::Content(id) => Weighed::Stats(read_stats(contents, id)?),
        })
    }

    /// What the pages take as one block.
    fn block_bytes(&mut self, form: u16, weighed: &[Weighed]) -> u32 {
        let page_bytes = self.limits.page_bytes as f64;
        let (form, cost) = self.forms[form as usize];
        let ratio = match self.model {
            SizeModel::Ratio(ratio) => ratio,
            SizeModel::Table | SizeModel::Stats(_) => cost.ratio,
        };
        let of_page = |weighed: &Weighed| match weighed {
            Weighed::Unknown | Weighed::Zeros => page_bytes / ratio,
            Weighed::Stats(stats) if stats.same_filled && form.codec != CodecKind::Raw => 8.0,
            Weighed::Stats(stats) => stored_bytes(stats, form, page_bytes),
        };
        let bytes: f64 = weighed.iter().map(of_page).sum();
        (bytes + OBJECT_BYTES).round() as u32
    }

    /// Stores pages as one block, if there is room.
    fn put(&mut self, form: u16, pages: &[PageId], weighed: &[Weighed]) -> Option<(Handle, u32)> {
        let bytes = self.block_bytes(form, weighed);
        let (used, stored) =
            (self.used_bytes + u64::from(bytes), self.stored_pages + pages.len() as u64);
        if used > self.limits.mem_limit_bytes || stored > self.limits.disksize_pages {
            self.full = true;
            return None;
        }
        (self.used_bytes, self.stored_pages) = (used, stored);
        let vpns = (pages.len() > 1).then(|| pages.iter().map(|page| page.vpn()).collect());
        let block = Block { bytes, live: pages.len() as u16, form, vpns };
        let number = match self.free_blocks.pop() {
            Some(number) => {
                self.blocks[number as usize] = block;
                number
            }
            None => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as u32
            }
        };
        Some((Handle::from_raw(number + 1)?, bytes))
    }

    fn share(&self, handle: Option<Handle>) -> u32 {
        handle.map_or(0, |handle| {
            let block = self.block(handle);
            block.bytes / block.vpns.as_ref().map_or(1, |vpns| vpns.len() as u32)
        })
    }

    /// A stored or parked page becomes resident.
    fn back(&mut self, page: PageId, entry: Entry) -> Result<(), LabError> {
        let kept = self.retain && entry.handle().is_some();
        let resident = match entry.handle() {
            Some(handle) if kept => Entry::with_block(State::Resident, handle, entry.index()),
            _ => Entry::new(State::Resident),
        };
        self.set(page, resident)?;
        if !kept {
            self.release(entry);
        }
        Ok(())
    }

    /// The pages that are still stored in the block with `page`, which is its page `asked`, without
    /// it, by address. Pages that moved together are found.
    fn siblings(&self, (page, handle, asked): (PageId, Handle, u16)) -> Vec<(PageId, Entry)> {
        let Some(vpns) = &self.block(handle).vpns else { return Vec::new() };
        let was_at = vpns[usize::from(asked)].0 as i64;
        let mut found: Vec<(PageId, Entry)> = vpns
            .iter()
            .enumerate()
            .filter_map(|(index, vpn)| {
                let at = page.vpn().0.checked_add_signed(vpn.0 as i64 - was_at)?;
                Some((index, PageId::new(page.space(), Vpn(at))))
            })
            .filter(|(_, other)| *other != page)
            .map(|(index, other)| (index, other, self.load(other)))
            .filter(|(index, _, entry)| {
                entry.state() == State::Stored
                    && entry.handle() == Some(handle)
                    && usize::from(entry.index()) == *index
            })
            .map(|(_, other, entry)| (other, entry))
            .collect();
        found.sort_unstable_by_key(|(page, _)| *page);
        found
    }

    /// Adds to the pages of a run what is decompressed with them, and what that costs.
    fn with_chunks(&self, run: &mut Vec<(PageId, Entry)>, spent: &mut Spent) {
        let mut along: Vec<(PageId, Entry)> = Vec::new();
        let mut chunks: Vec<(Handle, u64)> = Vec::with_capacity(run.len());
        for (page, entry) in run.iter().copied() {
            let Some(handle) = entry.handle() else { continue };
            let block = self.block(handle);
            let chunk_pages = self.chunk_pages(block);
            let chunk = u64::from(entry.index()) / chunk_pages;
            if chunks.contains(&(handle, chunk)) {
                continue;
            }
            chunks.push((handle, chunk));
            spent.decompressed_pages += chunk_pages;
            spent.back_ns += self.forms[block.form as usize].1.back_ns * chunk_pages as f64;
            if chunk_pages > 1 && along.len() < ALONG {
                let of_chunk = |other: &(PageId, Entry)| {
                    u64::from(other.1.index()) / chunk_pages == chunk && !run.contains(other)
                };
                along.extend(
                    self.siblings((page, handle, entry.index())).into_iter().filter(of_chunk),
                );
            }
        }
        if !along.is_empty() {
            run.append(&mut along);
            run.sort_unstable_by_key(|(page, _)| *page);
        }
    }

    fn park_page(
        &mut self,
        page: PageId,
        entry: Entry,
        world: Option<&World<'_>>,
        spent: &mut Spent,
        events: &mut Vec<Event>,
    ) -> Result<(), LabError> {
        let oldest = match self.turns.len() >= self.buffer.pages {
            true => self.oldest_parked(),
            false => None,
        };
        self.set(page, entry.with_state(State::Parked))?;
        self.turns.insert(page, self.next_turn);
        self.queue.push_back((self.next_turn, page));
        self.next_turn += 1;
        if self.queue.len() > 2 * self.turns.len() + 64 {
            let turns = &self.turns;
            self.queue.retain(|(turn, page)| turns.get(page) == Some(turn));
        }
        events.push(Event::PageIn { page, tier: Tier::Pool, demand: false });
        match oldest {
            Some(oldest) => self.expire(oldest, world, spent, events),
            None => Ok(()),
        }
    }

    /// The page that is pushed out next.
    fn oldest_parked(&mut self) -> Option<PageId> {
        while let Some((turn, page)) = self.queue.pop_front() {
            if self.turns.get(&page) == Some(&turn) {
                return Some(page);
            }
        }
        None
    }

    fn expire(
        &mut self,
        page: PageId,
        world: Option<&World<'_>>,
        spent: &mut Spent,
        events: &mut Vec<Event>,
    ) -> Result<(), LabError> {
        let entry = self.load(page);
        let mut home = entry.with_state(State::Stored);
        if !self.buffer.keep
            && let Some(handle) = entry.handle()
        {
            let was = self.forms[self.block(handle).form as usize].0;
            let chunk_bytes = was.chunk_bytes.min(self.limits.page_bytes as u32);
            let form = self.form(Form { chunk_bytes, park: false, ..was })?;
            let weighed = self.stats(page, world)?;
            if let Some((handle, _)) = self.put(form, &[page], &[weighed]) {
                home = Entry::with_block(State::Stored, handle, 0);
                spent.out_ns += self.forms[form as usize].1.out_ns;
                spent.compressed_pages += 1;
            }
        }
        self.set(page, home)?;
        if home.handle() != entry.handle() {
            self.release(entry);
        }
        events.push(Event::PrefetchExpired { page });
        let bytes = self.share(home.handle());
        events.push(Event::Stored { page, tier: Tier::Pool, bytes });
        Ok(())
    }

    /// Brings back, or parks, what is still stored of a block, one page of which is back already:
    /// the rest of its chunk, then the other chunks in their order.
    fn bring_others(
        &mut self,
        lent: (PageId, Handle, u16),
        world: Option<&World<'_>>,
        spent: &mut Spent,
        events: &mut Vec<Event>,
    ) -> Result<(), LabError> {
        let (_, handle, index) = lent;
        let block = self.block(handle);
        let (form, cost) = self.forms[block.form as usize];
        let chunk_pages = self.chunk_pages(block);
        let chunk_of = |index: u16| u64::from(index) / chunk_pages;
        let own = chunk_of(index);
        let mut chunk = own;
        loop {
            for (other, entry) in self.siblings(lent) {
                if chunk_of(entry.index()) != chunk {
                    continue;
                }
                if chunk != own {
                    spent.decompressed_pages += 1;
                    spent.back_ns += cost.back_ns;
                }
                spent.kernel_ns += self.costs.put_ns;
                if form.park {
                    self.park_page(other, entry, world, spent, events)?;
                } else {
                    self.back(other, entry)?;
                    events.push(Event::PageIn { page: other, tier: Tier::Pool, demand: false });
                }
            }
            let from = if chunk == own { 0 } else { chunk + 1 };
            // Of those that are there now: parking one may have pushed out another.
            let rest = self.siblings(lent).into_iter();
            let rest = rest.map(|(_, entry)| chunk_of(entry.index()));
            let Some(next) = rest.filter(|chunk| *chunk >= from && *chunk != own).min() else {
                return Ok(());
            };
            chunk = next;
        }
    }

    /// A parked page that is to leave is stored again.
    fn unpark(&mut self, page: PageId, events: &mut Vec<Event>) -> Result<(), LabError> {
        let entry = self.load(page);
        if entry.state() == State::Parked {
            self.set(page, entry.with_state(State::Stored))?;
            events.push(Event::PrefetchExpired { page });
            let bytes = self.share(entry.handle());
            events.push(Event::Stored { page, tier: Tier::Pool, bytes });
        }
        Ok(())
    }

    /// Takes one group out, as far as there is room.
    fn group_out(
        &mut self,
        group: &Group,
        world: Option<&World<'_>>,
        spent: &mut Spent,
        events: &mut Vec<Event>,
    ) -> Result<(), LabError> {
        let form = self.form(Form::of(group))?;
        let mut fresh: Vec<PageId> = Vec::with_capacity(group.pages.len());
        let mut weighed: Vec<Weighed> = Vec::with_capacity(group.pages.len());
        for page in group.pages.iter().copied() {
            let entry = self.load(page);
            if entry.state() != State::Resident {
                continue;
            }
            let of_page = self.stats(page, world)?;
            let is_zeros = matches!(of_page, Weighed::Zeros);
            let home = match entry.handle() {
                _ if is_zeros => Some(Entry::new(State::Stored)),
                Some(handle) if !entry.has(DIRTY) => {
                    Some(Entry::with_block(State::Stored, handle, entry.index()))
                }
                _ => None,
            };
            let Some(home) = home else {
                fresh.push(page);
                weighed.push(of_page);
                continue;
            };
            self.set(page, home)?;
            if home.handle() != entry.handle() {
                self.release(entry);
            }
            spent.out_ns += self.costs.look_ns;
            spent.kernel_ns += self.costs.take_ns;
            let bytes = self.share(home.handle());
            events.push(Event::Stored { page, tier: Tier::Pool, bytes });
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let put = if self.full { None } else { self.put(form, &fresh, &weighed) };
        let Some((handle, bytes)) = put else {
            events.extend(fresh.into_iter().map(|page| Event::Stayed { page }));
            return Ok(());
        };
        let pages = fresh.len();
        for (index, page) in fresh.into_iter().enumerate() {
            let home = Entry::with_block(State::Stored, handle, index as u16);
            let old = self.set(page, home)?;
            self.release(old);
            events.push(Event::Stored { page, tier: Tier::Pool, bytes: bytes / pages as u32 });
        }
        spent.out_ns += self.forms[form as usize].1.out_ns * pages as f64;
        spent.kernel_ns += self.costs.take_ns * pages as f64;
        spent.compressed_pages += pages as u64;
        Ok(())
    }
}

/// What is known of a page's size.
#[derive(Clone, Copy)]
enum Weighed {
    Unknown,
    Zeros,
    Stats(ContentStats),
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
        // What a dictionary would save is not among the statistics.
        CodecKind::Zstd | CodecKind::ZstdDictionary => f64::from(stats.zstd_page),
        CodecKind::Lz4 => {
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

impl PageFacts for Sizes {
    fn tier(&self, page: PageId) -> Option<Tier> {
        tier(self.table(page.space()), page)
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        counts(self.table(space))
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        for_each(self.table(space), visit);
    }
}

impl Mechanism for Sizes {
    fn start(&mut self, space: SpaceId) -> Result<(), LabError> {
        let number = space.0 as usize;
        if self.spaces.len() <= number {
            self.spaces.resize_with(number + 1, || None);
        }
        self.spaces[number] = Some(Space::new(space, Arc::clone(&self.tables)));
        Ok(())
    }

    fn end(&mut self, space: SpaceId) {
        let all = PageRun { first: PageId::new(space, Vpn(0)), count: u32::MAX };
        self.free_from(all.first, u64::MAX);
        if let Some(slot) = self.spaces.get_mut(space.0 as usize) {
            *slot = None;
        }
    }

    #[inline]
    fn state(&self, page: PageId) -> State {
        self.load(page).state()
    }

    fn adopt(&mut self, run: PageRun, events: &mut Vec<Event>) -> Result<(), LabError> {
        let mut from = None;
        for page in run.pages() {
            if self.load(page) == Entry::ABSENT {
                self.set(page, Entry::new(State::Resident))?;
                from.get_or_insert(page);
            } else if let Some(first) = from.take() {
                push_resident(first, page, events);
            }
        }
        if let Some(first) = from {
            push_resident(first, run.first.plus(u64::from(run.count)), events);
        }
        Ok(())
    }

    fn fault(
        &mut self,
        page: PageId,
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let entry = self.load(page);
        let mut spent = Spent::default();
        match entry.state() {
            State::Absent => {
                self.set(page, Entry::new(State::Resident))?;
                events.push(Event::Resident { run: PageRun { first: page, count: 1 } });
                events.push(Event::Access { page, kind: AccessKind::Fresh, write: false });
                return Ok(spent);
            }
            State::Parked => {
                self.back(page, entry)?;
                spent.back_ns = self.costs.copy_ns;
                events.push(Event::Access { page, kind: AccessKind::Seen, write: false });
                events.push(Event::PrefetchUsed { page });
            }
            _ => {
                spent.back_ns = self.costs.copy_ns;
                if let Some(handle) = entry.handle() {
                    let block = self.block(handle);
                    spent.decompressed_pages = self.chunk_pages(block);
                    let each = self.forms[block.form as usize].1.back_ns;
                    spent.back_ns = each * spent.decompressed_pages as f64;
                }
                spent.wait_ns = spent.back_ns;
                // Its block stays until the others are back too.
                if let Some(handle) = entry.handle() {
                    self.block_mut(handle).live += 1;
                }
                self.back(page, entry)?;
                events.push(Event::Access { page, kind: AccessKind::Fault, write: false });
                events.push(Event::PageIn { page, tier: Tier::Pool, demand: true });
                if let Some(handle) = entry.handle() {
                    let lent = (page, handle, entry.index());
                    self.bring_others(lent, world, &mut spent, events)?;
                    self.release(entry);
                }
            }
        }
        spent.wait_ns = spent.wait_ns.max(self.costs.copy_ns) + self.costs.fault_ns;
        spent.kernel_ns += self.costs.fault_ns;
        Ok(spent)
    }

    fn written(&mut self, page: PageId) {
        let entry = self.load(page);
        if entry.state() == State::Resident && entry.handle().is_some() {
            // Its chunk is there, so this cannot fail.
            let _ = self.set(page, entry.with(DIRTY));
        }
    }

    fn swap_out(
        &mut self,
        _space: SpaceId,
        groups: &[Group],
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let mut spent = Spent::default();
        self.full = false;
        for groups in by_form(groups) {
            for page in groups.iter().flat_map(|group| group.pages.iter().copied()) {
                self.unpark(page, events)?;
            }
            for group in groups {
                if self.full {
                    let is_there = |page: &&PageId| self.state(**page) == State::Resident;
                    let stay = group.pages.iter().filter(is_there);
                    events.extend(stay.map(|page| Event::Stayed { page: *page }));
                    continue;
                }
                self.group_out(group, world, &mut spent, events)?;
            }
        }
        Ok(spent)
    }

    fn restore(
        &mut self,
        pages: &[PageId],
        park: bool,
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let mut spent = Spent::default();
        let mut run: Vec<(PageId, Entry)> = Vec::with_capacity(RESTORE_RUN);
        for (i, page) in pages.iter().copied().enumerate() {
            let entry = self.load(page);
            let wanted = match entry.state() {
                State::Stored => !park || entry.handle().is_some(),
                State::Parked => !park,
                _ => false,
            };
            if wanted {
                run.push((page, entry));
            }
            let ends = pages.get(i + 1).is_none_or(|next| next.raw() != page.raw() + 1);
            if !run.is_empty() && (ends || run.len() == RESTORE_RUN) {
                self.with_chunks(&mut run, &mut spent);
                for (page, entry) in run.drain(..) {
                    if park {
                        spent.kernel_ns += self.costs.copy_ns;
                        self.park_page(page, entry, world, &mut spent, events)?;
                    } else {
                        spent.kernel_ns += self.costs.put_ns;
                        self.back(page, entry)?;
                        events.push(match entry.state() {
                            State::Parked => Event::PrefetchExpired { page },
                            _ => Event::PageIn { page, tier: Tier::Pool, demand: false },
                        });
                    }
                }
            }
        }
        Ok(spent)
    }

    fn free(&mut self, run: PageRun) {
        self.free_from(run.first, u64::from(run.count));
    }

    fn moved(&mut self, from: PageRun, to: PageId) -> Result<(), LabError> {
        self.free(PageRun { first: to, ..from });
        let mut moving = Vec::new();
        if let Some(table) = self.table(from.first.space()) {
            table.for_range(from.first.vpn(), u64::from(from.count), |vpn, entry| {
                moving.push((PageId::new(from.first.space(), vpn), entry));
            });
        }
        for (page, entry) in moving {
            let (target, turn) =
                (to.plus(page.raw() - from.first.raw()), self.turns.get(&page).copied());
            self.set(page, Entry::ABSENT)?;
            self.set(target, entry)?;
            if let Some(turn) = turn {
                self.turns.insert(target, turn);
                let at = self.queue.partition_point(|(other, _)| *other < turn);
                self.queue.insert(at, (turn, target));
            }
        }
        Ok(())
    }

    fn drop_kept(&mut self, page: PageId) -> Option<u64> {
        let entry = self.load(page);
        entry.handle().filter(|_| entry.state() == State::Resident)?;
        self.set(page, Entry::new(State::Resident)).ok()?;
        let before = self.used_bytes;
        self.release(entry);
        Some(before - self.used_bytes)
    }

    fn compact(&mut self, _copies: u64) {}

    #[inline]
    fn pool_used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn pool(&self) -> TierFacts {
        TierFacts {
            used_bytes: self.used_bytes,
            limit_bytes: self.limits.mem_limit_bytes,
            pages: self.stored_pages,
            limit_pages: self.limits.disksize_pages,
        }
    }

    fn resident_pages(&self) -> u64 {
        self.resident
    }

    fn parked_pages(&self) -> u64 {
        self.turns.len() as u64
    }

    fn tables_bytes(&self) -> u64 {
        self.tables.used_bytes()
    }

    fn was_full(&self) -> bool {
        self.full
    }
}

impl Sizes {
    fn free_from(&mut self, first: PageId, count: u64) {
        let mut gone = Vec::new();
        if let Some(table) = self.table(first.space()) {
            table.for_range(first.vpn(), count, |vpn, entry| gone.push((vpn, entry)));
        }
        for (vpn, entry) in gone {
            let _ = self.set(PageId::new(first.space(), vpn), Entry::ABSENT);
            self.release(entry);
        }
    }
}

fn push_resident(first: PageId, end: PageId, events: &mut Vec<Event>) {
    let count = (end.raw() - first.raw()) as u32;
    events.push(Event::Resident { run: PageRun { first, count } });
}
