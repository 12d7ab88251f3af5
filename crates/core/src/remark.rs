//! What is said on standard error, by whoever has something to say: commands, daemons, logs.
//!
//! Nobody ends because it cannot be written (a full disk, a pipe whose reader has gone), and nobody waits for a reader
//! that sleeps: a daemon has programs. What does not go away within a tenth of a second is left out, and how much that was is
//! told before the next thing that does.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What goes into a pipe at once that takes anything (`PIPE_BUF`).
const PIECE: usize = 4096;
/// How long a reader that has read so far may take to read on.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Remarks left out since the last one that was not.
static LEFT_OUT: Mutex<u64> = Mutex::new(0);

/// Says something on standard error, as [`shown_lines`](crate::shown::shown_lines) has it. See [`crate::remark`].
#[macro_export]
macro_rules! remark {
    ($($word:tt)*) => {
        $crate::remark::say(&$crate::shown::shown_lines(&format!($($word)*)))
    };
}

/// Says `text`, which may be shown as it is, and ends the line. See the module.
pub fn say(text: &str) {
    let mut left_out = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    say_to(&mut io::stderr().lock(), text, &mut left_out);
}

fn say_to(to: &mut (impl Write + AsFd), text: &str, left_out: &mut u64) {
    let patience = if *left_out == 0 { PATIENCE } else { NONE };
    if !takes_more(to, patience) {
        *left_out += 1;
        return;
    }
    let before = match std::mem::take(left_out) {
        0 => String::new(),
        remarks => format!("clew: nobody read here: {remarks} remarks were left out\n"),
    };
    for (number, piece) in format!("{before}{text}\n").as_bytes().chunks(PIECE).enumerate() {
        if number > 0 && !takes_more(to, PATIENCE) {
            *left_out += 1;
            return;
        }
        let _ = to.write_all(piece);
    }
}

/// Whether a [`PIECE`] that is written there goes away within `patience`, as far as can be known before. What fails, does so
/// at once.
fn takes_more(to: &impl AsFd, patience: Timespec) -> bool {
    poll(&mut [PollFd::new(to, PollFlags::OUT)], Some(&patience)) != Ok(0)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_full_pipe_holds_nobody_up_and_what_was_left_out_is_told() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut left_out = 0;
        let mut writer = File::from(OwnedFd::from(writer));
        let line = "x".repeat(1000);
        let mut said = 0;
        while left_out < 3 {
            say_to(&mut writer, &line, &mut left_out);
            said += 1;
            assert!(said < 10_000, "a pipe without an end");
        }
        let mut there = vec![0; (said - 3) * (line.len() + 1)];
        reader.read_exact(&mut there).expect("what was said");
        assert_eq!(there, format!("{line}\n").repeat(said - 3).as_bytes());
        say_to(&mut writer, "again", &mut left_out);
        assert_eq!(left_out, 0);
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("the rest");
        assert_eq!(rest, "clew: nobody read here: 3 remarks were left out\nagain\n");
    }
}
