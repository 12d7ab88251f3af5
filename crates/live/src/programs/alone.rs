//! Programs that are left alone for what they have open: memory of theirs that is registered would not do what the program needs of it.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

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
        let mut links =
            files.flatten().take(MAX_FILES).filter_map(|file| std::fs::read_link(file.path()).ok());
        links.find_map(|to| {
            if to.as_os_str() == "anon_inode:[userfaultfd]" {
                return Some(Alone::Userfaultfd);
            }
            let whose = whose_memory(&to)?;
            is_known_as(pid, whose).then_some(Alone::MemoryAsFile)
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

/// Whether `number` is that of process `pid` in one of the namespaces that it is in.
fn is_known_as(pid: u32, number: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|own| own.split_whitespace().any(|n| n.parse() == Ok(number)))
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
