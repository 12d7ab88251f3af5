//! What of a range that a program is said to have unmapped is there still: the kernel tells of an unmapping before it finds
//! that there can be none. What is out of its program has a mark there, and the mark goes with the mapping.

use std::ops::Range;

use clew_core::Vpn;
use clew_store::State;

use crate::programs::process::Process;
use crate::programs::regions::is_known;

/// Pages out of a program that are so far apart, bytes, are looked at by two calls.
const APART: u64 = 2 << 20;

/// Where in `range` pages are out of their program, ascending. A program's mappings may be far larger, and hold marks of
/// its own making.
pub fn out_in(process: &Process, range: Range<u64>, page_bytes: u64) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let (first, pages) =
        (Vpn::of_addr(range.start, page_bytes), (range.end - range.start) / page_bytes);
    process.space.table.for_range(first, pages, |vpn, entry| {
        let at = vpn.addr(page_bytes);
        match found.last_mut() {
            _ if matches!(entry.state(), State::Resident | State::Lent) => {}
            Some(last) if at - last.end < APART => last.end = at + page_bytes,
            _ => found.push(at..at + page_bytes),
        }
    });
    found
}

/// The parts of `ranges` that have marks, and in which the table has pages.
pub fn marked(process: &Process, ranges: &[Range<u64>], page_bytes: u64) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    for range in ranges {
        let looked_at = process.memory.for_marked(range.clone(), |marked| {
            if is_known(process, marked.start, marked.end, page_bytes) {
                found.push(marked);
            }
        });
        if let Err(error) = looked_at
            && !process.memory.has_ended()
        {
            process.give_up(&format!("what it has unmapped cannot be looked at: {error}"));
        }
    }
    found
}
