//! One `mremap` of several mappings, which would be one without Clew.
//!
//! Registered memory and what was mapped beside it since are two mappings to the kernel, and remain so once both were
//! touched. It refuses to make two larger, or to move two of which one is registered; those before that one it
//! has moved by then (since Linux 6.17). So this object stands in for `mremap`, and does such a call mapping by mapping. It runs
//! in the program's own thread, perhaps in a signal handler, and so does nothing but raw system calls. A program
//! that makes its system calls itself goes past it, and so does the C library's `realloc`, which copies where it is refused.

use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed};

use crate::home::NOTHING;
use crate::kept::MAY_BE_REGISTERED;
use crate::libc_errno::{self, as_libc};
use crate::sys::{errno, nr, syscall6};

const MAYMOVE: i32 = 1;
const FIXED: i32 = 2;
const PAGE: usize = 4096;
/// The end of the addresses that a program has unless it asks for more.
const END: usize = (1 << 47) - PAGE;
/// As many bytes: no mapping that begins before the end has room for these, and the kernel looks at nothing that is longer.
const TOO_MANY_BYTES: usize = END;
/// How often a mapping that is no longer one is looked at again.
const MOST_TRIES: u32 = 100;

/// The `mremap` that this object stands in for; 0 if there is none.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Called when the object is loaded.
#[cfg(clew_preload)]
pub fn find_next() {
    NEXT.store(crate::preload::next(c"mremap"), Relaxed);
}

/// What a program wants to move, or to make larger: whole pages, and `to` where the flags say so.
#[derive(Clone, Copy)]
struct Call {
    from: usize,
    before: usize,
    after: usize,
    flags: i32,
    to: usize,
}

/// `mremap` for the program.
///
/// # Safety
/// As mremap(2).
pub unsafe extern "C" fn stand_in(
    from: usize,
    before: usize,
    after: usize,
    flags: i32,
    to: usize,
) -> isize {
    let call = Call { from, before, after, flags, to };
    // Refused when half of it has moved: what is not one mapping is not tried as one.
    let is_moved_alone = flags == MAYMOVE | FIXED && before == after;
    // SAFETY: the program's own call.
    unsafe {
        if is_moved_alone {
            return in_parts(call).map_or_else(|| call.of_the_library(), as_libc);
        }
        let done = call.of_the_library();
        let is = |error: isize| libc_errno::get().is_some_and(|is| is as isize == error);
        if done == -1 && is(errno::EFAULT) {
            return in_parts(call).map_or(done, as_libc);
        }
        done
    }
}

/// Does a call mapping by mapping, as the kernel does it for one. None where it is of one, or
/// of none, or not of this kind: nothing was done then.
///
/// # Safety
/// As mremap(2).
unsafe fn in_parts(call: Call) -> Option<isize> {
    let Call { from, before, after, flags, to } = call.in_pages()?;
    if !MAY_BE_REGISTERED.load(Acquire) || after < before || !are_several(from, before) {
        return None;
    }
    let is_fixed = match flags {
        0 | MAYMOVE => false,
        // The kernel says what is wrong.
        _ if to % PAGE != 0 || (to < from + before && from < to.checked_add(after)?) => {
            return None;
        }
        _ => true,
    };
    // The last of them begins there.
    let mut last = (from, in_one_mapping(from, before));
    while last.1 > 0 && last.0 + last.1 < from + before {
        let at = last.0 + last.1;
        last = (at, in_one_mapping(at, from + before - at));
    }
    if last.1 == 0 {
        return None;
    }
    let larger = last.1 + (after - before);
    // SAFETY: of mappings of the program's own, which asks for it.
    unsafe {
        if !is_fixed && call_kernel(last.0, last.1, larger, 0, 0) >= 0 {
            return Some(from as isize);
        }
        if flags == 0 {
            return Some(-errno::ENOMEM);
        }
        let to = if is_fixed { to } else { reserve(after) };
        if is_error(to as isize) {
            return Some(to as isize);
        }
        // First what may be refused: what is not to become larger needs nothing.
        let done = call_kernel(last.0, last.1, larger, MAYMOVE | FIXED, to + (last.0 - from));
        if is_error(done) {
            if !is_fixed {
                syscall6(nr::MUNMAP, to, after, 0, 0, 0, 0);
            }
            return Some(done);
        }
        let is_moved = move_as_it_is(from, last.0 - from, to);
        Some(if is_error(is_moved) { is_moved } else { to as isize })
    }
}

/// Moves what lies there, in whatever mappings; 0, or what the kernel refused of it.
///
/// # Safety
/// It is the caller's, and what is at `to` too.
unsafe fn move_as_it_is(from: usize, bytes: usize, to: usize) -> isize {
    let (mut done, mut tries) = (0, 0);
    while done < bytes {
        let part = in_one_mapping(from + done, bytes - done);
        // SAFETY: as the caller says.
        let moved = unsafe { call_kernel(from + done, part, part, MAYMOVE | FIXED, to + done) };
        match moved {
            // It has just been registered, in part.
            moved if moved == -errno::EFAULT && tries < MOST_TRIES => tries += 1,
            moved if is_error(moved) => return moved,
            _ => done += part,
        }
    }
    0
}

/// How much from an address on is within one mapping, so many bytes at most; 0 if nothing is there.
fn in_one_mapping(from: usize, most: usize) -> usize {
    if !are_several(from, most) {
        return most;
    }
    let (mut fits, mut too_many) = (0, most / PAGE);
    while too_many - fits > 1 {
        let half = fits.midpoint(too_many);
        match are_several(from, half * PAGE) {
            true => too_many = half,
            false => fits = half,
        }
    }
    fits * PAGE
}

/// Whether that is not within one mapping, as the kernel says to who would have it grow to what is impossible.
fn are_several(from: usize, bytes: usize) -> bool {
    // SAFETY: nothing can be so large where it is, whatever is behind it, and nothing may be moved.
    unsafe { call_kernel(from, bytes, TOO_MANY_BYTES, 0, 0) == -errno::EFAULT }
}

/// Addresses that nobody else gets, or an error.
fn reserve(bytes: usize) -> usize {
    // SAFETY: it comes to where nothing is.
    unsafe { syscall6(nr::MMAP, 0, bytes, 0, NOTHING, usize::MAX, 0) as usize }
}

fn is_error(result: isize) -> bool {
    (-4095..0).contains(&result)
}

/// # Safety
/// As mremap(2).
unsafe fn call_kernel(from: usize, before: usize, after: usize, flags: i32, to: usize) -> isize {
    // SAFETY: as the caller says.
    unsafe { syscall6(nr::MREMAP, from, before, after, flags as usize, to, 0) }
}

impl Call {
    /// As the kernel reads it; None where it has no sense.
    fn in_pages(self) -> Option<Call> {
        let before = self.before.checked_next_multiple_of(PAGE)?;
        let after = self.after.checked_next_multiple_of(PAGE)?;
        let is_known = [0, MAYMOVE, MAYMOVE | FIXED].contains(&self.flags);
        let is_memory = self.from.is_multiple_of(PAGE)
            && before > 0
            && self.from > 0
            && self.from.checked_add(before).is_some_and(|end| end <= END)
            && after < TOO_MANY_BYTES;
        (is_known && is_memory).then_some(Call { before, after, ..self })
    }

    /// By the `mremap` that this object stands in for.
    ///
    /// # Safety
    /// As mremap(2).
    unsafe fn of_the_library(self) -> isize {
        type Mremap = unsafe extern "C" fn(usize, usize, usize, i32, ...) -> isize;
        let Call { from, before, after, flags, to } = self;
        let next = NEXT.load(Relaxed);
        if next != 0 {
            // SAFETY: what was found under this name is this function.
            return unsafe {
                core::mem::transmute::<usize, Mremap>(next)(from, before, after, flags, to)
            };
        }
        // SAFETY: as the caller says.
        as_libc(unsafe { call_kernel(from, before, after, flags, to) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: usize = 12;
    const READ_WRITE: usize = 3;
    const READ: usize = 1;
    const NOREPLACE: usize = 0x10_0000;
    const MINCORE: usize = 27;

    /// Pages that hold their numbers in three mappings of four, which nobody may write in the middle.
    fn three() -> usize {
        let from = reserve(PAGES * PAGE);
        // SAFETY: of mappings that nobody else knows.
        let protect = |from: usize, pages: usize, how: usize| unsafe {
            syscall6(nr::MPROTECT, from, pages * PAGE, how, 0, 0, 0)
        };
        assert_eq!(protect(from, PAGES, READ_WRITE), 0);
        for page in 0..PAGES {
            // SAFETY: it is mapped, and nobody else knows it.
            unsafe { ((from + page * PAGE) as *mut u64).write(page as u64 + 1) };
        }
        assert_eq!(protect(from + 4 * PAGE, 4, READ), 0);
        from
    }

    fn holds(at: usize, pages: std::ops::Range<usize>) {
        for (i, page) in pages.enumerate() {
            // SAFETY: the pages are mapped.
            let found = unsafe { ((at + i * PAGE) as *const u64).read() };
            assert_eq!(found, page as u64 + 1, "page {page}");
        }
    }

    fn is_mapped(at: usize) -> bool {
        let mut there = 0u8;
        // SAFETY: `there` is one byte for one page.
        unsafe { syscall6(MINCORE, at, PAGE, &raw mut there as usize, 0, 0, 0) == 0 }
    }

    fn called(from: usize, before: usize, after: usize, flags: i32, to: usize) -> Option<isize> {
        MAY_BE_REGISTERED.store(true, Relaxed);
        let (before, after) = (before * PAGE, after * PAGE);
        // SAFETY: of mappings of the test's own.
        unsafe { in_parts(Call { from, before, after, flags, to }) }
    }

    #[test]
    fn several_mappings_become_larger_elsewhere() {
        let from = three();
        let end = from + PAGES * PAGE;
        // What comes behind them leaves no room.
        // SAFETY: it replaces nothing.
        let wall = unsafe { syscall6(nr::MMAP, end, PAGE, 0, NOTHING | NOREPLACE, usize::MAX, 0) }
            as usize;
        assert!(wall == end || wall as isize == -errno::EEXIST, "{wall:#x}");
        assert_eq!(called(from, PAGES, PAGES + 3, 0, 0), Some(-errno::ENOMEM));
        holds(from, 0..PAGES);
        let to = called(from, PAGES, PAGES + 3, MAYMOVE, 0).expect("several") as usize;
        assert_ne!(to, from);
        holds(to, 0..PAGES);
        // SAFETY: what is new may be written, as the last mapping may.
        unsafe { ((to + (PAGES + 2) * PAGE) as *mut u64).write(7) };
        let middle = three();
        // From within the first to within the last.
        let to = called(middle + PAGE, 10, 10, MAYMOVE | FIXED, to).expect("several") as usize;
        holds(to, 1..11);
        assert!(is_mapped(middle) && is_mapped(middle + 11 * PAGE));
    }

    /// As a heap of a program that is not loaded anywhere: below almost all addresses, which nobody has, and which cost
    /// nothing.
    #[test]
    fn who_is_asked_about_does_not_grow() {
        let at = 1usize << 32;
        // SAFETY: it replaces nothing.
        let from = unsafe {
            let flags = NOTHING | NOREPLACE;
            syscall6(nr::MMAP, at, 4 * PAGE, READ_WRITE, flags, usize::MAX, 0)
        };
        assert_eq!(from, at as isize, "somebody has it");
        assert!(!are_several(at, 4 * PAGE) && !are_several(at + PAGE, 2 * PAGE));
        assert!(are_several(at, 5 * PAGE));
        assert!(
            is_mapped(at + 3 * PAGE) && !is_mapped(at + 4 * PAGE) && !is_mapped(at + (1 << 40))
        );
    }

    #[test]
    fn what_is_one_mapping_or_none_is_the_kernels() {
        let from = three();
        assert_eq!(called(from, 4, 8, MAYMOVE, 0), None, "one mapping");
        assert_eq!(
            called(from + PAGE, 2, 2, MAYMOVE | FIXED, from + 8 * PAGE),
            None,
            "one mapping"
        );
        assert_eq!(called(from, PAGES, 4, MAYMOVE, 0), None, "smaller");
        assert_eq!(called(from + 1, PAGES, PAGES, MAYMOVE, 0), None, "no page");
        assert_eq!(called(from, PAGES, PAGES, MAYMOVE | FIXED, from + PAGE), None, "over itself");
        assert_eq!(called(from, PAGES, PAGES, MAYMOVE | FIXED, 77), None, "no page");
        // SAFETY: nobody else knows it.
        let hole = unsafe { syscall6(nr::MUNMAP, from + 6 * PAGE, PAGE, 0, 0, 0, 0) };
        assert_eq!(hole, 0);
        assert_eq!(called(from, PAGES, PAGES + 1, MAYMOVE, 0), None, "a hole");
        holds(from, 0..6);
    }
}
