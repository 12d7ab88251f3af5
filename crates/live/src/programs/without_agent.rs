//! Which programs cannot get an agent, as far as their file shows.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clew_trace::regular;

/// Why nothing can be preloaded into `program`; `None` also where that cannot be told.
pub fn why(program: &Path) -> Option<&'static str> {
    if program.metadata().ok()?.permissions().mode() & 0o6000 != 0 {
        return Some("it is setuid or setgid, and the loader drops the agent");
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
    (!dynamic).then_some("it is statically linked, so nothing can be preloaded into it")
}
