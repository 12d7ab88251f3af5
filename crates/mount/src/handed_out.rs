//! What the kernel may have in its page cache: which pages were handed to it and not taken back, the
//! oldest first.
//!
//! It is not told what the kernel drops by itself. That shows when a page is asked for that it should have,
//! and is counted then.

use std::collections::VecDeque;
use std::ops::Range;

use hashbrown::HashMap;
use rangemap::RangeSet;

/// Entries of the queue that may be out of date before it is gone through, beside as many as there are pages.
const SPARE: usize = 1024;

/// Pages that are to be taken back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// The inode, as the kernel knows it.
    pub node: u64,
    /// Pages of it.
    pub pages: Range<u64>,
}

/// The ledger.
#[derive(Debug, Default)]
pub struct HandedOut {
    nodes: HashMap<u64, RangeSet<u64>>,
    queue: VecDeque<Run>,
    pages: u64,
}

impl HandedOut {
    /// Writes down pages that the kernel gets. Returns how many of them it had been given before: those
    /// it has dropped by itself. They keep their turn.
    pub fn give(&mut self, node: u64, pages: Range<u64>) -> u64 {
        if pages.is_empty() {
            return 0;
        }
        let had = self.nodes.entry(node).or_default();
        let fresh: Vec<Range<u64>> = had.gaps(&pages).collect();
        for pages in &fresh {
            had.insert(pages.clone());
            self.pages += pages.end - pages.start;
            self.queue.push_back(Run { node, pages: pages.clone() });
        }
        let new: u64 = fresh.iter().map(|pages| pages.end - pages.start).sum();
        self.prune();
        pages.end - pages.start - new
    }

    /// The kernel has dropped all of an inode.
    pub fn forget(&mut self, node: u64) {
        let Some(had) = self.nodes.remove(&node) else { return };
        self.pages -= had.iter().map(|pages| pages.end - pages.start).sum::<u64>();
        self.prune();
    }

    /// Takes back what was given longest ago, until at most `limit` pages are out or `max` runs are taken.
    pub fn take_back(&mut self, limit: u64, max: usize) -> Vec<Run> {
        let mut taken: Vec<Run> = Vec::new();
        while self.pages > limit && taken.len() < max {
            let Some(run) = self.queue.pop_front() else { break };
            let Some(had) = self.nodes.get_mut(&run.node) else { continue };
            let there: Vec<Range<u64>> = had
                .overlapping(&run.pages)
                .map(|pages| pages.start.max(run.pages.start)..pages.end.min(run.pages.end))
                .collect();
            for pages in there {
                had.remove(pages.clone());
                self.pages -= pages.end - pages.start;
                match taken.last_mut() {
                    // One word to the kernel where one is enough.
                    Some(last) if last.node == run.node && last.pages.end == pages.start => {
                        last.pages.end = pages.end;
                    }
                    _ => taken.push(Run { node: run.node, pages }),
                }
            }
            if had.is_empty() {
                self.nodes.remove(&run.node);
            }
        }
        taken
    }

    /// Pages that are out.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Entries of inodes that are gone do not gather, whatever the tree's users do.
    fn prune(&mut self) {
        if self.queue.len() > 2 * self.pages as usize + SPARE {
            let nodes = &self.nodes;
            let is_out =
                |run: &Run| nodes.get(&run.node).is_some_and(|had| had.overlaps(&run.pages));
            self.queue.retain(is_out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_first_goes_first_and_neighbours_go_together() {
        let mut out = HandedOut::default();
        assert_eq!(out.give(5, 0..4), 0);
        assert_eq!(out.give(5, 4..6), 0);
        assert_eq!(out.give(6, 0..2), 0);
        assert_eq!(out.give(5, 2..8), 4, "four it had");
        assert_eq!(out.pages(), 10);
        assert_eq!(out.take_back(4, 9), [Run { node: 5, pages: 0..6 }]);
        assert_eq!(out.take_back(0, 1), [Run { node: 6, pages: 0..2 }]);
        assert_eq!(out.take_back(0, 9), [Run { node: 5, pages: 6..8 }]);
        assert_eq!((out.pages(), out.take_back(0, 9)), (0, vec![]));
    }

    #[test]
    fn files_that_come_and_go_leave_nothing() {
        let mut out = HandedOut::default();
        out.give(1, 0..10);
        for node in 2..100_000 {
            out.give(node, 0..3);
            out.forget(node);
        }
        assert!(out.queue.len() < 3000, "{} entries", out.queue.len());
        assert_eq!((out.pages(), out.nodes.len()), (10, 1));
        // Again and again the same, which the kernel drops by itself.
        for _ in 0..100_000 {
            assert_eq!(out.give(1, 0..10), 10);
        }
        assert!(out.queue.len() < 3000, "{} entries", out.queue.len());
        assert_eq!(out.take_back(0, 9), [Run { node: 1, pages: 0..10 }]);
    }
}
