//! Swap-out traces: who, which frame, which sector, and the page.

use std::io::{self, BufRead, Read};

use super::{Imported, PAGE_BYTES, SECTORS, lines};

const PAGE: usize = PAGE_BYTES as usize;
const HEADER: usize = 50;
const RECORD: usize = HEADER + PAGE;
const BEGIN: &[u8] = b"TEST^^^#";
const END: &[u8] = b"#^^^\n";
/// Bytes looked at together.
const WINDOW: usize = 1 << 20;

/// Whose page went where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub uid: u32,
    pub pfn: u64,
    pub sector: u64,
}

impl Place {
    /// From `uid,pfn,sector` in decimal.
    pub fn parse(text: &[u8]) -> Option<Place> {
        let mut numbers = text.split(|byte| *byte == b',').map(decimal);
        let uid = u32::try_from(numbers.next()??).ok()?;
        let (pfn, sector) = (numbers.next()??, numbers.next()??);
        let fits = pfn < super::REUSED && sector < SECTORS;
        (numbers.next().is_none() && fits).then_some(Place { uid, pfn, sector })
    }
}

pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// The header of a record, at the beginning of `bytes`.
fn header(bytes: &[u8]) -> Option<Place> {
    let inner = bytes.get(..HEADER)?.strip_prefix(BEGIN)?;
    let end = inner.windows(END.len()).position(|part| part == END)?;
    let padding = inner[end + END.len()..].iter().all(|byte| *byte == 0);
    Place::parse(&inner[..end]).filter(|_| padding)
}

/// Where the next header begins in `bytes`, at or after `from`.
fn find(bytes: &[u8], from: usize) -> Option<usize> {
    let starts = bytes.get(from..)?.windows(BEGIN.len()).enumerate();
    let starts = starts.filter(|(_, part)| *part == BEGIN).map(|(at, _)| from + at);
    starts.into_iter().find(|at| header(&bytes[*at..]).is_some())
}

/// A part of a file that moves on.
struct Window<R> {
    input: R,
    bytes: Vec<u8>,
    at: usize,
    ended: bool,
}

impl<R: Read> Window<R> {
    /// What comes next: at least `wanted` bytes, unless the file ends before.
    fn rest(&mut self, wanted: usize) -> io::Result<&[u8]> {
        if self.bytes.len() - self.at < wanted && !self.ended {
            self.bytes.drain(..self.at);
            self.at = 0;
            let missing = (WINDOW + wanted - self.bytes.len()) as u64;
            let read = (&mut self.input).take(missing).read_to_end(&mut self.bytes)?;
            self.ended = (read as u64) < missing;
        }
        Ok(&self.bytes[self.at..])
    }

    fn pass(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

/// Reads `swapout_trace.txt`: tells `found` each whole record, until it answers false, and counts
/// what is none.
pub(super) fn read(
    input: impl Read,
    counts: &mut Imported,
    found: &mut dyn FnMut(Place, &[u8]) -> bool,
) -> io::Result<()> {
    let mut window = Window { input, bytes: Vec::new(), at: 0, ended: false };
    let mut is_lost = false;
    loop {
        let rest = window.rest(2 * RECORD)?;
        if rest.is_empty() {
            return Ok(());
        }
        if let Some(place) = header(rest) {
            is_lost = false;
            let next = rest.get(RECORD..);
            let follows =
                next.is_some_and(|next| next.is_empty() || header(next).is_some() || next[0] == 0);
            // A record that another one begins in was torn, unless what follows it says otherwise.
            let inside = if follows { None } else { find(&rest[..rest.len().min(RECORD)], HEADER) };
            if let Some(inside) = inside {
                counts.torn += 1;
                window.pass(inside);
            } else if next.is_none() {
                counts.torn += 1;
                let length = rest.len();
                window.pass(length);
            } else {
                if !found(place, &rest[HEADER..RECORD]) {
                    return Ok(());
                }
                window.pass(RECORD);
            }
            continue;
        }
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        if zeros > 0 {
            // A hole goes on where the window did not show all of it.
            counts.holes += u64::from(!is_lost);
            counts.hole_bytes += zeros as u64;
            is_lost = zeros == rest.len();
            window.pass(zeros);
            continue;
        }
        // Lost: the next header, as far as can be seen. Its beginning may be in what is seen last.
        counts.bad_headers += u64::from(!is_lost);
        let length = rest.len();
        let (bytes, is_found) = match find(rest, 1) {
            Some(at) => (at, true),
            None => (length.saturating_sub(HEADER).max(1).min(length), false),
        };
        let last = !is_found && window.ended;
        let bytes = if last { length } else { bytes };
        counts.skipped_bytes += bytes as u64;
        window.pass(bytes);
        is_lost = !is_found;
    }
}

/// Reads `swapout_trace.txt.meta` and `.data`.
pub(super) fn read_split(
    meta: impl BufRead,
    mut data: impl Read,
    counts: &mut Imported,
    found: &mut dyn FnMut(Place, &[u8]) -> bool,
) -> io::Result<()> {
    let mut page = Vec::with_capacity(PAGE);
    for line in lines(meta) {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        page.clear();
        (&mut data).take(PAGE as u64).read_to_end(&mut page)?;
        if page.len() < PAGE {
            counts.torn += 1;
            continue;
        }
        match Place::parse(line.trim_ascii()) {
            Some(place) => {
                if !found(place, &page) {
                    return Ok(());
                }
            }
            None => counts.bad_headers += 1,
        }
    }
    // Pages that nobody knows whose they are.
    loop {
        page.clear();
        match (&mut data).take(PAGE as u64).read_to_end(&mut page)? {
            0 => return Ok(()),
            more => {
                counts.bad_headers += 1;
                counts.skipped_bytes += more as u64;
            }
        }
    }
}
