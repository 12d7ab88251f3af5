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
    turns: Mutex<Turns<Work>>,
    /// By the worker's thread: with whom, and since when.
    with: Mutex<HashMap<u32, (Arc<Process>, Instant)>>,
}

impl Shares {
    /// Nobody is with anybody.
    pub fn new(most: MostOfUser) -> Shares {
        let turns = Turns { most, with: HashMap::new(), waits: HashMap::new() };
        Shares { turns: Mutex::new(turns), with: Mutex::default() }
    }

    /// A worker is about to do this; `None` where its user has as many of them as may be: then it waits.
    pub(super) fn begin(&self, worker: u32, work: Work) -> Option<Work> {
        let Some(process) = work.process().cloned() else { return Some(work) };
        let work = self.turns.lock().begin(worker, process.uid(), work)?;
        self.with.lock().insert(worker, (process, Instant::now()));
        Some(work)
    }

    /// The worker has done it; what of the same user's has waited is next.
    pub(super) fn end(&self, worker: u32) -> Option<Work> {
        self.with.lock().remove(&worker);
        self.turns.lock().end(worker)
    }

    /// How many workers programs of each user hold up now.
    pub fn held_up(&self) -> HashMap<u32, usize> {
        let mut held_up: HashMap<u32, usize> = HashMap::new();
        for (worker, (process, since)) in &*self.with.lock() {
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

/// Whose turn it is.
struct Turns<W> {
    most: MostOfUser,
    /// By worker: whose work it does.
    with: HashMap<u32, u32>,
    /// Work that waits until its user has fewer workers.
    waits: HashMap<u32, VecDeque<W>>,
}

impl<W> Turns<W> {
    fn begin(&mut self, worker: u32, user: u32, work: W) -> Option<W> {
        let workers = self.with.values().filter(|of| **of == user).count();
        if workers >= self.most.0 {
            self.waits.entry(user).or_default().push_back(work);
            return None;
        }
        self.with.insert(worker, user);
        Some(work)
    }

    fn end(&mut self, worker: u32) -> Option<W> {
        let user = self.with.remove(&worker)?;
        let waits = self.waits.get_mut(&user)?;
        let next = waits.pop_front();
        if waits.is_empty() {
            self.waits.remove(&user);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_as_many_workers_as_may_be_waits_and_others_do_not() {
        let most = MostOfUser(2);
        let mut turns = Turns { most, with: HashMap::new(), waits: HashMap::new() };
        let [first, second] = [7, 8];
        assert_eq!(turns.begin(1, first, "a"), Some("a"));
        assert_eq!(turns.begin(2, first, "b"), Some("b"));
        assert_eq!(turns.begin(3, first, "c"), None);
        assert_eq!(turns.begin(3, first, "d"), None);
        assert_eq!(turns.begin(3, second, "e"), Some("e"));
        // In the order in which they came, one for each that is done.
        assert_eq!(turns.end(1), Some("c"));
        assert_eq!(turns.begin(1, first, "c"), Some("c"));
        assert_eq!(turns.end(3), None, "nothing of that user waits");
        assert_eq!(turns.end(2), Some("d"));
        assert_eq!(turns.begin(3, first, "d"), Some("d"), "another one may take it");
        assert_eq!((turns.end(1), turns.end(3)), (None, None));
        assert!(turns.with.is_empty() && turns.waits.is_empty());
    }

    #[test]
    fn only_users_of_a_service_have_shares() {
        assert_eq!(MostOfUser::of(2, true), MostOfUser(OF_A_SERVICE));
        assert_eq!(MostOfUser::of(16, true), MostOfUser(16));
        assert_eq!(MostOfUser::of(2, false), MostOfUser(usize::MAX));
    }
}
