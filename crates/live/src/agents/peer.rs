//! Who is at the other end of a connection.

use std::os::fd::AsRawFd;

use crate::agents::refusal::AttachError;
use crate::agents::seqpacket;
use crate::survival::predecessor::ProcessName;

/// Whether the process that connected is still there: then all that was heard of number `agent` was of
/// it. Its number passes to another when it has ended, which may be a thread of any program.
///
/// # Errors
/// If it is not, or nobody can tell.
pub fn is_still_there(socket: &impl AsRawFd, agent: u32) -> Result<(), AttachError> {
    let process = seqpacket::peer_process(socket).ok();
    match process.as_ref().and_then(ProcessName::behind) {
        Some(name) if name.pid == agent => Ok(()),
        _ => Err(AttachError::Gone),
    }
}
