//! What one of the program's threads has to ask the daemon is asked by another one, which has no descriptor of the
//! program's: to whatever number a socket had in the program's table, another thread of it could put something of its
//! own (dup2), and close it, at any time.
//!
//! That thread is on the stack of who waits for it, who takes no signal meanwhile: a handler that never returns
//! (longjmp) would take its stack away.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering::Acquire};

use crate::serve::pause;
use crate::sys::{exit_thread, nr, spawn_thread, syscall4};

const SIG_SETMASK: usize = 2;
/// Between two looks at whether it is gone, which is a moment after it has ended.
const PAUSE_NANOSECONDS: i64 = 20_000;

#[repr(align(16))]
#[allow(dead_code)]
struct Stack([u8; 8 << 10]);

/// What is done, and whether it was.
struct Task<'a> {
    work: &'a mut dyn FnMut(),
    is_done: bool,
}

/// Does `work` where there is no descriptor but what it opens. False if that cannot be: then nothing was done.
pub(crate) fn apart(work: &mut dyn FnMut()) -> bool {
    let mut task = Task { work, is_done: false };
    let mut stack = MaybeUninit::<Stack>::uninit();
    let thread = AtomicU32::new(0);
    let all: u64 = !0;
    let mut before: u64 = 0;
    // SAFETY: all that is pointed to lives until the thread has ended, which is waited for; nobody else uses the stack,
    // and no handler runs here meanwhile.
    unsafe {
        let to = &raw mut before as usize;
        syscall4(nr::RT_SIGPROCMASK, SIG_SETMASK, &raw const all as usize, to, 8);
        let top = stack.as_mut_ptr() as usize + size_of::<Stack>();
        let number = spawn_thread(top, thread.as_ptr(), begin, &raw mut task as usize);
        if number > 0 {
            wait_for(&thread, number as usize);
        }
        syscall4(nr::RT_SIGPROCMASK, SIG_SETMASK, &raw const before as usize, 0, 8);
    }
    task.is_done
}

/// # Safety
/// `task` is the address of a [`Task`] that lives as long as this thread.
unsafe extern "C" fn begin(task: usize) -> ! {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    // SAFETY: as the caller says; who waits does not look at it before.
    let task = unsafe { &mut *(task as *mut Task<'_>) };
    // SAFETY: takes no pointers. An own table, in which nothing is.
    let is_apart =
        unsafe { syscall4(nr::CLOSE_RANGE, 0, u32::MAX as usize, CLOSE_RANGE_UNSHARE, 0) == 0 };
    if is_apart {
        (task.work)();
        task.is_done = true;
    }
    exit_thread()
}

/// Waits until this thread has ended, and is counted no more.
fn wait_for(thread: &AtomicU32, number: usize) {
    const FUTEX_WAIT: usize = 0;
    loop {
        let now = thread.load(Acquire);
        if now == 0 {
            break;
        }
        // SAFETY: the word's address, which lives.
        unsafe { syscall4(nr::FUTEX, thread.as_ptr() as usize, FUTEX_WAIT, now as usize, 0) };
    }
    // SAFETY: takes no pointers, and sends nothing.
    while unsafe { syscall4(nr::TGKILL, syscall4(nr::GETPID, 0, 0, 0, 0) as usize, number, 0, 0) }
        == 0
    {
        pause(PAUSE_NANOSECONDS);
    }
}
