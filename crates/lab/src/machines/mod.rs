//! Many machines that lend each other memory, simulated: seeded, so that the same seed gives the same, and without a
//! thread, a socket or a clock.
//!
//! What decides is what decides in a daemon and at a donor: the [`Driver`](clew_engine::driver::Driver) and the policies of
//! the scheme on each machine that borrows ([`borrower`]); how a donor stands, what policies are told of it, who has what of
//! two copies, and what is copied again ([`borrowed`], over `clew_remote::{heard, told, copies::pieces}`); what a donor
//! lends, and when it takes it back ([`lender`], over `clew_remote::donor::account`).
//!
//! What is modelled: programs, of a random size each, of which their users turn to one after the other; links, which carry
//! what MobileSwap's do and nothing at once ([`LINK_MBIT`]); donors, which leave with all that they have, are out of reach
//! for a while, answer late, or want their memory back. A page is a unit of 1 MiB here. One that is on its way out is in its
//! machine's memory until a donor has it; what comes back comes at once. Donors are looked at once a second, by what their last
//! heartbeat said.
//!
//! What must be so is looked at whenever it could change, and counted anew each minute: a page of which a donor in reach has a
//! copy comes back, as it was; no donor has more than it lends; what is said of two copies is so.

mod borrowed;
mod borrower;
mod lender;
mod memory;
mod outcome;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use clew_core::seeded::Seeded;
use clew_core::{DonorId, Ns};
use clew_policy::Scheme;
use clew_remote::copies::second_of;
use clew_remote::donor::account::Grace;

use crate::error::LabError;
use borrowed::Borrowed;
use borrower::{Around, Borrower};
use lender::Lender;
use outcome::Balance;
pub use outcome::{Counts, Outcome};

/// Bytes of a unit.
const UNIT: u64 = 1 << 20;
/// What the link of each machine carries, Mbit/s (MobileSwap, figure 4).
pub const LINK_MBIT: u64 = 920;
/// How often a machine looks at its donors.
const TICK: Duration = Duration::from_secs(1);
/// Between two programs that a user turns to, seconds: at first, until all run, and then in the mean.
const SWITCH_S: (f64, f64) = (20.0, 60.0);
/// How long a donor is away that has left, and one that is cut off, late or under pressure, seconds.
const AWAY_S: (f64, f64) = (60.0, 600.0);
const SHORT_S: (f64, f64) = (5.0, 60.0);
/// How often everything is counted anew.
const RECOUNT_S: u64 = 60;
/// What machines have at donors in the mean, of what their programs have and their memory has no room for: for how much
/// donors lend if nobody says.
const LENT_MIB: u64 = 650;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The scheme: one that has no place but donors.
    pub scheme: Scheme,
    /// Machines that borrow.
    pub clients: usize,
    /// Machines that lend.
    pub donors: usize,
    /// How many of them each machine that borrows knows.
    pub known: usize,
    /// Copies of each page, 1 or 2.
    pub copies: usize,
    /// The seed.
    pub seed: u64,
    /// How long, simulated hours.
    pub hours: f64,
    /// What a machine uses of each donor at most, bytes.
    pub each_bytes: u64,
    /// Seconds until something happens to a donor, in the mean.
    pub churn_s: f64,
    /// The largest donor lends so many times what the smallest does.
    pub unequal: f64,
}

impl Settings {
    /// As much of everything as is usual.
    pub fn new(scheme: Scheme, clients: usize, donors: usize, seed: u64) -> Settings {
        let (known, copies, hours) = (5.min(donors), 1, 1.0);
        let (each_bytes, churn_s, unequal) = (u64::MAX, 1800.0, 1.0);
        Settings {
            scheme,
            clients,
            donors,
            known,
            copies,
            seed,
            hours,
            each_bytes,
            churn_s,
            unequal,
        }
    }

    fn check(&self) -> Result<(), LabError> {
        let fail = |what: &str, why: String| Err(LabError::Setting { what: what.to_string(), why });
        if !self.scheme.needs_donors() {
            let what = format!("scheme {}", self.scheme.name);
            return fail(&what, "it has other places than donors, which are not simulated".into());
        }
        if self.clients == 0 || self.clients > 1 << 20 || self.donors > 1 << 20 {
            return fail(
                "machines",
                "there is at least one that borrows, and 1,048,576 at most".into(),
            );
        }
        if !(1..=2).contains(&self.copies) {
            return fail("copies", "1 or 2".into());
        }
        if self.known < self.copies || self.known > self.donors.min(DonorId::COUNT) {
            let most = self.donors.min(DonorId::COUNT);
            return fail(
                "donors known to each machine",
                format!("{} of {}: from {} to {most}", self.known, self.donors, self.copies),
            );
        }
        if !(self.hours > 0.0 && self.hours <= 10_000.0) {
            return fail("hours", "more than 0, at most 10,000".into());
        }
        if self.churn_s.is_nan() || self.churn_s < 10.0 || !(1.0..=100.0).contains(&self.unequal) {
            return fail("churn", "10 seconds at least; donors differ by 1 to 100 times".into());
        }
        Ok(())
    }
}

/// The simulated time.
pub struct Clock {
    pub now: Ns,
    began: Instant,
}

impl Clock {
    /// The same as an instant, of which only the distance to others matters.
    pub fn instant(&self) -> Instant {
        self.began + Duration::from_nanos(self.now.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    /// A user turns to another program.
    Switch(usize),
    /// A machine looks at its donors.
    Tick(usize),
    /// A unit has been sent.
    Sent(usize),
    /// Something happens to a donor.
    Befalls(usize),
    /// And is over.
    IsOver(usize),
    /// A donor looks whether it is to take something back.
    TakesBack(usize),
    /// Everything is looked at.
    Look,
}

/// Hears how far it is: simulated seconds, and of how many.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Simulates it.
///
/// # Errors
/// If the settings make no sense; [`LabError::Simulation`] if something happened that must not.
pub fn simulate(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, LabError> {
    settings.check()?;
    let mut world = World::new(settings);
    world.run(progress)?;
    let lent = |lender: &Lender| lender.lends();
    Ok(Outcome {
        kind: "simulated",
        scheme: settings.scheme.name.clone(),
        clients: settings.clients,
        donors: settings.donors,
        known: settings.known,
        copies: settings.copies,
        seed: settings.seed,
        hours: settings.hours,
        donor_bytes: [
            world.lenders.iter().map(lent).min().unwrap_or(0),
            world.lenders.iter().map(lent).max().unwrap_or(0),
        ],
        unit_bytes: UNIT,
        stored_pages: world.borrowers.iter().map(Borrower::stored_pages).sum(),
        steps: world.steps,
        balance: world.balance,
        counts: world.counts,
    })
}

struct World<'a> {
    settings: &'a Settings,
    clock: Clock,
    end: Ns,
    /// What is to come, by time and in the order in which it was said.
    to_come: BinaryHeap<Reverse<(Ns, u64, What)>>,
    said: u64,
    steps: u64,
    lenders: Vec<Lender>,
    borrowers: Vec<Borrower>,
    /// Who has a unit under way.
    sending: Vec<bool>,
    /// What befell each donor last.
    befell: Vec<Befell>,
    draw: Seeded,
    balance: Balance,
    counts: Counts,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Befell {
    Nothing,
    IsAway,
    IsWeak,
    IsPressed,
}

fn seconds(s: f64) -> Ns {
    Ns((s * 1e9) as u64)
}

impl World<'_> {
    fn new(settings: &Settings) -> World<'_> {
        let Settings { clients, donors, known, copies, seed, .. } = *settings;
        let mut draw = Seeded::of(seed, &[0]);
        let all_mib = LENT_MIB * clients as u64 * copies as u64 / donors as u64;
        // Two thirds of it are in use, then.
        let mean_mib = (all_mib * 3 / 2).max(64) as f64;
        let least = 2.0 / (1.0 + settings.unequal);
        let lender = |_| {
            let part = least * (1.0 + draw.unit() * (settings.unequal - 1.0));
            Lender::new((mean_mib * part) as u64 * UNIT)
        };
        let lenders: Vec<Lender> = (0..donors).map(lender).collect();
        let clock = Clock { now: Ns(0), began: Instant::now() };
        let borrower = |number: usize| {
            let mut draw = Seeded::of(seed, &[1, number as u64]);
            let knows = some_of(donors, known, &mut draw);
            let tier = |(at, first): (usize, &usize)| {
                let both = [*first, knows[second_of(at, known)]];
                let each = settings.each_bytes;
                Borrowed::new(number as u32, at as u8, &both[..copies], each, &clock)
            };
            let tiers = knows.iter().enumerate().map(tier).collect();
            Borrower::new(&settings.scheme, tiers, draw)
        };
        let borrowers = (0..clients).map(borrower).collect();
        World {
            settings,
            end: seconds(settings.hours * 3600.0),
            to_come: BinaryHeap::new(),
            said: 0,
            steps: 0,
            lenders,
            borrowers,
            sending: vec![false; clients],
            befell: vec![Befell::Nothing; donors],
            draw: Seeded::of(seed, &[2]),
            balance: Balance::default(),
            counts: Counts::default(),
            clock,
        }
    }

    fn say(&mut self, after: Ns, what: What) {
        self.said += 1;
        let at = Ns(self.clock.now.0 + after.0);
        self.to_come.push(Reverse((at, self.said, what)));
    }

    /// So many seconds in the mean, and any number of them.
    fn about(&mut self, mean_s: f64) -> Ns {
        seconds(-mean_s * (1.0 - self.draw.unit()).ln())
    }

    fn between(&mut self, (low, high): (f64, f64)) -> Ns {
        seconds(low + (high - low) * self.draw.unit())
    }

    fn run(&mut self, progress: Progress<'_>) -> Result<(), LabError> {
        for number in 0..self.borrowers.len() {
            // Not all at once.
            let (tick, switch) = (self.between((0.0, 1.0)), self.between((1.0, SWITCH_S.0)));
            self.say(tick, What::Tick(number));
            self.say(switch, What::Switch(number));
        }
        for number in 0..self.lenders.len() {
            let after = self.about(self.settings.churn_s);
            self.say(after, What::Befalls(number));
        }
        self.say(seconds(1.0), What::Look);
        while let Some(Reverse((at, _, what))) = self.to_come.pop() {
            if at > self.end {
                break;
            }
            self.clock.now = at;
            self.steps += 1;
            self.step(what);
            if what == What::Look {
                self.look(progress);
            }
            if let Some(what) = self.counts.defect.take() {
                return Err(LabError::Simulation { at_s: at.0 as f64 / 1e9, what });
            }
        }
        Ok(())
    }

    fn step(&mut self, what: What) {
        match what {
            What::Switch(number) => {
                self.with(number, |borrower, around| borrower.switch(around));
                let after = match self.borrowers[number].has_begun() {
                    false => seconds(SWITCH_S.0),
                    true => self.about(SWITCH_S.1),
                };
                self.say(after, What::Switch(number));
            }
            What::Tick(number) => {
                self.with(number, |borrower, around| borrower.tick(TICK, around));
                self.say(Ns(TICK.as_nanos() as u64), What::Tick(number));
            }
            What::Sent(number) => {
                self.sending[number] = false;
                self.with(number, |borrower, around| borrower.sent(around));
            }
            What::Befalls(number) => self.befalls(number),
            What::IsOver(number) => {
                let lender = &mut self.lenders[number];
                lender.says(self.clock.now);
                match std::mem::replace(&mut self.befell[number], Befell::Nothing) {
                    Befell::IsAway => lender.come(),
                    Befell::IsWeak => lender.is_weak = false,
                    Befell::IsPressed => lender.press(false),
                    Befell::Nothing => {}
                }
                let after = self.about(self.settings.churn_s);
                self.say(after, What::Befalls(number));
            }
            What::TakesBack(number) => {
                let now = self.clock.instant();
                let lender = &mut self.lenders[number];
                lender.says(self.clock.now);
                self.counts.taken_back += u64::from(lender.take_back(now));
                if lender.is_pressed() {
                    self.say(Ns(Grace::EVERY.as_nanos() as u64), What::TakesBack(number));
                }
            }
            What::Look => self.say(seconds(1.0), What::Look),
        }
    }

    /// Something happens to a machine that borrows. Afterwards it sends, if it has something to send.
    fn with(&mut self, number: usize, does: impl FnOnce(&mut Borrower, &mut Around<'_>)) {
        let World { clock, lenders, borrowers, counts, .. } = self;
        let mut around = Around { clock, lenders, counts };
        does(&mut borrowers[number], &mut around);
        if borrowers[number].is_sending() && !std::mem::replace(&mut self.sending[number], true) {
            let bits = UNIT * 8 * self.settings.copies as u64;
            self.say(Ns(bits * 1000 / LINK_MBIT), What::Sent(number));
        }
    }

    fn befalls(&mut self, number: usize) {
        let kind = self.draw.below(10);
        let lender = &mut self.lenders[number];
        lender.says(self.clock.now);
        let lasts = match kind {
            0..=3 => {
                self.counts.left += 1;
                lender.leave(true);
                self.befell[number] = Befell::IsAway;
                self.between(AWAY_S)
            }
            4..=6 => {
                self.counts.cut += 1;
                lender.leave(false);
                self.befell[number] = Befell::IsAway;
                self.between(SHORT_S)
            }
            7..=8 => {
                self.counts.weak += 1;
                lender.is_weak = true;
                self.befell[number] = Befell::IsWeak;
                self.between(SHORT_S)
            }
            _ => {
                self.counts.pressed += 1;
                lender.press(true);
                self.befell[number] = Befell::IsPressed;
                self.say(Ns(0), What::TakesBack(number));
                self.between(SHORT_S)
            }
        };
        self.say(lasts, What::IsOver(number));
    }

    /// Once a second: what must be so, and how evenly donors are used.
    fn look(&mut self, progress: Progress<'_>) {
        let at_s = self.clock.now.0 / 1_000_000_000;
        let mut wrong = self.lenders.iter().find_map(Lender::is_unsound);
        if at_s.is_multiple_of(RECOUNT_S) {
            let miscounted = || self.lenders.iter().find_map(Lender::is_miscounted);
            let untrue = |borrower: &Borrower| borrower.is_untrue(&self.lenders);
            wrong = wrong.or_else(miscounted);
            wrong = wrong.or_else(|| self.borrowers.iter().find_map(untrue));
        }
        if let Some(wrong) = wrong {
            self.counts.defect(&wrong);
        }
        if self.borrowers.iter().all(Borrower::has_begun) {
            self.balance.look(at_s, self.lenders.iter().filter_map(Lender::share));
        }
        progress(at_s, self.end.0 / 1_000_000_000);
    }
}

/// So many different numbers below `all`, ascending: as somebody would write donors down.
fn some_of(all: usize, count: usize, draw: &mut Seeded) -> Vec<usize> {
    let mut some = std::collections::BTreeSet::new();
    while some.len() < count.min(all) {
        some.insert(draw.below(all as u64) as usize);
    }
    some.into_iter().collect()
}

#[cfg(test)]
mod tests;
