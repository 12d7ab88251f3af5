//! One governed program: the memory of one process, from one execve to the next.
//!
//! What is asked of it goes through files of `/proc` that were opened once: they stay bound to the memory that the
//! process had then. Neither the next process of the same id nor what the same process becomes by execve (a
//! program with the rights of another user, perhaps) is read or touched through them. Advice goes through a pidfd,
//! which names a process and not its memory: so it is given only while that memory is there. Advice changes nothing
//! that a program could read.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use clew_core::{AppId, PageId, SpaceId, Vpn};
use clew_live::programs::advice;
use clew_live::programs::mappings::{self, Mapping};
use clew_live::programs::name::bounded;
use clew_live::programs::pagemap::{self, PageIs};
use clew_live::programs::proc_stat::{Stat, resident_anonymous_bytes, text_of};
use clew_live::programs::sharing::part_of;
use clew_live::survival::predecessor::ProcessName;

/// How long a program counts as busy once it has done something: longer than between two looks at that.
const BUSY_FOR: Duration = Duration::from_millis(300);
/// How often one is measured that is not: where memory is short, and where there is much.
pub const REMEASURED: Duration = Duration::from_secs(1);
pub const SELDOM_MEASURED: Duration = Duration::from_secs(4);

/// A program. Its memory is of the process `name` as long as [`Program::is_there`].
pub struct Program {
    /// Its process.
    pub name: ProcessName,
    /// Its memory.
    pub space: SpaceId,
    /// What it is part of.
    pub app: AppId,
    /// What it calls itself.
    pub command: String,
    process: OwnedFd,
    maps: File,
    pagemap: File,
    memory: File,
    statm: File,
    /// Faults that were heard of.
    pub faults: u64,
    /// What it had resident when that was last asked, and when that was, bytes.
    measured: Option<(Instant, u64)>,
    /// As long as this is not over it is asked at once.
    busy_until: Instant,
    /// Who has begun it.
    pub parent: u32,
    /// What its parent had when it was found, which it may have of that; until what is its own was looked at.
    pub may_share_bytes: u64,
    /// What of its pages counts as its own where others have the same, and when that was last looked at.
    pub own_part: f64,
    pub own_part_looked: Option<Instant>,
    /// When it was last looked at, how long that took, and what it had resident then, bytes.
    pub looked: Option<(Instant, Duration, u64)>,
}

impl Program {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// It is gone, another has its id, or nobody may look at it who is not allowed to trace it.
    pub fn open(name: ProcessName, space: SpaceId, app: AppId) -> io::Result<Program> {
        let open = |file: &str| File::open(format!("/proc/{}/{file}", name.pid));
        let process = advice::pidfd(name.pid)?;
        let program = Program {
            name,
            space,
            app,
            command: command(name.pid),
            process,
            memory: open("mem")?,
            maps: open("maps")?,
            pagemap: open("pagemap")?,
            statm: open("statm")?,
            faults: 0,
            measured: None,
            busy_until: Instant::now() + BUSY_FOR,
            parent: Stat::of(name.pid)?.parent,
            may_share_bytes: 0,
            own_part: 1.0,
            own_part_looked: None,
            looked: None,
        };
        // Looked at last: as long as the id has not changed hands, all of the above is of this process.
        if ProcessName::of(name.pid)? != name || !program.is_there() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        Ok(program)
    }

    /// Whether its memory is still that of a process: false after its end, and after an execve.
    pub fn is_there(&self) -> bool {
        self.pagemap.read_at(&mut [0; 8], 0).is_ok_and(|read| read == 8)
    }

    /// Its private memory of no file, as far as a program can use it.
    pub fn mappings(&mut self) -> io::Result<Vec<Mapping>> {
        let mut all = mappings::read(&self.maps)?;
        all.retain(|mapping| {
            mapping.private_anonymous() && !mapping.permissions.starts_with("---")
        });
        Ok(all)
    }

    /// Pages of `[start, end)` that hold something, ascending: the first, how many, and where they are.
    pub fn kept_pages(
        &self,
        (start, end): (u64, u64),
        page_bytes: u64,
        found: impl FnMut(Vpn, u64, PageIs),
    ) -> io::Result<()> {
        pagemap::kept_pages(&self.pagemap, start, end, page_bytes, found)
    }

    /// What the kernel says of these pages (ascending), each. Nothing of memory that is gone.
    pub fn states(&self, pages: &[PageId]) -> Vec<PageIs> {
        let mut states = Vec::with_capacity(pages.len());
        for run in runs(pages) {
            let (first, count) = (run[0].vpn(), run.len());
            match pagemap::page_states(&self.pagemap, first, count) {
                Ok(of_run) => states.extend(of_run),
                Err(_) => states.resize(states.len() + count, PageIs::Nothing),
            }
        }
        states
    }

    /// Gives advice (`MADV_…`) about these pages, ascending, if its memory is there.
    ///
    /// # Errors
    /// As [`advice::advise`]; not found, if its memory is gone.
    pub fn advise(&self, pages: &[PageId], page_bytes: u64, advice: i32) -> io::Result<u64> {
        if !self.is_there() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let range = |run: &[PageId]| (run[0].vpn().addr(page_bytes), run.len() as u64 * page_bytes);
        let ranges: Vec<(u64, u64)> = runs(pages).map(range).collect();
        advice::advise(&self.process, &ranges, advice)
    }

    /// Reads a byte of a page, which counts as a use of it by its program, and forgets it. False if there
    /// is no such page. A page that is out comes in, and this waits for it.
    pub fn touch(&self, page: PageId, page_bytes: u64) -> bool {
        let at = page.vpn().addr(page_bytes);
        self.memory.read_at(&mut [0], at).is_ok_and(|read| read == 1)
    }

    /// It does something, or something is done to it.
    pub fn stir(&mut self) {
        self.busy_until = Instant::now() + BUSY_FOR;
    }

    /// Anonymous memory that it has resident, bytes: now, where it was busy of late, else so long ago at most.
    pub fn resident_bytes(&mut self, page_bytes: u64, now: Instant, ago: Duration) -> u64 {
        match self.measured {
            Some((when, bytes)) if now > self.busy_until && now - when < ago => bytes,
            _ => {
                let bytes = self.resident_now(page_bytes);
                self.measured = Some((now, bytes));
                bytes
            }
        }
    }

    /// What of that is counted as its own: a page that several have (by fork) counts once in all of them.
    pub fn counted_bytes(&mut self, page_bytes: u64, now: Instant, ago: Duration) -> u64 {
        let resident = self.resident_bytes(page_bytes, now, ago);
        match self.own_part_looked {
            Some(_) => (resident as f64 * self.own_part) as u64,
            None => resident.saturating_sub(self.may_share_bytes),
        }
    }

    /// Anonymous memory that it has resident now, bytes.
    pub fn resident_now(&self, page_bytes: u64) -> u64 {
        resident_anonymous_bytes(&self.statm, page_bytes)
    }

    /// Looks what of its pages is its own.
    pub fn look_at_own_part(&mut self, page_bytes: u64) {
        self.own_part_looked = Some(Instant::now());
        let part = part_of(self.name.pid);
        // Its id may be another's by now; then this ends.
        let resident = self.resident_now(page_bytes);
        if let Some(part) = part.filter(|_| resident > 0 && self.is_there()) {
            self.own_part = (part.anonymous as f64 / resident as f64).min(1.0);
        }
    }
}

/// Ascending pages as runs of neighbours.
fn runs(pages: &[PageId]) -> impl Iterator<Item = &[PageId]> {
    pages.chunk_by(|a, b| a.raw() + 1 == b.raw())
}

/// What a process calls itself.
pub fn command(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    bounded(bytes.strip_suffix(b"\n").unwrap_or(&bytes))
}

/// Anonymous memory of a process, resident or swapped, bytes. Nothing, once it is gone.
pub fn anonymous_bytes(pid: u32) -> u64 {
    let text = text_of(&format!("/proc/{pid}/status")).unwrap_or_default();
    anonymous_in(&text)
}

fn anonymous_in(status: &str) -> u64 {
    let kib = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    let counts = |line: &&str| line.starts_with("RssAnon:") || line.starts_with("VmSwap:");
    status.lines().filter(counts).filter_map(kib).map(|kib| kib << 10).sum()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A program of our own whose memory is there: `cat`, which has answered and waits.
    fn waiting(command: &mut Command) -> Child {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        answer(&mut child);
        child
    }

    /// Gives it a line and waits until it comes back.
    fn answer(child: &mut Child) {
        child.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it reads");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0; 3]).expect("it answers");
    }

    #[test]
    fn memory_is_gone_with_its_process_and_another_of_its_id_is_refused() {
        let mut child = waiting(&mut Command::new("cat"));
        let name = ProcessName::of(child.id()).expect("it waits");
        let another = ProcessName { started: name.started + 1, ..name };
        assert!(Program::open(another, SpaceId(1), AppId(1)).is_err());
        let mut program = Program::open(name, SpaceId(1), AppId(1)).expect("it is ours");
        let heap = program.mappings().expect("maps").into_iter().next().expect("some memory");
        let page = PageId::new(SpaceId(1), Vpn::of_addr(heap.start, 4096));
        assert!(program.is_there());
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert!(!program.is_there());
        assert!(!program.touch(page, 4096));
        assert!(program.advise(&[page], 4096, 21).is_err());
        assert_eq!(program.states(&[page]), [PageIs::Nothing]);
    }

    #[test]
    fn what_is_swapped_is_memory_too() {
        let status = "Name:\tx\nVmRSS:\t 900 kB\nRssAnon:\t  8 kB\nVmSwap:\t 4096 kB\n";
        assert_eq!(anonymous_in(status), 4104 << 10);
        assert_eq!((anonymous_in(""), anonymous_in("VmSwap:\n")), (0, 0));
        assert!(anonymous_bytes(std::process::id()) > 0);
    }

    #[test]
    fn what_a_process_becomes_is_not_read() {
        let mut shell = Command::new("sh");
        let mut child = waiting(shell.args(["-c", "read go; echo $go; read go; exec cat"]));
        let name = ProcessName::of(child.id()).expect("it waits");
        let program = Program::open(name, SpaceId(1), AppId(1)).expect("it is ours");
        child.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it reads");
        let hang = Instant::now() + Duration::from_secs(60);
        while program.is_there() {
            assert!(Instant::now() < hang, "it does not become cat");
            std::thread::sleep(Duration::from_millis(5));
        }
        answer(&mut child);
        // The same process, and nothing of it is reached through what was opened.
        assert_eq!(ProcessName::of(child.id()).expect("it lives"), name);
        let mut now = Program::open(name, SpaceId(2), AppId(1)).expect("it is ours");
        let heap = now.mappings().expect("maps").into_iter().next().expect("some memory");
        let page = PageId::new(SpaceId(1), Vpn::of_addr(heap.start, 4096));
        assert!(!program.touch(page, 4096) && now.touch(page, 4096));
        assert!(program.advise(&[page], 4096, 21).is_err());
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
}
