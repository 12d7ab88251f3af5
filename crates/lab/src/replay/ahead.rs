//! Pages that came back before they were asked for, and when each is there.

use clew_core::{PageId, PageRun, SpaceId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// A restore that is going on: one page after the other.
#[derive(Clone, Copy)]
struct Pace {
    next_ns: f64,
    each_ns: f64,
}

/// Resident pages that were not asked for yet.
pub(super) struct Ahead {
    /// When each is there, in the time of programs.
    ready_ns: HashMap<PageId, f64, FixedState>,
    pace: Option<Pace>,
    /// Until then the restorer has work.
    busy_until_ns: f64,
}

impl Default for Ahead {
    fn default() -> Ahead {
        let ready_ns = HashMap::with_hasher(FixedState::default());
        Ahead { ready_ns, pace: None, busy_until_ns: 0.0 }
    }
}

impl Ahead {
    /// From `at_ns` on, `pages` are restored, which takes `cpu_ns` together. One restorer does all
    /// of that, one order after the other.
    pub fn begin(&mut self, at_ns: f64, cpu_ns: f64, pages: usize) {
        let start = at_ns.max(self.busy_until_ns);
        let each_ns = cpu_ns / pages.max(1) as f64;
        self.pace = Some(Pace { next_ns: start + each_ns, each_ns });
        self.busy_until_ns = start + cpu_ns;
    }

    /// The restore is told to its end.
    pub fn end(&mut self) {
        self.pace = None;
    }

    /// `page` came: as the next one of the restore, or with a fault at `now_ns`.
    pub fn came(&mut self, page: PageId, now_ns: f64) {
        let ready = match &mut self.pace {
            Some(pace) => {
                let ready = pace.next_ns;
                pace.next_ns += pace.each_ns;
                ready
            }
            None => now_ns,
        };
        self.ready_ns.insert(page, ready);
    }

    /// `page` is used, or leaves; when it was there, if it had not been asked for.
    #[inline]
    pub fn used(&mut self, page: PageId) -> Option<f64> {
        if self.ready_ns.is_empty() { None } else { self.ready_ns.remove(&page) }
    }

    /// These pages are gone; how many of them nobody had asked for.
    pub fn gone(&mut self, run: PageRun) -> u64 {
        let before = self.ready_ns.len();
        if (run.count as usize) < before {
            for page in run.pages() {
                self.ready_ns.remove(&page);
            }
        } else if before > 0 {
            self.ready_ns.retain(|page, _| !run.contains(*page));
        }
        (before - self.ready_ns.len()) as u64
    }

    /// All pages of a space are gone; how many of them nobody had asked for.
    pub fn gone_space(&mut self, space: SpaceId) -> u64 {
        let before = self.ready_ns.len();
        self.ready_ns.retain(|page, _| page.space() != space);
        (before - self.ready_ns.len()) as u64
    }
}
