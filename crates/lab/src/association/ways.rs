//! What may come along with a fault: the ways that are held against each other.

use std::sync::Arc;

use clew_core::{Prefetch, Whole};
use clew_policy::prefetch::{associated, cluster, none, runs, successors};
use clew_policy::reclaim::ft_list;
use clew_policy::schemes::Choice;

/// 64 KiB.
const BLOCK_PAGES: u32 = 16;

/// A way.
pub(super) struct Way {
    pub name: &'static str,
    pub about: &'static str,
    pub prefetch: Choice<dyn Prefetch>,
    /// What it holds for each space, if it does not count that itself.
    pub of_space_bytes: usize,
}

/// All of them; the first one is what the others are measured by.
pub(super) fn all() -> Vec<Way> {
    let way = |name, about, prefetch: Choice<dyn Prefetch>| {
        let of_space_bytes = 0;
        Way { name, about, prefetch, of_space_bytes }
    };
    let runs = |around_pages| runs::Params {
        around_pages: Whole::of(around_pages),
        ..runs::Params::default()
    };
    let running = |name, about, around_pages| Way {
        of_space_bytes: runs::Runs::MOST_BYTES,
        ..way(name, about, Arc::new(runs(around_pages)))
    };
    let successors = |pages, around_pages| {
        let (pages, around_pages) = (Whole::of(pages), Whole::of(around_pages));
        Arc::new(successors::Params { pages, around_pages, ..successors::Params::default() })
    };
    let groups = |support_pct| {
        let mining = ft_list::Params { support_pct, ..ft_list::Params::default() };
        Arc::new(associated::Params { mining, ..associated::Params::default() })
    };
    let block = cluster::Params { pages: Whole::of(BLOCK_PAGES) };
    vec![
        way("nothing", "every page is a fault, as with zram", Arc::new(none::Plain {})),
        running("runs", "as many pages behind as faults ran on before", 0),
        way("64K", "the aligned 64 KiB around it", Arc::new(block)),
        running("runs+64K", "runs, and the 64 KiB where that pays, as clew does", BLOCK_PAGES),
        way("successors-16", "the 16 that followed it last time", successors(16, 0)),
        way("successors-64", "the 64 that followed it last time", successors(64, 0)),
        way("successors-64+64K", "these, and the 64 KiB", successors(64, BLOCK_PAGES)),
        way("groups", "Archer's groups, support 20 %", groups(Whole::default())),
        way("groups-any", "Archer's groups, any support", groups(Whole::of(0))),
    ]
}
