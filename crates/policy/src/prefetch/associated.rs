//! Associated: a fault brings the pages that the page is associated with, as Archer's miner says.
//!
//! Source: Archer 4.3, the association without the rest of it: footprint stream, transactions and frequent-pattern
//! trees are those of [`ft_list`](crate::reclaim::ft_list), with its parameters. There what is associated leaves,
//! is compressed and comes back together; here pages leave and are stored one by one, as any reclaim and
//! packing have it, and only come back together. So groups can be held against other ways of knowing what comes next,
//! everything else being equal, and they exist whatever the size of a round of reclaim is.
//!
//! What comes waits parked, as in the paper, so that its use is heard of.

use clew_core::{AppId, Arrival, Event, Job, Metric, Observe, PageId, PageRun, Prefetch, SpaceId};
use clew_core::{Trigger, View, Whole};
use serde::{Deserialize, Serialize};

use crate::reclaim::ft_list::associations::Associations;
use crate::reclaim::ft_list::{self, mining::Mining};
use crate::schemes::{About, Answer};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Pages that wait at once.
    pub buffer_pages: Whole<1, { 1 << 20 }, 1024>,
    /// As of reclaim `ft-list`, which see; what it says of rounds means nothing here.
    pub mining: ft_list::Params,
}

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        About {
            at_fault: true,
            ..About::of("associated", "the pages that are used with a fault's")
        }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(Associated::new(*self))
    }

    fn validate(&self) -> Result<(), String> {
        self.mining.validate()
    }
}

/// The policy. See the module.
pub struct Associated {
    params: Params,
    known: Associations,
    mining: Mining,
    picked: u64,
}

impl Associated {
    /// Knows nothing yet.
    ///
    /// # Panics
    /// If the window is longer than the queue.
    pub fn new(params: Params) -> Associated {
        let (known, mining) = (Associations::default(), Mining::new(params.mining));
        Associated { params, known, mining, picked: 0 }
    }

    /// What a job has found of `app`.
    fn regroup(&mut self, app: AppId) {
        match self.mining.tree(app) {
            Some(tree) => {
                self.known.replace(app, tree.groups());
            }
            None => {
                self.known.forget_app(app);
            }
        }
    }

    fn moved(&mut self, from: PageRun, to: PageId) {
        for run in [from, PageRun { first: to, ..from }] {
            let associated: Vec<PageId> = self.known.within(run).collect();
            associated.into_iter().for_each(|page| self.known.remove(page));
        }
    }

    fn forget_space(&mut self, space: SpaceId) {
        self.known.forget_space(space);
        self.mining.forget_space(space);
    }
}

impl Observe for Associated {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Access { page, .. } => self.mining.used(view.facts.now, page),
            Event::Moved { from, to } => self.moved(from, to),
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => self.forget_space(space),
            Event::Exit { app } => {
                view.facts.spaces_of(app).for_each(|space| self.forget_space(space));
                self.known.forget_app(app);
                self.mining.forget_app(app);
            }
            Event::Tick => self.mining.tick(view),
            Event::JobDone { job } => {
                for app in self.mining.job_done(job) {
                    self.regroup(app);
                }
            }
            _ => {}
        }
    }

    fn take_job(&mut self) -> Option<Job> {
        self.mining.take_job()
    }

    fn metrics(&self) -> Vec<Metric> {
        let (uses, lost) = self.mining.items();
        let (associated, groups) = self.known.counts();
        let counted = &self.mining.counted;
        let bytes = self.known.bytes() + self.mining.bytes();
        [
            ("associated_uses", uses, "uses of pages that the footprint stream was told of"),
            ("associated_lost_uses", lost, "uses that a full queue has lost"),
            ("associated_transactions", counted.transactions, "transactions of the stream"),
            ("associated_lost_transactions", counted.dropped, "those that a full ring has lost"),
            ("associated_mined_transactions", counted.mined, "transactions that were mined"),
            ("associated_batches", counted.batches, "batches that were mined"),
            ("associated_pages", associated, "pages that are associated with others"),
            ("associated_groups", groups, "groups of associated pages"),
            ("associated_picked_pages", self.picked, "pages asked for with one that was demanded"),
            ("associated_tracking_bytes", bytes, "memory held for uses, trees and groups"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Prefetch for Associated {
    fn arrival(&self) -> Arrival {
        Arrival::Parked { pages: self.params.buffer_pages.get() as usize, keep: true }
    }

    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let Trigger::Fault(page) = trigger else { return };
        let is_wanted = |other: &&PageId| **other != page && view.pages.tier(**other).is_some();
        let before = out.len();
        out.extend(self.known.group(page).iter().filter(is_wanted));
        self.picked += (out.len() - before) as u64;
    }
}
