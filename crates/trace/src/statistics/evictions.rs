//! What leaves DRAM of a given size, file pages and anonymous ones (ezswap, figure 4).

use std::collections::VecDeque;

use clew_core::PageId;
use serde::Serialize;

use super::{ByPage, Spaces, follow};
use crate::record::{Record, Stamped};

/// Evictions after every app was launched once, as in ezswap's experiment.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Evictions {
    /// DRAM, pages.
    pub dram_pages: usize,
    /// Anonymous pages that left it.
    pub anonymous: u64,
    /// Clean pages of files that left it.
    pub file: u64,
}

impl Evictions {
    /// Pages of files for each anonymous one.
    pub fn file_per_anonymous(&self) -> Option<f64> {
        (self.anonymous > 0).then(|| self.file as f64 / self.anonymous as f64)
    }
}

/// Pages by their last use.
#[derive(Default)]
struct Lru {
    last_use: ByPage<u64>,
    /// Uses, oldest first. Only the last one of a page counts.
    uses: VecDeque<(u64, PageId)>,
}

impl Lru {
    fn touch(&mut self, page: PageId, now: u64) -> bool {
        self.uses.push_back((now, page));
        if self.uses.len() > 4 * self.last_use.len() + 1024 {
            let last_use = &self.last_use;
            self.uses.retain(|(at, page)| *at == now || last_use.get(page) == Some(at));
        }
        self.last_use.insert(page, now).is_none()
    }

    fn oldest(&mut self) -> Option<(u64, PageId)> {
        while let Some((at, page)) = self.uses.front() {
            if self.last_use.get(page) == Some(at) {
                break;
            }
            self.uses.pop_front();
        }
        self.uses.front().copied()
    }

    /// Pages that are gone are not in DRAM; those that moved have another name.
    fn follow(&mut self, record: &Record) {
        follow(&mut self.last_use, record);
        if let Record::Moved { .. } = record {
            self.uses = self.last_use.iter().map(|(page, last)| (*last, *page)).collect();
            self.uses.make_contiguous().sort_unstable();
        }
    }
}

/// DRAM with two LRU lists. Who leaves: the oldest page of a file, unless it was used since the app
/// in front came there, then the oldest anonymous page, then any page of a file; as the kernel's
/// lists of clean file pages are reclaimed before anonymous ones, but for what is in use.
pub struct Dram {
    files: Lru,
    anonymous: Lru,
    clock: u64,
    /// When the app in front came there.
    front_since: u64,
    relaunched: bool,
    evictions: Evictions,
}

impl Dram {
    /// With room for so many pages, and for one at least: the one that is used.
    pub fn new(dram_pages: usize) -> Dram {
        let dram_pages = dram_pages.max(1);
        Dram {
            files: Lru::default(),
            anonymous: Lru::default(),
            clock: 0,
            front_since: 0,
            relaunched: false,
            evictions: Evictions { dram_pages, ..Evictions::default() },
        }
    }

    pub fn take(&mut self, spaces: &Spaces, stamped: &Stamped) {
        match stamped.record {
            Record::Launch { .. } => self.front_since = self.clock,
            Record::Relaunch { .. } => {
                self.front_since = self.clock;
                self.relaunched = true;
            }
            Record::Access { page, .. } => {
                self.clock += 1;
                let list = match spaces.is_file(page.space()) {
                    true => &mut self.files,
                    false => &mut self.anonymous,
                };
                if list.touch(page, self.clock) {
                    self.make_room();
                }
            }
            _ => {}
        }
        self.anonymous.follow(&stamped.record);
        self.files.follow(&stamped.record);
    }

    fn make_room(&mut self) {
        while self.files.last_use.len() + self.anonymous.last_use.len() > self.evictions.dram_pages
        {
            let file = self.files.oldest();
            let unused = file.filter(|(last, _)| *last <= self.front_since);
            // The page that room is made for stays.
            let anonymous = self.anonymous.oldest().filter(|(last, _)| *last < self.clock);
            let counted = u64::from(self.relaunched);
            if let Some((_, page)) = unused {
                self.files.last_use.remove(&page);
                self.evictions.file += counted;
            } else if let Some((_, page)) = anonymous {
                self.anonymous.last_use.remove(&page);
                self.evictions.anonymous += counted;
            } else if let Some((_, page)) = file {
                self.files.last_use.remove(&page);
                self.evictions.file += counted;
            }
        }
    }

    pub fn finish(self) -> Evictions {
        self.evictions
    }
}
