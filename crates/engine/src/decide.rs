//! The policy half of the engine: it is told what happens, keeps the facts, asks the six policies
//! and answers with orders. The mechanism half ([`crate::mover`]) carries them out.
//!
//! One thread owns an [`Engine`]. It does no I/O, takes no lock and reads no clock: the same events
//! and questions give the same orders.
//!
//! [`crate::driver`] says when it is asked what. What whoever carries out its orders owes it:
//! - page tables are changed first, then the event is told (the rules are in [`clew_core::event`]);
//! - orders are carried out in their order: what leaves the pool makes room for what enters it;
//! - every page of an order ends in one `Stored`, `Stayed`, `Freed` or the end of its space, or the
//!   policies wait for it for ever.
//!
//! Admission needs the bytes of a page, which are not known when its order is made. So orders are made as
//! if everything were admitted. Unless [`Engine::admits_all`], the driver has the beginning of each page
//! read and calls [`Engine::admit`] for each group before it leaves; what comes back is the group
//! without the rejected pages, and a place for these. A scheme that admits all never pays for samples.
//!
//! Victims that their packer leaves for a fuller group wait here, off everybody's lists and still
//! resident; a page that is used while it waits goes back with `Stayed`.

mod facts;
mod orders;
mod placing;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use clew_core::{
    Admit, AppId, Arrival, Candidate, Cause, ClassCounts, Classes, Demand, Ending, Event, Facts,
    FlashForm, Group, Hotness, Job, Metric, Ns, Observe, Order, PageFacts, PageId, PageRun, Place,
    Profile, RunAhead, SampleDemand, Tier, TierFacts, Trigger, Unit, Victim, View,
};
use clew_policy::schemes::OnFull;
use clew_policy::{Policies, Scheme};
use serde::Serialize;

use facts::FactsKeeper;
use orders::{For, cut_by_space, into_orders, room_pages, with_pages};

/// Policies of a scheme, one a question.
const PARTS: usize = 6;
/// Pages an [`Order`] holds at most (a single larger group excepted).
pub const ORDER_PAGES: usize = crate::space::MAX_BATCH;

/// What admission made of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Admitted {
    /// What goes where the order said, if anything.
    pub group: Option<Group>,
    /// What was rejected, and where it goes instead.
    pub rejected: Option<(Group, Place)>,
}

/// The policy half of the engine. See the module.
pub struct Engine {
    policies: Policies,
    on_full: OnFull,
    /// The scheme takes nothing out: ending apps is all there is.
    only_kills: bool,
    known: FactsKeeper,
    /// Left by the packer for a fuller group.
    waiting: Vec<Victim>,
    waiting_pages: BTreeSet<PageId>,
    /// Asked to end and not gone yet.
    ending: BTreeSet<AppId>,
    /// Never to be ended because memory is short.
    spared: BTreeSet<AppId>,
    /// Jobs out by the engine's number: whose, and its owner's number.
    jobs: BTreeMap<u64, (usize, u64)>,
    next_job: u64,
    counted: Counted,
}

#[derive(Default)]
struct Counted {
    events: u64,
    ordered_pages: u64,
    moved_pages: u64,
    handed_back_pages: u64,
    full: u64,
    apps_ended: u64,
}

impl Engine {
    /// An engine that has seen nothing. The tiers of the scheme exist, empty, with its limits.
    pub fn new(scheme: &Scheme) -> Engine {
        Engine::with_policies(scheme, scheme.build())
    }

    /// As [`Engine::new`], with policies that no scheme can name yet.
    pub fn with_policies(scheme: &Scheme, policies: Policies) -> Engine {
        let empty = TierFacts {
            limit_bytes: scheme.mem_limit_bytes.map_or(u64::MAX, |limit| limit.0),
            limit_pages: scheme.disksize_pages.unwrap_or(u64::MAX),
            ..TierFacts::default()
        };
        let tiers = scheme.tiers().iter().map(|tier| (*tier, empty)).collect();
        Engine {
            policies,
            on_full: scheme.on_full,
            only_kills: scheme.reclaim.about().idle && scheme.on_full == OnFull::Kill,
            known: FactsKeeper::new(Facts { tiers, ..Facts::default() }),
            waiting: Vec::new(),
            waiting_pages: BTreeSet::new(),
            ending: BTreeSet::new(),
            spared: BTreeSet::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
            counted: Counted::default(),
        }
    }

    /// What the policies see.
    pub fn facts(&self) -> &Facts {
        &self.known.facts
    }

    /// Sets the size of a page; 4096 until then. Before the first event.
    pub fn set_page_bytes(&mut self, page_bytes: u32) {
        self.known.facts.page_bytes = page_bytes;
    }

    /// What is known of an app from earlier; before its first event.
    pub fn know(&mut self, app: AppId, profile: Profile) {
        self.known.keep_profile(app, profile);
    }

    /// Whose an app is; before its first event. It is user 0's until said otherwise.
    pub fn is_of(&mut self, app: AppId, user: u32) {
        self.known.is_of(app, user);
    }

    /// Sets what is known about a tier. Copies that could be given up at once (those kept of pages
    /// that came back) do not count as used.
    pub fn set_tier(&mut self, tier: Tier, facts: TierFacts) {
        self.known.facts.tiers.insert(tier, facts);
    }

    /// Sets how full a tier is and leaves its limits.
    pub fn set_tier_use(&mut self, tier: Tier, used_bytes: u64, pages: u64) {
        let facts = self.known.facts.tiers.entry(tier).or_insert(TierFacts {
            limit_bytes: u64::MAX,
            limit_pages: u64::MAX,
            ..TierFacts::default()
        });
        (facts.used_bytes, facts.pages) = (used_bytes, pages);
    }

    /// Sets whether every touch of a page is told (a trace), or those of resident pages by a sample
    /// only (live; so it is until said otherwise). Before the first event.
    pub fn set_all_touches_seen(&mut self, all: bool) {
        self.known.facts.all_touches_seen = all;
    }

    /// Sets the CPU load of the machine, 0 to 1.
    pub fn set_cpu_load(&mut self, cpu_load: f32) {
        self.known.facts.cpu_load = cpu_load;
    }

    /// Whether pages need not be shown to [`Engine::admit`].
    pub fn admits_all(&self) -> bool {
        self.policies.admission.admits_all()
    }

    // ---- told ------------------------------------------------------------------------------

    /// Something happened at `now`. The facts are brought up to date, then all policies are told,
    /// reclaim first. Of an app or space that ends, policies are told while its facts are there.
    pub fn tell(&mut self, now: Ns, event: &Event, pages: &dyn PageFacts) {
        self.known.facts.now = self.known.facts.now.max(now);
        self.counted.events += 1;
        match *event {
            Event::JobDone { job } => return self.job_done(job, pages),
            Event::Background { app } if self.known.is_background(app) => return,
            // One app of a user is in front at a time: who was there goes to the background first.
            Event::Launch { app } | Event::Relaunch { app } => {
                if let Some(before) = self.known.in_front_of(app) {
                    self.tell(now, &Event::Background { app: before }, pages);
                }
            }
            _ => {}
        }
        self.known.before(event, pages);
        self.look_after_waiting(event, pages);
        self.tell_policies(event, pages);
        self.known.after(event);
        if let Event::Exit { app } = event {
            self.ending.remove(app);
            self.spared.remove(app);
        }
    }

    fn tell_policies(&mut self, event: &Event, pages: &dyn PageFacts) {
        let Policies { reclaim, admission, packing, eviction, placement, prefetch } =
            &mut self.policies;
        let facts = &self.known.facts;
        reclaim.on_event(event, &View { facts, pages, classes: None });
        let view = View { facts, pages, classes: Some(&**reclaim) };
        admission.on_event(event, &view);
        packing.on_event(event, &view);
        eviction.on_event(event, &view);
        placement.on_event(event, &view);
        prefetch.on_event(event, &view);
    }

    // ---- jobs, endings, numbers --------------------------------------------------------------

    /// The policy of this number, below [`PARTS`].
    #[inline]
    fn part(&mut self, number: usize) -> &mut dyn Observe {
        let p = &mut self.policies;
        match number {
            0 => &mut *p.reclaim,
            1 => &mut *p.admission,
            2 => &mut *p.packing,
            3 => &mut *p.eviction,
            4 => &mut *p.placement,
            _ => &mut *p.prefetch,
        }
    }

    /// Long work that policies want done: `take` runs each, in the background or at once, then
    /// `JobDone` is told with its number.
    pub fn take_jobs(&mut self, mut take: impl FnMut(Job)) {
        for part in 0..PARTS {
            while let Some(Job { id: own, run }) = self.part(part).take_job() {
                let id = self.next_job;
                self.next_job += 1;
                self.jobs.insert(id, (part, own));
                take(Job { id, run });
            }
        }
    }

    /// Only the policy that asked for the job is told, with its own number.
    fn job_done(&mut self, job: u64, pages: &dyn PageFacts) {
        let Some((part, job)) = self.jobs.remove(&job) else { return };
        let event = Event::JobDone { job };
        let Policies { reclaim, admission, packing, eviction, placement, prefetch } =
            &mut self.policies;
        let facts = &self.known.facts;
        if part == 0 {
            return reclaim.on_event(&event, &View { facts, pages, classes: None });
        }
        let view = View { facts, pages, classes: Some(&**reclaim) };
        let others: [&mut dyn Observe; 5] =
            [&mut **admission, &mut **packing, &mut **eviction, &mut **placement, &mut **prefetch];
        others[part - 1].on_event(&event, &view);
    }

    /// Orders that an event called for without a question: apps that must end.
    pub fn take_orders(&mut self, out: &mut Vec<Order>) {
        for part in 0..PARTS {
            while let Some(ending) = self.part(part).take_ending() {
                self.end(ending, out);
            }
        }
    }

    fn end(&mut self, ending: Ending, out: &mut Vec<Order>) {
        let Ending { app, reason } = ending;
        if self.known.facts.apps.contains_key(&app) && self.ending.insert(app) {
            self.counted.apps_ended += 1;
            out.push(Order::EndApp { app, reason });
        }
    }

    /// From now on, as long as it lives, `app` is not ended because memory is short.
    pub fn spare(&mut self, app: AppId) {
        self.spared.insert(app);
    }

    /// What the engine and its policies have counted.
    pub fn metrics(&self) -> Vec<Metric> {
        let c = &self.counted;
        let waiting = self.waiting_pages.len() as u64;
        let own = [
            ("engine_events", c.events, "events told"),
            ("engine_ordered_pages", c.ordered_pages, "pages in swap-out orders"),
            ("engine_moved_pages", c.moved_pages, "pages in orders from one tier to another"),
            ("engine_handed_back_pages", c.handed_back_pages, "victims without a place or used"),
            ("engine_waiting_pages", waiting, "victims that wait for a fuller group"),
            ("engine_full", c.full, "demands that met full tiers"),
            ("engine_apps_ended", c.apps_ended, "apps that were ordered to end"),
        ];
        let own = own.map(|(name, value, help)| Metric { name, value: value as f64, help });
        let p = &self.policies;
        let parts: [&dyn Observe; 6] =
            [&*p.reclaim, &*p.admission, &*p.packing, &*p.eviction, &*p.placement, &*p.prefetch];
        own.into_iter().chain(parts.into_iter().flat_map(|part| part.metrics())).collect()
    }

    // ---- asked -------------------------------------------------------------------------------

    /// Appends orders that make about `demand.pages` leave DRAM, or nothing if nobody can. When the
    /// tiers have less room than that, eviction is asked to make some, and if it has nothing to
    /// offer, what happens is the scheme's `on_full`.
    pub fn plan_swap_out(&mut self, demand: Demand, pages: &dyn PageFacts, out: &mut Vec<Order>) {
        self.take_orders(out);
        let page_bytes = self.known.facts.page_bytes;
        let tiers = self.known.facts.tiers.values();
        let room = tiers.map(|tier| room_pages(tier, page_bytes)).fold(0, u64::saturating_add);
        let mut made_room = 0;
        let shortage = (demand.pages as u64).saturating_sub(room);
        if shortage > 0 {
            made_room = self.evict(shortage, pages, out);
            if made_room == 0 {
                self.full(demand.urgent, out);
            }
        }
        let fits = usize::try_from(room.saturating_add(made_room)).unwrap_or(usize::MAX);
        let demand = Demand { pages: demand.pages.min(fits), ..demand };
        if demand.pages == 0 {
            return;
        }
        let mut verdicts = Vec::new();
        let view = View { facts: &self.known.facts, pages, classes: None };
        self.policies.reclaim.pick_victims(demand, &view, &mut verdicts);
        if self.only_kills && verdicts.is_empty() {
            return self.full(demand.urgent, out);
        }
        let flush = demand.urgent || verdicts.is_empty();
        let mut victims = std::mem::take(&mut self.waiting);
        self.expand(verdicts, pages, &mut victims, out);
        self.waiting_pages.clear();
        let (before, found) = (out.len(), !victims.is_empty());
        self.pack_and_place(victims, flush, made_room, pages, out);
        // One tier may have room that this scheme has no use for now, while the other is full.
        let tiers = self.known.facts.tiers.len();
        if tiers > 1 && flush && found && made_room == 0 && out.len() == before {
            self.full(demand.urgent, out);
        }
    }

    /// Appends orders that take out everything of `app` that can leave, wherever it is on the
    /// lists and whether or not the app is in front, as far as there is room.
    pub fn plan_app_out(&mut self, app: AppId, pages: &dyn PageFacts, out: &mut Vec<Order>) {
        let mut verdicts = Vec::new();
        let view = View { facts: &self.known.facts, pages, classes: None };
        self.policies.reclaim.pick_app(app, &view, &mut verdicts);
        let of_app = |victim: &mut Victim| match &victim.unit {
            Unit::Page(page) => view.app_of(*page) == Some(app),
            Unit::Pages(pages) => pages.iter().any(|page| view.app_of(*page) == Some(app)),
            Unit::App(_) => false,
        };
        let mut victims: Vec<Victim> = self.waiting.extract_if(.., of_app).collect();
        self.expand(verdicts, pages, &mut victims, out);
        for page in victims.iter().flat_map(|victim| pages_of(&victim.unit)) {
            self.waiting_pages.remove(page);
        }
        let others = std::mem::take(&mut self.waiting);
        self.pack_and_place(victims, true, 0, pages, out);
        self.waiting = others;
    }

    /// Appends orders that put up to `pages_wanted` stored pages into the tier where they should rather
    /// be.
    pub fn plan_moves(&mut self, pages_wanted: usize, pages: &dyn PageFacts, out: &mut Vec<Order>) {
        let Policies { reclaim, placement, .. } = &mut self.policies;
        let classes: &dyn Classes = &**reclaim;
        let view = View { facts: &self.known.facts, pages, classes: Some(classes) };
        let mut moves = Vec::new();
        placement.pick_moves(pages_wanted, &view, &mut moves);
        if moves.is_empty() {
            return;
        }
        let victim = |page: PageId| Victim { unit: Unit::Page(page), hotness: reclaim.class(page) };
        let victims = moves.into_iter().map(victim).collect();
        self.pack_and_move(victims, pages, out);
    }

    /// Whether anything is ever to be stored anew.
    pub fn repacks(&self) -> bool {
        self.policies.packing.repacks()
    }

    /// Appends orders that have about so many pages of the pool stored anew, as they should rather be.
    pub fn plan_repacks(
        &mut self,
        pages_wanted: usize,
        pages: &dyn PageFacts,
        out: &mut Vec<Order>,
    ) {
        let Policies { reclaim, packing, .. } = &mut self.policies;
        let view = View { facts: &self.known.facts, pages, classes: Some(&**reclaim) };
        let mut groups = Vec::new();
        packing.pick_repacks(pages_wanted, &view, &mut groups);
        let place = (Tier::Pool, FlashForm::AsStored);
        let placed = cut_by_space(groups, self.known.facts.page_bytes).into_iter();
        let placed = placed.filter_map(|group| {
            let space = group.pages.first()?.space();
            Some((self.known.facts.app_of(space)?, space, place, group))
        });
        into_orders(placed.collect(), For::Repacking, out);
    }

    /// Appends stored pages worth restoring now, in the order wanted, each once. How those wait that
    /// a fault or a hit asked for is what [`Engine::arrival`] says.
    pub fn plan_prefetch(
        &mut self,
        trigger: Trigger,
        pages: &dyn PageFacts,
        out: &mut Vec<PageId>,
    ) {
        let Policies { reclaim, prefetch, .. } = &mut self.policies;
        let classes: &dyn Classes = &**reclaim;
        let view = View { facts: &self.known.facts, pages, classes: Some(classes) };
        let before = out.len();
        prefetch.pick_prefetch(trigger, &view, out);
        let mut seen = HashSet::new();
        let mut position = 0;
        out.retain(|page| {
            position += 1;
            let on_its_way = trigger == Trigger::Fault(*page);
            position <= before || !on_its_way && pages.tier(*page).is_some() && seen.insert(*page)
        });
    }

    /// Resident pages whose use is worth watching; see [`clew_core::Reclaim::pick_samples`].
    pub fn plan_samples(&mut self, wanted: SampleDemand, pages: &dyn PageFacts) -> Vec<PageRun> {
        let view = View { facts: &self.known.facts, pages, classes: None };
        let mut runs = Vec::new();
        self.policies.reclaim.pick_samples(wanted, &view, &mut runs);
        runs
    }

    /// The class of a page; `None` if it is on no list, or the scheme keeps no classes.
    pub fn class(&self, page: PageId) -> Option<Hotness> {
        self.policies.reclaim.class(page)
    }

    /// How many pages of `app` are of a class, resident and out; zeros if the scheme keeps none.
    pub fn class_counts(&self, app: AppId, class: Hotness) -> ClassCounts {
        self.policies.reclaim.class_counts(app, class)
    }

    /// How pages that a fault or a hit brings early wait for their use. What a relaunch restores
    /// becomes resident.
    pub fn arrival(&self) -> Arrival {
        self.policies.prefetch.arrival()
    }

    /// Whether an app in front must have all that its relaunch asked for.
    pub fn brings_all(&self) -> bool {
        self.policies.prefetch.brings_all()
    }

    /// What the mover is to bring with each fault by itself; then [`Engine::plan_prefetch`] is not
    /// asked about faults. A replay, which has no other way, asks.
    pub fn run_ahead(&self) -> Option<RunAhead> {
        self.policies.prefetch.run_ahead()
    }

    /// Where `group` of `app` goes: for groups that were evicted (or rejected elsewhere). Groups of
    /// swap-out orders have their place already. Clean pages of files that do not enter the pool, or leave it,
    /// lie on flash already, in their file: there is nothing to decide.
    pub fn place(
        &mut self,
        group: &Group,
        app: AppId,
        cause: Cause,
        pages: &dyn PageFacts,
    ) -> Place {
        let Policies { reclaim, admission, placement, .. } = &mut self.policies;
        let enters = cause == Cause::SwapOut && admission.takes_files();
        if !enters && group.pages.first().is_some_and(|page| self.known.facts.is_file(page.space()))
        {
            return Place::FlashPages;
        }
        let view = View { facts: &self.known.facts, pages, classes: Some(&**reclaim) };
        placement.place(group, app, cause, &view)
    }

    /// Which pages of `group` may enter the pool. `samples[i]` is the beginning of `group.pages[i]`
    /// (512 bytes are enough).
    ///
    /// # Panics
    /// If there is not one sample a page.
    pub fn admit(&mut self, group: Group, samples: &[&[u8]], pages: &dyn PageFacts) -> Admitted {
        assert_eq!(group.pages.len(), samples.len(), "one sample a page");
        if self.admits_all() {
            return Admitted { group: Some(group), rejected: None };
        }
        let Policies { reclaim, admission, .. } = &mut self.policies;
        let view = View { facts: &self.known.facts, pages, classes: Some(&**reclaim) };
        let (mut yes, mut no) = (Vec::new(), Vec::new());
        for (page, sample) in group.pages.iter().copied().zip(samples) {
            let candidate = Candidate { page, sample };
            match admission.admit(candidate, &view) {
                Admit::Yes => yes.push(page),
                Admit::No => no.push(page),
            }
        }
        let part = |pages: Vec<PageId>| {
            let page_bytes = self.known.facts.page_bytes;
            (!pages.is_empty()).then(|| with_pages(&group, pages, page_bytes))
        };
        let (admitted, rejected) = (part(yes), part(no));
        let app = group.pages.first().and_then(|page| self.known.facts.app_of(page.space()));
        let rejected = rejected.map(|group| {
            let place = match app {
                Some(app) => self.place(&group, app, Cause::Rejected, pages),
                None => Place::Stay,
            };
            (group, place)
        });
        Admitted { group: admitted, rejected }
    }
}

fn pages_of(unit: &Unit) -> &[PageId] {
    match unit {
        Unit::Page(page) => std::slice::from_ref(page),
        Unit::Pages(pages) => pages,
        Unit::App(_) => &[],
    }
}
