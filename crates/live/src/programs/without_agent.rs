//! Which programs cannot get an agent, as far as their file, or what the kernel has told them, shows.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clew_trace::regular;

const SETUID: &str =
    "it is setuid or setgid, or has capabilities of its own, and the loader drops the agent";
const STATIC: &str = "it is statically linked, so nothing can be preloaded into it";

/// Why nothing was preloaded into process `pid`; `None` also where that cannot be told. Its file is left alone: who opens
/// that waits for the file system that it is on.
pub fn why_of(pid: u32) -> Option<&'static str> {
    let mut words = Vec::new();
    let told = File::open(format!("/proc/{pid}/auxv")).ok()?;
    told.take(64 << 10).read_to_end(&mut words).ok()?;
    why_told(&words)
}

/// The same of what the kernel has told it at its beginning: pairs of words.
fn why_told(words: &[u8]) -> Option<&'static str> {
    const AT_NULL: u64 = 0;
    const AT_PAGESZ: u64 = 6;
    const AT_BASE: u64 = 7;
    const AT_SECURE: u64 = 23;
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let pairs = words.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
    let told: Vec<(u64, u64)> = pairs.take_while(|(what, _)| *what != AT_NULL).collect();
    let value = |wanted| told.iter().find(|(what, _)| *what == wanted).map(|(_, value)| *value);
    // A 32-bit program's words are none of these.
    value(AT_PAGESZ)?;
    match (value(AT_SECURE), value(AT_BASE)) {
        (Some(1..), _) => Some(SETUID),
        // No loader.
        (_, Some(0)) => Some(STATIC),
        _ => None,
    }
}

/// Why nothing can be preloaded into `program`; `None` also where that cannot be told.
pub fn why(program: &Path) -> Option<&'static str> {
    if program.metadata().ok()?.permissions().mode() & 0o6000 != 0 {
        return Some(SETUID);
    }
    // The headers are at the beginning; reading all of a large program would cost its size.
    let mut bytes = Vec::new();
    let file = regular::open(program, OpenOptions::new().read(true), 0).ok()?;
    file.take(64 << 10).read_to_end(&mut bytes).ok()?;
    if !bytes.starts_with(b"\x7fELF") {
        return None; // a script: its interpreter decides
    }
    // Program headers of a 64-bit ELF: entry size and count at 54 and 56, their offset at 32.
    let word = |at: u64, n: usize| -> Option<u64> {
        let part = bytes.get(at as usize..)?.get(..n)?;
        Some(part.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b)))
    };
    let (offset, size, count) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
    const PT_INTERP: u64 = 3;
    let kind = |i: u64| word(offset.checked_add(i * size)?, 4);
    let dynamic = (0..count).any(|i| kind(i) == Some(PT_INTERP));
    (!dynamic).then_some(STATIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_a_program_says_whether_it_has_a_loader() {
        assert_eq!(why_of(std::process::id()), None, "it is dynamic");
        let told = |pairs: &[(u64, u64)]| {
            let words = pairs.iter().flat_map(|(what, value)| [*what, *value]);
            why_told(&words.flat_map(u64::to_ne_bytes).collect::<Vec<u8>>())
        };
        assert_eq!(told(&[(6, 4096), (7, 0), (23, 0), (0, 0)]), Some(STATIC));
        assert_eq!(told(&[(6, 4096), (7, 0x7000), (23, 1), (0, 0)]), Some(SETUID));
        assert_eq!(told(&[(6, 4096), (7, 0x7000), (23, 0), (0, 0)]), None);
        // What stands behind the end counts no more; words of 32 bits are not understood.
        assert_eq!(told(&[(6, 4096), (0, 0), (7, 0)]), None);
        assert_eq!(why_told(&[6, 0, 0, 0, 0, 16, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(why_told(&[]), None);
    }
}
