//! Which of a program's mappings can be taken out, and which of their pages are there.
//!
//! Whole mappings or nothing: registering a part would split the mapping, and the program's next
//! mremap of it would fail.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Spans without a mapping of this size are not worth the events they cause.
pub const MIN_MAPPING_BYTES: u64 = 128 << 10;

/// No program has memory there or above.
pub(crate) const LAST_ADDRESS: u64 = 1 << 57;

/// The usual size of a thread's stack.
const STACK_BYTES: u64 = 8 << 20;
/// Mappings of a program that are looked at: four times as many as the kernel allows by default.
const MOST: usize = 1 << 18;

/// One mapping, as `/proc/PID/smaps` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// `rwxp` and the like.
    pub permissions: String,
    /// Of no file.
    pub anonymous: bool,
    /// What its flags say, where smaps was read.
    pub flags: Flags,
}

/// What the flags of a mapping mean here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// For I/O, wiped in forked children, or a stack that grows: never to be registered.
    refused: bool,
    /// Its pages must stay in memory.
    locked: bool,
}

impl Flags {
    /// Of the two-letter words of smaps.
    fn of(words: &str) -> Flags {
        let mut flags = Flags::default();
        for word in words.split_ascii_whitespace() {
            match word {
                "io" | "pf" | "wf" | "gd" | "ht" | "mm" | "ss" => flags.refused = true,
                "lo" => flags.locked = true,
                _ => {}
            }
        }
        flags
    }
}

impl Mapping {
    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Private memory of no file, whatever its protection.
    pub fn private_anonymous(&self) -> bool {
        self.anonymous && self.permissions.ends_with('p')
    }

    fn is_guard(&self) -> bool {
        self.permissions.starts_with("---")
    }

    /// Its flags say that it cannot be registered, or must not be: a child is to find nothing there (MADV_WIPEONFORK).
    pub fn is_refused(&self) -> bool {
        self.flags.refused
    }

    fn may_be_registered(&self) -> bool {
        self.private_anonymous() && !self.is_guard() && !self.is_refused()
    }

    /// The kernel would move its pages, to memory of the same protection: writable, not locked, and nothing that could be
    /// executed, as the agents have no memory of that kind.
    fn can_be_taken(&self) -> bool {
        self.permissions.starts_with("rw-") && !self.flags.locked
    }

    /// Private memory of no file that may be written and executed: an interpreter's whole heap may be.
    pub fn is_executable_data(&self) -> bool {
        self.private_anonymous() && self.permissions.starts_with("rwx")
    }
}

/// Neighbouring mappings that are registered together.
///
/// A program may see them as one: part of a mapping is locked or read-only for a while, and one
/// mremap later covers it all. It succeeds only if either all or none is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// End of the mapping below.
    pub start: u64,
    /// Beginning of the mapping above.
    pub end: u64,
    /// Its mappings.
    pub parts: Vec<(u64, u64)>,
}

/// The spans worth registering. `stack_pointers` are those of the program's threads, `own` what
/// belongs to the agent.
pub fn spans(mappings: &[Mapping], stack_pointers: &[u64], own: &[Range<u64>]) -> Vec<Span> {
    let fits = |i: usize| {
        let m = &mappings[i];
        let holds_stack = stack_pointers.iter().any(|sp| (m.start..m.end).contains(sp));
        // A thread that runs shows no stack pointer, but its stack has the usual size and lies
        // above a guard. One that is missed is only slower, not wrong.
        let guarded = i.checked_sub(1).map(|b| &mappings[b]).is_some_and(|b| {
            let with_guard = b.bytes() + m.bytes();
            b.is_guard()
                && b.end == m.start
                && b.bytes() <= 64 << 10
                && (with_guard == STACK_BYTES || m.bytes() == STACK_BYTES)
        });
        let agents = own.iter().any(|o| m.start < o.end && o.start < m.end);
        m.may_be_registered() && !holds_stack && !guarded && !agents
    };
    let mut spans = Vec::new();
    let mut i = 0;
    while i < mappings.len() {
        if !fits(i) {
            i += 1;
            continue;
        }
        let first = i;
        while i + 1 < mappings.len() && mappings[i + 1].start == mappings[i].end && fits(i + 1) {
            i += 1;
        }
        let parts = &mappings[first..=i];
        if parts.iter().any(|m| m.can_be_taken() && m.bytes() >= MIN_MAPPING_BYTES) {
            spans.push(Span {
                start: first.checked_sub(1).map_or(parts[0].start, |b| mappings[b].end),
                end: mappings.get(i + 1).map_or(mappings[i].end, |above| above.start),
                parts: parts.iter().map(|m| (m.start, m.end)).collect(),
            });
        }
        i += 1;
    }
    spans
}

/// Gives each of `mappings`, read from `maps`, the flags of what lay there when `smaps` was read.
/// What lay nowhere then is left out: its flags are not known.
pub fn with_flags(mappings: Vec<Mapping>, smaps: &[Mapping]) -> Vec<Mapping> {
    let known = |mut m: Mapping| {
        let overlap = smaps.partition_point(|s| s.end <= m.start);
        m.flags = smaps.get(overlap).filter(|s| s.start < m.end)?.flags;
        Some(m)
    };
    mappings.into_iter().filter_map(known).collect()
}

/// The mapping that covers `addr`, if there is one, with its true edges. `None` also where the
/// kernel cannot be asked (PROCMAP_QUERY is of Linux 6.11). A question takes a microsecond, where
/// reading `maps` takes a hundred.
pub fn covering(maps: &File, addr: u64) -> Option<Mapping> {
    query(maps, addr, 0).ok()
}

/// The mappings that overlap `[low, high)` or touch its edges, ascending: one question each, or all of
/// `maps` where the kernel does not answer those.
pub fn touching(maps: &File, low: u64, high: u64) -> io::Result<Vec<Mapping>> {
    const COVERING_OR_NEXT: u64 = 0x10;
    let mut found = Vec::new();
    let mut at = low.saturating_sub(1);
    while at <= high {
        match query(maps, at, COVERING_OR_NEXT) {
            Ok(m) if m.start > high => break,
            Ok(m) => {
                at = m.end;
                found.push(m);
            }
            // There is none above.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
            Err(_) => {
                found = read(maps)?;
                found.retain(|m| m.start <= high && low <= m.end);
                break;
            }
        }
    }
    Ok(found)
}

/// One PROCMAP_QUERY.
fn query(maps: &File, addr: u64, flags: u64) -> io::Result<Mapping> {
    #[derive(Default)]
    #[repr(C)]
    struct Query {
        size: u64,
        query_flags: u64,
        query_addr: u64,
        vma_start: u64,
        vma_end: u64,
        vma_flags: u64,
        vma_page_size: u64,
        vma_offset: u64,
        inode: u64,
        dev: [u32; 2],
        vma_name_size: u32,
        build_id_size: u32,
        vma_name_addr: u64,
        build_id_addr: u64,
    }
    const PROCMAP_QUERY: u64 = 0xc068_6611;
    let mut query = Query {
        size: size_of::<Query>() as u64,
        query_flags: flags,
        query_addr: addr,
        ..Query::default()
    };
    // SAFETY: the query lives across the call and is as large as stated; it asks for no name.
    let asked = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    let flag = |bit: u64, yes: char, no: char| if query.vma_flags & bit != 0 { yes } else { no };
    Ok(Mapping {
        start: query.vma_start,
        end: query.vma_end,
        permissions: [flag(1, 'r', '-'), flag(2, 'w', '-'), flag(4, 'x', '-'), flag(8, 's', 'p')]
            .iter()
            .collect(),
        anonymous: query.inode == 0 && query.vma_flags & 0x20 == 0,
        flags: Flags::default(),
    })
}

/// All mappings, from `maps` or `smaps`, read from its beginning. A program says what its files are called and how many
/// mappings it has: of a line no more is kept than says what the mapping is.
///
/// # Errors
/// Those of the file, and if there are more mappings than [`MOST`].
pub fn read(file: &File) -> io::Result<Vec<Mapping>> {
    parse(io::BufReader::with_capacity(64 << 10, FromBeginning { file, at: 0 }))
}

/// A file from its beginning, wherever others are in it.
struct FromBeginning<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromBeginning<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(to, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

fn parse(mut from: impl BufRead) -> io::Result<Vec<Mapping>> {
    const LINE: u64 = 256;
    let (mut mappings, mut line) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        if from.by_ref().take(LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(mappings);
        }
        if line.last() != Some(&b'\n') {
            from.skip_until(b'\n')?;
        }
        add(&mut mappings, &String::from_utf8_lossy(&line));
        if mappings.len() > MOST {
            return Err(io::Error::other("it has more mappings than can be looked at"));
        }
    }
}

/// What a line of `maps` or `smaps` says.
fn add(mappings: &mut Vec<Mapping>, line: &str) {
    if let Some(flags) = line.strip_prefix("VmFlags:") {
        if let Some(last) = mappings.last_mut() {
            last.flags = Flags::of(flags);
        }
        return;
    }
    let Some((range, rest)) = line.split_once(' ') else { return };
    let Some((start, end)) = range.split_once('-') else { return };
    let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
    else {
        return;
    };
    // Mappings that change while they are read may be listed twice, as they were and as they are.
    if start >= end || mappings.last().is_some_and(|last| start < last.end) {
        return;
    }
    let mut fields = rest.split_ascii_whitespace();
    let permissions = fields.next().unwrap_or("");
    let inode = fields.nth(2).unwrap_or("0");
    let name = fields.collect::<Vec<_>>().join(" ");
    let anonymous =
        inode == "0" && (name.is_empty() || name == "[heap]" || name.starts_with("[anon:"));
    let permissions = permissions.to_string();
    mappings.push(Mapping { start, end, permissions, anonymous, flags: Flags::default() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    const SMAPS: &str = "\
55d0c0000000-55d0c0200000 rw-p 00000000 00:00 0                          [heap]
Size:               2048 kB
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000001000 ---p 00000000 00:00 0
VmFlags: mr mw me sd
7f0000001000-7f0000801000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me ac sd
7f0001000000-7f0001100000 rw-p 00001000 08:01 4711                       /usr/lib/libx y.so
7f0002000000-7f0002200000 rw-p 00000000 00:00 0                          [anon:scudo:primary]
VmFlags: rd wr mr mw me lo ac sd
7f0003000000-7f0003100000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me ac sd
7f0003100000-7f0003101000 r--p 00000000 00:00 0
VmFlags: rd mr mw me ac sd
7f0003101000-7f0003102000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me lo ac sd
";

    #[test]
    fn what_may_be_executed_is_left_alone_where_nothing_else_is_beside_it() {
        let of = |permissions: [&str; 2]| {
            let line = |start: u64, permissions| {
                format!("{start:x}-{:x} {permissions} 0 0:0 0\n", start + 0x40000)
            };
            parsed(&(line(0x10_0000, permissions[0]) + &line(0x14_0000, permissions[1])))
        };
        assert_eq!(spans(&of(["rwxp", "rwxp"]), &[], &[]), []);
        // One move of the program's may be of both.
        let both = of(["rw-p", "rwxp"]);
        assert_eq!(spans(&both, &[], &[])[0].parts.len(), 2);
        assert!(!both[0].is_executable_data() && both[1].is_executable_data());
    }

    fn parsed(text: &str) -> Vec<Mapping> {
        parse(text.as_bytes()).expect("it is in memory")
    }

    /// A program's files are called what it likes, and it maps them as often as it likes.
    #[test]
    fn long_names_and_many_mappings_are_not_taken_to_memory() {
        let long = format!(
            "7f0001000000-7f0001100000 rw-p 00001000 08:01 4711 /{}\n",
            "x".repeat(1 << 20)
        );
        let anonymous = "7f0002000000-7f0002200000 rw-p 00000000 00:00 0\n";
        let found = parsed(&format!("{long}{anonymous}{long}"));
        let starts: Vec<u64> = found.iter().map(|m| m.start).collect();
        assert_eq!(starts, [0x7f0001000000, 0x7f0002000000], "ascending");
        assert!(found[1].private_anonymous() && !found[0].private_anonymous());
        let line = |page: usize| {
            let start = 0x10000 + page * 0x1000;
            format!("{start:x}-{:x} rw-p 00000000 00:00 0\n", start + 0x1000)
        };
        let pages = |count| (0..count).map(line).collect::<String>();
        assert!(parse(pages(MOST).as_bytes()).is_ok());
        assert!(parse(pages(MOST + 1).as_bytes()).is_err());
    }

    #[test]
    fn mappings_are_told_apart() {
        let m = parsed(SMAPS);
        assert_eq!(m.len(), 8);
        let own = std::slice::from_ref(&(0x7f0002000000..0x7f0002010000));
        let spans = spans(&m, &[], own);
        let parts: Vec<_> = spans.iter().map(|s| s.parts.clone()).collect();
        assert_eq!(
            parts,
            [
                vec![(0x55d0c0000000, 0x55d0c0200000)],
                vec![
                    (0x7f0003000000, 0x7f0003100000),
                    (0x7f0003100000, 0x7f0003101000),
                    (0x7f0003101000, 0x7f0003102000)
                ],
            ],
            "stacks, files and wholly locked memory are left alone; the rest goes together"
        );
        assert_eq!((spans[1].start, spans[1].end), (0x7f0002200000, 0x7f0003102000));
        assert_eq!(super::spans(&m, &[0x55d0c0000010], &[]).len(), 1, "a stack was taken");
        for flag in ["io", "pf", "wf", "gd", "ht", "mm", "ss"] {
            let refused = parsed(&SMAPS.replacen("ac sd", flag, 1));
            assert_eq!(super::spans(&refused, &[], own).len(), 1, "{flag}");
        }
    }

    #[test]
    fn flags_are_carried_over_to_what_grew() {
        let smaps = parsed(SMAPS);
        let fresh = "7f0000000000-7f0002100000 rw-p 00000000 00:00 0\n\
            7f0002100000-7f0002200000 rw-p 00000000 00:00 0\n\
            7f0005000000-7f0006000000 rw-p 00000000 00:00 0\n";
        let now = with_flags(parsed(fresh), &smaps);
        assert_eq!(now.len(), 2, "what is new has flags that nobody knows");
        assert!(!now[0].flags.locked);
        assert!(now[1].flags.locked);
    }

    #[test]
    fn the_kernel_tells_a_mappings_edges() {
        let page = 4096usize;
        // SAFETY: a fresh mapping of our own; the protection of its middle changes, nothing else.
        let base = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(std::ptr::null_mut(), 6 * page, prot, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            let middle = base.cast::<u8>().add(2 * page).cast();
            assert_eq!(libc::mprotect(middle, 2 * page, libc::PROT_READ), 0);
            base as u64
        };
        let maps = File::open("/proc/self/maps").expect("maps");
        let Some(middle) = covering(&maps, base + 3 * page as u64) else {
            skip("mappings::the_kernel_tells_a_mappings_edges", "no PROCMAP_QUERY (Linux 6.11)");
            return;
        };
        assert_eq!((middle.start - base, middle.end - base), (2 * 4096, 4 * 4096));
        assert_eq!(middle.permissions, "r--p");
        assert!(middle.private_anonymous());
        assert_eq!(covering(&maps, 0), None);
    }
}
