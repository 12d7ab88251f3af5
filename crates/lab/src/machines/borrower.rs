//! A simulated machine that borrows: its programs, its memory, and the driver that a daemon has, under the same policies.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clew_core::seeded::Seeded;
use clew_core::{
    AccessKind, AppId, DonorId, Event, Group, Ns, PageId, PageRun, SpaceId, Tier, TierFacts,
    Trigger, Vpn,
};
use clew_engine::budget::{Budget, Use, WATERMARKS};
use clew_engine::decide::Engine;
use clew_engine::driver::{Command, Driver};
use clew_policy::Scheme;
use clew_remote::told::Told;

use super::borrowed::{Borrowed, Gone};
use super::lender::Lender;
use super::memory::{At, Lies, Memory};
use super::outcome::Counts;
use super::{Clock, UNIT};

/// Programs of a machine.
const APPS: usize = 10;
/// Their sizes, MiB: small ones as likely as large ones.
const APP_MIB: (usize, usize) = (48, 384);
/// Memory for all of them, bytes.
const BUDGET_BYTES: u64 = 1 << 30;
/// What of a program its user touches each time, per cent.
const TOUCHED_PCT: u32 = 60;
/// One of so many times a program that is not in front is closed first.
const CLOSES_ONE_IN: u64 = 12;

struct App {
    id: AppId,
    space: Option<SpaceId>,
    pages: u32,
}

/// A page on its way out.
struct Sending {
    page: PageId,
    tier: u8,
    order: u64,
}

/// What is needed beside a machine: the time, the machines that lend, and what is counted.
pub struct Around<'a> {
    pub clock: &'a Clock,
    pub lenders: &'a mut [Lender],
    pub counts: &'a mut Counts,
}

/// The machine.
pub struct Borrower {
    driver: Driver,
    memory: Memory,
    told: Told,
    tiers: Vec<Borrowed>,
    apps: Vec<App>,
    launched: usize,
    front: Option<usize>,
    relaunching: bool,
    sending: VecDeque<Sending>,
    /// Pages of each order that are not over yet, and how many left.
    orders: BTreeMap<u64, (usize, usize)>,
    versions: u64,
    draw: Seeded,
}

impl Borrower {
    /// With nothing running yet; what it knows of donors is in `tiers`.
    pub fn new(scheme: &Scheme, tiers: Vec<Borrowed>, mut draw: Seeded) -> Borrower {
        let mut engine = Engine::new(scheme);
        engine.set_page_bytes(UNIT as u32);
        let (low, high) = WATERMARKS;
        let budget = Budget::new(BUDGET_BYTES, low, high, UNIT);
        let app = |number: usize| App {
            id: AppId(number as u32),
            space: None,
            pages: draw.size(APP_MIB.0, APP_MIB.1) as u32,
        };
        let apps = (0..APPS).map(app).collect();
        Borrower {
            driver: Driver::new(engine, budget, scheme.on_full),
            memory: Memory::default(),
            told: Told::default(),
            tiers,
            apps,
            launched: 0,
            front: None,
            relaunching: false,
            sending: VecDeque::new(),
            orders: BTreeMap::new(),
            versions: 0,
            draw,
        }
    }

    /// Whether something is on its way out.
    pub fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Whether all programs were started once.
    pub fn has_begun(&self) -> bool {
        self.launched == self.apps.len()
    }

    fn tell(&mut self, now: Ns, event: &Event) {
        self.driver.tell(now, event, &self.memory);
    }

    fn used(&self) -> Use {
        let resident_bytes = self.memory.resident_pages() * UNIT;
        let relaunching = self.relaunching;
        Use { used_bytes: resident_bytes, resident_bytes, relaunching, ..Use::default() }
    }

    /// Time has passed: donors are looked at, and what is short leaves.
    pub fn tick(&mut self, passed: Duration, around: &mut Around<'_>) {
        let now = around.clock.now;
        for number in 0..self.tiers.len() {
            let Some(donor) = DonorId::new(number) else { continue };
            let tier = &mut self.tiers[number];
            around.counts.mended_pages += tier.look(around.clock, passed, around.lenders);
            let (standing, log) = tier.stands();
            let (room, changed) = self.told.look(donor, &standing, log, false);
            self.driver.set_tier(Tier::Donor(donor), room);
            if let Some(state) = changed {
                self.tell(now, &Event::Donor { donor, state });
            }
        }
        self.driver.tick(now, &self.memory);
        if self.driver.owes() {
            self.driver.bring_wanted(self.used(), &self.memory);
        }
        self.relaunching = false;
        self.keep_budget(around);
    }

    fn keep_budget(&mut self, around: &mut Around<'_>) {
        self.carry_out(around);
        let used = self.used();
        if self.driver.shortage(used).is_some() {
            self.driver.keep_budget(around.clock.now, used, &self.memory);
            self.carry_out(around);
        }
    }

    /// Its user turns to another program.
    pub fn switch(&mut self, around: &mut Around<'_>) {
        let number = match self.has_begun() {
            false => {
                self.launched += 1;
                self.launched - 1
            }
            true => {
                if self.draw.below(CLOSES_ONE_IN) == 0 {
                    let closed = self.draw.below(APPS as u64) as usize;
                    if self.front != Some(closed) {
                        self.end(closed, around);
                    }
                }
                // Some are used more often than others.
                let number = (self.draw.unit().powi(2) * APPS as f64) as usize;
                if self.front == Some(number) { (number + 1) % APPS } else { number }
            }
        };
        let now = around.clock.now;
        if let Some(before) = self.front.take().filter(|before| self.apps[*before].space.is_some())
        {
            let app = self.apps[before].id;
            self.tell(now, &Event::Background { app });
        }
        self.front = Some(number);
        let App { id: app, space, pages } = self.apps[number];
        match space {
            None => {
                let space = self.memory.start(pages);
                self.apps[number].space = Some(space);
                around.counts.launches += 1;
                self.tell(now, &Event::SpaceStart { space, app, file: false });
                self.tell(now, &Event::Launch { app });
                let run = PageRun { first: PageId::new(space, Vpn(0)), count: pages };
                self.tell(now, &Event::Resident { run });
            }
            Some(space) => {
                around.counts.relaunches += 1;
                self.relaunching = true;
                self.tell(now, &Event::Relaunch { app });
                self.driver.want_early(Trigger::Relaunch(app), &self.memory);
                self.driver.bring_wanted(self.used(), &self.memory);
                self.carry_out(around);
                self.touch(number, space, pages, around);
            }
        }
        if self.apps[number].space.is_some() {
            self.tell(now, &Event::ResponseComplete { app, response_ns: 0 });
        }
        self.keep_budget(around);
    }

    /// The program of this number uses some of its memory.
    fn touch(&mut self, number: usize, space: SpaceId, pages: u32, around: &mut Around<'_>) {
        let now = around.clock.now;
        let first = self.draw.below(pages.into()) as u32;
        for next in 0..pages * TOUCHED_PCT / 100 {
            let page = PageId::new(space, Vpn(u64::from((first + next) % pages)));
            match self.memory.at(page) {
                Some(At::Resident) => {
                    self.tell(now, &Event::Access { page, kind: AccessKind::Seen, write: false });
                }
                Some(At::Leaving(_)) => {
                    // It is taken back.
                    self.memory.put(page, At::Resident);
                    self.driver.stayed(now, page);
                }
                Some(At::Stored(lies)) => match self.come_back(page, lies, true, around) {
                    Ok(()) => around.counts.faults += 1,
                    Err(_) => {
                        around.counts.crashed += 1;
                        self.end(number, around);
                        return;
                    }
                },
                None => return,
            }
        }
    }

    fn come_back(
        &mut self,
        page: PageId,
        lies: Lies,
        demand: bool,
        around: &mut Around<'_>,
    ) -> Result<(), Gone> {
        let tier = &mut self.tiers[usize::from(lies.tier)];
        if let Err(gone) = tier.get(lies, around.lenders) {
            match gone {
                Gone::Lost => {}
                Gone::There => around.counts.defect("a page was lost of which there is a copy"),
                Gone::Wrong => around.counts.defect("a page came back as another one"),
            }
            return Err(gone);
        }
        tier.forget(lies.slot, around.clock.now, around.lenders);
        self.memory.put(page, At::Resident);
        around.counts.pages_back += 1;
        let tier = Tier::Donor(DonorId::new(lies.tier.into()).unwrap_or(DonorId::FIRST));
        self.tell(around.clock.now, &Event::PageIn { page, tier, demand });
        Ok(())
    }

    /// The program of this number ends.
    fn end(&mut self, number: usize, around: &mut Around<'_>) {
        let Some(space) = self.apps[number].space.take() else { return };
        let (app, now) = (self.apps[number].id, around.clock.now);
        if self.front == Some(number) {
            self.front = None;
        }
        for lies in self.memory.end(space) {
            self.tiers[usize::from(lies.tier)].forget(lies.slot, now, around.lenders);
        }
        self.tell(now, &Event::SpaceEnd { space });
        self.tell(now, &Event::Exit { app });
    }

    /// Does what the driver wants done.
    fn carry_out(&mut self, around: &mut Around<'_>) {
        let now = around.clock.now;
        while let Some(command) = self.driver.next_command() {
            match command {
                Command::PutFar { groups, to, number, .. } => {
                    let tier = to.donor().map(|donor| donor.number() as u8);
                    self.begin_to_send(groups, tier, number, now);
                }
                Command::Restore { pages, number, .. } => {
                    let mut came = 0;
                    for page in pages {
                        if let Some(At::Stored(lies)) = self.memory.at(page) {
                            let back = self.come_back(page, lies, false, around);
                            came += usize::from(back.is_ok());
                        }
                    }
                    self.driver.carried_out(number, came);
                }
                Command::EndApp { app, reason } => {
                    let number = app.0 as usize;
                    if self.front != Some(number) && self.apps[number].space.is_some() {
                        *around.counts.ended.entry(reason).or_default() += 1;
                        self.end(number, around);
                    }
                }
                Command::GiveUp { wanted_bytes } => {
                    let dropped = self.driver.give_up_kept(wanted_bytes, |_| None);
                    // There is no pool, so it is never full.
                    let (limit_bytes, limit_pages) = (u64::MAX, u64::MAX);
                    let pool = TierFacts { limit_bytes, limit_pages, ..TierFacts::default() };
                    self.driver.gave_up(dropped, pool, &self.memory);
                }
                Command::Run(job) => {
                    (job.run)();
                    self.tell(now, &Event::JobDone { job: job.id });
                }
                // A scheme that has no place but donors wants none of these.
                Command::SwapOut { groups, number, .. }
                | Command::Peek { groups, number, .. }
                | Command::Move { groups, number, .. }
                | Command::Lend { groups, number, .. } => {
                    self.begin_to_send(groups, None, number, now);
                }
                Command::Repack { number, .. } => self.driver.carried_out(number, 0),
                Command::Watch { .. } | Command::EndWatch { .. } => {}
            }
        }
    }

    fn begin_to_send(&mut self, groups: Vec<Group>, tier: Option<u8>, order: u64, now: Ns) {
        let mut sent = 0;
        for page in groups.into_iter().flat_map(|group| group.pages) {
            match (tier, self.memory.at(page)) {
                (Some(tier), Some(At::Resident)) => {
                    self.memory.put(page, At::Leaving(order));
                    self.sending.push_back(Sending { page, tier, order });
                    sent += 1;
                }
                _ => self.driver.stayed(now, page),
            }
        }
        match sent {
            0 => self.driver.carried_out(order, 0),
            _ => drop(self.orders.insert(order, (sent, 0))),
        }
    }

    /// The page that is the first on its way out has been sent.
    pub fn sent(&mut self, around: &mut Around<'_>) {
        let Some(Sending { page, tier, order }) = self.sending.pop_front() else { return };
        let now = around.clock.now;
        let mut left = false;
        if self.memory.at(page) == Some(At::Leaving(order)) {
            self.versions += 1;
            let version = self.versions;
            match self.tiers[usize::from(tier)].put(version, now, around.lenders) {
                Some(slot) => {
                    self.memory.put(page, At::Stored(Lies { tier, slot, version }));
                    around.counts.pages_out += 1;
                    let tier = Tier::Donor(DonorId::new(tier.into()).unwrap_or(DonorId::FIRST));
                    self.tell(now, &Event::Stored { page, tier, bytes: UNIT as u32 });
                    left = true;
                }
                None => {
                    self.memory.put(page, At::Resident);
                    around.counts.not_taken += 1;
                    self.driver.stayed(now, page);
                }
            }
        }
        if let Some((under_way, out)) = self.orders.get_mut(&order) {
            (*under_way, *out) = (*under_way - 1, *out + usize::from(left));
            if *under_way == 0 {
                let out = *out;
                self.orders.remove(&order);
                self.driver.carried_out(order, out);
                self.keep_budget(around);
            }
        }
    }

    /// What is wrong with what is said to be where, if anything is.
    pub fn is_untrue(&self, lenders: &[Lender]) -> Option<String> {
        let untrue = |lies: &Lies| self.tiers[usize::from(lies.tier)].is_untrue(*lies, lenders);
        let lies = self.memory.stored().find(untrue)?;
        Some(format!("what is known of the copies of page {lies:?} is not so"))
    }

    /// Pages that are at donors.
    pub fn stored_pages(&self) -> u64 {
        self.memory.stored().count() as u64
    }
}
