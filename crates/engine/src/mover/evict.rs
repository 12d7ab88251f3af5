//! Eviction: blocks that are in the pool go to a log, on flash or at a donor, as they are (Ariadne 4.2) or decompressed
//! (ElasticZRAM 2.2.1).
//!
//! A block goes whole, with all pages that are in it; policies name pages, and hear of each page that
//! went along. That a page is there its entry says ([`clew_store::Entry::FLASH`], [`clew_store::Entry::DONOR`]), for whoever counts or asks
//! where pages are. It is a hint: what names the block from elsewhere (a child, a page that moved
//! away from its neighbours) is not told, and finds out when it is read, or is to be evicted itself.
//!
//! Only `Stored` entries get the flag: of a borrowed one, the borrower knows each bit.

use std::collections::HashSet;
use std::sync::Arc;

use clew_core::{Event, FlashForm, Group, PageId, Vpn};
use clew_store::flash::{AppendError, LogId};
use clew_store::{EvictError, Handle, State, points};

use super::room::Waits;
use super::{BlockStore, Mover, MoverContext, SwapOut, count, is_sample, log_flag};
use crate::space::{ManagedSpace, Memory};

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Moves the blocks of the groups' pages to a log, in this form. The pages are of this space. Each that is stored is
    /// told once as `Stored`, where it is then; those that went along are told, too. What is not stored any
    /// more was told of by whoever brought it back.
    pub fn evict(
        &self,
        space: &Arc<ManagedSpace<M>>,
        groups: &[Group],
        (to, form): (LogId, FlashForm),
        ctx: &mut MoverContext<S>,
    ) -> SwapOut {
        let mut out = SwapOut::default();
        let mut told: HashSet<Vpn> = HashSet::new();
        let mut waits = Waits::default();
        for page in groups.iter().flat_map(|group| &group.pages) {
            let vpn = page.vpn();
            let entry = space.table.load(vpn);
            let is_out = matches!(entry.state(), State::Stored | State::Restoring);
            if !is_out || is_sample(entry) || told.contains(&vpn) {
                continue;
            }
            let handle = entry.handle().filter(|_| entry.state() == State::Stored);
            let gone = handle.filter(|_| !entry.is_far()).is_some_and(|handle| {
                let mut evicted = self.store.evict(&mut ctx.codec, handle, to, form);
                if matches!(evicted, Err(EvictError::Append(AppendError::NoBuffer)))
                    && waits.for_room(&self.store, to, 1)
                {
                    evicted = self.store.evict(&mut ctx.codec, handle, to, form);
                }
                matches!(evicted, Ok(()) | Err(EvictError::There { .. }))
            });
            if let (true, Some(handle)) = (gone, handle) {
                self.flag(space, (vpn, handle, entry.index()), &mut told, ctx, &mut out);
                points::evict_flagged();
            }
            if told.insert(vpn) {
                self.tell_where(space, *page, &mut out);
            }
        }
        count(&self.counters.evicted, out.stored);
        out
    }

    /// The pages of a block, seen from one of them, are in a log.
    fn flag(
        &self,
        space: &ManagedSpace<M>,
        (vpn, handle, index): (Vpn, Handle, u16),
        told: &mut HashSet<Vpn>,
        ctx: &mut MoverContext<S>,
        out: &mut SwapOut,
    ) {
        let flags = self.store.log_of(handle).map_or(0, log_flag);
        for other in 0..self.store.look(&mut ctx.codec, handle) {
            let at =
                if other == index { Some(vpn) } else { S::sibling(&ctx.codec, index, vpn, other) };
            let Some(at) = at else { continue };
            let entry = space.table.load(at);
            let is_it = entry.state() == State::Stored
                && entry.handle() == Some(handle)
                && entry.index() == other
                && !is_sample(entry);
            let flagged = entry.with(flags);
            if is_it && space.table.compare_exchange(at, entry, flagged).is_ok() && told.insert(at)
            {
                out.stored += 1;
                self.tell_where(space, PageId::new(space.id(), at), out);
            }
        }
    }

    fn tell_where(&self, space: &ManagedSpace<M>, page: PageId, out: &mut SwapOut) {
        let entry = space.table.load(page.vpn());
        if matches!(entry.state(), State::Stored | State::Restoring) && !is_sample(entry) {
            let bytes = self.share(entry.handle());
            out.events.push(Event::Stored { page, tier: self.tier_of(entry), bytes });
        }
    }
}
