//! What a scheme wants done, and when: the decisions of a daemon and of a replay.
//!
//! Sans-IO: a [`Driver`] is told what happens and how much memory is used, and has commands for its
//! adapter ([`Driver::next_command`]), which carries them out in their order after each input. It has
//! no thread, no clock, no file and no lock, and reads page tables through [`PageFacts`]. It does not
//! own the fault path: whoever answers faults reports them as events.
//!
//! An adapter matches every [`Command`] without a wildcard: what nobody carries out does not compile.

mod admission;
mod early;
mod listener;
mod relaunch;
mod sensor;
mod stayed;
mod under_way;

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Deref;

use clew_core::{
    AppId, Event, FlashForm, Group, Job, Ns, Order, PageFacts, PageId, Profile, SpaceId, Tier,
    TierFacts,
};
use clew_policy::schemes::OnFull;
use clew_store::flash::LogId;

use crate::budget::{Budget, Dropped, KeptCopies, RECLAIM_PAGES, Shortage, Use};
use crate::decide::Engine;

pub use admission::SAMPLE_BYTES;
use early::Early;
pub use early::EarlyCounts;
use listener::Listening;
pub use listener::{Answer, Call, Fact, Listener};
use relaunch::Relaunches;
use sensor::Samples;
pub use sensor::Sensor;
use stayed::StayedPages;
use under_way::UnderWay;

/// Pages that change their tier at once, or are stored anew.
const MOVED_PAGES: usize = 256;
/// CPU load from which on nothing is stored anew: that is for when nothing else is to be done.
const BUSY_CPUS: f32 = 0.5;
/// A tier is full when less than one part in so many is free; the pool has room again when more than
/// one in [`ROOM_AGAIN`] is.
const NO_ROOM: u64 = 32;
const ROOM_AGAIN: u64 = 16;
/// When something did not fit, kept copies are given up until one part of the pool in so many is free.
const MADE_ROOM: u64 = 8;

/// What is to be done. Of those with a number the end is told ([`Driver::carried_out`]), also where
/// nothing could be done.
#[derive(Debug)]
pub enum Command {
    /// Take these pages out of the program and put them into the pool. Every page must end in one
    /// `Stored`, `Stayed`, `Freed`, or the end of its space.
    SwapOut {
        /// The one address space they are of.
        space: SpaceId,
        /// By the address of their first page.
        groups: Vec<Group>,
        /// By which its end is told.
        number: u64,
    },
    /// Read the beginning of each of these pages, which are in their program, then say it
    /// ([`Driver::peeked`]). Pages of a space that is gone need not be told of.
    Peek {
        /// The space.
        space: SpaceId,
        /// What is to leave for the pool, if it is admitted.
        groups: Vec<Group>,
        /// By which its end is told.
        number: u64,
    },
    /// Take these stored pages out of the tier that they are in, and put them into this one. Every page
    /// must end in one `Stored` (in its new tier, or in its old one if it could not be moved),
    /// `PageIn`, `Freed`, or the end of its space. To flash, of a space of files: drop them from the pool.
    Move {
        /// The space.
        space: SpaceId,
        /// By the address of their first page.
        groups: Vec<Group>,
        /// Where to.
        tier: Tier,
        /// How they lie there, if that is a log.
        form: FlashForm,
        /// By which its end is told.
        number: u64,
    },
    /// As [`Command::SwapOut`], but into a log, on flash or at a donor, past the pool. Of a space of files: drop them, as what they hold
    /// lies in their file.
    PutFar {
        /// The space.
        space: SpaceId,
        /// By the address of their first page.
        groups: Vec<Group>,
        /// Which.
        to: LogId,
        /// How they lie there.
        form: FlashForm,
        /// By which its end is told.
        number: u64,
    },
    /// Pack these pages of one space, which are in the pool, like this. What is not there any more, or would take no
    /// less, stays as it is; nothing is told of it.
    Repack {
        /// The space.
        space: SpaceId,
        /// By the address of their first page.
        groups: Vec<Group>,
        /// By which its end is told.
        number: u64,
    },
    /// Give these pages of one space to the kernel's zram. Ends as [`Command::SwapOut`] does.
    Lend {
        /// The space.
        space: SpaceId,
        /// By the address of their first page.
        groups: Vec<Group>,
        /// By which its end is told.
        number: u64,
    },
    /// Bring these pages of one space back before they are asked for. Each that comes is told as
    /// `PageIn`.
    Restore {
        /// The space.
        space: SpaceId,
        /// Ascending.
        pages: Vec<PageId>,
        /// They wait parked; else they become resident.
        park: bool,
        /// By which its end is told.
        number: u64,
    },
    /// Take these pages of one space out, as they are, to see whether they are used. They stay on the
    /// policies' lists; a touch is told as `Access { kind: Seen }`.
    Watch {
        /// The space.
        space: SpaceId,
        /// Each a run of neighbours.
        groups: Vec<Group>,
    },
    /// Bring back what was watched and not touched; it was told as `Unused`.
    EndWatch {
        /// The space.
        space: SpaceId,
        /// Ascending.
        pages: Vec<PageId>,
    },
    /// Give up copies that are kept of resident pages ([`Driver::give_up_kept`]), move together what
    /// is left of their pool, then say how full it is ([`Driver::gave_up`]).
    GiveUp {
        /// Until so much is free.
        wanted_bytes: u64,
    },
    /// End this app and tell `Exit`.
    EndApp {
        /// The app.
        app: AppId,
        /// Why; shown to the user.
        reason: &'static str,
    },
    /// Long work of a policy: run it where no fault waits for it, then tell `JobDone`.
    Run(Job),
}

/// Why kept copies are being given up.
#[derive(Clone, Copy, Debug)]
enum GivingUp {
    /// Memory is short.
    For(Shortage, Use),
    /// Something found no room in the pool.
    Room,
}

/// The decisions of a run. See the module.
///
/// It can be looked at as its [`Engine`], and is changed by its own methods only.
pub struct Driver {
    engine: Engine,
    budget: Budget,
    kept: KeptCopies,
    early: Early,
    stayed: StayedPages,
    samples: Samples,
    relaunches: Relaunches,
    /// Spaces of which nothing is picked.
    protected: BTreeSet<SpaceId>,
    /// Apps may be ended when nothing else helps.
    may_end_apps: bool,
    pool_full: bool,
    /// How often it became full.
    times_full: u64,
    /// Times that memory was asked of the policies.
    rounds: u64,
    /// Of each [`Command::GiveUp`] that is not carried out yet, in their order.
    giving_up: VecDeque<GivingUp>,
    commands: VecDeque<Command>,
    under_way: UnderWay,
    listeners: Vec<Box<dyn Listener>>,
    now: Ns,
    orders: Vec<Order>,
}

impl Deref for Driver {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Driver {
    /// Of an engine that has seen nothing.
    pub fn new(engine: Engine, budget: Budget, on_full: OnFull) -> Driver {
        Driver {
            engine,
            budget,
            kept: KeptCopies::default(),
            early: Early::default(),
            stayed: StayedPages::default(),
            samples: Samples::default(),
            relaunches: Relaunches::default(),
            protected: BTreeSet::new(),
            may_end_apps: on_full == OnFull::Kill,
            pool_full: false,
            times_full: 0,
            rounds: 0,
            giving_up: VecDeque::new(),
            commands: VecDeque::new(),
            under_way: UnderWay::default(),
            listeners: Vec::new(),
            now: Ns(0),
            orders: Vec::new(),
        }
    }

    /// From now on somebody listens.
    pub fn listen(&mut self, listener: Box<dyn Listener>) {
        self.listeners.push(listener);
    }

    /// Nobody listens any more. Nothing, if nobody did.
    pub fn end_listening(&mut self) {
        self.listeners.clear();
    }

    /// What apps, pool and bookkeeping may use.
    #[inline]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Whether the pool has no room, nor any tier beside it, and how often that has begun.
    pub fn pool_full(&self) -> (bool, u64) {
        (self.pool_full && !self.has_room_beside_pool(), self.times_full)
    }

    /// How often memory was asked of the policies.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Whether there is something to be done.
    #[inline]
    pub fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    /// What is to be done next. Asked until there is nothing more, after each input.
    #[inline]
    pub fn next_command(&mut self) -> Option<Command> {
        let next = self.commands.pop_front()?;
        self.under_way.begin(&next);
        Some(next)
    }

    // ---- who listens -----------------------------------------------------------------------------

    /// Asks the engine something.
    #[inline]
    fn ask<T>(
        &mut self,
        call: impl FnOnce() -> Call,
        pages: &dyn PageFacts,
        ask: impl FnOnce(&mut Engine, &dyn PageFacts) -> T,
        answer: impl Fn(&T) -> Answer<'_>,
    ) -> T {
        if self.listeners.is_empty() {
            return ask(&mut self.engine, pages);
        }
        let listening = Listening { pages, said: RefCell::default() };
        let answered = ask(&mut self.engine, &listening);
        let (call, facts) = (call(), listening.said.into_inner());
        for listener in &mut self.listeners {
            listener.heard(&self.engine, &call, &facts, answer(&answered));
        }
        answered
    }

    /// The driver has decided something by itself.
    #[inline]
    fn note(&mut self, call: impl FnOnce() -> Call, answer: Answer<'_>) {
        if self.listeners.is_empty() {
            return;
        }
        let call = call();
        for listener in &mut self.listeners {
            listener.heard(&self.engine, &call, &[], answer);
        }
    }

    /// Between inputs: lets those who listen do what takes longer.
    pub fn rest(&mut self) {
        self.listeners.iter_mut().for_each(|listener| listener.rest());
    }

    /// What a new app is called; before its first event.
    pub fn name(&mut self, app: AppId, name: &str) {
        self.note(|| Call::Name(app, name.to_string()), Answer::Nothing);
    }

    /// What is known of a new app from earlier; before its first event.
    pub fn know(&mut self, app: AppId, profile: Profile) {
        self.note(|| Call::Know(app, profile.clone()), Answer::Nothing);
        self.engine.know(app, profile);
    }

    /// Whose a new app is; before its first event.
    pub fn is_of(&mut self, app: AppId, user: u32) {
        self.note(|| Call::IsOf(app, user), Answer::Nothing);
        self.engine.is_of(app, user);
    }

    /// Everything of `app` has been taken out.
    pub fn window(&mut self, app: AppId) {
        self.note(|| Call::Window(app), Answer::Nothing);
    }

    // ---- told ------------------------------------------------------------------------------------

    /// Something happened. What policies want because of it are the next commands; because of what
    /// happened to single pages, those after the next tick, as there are too many of these.
    #[inline]
    pub fn tell(&mut self, now: Ns, event: &Event, pages: &dyn PageFacts) {
        self.now = self.now.max(now);
        // Nothing else follows from what happens to a page, and nothing happens more often.
        if is_of_a_page(event) {
            if self.protected.is_empty() || !self.hides(event) {
                self.put_event(now, event, pages);
            }
            return;
        }
        self.follow_stayed(event, pages);
        self.early.follow(event);
        if !self.hides(event) {
            self.put_event(now, event, pages);
            self.attend();
        }
        match event {
            Event::SpaceEnd { space } => drop(self.protected.remove(space)),
            Event::Relaunch { .. } | Event::Background { .. } => self.follow_samples(event),
            Event::Exit { app } => {
                self.follow_samples(event);
                self.forget_relaunch(*app);
            }
            _ => {}
        }
    }

    #[inline]
    fn put_event(&mut self, now: Ns, event: &Event, pages: &dyn PageFacts) {
        if self.listeners.is_empty() {
            return self.engine.tell(now, event, pages);
        }
        let call = || Call::Tell(now, event.clone());
        let tell = |engine: &mut Engine, pages: &dyn PageFacts| engine.tell(now, event, pages);
        self.ask(call, pages, tell, |()| Answer::Nothing);
    }

    /// A page came back, and its copy may have been kept.
    #[inline]
    pub fn keep_copy(&mut self, page: PageId) {
        self.kept.push(page);
        self.note(|| Call::Keep(page), Answer::Nothing);
    }

    /// How full a tier is.
    pub fn set_tier(&mut self, tier: Tier, facts: TierFacts) {
        if tier == Tier::Pool && self.pool_full && facts.has_part_free(ROOM_AGAIN) {
            self.pool_full = false;
        }
        self.engine.set_tier(tier, facts);
        self.note(|| Call::SetTier(tier, facts), Answer::Nothing);
    }

    /// How busy the CPUs are, 0 to 1.
    pub fn set_cpu_load(&mut self, load: f32) {
        self.engine.set_cpu_load(load);
        self.note(|| Call::CpuLoad(load), Answer::Nothing);
    }

    /// As long as it lives, `app` is not ended because memory is short.
    pub fn spare(&mut self, app: AppId) {
        self.engine.spare(app);
        self.note(|| Call::Spare(app), Answer::Nothing);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Ns, pages: &dyn PageFacts) {
        self.now = self.now.max(now);
        self.offer_stayed(pages);
        self.tell(now, &Event::Tick, pages);
        if self.listeners.is_empty() {
            return self.kept.tidy(|page| pages.may_have_copy(page));
        }
        let listening = Listening { pages, said: RefCell::default() };
        self.kept.tidy(|page| listening.may_have_copy(page));
        let facts = listening.said.into_inner();
        for listener in self.listeners.iter_mut().filter(|_| !facts.is_empty()) {
            listener.heard(&self.engine, &Call::Tidy, &facts, Answer::Nothing);
        }
    }

    /// Jobs and endings that policies want by themselves.
    fn attend(&mut self) {
        self.engine.take_orders(&mut self.orders);
        if !self.orders.is_empty() {
            self.put_orders();
        }
        let commands = &mut self.commands;
        self.engine.take_jobs(|job| commands.push_back(Command::Run(job)));
    }

    // ---- what leaves -----------------------------------------------------------------------------

    /// What is short when so much is used, what is owed to an app in front included.
    pub fn shortage(&self, used: Use) -> Option<Shortage> {
        let owed_bytes = self.early.owed_bytes(self.budget.page_bytes);
        self.budget.shortage(Use { owed_bytes, ..used })
    }

    /// Whether something is owed to the app in front.
    pub fn owes(&self) -> bool {
        self.early.owed_bytes(self.budget.page_bytes) > 0
    }

    /// So much is used. What is short leaves, after copies that can be given up.
    pub fn keep_budget(&mut self, now: Ns, used: Use, pages: &dyn PageFacts) {
        let leaving_bytes = self.leaving_pages() as u64 * self.budget.page_bytes;
        let owed_bytes = self.early.owed_bytes(self.budget.page_bytes);
        self.weigh(now, Use { leaving_bytes, owed_bytes, ..used }, pages);
    }

    /// The same, where it is known how much is leaving.
    pub(crate) fn weigh(&mut self, now: Ns, used: Use, pages: &dyn PageFacts) {
        self.now = self.now.max(now);
        let budget = self.budget;
        let shortage = budget.shortage(used);
        self.note(|| Call::Shortage(now, budget, used), Answer::Shortage(shortage));
        self.move_between_tiers(used, pages);
        self.repack(used, shortage, pages);
        if let Some(shortage) = shortage {
            self.giving_up.push_back(GivingUp::For(shortage, used));
            self.commands.push_back(Command::GiveUp { wanted_bytes: shortage.bytes });
        }
    }

    /// For [`Command::GiveUp`]: `give_up` answers what giving up the copy of a page freed, if it had
    /// one.
    pub fn give_up_kept(
        &mut self,
        wanted_bytes: u64,
        mut give_up: impl FnMut(PageId) -> Option<u64>,
    ) -> Dropped {
        let (mut freed, mut tried) = (Vec::new(), Vec::new());
        let heard = !self.listeners.is_empty();
        let dropped = self.kept.give_up(wanted_bytes, |page| {
            let bytes = give_up(page);
            if heard {
                freed.push(bytes);
                tried.push(page);
            }
            bytes
        });
        self.note(|| Call::GiveUp(wanted_bytes, freed), Answer::GaveUp(dropped, &tried));
        dropped
    }

    /// Copies were given up, and the pool is so full now.
    pub fn gave_up(&mut self, dropped: Dropped, pool: TierFacts, pages: &dyn PageFacts) {
        match self.giving_up.pop_front() {
            Some(GivingUp::For(short, used)) => self.reclaim(short, used, dropped, pool, pages),
            Some(GivingUp::Room) if !pool.has_part_free(NO_ROOM) && !self.pool_full => {
                self.pool_full = true;
                self.times_full += u64::from(!self.has_room_beside_pool());
            }
            Some(GivingUp::Room) | None => {}
        }
    }

    fn reclaim(
        &mut self,
        short: Shortage,
        used: Use,
        dropped: Dropped,
        pool: TierFacts,
        pages: &dyn PageFacts,
    ) {
        let last_resort = short.urgent && self.may_end_apps;
        if self.pool_full && !self.has_room_beside_pool() && !last_resort {
            return;
        }
        let budget = self.budget;
        let demand = budget.demand(short, dropped.bytes);
        self.note(|| Call::Demand(budget, short, dropped.bytes), Answer::Demand(demand));
        let Some(demand) = demand else { return };
        if used.leaving_bytes >= 2 * RECLAIM_PAGES as u64 * budget.page_bytes {
            return;
        }
        self.rounds += 1;
        let wanted = short.bytes.saturating_sub(dropped.bytes) / budget.page_bytes;
        self.tell(self.now, &Event::Pressure { pages: wanted, urgent: demand.urgent }, pages);
        let orders = self.orders(Call::SwapOut(demand), pages, |engine, pages, orders| {
            engine.plan_swap_out(demand, pages, orders);
        });
        if orders == 0 {
            self.no_room(pool);
        }
    }

    /// Something did not fit into the pool, which is so full: kept copies are given up, and if that
    /// does not help, it has no room.
    pub fn no_room(&mut self, pool: TierFacts) {
        if !pool.has_part_free(NO_ROOM) {
            // Before what is to enter it next.
            self.giving_up.push_front(GivingUp::Room);
            let wanted_bytes = pool.limit_bytes / MADE_ROOM;
            self.commands.push_front(Command::GiveUp { wanted_bytes });
        }
    }

    /// Everything of `app` that can leave does: somebody asked for it.
    pub fn take_out_app(&mut self, app: AppId, pages: &dyn PageFacts) {
        self.take_out_of_app(app, usize::MAX, pages);
    }

    /// So many pages of `app` leave, or some more to fill an order.
    pub fn take_out_of_app(&mut self, app: AppId, at_most: usize, pages: &dyn PageFacts) {
        self.offer_all_stayed(pages);
        let before = self.commands.len();
        self.orders(Call::AppOut(app), pages, |engine, pages, orders| {
            engine.plan_app_out(app, pages, orders);
        });
        let mut left = at_most;
        for command in self.commands.split_off(before) {
            match command {
                Command::SwapOut { groups, .. }
                | Command::PutFar { groups, .. }
                | Command::Peek { groups, .. }
                | Command::Lend { groups, .. }
                    if left == 0 =>
                {
                    self.stay(groups);
                    continue;
                }
                Command::SwapOut { ref groups, .. }
                | Command::PutFar { ref groups, .. }
                | Command::Peek { ref groups, .. }
                | Command::Lend { ref groups, .. } => {
                    let pages = groups.iter().map(|group| group.pages.len()).sum();
                    left = left.saturating_sub(pages);
                }
                _ => {}
            }
            self.commands.push_back(command);
        }
    }

    /// These stay where they are.
    fn stay(&mut self, groups: Vec<Group>) {
        for page in groups.into_iter().flat_map(|group| group.pages) {
            self.stayed_for_now(page);
        }
    }

    /// Moves what has its place in another tier by now, a little at a time, and never during a
    /// relaunch.
    fn move_between_tiers(&mut self, used: Use, pages: &dyn PageFacts) {
        let busy = used.leaving_bytes >= RECLAIM_PAGES as u64 * self.budget.page_bytes;
        if !used.relaunching && !self.pool_full && !busy {
            self.orders(Call::Moves(MOVED_PAGES), pages, |engine, pages, orders| {
                engine.plan_moves(MOVED_PAGES, pages, orders);
            });
        }
    }

    /// Has a little stored anew, if nothing else is to be done.
    fn repack(&mut self, used: Use, shortage: Option<Shortage>, pages: &dyn PageFacts) {
        let is_idle = !used.relaunching && used.leaving_bytes == 0 && shortage.is_none();
        let may = is_idle && self.engine.repacks() && self.engine.facts().cpu_load < BUSY_CPUS;
        if may && !self.under_way.repacks() {
            self.orders(Call::Repacks(MOVED_PAGES), pages, |engine, pages, orders| {
                engine.plan_repacks(MOVED_PAGES, pages, orders);
            });
        }
    }

    fn has_room_beside_pool(&self) -> bool {
        let mut tiers = self.engine.facts().tiers.iter();
        tiers.any(|(tier, facts)| *tier != Tier::Pool && facts.has_part_free(NO_ROOM))
    }

    /// Asks the engine for orders and turns them into commands; how many there were.
    fn orders(
        &mut self,
        call: Call,
        pages: &dyn PageFacts,
        plan: impl FnOnce(&mut Engine, &dyn PageFacts, &mut Vec<Order>),
    ) -> usize {
        let mut orders = std::mem::take(&mut self.orders);
        let plan = |engine: &mut Engine, pages: &dyn PageFacts| {
            plan(engine, pages, &mut orders);
            orders
        };
        self.orders = self.ask(|| call, pages, plan, |orders| Answer::Orders(orders));
        let count = self.orders.len();
        self.put_orders();
        count
    }

    fn put_orders(&mut self) {
        for order in self.orders.drain(..) {
            let number = self.under_way.number();
            let command = match order {
                Order::EndApp { app, reason } => Command::EndApp { app, reason },
                Order::Repack { space, groups, .. } => Command::Repack { space, groups, number },
                Order::Move { space, groups, tier, form, .. } => {
                    Command::Move { space, groups, tier, form, number }
                }
                Order::SwapOut { space, groups, tier, form, .. } => match tier {
                    Tier::Pool if self.engine.admits_all() => {
                        Command::SwapOut { space, groups, number }
                    }
                    Tier::Pool => Command::Peek { space, groups, number },
                    Tier::Kernel => Command::Lend { space, groups, number },
                    Tier::Flash => {
                        Command::PutFar { space, groups, to: LogId::FLASH, form, number }
                    }
                    Tier::Donor(donor) => {
                        Command::PutFar { space, groups, to: LogId::at(donor), form, number }
                    }
                },
            };
            self.commands.push_back(command);
        }
    }
}

#[inline]
fn is_of_a_page(event: &Event) -> bool {
    matches!(
        event,
        Event::Access { .. }
            | Event::Stored { .. }
            | Event::Stayed { .. }
            | Event::PageIn { .. }
            | Event::PrefetchUsed { .. }
            | Event::PrefetchExpired { .. }
    )
}
