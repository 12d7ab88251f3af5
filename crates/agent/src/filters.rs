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

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Relaxed};

use crate::libc_errno::as_libc;
use crate::sys::{nr, syscall6};

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
    // SAFETY: takes no pointers.
    PROGRAM.store(unsafe { syscall6(nr::GETPID, 0, 0, 0, 0, 0, 0) } as i32, Relaxed);
}

/// It is not known which process this is, nor what it filters.
pub(crate) fn may_be_installed() {
    INSTALLED.store(true, Relaxed);
}

/// Whether a filter that is installed now is the program's. It is asked before, as it takes a call.
fn is_programs() -> bool {
    let program = PROGRAM.load(Relaxed);
    // SAFETY: takes no pointers.
    program == 0 || unsafe { syscall6(nr::GETPID, 0, 0, 0, 0, 0, 0) } as i32 == program
}

/// `prctl` with [`PR_SET_SECCOMP`], for the program.
///
/// # Safety
/// As prctl(2).
pub unsafe extern "C" fn prctl(option: i32, a: usize, b: usize, c: usize, d: usize) -> i32 {
    let is_programs = !are_installed() && is_programs();
    // SAFETY: the program's own call.
    let done = unsafe { call_prctl(option, a, b, c, d) };
    if done == 0 && is_programs {
        INSTALLED.store(true, Relaxed);
    }
    done
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
    let is_programs = installs && !are_installed() && is_programs();
    // SAFETY: the program's own call.
    let done = unsafe { call_syscall(number, a, b, c, d, e, f) };
    // With a listener it is a descriptor; else a number says which thread could not have the filter.
    let has_listener = number == nr::SECCOMP && b & NEW_LISTENER != 0;
    if is_programs && (done == 0 || done > 0 && has_listener) {
        INSTALLED.store(true, Relaxed);
    }
    done
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
