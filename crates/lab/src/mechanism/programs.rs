//! The programs of a replay under the daemon's mover, whatever their memory and its store are made of.

use std::sync::Arc;

use clew_core::{Event, FrameFacts, PageCounts, PageFacts, PageId, PageRun, SpaceId, Tier, Vpn};
use clew_engine::{BlockStore, Fault, ManagedSpace, Memory, Mover, MoverContext, Parking};
use clew_store::{Journal, Space, State, Tables};

use super::Buffer;
use crate::error::LabError;
use crate::world::MAX_PAGES;

/// Address spaces that may live at once.
const MAX_SPACES: u32 = 1 << 14;

/// The mover with its programs.
pub(super) struct Programs<S: BlockStore, M: Memory<S::Unit>> {
    pub mover: Mover<S, M>,
    ctx: MoverContext<S>,
    tables: Arc<Tables>,
    journal: Arc<Journal>,
    spaces: Vec<Option<Arc<ManagedSpace<M>>>>,
    resident: u64,
}

pub(super) fn defect(page: PageId, what: &str) -> LabError {
    LabError::Defect { page, what: what.to_string(), record: 0 }
}

fn missing(space: SpaceId) -> LabError {
    defect(PageId::new(space, Vpn(0)), "its space is not there")
}

impl<S: BlockStore, M: Memory<S::Unit>> Programs<S, M> {
    /// Nobody yet.
    pub fn new(store: S, retain: bool, buffer: Option<Buffer>) -> Result<Self, LabError> {
        let parking =
            buffer.map_or(Parking::default(), |b| Parking { pages: b.pages, keep: b.keep });
        Ok(Programs {
            tables: Arc::new(Tables::new(MAX_PAGES)?),
            journal: Arc::new(Journal::new(MAX_SPACES, store.page_bytes() as u64)?),
            mover: Mover::new(store, retain, parking),
            ctx: MoverContext::default(),
            spaces: Vec::new(),
            resident: 0,
        })
    }

    /// A space begins, with this memory.
    pub fn start(&mut self, space: SpaceId, memory: M) -> Result<(), LabError> {
        let number = space.0 as usize;
        if self.spaces.len() <= number {
            self.spaces.resize_with(number + 1, || None);
        }
        let journal = self.journal.begin().ok_or_else(|| LabError::Setting {
            what: format!("space {}", space.0),
            why: format!("more than {MAX_SPACES} address spaces at once"),
        })?;
        let table = Space::new(space, Arc::clone(&self.tables));
        self.spaces[number] = Some(Arc::new(ManagedSpace::new(table, Arc::new(memory), journal)));
        Ok(())
    }

    /// A space is gone.
    pub fn end(&mut self, space: SpaceId) {
        self.with(space, |mover, managed, _| mover.end(managed));
        if let Some(slot) = self.spaces.get_mut(space.0 as usize) {
            *slot = None;
        }
    }

    #[inline]
    pub fn table(&self, space: SpaceId) -> Option<&Space> {
        self.spaces.get(space.0 as usize)?.as_ref().map(|managed| &managed.table)
    }

    /// None of a space that is not there: what was decided for it comes too late.
    pub fn memory(&self, space: SpaceId) -> Option<&M> {
        self.spaces.get(space.0 as usize)?.as_ref().map(|managed| &*managed.memory)
    }

    /// Does something with a space and keeps count of resident pages; nothing, where it is not.
    #[inline]
    pub fn with<T>(
        &mut self,
        space: SpaceId,
        act: impl FnOnce(&Mover<S, M>, &Arc<ManagedSpace<M>>, &mut MoverContext<S>) -> T,
    ) -> Option<T> {
        let managed = self.spaces.get(space.0 as usize)?.as_ref()?;
        let before = managed.table.resident();
        let done = act(&self.mover, managed, &mut self.ctx);
        self.resident = self.resident + managed.table.resident() - before;
        Some(done)
    }

    #[inline]
    pub fn state(&self, page: PageId) -> State {
        self.table(page.space()).map_or(State::Absent, |table| table.load(page.vpn()).state())
    }

    pub fn adopt(&mut self, run: PageRun, events: &mut Vec<Event>) -> Result<(), LabError> {
        let space = run.first.space();
        let adopted = self.with(space, |mover, managed, _| {
            let _lock = managed.table.lock.write();
            mover.adopt(managed, run.first.vpn(), u64::from(run.count), events);
        });
        adopted.ok_or_else(|| missing(space))
    }

    /// Answers a touch of a page that is not resident; true if it was stored or parked.
    #[inline]
    pub fn fault(&mut self, page: PageId, events: &mut Vec<Event>) -> Result<bool, LabError> {
        let fault = self.with(page.space(), |mover, managed, ctx| {
            let mut fault = {
                let _lock = managed.table.lock.read();
                mover.fault(managed, page.vpn(), ctx, events)
            };
            while let Fault::Far(awaited, far) = fault {
                let fetched = mover.store.fetch_now(far);
                let _lock = managed.table.lock.read();
                fault = mover.arrived(managed, awaited, fetched, ctx, events);
            }
            fault
        });
        match fault {
            Some(Fault::Restored) => Ok(true),
            Some(Fault::Fresh(_)) => Ok(false),
            Some(Fault::Corrupt(error)) => Err(defect(page, &error.to_string())),
            Some(_) => Err(defect(page, "a fault was answered with nothing")),
            None => Err(missing(page.space())),
        }
    }

    /// Brings pages of one space back (ascending), or parks them; how many.
    pub fn restore(
        &mut self,
        space: SpaceId,
        vpns: &[Vpn],
        park: bool,
        events: &mut Vec<Event>,
    ) -> Result<u64, LabError> {
        let restored = self.with(space, |mover, managed, ctx| match park {
            true => mover.park(managed, vpns, ctx, events),
            false => mover.restore(managed, vpns, ctx, events),
        });
        match restored {
            Some(restored) => match restored.corrupt {
                Some((vpn, error)) => Err(defect(PageId::new(space, vpn), &error.to_string())),
                None => Ok(restored.pages as u64),
            },
            None => Ok(0),
        }
    }

    pub fn free(&mut self, run: PageRun) {
        self.with(run.first.space(), |mover, managed, _| {
            let _lock = managed.table.lock.write();
            mover.forget(managed, run.first.vpn(), u64::from(run.count));
        });
    }

    pub fn moved(&mut self, from: PageRun, to: PageId) -> Result<(), LabError> {
        let space = from.first.space();
        let moved = self.with(space, |mover, managed, _| {
            let _lock = managed.table.lock.write();
            mover.remap(managed, from.first.vpn(), u64::from(from.count), to.vpn())?;
            managed.journal.set_step(0);
            Ok(())
        });
        moved.ok_or_else(|| missing(space))?
    }

    pub fn drop_kept(&mut self, page: PageId) -> Option<u64> {
        self.with(page.space(), |mover, managed, _| mover.drop_kept(managed, page.vpn()))?
    }

    #[inline]
    pub fn resident_pages(&self) -> u64 {
        self.resident
    }

    #[inline]
    pub fn parked_pages(&self) -> u64 {
        self.mover.parked_pages() as u64
    }

    pub fn tables_bytes(&self) -> u64 {
        self.tables.used_bytes()
    }
}

impl<S: BlockStore, M: Memory<S::Unit>> PageFacts for Programs<S, M> {
    fn tier(&self, page: PageId) -> Option<Tier> {
        let entry = self.table(page.space())?.load(page.vpn());
        (entry.state() == State::Stored).then(|| self.mover.tier_of(entry))
    }

    fn frame(&self, page: PageId) -> Option<FrameFacts> {
        let entry = self.table(page.space())?.load(page.vpn());
        self.mover.store.frame(entry.handle().filter(|_| entry.state() == State::Stored)?)
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        let mut counts = PageCounts::default();
        if let Some(table) = self.table(space) {
            let by_state = table.counts();
            counts.resident = by_state.resident;
            let stored = by_state.stored + by_state.parked;
            let far = by_state.flash + by_state.donors;
            counts.stored[Tier::Pool.index()] = stored - far.min(stored);
            counts.stored[Tier::Flash.index()] = by_state.flash;
            counts.stored[Tier::DONORS] = by_state.donors;
        }
        counts
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let Some(table) = self.table(space) else { return };
        table.for_range(Vpn(0), u64::MAX >> 20, |vpn, entry| {
            let page = PageId::new(table.id(), vpn);
            match entry.state() {
                State::Resident => visit(page, None),
                State::Stored => visit(page, Some(self.mover.tier_of(entry))),
                State::Absent | State::Moving | State::Restoring | State::Parked | State::Lent => {}
            }
        });
    }
}
