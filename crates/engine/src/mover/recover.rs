//! What a predecessor left half done, resolved by looking.
//!
//! A page that was on its way out is put back where it is in staging, and else never left. A page
//! that was on its way in is put (again); if it is there, the kernel says so. Blocks that were
//! stored and not named by an entry yet were freed when the store was adopted.

use clew_core::Vpn;
use clew_store::{Entry, Get, Handle, State};

use super::{BlockStore, Mover, MoverContext, is_sample, page_entry, set};
use crate::space::{ManagedSpace, Memory, Put, PutStop};

const ALL_FLAGS: u8 = Entry::WANTED | Entry::SAMPLED;

/// The program is changing its mappings: read its events, then recover again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadEvents;

/// What is in a slot of a staging area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// A page, which was copied.
    Copied,
    /// Nothing: the page never left its program.
    Empty,
    /// The staging area is gone, or cannot be looked into.
    Unknown,
}

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Leaves no page of `space` on its way. `staged` copies a slot of the staging area in which
    /// the space's batch is. The caller holds `table.lock` for
    /// writing, has applied every event that was readable, and is the only one who works for this
    /// space; the agent is not in the middle of an order.
    ///
    /// # Errors
    /// [`ReadEvents`]; what was done so far stays done.
    pub fn recover(
        &self,
        space: &ManagedSpace<M>,
        ctx: &mut MoverContext<S>,
        staged: &mut dyn FnMut(usize, &mut [S::Unit]) -> Staged,
    ) -> Result<(), ReadEvents> {
        ctx.pages.resize(self.page_units.max(ctx.pages.len()), S::Unit::default());
        let bytes = &mut ctx.pages[..self.page_units];
        for slot in 0..space.journal.batch_len() {
            let Some((at, entry)) = space.moving(slot) else { continue };
            match staged(slot, bytes) {
                Staged::Copied => {
                    again(space.memory.put(at, bytes))?;
                }
                Staged::Empty => {}
                // It may be in the program, but nobody can say so.
                Staged::Unknown => {
                    set(space, at, page_entry(State::Stored, Some(Handle::LOST), 0));
                    self.release(entry.handle());
                    continue;
                }
            }
            set(space, at, page_entry(State::Resident, entry.handle(), entry.index()));
        }
        space.journal.end_batch();
        let mut under_way = Vec::new();
        space.table.for_range(Vpn(0), u64::MAX, |vpn, entry| {
            let is_under_way =
                matches!(entry.state(), State::Restoring | State::Moving | State::Parked);
            if is_under_way || is_sample(entry) {
                under_way.push((vpn, entry));
            }
        });
        for (vpn, entry) in under_way {
            let bytes = &mut ctx.pages[..self.page_units];
            let put = match (entry.state(), entry.handle()) {
                // Its copy died with the daemon that had it, or who knew why it was taken out.
                (State::Parked, Some(_)) | (State::Stored, _) => {
                    set(space, vpn, entry.without(Entry::SAMPLED).with_state(State::Stored));
                    continue;
                }
                // No batch knows it: the journal was damaged. It must not become zeros.
                (State::Moving | State::Parked, _) => {
                    set(space, vpn, page_entry(State::Stored, Some(Handle::LOST), 0));
                    continue;
                }
                (_, None) => space.memory.put_zero(vpn, 1),
                (_, Some(handle)) => {
                    let read = self.store.get(&mut ctx.codec, handle, entry.index(), bytes);
                    if !matches!(read, Ok(Get::Here(()))) {
                        // Fetched, or said and acted upon, when the program asks for it.
                        set(space, vpn, entry.without(ALL_FLAGS).with_state(State::Stored));
                        continue;
                    }
                    space.memory.put(vpn, bytes)
                }
            };
            match again(put)? {
                None | Some(PutStop::Exists) => {
                    let kept = entry.handle().filter(|_| self.retain);
                    set(space, vpn, page_entry(State::Resident, kept, entry.index()));
                    if kept.is_none() {
                        self.release(entry.handle());
                    }
                }
                _ => set(space, vpn, entry.without(ALL_FLAGS).with_state(State::Stored)),
            }
        }
        Ok(())
    }
}

fn again(put: Put) -> Result<Option<PutStop>, ReadEvents> {
    match put.stop {
        Some(PutStop::Again) => Err(ReadEvents),
        stop => Ok(stop),
    }
}
