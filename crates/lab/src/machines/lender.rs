//! A simulated machine that lends: what lies there is a number for each page. How much that may be, and when it takes back
//! what it wants back, is decided as a real donor does (`clew_remote::donor::account`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clew_core::Ns;
use clew_remote::donor::account::{Account, Grace};
use clew_remote::donor::{HEARTBEAT, Lending, MOST_LINKS};
use clew_remote::wire::DonorFacts;

use super::UNIT;

/// Whose an area is: which machine's, of which of its donors, the first or the second copy.
pub type Owner = (u32, u8, u8);

/// The machine.
pub struct Lender {
    limit_bytes: u64,
    account: Account,
    areas: BTreeMap<Owner, BTreeMap<u32, u64>>,
    links: usize,
    /// Counted up where all links end.
    epoch: u64,
    is_there: bool,
    /// What it answers is late.
    pub is_weak: bool,
    pressed: bool,
    grace: Grace,
    /// What it said last, and in which of its heartbeats.
    said: (DonorFacts, u64),
}

impl Lender {
    /// It lends so much.
    pub fn new(limit_bytes: u64) -> Lender {
        let facts = DonorFacts { free_bytes: limit_bytes, ..DonorFacts::default() };
        Lender {
            limit_bytes,
            account: Account::new(limit_bytes),
            areas: BTreeMap::new(),
            links: 0,
            epoch: 0,
            is_there: true,
            is_weak: false,
            pressed: false,
            grace: Grace::default(),
            said: (facts, 0),
        }
    }

    /// A link to it; whether it knows its owner, and the number of the links of this time. `None` if it is out of reach, or
    /// has all the links that it takes.
    pub fn connect(&mut self, owner: Owner) -> Option<(bool, u64)> {
        if !self.is_there || self.links >= MOST_LINKS {
            return None;
        }
        self.links += 1;
        let known = self.areas.contains_key(&owner);
        self.areas.entry(owner).or_default();
        Some((known, self.epoch))
    }

    /// A link has found that it is over.
    pub fn hang_up(&mut self, epoch: u64) {
        if epoch == self.epoch {
            self.links -= 1;
        }
    }

    /// Whether a link of that time is one still.
    pub fn has_link(&self, owner: Owner, epoch: u64) -> bool {
        self.is_there && epoch == self.epoch && self.areas.contains_key(&owner)
    }

    /// Whether it takes a page.
    pub fn write(&mut self, owner: Owner, slot: u32, version: u64) -> bool {
        let Some(area) = self.areas.get_mut(&owner).filter(|_| !self.pressed) else { return false };
        let before = if area.contains_key(&slot) { UNIT } else { 0 };
        let takes = self.account.change(before, UNIT);
        if takes {
            area.insert(slot, version);
        }
        takes
    }

    /// What lies there.
    pub fn read(&self, owner: Owner, slot: u32) -> Option<u64> {
        self.areas.get(&owner)?.get(&slot).copied()
    }

    /// It is needed no more.
    pub fn forget(&mut self, owner: Owner, slot: u32) {
        let removed = self.areas.get_mut(&owner).and_then(|area| area.remove(&slot));
        self.account.give_back(removed.map_or(0, |_| UNIT));
    }

    /// What it said in its last heartbeat. To be asked before anything changes, too.
    pub fn says(&mut self, now: Ns) -> DonorFacts {
        let beat = now.0 / HEARTBEAT.as_nanos() as u64;
        if beat != self.said.1 {
            let (used_bytes, free_bytes) = self.account.room();
            self.said = (DonorFacts { free_bytes, used_bytes, pressed: self.pressed }, beat);
        }
        self.said.0
    }

    /// It is out of reach from now on, and has lost what it had if it `loses` it.
    pub fn leave(&mut self, loses: bool) {
        (self.is_there, self.epoch, self.links) = (false, self.epoch + 1, 0);
        if loses {
            self.areas.clear();
            self.account = Account::new(self.limit_bytes);
        }
    }

    /// It is in reach again.
    pub fn come(&mut self) {
        self.is_there = true;
    }

    /// It wants its memory back, or does not any more.
    pub fn press(&mut self, wants: bool) {
        self.pressed = wants;
    }

    /// Takes back what it was not given, the largest first, when it is time; whether it did. Whose it was finds that its link
    /// is over.
    pub fn take_back(&mut self, now: Instant) -> bool {
        let grace: Duration = Lending::of(0).grace;
        if !self.grace.is_over(self.pressed, now, grace) {
            return false;
        }
        let largest = self.areas.iter().max_by_key(|(owner, area)| (area.len(), **owner));
        let Some((owner, _)) = largest else { return false };
        let owner = *owner;
        let area = self.areas.remove(&owner).unwrap_or_default();
        self.account.give_back(area.len() as u64 * UNIT);
        !area.is_empty()
    }

    /// Whether it wants its memory back.
    pub fn is_pressed(&self) -> bool {
        self.pressed
    }

    /// Which part of what it lends is in use; `None` while it takes nothing.
    pub fn share(&self) -> Option<f64> {
        let (used, _) = self.account.room();
        (self.is_there && !self.pressed).then(|| used as f64 / self.limit_bytes as f64)
    }

    /// What it lends at most, bytes.
    pub fn lends(&self) -> u64 {
        self.limit_bytes
    }

    /// What is wrong, if anything is.
    pub fn is_unsound(&self) -> Option<String> {
        let (used, limit) = (self.account.room().0, self.limit_bytes);
        if used > limit {
            return Some(format!("a donor has lent {used} of {limit} bytes"));
        }
        None
    }

    /// The same, counted anew.
    pub fn is_miscounted(&self) -> Option<String> {
        let there: u64 = self.areas.values().map(|area| area.len() as u64 * UNIT).sum();
        let used = self.account.room().0;
        (there != used).then(|| format!("a donor has {there} bytes and counts {used}"))
    }
}
