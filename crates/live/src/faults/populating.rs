//! A move that makes locked memory larger (`mremap` of what is mlocked, `realloc` under `mlockall`). The kernel fills
//! what was added before it tells of the move, and as long as that is untold it takes no page from us: program and
//! fault thread would wait for each other for ever. What was added holds nothing that could be lost, and locked memory stays
//! in its program: each page that the thread asks for inside its call is unregistered, and the kernel fills it itself.
//!
//! The thread cannot ask for anything else there: a move itself touches no page. Others may, of what was moved, and
//! their faults look the same; so which thread it is decides, and what call it is in.

use std::time::Instant;

use clew_core::Vpn;

use crate::faults::stuck::Stuck;
use crate::programs::calls::{Call, call_of_thread};
use crate::programs::process::Process;
use crate::programs::regions::cut;

/// A fault of `thread` cannot be answered, as the kernel takes no page while the program's mappings change. Whether
/// its page was left to the kernel, so that the thread goes on.
pub fn is_left_to_the_kernel(process: &Process, vpn: Vpn, thread: u32, page_bytes: u64) -> bool {
    if !process.memory.uffd.is_changing() {
        return false;
    }
    let mut stuck = process.stuck.lock();
    let (now, is_time) = Stuck::again(*stuck, thread, vpn, Instant::now());
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
    *stuck = stuck.map(Stuck::let_through);
    true
}
