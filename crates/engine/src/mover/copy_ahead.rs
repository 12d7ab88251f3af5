//! Copies made ahead: pages that will leave next are compressed while they are still in their program, so that
//! there is nothing left to do but to take them out when memory is short.
//!
//! The copy is as one that was kept when its page came back: it is valid as long as the page holds what its hash
//! says. A program may write the page while it is read; then the copy is of no use, and of no harm.

use std::sync::Arc;

use clew_core::{Group, Vpn};
use clew_store::{Entry, State};

use super::{BlockStore, Mover, MoverContext, count, page_entry};
use crate::space::{ManagedSpace, Memory};

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Stores a copy of each of the groups' pages, each group as a block. The pages are of this space; those that
    /// are not in their program, have a copy, or are all zeros stay without. How many got one.
    pub fn copy_ahead(
        &self,
        space: &Arc<ManagedSpace<M>>,
        groups: &[Group],
        ctx: &mut MoverContext<S>,
    ) -> usize {
        let mut copied = 0;
        for group in groups {
            // What leaves now has the way.
            match self.copy_group_ahead(space, group, ctx) {
                Some(pages) => copied += pages,
                None => break,
            }
        }
        count(&self.counters.copied_ahead, copied);
        copied
    }

    /// `None`: there is no room, or pages of the space are leaving.
    fn copy_group_ahead(
        &self,
        space: &ManagedSpace<M>,
        group: &Group,
        ctx: &mut MoverContext<S>,
    ) -> Option<usize> {
        let page = self.page_units;
        let mut bytes = std::mem::take(&mut ctx.pages);
        bytes.resize(bytes.len().max(group.pages.len() * page), S::Unit::default());
        let mut found: Vec<(Vpn, Entry)> = Vec::with_capacity(group.pages.len());
        for wanted in &group.pages {
            let vpn = wanted.vpn();
            let entry = space.table.load(vpn);
            let at = &mut bytes[found.len() * page..][..page];
            let is_without = entry.state() == State::Resident && entry.handle().is_none();
            if is_without && space.memory.read(vpn, at) && !S::is_zeros(at) {
                found.push((vpn, entry));
            }
        }
        let vpns: Vec<Vpn> = found.iter().map(|(vpn, _)| *vpn).collect();
        let block = match found.is_empty() {
            true => Some(None),
            false => self.put_anew(space, group, &vpns, &bytes[..vpns.len() * page], ctx).map(Some),
        };
        ctx.pages = bytes;
        let block = block?;
        let mut copied = 0;
        // A child that is being forked copies entries, each with a reference of its block, under this lock.
        let _events = space.table.lock.read();
        for (index, (vpn, entry)) in (0..).zip(found) {
            let with_copy = page_entry(State::Resident, block, index);
            match space.table.compare_exchange(vpn, entry, with_copy) {
                Ok(()) => copied += 1,
                Err(_) => self.release(block),
            }
        }
        Some(copied)
    }
}
