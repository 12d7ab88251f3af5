//! A daemon that was killed and does not end, as a thread of it waits for memory of a program's that nobody serves.
//!
//! A program's memory, its arguments and its environment may lie in a file of a file system (FUSE) that does not answer. Whoever
//! reads them waits for that in the kernel, and no signal ends it. Such a thread comes back from its call into its own end:
//! it reads into memory that ends with it, and does nothing else. So who waits for nothing but such threads may go on.

use std::fs;

/// Files of `/proc/PID` in which a program's memory is read.
const MEMORY: [&str; 3] = ["mem", "environ", "cmdline"];
const READS: [i64; 2] = [libc::SYS_read, libc::SYS_pread64];
const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

/// Whether the threads that process `pid` still has can do nothing any more: it was killed, and they read a program's memory. False
/// where that cannot be told.
pub fn can_do_nothing(pid: u32) -> bool {
    // Twice: a thread that was begun meanwhile is one that was not killed yet when it was.
    (0..2).all(|_| all_can_do_nothing(pid).unwrap_or(false))
}

fn all_can_do_nothing(pid: u32) -> Option<bool> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    for thread in threads {
        let thread = thread.ok()?.path();
        let Ok(status) = fs::read_to_string(thread.join("status")) else {
            // It has ended meanwhile.
            if thread.exists() {
                return None;
            }
            continue;
        };
        let can_do_nothing = has_ended(&status) || is_killed(&status) && reads_memory(&thread)?;
        if !can_do_nothing {
            return Some(false);
        }
    }
    Some(true)
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Of the first thread something is left until all have ended.
fn has_ended(status: &str) -> bool {
    field(status, "State:").is_some_and(|state| state.starts_with(['Z', 'X']))
}

fn is_killed(status: &str) -> bool {
    let pending = field(status, "SigPnd:").and_then(|bits| u64::from_str_radix(bits, 16).ok());
    pending.is_some_and(|bits| bits & SIGKILL_BIT != 0)
}

/// Whether a thread waits in a read of a program's memory.
fn reads_memory(thread: &std::path::Path) -> Option<bool> {
    let call = fs::read_to_string(thread.join("syscall")).ok()?;
    let mut words = call.split_ascii_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else {
        return Some(false);
    };
    if !READS.contains(&number) {
        return Some(false);
    }
    let fd = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let file = fs::read_link(thread.join("fd").join(fd.to_string())).ok()?;
    let name = file.file_name()?.to_str()?;
    Some(file.starts_with("/proc") && MEMORY.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn who_was_not_killed_can_do_something() {
        let mut reader = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it starts");
        assert!(!can_do_nothing(reader.id()));
        assert!(!can_do_nothing(std::process::id()));
        reader.kill().expect("it lives");
        reader.wait().expect("it ends");
        assert!(!can_do_nothing(reader.id()), "of who is not there nothing can be told");
    }

    #[test]
    fn what_the_kernel_says_of_threads_is_read() {
        let status = "Name:\tclew\nState:\tD (disk sleep)\nSigPnd:\t0000000000000100\nShdPnd:\t0\n";
        assert!(is_killed(status) && !has_ended(status));
        assert!(!is_killed("State:\tS\nSigPnd:\t0000000000000002\nShdPnd:\t0000000000000100\n"));
        assert!(has_ended("State:\tZ (zombie)\n"));
        assert!(!is_killed("") && !has_ended(""));
    }
}
