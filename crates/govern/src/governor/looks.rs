//! Looking where the pages of a program are (PAGEMAP_SCAN), and what has become of them since the last look.
//!
//! Looks find memory that is new or gone, what the kernel took by itself, and what came back without a major fault:
//! because a record was lost, or because the kernel had it in memory still, read ahead or not dropped yet. These are
//! the blind spots of the stream of major faults, and are counted as such.

use std::ops::Range;
use std::time::{Duration, Instant};

use clew_core::{AccessKind, Event, PageId, PageRun, SpaceId, Tier, Vpn};
use clew_engine::driver::Driver;
use clew_live::programs::pagemap::PageIs;

use crate::governor::Governor;
use crate::pages::{Pages, Where};
use crate::program::{Program, REMEASURED};

/// Pages that are looked at before policies hear of them.
const WINDOW: u64 = 1 << 14;
/// Resident memory by which a program changes before it is looked at anew, and after how long it is in any case
/// if it has changed at all.
const CHANGED_BYTES: u64 = 1 << 20;
const LATEST: Duration = Duration::from_secs(1);
/// Looks take one part in so many of the time at most, each program's.
const SHARE: u32 = 200;
const AT_ONCE: Duration = Duration::from_millis(20);

/// What a look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Pages that the kernel took by itself.
    pub kernel_out: u64,
    /// Pages that are back, and nobody has heard a fault.
    pub unheard: u64,
    /// Pages brought early that their program has touched.
    pub used: u64,
}

/// Looks at `range` of a program; `stored_bytes` is what a page takes in swap. Pages are changed first, then
/// `events` gets what policies are to hear.
fn look_at(
    program: &Program,
    range: &Range<Vpn>,
    (page_bytes, stored_bytes): (u64, u32),
    pages: &mut Pages,
    events: &mut Vec<Event>,
) -> std::io::Result<Found> {
    let mut found = Found::default();
    let mut seen: Vec<(Range<Vpn>, PageIs)> = Vec::new();
    let mut end = range.start;
    let addresses = (range.start.addr(page_bytes), range.end.addr(page_bytes));
    program.kept_pages(addresses, page_bytes, |first, count, is| {
        seen.push((end..first, PageIs::Nothing));
        end = Vpn(first.0 + count);
        seen.push((first..end, is));
    })?;
    seen.push((end..range.end, PageIs::Nothing));
    for (run, now) in seen {
        for (vpn, before) in pages.not_as(program.space, run, now) {
            let page = PageId::new(program.space, vpn);
            become_known(page, before, now, stored_bytes, pages, events, &mut found);
        }
    }
    Ok(found)
}

/// A page that was thought to be `before` is `now`.
fn become_known(
    page: PageId,
    before: Where,
    now: PageIs,
    bytes: u32,
    pages: &mut Pages,
    events: &mut Vec<Event>,
    found: &mut Found,
) {
    let stored = Event::Stored { page, tier: Tier::Pool, bytes };
    match (before, now) {
        (Where::Nowhere, PageIs::Nothing)
        | (Where::Resident | Where::Leaving, PageIs::Present)
        // Until it is settled whether it is used.
        | (Where::Brought, PageIs::Swapped)
        | (Where::Out, PageIs::Swapped) => {}
        (Where::Nowhere, PageIs::Present) => {
            pages.set(page, Where::Resident);
            joined(events, page);
        }
        (Where::Nowhere, PageIs::Swapped) => {
            pages.set(page, Where::Out);
            events.extend([Event::Resident { run: PageRun { first: page, count: 1 } }, stored]);
        }
        (Where::Resident | Where::Leaving, PageIs::Swapped) => {
            pages.set(page, Where::Out);
            events.push(stored);
            found.kernel_out += 1;
        }
        (Where::Out, PageIs::Present) => {
            pages.set(page, Where::Resident);
            events.push(Event::Access { page, kind: AccessKind::Fault, write: false });
            events.push(Event::PageIn { page, tier: Tier::Pool, demand: true });
            found.unheard += 1;
        }
        (Where::Brought, PageIs::Present) => {
            pages.set(page, Where::Resident);
            events.push(Event::Access { page, kind: AccessKind::Seen, write: false });
            events.push(Event::PrefetchUsed { page });
            found.used += 1;
        }
        (_, PageIs::Nothing) => {
            pages.set(page, Where::Nowhere);
            gone(events, page);
        }
    }
}

/// Tells of a resident page, with its neighbours.
fn joined(events: &mut Vec<Event>, page: PageId) {
    match events.last_mut() {
        Some(Event::Resident { run }) if run.first.plus(u64::from(run.count)) == page => {
            run.count += 1;
        }
        _ => events.push(Event::Resident { run: PageRun { first: page, count: 1 } }),
    }
}

fn gone(events: &mut Vec<Event>, page: PageId) {
    match events.last_mut() {
        Some(Event::Freed { run }) if run.first.plus(u64::from(run.count)) == page => {
            run.count += 1;
        }
        _ => events.push(Event::Freed { run: PageRun { first: page, count: 1 } }),
    }
}

impl Governor {
    /// Looks at the programs that have changed, as far as there is time.
    pub(super) fn look_at_changed(&mut self) {
        let (page_bytes, at, ago) = (self.page_bytes, Instant::now(), self.measured_ago());
        let near = self.driver.budget().free_bytes(self.used.total())
            < self.driver.budget().high_bytes * 4;
        let due: Vec<SpaceId> = self
            .programs
            .values_mut()
            .filter_map(|program| {
                let now = program.resident_bytes(page_bytes, at, ago);
                let Some((when, took, then)) = program.looked else { return Some(program.space) };
                let since = when.elapsed();
                // Where memory is short, more often: what is not known of cannot leave.
                let rest = if near { SHARE / 10 } else { SHARE };
                let may = since >= AT_ONCE.max(took * rest);
                let changed = now.abs_diff(then);
                let must = changed >= CHANGED_BYTES || changed > 0 && since >= LATEST;
                (may && must).then_some(program.space)
            })
            .collect();
        due.into_iter().for_each(|space| self.look(space));
    }

    /// Looks at all of a program's memory.
    pub(super) fn look(&mut self, space: SpaceId) {
        // What was heard is not unheard.
        self.hear();
        let began = Instant::now();
        let (page_bytes, now) = (self.page_bytes, self.now);
        let sizes = (page_bytes, self.stored_page_bytes());
        let Some(program) = self.programs.get_mut(&space) else { return };
        let Ok(mappings) = program.mappings() else { return };
        let resident = program.resident_bytes(page_bytes, began, REMEASURED);
        let mut events = Vec::new();
        let mut end = Vpn(0);
        let tell = |events: &mut Vec<Event>, pages: &Pages, driver: &mut Driver| {
            events.drain(..).for_each(|event| driver.tell(now, &event, pages));
        };
        for mapping in mappings {
            let start = Vpn::of_addr(mapping.start, page_bytes);
            for (vpn, _) in self.pages.known(space, end..start) {
                let page = PageId::new(space, vpn);
                self.pages.set(page, Where::Nowhere);
                gone(&mut events, page);
            }
            end = Vpn::of_addr(mapping.end, page_bytes);
            let (mut at, mut wish) = (start, WINDOW);
            while at < end {
                let window = at..Vpn((at.0 + wish).min(end.0));
                at = window.end;
                match look_at(program, &window, sizes, &mut self.pages, &mut events) {
                    Ok(found) => self.counts.add(found),
                    // Its memory is gone: who finds that out tells of it.
                    Err(_) => return tell(&mut events, &self.pages, &mut self.driver),
                }
                // Where nothing is new, farther is looked at once: 128 TiB of nothing would be two million windows.
                wish = if events.is_empty() { wish.saturating_mul(2) } else { WINDOW };
                tell(&mut events, &self.pages, &mut self.driver);
            }
        }
        for (vpn, _) in self.pages.known(space, end..Vpn(u64::MAX)) {
            let page = PageId::new(space, vpn);
            self.pages.set(page, Where::Nowhere);
            gone(&mut events, page);
        }
        tell(&mut events, &self.pages, &mut self.driver);
        self.pages.tidy(space);
        program.looked = Some((Instant::now(), began.elapsed(), resident));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: SpaceId = SpaceId(1);

    /// What becomes of a page, and what is told of it.
    fn after(before: Where, now: PageIs) -> (Where, Vec<String>, Found) {
        let mut pages = Pages::default();
        pages.begin(SPACE);
        let page = PageId::new(SPACE, Vpn(7));
        pages.set(page, before);
        let (mut events, mut found) = (Vec::new(), Found::default());
        become_known(page, before, now, 100, &mut pages, &mut events, &mut found);
        let word = |event: &Event| format!("{event:?}").split([' ', '{']).next().map(String::from);
        (pages.get(page), events.iter().filter_map(word).collect(), found)
    }

    #[test]
    fn whatever_has_become_of_a_page_is_told_once() {
        for (before, now, wanted, told) in [
            (Where::Nowhere, PageIs::Present, Where::Resident, &["Resident"][..]),
            (Where::Nowhere, PageIs::Swapped, Where::Out, &["Resident", "Stored"]),
            (Where::Resident, PageIs::Present, Where::Resident, &[]),
            (Where::Resident, PageIs::Swapped, Where::Out, &["Stored"]),
            (Where::Out, PageIs::Swapped, Where::Out, &[]),
            (Where::Out, PageIs::Present, Where::Resident, &["Access", "PageIn"]),
            (Where::Brought, PageIs::Swapped, Where::Brought, &[]),
            (Where::Brought, PageIs::Present, Where::Resident, &["Access", "PrefetchUsed"]),
            (Where::Out, PageIs::Nothing, Where::Nowhere, &["Freed"]),
            (Where::Brought, PageIs::Nothing, Where::Nowhere, &["Freed"]),
        ] {
            let (is, events, _) = after(before, now);
            assert_eq!((is, events), (wanted, told.iter().map(|t| t.to_string()).collect()));
        }
        assert_eq!(after(Where::Out, PageIs::Present).2, Found { unheard: 1, ..Found::default() });
        let found = Found { kernel_out: 1, ..Found::default() };
        assert_eq!(after(Where::Resident, PageIs::Swapped).2, found);
    }

    #[test]
    fn neighbours_are_told_of_together() {
        let mut events = Vec::new();
        for vpn in [3, 4, 5, 9] {
            joined(&mut events, PageId::new(SPACE, Vpn(vpn)));
        }
        let run = |event: &Event| match event {
            Event::Resident { run } => (run.first.vpn().0, run.count),
            other => panic!("{other:?}"),
        };
        assert_eq!(events.iter().map(run).collect::<Vec<_>>(), [(3, 3), (9, 1)]);
    }
}
