//! LRFU by relaunches: a page leaves by how often, and how lately, relaunches used it.
//!
//! Source: Lee, Choi, Kim, Noh, Min, Cho, Kim, *LRFU: A Spectrum of Policies that Subsumes the Least Recently Used
//! and Least Frequently Used Policies*, IEEE Transactions on Computers 50 (12), 2001. Each use of a page adds to its
//! combined recency and frequency, and all of these fade alike, by a part each time that anybody uses anything. So
//! which of two pages has more changes by their own use only, and a page has a *key* that stays what it is:
//! with a decay `d` a time step, a page used at the times `t` has the key `log(sum of d^-t)` to the base `1/d`.
//!
//! Ours:
//! - Time is counted in launches and relaunches, of whichever app: what a relaunch uses, it mostly uses many times, so
//!   a page is used at most once in each. A key is thus in relaunches, too: of one that was used once, the relaunch
//!   that did; used by each one, some ten later. Keys are quarters.
//! - A page that came back along with another may have been used or not: that is a quarter of a use
//!   ([`CAME_ALONG`]).
//! - A page that was found resident, of an app that is not in front, was not seen to be used: it goes before
//!   all that was, the one found longest ago first.
//!
//! Who has used what most lately is hot, that is the classes, and what is watched, are those of [`super::hotness_org`],
//! which hears of everything.
//!
//! Invariants: a page that is known and resident, and was not handed out, is in the queue of its key, perhaps more
//! than once; what a queue holds beyond that is passed over. Every step takes constant time, amortised, but for a
//! search among a few hundred keys. Memory: 8 bytes a known page, 8 to 24 a resident one, and that of HotnessOrg.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::ControlFlow;

use clew_core::{
    AccessKind, AppId, ByteSize, ClassCounts, Classes, Demand, Event, Hotness, Metric, Observe,
    Out, PageId, PageRun, Reclaim, SampleDemand, SpaceId, Unit, Verdict, Victim, View, Whole,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::hotness_org::{self, HotnessOrg, Unseen};
use crate::schemes::{About, Answer};

/// Keys to a relaunch.
const QUARTERS: u32 = 4;
/// The part of a use that coming along is.
const CAME_ALONG: f64 = 0.25;
/// The first relaunch; before it there is room for what was never used.
const BEGINNING: u32 = 64 * QUARTERS;
/// Pages of a block of what is known.
const BLOCK: u64 = 64;
/// Queues are looked through when they hold so many more than is resident.
const UNTIDY: usize = 1 << 14;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What is left of a use at the next relaunch, per cent: at 1 it is an LRU, at 99 nearly the number of uses.
    pub decay_pct: Whole<1, 99, 85>,
}

impl Default for Params {
    fn default() -> Params {
        Params { decay_pct: Whole::default() }
    }
}

impl Answer<dyn Reclaim> for Params {
    fn about(&self) -> About {
        let shown = format!("LRFU by relaunches, decay {} %", self.decay_pct.get());
        About { keeps_hot_list: true, ..About::of("lrfu", shown) }
    }

    fn build(&self) -> Box<dyn Reclaim> {
        Box::new(Lrfu::new(*self))
    }
}

/// What is known of a page.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Its key in quarters; 0: the page is not known.
    key: u32,
    /// The relaunch that used it last, by its number's lower bits.
    used_in: u16,
    is_in: bool,
}

type Block = Box<[Known; BLOCK as usize]>;

/// The policy. See the module.
pub struct Lrfu {
    /// Of `1/d`, natural.
    log_base: f64,
    org: HotnessOrg,
    spaces: HashMap<SpaceId, HashMap<u64, Block, FixedState>, FixedState>,
    queues: BTreeMap<u32, VecDeque<PageId>>,
    /// Pages in all queues.
    queued: usize,
    resident: usize,
    /// Launches and relaunches so far, in quarters.
    now: u32,
    picked: u64,
    tidied: u64,
}

impl Lrfu {
    /// Knows nothing yet.
    pub fn new(params: Params) -> Lrfu {
        let classes = hotness_org::Params {
            initial_hot: ByteSize(0),
            unseen: Unseen::Keep,
            ..hotness_org::Params::default()
        };
        Lrfu {
            log_base: -(f64::from(params.decay_pct.get()) / 100.0).ln(),
            org: HotnessOrg::new(classes),
            spaces: HashMap::default(),
            queues: BTreeMap::new(),
            queued: 0,
            resident: 0,
            now: BEGINNING,
            picked: 0,
            tidied: 0,
        }
    }

    fn known(&self, page: PageId) -> Option<Known> {
        let vpn = page.vpn().0;
        let block = self.spaces.get(&page.space())?.get(&(vpn / BLOCK))?;
        Some(block[(vpn % BLOCK) as usize]).filter(|known| known.key > 0)
    }

    fn slot(&mut self, page: PageId) -> &mut Known {
        let vpn = page.vpn().0;
        let space = self.spaces.entry(page.space()).or_default();
        let block = space.entry(vpn / BLOCK).or_insert_with(|| [Known::default(); 64].into());
        &mut block[(vpn % BLOCK) as usize]
    }

    /// The key of a page that had `key` and has now been used, this part of once.
    fn with_use(&self, key: u32, part: f64) -> u32 {
        let ago = f64::from(key) - f64::from(self.now);
        let sum = part + (ago / f64::from(QUARTERS) * self.log_base).exp();
        let later = sum.ln() / self.log_base * f64::from(QUARTERS);
        (f64::from(self.now) + later.round()).max(1.0) as u32
    }

    /// The page is known by this from now on; resident ones are queued, unless they are where they belong.
    fn set(&mut self, page: PageId, new: Known) {
        let slot = self.slot(page);
        let old = std::mem::replace(slot, new);
        self.resident = self.resident + usize::from(new.is_in) - usize::from(old.is_in);
        if new.is_in && (!old.is_in || old.key != new.key) {
            self.queues.entry(new.key).or_default().push_back(page);
            self.queued += 1;
        }
    }

    /// Before everything that was used, but behind what was found earlier.
    fn unused_key(&self) -> u32 {
        self.now / 8
    }

    /// The page was used. Where it is does not change by that, unless it `is_in` its program since.
    fn used(&mut self, page: PageId, is_in: bool) {
        let now = self.now as u16;
        let known = self.known(page).unwrap_or_default();
        let again = known.key > 0 && known.used_in == now;
        let key = match (known.key, again) {
            (0, _) => self.now,
            (key, true) => key,
            (key, false) => self.with_use(key, 1.0),
        };
        let is_in = is_in || known.is_in || known.key == 0;
        self.set(page, Known { key, used_in: now, is_in });
    }

    /// What was found touched.
    fn touched(&mut self, run: PageRun) {
        for page in run.pages() {
            if self.known(page).is_some_and(|known| known.is_in) {
                self.used(page, true);
            }
        }
    }

    fn came_back(&mut self, page: PageId, demand: bool) {
        if demand {
            return self.used(page, true);
        }
        let known = self.known(page).unwrap_or_default();
        let key = self.with_use(known.key.max(1), CAME_ALONG);
        self.set(page, Known { key, is_in: true, ..known });
    }

    fn found(&mut self, run: PageRun, view: &View<'_>) {
        let is_new =
            view.facts.foreground.is_some() && view.app_of(run.first) == view.facts.foreground;
        let key = if is_new { self.now } else { self.unused_key() };
        for page in run.pages() {
            let known = self.known(page).unwrap_or(Known { key, ..Known::default() });
            if !known.is_in {
                self.set(page, Known { is_in: true, ..known });
            }
        }
    }

    fn left(&mut self, page: PageId) {
        let key = self.unused_key();
        let known = self.known(page).unwrap_or(Known { key, ..Known::default() });
        self.set(page, Known { is_in: false, ..known });
    }

    fn forget(&mut self, run: PageRun) {
        let Some(space) = self.spaces.get_mut(&run.first.space()) else { return };
        let first = run.first.vpn().0;
        let end = first + u64::from(run.count);
        let mut forget = |number: &u64, block: &mut Block| {
            let begins = number * BLOCK;
            for vpn in first.max(begins)..end.min(begins + BLOCK) {
                let old = std::mem::take(&mut block[(vpn - begins) as usize]);
                self.resident -= usize::from(old.is_in);
            }
            block.iter().any(|known| known.key > 0)
        };
        let numbers = first / BLOCK..end.div_ceil(BLOCK);
        if numbers.end - numbers.start > space.len() as u64 {
            space.retain(|number, block| !numbers.contains(number) || forget(number, block));
            return;
        }
        for number in numbers {
            if let Some(block) = space.get_mut(&number)
                && !forget(&number, block)
            {
                space.remove(&number);
            }
        }
    }

    fn forget_space(&mut self, space: SpaceId) {
        let blocks = self.spaces.remove(&space).unwrap_or_default();
        let pages = blocks.values().flat_map(|block| block.iter());
        self.resident -= pages.filter(|known| known.is_in).count();
    }

    fn moved(&mut self, from: PageRun, to: PageId) {
        let all = from.pages().filter_map(|page| Some((page, self.known(page)?)));
        let all: Vec<(PageId, Known)> = all.collect();
        self.forget(from);
        self.forget(PageRun { first: to, ..from });
        for (page, known) in all {
            self.set(to.plus(page.raw() - from.first.raw()), known);
        }
    }

    /// What is in queues without belonging there goes, when it has become the most of it.
    fn tidy(&mut self) {
        if self.queued < UNTIDY + 2 * self.resident {
            return;
        }
        self.tidied += 1;
        let mut queues = std::mem::take(&mut self.queues);
        queues.retain(|key, queue| {
            let mut seen = HashSet::new();
            queue.retain(|page| self.belongs(*page, *key) && seen.insert(*page));
            !queue.is_empty()
        });
        self.queued = queues.values().map(VecDeque::len).sum();
        self.queues = queues;
    }

    fn belongs(&self, page: PageId, key: u32) -> bool {
        self.known(page).is_some_and(|known| known.is_in && known.key == key)
    }

    /// The next one, which is handed out.
    fn pick(&mut self) -> Option<PageId> {
        loop {
            let mut first = self.queues.first_entry()?;
            let key = *first.key();
            let Some(page) = first.get_mut().pop_front() else {
                first.remove();
                continue;
            };
            self.queued -= 1;
            if self.belongs(page, key) {
                self.left(page);
                self.picked += 1;
                return Some(page);
            }
        }
    }
}

impl Observe for Lrfu {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        self.org.on_event(event, view);
        let lives = |page: PageId| view.app_of(page).is_some();
        match *event {
            Event::Launch { .. } | Event::Relaunch { .. } => self.now += QUARTERS,
            Event::Resident { run } if lives(run.first) => self.found(run, view),
            // Of a fault, what brings the page tells.
            Event::Access { page, kind, .. } if kind != AccessKind::Fault && lives(page) => {
                self.used(page, kind == AccessKind::Fresh);
            }
            Event::PageIn { page, demand, .. } if lives(page) => self.came_back(page, demand),
            Event::Used { run } => self.touched(run),
            Event::Stayed { page } if lives(page) => {
                let known = self.known(page).unwrap_or_default();
                // It is not asked for again at once.
                let key = known.key.max(self.now);
                self.set(page, Known { key, is_in: true, ..known });
            }
            Event::Stored { page, .. } if lives(page) => self.left(page),
            Event::Freed { run } => self.forget(run),
            Event::Moved { from, to } if lives(from.first) => self.moved(from, to),
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => self.forget_space(space),
            Event::Exit { app } => {
                let spaces: Vec<SpaceId> = view.facts.spaces_of(app).collect();
                spaces.into_iter().for_each(|space| self.forget_space(space));
            }
            Event::Tick => self.tidy(),
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let blocks: usize = self.spaces.values().map(HashMap::len).sum();
        let bytes = blocks * (size_of::<[Known; BLOCK as usize]>() + 2 * size_of::<(u64, Block)>())
            + self.queued * size_of::<PageId>();
        let own = [
            ("lrfu_resident_pages", self.resident as u64, "pages that may be picked"),
            ("lrfu_picked_pages", self.picked, "victims handed out"),
            ("lrfu_queued_pages", self.queued as u64, "pages in queues, some more than once"),
            ("lrfu_tidied", self.tidied, "times that queues were looked through"),
            ("lrfu_tracking_bytes", bytes as u64, "memory held for keys and queues"),
        ];
        let own = own.map(|(name, value, help)| Metric { name, value: value as f64, help });
        own.into_iter().chain(self.org.metrics()).collect()
    }
}

impl Classes for Lrfu {
    fn class(&self, page: PageId) -> Option<Hotness> {
        self.org.class(page)
    }

    fn class_counts(&self, app: AppId, class: Hotness) -> ClassCounts {
        self.org.class_counts(app, class)
    }

    fn for_each_out(
        &self,
        app: AppId,
        class: Hotness,
        place: Out,
        visit: &mut dyn FnMut(PageId) -> ControlFlow<()>,
    ) {
        self.org.for_each_out(app, class, place, visit);
    }
}

impl Reclaim for Lrfu {
    fn pick_victims(&mut self, demand: Demand, _: &View<'_>, out: &mut Vec<Verdict>) {
        for _ in 0..demand.pages {
            let Some(page) = self.pick() else { return };
            let hotness = self.org.hand_out(page);
            out.push(Verdict::Take(Victim { unit: Unit::Page(page), hotness }));
        }
    }

    fn next_victims(&self, wanted: usize, _: &View<'_>, out: &mut Vec<Victim>) {
        let mut seen = HashSet::new();
        let all =
            self.queues.iter().flat_map(|(key, queue)| queue.iter().map(move |page| (*page, *key)));
        let next = all.filter(|(page, key)| self.belongs(*page, *key) && seen.insert(*page));
        let victim = |(page, _)| Victim { unit: Unit::Page(page), hotness: self.org.class(page) };
        out.extend(next.take(wanted).map(victim));
    }

    fn pick_app(&mut self, app: AppId, view: &View<'_>, out: &mut Vec<Verdict>) {
        let before = out.len();
        self.org.pick_app(app, view, out);
        for verdict in &out[before..] {
            if let Verdict::Take(Victim { unit: Unit::Page(page), .. }) = verdict {
                self.left(*page);
            }
        }
    }

    fn pick_samples(&mut self, wanted: SampleDemand, view: &View<'_>, out: &mut Vec<PageRun>) {
        self.org.pick_samples(wanted, view, out);
    }
}
