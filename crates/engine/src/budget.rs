//! The budget: when reclaim begins, how much it wants back, when that is urgent, and which kept
//! copies go first. The daemon and replay decide by the same code; neither measures here.

use std::collections::{HashSet, VecDeque};

use clew_core::{Demand, PageId};
use serde::{Deserialize, Serialize};

/// The watermarks where nobody says otherwise, low and high, per cent of the budget: the daemon's and
/// those of a replay.
pub const WATERMARKS: (f64, f64) = (2.0, 5.0);

/// Pages asked of the policies at once.
pub const RECLAIM_PAGES: usize = 1024;
/// The least a watermark is, and the least that lies between the two.
const LEAST_BYTES: u64 = 2 << 20;

/// Notes of kept copies among which nobody looks for superfluous ones.
const UNTIDY: usize = 1 << 14;

/// What apps, pool and bookkeeping may use together, and the watermarks below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// All of it.
    pub total_bytes: u64,
    /// Free bytes below which reclaim begins during a relaunch.
    pub low_bytes: u64,
    /// Free bytes that reclaim restores otherwise; it begins an eighth below.
    pub high_bytes: u64,
    /// Bytes a page.
    pub page_bytes: u64,
}

/// What is used now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Resident and parked pages, pool, bookkeeping.
    pub used_bytes: u64,
    /// Part of it that programs have resident.
    pub resident_bytes: u64,
    /// Part of it that is on its way out; a driver counts it by itself.
    pub leaving_bytes: u64,
    /// What an app in front must have back and has no room for, not part of what is used; a driver counts it by
    /// itself.
    #[serde(default)]
    pub owed_bytes: u64,
    /// An app is being relaunched: its faults need the CPUs, so only what must be is reclaimed.
    pub relaunching: bool,
    /// The machine stalls for want of memory, and that counts.
    pub stalled: bool,
}

/// What must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// So much.
    pub bytes: u64,
    /// Nobody is spared.
    pub urgent: bool,
}

impl Budget {
    /// A budget whose watermarks are these shares of it, in per cent.
    pub fn new(total_bytes: u64, low_pct: f64, high_pct: f64, page_bytes: u64) -> Budget {
        let share = |pct: f64| ((total_bytes as f64 * pct / 100.0) as u64).max(LEAST_BYTES);
        let low_bytes = share(low_pct);
        let high_bytes = share(high_pct).max(low_bytes + LEAST_BYTES);
        Budget { total_bytes, low_bytes, high_bytes, page_bytes }
    }

    /// Pages that may come back early: beyond them a relaunch would be disturbed by reclaim. What
    /// is on its way back already is part of what is used.
    pub fn early_pages(&self, now: Use) -> usize {
        let (low, _) = self.watermarks(now);
        (self.free_bytes(now.used_bytes).saturating_sub(low) / self.page_bytes) as usize
    }

    /// Bytes that nobody uses.
    pub fn free_bytes(&self, used_bytes: u64) -> u64 {
        self.total_bytes.saturating_sub(used_bytes)
    }

    /// The watermarks where so much is used. What is kept free is at most a quarter of what programs
    /// could have resident: where the stored pages leave them little, they need it themselves, or
    /// they wait for each page and lose it at once.
    fn watermarks(&self, now: Use) -> (u64, u64) {
        let others = now.used_bytes.saturating_sub(now.resident_bytes);
        let most = (self.free_bytes(others) / 4).max(LEAST_BYTES / 2);
        (self.low_bytes.min(most / 2), self.high_bytes.min(most))
    }

    /// What must leave now, if anything. Reclaim that has begun goes on until nothing is missing:
    /// as long as something is on its way out, the mark at which it begins does not count.
    pub fn shortage(&self, now: Use) -> Option<Shortage> {
        let free = self.free_bytes(now.used_bytes);
        let (low, high) = self.watermarks(now);
        let (begin, end) = match now.relaunching {
            true => (low, low * 2),
            false => (high - high / 8, high),
        };
        let free_then = free.saturating_sub(now.owed_bytes);
        if free_then >= begin && now.leaving_bytes == 0 && !now.stalled {
            return None;
        }
        let used_then = now.used_bytes + now.owed_bytes;
        let mut wanted = (used_then + end).saturating_sub(self.total_bytes);
        if now.stalled {
            wanted = wanted.max(RECLAIM_PAGES as u64 * self.page_bytes);
        }
        let bytes = wanted.saturating_sub(now.leaving_bytes);
        let urgent = free < low / 2 || now.stalled;
        (bytes > 0).then_some(Shortage { bytes, urgent })
    }

    /// What to ask of the policies for a shortage, of which `freed_bytes` were made up for
    /// otherwise; `None` if that is less than a page.
    pub fn demand(&self, shortage: Shortage, freed_bytes: u64) -> Option<Demand> {
        let pages = (shortage.bytes.saturating_sub(freed_bytes) / self.page_bytes) as usize;
        let demand = Demand { pages: pages.min(RECLAIM_PAGES), urgent: shortage.urgent };
        (pages > 0).then_some(demand)
    }
}

/// Resident pages that may have a kept copy, oldest first. Under pressure these copies go before
/// any page does.
///
/// A page is noted each time it comes back. What is noted of pages that have no copy any more, or
/// twice, goes in passing, or when it has become the most of it ([`KeptCopies::tidy`]).
#[derive(Debug, Default)]
pub struct KeptCopies {
    pages: VecDeque<PageId>,
    /// Notes that the last tidying left.
    tidied: usize,
}

impl KeptCopies {
    /// A page came back, and its copy may have been kept.
    pub fn push(&mut self, page: PageId) {
        self.pages.push_back(page);
    }

    /// Where there are twice as many notes as the last time left, keeps only the latest of each page
    /// that may have a copy. Takes memory for those for a moment.
    pub fn tidy(&mut self, mut may_have: impl FnMut(PageId) -> bool) {
        if self.pages.len() < UNTIDY.max(2 * self.tidied) {
            return;
        }
        let mut seen = HashSet::new();
        let stays = |page: &PageId| may_have(*page) && seen.insert(*page);
        let mut latest_first: Vec<PageId> = self.pages.drain(..).rev().filter(stays).collect();
        latest_first.reverse();
        self.tidied = latest_first.len();
        self.pages = latest_first.into();
    }

    /// Gives up copies until `wanted_bytes` are free. `give_up` answers what that freed, if the page
    /// had a copy: nothing, where other pages need its block. (What is free inside slabs serves the
    /// next pages as well as whole frames do.)
    pub fn give_up(
        &mut self,
        wanted_bytes: u64,
        mut give_up: impl FnMut(PageId) -> Option<u64>,
    ) -> Dropped {
        let mut dropped = Dropped::default();
        while dropped.bytes < wanted_bytes {
            let Some(page) = self.pages.pop_front() else { break };
            if let Some(bytes) = give_up(page) {
                dropped.copies += 1;
                dropped.bytes += bytes;
            }
        }
        dropped
    }
}

/// Kept copies that were given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// How many.
    pub copies: u64,
    /// What they took.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn budget() -> Budget {
        Budget::new(200 * MIB, 2.0, 8.0, 4096)
    }

    /// All of it by programs.
    fn used(bytes: u64) -> Use {
        Use { used_bytes: bytes, resident_bytes: bytes, ..Use::default() }
    }

    /// Room is made for what an app must have, and nobody is ended for it.
    #[test]
    fn what_is_owed_is_short_and_not_urgent() {
        let b = budget();
        let now = used(200 * MIB - 18 * MIB);
        assert_eq!(b.shortage(now), None);
        let owing = Use { owed_bytes: 20 * MIB, ..now };
        let short = Shortage { bytes: 18 * MIB, urgent: false };
        assert_eq!(b.shortage(owing), Some(short));
    }

    #[test]
    fn little_is_kept_free_where_programs_have_little() {
        let b = budget();
        // Stored pages take all but 24 MiB: a quarter of that.
        let tight = |free: u64| Use { resident_bytes: 24 * MIB - free, ..used(200 * MIB - free) };
        assert_eq!(b.shortage(tight(6 * MIB)), None);
        assert_eq!(b.shortage(tight(5 * MIB)).map(|s| s.bytes), Some(MIB));
        assert!(b.shortage(tight(MIB)).is_some_and(|s| s.urgent));
        let relaunching = Use { relaunching: true, ..tight(5 * MIB / 2) };
        assert_eq!(b.shortage(relaunching).map(|s| s.bytes), Some(7 * MIB / 2));
        // Nothing is left to them: still something is kept free, and what is too much leaves whatever
        // is on its way.
        let none = Use { resident_bytes: 0, leaving_bytes: MIB, ..used(201 * MIB) };
        assert_eq!(b.shortage(none), Some(Shortage { bytes: MIB, urgent: true }));
        // Where they have enough, the marks are what they were set to.
        let near = Budget::new(200 * MIB, 4.0, 5.0, 4096);
        let relaunching = |free: u64| Use { relaunching: true, ..used(200 * MIB - free) };
        assert_eq!(near.shortage(relaunching(8 * MIB)), None);
        assert!(near.shortage(relaunching(8 * MIB - 1)).is_some());
    }

    #[test]
    fn watermarks_are_shares_and_never_too_near() {
        let b = budget();
        assert_eq!((b.low_bytes, b.high_bytes), (4 * MIB, 16 * MIB));
        let small = Budget::new(16 * MIB, 2.0, 8.0, 4096);
        assert_eq!((small.low_bytes, small.high_bytes), (2 * MIB, 4 * MIB));
    }

    #[test]
    fn reclaim_begins_below_the_mark_and_restores_it() {
        let b = budget();
        let used = |free: u64| used(200 * MIB - free);
        assert_eq!(b.shortage(used(14 * MIB)), None);
        let began = b.shortage(used(14 * MIB - 1)).expect("below seven eighths of the mark");
        assert_eq!(began, Shortage { bytes: 2 * MIB + 1, urgent: false });
        // Begun, it goes on above the mark, less what is leaving.
        let on = Use { leaving_bytes: MIB, ..used(14 * MIB) };
        assert_eq!(b.shortage(on), Some(Shortage { bytes: MIB, urgent: false }));
        let done = Use { leaving_bytes: 2 * MIB, ..used(14 * MIB) };
        assert_eq!(b.shortage(done), None);
        assert!(b.shortage(used(2 * MIB - 1)).is_some_and(|s| s.urgent));
        assert!(b.shortage(used(2 * MIB)).is_some_and(|s| !s.urgent));
    }

    #[test]
    fn a_relaunch_is_disturbed_for_little_only() {
        let b = budget();
        let now = |free: u64| Use { relaunching: true, ..used(200 * MIB - free) };
        assert_eq!(b.shortage(now(4 * MIB)), None);
        assert_eq!(b.shortage(now(3 * MIB)), Some(Shortage { bytes: 5 * MIB, urgent: false }));
    }

    #[test]
    fn a_stall_wants_a_round_at_once() {
        let stalled = Use { stalled: true, ..Use::default() };
        let shortage = budget().shortage(stalled).expect("a stall");
        assert_eq!(shortage, Shortage { bytes: 4 * MIB, urgent: true });
    }

    #[test]
    fn demands_are_whole_pages_of_one_round() {
        let b = budget();
        let shortage = Shortage { bytes: 100 * MIB, urgent: true };
        let demand = b.demand(shortage, 0).expect("much is missing");
        assert_eq!((demand.pages, demand.urgent), (RECLAIM_PAGES, true));
        assert_eq!(b.demand(shortage, 100 * MIB - 8192).map(|d| d.pages), Some(2));
        assert_eq!(b.demand(shortage, 100 * MIB - 4095), None);
    }

    #[test]
    fn oldest_copies_go_first_and_those_that_are_gone_do_not_count() {
        use clew_core::{SpaceId, Vpn};
        let mut kept = KeptCopies::default();
        let page = |vpn| PageId::new(SpaceId(1), Vpn(vpn));
        (0..6).for_each(|vpn| kept.push(page(vpn)));
        let mut asked = Vec::new();
        let dropped = kept.give_up(2048, |page| {
            asked.push(page.vpn().0);
            // The second has none, the block of the third is needed.
            [Some(1024), None, Some(0), Some(1024)][page.vpn().0 as usize]
        });
        assert_eq!((dropped, asked), (Dropped { copies: 3, bytes: 2048 }, vec![0, 1, 2, 3]));
        assert_eq!(kept.give_up(u64::MAX, |_| Some(1)), Dropped { copies: 2, bytes: 2 });
    }

    #[test]
    fn notes_of_copies_do_not_pile_up() {
        use clew_core::{SpaceId, Vpn};
        let mut kept = KeptCopies::default();
        let page = |vpn| PageId::new(SpaceId(1), Vpn(vpn));
        for round in 0..100 {
            for vpn in (0..1000).rev() {
                kept.push(page(vpn));
                // Odd pages go out again and are written: no copy.
                kept.tidy(|page| page.vpn().0.is_multiple_of(2));
            }
            assert!(kept.pages.len() <= UNTIDY, "round {round}: {}", kept.pages.len());
        }
        kept.push(page(500));
        let mut asked = Vec::new();
        kept.tidied = 0;
        (0..UNTIDY).for_each(|_| kept.push(page(1)));
        kept.tidy(|page| page.vpn().0.is_multiple_of(2));
        kept.give_up(u64::MAX, |page| {
            asked.push(page.vpn().0);
            Some(1)
        });
        let others = (0..1000u64).rev().filter(|vpn| vpn.is_multiple_of(2) && *vpn != 500);
        assert_eq!(asked, others.chain([500]).collect::<Vec<u64>>(), "each once, the latest last");
    }

    #[test]
    fn early_pages_leave_the_mark_of_a_relaunch_free() {
        let b = budget();
        assert_eq!(b.early_pages(used(200 * MIB - 5 * MIB)), 256);
        assert_eq!(b.early_pages(used(200 * MIB - 4 * MIB)), 0);
        assert_eq!(b.early_pages(used(300 * MIB)), 0);
        // Stored pages leave programs 8 MiB.
        let tight = Use { resident_bytes: 5 * MIB, ..used(197 * MIB) };
        assert_eq!(b.early_pages(tight), 512);
    }
}
