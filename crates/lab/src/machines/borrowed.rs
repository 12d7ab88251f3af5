//! What a simulated machine has at one of its donors, with one copy or two. How its links stand, what is missed and what is
//! copied again is decided as a daemon does (`clew_remote::{heard, copies::pieces}`).

use std::time::Duration;

use clew_core::{DonorState, Ns, TierFacts};
use clew_remote::Standing;
use clew_remote::copies::pieces::Pieces;
use clew_remote::copies::{AT_A_TIME, LOOKS};
use clew_remote::heard::Heard;
use clew_remote::patience::Patience;

use super::lender::{Lender, Owner};
use super::memory::Lies;
use super::{Clock, UNIT};

/// A round trip to a donor, and to one whose link is weak.
const ROUND_TRIPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(400));
/// Bytes of a chunk, as a daemon sends them.
const CHUNK: u64 = 64 << 10;

/// A link to a donor.
struct Link {
    donor: usize,
    owner: Owner,
    epoch: Option<u64>,
    heard: Heard,
    standing: Standing,
    has_lost: bool,
}

impl Link {
    /// Makes the link if it is not there, and hears the donor's heartbeat.
    fn look(&mut self, clock: &Clock, lenders: &mut [Lender], patience: &Patience) {
        let (now, lender) = (clock.instant(), &mut lenders[self.donor]);
        if let Some(epoch) = self.epoch.filter(|epoch| !lender.has_link(self.owner, *epoch)) {
            lender.hang_up(epoch);
            self.epoch = None;
        }
        if self.epoch.is_none()
            && let Some((known, epoch)) = lender.connect(self.owner)
        {
            self.has_lost |= self.heard.has_lost(known);
            self.epoch = Some(epoch);
        }
        if self.epoch.is_some() {
            self.heard.something(now);
            let trip = if lender.is_weak { ROUND_TRIPS.1 } else { ROUND_TRIPS.0 };
            let facts = lender.says(clock.now);
            self.heard.says(now, facts, Some(trip), patience, &mut self.standing);
        }
        if self.heard.is_lost(now, None, patience) {
            self.standing.lose();
        }
    }

    fn is_usable(&self, lenders: &[Lender]) -> bool {
        self.epoch.is_some_and(|epoch| lenders[self.donor].has_link(self.owner, epoch))
    }

    fn write(&mut self, slot: u32, version: u64, now: Ns, lenders: &mut [Lender]) -> bool {
        if !self.is_usable(lenders) {
            return false;
        }
        let lender = &mut lenders[self.donor];
        lender.says(now);
        let took = lender.write(self.owner, slot, version);
        if took {
            self.heard.took();
        }
        took
    }

    fn read(&self, slot: u32, lenders: &[Lender]) -> Option<u64> {
        self.is_usable(lenders).then(|| lenders[self.donor].read(self.owner, slot))?
    }

    fn forget(&self, slot: u32, now: Ns, lenders: &mut [Lender]) {
        if self.is_usable(lenders) {
            let lender = &mut lenders[self.donor];
            lender.says(now);
            lender.forget(self.owner, slot);
        }
    }

    fn standing(&self) -> Standing {
        let mut standing = self.standing.clone();
        if self.has_lost {
            standing.state = DonorState::Lost;
        }
        standing
    }
}

/// Why a page cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// No donor has it any more, or none that is in reach.
    Lost,
    /// A donor that is in reach has it: a defect.
    There,
    /// What came is something else: a defect.
    Wrong,
}

/// What a machine has at a donor.
pub struct Borrowed {
    links: Vec<Link>,
    pieces: Pieces,
    patience: Patience,
    limit_bytes: u64,
    free: Vec<u32>,
    slots: u32,
    pages: u64,
    /// What should be forgotten at a donor that is out of reach: asked again when it is there.
    owed: Vec<u32>,
}

fn place(slot: u32) -> u64 {
    u64::from(slot) * UNIT
}

impl Borrowed {
    /// Nothing yet. `donors` has the first donor, and the one that has the second copies if there are any; `limit_bytes` is
    /// what is used of it at most.
    pub fn new(
        machine: u32,
        tier: u8,
        donors: &[usize],
        limit_bytes: u64,
        clock: &Clock,
    ) -> Borrowed {
        let link = |(which, donor): (u8, &usize)| Link {
            donor: *donor,
            owner: (machine, tier, which),
            epoch: None,
            heard: Heard::new(clock.instant(), false),
            standing: Standing::unknown(),
            has_lost: false,
        };
        let gives_up_writes = donors.len() > 1;
        Borrowed {
            links: (0..).zip(donors).map(link).collect(),
            pieces: Pieces::default(),
            patience: Patience { gives_up_writes, ..Patience::default() },
            limit_bytes,
            free: Vec::new(),
            slots: 0,
            pages: 0,
            owed: Vec::new(),
        }
    }

    fn is_twice(&self) -> bool {
        self.links.len() > 1
    }

    /// Hears all donors, and copies what was missed; how many pages were.
    pub fn look(&mut self, clock: &Clock, passed: Duration, lenders: &mut [Lender]) -> u64 {
        for link in &mut self.links {
            link.look(clock, lenders, &self.patience);
        }
        let usable: Vec<bool> = self.links.iter().map(|link| link.is_usable(lenders)).collect();
        if usable.iter().all(|usable| *usable) {
            for slot in std::mem::take(&mut self.owed) {
                self.release(slot, clock.now, lenders);
            }
        }
        if !self.is_twice() {
            // Nobody asks for what it had.
            self.links[0].has_lost &= self.pages > 0;
            return 0;
        }
        for which in 0..2 {
            if std::mem::take(&mut self.links[which].has_lost) {
                self.pieces.lost_all(which);
            }
        }
        if self.pages == 0 {
            self.pieces.forgive();
        }
        let looks = passed.as_millis() / LOOKS.0.as_millis().max(1);
        let most = (looks as u64 * AT_A_TIME as u64 * CHUNK / UNIT) as usize;
        (0..2).map(|which| self.mend(which, most, clock.now, lenders)).sum()
    }

    fn mend(&mut self, which: usize, most: usize, now: Ns, lenders: &mut [Lender]) -> u64 {
        let stands = |link: &Link| link.standing().state;
        if stands(&self.links[which]) != DonorState::Up
            || stands(&self.links[1 - which]) == DonorState::Lost
        {
            return 0;
        }
        let mut mended = 0;
        for missed in self.pieces.missed(which, most) {
            let slot = (missed.at / UNIT) as u32;
            let version = self.links[1 - which].read(slot, lenders);
            if version.is_some_and(|version| self.links[which].write(slot, version, now, lenders)) {
                self.pieces.mended(which, missed);
                mended += 1;
            }
        }
        mended
    }

    /// How it stands, and what lies there.
    pub fn stands(&self) -> (Standing, TierFacts) {
        let used_bytes = self.pages * UNIT;
        let facts = TierFacts {
            used_bytes,
            limit_bytes: self.limit_bytes,
            pages: self.pages,
            limit_pages: u64::MAX,
            ..TierFacts::default()
        };
        let first = self.links[0].standing();
        match self.links.get(1) {
            Some(second) => (self.pieces.standing(first, Some(second.standing())), facts),
            None => (first, facts),
        }
    }

    /// Has a page stored; where, or `None` if no donor takes it.
    pub fn put(&mut self, version: u64, now: Ns, lenders: &mut [Lender]) -> Option<u32> {
        if (self.pages + 1) * UNIT > self.limit_bytes {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        let number = self.pieces.write(place(slot), UNIT);
        let mut took_any = false;
        for (which, link) in self.links.iter_mut().enumerate() {
            let in_vain = link.standing().in_vain;
            let took = !in_vain && link.write(slot, version, now, lenders);
            self.pieces.wrote(which, place(slot), number, took);
            took_any |= took;
        }
        if !took_any {
            self.pieces.forget(place(slot), UNIT);
            self.free.push(slot);
            return None;
        }
        self.pages += 1;
        Some(slot)
    }

    /// Whether a page comes back as it was.
    pub fn get(&self, lies: Lies, lenders: &[Lender]) -> Result<(), Gone> {
        let read = |which: usize| self.links[which].read(lies.slot, lenders);
        let came = match self.is_twice() {
            false => read(0),
            true => {
                let [in_first, in_second] = self.pieces.may_read(place(lies.slot));
                let is_lost = self.links[0].standing().state == DonorState::Lost;
                match in_second && (is_lost || !in_first) {
                    true => read(1),
                    false => read(0).or_else(|| in_second.then(|| read(1))?),
                }
            }
        };
        match came {
            Some(version) if version == lies.version => Ok(()),
            Some(_) => Err(Gone::Wrong),
            None => {
                let is_there = (0..self.links.len()).any(|n| read(n) == Some(lies.version));
                Err(if is_there { Gone::There } else { Gone::Lost })
            }
        }
    }

    /// A page is needed no more.
    pub fn forget(&mut self, slot: u32, now: Ns, lenders: &mut [Lender]) {
        self.pages -= 1;
        self.pieces.forget(place(slot), UNIT);
        if self.links.iter().all(|link| link.is_usable(lenders)) {
            self.release(slot, now, lenders);
        } else {
            self.owed.push(slot);
        }
    }

    fn release(&mut self, slot: u32, now: Ns, lenders: &mut [Lender]) {
        self.links.iter().for_each(|link| link.forget(slot, now, lenders));
        self.free.push(slot);
    }

    /// How many of two copies there really are of a page that is said to have two, where that can be seen.
    pub fn is_untrue(&self, lies: Lies, lenders: &[Lender]) -> bool {
        if !self.is_twice() {
            return false;
        }
        let may_read = self.pieces.may_read(place(lies.slot));
        self.links.iter().zip(may_read).any(|(link, has)| {
            let is_current = link.is_usable(lenders) && !link.has_lost;
            is_current && has != (link.read(lies.slot, lenders) == Some(lies.version))
        })
    }
}
