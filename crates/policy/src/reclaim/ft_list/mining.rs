//! When what was used together is mined: off the fault path, in batches, while the machine is not busy.
//!
//! Source: Archer 4.3.1. At each heartbeat what the ring of transactions holds is given to a job, with
//! the trees; both are away until the job is done, so nothing waits for it and nothing is locked. No
//! heartbeat is taken while another batch is mined, the CPU load is above the limit, or there are too
//! few transactions; what the ring cannot hold goes, the oldest first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use clew_core::{AppId, Job, Ns, PageId, SpaceId, View};

use super::Params;
use crate::reclaim::footprint_stream::{FootprintStream, Window};
use crate::reclaim::fp_tree::{FpForest, FpTree, Rules};

/// What has been used, and what is known from it.
pub(crate) struct Mining {
    params: Params,
    stream: FootprintStream,
    ring: VecDeque<Vec<PageId>>,
    last_beat: Ns,
    /// None while it is away with a job.
    forest: Option<FpForest>,
    /// Waits to be taken.
    job: Option<Job>,
    /// Where the job leaves what it found.
    away: Option<Arc<OnceLock<Mined>>>,
    jobs: u64,
    /// What ended while the trees were away.
    ended: Vec<Ended>,
    pub counted: Counted,
}

/// What a job leaves.
struct Mined {
    forest: FpForest,
    changed: BTreeSet<AppId>,
}

enum Ended {
    Space(SpaceId),
    App(AppId),
}

/// What happened, in numbers.
#[derive(Default)]
pub(crate) struct Counted {
    pub transactions: u64,
    pub dropped: u64,
    pub mined: u64,
    pub batches: u64,
    pub busy: u64,
    pub too_few: u64,
    /// As it was when the last job was done.
    pub nodes: u64,
    pub tree_bytes: u64,
    pub halved: u64,
}

impl Mining {
    pub fn new(params: Params) -> Mining {
        let window = Window {
            queue: params.queue.get() as usize,
            items: params.window.get() as usize,
            timeout: Ns::from_ms(params.timeout_ms.get().into()),
        };
        Mining {
            params,
            stream: FootprintStream::new(window),
            ring: VecDeque::new(),
            last_beat: Ns(0),
            forest: Some(FpForest::new(rules(&params))),
            job: None,
            away: None,
            jobs: 0,
            ended: Vec::new(),
            counted: Counted::default(),
        }
    }

    /// `page` was used.
    pub fn used(&mut self, at: Ns, page: PageId) {
        self.stream.push(at, page);
    }

    /// Time has passed.
    pub fn tick(&mut self, view: &View<'_>) {
        let now = view.facts.now;
        while let Some(transaction) = self.stream.next(now) {
            if self.ring.len() == self.params.transactions.get() as usize {
                self.ring.pop_front();
                self.counted.dropped += 1;
            }
            self.ring.push_back(transaction.pages);
            self.counted.transactions += 1;
        }
        let beat = Ns::from_ms(self.params.heartbeat_ms.get().into());
        if now.since(self.last_beat) < beat {
            return;
        }
        self.last_beat = now;
        if view.facts.cpu_load * 100.0 > self.params.busy_pct.get() as f32 {
            self.counted.busy += 1;
        } else if self.ring.len() < self.params.least_transactions.get() as usize {
            self.counted.too_few += 1;
        } else if let Some(forest) = self.forest.take() {
            self.send(forest, view);
        }
    }

    fn send(&mut self, mut forest: FpForest, view: &View<'_>) {
        let mut batch: BTreeMap<AppId, Vec<Vec<PageId>>> = BTreeMap::new();
        self.counted.batches += 1;
        for mut pages in self.ring.drain(..) {
            self.counted.mined += 1;
            pages.sort_unstable();
            pages.dedup();
            let mut of_app: BTreeMap<AppId, Vec<PageId>> = BTreeMap::new();
            for page in pages {
                if let Some(app) = view.app_of(page) {
                    of_app.entry(app).or_default().push(page);
                }
            }
            of_app.into_iter().for_each(|(app, pages)| batch.entry(app).or_default().push(pages));
        }
        let left = Arc::new(OnceLock::new());
        self.away = Some(left.clone());
        self.jobs += 1;
        let run = Box::new(move || {
            let changed = forest.mine(batch);
            // Nobody else sets it.
            let _ = left.set(Mined { forest, changed });
        });
        self.job = Some(Job { id: self.jobs, run });
    }

    /// The work to be done now, if any.
    pub fn take_job(&mut self) -> Option<Job> {
        self.job.take()
    }

    /// A job is done: the apps whose groups may be others now. One that was never run has lost the
    /// trees; they begin anew.
    pub fn job_done(&mut self, job: u64) -> BTreeSet<AppId> {
        let Some(away) = self.away.take_if(|_| job == self.jobs) else { return BTreeSet::new() };
        let mined = Arc::into_inner(away).and_then(OnceLock::into_inner);
        let Mined { mut forest, changed } = mined.unwrap_or_else(|| Mined {
            forest: FpForest::new(rules(&self.params)),
            changed: BTreeSet::new(),
        });
        for ended in self.ended.drain(..) {
            match ended {
                Ended::Space(space) => forest.forget_space(space),
                Ended::App(app) => forest.forget_app(app),
            }
        }
        self.counted.nodes = forest.nodes() as u64;
        self.counted.tree_bytes = forest.bytes();
        self.counted.halved = forest.halved();
        self.forest = Some(forest);
        changed
    }

    /// The tree of `app`, if there is one and it is not away.
    pub fn tree(&self, app: AppId) -> Option<&FpTree> {
        self.forest.as_ref()?.tree(app)
    }

    /// All pages of `space` are gone.
    pub fn forget_space(&mut self, space: SpaceId) {
        self.stream.forget_space(space);
        for pages in &mut self.ring {
            pages.retain(|page| page.space() != space);
        }
        match &mut self.forest {
            Some(forest) => forest.forget_space(space),
            None => self.ended.push(Ended::Space(space)),
        }
    }

    /// `app` has ended; its spaces are forgotten already.
    pub fn forget_app(&mut self, app: AppId) {
        match &mut self.forest {
            Some(forest) => forest.forget_app(app),
            None => self.ended.push(Ended::App(app)),
        }
    }

    /// Uses told, and those that a full queue has lost.
    pub fn items(&self) -> (u64, u64) {
        (self.stream.items(), self.stream.dropped())
    }

    /// Bytes of queue and ring, and of the trees as they were last.
    pub fn bytes(&self) -> u64 {
        let pages: usize = self.ring.iter().map(Vec::capacity).sum();
        let ring = self.ring.capacity() * size_of::<Vec<PageId>>() + pages * size_of::<PageId>();
        self.stream.bytes() + ring as u64 + self.counted.tree_bytes
    }
}

fn rules(params: &Params) -> Rules {
    Rules {
        support_pct: params.support_pct.get(),
        confidence_pct: params.confidence_pct.get(),
        together: params.together.get(),
        nodes: params.tree_nodes.get() as usize,
    }
}
