//! What `clew govern` needs of this machine, and what it has besides: each tried, not looked up.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use clew_live::doctor::{Check, Level};
use clew_live::kernel_swap::free_swap_bytes;
use clew_live::programs::advice::{advise, pidfd};
use clew_live::programs::mappings;

use crate::major_faults::MajorFaults;

/// What was found, one line a question.
pub fn examine() -> Vec<Check> {
    vec![swap(), advice(), touch(), faults(), multi_generational(), damon(), idle_pages()]
}

fn check(name: &'static str, level: Level, found: impl Into<String>, advice: &str) -> Check {
    Check { name, level, found: found.into(), advice: advice.into() }
}

fn swap() -> Check {
    const NAME: &str = "swap (govern)";
    match free_swap_bytes() {
        Some(bytes) => check(NAME, Level::Ok, format!("{} free", clew_core::ByteSize(bytes)), ""),
        None => check(
            NAME,
            Level::Limited,
            "none",
            "'clew govern' needs some ('swapon', for example a zram device)",
        ),
    }
}

/// A program of another memory, which waits.
struct Other(Child);

impl Other {
    fn start() -> Result<Other, String> {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut other = command.spawn().map(Other).map_err(|error| format!("cat: {error}"))?;
        // Once it has answered, its memory is there.
        let (input, output) = (other.0.stdin.as_mut(), other.0.stdout.as_mut());
        let (Some(input), Some(output)) = (input, output) else { return Err("no pipes".into()) };
        let asked = input.write_all(b".").and_then(|()| output.read_exact(&mut [0]));
        asked.map(|()| other).map_err(|error| format!("cat: {error}"))
    }

    /// Its first mapping of no file.
    fn heap(&self) -> Result<u64, String> {
        let maps = fs::File::open(format!("/proc/{}/maps", self.0.id()));
        let maps =
            maps.and_then(|maps| mappings::read(&maps)).map_err(|error| error.to_string())?;
        let usable = maps.iter().find(|m| m.private_anonymous() && m.permissions.starts_with("rw"));
        usable.map(|m| m.start).ok_or("it has no memory".to_string())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn advice() -> Check {
    const NAME: &str = "process_madvise";
    const MADV_PAGEOUT: i32 = 21;
    let tried = || {
        let other = Other::start()?;
        let process = pidfd(other.0.id()).map_err(|error| error.to_string())?;
        let range = (other.heap()?, rustix::param::page_size() as u64);
        advise(&process, &[range], MADV_PAGEOUT).map_err(|error| error.to_string())
    };
    match tried() {
        Ok(_) => check(NAME, Level::Ok, "MADV_PAGEOUT on another process works", ""),
        Err(why) => check(
            NAME,
            Level::Limited,
            why,
            "'clew govern' needs it: root, or CAP_SYS_NICE and CAP_SYS_PTRACE (and Yama's \
             ptrace_scope below 3), Linux 5.10 or later",
        ),
    }
}

fn touch() -> Check {
    use std::os::unix::fs::FileExt;
    const NAME: &str = "keeping pages young";
    let tried = || {
        let other = Other::start()?;
        let memory = fs::File::open(format!("/proc/{}/mem", other.0.id()))
            .map_err(|error| error.to_string())?;
        memory.read_at(&mut [0], other.heap()?).map_err(|error| error.to_string())
    };
    match tried() {
        Ok(1) => check(NAME, Level::Ok, "pages of another process can be touched", ""),
        Ok(_) => check(NAME, Level::Limited, "nothing was read", ""),
        Err(why) => check(
            NAME,
            Level::Limited,
            why,
            "'clew govern' needs /proc/PID/mem of what it governs: root, or CAP_SYS_PTRACE",
        ),
    }
}

fn faults() -> Check {
    const NAME: &str = "stream of major faults";
    match MajorFaults::listen() {
        Ok(_) => check(NAME, Level::Ok, "perf tells of those of all processes", ""),
        Err(error) => check(
            NAME,
            Level::Limited,
            error.to_string(),
            "'clew govern' needs it: root, or CAP_PERFMON, or kernel.perf_event_paranoid below 1",
        ),
    }
}

fn multi_generational() -> Check {
    const NAME: &str = "multi-generational LRU";
    let enabled = fs::read_to_string("/sys/kernel/mm/lru_gen/enabled");
    match enabled.as_deref().map(str::trim) {
        Ok("0x0000") => check(NAME, Level::Info, "there, and off", ""),
        Ok(bits) => check(NAME, Level::Info, format!("on ({bits})"), ""),
        Err(_) => check(NAME, Level::Info, "none: active and inactive lists", ""),
    }
}

fn damon() -> Check {
    const NAME: &str = "DAMON";
    const OPERATIONS: &str = "/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/avail_operations";
    // Which operations there are is told in a context only, and contexts are not ours to make.
    let found = match (fs::read_to_string(OPERATIONS), Path::new("/sys/kernel/mm/damon").exists()) {
        (Ok(operations), _) => operations.split_whitespace().collect::<Vec<_>>().join(", "),
        (Err(_), true) => "there; not used by this version".to_string(),
        (Err(_), false) => "none".to_string(),
    };
    check(NAME, Level::Info, found, "")
}

fn idle_pages() -> Check {
    let found = match fs::File::open("/sys/kernel/mm/page_idle/bitmap") {
        Ok(_) => "there; not used by this version".to_string(),
        Err(error) => format!("none ({error})"),
    };
    check("idle page tracking", Level::Info, found, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_is_answered_once() {
        let checks = examine();
        let names: std::collections::BTreeSet<&str> = checks.iter().map(|c| c.name).collect();
        assert_eq!((names.len(), checks.len()), (7, 7));
        assert!(checks.iter().all(|c| !c.found.is_empty()), "{checks:?}");
        let lacks = |c: &&Check| c.level == Level::Limited && c.name != "swap (govern)";
        let root = rustix::process::geteuid().is_root();
        assert!(!root || !checks.iter().any(|c| lacks(&c)), "{checks:?}");
    }
}
