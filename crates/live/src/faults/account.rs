//! Where the time of a fault goes, from timestamps in its path: from the moment in which a fault thread
//! was told of it to its answer. What comes before and after, the wake-up of the fault thread and of the
//! program, only the program can see (`clew bench fault-under-load`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A fault that took longer is a slow one.
pub const SLOW: Duration = Duration::from_micros(100);

/// What a fault spent its time on, or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its program's events were held, because pages of it were on their way out.
    Held,
    /// Its space's lock, which a worker had.
    Lock,
    /// Reading and applying what its program did before.
    Events,
    /// Faults that were told with it.
    Queue,
    /// Reading the store: decompression and checksum.
    Codec,
    /// The page table, and the system call that puts the page.
    Put,
}

impl Cause {
    /// All of them, in the order in which a fault meets them.
    pub const ALL: [Cause; 6] =
        [Cause::Held, Cause::Lock, Cause::Events, Cause::Queue, Cause::Codec, Cause::Put];

    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Held => "held",
            Cause::Lock => "lock",
            Cause::Events => "events",
            Cause::Queue => "queue",
            Cause::Codec => "codec",
            Cause::Put => "put",
        }
    }
}

/// What one fault, or the faults of one round so far, spent, by cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent([Duration; Cause::ALL.len()]);

impl Spent {
    /// Adds to a cause.
    pub fn add(&mut self, cause: Cause, time: Duration) {
        self.0[cause as usize] += time;
    }

    /// All together.
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    /// What it spent the most on.
    fn most(&self) -> usize {
        let times = self.0.iter().enumerate();
        times.max_by_key(|(_, time)| **time).map_or(0, |(cause, _)| cause)
    }
}

/// A clock that is read at the end of each part of a round.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    /// Spent so far.
    pub spent: Spent,
    last: Instant,
}

impl Stopwatch {
    /// One that was started then.
    pub fn since(start: Instant) -> Stopwatch {
        Stopwatch { spent: Spent::default(), last: start }
    }

    /// What has gone by since it was last read went to `cause`.
    pub fn to(&mut self, cause: Cause) {
        let now = Instant::now();
        self.spent.add(cause, now.saturating_duration_since(self.last));
        self.last = now;
    }

    /// When it was started.
    pub fn began(&self) -> Instant {
        self.last.checked_sub(self.spent.total()).unwrap_or(self.last)
    }

    /// When it was last read.
    pub fn last(&self) -> Instant {
        self.last
    }
}

/// What one fault thread has counted, a number a cause.
#[derive(Debug, Default)]
pub struct Account {
    faults: AtomicU64,
    slow: AtomicU64,
    nanoseconds: [AtomicU64; Cause::ALL.len()],
    slow_nanoseconds: [AtomicU64; Cause::ALL.len()],
    slow_mostly: [AtomicU64; Cause::ALL.len()],
}

impl Account {
    /// Enters one fault.
    pub fn enter(&self, spent: &Spent) {
        let add = |to: &AtomicU64, n: u64| to.fetch_add(n, Ordering::Relaxed);
        let is_slow = spent.total() > SLOW;
        add(&self.faults, 1);
        for (i, time) in spent.0.iter().enumerate() {
            let ns = time.as_nanos() as u64;
            add(&self.nanoseconds[i], ns);
            if is_slow {
                add(&self.slow_nanoseconds[i], ns);
            }
        }
        if is_slow {
            add(&self.slow, 1);
            add(&self.slow_mostly[spent.most()], 1);
        }
    }
}

/// The account of all faults that brought a stored page back, in the status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultAccount {
    /// How many.
    pub faults: u64,
    /// Of these, those that took more than 100 us.
    pub slow_faults: u64,
    /// Where their time went.
    pub causes: Vec<CauseStatus>,
}

/// One cause in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CauseStatus {
    /// `held`, `lock`, `events`, `queue`, `codec` or `put`.
    pub cause: String,
    /// Time of all faults, seconds.
    pub seconds: f64,
    /// Of it, that of the slow ones.
    pub slow_seconds: f64,
    /// Slow faults that spent the most of their time so.
    pub slow_faults: u64,
}

impl FaultAccount {
    /// Adds up what several threads counted.
    pub fn sum<'a>(accounts: impl Iterator<Item = &'a Account> + Clone) -> FaultAccount {
        let sum = |of: &dyn Fn(&Account) -> &AtomicU64| -> u64 {
            accounts.clone().map(|account| of(account).load(Ordering::Relaxed)).sum()
        };
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let causes = Cause::ALL.into_iter().enumerate().map(|(i, cause)| CauseStatus {
            cause: cause.name().to_string(),
            seconds: seconds(sum(&|a| &a.nanoseconds[i])),
            slow_seconds: seconds(sum(&|a| &a.slow_nanoseconds[i])),
            slow_faults: sum(&|a| &a.slow_mostly[i]),
        });
        FaultAccount {
            faults: sum(&|a| &a.faults),
            slow_faults: sum(&|a| &a.slow),
            causes: causes.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(parts: &[(Cause, u64)]) -> Spent {
        let mut spent = Spent::default();
        parts.iter().for_each(|(cause, us)| spent.add(*cause, Duration::from_micros(*us)));
        spent
    }

    #[test]
    fn causes_are_in_the_order_of_their_numbers() {
        for (i, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, i, "{}", cause.name());
        }
    }

    #[test]
    fn a_slow_fault_is_entered_under_what_it_spent_the_most_on() {
        let threads = [Account::default(), Account::default()];
        threads[0].enter(&spent(&[(Cause::Codec, 8), (Cause::Put, 4)]));
        threads[0].enter(&spent(&[(Cause::Held, 300), (Cause::Codec, 8)]));
        threads[1].enter(&spent(&[(Cause::Lock, 60), (Cause::Queue, 50)]));
        // Exactly as long as one may take.
        threads[1].enter(&spent(&[(Cause::Events, 100)]));
        let all = FaultAccount::sum(threads.iter());
        assert_eq!((all.faults, all.slow_faults), (4, 2));
        let of = |cause: Cause| all.causes[cause as usize].clone();
        assert_eq!((of(Cause::Held).slow_faults, of(Cause::Lock).slow_faults), (1, 1));
        assert_eq!(of(Cause::Events).slow_faults + of(Cause::Queue).slow_faults, 0);
        assert!((of(Cause::Codec).seconds - 16e-6).abs() < 1e-12);
        assert!((of(Cause::Codec).slow_seconds - 8e-6).abs() < 1e-12);
        assert!((of(Cause::Events).slow_seconds).abs() < 1e-12);
    }

    #[test]
    fn a_stopwatch_leaves_nothing_out() {
        let start = Instant::now();
        let mut watch = Stopwatch::since(start);
        for cause in Cause::ALL {
            watch.to(cause);
        }
        assert_eq!(watch.spent.total(), watch.last() - start);
    }
}
