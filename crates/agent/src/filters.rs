//! A program that filters its own system calls (seccomp) may be killed for a call that it never makes itself, also for the one by
//! which the kernel would say whether there is a filter.
//!
//! So this object stands in for `prctl` and `syscall`, by which programs and libraries install filters, and remembers what
//! they did. It runs in the program's own thread. A program that makes its system calls itself goes past it: it is
//! asked of the kernel ([`crate::kept`]).
//!
//! A filter is a thread's, and its children's. Which thread asks later nobody can say without a call, so one filter is
//! everybody's here: nothing is asked any more, and what would have to be asked is refused. But not that of another process that
//! shares the memory for a while (`vfork`).

use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};

use crate::libc_errno::as_libc;
use crate::sys::{nr, pause, syscall6};

/// Option of prctl(2).
pub const PR_SET_SECCOMP: usize = 22;
/// Of seccomp(2): these and no others install a filter.
const INSTALLING: [usize; 2] = [0, 1];

/// Flag of seccomp(2).
const NEW_LISTENER: usize = 8;

/// The `prctl` that this object stands in for; 0 if there is none.
pub static NEXT_PRCTL: AtomicUsize = AtomicUsize::new(0);
/// The `syscall` that this object stands in for; 0 if there is none.
pub static NEXT_SYSCALL: AtomicUsize = AtomicUsize::new(0);

/// The program has installed a filter.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The program's process id; 0 if that is not known.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// Threads that install a filter: nobody begins to ask, and who asks gives up.
static INSTALLING_NOW: AtomicU32 = AtomicU32::new(0);
/// Threads that ask: who installs a filter, which may be for all threads (TSYNC), waits for their end.
static ASKING: AtomicU32 = AtomicU32::new(0);
/// Between two looks whether they do, and how often it is looked: a child whose fork the C library does not know of has its
/// parent's memory, and not its parent's threads.
const PAUSE_NANOSECONDS: i64 = 200_000;
const MOST_LOOKS: usize = 10_000;

/// This thread asks somebody, by calls that a filter may not know, as long as this lives.
pub(crate) struct Asking(());

impl Asking {
    /// None where a filter is there, or is being installed.
    pub(crate) fn begin() -> Option<Asking> {
        ASKING.fetch_add(1, SeqCst);
        let asking = Asking(());
        (!are_installed() && asking.goes_on()).then_some(asking)
    }

    /// Whether it may go on: nobody waits to install a filter.
    pub(crate) fn goes_on(&self) -> bool {
        INSTALLING_NOW.load(SeqCst) == 0
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.fetch_sub(1, SeqCst);
    }
}

/// Does what installs a filter, with nobody asking meanwhile; whether it did, `done` says.
fn install<T: Copy>(call: impl FnOnce() -> T, done: impl FnOnce(T) -> bool) -> T {
    if are_installed() || !is_programs() {
        return call();
    }
    INSTALLING_NOW.fetch_add(1, SeqCst);
    for _ in 0..MOST_LOOKS {
        if ASKING.load(SeqCst) == 0 {
            break;
        }
        pause(PAUSE_NANOSECONDS);
    }
    let result = call();
    if done(result) {
        INSTALLED.store(true, SeqCst);
    }
    INSTALLING_NOW.fetch_sub(1, SeqCst);
    result
}

/// Called when the object is loaded.
#[cfg(clew_preload)]
pub fn find_next() {
    NEXT_PRCTL.store(crate::preload::next(c"prctl"), Relaxed);
    NEXT_SYSCALL.store(crate::preload::next(c"syscall"), Relaxed);
}

/// Whether the program, or its parent before the fork, is known to have installed a filter.
pub(crate) fn are_installed() -> bool {
    INSTALLED.load(Relaxed)
}

/// This process is the program whose filters are meant, from now on.
pub(crate) fn are_those_of_this_process() {
    PROGRAM.store(own_pid(), Relaxed);
    // It has one thread.
    INSTALLING_NOW.store(0, SeqCst);
    ASKING.store(0, SeqCst);
}

/// It is not known which process this is, nor what it filters.
pub(crate) fn may_be_installed() {
    INSTALLED.store(true, Relaxed);
}

fn own_pid() -> i32 {
    // SAFETY: takes no pointers.
    unsafe { syscall6(nr::GETPID, 0, 0, 0, 0, 0, 0) as i32 }
}

/// Whether a filter that is installed now is the program's. It is asked before, as it takes a call.
fn is_programs() -> bool {
    let program = PROGRAM.load(Relaxed);
    program == 0 || own_pid() == program
}

/// `prctl` with [`PR_SET_SECCOMP`], for the program.
///
/// # Safety
/// As prctl(2).
pub unsafe extern "C" fn prctl(option: i32, a: usize, b: usize, c: usize, d: usize) -> i32 {
    // SAFETY: the program's own call.
    install(|| unsafe { call_prctl(option, a, b, c, d) }, |done| done == 0)
}

/// The `prctl` that this object stands in for.
///
/// # Safety
/// As prctl(2).
pub unsafe extern "C" fn call_prctl(option: i32, a: usize, b: usize, c: usize, d: usize) -> i32 {
    type Prctl = unsafe extern "C" fn(i32, ...) -> i32;
    let next = NEXT_PRCTL.load(Relaxed);
    if next != 0 {
        // SAFETY: what was found under this name is this function.
        return unsafe { core::mem::transmute::<usize, Prctl>(next)(option, a, b, c, d) };
    }
    // SAFETY: as the caller says.
    as_libc(unsafe { syscall6(nr::PRCTL, option as usize, a, b, c, d, 0) }) as i32
}

/// `syscall` with `prctl` or `seccomp`, for the program.
///
/// # Safety
/// As syscall(2).
pub unsafe extern "C" fn syscall(
    number: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let installs = match number {
        nr::SECCOMP => INSTALLING.contains(&(a as u32 as usize)),
        _ => a as u32 as usize == PR_SET_SECCOMP,
    };
    // SAFETY: the program's own call.
    let call = || unsafe { call_syscall(number, a, b, c, d, e, f) };
    // With a listener it is a descriptor; else a number says which thread could not have the filter.
    let has_listener = number == nr::SECCOMP && b & NEW_LISTENER != 0;
    match installs {
        true => install(call, |done| done == 0 || done > 0 && has_listener),
        false => call(),
    }
}

/// The `syscall` that this object stands in for.
///
/// # Safety
/// As syscall(2).
pub unsafe extern "C" fn call_syscall(
    number: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    type Syscall = unsafe extern "C" fn(usize, ...) -> isize;
    let next = NEXT_SYSCALL.load(Relaxed);
    if next != 0 {
        // SAFETY: what was found under this name is this function.
        return unsafe { core::mem::transmute::<usize, Syscall>(next)(number, a, b, c, d, e, f) };
    }
    // SAFETY: as the caller says.
    as_libc(unsafe { syscall6(number, a, b, c, d, e, f) })
}
