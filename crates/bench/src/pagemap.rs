//! Where the pages of another process's anonymous memory are: in memory, or swapped out, as the
//! kernel's page table says (`/proc/PID/pagemap`).

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Entries that are read at once.
const CHUNK: usize = 1 << 14;

/// One look. Page numbers ascend; pages that hold nothing are in neither list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Pages in memory.
    pub present: Vec<u64>,
    /// Pages that are swapped out by the kernel.
    pub swapped: Vec<u64>,
}

impl Snapshot {
    /// Looks at the private mappings of process `pid` that belong to no file.
    pub fn take(pid: u32) -> io::Result<Snapshot> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        let page_bytes = page_bytes();
        let mut snapshot = Snapshot::default();
        let mut buffer = vec![0; CHUNK * 8];
        for mapping in maps.lines().filter_map(anonymous) {
            let (mut page, end) = (mapping.start / page_bytes, mapping.end / page_bytes);
            while page < end {
                let wanted = ((end - page) as usize).min(CHUNK) * 8;
                let read = pagemap.read_at(&mut buffer[..wanted], page * 8)?;
                if read < 8 {
                    break;
                }
                for entry in buffer[..read].chunks_exact(8) {
                    let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
                    if entry & PRESENT != 0 {
                        snapshot.present.push(page);
                    } else if entry & SWAPPED != 0 {
                        snapshot.swapped.push(page);
                    }
                    page += 1;
                }
            }
        }
        Ok(snapshot)
    }
}

/// The addresses of a line of `maps`, if it is of private memory of no file that a program uses.
fn anonymous(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split_whitespace();
    let (addresses, permissions) = (fields.next()?, fields.next()?);
    let inode = fields.nth(2)?;
    let special = fields.next().is_some_and(|name| name.starts_with("[v"));
    if !permissions.ends_with('p') || inode != "0" || special {
        return None;
    }
    let (begin, end) = addresses.split_once('-')?;
    Some(u64::from_str_radix(begin, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

/// Ascending pages as ranges of neighbours.
pub fn runs(pages: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some(run) if run.end == page => run.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}

/// The part of ascending pages that have a neighbour among them.
pub fn adjacent_share(pages: &[u64]) -> f64 {
    let adjacent: u64 =
        runs(pages).iter().map(|run| run.end - run.start).filter(|&length| length > 1).sum();
    adjacent as f64 / pages.len().max(1) as f64
}

/// Pages that are in both of two ascending lists.
pub fn intersection(one: &[u64], other: &[u64]) -> Vec<u64> {
    one.iter().copied().filter(|page| other.binary_search(page).is_ok()).collect()
}

/// Bytes of a page.
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf only reads a constant of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_memory_of_no_file_counts() {
        let range = anonymous("7f00-7f10 rw-p 00000000 00:00 0");
        assert_eq!(range, Some(0x7f00..0x7f10));
        assert!(anonymous("7f00-7f10 rw-p 00000000 00:00 0 [heap]").is_some());
        for line in [
            "55d0-55d1 r-xp 00000000 fe:00 131 /usr/bin/x",
            "7f00-7f10 rw-s 00000000 00:01 0 /dev/zero (deleted)",
            "7ffd-7fff r--p 00000000 00:00 0 [vvar]",
            "rubbish",
        ] {
            assert_eq!(anonymous(line), None, "{line}");
        }
    }

    #[test]
    fn a_touched_page_is_seen() {
        let held = vec![1u8; 64 << 10];
        let page = held.as_ptr() as u64 / page_bytes() + 1;
        let snapshot = Snapshot::take(std::process::id()).expect("our own");
        assert!(snapshot.present.binary_search(&page).is_ok());
        assert!(snapshot.present.is_sorted() && snapshot.swapped.is_sorted());
        assert_eq!(held[4096], 1);
    }

    #[test]
    fn neighbours_are_counted() {
        assert_eq!(runs(&[1, 2, 3, 7, 9, 10]), [1..4, 7..8, 9..11]);
        assert_eq!(adjacent_share(&[1, 2, 3, 7, 9, 10]), 5.0 / 6.0);
        assert_eq!((adjacent_share(&[2, 4, 6]), adjacent_share(&[])), (0.0, 0.0));
        assert_eq!(intersection(&[1, 3, 5], &[3, 4, 5, 6]), [3, 5]);
    }
}
