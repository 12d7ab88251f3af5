//! What leaves DRAM of a given size, file pages and anonymous ones (ezswap, figure 4).

use std::collections::BTreeMap;

use clew_core::PageId;
use serde::Serialize;

use super::{ByPage, Spaces, freed};
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

#[derive(Default)]
struct Lru {
    by_use: BTreeMap<u64, PageId>,
    last_use: ByPage<u64>,
}

impl Lru {
    fn touch(&mut self, page: PageId, now: u64) -> bool {
        let before = self.last_use.insert(page, now);
        if let Some(before) = before {
            self.by_use.remove(&before);
        }
        self.by_use.insert(now, page);
        before.is_none()
    }

    fn remove(&mut self, page: PageId) {
        if let Some(last) = self.last_use.remove(&page) {
            self.by_use.remove(&last);
        }
    }

    fn oldest(&self) -> Option<(u64, PageId)> {
        self.by_use.first_key_value().map(|(at, page)| (*at, *page))
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
    pub fn new(dram_pages: usize) -> Dram {
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
        if let Some(run) = freed(&stamped.record) {
            for page in run.pages() {
                self.anonymous.remove(page);
                self.files.remove(page);
            }
        }
    }

    fn make_room(&mut self) {
        while self.files.by_use.len() + self.anonymous.by_use.len() > self.evictions.dram_pages {
            let file = self.files.oldest();
            let unused = file.filter(|(last, _)| *last <= self.front_since);
            let counted = u64::from(self.relaunched);
            if let Some((_, page)) = unused {
                self.files.remove(page);
                self.evictions.file += counted;
            } else if let Some((_, page)) = self.anonymous.oldest() {
                self.anonymous.remove(page);
                self.evictions.anonymous += counted;
            } else if let Some((_, page)) = file {
                self.files.remove(page);
                self.evictions.file += counted;
            }
        }
    }

    pub fn finish(self) -> Evictions {
        self.evictions
    }
}
