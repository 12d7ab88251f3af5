//! Clean pages of files before anonymous ones, each by an active/inactive LRU of its own: how the kernel that ezswap
//! ran on reclaims.
//!
//! Source: ezswap III-A: "The current Linux kernel evicts the clean file-mapped pages before dirty (modified)
//! file-mapped pages and anonymous pages." Both lists are [`super::lru`]'s, as the kernel has one for each kind. What
//! the app in front has of files stays longer than anonymous pages of the others, as the kernel does not reclaim what is
//! in use: it leaves when these are gone, or when the demand is urgent.
//!
//! Where there are no spaces of files this is `lru`.

use clew_core::{
    AppId, Classes, Demand, Event, Hotness, Metric, Observe, PageId, PageRun, Reclaim, Verdict,
    View,
};

use super::lru::Lru;
use crate::plain;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct FilesFirst {
    files: Lru,
    anonymous: Lru,
    picked: u64,
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
        let tracking = self.files.tracking_bytes();
        let mut all = self.anonymous.metrics();
        all.extend([
            of("files_first_pages", self.files.listed_pages(), "pages of files on the lists"),
            of("files_first_picked_file_pages", self.picked_files, "victims that are of files"),
            of("files_first_picked_pages", self.picked, "victims that are anonymous"),
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
        for spared in [false, true] {
            for (lru, picked) in
                [(&mut self.files, &mut self.picked_files), (&mut self.anonymous, &mut self.picked)]
            {
                let before = out.len();
                rest = lru.pick(Demand { pages: rest, ..demand }, spared, view, out);
                *picked += (out.len() - before) as u64;
            }
        }
    }

    fn pick_app(&mut self, app: AppId, view: &View<'_>, out: &mut Vec<Verdict>) {
        self.files.pick_app(app, view, out);
        self.anonymous.pick_app(app, view, out);
    }
}
