//! Memory that several processes have: it is counted once.
//!
//! Processes that were cloned with CLONE_VM have one memory, and of one memory one process is managed. A
//! forked child has its parent's pages until one of them writes. The parent counts them all; of the child
//! only what is not shared any more, as far as the kernel's shares tell (`Pss_Anon`), which are looked at
//! now and then, because that walks its page tables.

use std::fs::{self, File};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clew_core::SpaceId;

use crate::programs::kcmp::share_memory;
use crate::programs::mappings;
use crate::programs::pagemap;
use crate::programs::proc_stat::user_of;
use crate::programs::proc_stat::{resident_anonymous_bytes, resident_anonymous_bytes_of};
use crate::programs::process::{ProcFiles, Process};
use crate::programs::shared::Shared;
use crate::survival::predecessor::ProcessName;

/// Resident memory of a process, its part of what several have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub anonymous: u64,
    pub shared: u64,
    /// Of the anonymous memory, what may be written and executed; not asked for where it does not matter.
    pub executable: u64,
}

/// The part of process `pid`; `None` where it cannot be read. Walks its page tables.
pub fn part_of(pid: u32) -> Option<Sizes> {
    parse_rollup(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

fn parse_rollup(text: &str) -> Option<Sizes> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let (anonymous, shared) = (bytes("Pss_Anon:")?, bytes("Pss_Shmem:")?);
    Some(Sizes { anonymous, shared, executable: 0 })
}

/// Resident memory of process `pid` that may be written and executed, bytes; nothing where it cannot be read.
pub fn executable_bytes(pid: u32, page_bytes: u64) -> u64 {
    let look = || -> io::Result<u64> {
        let maps = mappings::read(&File::open(format!("/proc/{pid}/maps"))?)?;
        let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        let mut pages = 0;
        for m in maps.iter().filter(|m| m.is_executable_data()) {
            pagemap::present_pages(&pagemap, m.start, m.end, page_bytes, |run| pages += run.pages)?;
        }
        Ok(pages * page_bytes)
    };
    look().unwrap_or(0)
}

/// The process that has the memory of agent `agent` of process `pid`, and is served already.
pub fn who_has_it(shared: &Shared, agent: u32, pid: u32) -> Option<Arc<Process>> {
    let processes: Vec<Arc<Process>> = shared.processes.read().values().cloned().collect();
    let has_it = |process: &&Arc<Process>| {
        let theirs = process.memory.agent_pid();
        match theirs.and_then(|theirs| share_memory(theirs, agent)) {
            Some(is_one) => is_one,
            // Its agent has gone, and the memory would have with it, had the process become another.
            None if process.pid() == pid => process.memory.uffd.is_alive(),
            None => process.pid() != 0 && share_memory(process.pid(), agent) == Some(true),
        }
    };
    processes.iter().find(has_it).cloned()
}

/// Size of a process' address space, pages. Who shares it has the same.
fn size_pages(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    statm.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether no process but `agent` shares the memory of process `pid` of user `uid`, as far as can be told: who is of
/// another user by now (it may have been cloned before) and as large is taken for one that does. The kernel is asked of no
/// more than it must be: an execve that does not end keeps it from answering.
fn is_alone(pid: u32, agent: Option<u32>, uid: u32) -> bool {
    let Some(size) = size_pages(pid) else { return false };
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let others = numbers.filter(|other| *other != pid && Some(*other) != agent);
    let shares = |other: u32| match user_of(other) {
        Some(user) if user == uid => share_memory(pid, other) != Some(false),
        _ => true,
    };
    let is_shared = others.filter(|other| size_pages(*other) == Some(size)).any(shares);
    // It may have become larger or smaller, and others with it.
    !is_shared && size_pages(pid) == Some(size)
}

impl Process {
    /// Whether no process but its agent shares its memory ([`is_alone`]).
    pub fn is_alone_in_its_memory(&self) -> bool {
        is_alone(self.pid(), self.memory.agent_pid(), self.uid())
    }

    /// Resident memory of it.
    pub fn resident_bytes(&self, page_bytes: u64) -> u64 {
        let of = |files: &ProcFiles| resident_anonymous_bytes(&files.statm, page_bytes);
        match self.files.get().map_or(0, of) {
            // It is gone, or its first thread is.
            0 if self.is_managed() => resident_anonymous_bytes_of(self.pid(), page_bytes),
            bytes => bytes,
        }
    }

    /// What is counted of so much of it: what it has from a parent that is there is counted there.
    pub fn counted_bytes(&self, resident: u64, is_there: impl FnOnce(SpaceId) -> bool) -> u64 {
        let from_parent = self.from_parent_bytes.load(Ordering::Relaxed);
        match self.parent.get() {
            Some(parent) if from_parent > 0 && !is_there(*parent) => resident,
            _ => resident.saturating_sub(from_parent),
        }
    }

    /// A forked child is known from now on: all that it has is taken for its parent's until it is
    /// looked at.
    pub fn begins_to_count(&self, page_bytes: u64) {
        self.from_parent_bytes.store(self.resident_bytes(page_bytes), Ordering::Relaxed);
    }

    /// Looks at what a forked child has from others still.
    pub fn look_what_is_its_own(&self, page_bytes: u64) {
        let Some(name) = self.name() else { return };
        let resident = self.resident_bytes(page_bytes);
        let part = part_of(name.pid);
        // It was the part of this process if it is there still.
        let is_there = ProcessName::of(name.pid).is_ok_and(|now| now == name);
        let own = part.filter(|_| is_there).map_or(resident, |part| part.anonymous);
        self.from_parent_bytes.store(resident.saturating_sub(own), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_shares_are_understood() {
        let text = "0-1 ---p 0 00:00 0 [rollup]\nPss_Anon:  16 kB\nPss_Shmem:  4 kB\n";
        assert_eq!(
            parse_rollup(text),
            Some(Sizes { anonymous: 16 << 10, shared: 4 << 10, executable: 0 })
        );
        assert_eq!(parse_rollup("Pss: 3 kB\n"), None);
        assert!(part_of(std::process::id()).is_some_and(|part| part.anonymous > 0));
    }

    /// Waits in the memory of whoever has cloned it.
    extern "C" fn wait(_: *mut libc::c_void) -> libc::c_int {
        loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        }
    }

    #[test]
    fn who_shares_the_memory_of_a_process_is_found() {
        let own = std::process::id();
        // SAFETY: takes nothing.
        let uid = unsafe { libc::getuid() };
        let mut stack = vec![0u64; 8192];
        // Of itself it says so again and again: other tests make this process larger meanwhile.
        let is_alone_once = |agent| (0..1000).any(|_| is_alone(own, agent, uid));
        assert!(is_alone_once(None));
        // SAFETY: the stack is as large as what it calls needs, and lives until it has ended.
        let sibling = unsafe {
            let top = stack.as_mut_ptr().add(stack.len() - 2).cast();
            libc::clone(wait, top, libc::CLONE_VM | libc::SIGCHLD, std::ptr::null_mut())
        };
        assert!(sibling > 0, "{}", std::io::Error::last_os_error());
        let found = (0..100).all(|_| !is_alone(own, None, uid));
        let as_agent = is_alone_once(Some(sibling as u32));
        // SAFETY: it is our child, and nobody has waited for it.
        unsafe {
            libc::kill(sibling, libc::SIGKILL);
            libc::waitpid(sibling, std::ptr::null_mut(), libc::__WALL);
        }
        assert!(found && as_agent, "{found} {as_agent}");
        assert!(is_alone_once(None));
    }
}
