//! Messages of JSON behind a header `Content-Length`, as language servers send them.

use serde_json::Value;

use crate::error::BenchError;
use crate::wire::{MOST_BYTES, Wire};

/// The next message.
///
/// # Errors
/// If there is no length in front of it, the length is absurd, or the message is no JSON.
pub fn receive(wire: &mut Wire) -> Result<Value, BenchError> {
    let mut buffer = Vec::new();
    let mut length = None;
    loop {
        wire.line(&mut buffer)?;
        if !buffer.is_empty() {
            let line = String::from_utf8_lossy(&buffer);
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok();
            }
            continue;
        }
        // An empty line ends a header; between messages it says nothing.
        let Some(length) = length else { continue };
        if length > MOST_BYTES {
            return Err(wire.nonsense("a message of more than 64 MiB"));
        }
        wire.exactly(length, &mut buffer)?;
        return serde_json::from_slice(&buffer)
            .map_err(|_| wire.nonsense("a message that is no JSON"));
    }
}

/// Sends `message`.
pub fn send(wire: &mut Wire, message: &Value) -> Result<(), BenchError> {
    let text = message.to_string();
    wire.send(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn received(bytes: &[u8], count: usize) -> Vec<Result<Value, BenchError>> {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        let mut wire = Wire::new("test", ours, Duration::from_millis(300)).expect("timeouts");
        theirs.write_all(bytes).expect("sent");
        drop(theirs);
        (0..count).map(|_| receive(&mut wire)).collect()
    }

    #[test]
    fn messages_are_read_as_they_are_framed() {
        let text =
            b"Content-Type: x\r\nContent-Length: 9\r\n\r\n{\"a\": 1}\ncontent-length:2\r\n\r\n[]";
        let all = received(text, 3);
        assert_eq!(*all[0].as_ref().expect("a message"), json!({"a": 1}));
        assert_eq!(*all[1].as_ref().expect("a message"), json!([]));
        assert!(all[2].is_err());
    }

    #[test]
    fn absurd_lengths_and_other_nonsense_are_errors() {
        for text in [
            &b"Content-Length: 18446744073709551615\r\n\r\n{}"[..],
            b"Content-Length: 99999999999\r\n\r\n{}",
            b"Content-Length: -1\r\n\r\n{}",
            b"Content-Length: 99999999999999999999999999\r\n\r\n{}",
            b"Content-Length: 2\r\n\r\n{x",
            b"Content-Length: 20\r\n\r\n{}",
            b"no header at all",
            b"",
        ] {
            assert!(received(text, 1)[0].is_err(), "{}", String::from_utf8_lossy(text));
        }
    }
}
