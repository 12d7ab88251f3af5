//! Mechanism: moves pages between programs and the store, and keeps the page table true.
//!
//! `Resident -> Moving -> Stored -> Restoring -> Resident`; `Absent` is memory that holds nothing.
//!
//! Invariants:
//! - Events (removed, remapped, unmapped, forked) are read and applied under `table.lock` held for
//!   writing. Whoever puts a page holds it for reading, and looks at the entry again after taking
//!   it. The kernel refuses a put while an event is unread, so a put never brings back what the
//!   program gave up.
//! - Only `Resident` pages are taken out. A page that is present but `Absent` here may still be
//!   about to be dropped by a madvise whose event was read: it is left alone until the program
//!   touches it afresh, or until it was seen that no such call is under way.
//! - An entry owns one reference of the handle it names. A `Restoring` entry has lent its reference
//!   to the restorer; whoever turns such an entry into something else leaves the release to him.
//! - A batch ends by publishing every page it marked: no entry stays `Moving`.
//! - No lock of a space is held while waiting for another process: `take_out` runs without.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clew_core::{Event, Group, PageId, PageRun, Tier, Vpn};
use clew_store::table::Refused;
use clew_store::{CodecContext, Entry, Handle, PutError, ReadError, State, Store};

use crate::space::{MAX_BATCH, ManagedSpace, PutStop, Remap, Took};

/// Pages put by one call while restoring.
const RESTORE_RUN: usize = 32;

/// Scratch space of one thread.
pub struct MoverContext {
    /// The codecs' scratch.
    pub codec: CodecContext,
    pages: Vec<u8>,
}

impl Default for MoverContext {
    fn default() -> Self {
        MoverContext { codec: CodecContext::new(), pages: Vec::new() }
    }
}

/// Counts since the beginning.
#[derive(Debug, Default)]
pub struct MoverCounters {
    /// Pages taken out and stored.
    pub swapped_out: AtomicU64,
    /// Of these, pages whose kept copy was still valid.
    pub reused: AtomicU64,
    /// Of these, pages of zeros.
    pub zeros: AtomicU64,
    /// Pages taken out and given back at once: asked for meanwhile, or no room.
    pub returned: AtomicU64,
    /// Pages brought back by a fault.
    pub demand: AtomicU64,
    /// Pages brought back by restore.
    pub restored: AtomicU64,
    /// Faults on memory that held nothing.
    pub fresh: AtomicU64,
    /// Faults on pages that were back already.
    pub spurious: AtomicU64,
    /// Pages that were present where the table said stored. Never seen; a defect if it happens.
    pub conflicts: AtomicU64,
    /// Stored copies whose checksum was wrong.
    pub corrupt: AtomicU64,
}

/// A page in `state` with the block that holds its copy, if any.
fn page_entry(state: State, handle: Option<Handle>, index: u16) -> Entry {
    match handle {
        Some(handle) => Entry::with_block(state, handle, index),
        None => Entry::new(state),
    }
}

/// Writes an entry that must not be lost.
fn set(space: &ManagedSpace, vpn: Vpn, entry: Entry) {
    if let Err(error) = space.table.store(vpn, entry) {
        // Going on would let a program read zeros where its data was. Dying does not: the keeper
        // holds the descriptors, and programs wait.
        eprintln!("clew: the page table cannot grow ({error}): stopping before a page is lost");
        std::process::abort();
    }
}

/// The entry that stood in the way of an exchange; the tables of known entries exist.
fn found(refused: Refused) -> Entry {
    match refused {
        Refused::Found(entry) => entry,
        Refused::Table(_) => Entry::ABSENT,
    }
}

fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

/// How a fault was answered.
#[derive(Debug)]
pub enum Fault {
    /// The stored page is back.
    Restored,
    /// Fresh zeros, this many pages.
    Fresh(u32),
    /// It was there already.
    Spurious,
    /// It is on its way; whoever moves it will wake the program.
    Waiting,
    /// The program is changing its mappings: read events, then ask again.
    Again,
    /// The program or the mapping is gone.
    Gone,
    /// The stored copy is damaged. The program must not go on.
    Corrupt(ReadError),
}

/// What a swap-out did.
#[derive(Debug, Default)]
pub struct SwapOut {
    /// For the policies.
    pub events: Vec<Event>,
    /// Pages stored.
    pub stored: usize,
    /// The pool had no room.
    pub full: Option<PutError>,
}

/// What a restore did.
#[derive(Debug, Default)]
pub struct Restored {
    /// Pages brought back.
    pub pages: usize,
    /// A damaged copy, and where.
    pub corrupt: Option<(Vpn, ReadError)>,
}

/// Moves pages of any space in and out of one store.
pub struct Mover {
    /// The store.
    pub store: Arc<Store>,
    /// What it counted.
    pub counters: MoverCounters,
    /// A copy is kept after its page came back.
    retain: bool,
    page_bytes: usize,
}

/// Where the bytes of a page that left went.
#[derive(Clone, Copy)]
enum Home {
    /// A copy in the store; the publisher owns one reference. `None` is the page of zeros.
    Stored(Option<Handle>, u16),
    /// Nowhere: it must go back.
    Nowhere,
}

impl Mover {
    /// Moves pages in and out of `store`.
    pub fn new(store: Arc<Store>, retain: bool) -> Mover {
        let page_bytes = store.config().page_bytes;
        Mover { store, counters: MoverCounters::default(), retain, page_bytes }
    }

    // ---- out -------------------------------------------------------------------------------

    /// Takes the groups' pages out and stores them. The groups' pages are of this space, ascending
    /// over all groups; pages that are not resident are skipped.
    pub fn swap_out(
        &self,
        space: &Arc<ManagedSpace>,
        groups: &[Group],
        ctx: &mut MoverContext,
    ) -> SwapOut {
        let mut out = SwapOut::default();
        let _one_batch = space.batch.lock();
        let mut start = 0;
        while start < groups.len() && out.full.is_none() {
            let mut end = start + 1;
            let mut pages = groups[start].pages.len();
            while end < groups.len() && pages + groups[end].pages.len() <= MAX_BATCH {
                pages += groups[end].pages.len();
                end += 1;
            }
            let busy = self.batch(space, &groups[start..end], ctx, &mut out);
            if !busy.is_empty() && out.full.is_none() && space.memory.unshare(&busy) {
                let again: Vec<Group> = groups[start..end]
                    .iter()
                    .map(|g| Group {
                        pages: g
                            .pages
                            .iter()
                            .copied()
                            .filter(|p| busy.binary_search(&p.vpn()).is_ok())
                            .collect(),
                        ..g.clone()
                    })
                    .filter(|g| !g.pages.is_empty())
                    .collect();
                self.batch(space, &again, ctx, &mut out);
            }
            start = end;
        }
        out
    }

    /// One batch; returns the busy pages, ascending.
    fn batch(
        &self,
        space: &Arc<ManagedSpace>,
        groups: &[Group],
        ctx: &mut MoverContext,
        out: &mut SwapOut,
    ) -> Vec<Vpn> {
        let mut vpns = Vec::with_capacity(MAX_BATCH);
        let mut group_ends = Vec::with_capacity(groups.len());
        {
            let _events = space.table.lock.write();
            space.memory.hold_events();
            space.batch_active.store(true, Ordering::Release);
            for group in groups {
                for page in &group.pages {
                    let entry = space.table.load(page.vpn());
                    if entry.state() == State::Resident && vpns.len() < MAX_BATCH {
                        set(space, page.vpn(), entry.with_state(State::Moving));
                        vpns.push(page.vpn());
                    }
                }
                group_ends.push(vpns.len());
            }
        }
        let mut took = Vec::with_capacity(vpns.len());
        if !vpns.is_empty() {
            space.memory.take_out(&vpns, &mut took);
        }
        space.memory.release_events();
        took.resize(vpns.len(), Took::Stayed);

        let mut busy = Vec::new();
        let mut first = 0;
        for (group, end) in groups.iter().zip(group_ends) {
            self.store_group(space, group, &vpns[first..end], &took[first..end], first, ctx, out);
            busy.extend((first..end).filter(|i| took[*i] == Took::Busy).map(|i| vpns[i]));
            first = end;
        }
        {
            // New children must not join a batch that is over.
            let _events = space.table.lock.write();
            space.batch_active.store(false, Ordering::Release);
            space.remaps.lock().clear();
            for child in space.dependents.lock().drain(..) {
                end_dependence(&child);
            }
        }
        if !vpns.is_empty() {
            space.memory.release_taken();
        }
        busy
    }

    #[allow(clippy::too_many_arguments)]
    fn store_group(
        &self,
        space: &Arc<ManagedSpace>,
        group: &Group,
        vpns: &[Vpn],
        took: &[Took],
        first_slot: usize,
        ctx: &mut MoverContext,
        out: &mut SwapOut,
    ) {
        let page = self.page_bytes;
        let mut bytes = std::mem::take(&mut ctx.pages);
        bytes.clear();
        // Which of the group's pages still need a place in a block, by their order in `bytes`.
        let mut fresh: Vec<Vpn> = Vec::with_capacity(vpns.len());
        for (i, vpn) in vpns.iter().copied().enumerate() {
            match took[i] {
                Took::Taken => {}
                Took::Hole => {
                    self.publish_missing(space, vpn, State::Absent);
                    continue;
                }
                Took::Busy | Took::Stayed => {
                    self.publish_missing(space, vpn, State::Resident);
                    out.events.push(Event::Stayed { page: PageId::new(space.id(), vpn) });
                    continue;
                }
            }
            let at = bytes.len();
            bytes.resize(at + page, 0);
            space.memory.copy_taken(first_slot + i, &mut bytes[at..]);
            match self.without_compressing(space, vpn, &bytes[at..]) {
                Some(home) => {
                    self.publish(space, vpn, home, &bytes[at..], out);
                    bytes.truncate(at);
                }
                None => fresh.push(vpn),
            }
        }
        if !fresh.is_empty() {
            let put = match &out.full {
                // No room a moment ago; the rest of the batch goes back without trying.
                Some(_) => None,
                None => match self.store.put(&mut ctx.codec, &bytes, group.codec, group.chunk_bytes)
                {
                    Ok(handle) => Some(handle),
                    Err(full) => {
                        out.full = Some(full);
                        None
                    }
                },
            };
            for (i, vpn) in fresh.into_iter().enumerate() {
                let home = match put {
                    Some(handle) => Home::Stored(Some(handle), i as u16),
                    None => Home::Nowhere,
                };
                self.publish(space, vpn, home, &bytes[i * page..(i + 1) * page], out);
            }
        }
        ctx.pages = bytes;
    }

    /// The page's home, where finding one takes no codec: it is wanted back already, it is all
    /// zeros, or its kept copy is still valid.
    fn without_compressing(
        &self,
        space: &ManagedSpace,
        vpn: Vpn,
        bytes: &[u8],
    ) -> Option<Home> {
        let entry = space.table.load(space.translate(vpn));
        if entry.has(Entry::WANTED) || entry.has(Entry::REMOVED) {
            return Some(Home::Nowhere);
        }
        if bytes.iter().all(|b| *b == 0) {
            count(&self.counters.zeros, 1);
            return Some(Home::Stored(None, 0));
        }
        let kept = entry.handle()?;
        if self.store.checksum(kept, entry.index()) != self.store.hash(bytes) {
            return None;
        }
        // Events may take the entry's own reference away before this is published.
        self.store.retain(kept);
        count(&self.counters.reused, 1);
        Some(Home::Stored(Some(kept), entry.index()))
    }

    /// Ends `Moving` for a page that was not taken: it is `state` again.
    fn publish_missing(&self, space: &Arc<ManagedSpace>, vpn: Vpn, state: State) {
        let guard = space.table.lock.read();
        let children: Vec<_> = space.dependents.lock().clone();
        for child in children {
            self.publish_missing(&child, vpn, state);
        }
        let vpn = space.translate(vpn);
        let entry = self.replace_moving(space, vpn, |entry| {
            if entry.has(Entry::REMOVED) || state == State::Absent {
                Entry::ABSENT
            } else {
                page_entry(State::Resident, entry.handle(), entry.index())
            }
        });
        drop(guard);
        let Some(entry) = entry else { return };
        if (entry.has(Entry::REMOVED) || state == State::Absent)
            && let Some(kept) = entry.handle()
        {
            self.store.release(kept);
        }
        if entry.has(Entry::WANTED) {
            space.memory.wake(vpn, 1);
        }
    }

    /// Ends `Moving` for a page that was taken. Consumes one reference of the home's handle.
    fn publish(
        &self,
        space: &Arc<ManagedSpace>,
        vpn: Vpn,
        home: Home,
        bytes: &[u8],
        out: &mut SwapOut,
    ) {
        // Children first, without this space's lock: a put may have to wait for a child's events.
        let mut told = 0;
        loop {
            let late: Vec<_> = space.dependents.lock()[told..].to_vec();
            told += late.len();
            for child in late {
                if let Home::Stored(Some(handle), _) = home {
                    self.store.retain(handle);
                }
                self.publish(&child, vpn, home, bytes, &mut SwapOut::default());
            }
            let guard = space.table.lock.read();
            if space.dependents.lock().len() != told {
                continue; // forked since
            }
            let at = space.translate(vpn);
            let page = PageId::new(space.id(), at);
            let entry = space.table.load(at);
            if entry.state() != State::Moving {
                // Its space was torn down around it.
                self.release_home(home);
                return;
            }
            if entry.has(Entry::REMOVED) {
                let entry = self.replace_moving(space, at, |_| Entry::ABSENT);
                drop(guard);
                self.release_home(home);
                if let Some(entry) = entry {
                    entry.handle().inspect(|kept| {
                        self.store.release(*kept);
                    });
                    if entry.has(Entry::WANTED) {
                        space.memory.wake(at, 1);
                    }
                }
                return;
            }
            let back = entry.has(Entry::WANTED) || matches!(home, Home::Nowhere);
            if !back && let Home::Stored(handle, index) = home {
                let new = page_entry(State::Stored, handle, index);
                if space.table.compare_exchange(at, entry, new).is_err() {
                    continue; // wanted since
                }
                drop(guard);
                if let Some(kept) = entry.handle() {
                    self.store.release(kept);
                }
                let stored = handle.map_or(0, |h| {
                    self.store.stored_bytes(h) / u32::from(self.store.block_pages(h).max(1))
                });
                count(&self.counters.swapped_out, 1);
                out.stored += 1;
                out.events.push(Event::Stored { page, tier: Tier::Pool, bytes: stored });
                return;
            }
            let put = space.memory.put(at, bytes);
            if put.stop == Some(PutStop::Again) {
                drop(guard);
                std::thread::yield_now();
                continue;
            }
            // Back, or the mapping is gone and its event will say so.
            let entry = self.replace_moving(space, at, |_| page_entry(State::Resident, None, 0));
            drop(guard);
            self.release_home(home);
            if let Some(kept) = entry.and_then(|e| e.handle()) {
                self.store.release(kept);
            }
            if put.stop == Some(PutStop::Exists) {
                count(&self.counters.conflicts, 1);
                space.memory.wake(at, 1);
            }
            count(&self.counters.returned, 1);
            out.events.push(Event::Stayed { page });
            return;
        }
    }

    fn release_home(&self, home: Home) {
        if let Home::Stored(Some(handle), _) = home {
            self.store.release(handle);
        }
    }

    /// Replaces a `Moving` entry, whatever flags it gains meanwhile; returns the old one.
    fn replace_moving(
        &self,
        space: &ManagedSpace,
        vpn: Vpn,
        new: impl Fn(Entry) -> Entry,
    ) -> Option<Entry> {
        loop {
            let entry = space.table.load(vpn);
            if entry.state() != State::Moving {
                return None;
            }
            if space.table.compare_exchange(vpn, entry, new(entry)).is_ok() {
                return Some(entry);
            }
        }
    }

    // ---- back ------------------------------------------------------------------------------

    /// Answers a fault at `vpn`. The caller holds `table.lock` for reading and has applied every
    /// event that was readable before the fault.
    pub fn fault(&self, space: &ManagedSpace, vpn: Vpn, ctx: &mut MoverContext) -> Fault {
        loop {
            let entry = space.table.load(vpn);
            match entry.state() {
                State::Absent => return self.fresh(space, vpn),
                State::Resident => {
                    // Restored a moment ago, and this only wakes the program; or dropped by the
                    // program between our reading its event and its return, and zeros are due.
                    let put = space.memory.put_zero(vpn, 1);
                    return match put.stop {
                        Some(PutStop::Exists) => {
                            space.memory.wake(vpn, 1);
                            count(&self.counters.spurious, 1);
                            Fault::Spurious
                        }
                        Some(PutStop::Again) => Fault::Again,
                        Some(PutStop::Gone) => Fault::Gone,
                        None => {
                            count(&self.counters.fresh, 1);
                            Fault::Fresh(1)
                        }
                    };
                }
                State::Moving => {
                    if space.table.compare_exchange(vpn, entry, entry.with(Entry::WANTED)).is_ok() {
                        return Fault::Waiting;
                    }
                }
                State::Restoring => return Fault::Waiting,
                State::Parked => return Fault::Waiting,
                State::Stored => {
                    let lent = entry.with_state(State::Restoring);
                    if space.table.compare_exchange(vpn, entry, lent).is_err() {
                        continue;
                    }
                    return self.fault_stored(space, vpn, entry, ctx);
                }
            }
        }
    }

    fn fault_stored(
        &self,
        space: &ManagedSpace,
        vpn: Vpn,
        entry: Entry,
        ctx: &mut MoverContext,
    ) -> Fault {
        let put = match entry.handle() {
            None => space.memory.put_zero(vpn, 1),
            Some(handle) => {
                ctx.pages.resize(self.page_bytes, 0);
                let out = &mut ctx.pages[..self.page_bytes];
                if let Err(error) = self.store.get(&mut ctx.codec, handle, entry.index(), out) {
                    set(space, vpn, entry);
                    count(&self.counters.corrupt, 1);
                    return Fault::Corrupt(error);
                }
                space.memory.put(vpn, out)
            }
        };
        match put.stop {
            None => {
                self.back(space, vpn, entry);
                count(&self.counters.demand, 1);
                Fault::Restored
            }
            Some(PutStop::Exists) => {
                self.back(space, vpn, entry);
                count(&self.counters.conflicts, 1);
                space.memory.wake(vpn, 1);
                Fault::Spurious
            }
            Some(stop) => {
                set(space, vpn, entry);
                if stop == PutStop::Again { Fault::Again } else { Fault::Gone }
            }
        }
    }

    /// The page of a `Restoring` entry is in the program again. The read lock is held.
    fn back(&self, space: &ManagedSpace, vpn: Vpn, stored: Entry) {
        let kept = if self.retain { stored.handle() } else { None };
        set(space, vpn, page_entry(State::Resident, kept, stored.index()));
        if kept.is_none()
            && let Some(handle) = stored.handle()
        {
            self.store.release(handle);
        }
    }

    fn fresh(&self, space: &ManagedSpace, vpn: Vpn) -> Fault {
        let wish = space.memory.fresh_run(vpn).max(1);
        let mut run = 1;
        while run < wish && space.table.load(Vpn(vpn.0 + run as u64)) == Entry::ABSENT {
            run += 1;
        }
        let mut put = space.memory.put_zero(vpn, run);
        if put.pages == 0 && run > 1 && put.stop == Some(PutStop::Gone) {
            // The run left the mapping.
            put = space.memory.put_zero(vpn, 1);
        }
        for i in 0..put.pages as u64 {
            set(space, Vpn(vpn.0 + i), page_entry(State::Resident, None, 0));
        }
        if put.pages > 0 {
            count(&self.counters.fresh, 1);
            return Fault::Fresh(put.pages as u32);
        }
        match put.stop {
            Some(PutStop::Exists) => {
                space.memory.wake(vpn, 1);
                count(&self.counters.spurious, 1);
                Fault::Spurious
            }
            Some(PutStop::Gone) => Fault::Gone,
            Some(PutStop::Again) | None => Fault::Again,
        }
    }

    /// Brings stored pages back: `vpns` ascending. Pages that are not stored are skipped.
    pub fn restore(
        &self,
        space: &ManagedSpace,
        vpns: &[Vpn],
        ctx: &mut MoverContext,
        events: &mut Vec<Event>,
    ) -> Restored {
        let mut result = Restored::default();
        let mut run: Vec<(Vpn, Entry)> = Vec::with_capacity(RESTORE_RUN);
        for (i, vpn) in vpns.iter().copied().enumerate() {
            let entry = space.table.load(vpn);
            let lent = entry.with_state(State::Restoring);
            if entry.state() == State::Stored
                && space.table.compare_exchange(vpn, entry, lent).is_ok()
            {
                run.push((vpn, entry));
            }
            let ends = vpns.get(i + 1).is_none_or(|next| next.0 != vpn.0 + 1);
            if !run.is_empty() && (ends || run.len() == RESTORE_RUN) {
                result.pages += self.restore_run(space, &run, ctx, events, &mut result.corrupt);
                run.clear();
                if result.corrupt.is_some() {
                    break;
                }
            }
        }
        count(&self.counters.restored, result.pages);
        result
    }

    fn restore_run(
        &self,
        space: &ManagedSpace,
        run: &[(Vpn, Entry)],
        ctx: &mut MoverContext,
        events: &mut Vec<Event>,
        corrupt: &mut Option<(Vpn, ReadError)>,
    ) -> usize {
        let page = self.page_bytes;
        ctx.pages.resize((RESTORE_RUN * page).max(ctx.pages.len()), 0);
        let mut good = 0;
        for (vpn, entry) in run {
            let out = &mut ctx.pages[good * page..(good + 1) * page];
            match entry.handle() {
                None => out.fill(0),
                Some(handle) => {
                    if let Err(e) = self.store.get(&mut ctx.codec, handle, entry.index(), out) {
                        count(&self.counters.corrupt, 1);
                        *corrupt = Some((*vpn, e));
                        break;
                    }
                }
            }
            good += 1;
        }
        let mut done = 0;
        let mut back = 0;
        while done < run.len() {
            let guard = space.table.lock.read();
            // Pages that the program gave up meanwhile are no longer Restoring.
            let still = |(vpn, entry): &(Vpn, Entry)| {
                space.table.load(*vpn) == entry.with_state(State::Restoring)
            };
            let (vpn, entry) = run[done];
            if !still(&run[done]) {
                drop(guard);
                if let Some(handle) = entry.handle() {
                    self.store.release(handle);
                }
                done += 1;
                continue;
            }
            if done >= good {
                set(space, vpn, entry);
                done += 1;
                continue;
            }
            // The pages of a run are neighbours unless one was skipped between them.
            let n = (done..good)
                .take_while(|i| run[*i].0.0 == vpn.0 + (*i - done) as u64 && still(&run[*i]))
                .count();
            let put = space.memory.put(vpn, &ctx.pages[done * page..(done + n) * page]);
            for (vpn, entry) in &run[done..done + put.pages] {
                self.back(space, *vpn, *entry);
                let page = PageId::new(space.id(), *vpn);
                events.push(Event::PageIn { page, tier: Tier::Pool, demand: false });
            }
            done += put.pages;
            back += put.pages;
            match put.stop {
                None => {}
                Some(PutStop::Again) => {
                    drop(guard);
                    std::thread::yield_now();
                }
                Some(PutStop::Exists) => {
                    let (vpn, entry) = run[done];
                    self.back(space, vpn, entry);
                    count(&self.counters.conflicts, 1);
                    space.memory.wake(vpn, 1);
                    done += 1;
                }
                Some(PutStop::Gone) => {
                    let (vpn, entry) = run[done];
                    set(space, vpn, entry);
                    done += 1;
                }
            }
        }
        back
    }

    // ---- what programs do with their memory -------------------------------------------------
    // All of these are called with `table.lock` held for writing.

    /// Pages present in a mapping that has just been registered.
    pub fn adopt(&self, space: &ManagedSpace, first: Vpn, pages: u64, events: &mut Vec<Event>) {
        let mut from = None;
        for vpn in first.0..=first.0 + pages {
            let new = vpn < first.0 + pages && space.table.load(Vpn(vpn)) == Entry::ABSENT;
            if new {
                set(space, Vpn(vpn), page_entry(State::Resident, None, 0));
                from.get_or_insert(vpn);
            } else if let Some(start) = from.take() {
                let first = PageId::new(space.id(), Vpn(start));
                events.push(Event::Resident {
                    run: PageRun { first, count: (vpn - start) as u32 },
                });
            }
        }
    }

    /// The program gave these pages up (madvise, munmap).
    pub fn forget(&self, space: &ManagedSpace, first: Vpn, pages: u64) {
        let mut known = Vec::new();
        space.table.for_range(first, pages, |vpn, entry| known.push((vpn, entry)));
        for (vpn, mut entry) in known {
            loop {
                let new = match entry.state() {
                    State::Moving => entry.with(Entry::REMOVED),
                    _ => Entry::ABSENT,
                };
                match space.table.compare_exchange(vpn, entry, new) {
                    Ok(_) => break,
                    Err(refused) => entry = found(refused),
                }
            }
            if matches!(entry.state(), State::Resident | State::Stored)
                && let Some(handle) = entry.handle()
            {
                self.store.release(handle);
            }
        }
    }

    /// The program moved these pages (mremap).
    pub fn remap(&self, space: &ManagedSpace, from: Vpn, pages: u64, to: Vpn) {
        if from == to {
            return;
        }
        self.forget(space, to, pages);
        let mut known = Vec::new();
        space.table.for_range(from, pages, |vpn, entry| known.push((vpn, entry)));
        for (vpn, mut entry) in known {
            // A restorer has borrowed the reference and looks for its entry at the old address:
            // the moved entry gets one of its own.
            loop {
                match space.table.compare_exchange(vpn, entry, Entry::ABSENT) {
                    Ok(_) => break,
                    Err(refused) => entry = found(refused),
                }
            }
            let moved = match (entry.state(), entry.handle()) {
                (State::Restoring, handle) => {
                    handle.inspect(|h| { self.store.retain(*h); });
                    entry.with_state(State::Stored)
                }
                _ => entry,
            };
            set(space, Vpn(vpn.0 - from.0 + to.0), moved);
            if entry.state() == State::Restoring {
                // Whoever waits at the new address asked before; let it ask again.
                space.memory.wake(Vpn(vpn.0 - from.0 + to.0), 1);
            }
        }
        if space.in_batch() {
            space.remaps.lock().push(Remap { from, count: pages, to });
        }
    }

    /// The program forked: fills the child's table. What is stored is shared by reference.
    pub fn fork(&self, parent: &Arc<ManagedSpace>, child: &Arc<ManagedSpace>) {
        let mut known = Vec::new();
        parent.table.for_range(Vpn(0), u64::MAX >> 20, |vpn, entry| known.push((vpn, entry)));
        for (vpn, entry) in known {
            let copy = match entry.state() {
                State::Resident => page_entry(State::Resident, None, 0),
                State::Stored | State::Restoring => {
                    entry.handle().inspect(|h| { self.store.retain(*h); });
                    entry.with_state(State::Stored)
                }
                // Its bytes are on the way; the parent's batch publishes them to the child too.
                State::Moving if entry.has(Entry::REMOVED) => continue,
                State::Moving => page_entry(State::Moving, None, 0),
                State::Absent | State::Parked => continue,
            };
            set(child, vpn, copy);
        }
        if parent.in_batch() {
            child.remaps.lock().clone_from(&parent.remaps.lock());
            child.batch_active.store(true, Ordering::Release);
            parent.dependents.lock().push(child.clone());
        }
    }

    /// The address space is gone: every reference is given back. No batch may be under way.
    pub fn end(&self, space: &ManagedSpace) {
        let _one_batch = space.batch.lock();
        let _events = space.table.lock.write();
        self.forget(space, Vpn(0), u64::MAX >> 20);
    }

    /// Gives up the copy kept of a resident page; true if there was one.
    pub fn drop_kept(&self, space: &ManagedSpace, vpn: Vpn) -> bool {
        let entry = space.table.load(vpn);
        let (State::Resident, Some(handle)) = (entry.state(), entry.handle()) else {
            return false;
        };
        let bare = page_entry(State::Resident, None, 0);
        if space.table.compare_exchange(vpn, entry, bare).is_err() {
            return false;
        }
        self.store.release(handle);
        true
    }
}

/// A child's part in its parent's batch is over. Its own children took part through it.
fn end_dependence(child: &ManagedSpace) {
    let _events = child.table.lock.write();
    child.batch_active.store(false, Ordering::Release);
    child.remaps.lock().clear();
    for grandchild in child.dependents.lock().drain(..) {
        end_dependence(&grandchild);
    }
}
