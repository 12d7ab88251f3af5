//! FT-List: an LRU for most pages, and for each app a tree of those that are used together.
//!
//! Source: Archer 4.3. What is used goes to the footprint stream
//! ([`footprint_stream`](super::footprint_stream)), whose transactions are mined into a frequent-pattern
//! tree an app ([`fp_tree`](super::fp_tree)). Pages that this finds associated are the tree's, all
//! others are on active/inactive LRU lists ([`lru`](super::lru)).
//!
//! - *Narrow track*, a demand below `wide_pages`: pages of the LRU lists, one by one, as without trees.
//! - *Wide track*, from there on: the groups of the trees, apps in the order of their inactivity (when
//!   each was last in front; where Android has its Adj), the app in front not among them. Of a group
//!   what is resident leaves together, as [`Unit::Pages`].
//!
//! What a track cannot give the other one gives; pages of the app in front come last. The paper says no
//! more of the order within a tree than that it is traversed: here the group whose page was used least
//! recently is first.
//!
//! What the paper's `order` above 8 is to one allocation is the size of a round of reclaim here: nobody
//! sees the order.
//!
//! Mining is a job ([`mining`]): trees and lists change when it is done, so the same events give the same
//! victims wherever it is run. A page that becomes associated leaves the LRU lists for the front of its
//! app's; one that is so no more enters them as a new page does. Pages that are moved (mremap) lose
//! their association.
//!
//! Invariants: a resident page that was told of is on exactly one list, of one of both, unless it was
//! handed out; it is on one of a tree exactly if it is associated. Every step takes constant time, but for
//! the logarithm of the number of associated pages, and what a job has changed.
//!
//! Memory, all that there is (at its largest with default parameters, a page of 8 bytes):
//!
//! | what | bytes |
//! |---|---|
//! | LRU lists | 9.5 a page, as `zram` has |
//! | lists of the trees | 9.5 a page that is associated |
//! | queue | 4 KiB |
//! | ring of transactions | 140 KiB, and as much while its batch is mined |
//! | trees | 3 to 10 MiB ([`fp_tree`](super::fp_tree)) |
//! | groups | 27 a page that is associated, about 5 a group |
//!
//! The paper's 384 KiB are a pointer of 8 bytes a group for what is stored, 128 KiB of ring, 1 KiB of queue.

pub(crate) mod associations;
pub(crate) mod mining;

use std::collections::BTreeMap;

use clew_core::{
    AccessKind, AppId, Classes, Demand, Event, Hotness, Job, Metric, Observe, PageId, PageRun,
    Reclaim, SpaceId, Unit, Verdict, Victim, View, Whole,
};
use serde::{Deserialize, Serialize};

use super::lru::Lru;
use super::page_lists::{ListId, PageLists};
use crate::schemes::{About, Answer};
use associations::Associations;
use mining::Mining;

/// Parameters; where nothing is said, the paper's (5.1), as far as it has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// From so many pages in one round on, groups leave.
    pub wide_pages: Whole<1, { 1 << 20 }, 512>,
    /// Uses that the queue holds.
    pub queue: Whole<1, { 1 << 20 }, 256>,
    /// Uses of one transaction.
    pub window: Whole<1, 1024, 32>,
    /// How long a transaction waits for its window to fill.
    pub timeout_ms: Whole<1, 3_600_000, 3000>,
    /// How often a batch is mined.
    pub heartbeat_ms: Whole<0, 3_600_000, 3000>,
    /// Not while the CPU load is above so many per cent.
    pub busy_pct: Whole<1, 100, 80>,
    /// Transactions that wait for it (512 of 32 uses of 8 bytes: the paper's 128 KiB).
    pub transactions: Whole<1, { 1 << 20 }, 512>,
    /// With fewer of them it is put off. The paper has no number; with five, one in five is a fifth.
    pub least_transactions: Whole<1, { 1 << 20 }, 5>,
    /// A page counts that is in so many per cent of its app's transactions of a batch.
    pub support_pct: Whole<0, 100, 20>,
    /// Pages are associated of whose transactions so many per cent have both,
    pub confidence_pct: Whole<1, 100, 70>,
    /// and that were together so often. The paper has no number.
    pub together: Whole<1, { 1 << 20 }, 1>,
    /// Nodes of all trees; the paper has no bound.
    pub tree_nodes: Whole<64, { 1 << 24 }, 131_072>,
}

impl Answer<dyn Reclaim> for Params {
    fn about(&self) -> About {
        let shown =
            format!("FT-List: LRU; groups in rounds of {} pages and more", self.wide_pages.get());
        About::of("ft-list", shown)
    }

    fn build(&self) -> Box<dyn Reclaim> {
        Box::new(FtList::new(*self))
    }

    fn validate(&self) -> Result<(), String> {
        let fits = self.window.get() <= self.queue.get();
        let why = "window and queue contradict each other: a window is no longer than the queue";
        fits.then_some(()).ok_or_else(|| why.to_string())
    }
}

/// The policy. See the module.
pub struct FtList {
    params: Params,
    lru: Lru,
    /// Associated pages that are resident, by app.
    trees: PageLists,
    lists: BTreeMap<AppId, ListId>,
    known: Associations,
    mining: Mining,
    narrow_pages: u64,
    wide_rounds: u64,
    wide_pages: u64,
    groups: u64,
}

impl FtList {
    /// Knows nothing yet.
    ///
    /// # Panics
    /// If the window is longer than the queue.
    pub fn new(params: Params) -> FtList {
        FtList {
            params,
            lru: Lru::new(),
            trees: PageLists::new(),
            lists: BTreeMap::new(),
            known: Associations::default(),
            mining: Mining::new(params),
            narrow_pages: 0,
            wide_rounds: 0,
            wide_pages: 0,
            groups: 0,
        }
    }

    /// The pages that `page` is associated with, and itself, in the order of their addresses; none, if it
    /// is with none.
    pub fn group(&self, page: PageId) -> &[PageId] {
        self.known.group(page)
    }

    fn list(&mut self, app: AppId) -> ListId {
        *self.lists.entry(app).or_insert_with(|| self.trees.new_list())
    }

    /// An associated page is resident, or was used.
    fn enter_tree(&mut self, page: PageId, view: &View<'_>) {
        let Some(app) = view.app_of(page) else { return };
        let list = self.list(app);
        let slot = self.trees.slot(page);
        if self.trees.is_listed(slot) {
            self.trees.move_to_front(list, slot);
        } else {
            self.trees.push_front(list, slot);
        }
    }

    /// Of an associated page something was told.
    fn on_associated(&mut self, page: PageId, event: &Event, view: &View<'_>) {
        match event {
            Event::Access { kind: AccessKind::Fault, .. } => {}
            Event::Access { .. } => {
                // What was handed out is told back, or it was not used.
                let slot = self.trees.find(page);
                if slot.is_none_or(|slot| self.trees.is_listed(slot)) {
                    self.enter_tree(page, view);
                }
            }
            Event::Stored { .. } => {
                let slot = self.trees.slot(page);
                self.trees.set_gone(slot, 0);
            }
            _ => self.enter_tree(page, view),
        }
    }

    /// A page has become associated.
    fn associate(&mut self, page: PageId, view: &View<'_>) {
        match self.lru.give_away(page) {
            Some(true) => self.enter_tree(page, view),
            Some(false) => {
                let slot = self.trees.slot(page);
                self.trees.set_gone(slot, 0);
            }
            None => {}
        }
    }

    /// A page is associated no more.
    fn dissociate(&mut self, page: PageId) {
        let Some(slot) = self.trees.find(page) else { return };
        let listed = self.trees.is_listed(slot);
        self.trees.forget(slot);
        match listed {
            true => self.lru.enter(page),
            false => self.lru.has_left(page),
        }
    }

    /// What a job has found of `app`.
    fn regroup(&mut self, app: AppId, view: &View<'_>) {
        let FtList { known, mining, .. } = self;
        let (before, now) = match mining.tree(app) {
            Some(tree) => known.replace(app, tree.groups()),
            None => (known.forget_app(app), Vec::new()),
        };
        for page in before {
            if !self.known.has(page) {
                self.dissociate(page);
            }
        }
        now.into_iter().for_each(|page| self.associate(page, view));
    }

    fn resident(&mut self, run: PageRun, view: &View<'_>) {
        let associated: Vec<PageId> = self.known.within(run).collect();
        let mut first = run.first;
        let end = PageId::from_raw(run.first.raw() + u64::from(run.count));
        for page in associated.iter().copied().chain([end]) {
            let count = (page.raw() - first.raw()) as u32;
            if count > 0 {
                let run = PageRun { first, count };
                self.lru.on_event(&Event::Resident { run }, view);
            }
            first = PageId::from_raw(page.raw() + 1);
        }
        for page in associated {
            let slot = self.trees.slot(page);
            if !self.trees.is_listed(slot) {
                self.enter_tree(page, view);
            }
        }
    }

    fn moved(&mut self, from: PageRun, to: PageId) {
        for run in [from, PageRun { first: to, ..from }] {
            let associated: Vec<PageId> = self.known.within(run).collect();
            for page in associated {
                self.known.remove(page);
                self.dissociate(page);
            }
        }
    }

    fn forget_space(&mut self, space: SpaceId) {
        self.trees.forget_space(space, |_, _| {});
        self.known.forget_space(space);
        self.mining.forget_space(space);
    }

    /// Hands out groups of `list` until so many pages are; how many were not there.
    fn pick_groups(&mut self, list: ListId, mut wanted: usize, out: &mut Vec<Verdict>) -> usize {
        while wanted > 0
            && let Some(tail) = self.trees.tail(list)
        {
            let first = self.trees.page(tail);
            let mut pages = Vec::new();
            for page in self.known.group(first) {
                let slot = self.trees.find(*page).filter(|slot| self.trees.is_listed(*slot));
                if let Some(slot) = slot {
                    self.trees.set_gone(slot, 0);
                    pages.push(*page);
                }
            }
            debug_assert!(pages.contains(&first), "on the list of a tree, and of no group");
            self.wide_pages += pages.len() as u64;
            self.groups += u64::from(pages.len() > 1);
            wanted = wanted.saturating_sub(pages.len());
            let unit = match pages[..] {
                [page] => Unit::Page(page),
                _ => Unit::Pages(pages),
            };
            out.push(Verdict::Take(Victim { unit, hotness: None }));
        }
        wanted
    }

    /// Hands out groups of apps that are not in front, or of the one that is, least active first.
    fn pick_trees(
        &mut self,
        mut wanted: usize,
        in_front: bool,
        view: &View<'_>,
        out: &mut Vec<Verdict>,
    ) -> usize {
        if wanted == 0 {
            return 0;
        }
        let inactive = |app: &AppId| view.facts.apps.get(app).map(|stats| stats.last_foreground);
        let mut apps: Vec<(AppId, ListId)> = self
            .lists
            .iter()
            .map(|(app, list)| (*app, *list))
            .filter(|(app, _)| view.facts.is_in_front(*app) == in_front)
            .collect();
        apps.sort_by_key(|(app, _)| (inactive(app), *app));
        for (_, list) in apps {
            wanted = self.pick_groups(list, wanted, out);
        }
        wanted
    }

    fn pick_lru(
        &mut self,
        demand: Demand,
        wanted: usize,
        spared: bool,
        view: &View<'_>,
        out: &mut Vec<Verdict>,
    ) -> usize {
        let left = self.lru.pick(Demand { pages: wanted, ..demand }, spared, view, out);
        self.narrow_pages += (wanted - left) as u64;
        left
    }
}

impl Observe for FtList {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Access { page, .. } => {
                self.mining.used(view.facts.now, page);
                match self.known.has(page) {
                    true => self.on_associated(page, event, view),
                    false => self.lru.on_event(event, view),
                }
            }
            Event::PageIn { page, .. } | Event::Stored { page, .. } | Event::Stayed { page } => {
                match self.known.has(page) {
                    true => self.on_associated(page, event, view),
                    false => self.lru.on_event(event, view),
                }
            }
            Event::Resident { run } => self.resident(run, view),
            Event::Freed { run } => {
                self.lru.on_event(event, view);
                self.trees.forget_run(run, |_, _| {});
            }
            Event::Moved { from, to } => {
                self.moved(from, to);
                self.lru.on_event(event, view);
            }
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => {
                self.lru.on_event(event, view);
                self.forget_space(space);
            }
            Event::Exit { app } => {
                self.lru.on_event(event, view);
                view.facts.spaces_of(app).for_each(|space| self.forget_space(space));
                self.known.forget_app(app);
                self.mining.forget_app(app);
                if let Some(list) = self.lists.remove(&app) {
                    self.trees.end_list(list);
                }
            }
            Event::Tick => self.mining.tick(view),
            Event::JobDone { job } => {
                for app in self.mining.job_done(job) {
                    self.regroup(app, view);
                }
            }
            _ => self.lru.on_event(event, view),
        }
    }

    fn take_job(&mut self) -> Option<Job> {
        self.mining.take_job()
    }

    fn metrics(&self) -> Vec<Metric> {
        let (uses, lost) = self.mining.items();
        let (associated, groups) = self.known.counts();
        let c = &self.mining.counted;
        let bytes = self.trees.tracking_bytes() + self.known.bytes() + self.mining.bytes();
        let own = [
            ("ft_list_uses", uses, "uses of pages that the footprint stream was told of"),
            ("ft_list_lost_uses", lost, "uses that a full queue has lost"),
            ("ft_list_transactions", c.transactions, "transactions of the footprint stream"),
            ("ft_list_lost_transactions", c.dropped, "transactions that a full ring has lost"),
            ("ft_list_mined_transactions", c.mined, "transactions that were mined"),
            ("ft_list_batches", c.batches, "batches that were mined"),
            ("ft_list_busy_heartbeats", c.busy, "batches put off because the machine was busy"),
            ("ft_list_idle_heartbeats", c.too_few, "batches put off because they were too small"),
            ("ft_list_associated_pages", associated, "pages that are associated with others"),
            ("ft_list_groups", groups, "groups of associated pages"),
            ("ft_list_tree_nodes", c.nodes, "nodes of all trees"),
            ("ft_list_halvings", c.halved, "times that a tree forgot half of what it had counted"),
            ("ft_list_narrow_pages", self.narrow_pages, "victims of the LRU lists"),
            ("ft_list_wide_rounds", self.wide_rounds, "rounds large enough for groups"),
            ("ft_list_wide_pages", self.wide_pages, "victims of the trees"),
            ("ft_list_picked_groups", self.groups, "groups of two and more pages among them"),
            ("ft_list_bytes", bytes, "memory held for uses, trees, groups and their lists"),
        ];
        let own = own.map(|(name, value, help)| Metric { name, value: value as f64, help });
        own.into_iter().chain(self.lru.metrics()).collect()
    }
}

impl Classes for FtList {
    /// It knows no hot, warm and cold.
    fn class(&self, _page: PageId) -> Option<Hotness> {
        None
    }
}

impl Reclaim for FtList {
    fn pick_victims(&mut self, demand: Demand, view: &View<'_>, out: &mut Vec<Verdict>) {
        let mut wanted = demand.pages;
        if wanted >= self.params.wide_pages.get() as usize {
            self.wide_rounds += 1;
            wanted = self.pick_trees(wanted, false, view, out);
            wanted = self.pick_lru(demand, wanted, false, view, out);
        } else {
            wanted = self.pick_lru(demand, wanted, false, view, out);
            wanted = self.pick_trees(wanted, false, view, out);
        }
        wanted = self.pick_lru(demand, wanted, true, view, out);
        self.pick_trees(wanted, true, view, out);
    }

    fn pick_app(&mut self, app: AppId, view: &View<'_>, out: &mut Vec<Verdict>) {
        if let Some(list) = self.lists.get(&app) {
            self.pick_groups(*list, usize::MAX, out);
        }
        self.lru.pick_app(app, view, out);
    }
}
