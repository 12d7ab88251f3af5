//! What leaves the pool by ezswap's compressibility-aware replacement (III-C): frames of z3fold by lottery, those with
//! few zpages and much free space first.
//!
//! The policy is a scheme's, told and asked as in a daemon. It knows pages by the names that the door has given them; this
//! knows which page of which file each is, and where in the pool. All are pages of files here, so frames are of the
//! six categories of these.
//!
//! It is locked alone: nobody who holds the lock of the index waits for it.

use std::collections::HashMap;
use std::fmt;

use clew_core::{
    Event, Eviction, Facts, FrameFacts, PageCounts, PageFacts, PageId, PageRun, SpaceId, Tier,
    Unit, View,
};
use clew_policy::eviction::compressibility;
use clew_policy::schemes::Answer;
use clew_store::{Handle, Store};
use parking_lot::Mutex;

use crate::door::facts_of_files;
use crate::stamp::PageKey;

/// The lottery.
pub struct Lottery(Mutex<Drum>);

struct Drum {
    policy: Box<dyn Eviction>,
    facts: Facts,
    pages: HashMap<PageId, (PageKey, Handle)>,
}

impl fmt::Debug for Lottery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lottery").finish_non_exhaustive()
    }
}

impl Lottery {
    /// Of nothing yet.
    pub fn new() -> Lottery {
        let policy = compressibility::Params::default().build();
        Lottery(Mutex::new(Drum { policy, facts: facts_of_files(), pages: HashMap::new() }))
    }

    /// A page has entered the pool, and is there in `store`.
    pub fn entered(&self, name: PageId, page: PageKey, handle: Handle, store: &Store) {
        let mut drum = self.0.lock();
        drum.pages.insert(name, (page, handle));
        drum.stored(name, store);
    }

    /// It has left. Where it was is not given back before.
    pub fn left(&self, name: PageId, store: &Store) {
        let mut drum = self.0.lock();
        drum.pages.remove(&name);
        drum.tell(&Event::Freed { run: PageRun { first: name, count: 1 } }, store);
    }

    /// What is to leave so that about `bytes` become free. Of each it has to be told that it has left, or that it
    /// [stays](Lottery::stays).
    pub fn draw(&self, bytes: u64, store: &Store) -> Vec<(PageId, PageKey)> {
        let Drum { policy, facts, pages } = &mut *self.0.lock();
        let mut units = Vec::new();
        let held = Held { pages, store };
        policy.pick_evictions(bytes, &View { facts, pages: &held, classes: None }, &mut units);
        let names = units.into_iter().flat_map(|unit| match unit {
            Unit::Page(page) => vec![page],
            Unit::Pages(pages) => pages,
            Unit::App(_) => pages.keys().copied().collect(),
        });
        names.filter_map(|name| Some((name, pages.get(&name)?.0))).collect()
    }

    /// A page that was drawn has not left.
    pub fn stays(&self, name: PageId, store: &Store) {
        let mut drum = self.0.lock();
        if drum.pages.contains_key(&name) {
            drum.stored(name, store);
        }
    }
}

impl Drum {
    fn stored(&mut self, page: PageId, store: &Store) {
        let handle = self.pages.get(&page).map(|(_, handle)| *handle);
        let bytes = handle.map_or(0, |handle| store.stored_bytes(handle));
        self.tell(&Event::Stored { page, tier: Tier::Pool, bytes }, store);
    }

    fn tell(&mut self, event: &Event, store: &Store) {
        let Drum { policy, facts, pages } = self;
        let held = Held { pages, store };
        policy.on_event(event, &View { facts, pages: &held, classes: None });
    }
}

/// Where pages are in the pool.
struct Held<'a> {
    pages: &'a HashMap<PageId, (PageKey, Handle)>,
    store: &'a Store,
}

impl PageFacts for Held<'_> {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.pages.contains_key(&page).then_some(Tier::Pool)
    }

    fn frame(&self, page: PageId) -> Option<FrameFacts> {
        self.store.frame(self.pages.get(&page)?.1)
    }

    fn counts(&self, _space: SpaceId) -> PageCounts {
        let mut counts = PageCounts::default();
        counts.stored[Tier::Pool.index()] = self.pages.len() as u64;
        counts
    }

    fn for_each(&self, _space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        self.pages.keys().for_each(|page| visit(*page, Some(Tier::Pool)));
    }
}
