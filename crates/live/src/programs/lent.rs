//! Pages that the kernel's swap has, and that come back from it by themselves.

use std::ops::Range;
use std::sync::atomic::Ordering;

use clew_core::{Event, Vpn};
use clew_store::State;

use super::pagemap;
use super::process::Process;
use super::shared::Shared;

/// Pages between two lent ones that are asked about with them.
const NEAR_PAGES: u64 = 512;

/// Finds what came back from the kernel's swap by itself.
pub fn look_at_lent(shared: &Shared, process: &Process, events: &mut Vec<Event>) {
    let Some(pagemap) = process.memory.pagemap() else { return };
    if process.space.table.counts().lent == 0 {
        return;
    }
    // Ranges with lent pages, as far apart as is cheaper than to ask twice.
    let mut ranges: Vec<Range<u64>> = Vec::new();
    process.space.table.for_range(Vpn(0), u64::MAX >> 20, |Vpn(vpn), entry| {
        match ranges.last_mut() {
            _ if entry.state() != State::Lent => {}
            Some(range) if vpn - range.end < NEAR_PAGES => range.end = vpn + 1,
            _ => ranges.push(vpn..vpn + 1),
        }
    });
    let page = shared.page_bytes;
    for range in ranges {
        let (start, end) = (range.start * page, range.end * page);
        let looked = pagemap::present_pages(pagemap, start, end, page, |present| {
            let (first, pages) = (present.first, present.pages);
            let back = shared.mover.came_back(&process.space, first, pages, events);
            process.lent_back.fetch_add(back as u64, Ordering::Relaxed);
        });
        if let Err(error) = looked {
            tracing::debug!(pid = process.pid(), %error, "cannot look for pages that came back");
            return;
        }
    }
}
