//! Who waits for a lock of a file: one thread tries again for all of them, and none is held up by another user's.
//!
//! In each round every user has so much time; who was not tried is first in the user's next turn. A waiter stays here while it is
//! tried, so that its interrupt finds it whenever it comes: the kernel tells of it once.
//!
//! The lock is held during no attempt and no answer.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use rustix::io::{Errno, Result};

/// How often it is tried again what somebody else's lock or lease keeps away.
pub const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Interrupts of requests that have not come yet which are remembered: another thread takes the request meanwhile. They are
/// those of all requests, and those that are never asked about leave when there are too many.
const MOST_INTERRUPTED: usize = 1 << 16;

/// Of one user, in one round; one more attempt may be under way.
const TURN: Duration = Duration::from_millis(2);

/// How often as long as a round takes nobody tries: however many wait, it is this part of a CPU.
const REST: u32 = 20;
const MOST_REST: Duration = Duration::from_millis(250);

type Attempt = Arc<dyn Fn() -> Result<()> + Send + Sync>;
type Answer = Box<dyn FnOnce(Result<()>) + Send>;

/// A request for a lock that somebody else keeps away.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The request's number.
    pub unique: u64,
    /// Whose.
    pub uid: u32,
    /// For how long it is waited, if not for ever.
    pub at_most: Option<Duration>,
}

struct Waiter {
    uid: u32,
    until: Option<Instant>,
    attempt: Attempt,
    answer: Answer,
}

#[derive(Default)]
struct Waiting {
    /// By the request's number, so that the oldest is first.
    waiters: BTreeMap<u64, Waiter>,
    /// The one that is being tried, and whether it was interrupted meanwhile.
    tried: Option<(u64, bool)>,
    /// The number from which on each user's turn goes on.
    turns: HashMap<u32, u64>,
    /// Requests that were interrupted and are not in `waiters`: on their way, or answered.
    interrupted: VecDeque<u64>,
    /// Whether there is a thread.
    has_thread: bool,
}

/// All who wait.
#[derive(Default)]
pub struct LockQueue {
    waiting: Mutex<Waiting>,
    /// Somebody has given up locks.
    given_up: Condvar,
}

impl fmt::Debug for LockQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiting.lock().waiters.len();
        f.debug_struct("LockQueue").field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl LockQueue {
    /// Answers with what comes of this, once it is not `EAGAIN` any more, its time is over, or it was interrupted. Ends without
    /// an answer when the mount is `over`.
    pub fn wait(
        self: &Arc<LockQueue>,
        asked: Asked,
        over: &Arc<AtomicBool>,
        attempt: impl Fn() -> Result<()> + Send + Sync + 'static,
        answer: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let Asked { unique, uid, at_most } = asked;
        let mut waiting = self.waiting.lock();
        if let Some(at) = waiting.interrupted.iter().position(|of| *of == unique) {
            waiting.interrupted.remove(at);
            drop(waiting);
            return answer(Err(Errno::INTR));
        }
        let until = at_most.map(|at_most| Instant::now() + at_most);
        let (attempt, answer) = (Arc::new(attempt), Box::new(answer));
        waiting.waiters.insert(unique, Waiter { uid, until, attempt, answer });
        if waiting.has_thread {
            return;
        }
        let (queue, over) = (self.clone(), over.clone());
        let tries = move || while queue.round(&over) {};
        match thread::Builder::new().name("clew-mount-lock".to_string()).spawn(tries) {
            Ok(_) => waiting.has_thread = true,
            Err(error) => {
                tracing::warn!("nobody can wait for locks: {error}");
                let waiters = std::mem::take(&mut waiting.waiters);
                drop(waiting);
                waiters.into_values().for_each(|waiter| (waiter.answer)(Err(Errno::NOLCK)));
            }
        }
    }

    /// A request's process was interrupted: it waits no longer.
    pub fn interrupt(&self, unique: u64) {
        let mut waiting = self.waiting.lock();
        if let Some((tried, is_interrupted)) = &mut waiting.tried
            && *tried == unique
        {
            // What comes of the attempt is answered, if it has the lock by then.
            *is_interrupted = true;
            return;
        }
        if let Some(waiter) = waiting.waiters.remove(&unique) {
            drop(waiting);
            return (waiter.answer)(Err(Errno::INTR));
        }
        waiting.interrupted.push_back(unique);
        if waiting.interrupted.len() > MOST_INTERRUPTED {
            waiting.interrupted.pop_front();
        }
    }

    /// Locks were given up.
    pub fn try_now(&self) {
        self.given_up.notify_one();
    }

    /// Tries for all who wait, or as many of each user's as there is time for, when locks were given up or a while has
    /// passed; false if nobody waits any more.
    fn round(&self, over: &AtomicBool) -> bool {
        let users: HashMap<u32, VecDeque<u64>> = {
            let mut waiting = self.waiting.lock();
            self.given_up.wait_for(&mut waiting, TRY_AGAIN);
            if over.load(Relaxed) {
                // Their requests are answered with an error when they are dropped.
                let waiters = std::mem::take(&mut waiting.waiters);
                drop(waiting);
                drop(waiters);
                return false;
            }
            waiting.by_user()
        };
        let begun = Instant::now();
        for (uid, numbers) in users {
            let turn = Instant::now();
            for unique in numbers {
                self.try_one(unique);
                if turn.elapsed() >= TURN {
                    self.waiting.lock().turns.insert(uid, unique + 1);
                    break;
                }
            }
        }
        thread::sleep((begun.elapsed() * REST).min(MOST_REST));
        let mut waiting = self.waiting.lock();
        waiting.has_thread = !waiting.waiters.is_empty();
        if !waiting.has_thread {
            waiting.turns.clear();
        }
        waiting.has_thread
    }

    fn try_one(&self, unique: u64) {
        let attempt = {
            let mut waiting = self.waiting.lock();
            // It was interrupted before its turn came.
            let Some(waiter) = waiting.waiters.get(&unique) else { return };
            let attempt = waiter.attempt.clone();
            waiting.tried = Some((unique, false));
            attempt
        };
        let done = attempt();
        let mut waiting = self.waiting.lock();
        let is_interrupted = waiting.tried.take().is_some_and(|(_, is_interrupted)| is_interrupted);
        let is_in_time = |waiter: &Waiter| waiter.until.is_none_or(|until| Instant::now() < until);
        let waits =
            done == Err(Errno::AGAIN) && waiting.waiters.get(&unique).is_some_and(is_in_time);
        let done = match (waits, is_interrupted) {
            (true, false) => return,
            (true, true) => Err(Errno::INTR),
            (false, _) => done,
        };
        let waiter = waiting.waiters.remove(&unique);
        drop(waiting);
        if let Some(waiter) = waiter {
            (waiter.answer)(done);
        }
    }
}

impl Waiting {
    /// The numbers of each user's waiters, from that on at which the user's turn goes on, and then those before; first of all
    /// those whose time is over.
    fn by_user(&self) -> HashMap<u32, VecDeque<u64>> {
        let now = Instant::now();
        let mut users: HashMap<u32, [VecDeque<u64>; 3]> = HashMap::new();
        for (unique, waiter) in &self.waiters {
            let next = self.turns.get(&waiter.uid).copied().unwrap_or(0);
            let part = match waiter.until.is_some_and(|until| until <= now) {
                true => 0,
                false if *unique >= next => 1,
                false => 2,
            };
            users.entry(waiter.uid).or_default()[part].push_back(*unique);
        }
        let in_turn =
            |(uid, parts): (u32, [VecDeque<u64>; 3])| (uid, parts.into_iter().flatten().collect());
        users.into_iter().map(in_turn).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(60);

    fn waits(
        queue: &Arc<LockQueue>,
        over: &Arc<AtomicBool>,
        (unique, uid): (u64, u32),
        attempt: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Receiver<Result<()>> {
        let (tell, told) = channel();
        let asked = Asked { unique, uid, at_most: None };
        queue.wait(asked, over, attempt, move |done| {
            let _ = tell.send(done);
        });
        told
    }

    #[test]
    fn an_interrupt_finds_who_waits_whenever_it_comes() {
        let (queue, over) = (Arc::<LockQueue>::default(), Arc::default());
        // More than are remembered of those who do not wait yet.
        let count = MOST_INTERRUPTED as u64 + 100;
        // Each is tried at some time.
        let attempt = || {
            thread::sleep(Duration::from_micros(20));
            Err(Errno::AGAIN)
        };
        let waiters: Vec<_> =
            (0..count).map(|unique| waits(&queue, &over, (unique, 1), attempt)).collect();
        (0..count).for_each(|unique| queue.interrupt(unique));
        for told in waiters {
            assert_eq!(told.recv_timeout(LONG), Ok(Err(Errno::INTR)));
        }
        // And who is not there yet.
        queue.interrupt(count);
        let late = waits(&queue, &over, (count, 1), attempt);
        assert_eq!(late.recv_timeout(LONG), Ok(Err(Errno::INTR)));
    }

    #[test]
    fn who_has_a_lock_when_he_is_interrupted_is_told_so() {
        let (queue, over) = (Arc::<LockQueue>::default(), Arc::default());
        let (begun, begins) = channel();
        let (go_on, goes_on) = channel::<()>();
        let goes_on = Mutex::new(goes_on);
        let attempt = move || {
            let _ = begun.send(());
            let _ = goes_on.lock().recv();
            Ok(())
        };
        let told = waits(&queue, &over, (7, 1), attempt);
        begins.recv_timeout(LONG).unwrap();
        queue.interrupt(7);
        go_on.send(()).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(Ok(())));
    }

    /// By counts: while one user's long attempts go on, another's is tried in each round.
    #[test]
    fn one_users_waiters_do_not_hold_up_anothers() {
        let (queue, over) = (Arc::<LockQueue>::default(), Arc::default());
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = tries.clone();
        let slow = move || {
            counted.fetch_add(1, Relaxed);
            thread::sleep(TURN);
            Err(Errno::AGAIN)
        };
        let _others: Vec<_> =
            (0..1000).map(|unique| waits(&queue, &over, (unique, 1), slow.clone())).collect();
        let (mine, my_tries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (is_free, counted) = (mine.clone(), my_tries.clone());
        let told = waits(&queue, &over, (5000, 2), move || {
            counted.fetch_add(1, Relaxed);
            if is_free.load(Relaxed) { Ok(()) } else { Err(Errno::AGAIN) }
        });
        let until = Instant::now() + LONG;
        while my_tries.load(Relaxed) < 5 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        mine.store(true, Relaxed);
        assert_eq!(told.recv_timeout(LONG), Ok(Ok(())));
        assert!(tries.load(Relaxed) < 100, "{} of the other's first", tries.load(Relaxed));
        over.store(true, Relaxed);
    }

    /// A turn that was too short for all goes on where it ended.
    #[test]
    fn all_of_a_user_are_tried() {
        let (queue, over) = (Arc::<LockQueue>::default(), Arc::default());
        let attempt = || {
            thread::sleep(TURN / 2);
            Err(Errno::AGAIN)
        };
        let _others: Vec<_> =
            (0..20).map(|unique| waits(&queue, &over, (unique, 1), attempt)).collect();
        let last = waits(&queue, &over, (20, 1), || Ok(()));
        assert_eq!(last.recv_timeout(LONG), Ok(Ok(())));
        over.store(true, Relaxed);
    }
}
