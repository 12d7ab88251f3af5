//! The C library's `errno` of the calling thread, for what stands in for its functions.

/// What the C library makes of a system call's result.
pub(crate) fn as_libc(result: isize) -> isize {
    const MOST: isize = 4095;
    if !(-MOST..0).contains(&result) {
        return result;
    }
    set(-result as i32);
    -1
}

/// The number; `None` where there is none.
#[cfg(clew_preload)]
pub(crate) fn get() -> Option<i32> {
    // SAFETY: the calling thread's own number.
    crate::preload::errno().map(|at| unsafe { *at })
}

#[cfg(clew_preload)]
fn set(error: i32) {
    if let Some(at) = crate::preload::errno() {
        // SAFETY: the calling thread's own number.
        unsafe { *at = error };
    }
}

// As a library, these are never called.
#[cfg(not(clew_preload))]
pub(crate) fn get() -> Option<i32> {
    None
}

#[cfg(not(clew_preload))]
fn set(_: i32) {}
