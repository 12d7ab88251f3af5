//! Advice after which memory holds something else, and of which the kernel tells no userfaultfd.
//!
//! Guards drop what is there, and memory that is wiped in children is not copied to them: both is true
//! of pages that are in the program, and the daemon knows nothing of it for those that it has stored.
//! So this object stands in for `madvise`. It runs in the program's own thread, perhaps in a signal
//! handler, and so does nothing but raw system calls. A program that makes its system calls itself
//! goes past it.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::kept::MAY_BE_REGISTERED;
use crate::let_go::{self, Answer};
use crate::libc_errno::as_libc;
use crate::sys::{errno, nr, syscall4};

/// Advice of the kernel.
pub const MADV_WIPEONFORK: usize = 18;
/// Advice of the kernel.
pub const MADV_GUARD_INSTALL: usize = 102;
const MADV_DONTNEED: usize = 4;
/// The `madvise` that this object stands in for; 0 if there is none.
pub static NEXT: AtomicUsize = AtomicUsize::new(0);

const PAGE: usize = 4096;

/// Called when the object is loaded.
#[cfg(clew_preload)]
pub fn find_next() {
    NEXT.store(crate::preload::next(c"madvise"), Ordering::Relaxed);
}

/// `madvise` with advice that matters here, for the program.
///
/// # Safety
/// As madvise(2).
pub unsafe extern "C" fn stand_in(address: usize, bytes: usize, advice: usize) -> i32 {
    // SAFETY: the program's own call.
    as_libc(unsafe {
        match advice as u32 as usize {
            MADV_GUARD_INSTALL => install_guards(address, bytes),
            _ => wipe_on_fork(address, bytes),
        }
    }) as i32
}

/// The kernel's `madvise`, where there is no other.
///
/// # Safety
/// As madvise(2).
pub unsafe extern "C" fn call(address: usize, bytes: usize, advice: usize) -> i32 {
    // SAFETY: as the caller says.
    as_libc(unsafe { advise(address, bytes, advice) }) as i32
}

/// # Safety
/// As madvise(2).
unsafe fn advise(address: usize, bytes: usize, advice: usize) -> isize {
    // SAFETY: as the caller says.
    unsafe { syscall4(nr::MADVISE, address, bytes, advice, 0) }
}

/// Guards, and what is stored there is forgotten: MADV_DONTNEED is told to the daemon, and leaves
/// guards where they are. It comes second, so that nothing is dropped where no guard can be, and that
/// nothing comes back in between: who touches a guard has nothing there that could be taken out.
///
/// # Safety
/// As madvise(2).
unsafe fn install_guards(address: usize, bytes: usize) -> isize {
    // The kernel steps over what is not mapped, and says so in the end.
    let is_done = |result: isize| result == 0 || result == -errno::ENOMEM;
    // SAFETY: as the caller says; nothing is dropped but where there are guards.
    let guard = |at: usize, bytes: usize| unsafe {
        let result = advise(at, bytes, MADV_GUARD_INSTALL);
        if is_done(result) {
            advise(at, bytes, MADV_DONTNEED);
        }
        result
    };
    let result = guard(address, bytes);
    let end = bytes.checked_next_multiple_of(PAGE).and_then(|bytes| address.checked_add(bytes));
    let Some(end) = end.filter(|_| !is_done(result)) else { return result };
    // It stopped at a mapping that can have none. Those before have theirs: find where that begins.
    let (mut at, mut part) = (address, end - address);
    while part > PAGE {
        part = (part / 2).next_multiple_of(PAGE).min(end - at);
        if is_done(guard(at, part)) {
            at += part;
        }
    }
    result
}

/// Children find zeros, and the daemon leaves the range alone from now on: what is in its program, and
/// not registered, the kernel wipes. EAGAIN if the daemon cannot be brought to that.
///
/// # Safety
/// As madvise(2).
unsafe fn wipe_on_fork(address: usize, bytes: usize) -> isize {
    // SAFETY: as the caller says. The daemon registers nothing that has this advice already.
    let result = unsafe { advise(address, bytes, MADV_WIPEONFORK) };
    let is_prepared = MAY_BE_REGISTERED.load(Ordering::Acquire);
    let end = bytes.checked_next_multiple_of(PAGE).and_then(|bytes| address.checked_add(bytes));
    let Some(end) = end.filter(|_| result == 0 && is_prepared && bytes > 0) else { return result };
    match let_go::ask(Some([address, end])) {
        Answer::Gone | Answer::Nobody => result,
        Answer::Refused | Answer::Lost => -errno::EAGAIN,
    }
}
