//! What a process holds, and what of it an interaction touches, as the kernel counts it.

use std::fs;

/// Memory of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgramMemory {
    /// Anonymous memory after the fill.
    pub filled_bytes: Option<u64>,
    /// Anonymous memory that one interaction touched.
    pub touched_bytes: Option<u64>,
}

/// Faults of a process that had to wait for swap or a file, since it began.
pub fn major_faults(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, tail) = stat.rsplit_once(") ")?;
    tail.split(' ').nth(9)?.parse().ok()
}

/// Resident anonymous memory of a process.
pub fn filled_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| kib(line, "RssAnon:"))
}

/// Forgets which pages of a process were touched; whether that is possible.
pub fn clear_referenced(pid: u32) -> bool {
    fs::write(format!("/proc/{pid}/clear_refs"), "1").is_ok()
}

/// Memory touched since [`clear_referenced`], in mappings that are of no file.
pub fn referenced_bytes(pid: u32) -> Option<u64> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    Some(referenced(&smaps))
}

fn referenced(smaps: &str) -> u64 {
    let mut anonymous = false;
    let mut total = 0;
    for line in smaps.lines() {
        let mut fields = line.split_whitespace();
        let first = fields.next().unwrap_or_default();
        if !first.ends_with(':') {
            // "begin-end permissions offset device inode [name]": no inode, no file.
            anonymous = fields.nth(3) == Some("0");
        } else if anonymous {
            total += kib(line, "Referenced:").unwrap_or(0);
        }
    }
    total
}

/// The bytes of a line "name 12 kB".
fn kib(line: &str, name: &str) -> Option<u64> {
    let number = line.strip_prefix(name)?.trim().strip_suffix("kB")?;
    Some(number.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_of_no_file_counts() {
        let smaps = "55d0-55d1 r-xp 0000 fe:00 131 /usr/bin/x\nRss: 8 kB\nReferenced: 8 kB\n\
                     7f00-7f01 rw-p 0000 00:00 0\nReferenced:  12 kB\nAnonymous: 12 kB\n\
                     7f02-7f03 rw-p 0000 00:00 0 [heap]\nReferenced: 4 kB\n";
        assert_eq!(referenced(smaps), 16 << 10);
    }

    #[test]
    fn this_process_holds_memory() {
        assert!(filled_bytes(std::process::id()).is_some_and(|bytes| bytes > 0));
        assert!(major_faults(std::process::id()).is_some());
    }
}
