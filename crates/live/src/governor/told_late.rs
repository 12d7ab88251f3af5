//! Pages that could not leave: some are in use, some never can (what is mapped read-only, what is
//! pinned). They are offered to the policies again after a while: at once, they would be the first to
//! be picked, and the policy thread and a worker had nothing else to do.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use clew_core::{Event, PageFacts, PageId, PageRun, Tier, Vpn};
use clew_store::State;

use super::Governor;

/// For how long they are on no list.
const PAUSE: Duration = Duration::from_secs(1);

/// Moves that are remembered for pages of which a worker tells late.
const MOVES: usize = 256;

/// Pages of orders that came back with `Stayed`; the policies still wait for them.
#[derive(Default)]
pub(super) struct StayedPages {
    /// The oldest first.
    pages: VecDeque<(Instant, PageId)>,
    /// What programs moved last, and where to.
    moves: VecDeque<(PageRun, PageId)>,
}

impl StayedPages {
    /// The page could not leave.
    pub(super) fn push(&mut self, page: PageId) {
        self.pages.push_back((Instant::now(), page));
    }

    /// A program has moved these.
    pub(super) fn moved(&mut self, from: PageRun, to: PageId) {
        for (_, page) in &mut self.pages {
            *page = after(*page, from, to);
        }
        self.moves.truncate(MOVES - 1);
        self.moves.push_front((from, to));
    }

    /// Where a page is that a worker saw here, and that is not here any more.
    pub(super) fn followed(&self, page: PageId) -> PageId {
        self.moves.iter().rev().fold(page, |page, (from, to)| after(page, *from, *to))
    }

    /// The next one that has been here for so long.
    fn due(&mut self, pause: Duration) -> Option<PageId> {
        let (when, page) = *self.pages.front()?;
        (when.elapsed() >= pause).then(|| self.pages.pop_front())?;
        Some(page)
    }
}

/// Where `page` is after this move.
fn after(page: PageId, from: PageRun, to: PageId) -> PageId {
    match from.contains(page) {
        true => PageId::new(to.space(), Vpn(page.vpn().0 - from.first.vpn().0 + to.vpn().0)),
        false => page,
    }
}

impl Governor {
    /// Offers those that were left alone for a while.
    pub(super) fn offer_stayed(&mut self) {
        self.offer_stayed_for(PAUSE);
    }

    /// Offers all: somebody asks for what can leave, or takes stock.
    pub(super) fn offer_all_stayed(&mut self) {
        self.offer_stayed_for(Duration::ZERO);
    }

    fn offer_stayed_for(&mut self, pause: Duration) {
        while let Some(page) = self.stayed.due(pause) {
            if let Some(event) = self.as_it_stayed(page) {
                self.tell(&event);
            }
        }
    }

    /// What is told of a page that stayed some time ago; nothing, if it is gone or was told since.
    fn as_it_stayed(&self, page: PageId) -> Option<Event> {
        let state_of = |page: PageId| {
            self.programs.with(page.space(), |p| p.space.table.load(page.vpn()).state())
        };
        let is_here = state_of(page)? != State::Absent;
        let page = if is_here { page } else { self.stayed.followed(page) };
        let is_here = state_of(page)? != State::Absent;
        match self.programs.tier(page) {
            Some(tier @ Tier::Kernel) => {
                Some(Event::Stored { page, tier, bytes: self.kernel.page_bytes })
            }
            // It was told when it was stored.
            Some(_) => None,
            None => is_here.then_some(Event::Stayed { page }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_core::SpaceId;

    #[test]
    fn they_wait_where_their_program_has_moved_them() {
        let page = |vpn| PageId::new(SpaceId(3), Vpn(vpn));
        let mut stayed = StayedPages::default();
        (10..13).for_each(|vpn| stayed.push(page(vpn)));
        stayed.moved(PageRun { first: page(11), count: 2 }, page(50));
        assert_eq!(stayed.due(Duration::from_secs(3600)), None);
        let due: Vec<PageId> = std::iter::from_fn(|| stayed.due(Duration::ZERO)).collect();
        assert_eq!(due, [page(10), page(50), page(51)]);
        // What is told late is found there as well, over several moves.
        assert_eq!([10, 12].map(|vpn| stayed.followed(page(vpn))), [page(10), page(51)]);
        stayed.moved(PageRun { first: page(51), count: 1 }, page(7));
        assert_eq!(stayed.followed(page(12)), page(7));
        (0..MOVES as u64 + 9)
            .for_each(|n| stayed.moved(PageRun { first: page(90), count: 1 }, page(91 + n)));
        assert_eq!((stayed.moves.len(), stayed.followed(page(12))), (MOVES, page(12)));
    }
}
