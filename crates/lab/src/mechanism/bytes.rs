//! The real mechanism on the bytes of a trace: mover, pool, codecs and page tables of the daemon.
//! What a kernel and an agent do for the daemon is played by [`Program`].
//!
//! Every page that is put into a program is compared with what it should hold. Neither that nor the
//! reading of the trace is part of any duration: bytes are fetched before and compared after.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clew_core::{
    CodecKind, Event, FlashForm, FrameFacts, Group, PageCounts, PageFacts, PageId, PageRun,
    PoolKind, SpaceId, Tier, TierFacts, Vpn,
};
use clew_engine::{Memory, Mover, Put, PutStop, Took};
use clew_store::flash::{Flash, FlashConfig, FlashError, LogId, MemoryDevice, ReadsAhead};
use clew_store::{Entry, Handle, State, Store, StoreConfig};
use clew_trace::{Content, Contents, Trace};

use super::programs::{Programs, defect};
use super::{Buffer, FarTier, Form, Mechanism, by_form};
use crate::costs::{Clock, CodecCost, FarCost, Spent};
use crate::error::LabError;
use crate::world::{Holds, World};

/// A page that was put into the program.
struct Arrived {
    vpn: Vpn,
    /// Where its bytes are in the buffer; `None` for zeros.
    at: Option<usize>,
}

#[derive(Default)]
struct Inside {
    /// What the pages of the next batch hold: page and place in the buffer, ascending.
    leaving: Vec<(Vpn, usize)>,
    leaving_bytes: Vec<u8>,
    /// Places of the batch that was taken.
    taken: Vec<usize>,
    arrived: Vec<Arrived>,
    arrived_bytes: Vec<u8>,
    /// When the first page arrived.
    first: Option<Instant>,
}

/// The memory of one program. Its own bytes are nowhere: what a page holds is known from the trace.
struct Program {
    page_bytes: usize,
    inside: Mutex<Inside>,
}

impl Program {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory for Program {
    fn hold_events(&self, _yields: bool) {}

    fn take_out(&self, vpns: &[Vpn], took: &mut Vec<Took>) {
        let inside = &mut *self.inside();
        inside.taken.clear();
        for vpn in vpns {
            let found = inside.leaving.binary_search_by_key(vpn, |(vpn, _)| *vpn);
            inside.taken.push(found.map_or(0, |i| inside.leaving[i].1));
            took.push(if found.is_ok() { Took::Taken } else { Took::Stayed });
        }
    }

    fn release_events(&self) {}

    fn copy_taken(&self, i: usize, out: &mut [u8]) -> bool {
        let inside = self.inside();
        let at = inside.taken[i];
        out.copy_from_slice(&inside.leaving_bytes[at..at + out.len()]);
        true
    }

    fn release_taken(&self) {}

    fn unshare(&self, _vpns: &[Vpn]) -> bool {
        false
    }

    fn put(&self, first: Vpn, bytes: &[u8]) -> Put {
        let inside = &mut *self.inside();
        let pages = bytes.len() / self.page_bytes;
        for i in 0..pages {
            let at = Some(inside.arrived_bytes.len() + i * self.page_bytes);
            inside.arrived.push(Arrived { vpn: Vpn(first.0 + i as u64), at });
        }
        inside.arrived_bytes.extend_from_slice(bytes);
        inside.first.get_or_insert_with(Instant::now);
        Put { pages, stop: None }
    }

    fn put_zero(&self, first: Vpn, count: usize) -> Put {
        let inside = &mut *self.inside();
        let pages = (0..count as u64).map(|i| Arrived { vpn: Vpn(first.0 + i), at: None });
        inside.arrived.extend(pages);
        inside.first.get_or_insert_with(Instant::now);
        Put { pages: count, stop: None::<PutStop> }
    }

    fn wake(&self, _first: Vpn, _count: usize) {}

    fn fresh_run(&self, _vpn: Vpn) -> usize {
        1
    }
}

/// One slot of flash in so many: fewer free ones are few.
const FEW_SLOTS: usize = 4;

/// The mechanism. See the module.
pub struct Bytes {
    programs: Programs<Arc<Store>, Program>,
    contents: Contents<File>,
    clock: Clock,
    page_bytes: usize,
    far: Vec<FarTier>,
    full: bool,
    /// What blocks were stored as, for the cost of bringing them back. A number that is used again
    /// gets its new form when its block is stored.
    forms: HashMap<Handle, Form>,
}

impl Bytes {
    /// Moves the pages of `trace`, which has their bytes.
    pub fn new(
        trace: &Trace,
        pool: PoolKind,
        limits: StoreConfig,
        retain: bool,
        buffer: Option<Buffer>,
        clock: Clock,
        far: &[FarTier],
    ) -> Result<Bytes, LabError> {
        let store = Arc::new(Store::of(pool, limits)?);
        for FarTier { log, bytes, cost } in far {
            let device = Box::new(MemoryDevice::new(*bytes));
            let config = match cost {
                FarCost::Flash(_) => FlashConfig { log: *log, ..FlashConfig::default() },
                // Chunks of a link are of the transport: what they cost, the cost says.
                FarCost::Link(_) => FlashConfig {
                    log: *log,
                    segment_bytes: 64 << 10,
                    reads_ahead: ReadsAhead::Never,
                    ..FlashConfig::default()
                },
            };
            let wrong =
                |why: FlashError| LabError::Setting { what: log.to_string(), why: why.to_string() };
            store.attach_log(Arc::new(Flash::new(config, device).map_err(wrong)?));
        }
        Ok(Bytes {
            programs: Programs::new(store, retain, buffer)?,
            contents: trace.contents().map_err(LabError::trace(trace.path()))?,
            clock,
            page_bytes: limits.page_bytes,
            far: far.to_vec(),
            full: false,
            forms: HashMap::new(),
        })
    }

    fn store(&self) -> &Store {
        &self.programs.mover.store
    }

    /// What reading a block takes of its log, if it is in one.
    fn far(&self, handle: Handle) -> Spent {
        let log = self.store().log_of(handle);
        let cost = log.and_then(|log| self.far.iter().find(|tier| tier.log == log));
        let bytes = || u64::from(self.store().log_bytes(handle));
        cost.map_or(Spent::default(), |tier| tier.cost.read(bytes()))
    }

    /// Does something that puts blocks into a log; what that takes of it. Everything is written when it is
    /// over, and slots are cleaned if few are free, so that what fits does not depend on who is quicker.
    fn with_log<T>(
        &mut self,
        id: LogId,
        act: impl FnOnce(&mut Bytes) -> Result<T, LabError>,
    ) -> Result<(T, Spent), LabError> {
        let tier = self.far.iter().find(|tier| tier.log == id).copied();
        let (Some(log), Some(tier)) = (self.store().log(id).cloned(), tier) else {
            return Ok((act(self)?, Spent::default()));
        };
        let before = log.facts().appended_bytes;
        let done = act(self)?;
        let put = log.facts().appended_bytes - before;
        log.flush();
        let slots = log.facts().slots as usize;
        let mut free = log.free_slots();
        while free < slots / FEW_SLOTS && self.store().clean_log(id).is_ok() {
            log.flush();
            // Where almost everything lives, a slot is paid for with a slot.
            let now = log.free_slots();
            if now <= free {
                break;
            }
            free = now;
        }
        Ok((done, tier.cost.put(put)))
    }

    fn entry(&self, page: PageId) -> Entry {
        self.programs.table(page.space()).map_or(Entry::ABSENT, |table| table.load(page.vpn()))
    }

    fn with_inside<T>(&self, space: SpaceId, act: impl FnOnce(&mut Inside) -> T) -> Option<T> {
        self.programs.memory(space).map(|program| act(&mut program.inside()))
    }

    /// Compares every page that arrived with what it should hold.
    fn compare(&mut self, space: SpaceId, world: &World<'_>) -> Result<(), LabError> {
        let Some(program) = self.programs.memory(space) else { return Ok(()) };
        let inside = &mut *program.inside();
        for Arrived { vpn, at } in inside.arrived.drain(..) {
            let page = PageId::new(space, vpn);
            let found = at.map(|at| &inside.arrived_bytes[at..at + self.page_bytes]);
            let is_zeros = || found.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0));
            let holds = world.holds(page);
            let right = match holds {
                Holds::Zeros => is_zeros(),
                Holds::Content(id) => match self.contents.get(id).map_err(failed)? {
                    Content::Bytes(bytes) => match found {
                        Some(found) => found == bytes,
                        None => bytes.iter().all(|byte| *byte == 0),
                    },
                    Content::Stats(_) => return Err(defect(page, "its bytes are not known")),
                },
            };
            if !right {
                return Err(LabError::WrongBytes {
                    page,
                    content: format!("{holds:?}"),
                    record: 0,
                });
            }
        }
        inside.arrived_bytes.clear();
        Ok(())
    }

    /// Fetches what the pages of `groups` hold.
    fn prepare(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        world: &World<'_>,
    ) -> Result<(), LabError> {
        let Some(program) = self.programs.memory(space) else { return Ok(()) };
        let inside = &mut *program.inside();
        inside.leaving.clear();
        inside.leaving_bytes.clear();
        for page in groups.iter().flat_map(|group| &group.pages) {
            inside.leaving.push((page.vpn(), inside.leaving_bytes.len()));
            match world.holds(*page) {
                Holds::Zeros => {
                    let end = inside.leaving_bytes.len() + self.page_bytes;
                    inside.leaving_bytes.resize(end, 0);
                }
                Holds::Content(id) => match self.contents.get(id).map_err(failed)? {
                    Content::Bytes(bytes) => inside.leaving_bytes.extend_from_slice(bytes),
                    Content::Stats(_) => return Err(defect(*page, "its bytes are not known")),
                },
            }
        }
        inside.leaving.sort_unstable_by_key(|(vpn, _)| *vpn);
        Ok(())
    }

    fn cost(&self, form: Form) -> Result<CodecCost, LabError> {
        self.clock.costs().codec(form.codec, form.chunk_bytes, self.page_bytes as u32)
    }

    /// What the block of a stored page costs to bring back, by its form, and pages of a chunk.
    fn block(&self, handle: Handle) -> Result<(CodecCost, u64), LabError> {
        let page = self.page_bytes as u32;
        let form = self.forms.get(&handle).copied().unwrap_or_else(|| Form {
            codec: self.store().codec(handle),
            chunk_bytes: page,
            park: false,
        });
        let pages = u64::from((form.chunk_bytes / page).max(1));
        let of_block = u64::from(self.store().block_pages(handle).max(1));
        Ok((self.cost(form)?, pages.min(of_block)))
    }

    /// Pages that were compressed again because they were pushed out of the buffer.
    fn note_expired(&mut self, events: &[Event]) -> u64 {
        let mut again = 0;
        for event in events {
            let Event::Stored { page, .. } = *event else { continue };
            let handle = self.entry(page).handle();
            if let Some(handle) = handle
                && !self.forms.contains_key(&handle)
            {
                let store = self.store();
                let (codec, chunk_bytes) = (store.codec(handle), store.chunk_bytes(handle));
                self.forms.insert(handle, Form { codec, chunk_bytes, park: false });
                again += 1;
            }
        }
        again
    }

    /// Of these blocks, those that are in a log now were decompressed for it.
    fn note_decompressed(&mut self, blocks: &[Handle], spent: &mut Spent) -> Result<(), LabError> {
        for handle in blocks {
            if self.store().log_of(*handle).is_none() {
                continue;
            }
            let (cost, _) = self.block(*handle)?;
            let pages = u64::from(self.store().block_pages(*handle));
            spent.back_ns += self.clock.or_real(cost.back_ns * pages as f64, Duration::ZERO);
            spent.decompressed_pages += pages;
            let (raw, page_bytes) = (CodecKind::Raw, self.page_bytes as u32);
            let before = self.forms.get(handle).copied();
            let was = Form { codec: raw, chunk_bytes: page_bytes, park: false };
            let form = before.unwrap_or(was).far(FlashForm::Pages, page_bytes);
            self.forms.insert(*handle, form);
        }
        Ok(())
    }

    /// Takes groups out of one space, to the pool, or into a log in that form.
    fn take_out(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        to: Option<(LogId, FlashForm)>,
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let mut spent = Spent::default();
        self.full = false;
        for groups in by_form(groups) {
            let form = Form::of(&groups[0]);
            let form = to.map_or(form, |(_, to)| form.far(to, self.page_bytes as u32));
            let cost = self.cost(form)?;
            let world = needs_world(groups[0].pages[0], world)?;
            self.prepare(space, groups, world)?;
            let counted = |bytes: &Bytes| {
                let counters = &bytes.programs.mover.counters;
                [&counters.swapped_out, &counters.zeros, &counters.reused].map(|c| c.load(Relaxed))
            };
            let before = counted(self);
            let began = Instant::now();
            let out = self.programs.with(space, |mover, space, ctx| match to {
                None => mover.swap_out(space, groups, ctx),
                Some(to) => mover.swap_out_far(space, groups, to, ctx),
            });
            let took = began.elapsed();
            let Some(out) = out else { continue };
            let [stored, zeros, reused] = counted(self);
            let looked_at = zeros - before[1] + reused - before[2];
            let compressed = (stored - before[0]).saturating_sub(looked_at);
            let costs = self.clock.costs();
            let modelled = compressed as f64 * cost.out_ns + looked_at as f64 * costs.look_ns;
            spent.out_ns += self.clock.or_real(modelled, took);
            spent.kernel_ns += (stored - before[0]) as f64 * costs.take_ns;
            spent.compressed_pages += compressed * u64::from(form.codec != CodecKind::Raw);
            self.full |= out.full.is_some();
            for event in &out.events {
                let Event::Stored { page, .. } = event else { continue };
                if let Some(handle) = self.entry(*page).handle() {
                    self.forms.insert(handle, form);
                }
            }
            events.extend(out.events);
            self.compare(space, world)?;
        }
        Ok(spent)
    }
}

fn failed(source: clew_trace::TraceError) -> LabError {
    LabError::Trace { path: std::path::PathBuf::new(), source }
}

fn needs_world<'a, 'w>(
    page: PageId,
    world: Option<&'a World<'w>>,
) -> Result<&'a World<'w>, LabError> {
    world.ok_or_else(|| defect(page, "nobody knows what it holds"))
}

impl PageFacts for Bytes {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.programs.tier(page)
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        self.programs.counts(space)
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        self.programs.for_each(space, visit);
    }

    fn frame(&self, page: PageId) -> Option<FrameFacts> {
        self.programs.frame(page)
    }
}

impl Mechanism for Bytes {
    fn start(&mut self, space: SpaceId) -> Result<(), LabError> {
        let program = Program { page_bytes: self.page_bytes, inside: Mutex::default() };
        self.programs.start(space, program)
    }

    fn end(&mut self, space: SpaceId) {
        self.programs.end(space);
    }

    fn state(&self, page: PageId) -> State {
        self.programs.state(page)
    }

    fn adopt(&mut self, run: PageRun, events: &mut Vec<Event>) -> Result<(), LabError> {
        self.programs.adopt(run, events)
    }

    fn fault(
        &mut self,
        page: PageId,
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let space = page.space();
        let entry = self.entry(page);
        let costs = self.clock.costs();
        let mut spent = Spent { kernel_ns: costs.fault_ns, ..Spent::default() };
        let mut chunk_pages = 1;
        let modelled = match (entry.state(), entry.handle()) {
            (State::Stored, Some(handle)) => {
                let (cost, pages) = self.block(handle)?;
                chunk_pages = pages;
                spent.decompressed_pages = pages;
                spent += self.far(handle);
                cost.back_ns
            }
            _ => costs.copy_ns,
        };
        let put_ns = costs.put_ns;
        let before = events.len();
        self.with_inside(space, |inside| inside.first = None);
        let began = Instant::now();
        let was_out = self.programs.fault(page, events)?;
        let took = began.elapsed();
        if !was_out {
            self.with_inside(space, |inside| inside.arrived.clear());
            return Ok(Spent::default());
        }
        let first = self.with_inside(space, |inside| inside.first).flatten();
        let waited = first.map_or(took, |first| first - began);
        let came_along = |event: &&Event| matches!(event, Event::PageIn { demand: false, .. });
        let along = events[before..].iter().filter(came_along).count() as u64;
        // Of a block of several chunks, the others are decompressed too.
        let others = (along + 1).saturating_sub(chunk_pages) * u64::from(along > 0);
        spent.decompressed_pages += others;
        let again = self.note_expired(&events[before..]);
        spent.compressed_pages += again;
        let all = modelled * (chunk_pages + others) as f64;
        spent.back_ns = self.clock.or_real(all, took);
        spent.wait_ns = spent.kernel_ns
            + spent.device_ns
            + spent.round_trip_ns
            + self.clock.or_real(modelled * chunk_pages as f64, waited);
        spent.kernel_ns += along as f64 * put_ns;
        self.compare(space, needs_world(page, world)?)?;
        Ok(spent)
    }

    /// What is kept is compared with what the page holds when it leaves again.
    fn beginning_of(
        &mut self,
        page: PageId,
        bytes: usize,
        world: Option<&World<'_>>,
    ) -> Result<Vec<u8>, LabError> {
        let bytes = bytes.min(self.page_bytes);
        Ok(match needs_world(page, world)?.holds(page) {
            Holds::Zeros => vec![0; bytes],
            Holds::Content(id) => match self.contents.get(id).map_err(failed)? {
                Content::Bytes(found) => found[..bytes].to_vec(),
                Content::Stats(_) => return Err(defect(page, "its bytes are not known")),
            },
        })
    }

    fn written(&mut self, _page: PageId) {}

    fn swap_out(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        self.take_out(space, groups, None, world, events)
    }

    fn put_far(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        to: (LogId, FlashForm),
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let (mut spent, put) =
            self.with_log(to.0, |bytes| bytes.take_out(space, groups, Some(to), world, events))?;
        spent += put;
        Ok(spent)
    }

    fn evict(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        to: (LogId, FlashForm),
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let pages = groups.iter().flat_map(|group| &group.pages);
        let mut blocks: Vec<Handle> = pages.filter_map(|page| self.entry(*page).handle()).collect();
        blocks.sort_unstable_by_key(|handle| handle.raw());
        blocks.dedup();
        blocks.retain(|handle| self.store().log_of(*handle).is_none());
        let began = Instant::now();
        let (out, mut spent) = self.with_log(to.0, |bytes| {
            let evict =
                |mover: &Mover<_, _>, space: &_, ctx: &mut _| mover.evict(space, groups, to, ctx);
            Ok(bytes.programs.with(space, evict))
        })?;
        if to.1 == FlashForm::Pages {
            self.note_decompressed(&blocks, &mut spent)?;
        }
        spent.out_ns = self.clock.or_real(spent.out_ns, began.elapsed());
        events.extend(out.into_iter().flat_map(|out| out.events));
        Ok(spent)
    }

    fn repack(&mut self, space: SpaceId, groups: &[Group]) -> Result<Spent, LabError> {
        let mut spent = Spent::default();
        for groups in by_form(groups) {
            let form = Form::of(&groups[0]);
            let cost = self.cost(form)?;
            let stored = |bytes: &Bytes, page: &PageId| bytes.entry(*page).handle();
            let before: Vec<(PageId, Option<Handle>)> = groups
                .iter()
                .flat_map(|group| &group.pages)
                .map(|page| (*page, stored(self, page)))
                .collect();
            // Read, and compressed, whatever comes of it.
            let mut modelled = 0.0;
            for handle in before.iter().filter_map(|(_, handle)| *handle) {
                modelled += self.block(handle)?.0.back_ns + cost.out_ns;
            }
            let began = Instant::now();
            self.programs.with(space, |mover, space, ctx| mover.repack(space, groups, ctx));
            spent.out_ns += self.clock.or_real(modelled, began.elapsed());
            for (page, old) in before {
                let new = stored(self, &page);
                if let Some(handle) = new.filter(|_| new != old) {
                    self.forms.insert(handle, form);
                    spent.compressed_pages += 1;
                }
            }
        }
        Ok(spent)
    }

    fn logs(&self) -> Vec<(LogId, TierFacts)> {
        let pages = self.store().facts().log_pages;
        let facts = |log: &Arc<Flash>| log.facts().tier(pages[log.log().index()]);
        self.store().logs().map(|log| (log.log(), facts(log))).collect()
    }

    fn restore(
        &mut self,
        pages: &[PageId],
        park: bool,
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let Some(first) = pages.first().copied() else { return Ok(Spent::default()) };
        let space = first.space();
        let vpns: Vec<Vpn> = pages.iter().map(|page| page.vpn()).collect();
        let mut spent = Spent::default();
        let (mut chunks, mut far) = (HashSet::new(), HashSet::new());
        let mut modelled = 0.0;
        for vpn in &vpns {
            let entry = self.entry(PageId::new(space, *vpn));
            let (State::Stored, Some(handle)) = (entry.state(), entry.handle()) else { continue };
            let (cost, chunk_pages) = self.block(handle)?;
            if far.insert(handle) {
                spent += self.far(handle);
            }
            if chunks.insert((handle, u64::from(entry.index()) / chunk_pages)) {
                modelled += cost.back_ns * chunk_pages as f64;
                spent.decompressed_pages += chunk_pages;
            }
        }
        let before = events.len();
        let began = Instant::now();
        self.programs.restore(space, &vpns, park, events)?;
        let took = began.elapsed();
        let again = self.note_expired(&events[before..]);
        let came = |event: &&Event| matches!(event, Event::PageIn { .. });
        let came = events[before..].iter().filter(came).count() as f64;
        let costs = self.clock.costs();
        let put_ns = if park { costs.copy_ns } else { costs.put_ns };
        spent.kernel_ns = came * put_ns;
        if again > 0 {
            let page = Form { codec: CodecKind::Lz4, chunk_bytes: self.page_bytes as u32, park };
            modelled += self.cost(page)?.out_ns * again as f64;
        }
        spent.compressed_pages += again;
        spent.back_ns = self.clock.or_real(modelled, took);
        self.compare(space, needs_world(first, world)?)?;
        Ok(spent)
    }

    fn free(&mut self, run: PageRun) {
        self.programs.free(run);
    }

    fn moved(&mut self, from: PageRun, to: PageId) -> Result<(), LabError> {
        self.programs.moved(from, to)
    }

    fn drop_kept(&mut self, page: PageId) -> Option<u64> {
        self.programs.drop_kept(page)
    }

    fn compact(&mut self, copies: u64) {
        self.store().compact(copies as usize);
    }

    fn pool_used_bytes(&self) -> u64 {
        self.store().used_bytes()
    }

    fn pool(&self) -> TierFacts {
        let facts = self.store().facts();
        TierFacts {
            used_bytes: facts.used_bytes,
            limit_bytes: facts.limit_bytes,
            pages: facts.pages - facts.far_pages.min(facts.pages),
            limit_pages: facts.limit_pages,
            ..TierFacts::default()
        }
    }

    fn resident_pages(&self) -> u64 {
        self.programs.resident_pages()
    }

    fn parked_pages(&self) -> u64 {
        self.programs.parked_pages()
    }

    fn tables_bytes(&self) -> u64 {
        self.programs.tables_bytes()
    }

    fn was_full(&self) -> bool {
        self.full
    }
}
