//! Room for what comes along with a fault in a large block. Who keeps the budget says at each look how many pages fit;
//! what is put since then counts against it. Where none fits, a fault on a large block brings the page that was asked
//! for and nothing else: 31 more for each page come in quicker than anybody makes room for them, and under a hard limit
//! the kernel ended programs for it.
//!
//! What is near, and small blocks, come all the same: held back, too, they left so many more faults that returns took
//! longer, though less memory was used (docs/lab-notes/2026-11-29.md). So a budget may be exceeded by them still.
//!
//! A replay makes room after each record, and sets nothing here.

use std::sync::atomic::{AtomicI64, Ordering};

/// Pages of the largest block that comes whole whatever is free: 64 KiB.
const SMALL_PAGES: u16 = 16;

/// Pages that may still be put before the budget is looked at again; as many as come where nobody says.
#[derive(Debug)]
pub struct RoomAlong {
    pages: AtomicI64,
}

impl Default for RoomAlong {
    fn default() -> RoomAlong {
        RoomAlong { pages: AtomicI64::new(i64::MAX) }
    }
}

impl RoomAlong {
    /// So many pages fit now.
    pub fn is(&self, pages: u64) {
        self.pages.store(i64::try_from(pages).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Pages were put.
    pub(super) fn put(&self, pages: usize) {
        self.pages.fetch_sub(pages as i64, Ordering::Relaxed);
    }

    /// Whether the rest of a block of so many pages may come.
    pub(super) fn takes_block(&self, pages: u16) -> bool {
        pages <= SMALL_PAGES || self.pages.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_blocks_come_whole_until_what_was_put_fills_the_room() {
        let room = RoomAlong::default();
        assert!(room.takes_block(32), "nobody keeps a budget");
        room.is(40);
        room.put(1);
        assert!(room.takes_block(32));
        // One block too many, at most.
        room.put(39);
        assert!(!room.takes_block(17));
        assert!(room.takes_block(16));
        room.is(1);
        assert!(room.takes_block(17));
        room.is(u64::MAX);
        room.put(1 << 20);
        assert!(room.takes_block(17));
    }
}
