//! The kernel's zram beside a mechanism, always modelled: a replay has no kernel. A page that is lent
//! takes what LZ4 makes of a page by itself according to the table of costs, and comes back by a fault of
//! the kernel's own, without a message to anybody.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{
    AccessKind, CodecKind, Event, FlashForm, FrameFacts, Group, PageCounts, PageFacts, PageId,
    PageRun, SpaceId, Tier, TierFacts,
};
use clew_store::State;
use clew_store::flash::LogId;

use super::Mechanism;
use crate::costs::{CodecCost, Costs, Spent};
use crate::error::LabError;
use crate::world::World;

/// Pages that are lent.
#[derive(Default)]
struct Lent {
    spaces: BTreeMap<SpaceId, BTreeSet<PageId>>,
    pages: u64,
}

impl Lent {
    fn contains(&self, page: PageId) -> bool {
        self.pages > 0 && self.spaces.get(&page.space()).is_some_and(|of| of.contains(&page))
    }

    fn of(&self, space: SpaceId) -> u64 {
        self.spaces.get(&space).map_or(0, |of| of.len() as u64)
    }

    fn insert(&mut self, page: PageId) -> bool {
        let is_new = self.spaces.entry(page.space()).or_default().insert(page);
        self.pages += u64::from(is_new);
        is_new
    }

    fn remove(&mut self, page: PageId) -> bool {
        let was_there = self.contains(page)
            && self.spaces.get_mut(&page.space()).is_some_and(|of| of.remove(&page));
        self.pages -= u64::from(was_there);
        was_there
    }

    /// Removes those of `run`; which these were.
    fn take(&mut self, run: PageRun) -> Vec<PageId> {
        let Some(of) = self.spaces.get_mut(&run.first.space()) else { return Vec::new() };
        let taken: Vec<PageId> = of.range(run.range()).copied().collect();
        taken.iter().for_each(|page| {
            of.remove(page);
        });
        self.pages -= taken.len() as u64;
        taken
    }

    fn end(&mut self, space: SpaceId) {
        self.pages -= self.spaces.remove(&space).map_or(0, |of| of.len() as u64);
    }
}

/// A mechanism, and a kernel that swaps to zram.
pub struct WithKernel<M> {
    inner: M,
    /// For the mechanism below these are resident.
    lent: Lent,
    cost: CodecCost,
    costs: Costs,
    page_bytes: u32,
    /// What the tier may take; none, where the scheme does not use it.
    limit_bytes: u64,
}

impl<M: Mechanism> WithKernel<M> {
    /// `limit_bytes`: what lent pages may take together.
    ///
    /// # Errors
    /// The table of costs does not know LZ4.
    pub fn new(
        inner: M,
        costs: &Costs,
        page_bytes: u32,
        limit_bytes: u64,
    ) -> Result<WithKernel<M>, LabError> {
        let cost = costs.codec(CodecKind::Lz4, page_bytes, page_bytes)?;
        let (lent, costs) = (Lent::default(), costs.clone());
        Ok(WithKernel { inner, lent, cost, costs, page_bytes, limit_bytes })
    }

    /// What a lent page takes.
    fn lent_page_bytes(&self) -> u32 {
        (f64::from(self.page_bytes) / self.cost.ratio.max(1.0)) as u32
    }

    /// How full the tier is, where the scheme uses it.
    pub fn kernel(&self) -> Option<TierFacts> {
        (self.limit_bytes > 0).then(|| TierFacts {
            used_bytes: self.kernel_used_bytes(),
            limit_bytes: self.limit_bytes,
            pages: self.lent.pages,
            limit_pages: u64::MAX,
            ..TierFacts::default()
        })
    }

    /// Memory that lent pages take.
    #[inline]
    pub fn kernel_used_bytes(&self) -> u64 {
        self.lent.pages * u64::from(self.lent_page_bytes())
    }

    /// Gives pages of one space to the kernel's zram; those that are stored come back first.
    pub fn lend(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let mut pages: Vec<PageId> =
            groups.iter().flat_map(|group| group.pages.iter().copied()).collect();
        pages.sort_unstable();
        let mut spent = Spent::default();
        let stored: Vec<PageId> = pages
            .iter()
            .copied()
            .filter(|page| matches!(self.state(*page), State::Stored | State::Parked))
            .collect();
        if !stored.is_empty() {
            let mut came = Vec::new();
            spent += self.inner.restore(&stored, false, world, &mut came)?;
            // Nobody needs to hear of what goes on at once that it came.
            came.retain(|event| match event {
                Event::PageIn { page, .. } => stored.binary_search(page).is_err(),
                _ => true,
            });
            events.append(&mut came);
        }
        let bytes = self.lent_page_bytes();
        for page in pages.into_iter().filter(|page| page.space() == space) {
            if self.inner.state(page) == State::Resident && self.lent.insert(page) {
                self.inner.drop_kept(page);
                spent.out_ns += self.cost.out_ns;
                spent.kernel_ns += self.costs.take_ns;
                spent.compressed_pages += 1;
                events.push(Event::Stored { page, tier: Tier::Kernel, bytes });
            }
        }
        Ok(spent)
    }
}

impl<M: Mechanism> PageFacts for WithKernel<M> {
    #[inline]
    fn tier(&self, page: PageId) -> Option<Tier> {
        if self.lent.contains(page) { Some(Tier::Kernel) } else { self.inner.tier(page) }
    }

    #[inline]
    fn counts(&self, space: SpaceId) -> PageCounts {
        let mut counts = self.inner.counts(space);
        let lent = if self.lent.pages > 0 { self.lent.of(space) } else { 0 };
        counts.resident -= lent;
        counts.stored[Tier::Kernel.index()] = lent;
        counts
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        self.inner.for_each(space, &mut |page, tier| match self.lent.contains(page) {
            true => visit(page, Some(Tier::Kernel)),
            false => visit(page, tier),
        });
    }

    fn may_have_copy(&self, page: PageId) -> bool {
        self.inner.may_have_copy(page)
    }

    fn frame(&self, page: PageId) -> Option<FrameFacts> {
        self.inner.frame(page)
    }
}

impl<M: Mechanism> Mechanism for WithKernel<M> {
    fn start(&mut self, space: SpaceId) -> Result<(), LabError> {
        self.inner.start(space)
    }

    fn end(&mut self, space: SpaceId) {
        self.lent.end(space);
        self.inner.end(space);
    }

    #[inline]
    fn state(&self, page: PageId) -> State {
        if self.lent.contains(page) { State::Lent } else { self.inner.state(page) }
    }

    fn adopt(&mut self, run: PageRun, events: &mut Vec<Event>) -> Result<(), LabError> {
        self.inner.adopt(run, events)
    }

    fn fault(
        &mut self,
        page: PageId,
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        if !self.lent.remove(page) {
            return self.inner.fault(page, world, events);
        }
        events.push(Event::Access { page, kind: AccessKind::Fault, write: false });
        events.push(Event::PageIn { page, tier: Tier::Kernel, demand: true });
        let (back_ns, kernel_ns) = (self.cost.back_ns, self.costs.put_ns);
        let wait_ns = back_ns + kernel_ns;
        Ok(Spent { back_ns, kernel_ns, wait_ns, decompressed_pages: 1, ..Spent::default() })
    }

    fn beginning_of(
        &mut self,
        page: PageId,
        bytes: usize,
        world: Option<&World<'_>>,
    ) -> Result<Vec<u8>, LabError> {
        self.inner.beginning_of(page, bytes, world)
    }

    fn written(&mut self, page: PageId) {
        self.inner.written(page);
    }

    fn swap_out(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        let mut back = Spent::default();
        let groups_with_lent = if self.lent.pages > 0 { groups } else { &[] };
        for page in groups_with_lent.iter().flat_map(|group| group.pages.iter()) {
            if self.lent.remove(*page) {
                back.back_ns += self.cost.back_ns;
                back.kernel_ns += self.costs.put_ns;
                back.decompressed_pages += 1;
            }
        }
        let mut spent = self.inner.swap_out(space, groups, world, events)?;
        spent += back;
        Ok(spent)
    }

    fn put_far(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        to: (LogId, FlashForm),
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        self.inner.put_far(space, groups, to, world, events)
    }

    fn evict(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        to: (LogId, FlashForm),
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        self.inner.evict(space, groups, to, events)
    }

    fn repack(&mut self, space: SpaceId, groups: &[Group]) -> Result<Spent, LabError> {
        self.inner.repack(space, groups)
    }

    fn logs(&self) -> Vec<(LogId, TierFacts)> {
        self.inner.logs()
    }

    fn restore(
        &mut self,
        pages: &[PageId],
        park: bool,
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError> {
        self.inner.restore(pages, park, world, events)
    }

    fn free(&mut self, run: PageRun) {
        self.lent.take(run);
        self.inner.free(run);
    }

    fn moved(&mut self, from: PageRun, to: PageId) -> Result<(), LabError> {
        let moved = self.lent.take(from);
        self.lent.take(PageRun { first: to, ..from });
        for page in moved {
            self.lent.insert(to.plus(page.raw() - from.first.raw()));
        }
        self.inner.moved(from, to)
    }

    fn drop_kept(&mut self, page: PageId) -> Option<u64> {
        self.inner.drop_kept(page)
    }

    fn compact(&mut self, copies: u64) {
        self.inner.compact(copies);
    }

    fn pool_used_bytes(&self) -> u64 {
        self.inner.pool_used_bytes()
    }

    fn pool(&self) -> TierFacts {
        self.inner.pool()
    }

    #[inline]
    fn resident_pages(&self) -> u64 {
        self.inner.resident_pages() - self.lent.pages
    }

    fn parked_pages(&self) -> u64 {
        self.inner.parked_pages()
    }

    fn tables_bytes(&self) -> u64 {
        self.inner.tables_bytes()
    }

    fn was_full(&self) -> bool {
        self.inner.was_full()
    }
}
