//! Taking pages out, in batches: mark, take, store, publish.
//!
//! A batch marks its pages `Moving` under `table.lock` held for writing and holds events until they
//! are taken. From then on the program may do what it likes: pages are followed by what is written
//! to [`crate::space::Batch`], children that it forks meanwhile join the batch and get their copy
//! of every page that was on its way.
//!
//! A *sample* is taken out the same way, raw, to see whether it is used ([`Mover::sample`]): its
//! entries are flagged, and policies take its pages for resident. A touch brings it back as any
//! stored page. If one of its pages is to leave, it is compressed from where it is.

use std::sync::Arc;

use clew_core::{CodecKind, Event, FlashForm, Group, PageId, PageRun, Tier, Vpn};
use clew_store::flash::LogId;
use clew_store::{Entry, Get, Handle, Limit, Members, PutError, PutFarError, State, points};
use parking_lot::MutexGuard;

use super::borrowed::borrow;
use super::publish::{Home, Landed};
use super::room::Waits;
use super::{BlockStore, Mover, MoverContext, SwapOut, count, is_sample, replace};
use crate::learn::Learner;
use crate::space::{BATCH_IN_USE, MAX_BATCH, ManagedSpace, Memory, Took};

/// The pages of a batch.
#[derive(Default)]
pub(super) struct Marked {
    /// Of pages that are in the program, ascending; the position is the slot.
    vpns: Vec<Vpn>,
    /// Group by group, in the order of the groups; with its former entry, a page that is out already
    /// as a sample.
    members: Vec<(Vpn, Option<Entry>)>,
    /// Where each group ends in `members`.
    ends: Vec<usize>,
    /// What became of those in the program, one a slot.
    took: Vec<Took>,
}

/// How pages are taken out.
#[derive(Clone, Copy)]
struct How<'a> {
    /// Flags that their entries get.
    flags: u8,
    /// A fault may call it off.
    yields: bool,
    /// New blocks go to flash, in this form.
    to: Option<(LogId, FlashForm)>,
    /// Only these (ascending).
    among: Option<&'a [Vpn]>,
}

/// Where a page of a group comes from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// A slot of the batch, and what became of the page.
    Slot(usize, Took),
    /// The entry that it had as a sample, which was borrowed.
    Sample(Entry),
}

impl SwapOut {
    fn tell_stored(&mut self, page: PageId, tier: Tier, bytes: u32) {
        self.stored += 1;
        self.events.push(Event::Stored { page, tier, bytes });
    }

    /// It is in the kernel's swap.
    pub(super) fn tell_lent(&mut self, page: PageId, bytes: u32) {
        self.events.push(Event::Stored { page, tier: Tier::Kernel, bytes });
    }

    pub(super) fn tell_stayed(&mut self, page: PageId) {
        self.events.push(Event::Stayed { page });
    }

    fn tell<M: ?Sized>(&mut self, space: &ManagedSpace<M>, landed: Landed) {
        match landed {
            Landed::Stored(at, tier, bytes) => {
                self.tell_stored(PageId::new(space.id(), at), tier, bytes);
            }
            Landed::Program(at) => self.tell_stayed(PageId::new(space.id(), at)),
            Landed::Hole(at) => {
                let run = PageRun { first: PageId::new(space.id(), at), count: 1 };
                self.events.push(Event::Freed { run });
            }
            Landed::Gone => {}
        }
    }

    /// Pages that were not tried and are still there.
    fn tell_untried<M: ?Sized>(&mut self, space: &ManagedSpace<M>, pages: &[PageId]) {
        for page in pages {
            let entry = space.table.load(page.vpn());
            let is_in = matches!(entry.state(), State::Resident | State::Lent | State::Moving);
            if is_in || is_sample(entry) {
                self.tell_stayed(*page);
            }
        }
    }
}

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Takes the groups' pages out and stores each group as a block. The pages are of this space;
    /// those that are not resident are skipped.
    pub fn swap_out(
        &self,
        space: &Arc<ManagedSpace<M>>,
        groups: &[Group],
        ctx: &mut MoverContext<S>,
    ) -> SwapOut {
        let out = self.take(space, groups, 0, None, ctx);
        count(&self.counters.swapped_out, out.stored);
        out
    }

    /// As [`Mover::swap_out`], but the blocks are stored on flash, in this form.
    pub fn swap_out_far(
        &self,
        space: &Arc<ManagedSpace<M>>,
        groups: &[Group],
        to: (LogId, FlashForm),
        ctx: &mut MoverContext<S>,
    ) -> SwapOut {
        let out = self.take(space, groups, 0, Some(to), ctx);
        count(&self.counters.swapped_out, out.stored);
        out
    }

    /// Takes the groups' pages out to see whether they are used; nothing is told but what was not
    /// there (`Freed`). Pages that are not resident are skipped.
    pub fn sample(
        &self,
        space: &Arc<ManagedSpace<M>>,
        groups: &[Group],
        ctx: &mut MoverContext<S>,
    ) -> SwapOut {
        let mut out = self.take(space, groups, Entry::SAMPLED, None, ctx);
        out.events.retain(|event| matches!(event, Event::Freed { .. }));
        count(&self.counters.sampled, out.stored);
        out
    }

    /// Takes pages out; their entries get `flags`.
    fn take(
        &self,
        space: &Arc<ManagedSpace<M>>,
        groups: &[Group],
        flags: u8,
        to: Option<(LogId, FlashForm)>,
        ctx: &mut MoverContext<S>,
    ) -> SwapOut {
        let mut out = SwapOut::default();
        out.events.reserve(groups.iter().map(|group| group.pages.len()).sum());
        let mut learner = space.one_swap_out.lock();
        let mut rest = groups;
        let mut faults = space.faults();
        let mut waits = Waits::default();
        while let Some(first) = rest.first()
            && out.full.is_none()
        {
            let mut most = if space.is_in_use(&mut faults) { BATCH_IN_USE } else { MAX_BATCH };
            if let Some((log, _)) = to {
                most = most.min(self.store.room_at_a_time(log));
            }
            let mut pages = first.pages.len();
            let fits = |group: &&Group| {
                pages += group.pages.len();
                pages <= most
            };
            let (now, later) = rest.split_at(1 + rest[1..].iter().take_while(fits).count());
            if let Some((log, _)) = to {
                // Nothing is marked yet: no fault waits for this.
                let count = now.iter().map(|group| group.pages.len()).sum();
                MutexGuard::unlocked(&mut learner, || waits.for_room(&self.store, log, count));
            }
            let mut how = How { flags, yields: true, to, among: None };
            let (mut busy, called_off) = self.batch(space, now, how, &mut learner, ctx, &mut out);
            how.yields = false;
            if called_off {
                // A fault came first, and is answered now.
                busy.sort_unstable();
                how.among = Some(&busy);
                let (still, _) = self.batch(space, now, how, &mut learner, ctx, &mut out);
                busy = still;
            }
            busy.sort_unstable();
            if !busy.is_empty() && out.full.is_none() && space.memory.unshare(&busy) {
                let how = How { flags, yields: false, to, among: Some(&busy) };
                let (still, _) = self.batch(space, now, how, &mut learner, ctx, &mut out);
                busy = still;
            }
            self.learn(space, &mut learner, ctx);
            for vpn in busy {
                out.tell_stayed(PageId::new(space.id(), vpn));
            }
            rest = later;
        }
        for group in rest {
            out.tell_untried(space, &group.pages);
        }
        out
    }

    /// One batch; returns the pages that are busy, or that it was called off for, of which nothing was
    /// told, and whether it was called off.
    fn batch(
        &self,
        space: &Arc<ManagedSpace<M>>,
        groups: &[Group],
        how: How<'_>,
        learner: &mut Learner,
        ctx: &mut MoverContext<S>,
        out: &mut SwapOut,
    ) -> (Vec<Vpn>, bool) {
        let mut busy = Vec::new();
        // What is in the kernel's swap comes in first: the agent moves pages, not swap entries.
        if space.table.counts().lent > 0 {
            let pages = groups.iter().flat_map(|group| &group.pages).map(|page| page.vpn());
            let is_lent = |vpn: &Vpn| space.table.load(*vpn).state() == State::Lent;
            let mut lent: Vec<Vpn> = pages.filter(is_lent).collect();
            lent.sort_unstable();
            lent.dedup();
            lent.truncate(MAX_BATCH);
            space.memory.unshare(&lent);
        }
        let mut marked = std::mem::take(&mut ctx.marked);
        if !self.mark(space, groups, how, &mut marked, out) {
            ctx.marked = marked;
            return (busy, false);
        }
        if !marked.vpns.is_empty() {
            space.memory.take_out(&marked.vpns, &mut marked.took);
            points::out_taken();
            space.memory.release_events();
            space.memory.finish_taking(&marked.vpns, &mut marked.took);
            points::out_copied();
        }
        marked.took.resize(marked.vpns.len(), Took::Stayed);
        let (mut first, mut slot) = (0, 0);
        for (group, end) in groups.iter().zip(marked.ends.iter().copied()) {
            let sources = marked.members[first..end].iter().map(|(vpn, sample)| match sample {
                Some(entry) => (*vpn, Source::Sample(*entry)),
                None => {
                    // Mostly the one behind the last.
                    if marked.vpns.get(slot) != Some(vpn) {
                        slot = marked.vpns.partition_point(|other| other < vpn);
                    }
                    slot += 1;
                    (*vpn, Source::Slot(slot - 1, marked.took[slot - 1]))
                }
            });
            self.store_group(space, group, how, sources, learner, ctx, out, &mut busy);
            first = end;
        }
        if !marked.vpns.is_empty() {
            points::out_all_published();
            end_part(space);
            points::out_ended();
            space.memory.release_taken();
            points::out_released();
        }
        let called_off = marked.took.contains(&Took::CalledOff);
        ctx.marked = marked;
        (busy, called_off)
    }

    /// Stores a group of pages from wherever they are.
    #[expect(clippy::too_many_arguments, reason = "what a batch has, and what came of it")]
    fn store_group(
        &self,
        space: &Arc<ManagedSpace<M>>,
        group: &Group,
        how: How<'_>,
        sources: impl Iterator<Item = (Vpn, Source)>,
        learner: &mut Learner,
        ctx: &mut MoverContext<S>,
        out: &mut SwapOut,
        busy: &mut Vec<Vpn>,
    ) {
        let page = self.page_units;
        let mut bytes = std::mem::take(&mut ctx.pages);
        bytes.resize(bytes.len().max(group.pages.len() * page), S::Unit::default());
        // Which of the group's pages still need a place in a block, by their order in `bytes`, and
        // where they were.
        let mut fresh = std::mem::take(&mut ctx.sources);
        let mut vpns = std::mem::take(&mut ctx.members);
        fresh.clear();
        vpns.clear();
        for (vpn, source) in sources {
            let slot_bytes = &mut bytes[fresh.len() * page..][..page];
            let (slot, took) = match source {
                Source::Slot(slot, took) => (slot, took),
                Source::Sample(entry) => {
                    if self.read_sample(entry, slot_bytes, ctx) {
                        fresh.push(source);
                        vpns.push(vpn);
                    } else {
                        out.tell(space, self.publish_sample(space, vpn, entry, None));
                    }
                    continue;
                }
            };
            let home = match took {
                Took::Hole => Home::Hole,
                Took::Busy | Took::Stayed | Took::CalledOff => Home::Program,
                Took::Lost => Home::Lost,
                Took::Taken | Took::Needed if !space.memory.copy_taken(slot, slot_bytes) => {
                    Home::Lost
                }
                Took::Needed => Home::Nowhere,
                Took::Taken => {
                    if let Some(witness) = &self.witness {
                        witness(PageId::new(space.id(), vpn), slot_bytes);
                    }
                    let Some(home) = self.without_compressing(space, slot, slot_bytes) else {
                        fresh.push(source);
                        vpns.push(vpn);
                        continue;
                    };
                    home
                }
            };
            // A page that is waited for is about to be used: it is not tried again.
            let is_wanted =
                || space.moving(slot).is_some_and(|(_, entry)| entry.has(Entry::WANTED));
            let again = took == Took::Busy || took == Took::CalledOff && !is_wanted();
            match self.publish(space, slot, home, slot_bytes, how.flags) {
                Landed::Program(now) if again && now == vpn => busy.push(vpn),
                landed => out.tell(space, landed),
            }
        }
        // Where there was no room a moment ago, the rest of the batch goes back without trying.
        if !fresh.is_empty() {
            let mut put = None;
            if out.full.is_none() {
                let block = &bytes[..fresh.len() * page];
                let (codec, chunk_bytes) = match how.to {
                    Some((_, FlashForm::Pages)) => (CodecKind::Raw, self.store.page_bytes() as u32),
                    Some((_, FlashForm::AsStored)) | None => (group.codec, group.chunk_bytes),
                };
                // What goes elsewhere at once would not be found again to learn from.
                if S::LEARNS && how.to.is_none() && codec.learns() && fresh.len() == 1 {
                    learner.see(vpns[0]);
                }
                let dictionary = learner.dictionary();
                let members = Members { vpns: &vpns, park: group.park_siblings, dictionary };
                let scratch = &mut ctx.codec;
                let stored = match how.to {
                    None => self.store.put_group(scratch, block, codec, chunk_bytes, members),
                    Some((to, _)) => self.put_far(to, scratch, block, codec, chunk_bytes, members),
                };
                match stored {
                    Ok(handle) => {
                        points::out_stored();
                        put = Some(handle);
                    }
                    Err(full) => out.full = Some(full),
                }
            }
            let pages = vpns.iter().zip(fresh.iter().copied()).zip(bytes.chunks_exact(page));
            for (index, ((vpn, source), bytes)) in (0..).zip(pages) {
                let landed = match source {
                    Source::Slot(slot, _) => {
                        let home = put.map_or(Home::Nowhere, |h| Home::Stored(Some(h), index));
                        self.publish(space, slot, home, bytes, how.flags)
                    }
                    Source::Sample(entry) => {
                        self.publish_sample(space, *vpn, entry, put.map(|h| (h, index)))
                    }
                };
                out.tell(space, landed);
            }
        }
        (ctx.pages, ctx.sources, ctx.members) = (bytes, fresh, vpns);
    }

    /// Stores a group in a log; what that does not take has no room.
    fn put_far(
        &self,
        to: LogId,
        scratch: &mut S::Scratch,
        block: &[S::Unit],
        codec: CodecKind,
        chunk_bytes: u32,
        members: Members<'_>,
    ) -> Result<Handle, PutError> {
        let put = self.store.put_group_far(to, scratch, block, codec, chunk_bytes, members);
        put.map_err(|error| match error {
            PutFarError::Put(error) => error,
            PutFarError::NoLog(_) | PutFarError::Append(_) => {
                let pages = block.len() / self.page_units;
                PutError::Full { limit: Limit::Log(to), pages }
            }
        })
    }

    /// Reads a page that is out as a sample; false if it needs no other place: it is all zeros, or
    /// damaged, which is told when it is asked for.
    fn read_sample(&self, entry: Entry, out: &mut [S::Unit], ctx: &mut MoverContext<S>) -> bool {
        let Some(handle) = entry.handle() else { return false };
        // The kept copy of a page that is out as a sample may be on flash: it stays there.
        matches!(self.store.get(&mut ctx.codec, handle, entry.index(), out), Ok(Get::Here(())))
    }

    /// Marks the groups' pages and holds events; false if there is nothing to take. Parked pages
    /// are stored again; samples are borrowed, unless it is a sample that is wanted.
    fn mark(
        &self,
        space: &ManagedSpace<M>,
        groups: &[Group],
        how: How<'_>,
        marked: &mut Marked,
        out: &mut SwapOut,
    ) -> bool {
        let Marked { vpns, members, ends, took } = marked;
        vpns.clear();
        members.clear();
        ends.clear();
        took.clear();
        let _events = space.table.lock.write();
        if space.under_way.lock().is_some() {
            // Forked out of a batch of its parent's that is not over.
            match how.among {
                None => groups.iter().for_each(|group| out.tell_untried(space, &group.pages)),
                Some(among) => {
                    among.iter().for_each(|vpn| out.tell_stayed(PageId::new(space.id(), *vpn)));
                }
            }
            return false;
        }
        for group in groups {
            for page in &group.pages {
                if how.among.is_some_and(|among| among.binary_search(&page.vpn()).is_err()) {
                    continue;
                }
                let entry = space.table.load(page.vpn());
                if entry.state() == State::Parked {
                    self.unpark(space, page.vpn(), entry, &mut out.events);
                }
                let is_sample = is_sample(entry) && how.flags == 0;
                let is_in = matches!(entry.state(), State::Resident | State::Lent);
                if !is_in && !is_sample {
                    continue;
                }
                if members.len() == MAX_BATCH {
                    out.tell_stayed(*page);
                    continue;
                }
                if !is_sample {
                    members.push((page.vpn(), None));
                } else if borrow(space, page.vpn(), entry) {
                    members.push((page.vpn(), Some(entry)));
                }
            }
            ends.push(members.len());
        }
        let in_program = members.iter().filter(|(_, sample)| sample.is_none());
        vpns.extend(in_program.map(|(vpn, _)| *vpn));
        if vpns.is_empty() {
            return !members.is_empty();
        }
        vpns.sort_unstable();
        vpns.dedup();
        // A successor must know which slot is whose before any page leaves.
        space.journal.begin_batch(vpns, space.id());
        points::out_journaled();
        for vpn in vpns.iter() {
            // Its kept copy may be dropped at this moment.
            let entry = space.table.load(*vpn);
            replace(space, *vpn, entry, |old| old.with_state(State::Moving));
        }
        points::out_marked();
        space.begin_part();
        space.memory.hold_events(how.yields);
        true
    }
}

/// The batch is over for this space and those that joined it here.
fn end_part<M: ?Sized>(space: &ManagedSpace<M>) {
    let children = {
        let _events = space.table.lock.write();
        space.journal.end_batch();
        space.end_part()
    };
    for child in children {
        end_part(&child);
    }
}
