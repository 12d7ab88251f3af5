//! What a forked child did not get.
//!
//! Its table and its mappings are copies of its parent's. But memory that the parent keeps out of its
//! children (MADV_DONTFORK) is not in the child, and no event says so: whatever the child maps there
//! later would read as its parent's bytes. So the kernel is asked what the child has.
//!
//! While no event is unread, all that is known of a program is registered: what is not is nobody's.
//! While one is, nothing can be told, and the kernel is asked again after it was applied.
//!
//! That may be a million questions, and who asks them holds the space's lock, in a fault thread. So they are
//! asked in pieces, by address: one each time that messages of the child are read, until all of it has
//! been looked at. Until then its faults are not answered: they come again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use clew_core::Vpn;
use clew_store::{Space, State};

use crate::programs::mappings::LAST_ADDRESS;
use crate::programs::process::Process;
use crate::programs::regions::{cut, remove};
use crate::programs::shared::Shared;

/// A range that is not there as a whole is asked for in so many parts: nearly always all of it is
/// missing then, and each page has to be asked for once.
const PARTS: u64 = 8;

/// Pages that are in the program need not be asked for one by one: one too many that is dropped is
/// found by the next scan.
const COARSE: u64 = 64;

/// Known pages that are looked at in one piece, and mappings: about a millisecond if none is there.
const PIECE: usize = 1024;

/// Looks at the next piece of a forked child that may lack something, if that can be told now. The
/// space's lock is held for writing, and all messages read are applied.
pub fn look_on(shared: &Shared, process: &Process) {
    if !process.may_lack() || process.memory.is_given_up() {
        return;
    }
    let start = process.looked_to.load(Ordering::Relaxed);
    let end = end_of_piece(&process.space.table, &process.regions.lock(), start, shared.page_bytes);
    if forget_what_is_missing(shared, process, start, end) {
        process.looked_to.store(end, Ordering::Relaxed);
        if !process.may_lack() {
            process.save_facts();
        }
    }
}

/// Looks at all that is left, if that can be told now; whether it has. Others come in between.
pub fn look_to_the_end(shared: &Shared, process: &Process) -> bool {
    while process.may_lack() {
        let before = process.looked_to.load(Ordering::Relaxed);
        let events_wait = process.space.table.lock.write();
        look_on(shared, process);
        events_wait.unlock_fair();
        if process.looked_to.load(Ordering::Relaxed) == before {
            return false;
        }
    }
    true
}

/// Where a piece that begins at `start` ends.
fn end_of_piece(table: &Space, regions: &BTreeMap<u64, u64>, start: u64, page: u64) -> u64 {
    let mut end = regions.range(start..).nth(PIECE).map_or(LAST_ADDRESS, |(start, _)| *start);
    let (first, mut seen) = (Vpn::of_addr(start, page), 0);
    let pages = Vpn::of_addr(end, page).0 - first.0;
    table.for_range_while(first, pages, |vpn, _| {
        if seen == PIECE {
            end = vpn.addr(page);
        }
        seen += 1;
        seen <= PIECE
    });
    end
}

/// Forgets pages and mappings of `process` in `[start, end)` that it does not have. False if that
/// cannot be told now. The space's lock is held for writing, and all messages read are applied.
pub fn forget_what_is_missing(shared: &Shared, process: &Process, start: u64, end: u64) -> bool {
    let (page, uffd) = (shared.page_bytes, &process.memory.uffd);
    let (mut whole, mut broken) = (Vec::new(), Vec::new());
    let regions: Vec<(u64, u64)> = {
        let regions = process.regions.lock();
        let touching = regions.range(..end).rev().take_while(|(_, e)| **e > start);
        touching.map(|(s, e)| (*s, *e)).collect()
    };
    for (start, end) in regions.iter().rev() {
        match uffd.covers(*start, end - start) {
            Some(true) => whole.push(start / page..end / page),
            Some(false) => broken.push((*start, *end)),
            None => return false,
        }
    }
    let mut runs: Vec<(Range<u64>, u64)> = Vec::new();
    let mut at = 0;
    let (first, last) = (Vpn::of_addr(start, page), Vpn::of_addr(end, page));
    process.space.table.for_range(first, last.0 - first.0, |Vpn(vpn), entry| {
        while whole.get(at).is_some_and(|whole| whole.end <= vpn) {
            at += 1;
        }
        if whole.get(at).is_some_and(|whole| whole.start <= vpn) {
            return;
        }
        let is_in = matches!(entry.state(), State::Resident | State::Lent);
        let least = if is_in { COARSE } else { 1 };
        match runs.last_mut() {
            Some((run, of)) if run.end == vpn && *of == least => run.end += 1,
            _ => runs.push((vpn..vpn + 1, least)),
        }
    });
    let has =
        |pages: &Range<u64>| uffd.covers(pages.start * page, (pages.end - pages.start) * page);
    let mut gone = Vec::new();
    if !runs.into_iter().all(|(run, least)| missing(run, least, &has, &mut gone)) {
        return false;
    }
    if gone.is_empty() && broken.is_empty() {
        return true;
    }
    if uffd.is_changing() {
        // What is missing may have been moved a moment ago.
        return false;
    }
    // The next scan finds what there is of them.
    broken.iter().for_each(|(start, end)| cut(&mut process.regions.lock(), *start, *end));
    gone.iter().for_each(|gone| remove(shared, process, gone.start * page, gone.end * page));
    true
}

/// The parts of `pages` that are missing, to pieces of `least` pages. False if the kernel does not say.
fn missing(
    pages: Range<u64>,
    least: u64,
    has: &impl Fn(&Range<u64>) -> Option<bool>,
    found: &mut Vec<Range<u64>>,
) -> bool {
    match has(&pages) {
        None => return false,
        Some(true) => return true,
        Some(false) => {}
    }
    let count = pages.end - pages.start;
    if count <= least {
        match found.last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => found.push(pages),
        }
        return true;
    }
    let part = count.div_ceil(PARTS).max(least);
    let mut parts = (pages.start..pages.end).step_by(part as usize);
    parts.all(|start| missing(start..(start + part).min(pages.end), least, has, found))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use clew_store::{Entry, Tables};

    use super::*;

    /// Looks for what is missing of `pages` where there are mappings `there`; how often it asked.
    fn look(pages: Range<u64>, least: u64, there: &[Range<u64>]) -> (Vec<Range<u64>>, u64) {
        let (asked, mut found) = (Cell::new(0), Vec::new());
        let has = |wanted: &Range<u64>| {
            asked.set(asked.get() + 1);
            Some(there.iter().any(|m| m.start <= wanted.start && wanted.end <= m.end))
        };
        assert!(missing(pages, least, &has, &mut found));
        (found, asked.get())
    }

    #[test]
    fn what_is_missing_is_found_to_the_page() {
        assert_eq!(look(100..1000, 1, &[Range { start: 0, end: 2000 }]), (vec![], 1));
        assert_eq!(look(100..1000, 1, &[0..200, 201..555, 555..999]).0, [200..201, 999..1000]);
        assert_eq!(look(7..8, 1, &[]), (vec![Range { start: 7, end: 8 }], 1));
        let (found, asked) = look(0..4096, 1, &[]);
        assert_eq!(found, [Range { start: 0, end: 4096 }]);
        assert!(asked <= 4096 * 8 / 7, "{asked} questions");
    }

    #[test]
    fn no_piece_has_more_pages_or_mappings_than_are_looked_at_at_once() {
        let tables = Arc::new(Tables::new(1 << 20).expect("tables"));
        let table = Space::numbered(&tables).expect("a space");
        let known: Vec<u64> = (0..10_000).map(|i| (1 << 20) + i * 3).collect();
        for vpn in &known {
            let put = table.compare_exchange(Vpn(*vpn), Entry::ABSENT, Entry::new(State::Resident));
            put.expect("it was absent");
        }
        let regions: BTreeMap<u64, u64> =
            (1..=5_000u64).map(|i| (i << 16, (i << 16) + 1)).collect();
        let (mut at, mut pieces, mut seen) = (0, 0, (0, 0));
        while at < LAST_ADDRESS {
            let end = end_of_piece(&table, &regions, at, 4096);
            assert!(end > at, "it goes on");
            let mut pages = 0;
            let range = (Vpn(at / 4096), end / 4096 - at / 4096);
            table.for_range(range.0, range.1, |_, _| pages += 1);
            let mappings = regions.range(at..end).count();
            assert!(pages <= PIECE && mappings <= PIECE, "{pages} pages, {mappings} mappings");
            seen = (seen.0 + pages, seen.1 + mappings);
            (at, pieces) = (end, pieces + 1);
        }
        assert_eq!((at, seen), (LAST_ADDRESS, (known.len(), regions.len())), "nothing is left out");
        assert!(pieces <= known.len() / PIECE + regions.len() / PIECE + 2, "{pieces} pieces");
    }

    #[test]
    fn what_may_be_dropped_is_asked_for_in_pieces() {
        let (found, asked) = look(0..4096, COARSE, &[Range { start: 0, end: 4000 }]);
        assert_eq!(found, [Range { start: 3968, end: 4096 }], "nothing that is missing stays");
        assert!(asked < 40, "{asked} questions");
    }

    #[test]
    fn while_it_cannot_be_told_nothing_is() {
        let (asked, mut found) = (Cell::new(0), Vec::new());
        let has = |_: &Range<u64>| {
            asked.set(asked.get() + 1);
            (asked.get() < 4).then_some(false)
        };
        assert!(!missing(0..64, 1, &has, &mut found));
        assert_eq!(asked.get(), 4);
    }
}
