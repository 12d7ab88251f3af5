//! `/proc/PID/stat` and `statm`: who began a process, when, what processor time it used, and what it has resident; and its threads.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

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

/// The text of `stat` or `status`: a program's name is there, which is of any bytes, and cut at the fifteenth.
pub fn text_of(path: &str) -> io::Result<String> {
    // Of these files no size is known before: one read gets all of most of them, and one more says so.
    let mut bytes = Vec::with_capacity(4096);
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Stat {
    /// Of the process that has this id now.
    pub fn of(pid: u32) -> io::Result<Stat> {
        Stat::at(&format!("/proc/{pid}/stat"))
    }

    /// Of the process or thread whose `stat` this is.
    pub fn at(path: &str) -> io::Result<Stat> {
        Stat::parse(&text_of(path)?)
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

/// Threads of a process that are looked at to find one that lives.
const LOOKED_AT: usize = 64;

/// A thread of a process.
///
/// Its number alone says nothing: it may have passed to a thread of another process, of another user's, by the time
/// that it is used.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    pid: u32,
    /// Its number.
    pub number: u32,
    started: u64,
}

impl Thread {
    /// The threads of process `pid` that have not ended, among its first [`LOOKED_AT`]: its first one may have
    /// (pthread_exit in main), and of that the kernel says that it has no memory. Others that have ended are there only
    /// where somebody who traces them has them stay.
    pub fn living(pid: u32) -> impl Iterator<Item = Thread> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let numbers = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
        numbers.take(LOOKED_AT).filter_map(move |number| {
            let stat = Thread::stat(pid, number).ok()?;
            let started = stat.started;
            (!matches!(stat.state, b'Z' | b'X')).then_some(Thread { pid, number, started })
        })
    }

    fn stat(pid: u32, number: u32) -> io::Result<Stat> {
        Stat::at(&format!("/proc/{pid}/task/{number}/stat"))
    }

    /// Whether it has not ended yet, so that its number was its own up to now.
    pub fn lives(self) -> bool {
        Thread::stat(self.pid, self.number).is_ok_and(|stat| stat.started == self.started)
    }

    /// Opens its file `what` under `/proc`, by way of its process: there is none of others' threads.
    ///
    /// # Errors
    /// It has ended, or that may not be read.
    pub fn open(self, what: &str) -> io::Result<File> {
        File::open(format!("/proc/{}/task/{}/{what}", self.pid, self.number))
    }
}

/// Opens the file `what` under `/proc` of what all threads of a process have in common, such as its memory.
///
/// # Errors
/// It has ended, or that may not be read.
pub fn open_of_process(pid: u32, what: &str) -> io::Result<File> {
    let living = Thread::living(pid).next();
    living.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?.open(what)
}

/// The real user of a process; `None` if it is gone.
pub fn user_of(pid: u32) -> Option<u32> {
    users_of(pid).ok()?.first().copied()
}

/// Whether a process is this user's, by all of its numbers.
pub fn is_all_of(pid: u32, uid: u32) -> bool {
    users_of(pid).is_ok_and(|users| !users.is_empty() && users.iter().all(|user| *user == uid))
}

/// The real, effective, saved and file system's user of a process.
///
/// # Errors
/// It is gone ([`is_gone`]), or that cannot be told.
pub fn users_of(pid: u32) -> io::Result<Vec<u32>> {
    let status = text_of(&format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let numbers = line.unwrap_or_default().split_ascii_whitespace();
    numbers.map(|number| number.parse().map_err(io::Error::other)).collect()
}

/// Of an error about a process: there is none of that id (any more).
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL))
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

/// Resident anonymous bytes of process `pid`. Zero once it is gone.
pub fn resident_anonymous_bytes_of(pid: u32, page_bytes: u64) -> u64 {
    let of = |statm: io::Result<File>| {
        statm.map_or(0, |statm| resident_anonymous_bytes(&statm, page_bytes))
    };
    match of(File::open(format!("/proc/{pid}/statm"))) {
        0 => of(open_of_process(pid, "statm")),
        bytes => bytes,
    }
}

/// Resident anonymous bytes of a process, from an open `/proc/PID/statm`. Zero once it is gone.
pub fn resident_anonymous_bytes(statm: &File, page_bytes: u64) -> u64 {
    let mut line = [0; 256];
    let Ok(bytes) = statm.read_at(&mut line, 0) else { return 0 };
    let text = String::from_utf8_lossy(&line[..bytes]);
    let mut fields = text.split_ascii_whitespace().skip(1).map(|f| f.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
    resident.saturating_sub(shared) * page_bytes
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
    fn a_user_is_known_while_the_process_lives() {
        assert_eq!(user_of(std::process::id()), Some(crate::control::trusted_path::own_uid()));
        assert_eq!(user_of(1 << 22), None);
        let own = crate::control::trusted_path::own_uid();
        assert!(is_all_of(std::process::id(), own) && !is_all_of(std::process::id(), own + 1));
        assert!(!is_all_of(1 << 22, own));
    }

    #[test]
    fn a_thread_whose_number_is_anothers_opens_nothing() {
        let own = std::process::id();
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let (says, said) = std::sync::mpsc::channel();
        let ends = std::thread::spawn(move || {
            // SAFETY: takes nothing, cannot fail.
            says.send(unsafe { libc::gettid() } as u32).expect("it is waited for");
            told.recv()
        });
        let number = said.recv().expect("a number");
        let mut thread = Thread::living(own).find(|t| t.number == number).expect("it is there");
        assert!(thread.lives() && thread.open("mem").is_ok());
        drop(tell);
        let _ = ends.join();
        // The kernel lets who joins go on a little earlier.
        while thread.lives() {
            std::thread::yield_now();
        }
        assert!(thread.open("mem").is_err());
        // Its number has passed to a process that anybody of ours may look at.
        let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        (thread.number, thread.started) =
            (other.id(), Stat::of(other.id()).expect("it runs").started);
        assert!(!thread.lives() && thread.open("mem").is_err());
        let of_itself = Thread::living(other.id()).next().expect("it runs");
        assert!(of_itself.lives() && of_itself.open("mem").is_ok());
        other.kill().and_then(|()| other.wait()).expect("it ends");
        assert!(!of_itself.lives() && of_itself.open("mem").is_err());
        assert!(open_of_process(other.id(), "mem").is_err());
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
