//! Pages that came back before they were asked for, and when each is there.

use clew_core::{PageId, PageRun, SpaceId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// A restore that is going on: one page after the other.
#[derive(Clone, Copy)]
struct Pace {
    next_ns: f64,
    each_ns: f64,
    alone_ns: f64,
}

/// A page that came, or is on its way.
#[derive(Clone, Copy)]
struct Coming {
    ready_ns: f64,
    /// What fetching it alone would take.
    alone_ns: f64,
}

/// What an order to restore pages takes.
#[derive(Clone, Copy)]
pub(super) struct Restoring {
    /// The restorer's own work, and that of the devices that it reads from.
    pub work_ns: f64,
    /// Until the first of it is there, the restorer going on meanwhile.
    pub round_trip_ns: f64,
    /// What it would take a program to fetch one of its pages itself.
    pub alone_ns: f64,
    /// Pages that come.
    pub pages: usize,
}

/// Resident pages that were not asked for yet.
pub(super) struct Ahead {
    /// When each is there, in the time of programs.
    coming: HashMap<PageId, Coming, FixedState>,
    pace: Option<Pace>,
    /// Until then the restorer has work.
    busy_until_ns: f64,
}

impl Default for Ahead {
    fn default() -> Ahead {
        let coming = HashMap::with_hasher(FixedState::default());
        Ahead { coming, pace: None, busy_until_ns: 0.0 }
    }
}

impl Ahead {
    /// From `at_ns` on, pages are restored. One restorer does all of that, one order after the other; what it asks
    /// of donors is on its way meanwhile.
    pub fn begin(&mut self, at_ns: f64, order: Restoring) {
        let Restoring { work_ns, round_trip_ns, alone_ns, pages } = order;
        let start = at_ns.max(self.busy_until_ns);
        let each_ns = work_ns / pages.max(1) as f64;
        self.pace = Some(Pace { next_ns: start + round_trip_ns + each_ns, each_ns, alone_ns });
        self.busy_until_ns = start + work_ns;
    }

    /// The restore is told to its end.
    pub fn end(&mut self) {
        self.pace = None;
    }

    /// `page` came: as the next one of the restore, or with a fault at `now_ns`.
    pub fn came(&mut self, page: PageId, now_ns: f64) {
        let coming = match &mut self.pace {
            Some(pace) => {
                let ready_ns = pace.next_ns;
                pace.next_ns += pace.each_ns;
                Coming { ready_ns, alone_ns: pace.alone_ns }
            }
            None => Coming { ready_ns: now_ns, alone_ns: 0.0 },
        };
        self.coming.insert(page, coming);
    }

    #[inline]
    fn take(&mut self, page: PageId) -> Option<Coming> {
        if self.coming.is_empty() { None } else { self.coming.remove(&page) }
    }

    /// `page` is used at `now_ns`; what is waited for it, if it had not been asked for. What is still on its way the
    /// program fetches itself, if that is faster.
    #[inline]
    pub fn used(&mut self, page: PageId, now_ns: f64) -> Option<f64> {
        let Coming { ready_ns, alone_ns } = self.take(page)?;
        Some((ready_ns - now_ns).clamp(0.0, alone_ns))
    }

    /// `page` leaves; whether nobody had asked for it.
    pub fn left(&mut self, page: PageId) -> bool {
        self.take(page).is_some()
    }

    /// These pages are gone; how many of them nobody had asked for.
    pub fn gone(&mut self, run: PageRun) -> u64 {
        let before = self.coming.len();
        if (run.count as usize) < before {
            for page in run.pages() {
                self.coming.remove(&page);
            }
        } else if before > 0 {
            self.coming.retain(|page, _| !run.contains(*page));
        }
        (before - self.coming.len()) as u64
    }

    /// All pages of a space are gone; how many of them nobody had asked for.
    pub fn gone_space(&mut self, space: SpaceId) -> u64 {
        let before = self.coming.len();
        self.coming.retain(|page, _| page.space() != space);
        (before - self.coming.len()) as u64
    }
}
