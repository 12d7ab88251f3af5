//! Programs that the system lets nobody watch: how many descriptors a user may watch is limited, and any program of that
//! user can use it up. Each wait asks them whether they have something to say, until they can be watched.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::programs::memory;
use crate::programs::process::Process;
use crate::programs::shared::Shared;

/// How often is tried whether they can be watched, at least; less than a second.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Those of one fault thread.
#[derive(Default)]
pub struct Unwatched {
    /// Refusals that have been looked into.
    refusals: u64,
    programs: Vec<Arc<Process>>,
}

impl Unwatched {
    /// Finds them, if there may be any, and tries to have them watched.
    pub fn look(&mut self, shared: &Shared, handler: usize) {
        let refusals = memory::refusals();
        if refusals == self.refusals && self.programs.is_empty() {
            return;
        }
        self.programs.clear();
        self.refusals = refusals;
        let is_unwatched =
            |process: &&Arc<Process>| process.handler == handler && !process.memory.watch_again();
        let processes = shared.processes.read();
        self.programs.extend(processes.values().filter(is_unwatched).cloned());
    }

    /// Waits, for `most` at most, until one of them has something to say, or one of those that `epoll` watches; which of them
    /// have, and whether that is that nobody may wait for it. `None`, at once, if there are none.
    pub fn wait(&self, epoll: RawFd, most: Option<Duration>) -> Option<Vec<(Arc<Process>, bool)>> {
        if self.programs.is_empty() {
            return None;
        }
        let asked = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let own = self.programs.iter().map(|process| process.memory.uffd.as_raw_fd());
        let mut polls: Vec<libc::pollfd> = own.chain([epoll]).map(asked).collect();
        let most = most.map_or(TRY_AGAIN, |most| most.min(TRY_AGAIN));
        let timeout = libc::timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
        // SAFETY: array and time live across the call, and the array is as long as stated; nobody closes what a program has
        // that is held.
        let n = unsafe {
            libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, &timeout, std::ptr::null())
        };
        let said = self.programs.iter().zip(&polls).filter(|(_, poll)| n > 0 && poll.revents != 0);
        Some(said.map(|(p, poll)| (p.clone(), poll.revents & libc::POLLERR != 0)).collect())
    }
}
