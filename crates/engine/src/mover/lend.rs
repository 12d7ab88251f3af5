//! The kernel's swap as a tier: pages that are given to it stay in their program as far as anybody
//! else can see. A touch brings one back inside the kernel, without a message, at the price of the
//! kernel's own fault; so who wants to know looks for it.
//!
//! The table says `Lent` only after the kernel has the page, and a look says otherwise only of pages
//! that are in memory. A page that came back between the two is `Lent` until the next look, and one
//! that moves to another address meanwhile is in nobody's hands there until it is touched afresh:
//! neither is ever lost.

use std::sync::Arc;

use clew_core::{AccessKind, Event, Group, PageId, PageRun, Tier, Vpn};
use clew_store::{Entry, State};

use super::{BlockStore, Mover, MoverContext, SwapOut, count};
use crate::space::{ManagedSpace, Memory, Took};

const LENT: Entry = Entry::new(State::Lent);
const RESIDENT: Entry = Entry::new(State::Resident);

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Gives the groups' pages to the kernel's swap, in which each takes about `bytes`. The pages are
    /// of this space; those that are not resident are skipped. Copies that were kept of them are given
    /// up. What the kernel does not take (locked, shared, or there is no room), and samples, which are
    /// out already, are stored instead.
    pub fn lend(
        &self,
        space: &Arc<ManagedSpace<M>>,
        groups: &[Group],
        bytes: u32,
        ctx: &mut MoverContext<S>,
    ) -> SwapOut {
        let mut out = SwapOut::default();
        let mut others = Vec::new();
        {
            // Nobody else takes anything out of this program now.
            let _one = space.hold_swap_outs();
            let mut pages: Vec<(Vpn, Entry)> = Vec::new();
            for page in groups.iter().flat_map(|group| &group.pages) {
                let entry = space.table.load(page.vpn());
                match entry.state() {
                    State::Resident => pages.push((page.vpn(), entry)),
                    State::Stored | State::Parked => others.push(page.vpn()),
                    // Who asks takes it for resident.
                    State::Lent => out.tell_lent(*page, bytes),
                    State::Moving => out.tell_stayed(*page),
                    State::Absent | State::Restoring => {}
                }
            }
            pages.sort_unstable_by_key(|(vpn, _)| *vpn);
            pages.dedup_by_key(|(vpn, _)| *vpn);
            let vpns: Vec<Vpn> = pages.iter().map(|(vpn, _)| *vpn).collect();
            let mut took = Vec::new();
            space.memory.lend(&vpns, &mut took);
            for ((vpn, entry), took) in pages.into_iter().zip(took) {
                let page = PageId::new(space.id(), vpn);
                match took {
                    Took::Taken if self.exchange(space, vpn, entry, LENT) => {
                        out.tell_lent(page, bytes);
                        out.stored += 1;
                        count(&self.counters.lent, 1);
                    }
                    Took::Hole if self.exchange(space, vpn, entry, Entry::ABSENT) => {
                        out.events.push(Event::Freed { run: PageRun { first: page, count: 1 } });
                    }
                    // Given up or moved meanwhile; or else it is tried again.
                    _ => others.push(vpn),
                }
            }
        }
        others.sort_unstable();
        let is_other = |page: &PageId| others.binary_search(&page.vpn()).is_ok();
        let rest = groups.iter().filter_map(|group| {
            let pages: Vec<PageId> = group.pages.iter().copied().filter(is_other).collect();
            (!pages.is_empty()).then(|| Group { pages, ..group.clone() })
        });
        let rest: Vec<Group> = rest.collect();
        if !rest.is_empty() {
            let stored = self.swap_out(space, &rest, ctx);
            out.stored += stored.stored;
            out.events.extend(stored.events);
            out.full = stored.full;
        }
        out
    }

    /// Replaces the entry of a page that was resident; false if it is another by now. A kept copy may
    /// have gone meanwhile.
    fn exchange(&self, space: &ManagedSpace<M>, vpn: Vpn, resident: Entry, new: Entry) -> bool {
        for before in [resident, RESIDENT] {
            if space.table.compare_exchange(vpn, before, new).is_ok() {
                self.release(before.handle());
                return true;
            }
        }
        false
    }

    /// Those of these pages that were lent are in the program again; policies hear of each as of a
    /// page that was asked for. Returns how many.
    pub fn came_back(
        &self,
        space: &ManagedSpace<M>,
        first: Vpn,
        pages: u64,
        events: &mut Vec<Event>,
    ) -> usize {
        let mut back = 0;
        space.table.for_range(first, pages, |vpn, entry| {
            let is_lent = entry.state() == State::Lent;
            if is_lent && space.table.compare_exchange(vpn, entry, RESIDENT).is_ok() {
                let page = PageId::new(space.id(), vpn);
                events.push(Event::Access { page, kind: AccessKind::Fault, write: false });
                events.push(Event::PageIn { page, tier: Tier::Kernel, demand: true });
                back += 1;
            }
        });
        count(&self.counters.lent_back, back);
        back
    }
}
