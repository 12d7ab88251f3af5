//! Which pages may enter the pool: an admission policy (ezswap's, mostly), told and asked as a scheme's is.
//!
//! The policy knows pages by a number that each gets when it comes to the door: what it knew is over when a page leaves, and the
//! same place of the file is another page later. All are clean pages of files.
//!
//! Order of locks: `asked` is held by nobody who holds `inside`.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use clew_core::{
    Admission, Admit, AppId, Candidate, Event, Facts, PageCounts, PageFacts, PageId, PageRun,
    SpaceId, Tier, TierFacts, View, Vpn,
};
use clew_policy::admission::all::AdmitAll;
use clew_policy::admission::hit_window::REQUESTS;
use clew_policy::admission::selective;
use clew_policy::schemes::Answer;
use parking_lot::Mutex;

/// What all pages of a mount are, for the policy.
const FILES: SpaceId = SpaceId(0);
const MOUNT: AppId = AppId(0);
/// What was asked for, whatever it is: what is read stays in the pool, so the copy that came out has no number.
const ASKED: u64 = 0;
/// As many numbers as a space has pages; by then those that were given first are long free again.
const NUMBERS: u64 = 1 << 45;

/// Bytes at the beginning of a page that the policy is shown.
const SAMPLE_BYTES: usize = 512;

/// What policies of a mount are told of the world: there are clean pages of files.
pub fn facts_of_files() -> Facts {
    Facts { space_app: vec![Some(MOUNT)], file_spaces: BTreeSet::from([FILES]), ..Facts::default() }
}

/// The door.
pub struct Door {
    inside: Mutex<Inside>,
    /// Whether the last pages that were asked for were in the pool, the oldest first: readers write them down here, and
    /// whoever asks the policy tells it.
    asked: Mutex<VecDeque<bool>>,
    admits_all: bool,
}

struct Inside {
    policy: Box<dyn Admission>,
    facts: Facts,
    next: u64,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("admits_all", &self.admits_all).finish_non_exhaustive()
    }
}

impl Door {
    /// One that lets in what is worth its room (ezswap III-B), or everything.
    pub fn new(selective: bool) -> Door {
        let policy: Box<dyn Admission> = match selective {
            true => selective::Params { files: true, ..Default::default() }.build(),
            false => AdmitAll { files: true }.build(),
        };
        Door {
            admits_all: policy.admits_all(),
            inside: Mutex::new(Inside { policy, facts: facts_of_files(), next: ASKED }),
            asked: Mutex::new(VecDeque::new()),
        }
    }

    /// Pages were asked for, of which `hits` were in the pool and `misses` were not.
    pub fn asked(&self, hits: u64, misses: u64) {
        if self.admits_all {
            return;
        }
        let most = REQUESTS as usize;
        let mut asked = self.asked.lock();
        asked.extend(std::iter::repeat_n(true, hits.min(REQUESTS) as usize));
        asked.extend(std::iter::repeat_n(false, misses.min(REQUESTS) as usize));
        // No more is remembered of it in the end.
        let beyond = asked.len().saturating_sub(most);
        asked.drain(..beyond);
    }

    /// What a page that begins like this is called, if it may enter a pool that is so full.
    pub fn admits(&self, page: &[u8], pool: TierFacts) -> Option<PageId> {
        let asked = match self.admits_all {
            true => VecDeque::new(),
            false => std::mem::take(&mut *self.asked.lock()),
        };
        let mut inside = self.inside.lock();
        for hit in asked {
            let tier = if hit { Tier::Pool } else { Tier::Flash };
            inside.tell(&Event::PageIn { page: number(ASKED), tier, demand: true });
        }
        inside.facts.tiers.insert(Tier::Pool, pool);
        inside.next = inside.next % (NUMBERS - 1) + 1;
        let page_id = number(inside.next);
        let sample = &page[..page.len().min(SAMPLE_BYTES)];
        let Inside { policy, facts, .. } = &mut *inside;
        let view = View { facts, pages: &Unknown, classes: None };
        let admit = policy.admit(Candidate { page: page_id, sample }, &view);
        (admit == Admit::Yes).then_some(page_id)
    }

    /// It has entered, and takes so many bytes.
    pub fn entered(&self, page: PageId, bytes: u32) {
        self.inside.lock().tell(&Event::Stored { page, tier: Tier::Pool, bytes });
    }

    /// Pages have left.
    pub fn left(&self, pages: impl Iterator<Item = PageId>) {
        let mut inside = self.inside.lock();
        for page in pages {
            inside.tell(&Event::Freed { run: PageRun { first: page, count: 1 } });
        }
    }

    /// What the policy counts by this name; zero if it does not.
    #[cfg(test)]
    fn metric(&self, name: &str) -> f64 {
        let metrics = self.inside.lock().policy.metrics();
        metrics.iter().find(|metric| metric.name == name).map_or(0.0, |metric| metric.value)
    }
}

impl Inside {
    fn tell(&mut self, event: &Event) {
        let view = View { facts: &self.facts, pages: &Unknown, classes: None };
        self.policy.on_event(event, &view);
    }
}

fn number(number: u64) -> PageId {
    PageId::new(FILES, Vpn(number))
}

/// Nothing that a policy of admission asks of page tables is known here.
struct Unknown;

impl PageFacts for Unknown {
    fn tier(&self, _page: PageId) -> Option<Tier> {
        None
    }

    fn counts(&self, _space: SpaceId) -> PageCounts {
        PageCounts::default()
    }

    fn for_each(&self, _space: SpaceId, _visit: &mut dyn FnMut(PageId, Option<Tier>)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> TierFacts {
        TierFacts { used_bytes: 1 << 20, limit_bytes: 1 << 20, ..TierFacts::default() }
    }

    /// Every value, as what is compressed already has.
    fn noise() -> Vec<u8> {
        (0..4096u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
    }

    #[test]
    fn what_is_not_worth_its_room_stays_outside_while_the_pool_is_asked_with_success() {
        let door = Door::new(true);
        let inside = door.admits(&[7; 4096], full()).expect("it is worth it");
        door.entered(inside, 1000);
        assert!(door.admits(&noise(), full()).is_some(), "nothing was found in the pool yet");
        door.asked(1000, 0);
        assert!(door.admits(&noise(), full()).is_none());
        assert!(door.admits(&[7; 4096], full()).is_some());
        assert_eq!(door.metric("selective_window_hits"), 256.0);
        assert_eq!(door.metric("selective_rejected_file_pages"), 1.0);
        // Now nothing that was asked for is there.
        door.asked(0, 256);
        assert!(door.admits(&noise(), full()).is_some());
    }

    #[test]
    fn what_has_left_counts_no_more() {
        let door = Door::new(true);
        let pages: Vec<PageId> = (0..100)
            .map(|_| {
                let page = door.admits(&[7; 4096], full()).expect("it is worth it");
                door.entered(page, 100);
                page
            })
            .collect();
        assert_eq!(door.metric("selective_tracking_bytes"), 2400.0);
        door.left(pages.into_iter());
        assert_eq!(door.metric("selective_tracking_bytes"), 0.0);
    }

    #[test]
    fn a_door_that_is_open_lets_everything_in() {
        let door = Door::new(false);
        door.asked(1000, 0);
        assert!(door.admits(&noise(), full()).is_some());
        assert!(door.asked.lock().is_empty());
    }
}
