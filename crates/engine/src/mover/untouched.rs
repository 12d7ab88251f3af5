//! Memory that nobody has touched is zeros to its program, and an error to who reads it from outside
//! (`/proc/PID/mem`: a debugger, a core dump), as whatever is not there. Zeros are put there for those.

use clew_core::{Event, PageId, PageRun, Vpn};
use clew_store::{Entry, State};

use super::{BlockStore, Mover, note, page_entry};
use crate::{ManagedSpace, Memory, PutStop};

/// Pages that are put at once: who reads what the kernel has to tell waits for it.
const RUN: u64 = 64;

/// How often it is tried while the kernel has something to tell that nobody has read yet.
const TRIES: u32 = 1000;

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Puts zeros wherever nothing is known to be among so many pages from `first`, at most `most` of them; how many.
    /// What cannot be put stays as it is.
    pub fn put_untouched(
        &self,
        space: &ManagedSpace<M>,
        first: Vpn,
        pages: u64,
        most: u64,
        events: &mut Vec<Event>,
    ) -> u64 {
        // A put that leaves a mapping fails as a whole, and nobody knows where mappings end.
        let (mut at, mut done, mut tries, mut wish) = (0, 0, 0, RUN);
        while at < pages && done < most && tries < TRIES {
            let guard = space.table.lock.read();
            let begin = Vpn(first.0 + at);
            let is_untouched = |i: &u64| space.table.load(Vpn(begin.0 + i)) == Entry::ABSENT;
            let run = (0..wish.min(pages - at).min(most - done)).take_while(is_untouched).count();
            if run == 0 {
                at += 1;
                continue;
            }
            let put = space.memory.put_zero(begin, run);
            let resident = page_entry(State::Resident, None, 0);
            let is_noted = |i: &u64| note(space, Vpn(begin.0 + i), resident);
            let count = (0..put.pages as u64).take_while(is_noted).count() as u32;
            drop(guard);
            if count > 0 {
                let run = PageRun { first: PageId::new(space.id(), begin), count };
                events.push(Event::Resident { run });
            }
            (at, done) = (at + put.pages as u64, done + put.pages as u64);
            match put.stop {
                None => (tries, wish) = (0, RUN.min(wish * 2)),
                // It is there.
                Some(PutStop::Exists) => at += 1,
                Some(PutStop::Gone) if run == 1 => break,
                Some(PutStop::Gone) => wish = run as u64 / 2,
                Some(PutStop::Again) => {
                    tries += 1;
                    std::thread::yield_now();
                }
            }
        }
        done
    }
}
