//! Pages that the kernel reads and writes when a thread has ended.
//!
//! A thread tells the kernel where the list of the robust mutexes is that it has locked; where the thread
//! ends, the kernel walks it, and who waits for one of them is told (EOWNERDEAD). The thread has no user
//! then who could wait for a page: what is missing is passed over in silence. So the page with the list's
//! head stays. The C libraries have it in what they know of the thread, beside the word that the kernel
//! clears for who joins it, at the upper end of its stack: often far from what it last used.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use clew_core::Vpn;
use parking_lot::Mutex;

/// Asking takes a microsecond a thread, with events held. What was heard is believed for so many times as
/// long as it took: a thread that has just begun uses its page.
const BELIEVED: u32 = 16;

/// Bytes of a list's head (`struct robust_list_head`), which may lie in two pages.
const HEAD_BYTES: u64 = 24;

/// Where the lists of one program's threads begin.
#[derive(Default)]
pub struct RobustLists {
    pid: AtomicU32,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    /// Ascending.
    pages: Vec<Vpn>,
    until: Option<Instant>,
}

impl RobustLists {
    /// Says which process it is; 0 is none.
    pub fn of(&self, pid: u32) {
        self.pid.store(pid, Ordering::Relaxed);
    }

    /// Those of `vpns` (ascending) that are such pages, ascending.
    pub fn among(&self, vpns: &[Vpn], page_bytes: u64) -> Vec<Vpn> {
        let mut heard = self.heard.lock();
        let began = Instant::now();
        if heard.until.is_none_or(|until| until < began) {
            heard.pages = pages(self.pid.load(Ordering::Relaxed), page_bytes);
            heard.until = Some(began + began.elapsed() * BELIEVED);
        }
        let is_wanted = |page: &&Vpn| vpns.binary_search(page).is_ok();
        heard.pages.iter().filter(is_wanted).copied().collect()
    }
}

/// The pages with the heads of the lists of all threads of `pid`, ascending. None where the kernel does
/// not say.
fn pages(pid: u32, page_bytes: u64) -> Vec<Vpn> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = tasks.into_iter().flatten().flatten();
    let threads = threads.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
    let mut pages: Vec<Vpn> = threads
        .filter_map(head)
        .flat_map(|head| [head, head.saturating_add(HEAD_BYTES - 1)])
        .map(|address| Vpn::of_addr(address, page_bytes))
        .collect();
    pages.sort_unstable();
    pages.dedup();
    pages
}

/// The address of the head of a thread's list, if it has told the kernel of one.
fn head(thread: i32) -> Option<u64> {
    let (mut head, mut bytes) = (0u64, 0usize);
    // SAFETY: both numbers outlive the call, and are as large as the kernel writes them.
    let done = unsafe {
        let (head, bytes) = (&raw mut head, &raw mut bytes);
        libc::syscall(libc::SYS_get_robust_list, thread, head, bytes)
    };
    (done == 0 && head != 0).then_some(head)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn own_page() -> Vpn {
        // SAFETY: takes no pointers.
        let head = head(unsafe { libc::gettid() }).expect("the C library has told of one");
        Vpn::of_addr(head, 4096)
    }

    #[test]
    fn the_heads_of_all_threads_are_found() {
        assert!(pages(0, 4096).is_empty(), "of nobody");
        let (began, asked) = (Barrier::new(3), Barrier::new(3));
        let other = || {
            began.wait();
            asked.wait();
            own_page()
        };
        std::thread::scope(|scope| {
            let others = [scope.spawn(other), scope.spawn(other)];
            began.wait();
            let found = pages(std::process::id(), 4096);
            asked.wait();
            let wanted = others.map(|other| other.join().expect("it ends"));
            for page in [own_page()].iter().chain(&wanted) {
                assert!(found.contains(page), "{page:?} is not in {found:?}");
            }
        });
    }
}
