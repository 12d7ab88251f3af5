//! Which pages of a program are there, in swap, or marked: what its `/proc/PID/pagemap` says (PAGEMAP_SCAN).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use clew_core::Vpn;

use crate::passing::is_passing;

/// Present pages of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// First page.
    pub first: Vpn,
    /// How many.
    pub pages: u64,
    /// Mapped by a huge page.
    pub huge: bool,
}

#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const WRITTEN: u64 = 1 << 1;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;

/// Lists the pages of `[start, end)` that are present and not the shared page of zeros
/// (PAGEMAP_SCAN, Linux 6.7).
pub fn present_pages(
    pagemap: &File,
    start: u64,
    end: u64,
    page_bytes: u64,
    mut found: impl FnMut(Present),
) -> io::Result<()> {
    let wanted = Wanted { all: PRESENT, none: ZERO, any: 0, told: PRESENT | HUGE };
    scan(pagemap, start..end, wanted, |region| {
        found(Present {
            first: Vpn::of_addr(region.start, page_bytes),
            pages: (region.end - region.start) / page_bytes,
            huge: region.categories & HUGE != 0,
        });
    })
}

/// Lists, ascending, the pages of `[start, end)` that hold something, in memory or in the kernel's swap: the first
/// page, how many there are, and which of the two.
pub fn kept_pages(
    pagemap: &File,
    start: u64,
    end: u64,
    page_bytes: u64,
    mut found: impl FnMut(Vpn, u64, PageIs),
) -> io::Result<()> {
    let wanted = Wanted { all: 0, none: ZERO, any: PRESENT | SWAPPED, told: PRESENT | SWAPPED };
    scan(pagemap, start..end, wanted, |region| {
        let is = match region.categories & PRESENT {
            0 => PageIs::Swapped,
            _ => PageIs::Present,
        };
        let pages = (region.end - region.start) / page_bytes;
        found(Vpn::of_addr(region.start, page_bytes), pages, is);
    })
}

/// Lists, ascending, the parts of `[start, end)` that have marks where no page is (`UFFDIO_WRITEPROTECT`). The kernel
/// keeps these as it keeps what it has swapped out, and what it has swapped out itself can be written.
pub fn marked_pages(
    pagemap: &File,
    range: Range<u64>,
    mut found: impl FnMut(Range<u64>),
) -> io::Result<()> {
    let wanted = Wanted { all: SWAPPED, none: WRITTEN, any: 0, told: SWAPPED };
    scan(pagemap, range, wanted, |region| found(region.start..region.end))
}

/// Pages that are of every category of `all`, of none of `none`, and of one of `any`, if there are such; `told` of each.
struct Wanted {
    all: u64,
    none: u64,
    any: u64,
    told: u64,
}

/// How often a scan that fails for want of something is begun, and the pause after each: a program is given up where
/// its marks cannot be looked at.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// PAGEMAP_SCAN.
fn scan(
    pagemap: &File,
    range: Range<u64>,
    wanted: Wanted,
    mut found: impl FnMut(&Region),
) -> io::Result<()> {
    const PAGEMAP_SCAN: u64 = 0xc060_6610;
    let mut regions = [Region { start: 0, end: 0, categories: 0 }; 256];
    let (mut at, mut tries) = (range.start, 0);
    while at < range.end {
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            flags: 0,
            start: at,
            end: range.end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: wanted.none,
            category_mask: wanted.all | wanted.none,
            category_anyof_mask: wanted.any,
            return_mask: wanted.told,
        };
        // SAFETY: the argument and the vector it names live across the call and are as large as
        // stated.
        let n = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
        if n < 0 {
            let error = io::Error::last_os_error();
            tries += 1;
            if tries < TRIES && is_passing(&error) {
                thread::sleep(BETWEEN_TRIES);
                continue;
            }
            return Err(error);
        }
        tries = 0;
        regions[..n as usize].iter().for_each(&mut found);
        if arg.walk_end <= at {
            break;
        }
        at = arg.walk_end;
    }
    Ok(())
}

/// What the kernel says of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageIs {
    /// In memory.
    Present,
    /// In the kernel's swap.
    Swapped,
    /// Neither: nothing was there, or it was given up.
    Nothing,
}

/// What the kernel says of `count` pages from `first` on.
pub fn page_states(pagemap: &File, first: Vpn, count: usize) -> io::Result<Vec<PageIs>> {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    let mut words = vec![0u8; count * 8];
    pagemap.read_exact_at(&mut words, first.0 * 8)?;
    let state = |word: &[u8]| {
        let word = word.try_into().map_or(0, u64::from_ne_bytes);
        match word {
            _ if word & PRESENT != 0 => PageIs::Present,
            _ if word & SWAPPED != 0 => PageIs::Swapped,
            _ => PageIs::Nothing,
        }
    };
    Ok(words.chunks_exact(8).map(state).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    #[test]
    fn present_pages_are_found() {
        let page = 4096usize;
        let len = 64 * page;
        // SAFETY: a fresh mapping of our own, written within its bounds.
        let base = unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(base, libc::MAP_FAILED);
            libc::madvise(base, len, libc::MADV_NOHUGEPAGE);
            for i in [3, 4, 9] {
                base.cast::<u8>().add(i * page).write(1);
            }
            base as u64
        };
        let pagemap = File::open("/proc/self/pagemap").expect("pagemap");
        let mut pages = Vec::new();
        let end = base + len as u64;
        let scan = present_pages(&pagemap, base, end, page as u64, |p| {
            pages.extend((0..p.pages).map(|i| p.first.0 + i - base / page as u64));
        });
        if scan.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ENOTTY)) {
            skip("pagemap::present_pages_are_found", "no PAGEMAP_SCAN (Linux 6.7)");
            return;
        }
        scan.expect("scan");
        assert_eq!(pages, [3, 4, 9]);
        let mut kept = Vec::new();
        kept_pages(&pagemap, base, end, page as u64, |first, pages, is| {
            kept.push((first.0 - base / page as u64, pages, is));
        })
        .expect("scan");
        assert_eq!(kept, [(3, 2, PageIs::Present), (9, 1, PageIs::Present)]);
        let first = Vpn::of_addr(base, page as u64);
        let states = page_states(&pagemap, Vpn(first.0 + 2), 3).expect("pagemap");
        assert_eq!(states, [PageIs::Nothing, PageIs::Present, PageIs::Present]);
    }
}
