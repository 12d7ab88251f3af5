//! Which pages of files programs use: the kernel's stream of what is read from the page cache and mapped from it
//! (its tracepoints `filemap:*`, Linux 6.11).
//!
//! A `read` tells exactly what it reads. A fault in a mapping maps up to 16 pages around itself, which the kernel takes
//! for used, too: all of them are told. What is mapped already is touched unheard.
//!
//! Who uses them may have ended by the time that it is heard: so is told which process began which.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use perf_event::data::Record;
use perf_event::events::{Software, Tracepoint};
use perf_event::{Builder, SampleFlag};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::perf_rings::PerfRings;

/// Bytes of the ring of each CPU and tracepoint: some 8,000 uses.
const RING_BYTES: usize = 1 << 20;

/// A tracepoint, and the field of the last page where it tells of several.
const TRACEPOINTS: [(&str, Option<&str>); 3] = [
    ("mm_filemap_get_pages", Some("last_index")),
    ("mm_filemap_map_pages", Some("last_index")),
    ("mm_filemap_fault", None),
];

/// A file, as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// Major and minor number of its file system's device.
    pub device: (u32, u32),
    /// Its inode.
    pub inode: u64,
}

/// Pages of a file were used, or a long read goes on there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// By which process.
    pub pid: u32,
    /// Whose pages.
    pub file: FileName,
    /// The first page.
    pub first: u64,
    /// And the last: of a read, the last that it asks for, however much there is.
    pub last: u64,
}

/// What the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// A process began another one, which may have a number that was somebody else's before.
    Began { child: u32, parent: u32 },
    /// A process used a file.
    Used(Use),
}

/// Bytes of the ring of each CPU for forks: some 2,000.
const FORKS_BYTES: usize = 128 << 10;

/// The stream.
pub struct PageCache {
    sources: Vec<(PerfRings, Layout)>,
    forks: PerfRings,
}

impl PageCache {
    /// Listens from now on.
    ///
    /// # Errors
    /// The kernel does not let this process look at all others (CAP_PERFMON, CAP_SYS_ADMIN), or does not tell this.
    pub fn listen() -> io::Result<PageCache> {
        let events = Tracefs::open()?;
        let source = |(name, last): (&str, Option<&str>)| {
            let layout = Layout::parse(&events.read(name, "format")?, last)
                .ok_or_else(|| io::Error::other(format!("{name} tells something else")))?;
            let id = events.read(name, "id")?.trim().parse().map_err(io::Error::other)?;
            let configure = |event: &mut Builder<'_>| {
                event.sample(SampleFlag::TID).sample(SampleFlag::TIME).sample(SampleFlag::RAW);
            };
            let rings = PerfRings::listen(&Tracepoint::with_id(id), configure, RING_BYTES)?;
            Ok((rings, layout))
        };
        let sources = TRACEPOINTS.into_iter().map(source).collect::<io::Result<_>>()?;
        let configure = |event: &mut Builder<'_>| {
            event.task(true);
        };
        let forks = PerfRings::listen(&Software::DUMMY, configure, FORKS_BYTES)?;
        Ok(PageCache { sources, forks })
    }

    /// What happened since the last time, in that order, with the time on the kernel's clock for this. A fork is among it
    /// if what the child used is.
    pub fn take(&mut self) -> Vec<(u64, Told)> {
        let mut told = Vec::new();
        for (rings, layout) in &mut self.sources {
            rings.take(|record| {
                let Record::Sample(sample) = record else { return };
                let (when, pid, raw) = (sample.time(), sample.pid(), sample.raw());
                if let (Some(when), Some(pid), Some(raw)) = (when, pid, raw)
                    && let Some((file, first, last)) = layout.read(raw)
                {
                    told.push((when, Told::Used(Use { pid, file, first, last })));
                }
            });
        }
        self.forks.take(|record| {
            // Threads are told, too.
            if let Record::Fork(fork) = record
                && fork.pid != fork.ppid
            {
                told.push((fork.time, Told::Began { child: fork.pid, parent: fork.ppid }));
            }
        });
        told.sort_unstable();
        told
    }

    /// Uses and forks that nobody heard of, because rings were full.
    pub fn lost(&self) -> u64 {
        self.sources.iter().map(|(rings, _)| rings.lost()).sum::<u64>() + self.forks.lost()
    }
}

/// What the kernel says of its tracepoints: mounted for nobody else to see, as it is not mounted everywhere.
struct Tracefs(OwnedFd);

impl Tracefs {
    fn open() -> io::Result<Tracefs> {
        let system = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&system)?;
        Ok(Tracefs(fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?))
    }

    fn read(&self, tracepoint: &str, what: &str) -> io::Result<String> {
        let path = Path::new("events/filemap").join(tracepoint).join(what);
        let missing = |error: rustix::io::Errno| match error {
            rustix::io::Errno::NOENT => io::Error::new(
                io::ErrorKind::Unsupported,
                format!("this kernel has no tracepoint {tracepoint} (Linux 6.11)"),
            ),
            error => error.into(),
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&self.0, &path, flags, Mode::empty()).map_err(missing)?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Where in a record each field is: offset and size, bytes.
struct Layout {
    inode: (usize, usize),
    device: (usize, usize),
    first: (usize, usize),
    last: Option<(usize, usize)>,
}

impl Layout {
    /// Of the text that describes a tracepoint; `last` names its field of the last page.
    fn parse(format: &str, last: Option<&str>) -> Option<Layout> {
        let field = |name: &str| {
            let ends = format!(" {name}");
            let mut lines = format.lines().filter_map(|line| line.trim().strip_prefix("field:"));
            let line =
                lines.find(|line| line.split(';').next().is_some_and(|f| f.ends_with(&ends)))?;
            let number = |key: &str| {
                let mut parts = line.split(';').map(str::trim);
                parts.find_map(|part| part.strip_prefix(key))?.parse::<usize>().ok()
            };
            Some((number("offset:")?, number("size:").filter(|size| matches!(size, 4 | 8))?))
        };
        let last = match last {
            Some(name) => Some(field(name)?),
            None => None,
        };
        Some(Layout {
            inode: field("i_ino")?,
            device: field("s_dev")?,
            first: field("index")?,
            last,
        })
    }

    fn read(&self, raw: &[u8]) -> Option<(FileName, u64, u64)> {
        let number = |(offset, size): (usize, usize)| {
            let bytes = raw.get(offset..offset + size)?;
            Some(match size {
                4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
                _ => u64::from_ne_bytes(bytes.try_into().ok()?),
            })
        };
        // Twenty bits of the kernel's own number are the minor one.
        let device = number(self.device)? as u32;
        let file =
            FileName { device: (device >> 20, device & 0xf_ffff), inode: number(self.inode)? };
        let first = number(self.first)?;
        let last = self.last.map_or(Some(first), number)?;
        (first <= last).then_some((file, first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: mm_filemap_get_pages\nID: 599\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:unsigned long i_ino;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:dev_t s_dev;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long index;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long last_index;\toffset:32;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"dev=%d:%d\", REC->s_dev\n";

    #[test]
    fn records_are_read_as_the_kernel_describes_them() {
        let layout = Layout::parse(FORMAT, Some("last_index")).expect("all fields");
        let mut raw = [0u8; 40];
        raw[8..16].copy_from_slice(&77u64.to_ne_bytes());
        raw[16..20].copy_from_slice(&((254u32 << 20) | 3).to_ne_bytes());
        raw[24..32].copy_from_slice(&5u64.to_ne_bytes());
        raw[32..40].copy_from_slice(&9u64.to_ne_bytes());
        let file = FileName { device: (254, 3), inode: 77 };
        assert_eq!(layout.read(&raw), Some((file, 5, 9)));
        assert_eq!(layout.read(&raw[..39]), None);
        let one = Layout::parse(FORMAT, None).expect("all fields");
        assert_eq!(one.read(&raw), Some((file, 5, 5)));
        raw[32..40].copy_from_slice(&4u64.to_ne_bytes());
        assert_eq!(layout.read(&raw), None);
    }

    #[test]
    fn other_descriptions_are_refused() {
        assert!(Layout::parse(FORMAT, Some("another")).is_none());
        assert!(Layout::parse(&FORMAT.replace("i_ino", "ino"), None).is_none());
        assert!(Layout::parse(&FORMAT.replace("size:8", "size:80"), None).is_none());
    }
}
