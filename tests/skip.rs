//! How a test says that it cannot run here; every crate's tests include this file.

use std::fs::OpenOptions;
use std::io::Write;

/// Says loudly that a test did not run, and where `CLEW_SKIP_LOG` names a file, there too: it is
/// counted.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIP {test}: {reason}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("CLEW_SKIP_LOG") {
        let log = OpenOptions::new().create(true).append(true).open(path);
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("CLEW_SKIP_LOG is writable");
    }
}
