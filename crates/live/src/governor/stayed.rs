//! Pages that could not leave: some are in use, some never can (what is mapped read-only, what is
//! pinned). They are offered to the policies again after a while: at once, they would be the first to
//! be picked, and the policy thread and a worker had nothing else to do.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use clew_core::{Event, PageId, PageRun, Vpn};

use super::Governor;

/// For how long they are on no list.
const PAUSE: Duration = Duration::from_secs(1);

/// Pages of orders that came back with `Stayed`, oldest first; the policies still wait for them.
#[derive(Default)]
pub(super) struct StayedPages {
    pages: VecDeque<(Instant, PageId)>,
}

impl StayedPages {
    /// The page could not leave.
    pub(super) fn push(&mut self, page: PageId) {
        self.pages.push_back((Instant::now(), page));
    }

    /// Their programs have moved them.
    pub(super) fn moved(&mut self, from: PageRun, to: PageId) {
        for (_, page) in self.pages.iter_mut().filter(|(_, page)| from.contains(*page)) {
            let vpn = Vpn(page.vpn().0 - from.first.vpn().0 + to.vpn().0);
            *page = PageId::new(to.space(), vpn);
        }
    }

    /// The next one that has been here for so long.
    fn due(&mut self, pause: Duration) -> Option<PageId> {
        let (when, page) = *self.pages.front()?;
        (when.elapsed() >= pause).then(|| self.pages.pop_front())?;
        Some(page)
    }
}

impl Governor {
    /// Offers those that were left alone for a while.
    pub(super) fn offer_stayed(&mut self) {
        self.offer_stayed_for(PAUSE);
    }

    /// Offers all: a user asks for what can leave.
    pub(super) fn offer_all_stayed(&mut self) {
        self.offer_stayed_for(Duration::ZERO);
    }

    fn offer_stayed_for(&mut self, pause: Duration) {
        while let Some(page) = self.stayed.due(pause) {
            if let Some(event) = self.as_it_is_now(&Event::Stayed { page }) {
                self.tell(&event);
            }
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
    }
}
