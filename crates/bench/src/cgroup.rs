//! A control group that holds one arm: it counts memory and processor time, limits memory, and ends
//! whatever is left in it. Version 1 (hierarchies `memory` and `cpuacct`) and version 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{BenchError, file_error};

/// Where control groups are mounted.
#[derive(Clone, Debug, PartialEq)]
enum Mounts {
    V1 { memory: PathBuf, cpuacct: PathBuf },
    V2 { unified: PathBuf },
}

/// One group; its processes are ended and it is removed when this ends.
#[derive(Debug)]
pub struct Cgroup {
    memory: PathBuf,
    cpu: PathBuf,
    v2: bool,
}

/// Finds the mounts in the text of `/proc/mounts`.
fn find_mounts(text: &str) -> Option<Mounts> {
    let (mut memory, mut cpuacct, mut unified) = (None, None, None);
    for line in text.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(place), Some(kind), Some(options)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let has = |option| kind == "cgroup" && options.split(',').any(|one| one == option);
        if has("memory") {
            memory = Some(PathBuf::from(place));
        }
        if has("cpuacct") {
            cpuacct = Some(PathBuf::from(place));
        }
        if kind == "cgroup2" {
            unified = Some(PathBuf::from(place));
        }
    }
    match (memory, cpuacct, unified) {
        (Some(memory), Some(cpuacct), _) => Some(Mounts::V1 { memory, cpuacct }),
        (None, None, Some(unified)) => Some(Mounts::V2 { unified }),
        _ => None,
    }
}

impl Cgroup {
    /// Makes the group `clew-demo-PID/NAME`.
    pub fn create(name: &str) -> Result<Cgroup, BenchError> {
        let unavailable = |reason| BenchError::Unavailable { what: "a memory cgroup", reason };
        let mounts = Path::new("/proc/mounts");
        let text = fs::read_to_string(mounts).map_err(file_error("read", mounts))?;
        let found = find_mounts(&text)
            .ok_or_else(|| unavailable("no memory controller is mounted".to_string()))?;
        let parent = format!("clew-demo-{}", std::process::id());
        let group = match found {
            Mounts::V1 { memory, cpuacct } => Cgroup {
                memory: memory.join(&parent).join(name),
                cpu: cpuacct.join(&parent).join(name),
                v2: false,
            },
            Mounts::V2 { unified } => {
                let group = unified.join(&parent).join(name);
                Cgroup { memory: group.clone(), cpu: group, v2: true }
            }
        };
        for path in [&group.memory, &group.cpu] {
            if !path.exists() {
                fs::create_dir_all(path).map_err(|error| {
                    unavailable(format!("{}: {error} (run as root)", path.display()))
                })?;
            }
        }
        if group.v2 {
            group.enable_controllers().map_err(|error| unavailable(error.to_string()))?;
        }
        Ok(group)
    }

    /// Version 2 counts in a group only what its parents pass on.
    fn enable_controllers(&self) -> Result<(), BenchError> {
        for group in self.memory.ancestors().skip(1).take(2).collect::<Vec<_>>().iter().rev() {
            let path = group.join("cgroup.subtree_control");
            fs::write(&path, "+memory +cpu").map_err(file_error("write to", &path))?;
        }
        Ok(())
    }

    /// Files into which a process writes its id to enter the group.
    pub fn entrances(&self) -> Vec<PathBuf> {
        let mut files = vec![self.memory.join("cgroup.procs")];
        if self.cpu != self.memory {
            files.push(self.cpu.join("cgroup.procs"));
        }
        files
    }

    /// The file that holds the memory in use, page tables and page cache included.
    pub fn usage_file(&self) -> PathBuf {
        self.memory.join(if self.v2 { "memory.current" } else { "memory.usage_in_bytes" })
    }

    /// The file that holds the limit. Writing less than is in use reclaims in the writer's time.
    pub fn limit_file(&self) -> PathBuf {
        self.memory.join(if self.v2 { "memory.max" } else { "memory.limit_in_bytes" })
    }

    /// Memory in use.
    pub fn usage_bytes(&self) -> Result<u64, BenchError> {
        read_number(&self.usage_file())
    }

    /// Anonymous memory in use.
    pub fn anonymous_bytes(&self) -> Result<u64, BenchError> {
        read_field(&self.memory.join("memory.stat"), if self.v2 { "anon" } else { "rss" })
    }

    /// Memory that the kernel has swapped out, as it was before.
    pub fn swapped_bytes(&self) -> Result<u64, BenchError> {
        match self.v2 {
            true => read_number(&self.memory.join("memory.swap.current")),
            false => read_field(&self.memory.join("memory.stat"), "swap"),
        }
    }

    /// Memory of files that were read long ago: the kernel gives it up whenever it must.
    pub fn idle_file_bytes(&self) -> Result<u64, BenchError> {
        read_field(&self.memory.join("memory.stat"), "inactive_file")
    }

    /// Has the kernel give up about `bytes` of such memory; `limit` is the present limit. The group
    /// is never closer to a limit than `SLACK_BYTES` meanwhile, so that nothing in it is killed.
    pub fn give_up_files(&self, bytes: u64, limit: u64) -> Result<(), BenchError> {
        const SLACK_BYTES: u64 = 4 << 20;
        if self.v2 {
            let path = self.memory.join("memory.reclaim");
            // Less than what was asked for is an error to the kernel, and none to us.
            let _ = fs::write(&path, bytes.to_string());
            return Ok(());
        }
        let reachable = self.usage_bytes()?.saturating_sub(bytes) + SLACK_BYTES;
        if reachable < limit {
            let _ = self.limit(reachable);
        }
        self.limit(limit)
    }

    /// Limits the memory of the group.
    pub fn limit(&self, bytes: u64) -> Result<(), BenchError> {
        let path = self.limit_file();
        fs::write(&path, bytes.to_string()).map_err(file_error("write to", &path))
    }

    /// From now on, who finds no memory in the group waits for it and is not ended. Version 2 cannot.
    pub fn wait_for_memory(&self) -> Result<(), BenchError> {
        if self.v2 {
            return Ok(());
        }
        let path = self.memory.join("memory.oom_control");
        fs::write(&path, "1").map_err(file_error("write to", &path))
    }

    /// Whether somebody waits so.
    pub fn is_waited_in(&self) -> bool {
        let path = self.memory.join("memory.oom_control");
        !self.v2 && read_field(&path, "under_oom").is_ok_and(|waits| waits > 0)
    }

    /// Makes reclaim prefer anonymous memory, as is right where swap is as fast as here. Version 2
    /// has no such setting for one group.
    pub fn prefer_swapping(&self) -> Result<(), BenchError> {
        if self.v2 {
            return Ok(());
        }
        let path = self.memory.join("memory.swappiness");
        fs::write(&path, "100").map_err(file_error("write to", &path))
    }

    /// Keeps the group out of the swap that the machine itself may have: what is measured in it
    /// swaps by other means, or not at all.
    pub fn never_swap(&self) -> Result<(), BenchError> {
        let file = if self.v2 { "memory.swap.max" } else { "memory.swappiness" };
        let path = self.memory.join(file);
        if !path.exists() {
            return Ok(()); // A kernel without swap.
        }
        fs::write(&path, "0").map_err(file_error("write to", &path))
    }

    /// Processor time of everything that ran in the group.
    pub fn cpu_time(&self) -> Result<Duration, BenchError> {
        if self.v2 {
            let micros = read_field(&self.cpu.join("cpu.stat"), "usage_usec")?;
            return Ok(Duration::from_micros(micros));
        }
        Ok(Duration::from_nanos(read_number(&self.cpu.join("cpuacct.usage"))?))
    }

    /// Faults that had to wait for swap or a file, since the group began.
    pub fn major_faults(&self) -> Result<u64, BenchError> {
        read_field(&self.memory.join("memory.stat"), "pgmajfault")
    }

    /// Processes that the kernel killed because the limit was too low.
    pub fn out_of_memory_kills(&self) -> Result<u64, BenchError> {
        let file = if self.v2 { "memory.events" } else { "memory.oom_control" };
        read_field(&self.memory.join(file), "oom_kill")
    }

    /// The processes of the group.
    pub fn processes(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.memory.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Ends every process of the group and waits until they are gone.
    fn end_processes(&self) {
        let patience = Instant::now() + Duration::from_secs(10);
        loop {
            let processes = self.processes();
            if processes.is_empty() || Instant::now() > patience {
                return;
            }
            for pid in processes {
                // SAFETY: kill touches no memory of ours. Only processes that this crate started
                // are in the group, and the id was read from it just now.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.end_processes();
        let mut paths = vec![&self.memory];
        if self.cpu != self.memory {
            paths.push(&self.cpu);
        }
        for path in paths {
            match remove_patiently(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    clew_core::remark!("{} could not be removed: {error}", path.display());
                }
                _ => {}
            }
            if let Some(parent) = path.parent() {
                // Another arm may still be in there; the last one removes it.
                let _ = fs::remove_dir(parent);
            }
        }
    }
}

/// A group stays busy for a moment after its last process.
fn remove_patiently(path: &Path) -> io::Result<()> {
    let patience = Instant::now() + Duration::from_secs(5);
    loop {
        match fs::remove_dir(path) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < patience =>
            {
                thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// A file that holds one number.
pub fn read_number(path: &Path) -> Result<u64, BenchError> {
    let text = fs::read_to_string(path).map_err(file_error("read", path))?;
    text.trim().parse().map_err(|_| not_there(path))
}

/// A file of lines `name value`.
fn read_field(path: &Path, name: &str) -> Result<u64, BenchError> {
    let text = fs::read_to_string(path).map_err(file_error("read", path))?;
    field(&text, name).ok_or_else(|| not_there(path))
}

fn not_there(path: &Path) -> BenchError {
    let source = io::Error::new(io::ErrorKind::InvalidData, "the expected number is not in it");
    BenchError::File { action: "understand", path: path.to_path_buf(), source }
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        if key == name { value.trim().parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found() {
        let v1 = "cgroup /cg/memory cgroup rw,relatime,memory 0 0\n\
                  cgroup /cg/acct cgroup rw,cpu,cpuacct 0 0\ncgroup2 /cg/unified cgroup2 rw 0 0\n";
        let expected =
            Mounts::V1 { memory: PathBuf::from("/cg/memory"), cpuacct: PathBuf::from("/cg/acct") };
        assert_eq!(find_mounts(v1), Some(expected));
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        assert_eq!(find_mounts(v2), Some(Mounts::V2 { unified: PathBuf::from("/sys/fs/cgroup") }));
        assert_eq!(find_mounts("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
        assert_eq!(field(text, "oom_kill"), Some(2));
        assert_eq!(field(text, "oom"), None);
    }

    #[test]
    fn a_group_ends_what_is_in_it() {
        let group = match Cgroup::create("self-test") {
            Ok(group) => group,
            Err(error) => {
                return crate::skip::skip("cgroup::a_group_ends_what_is_in_it", &error.to_string());
            }
        };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        for entrance in group.entrances() {
            fs::write(entrance, child.id().to_string()).expect("the group takes a process");
        }
        assert_eq!(group.processes(), [child.id() as i32]);
        assert!(group.usage_bytes().is_ok() && group.major_faults().is_ok());
        assert_eq!(group.out_of_memory_kills().ok(), Some(0));
        group.never_swap().expect("ours to set");
        let path = group.memory.clone();
        // The child must be waited for, else it stays in the group as a zombie's id.
        let waiter = thread::spawn(move || child.wait());
        drop(group);
        assert!(!waiter.join().expect("no panic").expect("waited").success());
        assert!(!path.exists());
    }
}
