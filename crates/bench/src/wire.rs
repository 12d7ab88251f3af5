//! One connection to a program: whole requests out, framed answers in, never waiting longer than
//! its patience and never deaf to an interruption.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::interrupt;

/// Of one line or block; a program that sends more makes no sense.
pub const MOST_BYTES: usize = 64 << 20;
const SLICE: Duration = Duration::from_millis(100);

/// A connected stream with a read buffer.
pub struct Wire {
    program: &'static str,
    stream: UnixStream,
    buffer: Vec<u8>,
    begin: usize,
    patience: Duration,
}

impl Wire {
    /// Speaks with `program` over `stream`; an answer that takes longer than `patience` is an error.
    pub fn new(
        program: &'static str,
        stream: UnixStream,
        patience: Duration,
    ) -> Result<Wire, BenchError> {
        let fail = |source| BenchError::Connection { program: program.to_string(), source };
        stream.set_read_timeout(Some(SLICE)).map_err(fail)?;
        stream.set_write_timeout(Some(SLICE)).map_err(fail)?;
        Ok(Wire { program, stream, buffer: Vec::with_capacity(1 << 16), begin: 0, patience })
    }

    /// The error for what no program that works would say.
    pub fn nonsense(&self, what: &str) -> BenchError {
        let source = io::Error::new(ErrorKind::InvalidData, what.to_string());
        BenchError::Connection { program: self.program.to_string(), source }
    }

    /// What an i/o error means here; `Ok` if it was only the end of a time slice.
    fn judge(&self, error: io::Error, since: Instant) -> Result<(), BenchError> {
        interrupt::check()?;
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock | ErrorKind::TimedOut if since.elapsed() < self.patience => {
                Ok(())
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(BenchError::Silent {
                program: self.program.to_string(),
                seconds: self.patience.as_secs(),
            }),
            _ => Err(BenchError::Connection { program: self.program.to_string(), source: error }),
        }
    }

    /// Sends all of `request`.
    pub fn send(&mut self, mut request: &[u8]) -> Result<(), BenchError> {
        let since = Instant::now();
        while !request.is_empty() {
            match self.stream.write(request) {
                Ok(sent) => request = &request[sent..],
                Err(error) => self.judge(error, since)?,
            }
        }
        Ok(())
    }

    fn read_more(&mut self) -> Result<(), BenchError> {
        if self.begin > 0 {
            self.buffer.drain(..self.begin);
            self.begin = 0;
        }
        let held = self.buffer.len();
        self.buffer.resize(held + (1 << 16), 0);
        let since = Instant::now();
        let result = loop {
            match self.stream.read(&mut self.buffer[held..]) {
                Ok(0) => {
                    let source = ErrorKind::UnexpectedEof.into();
                    break Err(BenchError::Connection {
                        program: self.program.to_string(),
                        source,
                    });
                }
                Ok(count) => break Ok(count),
                Err(error) => {
                    if let Err(error) = self.judge(error, since) {
                        break Err(error);
                    }
                }
            }
        };
        self.buffer.truncate(held + *result.as_ref().unwrap_or(&0));
        result.map(|_| ())
    }

    /// The next line, without its end, into `into`.
    pub fn line(&mut self, into: &mut Vec<u8>) -> Result<(), BenchError> {
        self.until(b'\n', into)?;
        if into.last() == Some(&b'\r') {
            into.pop();
        }
        Ok(())
    }

    /// What comes before the next byte `end`, into `into`.
    pub fn until(&mut self, end: u8, into: &mut Vec<u8>) -> Result<(), BenchError> {
        into.clear();
        let mut searched = 0;
        loop {
            let held = &self.buffer[self.begin..];
            if let Some(offset) = held[searched..].iter().position(|&byte| byte == end) {
                into.extend_from_slice(&held[..searched + offset]);
                self.begin += searched + offset + 1;
                return Ok(());
            }
            searched = held.len();
            if searched > MOST_BYTES {
                return Err(self.nonsense("a line or message of more than 64 MiB"));
            }
            self.read_more()?;
        }
    }

    /// The next `count` bytes into `into`.
    pub fn exactly(&mut self, count: usize, into: &mut Vec<u8>) -> Result<(), BenchError> {
        into.clear();
        if count > MOST_BYTES {
            return Err(self.nonsense("a block of more than 64 MiB"));
        }
        while self.buffer.len() - self.begin < count {
            self.read_more()?;
        }
        into.extend_from_slice(&self.buffer[self.begin..self.begin + count]);
        self.begin += count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Wire, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        (Wire::new("test", ours, Duration::from_millis(150)).expect("timeouts"), theirs)
    }

    #[test]
    fn lines_and_blocks_in_pieces() {
        let (mut wire, mut theirs) = pair();
        let mut answer = Vec::new();
        theirs.write_all(b"one\r\ntw").expect("sent");
        wire.line(&mut answer).expect("a line");
        assert_eq!(answer, b"one");
        theirs.write_all(b"o\n12345").expect("sent");
        wire.line(&mut answer).expect("a line");
        assert_eq!(answer, b"two");
        wire.exactly(4, &mut answer).expect("a block");
        assert_eq!(answer, b"1234");
    }

    #[test]
    fn absurd_lengths_are_refused_before_anything_is_read() {
        let (mut wire, _theirs) = pair();
        let mut answer = Vec::new();
        for count in [MOST_BYTES + 1, usize::MAX] {
            let error = wire.exactly(count, &mut answer).expect_err("too much");
            assert!(error.to_string().contains("64 MiB"), "{error}");
        }
    }

    #[test]
    fn silence_and_hang_up_are_errors() {
        let (mut wire, theirs) = pair();
        let mut answer = Vec::new();
        assert!(matches!(wire.line(&mut answer), Err(BenchError::Silent { .. })));
        drop(theirs);
        assert!(matches!(wire.line(&mut answer), Err(BenchError::Connection { .. })));
    }
}
