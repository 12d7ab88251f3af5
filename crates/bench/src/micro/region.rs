//! The memory of a worker: anonymous pages of realistic content, touched one by one.

use std::hint::black_box;
use std::io;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::orders::Layout;
use crate::content::prose;
use clew_core::Seeded;

const PAGE: usize = 4096;
/// Distinct texts; each page is one of them, turned, with numbers of its own.
const TEXTS: u64 = 1_024;
/// Mean length of a run of a clustered region.
const RUN: u64 = 5;

/// A mapping whose pages hold: the number of writes, a text or an array, numbers of its own.
pub struct Region {
    base: NonNull<u8>,
    region_pages: u64,
    /// Runs of pages with data: first page, length.
    runs: Vec<(u64, u64)>,
    /// Checksum of each page with data without its first word, in the order of the runs.
    sums: Vec<u64>,
    /// First word of each page with data.
    writes: u64,
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it exists.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.region_pages as usize * PAGE) };
    }
}

/// The runs of `pages` pages with data, and the pages of the region that holds them.
pub(super) fn runs(seed: u64, layout: Layout, pages: u64) -> (Vec<(u64, u64)>, u64) {
    let mut seeded = Seeded::of(seed, &[1]);
    let mut runs = Vec::new();
    let (mut at, mut left) = (0, pages);
    while left > 0 {
        let (gap, run) = match layout {
            Layout::Dense => (0, left),
            // Lengths 1 to 9, gaps 1 to 5: the runs, not the gaps, decide what is adjacent.
            Layout::Clustered => (1 + seeded.below(5), 1 + seeded.below(2 * RUN - 1)),
            Layout::Scattered => (1 + seeded.below(4), 1),
        };
        let run = run.min(left);
        runs.push((at + gap, run));
        at += gap + run;
        left -= run;
    }
    (runs, at)
}

impl Region {
    /// Maps and fills a region.
    pub fn new(seed: u64, layout: Layout, pages: u64) -> io::Result<Region> {
        let (runs, region_pages) = runs(seed, layout, pages);
        // SAFETY: a fresh private mapping; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                region_pages as usize * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut region = Region { base, region_pages, runs, sums: Vec::new(), writes: 0 };
        region.advise(libc::MADV_NOHUGEPAGE)?;
        region.fill(seed);
        Ok(region)
    }

    /// Address of the mapping.
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Length of the mapping.
    pub fn region_pages(&self) -> u64 {
        self.region_pages
    }

    fn page(&self, page: u64) -> *mut u8 {
        assert!(page < self.region_pages);
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(page as usize * PAGE) }
    }

    fn data_pages(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.runs.iter().flat_map(|&(first, run)| first..first + run)
    }

    fn fill(&mut self, seed: u64) {
        let texts: Vec<Vec<u8>> = (0..TEXTS)
            .map(|n| {
                let mut text = String::with_capacity(PAGE + 80);
                prose(&mut Seeded::of(seed, &[2, n]), PAGE, &mut text);
                text.into_bytes()
            })
            .collect();
        let mut page = vec![0u8; PAGE];
        let mut sums = Vec::new();
        for number in self.data_pages() {
            compose(&mut Seeded::of(seed, &[3, number]), &texts, &mut page);
            page[..8].fill(0);
            sums.push(sum(&page));
            // SAFETY: a whole page of the mapping, and `page` is as long.
            unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), self.page(number), PAGE) };
        }
        self.sums = sums;
    }

    /// Reads one word of each of these pages.
    ///
    /// # Panics
    /// If one is not of the region.
    pub fn visit(&self, pages: &[u64]) {
        for page in pages {
            // SAFETY: the first word of a page of the mapping, aligned.
            black_box(unsafe { self.page(*page).cast::<u64>().read_volatile() });
        }
    }

    /// Reads one word of `count` pages with data, or of all of them; how long each took, in
    /// nanoseconds.
    pub fn touch(&self, seed: u64, count: u64, gap: Duration) -> Vec<f64> {
        let mut seeded = Seeded::of(seed, &[4]);
        let mut runs = self.runs.clone();
        if let [(first, pages)] = runs[..] {
            runs = (first..first + pages).map(|page| (page, 1)).collect();
        }
        seeded.shuffle(&mut runs);
        let mut pages: Vec<u64> =
            runs.iter().flat_map(|&(first, run)| first..first + run).collect();
        pages.truncate(count as usize);
        self.read(&pages, gap)
    }

    /// Reads one word of a random page with data, `count` times; how long each took, in nanoseconds.
    pub fn wander(&self, seed: u64, count: u64, gap: Duration) -> Vec<f64> {
        let mut seeded = Seeded::of(seed, &[6]);
        let data: Vec<u64> = self.data_pages().collect();
        let page = |_| data[seeded.below(data.len() as u64) as usize];
        let pages: Vec<u64> = (0..count).map(page).collect();
        self.read(&pages, gap)
    }

    fn read(&self, pages: &[u64], gap: Duration) -> Vec<f64> {
        // Filled, so that writing to it is no first touch later.
        let mut each = vec![1.0; pages.len()];
        let mut found = 0u64;
        for (page, spent) in pages.iter().zip(&mut each) {
            let at = self.page(*page);
            let start = Instant::now();
            // SAFETY: the middle of a page of the mapping, aligned.
            found ^= unsafe { at.add(PAGE / 2).cast::<u64>().read_volatile() };
            *spent = start.elapsed().as_nanos() as f64;
            while !gap.is_zero() && start.elapsed() < gap {
                std::hint::spin_loop();
            }
        }
        black_box(found);
        each
    }

    /// Writes to every page with data.
    pub fn write(&mut self) {
        self.writes += 1;
        for page in self.data_pages() {
            // SAFETY: the first word of a page of the mapping, aligned.
            unsafe { self.page(page).cast::<u64>().write_volatile(self.writes) };
        }
    }

    /// Tells the kernel to page the region out. Twice: what was touched last waits on a list of its
    /// own and is passed over the first time.
    pub fn page_out(&self) -> io::Result<()> {
        self.advise(libc::MADV_PAGEOUT)?;
        self.advise(libc::MADV_PAGEOUT)
    }

    /// Tells the kernel that the region will be needed.
    pub fn will_need(&self) -> io::Result<()> {
        self.advise(libc::MADV_WILLNEED)
    }

    fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the mapping is ours, and none of the advice used here changes what it holds.
        let done = unsafe {
            libc::madvise(self.base.as_ptr().cast(), self.region_pages as usize * PAGE, advice)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Pages that hold something else than what was written.
    pub fn wrong_pages(&self) -> u64 {
        let mut page = vec![0u8; PAGE];
        let wrong = self.data_pages().zip(&self.sums).filter(|(number, expected)| {
            // SAFETY: a whole page of the mapping, and `page` is as long.
            unsafe { std::ptr::copy_nonoverlapping(self.page(*number), page.as_mut_ptr(), PAGE) };
            let as_written = page[..8] == self.writes.to_le_bytes();
            page[..8].fill(0);
            !as_written || sum(&page) != **expected
        });
        wrong.count() as u64
    }

    /// Reads a whole page and changes one word of it, at random places, `operations` times. The
    /// contents are not what [`Region::wrong_pages`] expects afterwards.
    pub fn work(&self, seed: u64, operations: u64) -> Duration {
        let mut seeded = Seeded::of(seed, &[5]);
        let begin = Instant::now();
        let mut found = 0u64;
        for _ in 0..operations {
            let page = self.page(seeded.below(self.region_pages)).cast::<u64>();
            // SAFETY: the aligned words of one page of the mapping.
            unsafe {
                for word in 0..PAGE / 8 {
                    found = found.wrapping_add(page.add(word).read_volatile());
                }
                page.add(found as usize % (PAGE / 8)).write_volatile(found);
            }
        }
        black_box(found);
        begin.elapsed()
    }
}

/// One page as heaps hold them: half of the pages are text, the others arrays of addresses, records
/// of small numbers and random tokens, objects of addresses and counts, text that ends early.
fn compose(seeded: &mut Seeded, texts: &[Vec<u8>], page: &mut [u8]) {
    let heap = 0x7f00_0000_0000 + (seeded.below(1 << 20) << 12);
    match seeded.below(8) {
        0 => {
            for word in page.chunks_exact_mut(8) {
                word.copy_from_slice(&(heap + seeded.below(1 << 14) * 16).to_le_bytes());
            }
        }
        1 => {
            for (n, record) in page.chunks_exact_mut(32).enumerate() {
                record.fill(0);
                record[..4].copy_from_slice(&(n as u32).to_le_bytes());
                record[8] = seeded.below(100) as u8;
                record[16..24].copy_from_slice(&seeded.draw().to_le_bytes());
            }
        }
        2 => {
            for object in page.chunks_exact_mut(64) {
                object.fill(0);
                object[0] = 1 + seeded.below(3) as u8;
                object[8..16].copy_from_slice(&heap.to_le_bytes());
                object[16] = seeded.below(32) as u8;
                let next = heap + seeded.below(1 << 14) * 64;
                object[24..32].copy_from_slice(&next.to_le_bytes());
                object[40..44].copy_from_slice(&(seeded.draw() as u32).to_le_bytes());
            }
        }
        kind => {
            let text = &texts[seeded.below(texts.len() as u64) as usize];
            page.copy_from_slice(text);
            page.rotate_left(seeded.below(PAGE as u64) as usize);
            page[64..80].copy_from_slice(format!("{:016x}", seeded.draw()).as_bytes());
            if kind == 3 {
                let end = 256 + seeded.below(PAGE as u64 - 512) as usize;
                page[end..].fill(0);
            }
        }
    }
}

fn sum(page: &[u8]) -> u64 {
    page.chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_what_they_say() {
        for (layout, low, high) in [
            (Layout::Dense, 1.0, 1.0),
            (Layout::Clustered, 0.78, 0.82),
            (Layout::Scattered, 0., 0.),
        ] {
            let (runs, region) = runs(3, layout, 20_000);
            let pages: u64 = runs.iter().map(|run| run.1).sum();
            assert_eq!(pages, 20_000);
            assert!(runs.iter().all(|(first, run)| first + run <= region));
            let adjacent = (pages - runs.len() as u64) as f64 / (pages - 1) as f64;
            assert!((low..=high).contains(&adjacent), "{layout:?}: {adjacent}");
        }
    }

    #[test]
    fn what_is_wrong_is_found() {
        let mut region = Region::new(7, Layout::Clustered, 300).expect("memory");
        assert_eq!(region.wrong_pages(), 0);
        region.write();
        region.write();
        assert_eq!(region.wrong_pages(), 0);
        assert_eq!(region.touch(1, 100, Duration::ZERO).len(), 100);
        let (first, _) = region.runs[2];
        // SAFETY: a page of the mapping.
        unsafe { region.page(first).add(77).write_volatile(1) };
        assert_eq!(region.wrong_pages(), 1);
    }

    #[test]
    fn compresses_as_real_pages_do() {
        let region = Region::new(7, Layout::Dense, 500).expect("memory");
        let mut page = vec![0u8; PAGE];
        let mut packed = vec![0; 2 * PAGE];
        let mut compressed = 0;
        for number in region.data_pages() {
            // SAFETY: a whole page of the mapping, and `page` is as long.
            unsafe { std::ptr::copy_nonoverlapping(region.page(number), page.as_mut_ptr(), PAGE) };
            compressed += lzzzz::lz4::compress(&page, &mut packed, lzzzz::lz4::ACC_LEVEL_DEFAULT)
                .expect("the buffer is large enough");
        }
        let ratio = (500 * PAGE) as f64 / compressed as f64;
        assert!((2.0..3.5).contains(&ratio), "LZ4 ratio of pages is {ratio:.2}");
    }
}
