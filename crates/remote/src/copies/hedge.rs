//! Hedged reads (Dean and Barroso, "The Tail at Scale", CACM 2013): a device that has not answered in [`BEHIND`] is waited
//! for no longer alone, the other one is asked, too, and the first that has it answers.
//!
//! A device that was late, or whose link was cut, is asked second for [`AVOIDED`], so that not each read waits for it.
//!
//! Order: a read's state after what waits; no device is asked, and nobody told, under either.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::DonorState;
use clew_store::flash::device::{Blocks, Read, Told};
use parking_lot::{Condvar, Mutex};

use super::Inside;
use crate::Standing;

/// How long a device may take before the other one is asked, too.
const BEHIND: Duration = Duration::from_millis(250);
/// How long a device that was late, or whose link was cut, is asked second.
const AVOIDED: Duration = Duration::from_secs(1);

/// A read that either of two devices may answer.
pub(super) struct Hedged {
    at: u64,
    len: usize,
    pressing: bool,
    since: Instant,
    /// Who was asked first, 0 or 1.
    first: usize,
    state: Mutex<State>,
}

struct State {
    /// Nothing once it is answered.
    told: Option<Told>,
    /// The other one was asked, too.
    both: bool,
    /// How many were asked and have not answered.
    under_way: usize,
}

/// Reads that are under way, in the order in which they began, and which device is to be avoided.
#[derive(Default)]
pub(super) struct Hedges {
    waiting: Mutex<Waiting>,
    comes: Condvar,
}

impl std::fmt::Debug for Hedges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hedges({} under way)", self.waiting.lock().reads.len())
    }
}

#[derive(Default)]
struct Waiting {
    reads: VecDeque<Arc<Hedged>>,
    /// Until when.
    avoided: [Option<Instant>; 2],
    /// How often the links were cut, as far as that was looked at.
    cuts: [u64; 2],
    ends: bool,
}

impl Waiting {
    fn is_avoided(&self, which: usize, now: Instant) -> bool {
        self.avoided[which].is_some_and(|until| now < until)
    }

    /// Which of the two is asked first, whose links were cut so often.
    fn first(&mut self, now: Instant, cuts: [u64; 2]) -> usize {
        let before = std::mem::replace(&mut self.cuts, cuts);
        for ((avoided, before), cuts) in self.avoided.iter_mut().zip(before).zip(cuts) {
            if before < cuts {
                *avoided = Some(now + AVOIDED);
            }
        }
        usize::from(self.is_avoided(0, now) && !self.is_avoided(1, now))
    }
}

impl Hedged {
    fn is_over(&self) -> bool {
        self.state.lock().told.is_none()
    }
}

impl Hedges {
    /// No read is hedged any more.
    pub fn end(&self) {
        self.waiting.lock().ends = true;
        self.comes.notify_all();
    }

    /// The next read of which it is time to ask the other device, too; `None` at the end.
    fn next_late(&self) -> Option<Arc<Hedged>> {
        let mut waiting = self.waiting.lock();
        while !waiting.ends {
            while waiting.reads.front().is_some_and(|read| read.is_over()) {
                waiting.reads.pop_front();
            }
            let now = Instant::now();
            match waiting.reads.front().map(|read| read.since + BEHIND) {
                None => self.comes.wait(&mut waiting),
                Some(late) if late > now => {
                    self.comes.wait_until(&mut waiting, late);
                }
                Some(_) => {
                    let late = waiting.reads.pop_front()?;
                    waiting.avoided[late.first] = Some(now + AVOIDED);
                    return Some(late);
                }
            }
        }
        None
    }
}

impl Inside {
    /// Asks the other device for what is late, until the end.
    pub(super) fn hedge_all(self: &Arc<Self>) {
        while let Some(late) = self.hedges.next_late() {
            self.ask_other(&late);
        }
    }

    /// Has a read answered by either device, both of which have what it asks for.
    pub(super) fn read_either(self: &Arc<Self>, read: Read) {
        let Read { at, into, told, pressing, .. } = read;
        let (len, since) = (into.bytes().len(), Instant::now());
        let stand = [0, 1].map(|which| self.standing(which));
        let is_lost =
            |stands: &Option<Standing>| matches!(stands, Some(s) if s.state == DonorState::Lost);
        let cuts = [0, 1].map(|which| stand[which].as_ref().map_or(0, |stands| stands.cuts));
        let hedged = {
            let mut waiting = self.hedges.waiting.lock();
            let first = match [0, 1].map(|which| is_lost(&stand[which])) {
                [true, false] => 1,
                [false, true] => 0,
                _ => waiting.first(since, cuts),
            };
            let state = Mutex::new(State { told: Some(told), both: false, under_way: 1 });
            let hedged = Arc::new(Hedged { at, len, pressing, since, first, state });
            waiting.reads.push_back(Arc::clone(&hedged));
            if waiting.reads.len() == 1 {
                self.hedges.comes.notify_one();
            }
            hedged
        };
        self.ask(hedged.first, &hedged, into);
    }

    fn ask(self: &Arc<Self>, which: usize, hedged: &Arc<Hedged>, into: Blocks) {
        let (inside, asked) = (Arc::clone(self), Arc::clone(hedged));
        let told = Box::new(move |came, blocks| inside.came(&asked, came, blocks));
        let (device, offset) = self.device(which);
        let Hedged { at, pressing, .. } = **hedged;
        device.read(Read { at: offset + at, into, told, pressing, tries: 0 });
    }

    /// Unless it is answered, was asked already, or is lost.
    fn ask_other(self: &Arc<Self>, hedged: &Arc<Hedged>) {
        let other = 1 - hedged.first;
        if self.is_lost(other) {
            return;
        }
        {
            let mut state = hedged.state.lock();
            if state.told.is_none() || state.both {
                return;
            }
            (state.both, state.under_way) = (true, state.under_way + 1);
        }
        self.ask(other, hedged, Blocks::zeroed(hedged.len));
    }

    fn came(self: &Arc<Self>, hedged: &Arc<Hedged>, came: io::Result<usize>, blocks: Blocks) {
        let is_there = came.as_ref().is_ok_and(|got| *got > 0);
        if !is_there {
            self.ask_other(hedged);
        }
        let told = {
            let mut state = hedged.state.lock();
            state.under_way -= 1;
            if is_there || state.under_way == 0 { state.told.take() } else { None }
        };
        if let Some(told) = told {
            told(came, blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_late_is_asked_second_for_a_while() {
        let now = Instant::now();
        let mut waiting = Waiting::default();
        let first = |waiting: &mut Waiting, after| waiting.first(now + after, [0; 2]);
        assert_eq!(first(&mut waiting, Duration::ZERO), 0);
        waiting.avoided[0] = Some(now + AVOIDED);
        assert_eq!(first(&mut waiting, Duration::ZERO), 1);
        assert_eq!(first(&mut waiting, AVOIDED), 0);
        waiting.avoided[1] = Some(now + AVOIDED / 2);
        assert_eq!(first(&mut waiting, Duration::ZERO), 0, "both were");
        assert_eq!(first(&mut waiting, AVOIDED / 2), 1);
    }

    #[test]
    fn whose_link_was_cut_is_asked_second_for_a_while() {
        let now = Instant::now();
        let mut waiting = Waiting::default();
        assert_eq!(waiting.first(now, [0, 0]), 0);
        assert_eq!(waiting.first(now, [1, 0]), 1);
        assert_eq!(waiting.first(now + AVOIDED, [1, 0]), 0, "once");
        assert_eq!(waiting.first(now + AVOIDED, [2, 1]), 0, "both were");
        assert_eq!(waiting.first(now + 3 * AVOIDED / 2, [3, 1]), 0, "both are");
        assert_eq!(waiting.first(now + 2 * AVOIDED, [3, 1]), 1);
    }
}
