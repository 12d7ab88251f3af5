//! Where logs go: standard error, one line an event, whatever is in it.

use std::io::{self, Write};

use clew_core::remark;
use clew_core::shown::shown;

/// Each event that is written to it is a remark.
pub struct Log;

impl Write for Log {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        remark::say(&shown(text.strip_suffix('\n').unwrap_or(&text)));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
