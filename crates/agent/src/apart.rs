//! What one of the program's threads has to ask the daemon is asked by another one, which has no descriptor of the
//! program's: to whatever number a socket had in the program's table, another thread of it could put something of its
//! own (dup2), and close it, at any time.
//!
//! That thread is told what to do on the stack of who waits for it, who takes no signal meanwhile: a handler that never
//! returns (longjmp) would take that away. Its own stack is another one, as a program's may be small. It says itself that it
//! is done: what the kernel writes at a thread's end (CLONE_CHILD_CLEARTID) it does not write where the page is stored just
//! then, and a program may have put its stack anywhere in its memory.

use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};

use crate::sys::{
    FUTEX_WAIT, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ_WRITE, SIG_SETMASK, Timespec, exit_thread,
    nr, pause, spawn_thread, syscall4, syscall6,
};

/// Between two looks at whether it is gone, which is a moment after it has ended.
const PAUSE_NANOSECONDS: i64 = 20_000;

const OWN: usize = MAP_PRIVATE | MAP_ANONYMOUS;
/// Of its stack.
const STACK_BYTES: usize = 16 << 10;

/// What is done, and whether it was.
struct Task<'a> {
    work: &'a mut dyn FnMut(),
    is_done: bool,
    /// One when the thread is about to end.
    is_over: AtomicU32,
}

/// Does `work` where there is no descriptor but what it opens. False if that cannot be: then nothing was done.
pub(crate) fn apart(work: &mut dyn FnMut()) -> bool {
    let mut task = Task { work, is_done: false, is_over: AtomicU32::new(0) };
    let all: u64 = !0;
    let mut before: u64 = 0;
    // SAFETY: all that is pointed to lives until the thread has ended, which is waited for; nobody else has the new memory,
    // and no handler runs here meanwhile.
    unsafe {
        let stack = syscall6(nr::MMAP, 0, STACK_BYTES, PROT_READ_WRITE, OWN, usize::MAX, 0);
        if stack < 0 {
            return false;
        }
        let to = &raw mut before as usize;
        syscall4(nr::RT_SIGPROCMASK, SIG_SETMASK, &raw const all as usize, to, 8);
        let top = stack as usize + STACK_BYTES;
        let task = &raw mut task;
        let number = spawn_thread(top, begin, task as usize);
        if number > 0 {
            wait_for(&raw const (*task).is_over, number as usize);
        }
        syscall4(nr::RT_SIGPROCMASK, SIG_SETMASK, &raw const before as usize, 0, 8);
        syscall4(nr::MUNMAP, stack as usize, STACK_BYTES, 0, 0);
    }
    task.is_done
}

/// # Safety
/// `task` is the address of a [`Task`] that lives as long as this thread.
unsafe extern "C" fn begin(task: usize) -> ! {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    // SAFETY: as the caller says; who waits looks at nothing else than `is_over` before that is set.
    unsafe {
        let task = task as *mut Task<'_>;
        // An own table, in which nothing is.
        if syscall4(nr::CLOSE_RANGE, 0, u32::MAX as usize, CLOSE_RANGE_UNSHARE, 0) == 0 {
            ((*task).work)();
            (*task).is_done = true;
        }
        let is_over = &raw const (*task).is_over;
        (*is_over).store(1, Release);
        syscall4(nr::FUTEX, is_over as usize, FUTEX_WAKE, 1, 0);
    }
    exit_thread()
}

const FUTEX_WAKE: usize = 1;

/// Waits until this thread has ended, and is counted no more.
///
/// # Safety
/// `is_over` is set by this thread, and lives until it has ended.
unsafe fn wait_for(is_over: *const AtomicU32, number: usize) {
    // It may also be ended, by a filter of system calls.
    let look_again = Timespec { seconds: 1, nanoseconds: 0 };
    // SAFETY: as the caller says; the rest takes no pointers, and sends nothing.
    unsafe {
        let process = syscall4(nr::GETPID, 0, 0, 0, 0) as usize;
        let is_there = || syscall4(nr::TGKILL, process, number, 0, 0) == 0;
        while (*is_over).load(Acquire) == 0 && is_there() {
            let at_most = &raw const look_again as usize;
            syscall4(nr::FUTEX, is_over as usize, FUTEX_WAIT, 0, at_most);
        }
        while is_there() {
            pause(PAUSE_NANOSECONDS);
        }
    }
}
