//! The lock of a space: shared by who changes pages, exclusive for who reads its program's events.
//!
//! It is held for microseconds, unless who has it loses its CPU meanwhile: then a fault would wait for
//! as long as the scheduler lets others run, a millisecond and more on a busy machine. So who holds it
//! says so in one of a few slots, and a fault that waits ([`SpaceLock::write_for_a_fault`]) has the holder run at
//! once: it inherits a real-time priority until it lets go. The slots are hints. Two threads may share
//! one, and then one of them is not found; whoever finds a promoted thread that is none any more demotes it.
//! Where the system does not allow it (it takes CAP_SYS_NICE) nothing changes.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

const SLOTS: usize = 8;
/// Mark of a holder that was promoted; no thread has such a number.
const PROMOTED: u32 = 1 << 31;

/// See the module.
#[derive(Debug, Default)]
pub struct SpaceLock {
    lock: RwLock<()>,
    /// Who holds it: thread numbers, zero for nobody.
    holders: [AtomicU32; SLOTS],
}

/// Held with others.
pub struct SpaceReadGuard<'a> {
    _lock: RwLockReadGuard<'a, ()>,
    _held: Held<'a>,
}

/// Held alone.
pub struct SpaceWriteGuard<'a> {
    lock: RwLockWriteGuard<'a, ()>,
    held: Held<'a>,
}

impl SpaceLock {
    /// Waits until nobody holds it alone.
    pub fn read(&self) -> SpaceReadGuard<'_> {
        SpaceReadGuard { _lock: self.lock.read(), _held: Held::by_me(&self.holders) }
    }

    /// The same, if that is now.
    pub fn try_read(&self) -> Option<SpaceReadGuard<'_>> {
        let lock = self.lock.try_read()?;
        Some(SpaceReadGuard { _lock: lock, _held: Held::by_me(&self.holders) })
    }

    /// The same, if that is soon.
    pub fn read_within(&self, patience: Duration) -> Option<SpaceReadGuard<'_>> {
        let lock = self.lock.try_read_for(patience)?;
        Some(SpaceReadGuard { _lock: lock, _held: Held::by_me(&self.holders) })
    }

    /// Waits until nobody else holds it.
    pub fn write(&self) -> SpaceWriteGuard<'_> {
        SpaceWriteGuard { lock: self.lock.write(), held: Held::by_me(&self.holders) }
    }

    /// The same for a program that waits: who holds it runs at once. `None` if it is held for longer than `patience`, as it
    /// is where the holder waits for something itself.
    pub fn write_for_a_fault(
        &self,
        patience: impl FnOnce() -> Duration,
    ) -> Option<SpaceWriteGuard<'_>> {
        let lock = self.lock.try_write().or_else(|| {
            self.holders.iter().for_each(promote);
            self.lock.try_write_for(patience())
        })?;
        Some(SpaceWriteGuard { lock, held: Held::by_me(&self.holders) })
    }
}

impl<'a> SpaceWriteGuard<'a> {
    /// Others that share it may come, too.
    pub fn downgrade(self) -> SpaceReadGuard<'a> {
        SpaceReadGuard { _lock: RwLockWriteGuard::downgrade(self.lock), _held: self.held }
    }

    /// Lets go, and who has waited longest is next.
    pub fn unlock_fair(self) {
        drop(self.held);
        RwLockWriteGuard::unlock_fair(self.lock);
    }
}

/// A slot that says who holds the lock.
struct Held<'a>(&'a AtomicU32);

impl Held<'_> {
    fn by_me(holders: &[AtomicU32; SLOTS]) -> Held<'_> {
        let (slot, number) = me();
        holders[slot].store(number, Ordering::Relaxed);
        Held(&holders[slot])
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let holder = self.0.load(Ordering::Relaxed);
        self.0.store(0, Ordering::SeqCst);
        if holder & PROMOTED != 0 {
            schedule(me().1, libc::SCHED_OTHER, 0);
        }
    }
}

/// Has whoever is in `slot` run, ahead of all that is not as urgent.
fn promote(slot: &AtomicU32) {
    let holder = slot.load(Ordering::Relaxed);
    let is_somebody = holder != 0 && holder & PROMOTED == 0;
    let promoted = holder | PROMOTED;
    let relaxed = Ordering::Relaxed;
    if !is_somebody || slot.compare_exchange(holder, promoted, relaxed, relaxed).is_err() {
        return;
    }
    schedule(holder, libc::SCHED_FIFO, 1);
    // It may have let go before that, and will not look again.
    if slot.load(Ordering::SeqCst) != promoted {
        schedule(holder, libc::SCHED_OTHER, 0);
    }
}

fn schedule(thread: u32, policy: i32, priority: i32) {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: takes numbers, and a structure that lives across the call.
    unsafe { libc::sched_setscheduler(thread as i32, policy, &raw const parameters) };
}

/// The calling thread's slot and number.
fn me() -> (usize, u32) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static ME: Cell<(usize, u32)> = const { Cell::new((0, 0)) });
    ME.with(|me| {
        if me.get().1 == 0 {
            // SAFETY: takes nothing.
            let number = unsafe { libc::gettid() } as u32;
            me.set((NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS, number));
        }
        me.get()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    /// A bound for what takes moments.
    const LONG: Duration = Duration::from_secs(60);

    fn policy_of(thread: u32) -> i32 {
        // SAFETY: takes a number.
        unsafe { libc::sched_getscheduler(thread as i32) }
    }

    fn may_promote() -> bool {
        let number = me().1;
        schedule(number, libc::SCHED_FIFO, 1);
        let may = policy_of(number) == libc::SCHED_FIFO;
        schedule(number, libc::SCHED_OTHER, 0);
        may
    }

    #[test]
    fn a_holder_for_whom_a_fault_waits_is_promoted_until_it_lets_go() {
        let lock = SpaceLock::default();
        let wanted = if may_promote() { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
        for shared in [true, false] {
            let (tell, told) = channel();
            std::thread::scope(|scope| {
                let holder = scope.spawn(|| {
                    let held = (shared.then(|| lock.read()), (!shared).then(|| lock.write()));
                    tell.send(()).expect("somebody waits");
                    let since = Instant::now();
                    while policy_of(me().1) != wanted {
                        assert!(since.elapsed() < LONG, "nobody came");
                        std::thread::yield_now();
                    }
                    drop(held);
                    policy_of(me().1)
                });
                told.recv().expect("it is held");
                drop(lock.write_for_a_fault(|| LONG).expect("it lets go"));
                assert_eq!(holder.join().expect("it ended"), libc::SCHED_OTHER);
            });
        }
        assert!(lock.holders.iter().all(|slot| slot.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn who_waits_for_a_holder_that_waits_goes_away() {
        let (lock, moment) = (SpaceLock::default(), Duration::from_millis(1));
        let held = lock.write();
        std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                lock.write_for_a_fault(|| moment).is_none() && lock.read_within(moment).is_none()
            });
            assert!(others.join().expect("it gives up"));
        });
        drop(held);
        // Whoever was promoted for that is no more.
        assert_eq!(policy_of(me().1), libc::SCHED_OTHER);
        assert!(lock.write_for_a_fault(|| LONG).is_some() && lock.read_within(LONG).is_some());
    }

    #[test]
    fn nobody_stays_promoted() {
        let (lock, is_over) = (SpaceLock::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let hold = |shared: bool| {
                while !is_over.load(Ordering::SeqCst) {
                    if shared {
                        drop(lock.read());
                    } else {
                        lock.write().unlock_fair();
                    }
                }
                policy_of(me().1)
            };
            let holders = [true, true, false].map(|shared| scope.spawn(move || hold(shared)));
            for _ in 0..20_000 {
                drop(lock.write_for_a_fault(|| LONG).expect("they let go").downgrade());
            }
            is_over.store(true, Ordering::SeqCst);
            for holder in holders {
                assert_eq!(holder.join().expect("it ended"), libc::SCHED_OTHER);
            }
        });
        assert!(lock.holders.iter().all(|slot| slot.load(Ordering::Relaxed) == 0));
    }
}
