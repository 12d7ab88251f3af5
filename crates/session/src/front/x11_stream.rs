//! A connection to an X server that announces no answer without an end: `x11rb` has memory for whatever is announced.

use std::io;

use parking_lot::Mutex;
use x11rb::rust_connection::{DefaultStream, PollMode, Stream};
use x11rb::utils::RawFdContainer;

/// Bytes of an answer behind its header, more than any has that is asked for here. A server's first one cannot have more
/// than a quarter of it.
const MOST: u64 = 1 << 20;

/// What begins a server's first answer, and each one behind it, bytes (X Window System Protocol, appendix B).
const FIRST: usize = 8;
const HEADER: usize = 32;

/// Kinds of packets that have something behind their header: an answer, and an event of an extension.
const REPLY: u8 = 1;
const GENERIC_EVENT: u8 = 35;

/// The connection.
pub struct X11Stream {
    stream: DefaultStream,
    heard: Mutex<Heard>,
}

impl X11Stream {
    /// Who is behind `stream` has said nothing yet.
    pub fn new(stream: DefaultStream) -> X11Stream {
        X11Stream { stream, heard: Mutex::default() }
    }
}

impl Stream for X11Stream {
    fn poll(&self, mode: PollMode) -> io::Result<()> {
        self.stream.poll(mode)
    }

    fn read(&self, buf: &mut [u8], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        let mut heard = self.heard.lock();
        let read = self.stream.read(buf, fds)?;
        // Nothing is asked for that has any.
        fds.clear();
        heard.hear(&buf[..read])?;
        Ok(read)
    }

    fn write(&self, buf: &[u8], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.stream.write(buf, fds)
    }
}

/// How far into what a server says.
#[derive(Default)]
struct Heard {
    is_first_over: bool,
    /// What is there of a header.
    header: Vec<u8>,
    /// What is left behind the last one.
    left: u64,
}

impl Heard {
    fn hear(&mut self, mut said: &[u8]) -> io::Result<()> {
        while !said.is_empty() {
            let skipped = said.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= skipped as u64;
            said = &said[skipped..];
            let wanted = if self.is_first_over { HEADER } else { FIRST };
            let taken = said.len().min(wanted - self.header.len());
            self.header.extend_from_slice(&said[..taken]);
            said = &said[taken..];
            if self.header.len() == wanted {
                self.left = self.announced();
                self.header.clear();
                self.is_first_over = true;
                if self.left > MOST {
                    return Err(io::Error::other(format!("it announces {} bytes", self.left)));
                }
            }
        }
        Ok(())
    }

    /// Bytes behind a whole header.
    fn announced(&self) -> u64 {
        let words = match (self.is_first_over, self.header[0]) {
            (false, _) => u64::from(u16::from_ne_bytes([self.header[6], self.header[7]])),
            (true, REPLY | GENERIC_EVENT) => {
                let length = self.header[4..8].try_into().expect("four bytes");
                u64::from(u32::from_ne_bytes(length))
            }
            (true, _) => 0,
        };
        words * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8, words: u32) -> Vec<u8> {
        let mut header = vec![0; HEADER];
        header[0] = kind;
        header[4..8].copy_from_slice(&words.to_ne_bytes());
        header
    }

    /// As a server says it, in pieces of `size` bytes.
    fn hear(said: &[u8], size: usize) -> io::Result<()> {
        let mut heard = Heard::default();
        said.chunks(size).try_for_each(|piece| heard.hear(piece))
    }

    #[test]
    fn what_is_announced_has_an_end_however_it_comes() {
        let mut said = vec![1, 0, 11, 0, 0, 0];
        said.extend(3u16.to_ne_bytes());
        // Nothing in here is a header.
        said.extend([REPLY, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        said.extend(packet(REPLY, 2));
        said.extend([0xff; 8]);
        // An event's bytes are no length.
        said.extend(packet(28, u32::MAX));
        said.extend(packet(GENERIC_EVENT, 1));
        said.extend([0xff; 4]);
        let sizes = [1, 7, 32, 4096];
        assert!(sizes.iter().all(|size| hear(&said, *size).is_ok()));
        for kind in [REPLY, GENERIC_EVENT] {
            let endless = [said.as_slice(), &packet(kind, (MOST / 4 + 1) as u32)].concat();
            assert!(sizes.iter().all(|size| hear(&endless, *size).is_err()));
            let long = [said.as_slice(), &packet(kind, (MOST / 4) as u32)].concat();
            assert!(sizes.iter().all(|size| hear(&long, *size).is_ok()));
        }
    }
}
