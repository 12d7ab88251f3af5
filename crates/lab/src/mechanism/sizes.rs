//! The daemon's mover on a store of numbers: no page has bytes, and nothing is copied. For questions
//! about policies, and for traces that have no contents.
//!
//! What a block takes is modelled ([`SizeModel`]). Pages are zeros only where the trace says so. Everything
//! else is what the mover does with bytes too.

use std::sync::{Mutex, MutexGuard, PoisonError};

use clew_core::{
    Event, FlashForm, FrameFacts, Group, PageCounts, PageFacts, PageId, PageRun, PoolKind, SpaceId,
    Tier, TierFacts, Vpn,
};
use clew_engine::{Memory, Put, Took};
use clew_store::flash::LogId;
use clew_store::{State, StoreConfig};
use clew_trace::Trace;

use super::numbers::{DIRTY, Numbers, SizeModel, Weight};
use super::programs::Programs;
use super::{Buffer, FarTier, Mechanism, by_form};
use crate::costs::{Costs, Spent};
use crate::error::LabError;
use crate::world::World;

/// What is known of pages that leave.
#[derive(Default)]
struct Leaving {
    /// Of the next ones, ascending.
    pages: Vec<(Vpn, Weight)>,
    /// Of the batch that was taken.
    taken: Vec<Weight>,
}

/// The memory of one program, in which there is nothing.
struct Nothing {
    /// Sizes are known page by page.
    weighs: bool,
    leaving: Mutex<Leaving>,
}

impl Nothing {
    fn leaving(&self) -> MutexGuard<'_, Leaving> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These pages are the next to leave.
    fn leave(&self, groups: &[Group], world: &World<'_>) {
        let next = &mut self.leaving().pages;
        next.clear();
        let pages = groups.iter().flat_map(|group| &group.pages);
        next.extend(pages.map(|page| (page.vpn(), world.holds(*page).into())));
        next.sort_unstable_by_key(|(vpn, _)| *vpn);
    }
}

impl Memory<Weight> for Nothing {
    fn hold_events(&self, _yields: bool) {}

    fn take_out(&self, vpns: &[Vpn], took: &mut Vec<Took>) {
        took.resize(vpns.len(), Took::Taken);
        if self.weighs {
            let Leaving { pages, taken } = &mut *self.leaving();
            taken.clear();
            taken.extend(vpns.iter().map(|vpn| {
                let at = pages.partition_point(|(other, _)| other < vpn);
                pages.get(at).map_or(Weight::Any, |(_, weight)| *weight)
            }));
        }
    }

    fn release_events(&self) {}

    #[inline]
    fn copy_taken(&self, i: usize, out: &mut [Weight]) -> bool {
        out[0] = if self.weighs { self.leaving().taken[i] } else { Weight::Any };
        true
    }

    fn release_taken(&self) {}

    fn unshare(&self, _vpns: &[Vpn]) -> bool {
        false
    }

    #[inline]
    fn put(&self, _first: Vpn, pages: &[Weight]) -> Put {
        Put { pages: pages.len(), stop: None }
    }

    #[inline]
    fn put_zero(&self, _first: Vpn, count: usize) -> Put {
        Put { pages: count, stop: None }
    }

    #[inline]
    fn wake(&self, _first: Vpn, _count: usize) {}

    #[inline]
    fn fresh_run(&self, _vpn: Vpn) -> usize {
        1
    }
}

/// The mechanism. See the module.
pub struct Sizes {
    programs: Programs<Numbers, Nothing>,
    vpns: Vec<Vpn>,
    costs: Costs,
    limits: StoreConfig,
}

impl Sizes {
    /// Moves pages that weigh what `model` says.
    pub fn new(
        model: SizeModel,
        pool: PoolKind,
        limits: StoreConfig,
        retain: bool,
        buffer: Option<Buffer>,
        costs: Costs,
        far: &[FarTier],
    ) -> Result<Sizes, LabError> {
        let store = Numbers::new(model, pool, limits, costs.clone(), far);
        let programs = Programs::new(store, retain, buffer)?;
        Ok(Sizes { programs, vpns: Vec::new(), costs, limits })
    }

    /// Sizes by the statistics of `trace`.
    pub fn stats_of(trace: &Trace) -> Result<SizeModel, LabError> {
        let contents = trace.contents().map_err(LabError::trace(trace.path()))?;
        Ok(SizeModel::Stats(Box::new(contents)))
    }

    fn store(&self) -> &Numbers {
        &self.programs.mover.store
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
        self.store().look_for_room();
        let mut stored = 0;
        for groups in by_form(groups) {
            if let (Some(memory), Some(world)) = (self.programs.memory(space), world) {
                memory.leave(groups, world);
            }
            let out = self.programs.with(space, |mover, space, ctx| match to {
                None => mover.swap_out(space, groups, ctx),
                Some(to) => mover.swap_out_far(space, groups, to, ctx),
            });
            let Some(out) = out else { continue };
            stored += out.stored as u64;
            events.extend(out.events);
        }
        let mut spent = self.store().take_spent()?;
        spent.kernel_ns += self.costs.take_ns * stored as f64;
        spent.out_ns += self.costs.look_ns * (stored - spent.compressed_pages) as f64;
        Ok(spent)
    }
}

impl PageFacts for Sizes {
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

impl Mechanism for Sizes {
    fn start(&mut self, space: SpaceId) -> Result<(), LabError> {
        let weighs = self.store().weighs();
        self.programs.start(space, Nothing { weighs, leaving: Mutex::default() })
    }

    fn end(&mut self, space: SpaceId) {
        self.programs.end(space);
    }

    #[inline]
    fn state(&self, page: PageId) -> State {
        self.programs.state(page)
    }

    fn adopt(&mut self, run: PageRun, events: &mut Vec<Event>) -> Result<(), LabError> {
        self.programs.adopt(run, events)
    }

    fn fault(
        &mut self,
        page: PageId,
        _world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let before = events.len();
        if !self.programs.fault(page, events)? {
            return Ok(Spent::default());
        }
        let mut spent = self.store().take_spent()?;
        if spent.back_ns == 0.0 {
            spent.back_ns = self.costs.copy_ns;
        }
        let came_along = |event: &&Event| matches!(event, Event::PageIn { demand: false, .. });
        let along = events[before..].iter().filter(came_along).count() as u64;
        spent.wait_ns = spent.wait_ns.max(self.costs.copy_ns)
            + self.costs.fault_ns
            + spent.device_ns
            + spent.round_trip_ns;
        spent.kernel_ns += self.costs.fault_ns + self.costs.put_ns * along as f64;
        Ok(spent)
    }

    fn beginning_of(
        &mut self,
        _page: PageId,
        _bytes: usize,
        _world: Option<&World<'_>>,
    ) -> Result<Vec<u8>, LabError> {
        Ok(Vec::new())
    }

    fn written(&mut self, page: PageId) {
        if let Some(table) = self.programs.table(page.space()) {
            let entry = table.load(page.vpn());
            if entry.state() == State::Resident && entry.handle().is_some() {
                // Its chunk is there, so this cannot fail.
                let _ = table.store(page.vpn(), entry.with(DIRTY));
            }
        }
    }

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
        self.take_out(space, groups, Some(to), world, events)
    }

    fn evict(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        to: (LogId, FlashForm),
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let out =
            self.programs.with(space, |mover, space, ctx| mover.evict(space, groups, to, ctx));
        events.extend(out.into_iter().flat_map(|out| out.events));
        self.store().take_spent()
    }

    fn repack(&mut self, space: SpaceId, groups: &[Group]) -> Result<Spent, LabError> {
        self.programs.with(space, |mover, space, ctx| mover.repack(space, groups, ctx));
        // Nobody waits.
        Ok(Spent { wait_ns: 0.0, ..self.store().take_spent()? })
    }

    fn logs(&self) -> Vec<(LogId, TierFacts)> {
        let all = (0..LogId::COUNT).filter_map(LogId::numbered);
        all.filter_map(|log| Some((log, self.store().log(log)?))).collect()
    }

    fn restore(
        &mut self,
        pages: &[PageId],
        park: bool,
        _world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let Some(first) = pages.first() else { return Ok(Spent::default()) };
        self.vpns.clear();
        self.vpns.extend(pages.iter().map(|page| page.vpn()));
        let back = self.programs.restore(first.space(), &self.vpns, park, events)?;
        // Nobody waits.
        let mut spent = Spent { wait_ns: 0.0, ..self.store().take_spent()? };
        let each = if park { self.costs.copy_ns } else { self.costs.put_ns };
        spent.kernel_ns += each * back as f64;
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

    fn compact(&mut self, _copies: u64) {}

    #[inline]
    fn pool_used_bytes(&self) -> u64 {
        self.store().used_bytes()
    }

    fn pool(&self) -> TierFacts {
        TierFacts {
            used_bytes: self.store().used_bytes(),
            limit_bytes: self.limits.mem_limit_bytes,
            pages: self.store().pages(),
            limit_pages: self.store().limit_pages(),
            ..TierFacts::default()
        }
    }

    #[inline]
    fn resident_pages(&self) -> u64 {
        self.programs.resident_pages()
    }

    #[inline]
    fn parked_pages(&self) -> u64 {
        self.programs.parked_pages()
    }

    fn tables_bytes(&self) -> u64 {
        self.programs.tables_bytes()
    }

    fn was_full(&self) -> bool {
        self.store().was_full()
    }
}
