//! Faults that wait a moment and are asked for again. First touches of fresh memory do where more than the
//! budget is used, as a kernel reclaims where a program asks for memory that is not there; whoever's memory
//! control group has no room for a page; and programs of a user of a service who uses more than the own budget while
//! memory is all but gone ([`crate::users::OfUser::holds_others_up`]). Nobody else waits: a stored page that comes back takes a page, and gives
//! back what it took in the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::Vpn;
use clew_engine::Memory;

use crate::programs::process::Process;

/// How long for the budget: some pages are taken out meanwhile.
pub const FOR_BUDGET: Duration = Duration::from_micros(200);

/// How long for a control group: each time the kernel looks for something to take from it.
pub const FOR_GROUP: Duration = Duration::from_millis(10);

/// Faults that one fault thread has wait at once: whoever frees memory allocates none.
const MOST: usize = 1024;

/// Faults of one fault thread that wait for room.
pub struct WaitForRoom {
    waiting: Vec<(Arc<Process>, Vpn, Instant)>,
    next: Option<Instant>,
}

impl Default for WaitForRoom {
    fn default() -> WaitForRoom {
        WaitForRoom { waiting: Vec::with_capacity(MOST), next: None }
    }
}

impl WaitForRoom {
    /// Whether a first touch of this program may be answered now. It may once the program has waited.
    pub fn lets_through(process: &Process) -> bool {
        let mut since = process.waits_for_room_since.lock();
        match *since {
            Some(then) if then.elapsed() >= FOR_BUDGET => {
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

    /// A thread of the program waits for this page so long; false if too many wait already.
    pub fn add(&mut self, process: &Arc<Process>, page: Vpn, wait: Duration) -> bool {
        if self.waiting.len() == MOST {
            return false;
        }
        let until = Instant::now() + wait;
        self.next = Some(self.next.map_or(until, |next| next.min(until)));
        self.waiting.push((process.clone(), page, until));
        true
    }

    /// How long until somebody has waited long enough; `None` if nobody waits.
    pub fn remaining(&self) -> Option<Duration> {
        self.next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Those who have waited long enough ask again; how many.
    pub fn end_due(&mut self) -> usize {
        match self.remaining() {
            Some(Duration::ZERO) => self.end_until(Some(Instant::now())),
            _ => 0,
        }
    }

    /// All ask again; how many.
    pub fn end(&mut self) -> usize {
        self.end_until(None)
    }

    fn end_until(&mut self, now: Option<Instant>) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|(process, page, until)| {
            let waits = now.is_some_and(|now| *until > now);
            if !waits {
                process.memory.wake(*page, 1);
            }
            waits
        });
        self.next = self.waiting.iter().map(|(.., until)| *until).min();
        before - self.waiting.len()
    }
}
