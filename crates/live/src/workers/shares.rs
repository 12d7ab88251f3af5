//! Which worker is with whose program, and for how long: one that a program holds up (its agent does not end an order, its memory
//! is locked by somebody who waits himself) is replaced, and each user's programs may hold up so many.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::work::Work;
use crate::programs::proc_stat::Stat;
use crate::programs::process::Process;

/// A worker that is with a program for so long and waits is held up by it, whatever it waits for.
const LONG: Duration = Duration::from_millis(250);

/// Workers that programs of one user of a service may have, if there are not more.
const OF_A_SERVICE: usize = 8;

/// Workers that programs of one user may have at a time: what is to be done with them then waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MostOfUser(pub usize);

impl MostOfUser {
    /// Where so many workers are there for all, of a service or not.
    pub fn of(workers: usize, is_service: bool) -> MostOfUser {
        MostOfUser(if is_service { workers.max(OF_A_SERVICE) } else { usize::MAX })
    }
}

/// Who is with whom.
pub struct Shares {
    most: MostOfUser,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the worker's thread: with whom, and since when.
    with: HashMap<u32, (Arc<Process>, Instant)>,
    /// Work that waits until its user has fewer workers.
    waits: HashMap<u32, VecDeque<Work>>,
}

impl State {
    fn workers_of(&self, user: u32) -> usize {
        self.with.values().filter(|(process, _)| process.uid() == user).count()
    }
}

impl Shares {
    /// Nobody is with anybody.
    pub fn new(most: MostOfUser) -> Shares {
        Shares { most, state: Mutex::default() }
    }

    /// A worker is about to do this; `None` where its user has as many of them as may be: then it waits.
    pub(super) fn begin(&self, worker: u32, work: Work) -> Option<Work> {
        let Some(process) = work.process().cloned() else { return Some(work) };
        let mut state = self.state.lock();
        let user = process.uid();
        if state.workers_of(user) >= self.most.0 {
            state.waits.entry(user).or_default().push_back(work);
            return None;
        }
        state.with.insert(worker, (process, Instant::now()));
        Some(work)
    }

    /// The worker has done it; what of the same user's has waited is next.
    pub(super) fn end(&self, worker: u32) -> Option<Work> {
        let mut state = self.state.lock();
        let (process, _) = state.with.remove(&worker)?;
        let user = process.uid();
        let waits = state.waits.get_mut(&user)?;
        let next = waits.pop_front();
        if waits.is_empty() {
            state.waits.remove(&user);
        }
        next
    }

    /// How many workers programs of each user hold up now.
    pub fn held_up(&self) -> HashMap<u32, usize> {
        let mut held_up: HashMap<u32, usize> = HashMap::new();
        for (worker, (process, since)) in &self.state.lock().with {
            if process.memory.holds_up_a_worker() || since.elapsed() >= LONG && waits(*worker) {
                *held_up.entry(process.uid()).or_default() += 1;
            }
        }
        held_up
    }
}

/// Whether a thread waits, and not for a processor.
fn waits(thread: u32) -> bool {
    Stat::of(thread).is_ok_and(|stat| stat.state != b'R')
}
