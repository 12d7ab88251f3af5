//! What is asked of everybody's processes: `/proc/PID/status`. Reading that waits for nobody, where `stat` and kcmp wait
//! for an execve that is under way, which somebody's file system can make last for ever.

use std::collections::HashMap;
use std::fs;
use std::io;

use clew_live::programs::proc_stat::text_of;
use rustix::io::Errno;

/// What is read there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub parent: u32,
    /// Its real user.
    pub user: u32,
    /// Whether it calls itself what agents are called.
    pub is_agent: bool,
}

impl Seen {
    /// Of a living process. A newline in a name is escaped: no name pretends to be a line.
    fn parse(status: &str) -> Option<Seen> {
        let word = |key: &str| {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            line.split_ascii_whitespace().next()
        };
        if matches!(word("State")?.as_bytes(), [b'Z' | b'X', ..]) {
            return None;
        }
        Some(Seen {
            parent: word("PPid")?.parse().ok()?,
            user: word("Uid")?.parse().ok()?,
            is_agent: status.lines().next() == Some("Name:\tclew-agent"),
        })
    }
}

/// All living processes.
///
/// # Errors
/// They cannot all be looked at: what has ended meanwhile is left out, and no error.
pub(crate) fn everybody() -> io::Result<HashMap<u32, Seen>> {
    let mut found = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        match text_of(&format!("/proc/{pid}/status")) {
            Ok(status) => found.extend(Seen::parse(&status).map(|seen| (pid, seen))),
            Err(error) if nobody_can_be_seen(&error) => return Err(error),
            // It has ended, or is hidden from us.
            Err(_) => {}
        }
    }
    Ok(found)
}

/// Whether an error says nothing of the process that was asked for: there are no descriptors, or no memory.
pub(crate) fn nobody_can_be_seen(error: &io::Error) -> bool {
    let ours = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    ours.map(|errno| Some(errno.raw_os_error())).contains(&error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_everybody_is_read() {
        let text = "Name:\tclew-agent\nState:\tS (sleeping)\nPPid:\t7\nUid:\t5\t6\t6\t6\n";
        let agent = Seen { parent: 7, user: 5, is_agent: true };
        assert_eq!(Seen::parse(text), Some(agent));
        let other = Seen::parse(&text.replace("clew-agent", "clew-agent \\nPPid: 9"));
        assert_eq!(other, Some(Seen { is_agent: false, ..agent }));
        assert_eq!(Seen::parse(&text.replace("S (sleeping)", "Z (zombie)")), None);
        let all = everybody().expect("it can be seen");
        let own = all.get(&std::process::id()).expect("it lives");
        assert_eq!(own.parent, std::os::unix::process::parent_id());
    }
}
