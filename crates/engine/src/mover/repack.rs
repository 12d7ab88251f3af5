//! Repacking: pages of the pool are stored anew, in another block, by another codec (recompression, in the words of the
//! kernel's zram).
//!
//! What a stored block holds never changes. So nobody waits: who repacks holds a reference of the old block, compresses
//! beside it what it says, and names the new one in its stead if the entry is still what it was. A fault that comes
//! meanwhile reads the old one.

use std::sync::Arc;

use clew_core::{Group, Vpn};
use clew_store::{Entry, Get, Handle, Members, State};

use super::{BlockStore, Mover, MoverContext, count, is_sample};
use crate::space::{ManagedSpace, Memory};

/// A new block takes at least one part in so many less, or the pages stay where they are.
const LESS: u64 = 8;

/// A page as it was found.
#[derive(Clone, Copy)]
pub(super) struct Found {
    vpn: Vpn,
    entry: Entry,
    /// Of which we own a reference.
    pub(super) block: Handle,
}

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Stores the groups' pages anew, each group as a block. The pages are of this space; those that are not in the
    /// pool, or would take no less, stay as they are. How many pages were stored anew.
    pub fn repack(
        &self,
        space: &Arc<ManagedSpace<M>>,
        groups: &[Group],
        ctx: &mut MoverContext<S>,
    ) -> usize {
        groups.iter().map(|group| self.repack_group(space, group, ctx)).sum()
    }

    fn repack_group(
        &self,
        space: &ManagedSpace<M>,
        group: &Group,
        ctx: &mut MoverContext<S>,
    ) -> usize {
        let page = self.page_units;
        let mut bytes = std::mem::take(&mut ctx.pages);
        bytes.resize(bytes.len().max(group.pages.len() * page), S::Unit::default());
        let mut found: Vec<Found> = Vec::with_capacity(group.pages.len());
        for wanted in &group.pages {
            let at = &mut bytes[found.len() * page..][..page];
            if let Some(there) = self.find_in_pool(space, wanted.vpn(), at, ctx) {
                found.push(there);
            }
        }
        let vpns: Vec<Vpn> = found.iter().map(|found| found.vpn).collect();
        let anew = match found.is_empty() {
            true => None,
            false => self.put_anew(space, group, &vpns, &bytes[..vpns.len() * page], ctx),
        };
        ctx.pages = bytes;
        let before: u64 = found.iter().map(|f| u64::from(self.share(Some(f.block)))).sum();
        let takes = anew.map_or(u64::MAX, |block| u64::from(self.store.stored_bytes(block)));
        let is_worth_it = takes <= before - before / LESS;
        let mut repacked = 0;
        {
            // A child that is being forked copies entries, each with a reference of its block, under this lock.
            let _events = space.table.lock.read();
            for (index, Found { vpn, entry, block }) in (0..).zip(found.iter().copied()) {
                let new = self.stored_entry(anew, index);
                if is_worth_it && space.table.compare_exchange(vpn, entry, new).is_ok() {
                    // The entry's own.
                    self.release(Some(block));
                    repacked += 1;
                } else {
                    self.release(anew);
                }
            }
        }
        found.iter().for_each(|found| self.release(Some(found.block)));
        count(&self.counters.repacked, repacked);
        repacked
    }

    /// Reads a page that is in the pool, and keeps its block from going.
    pub(super) fn find_in_pool(
        &self,
        space: &ManagedSpace<M>,
        vpn: Vpn,
        out: &mut [S::Unit],
        ctx: &mut MoverContext<S>,
    ) -> Option<Found> {
        let entry = space.table.load(vpn);
        if entry.state() != State::Stored || entry.is_far() || is_sample(entry) {
            return None;
        }
        let block = entry.handle()?;
        if !self.store.retain(block) {
            return None;
        }
        // Before that it may have gone, and the handle come to name another.
        let is_it = space.table.load(vpn) == entry && self.store.log_of(block).is_none();
        // What is damaged is told when it is asked for.
        if is_it
            && let Ok(Get::Here(())) = self.store.get(&mut ctx.codec, block, entry.index(), out)
        {
            return Some(Found { vpn, entry, block });
        }
        self.release(Some(block));
        None
    }

    fn put_anew(
        &self,
        space: &ManagedSpace<M>,
        group: &Group,
        vpns: &[Vpn],
        block: &[S::Unit],
        ctx: &mut MoverContext<S>,
    ) -> Option<Handle> {
        // What leaves now has the way: it learns, and this goes by what it has learned.
        let learner = match group.codec.learns() {
            true => Some(space.one_swap_out.try_lock()?),
            false => None,
        };
        let dictionary = learner.as_ref().and_then(|learner| learner.dictionary());
        let members = Members { vpns, park: group.park_siblings, dictionary };
        let (codec, chunk_bytes) = (group.codec, group.chunk_bytes);
        let put = self.store.put_group(&mut ctx.codec, block, codec, chunk_bytes, members);
        put.ok()
    }
}
