//! What may come along with a fault: the ways that are held against each other.

use std::sync::Arc;

use clew_core::{Prefetch, Whole};
use clew_policy::prefetch::{asap, associated, by_trigger, cluster, none, runs, successors};
use clew_policy::reclaim::ft_list;
use clew_policy::schemes::Choice;

/// 64 KiB.
const BLOCK_PAGES: u32 = 16;
/// Pages of a run, at most.
const MOST: u32 = 32;

/// A way.
pub(super) struct Way {
    pub name: &'static str,
    pub about: &'static str,
    pub prefetch: Choice<dyn Prefetch>,
}

/// All of them; the first one is what the others are measured by.
pub(super) fn all() -> Vec<Way> {
    let way = |name, about, prefetch: Choice<dyn Prefetch>| Way { name, about, prefetch };
    let running = |name, about, max_pages, around_pages| {
        let (max_pages, around_pages) = (Whole::of(max_pages), Whole::of(around_pages));
        let runs = runs::Params { max_pages, around_pages, ..runs::Params::default() };
        way(name, about, Arc::new(runs))
    };
    let successors = |pages, around_pages| {
        let (pages, around_pages) = (Whole::of(pages), Whole::of(around_pages));
        Arc::new(successors::Params { pages, around_pages, ..successors::Params::default() })
    };
    let groups = |mining| Arc::new(associated::Params { mining, ..associated::Params::default() });
    let letter = ft_list::Params::default();
    let any = ft_list::Params { support_pct: Whole::of(0), ..letter };
    let large = ft_list::Params {
        queue: Whole::of(1 << 16),
        transactions: Whole::of(1 << 14),
        tree_nodes: Whole::of(1 << 20),
        ..any
    };
    let last_returns = asap::Params { used_in: Whole::of(2), ..asap::Params::default() };
    let block = cluster::Params { pages: Whole::of(BLOCK_PAGES) };
    vec![
        way("nothing", "every page is a fault, as with zram", Arc::new(none::Plain {})),
        running("runs", "as many pages behind as faults ran on before", MOST, 0),
        way("64K", "the aligned 64 KiB around it", Arc::new(block)),
        running("64K-if-it-pays", "the same where probes say that it pays", 1, BLOCK_PAGES),
        running(
            "runs+64K",
            "runs, and the 64 KiB where that pays, as clew does",
            MOST,
            BLOCK_PAGES,
        ),
        way("successors-16", "the 16 that followed it last time", successors(16, 0)),
        way("successors-64", "the 64 that followed it last time", successors(64, 0)),
        way("successors-64+64K", "these, and the 64 KiB", successors(64, BLOCK_PAGES)),
        way("groups", "Archer's groups, support 20 %", groups(letter)),
        way("groups-any", "Archer's groups, any support", groups(any)),
        way("groups-large", "any support, queue, ring and trees for all uses", groups(large)),
        way(
            "returns+64K",
            "at a return what 2 of the last 4 used, and the 64 KiB",
            Arc::new(by_trigger::Params {
                relaunch: Arc::new(last_returns),
                fault: Arc::new(block),
            }),
        ),
    ]
}
