//! Pages that the kernel reads and writes when a thread has ended.
//!
//! A thread tells the kernel where the list of the robust mutexes is that it has locked; where the thread
//! ends, the kernel walks it, and who waits for one of them is told (EOWNERDEAD). The thread has no user
//! then who could wait for a page: where one is missing it stops in silence, and who waits for what comes behind, perhaps
//! in another program, is never told. So the pages with the list's head and with what is on it stay. The C libraries have it in what they know of the thread, beside the word that the kernel
//! clears for who joins it, at the upper end of its stack: often far from what it last used.
//!
//! The list lies in the program's memory, and may be anything. It is read as `/proc/PID/mem`, where what is stored is an
//! error and nobody's wait: what is on the list was written when it was locked, and has stayed since.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use clew_core::Vpn;
use parking_lot::Mutex;

use super::mem_file::MemFile;

/// Asking takes a microsecond a thread, with events held. What was heard is believed for so many times as
/// long as it took: a thread that has just begun uses its page.
const BELIEVED: u32 = 16;

/// Bytes of a list's head (`struct robust_list_head`), which may lie in two pages.
const HEAD_BYTES: u64 = 24;
/// What the kernel walks of one list (ROBUST_LIST_LIMIT), and addresses that are read here of all of them: three for each
/// mutex. Of a program that has more locked nothing leaves.
const LIST: usize = 2048;
const LISTS: usize = 16 * LIST;

/// Where the lists of one program's threads begin.
#[derive(Default)]
pub struct RobustLists {
    pid: AtomicU32,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    /// Where the lists begin.
    heads: Vec<u64>,
    /// Ascending; `None` if there are too many.
    pages: Option<Vec<Vpn>>,
    until: Option<Instant>,
}

impl RobustLists {
    /// Says which process it is; 0 is none.
    pub fn of(&self, pid: u32) {
        self.pid.store(pid, Ordering::Relaxed);
    }

    /// Those of `vpns` (ascending) that are such pages, ascending. `mem` is the program's; without it, only heads are
    /// known.
    pub fn among(&self, vpns: &[Vpn], page_bytes: u64, mem: Option<&MemFile>) -> Vec<Vpn> {
        let mut heard = self.heard.lock();
        let began = Instant::now();
        if heard.until.is_none_or(|until| until < began) {
            heard.heads = heads(self.pid.load(Ordering::Relaxed));
            heard.pages = pages(&heard.heads, page_bytes, mem, &|address| address);
            heard.until = Some(began + began.elapsed() * BELIEVED);
        }
        these(vpns, heard.pages.as_deref())
    }

    /// The same, asked anew when these pages may have left; `moved` says where what was at an address is now. What was
    /// locked meanwhile is known, but for threads that have begun since it was heard where lists begin.
    pub fn among_left(
        &self,
        vpns: &[Vpn],
        page_bytes: u64,
        mem: Option<&MemFile>,
        moved: impl Fn(u64) -> u64,
    ) -> Vec<Vpn> {
        if vpns.is_empty() {
            return Vec::new();
        }
        let heard = self.heard.lock();
        these(vpns, pages(&heard.heads, page_bytes, mem, &moved).as_deref())
    }
}

/// Those of `vpns` that are among `pages`, all of which are ascending; all where there are too many to say.
fn these(vpns: &[Vpn], pages: Option<&[Vpn]>) -> Vec<Vpn> {
    let is_one = |page: &&Vpn| vpns.binary_search(page).is_ok();
    pages.map_or_else(|| vpns.to_vec(), |pages| pages.iter().filter(is_one).copied().collect())
}

/// Where the lists of all threads of `pid` begin, as far as the kernel says.
fn heads(pid: u32) -> Vec<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = tasks.into_iter().flatten().flatten();
    let threads = threads.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
    threads.filter_map(head).collect()
}

/// The pages with these lists, ascending; `None` if there are too many. `moved` says where what was at an address is now.
fn pages(
    heads: &[u64],
    page_bytes: u64,
    mem: Option<&MemFile>,
    moved: &dyn Fn(u64) -> u64,
) -> Option<Vec<Vpn>> {
    let mut addresses = Vec::new();
    for head in heads {
        addresses.extend([*head, head.saturating_add(HEAD_BYTES - 1)]);
        if let Some(mem) = mem {
            follow(mem, *head, moved, &mut addresses);
        }
        if addresses.len() > LISTS {
            return None;
        }
    }
    let mut pages: Vec<Vpn> =
        addresses.into_iter().map(|address| Vpn::of_addr(address, page_bytes)).collect();
    pages.sort_unstable();
    pages.dedup();
    Some(pages)
}

/// Appends where what is on a list lies, and the words that are cleared, as far as the list can be read.
fn follow(mem: &MemFile, head: u64, moved: &dyn Fn(u64) -> u64, addresses: &mut Vec<u64>) {
    let word = |address: u64| {
        let mut word = [0; 8];
        // One that lies in two pages, only one of which has moved, is none that a C library has made.
        mem.read(&mut word, moved(address)).ok().map(|()| u64::from_ne_bytes(word))
    };
    let read = (word(head), word(head.wrapping_add(8)), word(head.wrapping_add(16)));
    let (Some(mut next), Some(offset), Some(pending)) = read else { return };
    // The lowest bit says of which kind it is.
    let mut note = |entry: u64| {
        let entry = entry & !1;
        addresses.extend([entry, entry.wrapping_add(7), entry.wrapping_add(offset)]);
        entry
    };
    if pending != 0 {
        note(pending);
    }
    for _ in 0..LIST {
        if next & !1 == head || next == 0 {
            return;
        }
        let Some(behind) = word(note(next)) else { return };
        next = behind;
    }
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
    use std::fs::File;
    use std::sync::Barrier;

    use super::*;

    fn own_page() -> Vpn {
        // SAFETY: takes no pointers.
        let head = head(unsafe { libc::gettid() }).expect("the C library has told of one");
        Vpn::of_addr(head, 4096)
    }

    #[test]
    fn the_heads_of_all_threads_are_found() {
        assert!(heads(0).is_empty(), "of nobody");
        let (began, asked) = (Barrier::new(3), Barrier::new(3));
        let other = || {
            began.wait();
            asked.wait();
            own_page()
        };
        std::thread::scope(|scope| {
            let others = [scope.spawn(other), scope.spawn(other)];
            began.wait();
            let found = pages(&heads(std::process::id()), 4096, None, &|address| address);
            asked.wait();
            let found = found.expect("they are not too many");
            let wanted = others.map(|other| other.join().expect("it ends"));
            for page in [own_page()].iter().chain(&wanted) {
                assert!(found.contains(page), "{page:?} is not in {found:?}");
            }
        });
    }

    /// Says that its list is that one, until `asked`; a thread's own comes back then.
    fn pretend(list: &[u64; 3], began: &Barrier, asked: &Barrier) {
        // SAFETY: takes no pointers.
        let own = head(unsafe { libc::gettid() }).expect("the C library has told of one");
        let tell = |at: u64| {
            // SAFETY: what is there outlives the thread, or was told by the C library.
            let done = unsafe { libc::syscall(libc::SYS_set_robust_list, at, HEAD_BYTES) };
            assert_eq!(done, 0);
        };
        tell(list.as_ptr() as u64);
        began.wait();
        asked.wait();
        tell(own);
    }

    #[test]
    fn of_a_program_that_has_locked_too_much_everything_stays() {
        let mem = MemFile::from(File::open("/proc/self/mem").expect("our own"));
        const THREADS: usize = LISTS / (3 * LIST) + 1;
        // A list without an end.
        let mut entry = [0u64; 1024];
        entry[0] = entry.as_ptr() as u64;
        let list = [entry[0], 16, 0];
        let (began, asked) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        let found = std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| pretend(&list, &began, &asked));
            }
            began.wait();
            let own = RobustLists::default();
            own.of(std::process::id());
            let found = own.among(&[Vpn(1), Vpn(2)], 4096, Some(&mem));
            asked.wait();
            found
        });
        std::hint::black_box(&entry);
        assert_eq!(found, [Vpn(1), Vpn(2)]);
    }

    /// As the C libraries lay them out: each entry begins with the address of the next one.
    #[test]
    fn what_is_on_a_list_is_found_however_long_it_says_that_it_is() {
        let mem = MemFile::from(File::open("/proc/self/mem").expect("our own"));
        let mut entries = vec![[0u64; 1024]; 4];
        let at: Vec<u64> = entries.iter().map(|entry| entry.as_ptr() as u64).collect();
        let mut head = [at[0], 16u64, at[3]];
        let head_at = head.as_ptr() as u64;
        (entries[0][0], entries[1][0], entries[2][0]) = (at[1] | 1, at[2], head_at);
        let found = |head_at| {
            let mut addresses = Vec::new();
            follow(&mem, head_at, &|address| address, &mut addresses);
            addresses
        };
        let all = found(head_at);
        for wanted in at.iter().flat_map(|entry| [*entry, entry + 16]) {
            assert!(all.contains(&wanted), "{wanted:x} is not in {all:x?}");
        }
        assert_eq!(all.len(), 4 * 3);
        // It never ends, or leads to nowhere.
        entries[2][0] = at[0];
        assert!(found(head_at).len() <= (LIST + 1) * 3);
        entries[1][0] = 8;
        assert_eq!(found(head_at).len(), 4 * 3);
        head[0] = 0;
        std::hint::black_box((&entries, &head));
        assert_eq!(found(head_at).len(), 3);
        assert!(found(8).is_empty());
    }
}
