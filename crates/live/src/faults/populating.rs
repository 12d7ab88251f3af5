//! A move that makes locked memory larger (`mremap` of what is mlocked, `realloc` under `mlockall`). The kernel fills
//! what was added before it tells of the move, and as long as that is untold it takes no page from us: program and
//! fault thread would wait for each other for ever. What was added holds nothing that could be lost, and locked memory stays
//! in its program: each page that the thread asks for inside its call is unregistered, and the kernel fills it itself.
//!
//! The thread cannot ask for anything else there: a move itself touches no page. Others may, of what was moved, and
//! their faults look the same; so which thread it is decides, and what call it is in.

use std::time::Instant;

use clew_core::Vpn;
use clew_store::Entry;

use crate::programs::calls::{Call, call_of_thread};
use crate::programs::process::Process;
use crate::programs::regions::cut;

/// A fault of `thread` cannot be answered, as the kernel takes no page while the program's mappings change. Whether
/// its page was left to the kernel, so that the thread goes on.
pub fn is_left_to_the_kernel(process: &Process, vpn: Vpn, thread: u32, page_bytes: u64) -> bool {
    if !process.memory.uffd.is_changing() || !may_be_new(process.space.table.load(vpn)) {
        return false;
    }
    let mut stuck = process.stuck.lock();
    if !stuck.again(thread, vpn, Instant::now()) {
        return false;
    }
    let addr = vpn.addr(page_bytes);
    match call_of_thread(process.pid(), thread) {
        Some(call) if makes_larger(&call) => {}
        Some(_) => {
            stuck.forget(thread);
            return false;
        }
        // It runs, or cannot be looked at.
        None => return false,
    }
    if process.memory.uffd.unregister(addr, page_bytes).is_err() {
        return false;
    }
    cut(&mut process.regions.lock(), addr, addr + page_bytes);
    stuck.let_through(thread);
    true
}

/// Whether what was added may be there. Of a page that is stored somebody else asks, whatever the call looks like: i386
/// (`int $0x80`) means another one by the same number.
fn may_be_new(entry: Entry) -> bool {
    entry.is_absent()
}

fn makes_larger(call: &Call) -> bool {
    let [_, before, after, ..] = call.arguments;
    call.number == libc::SYS_mremap && after > before
}

#[cfg(test)]
mod tests {
    use clew_store::State;

    use super::*;

    #[test]
    fn only_what_holds_nothing_is_left_to_the_kernel() {
        assert!(may_be_new(Entry::ABSENT));
        let others =
            [State::Resident, State::Stored, State::Moving, State::Restoring, State::Parked];
        for state in others {
            assert!(!may_be_new(Entry::new(state)), "{state:?}");
        }
        let call =
            |number, before, after| Call { number, arguments: [0x7000, before, after, 0, 0, 0] };
        assert!(makes_larger(&call(libc::SYS_mremap, 4096, 8192)));
        assert!(!makes_larger(&call(libc::SYS_mremap, 8192, 4096)));
        assert!(!makes_larger(&call(libc::SYS_mmap, 4096, 8192)));
    }
}
