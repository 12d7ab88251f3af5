//! A move that makes locked memory larger (`mremap` of what is mlocked, `realloc` under `mlockall`). The kernel fills
//! what was added before it tells of the move, and as long as that is untold it takes no page from us: program and
//! fault thread would wait for each other for ever. What was added holds nothing that could be lost, and locked memory stays
//! in its program: each page that the thread asks for inside its call is unregistered, and the kernel fills it itself.
//!
//! The thread cannot ask for anything else there: a move itself touches no page. Others may, of what was moved, and
//! their faults look the same; so which thread it is decides, and what call it is in.

use std::time::{Duration, Instant};

use clew_core::Vpn;

use crate::programs::mappings::{Call, call_of_thread};
use crate::programs::process::Process;
use crate::programs::regions::cut;

/// How long a fault that no page can be put for is taken for one that waits for an event on its way.
const PATIENCE: Duration = Duration::from_millis(20);
/// Who is not heard of for so long is no longer looked at.
const QUIET: Duration = Duration::from_millis(100);

/// The thread whose faults could not be answered.
#[derive(Clone, Copy, Debug)]
pub struct Stuck {
    thread: u32,
    since: Instant,
    last: Instant,
}

impl Stuck {
    /// The same with one more fault at `now`; whether it is time to look what its thread does. Of another thread only
    /// when this one has not been heard of for a while.
    fn again(this: Option<Stuck>, thread: u32, now: Instant) -> (Option<Stuck>, bool) {
        match this {
            Some(stuck) if stuck.thread == thread && now - stuck.last < QUIET => {
                (Some(Stuck { last: now, ..stuck }), now - stuck.since >= PATIENCE)
            }
            Some(stuck) if now - stuck.last < QUIET => (Some(stuck), false),
            _ => (Some(Stuck { thread, since: now, last: now }), false),
        }
    }
}

/// A fault of `thread` cannot be answered, as the kernel takes no page while the program's mappings change. Whether
/// its page was left to the kernel, so that the thread goes on.
pub fn is_left_to_the_kernel(process: &Process, vpn: Vpn, thread: u32, page_bytes: u64) -> bool {
    let mut stuck = process.stuck.lock();
    let (now, is_time) = Stuck::again(*stuck, thread, Instant::now());
    *stuck = now;
    if !is_time {
        return false;
    }
    let addr = vpn.addr(page_bytes);
    match call_of_thread(process.pid(), thread) {
        Some(Call { number: libc::SYS_mremap, arguments: [_, before, after, ..] })
            if after > before => {}
        // Another's turn.
        Some(_) => {
            *stuck = None;
            return false;
        }
        // It runs, or cannot be looked at.
        None => return false,
    }
    if process.memory.uffd.unregister(addr, page_bytes).is_err() {
        return false;
    }
    cut(&mut process.regions.lock(), addr, addr + page_bytes);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stuck_for_long_is_looked_at_and_others_when_he_is_gone() {
        let begin = Instant::now();
        let ms = |ms| begin + Duration::from_millis(ms);
        let (stuck, is_time) = Stuck::again(None, 7, ms(0));
        assert!(!is_time);
        let (stuck, is_time) = Stuck::again(stuck, 7, ms(19));
        assert!(!is_time);
        let (stuck, is_time) = Stuck::again(stuck, 8, ms(30));
        assert!(!is_time && stuck.is_some_and(|stuck| stuck.thread == 7));
        let (stuck, is_time) = Stuck::again(stuck, 7, ms(31));
        assert!(is_time);
        let (stuck, is_time) = Stuck::again(stuck, 8, ms(200));
        assert!(!is_time && stuck.is_some_and(|stuck| stuck.thread == 8));
        assert!(Stuck::again(stuck, 8, ms(221)).1);
        assert!(!Stuck::again(stuck, 8, ms(500)).1, "that was another time");
    }
}
