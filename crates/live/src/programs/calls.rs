//! What threads of programs are blocked in, as `/proc/PID/task/TID/syscall` has it.

use std::fs::File;
use std::io::{self, Read, Write};

use crate::programs::kcmp::share_memory;
use crate::programs::proc_stat::text_of;

/// The system call that a thread is blocked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub number: i64,
    /// What it was called with.
    pub arguments: [u64; 6],
}

/// What thread `number` of `pid`, by the name that it has itself, is blocked in; `None` if it runs, or nobody can tell.
/// Takes no memory, unless that is another name than it has here.
pub fn call_of_thread(pid: u32, number: u32) -> Option<Call> {
    /// Threads of another namespace that are looked at.
    const MOST: usize = 256;
    match call_at(format_args!("/proc/{pid}/task/{number}/syscall")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found.ok().flatten(),
    }
    // Another process may have the same memory, a child of vfork for one.
    if share_memory(pid, number) == Some(true) {
        return call_at(format_args!("/proc/{number}/syscall")).ok()?;
    }
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().take(MOST);
    let is_it = |directory: &std::path::PathBuf| {
        let status = text_of(&format!("{}/status", directory.display())).unwrap_or_default();
        let names = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        names.and_then(|names| names.split_ascii_whitespace().last()?.parse().ok()) == Some(number)
    };
    let thread = threads.map(|thread| thread.path()).find(is_it)?;
    call_at(format_args!("{}/syscall", thread.display())).ok()?
}

/// What a thread's `syscall` says.
fn call_at(path: std::fmt::Arguments<'_>) -> io::Result<Option<Call>> {
    let mut buffer = [0u8; 64];
    let mut rest = &mut buffer[..];
    rest.write_fmt(path)?;
    let left = rest.len();
    let path = std::str::from_utf8(&buffer[..buffer.len() - left]).map_err(io::Error::other)?;
    let (mut file, mut line) = (File::open(path)?, [0u8; 256]);
    let read = file.read(&mut line)?;
    Ok(std::str::from_utf8(&line[..read]).ok().and_then(parse).and_then(|blocked| blocked.call))
}

/// A thread that is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Blocked {
    /// In a call, or elsewhere in the kernel.
    call: Option<Call>,
    /// The end of its stack.
    stack_pointer: u64,
}

/// "nr args... sp pc" of a thread that is blocked in a call, "-1 sp pc" elsewhere, "running" of one that is not.
fn parse(line: &str) -> Option<Blocked> {
    let hexadecimal = |field: &str| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok();
    let mut fields = line.split_ascii_whitespace();
    let number = fields.next()?.parse().ok()?;
    let mut rest = [0; 8];
    let mut count = 0;
    for field in fields {
        *rest.get_mut(count)? = hexadecimal(field)?;
        count += 1;
    }
    match (count, rest) {
        (8, [a, b, c, d, e, f, stack_pointer, _]) => {
            let call = Some(Call { number, arguments: [a, b, c, d, e, f] });
            Some(Blocked { call, stack_pointer })
        }
        (2, [stack_pointer, ..]) => Some(Blocked { call: None, stack_pointer }),
        _ => None,
    }
}

/// Calls in which a thread may be about to drop memory. As i386 counts them (`int $0x80`) madvise is 219, which is restart_syscall here; what is
/// handed to io_uring is done in io_uring_enter, and by threads of the kernel's that show that call or the one that made them.
const MAY_DROP: [i64; 5] = [
    libc::SYS_madvise,
    libc::SYS_process_madvise,
    219,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
];

/// What x32 programs add to the number of a call.
const X32: i64 = 0x4000_0000;

impl Call {
    fn may_drop(&self) -> bool {
        MAY_DROP.contains(&(self.number & !X32))
    }
}

/// The stack pointers of those threads of `pid` that are blocked, and whether *every* thread was
/// seen blocked in a call that drops no memory.
pub fn stack_pointers(pid: u32) -> (Vec<u64>, bool) {
    const MAX_THREADS: usize = 256;
    let mut pointers = Vec::new();
    let mut quiet = true;
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return (pointers, false);
    };
    for (n, task) in tasks.flatten().enumerate() {
        if n >= MAX_THREADS {
            return (pointers, false);
        }
        let line = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        let blocked = parse(&line);
        pointers.extend(blocked.map(|blocked| blocked.stack_pointer));
        quiet &= blocked.and_then(|blocked| blocked.call).is_some_and(|call| !call.may_drop());
    }
    (pointers, quiet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_may_drop_memory_is_known_by_all_its_numbers() {
        let may_drop = |number| Call { number, arguments: [0; 6] }.may_drop();
        // madvise of x86-64, x32 and i386, process_madvise of all, io_uring_enter and io_uring_setup.
        for number in [28, X32 + 28, 219, 440, X32 + 440, 426, 425] {
            assert!(may_drop(number), "{number}");
        }
        // read, futex, poll, epoll_wait, clock_nanosleep.
        for number in [0, 202, 7, 232, 230] {
            assert!(!may_drop(number), "{number}");
        }
    }

    #[test]
    fn what_a_thread_is_blocked_in_is_understood() {
        let line = "25 0x7f00 0x1000 0x2000 0x1 0x0 0x0 0x7ffd 0x7f12\n";
        let arguments = [0x7f00, 0x1000, 0x2000, 1, 0, 0];
        let call = Some(Call { number: 25, arguments });
        assert_eq!(parse(line), Some(Blocked { call, stack_pointer: 0x7ffd }));
        let elsewhere = Blocked { call: None, stack_pointer: 0x7ffd };
        assert_eq!(parse("-1 0x7ffd 0x7f12\n"), Some(elsewhere));
        for other in ["running\n", "", "25 0x7f00", "25 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8 0x9"] {
            assert_eq!(parse(other), None, "{other}");
        }
        let own = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let reads = call_of_thread(std::process::id(), own()).expect("it is in a call");
        assert_eq!(reads.number, libc::SYS_read);
    }
}
