//! Clean pages of files before anonymous ones: how the kernel that ezswap ran on reclaims.
//!
//! Source: ezswap III-A: "The current Linux kernel evicts the clean file-mapped pages before dirty (modified)
//! file-mapped pages and anonymous pages." Who leaves: the page of a file that was used longest ago, unless it was used
//! since the app in front came there; then anonymous pages by [`super::lru`], those of the app in front excepted; then
//! the other pages of files, and at last the app in front. (The kernel does not reclaim mapped pages that are in use,
//! whatever their kind. The statistics of traces suppose the same order, `clew-trace`, `statistics/evictions.rs`.)
//!
//! Where there are no spaces of files this is `lru`. Pages of files are on two lists of [`super::page_lists`], at its
//! cost; every step takes constant time.

use clew_core::{
    AccessKind, AppId, Classes, Demand, Event, Hotness, Metric, Observe, PageId, PageRun, Reclaim,
    Unit, Verdict, Victim, View,
};

use super::lru::Lru;
use super::page_lists::{ListId, PageLists, Slot};
use crate::plain;
use crate::schemes::About;

/// Pages of files, the one used last first.
struct Files {
    lists: PageLists,
    /// Used since the app in front came there.
    in_use: ListId,
    /// Not used since.
    old: ListId,
    front: Option<AppId>,
    pages: u64,
}

impl Default for Files {
    fn default() -> Files {
        let (lists, front) = (PageLists::default(), None);
        Files { lists, in_use: ListId(0), old: ListId(1), front, pages: 0 }
    }
}

impl Files {
    fn enter(&mut self, page: PageId, list: ListId) {
        let slot = self.lists.slot(page);
        if !self.lists.is_listed(slot) {
            self.lists.push_front(list, slot);
            self.pages += 1;
        }
    }

    fn used(&mut self, page: PageId) {
        match self.lists.find(page) {
            Some(slot) if self.lists.is_listed(slot) => {
                self.lists.move_to_front(self.in_use, slot);
            }
            // It is on its way out.
            Some(_) => {}
            None => self.enter(page, self.in_use),
        }
    }

    fn leave(&mut self, slot: Slot) {
        self.lists.set_gone(slot, 0);
        self.pages -= 1;
    }

    /// An app comes to the front: nothing was used since.
    fn comes_to_front(&mut self, app: AppId) {
        if self.front.replace(app) != Some(app) {
            self.lists.append(self.old, self.in_use);
            std::mem::swap(&mut self.old, &mut self.in_use);
        }
    }

    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        let Files { lists, pages, .. } = self;
        match *event {
            Event::Launch { app } | Event::Relaunch { app } => self.comes_to_front(app),
            Event::Resident { run } => *pages += lists.push_run(self.old, run),
            Event::Access { page, kind: AccessKind::Seen, .. } => self.used(page),
            Event::Used { run } => run.pages().for_each(|page| self.used(page)),
            Event::Access { page, kind: AccessKind::Fresh, .. }
            | Event::PageIn { page, demand: true, .. }
            | Event::Stayed { page } => self.enter(page, self.in_use),
            Event::PageIn { page, .. } => self.enter(page, self.old),
            Event::Stored { page, .. } => {
                if let Some(slot) = lists.find(page).filter(|slot| lists.is_listed(*slot)) {
                    self.leave(slot);
                }
            }
            Event::Freed { run } => lists.forget_run(run, |_, _| *pages -= 1),
            Event::Moved { from, to } => lists.move_run(from, to, |_, _| *pages -= 1),
            Event::SpaceEnd { space } => lists.forget_space(space, |_, _| *pages -= 1),
            Event::Exit { app } => {
                for space in view.facts.spaces_of(app) {
                    lists.forget_space(space, |_, _| *pages -= 1);
                }
            }
            _ => {}
        }
    }

    /// Appends up to so many of a list, the one used longest ago first; how many were not found.
    fn pick(&mut self, list: ListId, mut wanted: usize, out: &mut Vec<Verdict>) -> usize {
        while wanted > 0
            && let Some(slot) = self.lists.tail(list)
        {
            out.push(take(self.lists.page(slot)));
            self.leave(slot);
            wanted -= 1;
        }
        wanted
    }
}

fn take(page: PageId) -> Verdict {
    Verdict::Take(Victim { unit: Unit::Page(page), hotness: None })
}

/// The policy. See the module.
#[derive(Default)]
pub struct FilesFirst {
    files: Files,
    anonymous: Lru,
    picked_files: u64,
}

plain!(
    FilesFirst as dyn Reclaim,
    About {
        takes_files: true,
        ..About::of("files-first", "active/inactive LRU, clean file pages first")
    }
);

/// The page that an event is about, or the first of several of one space.
fn about(event: &Event) -> Option<PageId> {
    match *event {
        Event::Resident { run: PageRun { first: page, .. } }
        | Event::Used { run: PageRun { first: page, .. } }
        | Event::Unused { run: PageRun { first: page, .. } }
        | Event::Freed { run: PageRun { first: page, .. } }
        | Event::Moved { from: PageRun { first: page, .. }, .. }
        | Event::Access { page, .. }
        | Event::Stored { page, .. }
        | Event::Stayed { page }
        | Event::PageIn { page, .. }
        | Event::PrefetchUsed { page }
        | Event::PrefetchExpired { page } => Some(page),
        _ => None,
    }
}

impl Observe for FilesFirst {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match about(event) {
            Some(page) if view.is_file(page) => self.files.on_event(event, view),
            Some(_) => self.anonymous.on_event(event, view),
            None => {
                self.files.on_event(event, view);
                self.anonymous.on_event(event, view);
            }
        }
    }

    /// Those of `lru`, of anonymous pages, and what is held of pages of files.
    fn metrics(&self) -> Vec<Metric> {
        let of = |name: &'static str, value: u64, help| Metric { name, value: value as f64, help };
        let tracking = self.files.lists.tracking_bytes();
        let mut all = self.anonymous.metrics();
        all.extend([
            of("files_first_pages", self.files.pages, "pages of files on the lists"),
            of("files_first_picked_pages", self.picked_files, "victims that are of files"),
            of("files_first_tracking_bytes", tracking, "memory held for tracking pages of files"),
        ]);
        all
    }
}

impl Classes for FilesFirst {
    /// An LRU knows no hot, warm and cold.
    fn class(&self, _page: PageId) -> Option<Hotness> {
        None
    }
}

impl Reclaim for FilesFirst {
    fn pick_victims(&mut self, demand: Demand, view: &View<'_>, out: &mut Vec<Verdict>) {
        let mut rest = demand.pages;
        let lists = [self.files.old, self.files.in_use];
        for (list, spared) in lists.into_iter().zip([false, true]) {
            let before = out.len();
            rest = self.files.pick(list, rest, out);
            self.picked_files += (out.len() - before) as u64;
            rest = self.anonymous.pick(Demand { pages: rest, ..demand }, spared, view, out);
        }
    }

    fn pick_app(&mut self, app: AppId, view: &View<'_>, out: &mut Vec<Verdict>) {
        for space in view.facts.spaces_of(app) {
            for slot in self.files.lists.listed_of_space(space) {
                out.push(take(self.files.lists.page(slot)));
                self.files.leave(slot);
            }
        }
        self.anonymous.pick_app(app, view, out);
    }
}
