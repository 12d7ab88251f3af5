//! Programs that are left alone for what they have open: memory of theirs that is registered would not do what the program needs of it.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Most open files that are looked at.
const MAX_FILES: usize = 4096;

/// Why a program is left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Alone {
    /// A mapping can be registered on one userfaultfd only, and it has one of its own.
    Userfaultfd = 1,
    /// It reads or writes its own memory as a file, for which the kernel waits for nobody: EIO where a page is
    /// missing. Julia writes what it compiles so.
    MemoryAsFile = 2,
}

impl Alone {
    /// What open files of process `pid` say. Clew's own userfaultfd is open in the agent's table.
    pub fn by_open_files(pid: u32) -> Option<Alone> {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let mut own_numbers = None;
        let mut links =
            files.flatten().take(MAX_FILES).filter_map(|file| std::fs::read_link(file.path()).ok());
        links.find_map(|to| {
            if to.as_os_str() == "anon_inode:[userfaultfd]" {
                return Some(Alone::Userfaultfd);
            }
            let whose = whose_memory(&to)?;
            let own = own_numbers.get_or_insert_with(|| numbers_of(pid));
            own.contains(&whose).then_some(Alone::MemoryAsFile)
        })
    }

    /// What an [`AtomicU8`](std::sync::atomic::AtomicU8) has of it; 0 is of nobody.
    pub fn of(code: u8) -> Option<Alone> {
        [Alone::Userfaultfd, Alone::MemoryAsFile].into_iter().find(|alone| *alone as u8 == code)
    }
}

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Alone::Userfaultfd => "it uses a userfaultfd of its own: it is left alone",
            Alone::MemoryAsFile => "it has its own memory open as a file: it is left alone",
        })
    }
}

/// The process whose memory a file of /proc is (`/proc/PID/mem`, `/proc/PID/task/TID/mem`), by its number where that was mounted.
fn whose_memory(file: &Path) -> Option<u32> {
    let mut names = file.iter().rev();
    if names.next() != Some(OsStr::new("mem")) {
        return None;
    }
    let thread_or_process = names.next()?;
    let process = match names.next()? == "task" {
        true => names.next()?,
        false => thread_or_process,
    };
    process.to_str()?.parse().ok()
}

/// The numbers of process `pid` in the namespaces that it is in.
fn numbers_of(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.into_iter().flat_map(str::split_whitespace).filter_map(|n| n.parse().ok()).collect()
}

/// How long it is until a program's open files are looked at again, at least: so many times what the last look took.
const SHARE: u32 = 256;
/// As long as a look goes on nobody begins another.
const WHILE_LOOKING: Duration = Duration::from_secs(3600);

/// When the open files of a program are looked at again: a program has as many as it likes.
#[derive(Default)]
pub struct NextLook(Mutex<Option<Instant>>);

impl NextLook {
    /// Whether it is time; then who asks looks.
    pub fn begin(&self) -> bool {
        let mut next = self.0.lock();
        let now = Instant::now();
        let is_due = next.is_none_or(|next| next <= now);
        if is_due {
            *next = Some(now + WHILE_LOOKING);
        }
        is_due
    }

    /// The look is over, and took so long.
    pub fn over(&self, took: Duration) {
        *self.0.lock() = Some(Instant::now() + took * SHARE);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_its_own_memory_counts() {
        let me = std::process::id();
        let other = Command::new("sleep").arg("60").spawn();
        let mut other = other.expect("a process of another's");
        let others = File::open(format!("/proc/{}/mem", other.id()));
        let found = Alone::by_open_files(me);
        let _ = other.kill().and_then(|()| other.wait());
        drop(others);
        assert_ne!(found, Some(Alone::MemoryAsFile));
        for own in ["/proc/self/mem", "/proc/thread-self/mem"] {
            let _open = File::open(own).expect("one's own memory");
            assert_eq!(Alone::by_open_files(me), Some(Alone::MemoryAsFile), "{own}");
        }
    }

    #[test]
    fn one_looks_at_a_time_and_seldom_where_it_takes_long() {
        let next = NextLook::default();
        assert!(next.begin() && !next.begin(), "one looks");
        next.over(Duration::from_secs(60));
        assert!(!next.begin(), "it took a minute");
        next.over(Duration::ZERO);
        assert!(next.begin());
    }

    #[test]
    fn numbers_are_found_in_names() {
        let whose = |name: &str| whose_memory(Path::new(name));
        assert_eq!(whose("/proc/12/mem"), Some(12));
        assert_eq!(whose("/proc/12/task/34/mem"), Some(12));
        assert_eq!(whose("/12/mem"), Some(12));
        for other in ["/proc/12/maps", "/dev/mem", "/mem", "mem", "/tmp/a/mem", "anon_inode:[x]"] {
            assert_eq!(whose(other), None, "{other}");
        }
    }
}
