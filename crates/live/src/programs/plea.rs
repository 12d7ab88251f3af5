//! Programs that ask to be let go.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clew_agent::protocol::{Header, Kind};

use crate::agents::closer::Foreign;
use crate::agents::seqpacket;
use crate::programs::process::Process;

/// A program that asks to be let go.
pub struct Plea {
    /// It itself, and nobody else.
    pub process: Arc<Process>,
    /// What it asks for if that is not all.
    pub range: Option<Range<u64>>,
    /// When it was heard.
    pub since: Instant,
    pub(super) socket: Foreign,
}

impl Drop for Plea {
    fn drop(&mut self) {
        self.process.pleas.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Plea {
    /// Tells it that it is free, or that it is not.
    pub fn answer(&self, is_free: bool) {
        answer(&self.socket, if is_free { 0 } else { libc::EBUSY });
    }
}

/// Who asks is free (0), or not, and why.
pub(super) fn answer(socket: &OwnedFd, error: i32) {
    let header = Header::new(Kind::Done, error as u32, 0);
    let words = [header.magic, header.kind, header.value, header.detail].map(u32::to_ne_bytes);
    // Who does not listen does without.
    let _ = seqpacket::send(socket, [words.as_flattened()], &[]);
}
