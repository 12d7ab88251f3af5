//! Room on the way to a log: who takes pages out waits for buffers that are being written, before he takes any, so that no
//! fault waits for the device. For so long at most, for a worker that waits brings nobody's pages back.

use std::time::{Duration, Instant};

use clew_store::flash::LogId;

use super::BlockStore;

/// How long an order waits, all its batches together.
const PATIENCE: Duration = Duration::from_millis(250);

/// What an order has waited so far.
#[derive(Debug, Default)]
pub(super) struct Waits {
    waited: Duration,
    /// There was none, however long it waited.
    is_over: bool,
}

impl Waits {
    /// Waits until so many pages have room in the buffers of a log; false if they have none. They are tried all the same,
    /// for what is smaller than a page may have some.
    pub fn for_room<S: BlockStore>(&mut self, store: &S, to: LogId, pages: usize) -> bool {
        if self.is_over {
            return false;
        }
        let begin = Instant::now();
        let has_room = store.wait_for_room(to, pages, PATIENCE.saturating_sub(self.waited));
        self.waited += begin.elapsed();
        self.is_over = !has_room;
        has_room
    }
}
