//! Memory that nobody has touched is zeros to its program, and an error to who reads it from outside
//! (`/proc/PID/mem`: a debugger, a core dump), as whatever is not there. Zeros are put there for those: the page that
//! all zeros share, which takes no memory, so nobody need know of it. When its program writes there it finds a page of its own, as
//! natively, and the next look for new memory finds that.

use clew_core::Vpn;
use clew_store::Entry;

use super::{BlockStore, Mover};
use crate::space::{ManagedSpace, Memory, PutStop};

/// Pages that are put at once: who reads what the kernel has to tell waits for it.
const RUN: u64 = 64;

/// How often it is tried while the kernel has something to tell that nobody has read yet.
const TRIES: u32 = 1000;

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Has zeros be wherever nothing is known to be among so many pages from `first`, of the first `most` of them; of how
    /// many. What cannot be put stays as it is.
    pub fn put_untouched(&self, space: &ManagedSpace<M>, first: Vpn, pages: u64, most: u64) -> u64 {
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
            drop(guard);
            let mut passed = put.pages as u64;
            match put.stop {
                None => (tries, wish) = (0, RUN.min(wish * 2)),
                // There is something.
                Some(PutStop::Exists) => passed += 1,
                Some(PutStop::Gone) if run == 1 => break,
                Some(PutStop::Gone) => wish = run as u64 / 2,
                Some(PutStop::Again) => {
                    tries += 1;
                    std::thread::yield_now();
                }
            }
            (at, done) = (at + passed, done + passed);
        }
        done
    }
}
