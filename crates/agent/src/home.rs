//! Where an agent's memory lies in its program: in one place, which is taken before the program runs.
//!
//! ```text
//! beacon (a page) | area | buffer | staging, aligned to a huge page
//! ```
//!
//! An agent maps most of it a while after its program has begun, and the kernel would put that where nothing is: also where
//! a program has unmapped something, or has kept it out of its children (MADV_DONTFORK), and knows that it may map there
//! at any time what it likes. So the place is taken in the constructor, and again in each forked child before fork() returns there.
//!
//! All but the beacon is kept out of forked children: who has something of it would have it where its own agent's is to be.

use crate::protocol::{AREA_BYTES, BUFFER_BYTES, SLOTS};
use crate::sys::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ_WRITE, nr, syscall4, syscall6};

const PAGE: usize = 4096;
/// Bytes of the staging area.
pub(crate) const STAGING_BYTES: usize = SLOTS * PAGE;
const BEFORE_STAGING: usize = PAGE + AREA_BYTES + BUFFER_BYTES;

const PROT_NONE: usize = 0;
const MAP_SHARED: usize = 1;
const MAP_FIXED: usize = 0x10;
const MAP_NORESERVE: usize = 0x4000;
const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
const MADV_DONTNEED: usize = 4;
const MADV_DONTFORK: usize = 10;
pub(crate) const NOTHING: usize = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

/// A place that is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    area: usize,
}

impl Home {
    /// Takes a place for this program and its children; `None` if the system gives none.
    pub fn take() -> Option<Home> {
        let bytes = BEFORE_STAGING + 2 * STAGING_BYTES;
        // SAFETY: a fresh mapping; what is unmapped is part of it, and nobody knows of it yet.
        unsafe {
            let wide = syscall6(nr::MMAP, 0, bytes, PROT_NONE, NOTHING, usize::MAX, 0);
            if wide < 0 {
                return None;
            }
            let wide = wide as usize;
            let staging = (wide + BEFORE_STAGING).next_multiple_of(STAGING_BYTES);
            let (begin, end) = (staging - BEFORE_STAGING, staging + STAGING_BYTES);
            if begin > wide {
                syscall4(nr::MUNMAP, wide, begin - wide, 0, 0);
            }
            if end < wide + bytes {
                syscall4(nr::MUNMAP, end, wide + bytes - end, 0, 0);
            }
            let home = Home { area: begin + PAGE };
            home.keep_out_of_children();
            Some(home)
        }
    }

    /// The home of the agent at `area`.
    pub fn of(area: usize) -> Home {
        Home { area }
    }

    /// Takes the parent's place, in a forked child; false if something else is there.
    #[cfg_attr(not(clew_preload), allow(dead_code))]
    pub fn take_again(self) -> bool {
        let (at, bytes) = (self.area, self.bytes());
        // SAFETY: it replaces nothing; where a kernel knows no MAP_FIXED_NOREPLACE it is a fresh mapping.
        unsafe {
            let flags = NOTHING | MAP_FIXED_NOREPLACE;
            let there = syscall6(nr::MMAP, at, bytes, PROT_NONE, flags, usize::MAX, 0);
            if there < 0 {
                return false;
            }
            if there as usize != at {
                syscall4(nr::MUNMAP, there as usize, bytes, 0, 0);
                return false;
            }
        }
        self.keep_out_of_children();
        true
    }

    /// Bytes but for the beacon.
    fn bytes(self) -> usize {
        AREA_BYTES + BUFFER_BYTES + STAGING_BYTES
    }

    fn keep_out_of_children(self) {
        // SAFETY: it concerns this place only.
        unsafe { syscall4(nr::MADVISE, self.area, self.bytes(), MADV_DONTFORK, 0) };
    }

    /// Address of the agent's own state and stack.
    pub fn area(self) -> usize {
        self.area
    }

    /// Makes the agent's own area one that can be used. False if the system gives no memory.
    pub fn open_area(self) -> bool {
        protect(self.area, AREA_BYTES, PROT_READ_WRITE) >= 0
    }

    /// Takes the area away again.
    ///
    /// # Safety
    /// No agent uses it.
    pub unsafe fn close_area(self) {
        // SAFETY: as the caller says.
        unsafe { syscall4(nr::MADVISE, self.area, AREA_BYTES, MADV_DONTNEED, 0) };
        protect(self.area, AREA_BYTES, PROT_NONE);
    }

    /// Maps the buffer, and says where it is, or why not. Who is forked just then has it, and no agent.
    ///
    /// # Safety
    /// No agent uses it.
    pub unsafe fn map_buffer(self, fd: usize) -> isize {
        let (at, flags) = (self.area + AREA_BYTES, MAP_SHARED | MAP_FIXED);
        // SAFETY: as the caller says; the place is taken.
        unsafe {
            let there = syscall6(nr::MMAP, at, BUFFER_BYTES, PROT_READ_WRITE, flags, fd, 0);
            syscall4(nr::MADVISE, at, BUFFER_BYTES, MADV_DONTFORK, 0);
            there
        }
    }

    /// Makes the staging area one that can be used, and says where it is, or why not.
    pub fn open_staging(self) -> isize {
        let at = self.area + AREA_BYTES + BUFFER_BYTES;
        // A program may have locked all that it had (mlockall): locked memory would be there at once, and pages move there from
        // locked memory only.
        // SAFETY: it changes no contents.
        unsafe { syscall4(nr::MUNLOCK, at, STAGING_BYTES, 0, 0) };
        let error = protect(at, STAGING_BYTES, PROT_READ_WRITE);
        if error < 0 { error } else { at as isize }
    }

    /// Makes the beacon, a page that children have, too, and says where it is, or why not.
    pub fn open_beacon(self) -> isize {
        let error = protect(self.beacon(), PAGE, PROT_READ_WRITE);
        if error < 0 { error } else { self.beacon() as isize }
    }

    fn beacon(self) -> usize {
        self.area - PAGE
    }
}

fn protect(at: usize, bytes: usize, prot: usize) -> isize {
    // SAFETY: part of a place that is taken, of which nobody else knows.
    unsafe { syscall4(nr::MPROTECT, at, bytes, prot, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_and_everything_lies_in_it() {
        let home = Home::take().expect("a place");
        assert!(!home.take_again(), "it is taken");
        let staging = home.open_staging();
        assert_eq!(staging as usize % STAGING_BYTES, 0);
        assert_eq!(staging as usize, home.area + AREA_BYTES + BUFFER_BYTES);
        assert_eq!(home.open_beacon() as usize, home.area - PAGE);
        assert!(home.open_area());
        // SAFETY: there is no agent.
        unsafe {
            (home.area as *mut u8).write(7);
            home.close_area();
            assert!(home.open_area());
            assert_eq!((home.area as *const u8).read(), 0);
            // Given away again, it can be taken like that of a parent.
            syscall4(nr::MUNMAP, home.area, home.bytes(), 0, 0);
        }
        assert!(home.take_again());
        // SAFETY: nobody uses it.
        unsafe { syscall4(nr::MUNMAP, home.beacon(), PAGE + home.bytes(), 0, 0) };
    }
}
