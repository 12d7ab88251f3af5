//! Parked pages: decompressed copies of stored pages that wait for their use, first in, first out
//! (Ariadne 4.4; Archer 4.4).
//!
//! The stored copy is kept as long as its page is parked, whatever the scheme says: entry and block
//! are what is true, and this buffer may be lost at any moment. A `Parked` entry without a copy here
//! (its page was moved while it was pushed out) is read from its block.
//!
//! A copy is put here before its entry says `Parked`, and is overwritten when its page is parked
//! again. So a copy whose block and index are those of a `Parked` entry is that page's: the entry
//! owns a reference of the block, whose number nobody else can have had meanwhile.
//!
//! The lock is a leaf, held for the copying of one page.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use clew_core::{Event, PageId, SpaceId, Vpn};
use clew_store::{Entry, Handle, Members, PutError, State, points};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};

use super::{BlockStore, Mover, MoverContext, count, is_sample, page_entry};
use crate::space::{ManagedSpace, Memory};

/// How pages that came back early wait for their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parking {
    /// Pages that wait at once, at least 1; then the oldest is pushed out.
    pub pages: usize,
    /// A page that is pushed out unused is stored as it was. Otherwise it is compressed again, as its
    /// block was: Ariadne has given up its stored copy.
    pub keep: bool,
}

impl Default for Parking {
    fn default() -> Parking {
        Parking { pages: 1024, keep: true }
    }
}

/// One parked page.
struct Copy<U, M: ?Sized> {
    number: u64,
    space: Weak<ManagedSpace<M>>,
    block: (Handle, u16),
    bytes: Box<[U]>,
}

struct Inside<U, M: ?Sized> {
    copies: HashMap<PageId, Copy<U, M>, FixedState>,
    /// By age; names pages that have left since.
    order: VecDeque<(u64, PageId)>,
    next: u64,
    /// Memory of pages that left.
    free: Vec<Box<[U]>>,
}

impl<U, M: ?Sized> Default for Inside<U, M> {
    fn default() -> Self {
        let (copies, order, next, free) = Default::default();
        Inside { copies, order, next, free }
    }
}

impl<U, M: ?Sized> Inside<U, M> {
    fn remove(&mut self, page: PageId) -> Option<Copy<U, M>> {
        let copy = self.copies.remove(&page)?;
        if self.copies.is_empty() {
            // Old memory is given back when nobody uses any of it.
            (self.order, self.free) = Default::default();
        }
        Some(copy)
    }
}

/// The buffer.
pub(super) struct ParkedPages<U, M: ?Sized> {
    inside: Mutex<Inside<U, M>>,
    /// Copies in it, for who only wants to know how many.
    len: AtomicUsize,
}

/// The buffer, while it is changed.
struct Changing<'a, U, M: ?Sized> {
    inside: MutexGuard<'a, Inside<U, M>>,
    len: &'a AtomicUsize,
}

impl<U, M: ?Sized> Drop for Changing<'_, U, M> {
    fn drop(&mut self) {
        self.len.store(self.inside.copies.len(), Relaxed);
    }
}

impl<U, M: ?Sized> Default for ParkedPages<U, M> {
    fn default() -> Self {
        ParkedPages { inside: Mutex::default(), len: AtomicUsize::new(0) }
    }
}

impl<U: std::marker::Copy + Default, M: ?Sized> ParkedPages<U, M> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    fn change(&self) -> Changing<'_, U, M> {
        Changing { inside: self.inside.lock(), len: &self.len }
    }

    /// Copies a page to `out` if it is here.
    pub fn copy(&self, page: PageId, entry: Entry, out: &mut [U]) -> bool {
        let inside = self.inside.lock();
        let copy = inside.copies.get(&page);
        let Some(copy) =
            copy.filter(|c| entry.handle() == Some(c.block.0) && entry.index() == c.block.1)
        else {
            return false;
        };
        out.copy_from_slice(&copy.bytes);
        true
    }

    /// The page is not parked any more.
    pub fn remove(&self, page: PageId) {
        let inside = &mut *self.change().inside;
        if let Some(copy) = inside.remove(page)
            && !inside.copies.is_empty()
        {
            inside.free.push(copy.bytes);
        }
    }

    /// Pages have moved to another address, with their entries.
    pub fn moved(&self, space: SpaceId, from: Vpn, pages: u64, to: Vpn) {
        let mut inside = self.inside.lock();
        let moves = |page: &PageId| {
            page.space() == space && (from.0..from.0 + pages).contains(&page.vpn().0)
        };
        let target = |page: PageId| PageId::new(space, Vpn(page.vpn().0 - from.0 + to.0));
        let moving: Vec<PageId> = inside.copies.keys().copied().filter(moves).collect();
        for page in moving {
            if let Some(copy) = inside.copies.remove(&page) {
                inside.order.push_back((copy.number, target(page)));
                inside.copies.insert(target(page), copy);
            }
        }
        inside.order.make_contiguous().sort_unstable_by_key(|(number, _)| *number);
    }

    /// Parks a page; what had to leave for it.
    fn insert(
        &self,
        space: &Arc<ManagedSpace<M>>,
        vpn: Vpn,
        block: (Handle, u16),
        bytes: &[U],
        most: usize,
    ) -> Option<(PageId, Copy<U, M>)> {
        let inside = &mut *self.change().inside;
        let page = PageId::new(space.id(), vpn);
        if let Some(old) = inside.copies.remove(&page) {
            inside.free.push(old.bytes);
        }
        let mut pushed_out = None;
        if inside.copies.len() >= most {
            while let Some((number, oldest)) = inside.order.pop_front() {
                if inside.copies.get(&oldest).is_some_and(|copy| copy.number == number) {
                    pushed_out = inside.copies.remove(&oldest).map(|copy| (oldest, copy));
                    break;
                }
            }
        }
        // What left otherwise is not looked for: its places go when they are half of all.
        if inside.order.len() > 2 * inside.copies.len() + 64 {
            let copies = &inside.copies;
            inside
                .order
                .retain(|(number, page)| copies.get(page).is_some_and(|c| c.number == *number));
        }
        let mut memory =
            inside.free.pop().unwrap_or_else(|| vec![U::default(); bytes.len()].into());
        memory.copy_from_slice(bytes);
        let number = inside.next;
        inside.next += 1;
        inside.order.push_back((number, page));
        let copy = Copy { number, space: Arc::downgrade(space), block, bytes: memory };
        inside.copies.insert(page, copy);
        pushed_out
    }

    fn give_back(&self, memory: Box<[U]>) {
        self.inside.lock().free.push(memory);
    }
}

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Pages that are parked now. They take the daemon's own memory.
    pub fn parked_pages(&self) -> usize {
        self.parked.len()
    }

    /// Parks a page whose bytes are restored and whose entry is `now`, with a block; false if its
    /// entry has changed meanwhile. The caller holds `table.lock` for reading, and wakes who waits.
    pub(super) fn park_page(
        &self,
        space: &Arc<ManagedSpace<M>>,
        vpn: Vpn,
        now: Entry,
        bytes: &[S::Unit],
        codec: &mut S::Scratch,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(handle) = now.handle() else { return false };
        let block = (handle, now.index());
        let pushed_out = self.parked.insert(space, vpn, block, bytes, self.parking.pages);
        let page = PageId::new(space.id(), vpn);
        let parked = page_entry(State::Parked, Some(handle), now.index());
        let done = space.table.compare_exchange(vpn, now, parked).is_ok();
        points::back_parked();
        if done {
            count(&self.counters.parked, 1);
            events.push(Event::PageIn { page, tier: self.tier_of(now), demand: false });
        } else {
            self.parked.remove(page);
        }
        if let Some((page, copy)) = pushed_out {
            self.expire(page, &copy, codec, events);
            self.parked.give_back(copy.bytes);
        }
        done
    }

    /// A page that was parked, and is not any more, is stored again. Takes no lock: whoever moves
    /// the entry meanwhile finds one or the other, with the same reference.
    fn expire(
        &self,
        page: PageId,
        copy: &Copy<S::Unit, M>,
        codec: &mut S::Scratch,
        events: &mut Vec<Event>,
    ) {
        let Some(space) = copy.space.upgrade() else { return };
        let (handle, index) = copy.block;
        let parked = page_entry(State::Parked, Some(handle), index);
        let again = (!self.parking.keep).then(|| self.recompress(handle, copy, codec));
        let again = again.and_then(Result::ok);
        let (home, at) = again.map_or((handle, index), |new| (new, 0));
        let stored = self.stored_entry(Some(home), at);
        if space.table.compare_exchange(page.vpn(), parked, stored).is_err() {
            // Used, given up, or moved.
            self.release(again);
            return;
        }
        if again.is_some() {
            self.store.release(handle);
        }
        self.tell_expired(page, stored, events);
    }

    /// Compresses a page as its block was, whose form packing had chosen: the same codec, in chunks of
    /// the same size, as far as one page has them.
    fn recompress(
        &self,
        handle: Handle,
        copy: &Copy<S::Unit, M>,
        codec: &mut S::Scratch,
    ) -> Result<Handle, PutError> {
        let chunk_bytes = self.store.chunk_bytes(handle).min(self.store.page_bytes() as u32);
        let form = self.store.codec(handle);
        self.store.put_group(codec, &copy.bytes, form, chunk_bytes, Members::default())
    }

    /// Stores a parked page again because it is to leave. The caller holds `table.lock`.
    pub(super) fn unpark(
        &self,
        space: &ManagedSpace<M>,
        vpn: Vpn,
        parked: Entry,
        events: &mut Vec<Event>,
    ) -> bool {
        let stored = self.stored_entry(parked.handle(), parked.index());
        let done = space.table.compare_exchange(vpn, parked, stored).is_ok();
        if done && parked.handle().is_some() {
            let page = PageId::new(space.id(), vpn);
            self.parked.remove(page);
            self.tell_expired(page, stored, events);
        }
        done
    }

    fn tell_expired(&self, page: PageId, stored: Entry, events: &mut Vec<Event>) {
        count(&self.counters.parked_expired, 1);
        events.push(Event::PrefetchExpired { page });
        let bytes = self.share(stored.handle());
        events.push(Event::Stored { page, tier: self.tier_of(stored), bytes });
    }

    /// Decompresses stored pages and parks them: `vpns` ascending. Pages that are not stored are
    /// skipped, as are pages of zeros, which take no codec; damaged ones stay stored.
    pub fn park(
        &self,
        space: &Arc<ManagedSpace<M>>,
        vpns: &[Vpn],
        ctx: &mut MoverContext<S>,
        events: &mut Vec<Event>,
    ) -> super::Restored {
        let mut result = super::Restored::default();
        let wanted = |entry: Entry| {
            entry.state() == State::Stored && entry.handle().is_some() && !is_sample(entry)
        };
        self.for_borrowed_runs(space, vpns, wanted, ctx, &mut result.corrupt, |run, ctx| {
            let _events = space.table.lock.read();
            for borrowed in run {
                let bytes = &ctx.pages[borrowed.at * self.page_units..][..self.page_units];
                let now = borrowed.entry.with_state(State::Restoring);
                if self.park_page(space, borrowed.vpn, now, bytes, &mut ctx.codec, events) {
                    result.pages += 1;
                } else {
                    // Given up or moved while it was borrowed.
                    self.release(borrowed.entry.handle());
                }
                space.memory.wake(borrowed.vpn, 1);
            }
        });
        result
    }
}
