//! `/proc/PID/stat`: who began a process, when, and what processor time it used.

use std::io;

/// What is read there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its state, as a letter: `Z` and `X` are dead.
    pub state: u8,
    /// Its parent.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Whether it calls itself what agents are called.
    pub is_agent: bool,
    /// Processor time it used, user and system, clock ticks.
    pub cpu_ticks: u64,
    /// When it began, clock ticks since the machine did.
    pub started: u64,
}

impl Stat {
    /// Of the process that has this id now.
    pub fn of(pid: u32) -> io::Result<Stat> {
        Stat::at(&format!("/proc/{pid}/stat"))
    }

    /// Of the process or thread whose `stat` this is.
    pub fn at(path: &str) -> io::Result<Stat> {
        Stat::parse(&std::fs::read_to_string(path)?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unreadable /proc/PID/stat"))
    }

    /// A command name may hold anything, parentheses too: what follows the last one is numbers.
    fn parse(text: &str) -> Option<Stat> {
        let (before, behind) = text.rsplit_once(')')?;
        let fields: Vec<&str> = behind.split_ascii_whitespace().collect();
        let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
        Some(Stat {
            state: *fields.first()?.as_bytes().first()?,
            parent: number(1)?.try_into().ok()?,
            group: number(2)?.try_into().ok()?,
            is_agent: before.split_once('(').is_some_and(|(_, name)| name == "clew-agent"),
            cpu_ticks: number(11)? + number(12)?,
            started: number(19)?,
        })
    }

    /// Processor time it used, seconds.
    pub fn cpu_seconds(&self) -> f64 {
        // SAFETY: takes a number, cannot fail for this one.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        self.cpu_ticks as f64 / ticks.max(1) as f64
    }
}

/// The threads of a process that have not ended: its first one may have (pthread_exit in main), and of that the
/// kernel says that it has no memory.
pub fn living_threads(pid: u32) -> impl Iterator<Item = u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let numbers = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    numbers.filter(move |thread| {
        Stat::at(&format!("/proc/{pid}/task/{thread}/stat"))
            .is_ok_and(|stat| !matches!(stat.state, b'Z' | b'X'))
    })
}

/// Processor time that a process used, seconds; `None` if it is gone. Waits for nobody, where reading
/// [`Stat`] waits for an execve that is under way.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both numbers live across the calls.
    let is_known = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    is_known.then(|| time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_pretend_to_be_numbers() {
        let text = "7 (a) S 1 (b c) R 42 7 7 0 -1 4194304 9 0 0 0 250 50 3 4 20 0 1 0 98765 1 2";
        let stat = Stat::parse(text).expect("all fields are there");
        let cpu_ticks = 300;
        let wanted =
            Stat { state: b'R', parent: 42, group: 7, is_agent: false, cpu_ticks, started: 98765 };
        assert_eq!(stat, wanted);
        let agent = Stat::parse(&text.replace("(a) S 1 (b c)", "(clew-agent)")).expect("as well");
        assert_eq!(agent, Stat { is_agent: true, ..wanted });
        assert_eq!(Stat::parse("7 (x) R 42"), None);
    }

    #[test]
    fn ones_own_is_true() {
        let stat = Stat::of(std::process::id()).expect("it runs");
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
        assert!(stat.started > 0 && stat.cpu_seconds() < 1e6);
        assert!(cpu_seconds(std::process::id()).is_some_and(|seconds| seconds > 0.0));
        assert_eq!(cpu_seconds(1 << 22), None, "no process has this number");
    }
}
