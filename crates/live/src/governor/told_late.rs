//! Where a page is of which a worker tells late that it stayed: its program may have moved it or given
//! it up meanwhile.

use std::collections::VecDeque;

use clew_core::{Event, PageFacts, PageId, PageRun, Tier, Vpn};
use clew_store::State;

use super::Governor;

/// Moves that are remembered.
const MOVES: usize = 256;

/// What programs moved last, and where to; the newest first.
#[derive(Default)]
pub(super) struct Moves(VecDeque<(PageRun, PageId)>);

impl Moves {
    /// A program has moved these.
    pub(super) fn push(&mut self, from: PageRun, to: PageId) {
        self.0.truncate(MOVES - 1);
        self.0.push_front((from, to));
    }

    /// Where a page is that a worker saw here, and that is not here any more.
    fn followed(&self, page: PageId) -> PageId {
        self.0.iter().rev().fold(page, |page, (from, to)| match from.contains(page) {
            true => PageId::new(to.space(), Vpn(page.vpn().0 - from.first.vpn().0 + to.vpn().0)),
            false => page,
        })
    }
}

impl Governor {
    /// A worker could not take this page.
    pub(super) fn stayed(&mut self, page: PageId) {
        let state_of = |page: PageId| {
            self.programs.with(page.space(), |p| p.space.table.load(page.vpn()).state())
        };
        let Some(state) = state_of(page) else { return };
        let page = if state == State::Absent { self.moves.followed(page) } else { page };
        match self.programs.tier(page) {
            Some(tier @ Tier::Kernel) => {
                let bytes = self.kernel.page_bytes;
                self.tell(&Event::Stored { page, tier, bytes });
            }
            // It was told when it was stored.
            Some(_) => {}
            None if state_of(page) == Some(State::Absent) => {}
            None => self.driver.stayed(self.now, page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_core::SpaceId;

    #[test]
    fn what_is_told_late_is_found_where_its_program_has_moved_it() {
        let page = |vpn| PageId::new(SpaceId(3), Vpn(vpn));
        let mut moves = Moves::default();
        moves.push(PageRun { first: page(11), count: 2 }, page(50));
        assert_eq!([10, 12].map(|vpn| moves.followed(page(vpn))), [page(10), page(51)]);
        // Over several moves.
        moves.push(PageRun { first: page(51), count: 1 }, page(7));
        assert_eq!(moves.followed(page(12)), page(7));
        let over = |n| (PageRun { first: page(90), count: 1 }, page(91 + n));
        (0..MOVES as u64 + 9).map(over).for_each(|(from, to)| moves.push(from, to));
        assert_eq!((moves.0.len(), moves.followed(page(12))), (MOVES, page(12)));
    }
}
