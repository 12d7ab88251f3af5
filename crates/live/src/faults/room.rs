//! First touches of fresh memory wait a moment where more than the budget is used, as a kernel reclaims where
//! a program asks for memory that is not there. Nobody else waits: a stored page that comes back takes a
//! page, and gives back what it took in the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::Vpn;
use clew_engine::Memory;

use crate::programs::process::Process;

/// How long: some pages are taken out meanwhile.
const WAIT: Duration = Duration::from_micros(200);

/// Faults that one fault thread has wait at once: whoever frees memory allocates none.
const MOST: usize = 64;

/// Faults of one fault thread that wait for room.
pub struct WaitForRoom {
    waiting: Vec<(Arc<Process>, Vpn)>,
    until: Option<Instant>,
}

impl Default for WaitForRoom {
    fn default() -> WaitForRoom {
        WaitForRoom { waiting: Vec::with_capacity(MOST), until: None }
    }
}

impl WaitForRoom {
    /// Whether a first touch of this program may be answered now. It may once the program has waited.
    pub fn lets_through(process: &Process) -> bool {
        let mut since = process.waits_for_room_since.lock();
        match *since {
            Some(then) if then.elapsed() >= WAIT => {
                *since = None;
                true
            }
            Some(_) => false,
            None => {
                *since = Some(Instant::now());
                false
            }
        }
    }

    /// A thread of the program waits for this page; false if too many wait already.
    pub fn add(&mut self, process: &Arc<Process>, page: Vpn) -> bool {
        if self.waiting.len() == MOST {
            return false;
        }
        self.until.get_or_insert_with(|| Instant::now() + WAIT);
        self.waiting.push((process.clone(), page));
        true
    }

    /// How long until somebody has waited long enough; `None` if nobody waits.
    pub fn remaining(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Those who have waited long enough ask again; how many.
    pub fn end_due(&mut self) -> usize {
        match self.remaining() {
            Some(Duration::ZERO) => self.end(),
            _ => 0,
        }
    }

    /// All ask again; how many.
    pub fn end(&mut self) -> usize {
        self.until = None;
        let over = self.waiting.len();
        for (process, page) in self.waiting.drain(..) {
            process.memory.wake(page, 1);
        }
        over
    }
}
