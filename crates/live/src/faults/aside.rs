//! Programs that a fault thread lays aside, as somebody has their space's lock for long: he waits for the memory of the program
//! itself, which another has locked (who reads a page of a slow file out of it, for one). A program's own faults wait for that,
//! and nobody else's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::SpaceId;

use crate::programs::process::Process;

/// How long a fault thread waits for a lock: longer than whoever has it works, also on a busy machine.
const FIRST: Duration = Duration::from_millis(20);
/// And for one that it did not get of late: it gets it behind others that share it.
const AGAIN: Duration = Duration::from_millis(1);
/// Of one that it has not got for so long nobody waits for: it is looked at whether it is free.
const LONG: Duration = Duration::from_millis(100);
/// Between two such waits it is at least so many times as long: all others wait meanwhile.
const SHARE: u32 = 50;

/// What a fault thread knows of the lock of one program's space.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Since when it has asked for it, and has not got it.
    since: Option<Instant>,
    /// When it gave up last.
    gave_up: Option<Instant>,
}

impl Held {
    /// How long it is waited for now.
    fn patience(&self, now: Instant) -> Duration {
        match self.since {
            Some(since) if now.duration_since(since) >= LONG => Duration::ZERO,
            Some(_) => AGAIN,
            None if self.is_past(now) => FIRST,
            None => AGAIN,
        }
    }

    /// It was not got: in how long it is asked for again.
    fn not_got(&mut self, now: Instant) -> Duration {
        self.gave_up = Some(now);
        let since = *self.since.get_or_insert(now);
        (now.duration_since(since) / 8).clamp(AGAIN, LONG)
    }

    /// Whether it is so long ago that it is nothing to go by.
    fn is_past(&self, now: Instant) -> bool {
        self.gave_up.is_none_or(|when| now.duration_since(when) >= FIRST * SHARE)
    }

    /// It was got.
    fn got(&mut self) {
        self.since = None;
    }
}

/// The programs that one fault thread has laid aside.
#[derive(Default)]
pub struct Aside {
    programs: Vec<(Arc<Process>, Instant)>,
    /// Of those whose lock it did not get of late.
    held: HashMap<SpaceId, Held>,
}

impl Aside {
    /// How long the lock of this one's space is waited for now.
    pub fn patience(&self, space: SpaceId) -> Duration {
        self.held.get(&space).copied().unwrap_or_default().patience(Instant::now())
    }

    /// It was got.
    pub fn got(&mut self, space: SpaceId) {
        if !self.held.is_empty()
            && let Some(held) = self.held.get_mut(&space)
        {
            held.got();
        }
    }

    /// Lays one aside. Its messages are not heard of until it is looked at again.
    pub fn lay(&mut self, process: &Arc<Process>) {
        let now = Instant::now();
        // Of those that are gone, or that it has got since, nothing is needed any more.
        self.held.retain(|_, held| !held.is_past(now));
        let pause = self.held.entry(process.id).or_default().not_got(now);
        process.memory.lay_aside();
        self.programs.push((process.clone(), now + pause));
    }

    /// How long until one is looked at again; `None` if there is none.
    pub fn remaining(&self) -> Option<Duration> {
        let next = self.programs.iter().map(|(_, next)| *next).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Has the messages of those heard again that have waited long enough.
    pub fn look_again(&mut self) {
        if self.programs.is_empty() {
            return;
        }
        let now = Instant::now();
        self.programs.retain(|(process, next)| {
            let waits = *next > now;
            if !waits {
                process.memory.look_again();
            }
            waits
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_keeps_its_fault_thread_for_a_fiftieth_of_the_time() {
        let (begin, mut held) = (Instant::now(), Held::default());
        assert_eq!(held.patience(begin), FIRST);
        let mut now = begin + FIRST;
        let mut kept = FIRST;
        let end = now + Duration::from_secs(60);
        while now < end {
            now += held.not_got(now);
            let patience = held.patience(now);
            (now, kept) = (now + patience, kept + patience);
        }
        assert!(kept < FIRST + LONG, "{kept:?}");
        held.got();
        assert_eq!(held.patience(now), AGAIN, "it was held a moment ago");
        assert_eq!(held.patience(now + FIRST * SHARE), FIRST);
    }
}
