//! The protocol of ZeroMQ (ZMTP 3.0, mechanism NULL), as far as a DEALER needs it: a greeting, then
//! messages of one or more frames.

use crate::error::BenchError;
use crate::wire::{MOST_BYTES, Wire};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
/// Frames of one message, at most; Jupyter's have about ten.
const MOST_FRAMES: usize = 64;

/// Greets the other side and says what we are.
pub fn greet(wire: &mut Wire) -> Result<(), BenchError> {
    let mut greeting = [0u8; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    wire.send(&greeting)?;
    let mut theirs = Vec::new();
    wire.exactly(64, &mut theirs)?;
    if theirs[0] != 0xff || theirs[9] & 1 == 0 || theirs[10] < 3 || &theirs[12..17] != b"NULL\0" {
        return Err(wire.nonsense("a greeting that is none of ZMTP 3"));
    }
    let mut ready = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", "DEALER"), ("Identity", "")] {
        ready.push(name.len() as u8);
        ready.extend_from_slice(name.as_bytes());
        ready.extend_from_slice(&(value.len() as u32).to_be_bytes());
        ready.extend_from_slice(value.as_bytes());
    }
    let mut frame = vec![COMMAND, ready.len() as u8];
    frame.extend_from_slice(&ready);
    wire.send(&frame)
}

/// Sends a message.
pub fn send(wire: &mut Wire, frames: &[Vec<u8>]) -> Result<(), BenchError> {
    let mut bytes = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        let more = if number + 1 < frames.len() { MORE } else { 0 };
        match u8::try_from(frame.len()) {
            Ok(length) => bytes.extend_from_slice(&[more, length]),
            Err(_) => {
                bytes.push(more | LONG);
                bytes.extend_from_slice(&(frame.len() as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(frame);
    }
    wire.send(&bytes)
}

/// The next message; commands in between are passed over.
///
/// # Errors
/// If it has too many frames, or they are absurdly long.
pub fn receive(wire: &mut Wire) -> Result<Vec<Vec<u8>>, BenchError> {
    let (mut frames, mut buffer) = (Vec::new(), Vec::new());
    let mut total = 0usize;
    while frames.len() < MOST_FRAMES {
        wire.exactly(1, &mut buffer)?;
        let flags = buffer[0];
        wire.exactly(if flags & LONG == 0 { 1 } else { 8 }, &mut buffer)?;
        let length = buffer.iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
        total = total.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        if flags & !(MORE | LONG | COMMAND) != 0 || total > MOST_BYTES {
            return Err(wire.nonsense("a frame that makes no sense"));
        }
        wire.exactly(length as usize, &mut buffer)?;
        if flags & COMMAND != 0 {
            continue;
        }
        frames.push(std::mem::take(&mut buffer));
        if flags & MORE == 0 {
            return Ok(frames);
        }
    }
    Err(wire.nonsense("a message of too many frames"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    fn received(bytes: &[u8]) -> Result<Vec<Vec<u8>>, BenchError> {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        let mut wire = Wire::new("test", ours, Duration::from_millis(300)).expect("timeouts");
        theirs.write_all(bytes).expect("sent");
        drop(theirs);
        receive(&mut wire)
    }

    #[test]
    fn what_is_sent_is_received() {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let patience = Duration::from_secs(1);
        let mut one = Wire::new("one", ours, patience).expect("timeouts");
        let mut other = Wire::new("other", theirs, patience).expect("timeouts");
        let frames = vec![b"<IDS|MSG>".to_vec(), Vec::new(), vec![7; 1000], b"{}".to_vec()];
        send(&mut one, &frames).expect("sent");
        assert_eq!(receive(&mut other).expect("received"), frames);
    }

    #[test]
    fn commands_are_passed_over() {
        assert_eq!(received(b"\x04\x03xyz\x00\x02ab").expect("a message"), [b"ab"]);
    }

    #[test]
    fn absurd_lengths_and_other_nonsense_are_errors() {
        let mut endless = Vec::new();
        (0..100).for_each(|_| endless.extend_from_slice(b"\x01\x00"));
        for bytes in [
            &b"\x02\xff\xff\xff\xff\xff\xff\xff\xff"[..],
            b"\x02\x00\x00\x00\x00\x40\x00\x00\x00",
            b"\x80\x01a",
            b"\x00\x05ab",
            b"",
            &endless,
        ] {
            assert!(received(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn who_greets_otherwise_is_refused() {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        let mut wire = Wire::new("test", ours, Duration::from_millis(300)).expect("timeouts");
        theirs.write_all(&[b'x'; 64]).expect("sent");
        assert!(greet(&mut wire).is_err());
    }
}
