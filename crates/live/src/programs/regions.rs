//! What is known of a program's memory goes: pages that hold nothing any more, mappings that are not
//! registered any more.

use std::collections::BTreeMap;

use clew_core::{Event, Vpn};

use crate::programs::process::Process;
use crate::programs::shared::Shared;

/// The pages of `[start, end)` hold nothing any more. The space's lock is held for writing.
pub fn remove(shared: &Shared, process: &Process, start: u64, end: u64) {
    if start == end || process.memory.staging().contains(&start) {
        return; // nothing, or our own agent
    }
    let (first, pages) =
        (Vpn::of_addr(start, shared.page_bytes), (end - start) / shared.page_bytes);
    shared.mover.forget(&process.space, first, pages);
    process.runs(first, pages).for_each(|run| shared.post(Event::Freed { run }));
}

/// Whether the table has any page of `[start, end)`.
pub fn is_known(process: &Process, start: u64, end: u64, page_bytes: u64) -> bool {
    let mut found = false;
    let (first, pages) = (Vpn::of_addr(start, page_bytes), (end - start) / page_bytes);
    process.space.table.for_range_while(first, pages, |_, _| {
        found = true;
        false
    });
    found
}

/// The parts of `[start, end)` that are in the set of regions, ascending.
pub fn parts_in(regions: &BTreeMap<u64, u64>, start: u64, end: u64) -> Vec<(u64, u64)> {
    let first = regions.range(..=start).next_back().map_or(start, |(s, _)| *s);
    let part = |(s, e): (&u64, &u64)| ((*s).max(start), (*e).min(end));
    regions.range(first..end).map(part).filter(|(s, e)| s < e).collect()
}

/// Takes `[start, end)` out of the set of regions.
pub fn cut(regions: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    let hit: Vec<(u64, u64)> = regions
        .range(..end)
        .rev()
        .take_while(|(_, e)| **e > start)
        .map(|(s, e)| (*s, *e))
        .collect();
    for (s, e) in hit {
        regions.remove(&s);
        if s < start {
            regions.insert(s, start);
        }
        if e > end {
            regions.insert(end, e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_regions() {
        let regions: BTreeMap<u64, u64> = [(10, 20), (20, 25), (30, 40), (50, 60)].into();
        assert_eq!(parts_in(&regions, 0, 100), [(10, 20), (20, 25), (30, 40), (50, 60)]);
        assert_eq!(parts_in(&regions, 12, 52), [(12, 20), (20, 25), (30, 40), (50, 52)]);
        assert_eq!(parts_in(&regions, 25, 30), []);
        assert_eq!(parts_in(&regions, 31, 39), [(31, 39)]);
        assert_eq!(parts_in(&regions, 60, 70), []);
        assert_eq!(parts_in(&BTreeMap::new(), 0, 70), []);
    }

    #[test]
    fn regions_are_cut() {
        let mut regions: BTreeMap<u64, u64> = [(10, 20), (30, 40), (50, 60)].into();
        cut(&mut regions, 15, 35);
        assert_eq!(regions, [(10, 15), (35, 40), (50, 60)].into());
        cut(&mut regions, 52, 55);
        assert_eq!(regions, [(10, 15), (35, 40), (50, 52), (55, 60)].into());
        cut(&mut regions, 0, 100);
        assert!(regions.is_empty());
    }
}
